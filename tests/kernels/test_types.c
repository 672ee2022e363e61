/* SPDX-License-Identifier: Apache-2.0
 *
 * Every weight type: the plain decoder and the products of every table against matrices packed from
 * known integers (weights.h). Decoded weights are compared exactly, products within the bound of a
 * float32 sum; outputs lie between guards and are NaN before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/quantize.h"
#include "tests/kernels/products.h"
#include "tests/support/part.h"

static struct kn_backend *open_table(const struct kn_ops *o, int n_threads)
{
	return open_with(o, &(struct kn_config){.n_threads = n_threads, .max_rows = 600, .max_width = 4096});
}

static void test_table(void **arg)
{
	(void)arg;
	int n = 0;
	for (int t; (t = kn_type_at(n)) >= 0; n++) {
		char lower[16] = "";
		const char *name = kn_type_name(t);
		for (size_t i = 0; name[i] != '\0'; i++)
			lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
		assert_int_equal(kn_type_from_name(name), t);
		assert_int_equal(kn_type_from_name(lower), t);
		assert_true(kn_type_block(t) == 1 || kn_type_block(t) == 32 || kn_type_block(t) == 256 || t == KN_INT4);
		assert_int_equal(kn_type_in_files(t), t != KN_INT4);
		assert_int_equal(kn_row_bytes(t, 512), 512 / (size_t)kn_type_block(t) * kn_type_block_bytes(t));
	}
	assert_int_equal(n, N_TYPES);
	assert_false(kn_type_in_files(16) || kn_type_in_files(-1) || kn_type_in_files(KN_FP8));
	assert_int_equal(kn_type_from_name("Q4_K"), 12);
	assert_int_equal(kn_type_from_name("q4_k_m"), -1);
	assert_int_equal(kn_type_from_name("IQ2_XXS"), -1);
	assert_int_equal(kn_type_from_name(""), -1);
	assert_int_equal(kn_type_block(16), 0);
	assert_int_equal(kn_type_block(-1), 0);
	assert_string_equal(kn_type_name(16), "IQ2_XXS");
	assert_string_equal(kn_type_name(1 << 20), "unknown");
}

/* Blocks of known bytes, so that the packers of these tests stand on something too. */
static void test_known_blocks(void **arg)
{
	(void)arg;
	float y[256];
	uint8_t q4_0[18] = {0x00, 0x38, [2] = 0xF0, [17] = 0x1A}; /* d = 1/2 */
	kn_dequantize(KN_Q4_0, q4_0, 32, y);
	assert_true(y[0] == -4 && y[16] == 3.5f && y[15] == 1 && y[31] == -3.5f && y[1] == -4);
	uint8_t int4[66] = {0x00, 0xB8, [2] = 0xF0, [2 + 3 * 16 + 15] = 0x1A}; /* d = -1/2 */
	kn_dequantize(KN_INT4, int4, 128, y);
	assert_true(y[0] == 4 && y[16] == -3.5f && y[96 + 15] == -1 && y[127] == 3.5f && y[32] == 4);
	uint8_t q5_1[24] = {0x00, 0x3C, 0x00, 0xBC, 0x01, 0, 0, 0x80, [8] = 0x23}; /* d = 1, m = -1 */
	kn_dequantize(KN_Q5_1, q5_1, 32, y);
	assert_true(y[0] == 18 && y[16] == 1 && y[31] == 15 && y[1] == -1);
	uint8_t mxfp4[17] = {128, [1] = 0x7F}; /* 2 */
	kn_dequantize(KN_MXFP4, mxfp4, 32, y);
	assert_true(y[0] == -12 && y[16] == 12 && y[1] == 0);
	/* The sixth scale of Q4_K is 0x15: five in sc[9], one on top of sc[1]; its minimum is 0x23. */
	uint8_t q4_k[144] = {0x00,           0x3C,           0x00,           0x38,
			     [4 + 1] = 0x40, [4 + 5] = 0x80, [4 + 9] = 0x35, [16 + 2 * 32 + 7] = 0xB0};
	kn_dequantize(KN_Q4_K, q4_k, 256, y);
	assert_true(y[5 * 32 + 7] == 21 * 11 - 17.5f && y[5 * 32] == -17.5f && y[4 * 32 + 7] == 0);
	uint8_t q6_k[210] = {[64 + 32 + 3] = 0x90, [128 + 32 + 3] = 0x80, [192 + 8 + 6] = 0xFE, [209] = 0x3C};
	kn_dequantize(KN_Q6_K, q6_k, 256, y);
	assert_true(y[128 + 96 + 3] == -2 * (9 + 32 - 32) && y[128 + 96] == 64);
}

static void test_dequantize(void **arg)
{
	(void)arg;
	for (int i = 0; i < N_TYPES; i++) {
		int type = kn_type_at(i), n = 32 * 256;
		struct matrix m = make_matrix(type, 1, n);
		float *y = malloc((size_t)n * sizeof *y);
		kn_dequantize(type, m.bytes, (size_t)n, y);
		for (int k = 0; k < n; k++)
			if ((double)y[k] != m.values[k])
				fail_msg("%s, weight %d: %.9g, not %.9g", kn_type_name(type), k, (double)y[k],
					 m.values[k]);
		free(y);
		drop_matrix(&m);
	}
}

