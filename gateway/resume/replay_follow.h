/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a stream, here or in the store (replay_follow.c).
 */
#ifndef GATEWAY_REPLAY_FOLLOW_H
#define GATEWAY_REPLAY_FOLLOW_H

#include <stdint.h>

#include "base/list.h"

struct gw_app;
struct replay_log;
struct replay_store;

/* Embedded in the waiting request's state. done: with a log (a reference, the caller's from then on) and 0, or NULL and
 * SL_ENOTFOUND, SL_ECLOSED (the store does not answer), SL_ENOMEM, SL_ELIMIT. From the loop. */
struct replay_find {
	struct list node;
	void (*done)(struct replay_find *f, struct replay_log *log, int code);
};

/* The tenant's stream, here or in the store: 1 and *out with a reference, 0: done will be called, SL_ENOTFOUND:
 * not here, and there is no store to ask. f must be zero or cancelled before. */
int replay_store_find(struct gw_app *app, struct replay_find *f, const char *id, uint64_t tenant,
		      struct replay_log **out);
void replay_find_cancel(struct replay_find *f);
/* Follows a stream whose gateway may have died. */
void replay_follow_orphan(struct replay_store *s, const char *id, uint64_t tenant);
/* Before the store goes: every waiting find gets SL_ECLOSED, every copy ends. s may be NULL. */
void replay_follows_stop(struct replay_store *s);

#endif
