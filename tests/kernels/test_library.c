/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by the vendor's library, which in the emulation plain loops stand in for: that it is asked only where rows
 * may depend on one another, that the quickest is found and remembered, in memory and in a file that is not believed,
 * and that whatever it refuses or lacks is made by the kernels here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/stat.h>

#include "base/fault.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { OUT = 35, IN = 520, WIDEST = 768, MOST = 70, NOBODY = -1 };

static char kept[PATH_MAX + 64];

static void library(int n_ways, int quick)
{
	void (*tell)(int, int);
	void *symbol = cuda_function("sluice_emulation_library");
	memcpy(&tell, &symbol, sizeof tell);
	tell(n_ways, quick);
	assert_true(call_backend(cuda_path(), "sluice_emulation_library_fp8", 0));
}

static int products(void)
{
	int (*count)(void);
	void *symbol = cuda_function("sluice_emulation_library_products");
	memcpy(&count, &symbol, sizeof count);
	return count();
}

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct matrix m;
	struct kn_weight w;
	float *x, *y;
	int n_in;
	int error_type; /* whose activations it is multiplied with */
};

/* A width that is no whole number of chunks where the type allows it. */
static int width_of(int type) { return kn_type_block(type) == 1 ? IN : kn_type_block(type) <= 128 ? 640 : WIDEST; }

static void open_rig(struct rig *r, int type, bool fp8, bool loose, const char *path)
{
	struct kn_config cfg = {
	    .max_rows = MOST, .max_width = 1024, .fp8_weights = fp8, .loose_products = loose, .choices_path = path};
	struct sl_err err = {0};
	*r = (struct rig){.o = open_cuda(), .n_in = width_of(type), .error_type = type};
	state = 11;
	assert_int_equal(r->o->open(&cfg, &r->b, &err), 0);
	r->m = make_matrix(type, OUT, r->n_in);
	assert_int_equal(r->o->weight_load(r->b, r->m.bytes, type, OUT, r->n_in, &r->w, &err), 0);
	r->x = random_floats(r->o, r->b, (size_t)MOST * (size_t)r->n_in);
	r->y = guarded(r->o, r->b, MOST * OUT);
	for (int row = 0; row < MOST; row++) /* of very different sizes */
		for (int k = 0; k < r->n_in; k++)
			r->x[row * r->n_in + k] = ldexpf(r->x[row * r->n_in + k], row % 40 - 20);
}

static void close_rig(struct rig *r)
{
	check_guards(r->x, (size_t)MOST * (size_t)r->n_in);
	check_guards(r->y, MOST * OUT);
	r->o->weight_free(r->b, &r->w);
	drop(r->o, r->b, r->x);
	drop(r->o, r->b, r->y);
	drop_matrix(&r->m);
	r->o->close(r->b);
}

static int run(struct rig *r, int n_rows)
{
	struct kn_step s = {.n_rows = n_rows};
	int rc = r->o->step_begin(r->b, &s);
	if (rc == 0)
		rc = r->o->matmul(r->b, &r->w, r->x, n_rows, r->y);
	int end = r->o->step_end(r->b);
	return rc != 0 ? rc : end;
}

/* As test_cuda_products.c derives it: the activations' error and the sum's, in whatever order; and that of weights in
 * blocks, which are rounded to float16: 2^-11 of each, or 2^-39 of a number that is not more than 2^7 times its block's
 * largest, which the own kernels would have as well (library.h). */
