/* SPDX-License-Identifier: Apache-2.0
 *
 * The process-wide queue of answers that wait for their first token. An answer never enters if the engine is idle. The
 * queue is bounded. When it is full, a newcomer displaces an answer of a worse priority, or of a tenant with more
 * entries than the newcomer's (base/fair.h); otherwise the newcomer is refused.
 *
 * Thread: any; one lock, taken on enter and leave.
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
/* The queue must be empty. */
void admission_queue_destroy(struct admission_queue *r);

/* An answer that asks to enter. */
struct admission_guest {
	uint64_t tenant;
	int64_t priority;
};

/* The queue holds at most `most` entries. displaced(ctx) is called on t, from its loop, when a newcomer displaces
 * this entry; the caller still calls admission_queue_leave, after which displaced is not called. SL_ELIMIT: full;
 * SL_ENOMEM. */
int admission_queue_enter(struct admission_queue *r, size_t most, struct admission_guest guest, struct gw_thread *t,
			  void (*displaced)(void *ctx), void *ctx, struct waiting **out);
/* On its thread; NULL is fine. */
void admission_queue_leave(struct waiting *w);
/* Would admission_queue_enter accept it? */
bool admission_queue_has_room(struct admission_queue *r, size_t most, struct admission_guest guest);
size_t admission_queue_count(struct admission_queue *r);

#endif
