/* SPDX-License-Identifier: Apache-2.0
 *
 * The search of `sluice tune`: on functions whose best is known, and on simulated engines of a model of a billion
 * parameters, where it lands within two percent of what a full grid, walked by the test itself, has at best. (As
 * shipped: a grid is nothing that sanitizers would see more of than of a search.) `make perf` walks every point of the
 * grid; with SLUICE_MODEL=FILE also for what steps of that model take on this machine.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cmd/plan/tune.h"
#include "tests/support/part.h"
#include "tests/support/perf.h"

/* ---- known functions ---- */

struct hill {
	struct tune_grid g;
	int top[TUNE_KNOBS];
	bool ridge;
	double floor;
	int n, fail_at;
};

static int height(void *ctx, const int *at, double floor, double *out)
{
	struct hill *h = ctx;
	double d = 0;
	for (int i = 0; i < h->g.n_knobs; i++)
		d += abs(at[i] - h->top[i]) * (i + 1);
	/* On a ridge the first two knobs help together only. */
	if (h->ridge)
		d += 10 * abs((at[0] - h->top[0]) - (at[1] - h->top[1]));
	*out = h->floor + 100 - d;
	if (*out <= floor)
		*out = h->n % 2 ? floor : 0; /* either will do */
	return ++h->n == h->fail_at ? SL_ENOMEM : 0;
}

static void fill(struct hill *h, int n_knobs, int n_values)
{
	*h = (struct hill){.g = {.n_knobs = n_knobs}};
	for (int i = 0; i < n_knobs; i++) {
		h->g.knobs[i] = (struct tune_knob){.name = "k", .n = n_values, .usual = 0};
		for (int k = 0; k < n_values; k++)
			h->g.knobs[i].values[k] = k;
	}
}

static void it_finds_the_top(void **state)
{
	struct hill h;
	struct tune_result r;
	(void)state;
	for (int ridge = 0; ridge < 2; ridge++) {
		fill(&h, 4, 6);
		h.ridge = ridge;
		h.top[0] = h.top[1] = 4;
		h.top[2] = 5;
		h.top[3] = 1;
		assert_int_equal(tune_search(&h.g, 0.001, height, &h, &r), 0);
		assert_memory_equal(r.at, h.top, sizeof r.at);
		assert_true(r.best == 100 && r.usual < r.best);
		assert_int_equal(r.n_measured, h.n);
		assert_true(h.n < 6 * 6 * 6 * 6 / 2);
	}
}

static void what_is_hardly_better_stays_at_its_default(void **state)
{
	struct hill h;
	struct tune_result r;
	int zeros[TUNE_KNOBS] = {0};
	(void)state;
	fill(&h, 3, 5);
	h.top[0] = h.top[1] = h.top[2] = 2;
	h.floor = 100000;
	assert_int_equal(tune_search(&h.g, 0.02, height, &h, &r), 0);
	assert_memory_equal(r.at, zeros, sizeof zeros);
	assert_true(r.best == r.usual);
}

static void it_is_never_below_the_default(void **state)
{
	struct hill h;
	struct tune_result r;
	(void)state;
	for (int seed = 0; seed < 200; seed++) {
		fill(&h, 5, 4);
		for (int i = 0; i < 5; i++) {
			h.top[i] = (seed * 7 + i * 3) % 4;
			h.g.knobs[i].usual = (seed + i) % 4;
		}
		h.ridge = seed % 2;
		assert_int_equal(tune_search(&h.g, 0.05, height, &h, &r), 0);
		assert_true(r.best >= r.usual);
	}
}

static void errors_and_bad_grids_end_it(void **state)
{
	struct hill h;
	struct tune_result r;
	(void)state;
	fill(&h, 3, 5);
	h.top[0] = 4;
	h.fail_at = 7;
	assert_int_equal(tune_search(&h.g, 0.02, height, &h, &r), SL_ENOMEM);
	h.g.n_knobs = 0;
	assert_int_equal(tune_search(&h.g, 0.02, height, &h, &r), SL_EINVAL);
	fill(&h, 3, 5);
	h.g.knobs[1].usual = 5;
	assert_int_equal(tune_search(&h.g, 0.02, height, &h, &r), SL_EINVAL);
}

/* ---- simulated engines ---- */

/* Steps that read the weights for 40 ms, and compute 1.2 ms a row; attention costs with the past. */
static struct plan_costs costs_of_1b(void)
{
	struct plan_costs c = {.kv_bytes = 32768, .n_ctx = 8192};
	cost_init(&c.cost, 40e6, 1.2e6);
	for (int k = 0; k < 1800; k++) {
		uint32_t rows = 1u << (k % 10), past_each = k / 10 % 2 ? 2000 : 0;
		const struct cost_past past = {.positions = (double)rows * past_each + rows, .reads = past_each + rows};
		double ns = fmax(40e6, 1.2e6 * rows) + past.positions * 200 + past.reads * 800;
		cost_learn(&c.cost, rows, past, ns);
	}
	return c;
}