static void check(const struct rig *r, int n_rows)
{
	double e = activation_error(r->o, r->error_type), w_error = kn_type_block(r->m.type) > 1 ? 0x1p-11 : 0;
	const int n_in = r->n_in;
	if (w_error > 0)
		e += w_error + e * w_error;
	for (int row = 0; row < n_rows; row++) {
		const float *x = r->x + row * n_in;
		double largest = 0;
		for (int k = 0; k < n_in; k++)
			largest = fmax(largest, fabs((double)x[k]));
		for (int i = 0; i < OUT; i++) {
			double sum = 0, magnitude = 0, weights = 0, w_most = 0, inputs = 0;
			for (int k = 0; k < n_in; k++) {
				double w = r->m.values[i * n_in + k];
				sum += w * (double)x[k];
				magnitude += fabs(w * (double)x[k]);
				weights += fabs(w);
				w_most = fmax(w_most, fabs(w));
				inputs += fabs((double)x[k]);
			}
			double bound =
			    (gamma_of(n_in + 4) * (1 + e) + e) * magnitude + 0x1p-39 * largest * weights + 0x1p-148;
			if (w_error > 0)
				bound += 0x1p-32 * w_most * inputs;
			if (!(fabs((double)r->y[row * OUT + i] - sum) <= bound))
				fail_msg("%s, %d rows, row %d, output %d: %.9g, not %.9g within %.3g",
					 kn_type_name(r->m.type), n_rows, row, i, (double)r->y[row * OUT + i], sum,
					 bound);
		}
	}
}

static long lines_of(char *text, size_t size)
{
	long n = 0;
	FILE *f = fopen(kept, "r");
	size_t got = f != NULL ? fread(text, 1, size - 1, f) : 0;
	text[got] = '\0';
	if (f != NULL)
		fclose(f);
	for (size_t i = 0; i < got; i++)
		n += text[i] == '\n';
	return n;
}

static void skip_on_device(void)
{
	if (on_device())
		skip(); /* which has a library, or not, and its own figures */
}

/* Every type that it takes, with as many rows as make every class, and one way that splits K. */
static void test_right(void **arg)
{
	static const int types[] = {KN_F16,  KN_BF16, KN_INT4, KN_Q4_0, KN_Q4_1, KN_Q5_0,   KN_Q5_1,   KN_Q8_0,
				    KN_Q2_K, KN_Q3_K, KN_Q4_K, KN_Q5_K, KN_Q6_K, KN_IQ4_NL, KN_IQ4_XS, KN_MXFP4},
			 rows[] = {9, 16, 17, 64, MOST};
	(void)arg;
	if (!on_device())
		library(2, 1);
	for (int t = 0; t < N(types); t++)
		for (int i = 0; i < N(rows); i++) {
			struct rig r;
			if (t > 2 && i != 1)
				continue;
			open_rig(&r, types[t], false, true, NULL);
			for (int k = 0; k < 3; k++) { /* measured, launched plainly, by a graph */
				assert_int_equal(run(&r, rows[i]), 0);
				check(&r, rows[i]);
			}
			if (!on_device())
				assert_true(products() > 0);
			close_rig(&r);
		}
}

/* Where unpacking a block type costs more than it brings the kernels here go on, and nothing is asked for again. */
static void test_blocks_by_own(void **arg)
{
	struct rig r;
	(void)arg;
	skip_on_device();
	library(2, NOBODY);
	open_rig(&r, KN_INT4, false, true, NULL);
	assert_int_equal(run(&r, 40), 0);
	int measured = products();
	assert_true(measured > 0);
	assert_int_equal(run(&r, 40), 0);
	check(&r, 40);
	assert_int_equal(products(), measured);
	close_rig(&r);
}

/* Scales out of all proportion: what the largest of an output's allows does not overflow, and one that is none spoils
 * its output alone. */
