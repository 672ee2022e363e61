/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of block types where a backend may turn activations into integers: rows whose blocks differ
 * by many orders of magnitude, with values of one size or one that stands out, infinities and numbers
 * that are none, and more rows than are packed at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/quantize.h"
#include "tests/kernels/weights.h"

enum { N_IN = 512, N_OUT = 37, BLOCK = 32 };
static const int types[] = {KN_Q8_0, KN_Q4_0, KN_Q4_1, KN_Q4_K, KN_Q6_K, KN_IQ4_NL, KN_Q5_K, KN_Q2_K, KN_MXFP4};

struct product {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct matrix m;
	struct kn_weight w;
	float *x, *y;
	int n_rows;
};

static void begin(struct product *p, const struct kn_ops *o, int type, int n_rows)
{
	struct kn_config cfg = {.n_threads = 2, .max_rows = n_rows, .max_width = 4096};
	struct sl_err err = {0};
	*p = (struct product){.o = o, .n_rows = n_rows};
	assert_int_equal(o->open(&cfg, &p->b, &err), 0);
	p->m = make_matrix(type, N_OUT, N_IN);
	assert_int_equal(o->weight_load(p->b, p->m.bytes, type, N_OUT, N_IN, &p->w, &err), 0);
	p->x = random_floats(o, p->b, (size_t)n_rows * N_IN);
	p->y = guarded(o, p->b, (size_t)n_rows * N_OUT);
}

static void end(struct product *p)
{
	check_guards(p->x, (size_t)p->n_rows * N_IN);
	check_guards(p->y, (size_t)p->n_rows * N_OUT);
	p->o->weight_free(p->b, &p->w);
	drop(p->o, p->b, p->x);
	drop(p->o, p->b, p->y);
	drop_matrix(&p->m);
	p->o->close(p->b);
}

static void run(struct product *p, int row, int n_rows)
{
	struct kn_step s = {.n_rows = n_rows};
	assert_int_equal(p->o->step_begin(p->b, &s), 0);
	assert_int_equal(p->o->matmul(p->b, &p->w, p->x + row * N_IN, n_rows, p->y + row * N_OUT), 0);
	assert_int_equal(p->o->step_end(p->b), 0);
}

/* An integer of 20 bits for each activation, by the exponent of its block's largest, is off by 2^-20 of
 * that power of two at the most, which is 2^-20 of the largest. */
static void check_row(const struct product *p, int r)
{
	for (int i = 0; i < N_OUT; i++) {
		double sum = 0, bound = 0;
		for (int k = 0; k < N_IN; k += BLOCK) {
			double largest = 0, weights = 0;
			for (int l = k; l < k + BLOCK; l++) {
				double x = (double)p->x[r * N_IN + l], w = p->m.values[i * N_IN + l];
				sum += w * x;
				bound += gamma_of(N_IN) * fabs(w * x);
				largest = fmax(largest, fabs(x));
				weights += fabs(w);
			}
			bound += largest * 0x1p-20 * weights;
		}
		double got = (double)p->y[r * N_OUT + i];
		if (eight_bits(p->o, p->m.type))
			bound += eight_bits_error(p->m.values + i * N_IN, p->x + r * N_IN, N_IN);
		if (!(fabs(got - sum) <= bound + (double)FLT_MIN))
			fail_msg("%s of %s: row %d, output %d is %.9g, not %.9g within %.3g", kn_type_name(p->w.type),
				 p->o->name, r, i, got, sum, bound);
	}
}

static void test_ranges(void **arg)
{
	(void)arg;
	enum { ROWS = 6 };
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++)
		for (int t = 0; t < N(types); t++) {
			struct product p;
			begin(&p, *o, types[t], ROWS);
			for (int k = 0; k < N_IN; k++) {
				p.x[k] = ldexpf(p.x[k], -120 + 15 * (k / BLOCK));      /* every block another power */
				p.x[N_IN + k] = k % BLOCK == 5 ? 3000 : p.x[N_IN + k]; /* one that stands out */
				p.x[2 * N_IN + k] = 0;
				p.x[3 * N_IN + k] = k % 2 ? 1 : -1; /* powers of two, all the largest */
				p.x[4 * N_IN + k] = k % 3 ? 0x1.fffffep9f : -0x1.fffffep9f; /* just below one */
				p.x[5 * N_IN + k] = ldexpf(p.x[5 * N_IN + k], k % BLOCK ? -148 : -140); /* subnormal */
			}
			run(&p, 0, ROWS);
			for (int r = 0; r < ROWS; r++)
				check_row(&p, r);
			for (int i = 0; i < N_OUT; i++)
				assert_true(p.y[2 * N_OUT + i] == 0);
			end(&p);
		}
}

