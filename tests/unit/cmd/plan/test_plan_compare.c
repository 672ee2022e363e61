/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulations that are to be like a real engine: steps take what was measured, whatever the engine believes; requests
 * wait for the gateway's credit between steps; records are simulated as they were served.
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
#include "cmd/plan/plan_compare.h"

enum { N = 200 };

/* ---- what steps take ---- */

/* Kernels change their form at 17 rows; logits cost 0.05 ms a row, attention 80 ns a position and 300 ns a read. */
static double true_ns(const struct plan_step *s)
{
	const double rows = s->rows, own = rows <= 16 ? 1e6 + 6e4 * rows : 2e6 + 11e4 * rows;
	return own + 5e4 * s->wanted + 80 * s->past.positions + 300 * s->past.reads;
}

static struct plan_step step(uint32_t n_seqs, uint32_t each, uint32_t past)
{
	struct plan_step s = {.rows = n_seqs * each,
			      .wanted = n_seqs,
			      .past = {.positions = n_seqs * (double)cost_positions(past, each),
				       .reads = (double)n_seqs * (past + each)}};
	s.ns = true_ns(&s);
	return s;
}

static struct plan_curve measured(void)
{
	const struct plan_step steps[] = {step(1, 1, 8),    step(2, 1, 8),    step(4, 1, 8),   step(8, 1, 8),
					  step(16, 1, 8),   step(1, 1, 1000), step(8, 1, 900), step(1, 16, 0),
					  step(1, 17, 0),   step(1, 32, 0),   step(1, 64, 0),  step(1, 128, 0),
					  step(1, 32, 700), step(1, 128, 700)};
	struct plan_curve c;
	plan_curve_fit(&c, steps, sizeof steps / sizeof *steps);
	return c;
}

static void steps_between_the_measured_ones_are_predicted(void **state)
{
	(void)state;
	const struct plan_curve c = measured();
	const struct plan_step others[] = {step(3, 1, 300), step(12, 1, 2000), step(1, 24, 500), step(1, 100, 40),
					   step(1, 128, 4000)};
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_true(fabs(plan_curve_ns(&c, &others[i]) / others[i].ns - 1) < 0.03);
	assert_true(fabs(c.want_ns / 5e4 - 1) < 0.1);
	assert_true(fabs(c.position_ns / 80 - 1) < 0.05 && fabs(c.read_ns / 300 - 1) < 0.05);
	/* More rows than any measured: as many times as long. */
	const struct plan_step wide = {.rows = 1280}, widest = {.rows = 128};
	assert_true(fabs(plan_curve_ns(&c, &wide) / plan_curve_ns(&c, &widest) - 10) < 0.01);
}

/* ---- an engine ---- */

static struct plan_box box(void)
{
	struct plan_box b = {.curve = measured(),
			     .step_tokens = 128,
			     .max_sequences = 32,
			     .n_pages = 100000,
			     .itl_target_ns = 50 * NS_PER_MS};
	cost_init(&b.cost, 50e6, 5e6); /* what it believes at first is far off */
	return b;
}

static double ms(uint64_t ns) { return (double)ns / 1e6; }

