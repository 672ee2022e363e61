/* SPDX-License-Identifier: Apache-2.0
 *
 * Histograms by tier and model: which bucket a value falls into, threads' cells added up, vLLM's names for the sum of
 * all tiers, and a bound on the rows whatever the names are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/observe/latency.h"

/* The value of a line of the metrics; -1: there is no such line. */
static double value_of(const char *name)
{
	struct sl_buf b;
	char line[256];
	buf_init(&b, 64 << 20);
	assert_int_equal(metrics_print(&b), 0);
	snprintf(line, sizeof line, "\n%s ", name);
	const char *at = strstr(buf_cstr(&b), line);
	double v = at != NULL ? strtod(at + strlen(line), NULL) : -1;
	buf_dispose(&b);
	return v;
}

static void is(const char *name, double want)
{
	double v = value_of(name);
	if (v < want - 1e-9 || v > want + 1e-9)
		fail_msg("%s is %.12g, not %.12g", name, v, want);
}

static void bounds_are_inclusive_and_people_s_targets_are_among_them(void **unused)
{
	(void)unused;
	struct latency_cells *c = latency_of("bounds", "m1", "");
	static const uint64_t ms[] = {200, 201, 300, 400, 450, 451, 70000};
	for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
		latency_first_token(c, LATENCY_CACHED_PART, ms[i] * NS_PER_MS);
#define TTFT(le) "sluice_ttft_seconds_bucket{tier=\"bounds\",model=\"m1\",cached=\"part\",le=\"" le "\"}"
	is(TTFT("0.15"), 0);
	is(TTFT("0.2"), 1);
	is(TTFT("0.25"), 2);
	is(TTFT("0.3"), 3);
	is(TTFT("0.4"), 4);
	is(TTFT("0.45"), 5);
	is(TTFT("0.5"), 6);
	is(TTFT("60"), 6);
	is(TTFT("+Inf"), 7);
	is("sluice_ttft_seconds_sum{tier=\"bounds\",model=\"m1\",cached=\"part\"}", 72.002);
	is("sluice_ttft_seconds_count{tier=\"bounds\",model=\"m1\",cached=\"none\"}", 0);
	/* 40 ms are 25 tokens a second. */
	assert_int_equal(latency_gap(c, true, 40 * NS_PER_MS, 1), 0);
	is("sluice_itl_seconds_bucket{tier=\"bounds\",model=\"m1\",paced=\"yes\",le=\"0.03\"}", 0);
	is("sluice_itl_seconds_bucket{tier=\"bounds\",model=\"m1\",paced=\"yes\",le=\"0.04\"}", 1);
	is("sluice_itl_seconds_count{tier=\"bounds\",model=\"m1\",paced=\"no\"}", 0);
}

static void time_below_reading_speed_is_added_up(void **unused)
{
	(void)unused;
	struct latency_cells *c = latency_of("slow", "m1", "");
	assert_int_equal(latency_gap(c, false, 250 * NS_PER_MS, 1), 0);
	assert_int_equal(latency_gap(c, false, 251 * NS_PER_MS, 1), 251 * NS_PER_MS);
	assert_int_equal(latency_gap(c, false, 900 * NS_PER_MS, 4), 0);
	assert_int_equal(latency_gap(c, false, 1100 * NS_PER_MS, 4), 1100 * NS_PER_MS);
	is("sluice_slow_seconds_total{tier=\"slow\",model=\"m1\"}", 1.351);
	assert_int_equal(latency_gap(NULL, false, NS_PER_S, 1), NS_PER_S);
}

