/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the sampler share: draws that check that the logits come back, distributions by chi-square at fixed
 * seeds, logits at random.
 */
#ifndef TESTS_SAMPLER_DRAWS_H
#define TESTS_SAMPLER_DRAWS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sample/sampler.h"

enum { MOST = 64, WIDE = 131072 };

static const struct sampler_params plain = {
    .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .want_logprob = true, .seed = 1};
static struct sampler_scratch scratch;

/* Draws from a copy, which must come back as it was. */
static inline struct sampler_choice draw_said(const struct sampler_params *p, const struct sampler_state *said,
					      const float *logits, int n, uint64_t index)
{
	static float copy[WIDE], was[WIDE];
	struct sampler_choice c;
	memcpy(copy, logits, (size_t)n * sizeof *copy);
	memcpy(was, logits, (size_t)n * sizeof *was);
	sampler_draw(p, said, copy, n, index, &scratch, &c);
	for (int i = 0; i < n; i++)
		assert_true(copy[i] == was[i] || (was[i] != was[i] && !(copy[i] > -INFINITY)));
	return c;
}

static inline struct sampler_choice draw(const struct sampler_params *p, const float *logits, int n, uint64_t index)
{
	return draw_said(p, NULL, logits, n, index);
}

enum { FEW_DRAWS = 20000 };

/* Frequencies over n_draws indices against p (zero: must never be drawn). Chi-square with k-1 degrees
 * has mean k-1 and variance 2(k-1): five deviations above it is passed by chance once in some ten
 * thousand seeds at these k, and the seeds are fixed. */
static inline void check_distribution(const struct sampler_params *params, const struct sampler_state *said,
				      const float *logits, int n, const double *p, uint64_t n_draws)
{
	int seen[MOST] = {0}, k = 0;
	double chi = 0, draws = (double)n_draws;
	for (uint64_t i = 0; i < n_draws; i++) {
		int32_t id = draw_said(params, said, logits, n, i).id;
		assert_in_range(id, 0, n - 1);
		seen[id]++;
	}
	for (int i = 0; i < n; i++) {
		if (p[i] == 0) {
			assert_int_equal(seen[i], 0);
			continue;
		}
		double d = seen[i] - p[i] * draws;
		chi += d * d / (p[i] * draws);
		k++;
	}
	if (chi > k - 1 + 5 * sqrt(2.0 * (k - 1)))
		fail_msg("chi-square %.1f with %d degrees", chi, k - 1);
}

static inline void softmax(const float *logits, int n, double temperature, double *p)
{
	double sum = 0, max = -INFINITY;
	for (int i = 0; i < n; i++)
		max = fmax(max, (double)logits[i]);
	for (int i = 0; i < n; i++)
		sum += p[i] = exp(((double)logits[i] - max) / temperature);
	for (int i = 0; i < n; i++)
		p[i] /= sum;
}

static const float logits[] = {0.5f, 2, -1, 1.5f, 2, 0, -2, 1};
enum { K = 8 };

static uint64_t random_state = 1;

static inline uint32_t next_random(void)
{
	random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(random_state >> 33);
}

static inline double random_unit(void) { return next_random() * 0x1p-31; }

static inline void fill(float *l, int n, double spread, bool coarse)
{
	for (int i = 0; i < n; i++) {
		double bell = sqrt(-2 * log(random_unit() + 1e-12)) * cos(6.283185307179586 * random_unit());
		l[i] = (float)(coarse ? floor(bell * spread) : bell * spread);
	}
}

static inline float one_of(const float *values, int n) { return values[next_random() % (unsigned)n]; }

#define ONE_OF(...) one_of((const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

static inline int set_up(void **arg)
{
	(void)arg;
	return sampler_scratch_reserve(&scratch, MOST) || sampler_scratch_reserve(&scratch, WIDE);
}

static inline int tear_down(void **arg)
{
	(void)arg;
	sampler_scratch_dispose(&scratch);
	return 0;
}

#endif
