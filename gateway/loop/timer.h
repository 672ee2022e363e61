/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers of a gateway thread: for what waits for lengths of its own, and there are thousands of them
 * (each open answer has one). They are embedded in their owners, cost a few pointers each and nothing
 * while they wait; the event loop knows one of them. deadline.h is for waits of common lengths that
 * need no precision.
 */
#ifndef GATEWAY_TIMER_H
#define GATEWAY_TIMER_H

#include <stdint.h>

#include "base/heap.h"

struct event;
struct event_base;

/* Those of a thread. */
struct gw_timers {
	struct heap heap;
	struct event *event;
	uint64_t armed_ns; /* when the event fires; UINT64_MAX: it does not */
};

struct gw_timer {
	struct heap_node node;
	uint64_t at_ns;
	void (*fire)(struct gw_timer *timer); /* may start, stop and free anything, itself too */
};

/* 0 or SL_ENOMEM. */
int gw_timers_init(struct gw_timers *ts, struct event_base *base);
/* No timer runs any more. */
void gw_timers_dispose(struct gw_timers *ts);

static inline void gw_timer_init(struct gw_timer *timer, void (*fire)(struct gw_timer *timer))
{
	*timer = (struct gw_timer){.fire = fire};
}
/* Fires once, in so many nanoseconds or a little later; anew if it was running. */
void gw_timer_start(struct gw_timers *ts, struct gw_timer *timer, uint64_t ns);
void gw_timer_stop(struct gw_timers *ts, struct gw_timer *timer);

#endif
