/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts of `sluice bench serve`: the search for the highest load, and the comparison with an earlier run.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/load/arrivals.h"
#include "cmd/load/batch_means.h"
#include "cmd/load/serve_stats.h"
#include "cmd/load/sweep.h"

/* ---- the search ---- */

/* A server that carries `capacity` requests per second. Returns what the search finds. */
static double find(double capacity, double begin, int *n_points)
{
	struct sweep s;
	double rate;
	sweep_init(&s, 0.95, 0.1);
	while ((rate = sweep_next(&s, begin)) > 0) {
		const struct sweep_point p = {.rate = rate, .share = rate <= capacity ? 1 : capacity / rate * 0.9};
		sweep_add(&s, &p);
	}
	*n_points = s.n_points;
	return s.passed;
}

static void the_search_ends_just_below_capacity(void **state)
{
	(void)state;
	for (double capacity = 0.013; capacity < 1e4; capacity *= 3.7) {
		int n;
		double found = find(capacity, 1, &n);
		assert_true(found <= capacity && found * 1.1 > capacity / 1.0001);
		assert_true(n < 25);
	}
	int n;
	assert_true(find(1e-9, 1, &n) == 0);
	assert_true(n < SWEEP_MAX_POINTS);
	assert_true(find(1e30, 1, &n) > SWEEP_MOST_RATE / 2);
	assert_true(n < SWEEP_MAX_POINTS);
}

static void the_picture_is_whole(void **state)
{
	(void)state;
	struct sweep s;
	struct sl_buf out;
	sweep_init(&s, 0.95, 0.1);
	const struct sweep_point points[] = {
	    {4, 1, 10, 20, 3, 5, 100}, {8, 0.5, 100, 2000, 4, 9, 150}, {1, 1, 0, 0, 0, 0, 0}};
	for (int n = 0; n <= 3; n++) {
		buf_init(&out, 1 << 20);
		assert_int_equal(sweep_plot(&s, "a<b & c", &out), 0);
		char *text = strndup((const char *)buf_data(&out), out.len);
		assert_non_null(strstr(text, "a&lt;b &amp; c"));
		assert_non_null(strstr(text, "</svg>"));
		assert_null(strstr(text, "nan"));
		assert_null(strstr(text, "inf"));
		free(text);
		buf_dispose(&out);
		if (n < 3)
			sweep_add(&s, &points[n]);
	}
}

/* ---- comparison ---- */

static double normal(struct load_random *r)
{
	return sqrt(-2 * log(load_uniform(r))) * cos(2 * M_PI * load_uniform(r));
}

/* Latencies with a standard deviation of 40 % in which neighbours resemble each other, as they do behind one queue. */
static char *run_of(uint64_t seed, int n, double factor)
{
	struct load_random r = {.state = seed};
	struct batch_means b;
	struct sl_buf out;
	double wave = 0;
	batch_means_init(&b);
	for (int i = 0; i < n; i++) {
		wave = 0.9 * wave + 0.17 * normal(&r);
		const uint64_t ns[BATCH_FIGURES] = {(uint64_t)(factor * 50e6 * exp(wave)),
						    (uint64_t)(8e6 * exp(0.05 * normal(&r))),
						    (uint64_t)(500e6 * exp(0.2 * wave))};
		batch_means_add(&b, ns);
	}
	buf_init(&out, 1 << 20);
	assert_int_equal(batch_means_json(&b, &out), 0);
	char *text = strndup((const char *)buf_data(&out), out.len);
	buf_dispose(&out);
	return text;
}

static void a_tenth_is_found_and_noise_is_not(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 20; i++) {
		struct comparison c[BATCH_FIGURES];
		char *before = run_of(2 * i + 1, 40000, 1), *same = run_of(2 * i + 2, 40000, 1);
		char *slower = run_of(1000 + i, 40000, 1.1), *faster = run_of(2000 + i, 40000, 0.85);
		assert_int_equal(batch_means_compare(before, same, 0.02, c), 3);
		for (int f = 0; f < 3; f++)
			assert_int_equal(c[f].verdict, VERDICT_SAME);
		assert_int_equal(batch_means_compare(before, slower, 0.02, c), 3);
		assert_string_equal(c[0].figure, "ttft_ms");
		assert_int_equal(c[0].verdict, VERDICT_WORSE);
		assert_true(c[0].low < 1.1 && c[0].high > 1.1);
		assert_int_equal(c[1].verdict, VERDICT_SAME);
		assert_int_equal(batch_means_compare(before, faster, 0.02, c), 3);
		assert_int_equal(c[0].verdict, VERDICT_BETTER);
		free(before);
		free(same);
		free(slower);
		free(faster);
	}
}

