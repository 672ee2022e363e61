/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers of a thread, on a clock that the test turns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/loop/timer.h"

enum { N = 200, LATEST_MS = 400, STEP_MS = 10 };

struct alarm {
	struct gw_timer timer;
	uint64_t due_ns, fired_ns;
	int n_fired;
	struct alarm *stops, *starts; /* when it fires */
};

static uint64_t now_ns;
static struct gw_timers timers;
static struct event_base *base;
static struct alarm alarms[N];

static void start(struct alarm *a, uint64_t ms)
{
	a->due_ns = now_ns + ms * NS_PER_MS;
	gw_timer_start(&timers, &a->timer, ms * NS_PER_MS);
}

static void on_fire(struct gw_timer *timer)
{
	struct alarm *a = (struct alarm *)(void *)timer;
	a->n_fired++;
	a->fired_ns = now_ns;
	assert_true(a->due_ns <= now_ns);
	if (a->stops != NULL)
		gw_timer_stop(&timers, &a->stops->timer);
	if (a->starts != NULL)
		start(a->starts, STEP_MS);
}

static int set_up(void **state)
{
	(void)state;
	now_ns = NS_PER_S;
	clock_fake(&now_ns);
	base = event_base_new();
	assert_non_null(base);
	assert_int_equal(gw_timers_init(&timers, base), 0);
	memset(alarms, 0, sizeof alarms);
	for (int i = 0; i < N; i++)
		gw_timer_init(&alarms[i].timer, on_fire);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	gw_timers_dispose(&timers);
	event_base_free(base);
	clock_fake(NULL);
	return 0;
}

/* The event is woken as libevent would, at the time of the test's clock. */
static void pass(uint64_t ms)
{
	now_ns += ms * NS_PER_MS;
	if (timers.armed_ns <= now_ns)
		event_active(timers.event, EV_TIMEOUT, 0);
	assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
}

static void each_fires_once_when_it_is_due(void **state)
{
	(void)state;
	uint32_t seed = 7;
	for (int i = 0; i < N; i++) {
		seed = seed * 1664525 + 1013904223;
		start(&alarms[i], 1 + (seed >> 16) % LATEST_MS);
		if (i % 5 == 0)
			start(&alarms[i], 1 + (seed >> 8) % LATEST_MS); /* anew */
		if (i % 7 == 0)
			gw_timer_stop(&timers, &alarms[i].timer);
	}
	for (int ms = 0; ms <= LATEST_MS; ms += STEP_MS) {
		pass(STEP_MS);
		for (int i = 0; i < N; i++)
			assert_int_equal(alarms[i].n_fired, i % 7 != 0 && alarms[i].due_ns <= now_ns);
	}
	for (int i = 0; i < N; i++)
		if (i % 7 != 0)
			assert_true(alarms[i].fired_ns - alarms[i].due_ns <= STEP_MS * NS_PER_MS);
}

static void a_fired_one_may_stop_and_start_others_and_itself(void **state)
{
	(void)state;
	alarms[0].stops = &alarms[1];
	alarms[0].starts = &alarms[2];
	alarms[3].starts = &alarms[3];
	start(&alarms[0], 5);
	start(&alarms[1], 6);
	start(&alarms[3], 5);
	pass(10);
	assert_int_equal(alarms[0].n_fired, 1);
	assert_int_equal(alarms[1].n_fired, 0);
	pass(STEP_MS);
	assert_int_equal(alarms[2].n_fired, 1);
	assert_int_equal(alarms[3].n_fired, 2);
	gw_timer_stop(&timers, &alarms[3].timer);
	pass(STEP_MS);
	assert_int_equal(alarms[3].n_fired, 2);
}

/* A later one does not move the event; after a stop it fires for nothing and is set anew. */
static void the_event_follows_the_soonest(void **state)
{
	(void)state;
	start(&alarms[0], 50);
	uint64_t armed = timers.armed_ns;
	start(&alarms[1], 80);
	assert_int_equal(timers.armed_ns, armed);
	start(&alarms[2], 20);
	assert_int_equal(timers.armed_ns, now_ns + 20 * NS_PER_MS);
	gw_timer_stop(&timers, &alarms[2].timer);
	gw_timer_stop(&timers, &alarms[0].timer);
	pass(20);
	assert_int_equal(timers.armed_ns, alarms[1].due_ns);
	pass(60);
	assert_int_equal(alarms[1].n_fired, 1);
	assert_int_equal(timers.armed_ns, UINT64_MAX);
	gw_timer_start(&timers, &alarms[3].timer, UINT64_MAX); /* beyond the end of time is its end */
	gw_timer_stop(&timers, &alarms[3].timer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(each_fires_once_when_it_is_due, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_fired_one_may_stop_and_start_others_and_itself, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_event_follows_the_soonest, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
