/* SPDX-License-Identifier: Apache-2.0
 *
 * What encoders have beyond decoders' operations (layer norm, GELU, tables added to embeddings, sums of rows), of every
 * table and of the emulated CUDA kernels, against the same computation in double written here. As in test_ops.c bounds
 * are derived beside each case and outputs lie between canaries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

static struct kn_backend *open_table(const struct kn_ops *o)
{
	return open_with(o, &(struct kn_config){.n_threads = 2, .max_rows = 64, .max_width = 8448});
}

static void end_step(const struct kn_ops *o, struct kn_backend *b, const struct kn_step *next)
{
	assert_int_equal(o->step_end(b), 0);
	if (next != NULL)
		assert_int_equal(o->step_begin(b, next), 0);
}

/* ---- layer norm ---- */

/* Row `was` (with `add`, as floats) normed is `got`. Numbers are in [-4, 4]; the sum of n is off by gamma(n) of their
 * magnitudes, so the mean by 4 gamma, each difference by that and U; the variance is off by gamma(n + 4) and by
 * twice the mean's error times the spread, which the root halves. */
static void check_norm(const struct kn_ops *o, const float *was, const float *add, const float *gain, const float *bias,
		       double eps, int n, const float *got)
{
	double sum = 0, squares = 0;
	for (int i = 0; i < n; i++)
		sum += (double)(was[i] + (add != NULL ? add[i] : 0));
	double mean = sum / n;
	for (int i = 0; i < n; i++) {
		double apart = (double)(was[i] + (add != NULL ? add[i] : 0)) - mean;
		squares += apart * apart;
	}
	double spread = sqrt(squares / n + eps), mean_error = 4 * gamma_of(n) + 4 * U;
	double relative = gamma_of(n + 4) / 2 + mean_error * mean_error / (spread * spread) + 6 * U;
	for (int i = 0; i < n; i++) {
		double normed = ((double)(was[i] + (add != NULL ? add[i] : 0)) - mean) / spread;
		double shift = bias != NULL ? (double)bias[i] : 0, want = normed * (double)gain[i] + shift;
		double error = (fabs(normed) * relative + (mean_error + 4 * U) / spread) * fabs((double)gain[i]) +
			       2 * U * (fabs(want) + fabs(shift));
		expect_near("layernorm", o, (double)got[i], want, 1.01 * error);
	}
}

static void norm_case(const struct kn_ops *o, struct kn_backend *b, int n_rows, int width, bool with_add)
{
	size_t n = (size_t)n_rows * (size_t)width;
	float *x = random_floats(o, b, n), *add = random_floats(o, b, n), *one = guarded(o, b, (size_t)width);
	float *gain = random_floats(o, b, (size_t)width), *bias = random_floats(o, b, (size_t)width);
	float *was = malloc(n * sizeof *was), eps = 1e-5f;
	struct kn_step s = {.n_rows = n_rows};
	/* Far from zero, so that the mean matters. */
	for (size_t i = 0; i < n; i++)
		x[i] += 2;
	memcpy(was, x, n * sizeof *was);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->layernorm(b, x, with_add ? add : NULL, gain, bias, eps, n_rows, width, x), 0);
	end_step(o, b, &s);
	for (int r = 0; r < n_rows; r++) {
		const float *more = with_add ? add + r * width : NULL;
		check_norm(o, was + r * width, more, gain, bias, (double)eps, width, x + r * width);
		memcpy(one, was + r * width, (size_t)width * sizeof *one);
		assert_int_equal(o->layernorm(b, one, more, gain, bias, eps, 1, width, one), 0);
		end_step(o, b, &s);
		assert_memory_equal(one, x + r * width, (size_t)width * sizeof *one);
	}
	end_step(o, b, NULL);
	float *all[] = {x, add, one, gain, bias};
	check_guards(x, n);
	check_guards(one, (size_t)width);
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	free(was);
}

/* Into other rows, or over what is added, with a bias or without: the bits are those of the norm in place, and x is the
 * sum. */
static void norm_beside(const struct kn_ops *o, struct kn_backend *b, int width, bool with_bias, bool over)
{
	enum { ROWS = 5 };
	size_t n = (size_t)(ROWS * width), bytes = n * sizeof(float);
	float *x = random_floats(o, b, n), *add = random_floats(o, b, n), *apart = guarded(o, b, n);
	float *here = guarded(o, b, n), *gain = random_floats(o, b, (size_t)width);
	float *bias = random_floats(o, b, (size_t)width), *was = malloc(bytes), *more = malloc(bytes);
	const float *shift = with_bias ? bias : NULL;
	float *y = over ? add : apart;
	struct kn_step s = {.n_rows = ROWS};
	memcpy(was, x, bytes);
	memcpy(more, add, bytes);
	memcpy(here, x, bytes);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->layernorm(b, here, add, gain, shift, 1e-5f, ROWS, width, here), 0);
	assert_int_equal(o->layernorm(b, x, add, gain, shift, 1e-5f, ROWS, width, y), 0);
	end_step(o, b, NULL);
	for (size_t i = 0; i < n; i++)
		assert_true(x[i] == was[i] + more[i]);
	assert_memory_equal(y, here, bytes);
	for (int r = 0; r < ROWS; r++)
		check_norm(o, was + r * width, more + r * width, gain, shift, 1e-5, width, y + r * width);
	float *all[] = {x, add, apart, here, gain, bias};
	check_guards(x, n);
	check_guards(y, n);
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	free(was);
	free(more);
}