static void simulate(const struct plan_box *b, struct plan_request *all, size_t n, uint64_t *prefilled)
{
	const struct plan_arrangement a = {.box = *b, .n_engines = 1};
	assert_int_equal(plan_simulate(&a, all, n, prefilled), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(all[i].n_made, all[i].work.n_answer);
}

static void steps_take_what_was_measured(void **state)
{
	(void)state;
	const struct plan_box b = box();
	struct plan_request r = {.came_ns = 1, .work = {.n_prompt = 128, .n_answer = 3}};
	uint64_t prefilled;
	simulate(&b, &r, 1, &prefilled);
	const struct plan_step prompt = step(1, 128, 0), second = step(1, 1, 128), third = step(1, 1, 129);
	assert_true(fabs(ms(r.first_ns - r.came_ns) - prompt.ns / 1e6) < 0.02 * prompt.ns / 1e6);
	assert_true(fabs(ms(r.last_ns - r.first_ns) - (second.ns + third.ns) / 1e6) < 0.05);
	assert_true(r.longest_ns > 0 && r.longest_ns < r.last_ns - r.first_ns);
}

static void tokens_and_steps_cost_beside_the_model(void **state)
{
	(void)state;
	struct plan_box b = box();
	struct plan_request r = {.came_ns = 1, .work = {.n_prompt = 10, .n_answer = 11}}, slow = r;
	uint64_t prefilled;
	simulate(&b, &r, 1, &prefilled);
	b.step_ns = 1e6;
	b.token_ns = 2e6;
	simulate(&b, &slow, 1, &prefilled);
	assert_true(fabs(ms(slow.last_ns - slow.first_ns) - ms(r.last_ns - r.first_ns) - 30) < 0.01);
}

/* Counted once the running step has ended, a request gets its credit during the next step and begins after that. */
static void a_request_waits_for_the_step_after_the_running_one(void **state)
{
	(void)state;
	struct plan_box b = box();
	b.curve = (struct plan_curve){.n = 2, .at = {{1, 10e6}, {128, 10e6}}}; /* every step takes 10 ms */
	b.link_ns = NS_PER_MS;
	struct plan_request all[] = {{.came_ns = 1, .work = {.n_prompt = 10, .n_answer = 20}},
				     {.came_ns = 15 * NS_PER_MS, .work = {.n_prompt = 10, .n_answer = 2}}};
	uint64_t prefilled;
	simulate(&b, all, 2, &prefilled);
	/* Alone there is only the way to the gateway and back. */
	assert_true(fabs(ms(all[0].first_ns) - 11) < 0.01);
	/* Steps end at 21 and 31 ms: the first counts it, the second ends after the credit has come. */
	assert_true(fabs(ms(all[1].first_ns) - 41) < 0.01);
	/* Tokenizing delays it as well. */
	b.text_ns = 1e6;
	simulate(&b, all, 2, &prefilled);
	assert_true(fabs(ms(all[0].first_ns) - 21) < 0.01);
	/* An engine of a plan that knows no gateway: it joins the next step. */
	b.text_ns = 0;
	b.link_ns = 0;
	simulate(&b, all, 2, &prefilled);
	assert_true(fabs(ms(all[1].first_ns) - 30) < 0.01);
}

/* ---- records ---- */

/* Turns of a conversation, as records tell them: each found what the one before had left, its answer too. */
static void turns_find_what_earlier_ones_left(void **state)
{
	(void)state;
	const struct plan_box b = box();
	struct plan_request all[6];
	uint64_t prefilled, expected = 0;
	uint32_t n_text = 0;
	for (uint32_t i = 0; i < 6; i++) {
		all[i] = (struct plan_request){.came_ns = 1 + i * 2 * NS_PER_S,
					       .work = {.n_prompt = n_text + 100, .n_answer = 50, .n_shared = n_text}};
		n_text = all[i].work.n_left = all[i].work.n_prompt + all[i].work.n_answer;
		/* The last token of an answer is never computed. */
		expected += i == 0 ? 100 : 101;
	}
	simulate(&b, all, 6, &prefilled);
	assert_int_equal(prefilled, expected);
}

static struct plan_ask ask;
static struct trace_item items[N];

/* Records of an engine that is the simulation itself. */
static void record(const struct plan_box *b)
{
	static struct plan_request all[N];
	struct arrivals a = {.rate = 20, .shape = 1, .burst = 1};
	struct load_random r = {.state = 5};
	uint64_t prefilled;
	double at = 0;
	ask.trace = (struct load_trace){.items = items, .n = N};
	for (size_t i = 0; i < N; i++, at += arrivals_gap(&a, &r))
		items[i] = (struct trace_item){.at = at,
					       .work = {.n_prompt = 20 + (uint32_t)(load_uniform(&r) * 200),
							.n_answer = 1 + (uint32_t)(load_uniform(&r) * 40)}};
	for (size_t i = 0; i < N; i++)
		all[i] = (struct plan_request){.came_ns = (uint64_t)(items[i].at * 1e9) + 1, .work = items[i].work};
	simulate(b, all, N, &prefilled);
	for (size_t i = 0; i < N; i++) {
		items[i].ttft_ms = ms(all[i].first_ns - all[i].came_ns);
		items[i].itl_ms = all[i].n_made > 1 ? ms(all[i].last_ns - all[i].first_ns) / (all[i].n_made - 1) : 0;
		items[i].itl_max_ms = ms(all[i].longest_ns);
	}
}

static void records_are_simulated_as_they_were(void **state)
{
	(void)state;
	struct plan_box b = box();
	struct compare c;
	record(&b);
	items[7].ttft_ms = 0; /* refused, or its client left */
	assert_int_equal(compare_run(&ask, &b, &c), 0);
	assert_int_equal(c.ttft.n, N - 1);
	assert_true(c.itl.n > N / 2 && c.n_gaps > N);
	for (int i = 0; i < COMPARE_PERCENTILES; i++) {
		assert_true(c.ttft.at[i].measured_ms > 0 && c.ttft.at[i].simulated_ms == c.ttft.at[i].measured_ms);
		assert_true(c.itl.at[i].simulated_ms == c.itl.at[i].measured_ms);
		assert_true(c.longest.at[i].simulated_ms == c.longest.at[i].measured_ms);
		assert_true(c.gap_ms[i] > 0);
	}
	assert_int_equal(c.ttft.at[3].beyond, 1); /* of 199, one is above p99 */
	/* A slower machine than that of the records shows. */
	b.step_ns = 3e6;
	assert_int_equal(compare_run(&ask, &b, &c), 0);
	assert_true(c.itl.at[0].simulated_ms > 1.3 * c.itl.at[0].measured_ms);
	assert_true(c.ttft.at[0].simulated_ms > 1.1 * c.ttft.at[0].measured_ms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(steps_between_the_measured_ones_are_predicted),
	    cmocka_unit_test(steps_take_what_was_measured),
	    cmocka_unit_test(tokens_and_steps_cost_beside_the_model),
	    cmocka_unit_test(a_request_waits_for_the_step_after_the_running_one),
	    cmocka_unit_test(turns_find_what_earlier_ones_left),
	    cmocka_unit_test(records_are_simulated_as_they_were),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
