/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler against its definition: distributions by chi-square at fixed seeds, the filters'
 * supports, ties, what is not a number, penalties, and the log probability computed directly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"

enum { MOST = 64 };

static const struct sampler_params plain = {.temperature = 1, .top_p = 1, .seed = 1};

/* Draws from a copy, as the logits are overwritten. */
static struct sampler_choice draw(const struct sampler_params *p, const float *logits, int n,
				  const uint16_t *counts, uint64_t index)
{
	float copy[MOST];
	int32_t scratch[MOST];
	memcpy(copy, logits, (size_t)n * sizeof *copy);
	return sampler_draw(p, copy, n, counts, index, scratch);
}

/* Frequencies over 20000 indices against p (zero: must never be drawn). Chi-square with k-1 degrees
 * has mean k-1 and variance 2(k-1): five deviations above it is passed by chance once in some ten
 * thousand seeds at these k, and the seeds are fixed. */
static void check_distribution(const struct sampler_params *params, const float *logits, int n, const double *p)
{
	enum { DRAWS = 20000 };
	int seen[MOST] = {0}, k = 0;
	double chi = 0;
	for (uint64_t i = 0; i < DRAWS; i++) {
		int32_t id = draw(params, logits, n, NULL, i).id;
		assert_in_range(id, 0, n - 1);
		seen[id]++;
	}
	for (int i = 0; i < n; i++) {
		if (p[i] == 0) {
			assert_int_equal(seen[i], 0);
			continue;
		}
		double d = seen[i] - p[i] * DRAWS;
		chi += d * d / (p[i] * DRAWS);
		k++;
	}
	if (chi > k - 1 + 5 * sqrt(2.0 * (k - 1)))
		fail_msg("chi-square %.1f with %d degrees", chi, k - 1);
}

static void softmax(const float *logits, int n, double temperature, double *p)
{
	double sum = 0, max = -INFINITY;
	for (int i = 0; i < n; i++)
		max = fmax(max, (double)logits[i]);
	for (int i = 0; i < n; i++)
		sum += p[i] = exp(((double)logits[i] - max) / temperature);
	for (int i = 0; i < n; i++)
		p[i] /= sum;
}

/* Keeps the best so many of p (sorted by its index order given) and scales them to 1. */
static void keep(double *p, const int *order, int n, int kept)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += i < kept ? p[order[i]] : 0;
	for (int i = 0; i < n; i++)
		p[order[i]] = i < kept ? p[order[i]] / sum : 0;
}

static const float logits[] = {0.5f, 2, -1, 1.5f, 2, 0, -2, 1};
static const int order[] = {1, 4, 3, 7, 0, 5, 2, 6};
enum { K = 8 };

static void test_distributions(void **arg)
{
	(void)arg;
	double p[K];
	static const float temperatures[] = {0.5f, 1, 2};
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct sampler_params s = plain;
		s.seed = seed * 0x100000001ull;
		for (int i = 0; i < 3; i++) {
			s.temperature = temperatures[i];
			softmax(logits, K, (double)s.temperature, p);
			check_distribution(&s, logits, K, p);
		}
		s.temperature = 1;
		for (uint32_t k = 1; k <= K; k++) {
			s.top_k = k;
			softmax(logits, K, 1, p);
			keep(p, order, K, (int)k);
			check_distribution(&s, logits, K, p);
		}
		/* Masses in order: .30 .30 .18 .11 .067 .041 .015 .0055 */
		static const struct {
			float top_p;
			int kept;
		} tops[] = {{1e-9f, 1}, {0.2f, 1}, {0.45f, 2}, {0.7f, 3}, {0.85f, 4}, {0.999f, 8}, {1, 8}};
		s.top_k = 0;
		for (int i = 0; i < 7; i++) {
			s.top_p = tops[i].top_p;
			softmax(logits, K, 1, p);
			keep(p, order, K, tops[i].kept);
			check_distribution(&s, logits, K, p);
		}
		/* Top-p of what top-k left: of .38 .38 .23, 0.7 takes two. */
		s.top_k = 3;
		s.top_p = 0.7f;
		softmax(logits, K, 1, p);
		keep(p, order, K, 2);
		check_distribution(&s, logits, K, p);
		/* exp(1.5-2) = .61 stays, exp(1-2) = .37 goes. */
		s = plain;
		s.min_p = 0.5f;
		softmax(logits, K, 1, p);
		keep(p, order, K, 3);
		check_distribution(&s, logits, K, p);
	}
}