static void test_layernorm_beside(void **arg)
{
	(void)arg;
	static const int widths[] = {3, 64, 1031};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o);
		for (int i = 0; i < N(widths); i++)
			for (int how = 0; how < 4; how++)
				norm_beside(*o, b, widths[i], how % 2 == 0, how / 2 == 0);
		(*o)->close(b);
	}
}

static void test_layernorm(void **arg)
{
	(void)arg;
	static const int widths[] = {1, 3, 8, 17, 31, 64, 100, 384, 1031}, rows[] = {1, 2, 9, 33};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o);
		for (int i = 0; i < N(widths); i++)
			for (int k = 0; k < N(rows); k++)
				norm_case(*o, b, rows[k], widths[i], (i + k) % 2 == 0);
		(*o)->close(b);
	}
}

/* ---- GELU ---- */

/* The error function is good to 8 units of the last place of one; the sum, halves and product add 4. */
static void test_gelu(void **arg)
{
	(void)arg;
	enum { ROWS = 33, WIDTH = 131, ALL = ROWS * WIDTH };
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o);
		float *x = random_floats(*o, b, ALL), *was = malloc(ALL * sizeof *was);
		struct kn_step s = {.n_rows = ROWS};
		for (int i = 0; i < ALL; i++)
			x[i] *= i % 5 == 0 ? 20 : i % 2 == 0 ? 4 : 0.01f;
		x[0] = 0;
		x[1] = -0.0f;
		memcpy(was, x, ALL * sizeof *was);
		assert_int_equal((*o)->step_begin(b, &s), 0);
		assert_int_equal((*o)->gelu(b, x, ROWS, WIDTH), 0);
		end_step(*o, b, NULL);
		for (int i = 0; i < ALL; i++) {
			double v = (double)was[i], want = v / 2 * erfc(-v / sqrt(2));
			expect_near("gelu", *o, (double)x[i], want, 12 * U * fabs(v));
		}
		check_guards(x, ALL);
		drop(*o, b, x);
		free(was);
		(*o)->close(b);
	}
}

/* ---- tables ---- */

static void test_embed_add(void **arg)
{
	(void)arg;
	enum { ROWS = 21, WIDTH = 37, TABLE = 50 };
	int32_t pos[ROWS], type[ROWS];
	for (int r = 0; r < ROWS; r++) {
		pos[r] = r * 17 % TABLE;
		type[r] = r % 3 == 0;
	}
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o);
		float *w = random_floats(*o, b, TABLE * WIDTH), *y = random_floats(*o, b, ROWS * WIDTH);
		float was[ROWS * WIDTH];
		for (int how = 0; how < 3; how++) {
			struct kn_step s = {.n_rows = ROWS, .row_pos = pos, .row_type = how == 1 ? type : NULL};
			memcpy(was, y, sizeof was);
			assert_int_equal((*o)->step_begin(b, &s), 0);
			assert_int_equal((*o)->embed_add(b, w, how == 0 ? KN_EMBED_POS : KN_EMBED_TYPE, WIDTH, y), 0);
			end_step(*o, b, NULL);
			for (int i = 0; i < ROWS * WIDTH; i++) {
				int row = how == 0 ? pos[i / WIDTH] : how == 1 ? type[i / WIDTH] : 0;
				assert_true(y[i] == was[i] + w[row * WIDTH + i % WIDTH]);
			}
		}
		check_guards(y, ROWS * WIDTH);
		drop(*o, b, w);
		drop(*o, b, y);
		(*o)->close(b);
	}
}

/* ---- sums of rows ---- */

/* Three texts of 30 rows, cut in different ways: the bits of one sum in order, whatever the cut. */
static void test_pool_rows(void **arg)
{
	(void)arg;
	enum { ROWS = 30, WIDTH = 133, SLOTS = 5 };
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o);
		float *x = random_floats(*o, b, 3 * ROWS * WIDTH), *sums = guarded(*o, b, SLOTS * WIDTH);
		float want[WIDTH];
		struct kn_step s = {.n_rows = 3 * ROWS > 64 ? 64 : 3 * ROWS};
		/* What other slots hold stays. */
		for (int i = 0; i < SLOTS * WIDTH; i++)
			sums[i] = 7;
		static const int cuts[][3] = {{30, 0, 0}, {1, 28, 1}, {11, 19, 0}};
		for (int c = 0; c < N(cuts); c++) {
			int at = 0;
			for (int part = 0; part < 3 && cuts[c][part] > 0; part++) {
				const struct kn_text texts[] = {
				    {.row = at, .n_rows = cuts[c][part], .slot = 3, .begins = part == 0},
				    {.row = ROWS + at, .n_rows = cuts[c][part], .slot = 0, .begins = part == 0},
				};
				assert_int_equal((*o)->step_begin(b, &s), 0);
				assert_int_equal((*o)->pool_rows(b, x, texts, 2, WIDTH, sums), 0);
				end_step(*o, b, NULL);
				at += cuts[c][part];
			}
			for (int slot = 0; slot < SLOTS; slot++) {
				const float *from = x + (slot == 3 ? 0 : ROWS) * WIDTH;
				bool summed = slot == 3 || slot == 0;
				for (int i = 0; i < WIDTH; i++) {
					want[i] = summed ? 0 : 7;
					for (int r = 0; r < ROWS && summed; r++)
						want[i] += from[r * WIDTH + i];
				}
				assert_memory_equal(sums + slot * WIDTH, want, sizeof want);
			}
		}
		check_guards(sums, SLOTS * WIDTH);
		drop(*o, b, x);
		drop(*o, b, sums);
		(*o)->close(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_layernorm), cmocka_unit_test(test_layernorm_beside), cmocka_unit_test(test_gelu),
	    cmocka_unit_test(test_embed_add), cmocka_unit_test(test_pool_rows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
