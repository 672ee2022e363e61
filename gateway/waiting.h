/* SPDX-License-Identifier: Apache-2.0
 *
 * Those who wait for their first token, of all threads: one list a priority under one lock, which is taken when
 * somebody begins to wait and when he no longer does; who finds the engine free never comes here. Bounded: when it
 * is full the newest of the worst priority goes, if it is worse than that of the newcomer; otherwise the
 * newcomer is not let in.
 */
#ifndef GATEWAY_WAITING_H
#define GATEWAY_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gw_thread;
struct waiting;
struct waiting_room;

/* SL_ENOMEM. */
int waiting_room_create(struct waiting_room **out);
/* Nobody is in it. */
void waiting_room_destroy(struct waiting_room *r);

/* At most `most` are in it. displaced(ctx) is called on t, from its loop, when somebody better takes the place;
 * waiting_leave is due all the same, and then it is not called any more. SL_ELIMIT: full; SL_ENOMEM. */
int waiting_enter(struct waiting_room *r, size_t most, int64_t priority, struct gw_thread *t,
		  void (*displaced)(void *ctx), void *ctx, struct waiting **out);
/* On its thread; NULL is fine. */
void waiting_leave(struct waiting *w);
/* Would somebody of this priority be let in? */
bool waiting_has_room(struct waiting_room *r, size_t most, int64_t priority);
size_t waiting_count(struct waiting_room *r);

#endif
