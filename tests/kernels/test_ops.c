/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation of every table this processor can run, and of the emulated CUDA kernels, against the same computation in double
 * (long double for angles) written here. Bounds are derived per output beside each case; U is the
 * unit roundoff of float32, and gamma(n) = nU/(1-nU) bounds the error of any summation of n products
 * by fused multiply-adds, in any order, relative to the sum of the magnitudes (Higham, "Accuracy and
 * Stability of Numerical Algorithms", 2nd ed., section 3.1).
 *
 * Outputs lie between canaries and are NaN before. The tables here all compute on the host, so the
 * test reads and writes their memory directly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/kv_type.h"
#include "tests/kernels/eight_bits.h"
#include "tests/kernels/tables.h"

#define U 0x1p-24
#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { GUARD = 16, MAX_WIDTH = 8448 };
static const int types[] = {KN_F32, KN_F16, KN_BF16, KN_Q8_0};
static const int thread_counts[] = {1, 2, 4};

static double gamma_of(int n)
{
	return n * U / (1 - n * U);
}

/* ---- numbers and memory ---- */

static uint64_t state = 1;

static uint32_t next_bits(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 32);
}

/* Uniform in [-1, 1), with all 24 bits. */
static float next_float(void)
{
	return (float)((int32_t)(next_bits() >> 7) - (1 << 24)) * 0x1p-24f;
}

static struct kn_backend *open_table(const struct kn_ops *o, int n_threads)
{
	struct kn_config cfg = {.n_threads = n_threads, .max_rows = 64, .max_width = MAX_WIDTH};
	struct kn_backend *b = NULL;
	struct sl_err err = {0};
	assert_int_equal(o->open(&cfg, &b, &err), 0);
	assert_non_null(o->describe(b));
	return b;
}

/* n floats between two guards; the first is KN_ALIGN-aligned. */
static float *guarded(const struct kn_ops *o, struct kn_backend *b, size_t n)
{
	void *p;
	assert_int_equal(o->mem_alloc(b, (n + 2 * GUARD) * sizeof(float), &p), 0);
	assert_int_equal((uintptr_t)p % KN_ALIGN, 0);
	float *f = p;
	for (size_t i = 0; i < n + 2 * GUARD; i++)
		assert_true(f[i] == 0);
	for (size_t i = 0; i < GUARD; i++)
		f[i] = f[GUARD + n + i] = -12345.75f - (float)i;
	for (size_t i = 0; i < n; i++)
		f[GUARD + i] = NAN;
	return f + GUARD;
}

static void check_guards(const float *f, size_t n)
{
	for (size_t i = 0; i < GUARD; i++) {
		assert_true(f[(ptrdiff_t)i - GUARD] == -12345.75f - (float)i);
		assert_true(f[n + i] == -12345.75f - (float)i);
	}
}

static void drop(const struct kn_ops *o, struct kn_backend *b, float *f)
{
	o->mem_free(b, f - GUARD);
}

static float *random_floats(const struct kn_ops *o, struct kn_backend *b, size_t n)
{
	float *f = guarded(o, b, n);
	for (size_t i = 0; i < n; i++)
		f[i] = next_float();
	return f;
}

/* Results are the host's only after a step's end. */
static void end_step(const struct kn_ops *o, struct kn_backend *b, const struct kn_step *next)
{
	assert_int_equal(o->step_end(b), 0);
	if (next != NULL)
		assert_int_equal(o->step_begin(b, next), 0);
}

/* |got - want| ≤ bound; a NaN fails. */
static void near(const char *what, const struct kn_ops *o, double got, double want, double bound)
{
	if (!(fabs(got - want) <= bound))
		fail_msg("%s of %s: %.9g, not %.9g within %.3g", what, o->name, got, want, bound);
}

/* ---- weights ---- */

struct matrix {
	uint8_t *bytes; /* 8-byte aligned and no more, as a file may have them */
	void *owned;
	double *values;
	int type, n_out, n_in;
};