static void test_greedy_and_ties(void **arg)
{
	(void)arg;
	struct sampler_params s = {.temperature = 0, .top_p = 1};
	static const float flat[MOST];
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(draw(&s, logits, K, NULL, i).id, 1);
		assert_int_equal(draw(&s, flat, MOST, NULL, i).id, 0);
	}
	/* One kept of equals is the lowest id; k of equals are the k lowest. */
	s = plain;
	for (uint32_t k = 1; k < MOST; k++) {
		s.top_k = k;
		for (uint64_t i = 0; i < 50; i++)
			assert_in_range(draw(&s, flat, MOST, NULL, i).id, 0, (int)k - 1);
	}
	s.top_k = 0;
	s.top_p = 0x1p-20f;
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(draw(&s, flat, MOST, NULL, i).id, 0);
}

static void test_not_numbers(void **arg)
{
	(void)arg;
	static const float none[] = {NAN, -INFINITY, NAN}, over[] = {0, INFINITY, 1}, some[] = {NAN, -INFINITY, -3e38f, NAN};
	static const float temperatures[] = {0, 1e-6f, 1, 100};
	for (int t = 0; t < 4; t++)
		for (uint32_t k = 0; k < 3; k++)
			for (uint64_t i = 0; i < 50; i++) {
				struct sampler_params s = plain;
				s.temperature = temperatures[t];
				s.top_k = k;
				assert_int_equal(draw(&s, none, 3, NULL, i).id, -1);
				assert_int_equal(draw(&s, over, 3, NULL, i).id, -1);
				struct sampler_choice c = draw(&s, some, 4, NULL, i);
				assert_int_equal(c.id, 2);
				assert_true(fabsf(c.logprob) < 1e-6f);
			}
}

static void test_logprob(void **arg)
{
	(void)arg;
	static const float temperatures[] = {0, 0.3f, 1, 3};
	uint16_t counts[K] = {0, 3, 0, 1, 65535, 0, 0, 2};
	double p[K];
	softmax(logits, K, 1, p);
	for (int t = 0; t < 4; t++)
		for (int penal = 0; penal < 2; penal++)
			for (uint64_t i = 0; i < 200; i++) {
				struct sampler_params s = plain;
				s.temperature = temperatures[t];
				s.presence_penalty = penal ? 0.5f : 0;
				s.frequency_penalty = penal ? 0.25f : 0;
				struct sampler_choice c = draw(&s, logits, K, counts, i);
				/* Rounding to float, and a penalty of up to 1.25 subtracted and added again:
				 * three roundings of numbers below 4. Id 4, at -16384, is never drawn. */
				assert_true(!penal || c.id != 4);
				assert_true(fabs((double)c.logprob - log(p[c.id])) <= 3 * 4 * 0x1p-24);
			}
}

static void test_penalties(void **arg)
{
	(void)arg;
	uint16_t counts[K] = {0};
	struct sampler_params s = {.temperature = 0, .top_p = 1, .presence_penalty = 0.4f};
	assert_int_equal(draw(&s, logits, K, counts, 0).id, 1);
	counts[1] = 1;
	assert_int_equal(draw(&s, logits, K, counts, 0).id, 4);
	counts[4] = 9; /* presence counts once: both stand at 1.6, above 1.5 */
	assert_int_equal(draw(&s, logits, K, counts, 0).id, 1);
	s.frequency_penalty = 0.2f; /* 2-0.4-0.2 = 1.4 */
	assert_int_equal(draw(&s, logits, K, counts, 0).id, 3);
	assert_int_equal(draw(&s, logits, K, NULL, 0).id, 1);
	/* Negative ones favour. */
	s.presence_penalty = -2;
	s.frequency_penalty = 0;
	memset(counts, 0, sizeof counts);
	counts[0] = 1;
	assert_int_equal(draw(&s, logits, K, counts, 0).id, 0);
	/* The draw follows the penalised logits. */
	float shifted[K];
	memcpy(shifted, logits, sizeof shifted);
	shifted[0] += 2;
	s.temperature = 1;
	s.seed = plain.seed;
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(draw(&s, logits, K, counts, i).id, draw(&plain, shifted, K, NULL, i).id);
}

/* The result is a function of its arguments: not of earlier draws, nor of what scratch held. */
static void test_pure(void **arg)
{
	(void)arg;
	int32_t ids[500], scratch[K];
	struct sampler_params other = plain;
	int differ = 0;
	other.seed = 2;
	for (uint64_t i = 0; i < 500; i++)
		ids[i] = draw(&plain, logits, K, NULL, i).id;
	for (uint64_t i = 500; i-- > 0;) {
		float copy[K];
		memcpy(copy, logits, sizeof copy);
		memset(scratch, (int)i, sizeof scratch);
		differ += draw(&other, logits, K, NULL, i).id != ids[i];
		assert_int_equal(sampler_draw(&plain, copy, K, NULL, i, scratch).id, ids[i]);
	}
	assert_true(differ > 250);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_distributions), cmocka_unit_test(test_greedy_and_ties),
	    cmocka_unit_test(test_not_numbers),   cmocka_unit_test(test_logprob),
	    cmocka_unit_test(test_penalties),     cmocka_unit_test(test_pure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
