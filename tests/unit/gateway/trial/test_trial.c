/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "gateway/trial/trial_priv.h"

/* A base without a history. */
static const struct trial_past none = {0, 0};

static void binomial_tails(void **state)
{
	(void)state;
	/* Sums of exact fractions. */
	assert_true(fabs(trial_binomial_tail(4, 0.5, 2) - 11.0 / 16) < 1e-12);
	assert_true(fabs(trial_binomial_tail(3, 0.1, 3) - 0.001) < 1e-15);
	assert_true(fabs(trial_binomial_tail(10, 0.05, 1) - (1 - pow(0.95, 10))) < 1e-12);
	assert_true(trial_binomial_tail(10, 0.05, 0) == 1);
	assert_true(trial_binomial_tail(10, 0.05, 11) == 0);
	assert_true(trial_binomial_tail(10, 0, 1) == 0);
	assert_true(trial_binomial_tail(10, 1, 10) == 1);
}

/* While the arms are alike, the mean of a stratum's factor is exactly 1, whatever its answers are. */
static void a_factor_of_events_is_fair(void **state)
{
	(void)state;
	for (uint32_t n_base = 0; n_base < 20; n_base++)
		for (uint32_t n_variant = 0; n_variant < 20; n_variant++) {
			double mean[TRIAL_ODDS] = {0}, chance[TRIAL_ARMS];
			if (n_base + n_variant == 0)
				continue;
			chance[TRIAL_VARIANT] = (double)n_variant / (n_base + n_variant);
			chance[TRIAL_BASE] = 1 - chance[TRIAL_VARIANT];
			for (int arm = 0; arm < TRIAL_ARMS; arm++) {
				struct trial_stratum s = {{n_base, n_variant}};
				int64_t logs[TRIAL_ODDS] = {0};
				double expected;
				if (s.n[arm] == 0)
					continue;
				s.n[arm]--; /* the one with the event is one of them */
				bool both = trial_event(&s, (enum trial_arm)arm, true, logs, &expected);
				assert_int_equal(both, n_base > 0 && n_variant > 0);
				assert_true(fabs(expected - chance[TRIAL_VARIANT]) < 1e-12);
				assert_int_equal(s.n[0] + s.n[1], 0);
				for (int k = 0; k < TRIAL_ODDS; k++)
					mean[k] += chance[arm] * exp((double)logs[k] / TRIAL_MICRO);
			}
			for (int k = 0; k < TRIAL_ODDS; k++)
				assert_true(fabs(mean[k] - 1) < 1e-5);
		}
}

/* Likewise of a rank: its mean over all places among the values before is 1, for either arm, with equal values too. */
static void a_factor_of_ranks_is_fair(void **state)
{
	(void)state;
	static struct trial at;
	for (uint32_t n = 2; n < 40; n++)
		for (int arm = 0; arm < TRIAL_ARMS; arm++) {
			double mean[TRIAL_BETS] = {0}, score = 0;
			for (uint32_t place = 0; place <= n; place++) {
				int64_t sums[TRIAL_SUMS] = {0};
				at.n_window = n;
				at.n_window_variant = n / 3 + 1;
				for (uint32_t i = 0; i < n; i++)
					at.window[i] = 10 * i + 10;
				trial_rank(&at, (enum trial_arm)arm, 10 * place + 5, sums);
				assert_int_equal(at.n_window, n + 1);
				assert_int_equal(at.window[place], 10 * place + 5);
				for (int k = 0; k < TRIAL_BETS; k++)
					mean[k] += exp((double)sums[TRIAL_LOG_SLOW + k] / TRIAL_MICRO) / (n + 1);
				score += (double)sums[TRIAL_SCORE] / TRIAL_MICRO;
			}
			for (int k = 0; k < TRIAL_BETS; k++)
				assert_true(fabs(mean[k] - 1) < 1e-5);
			assert_true(fabs(score) < 1e-4);
		}
	int64_t sums[TRIAL_SUMS] = {0};
	at.n_window = 4;
	at.n_window_variant = 2;
	for (uint32_t i = 0; i < 4; i++)
		at.window[i] = 7;
	trial_rank(&at, TRIAL_VARIANT, 7, sums);
	for (int k = 0; k < TRIAL_SUMS; k++)
		assert_int_equal(sums[k], 0);
}

static void a_full_window_begins_anew(void **state)
{
	(void)state;
	static struct trial t;
	int64_t sums[TRIAL_SUMS] = {0};
	memset(&t, 0, sizeof t);
	for (uint64_t i = 0; i < TRIAL_WINDOW + 3; i++)
		trial_rank(&t, i % 2 == 0 ? TRIAL_BASE : TRIAL_VARIANT, 1000 - i, sums);
	assert_int_equal(t.n_window, 3);
	assert_int_equal(t.n_window_variant, 1);
}

