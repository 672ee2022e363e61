/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/loop/loop_lag.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/metrics.h"

enum { EVERY_MS = 100 };

static const double bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5};
static struct metric lag =
    HISTOGRAM_OF("sluice_gateway_loop_lag_seconds", NULL, "Delay of a gateway thread's timers", bounds);
METRICS(lag);

static void start_again(struct loop_lag *l)
{
	l->due_ns = clock_now_ns() + EVERY_MS * NS_PER_MS;
	gw_timer_start(l->timers, &l->timer, EVERY_MS * NS_PER_MS);
}

static void on_time(struct gw_timer *timer)
{
	struct loop_lag *l = list_entry(timer, struct loop_lag, timer);
	uint64_t now = clock_now_ns();
	metric_observe(&lag, now > l->due_ns ? (int64_t)(now - l->due_ns) : 0);
	start_again(l);
}

void loop_lag_start(struct loop_lag *l, struct gw_timers *timers)
{
	l->timers = timers;
	gw_timer_init(&l->timer, on_time);
	start_again(l);
}

void loop_lag_stop(struct loop_lag *l)
{
	if (l->timers != NULL)
		gw_timer_stop(l->timers, &l->timer);
	l->timers = NULL;
}