/* What a row of the unit matrix may be off by. With activations of eight bits, where 1 is 127 times a
 * rounded 1 / 127, there are four roundings (of that step, of scale times step, of an offset that was moved,
 * of the sum), each of a part of the weight; parts span no more than three times the largest weight of
 * the 32, which are spread over all values that the type has. */
static double unit_error(const struct kn_ops *o, const struct matrix *m, int i, int k)
{
	double largest = 0;
	for (int l = k / 32 * 32; l < k / 32 * 32 + 32 && eight_bits(o, m->type); l++)
		largest = fmax(largest, fabs(m->values[i * m->n_in + l]));
	return 4 * 3 * U * largest;
}

/* Rows of the unit matrix bring out every weight as it was decoded. */
static void test_decoders(void **arg)
{
	(void)arg;
	enum { IN = 768, OUT = 9 };
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 1);
		float *x = guarded(*o, b, IN * IN), *y = guarded(*o, b, IN * OUT);
		for (int i = 0; i < IN * IN; i++)
			x[i] = i % (IN + 1) == 0;
		for (int t = 0; t < N_TYPES; t++) {
			struct matrix m = make_matrix(kn_type_at(t), OUT, IN);
			struct kn_weight w = load(*o, b, &m);
			run(*o, b, &w, x, IN, y);
			for (int k = 0; k < IN; k++)
				for (int i = 0; i < OUT; i++)
					if (!(fabs((double)y[k * OUT + i] - m.values[i * IN + k]) <=
					      unit_error(*o, &m, i, k)))
						fail_msg("%s of %s, row %d, weight %d: %.9g, not %.9g",
							 kn_type_name(m.type), (*o)->name, i, k, (double)y[k * OUT + i],
							 m.values[i * IN + k]);
			(*o)->weight_free(b, &w);
			drop_matrix(&m);
		}
		drop(*o, b, x);
		drop(*o, b, y);
		(*o)->close(b);
	}
}

static void test_matmul(void **arg)
{
	(void)arg;
	static const int outs[] = {1, 3, 4, 17, 35}, rows[] = {1, 2, 5, 6, 7, 12, 13, 23};
	static const int ins[] = {1, 15, 17, 263, 520}, small[] = {32, 96, 544}, mid[] = {128, 384, 640},
			 large[] = {256, 768};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 2);
		for (int t = 0; t < N_TYPES; t++) {
			int type = kn_type_at(t), block = kn_type_block(type);
			const int *widths = block == 1 ? ins : block == 32 ? small : block == 128 ? mid : large;
			int n_widths = block == 1 ? N(ins) : block == 32 ? N(small) : block == 128 ? N(mid) : N(large);
			for (int k = 0; k < n_widths; k++)
				for (int i = 0; i < N(outs); i++)
					matmul_case(*o, b, type, outs[i], widths[k], rows[(k + i + t) % N(rows)]);
			for (int r = 0; r < N(rows); r++)
				matmul_case(*o, b, type, 18, 256, rows[r]);
			/* Wide enough to be shared among threads, and more than one panel; odd ends. */
			matmul_case(*o, b, type, 131, 1024, 3);
			matmul_case(*o, b, type, 131, 1024, 15);
		}
		(*o)->close(b);
	}
}

static void test_identity(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables() + 1; *o != NULL; o++)
		for (int t = 0; t < N_TYPES; t++) {
			identity_case(*o, open_table, kn_type_at(t), 37,
				      kn_type_block(kn_type_at(t)) == 1 ? 1037 : 1024, some_of(7, 3), 2);
			/* Enough work for parts and threads. */
			identity_case(*o, open_table, kn_type_at(t), 261, 1024, 39, 2);
		}
}

static void test_embed(void **arg)
{
	(void)arg;
	enum { IN = 512, OUT = 7 };
	static const int32_t tokens[] = {6, 0, 3, 3};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 1);
		for (int t = 0; t < N_TYPES; t++) {
			struct matrix m = make_matrix(kn_type_at(t), OUT, IN);
			struct kn_weight w = load(*o, b, &m);
			float *y = guarded(*o, b, N(tokens) * IN);
			struct kn_step s = {.n_rows = N(tokens), .row_token = tokens};
			assert_int_equal((*o)->step_begin(b, &s), 0);
			assert_int_equal((*o)->embed(b, &w, y), 0);
			assert_int_equal((*o)->step_end(b), 0);
			for (int i = 0; i < N(tokens) * IN; i++)
				assert_true((double)y[i] == m.values[tokens[i / IN] * IN + i % IN]);
			check_guards(y, N(tokens) * IN);
			drop(*o, b, y);
			(*o)->weight_free(b, &w);
			drop_matrix(&m);
		}
		(*o)->close(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_table),    cmocka_unit_test(test_known_blocks), cmocka_unit_test(test_dequantize),
	    cmocka_unit_test(test_decoders), cmocka_unit_test(test_matmul),       cmocka_unit_test(test_identity),
	    cmocka_unit_test(test_embed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