static void test_block_scales(void **arg)
{
	enum { ROWS = 12 };
	(void)arg;
	skip_on_device();
	for (int t = 0; t < 2; t++) {
		struct rig r;
		int type = t == 0 ? KN_INT4 : KN_Q4_K;
		size_t row_bytes = kn_row_bytes(type, (size_t)width_of(type));
		library(1, 0);
		open_rig(&r, type, false, true, NULL);
		uint8_t *bytes = malloc(OUT * row_bytes);
		assert_non_null(bytes);
		memcpy(bytes, r.m.bytes, OUT * row_bytes);
		memcpy(bytes, "\xff\x7b", 2);               /* 65504 */
		memcpy(bytes + 3 * row_bytes, "\0\x7c", 2); /* infinite */
		struct kn_weight w;
		struct sl_err err = {0};
		assert_int_equal(r.o->weight_load(r.b, bytes, type, OUT, r.n_in, &w, &err), 0);
		struct kn_weight was = r.w;
		r.w = w;
		assert_int_equal(run(&r, ROWS), 0);
		assert_true(products() > 0);
		for (int i = 0; i < ROWS * OUT; i++)
			assert_true(i % OUT == 3 ? !isfinite(r.y[i]) : isfinite(r.y[i]));
		r.w = was;
		r.o->weight_free(r.b, &w);
		free(bytes);
		close_rig(&r);
	}
}

/* e4m3 with a scale for each output: as the kernels here make it, but for the order of the sum. */
static void test_fp8(void **arg)
{
	struct rig own, loose;
	(void)arg;
	skip_on_device();
	library(1, 0);
	open_rig(&own, KN_BF16, true, false, NULL);
	open_rig(&loose, KN_BF16, true, true, NULL);
	assert_int_equal(run(&own, 33), 0);
	assert_int_equal(run(&loose, 33), 0);
	assert_true(products() > 0);
	for (int i = 0; i < 33 * OUT; i++) {
		const float *x = own.x + i / OUT * IN;
		double magnitude = 0;
		for (int k = 0; k < IN; k++) /* a weight's rounding to e4m3 is 2^-4 of it at most */
			magnitude += fabs(own.m.values[i % OUT * IN + k] * (double)x[k]) * (1 + 0x1p-4);
		assert_true(fabs((double)own.y[i] - (double)loose.y[i]) <=
			    2 * gamma_of(IN + 3) * magnitude * (1 + 0x1p-11));
	}
	close_rig(&own);
	close_rig(&loose);
}

enum { FP8_NONE, FP8_PLAIN, FP8_SCALED }; /* as in library.h */

/* Products of n_rows rows by weights of n_out outputs that become FP8, in y; the library then has so many ways. */
static int fp8_product(int what, bool loose, int n_out, int n_rows, const char *path, float *x, float *y,
		       struct matrix *m)
{
	struct kn_config cfg = {
	    .max_rows = MOST, .max_width = 1024, .fp8_weights = true, .loose_products = loose, .choices_path = path};
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = NULL;
	struct kn_weight w;
	struct sl_err err = {0};
	struct kn_step s = {.n_rows = n_rows};
	state = 5;
	*m = make_matrix(KN_BF16, n_out, IN);
	for (int i = 0; i < n_rows * IN; i++)
		x[i] = ldexpf(next_float(), i / IN % 40 - 20);
	library(1, 0);
	assert_true(call_backend(cuda_path(), "sluice_emulation_library_fp8", what));
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	float *dx = guarded(o, b, (size_t)n_rows * IN), *dy = guarded(o, b, (size_t)n_rows * (size_t)n_out);
	memcpy(dx, x, (size_t)n_rows * IN * sizeof *x);
	assert_int_equal(o->weight_load(b, m->bytes, KN_BF16, n_out, IN, &w, &err), 0);
	for (int i = 0; i < 3; i++) { /* measured, launched plainly, by a graph */
		assert_int_equal(o->step_begin(b, &s), 0);
		assert_int_equal(o->matmul(b, &w, dx, n_rows, dy), 0);
		assert_int_equal(o->step_end(b), 0);
	}
	memcpy(y, dy, (size_t)n_rows * (size_t)n_out * sizeof *y);
	check_guards(dy, (size_t)n_rows * (size_t)n_out);
	drop(o, b, dx);
	drop(o, b, dy);
	o->weight_free(b, &w);
	o->close(b);
	return products();
}

/* Activations in e4m3: each is off by 2^-4 of itself, or 2^-10 of what makes the row's largest 448. Weights are those
 * that the own kernels have, up to 1 + 2^-4 of the matrix's. Whether the library has scales or not, the products are
 * the same but for their last multiplications. */
