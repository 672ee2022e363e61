/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of keys and values by themselves: sizes, names, and what an element becomes, against definitions
 * written here and with the error bounds that kv_type.h states.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kv_type.h"
#include "kernels/plugin.h"

static uint64_t state = 1;

static uint32_t next_bits(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 32);
}

/* Any finite float with an exponent from lo to hi. */
static float any_float(int lo, int hi)
{
	float x =
	    ldexpf((float)(1 + (double)(next_bits() >> 8) * 0x1p-24), lo + (int)(next_bits() >> 8) % (hi - lo + 1));
	return next_bits() >> 31 ? -x : x;
}

static void test_sizes(void **arg)
{
	(void)arg;
	static const struct {
		int type, tokens, dim;
		size_t scales, bytes;
	} sizes[] = {{KN_F32, 16, 64, 4096, 4096},   {KN_F16, 16, 64, 2048, 2048},  {KN_BF16, 3, 5, 30, 30},
		     {KN_KV_Q8, 16, 64, 1024, 1088}, {KN_FP8, 16, 128, 2048, 2112}, {KN_KV_Q8, 3, 5, 16, 28}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		assert_int_equal(kn_kv_scales_at(sizes[i].type, sizes[i].tokens, sizes[i].dim), sizes[i].scales);
		assert_int_equal(kn_kv_head_bytes(sizes[i].type, sizes[i].tokens, sizes[i].dim), sizes[i].bytes);
	}
	struct kn_kv kv = {.type = KN_KV_Q8, .page_tokens = 16, .n_layers = 3, .n_kv_heads = 2, .head_dim = 64};
	assert_int_equal(kn_kv_page_bytes(&kv), 6 * 1088);
	assert_int_equal(kn_kv_block_at(&kv, 5, 1, 1), (5 * 6 + 3) * 1088);
	assert_int_equal(kn_kv_head_bytes(KN_F32, -1, 1), SIZE_MAX); /* as a size it is the largest */
	assert_int_equal(kn_kv_head_bytes(KN_KV_Q8, -1, 1), SIZE_MAX);
	for (int type = -2; type < 1100; type++)
		assert_int_equal(kn_kv_element_bytes(type) > 0, strcmp(kn_kv_type_name(type), "unknown") != 0);
}

static bool only_q8(int type) { return type == KN_KV_Q8; }

static void test_names(void **arg)
{
	(void)arg;
	static const char *const names[] = {"f32", "f16", "bf16", "q8", "fp8"};
	struct sl_err err;
	char text[64];
	for (int i = 0; i < 5; i++) {
		assert_string_equal(kn_kv_type_name(kn_kv_type_at(i)), names[i]);
		assert_int_equal(kn_kv_type_from_name(names[i]), kn_kv_type_at(i));
		assert_int_equal(kn_type_block(kn_kv_type_at(i)) > 0, i < 3); /* the others are no types of weights */
	}
	assert_int_equal(kn_kv_type_at(5), -1);
	assert_int_equal(kn_kv_type_at(-1), -1);
	assert_int_equal(kn_kv_type_from_name("Q8"), KN_KV_Q8);
	assert_int_equal(kn_kv_type_from_name("q8_0"), -1);
	const struct kn_ops *ref = kn_select("cpu-ref", &err);
	assert_string_equal(kn_kv_types_of(ref, text, sizeof text), "f32, f16, bf16, q8, fp8");
	assert_string_equal(kn_kv_types_of(ref, text, 7), "f32, f"); /* cut */
	assert_int_equal(kn_kv_type_auto(ref), KN_F16);
	const struct kn_ops poor = {.kv_type = only_q8};
	assert_int_equal(kn_kv_type_auto(&poor), KN_F32);
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		assert_true((*o)->kv_type(KN_F32) && (*o)->kv_type(KN_F16) && (*o)->kv_type(KN_KV_Q8));
		assert_false((*o)->kv_type(KN_Q8_0));
	}
}

static double fp8_value(int code)
{
	int exp = code >> 3 & 15, man = code & 7;
	double v = exp == 0 ? ldexp(man, -9) : ldexp(8 + man, exp - 10);
	return code & 0x80 ? -v : v;
}

static void test_fp8(void **arg)
{
	(void)arg;
	assert_true(isnan(kn_f32_from_fp8(0x7F)) && isnan(kn_f32_from_fp8(0xFF)));
	for (int code = 0; code < 256; code++) {
		if ((code & 0x7F) == 0x7F)
			continue;
		assert_true((double)kn_f32_from_fp8((uint8_t)code) == fp8_value(code));
		assert_int_equal(kn_fp8_from_f32((float)fp8_value(code)), code);
	}
	/* Just at and beside the middle between neighbours: to the even one, to the nearer one. */
	for (int code = 0; code < 0x7E; code++) {
		float middle = (float)((fp8_value(code) + fp8_value(code + 1)) / 2);
		assert_int_equal(kn_fp8_from_f32(middle), code + code % 2);
		assert_int_equal(kn_fp8_from_f32(nextafterf(middle, 0)), code);
		assert_int_equal(kn_fp8_from_f32(-nextafterf(middle, INFINITY)), 0x80 | (code + 1));
	}
	assert_int_equal(kn_fp8_from_f32(449), 0x7E);
	assert_int_equal(kn_fp8_from_f32(-INFINITY), 0xFE);
	assert_int_equal(kn_fp8_from_f32(NAN), 0x7F);
}

