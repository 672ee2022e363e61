/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation of every table this processor can run, and of the emulated CUDA kernels, against the same computation
 * in double written here; attention and what writes keys and values: test_attention.c. Bounds are derived per output
 * beside each case, from U and gamma (weights.h).
 *
 * Outputs lie between canaries and are NaN before. The tables here all compute on the host, so the
 * test reads and writes their memory directly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/kernels/products.h"
#include "tests/kernels/soak.h"

enum { SHARES = 8 }; /* of a soak's seeds */

static const int types[] = {KN_F32, KN_F16, KN_BF16, KN_Q8_0};

static struct kn_backend *open_table(const struct kn_ops *o, int n_threads)
{
	struct kn_backend *b =
	    open_with(o, &(struct kn_config){.n_threads = n_threads, .max_rows = 64, .max_width = 8448});
	assert_non_null(o->describe(b));
	return b;
}

/* Results are the host's only after a step's end. */
static void end_step(const struct kn_ops *o, struct kn_backend *b, const struct kn_step *next)
{
	assert_int_equal(o->step_end(b), 0);
	if (next != NULL)
		assert_int_equal(o->step_begin(b, next), 0);
}

/* ---- matmul ---- */

static void test_matmul(void **arg)
{
	(void)arg;
	static const int outs[] = {1, 2, 3, 5, 17, 33}, rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};
	static const int ins[] = {1, 2, 7, 8, 15, 16, 17, 31, 40, 100, 263}, blocks[] = {32, 64, 96, 160};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 2);
		int n = 0;
		for (int t = 0; t < N(types); t++) {
			bool q8 = types[t] == KN_Q8_0;
			for (int k = 0; k < (q8 ? N(blocks) : N(ins)); k++)
				for (int i = 0; i < N(outs); i++)
					for (int r = 0; r < N(rows); r++)
						if (in_share(n++, SHARES))
							matmul_case(*o, b, types[t], outs[i], q8 ? blocks[k] : ins[k],
								    rows[r]);
			/* Wide enough to be shared among threads, with an odd end. */
			if (in_share(t, SHARES))
				matmul_case(*o, b, types[t], 523, 1024, 3);
		}
		(*o)->close(b);
	}
}

static void test_matmul_identity(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int t = 0; t < N(types); t++) {
			if (in_share(2 * t, SHARES))
				identity_case(*o, open_table, types[t], 35, types[t] == KN_Q8_0 ? 96 : 101, 1, 4);
			if (in_share(2 * t + 1, SHARES))
				identity_case(*o, open_table, types[t], 261, 1024, 8, 4);
		}
}

/* ---- embed: exact, for every finite f16 and bf16 ---- */

static void test_embed(void **arg)
{
	(void)arg;
	enum { WIDTH = 256, ROWS = 256 };
	uint16_t *table = malloc(ROWS * WIDTH * 2);
	int32_t tokens[ROWS];
	for (int i = 0; i < ROWS * WIDTH; i++)
		table[i] = (uint16_t)i;
	for (int i = 0; i < ROWS; i++)
		tokens[i] = ROWS - 1 - i;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 1);
		float *y = guarded(*o, b, ROWS * WIDTH);
		struct kn_step s = {.n_rows = ROWS, .row_token = tokens};
		for (int t = 0; t < N(types); t++) {
			if (!in_share(t, SHARES))
				continue;
			struct matrix m = make_matrix(types[t], ROWS, WIDTH);
			bool half = types[t] == KN_F16 || types[t] == KN_BF16;
			if (half)
				memcpy(m.bytes, table, ROWS * WIDTH * 2);
			struct kn_weight w = load(*o, b, &m);
			assert_int_equal((*o)->step_begin(b, &s), 0);
			assert_int_equal((*o)->embed(b, &w, y), 0);
			assert_int_equal((*o)->step_end(b), 0);
			for (int r = 0; r < ROWS; r++)
				for (int i = 0; i < WIDTH; i++) {
					float got = y[r * WIDTH + i];
					int at = tokens[r] * WIDTH + i;
					uint16_t h = (uint16_t)at;
					int exp = types[t] == KN_F16 ? 0x7C00 : 0x7F80;
					double want = m.values[at];
					if (half)
						want = types[t] == KN_F16 ? f16_value(h) : bf16_value(h);
					if (half && (h & exp) == exp) {
						assert_true((h & ~exp & 0x7FFF) != 0 ? isnan(got) : isinf(got));
					} else {
						assert_true((double)got == want);
						assert_int_equal(signbit(got) != 0, signbit(want) != 0);
					}
				}
			(*o)->weight_free(b, &w);
			drop_matrix(&m);
		}
		check_guards(y, ROWS * WIDTH);
		drop(*o, b, y);
		(*o)->close(b);
	}
	free(table);
}