static void take(struct trial *t, enum trial_arm arm, bool failed, uint64_t user)
{
	trial_take(t, arm, &(struct trial_answer){.failed = failed, .ttft_ns = 1000, .user = user});
}

static void a_variant_that_always_fails_is_found_at_once(void **state)
{
	(void)state;
	static struct trial t;
	memset(&t, 0, sizeof t);
	uint64_t user = 0;
	for (int i = 0; i < 40; i++) {
		for (int k = 0; k < 9; k++)
			take(&t, TRIAL_BASE, false, user++);
		int64_t before = t.sums.of[TRIAL_ANSWERS + TRIAL_VARIANT];
		take(&t, TRIAL_VARIANT, true, user++);
		if (trial_judge(&t.sums, none, before) == TRIAL_FAILS) {
			assert_true(i < 10);
			assert_true(trial_log_evidence(&t.sums, TRIAL_FAILS) >= trial_log_bound(TRIAL_FAILS));
			return;
		}
	}
	fail();
}

static void one_user_moves_nothing(void **state)
{
	(void)state;
	static struct trial t;
	memset(&t, 0, sizeof t);
	for (uint64_t i = 0; i < 4000; i++)
		if (i % 10 == 0)
			trial_take(&t, TRIAL_VARIANT,
				   &(struct trial_answer){
				       .failed = i % 20 == 0, .left = i % 20 != 0, .ttft_ns = 1 << 30, .user = 7});
		else
			take(&t, TRIAL_BASE, false, i);
	assert_int_equal(t.sums.of[TRIAL_ANSWERS + TRIAL_VARIANT], 400);
	assert_int_equal(t.sums.of[TRIAL_FAILURES + TRIAL_VARIANT], 200);
	assert_int_equal(trial_judge(&t.sums, none, 0), TRIAL_ALIKE);
}

static void what_hits_both_arms_counts_against_none(void **state)
{
	(void)state;
	static struct trial t;
	memset(&t, 0, sizeof t);
	for (uint64_t i = 0; i < 20000; i++) {
		enum trial_arm arm = i * 0x9e3779b97f4a7c15u >> 60 == 0 ? TRIAL_VARIANT : TRIAL_BASE;
		take(&t, arm, i % 1000 < 100, i);
	}
	assert_true(t.sums.of[TRIAL_FAILURES + TRIAL_VARIANT] > 50);
	assert_int_equal(trial_judge(&t.sums, none, 0), TRIAL_ALIKE);
}

static void better_is_not_worse(void **state)
{
	(void)state;
	static struct trial t;
	memset(&t, 0, sizeof t);
	for (uint64_t i = 0; i < 20000; i++) {
		enum trial_arm arm = i % 10 == 0 ? TRIAL_VARIANT : TRIAL_BASE;
		trial_take(&t, arm,
			   &(struct trial_answer){.failed = arm == TRIAL_BASE && i % 7 == 0,
						  .left = arm == TRIAL_BASE && i % 7 == 1,
						  .ttft_ns = arm == TRIAL_BASE ? 2000 + i : 1000 + i,
						  .user = i});
	}
	assert_int_equal(trial_judge(&t.sums, none, 0), TRIAL_ALIKE);
	for (int c = TRIAL_FAILS; c < TRIAL_CAUSES; c++)
		assert_true(trial_log_evidence(&t.sums, (enum trial_cause)c) < 0);
}

/* Gateways add up what they saw: the same answers at two places are the same evidence. */
static void sums_of_two_places_add_up(void **state)
{
	(void)state;
	static struct trial at[2];
	memset(at, 0, sizeof at);
	for (uint64_t i = 0; i < 2000; i++)
		for (int k = 0; k < 2; k++)
			take(&at[k], i % 20 == 0 ? TRIAL_VARIANT : TRIAL_BASE, i % 40 == 0 || i % 77 == 0, i);
	struct trial_sums both = at[0].sums;
	for (int i = 0; i < TRIAL_SUMS; i++)
		both.of[i] += at[1].sums.of[i];
	for (int k = 0; k < TRIAL_ODDS; k++)
		assert_int_equal(both.of[TRIAL_LOG_FAILS + k], 2 * at[0].sums.of[TRIAL_LOG_FAILS + k]);
	assert_true(trial_log_evidence(&both, TRIAL_FAILS) > trial_log_evidence(&at[0].sums, TRIAL_FAILS));
}

