/* SPDX-License-Identifier: Apache-2.0
 *
 * What `sluice model compare` says about two models, on simulated outcomes whose truth is known: it finds a planted
 * loss as often as it states, and equal models are told apart no oftener than its level. Seeded.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cmd/model/compare_stats.h"

/* ---- random numbers (splitmix64) ---- */

static double uniform(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15u;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t *state)
{
	double radius = sqrt(-2 * log(uniform(state)));
	return radius * cos(2 * M_PI * uniform(state));
}

/* ---- quantiles ---- */

static void quantiles_are_students(void **state)
{
	(void)state;
	/* Of tables. */
	static const struct {
		double p, df, t;
	} known[] = {{0.975, 1, 12.7062},  {0.975, 2, 4.30265},  {0.975, 10, 2.22814},  {0.95, 10, 1.81246},
		     {0.975, 30, 2.04227}, {0.95, 1e6, 1.64485}, {0.975, 1e6, 1.95996}, {0.05, 10, -1.81246}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		assert_true(fabs(stats_t_quantile(known[i].p, known[i].df) - known[i].t) < 1e-4);
}

static void probabilities_are_binomial(void **state)
{
	(void)state;
	assert_true(fabs(stats_pairs_probability(&(struct stats_pairs){.only_a = 5}) - 0.0625) < 1e-12);
	assert_true(fabs(stats_pairs_probability(&(struct stats_pairs){.only_b = 6}) - 0.03125) < 1e-12);
	assert_true(stats_pairs_probability(&(struct stats_pairs){.only_a = 4, .only_b = 4}) == 1);
	/* 2 · (C(10,0) + C(10,1)) / 2^10 */
	assert_true(fabs(stats_pairs_probability(&(struct stats_pairs){.only_a = 9, .only_b = 1}) - 22.0 / 1024) <
		    1e-12);
	/* None of 300: the upper limit of the share is 1 - 0.05^(1 / 300). */
	assert_true(fabs(2 * stats_pairs_churn(&(struct stats_pairs){.both = 300}) - (1 - pow(0.05, 1.0 / 300))) <
		    1e-9);
	/* Without churn, n tasks find a loss once six of them are lost. */
	double p = 0, loss = 0.02;
	for (int k = 0; k < 6; k++)
		p += exp(lgamma(501) - lgamma(k + 1) - lgamma(501 - k) + k * log(loss) + (500 - k) * log1p(-loss));
	assert_true(fabs(stats_tasks_power(500, 0, loss) - (1 - p)) < 1e-9);
}

/* ---- tasks ---- */

/* n tasks on which A alone is right with probability churn + loss, B alone with churn. */
static struct stats_pairs draw_tasks(uint64_t *state, uint64_t n, double churn, double loss)
{
	struct stats_pairs p = {0};
	for (uint64_t i = 0; i < n; i++) {
		double u = uniform(state);
		if (u < churn + loss)
			p.only_a++;
		else if (u < 2 * churn + loss)
			p.only_b++;
		else
			p.both++;
	}
	return p;
}

static bool differs(const struct stats_pairs *p) { return stats_pairs_probability(p) <= STATS_LEVEL; }

/* What R simulations of probability at least p give but once in a thousand times. */
static double at_least(int n, double p) { return n * p - 3.1 * sqrt(n * p * (1 - p)); }

static void a_point_lost_is_found(void **state)
{
	(void)state;
	enum { REPEATS = 400 };
	static const double churns[] = {0, 0.002, 0.01, 0.03};
	uint64_t seed = 1;
	for (size_t c = 0; c < sizeof churns / sizeof *churns; c++) {
		uint64_t n = stats_tasks_needed(churns[c], 0.01);
		int found = 0, wrong = 0;
		assert_true(n > 0);
		for (int i = 0; i < REPEATS; i++) {
			struct stats_pairs p = draw_tasks(&seed, n, churns[c], 0.01);
			found += differs(&p) && p.only_a > p.only_b;
			p = draw_tasks(&seed, n, churns[c], 0);
			wrong += differs(&p);
		}
		print_message("churn %.3f: n = %llu, found %d of %d, false alarms %d\n", churns[c],
			      (unsigned long long)n, found, REPEATS, wrong);
		assert_true(found >= at_least(REPEATS, STATS_POWER));
		assert_true(REPEATS - wrong >= at_least(REPEATS, 1 - STATS_LEVEL));
	}
}

/* The command plans with the churn that it saw. */
static void churn_is_an_upper_limit(void **state)
{
	(void)state;
	enum { REPEATS = 400 };
	uint64_t seed = 9;
	int covers = 0;
	for (int i = 0; i < REPEATS; i++) {
		struct stats_pairs p = draw_tasks(&seed, 1000, 0.01, 0);
		covers += stats_pairs_churn(&p) >= 0.01;
	}
	assert_true(covers >= at_least(REPEATS, 0.95));
}

static void the_stated_loss_of_a_size_is_found(void **state)
{
	(void)state;
	struct stats_pairs p = {.both = 940, .only_a = 9, .only_b = 11, .neither = 40};
	struct stats_verdict v = stats_judge_tasks(&p);
	assert_int_equal(v.found, STATS_NONE);
	assert_true(v.detectable > 0.01 && v.detectable < 0.05);
	assert_true(stats_tasks_power(1000, stats_pairs_churn(&p), v.detectable) >= STATS_POWER);
	assert_true(stats_tasks_power(1000, stats_pairs_churn(&p), 0.8 * v.detectable) < STATS_POWER);
	assert_true(stats_tasks_power(stats_tasks_needed(0.01, 0.01), 0.01, 0.01) >= STATS_POWER);
}

static void verdicts_on_tasks(void **state)
{
	(void)state;
	assert_int_equal(stats_judge_tasks(&(struct stats_pairs){0}).found, STATS_TOO_FEW);
	struct stats_verdict v = stats_judge_tasks(&(struct stats_pairs){.both = 90, .neither = 10});
	assert_int_equal(v.found, STATS_IDENTICAL);
	assert_true(v.difference == 0 && v.detectable > 0.05 && v.detectable < 0.2);
	v = stats_judge_tasks(&(struct stats_pairs){.both = 80, .only_a = 20});
	assert_int_equal(v.found, STATS_WORSE);
	assert_true(fabs(v.difference + 0.2) < 1e-12 && v.low < -0.2 && v.high < 0);
	assert_int_equal(stats_judge_tasks(&(struct stats_pairs){.both = 80, .only_b = 20}).found, STATS_BETTER);
	/* Three tasks find nothing, whatever happens. */
	assert_true(isnan(stats_judge_tasks(&(struct stats_pairs){.both = 3}).detectable));
}

/* ---- losses of texts ---- */

enum { CLUSTERS = 40 };

/* Positions of a cluster share most of their difference. The mean over positions is `shift`. */
static struct stats_verdict draw_text(uint64_t *state, double shift, struct estimate *out)
{
	double sums[CLUSTERS][2];
	for (int i = 0; i < CLUSTERS; i++) {
		int n = 50 + (int)(uniform(state) * 100);
		double own = 0.02 * normal(state), sum = 0;
		for (int k = 0; k < n; k++)
			sum += shift + own + 0.02 * normal(state);
		sums[i][0] = sum;
		sums[i][1] = n;
	}
	*out = stats_ratio(&sums[0][0], &sums[0][1], CLUSTERS, 2);
	return stats_judge_loss(*out, CLUSTERS);
}

static void correlation_within_texts_counts(void **state)
{
	(void)state;
	enum { REPEATS = 500 };
	uint64_t seed = 5;
	int wrong = 0, found = 0;
	struct estimate e;
	double detectable = 0;
	for (int i = 0; i < REPEATS; i++) {
		struct stats_verdict v = draw_text(&seed, 0, &e);
		wrong += v.found != STATS_NONE;
		detectable += v.detectable / REPEATS;
	}
	for (int i = 0; i < REPEATS; i++)
		found += draw_text(&seed, detectable, &e).found == STATS_WORSE;
	print_message("texts: false alarms %d, found %d of %d at %.5f\n", wrong, found, REPEATS, detectable);
	/* If positions counted as independent, some 85 % would be. */
	assert_true(REPEATS - wrong >= at_least(REPEATS, 1 - STATS_LEVEL));
	assert_true(wrong > 0);
	assert_true(found >= at_least(REPEATS, STATS_POWER));
}

static void verdicts_on_texts(void **state)
{
	(void)state;
	const double same[] = {0, 10, 0, 20, 0, 30}, more[] = {1, 10, 2.1, 20, 2.9, 30},
		     less[] = {-1, 10, -2.1, 20, -2.9, 30};
	assert_int_equal(stats_judge_loss(stats_ratio(same, same + 1, 3, 2), 3).found, STATS_IDENTICAL);
	assert_int_equal(stats_judge_loss(stats_ratio(more, more + 1, 3, 2), 3).found, STATS_WORSE);
	assert_int_equal(stats_judge_loss(stats_ratio(less, less + 1, 3, 2), 3).found, STATS_BETTER);
	assert_int_equal(stats_judge_loss(stats_ratio(more, more + 1, 1, 2), 1).found, STATS_TOO_FEW);
	assert_true(fabs(stats_ratio(more, more + 1, 3, 2).value - 0.1) < 1e-12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(quantiles_are_students),
	    cmocka_unit_test(probabilities_are_binomial),
	    cmocka_unit_test(a_point_lost_is_found),
	    cmocka_unit_test(churn_is_an_upper_limit),
	    cmocka_unit_test(the_stated_loss_of_a_size_is_found),
	    cmocka_unit_test(verdicts_on_tasks),
	    cmocka_unit_test(correlation_within_texts_counts),
	    cmocka_unit_test(verdicts_on_texts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
