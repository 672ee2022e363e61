/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules under load: who goes on, is degraded, is refused, and until when; how far predictions are trusted;
 * when load begins and ends; who was refused just now. No clock but the test's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gateway/admission/load.h"

static const struct gw_tier_config queues = {.ttft_target_ms = 1000, .when_late = GW_LATE_QUEUE},
				   degrades = {.ttft_target_ms = 1000, .when_late = GW_LATE_DEGRADE},
				   refuses = {.ttft_target_ms = 1000, .when_late = GW_LATE_REFUSE},
				   no_target = {.when_late = GW_LATE_REFUSE};

static void by_tier(void **unused)
{
	(void)unused;
	static const struct {
		const struct gw_tier_config *tier;
		struct load_case c;
		enum load_verdict want;
		uint64_t retry_ms;
	} rows[] = {
	    {&queues, {1000, 60000, 1, false, false, false, false}, LOAD_GO, 0},
	    {&refuses, {1000, 60000, 1, false, false, false, false}, LOAD_GO, 0},
	    {&refuses, {1001, 60000, 1, false, false, false, false}, LOAD_REFUSE, 2},
	    {&refuses, {4000, 60000, 1, true, true, false, false}, LOAD_REFUSE, 3001},
	    /* What is not trusted counts for more. */
	    {&refuses, {900, 60000, 1.5, false, false, false, false}, LOAD_REFUSE, 351},
	    {&queues, {30000, 60000, 1.5, true, true, false, false}, LOAD_GO, 0},
	    {&queues, {60000, 60000, 1, false, false, false, false}, LOAD_GO, 0},
	    {&queues, {70000, 60000, 1, true, true, false, false}, LOAD_REFUSE, 10001},
	    {&degrades, {999, 60000, 1, true, true, false, false}, LOAD_GO, 0},
	    {&degrades, {2000, 60000, 1, true, false, false, false}, LOAD_DEGRADE, 0},
	    {&degrades, {70000, 60000, 1, true, false, false, false}, LOAD_DEGRADE, 0},
	    {&degrades, {2000, 60000, 1, false, true, false, false}, LOAD_DEGRADE, 0},
	    {&degrades, {70000, 60000, 1, false, true, false, false}, LOAD_REFUSE, 69001},
	    {&degrades, {2000, 60000, 1, false, false, false, false}, LOAD_REFUSE, 1001},
	    {&degrades, {2000, 60000, 1, false, false, true, false}, LOAD_GO, 0},
	    {&no_target, {50000, 60000, 2, false, false, false, false}, LOAD_GO, 0},
	    {&no_target, {60001, 60000, 1, false, false, false, false}, LOAD_REFUSE, 2},
	    /* Where nothing else runs or waits there is nothing to refuse for, whatever was predicted. */
	    {&refuses, {67000, 60000, 2, true, true, false, true}, LOAD_GO, 0},
	    {&degrades, {67000, 60000, 2, true, true, false, true}, LOAD_GO, 0},
	    {&queues, {67000, 60000, 2, true, true, false, true}, LOAD_GO, 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t retry_ms = 77;
		enum load_verdict v = load_decide(rows[i].tier, &rows[i].c, &retry_ms);
		if (v != rows[i].want || retry_ms != rows[i].retry_ms)
			fail_msg("row %zu: verdict %d, retry %llu", i, (int)v, (unsigned long long)retry_ms);
	}
	assert_int_equal(load_retry_s(0), 1);
	assert_int_equal(load_retry_s(1000), 1);
	assert_int_equal(load_retry_s(1001), 2);
	assert_int_equal(load_retry_s(UINT64_MAX - 1000), 86400);
}

/* Of those let in by the learnt margin 32 of 33 are in time, whatever the predictions' error. */
static void a_margin_is_learnt(void **unused)
{
	(void)unused;
	struct load_margin m = {0};
	uint64_t random = 1, late = 0, now = NS_PER_S;
	enum { WARM = 2000, N = 20000 };
	for (int i = 0; i < WARM + N; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		double part = 0.6 + 0.9 * (double)(random >> 11) * 0x1p-53; /* truth: 0.6 to 1.5 of it */
		late += i >= WARM && part > load_margin_factor(&m, now);
		load_margin_learn(&m, NS_PER_S, (uint64_t)(part * 1e9), now);
	}
	assert_true(late > N * 2 / 100 && late < N * 4 / 100);
	/* It never goes below what was predicted, nor beyond twice of it. */
	for (int i = 0; i < 1000; i++)
		load_margin_learn(&m, NS_PER_S, NS_PER_S / 10, now);
	assert_true(fabs(load_margin_factor(&m, now) - 1) < 1e-9);
	for (int i = 0; i < 1000; i++)
		load_margin_learn(&m, NS_PER_S, 100 * NS_PER_S, now);
	assert_true(load_margin_factor(&m, now) > 1.9 && load_margin_factor(&m, now) < 2.1);
	struct load_margin before = m;
	load_margin_learn(&m, NS_PER_MS, NS_PER_S, now); /* too short to learn from */
	assert_true(fabs(before.log - m.log) < 1e-12);
	/* Unused it goes: nothing that is refused by it could ever put it right. */
	now += 30 * NS_PER_S;
	assert_true(fabs(load_margin_factor(&m, now) - exp(before.log / 2)) < 1e-9);
	now += 600 * NS_PER_S;
	assert_true(load_margin_factor(&m, now) < 1.001);
	load_margin_learn(&m, NS_PER_S, 2 * NS_PER_S, now);
	assert_true(load_margin_factor(&m, now) > 1.06 && load_margin_factor(&m, now) < 1.07);
}

static void levels_have_two_thresholds(void **unused)
{
	(void)unused;
	struct load_levels l = {0};
	struct proto_load now = {
	    .model = 3,
	    .of = {[0] = {0, 900 * 1000, 0, 0}, [2] = {5, 2000 * 1000, 0, 0}, [7] = {9, 3000 * 1000, 0, 0}}};
	assert_true(load_levels_see(&l, &now, 2000, 500));
	assert_false(load_is_high(&l, 3, 0));
	assert_false(load_is_high(&l, 3, 1));
	assert_true(load_is_high(&l, 3, 2));
	assert_true(load_is_high(&l, 3, 7));
	assert_true(load_is_high(&l, 3, 9)); /* those beyond are the last one */
	assert_false(load_is_high(&l, 2, 2));
	assert_false(load_levels_see(&l, &now, 2000, 500));
	/* An idle engine has no load, whatever a request would take there. */
	struct load_levels idle = l;
	struct proto_load nothing = now;
	nothing.idle = true;
	assert_true(load_levels_see(&idle, &nothing, 2000, 500));
	assert_false(load_is_high(&idle, 3, 7));
	now.of[2].wait_us = 500 * 1000;
	assert_false(load_levels_see(&l, &now, 2000, 500));
	now.of[2].wait_us = 499 * 1000;
	assert_true(load_levels_see(&l, &now, 2000, 500));
	assert_false(load_is_high(&l, 3, 2));
	assert_true(load_is_high(&l, 3, 7));
	now.of[2].wait_us = 1999 * 1000;
	assert_false(load_levels_see(&l, &now, 2000, 500));
}

static void the_last_word_on_a_tenant_is_kept(void **unused)
{
	(void)unused;
	static struct load_memo m;
	uint64_t t = 1000 * NS_PER_S;
	assert_int_equal(load_memo_find(&m, 0, 0, 0, t), 0);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t), 0);
	load_memo_sent(&m, 7, 1, 0, 5000, t); /* nothing is known, nothing becomes known */
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t), 0);
	load_memo_put(&m, 7, 1, 0, 3000, t);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t), 3001);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t + 50 * NS_PER_MS), 2951);
	assert_int_equal(load_memo_find(&m, 7, 2, 0, t), 0);
	assert_int_equal(load_memo_find(&m, 8, 1, 0, t), 0);
	assert_int_equal(load_memo_find(&m, 7, 1, 1, t), 0); /* another key of the tenant, of a worse tier */
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t + 749 * NS_PER_MS), 2252);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t + 750 * NS_PER_MS), 0);
	/* Not beyond what it says. */
	load_memo_put(&m, 7, 1, 0, 10, t);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t + 9 * NS_PER_MS), 2);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t + 10 * NS_PER_MS), 0);
	load_memo_sent(&m, 7, 1, 0, 5000, t + 10 * NS_PER_MS);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t + 10 * NS_PER_MS), 0);
}

