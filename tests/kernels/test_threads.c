/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads change no bit: products whose outputs are shared out as threads are free, element by element operations cut
 * within a row, and steps of which the backend remembers what came after what, though it is no longer there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/kernels/weights.h"

/* Outputs that are no multiple of a tile's; work enough for many shares; rows that are few, a few, and many. */
enum { N_IN = 512, N_OUT = 1037, MOST_ROWS = 17, WIDTH = 20011, MOST_THREADS = 7 };
static const int types[] = {KN_Q8_0, KN_Q4_K, KN_Q6_K, KN_F32, KN_Q4_0};
static const int row_counts[] = {1, 5, MOST_ROWS};

struct machine {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct kn_weight w[N(types)];
	float *x, *y; /* y: of all types, one after the other */
};

static void begin(struct machine *m, const struct kn_ops *o, const struct matrix *all, int n_threads)
{
	struct kn_config cfg = {.n_threads = n_threads, .max_rows = MOST_ROWS, .max_width = WIDTH};
	struct sl_err err = {0};
	*m = (struct machine){.o = o};
	assert_int_equal(o->open(&cfg, &m->b, &err), 0);
	for (int t = 0; t < N(types); t++)
		assert_int_equal(o->weight_load(m->b, all[t].bytes, types[t], N_OUT, N_IN, &m->w[t], &err), 0);
	state = 5;
	m->x = random_floats(o, m->b, (size_t)MOST_ROWS * N_IN);
	m->y = guarded(o, m->b, (size_t)N(types) * MOST_ROWS * N_OUT);
}

static void end(struct machine *m)
{
	check_guards(m->x, (size_t)MOST_ROWS * N_IN);
	check_guards(m->y, (size_t)N(types) * MOST_ROWS * N_OUT);
	drop(m->o, m->b, m->x);
	drop(m->o, m->b, m->y);
	for (int t = 0; t < N(types); t++)
		if (m->w[t].data != NULL)
			m->o->weight_free(m->b, &m->w[t]);
	m->o->close(m->b);
}

/* A step of products with every matrix that is there. */
static void multiply(struct machine *m, int n_rows)
{
	struct kn_step s = {.n_rows = n_rows};
	assert_int_equal(m->o->step_begin(m->b, &s), 0);
	for (int t = 0; t < N(types); t++)
		if (m->w[t].data != NULL)
			assert_int_equal(
			    m->o->matmul(m->b, &m->w[t], m->x, n_rows, m->y + (size_t)t * MOST_ROWS * N_OUT), 0);
	assert_int_equal(m->o->step_end(m->b), 0);
}

static void compare(const struct machine *m, const struct machine *one, int n_rows)
{
	for (int t = 0; t < N(types); t++) {
		size_t at = (size_t)t * MOST_ROWS * N_OUT, n = (size_t)n_rows * N_OUT;
		if (m->w[t].data != NULL && memcmp(m->y + at, one->y + at, n * sizeof *m->y) != 0)
			fail_msg("%s of %s: other bits with more threads, %d rows", kn_type_name(types[t]), m->o->name,
				 n_rows);
		memset(m->y + at, 0xff, n * sizeof *m->y);
	}
}

static void test_products(void **arg)
{
	(void)arg;
	struct matrix all[N(types)];
	for (int t = 0; t < N(types); t++)
		all[t] = make_matrix(types[t], N_OUT, N_IN);
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		if (strncmp((*o)->name, "cpu-", 4) != 0)
			continue;
		struct machine one, m;
		begin(&one, *o, all, 1);
		for (int n = 2; n <= MOST_THREADS; n += 1 + n / 3) {
			begin(&m, *o, all, n);
			for (int r = 0; r < N(row_counts); r++) {
				multiply(&one, row_counts[r]);
				/* Twice: the second step knows the order. */
				multiply(&m, row_counts[r]);
				compare(&m, &one, row_counts[r]);
				multiply(&m, row_counts[r]);
				compare(&m, &one, row_counts[r]);
			}
			/* What came second is gone. */
			m.o->weight_free(m.b, &m.w[1]);
			for (int k = 0; k < 3; k++) {
				multiply(&m, MOST_ROWS);
				compare(&m, &one, MOST_ROWS);
			}
			end(&m);
		}
		end(&one);
	}
	for (int t = 0; t < N(types); t++)
		drop_matrix(&all[t]);
}

/* One row of everything that has no sum, and rows of a norm of no whole vectors. */
static void elements(const struct kn_ops *o, int n_threads, float *const *got)
{
	enum { NORM = 1003, ROWS = 40 };
	struct kn_config cfg = {.n_threads = n_threads, .max_rows = ROWS, .max_width = WIDTH};
	struct kn_step s = {.n_rows = 1};
	struct sl_err err = {0};
	struct kn_backend *b;
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	state = 9;
	float *x = random_floats(o, b, 2 * (size_t)WIDTH), *up = random_floats(o, b, 2 * (size_t)WIDTH);
	assert_int_equal(o->step_begin(b, &s), 0);
#define KEEP(i) memcpy(got[i], x, 2 * WIDTH * sizeof *x)
	assert_int_equal(o->silu_mul(b, x, up, 1, WIDTH), 0);
	KEEP(0);
	assert_int_equal(o->gelu_mul(b, x, up, 2, WIDTH), 0);
	KEEP(1);
	assert_int_equal(o->add(b, x, up, 2, WIDTH), 0);
	KEEP(2);
	assert_int_equal(o->scale(b, x, 1.7f, 2, WIDTH), 0);
	KEEP(3);
	assert_int_equal(o->softcap(b, x, 3, 1, WIDTH), 0);
	KEEP(4);
	assert_int_equal(o->add_rmsnorm(b, x, up, up + WIDTH, 1e-5f, WIDTH / NORM, NORM, up), 0);
	KEEP(5);
	assert_int_equal(o->rmsnorm(b, up, up + WIDTH, 1e-5f, WIDTH / NORM, NORM, x), 0);
	KEEP(6);
#undef KEEP
	assert_int_equal(o->step_end(b), 0);
	check_guards(x, 2 * (size_t)WIDTH);
	check_guards(up, 2 * (size_t)WIDTH);
	drop(o, b, x);
	drop(o, b, up);
	o->close(b);
}

static void test_elements(void **arg)
{
	(void)arg;
	enum { KEPT = 7 };
	float *one[KEPT], *many[KEPT];
	for (int i = 0; i < KEPT; i++) {
		one[i] = calloc(2 * WIDTH, sizeof *one[i]);
		many[i] = calloc(2 * WIDTH, sizeof *many[i]);
		assert_true(one[i] != NULL && many[i] != NULL);
	}
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++) {
		if (strncmp((*o)->name, "cpu-", 4) != 0)
			continue;
		elements(*o, 1, one);
		for (int i = 0; i < 2 * WIDTH; i++)
			assert_true(one[3][i] == one[2][i] * 1.7f); /* the last ones too */
		for (int n = 2; n <= MOST_THREADS; n++) {
			elements(*o, n, many);
			for (int i = 0; i < KEPT; i++)
				if (memcmp(one[i], many[i], 2 * WIDTH * sizeof *one[i]) != 0)
					fail_msg("%s: other bits of operation %d with %d threads", (*o)->name, i, n);
		}
	}
	for (int i = 0; i < KEPT; i++) {
		free(one[i]);
		free(many[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_products),
	    cmocka_unit_test(test_elements),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