static double f16_value(uint16_t h)
{
	int exp = h >> 10 & 31, man = h & 1023;
	double v = exp == 0 ? ldexp(man, -24) : ldexp(1024 + man, exp - 25);
	return h & 0x8000 ? -v : v;
}

static double bf16_value(uint16_t h)
{
	int exp = h >> 7 & 255, man = h & 127;
	double v = exp == 0 ? ldexp(man, -133) : ldexp(128 + man, exp - 134);
	return h & 0x8000 ? -v : v;
}

/* Random bits of the type, so that subnormal f16 values and -128 occur. */
static struct matrix make_matrix(int type, int n_out, int n_in)
{
	struct matrix m = {.type = type, .n_out = n_out, .n_in = n_in};
	size_t row = kn_row_bytes(type, (size_t)n_in), n = (size_t)n_out * (size_t)n_in;
	m.owned = aligned_alloc(64, (row * (size_t)n_out + 8 + 63) / 64 * 64);
	m.values = calloc(n, sizeof *m.values);
	assert_true(m.owned != NULL && m.values != NULL);
	m.bytes = (uint8_t *)m.owned + 8;
	uint8_t *at = m.bytes;
	double scale = 0;
	for (size_t i = 0; i < n; i++) {
		uint16_t h = (uint16_t)next_bits();
		float f = next_float();
		switch (type) {
		case KN_F32:
			memcpy(at, &f, 4);
			m.values[i] = (double)f;
			at += 4;
			break;
		case KN_F16:
			h &= 0xBFFF; /* below 2 */
			memcpy(at, &h, 2);
			m.values[i] = f16_value(h);
			at += 2;
			break;
		case KN_BF16:
			h = (uint16_t)((h & 0x83FF) | 0x3C00); /* from 2^-7 to below 2 */
			h = (h & 0x7F80) > 0x3F80 ? (uint16_t)(h & ~0x80) : h;
			memcpy(at, &h, 2);
			m.values[i] = bf16_value(h);
			at += 2;
			break;
		default:
			if (i % 32 == 0) {
				h &= 0xA7FF; /* the scale: below 2^-5, at times subnormal */
				memcpy(at, &h, 2);
				scale = f16_value(h);
				at += 2;
			}
			*at = (uint8_t)next_bits();
			m.values[i] = scale * (int8_t)*at;
			at++;
			break;
		}
	}
	return m;
}

static void drop_matrix(struct matrix *m)
{
	free(m->owned);
	free(m->values);
}

static struct kn_weight load(const struct kn_ops *o, struct kn_backend *b, const struct matrix *m)
{
	struct kn_weight w;
	struct sl_err err = {0};
	assert_int_equal(o->weight_load(b, m->bytes, m->type, m->n_out, m->n_in, &w, &err), 0);
	return w;
}

/* ---- matmul ---- */

static void matmul_case(const struct kn_ops *o, struct kn_backend *b, int type, int n_out, int n_in, int n_rows)
{
	struct matrix m = make_matrix(type, n_out, n_in);
	struct kn_weight w = load(o, b, &m);
	struct kn_step s = {.n_rows = n_rows};
	size_t n = (size_t)n_rows * (size_t)n_out;
	float *x = random_floats(o, b, (size_t)n_rows * (size_t)n_in), *y = guarded(o, b, n);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w, x, n_rows, y), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int r = 0; r < n_rows; r++)
		for (int i = 0; i < n_out; i++) {
			double sum = 0, magnitude = 0, weights = 0, e = activation_error(o, type);
			for (int k = 0; k < n_in; k++) {
				double p = m.values[i * n_in + k] * (double)x[r * n_in + k];
				sum += p;
				magnitude += fabs(p);
				weights += fabs(m.values[i * n_in + k]);
			}
			/* Dequantized weights are exact in float32 (Q8_0: 11 bits times 8), so all the error is
			 * the summation's, or the activations', which are below one. */
			double bound = (gamma_of(n_in) * (1 + e) + e) * magnitude + activation_floor(o, type) * weights;
			if (eight_bits(o, type))
				bound += eight_bits_error(m.values + (size_t)i * (size_t)n_in, x + (size_t)r * (size_t)n_in, n_in);
			near("matmul", o, (double)y[r * n_out + i], sum, bound);
		}
	check_guards(y, n);
	check_guards(x, (size_t)n_rows * (size_t)n_in);
	o->weight_free(b, &w);
	drop(o, b, x);
	drop(o, b, y);
	drop_matrix(&m);
}

