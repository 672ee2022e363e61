/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding for a matrix's inputs: the factor against its definition, and errors of outputs that are smaller than those
 * of plain rounding where inputs are correlated, for every type that has it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/quantize.h"

enum { N = 256, WIDE = 512, ROWS = 24, SAMPLES = 700 };

static uint64_t seed;

static float uniform(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

/* Inputs with a few common directions and channels of different sizes. */
static void draw_input(const float (*directions)[WIDE], size_t n, float *x)
{
	float common[8];
	for (int c = 0; c < 8; c++)
		common[c] = uniform();
	for (size_t i = 0; i < n; i++) {
		x[i] = 0.2f * uniform();
		for (int c = 0; c < 8; c++)
			x[i] += common[c] * directions[c][i];
		x[i] *= i % 16 == 3 ? 4.0f : 1.0f;
	}
}

static float inputs[SAMPLES][WIDE];

static void make_inputs(size_t n)
{
	static float directions[8][WIDE];
	seed = 7;
	for (int c = 0; c < 8; c++)
		for (size_t i = 0; i < n; i++)
			directions[c][i] = uniform();
	for (int s = 0; s < SAMPLES; s++)
		draw_input((const float(*)[WIDE])directions, n, inputs[s]);
}

static void moments(size_t first, size_t m, float *h)
{
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < m; j++) {
			double sum = 0;
			for (int s = 0; s < SAMPLES; s++)
				sum += (double)inputs[s][first + i] * (double)inputs[s][first + j];
			h[i * m + j] = (float)sum;
		}
}

/* H times the factor's transpose times the factor is the identity. */
static void factors_are_those_of_the_inverse(void **state)
{
	enum { M = 64 };
	static float h[M * M], f[M * M];
	(void)state;
	make_inputs(M);
	moments(0, M, h);
	memcpy(f, h, sizeof f);
	assert_int_equal(kn_inputs_factor(f, M, 0.01), 0);
	double mean = 0;
	for (size_t i = 0; i < M; i++)
		mean += (double)h[i * M + i] / M;
	for (size_t i = 0; i < M; i++)
		for (size_t j = 0; j < M; j++) {
			double sum = 0;
			for (size_t k = 0; k < M; k++) {
				double inverse = 0;
				for (size_t l = 0; l < M; l++)
					inverse += (double)f[l * M + k] * (double)f[l * M + j];
				sum += ((double)h[i * M + k] + (i == k ? 0.01 * mean : 0)) * inverse;
			}
			assert_true(j >= i || f[i * M + j] == 0);
			/* Floats of 2^-24 and a condition below 2^13, over sums of 64. */
			assert_true(fabs(sum - (i == j)) < 0x1p-9);
		}
	memset(f, 0, sizeof f);
	assert_int_equal(kn_inputs_factor(f, M, 0.01), SL_EINVAL);
	f[5 * M + 5] = NAN;
	assert_int_equal(kn_inputs_factor(f, M, 0.01), SL_EINVAL);
}

/* Mean square of the error of outputs. */
static double error_of(const float *w, const float *rounded, size_t n)
{
	double sum = 0;
	for (int s = 0; s < SAMPLES; s++) {
		double e = 0;
		for (size_t i = 0; i < n; i++)
			e += ((double)w[i] - (double)rounded[i]) * (double)inputs[s][i];
		sum += e * e;
	}
	return sum / SAMPLES;
}

static void compare_type(int type, size_t n, size_t group)
{
	static float factors[WIDE * WIDE], w[WIDE], x[WIDE], y[WIDE];
	static uint8_t blocks[2][WIDE * 4];
	double plain = 0, calibrated = 0;
	for (size_t first = 0; first < n; first += group) {
		size_t m = n - first < group ? n - first : group;
		moments(first, m, factors + first * group);
		assert_int_equal(kn_inputs_factor(factors + first * group, m, 0.01), 0);
	}
	const struct kn_inputs in = {.n = n, .group = group, .factors = factors};
	for (int row = 0; row < ROWS; row++) {
		for (size_t i = 0; i < n; i++)
			w[i] = uniform() + uniform();
		assert_int_equal(kn_quantize_row(type, w, n, blocks[0]), 0);
		kn_dequantize(type, blocks[0], n, y);
		plain += error_of(w, y, n);
		for (int again = 0; again < 2; again++) {
			memcpy(x, w, n * sizeof *x);
			assert_int_equal(kn_quantize_row_for(type, x, &in, n, blocks[again]), 0);
		}
		assert_memory_equal(blocks[0], blocks[1], kn_row_bytes(type, n));
		kn_dequantize(type, blocks[0], n, y);
		calibrated += error_of(w, y, n);
	}
	print_message("%-7s %3zu inputs in groups of %3zu: %.3f of the plain error\n", kn_type_name(type), n, group,
		      calibrated / plain);
	assert_true(calibrated < 0.6 * plain);
}

static void errors_of_outputs_are_smaller(void **state)
{
	int n_types = 0;
	(void)state;
	make_inputs(WIDE);
	for (int i = 0, type; (type = kn_type_at(i)) >= 0; i++)
		if (kn_quantizes_for(type)) {
			compare_type(type, N, N);
			n_types++;
		}
	assert_int_equal(n_types, 11);
	compare_type(KN_Q4_K, WIDE, WIDE);
	compare_type(KN_Q4_0, WIDE, N); /* two groups, each with a factor */
	compare_type(KN_Q4_0, 480, N);  /* the last one smaller */
}

static void values_beyond_a_type_are_refused(void **state)
{
	static float factors[32 * 32], x[32];
	uint8_t block[64];
	(void)state;
	for (size_t i = 0; i < 32; i++)
		factors[i * 32 + i] = 1;
	const struct kn_inputs in = {.n = 32, .group = 256, .factors = factors};
	x[7] = INFINITY;
	assert_int_equal(kn_quantize_row_for(KN_Q4_0, x, &in, 32, block), SL_EINVAL);
	assert_false(kn_quantizes_for(KN_F16) || kn_quantizes_for(KN_MXFP4) || kn_quantizes_for(-1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(factors_are_those_of_the_inverse),
					   cmocka_unit_test(errors_of_outputs_are_smaller),
					   cmocka_unit_test(values_beyond_a_type_are_refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
