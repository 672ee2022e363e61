/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers of a gateway thread, for waits of individual lengths. There are thousands of them, one for each open answer.
 * A timer is embedded in its owner, takes a few pointers and costs no time while it waits; the loop has one event for
 * all. deadline.h is for waits of common lengths that need no precision. Thread: the loop's.
 */
#ifndef GATEWAY_TIMER_H
#define GATEWAY_TIMER_H

#include <stdint.h>

#include "base/heap.h"

struct event;
struct event_base;

/* All timers of a thread. */
struct gw_timers {
	struct heap heap;
	struct event *event;
	uint64_t armed_ns; /* when the event fires; UINT64_MAX: it does not */
};

struct gw_timer {
	struct heap_node node;
	uint64_t at_ns;
	void (*fire)(struct gw_timer *timer); /* may start, stop and free any timer, itself included */
};

/* 0 or SL_ENOMEM. */
int gw_timers_init(struct gw_timers *ts, struct event_base *base);
/* No timer may be running. */
void gw_timers_dispose(struct gw_timers *ts);

static inline void gw_timer_init(struct gw_timer *timer, void (*fire)(struct gw_timer *timer))
{
	*timer = (struct gw_timer){.fire = fire};
}
/* Fires once, in ns nanoseconds or a little later; restarts a running timer. */
void gw_timer_start(struct gw_timers *ts, struct gw_timer *timer, uint64_t ns);
void gw_timer_stop(struct gw_timers *ts, struct gw_timer *timer);

#endif
