/* SPDX-License-Identifier: Apache-2.0
 *
 * From float32 to every weight type and back. Errors are held against what the grid of the type must
 * lose: a value that lies anywhere between two neighbours a gap apart has a mean squared error of
 * gap²/12, so values spread evenly over an interval lose Σ gap³ / 12 over its length.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/quantize.h"
#include "kernels/quantize_blocks.h"
#include "tests/kernels/weights.h"

enum { LEN = 256 * 64 };

/* A row through the type, between guards. */
static void there_and_back(int type, const float *x, size_t n, float *y)
{
	size_t bytes = kn_row_bytes(type, n);
	uint8_t *out = malloc(bytes + 2 * GUARD), *again = malloc(bytes);
	memset(out, 0xA5, bytes + 2 * GUARD);
	memset(again, 0x5A, bytes);
	assert_int_equal(kn_quantize_row(type, x, n, out + GUARD), 0);
	assert_int_equal(kn_quantize_row(type, x, n, again), 0);
	/* Every byte is written, and no other; nothing depends on what was there. */
	assert_memory_equal(out + GUARD, again, bytes);
	for (int i = 0; i < GUARD; i++)
		assert_true(out[i] == 0xA5 && out[GUARD + bytes + (size_t)i] == 0xA5);
	kn_dequantize(type, again, n, y);
	free(out);
	free(again);
}

static double relative_error(const float *x, const float *y, int n)
{
	double error = 0, all = 0;
	for (int i = 0; i < n; i++) {
		double e = (double)x[i] - (double)y[i];
		error += e * e;
		all += (double)x[i] * (double)x[i];
	}
	return sqrt(error / all);
}

/* Of values spread evenly over [-1, 1], relative to their own root mean square 1/√3. */
static double loss_of_levels(int n)
{
	double gap = 2.0 / (n - 1);
	return gap / sqrt(12) * sqrt(3);
}

/* The same of an ascending grid whose two ends are -1 and 1, or beyond. */
static double loss_of_grid(const double *v, int n)
{
	double sum = 0;
	for (int i = 1; i < n; i++)
		sum += pow(v[i] - v[i - 1], 3) / 12;
	return sqrt(sum / 2 * 3);
}

static double even_loss(int type)
{
	static const double fp4_at_1[] = {-1, -.75, -.5, -.375, -.25, -.125, 0, .125, .25, .375, .5, .75, 1};
	double v[16];
	switch (type) {
	case KN_Q2_K: return loss_of_levels(4);
	case KN_Q3_K: return loss_of_levels(8);
	case KN_Q4_0:
	case KN_INT4:
	case KN_Q4_1:
	case KN_Q4_K: return loss_of_levels(16);
	case KN_Q5_0:
	case KN_Q5_1:
	case KN_Q5_K: return loss_of_levels(32);
	case KN_Q6_K: return loss_of_levels(64);
	case KN_Q8_0: return loss_of_levels(255);
	case KN_MXFP4: return loss_of_grid(fp4_at_1, N(fp4_at_1));
	default: /* IQ4: from -127 to 113; one side is clipped or the other has room to spare */
		for (int i = 0; i < 16; i++)
			v[i] = nl[i] / 120.0;
		return loss_of_grid(v, 16);
	}
}

static void test_even(void **arg)
{
	(void)arg;
	float *x = malloc(LEN * sizeof *x), *y = malloc(LEN * sizeof *y);
	for (int i = 0; i < LEN; i++)
		x[i] = next_float();
	for (int t = 0, type; (type = kn_type_at(t)) >= 0; t++) {
		if (kn_type_block(type) == 1)
			continue;
		there_and_back(type, x, LEN, y);
		double got = relative_error(x, y, LEN), want = even_loss(type);
		/* The values of a block seldom fill the interval (16 of them 15/17 on average), and the search
		 * fits one or two numbers to 16 or 32: less is lost. Signed scales have no level at one of the
		 * ends, stored scales are rounded: a little more. */
		if (!(got < 1.03 * want && got > 0.6 * want))
			fail_msg("%s: relative error %.5f, not around %.5f", kn_type_name(type), got, want);
	}
	free(x);
	free(y);
}

