/* SPDX-License-Identifier: Apache-2.0
 *
 * The answers that wait for their first token, of all threads, under one lock, which is taken when an answer begins to
 * wait and when it no longer does; one that finds the engine free never comes here. Bounded: when the room is full a
 * newcomer displaces an answer of a worse priority, or of a tenant that has more here than its own (base/fair.h);
 * otherwise it is not let in.
 */
#ifndef GATEWAY_ADMISSION_QUEUE_H
#define GATEWAY_ADMISSION_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gw_thread;
struct waiting;
struct admission_queue;

/* SL_ENOMEM. */
int admission_queue_create(struct admission_queue **out);
/* Nobody is in it. */
void admission_queue_destroy(struct admission_queue *r);

/* Who asks. */
struct admission_guest {
	uint64_t tenant;
	int64_t priority;
};

/* At most `most` are in it. displaced(ctx) is called on t, from its loop, when somebody better takes the place;
 * admission_queue_leave is due all the same, and then it is not called any more. SL_ELIMIT: full; SL_ENOMEM. */
int admission_queue_enter(struct admission_queue *r, size_t most, struct admission_guest guest, struct gw_thread *t,
			  void (*displaced)(void *ctx), void *ctx, struct waiting **out);
/* On its thread; NULL is fine. */
void admission_queue_leave(struct waiting *w);
/* Would it be let in? */
bool admission_queue_has_room(struct admission_queue *r, size_t most, struct admission_guest guest);
size_t admission_queue_count(struct admission_queue *r);

#endif