static void test_fp8_activations(void **arg)
{
	enum { WIDE = 48, ROWS = 33 };
	static float x[ROWS * IN], own[ROWS * WIDE], got[2][ROWS * WIDE];
	struct matrix m;
	double most = 0;
	(void)arg;
	skip_on_device();
	assert_int_equal(fp8_product(FP8_SCALED, false, WIDE, ROWS, NULL, x, own, &m), 0); /* invariance is asked for */
	drop_matrix(&m);
	for (int k = 0; k < 2; k++) {
		assert_true(fp8_product(k == 0 ? FP8_PLAIN : FP8_SCALED, true, WIDE, ROWS, NULL, x, got[k], &m) > 0);
		for (int i = 0; i < ROWS * WIDE; i++) {
			const float *row = x + i / WIDE * IN;
			double magnitude = 0, weights = 0, largest = 0;
			for (int j = 0; j < IN; j++) {
				double w = fabs(m.values[i % WIDE * IN + j]) * (1 + 0x1p-4);
				magnitude += w * fabs((double)row[j]);
				weights += w;
				largest = fmax(largest, fabs((double)row[j]));
			}
			double off = fabs((double)got[k][i] - (double)own[i]);
			most = fmax(most, off / magnitude);
			double bound =
			    (0x1p-4 + 0x1p-11 + 3 * gamma_of(IN + 5)) * magnitude + 0x1p-10 * largest / 448 * weights;
			if (!(off <= bound))
				fail_msg("row %d, output %d: %.9g, not %.9g within %.3g", i / WIDE, i % WIDE,
					 (double)got[k][i], (double)own[i], bound);
		}
		drop_matrix(&m);
	}
	assert_true(most > 0x1p-11); /* it was FP8 */
	for (int i = 0; i < ROWS * WIDE; i++)
		assert_true(fabs((double)got[0][i] - (double)got[1][i]) <= 4 * U * fabs((double)got[0][i]));
}

/* Shapes that the library does not take in FP8 are multiplied in float16; what was found is kept and believed only of
 * that type. */
static void test_fp8_kept(void **arg)
{
	static float x[20 * IN], y[20 * 48];
	char text[4096], line[128];
	struct matrix m;
	(void)arg;
	skip_on_device();
	unlink(kept);
	int measured = fp8_product(FP8_SCALED, true, 48, 20, kept, x, y, &m);
	drop_matrix(&m);
	assert_int_equal(lines_of(text, sizeof text), 3);
	assert_non_null(strstr(text, " 48 520 32 2 5c1 0 "));
	assert_true(measured > 3);
	assert_int_equal(fp8_product(FP8_SCALED, true, 48, 20, kept, x, y, &m), 3);
	drop_matrix(&m);
	/* The same file where there is no FP8 any more: measured again, and by float16. */
	assert_true(fp8_product(FP8_NONE, true, 48, 20, kept, x, y, &m) > 3);
	drop_matrix(&m);
	lines_of(text, sizeof text);
	assert_null(strstr(text, " 32 2 5c1 "));
	unlink(kept);
	assert_true(fp8_product(FP8_SCALED, true, 35, 20, kept, x, y, &m) > 3);
	drop_matrix(&m);
	lines_of(text, sizeof text);
	snprintf(line, sizeof line, " 35 %d 32 0 5c1 0 ", IN);
	assert_non_null(strstr(text, line));
	/* Of weights of another type such a line is none. */
	FILE *f = fopen(kept, "w");
	struct rig r;
	assert_non_null(f);
	fprintf(f, "sluice products 1\nthe emulation's library, 1\n1 35 520 32 2 5c1 0 0 0 0 0 0 0\n");
	fclose(f);
	library(1, 0);
	open_rig(&r, KN_F16, false, true, kept);
	assert_int_equal(run(&r, 20), 0);
	check(&r, 20);
	assert_true(products() > 1);
	close_rig(&r);
}