/* Weights and activations that are as large as they can be: nothing saturates. Few rows, and as many as make panels. */
static void extremes_of(const struct kn_ops *o, int type, uint8_t fill, int n_rows)
{
	struct product p;
	begin(&p, o, type, n_rows);
	int head = type == KN_MXFP4 ? 1 : type == KN_Q4_1 ? 4 : 2;
	size_t block = kn_type_block_bytes(type), bytes = N_OUT * kn_row_bytes(type, N_IN);
	float values[N_IN];
	/* Of the larger blocks scales would be filled too. */
	for (size_t i = 0; i < bytes && kn_type_block(type) == BLOCK; i++)
		if (i % block >= (size_t)head)
			p.m.bytes[i] = fill;
	for (int i = 0; i < N_OUT; i++) {
		kn_dequantize(type, p.m.bytes + (size_t)i * bytes / N_OUT, N_IN, values);
		for (int k = 0; k < N_IN; k++)
			p.m.values[i * N_IN + k] = (double)values[k];
	}
	struct sl_err err = {0};
	p.o->weight_free(p.b, &p.w);
	assert_int_equal(o->weight_load(p.b, p.m.bytes, type, N_OUT, N_IN, &p.w, &err), 0);
	for (int r = 0; r < n_rows; r++)
		for (int k = 0; k < N_IN; k++)
			p.x[r * N_IN + k] = r % 3 == 0 ? 1 : r % 3 == 1 ? -1 : k % 4 < 2 ? 1 : -1;
	run(&p, 0, n_rows);
	for (int r = 0; r < n_rows; r++)
		check_row(&p, r);
	end(&p);
}

static void test_extremes(void **arg)
{
	(void)arg;
	enum { FEW = 3, MANY = 18 };
	static const uint8_t fills[] = {0x80, 0x7f, 0xff, 0x00};
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++)
		for (int t = 0; t < N(types); t++)
			for (int f = 0; f < N(fills); f++) {
				extremes_of(*o, types[t], fills[f], FEW);
				extremes_of(*o, types[t], fills[f], MANY);
			}
}

/* What is not finite spoils its own row and no other. */
static void test_not_finite(void **arg)
{
	(void)arg;
	enum { ROWS = 7 };
	static const float bad[] = {INFINITY, -INFINITY, NAN};
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++)
		for (int t = 0; t < N(types); t++)
			for (int i = 0; i < N(bad); i++) {
				struct product p;
				float was[ROWS * N_OUT];
				begin(&p, *o, types[t], ROWS);
				run(&p, 0, ROWS);
				memcpy(was, p.y, sizeof was);
				p.x[3 * N_IN + 100 * i + 7] = bad[i];
				run(&p, 0, ROWS);
				assert_memory_equal(p.y, was, 3 * N_OUT * sizeof *was);
				assert_memory_equal(p.y + 4 * N_OUT, was + 4 * N_OUT, 3 * N_OUT * sizeof *was);
				for (int k = 0; k < N_OUT; k++)
					assert_false(isfinite(p.y[3 * N_OUT + k]) &&
						     p.m.values[k * N_IN + 100 * i + 7] != 0);
				end(&p);
			}
}

/* Rows of a step that is packed in parts have the bits that they have alone. */
static void test_many_rows(void **arg)
{
	(void)arg;
	enum { ROWS = 277 };
	static const int looked[] = {0, 15, 16, 255, 256, 271, 276};
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		if (strcmp((*o)->name, "cpu-ref") == 0)
			continue;
		for (int t = 0; t < N(types); t++) {
			struct product p;
			float all[ROWS * N_OUT];
			begin(&p, *o, types[t], ROWS);
			run(&p, 0, ROWS);
			memcpy(all, p.y, sizeof all);
			for (int i = 0; i < N(looked); i++) {
				run(&p, looked[i], 1);
				assert_memory_equal(p.y + looked[i] * N_OUT, all + looked[i] * N_OUT,
						    N_OUT * sizeof *all);
				check_row(&p, looked[i]);
			}
			end(&p);
		}
	}
}