/* Values of the types themselves, of every float16, and rounding to even halfway between two. */
static void test_halves(void **arg)
{
	(void)arg;
	for (uint32_t h = 0; h < 0x7C00; h++) {
		double low = f16_value((uint16_t)h), high = h == 0x7BFF ? 65536 : f16_value((uint16_t)(h + 1));
		assert_int_equal(kn_f16_from_f32((float)low), h);
		assert_int_equal(kn_f16_from_f32((float)-low), h | 0x8000);
		float middle = (float)((low + high) / 2);
		assert_int_equal(kn_f16_from_f32(middle), h + (h & 1));
		assert_int_equal(kn_f16_from_f32(nextafterf(middle, 0)), h);
		assert_int_equal(kn_f16_from_f32(nextafterf(middle, INFINITY)), h + 1);
	}
	for (uint32_t h = 0; h < 0x7F7F; h++) {
		float low = (float)bf16_value((uint16_t)h), high = (float)bf16_value((uint16_t)(h + 1));
		float middle = (float)(((double)low + (double)high) / 2);
		assert_int_equal(kn_bf16_from_f32(low), h);
		assert_int_equal(kn_bf16_from_f32(middle), h + (h & 1));
		assert_int_equal(kn_bf16_from_f32(-middle), (h + (h & 1)) | 0x8000);
		assert_int_equal(kn_bf16_from_f32(nextafterf(middle, INFINITY)), h + 1);
	}
	assert_int_equal(kn_f16_from_f32(INFINITY), 0x7C00);
	assert_int_equal(kn_f16_from_f32(NAN) & 0x7E00, 0x7E00);
	assert_int_equal(kn_bf16_from_f32(-INFINITY), 0xFF80);
	assert_int_equal(kn_bf16_from_f32(NAN) & 0x7FC0, 0x7FC0);
	static const float x[] = {0, -0.0f, 1, -2.5f, 0x1p-24f, 65504, 3.0e38f, 0x1p-140f};
	float y[8];
	there_and_back(KN_F32, x, 8, y);
	assert_memory_equal(x, y, sizeof x);
	there_and_back(KN_F16, x, 6, y);
	assert_memory_equal(x, y, 6 * sizeof *x);
	there_and_back(KN_BF16, x, 5, y);
	assert_memory_equal(x, y, 5 * sizeof *x);
}

/* What the grid holds exactly comes back exactly, or within the rounding of its scale. */
static void test_exact(void **arg)
{
	(void)arg;
	float x[256], y[256];
	for (int i = 0; i < 256; i++) /* on every grid but those of nl, and Q8_0 has no middle */
		x[i] = (float)(i % 4 - 2);
	for (int t = 0, type; (type = kn_type_at(t)) >= 0; t++) {
		if (type == KN_IQ4_NL || type == KN_IQ4_XS || type == KN_Q8_0)
			continue;
		there_and_back(type, x, 256, y);
		for (int i = 0; i < 256; i++)
			if (!(fabsf(x[i] - y[i]) <= 2 * 0x1p-11f))
				fail_msg("%s: %g became %g", kn_type_name(type), (double)x[i], (double)y[i]);
	}
	for (int i = 0; i < 256; i++)
		x[i] = i % 32 ? (float)(i - 128) : -127;
	there_and_back(KN_Q8_0, x, 256, y);
	assert_memory_equal(x, y, sizeof x);
	for (int i = 0; i < 256; i++)
		x[i] = 0.5f * (float)nl[i % 16];
	there_and_back(KN_IQ4_NL, x, 256, y);
	assert_memory_equal(x, y, sizeof x);
	there_and_back(KN_IQ4_XS, x, 256, y);
	assert_true(relative_error(x, y, 256) < 0x1p-11);
}

static void test_edges(void **arg)
{
	(void)arg;
	static const float fills[] = {0, -0.0f, 1e-30f, 1e-40f, 0.125f, -0.125f, 100, -3};
	float x[256], y[256];
	uint8_t out[256 * 4];
	for (int t = 0, type; (type = kn_type_at(t)) >= 0; t++) {
		for (int f = 0; f < N(fills); f++) {
			for (int i = 0; i < 256; i++)
				x[i] = fills[f];
			there_and_back(type, x, 256, y);
			for (int i = 0; i < 256; i++)
				/* 100 lies between two values of MXFP4, 96 and 128. */
				if (!(fabsf(y[i] - x[i]) <= (type == KN_MXFP4 ? 0.05f : 0.004f) * fabsf(x[i]) + 1e-7f))
					fail_msg("%s: all %g became %g", kn_type_name(type), (double)x[i],
						 (double)y[i]);
		}
		/* One large value among zeros, at any place and of either sign. */
		for (int i = 0; i < 256; i++) {
			memset(x, 0, sizeof x);
			x[i] = i % 2 ? 8 : -8;
			there_and_back(type, x, 256, y);
			for (int k = 0; k < 256; k++)
				/* Scale and offset are rounded by 2^-11 each; nl has no zero but a 1 of 127. */
				if (!(fabsf(y[k] - x[k]) <= (k == i                                   ? 0.04f
							     : type == KN_IQ4_NL || type == KN_IQ4_XS ? 0.08f
												      : 0.008f)))
					fail_msg("%s: %g at %d became %g", kn_type_name(type), (double)x[k], k,
						 (double)y[k]);
		}
		if (type == KN_F32)
			continue;
		static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e30f};
		for (int f = 0; f < N(bad); f++) {
			for (int i = 0; i < 256; i++)
				x[i] = 1;
			x[255] = bad[f];
			bool fits = type == KN_BF16 && bad[f] == 1e30f;
			assert_int_equal(kn_quantize_row(type, x, 256, out), fits ? 0 : SL_EINVAL);
		}
	}
	/* The largest a float16 scale can do is refused, not made infinite. */
	for (int i = 0; i < 256; i++)
		x[i] = 1e12f;
	for (int t = 0, type; (type = kn_type_at(t)) >= 0; t++)
		assert_int_equal(kn_quantize_row(type, x, 256, out),
				 type == KN_F32 || type == KN_BF16 || type == KN_MXFP4 ? 0 : SL_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_even),
	    cmocka_unit_test(test_halves),
	    cmocka_unit_test(test_exact),
	    cmocka_unit_test(test_edges),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