static void test_matmul(void **arg)
{
	(void)arg;
	static const int outs[] = {1, 2, 3, 5, 17, 33}, rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};
	static const int ins[] = {1, 2, 7, 8, 15, 16, 17, 31, 40, 100, 263}, blocks[] = {32, 64, 96, 160};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		struct kn_backend *b = open_table(*o, 2);
		for (int t = 0; t < N(types); t++) {
			bool q8 = types[t] == KN_Q8_0;
			for (int k = 0; k < (q8 ? N(blocks) : N(ins)); k++)
				for (int i = 0; i < N(outs); i++)
					for (int r = 0; r < N(rows); r++)
						matmul_case(*o, b, types[t], outs[i], q8 ? blocks[k] : ins[k], rows[r]);
			/* Wide enough to be shared among threads, with an odd end. */
			matmul_case(*o, b, types[t], 523, 1024, 3);
		}
		(*o)->close(b);
	}
}

/* A row's result has the same bits in any company and with any number of threads. */
static void matmul_identity(const struct kn_ops *o, int type, int n_out, int n_in, int row_step)
{
	enum { ROWS = 33 };
	struct matrix m = make_matrix(type, n_out, n_in);
	size_t width = (size_t)n_out, bytes = width * sizeof(float);
	float *first = malloc(ROWS * bytes);
	uint64_t start = state;
	for (int t = 0; t < N(thread_counts); t++) {
		struct kn_backend *b = open_table(o, thread_counts[t]);
		struct kn_weight w = load(o, b, &m);
		state = start;
		float *x = random_floats(o, b, (size_t)ROWS * (size_t)n_in), *y = guarded(o, b, ROWS * width);
		struct kn_step s = {.n_rows = ROWS};
		assert_int_equal(o->step_begin(b, &s), 0);
		if (t == 0)
			for (int r = 0; r < ROWS; r++)
				assert_int_equal(o->matmul(b, &w, x + r * n_in, 1, first + (size_t)r * width), 0);
		for (int n = 1; n <= ROWS; n += row_step) {
			assert_int_equal(o->matmul(b, &w, x, n, y), 0);
			end_step(o, b, &s);
			assert_memory_equal(y, first, (size_t)n * bytes);
			/* The same rows at another place in the batch. */
			assert_int_equal(o->matmul(b, &w, x + (ROWS - n) * n_in, n, y), 0);
			end_step(o, b, &s);
			assert_memory_equal(y, first + (size_t)(ROWS - n) * width, (size_t)n * bytes);
		}
		assert_int_equal(o->step_end(b), 0);
		check_guards(y, ROWS * width);
		drop(o, b, x);
		drop(o, b, y);
		o->weight_free(b, &w);
		o->close(b);
		if (one_thread(o))
			break;
	}
	free(first);
	drop_matrix(&m);
}