static void an_answer_moves_each_family_and_vllm_s_names_are_of_all_tiers(void **unused)
{
	(void)unused;
	struct latency_answer a = {.finish = LATENCY_LENGTH,
				   .cached = LATENCY_CACHED_FULL,
				   .e2e_ns = 4 * NS_PER_S,
				   .queue_ns = 30 * NS_PER_MS,
				   .prefill_ns = 90 * NS_PER_MS,
				   .decode_ns = 3 * NS_PER_S,
				   .tpot_ns = 20 * NS_PER_MS,
				   .prompt = 500,
				   .answer = 150,
				   .longest = 40};
	latency_end(latency_of("one", "shared", ""), &a);
	a.stopped = true;
	a.finish = LATENCY_ABORT;
	latency_end(latency_of("two", "shared", ""), &a);
	latency_end(NULL, &a);
	static const struct {
		const char *own, *vllm;
		double each;
	} families[] = {
	    {"sluice_e2e_seconds", "vllm:e2e_request_latency_seconds", 4},
	    {"sluice_queue_seconds", "vllm:request_queue_time_seconds", 0.03},
	    {"sluice_decode_seconds", "vllm:request_decode_time_seconds", 3},
	    {"sluice_tpot_seconds", "vllm:request_time_per_output_token_seconds", 0.02},
	    {"sluice_prompt_tokens", "vllm:request_prompt_tokens", 500},
	    {"sluice_answer_tokens", "vllm:request_generation_tokens", 150},
	};
	char name[160];
	for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
		snprintf(name, sizeof name, "%s_sum{tier=\"one\",model=\"shared\"}", families[i].own);
		is(name, families[i].each);
		snprintf(name, sizeof name, "%s_count{tier=\"two\",model=\"shared\"}", families[i].own);
		is(name, 1);
		snprintf(name, sizeof name, "%s_sum{model_name=\"shared\"}", families[i].vllm);
		is(name, 2 * families[i].each);
		snprintf(name, sizeof name, "%s_bucket{model_name=\"shared\",le=\"+Inf\"}", families[i].vllm);
		is(name, 2);
	}
	is("vllm:request_max_num_generation_tokens_sum{model_name=\"shared\"}", 80);
	is("sluice_prefill_seconds_sum{tier=\"one\",model=\"shared\",cached=\"full\"}", 0.09);
	is("vllm:request_prefill_time_seconds_sum{model_name=\"shared\"}", 0.18);
	is("vllm:request_success_total{model_name=\"shared\",finished_reason=\"length\"}", 1);
	is("vllm:request_success_total{model_name=\"shared\",finished_reason=\"abort\"}", 1);
	is("sluice_stopped_tokens_sum{tier=\"two\",model=\"shared\"}", 150);
	is("sluice_stopped_tokens_count{tier=\"one\",model=\"shared\"}", 0);
	/* What is unknown is not counted as 0. */
	latency_end(latency_of("three", "shared", ""), &(struct latency_answer){.finish = LATENCY_ERROR});
	is("sluice_queue_seconds_count{tier=\"three\",model=\"shared\"}", 0);
	is("sluice_prompt_tokens_count{tier=\"three\",model=\"shared\"}", 0);
}

enum { THREADS = 70, EACH = 1000 };

static void *observe(void *unused)
{
	(void)unused;
	struct latency_cells *c = latency_of("threads", "m1", "");
	for (int i = 0; i < EACH; i++)
		latency_first_token(c, LATENCY_CACHED_NONE, NS_PER_MS);
	return c;
}

/* More threads than have cells of their own: some share theirs, and no value is lost. */
static void threads_add_up(void **unused)
{
	(void)unused;
	pthread_t all[THREADS];
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&all[i], NULL, observe, NULL), 0);
	void *cells[THREADS];
	int different = 0;
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], &cells[i]);
	for (int i = 0; i < THREADS; i++) {
		int k = 0;
		while (cells[k] != cells[i])
			k++;
		different += k == i;
	}
	assert_in_range(different, THREADS / 2, THREADS - 1); /* whichever of them came first */
	is("sluice_ttft_seconds_count{tier=\"threads\",model=\"m1\",cached=\"none\"}", THREADS * EACH);
}

static void names_are_quoted_and_rows_are_bounded(void **unused)
{
	(void)unused;
	char name[32];
	latency_first_token(latency_of("a\"b\\c\nd", "m1", ""), LATENCY_CACHED_NONE, 1);
	is("sluice_ttft_seconds_count{tier=\"a\\\"b\\\\c\\nd\",model=\"m1\",cached=\"none\"}", 1);
	for (int i = 0; i < 2 * LATENCY_ROWS; i++) {
		snprintf(name, sizeof name, "t%d", i);
		latency_first_token(latency_of(name, "many", ""), LATENCY_CACHED_NONE, 1);
	}
	is("sluice_ttft_seconds_count{tier=\"t0\",model=\"many\",cached=\"none\"}", 1);
	assert_true(value_of("sluice_ttft_seconds_count{tier=\"other\",model=\"other\",cached=\"none\"}") >
		    LATENCY_ROWS);
	snprintf(name, sizeof name, "t%d", 2 * LATENCY_ROWS - 1);
	assert_ptr_equal(latency_of(name, "many", ""), latency_of("other", "other", ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(bounds_are_inclusive_and_people_s_targets_are_among_them),
	    cmocka_unit_test(time_below_reading_speed_is_added_up),
	    cmocka_unit_test(an_answer_moves_each_family_and_vllm_s_names_are_of_all_tiers),
	    cmocka_unit_test(threads_add_up),
	    cmocka_unit_test(names_are_quoted_and_rows_are_bounded),
	};
	return cmocka_run_group_tests_name("latency", tests, NULL, NULL);
}
