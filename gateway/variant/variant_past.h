/* SPDX-License-Identifier: Apache-2.0
 *
 * What a base did lately: how many of its answers failed, over all threads and gateways. A trial that begins takes it
 * for its base's history (gateway/trial/trial.h). It belongs to a name and its base's settings, whatever the variants
 * are, so there is one before the first variant is; a base alone under its name gathers one.
 *
 * Like a state (variant_state.h) it is in three parts: the store's, what is on its way there, what came since. The
 * store's halves every two days and has at most TRIAL_PAST_MOST answers. Any thread; one lock each.
 */
#ifndef GATEWAY_VARIANT_PAST_H
#define GATEWAY_VARIANT_PAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/trial/trial.h"

struct variant_past;

/* The one of that key, with a reference. NULL: no memory. */
struct variant_past *variant_past_get(uint64_t key);
struct variant_past *variant_past_ref(struct variant_past *p); /* NULL allowed, as below */
void variant_past_unref(struct variant_past *p);
uint64_t variant_past_key(const struct variant_past *p);
/* An answer of the base. */
void variant_past_take(struct variant_past *p, bool failed, uint64_t user);
/* NULL: none. */
struct trial_past variant_past_view(struct variant_past *p);

/* ---- for variant_sync.c ---- */

/* Up to `room`, each with a reference. Returns how many. */
size_t variant_pasts_list(struct variant_past **out, size_t room);
/* What to send, and its number. False: nothing new, and the store told not long ago; or an exchange is under way. */
bool variant_past_send(struct variant_past *p, struct trial_past *out, int64_t *batch);
/* The store's reply. NULL: it did not answer. */
void variant_past_told(struct variant_past *p, const struct trial_past *all);

#endif