static void test_matmul_identity(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int t = 0; t < N(types); t++) {
			matmul_identity(*o, types[t], 35, types[t] == KN_Q8_0 ? 96 : 101, 1);
			matmul_identity(*o, types[t], 261, 1024, 8);
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
						near("rmsnorm", *o, (double)y[r * width + j], want,
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
					assert_int_equal((*o)->add_rmsnorm(b, sum, more, gain, eps, n_rows, width, z), 0);
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
				near("silu", *o, (double)x[j], want,
				     5.01 * U * fabs(want) + fabs(g * (double)y[j]) / (double)FLT_MAX + 0x1p-149);
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

/* ---- keys, values, attention ---- */

enum { N_SEQS = 3, LAYERS = 2, LAYER = 1, MAX_HEAD = 128 };
static const int32_t row_seq[] = {1, 0, 2, 0, 1, 0, 1, 0, 2, 1, 0};
static const int32_t row_pos[] = {512, 0, 3, 255, 257, 1, 511, 256, 17, 510, 254};

struct cache {
	struct kn_kv kv;
	struct kn_step step;
	int32_t table[N_SEQS * 64];
	size_t n; /* floats that k takes the room of */
};

/* Pages scattered by a stride coprime to their number; unheld entries are no page at all. What nobody has
 * written is no number in any type, nor is its scale (in q8 the scale alone). */
static void make_cache(struct cache *c, const struct kn_ops *o, struct kn_backend *b, int type, int page_tokens,
		       int n_kv_heads, int head_dim)
{
	int pages = 0, n_rows = N(row_pos);
	c->kv = (struct kn_kv){.type = type, .n_pages = 83, .page_tokens = page_tokens, .n_layers = LAYERS,
			       .n_kv_heads = n_kv_heads, .head_dim = head_dim};
	c->n = ((size_t)c->kv.n_pages * kn_kv_page_bytes(&c->kv) + 3) / sizeof(float);
	c->kv.k = guarded(o, b, c->n);
	c->kv.v = guarded(o, b, c->n);
	memset(c->kv.k, 0xFF, c->n * sizeof(float));
	memset(c->kv.v, 0xFF, c->n * sizeof(float));
	for (int i = 0; i < N(c->table); i++)
		c->table[i] = -1;
	static const int longest[N_SEQS] = {257, 513, 18};
	for (int s = 0; s < N_SEQS; s++)
		for (int p = 0; p * page_tokens < longest[s]; p++)
			c->table[s * 64 + p] = (pages++ * 29 + 7) % c->kv.n_pages;
	assert_true(pages <= c->kv.n_pages);
	c->step = (struct kn_step){.n_rows = n_rows, .row_pos = row_pos, .row_seq = row_seq, .n_seqs = N_SEQS,
				   .page_table = c->table, .max_pages = 64};
}

/* The block of a position's page and head. */
static void *block_at(const struct cache *c, bool keys, int layer, int seq, int pos, int head)
{
	return (uint8_t *)(keys ? c->kv.k : c->kv.v) +
	       kn_kv_block_at(&c->kv, c->table[seq * 64 + pos / c->kv.page_tokens], layer, head);
}

static double kv_get(const struct cache *c, bool keys, int seq, int pos, int head, int d)
{
	const struct kn_kv *kv = &c->kv;
	return (double)kn_kv_get(kv->type, block_at(c, keys, LAYER, seq, pos, head), keys, kv->page_tokens, kv->head_dim,
				 pos % kv->page_tokens, d);
}

static void kv_put(const struct cache *c, bool keys, int seq, int pos, int head, const float *x)
{
	const struct kn_kv *kv = &c->kv;
	kn_kv_put(kv->type, block_at(c, keys, LAYER, seq, pos, head), keys, kv->page_tokens, kv->head_dim,
		  pos % kv->page_tokens, x);
}

static void check_attention(const struct cache *c, const struct kn_ops *o, const float *q, int n_heads,
			    const struct kn_attn *how, const float *out)
{
	static double s[513], w[513];
	int hd = c->kv.head_dim;
	double scale = (double)how->scale, cap = (double)how->softcap;
	/* An element with a scale is rounded where it is multiplied, here each by itself, there the sum or the
	 * weight: U for either. */
	double scaled = kn_kv_has_scales(c->kv.type) ? 2 * U : 0;
	for (int i = 0; i < c->step.n_rows * n_heads; i++) {
		int row = i / n_heads, head = i % n_heads / (n_heads / c->kv.n_kv_heads);
		int n = row_pos[row] + 1, seq = row_seq[row], blocks = (n + KN_ATTN_BLOCK - 1) / KN_ATTN_BLOCK;
		int from = how->window > 0 && n > how->window ? n - how->window : 0;
		double max = -INFINITY, min = INFINITY, sum = 0, score_error = 0;
		for (int p = from; p < n; p++) {
			double dot = 0, magnitude = 0;
			for (int d = 0; d < hd; d++) {
				double x = (double)q[i * hd + d] * kv_get(c, true, seq, p, head, d);
				dot += x;
				magnitude += fabs(x);
			}
			s[p] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
			max = fmax(max, s[p]);
			min = fmin(min, s[p]);
			score_error = fmax(score_error, (gamma_of(hd) + U + scaled) * magnitude * scale + 4 * U * cap);
		}
		for (int p = from; p < n; p++)
			sum += w[p] = exp(s[p] - max);
		/* A weight: its score is off by score_error, its difference to the maximum by U of the range,
		 * its exponential by 2U; each later block may shrink it by a factor that is off by as much
		 * and a product. That stands above and below the fraction; so does a summation of n terms.
		 * The quotient adds U. The factor covers the second order. */
		double range = max - min + 2 * score_error;
		double weight_error = score_error + blocks * (U * range + 3 * U);
		double relative = 1.001 * (2 * weight_error + 2 * gamma_of(n) + U + scaled);
		for (int d = 0; d < hd; d++) {
			double want = 0, magnitude = 0;
			for (int p = from; p < n; p++) {
				double x = w[p] / sum * kv_get(c, false, seq, p, head, d);
				want += x;
				magnitude += fabs(x);
			}
			near("attention", o, (double)out[i * hd + d], want, relative * magnitude);
		}
	}
}

static void attention_case(const struct kn_ops *o, int type, int head_dim, int group, int page_tokens, float sharpness,
			   int window, float softcap)
{
	int n_kv_heads = 2, n_heads = 2 * group, n_rows = N(row_pos);
	size_t row = (size_t)n_heads * (size_t)head_dim, n = (size_t)n_rows * row;
	const struct kn_attn how = {.scale = sharpness / sqrtf((float)head_dim), .softcap = softcap, .window = window};
	float *first = malloc(n * sizeof *first);
	uint64_t start = state;
	for (int t = 0; t < N(thread_counts); t++) {
		struct kn_backend *b = open_table(o, thread_counts[t]);
		struct cache c;
		state = start;
		make_cache(&c, o, b, type, page_tokens, n_kv_heads, head_dim);
		/* Only held positions of the layer are numbers: whatever else is read shows as NaN. */
		static const int longest[N_SEQS] = {257, 513, 18};
		for (int s = 0; s < N_SEQS; s++)
			for (int p = 0; p < longest[s]; p++)
				for (int side = 0; side < 2 * n_kv_heads; side++) {
					float x[MAX_HEAD];
					for (int d = 0; d < head_dim; d++)
						x[d] = next_float();
					kv_put(&c, side % 2 == 0, s, p, side / 2, x);
				}
		float *q = random_floats(o, b, n), *out = guarded(o, b, n);
		assert_int_equal(o->step_begin(b, &c.step), 0);
		assert_int_equal(o->attention(b, q, n_heads, &c.kv, LAYER, &how, out), 0);
		assert_int_equal(o->step_end(b), 0);
		check_guards(out, n);
		check_guards(c.kv.k, c.n);
		check_guards(c.kv.v, c.n);
		if (t == 0) {
			check_attention(&c, o, q, n_heads, &how, out);
			memcpy(first, out, n * sizeof *first);
		}
		assert_memory_equal(out, first, n * sizeof *first);
		/* Alone. */
		for (int r = 0; r < n_rows; r++) {
			struct kn_step alone = c.step;
			alone.n_rows = 1;
			alone.row_pos += r;
			alone.row_seq += r;
			assert_int_equal(o->step_begin(b, &alone), 0);
			assert_int_equal(o->attention(b, q + (size_t)r * row, n_heads, &c.kv, LAYER, &how, out), 0);
			assert_int_equal(o->step_end(b), 0);
			assert_memory_equal(out, first + (size_t)r * row, row * sizeof *first);
		}
		drop(o, b, q);
		drop(o, b, out);
		drop(o, b, c.kv.k);
		drop(o, b, c.kv.v);
		o->close(b);
		if (one_thread(o))
			break;
	}
	free(first);
}

static void test_attention(void **arg)
{
	(void)arg;
	static const int dims[] = {32, 40, 64, 96, 128}, groups[] = {1, 2, 4, 8};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0, type; (type = kn_kv_type_at(i)) >= 0; i++) {
			if (!(*o)->kv_type(type))
				continue;
			/* On matrix units, with other errors: test_cuda_attention.c. */
			if (strncmp((*o)->name, "cuda", 4) == 0 && type != KN_F32)
				continue;
			for (int d = 0; d < N(dims); d++)
				attention_case(*o, type, dims[d], groups[d % 4], 16, 1, 0, 0);
			attention_case(*o, type, 42, 2, 16, 1, 1, 0);
			attention_case(*o, type, 64, 12, 16, 1, 257, 0);
			for (int g = 0; g < N(groups) && type != KN_BF16; g++)
				attention_case(*o, type, 32, groups[g], 24, g % 2 ? 8 : 1, 100 + 90 * g, g % 2 ? 0 : 3);
		}
}

static void rope_case(const struct kn_ops *o, int type, int head_dim, int n_rot, bool halves, float magnitude)
{
	enum { KV_HEADS = 2, HEADS = 6 };
	struct kn_backend *b = open_table(o, 2);
	struct cache c;
	make_cache(&c, o, b, type, 16, KV_HEADS, head_dim);
	double inv_freq[64];
	for (int i = 0; i < n_rot / 2; i++)
		inv_freq[i] = pow(10000, -2.0 * i / n_rot);
	struct kn_rope rope = {.n_rot = n_rot, .halves = halves, .magnitude = magnitude, .inv_freq = inv_freq};
	size_t n = (size_t)(N(row_pos) * HEADS * head_dim), n_kv = (size_t)(N(row_pos) * KV_HEADS * head_dim);
	float *both[] = {random_floats(o, b, n), random_floats(o, b, n_kv)}, *v = random_floats(o, b, n_kv);
	float *was[] = {malloc(n * sizeof(float)), malloc(n_kv * sizeof(float))};
	/* Numbers that no type holds as they are, one of each in a head of its own, and a head of zeros. */
	static const float odd[] = {1e6f, -1e6f, 3.3e38f, 1e-9f, -0.0f, INFINITY, -INFINITY, NAN};
	for (int i = 0; i < N(odd); i++)
		v[i * head_dim + i] = odd[i];
	memset(v + N(odd) * head_dim, 0, (size_t)head_dim * sizeof *v);
	memcpy(was[0], both[0], n * sizeof(float));
	memcpy(was[1], both[1], n_kv * sizeof(float));
	assert_int_equal(o->step_begin(b, &c.step), 0);
	assert_int_equal(o->rope_kv_write(b, &rope, both[0], HEADS, both[1], v, &c.kv, LAYER), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int which = 0; which < 2; which++) {
		int heads = which ? KV_HEADS : HEADS;
		for (int i = 0; i < N(row_pos) * heads; i++) {
			const float *x = was[which] + i * head_dim, *y = both[which] + i * head_dim;
			for (int p = 0; p < n_rot / 2; p++) {
				int d = halves ? p : 2 * p, d2 = halves ? p + n_rot / 2 : d + 1;
				long double angle = (long double)row_pos[i / heads] * (long double)inv_freq[p];
				double cs = (double)(cosl(angle) * (long double)magnitude);
				double sn = (double)(sinl(angle) * (long double)magnitude);
				double a = (double)x[d], e = (double)x[d2];
				/* Sine and cosine rounded, a product, a sum: 3U of the magnitudes. The angle
				 * itself, in double, is off by some 2^-51 of it: below U/2^10 up to 2^17. */
				near("rope", o, (double)y[d], a * cs - e * sn,
				     3.01 * U * (fabs(a * cs) + fabs(e * sn)) + U / 1024);
				near("rope", o, (double)y[d2], a * sn + e * cs,
				     3.01 * U * (fabs(a * sn) + fabs(e * cs)) + U / 1024);
			}
			assert_memory_equal(y + n_rot, x + n_rot, (size_t)(head_dim - n_rot) * sizeof *x);
		}
	}
	/* Every row's k and v stand in their page, and nothing else was written. */
	float *wrote[] = {c.kv.k, c.kv.v}, *from[] = {both[1], v};
	for (int side = 0; side < 2; side++) {
		float *want = malloc(c.n * sizeof *want);
		memset(want, 0xFF, c.n * sizeof *want);
		*(side ? &c.kv.v : &c.kv.k) = want;
		for (int i = 0; i < N(row_pos) * KV_HEADS; i++)
			kv_put(&c, side == 0, row_seq[i / KV_HEADS], row_pos[i / KV_HEADS], i % KV_HEADS,
			       from[side] + i * head_dim);
		assert_memory_equal(wrote[side], want, c.n * sizeof *want);
		free(want);
	}
	c.kv.k = wrote[0];
	c.kv.v = wrote[1];
	check_guards(both[0], n);
	check_guards(both[1], n_kv);
	check_guards(c.kv.k, c.n);
	check_guards(c.kv.v, c.n);
	float *memory[] = {both[0], both[1], v, c.kv.k, c.kv.v};
	for (int i = 0; i < N(memory); i++)
		drop(o, b, memory[i]);
	free(was[0]);
	free(was[1]);
	o->close(b);
}

static void test_rope(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0, type; (type = kn_kv_type_at(i)) >= 0; i++) {
			if (!(*o)->kv_type(type))
				continue;
			rope_case(*o, type, 32, 32, false, 1);
			rope_case(*o, type, 40, 24, false, 1.25f);
			rope_case(*o, type, 42, 24, false, 1);
			rope_case(*o, type, 128, 128, true, 1);
			rope_case(*o, type, 64, 48, true, 0.75f);
		}
}

