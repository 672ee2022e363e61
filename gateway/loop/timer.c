/* SPDX-License-Identifier: Apache-2.0
 *
 * A pairing heap by time, and one libevent event for its top. An earlier timer moves the event earlier; nothing moves
 * it later. If its timer has been stopped, the event fires once without effect and is set for the top again. So most
 * starts and stops, of which each answer makes several, change no event.
 *
 * Thread: the loop's.
 */
#include "gateway/loop/timer.h"

#include <event2/event.h>

#include "base/clock.h"
#include "base/err.h"

static bool is_sooner(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, struct gw_timer, node)->at_ns < heap_entry(b, struct gw_timer, node)->at_ns;
}

/* If adding the event fails, the next timer that starts tries again; libevent fails only without memory for its heap.
 */
static void set_event(struct gw_timers *ts, uint64_t now)
{
	if (ts->heap.top == NULL)
		return;
	uint64_t at = heap_entry(ts->heap.top, struct gw_timer, node)->at_ns;
	if (at >= ts->armed_ns)
		return;
	uint64_t us = at > now ? (at - now + 999) / 1000 : 0;
	struct timeval tv = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
	ts->armed_ns = evtimer_add(ts->event, &tv) == 0 ? at : UINT64_MAX;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct gw_timers *ts = arg;
	uint64_t now = clock_now_ns();
	(void)fd, (void)what;
	ts->armed_ns = UINT64_MAX;
	while (ts->heap.top != NULL) {
		struct gw_timer *timer = heap_entry(ts->heap.top, struct gw_timer, node);
		if (timer->at_ns > now)
			break;
		heap_remove(&ts->heap, &timer->node);
		timer->fire(timer);
	}
	set_event(ts, now);
}

int gw_timers_init(struct gw_timers *ts, struct event_base *base)
{
	heap_init(&ts->heap, is_sooner);
	ts->armed_ns = UINT64_MAX;
	ts->event = evtimer_new(base, on_event, ts);
	return ts->event != NULL ? 0 : SL_ENOMEM;
}

void gw_timers_dispose(struct gw_timers *ts)
{
	BUG_IF(ts->heap.n != 0, "%zu timers are running", ts->heap.n);
	if (ts->event != NULL)
		event_free(ts->event);
	ts->event = NULL;
}

void gw_timer_start(struct gw_timers *ts, struct gw_timer *timer, uint64_t ns)
{
	uint64_t now = clock_now_ns();
	gw_timer_stop(ts, timer);
	if (__builtin_add_overflow(ns, now, &timer->at_ns))
		timer->at_ns = UINT64_MAX - 1;
	heap_insert(&ts->heap, &timer->node);
	set_event(ts, now);
}

void gw_timer_stop(struct gw_timers *ts, struct gw_timer *timer)
{
	if (timer->node.in)
		heap_remove(&ts->heap, &timer->node);
}
