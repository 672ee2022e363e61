/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdint.h>

#include "engine/sched/cost.h"

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 33) % below;
}

static struct cost_past past_of(double positions, double reads)
{
	return (struct cost_past){.positions = positions, .reads = reads};
}

/* A machine that reads its weights in 2 ms, computes a row in 0.2 ms, attends to a position in 100 ns and
 * reads one from memory in 400. */
static double truth(uint32_t rows, struct cost_past past)
{
	return 2e6 + rows * 2e5 + past.positions * 100 + past.reads * 400;
}

static void learn(struct cost *c, int n, double noise, uint64_t *random)
{
	for (int i = 0; i < n; i++) {
		uint32_t rows = 1 + draw(random, draw(random, 3) == 0 ? 250 : 12);
		double n_past = draw(random, 3000), n_seqs = 1 + draw(random, rows);
		struct cost_past past = past_of(rows * n_past, n_seqs * n_past);
		double ns = truth(rows, past) * (1 + noise * (draw(random, 2001) / 1000.0 - 1));
		cost_learn(c, rows, past, ns);
	}
}

static void near(double got, double want, double relative)
{
	if (!(fabs(got - want) <= relative * want))
		fail_msg("%g is not %g", got, want);
}

static void learns_from_noisy_steps(void **state)
{
	(void)state;
	struct cost c;
	uint64_t random = 5;
	cost_init(&c, 1e5, 1e6); /* a bad guess */
	learn(&c, 1500, 0.1, &random);
	near(cost_step_ns(&c, 1, past_of(500, 500)), truth(1, past_of(500, 500)), 0.25);
	near(cost_step_ns(&c, 8, past_of(8000, 8000)), truth(8, past_of(8000, 8000)), 0.25);
	near(cost_step_ns(&c, 128, past_of(128 * 1000, 1000)), truth(128, past_of(128 * 1000, 1000)), 0.25);
	near(cost_step_ns(&c, 200, past_of(200 * 2000, 2000)), truth(200, past_of(200 * 2000, 2000)), 0.25);
}

/* Measured while something else had the machine, guess and steps alike: a few steps on an idle one put it right. */
static void what_was_slowed_down_is_put_right_soon(void **state)
{
	(void)state;
	const double slow = 200;
	for (int learnt = 0; learnt <= 1; learnt++) {
		struct cost c;
		cost_init(&c, 2e6 * slow, 2e5 * slow);
		for (int i = 0; learnt && i < 40; i++)
			cost_learn(&c, 64, past_of(64 * 64 / 2, 64), slow * truth(64, past_of(64 * 64 / 2, 64)));
		for (int i = 0; i < (learnt ? 10 : 1); i++)
			cost_learn(&c, 64, past_of(64 * 64 / 2, 64), truth(64, past_of(64 * 64 / 2, 64)));
		assert_true(cost_step_ns(&c, 64, past_of(64 * 64 / 2, 64)) < 3 * truth(64, past_of(64 * 64 / 2, 64)));
	}
}

static void survives_outliers_and_sameness(void **state)
{
	(void)state;
	struct cost c;
	uint64_t random = 6;
	cost_init(&c, 2e6, 2e5);
	learn(&c, 800, 0.05, &random);
	for (int i = 0; i < 3; i++)
		cost_learn(&c, 16, past_of(16 * 500, 16 * 500), 5e9); /* somebody else had the machine */
	learn(&c, 100, 0.05, &random);
	near(cost_step_ns(&c, 16, past_of(16 * 500, 500)), truth(16, past_of(16 * 500, 500)), 0.6);
	/* A long answer alone teaches nothing about prompts and forgets nothing either. */
	for (int i = 0; i < 20000; i++)
		cost_learn(&c, 1, past_of(700, 700), truth(1, past_of(700, 700)));
	near(cost_step_ns(&c, 1, past_of(700, 700)), truth(1, past_of(700, 700)), 0.1);
	assert_true(cost_step_ns(&c, 128, past_of(1000, 1000)) > cost_step_ns(&c, 1, past_of(1000, 1000)));
	for (uint32_t rows = 1; rows < 9000; rows = rows * 3 / 2 + 1)
		for (uint64_t positions = 0; positions < 1u << 30; positions = positions * 8 + 1)
			assert_true(isfinite(cost_step_ns(&c, rows, past_of((double)positions, 1))) &&
				    cost_step_ns(&c, rows, past_of((double)positions, 1)) > 0);
}

static void rows_for_a_time(void **state)
{
	(void)state;
	struct cost c;
	uint64_t random = 7;
	cost_init(&c, 2e6, 2e5);
	learn(&c, 1500, 0, &random);
	for (uint32_t past = 0; past < 20000; past += 5000) {
		for (uint32_t beside = 0; beside < 40; beside += 13) {
			uint32_t n = cost_rows_within(&c, beside, 20e6, past, 500);
			assert_true(n < 500);
			assert_true(cost_added_ns(&c, beside, past, n) <= 20e6);
			assert_true(cost_added_ns(&c, beside, past, n + 1) > 20e6);
		}
	}
	/* Later tokens read more: fewer of them fit. */
	assert_true(cost_rows_within(&c, 8, 20e6, 20000, 500) < cost_rows_within(&c, 8, 20e6, 0, 500));
	assert_int_equal(cost_rows_within(&c, 8, 0, 0, 500), 0);
	/* n / (2 + 0.2 n) is nine tenths of what 1,000 rows reach at 83. */
	uint32_t knee = cost_knee_rows(&c, 1000, 0.9);
	assert_true(knee > 40 && knee < 170);
	assert_int_equal(cost_knee_rows(&c, 1, 0.9), 1);
}

/* Half of the truths lie above what is predicted, however far. */
static void follows_the_median(void **state)
{
	(void)state;
	struct cost_bias b = {0};
	uint64_t random = 9;
	near(cost_bias_factor(&b), 1, 1e-9);
	for (int i = 0; i < 2000; i++) {
		double truth_ns = draw(&random, 10) < 4 ? 1e6 : draw(&random, 10) == 0 ? 1e9 : 1.5e6;
		cost_bias_learn(&b, 1e6 * cost_bias_factor(&b), truth_ns);
	}
	near(cost_bias_factor(&b), 1.5, 0.15);
	for (int i = 0; i < 2000; i++)
		cost_bias_learn(&b, 1e6, 1e12);
	assert_true(cost_bias_factor(&b) < 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(learns_from_noisy_steps),
	    cmocka_unit_test(what_was_slowed_down_is_put_right_soon),
	    cmocka_unit_test(survives_outliers_and_sameness),
	    cmocka_unit_test(rows_for_a_time),
	    cmocka_unit_test(follows_the_median),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