/* Rows of zeros, and rows with what is not finite, which spoil no other. */
static void test_fp8_rows(void **arg)
{
	enum { WIDE = 48, ROWS = 12 };
	(void)arg;
	skip_on_device();
	struct kn_config cfg = {.max_rows = MOST, .max_width = 1024, .fp8_weights = true, .loose_products = true};
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = NULL;
	struct kn_weight w;
	struct sl_err err = {0};
	struct kn_step s = {.n_rows = ROWS};
	library(1, 0);
	assert_true(call_backend(cuda_path(), "sluice_emulation_library_fp8", FP8_SCALED));
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	struct matrix m = make_matrix(KN_BF16, WIDE, IN);
	assert_int_equal(o->weight_load(b, m.bytes, KN_BF16, WIDE, IN, &w, &err), 0);
	float *x = random_floats(o, b, ROWS * IN), *y = guarded(o, b, ROWS * WIDE);
	memset(x, 0, IN * sizeof *x);
	x[2 * IN + 7] = NAN;
	x[4 * IN + 9] = -INFINITY;
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w, x, ROWS, y), 0);
	assert_int_equal(o->step_end(b), 0);
	assert_true(products() > 0);
	for (int i = 0; i < ROWS * WIDE; i++) {
		bool spoilt = i / WIDE == 2 || i / WIDE == 4;
		assert_true(spoilt ? !isfinite(y[i]) : isfinite(y[i]));
		assert_true(i >= WIDE || y[i] == 0);
	}
	drop(o, b, x);
	drop(o, b, y);
	o->weight_free(b, &w);
	drop_matrix(&m);
	o->close(b);
}

/* Not asked: where rows must not depend on one another, for few of them, for types that it does not take. */
static void test_not_asked(void **arg)
{
	struct rig r;
	(void)arg;
	skip_on_device();
	library(1, 0);
	open_rig(&r, KN_F16, false, false, NULL);
	assert_int_equal(run(&r, MOST), 0);
	close_rig(&r);
	open_rig(&r, KN_F16, false, true, NULL);
	assert_int_equal(run(&r, 8), 0);
	check(&r, 8);
	close_rig(&r);
	open_rig(&r, KN_F32, false, true, NULL);
	assert_int_equal(run(&r, 20), 0);
	close_rig(&r);
	assert_int_equal(products(), 0);
}

/* No library at all, or one that takes nothing. */
static void test_none(void **arg)
{
	struct rig r;
	(void)arg;
	skip_on_device();
	for (int refuses = 0; refuses < 2; refuses++) {
		library(refuses, 0);
		assert_true(call_backend(cuda_path(), "sluice_emulation_library_refuses", refuses));
		open_rig(&r, KN_F16, false, true, NULL);
		assert_int_equal(run(&r, 20), 0);
		check(&r, 20);
		assert_int_equal(products(), 0);
		close_rig(&r);
	}
}

/* The quick way is taken, and kept: the next start measures nothing. */
static void test_kept(void **arg)
{
	struct rig r;
	char text[4096];
	(void)arg;
	skip_on_device();
	unlink(kept);
	library(3, 2);
	open_rig(&r, KN_F16, false, true, kept);
	assert_int_equal(run(&r, 20), 0);
	int measured = products();
	assert_int_equal(run(&r, 32), 0); /* of the same class */
	assert_int_equal(products(), measured + 1);
	assert_int_equal(run(&r, 33), 0); /* of another */
	assert_true(products() > measured + 2);
	close_rig(&r);
	assert_int_equal(lines_of(text, sizeof text), 4);
	char line[128];
	snprintf(line, sizeof line, "\n%d %d %d 32 0 5c1 2 ", KN_F16, OUT, IN);
	assert_non_null(strstr(text, line));
	assert_int_equal(access(kept, X_OK), -1);
	library(3, 2);
	open_rig(&r, KN_F16, false, true, kept);
	assert_int_equal(run(&r, 20), 0);
	check(&r, 20);
	assert_int_equal(products(), 1);
	close_rig(&r);
}

