/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits whose clock is set, over memory and over Redis: an hour, two days and a year, ahead and back, in both orders.
 * What the store's clock shows is the rig's now_us.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/cache/limits_world.h"

#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

/* Noon of some day. */
static void set_noon(struct world *w) { w->g.now_us = (uint64_t)(19676 * DAY + 12 * HOUR); }

static void set_clock(struct world *w, int64_t by) { w->g.now_us += (uint64_t)by; }

/* Redis ends what is over by its own clock, which no test sets: so lives are shortened by as much as the clock goes
 * ahead, and an end that went by stays so. The memory store ends things by the rig's, when something is done. */
static void set_ahead(struct world *w, int64_t by)
{
	set_clock(w, by);
	if (w->redis)
		redis_server_number(&server, "EVAL %s 0 %lld",
				    "for _, key in ipairs(redis.call('KEYS', '*')) do\n"
				    "  local left = redis.call('PTTL', key)\n"
				    "  if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end\n"
				    "end return 0",
				    (long long)(by / 1000));
	struct cache_limit other = rate("another key", 1, 1, SECOND, 0);
	admit(w, 99, &other, 1, 0, 0, SECOND);
}

/* ---- rates ---- */

static int burst_of(struct world *w, const struct cache_limit *l)
{
	int n = 0;
	while (admit(w, 0, l, 1, 0, 0, SECOND).admitted)
		n++;
	return n;
}

static void a_key_waits_no_longer_when_the_clock_goes_back(void **state)
{
	static const int64_t steps[] = {10 * SECOND, HOUR, 2 * DAY, 366 * DAY};
	struct world *w = world_of(state);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		char name[16];
		snprintf(name, sizeof name, "r%zu", i);
		struct cache_limit l = rate(name, 60, 60, MINUTE, 1);
		assert_int_equal(burst_of(w, &l), 60);
		set_clock(w, -steps[i]);
		struct cache_admission a = admit(w, 0, &l, 1, 0, 0, SECOND);
		assert_false(a.admitted);
		assert_int_equal(a.each[0].retry_after_us, SECOND);
		assert_int_equal(a.each[0].reset_us, MINUTE);
		/* It is asked all the time, and refused: that must not hold the wait up. */
		for (int k = 0; k < 9; k++) {
			set_clock(w, SECOND / 10);
			assert_int_equal(admit(w, 0, &l, 1, 0, 0, SECOND).each[0].retry_after_us,
					 SECOND - (k + 1) * SECOND / 10);
		}
		set_clock(w, SECOND / 10);
		assert_true(admit(w, 0, &l, 1, 0, 0, SECOND).admitted);
		set_clock(w, MINUTE);
		assert_int_equal(burst_of(w, &l), 60);
	}
}

static void a_rate_over_an_hour_ahead_and_back(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 60, MINUTE, 1);
	assert_int_equal(burst_of(w, &l), 60);
	set_clock(w, HOUR);
	assert_int_equal(burst_of(w, &l), 60);
	set_clock(w, -HOUR);
	struct cache_admission a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].reset_us, MINUTE);
	set_clock(w, MINUTE);
	assert_int_equal(burst_of(w, &l), 60);
}

static void a_debt_stays_as_long_as_it_was(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 60, MINUTE, -240);
	settle(w, 0, &l, 1, 0, 0);
	set_clock(w, -HOUR);
	l.cost = 1;
	assert_int_equal(admit(w, 0, &l, 1, 0, 0, SECOND).each[0].retry_after_us, 3 * MINUTE + SECOND);
	set_clock(w, MINUTE);
	assert_int_equal(admit(w, 0, &l, 1, 0, 0, SECOND).each[0].retry_after_us, 2 * MINUTE + SECOND);
	/* What is given back counts from where the clock is. */
	set_clock(w, -HOUR);
	l.cost = 120;
	settle(w, 0, &l, 1, 0, 0);
	l.cost = 1;
	assert_int_equal(admit(w, 0, &l, 1, 0, 0, SECOND).each[0].retry_after_us, MINUTE + SECOND);
}

/* ---- leases ---- */