static void the_look_is_taken_once(void **state)
{
	(void)state;
	/* 13 of 115 events, 5.75 expected: below the e-process's bound, within the look's alpha. */
	struct trial_sums s = {{0}};
	s.of[TRIAL_ANSWERS + TRIAL_VARIANT] = TRIAL_LOOK;
	s.of[TRIAL_EVENTS] = 115;
	s.of[TRIAL_HITS] = 13;
	s.of[TRIAL_EXPECTED] = 5750000;
	assert_int_equal(trial_judge(&s, none, TRIAL_LOOK - 1), TRIAL_FAILS);
	assert_int_equal(trial_judge(&s, none, TRIAL_LOOK), TRIAL_ALIKE);
	s.of[TRIAL_HITS] = 11;
	assert_int_equal(trial_judge(&s, none, TRIAL_LOOK - 1), TRIAL_ALIKE);
	s.of[TRIAL_HITS] = 13;
	s.of[TRIAL_ANSWERS + TRIAL_VARIANT]--;
	assert_int_equal(trial_judge(&s, none, 0), TRIAL_ALIKE);
}

/* At the look: 500 answers of each arm, of which so many failed. */
static struct trial_sums evenly(int64_t base, int64_t variant)
{
	struct trial_sums s = {{0}};
	for (int arm = 0; arm < TRIAL_ARMS; arm++)
		s.of[TRIAL_ANSWERS + arm] = s.of[TRIAL_TRIED + arm] = TRIAL_LOOK;
	s.of[TRIAL_TRIED_FAILED + TRIAL_BASE] = base;
	s.of[TRIAL_TRIED_FAILED + TRIAL_VARIANT] = s.of[TRIAL_HITS] = variant;
	s.of[TRIAL_EVENTS] = base + variant;
	s.of[TRIAL_EXPECTED] = (base + variant) * TRIAL_MICRO / 2;
	return s;
}

static enum trial_cause look(const struct trial_sums *s, int64_t past, int64_t failed)
{
	return trial_judge(s, (struct trial_past){past, failed}, TRIAL_LOOK - 1);
}

static void a_history_makes_up_for_answers(void **state)
{
	(void)state;
	/* 14 to 6 is a chance of 5.8 %; with 1 % of a history before, 0.2 %. */
	struct trial_sums s = evenly(6, 14);
	assert_int_equal(look(&s, 0, 0), TRIAL_ALIKE);
	assert_int_equal(look(&s, 10000, 100), TRIAL_FAILS);
	assert_int_equal(look(&s, 100, 1), TRIAL_ALIKE);
	/* The base used to fail more. */
	assert_int_equal(look(&s, 10000, 200), TRIAL_ALIKE);
	/* What never failed may fail in a two-hundredth of its answers. */
	s = evenly(1, 5);
	assert_int_equal(look(&s, 10000, 0), TRIAL_ALIKE);
	s = evenly(2, 9);
	assert_int_equal(look(&s, 10000, 0), TRIAL_FAILS);
	/* Both fail more than the base used to. */
	s = evenly(20, 24);
	assert_int_equal(look(&s, 10000, 100), TRIAL_ALIKE);
	/* An outage of both, which hit the variant a little more: no such history counts. */
	s = evenly(100, 125);
	assert_int_equal(look(&s, 10000, 100), TRIAL_ALIKE);
	/* What the answers of the same time tell needs no history, whatever that was like. */
	s = evenly(2, 20);
	assert_int_equal(look(&s, 0, 0), TRIAL_FAILS);
	assert_int_equal(look(&s, 10000, 500), TRIAL_FAILS);
	/* A base with answers enough has none. */
	s = evenly(6, 14);
	s.of[TRIAL_TRIED + TRIAL_BASE] = TRIAL_ENOUGH;
	assert_int_equal(look(&s, 10000, 100), TRIAL_ALIKE);
}

/* A user counts four times, and again once many have answered; the older, the less an answer counts. */
static void a_history_is_bounded(void **state)
{
	(void)state;
	static struct trial_history h;
	memset(&h, 0, sizeof h);
	for (int i = 0; i < TRIAL_PAST_MOST; i++)
		trial_remember(&h, true, 7);
	assert_int_equal(h.fresh.n, TRIAL_FAILS_OF_USER);
	assert_int_equal(h.fresh.failed, TRIAL_FAILS_OF_USER);
	trial_remember(&h, false, 7);
	assert_int_equal(h.fresh.n, TRIAL_FAILS_OF_USER + 1);
	for (uint64_t i = 0; i < 5 * TRIAL_PAST_MOST; i++) {
		trial_remember(&h, false, 1000 + i);
		assert_true(h.fresh.n <= TRIAL_PAST_MOST);
	}
	assert_int_equal(h.fresh.failed, 0);
	const struct trial_past a = {TRIAL_PAST_MOST, 164}, b = {TRIAL_PAST_MOST / 2, 82}, sum = trial_past_sum(a, b);
	assert_int_equal(sum.n, TRIAL_PAST_MOST * 3 / 4);
	assert_int_equal(sum.failed, 123);
}