/* Where its ways are all slow the kernels here do it, and that is kept too. */
static void test_own_is_quicker(void **arg)
{
	struct rig r;
	char text[4096], line[128];
	(void)arg;
	skip_on_device();
	unlink(kept);
	library(2, NOBODY);
	open_rig(&r, KN_F16, false, true, kept);
	assert_int_equal(run(&r, 12), 0);
	int measured = products();
	assert_true(measured > 0);
	assert_int_equal(run(&r, 12), 0);
	check(&r, 12);
	assert_int_equal(products(), measured);
	close_rig(&r);
	assert_int_equal(lines_of(text, sizeof text), 3);
	snprintf(line, sizeof line, "\n%d %d %d 16 1 0 ", KN_F16, OUT, IN);
	assert_non_null(strstr(text, line));
	open_rig(&r, KN_F16, false, true, kept);
	assert_int_equal(run(&r, 12), 0);
	assert_int_equal(products(), measured);
	close_rig(&r);
}

/* A file of another machine, or of nobody: as if there were none. What in it can't be is left out. */
static void test_not_believed(void **arg)
{
	static const char *const heads[] = {"sluice products 1\nanother device\n",
					    "sluice products 2\nthe emulation's library, 1\n",
					    "",
					    "sluice products 1",
					    "\n\n\n",
					    "sluice products 1\nthe emulation's library, 1\n"};
	static const char *const bodies[] = {"1 35 520 32 0 5c1 0 0 0 0 0 0\n",
					     "1 35 520 32 2 5c1 0 0 0 0 0 0 0\n",
					     "1 35 520 -32 0 5c1 0 0 0 0 0 0 0\n",
					     "1 35 520 32 0 5c1 0 0 0 0 0 0 0 7\n",
					     "1 35 99999999999 32 1 0 0 0 0 0 0 0 0\n",
					     "1 35 520 32 0 fffffffffffffffff 0 0 0 0 0 0 0\n",
					     "1 35 520 32 0 77 0 0 0 0 0 0 0\n",
					     "1 35 520 32 0 5c1 9 0 0 0 0 0 0\n",
					     "1 35 520 32 1 0 0 0 0 0 0 0 0"};
	(void)arg;
	skip_on_device();
	for (int i = 0; i < N(heads) + N(bodies) - 1; i++) {
		struct rig r;
		bool body = i >= N(heads) - 1;
		FILE *f = fopen(kept, "w");
		assert_non_null(f);
		fprintf(f, "%s%s", heads[body ? N(heads) - 1 : i],
			body ? bodies[i - (N(heads) - 1)] : "1 35 520 32 1 0 0 0 0 0 0 0 0\n");
		fclose(f);
		library(1, 0);
		open_rig(&r, KN_F16, false, true, kept);
		assert_int_equal(run(&r, 20), 0);
		check(&r, 20);
		assert_true(products() > 1); /* measured */
		close_rig(&r);
	}
}

/* A folder that is not there: nothing is kept, nothing fails. More than there is room for: the same. */
static void test_not_kept(void **arg)
{
	struct rig r;
	(void)arg;
	skip_on_device();
	library(1, 0);
	open_rig(&r, KN_F16, false, true, "/nonexistent/folder/products");
	assert_int_equal(run(&r, 20), 0);
	assert_int_equal(run(&r, 20), 0);
	check(&r, 20);
	close_rig(&r);
	FILE *f = fopen(kept, "w");
	assert_non_null(f);
	fprintf(f, "sluice products 1\nthe emulation's library, 1\n");
	for (int i = 0; i < 300; i++)
		fprintf(f, "1 %d 64 16 1 0 0 0 0 0 0 0 0\n", 1000 + i);
	fclose(f);
	library(1, 0);
	open_rig(&r, KN_F16, false, true, kept);
	assert_int_equal(run(&r, 20), 0);
	check(&r, 20);
	close_rig(&r);
}