static void copy_case(const struct kn_ops *o, int type)
{
	struct kn_backend *b = open_table(o, 1);
	struct cache c;
	make_cache(&c, o, b, type, 16, 2, 40);
	void *sides[] = {c.kv.k, c.kv.v};
	size_t page = kn_kv_page_bytes(&c.kv), bytes = c.n * sizeof(float);
	for (int i = 0; i < 2; i++) {
		uint8_t *was = malloc(bytes), *now = sides[i];
		for (size_t j = 0; j < bytes; j++)
			now[j] = (uint8_t)next_bits();
		memcpy(was, now, bytes);
		const struct kn_step none = {.n_rows = 1};
		assert_int_equal(o->page_copy(b, &c.kv, 82, 5), 0);
		assert_int_equal(o->step_begin(b, &none), 0); /* whose end comes after it */
		assert_int_equal(o->step_end(b), 0);
		memcpy(was + 5 * page, was + 82 * page, page);
		assert_memory_equal(now, was, bytes);
		check_guards(sides[i], c.n);
		free(was);
	}
	drop(o, b, c.kv.k);
	drop(o, b, c.kv.v);
	o->close(b);
}

static void test_page_copy(void **arg)
{
	(void)arg;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; kn_kv_type_at(i) >= 0; i++)
			if ((*o)->kv_type(kn_kv_type_at(i)))
				copy_case(*o, kn_kv_type_at(i));
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
	    cmocka_unit_test(test_tables),     cmocka_unit_test(test_matmul),
	    cmocka_unit_test(test_matmul_identity), cmocka_unit_test(test_embed),
	    cmocka_unit_test(test_rmsnorm),    cmocka_unit_test(test_elementwise),
	    cmocka_unit_test(test_attention),  cmocka_unit_test(test_rope),
	    cmocka_unit_test(test_page_copy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
