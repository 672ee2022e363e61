/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotated keys and queries (kn_kv.rotate) of every table of this program: the transform against its definition in
 * double, products of queries and keys before and after, what pages then hold, and that a row's bits are its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/hadamard.h"
#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { HEADS = 4, KV_HEADS = 2, ROWS = 37, PAGE = 16, N_PAGES = 3, MAX_HEAD = 128 };

struct result {
	float q[ROWS * HEADS * MAX_HEAD], k[ROWS * KV_HEADS * MAX_HEAD];
	uint8_t pages[2][N_PAGES * PAGE * KV_HEADS * MAX_HEAD * sizeof(float)];
};

static struct kn_kv layout_of(int type, int head_dim, int rotate)
{
	return (struct kn_kv){.type = type,
			      .n_pages = N_PAGES,
			      .page_tokens = PAGE,
			      .n_layers = 1,
			      .n_kv_heads = KV_HEADS,
			      .head_dim = head_dim,
			      .rotate = rotate};
}

/* Rows first … first + n of the same text, in a step of their own. */
static void write_rows(const struct kn_ops *o, struct kn_kv kv, const float *x, int first, int n, struct result *out)
{
	static const int32_t pages[N_PAGES] = {2, 0, 1};
	int32_t pos[ROWS], seq[ROWS] = {0};
	double freq[MAX_HEAD / 2];
	int hd = kv.head_dim;
	size_t n_q = (size_t)(n * HEADS * hd), n_k = (size_t)(n * KV_HEADS * hd);
	struct kn_backend *b = open_with(o, &(struct kn_config){.n_threads = 2, .max_rows = 64, .max_width = 1024});
	for (int i = 0; i < n; i++)
		pos[i] = first + i;
	for (int i = 0; i < hd / 2; i++)
		freq[i] = pow(10000, -2.0 * i / hd);
	const struct kn_step s = {
	    .n_rows = n, .row_pos = pos, .row_seq = seq, .n_seqs = 1, .page_table = pages, .max_pages = N_PAGES};
	const struct kn_rope rope = {.n_rot = hd / 2 * 2, .magnitude = 1, .inv_freq = freq};
	float *q = guarded(o, b, n_q), *k = guarded(o, b, n_k), *v = guarded(o, b, n_k);
	size_t half = N_PAGES * kn_kv_page_bytes(&kv);
	kv.k = guarded(o, b, half / sizeof(float) + 1);
	kv.v = guarded(o, b, half / sizeof(float) + 1);
	memcpy(kv.k, out->pages[0], half);
	memcpy(kv.v, out->pages[1], half);
	memcpy(q, x + (size_t)(first * HEADS * hd), n_q * sizeof *q);
	memcpy(k, x + (size_t)((ROWS * HEADS + first * KV_HEADS) * hd), n_k * sizeof *k);
	memcpy(v, x + (size_t)((ROWS * (HEADS + KV_HEADS) + first * KV_HEADS) * hd), n_k * sizeof *v);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->rope_kv_write(b, &rope, q, HEADS, k, v, &kv, 0), 0);
	assert_int_equal(o->step_end(b), 0);
	memcpy(out->q + (size_t)(first * HEADS * hd), q, n_q * sizeof *q);
	memcpy(out->k + (size_t)(first * KV_HEADS * hd), k, n_k * sizeof *k);
	memcpy(out->pages[0], kv.k, half);
	memcpy(out->pages[1], kv.v, half);
	float *memory[] = {q, k, v, kv.k, kv.v};
	for (int i = 0; i < N(memory); i++)
		drop(o, b, memory[i]);
	o->close(b);
}

/* y is x with each block multiplied by the normalized matrix. Sums of log2(block) additions, and a product by a rounded
 * factor. */
static void check_transform(const struct kn_ops *o, const float *x, const float *y, int n, int block)
{
	for (int i = 0; i < n; i++) {
		double sum = 0, magnitude = 0;
		for (int j = 0, from = i / block * block; j < block; j++) {
			double term = (double)x[from + j];
			sum += __builtin_parity((unsigned)(i % block & j)) ? -term : term;
			magnitude += fabs(term);
		}
		expect_near("rotation", o, (double)y[i], sum / sqrt(block),
			    (gamma_of(__builtin_ctz((unsigned)block)) + 2.01 * U) * magnitude / sqrt(block));
	}
}

/* The products that attention makes, of the last row's queries with all keys. A rotated vector is off by the bound
 * above in each element, which is at most that share of √block of its length; both are. */