/* ---- operations on rows ---- */

static void test_rmsnorm(void **arg)
{
	(void)arg;
	static const int widths[] = {1, 3, 8, 17, 31, 64, 100, 1031, 8332}, rows[] = {1, 2, 3, 9, 33};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 2);
		for (int i = 0; i < N(widths); i++)
			for (int k = 0; k < N(rows); k++) {
				if (!in_share(i * N(rows) + k, SHARES))
					continue;
				int width = widths[i], n_rows = rows[k];
				size_t n = (size_t)width * (size_t)n_rows;
				float eps = k % 2 ? 1e-5f : 1e-6f;
				float *x = random_floats(*o, b, n), *gain = random_floats(*o, b, (size_t)width);
				float *y = guarded(*o, b, n), *one = guarded(*o, b, (size_t)width);
				struct kn_step s = {.n_rows = n_rows};
				assert_int_equal((*o)->step_begin(b, &s), 0);
				assert_int_equal((*o)->rmsnorm(b, x, gain, eps, n_rows, width, y), 0);
				end_step(*o, b, &s);
				for (int r = 0; r < n_rows; r++) {
					const float *xr = x + r * width;
					double sum = 0;
					for (int j = 0; j < width; j++)
						sum += (double)xr[j] * (double)xr[j];
					double scale = 1 / sqrt(sum / width + (double)eps);
					/* The sum of positive terms, the division and eps are off by gamma(width+2)
					 * together, halved by the root; root, inverse and two products add 4U. */
					for (int j = 0; j < width; j++) {
						double want = (double)xr[j] * scale * (double)gain[j];
						expect_near("rmsnorm", *o, (double)y[r * width + j], want,
							    (gamma_of(width + 2) / 2 + 4.01 * U) * fabs(want));
					}
					assert_int_equal((*o)->rmsnorm(b, xr, gain, eps, 1, width, one), 0);
					end_step(*o, b, &s);
					assert_memory_equal(one, y + r * width, (size_t)width * sizeof *y);
				}
				/* After a sum: the bits of both operations; with what is added, or elsewhere. */
				float *more = random_floats(*o, b, n), *sum = guarded(*o, b, n);
				memcpy(sum, x, n * sizeof *sum);
				assert_int_equal((*o)->add(b, sum, more, n_rows, width), 0);
				assert_int_equal((*o)->rmsnorm(b, sum, gain, eps, n_rows, width, y), 0);
				end_step(*o, b, &s);
				memcpy(one, sum, (size_t)width * sizeof *sum);
				for (int same = 0; same < 2; same++) {
					float *z = same ? more : guarded(*o, b, n);
					memcpy(sum, x, n * sizeof *sum);
					assert_int_equal((*o)->add_rmsnorm(b, sum, more, gain, eps, n_rows, width, z),
							 0);
					end_step(*o, b, &s);
					assert_memory_equal(z, y, n * sizeof *z);
					assert_memory_equal(sum, one, (size_t)width * sizeof *sum);
					check_guards(z, n);
					check_guards(sum, n);
					drop(*o, b, z);
				}
				drop(*o, b, sum);
				assert_int_equal((*o)->rmsnorm(b, x, gain, eps, n_rows, width, y), 0);
				/* In place. */
				assert_int_equal((*o)->rmsnorm(b, x, gain, eps, n_rows, width, x), 0);
				end_step(*o, b, NULL);
				assert_memory_equal(x, y, n * sizeof *x);
				check_guards(x, n);
				check_guards(y, n);
				check_guards(one, (size_t)width);
				drop(*o, b, x);
				drop(*o, b, y);
				drop(*o, b, one);
				drop(*o, b, gain);
			}
		(*o)->close(b);
	}
}

