/* SPDX-License-Identifier: Apache-2.0
 *
 * The last hour: what a sample holds, rates over the time that really passed, a ring that is full, an engine that has
 * started again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"
#include "gateway/observe/history.h"
#include "gateway/observe/observe.h"

static const uint64_t step = HISTORY_STEP_MS * NS_PER_MS;

static int reset(void **state)
{
	(void)state;
	history_reset();
	return 0;
}

static json_t *printed(void)
{
	struct sl_buf out;
	json_error_t e;
	buf_init(&out, HISTORY_BYTES);
	assert_int_equal(history_print(&out), 0);
	json_t *v = json_loadb((const char *)buf_data(&out), out.len, 0, &e);
	buf_dispose(&out);
	if (v == NULL)
		fail_msg("%s", e.text);
	return v;
}

static json_t *list(const json_t *v, const char *name)
{
	json_t *l = json_object_get(json_object_get(v, "samples"), name);
	assert_non_null(l);
	return l;
}

static double at(const json_t *v, const char *name, size_t i)
{
	const json_t *n = json_array_get(list(v, name), i);
	assert_true(json_is_number(n));
	return json_number_value(n);
}

static struct observed answer_of(uint64_t ttft_ms)
{
	return (struct observed){.tier = "free",
				 .model = "m",
				 .status = 200,
				 .has_answer = true,
				 .started_ns = 1,
				 .first_ns = 1 + ttft_ms * NS_PER_MS,
				 .ended_ns = 1 + 2 * ttft_ms * NS_PER_MS,
				 .ttft_target_ns = 300 * NS_PER_MS};
}

static void a_sample_has_what_ended_since_the_last(void **state)
{
	struct history_gauges g = {.answer_tokens = 1000, .prefix_queries = 50, .prefix_hits = 20, .preemptions = 1};
	(void)state;
	history_tick(step, 100, &g); /* the first look takes no sample */
	for (uint64_t i = 0; i < 19; i++) {
		struct observed o = answer_of(100);
		o.cascade = i < 4 ? "large/forced" : "check/middle";
		o.switched_ns = i == 5 ? 7 : 0;
		history_answer(&o);
	}
	struct observed slow = answer_of(1000), refused = {.tier = "free", .status = 503, .failed = true};
	history_answer(&slow);
	history_answer(&refused);
	g = (struct history_gauges){3, 2, 1, 250, 500, 2000, 150, 70, 4};
	history_tick(2 * step - 1, 104, &g); /* not due */
	history_tick(2 * step, 105, &g);
	json_t *v = printed();
	assert_int_equal(json_array_size(list(v, "at")), 1);
	assert_true(at(v, "at", 0) == 105);
	assert_true(at(v, "answers_per_s", 0) == 4);
	assert_true(at(v, "failed_per_s", 0) == 0.2 && at(v, "refused_per_s", 0) == 0.2);
	assert_true(at(v, "tokens_per_s", 0) == 200 && at(v, "prompt_tokens_per_s", 0) == 100);
	assert_true(at(v, "running", 0) == 3 && at(v, "waiting", 0) == 2 && at(v, "queued", 0) == 1);
	assert_true(at(v, "kv_used_share", 0) == 0.25 && at(v, "prefix_hit_share", 0) == 0.5);
	assert_true(at(v, "preemptions", 0) == 3);
	assert_true(at(v, "large_share", 0) > 0.263 && at(v, "large_share", 0) < 0.2633); /* 5 of 19 */
	assert_true(at(v, "good_share", 0) > 0.904 && at(v, "good_share", 0) < 0.905);    /* 19 of 21 */
	assert_true(at(v, "ttft_p50_ms", 0) >= 100 && at(v, "ttft_p50_ms", 0) < 119);
	assert_true(at(v, "ttft_p95_ms", 0) >= 100 && at(v, "ttft_p95_ms", 0) < 119);
	json_decref(v);
}

static void without_answers_there_are_gaps(void **state)
{
	const struct history_gauges g = {0};
	(void)state;
	history_tick(step, 100, &g);
	history_tick(4 * step, 115, &g); /* some were missed */
	history_tick(5 * step - 1, 119, &g);
	history_tick(5 * step, 120, &g);
	json_t *v = printed();
	assert_int_equal(json_array_size(list(v, "at")), 2);
	assert_true(at(v, "answers_per_s", 0) == 0);
	assert_true(json_is_null(json_array_get(list(v, "ttft_p95_ms"), 0)));
	assert_true(json_is_null(json_array_get(list(v, "good_share"), 1)));
	json_decref(v);
}

static void a_new_engine_counts_from_zero(void **state)
{
	struct history_gauges g = {.answer_tokens = 100000};
	(void)state;
	history_tick(step, 100, &g);
	g.answer_tokens = 50;
	history_tick(2 * step, 105, &g);
	json_t *v = printed();
	assert_true(at(v, "tokens_per_s", 0) == 10);
	json_decref(v);
}

static void a_full_ring_drops_the_oldest(void **state)
{
	const struct history_gauges g = {.running = 4000000000u, .prompt_tokens = UINT64_MAX / 2};
	(void)state;
	for (uint64_t i = 0; i <= HISTORY_MOST + 3; i++) {
		struct observed o = answer_of(i + 1);
		history_answer(&o);
		history_tick((i + 1) * step, 1700000000 + (int64_t)i, &g);
	}
	json_t *v = printed();
	assert_int_equal(json_array_size(list(v, "at")), HISTORY_MOST);
	assert_int_equal(json_array_size(list(v, "preemptions")), HISTORY_MOST);
	assert_true(at(v, "at", 0) == 1700000004);
	assert_true(at(v, "at", HISTORY_MOST - 1) == 1700000003 + HISTORY_MOST);
	json_decref(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(a_sample_has_what_ended_since_the_last, reset),
	    cmocka_unit_test_setup(without_answers_there_are_gaps, reset),
	    cmocka_unit_test_setup(a_new_engine_counts_from_zero, reset),
	    cmocka_unit_test_setup(a_full_ring_drops_the_oldest, reset),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