static void holds_keep_the_rest_of_their_time(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = lease("l", 2, 1);
	assert_true(admit(w, 0, &l, 1, 0, 0, 10 * SECOND).admitted);
	set_clock(w, 4 * SECOND);
	assert_true(admit(w, 1, &l, 1, 0, 0, 10 * SECOND).admitted);
	set_clock(w, -HOUR);
	assert_false(admit(w, 2, &l, 1, 0, 0, 10 * SECOND).admitted);
	set_clock(w, 5 * SECOND);
	assert_false(admit(w, 2, &l, 1, 0, 0, 10 * SECOND).admitted);
	set_clock(w, SECOND); /* the first one's ten are over */
	assert_true(admit(w, 2, &l, 1, 0, 0, 10 * SECOND).admitted);
	assert_false(admit(w, 3, &l, 1, 0, 0, 10 * SECOND).admitted);
	/* Back again, and a long time ahead: they have ended. */
	set_clock(w, -2 * DAY);
	assert_false(admit(w, 3, &l, 1, 0, 0, 10 * SECOND).admitted);
	set_clock(w, 4 * DAY);
	assert_true(admit(w, 3, &l, 1, 0, 0, 10 * SECOND).admitted);
	assert_true(admit(w, 4, &l, 1, 0, 0, 10 * SECOND).admitted);
	assert_false(admit(w, 5, &l, 1, 0, 0, 10 * SECOND).admitted);
}

/* ---- budgets of a day ---- */

/* How many units of it can be had, which are then used. */
static int64_t spend(struct world *w, const struct cache_limit *l)
{
	static int id;
	struct cache_admission a = admit(w, ++id, l, 1, 1000, 1, MINUTE);
	if (a.admitted)
		settle(w, id, l, 1, a.granted, 0);
	return a.granted;
}

static int64_t wait_of(struct world *w, const struct cache_limit *l)
{
	struct cache_admission a = admit(w, 0, l, 1, 1, 1, MINUTE);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].retry_after_us, a.each[0].reset_us);
	return a.each[0].retry_after_us;
}

static void a_spent_day_stays_spent_two_days_back(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 1000, DAY);
	set_noon(w);
	assert_int_equal(spend(w, &l), 1000);
	set_clock(w, -2 * DAY);
	assert_int_equal(wait_of(w, &l), 12 * HOUR);
	set_clock(w, HOUR);
	assert_int_equal(wait_of(w, &l), 11 * HOUR);
	/* Put right: it is still the same day. */
	set_clock(w, 2 * DAY);
	assert_int_equal(wait_of(w, &l), 11 * HOUR);
	/* And once more; this time it stays there until the day is over. */
	set_clock(w, -2 * DAY);
	assert_int_equal(wait_of(w, &l), 11 * HOUR);
	set_clock(w, 11 * HOUR - 1);
	assert_int_equal(spend(w, &l), 0);
	set_clock(w, 1);
	assert_int_equal(spend(w, &l), 1000);
	assert_int_equal(wait_of(w, &l), DAY);
}

static void a_clock_that_was_ahead_locks_nobody_out_for_longer_than_a_day(void **state)
{
	static const int64_t steps[] = {HOUR, 2 * DAY, 366 * DAY};
	struct world *w = world_of(state);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		char name[16];
		snprintf(name, sizeof name, "b%zu", i);
		struct cache_limit l = budget(name, 1000, DAY);
		set_noon(w);
		set_clock(w, steps[i]);
		assert_int_equal(spend(w, &l), 1000);
		set_clock(w, -steps[i]);
		int64_t wait = wait_of(w, &l);
		assert_in_range(wait, 1, DAY);
		set_clock(w, wait);
		assert_int_equal(spend(w, &l), 1000);
	}
}

static void a_clock_that_goes_to_and_fro_grants_nothing_more(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 1000, DAY);
	set_noon(w);
	assert_int_equal(spend(w, &l), 1000);
	set_clock(w, 2 * DAY);
	assert_int_equal(spend(w, &l), 1000); /* by all it can see that is another day */
	for (int i = 0; i < 20; i++) {
		set_clock(w, i % 2 == 0 ? -2 * DAY : 2 * DAY);
		assert_int_equal(spend(w, &l), 0);
		set_clock(w, MINUTE);
		assert_int_equal(spend(w, &l), 0);
	}
}

