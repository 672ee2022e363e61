/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sequences go on while what computes is slowed: as many as keep the least target, by tier and age, the same ones
 * in every step; all where fewer are no help.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/sched/sched_ease.h"
#include "engine/sched/sched_state.h"

enum { N = 12, STARVE_S = 10 };

static const uint64_t targets[SCHED_TIERS] = {[1] = 60 * NS_PER_MS, [2] = 200 * NS_PER_MS};
static struct sched_queue queues[SCHED_TIERS];
static struct sched_seq seqs[N];
static struct sched_seq *all[N];
static struct cost cost; /* 10 ms, and 5 for each row */
static struct sched_ease e;

static void set_up(int tier_of_odd, int tier_of_even)
{
	cost_init(&cost, 10e6, 5e6);
	for (int k = 0; k < 200; k++) {
		uint32_t rows = 1 + (uint32_t)k % 16;
		cost_learn(&cost, rows, (struct cost_past){0}, 10e6 + 5e6 * rows);
	}
	for (uint8_t i = 0; i < SCHED_TIERS; i++)
		queues[i].tier = i;
	for (int i = 0; i < N; i++) {
		seqs[i] = (struct sched_seq){.order = (uint64_t)(N - i),
					     .served_ns = NS_PER_S,
					     .width = 1,
					     .queue = &queues[i % 2 ? tier_of_odd : tier_of_even]};
		all[i] = &seqs[i];
	}
	sched_ease_init(&e);
	e.itl_ns = targets;
}

static uint32_t choose(uint64_t now_s)
{
	double step_ns;
	return sched_ease_choose(&e, all, N, &cost, STARVE_S * (uint64_t)NS_PER_S, now_s * NS_PER_S, &step_ns);
}

static void as_many_as_keep_the_target(void **state)
{
	(void)state;
	set_up(1, 1);
	uint32_t n = choose(2);
	assert_true(n >= 8 && n <= 10);
	assert_int_equal(e.n_held, N - n);
	for (uint32_t i = 0; i < n; i++) /* the oldest */
		assert_int_equal(all[i]->order, i + 1);
	set_up(2, 2); /* a looser target holds none */
	assert_int_equal(choose(2), N);
}

static void better_tiers_first(void **state)
{
	(void)state;
	set_up(2, 1);
	uint32_t n = choose(2);
	assert_true(n < N); /* the least target of those that run */
	for (uint32_t i = 0; i < N / 2; i++)
		assert_int_equal(all[i]->queue->tier, 1);
	set_up(0, 0); /* no target at all */
	assert_int_equal(choose(2), N);
}

static void one_that_starves_goes_first(void **state)
{
	(void)state;
	set_up(1, 1);
	assert_true(choose(2) < N);
	for (int i = 0; i < N; i++)
		seqs[i].served_ns = (i == 0 ? 1 : 12) * (uint64_t)NS_PER_S; /* the youngest was held */
	assert_true(choose(12) < N);
	assert_ptr_equal(all[0], &seqs[0]);
}

static void no_help_holds_none(void **state)
{
	(void)state;
	set_up(1, 1);
	cost_init(&cost, 100e6, 1e6);
	for (int k = 0; k < 200; k++)
		cost_learn(&cost, 1 + (uint32_t)k % 16, (struct cost_past){0}, 100e6);
	assert_int_equal(choose(2), N);
	assert_int_equal(e.n_held, 0);
}

static void steps_beyond_the_target_lower_it_whatever_costs_tell(void **state)
{
	(void)state;
	set_up(1, 1);
	cost_init(&cost, 1e6, 1e5); /* far too little */
	uint32_t n = choose(2);
	assert_int_equal(n, N);
	for (int i = 0; i < 40; i++) {
		sched_ease_took(&e, 70e6, 70e6);
		n = choose(2);
	}
	assert_true(n < N / 2 && n >= 1);
}

static void it_grows_back_slowly_and_ends(void **state)
{
	(void)state;
	set_up(1, 1);
	uint32_t n = choose(2), before = n;
	e.itl_ns = NULL;
	assert_int_equal(choose(2), n); /* not at once */
	uint64_t now = 3;
	for (; sched_ease_on(&e) && now < 60; now++) {
		n = choose(now);
		assert_true(n >= before && n <= before + before / 8 + 2);
		before = n;
	}
	assert_true(now > 4 && now < 30);
	assert_int_equal(choose(now), N);
	assert_int_equal(e.n_held, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_many_as_keep_the_target),
					   cmocka_unit_test(better_tiers_first),
					   cmocka_unit_test(one_that_starves_goes_first),
					   cmocka_unit_test(no_help_holds_none),
					   cmocka_unit_test(steps_beyond_the_target_lower_it_whatever_costs_tell),
					   cmocka_unit_test(it_grows_back_slowly_and_ends)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