static void too_few_are_undecided(void **state)
{
	(void)state;
	struct comparison c[BATCH_FIGURES];
	char *a = run_of(1, 200, 1), *b = run_of(2, 200, 1.06), *few = run_of(3, BATCHES_LEAST - 1, 1);
	assert_int_equal(batch_means_compare(a, b, 0.02, c), 3);
	assert_int_equal(c[0].verdict, VERDICT_UNKNOWN);
	assert_int_equal(batch_means_compare(a, few, 0.02, c), 0);
	free(a);
	free(b);
	free(few);
}

static void wrong_reports(void **state)
{
	(void)state;
	static const char *const texts[] = {"",
					    "[]",
					    "{",
					    "{\"ttft_ms\":1}",
					    "{\"ttft_ms\":[1,2,3,4,5,6,7,-8]}",
					    "{\"ttft_ms\":[1,2,3,4,5,6,7,\"8\"]}",
					    "{\"ttft_ms\":[1,2,3,4,5,6,7,1e300]}"};
	struct comparison c[BATCH_FIGURES];
	char *good = run_of(1, 200, 1);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		assert_int_equal(batch_means_compare(texts[i], good, 0.02, c), SL_EINVAL);
		assert_int_equal(batch_means_compare(good, texts[i], 0.02, c), SL_EINVAL);
	}
	char *many = calloc(1, 1 << 16);
	strcpy(many, "{\"ttft_ms\":[1");
	for (int i = 0; i < BATCHES; i++)
		strcat(many, ",1");
	assert_int_equal(batch_means_compare(good, strcat(many, "]}"), 0.02, c), SL_EINVAL);
	free(many);
	free(good);
}

/* ---- what is good ---- */

static void targets_are_of_each_figure(void **state)
{
	(void)state;
	struct serve_stats *s = calloc(1, sizeof *s);
	/* First token after 100 ms, then 10 events with 21 tokens, 20 ms apart. */
	const struct serve_outcome o = {.started_ns = 1,
					.first_ns = 100000001,
					.last_ns = 300000001,
					.ended_ns = 310000001,
					.n_events = 11,
					.n_completion = 21,
					.has_usage = true};
	static const struct {
		struct serve_slo slo;
		int good;
	} cases[] = {{{0}, 1},
		     {{.ttft_ms = 100}, 1},
		     {{.ttft_ms = 99}, 0},
		     {{.itl_ms = 20}, 1},
		     {{.itl_ms = 19}, 0},
		     {{.tpot_ms = 10}, 1},
		     {{.tpot_ms = 9}, 0},
		     {{.total_ms = 310}, 1},
		     {{.total_ms = 309}, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		serve_stats_init(s);
		serve_stats_done(s, &o, &cases[i].slo);
		assert_true(serve_stats_good(s) == cases[i].good);
		assert_int_equal(serve_slo_any(&cases[i].slo), i > 0);
	}
	/* One that has not begun is late once its first token is; one that streams only by its whole time. */
	const struct serve_outcome waits = {.started_ns = 1}, streams = {.started_ns = 1, .first_ns = 2};
	const struct serve_slo slo = {.ttft_ms = 100, .total_ms = 500};
	assert_false(serve_is_late(&waits, 99000001, &slo));
	assert_true(serve_is_late(&waits, 101000001, &slo));
	assert_false(serve_is_late(&streams, 499000001, &slo));
	assert_true(serve_is_late(&streams, 501000001, &slo));
	serve_stats_init(s);
	serve_stats_done(s, &o, &(struct serve_slo){0});
	s->n_late = 3;
	assert_true(serve_stats_good(s) == 0.25);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_search_ends_just_below_capacity),
	    cmocka_unit_test(the_picture_is_whole),
	    cmocka_unit_test(a_tenth_is_found_and_noise_is_not),
	    cmocka_unit_test(too_few_are_undecided),
	    cmocka_unit_test(wrong_reports),
	    cmocka_unit_test(targets_are_of_each_figure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