static void midnight_crossed_backwards_is_crossed_once(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 1000, DAY);
	set_noon(w);
	assert_int_equal(spend(w, &l), 1000);
	set_clock(w, 12 * HOUR + 10 * MINUTE); /* ten past midnight */
	assert_int_equal(spend(w, &l), 1000);
	set_clock(w, -HOUR);
	assert_int_equal(spend(w, &l), 0);
	set_clock(w, HOUR);
	assert_int_equal(wait_of(w, &l), 23 * HOUR + 50 * MINUTE);
	/* Where nothing was used of the new day, the old one goes on until it comes again. */
	set_clock(w, DAY);
	set_clock(w, -HOUR);
	assert_int_equal(wait_of(w, &l), 50 * MINUTE);
	set_clock(w, HOUR);
	assert_int_equal(spend(w, &l), 1000);
}

static void a_spent_day_is_found_again_after_two_days_ahead(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 1000, DAY), part = budget("p", 1000, DAY);
	set_noon(w);
	assert_int_equal(spend(w, &l), 1000);
	assert_int_equal(admit(w, 200, &part, 1, 400, 400, MINUTE).granted, 400);
	settle(w, 200, &part, 1, 300, 0);
	set_ahead(w, 2 * DAY);
	set_clock(w, -2 * DAY);
	assert_int_equal(wait_of(w, &l), 12 * HOUR);
	assert_int_equal(spend(w, &part), 700);
}

static void reservations_keep_the_rest_of_their_time(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 1000, DAY);
	set_noon(w);
	assert_int_equal(admit(w, 200, &l, 1, 600, 600, MINUTE).granted, 600);
	set_clock(w, -2 * DAY);
	assert_int_equal(spend(w, &l), 400);
	set_clock(w, MINUTE - 1);
	assert_int_equal(spend(w, &l), 0);
	/* Settled in time it is charged, although the clock went back again. */
	set_clock(w, -HOUR);
	assert_int_equal(settle(w, 200, &l, 1, 100, 0).each[0].charged, 100);
	assert_int_equal(spend(w, &l), 500);
	assert_in_range(wait_of(w, &l), 12 * HOUR - MINUTE, 12 * HOUR);
}

/* ---- records of earlier versions ---- */

static void records_without_a_time_are_bounded_too(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 60, MINUTE, 1), b = budget("b", 1000, DAY);
	set_noon(w);
	long long now = (long long)w->g.now_us;
	char text[64];
	snprintf(text, sizeof text, "%lld 0", now + HOUR);
	redis_server_number(&server, "SET %s%s %s", w->g.cfg.prefix, l.key.text, text);
	assert_int_equal(admit(w, 0, &l, 1, 0, 0, SECOND).each[0].reset_us, MINUTE);
	set_clock(w, MINUTE);
	assert_int_equal(burst_of(w, &l), 60);
	redis_server_number(&server, "HSET %s%s u 1000 w %lld r 0", w->g.cfg.prefix, b.key.text, now / DAY + 365);
	assert_int_equal(wait_of(w, &b), DAY);
	set_clock(w, DAY);
	assert_int_equal(spend(w, &b), 1000);
}

#define ON_REDIS(f)                                             \
	{                                                       \
#f " (Redis)", f, set_up_redis, tear_down, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ON_BOTH(a_key_waits_no_longer_when_the_clock_goes_back),
	    ON_BOTH(a_rate_over_an_hour_ahead_and_back),
	    ON_BOTH(a_debt_stays_as_long_as_it_was),
	    ON_BOTH(holds_keep_the_rest_of_their_time),
	    ON_BOTH(a_spent_day_stays_spent_two_days_back),
	    ON_BOTH(a_clock_that_was_ahead_locks_nobody_out_for_longer_than_a_day),
	    ON_BOTH(a_clock_that_goes_to_and_fro_grants_nothing_more),
	    ON_BOTH(midnight_crossed_backwards_is_crossed_once),
	    ON_BOTH(a_spent_day_is_found_again_after_two_days_ahead),
	    ON_BOTH(reservations_keep_the_rest_of_their_time),
	    ON_REDIS(records_without_a_time_are_bounded_too),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
