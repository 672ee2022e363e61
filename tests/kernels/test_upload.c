/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights on their way to the device: while one piece is on the bus or being packed the next one is read, and the
 * caller's memory is free once the call returns, whatever kind of memory it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"
#include "tests/standin/standin_api.h"

enum { N_IN = 1024, N_OUT = 480, ROWS = 3 };

static const struct kn_ops *o;

static struct kn_backend *open_backend(void)
{
	struct kn_config cfg = {.max_rows = 8, .max_width = N_IN};
	struct kn_backend *b = NULL;
	struct sl_err err = {0};
	o = open_cuda();
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	return b;
}

/* What was given to the emulation since the last call. */
static const char *order(void)
{
	const char *(*uploads)(void);
	void *symbol = cuda_function("sluice_emulation_uploads");
	memcpy(&uploads, &symbol, sizeof uploads);
	return uploads();
}

static void forget_calls(void)
{
	void (*forget)(void);
	void *symbol = cuda_function("sluice_standin_log_clear");
	memcpy(&forget, &symbol, sizeof forget);
	forget();
}

/* On the stand-in: every copy comes from pinned memory, and with the second it is given while what came before it has
 * not run yet. */
static void expect_pending(void)
{
	enum { MOST = 400 };
	size_t (*log)(size_t, struct standin_event *, size_t);
	void *symbol = cuda_function("sluice_standin_log");
	memcpy(&log, &symbol, sizeof log);
	struct standin_event *e = calloc(MOST, sizeof *e);
	assert_non_null(e);
	size_t n = log(0, e, MOST), copies = 0;
	for (size_t i = 0; i < n; i++) {
		if (e[i].kind != STANDIN_COPY_IN)
			continue;
		assert_true(e[i].pinned);
		assert_true(copies++ == 0 || e[i].pending > 0);
	}
	assert_true(copies >= 6);
	free(e);
}

static float *matrix(void)
{
	float *w = malloc((size_t)N_OUT * N_IN * sizeof *w);
	assert_non_null(w);
	for (size_t i = 0; i < (size_t)N_OUT * N_IN; i++)
		w[i] = next_float();
	return w;
}

static void product(struct kn_backend *b, const struct kn_weight *w, const float *host_x, float *out)
{
	void *x, *y;
	struct kn_step s = {.n_rows = ROWS};
	assert_int_equal(o->mem_alloc(b, ROWS * N_IN * sizeof(float), &x), 0);
	assert_int_equal(o->mem_alloc(b, ROWS * N_OUT * sizeof(float), &y), 0);
	assert_int_equal(o->upload(b, x, host_x, ROWS * N_IN), 0);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, w, x, ROWS, y), 0);
	assert_int_equal(o->read_back(b, y, ROWS * N_OUT, out), 0);
	assert_int_equal(o->step_end(b), 0);
	o->mem_free(b, x);
	o->mem_free(b, y);
}

/* Piece n + 1 is read and its copy given before anything waits for piece n: "a" and "b" are waits for the piece before
 * the last, and none comes earlier than it has to. */
static void expect_overlap(const char *said, const char *piece)
{
	size_t n = strlen(piece), pieces = 0;
	for (const char *at = said; *at != '\0'; pieces++) {
		if (pieces >= 2)
			assert_int_equal(*at++, pieces % 2 == 0 ? 'a' : 'b');
		assert_memory_equal(at, piece, n);
		assert_int_equal(at[n], pieces % 2 == 0 ? '0' : '1');
		at += n + 1;
	}
	assert_true(pieces >= 6);
}

static void case_of(int type, const char *piece)
{
	struct kn_backend *b = open_backend();
	struct kn_weight w;
	struct sl_err err = {0};
	float *rows = matrix(), x[ROWS * N_IN], *out = calloc(2 * ROWS * N_OUT, sizeof *out);
	size_t bytes = kn_row_bytes(type, N_IN) * N_OUT;
	uint8_t *file = malloc(bytes);
	assert_true(file != NULL && out != NULL);
	if (type == KN_F32)
		memcpy(file, rows, bytes);
	else
		for (size_t i = 0; i < (size_t)N_OUT * N_IN; i++)
			((uint16_t *)(void *)file)[i] = (uint16_t)(0x3800 + (i * 7919) % 1024); /* 0.5 to 1 */
	for (int i = 0; i < ROWS * N_IN; i++)
		x[i] = next_float();
	for (int i = 0; i < 2; i++) {
		if (on_standin())
			forget_calls();
		else if (!on_device())
			order();
		uint8_t *copy = malloc(bytes);
		assert_non_null(copy);
		memcpy(copy, file, bytes);
		assert_int_equal(o->weight_load(b, copy, type, N_OUT, N_IN, &w, &err), 0);
		if (i > 0)
			memset(copy, 0x11, bytes); /* the device is behind */
		if (i == 0 && !on_device() && !on_standin())
			expect_overlap(order(), piece);
		if (i > 0 && on_standin() && device_is_late())
			expect_pending(); /* memory has its size now */
		product(b, &w, x, out + i * ROWS * N_OUT);
		o->weight_free(b, &w);
		free(copy);
	}
	assert_memory_equal(out, out + ROWS * N_OUT, ROWS * N_OUT * sizeof *out);
	free(file);
	free(rows);
	free(out);
	o->close(b);
}

static void test_packed(void **arg)
{
	(void)arg;
	case_of(KN_F16, "cp");
}

/* Copied to where they stay. */
static void test_floats(void **arg)
{
	(void)arg;
	case_of(KN_F32, "c");
}

/* A short copy's source may change at once. */
static void test_small(void **arg)
{
	(void)arg;
	struct kn_backend *b = open_backend();
	struct kn_step s = {.n_rows = 1};
	float values[64], out[64];
	void *x;
	assert_int_equal(o->mem_alloc(b, sizeof values, &x), 0);
	for (int i = 0; i < 64; i++)
		values[i] = (float)i;
	assert_int_equal(o->upload(b, x, values, 64), 0);
	memset(values, 0, sizeof values);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->read_back(b, x, 64, out), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = 0; i < 64; i++)
		assert_true(out[i] == (float)i);
	o->mem_free(b, x);
	o->close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_packed),
	    cmocka_unit_test(test_floats),
	    cmocka_unit_test(test_small),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