static void test_elementwise(void **arg)
{
	(void)arg;
	static const int widths[] = {1, 7, 16, 33, 200}, rows[] = {1, 2, 5, 33};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 2);
		for (int i = 0; i < N(widths) * N(rows); i++) {
			if (!in_share(i, SHARES))
				continue;
			int width = widths[i % N(widths)], n_rows = rows[i / N(widths)];
			size_t n = (size_t)width * (size_t)n_rows;
			float *x = random_floats(*o, b, n), *y = random_floats(*o, b, n);
			float *was = malloc(n * sizeof *was), *z = guarded(*o, b, n);
			struct kn_step s = {.n_rows = n_rows};
			for (size_t j = 0; j < n; j++)
				x[j] *= j % 3 ? 6.0f : 120.0f;
			memcpy(was, x, n * sizeof *was);
			assert_int_equal((*o)->step_begin(b, &s), 0);
			assert_int_equal((*o)->silu_mul(b, x, y, n_rows, width), 0);
			end_step(*o, b, &s);
			for (size_t j = 0; j < n; j++) {
				double g = (double)was[j], want = g / (1 + exp(-g)) * (double)y[j];
				/* The exponential is good to 1 ulp (2U); the sum, the quotient and the product
				 * add U each. Where it overflows, the result is 0 instead of below g/FLT_MAX;
				 * a subnormal result is off by its spacing. */
				expect_near("silu", *o, (double)x[j], want,
					    5.01 * U * fabs(want) + fabs(g * (double)y[j]) / (double)FLT_MAX +
						0x1p-149);
			}
			memcpy(x, was, n * sizeof *was);
			assert_int_equal((*o)->add(b, x, y, n_rows, width), 0);
			end_step(*o, b, &s);
			for (size_t j = 0; j < n; j++)
				assert_true(x[j] == was[j] + y[j]);
			/* Rows in any order, repeated. */
			int32_t pick[33];
			for (int r = 0; r < n_rows; r++)
				pick[r] = (int32_t)(next_bits() % (uint32_t)n_rows);
			assert_int_equal((*o)->gather(b, x, pick, n_rows, width, z), 0);
			end_step(*o, b, &s);
			for (int r = 0; r < n_rows; r++)
				assert_memory_equal(z + r * width, x + pick[r] * width, (size_t)width * sizeof *z);
			memset(was, 0, n * sizeof *was);
			assert_int_equal((*o)->read_back(b, z, n, was), 0);
			assert_int_equal((*o)->step_end(b), 0);
			assert_memory_equal(was, z, n * sizeof *was);
			check_guards(x, n);
			check_guards(y, n);
			check_guards(z, n);
			free(was);
			drop(*o, b, x);
			drop(*o, b, y);
			drop(*o, b, z);
		}
		(*o)->close(b);
	}
}

static void test_tables(void **arg)
{
	(void)arg;
	const struct kn_ops *const *all = all_tables();
	struct sl_err err = {0};
	assert_string_equal(all[0]->name, "cpu-ref");
	for (const struct kn_ops *const *o = all; *o != NULL; o++) {
		if (strncmp((*o)->name, "cuda", 4) != 0)
			assert_ptr_equal(kn_select((*o)->name, &err), *o);
		struct kn_backend *b = open_table(*o, 1);
		struct kn_weight w;
		assert_int_equal((*o)->weight_load(b, "", 16, 1, 256, &w, &err), SL_EUNSUPPORTED);
		assert_non_null(strstr(err.text, "IQ2_XXS"));
		(*o)->close(b);
	}
	assert_non_null(kn_select("auto", &err));
	assert_null(kn_select("cpu-none", &err));
	assert_non_null(strstr(err.text, "cpu-none"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_tables), cmocka_unit_test(test_matmul),  cmocka_unit_test(test_matmul_identity),
	    cmocka_unit_test(test_embed),  cmocka_unit_test(test_rmsnorm), cmocka_unit_test(test_elementwise),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