static void who_was_sent_since_is_before_the_next(void **unused)
{
	(void)unused;
	static struct load_memo m;
	uint64_t t = 1000 * NS_PER_S;
	load_memo_put(&m, 7, 1, 0, 4000, t);
	load_memo_sent(&m, 7, 1, 0, 500 * 1000, t);
	load_memo_sent(&m, 8, 1, 0, 500 * 1000, t);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, t), 4501);
	/* It is no longer believed: one is sent to ask, and those that come meanwhile are told what is known. */
	uint64_t later = t + 1000 * NS_PER_MS;
	assert_int_equal(load_memo_find(&m, 7, 1, 0, later), 0);
	load_memo_sent(&m, 7, 1, 0, 500 * 1000, later);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, later), 4001);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, later + 999 * NS_PER_MS), 3002);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, later + 1000 * NS_PER_MS), 0);
	/* The answer to it is the new word. */
	load_memo_put(&m, 7, 1, 0, 100, later);
	assert_int_equal(load_memo_find(&m, 7, 1, 0, later), 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(by_tier),
	    cmocka_unit_test(a_margin_is_learnt),
	    cmocka_unit_test(levels_have_two_thresholds),
	    cmocka_unit_test(the_last_word_on_a_tenant_is_kept),
	    cmocka_unit_test(who_was_sent_since_is_before_the_next),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