static void check_products(const struct kn_ops *o, const struct result *a, const struct result *b, int hd, int block)
{
	double each = 2 * sqrt(block) * (gamma_of(__builtin_ctz((unsigned)block)) + 2.01 * U) + 2 * gamma_of(hd);
	for (int h = 0; h < HEADS; h++)
		for (int p = 0; p < ROWS; p++) {
			size_t q = (size_t)(((ROWS - 1) * HEADS + h) * hd);
			size_t k = (size_t)((p * KV_HEADS + h / (HEADS / KV_HEADS)) * hd);
			double before = 0, after = 0, qq = 0, kk = 0;
			for (int d = 0; d < hd; d++) {
				before += (double)a->q[q + (size_t)d] * (double)a->k[k + (size_t)d];
				after += (double)b->q[q + (size_t)d] * (double)b->k[k + (size_t)d];
				qq += (double)a->q[q + (size_t)d] * (double)a->q[q + (size_t)d];
				kk += (double)a->k[k + (size_t)d] * (double)a->k[k + (size_t)d];
			}
			expect_near("a product", o, after, before, each * sqrt(qq * kk));
		}
}

/* Pages hold the rotated keys that came back, rounded as kv_type.h defines it, and values as without. */
static void check_pages(const struct kn_kv *kv, const struct result *plain, const struct result *r)
{
	static const int32_t pages[N_PAGES] = {2, 0, 1};
	struct result want = {.q = {0}};
	size_t half = N_PAGES * kn_kv_page_bytes(kv);
	memset(want.pages, 0, sizeof want.pages);
	for (int p = 0; p < ROWS; p++)
		for (int h = 0; h < KV_HEADS; h++)
			kn_kv_put(kv->type, want.pages[0] + kn_kv_block_at(kv, pages[p / PAGE], 0, h), true, PAGE,
				  kv->head_dim, p % PAGE, r->k + (size_t)((p * KV_HEADS + h) * kv->head_dim));
	assert_memory_equal(r->pages[0], want.pages[0], half);
	assert_memory_equal(r->pages[1], plain->pages[1], half);
}

static void rotation_case(const struct kn_ops *o, int type, int head_dim)
{
	static struct result plain, rotated, parts;
	static float x[ROWS * (HEADS + 2 * KV_HEADS) * MAX_HEAD];
	int block = kn_hadamard_block(head_dim);
	for (int i = 0; i < N(x); i++)
		x[i] = next_float() * (i % head_dim == 5 ? 20 : 1);
	memset(&plain, 0, sizeof plain);
	memset(&rotated, 0, sizeof rotated);
	memset(&parts, 0, sizeof parts);
	const struct kn_kv kv = layout_of(type, head_dim, block);
	write_rows(o, layout_of(type, head_dim, 0), x, 0, ROWS, &plain);
	write_rows(o, kv, x, 0, ROWS, &rotated);
	for (int first = 0, n; first < ROWS; first += n) {
		n = first % 5 + 1 < ROWS - first ? first % 5 + 1 : ROWS - first;
		write_rows(o, kv, x, first, n, &parts);
	}
	assert_memory_equal(&parts, &rotated, sizeof parts);
	check_transform(o, plain.q, rotated.q, ROWS * HEADS * head_dim, block);
	check_transform(o, plain.k, rotated.k, ROWS * KV_HEADS * head_dim, block);
	check_products(o, &plain, &rotated, head_dim, block);
	check_pages(&kv, &plain, &rotated);
}

static void test_rotation(void **arg)
{
	(void)arg;
	static const int dims[] = {32, 40, 64, 96, 128, 42};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0, type; (type = kn_kv_type_at(i)) >= 0 && (*o)->rotates; i++)
			for (int d = 0; d < N(dims) && (*o)->kv_type(type); d++)
				rotation_case(*o, type, dims[d]);
}

/* The error of int8 keys with a channel of 20 σ, which takes nearly all of the scale for itself. */
static void test_outliers_cost_less(void **arg)
{
	enum { TOKENS = 400, HEAD = 64 };
	(void)arg;
	double error[2] = {0, 0};
	for (int t = 0; t < TOKENS; t++) {
		float k[2][HEAD], q[2][HEAD], block[HEAD + 4];
		double want = 0;
		for (int d = 0; d < HEAD; d++) {
			k[0][d] = k[1][d] = next_float() * (d == 9 ? 20 : 1);
			q[0][d] = q[1][d] = next_float() / (d == 9 ? 20 : 1);
			want += (double)q[0][d] * (double)k[0][d];
		}
		kn_hadamard(k[1], HEAD, HEAD);
		kn_hadamard(q[1], HEAD, HEAD);
		for (int r = 0; r < 2; r++) {
			double got = 0;
			kn_kv_put(KN_KV_Q8, block, true, 1, HEAD, 0, k[r]);
			for (int d = 0; d < HEAD; d++)
				got += (double)q[r][d] * (double)kn_kv_get(KN_KV_Q8, block, true, 1, HEAD, 0, d);
			error[r] += (got - want) * (got - want);
		}
	}
	print_message("squared error with rotation: %.3f of without\n", error[1] / error[0]);
	assert_true(error[1] <= 0.15 * error[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rotation), cmocka_unit_test(test_outliers_cost_less)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