static void ask_for(struct plan_ask *a, const char *mix, double ttft_ms, double tpot_ms)
{
	plan_ask_init(a);
	a->command = "test";
	a->mix = mix;
	a->slo = (struct serve_slo){.ttft_ms = ttft_ms, .tpot_ms = tpot_ms};
	a->least_requests = 40;
	a->kv_memory = 256;
	a->sequences = 16;
	assert_int_equal(workload_parse_mix(mix, &a->work), 0);
	a->work.n_prefixes = 1;
	assert_int_equal(arrivals_parse("poisson", &a->arrivals), 0);
}

/* Of the grid's every second value, or the test would take minutes: which ones it keeps does not depend on what they
 * give. */
static void thin(struct tune_grid *g)
{
	for (int i = 0; i < g->n_knobs; i++) {
		struct tune_knob *k = &g->knobs[i], all = *k;
		k->n = 0;
		for (int v = 0; v < all.n; v++) {
			if (v % 2 != all.usual % 2)
				continue;
			k->usual = v == all.usual ? k->n : k->usual;
			k->values[k->n++] = all.values[v];
		}
	}
}

/* The best of all points, by loops of its own over what the simulation says of each. */
static double full_grid(const struct tune_case *c)
{
	const struct tune_knob *k = c->grid.knobs;
	double best = 0;
	int at[TUNE_KNOBS];
	for (at[0] = 0; at[0] < k[0].n; at[0]++)
		for (at[1] = 0; at[1] < k[1].n; at[1]++)
			for (at[2] = 0; at[2] < k[2].n; at[2]++)
				for (at[3] = 0; at[3] < k[3].n; at[3]++)
					for (at[4] = 0; at[4] < k[4].n; at[4]++) {
						const struct plan_arrangement a = {.box = tune_box(c, at),
										   .n_engines = 1};
						struct plan_found f;
						assert_int_equal(plan_find(c->ask, &a, &f), 0);
						best = f.sweep.passed > best ? f.sweep.passed : best;
					}
	return best;
}

static void land_within_two_percent(const struct plan_costs *costs)
{
	static const struct {
		const char *mix;
		double ttft_ms, tpot_ms, accept;
	} rows[] = {{"1:256:64", 3000, 120, 0}, {"3:64:128,1:1024:32", 4000, 200, 0}, {"1:128:64", 2000, 90, 0.7}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		static struct tune_case c;
		struct plan_ask a;
		struct tune_result r;
		ask_for(&a, rows[i].mix, rows[i].ttft_ms, rows[i].tpot_ms);
		tune_case_init(&c, &a, costs, rows[i].accept);
		if (!perf())
			thin(&c.grid);
		assert_int_equal(tune_search(&c.grid, 0.01, tune_rate, &c, &r), 0);
		printf("%s: %.3f found with %d points, default %.3f\n", rows[i].mix, r.best, r.n_measured, r.usual);
		assert_true(r.best >= r.usual);
		if (SANITIZED)
			continue;
		double most = full_grid(&c);
		printf("full grid %.3f\n", most);
		assert_true(r.best >= 0.98 * most);
	}
}

static void it_lands_within_two_percent_of_a_full_grid(void **state)
{
	struct plan_costs costs = costs_of_1b();
	struct sl_err err;
	(void)state;
	land_within_two_percent(&costs);
	if (!perf() || getenv("SLUICE_MODEL") == NULL)
		return;
	if (plan_costs_measure(getenv("SLUICE_MODEL"), "auto", 2, 0, &costs, &err) != 0)
		fail_msg("%s", err.text);
	printf("%s:\n", getenv("SLUICE_MODEL"));
	land_within_two_percent(&costs);
}

static void the_grid_has_the_defaults_and_fits(void **state)
{
	static struct tune_case c;
	const struct plan_costs costs = costs_of_1b();
	struct plan_ask a;
	(void)state;
	ask_for(&a, "1:4000:1000", 3000, 120);
	tune_case_init(&c, &a, &costs, 0);
	for (int i = 0; i < c.grid.n_knobs; i++) {
		const struct tune_knob *k = &c.grid.knobs[i];
		assert_true(k->n >= 1 && k->n <= TUNE_VALUES);
		for (int v = 1; v < k->n; v++)
			assert_true(k->values[v] > k->values[v - 1]);
	}
	assert_true(c.grid.knobs[TUNE_CHUNK].values[c.grid.knobs[TUNE_CHUNK].usual] == 128);
	assert_true(c.grid.knobs[TUNE_ITL].values[c.grid.knobs[TUNE_ITL].usual] == 50);
	assert_int_equal(c.grid.knobs[TUNE_DRAFT].n, 1);
	/* A request of 5000 tokens takes 156 MiB, so less than 256 MiB is not tried. */
	assert_int_equal(c.grid.knobs[TUNE_MEMORY].n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_finds_the_top),
					   cmocka_unit_test(what_is_hardly_better_stays_at_its_default),
					   cmocka_unit_test(it_is_never_below_the_default),
					   cmocka_unit_test(errors_and_bad_grids_end_it),
					   cmocka_unit_test(it_lands_within_two_percent_of_a_full_grid),
					   cmocka_unit_test(the_grid_has_the_defaults_and_fits)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
