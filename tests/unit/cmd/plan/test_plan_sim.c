/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated engines: what they take is what their costs say, nothing is lost, and arrangements differ where they
 * should.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cmd/plan/plan_sim.h"

enum { N = 400 };

/* A step of n rows: reading the weights, or computing, whichever is longer; attention is free. */
static struct plan_box box(double weights_ms, double row_ms)
{
	struct plan_box b = {
	    .step_tokens = 256, .max_sequences = 32, .n_pages = 100000, .itl_target_ns = 100 * NS_PER_MS};
	cost_init(&b.cost, weights_ms * 1e6, row_ms * 1e6);
	for (int k = 0; k < 900; k++) {
		uint32_t rows = 1u << (k % 9), past_each = k / 9 % 2 ? 4000 : 0;
		double ns = fmax(weights_ms, row_ms * rows) * 1e6;
		const struct cost_past past = {.positions = (double)rows * past_each + rows, .reads = past_each + rows};
		cost_learn(&b.cost, rows, past, ns);
	}
	return b;
}

static void requests(struct plan_request *all, size_t n, double rate, struct work work, uint32_t n_prefixes)
{
	struct arrivals a = {.rate = rate, .shape = 1, .burst = 1};
	struct load_random r = {.state = 3};
	double at = 0;
	for (size_t i = 0; i < n; i++) {
		at += arrivals_gap(&a, &r);
		all[i] = (struct plan_request){.came_ns = (uint64_t)(at * 1e9) + 1, .work = work};
		all[i].work.prefix = n_prefixes > 0 ? (uint64_t)(load_uniform(&r) * n_prefixes) : 0;
	}
}

static void check_whole(const struct plan_request *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(all[i].n_made, all[i].work.n_answer);
		assert_true(all[i].first_ns > all[i].came_ns && all[i].last_ns >= all[i].first_ns);
	}
}

static void one_request_takes_what_its_steps_take(void **state)
{
	(void)state;
	const struct plan_arrangement a = {.box = box(20, 1), .n_engines = 1};
	struct plan_request r = {.came_ns = 5, .work = {.n_prompt = 600, .n_answer = 11}};
	uint64_t prefilled;
	assert_int_equal(plan_simulate(&a, &r, 1, &prefilled), 0);
	check_whole(&r, 1);
	assert_int_equal(prefilled, 600);
	double ttft = (double)(r.first_ns - r.came_ns) / 1e6, tpot = (double)(r.last_ns - r.first_ns) / 1e6 / 10;
	assert_true(fabs(ttft / 600 - 1) < 0.1);
	assert_true(fabs(tpot / 20 - 1) < 0.1);
}

static void nothing_is_lost_when_memory_is_short(void **state)
{
	(void)state;
	static struct plan_request all[N];
	struct plan_arrangement a = {.box = box(20, 1), .n_engines = 1};
	uint64_t prefilled;
	a.box.n_pages = 2000 / PLAN_PAGE; /* eight requests' at their ends */
	requests(all, N, 4, (struct work){.n_prompt = 50, .n_answer = 200}, 0);
	assert_int_equal(plan_simulate(&a, all, N, &prefilled), 0);
	check_whole(all, N);
	assert_true(prefilled >= 50ull * N);
}

static void beginnings_are_computed_once_for_each_engine(void **state)
{
	(void)state;
	static struct plan_request all[N];
	const struct plan_arrangement one = {.box = box(20, 1), .n_engines = 1}, two = {.box = one.box, .n_engines = 2};
	uint64_t prefilled;
	const struct work work = {.n_prompt = 500, .n_shared = 480, .n_answer = 8};
	requests(all, N, 2, work, 5);
	assert_int_equal(plan_simulate(&one, all, N, &prefilled), 0);
	check_whole(all, N);
	assert_int_equal(prefilled, 5 * 500 + (N - 5) * 20);
	assert_int_equal(plan_simulate(&two, all, N, &prefilled), 0);
	check_whole(all, N);
	assert_true(prefilled <= 10 * 500 + (N - 10) * 20);
}

static double share_at(const struct plan_arrangement *a, double rate, const struct serve_slo *slo,
		       struct sweep_point *p)
{
	static struct plan_request all[N];
	uint64_t prefilled;
	requests(all, N, rate, (struct work){.n_prompt = 2000, .n_answer = 60}, 0);
	assert_int_equal(plan_simulate(a, all, N, &prefilled), 0);
	check_whole(all, N);
	assert_int_equal(plan_judge(all, N, slo, p), 0);
	return p->share;
}

/* Where steps of prompts are long, answers beside them are late, however short the chunks are made. */
static void prompts_apart_keep_answers_steady(void **state)
{
	(void)state;
	struct plan_arrangement together = {.box = box(5, 0.5), .n_engines = 2};
	struct plan_arrangement apart = {
	    .box = together.box, .prompt = together.box, .n_engines = 1, .n_prompt_engines = 1, .handover_ns = 1000};
	const struct serve_slo slo = {.tpot_ms = 12};
	struct sweep_point p, q;
	together.box.itl_target_ns = 0; /* nothing protects answers */
	assert_true(share_at(&together, 0.6, &slo, &p) < 0.9);
	assert_true(share_at(&apart, 0.6, &slo, &q) > 0.99);
	assert_true(q.tpot_p99_ms < p.tpot_p99_ms / 2);
	/* Short prompts stay where they are answered: the other engine would be of no use. */
	static struct plan_request all[N];
	uint64_t prefilled;
	requests(all, N, 1, (struct work){.n_prompt = PLAN_OFFLOAD_TOKENS, .n_answer = 4}, 0);
	apart.prompt.cost = box(1e6, 1e6).cost;
	assert_int_equal(plan_simulate(&apart, all, N, &prefilled), 0);
	check_whole(all, N);
	assert_int_equal(plan_judge(all, N, &slo, &p), 0);
	assert_true(p.ttft_p99_ms < 1e5);
}

static void more_load_is_never_better(void **state)
{
	(void)state;
	const struct plan_arrangement a = {.box = box(5, 0.5), .n_engines = 1};
	const struct serve_slo slo = {.ttft_ms = 5000, .tpot_ms = 100};
	struct sweep_point p;
	double last = 2;
	for (double rate = 0.1; rate < 10; rate *= 2) {
		double share = share_at(&a, rate, &slo, &p);
		assert_true(share <= last + 0.02);
		last = share;
	}
	assert_true(last < 0.1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_request_takes_what_its_steps_take),
	    cmocka_unit_test(nothing_is_lost_when_memory_is_short),
	    cmocka_unit_test(beginnings_are_computed_once_for_each_engine),
	    cmocka_unit_test(prompts_apart_keep_answers_steady),
	    cmocka_unit_test(more_load_is_never_better),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
