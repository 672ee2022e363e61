/* SPDX-License-Identifier: Apache-2.0
 *
 * The answers that wait for their first token, of all threads, under one lock, which is taken when an answer begins to
 * wait and when it no longer does; one that finds the engine free never comes here. Bounded: when the room is full a
 * newcomer displaces an answer of a worse priority, or of a tenant that has more here than its own (base/fair.h);
 * otherwise it is not let in.
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

/* Who asks. */
struct waiting_guest {
	uint64_t tenant;
	int64_t priority;
};

/* At most `most` are in it. displaced(ctx) is called on t, from its loop, when somebody better takes the place;
 * waiting_leave is due all the same, and then it is not called any more. SL_ELIMIT: full; SL_ENOMEM. */
int waiting_enter(struct waiting_room *r, size_t most, struct waiting_guest guest, struct gw_thread *t,
		  void (*displaced)(void *ctx), void *ctx, struct waiting **out);
/* On its thread; NULL is fine. */
void waiting_leave(struct waiting *w);
/* Would it be let in? */
bool waiting_has_room(struct waiting_room *r, size_t most, struct waiting_guest guest);
size_t waiting_count(struct waiting_room *r);

#endif