static void a_trial_counts_the_base_from_the_variants_first_answer_on(void **state)
{
	(void)state;
	static struct trial t;
	memset(&t, 0, sizeof t);
	take(&t, TRIAL_BASE, true, 1);
	take(&t, TRIAL_BASE, false, 2);
	assert_int_equal(t.sums.of[TRIAL_TRIED], 0);
	take(&t, TRIAL_VARIANT, true, 3);
	take(&t, TRIAL_BASE, true, 4);
	assert_int_equal(t.sums.of[TRIAL_TRIED], 1);
	assert_int_equal(t.sums.of[TRIAL_TRIED + TRIAL_VARIANT], 1);
	assert_int_equal(t.sums.of[TRIAL_TRIED_FAILED], 1);
	assert_int_equal(t.sums.of[TRIAL_TRIED_FAILED + TRIAL_VARIANT], 1);
}

/* 3.43 standard deviations, taken once, and of answers enough. */
static void first_tokens_are_looked_at_once(void **state)
{
	(void)state;
	struct trial_sums s = {{0}};
	s.of[TRIAL_ANSWERS + TRIAL_VARIANT] = TRIAL_LOOK;
	s.of[TRIAL_SCORE_SQUARES] = 100 * TRIAL_MICRO;
	s.of[TRIAL_SCORE] = 35 * TRIAL_MICRO;
	assert_int_equal(look(&s, 0, 0), TRIAL_SLOW);
	assert_int_equal(trial_judge(&s, none, TRIAL_LOOK), TRIAL_ALIKE);
	s.of[TRIAL_SCORE] = 34 * TRIAL_MICRO;
	assert_int_equal(look(&s, 0, 0), TRIAL_ALIKE);
	s.of[TRIAL_SCORE] = -90 * TRIAL_MICRO;
	assert_int_equal(look(&s, 0, 0), TRIAL_ALIKE);
	s.of[TRIAL_SCORE_SQUARES] = 9 * TRIAL_MICRO;
	s.of[TRIAL_SCORE] = 20 * TRIAL_MICRO;
	assert_int_equal(look(&s, 0, 0), TRIAL_ALIKE);
}

static void alphas_add_up_to_a_hundredth(void **state)
{
	(void)state;
	double sum = trial_look_alpha();
	for (int c = TRIAL_FAILS; c < TRIAL_CAUSES; c++)
		sum += exp(-trial_log_bound((enum trial_cause)c));
	assert_true(sum <= 0.01 + 1e-12);
	double odds = 0, bets = 0;
	for (int k = 0; k < TRIAL_ODDS; k++)
		odds += trial_odds_weights[k];
	for (int k = 0; k < TRIAL_BETS; k++)
		bets += trial_bet_weights[k];
	assert_true(fabs(odds - 1) < 1e-12 && fabs(bets - 1) < 1e-12);
	assert_string_equal(trial_cause_name(TRIAL_SLOW), "ttft");
	assert_string_equal(trial_cause_name(TRIAL_CAUSES), "");
	assert_true(isinf(trial_log_bound(TRIAL_ALIKE)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(binomial_tails),
	    cmocka_unit_test(a_factor_of_events_is_fair),
	    cmocka_unit_test(a_factor_of_ranks_is_fair),
	    cmocka_unit_test(a_full_window_begins_anew),
	    cmocka_unit_test(a_variant_that_always_fails_is_found_at_once),
	    cmocka_unit_test(one_user_moves_nothing),
	    cmocka_unit_test(what_hits_both_arms_counts_against_none),
	    cmocka_unit_test(better_is_not_worse),
	    cmocka_unit_test(sums_of_two_places_add_up),
	    cmocka_unit_test(the_look_is_taken_once),
	    cmocka_unit_test(a_history_makes_up_for_answers),
	    cmocka_unit_test(a_history_is_bounded),
	    cmocka_unit_test(a_trial_counts_the_base_from_the_variants_first_answer_on),
	    cmocka_unit_test(first_tokens_are_looked_at_once),
	    cmocka_unit_test(alphas_add_up_to_a_hundredth),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