/* Its launches fail like others, while it is measured and after. */
static void test_faults(void **arg)
{
	(void)arg;
	skip_on_device();
	int failed = 0;
	for (long nth = 1; nth < 200; nth++) {
		struct rig r;
		library(1, 0);
		open_rig(&r, nth % 2 ? KN_F16 : KN_INT4, false, true, NULL);
		fault_arm(FAULT_DEVICE, nth, 1);
		int rc = run(&r, 9);
		rc = rc != 0 ? rc : run(&r, 9);
		fault_disarm_all();
		if (rc != 0) {
			assert_int_equal(rc, SL_EIO);
			assert_int_equal(run(&r, 9), SL_EIO);
			assert_non_null(strstr(r.o->describe(r.b), "a fault point"));
			failed++;
		}
		close_rig(&r);
		if (rc == 0 && nth % 2 == 0)
			break;
	}
	assert_true(failed > 8 && failed < 199);
}

/* Whichever allocation fails, the products are made, or the backend does not open. */
static void test_no_memory(void **arg)
{
	struct rig r;
	(void)arg;
	skip_on_device();
	library(1, 0);
	for (long nth = 1; nth < 20; nth++) {
		struct kn_config cfg = {.max_rows = MOST, .max_width = 1024, .loose_products = true};
		struct kn_backend *b = NULL;
		struct sl_err err = {0};
		const struct kn_ops *o = open_cuda();
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = o->open(&cfg, &b, &err);
		fault_disarm_all();
		if (rc == 0)
			o->close(b);
	}
	open_rig(&r, KN_F16, false, true, NULL);
	assert_int_equal(run(&r, 20), 0);
	check(&r, 20);
	close_rig(&r);
}

/* Once the model serves, nothing is measured any more: what was chosen before stays, everything else is our own
 * kernels'. And what the library lacks is named in the line for the log. */
static void test_serving(void **arg)
{
	(void)arg;
	struct rig r;
	skip_on_device();
	library(2, 1);
	open_rig(&r, KN_F16, false, true, NULL);
	assert_non_null(strstr(r.o->describe(r.b), "no FP8 in the emulation"));
	assert_int_equal(run(&r, 40), 0);
	assert_true(products() > 1); /* measured */
	r.o->serve(r.b);
	int measured = products();
	assert_int_equal(run(&r, 41), 0);
	assert_int_equal(products(), measured + 1);
	check(&r, 41);
	assert_int_equal(run(&r, 20), 0); /* another class */
	assert_int_equal(products(), measured + 1);
	check(&r, 20);
	close_rig(&r);
	library(0, NOBODY);
	open_rig(&r, KN_F16, false, true, NULL);
	assert_non_null(strstr(r.o->describe(r.b), "no vendor's library: the emulation has no library"));
	close_rig(&r);
}

static int setup(void **arg)
{
	(void)arg;
	const char *tmp = getenv("TMPDIR");
	snprintf(kept, sizeof kept, "%s/sluice-test-library-%ld", tmp != NULL ? tmp : "/tmp", (long)getpid());
	return 0;
}

static int teardown(void **arg)
{
	(void)arg;
	unlink(kept);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_right),          cmocka_unit_test(test_fp8),
	    cmocka_unit_test(test_not_asked),      cmocka_unit_test(test_fp8_activations),
	    cmocka_unit_test(test_fp8_kept),       cmocka_unit_test(test_fp8_rows),
	    cmocka_unit_test(test_none),           cmocka_unit_test(test_kept),
	    cmocka_unit_test(test_own_is_quicker), cmocka_unit_test(test_not_believed),
	    cmocka_unit_test(test_not_kept),       cmocka_unit_test(test_faults),
	    cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_blocks_by_own),
	    cmocka_unit_test(test_block_scales),   cmocka_unit_test(test_serving),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
