/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the prefix registry, and computes the hottest prompts in it again when the engine has been
 * restarted, and by another model when most users of a name get that from now on (gateway/variant): one thread of all
 * gateways does, one prompt at a time, with the last priority, while the engine has nothing else to do. A thread has
 * one.
 */
#ifndef GATEWAY_WARM_H
#define GATEWAY_WARM_H

#include "gateway/sharing/prefix_registry.h"

struct gw_app;
struct warm;

/* app->t->cache is there; its link may come later. NULL: no memory. */
struct warm *warm_create(struct gw_app *app);
void warm_destroy(struct warm *w); /* NULL is fine */
/* The engine's epoch and the variants of most users: what was computed in another one may have to be computed again. */
uint64_t warm_epoch(const struct gw_app *app);

/* The engine has computed this prefix (copied) for an answer. instead: the entry that it extends, which is forgotten;
 * NULL: none. Never blocks: reports beyond the bound are dropped. */
void warm_note(struct warm *w, const struct prefix_entry *e, const char *instead);

#endif
