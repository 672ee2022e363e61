/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of products: a matrix loaded and multiplied, what a product may be off by, and that it does not depend on
 * what it is computed with.
 */
#ifndef TESTS_KERNELS_PRODUCTS_H
#define TESTS_KERNELS_PRODUCTS_H

#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

static inline struct kn_weight load(const struct kn_ops *o, struct kn_backend *b, const struct matrix *m)
{
	struct kn_weight w;
	struct sl_err err = {0};
	assert_int_equal(o->weight_load(b, m->bytes, m->type, m->n_out, m->n_in, &w, &err), 0);
	return w;
}

static inline void run(const struct kn_ops *o, struct kn_backend *b, const struct kn_weight *w, const float *x,
		       int n_rows, float *y)
{
	struct kn_step s = {.n_rows = n_rows};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, w, x, n_rows, y), 0);
	assert_int_equal(o->step_end(b), 0);
}

static inline void matmul_case(const struct kn_ops *o, struct kn_backend *b, int type, int n_out, int n_in, int n_rows)
{
	struct matrix m = make_matrix(type, n_out, n_in);
	struct kn_weight w = load(o, b, &m);
	size_t n = (size_t)n_rows * (size_t)n_out, n_x = (size_t)n_rows * (size_t)n_in;
	float *x = random_floats(o, b, n_x), *y = guarded(o, b, n);
	float *was = malloc(n_x * sizeof *was);
	memcpy(was, x, n_x * sizeof *was);
	run(o, b, &w, x, n_rows, y);
	for (int r = 0; r < n_rows; r++)
		for (int i = 0; i < n_out; i++) {
			double sum = 0, magnitude = 0, weights = 0, e = activation_error(o, type);
			for (int k = 0; k < n_in; k++) {
				double p = m.values[i * n_in + k] * (double)x[r * n_in + k];
				sum += p;
				magnitude += fabs(p);
				weights += fabs(m.values[i * n_in + k]);
			}
			/* The weights are float32 exactly, so all the error is the sum's, or the activations', which
			 * are below one. */
			double got = (double)y[r * n_out + i], bound = (gamma_of(n_in) * (1 + e) + e) * magnitude;
			bound += activation_floor(o, type) * weights;
			/* Sums of 32 are exact: three roundings each, of parts, are less than 32 of products. */
			if (eight_bits(o, type))
				bound += eight_bits_error(m.values + (size_t)i * (size_t)n_in,
							  x + (size_t)r * (size_t)n_in, n_in);
			if (!(fabs(got - sum) <= bound))
				fail_msg("%s of %s, %d × %d, %d rows: y[%d][%d] = %.9g, not %.9g within %.3g",
					 kn_type_name(type), o->name, n_out, n_in, n_rows, r, i, got, sum, bound);
		}
	check_guards(y, n);
	check_guards(x, n_x);
	assert_memory_equal(x, was, n_x * sizeof *was);
	free(was);
	o->weight_free(b, &w);
	drop(o, b, x);
	drop(o, b, y);
	drop_matrix(&m);
}

/* A row's result has the same bits in any company and with any number of threads. */
static inline void identity_case(const struct kn_ops *o,
				 struct kn_backend *(*open)(const struct kn_ops *o, int n_threads), int type, int n_out,
				 int n_in, int row_step, int most_threads)
{
	enum { ROWS = 40 };
	struct matrix m = make_matrix(type, n_out, n_in);
	size_t width = (size_t)n_out, bytes = width * sizeof(float);
	float *first = malloc(ROWS * bytes);
	uint64_t start = state;
	for (int threads = 1; threads <= most_threads; threads *= 2) {
		struct kn_backend *b = open(o, threads);
		struct kn_weight w = load(o, b, &m);
		state = start;
		float *x = random_floats(o, b, (size_t)ROWS * (size_t)n_in), *y = guarded(o, b, ROWS * width);
		if (threads == 1)
			for (int r = 0; r < ROWS; r++) {
				run(o, b, &w, x + r * n_in, 1, y);
				memcpy(first + (size_t)r * width, y, bytes);
			}
		for (int n = 1; n <= ROWS; n += row_step) {
			run(o, b, &w, x, n, y);
			assert_memory_equal(y, first, (size_t)n * bytes);
			/* The same rows at another place in the batch. */
			run(o, b, &w, x + (ROWS - n) * n_in, n, y);
			assert_memory_equal(y, first + (size_t)(ROWS - n) * width, (size_t)n * bytes);
		}
		check_guards(y, ROWS * width);
		o->weight_free(b, &w);
		drop(o, b, x);
		drop(o, b, y);
		o->close(b);
		if (one_thread(o))
			break;
	}
	free(first);
	drop_matrix(&m);
}

#endif