/* What weight_load has made, taken by another backend as it is: the same bits. Anything else is refused. */
static void test_adopted(void **arg)
{
	(void)arg;
	enum { ROWS = 9 };
	int n_tried = 0;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		assert_int_equal((*o)->made_layout != NULL, (*o)->weight_made != NULL && (*o)->weight_adopt != NULL);
		for (size_t t = 0; (*o)->made_layout != NULL && t < sizeof types / sizeof *types; t++) {
			struct product p;
			struct kn_weight w, none;
			struct sl_err err = {0};
			size_t bytes = 0;
			begin(&p, *o, types[t], ROWS);
			const void *made = (*o)->weight_made(p.b, &p.w, &bytes);
			if (made == NULL) {
				assert_int_equal(
				    (*o)->weight_adopt(p.b, p.m.bytes, 64, types[t], N_OUT, N_IN, &none, &err),
				    SL_EUNSUPPORTED);
				end(&p);
				continue;
			}
			void *copy = aligned_alloc(KN_ALIGN, (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN);
			memcpy(copy, made, bytes);
			run(&p, 0, ROWS);
			float *first = malloc(ROWS * N_OUT * sizeof *first);
			memcpy(first, p.y, ROWS * N_OUT * sizeof *first);
			assert_int_equal((*o)->weight_adopt(p.b, copy, bytes - 1, types[t], N_OUT, N_IN, &w, &err),
					 SL_EINVAL);
			assert_int_equal((*o)->weight_adopt(p.b, copy, bytes, types[t], N_OUT + 16, N_IN, &w, &err),
					 SL_EINVAL);
			assert_int_equal((*o)->weight_adopt(p.b, copy, bytes, types[t], N_OUT, N_IN + 1, &w, &err),
					 SL_EINVAL);
			assert_int_equal((*o)->weight_adopt(p.b, copy, bytes, types[t], -1, N_IN, &w, &err), SL_EINVAL);
			assert_int_equal((*o)->weight_adopt(p.b, copy, bytes, KN_F32, N_OUT, N_IN, &w, &err),
					 SL_EUNSUPPORTED);
			assert_int_equal((*o)->weight_adopt(p.b, copy, bytes, types[t], N_OUT, N_IN, &w, &err), 0);
			assert_ptr_equal((*o)->weight_made(p.b, &w, &bytes), copy);
			(*o)->weight_free(p.b, &p.w);
			p.w = w;
			memset(p.y, 0, ROWS * N_OUT * sizeof *p.y);
			run(&p, 0, ROWS);
			assert_memory_equal(p.y, first, ROWS * N_OUT * sizeof *first);
			end(&p); /* frees the weight, not what it was made of */
			((uint8_t *)copy)[bytes - 1] = 0;
			free(copy);
			free(first);
			n_tried++;
		}
	}
	if (n_tried == 0)
		skip();
}

/* y of n_rows random rows and weights, the same every time. */
static float *product_of(const struct kn_ops *o, int type, int n_in, int n_rows)
{
	struct kn_config cfg = {.n_threads = 2, .max_rows = n_rows, .max_width = 4096};
	struct kn_step step = {.n_rows = n_rows};
	struct kn_backend *b;
	struct kn_weight w;
	struct sl_err err = {0};
	const size_t n = (size_t)(n_rows * N_OUT), n_x = (size_t)(n_rows * n_in);
	state = (uint64_t)(type * 1000 + n_in + n_rows);
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	struct matrix m = make_matrix(type, N_OUT, n_in);
	assert_int_equal(o->weight_load(b, m.bytes, type, N_OUT, n_in, &w, &err), 0);
	float *x = random_floats(o, b, n_x), *y = guarded(o, b, n), *out = malloc(n * sizeof *out);
	assert_int_equal(o->step_begin(b, &step), 0);
	assert_int_equal(o->matmul(b, &w, x, n_rows, y), 0);
	assert_int_equal(o->step_end(b), 0);
	check_guards(y, n);
	memcpy(out, y, n * sizeof *out);
	o->weight_free(b, &w);
	drop(o, b, x);
	drop(o, b, y);
	drop_matrix(&m);
	o->close(b);
	return out;
}

/* Instruction sets with activations of eight bits have the same bits, by whichever way so many rows are made; more
 * weights along K than a panel has, and an odd number of blocks. */
static void test_alike(void **arg)
{
	(void)arg;
	static const int counts[] = {1, 3, 4, 6, 7, 16, 17, 32, 70};
	static const int of_blocks[] = {KN_Q4_0, KN_Q4_1, KN_Q5_0, KN_Q5_1, KN_Q8_0, KN_IQ4_NL, KN_MXFP4};
	static const int of_k[] = {KN_Q2_K, KN_Q3_K, KN_Q4_K, KN_Q5_K, KN_Q6_K, KN_IQ4_XS};
	const struct kn_ops *first = NULL;
	int n_compared = 0;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		if (!(*o)->eight_bits)
			continue;
		if (first == NULL)
			first = *o;
		for (int t = 0; *o != first && t < N(of_blocks) + N(of_k); t++) {
			bool k = t >= N(of_blocks);
			int type = k ? of_k[t - N(of_blocks)] : of_blocks[t];
			for (int c = 0; c < N(counts); c++) {
				float *a = product_of(first, type, k ? 2304 : 2080, counts[c]),
				      *b = product_of(*o, type, k ? 2304 : 2080, counts[c]);
				if (memcmp(a, b, (size_t)(counts[c] * N_OUT) * sizeof *a) != 0)
					fail_msg("%s, %d rows: %s and %s differ", kn_type_name(type), counts[c],
						 first->name, (*o)->name);
				free(a);
				free(b);
				n_compared++;
			}
		}
	}
	if (n_compared == 0)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ranges),    cmocka_unit_test(test_extremes), cmocka_unit_test(test_not_finite),
	    cmocka_unit_test(test_many_rows), cmocka_unit_test(test_adopted),  cmocka_unit_test(test_alike),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