/* Every element within the bound that the type has, and nothing else of the block written. */
static void check_token(int type, int tokens, int dim, int token, bool keys, const float *x)
{
	size_t bytes = kn_kv_head_bytes(type, tokens, dim), changed = 0;
	uint8_t *block = malloc(bytes + 8), *twin = malloc(bytes + 8);
	memset(block, 0xA5, bytes + 8);
	memset(twin, 0x5A, bytes + 8);
	kn_kv_put(type, block, keys, tokens, dim, token, x);
	kn_kv_put(type, twin, keys, tokens, dim, token, x);
	for (size_t i = 0; i < bytes + 8; i++)
		changed += block[i] == twin[i];
	assert_int_equal(changed, (size_t)dim * kn_kv_element_bytes(type) + (kn_kv_has_scales(type) ? 4 : 0));
	double most = 0;
	for (int d = 0; d < dim; d++)
		most = fmax(most, fabs((double)x[d]));
	for (int d = 0; d < dim; d++) {
		double a = fabs((double)x[d]), got = (double)kn_kv_get(type, block, keys, tokens, dim, token, d),
		       bound = 0;
		/* A scale is rounded, its quotients and products are: each by 2^-24 of the result. */
		switch (type) {
		case KN_F16: bound = a > 65504 ? a - 65504 : fmax(0x1p-11 * a, 0x1p-25); break;
		case KN_BF16: bound = 0x1p-8 * a; break;
		case KN_KV_Q8: bound = most / 127 / 2 + 4 * 0x1p-24 * most; break;
		case KN_FP8: bound = fmax(0x1p-4 * a, most / 448 * 0x1p-10) + 4 * 0x1p-24 * a; break;
		default: break;
		}
		if (!(fabs(got - (double)x[d]) <= bound))
			fail_msg("%s: %.9g became %.9g, bound %.3g", kn_kv_type_name(type), (double)x[d], got, bound);
	}
	free(block);
	free(twin);
}

static void test_elements(void **arg)
{
	(void)arg;
	enum { DIM = 37 };
	float x[DIM];
	for (int i = 0; i < 5; i++)
		for (int round = 0; round < 400; round++) {
			for (int d = 0; d < DIM; d++)
				x[d] = round % 4 == 0 ? any_float(-30, 18) : any_float(-8, 2);
			check_token(kn_kv_type_at(i), 1 + round % 17, DIM, round % (1 + round % 17), round % 2, x);
		}
}

/* What is too small for a scale is zeros, what is not finite shows. */
static void test_strange(void **arg)
{
	(void)arg;
	static const int scaled[] = {KN_KV_Q8, KN_FP8};
	uint8_t block[2 * (4 + 4)];
	for (int i = 0; i < 2; i++) {
		float tiny[4] = {1e-39f, -1e-38f, 0, 1e-45f}, bad[4] = {1, 2, INFINITY, 3};
		kn_kv_put(scaled[i], block, true, 2, 4, 1, tiny);
		for (int d = 0; d < 4; d++)
			assert_true(kn_kv_get(scaled[i], block, true, 2, 4, 1, d) == 0);
		for (int k = 0; k < 2; k++) {
			kn_kv_put(scaled[i], block, false, 2, 4, 0, bad);
			for (int d = 0; d < 4; d++)
				assert_true(isnan(kn_kv_get(scaled[i], block, false, 2, 4, 0, d)));
			bad[2] = NAN;
		}
	}
	float beyond[2] = {1e30f, -INFINITY};
	kn_kv_put(KN_F16, block, false, 1, 2, 0, beyond);
	assert_true(kn_kv_get(KN_F16, block, false, 1, 2, 0, 0) == 65504);
	assert_true(kn_kv_get(KN_F16, block, false, 1, 2, 0, 1) == -65504);
	kn_kv_put(KN_BF16, block, false, 1, 2, 0, (float[]){FLT_MAX, NAN});
	assert_true(kn_kv_get(KN_BF16, block, false, 1, 2, 0, 0) == 0x1.FEp127f);
	assert_true(isnan(kn_kv_get(KN_BF16, block, false, 1, 2, 0, 1)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sizes),    cmocka_unit_test(test_names),   cmocka_unit_test(test_fp8),
	    cmocka_unit_test(test_elements), cmocka_unit_test(test_strange),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
