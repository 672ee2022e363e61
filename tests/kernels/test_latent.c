/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent rows on every table that has them: rows in their pages and turned queries against the definition in double,
 * attention against a softmax over what is in the pages, products of heads bit for bit against the table's own products
 * of one head and row. A row's bits are those it has alone, on any number of threads, and memory of other positions,
 * whose bytes are all ones, is never read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { PAGES = 128, LAYERS = 2, LAYER = 1, SEQS = 2, LONGEST = 530, MOST_HEADS = 37, MOST_WIDTH = 96 };

struct shape {
	int type, n_heads, latent, turned, plain, page_tokens;
	bool halves;
};

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct kn_kv kv;
	struct kn_rope rope;
	double inv_freq[MOST_WIDTH];
	float gain[MOST_WIDTH];
	int32_t table[SEQS * PAGES];
};

static void open_rig(struct rig *r, const struct kn_ops *o, const struct shape *s, int n_threads)
{
	int width = s->latent + s->turned, per_seq = (LONGEST + s->page_tokens - 1) / s->page_tokens;
	*r = (struct rig){.o = o};
	r->b = open_with(o, &(struct kn_config){.n_threads = n_threads, .max_rows = LONGEST, .max_width = 4096});
	r->kv = (struct kn_kv){.type = s->type,
			       .n_pages = SEQS * per_seq,
			       .page_tokens = s->page_tokens,
			       .n_layers = LAYERS,
			       .n_kv_heads = 1,
			       .head_dim = width,
			       .latent = s->latent};
	size_t bytes = kn_kv_page_bytes(&r->kv) * (size_t)r->kv.n_pages;
	assert_true(per_seq <= PAGES && width <= MOST_WIDTH);
	assert_int_equal(o->mem_alloc(r->b, bytes, &r->kv.k), 0);
	assert_int_equal(o->mem_alloc(r->b, bytes, &r->kv.v), 0);
	memset(r->kv.k, 0xFF, bytes);
	memset(r->kv.v, 0xFF, bytes);
	for (int i = 0; i < SEQS * PAGES; i++)
		r->table[i] = i % PAGES < per_seq ? (i % PAGES * SEQS + i / PAGES) * 7 % (SEQS * per_seq) : -1;
	for (int i = 0; i < s->turned / 2; i++)
		r->inv_freq[i] = pow(100, -2.0 * i / s->turned);
	for (int i = 0; i < s->latent; i++)
		r->gain[i] = 1 + 0.5f * (float)sin(i);
	r->rope =
	    (struct kn_rope){.n_rot = s->turned, .halves = s->halves, .magnitude = 1.25f, .inv_freq = r->inv_freq};
}

static void close_rig(struct rig *r)
{
	r->o->mem_free(r->b, r->kv.k);
	r->o->mem_free(r->b, r->kv.v);
	r->o->close(r->b);
}

/* Element d of a position's row, as it is in its page. */
static double element(const struct rig *r, int seq, int pos, int d)
{
	const struct kn_kv *kv = &r->kv;
	int token = pos % kv->page_tokens;
	const void *rows = kn_kv_latent_block(kv, r->table[seq * PAGES + pos / kv->page_tokens], LAYER, &token);
	return (double)kn_kv_get(kv->type, rows, false, kv->page_tokens / 2, kv->head_dim, token, d);
}

static void turned(const struct rig *r, const float *x, int pos, double *y)
{
	int half = r->rope.n_rot / 2;
	for (int i = 0; i < half; i++) {
		int a = r->rope.halves ? i : 2 * i, b = r->rope.halves ? i + half : 2 * i + 1;
		double c = cos(pos * r->inv_freq[i]) * (double)r->rope.magnitude;
		double s = sin(pos * r->inv_freq[i]) * (double)r->rope.magnitude;
		y[a] = (double)x[a] * c - (double)x[b] * s;
		y[b] = (double)x[a] * s + (double)x[b] * c;
	}
}

/* What may differ by the type of keys and values, of a row whose largest number is `most`. */
static double type_error(int type, double x, double most)
{
	double own = type == KN_F32 ? 0 : type == KN_F16 ? 0x1p-11 * fabs(x) + 0x1p-25 : most / 127 / 2;
	return own * 1.001 + 64 * U * most;
}

static void check_row(const struct rig *r, const struct shape *s, int seq, int pos, const float *was)
{
	double want[MOST_WIDTH], squares = 0, most = 0;
	int width = s->latent + s->turned;
	for (int d = 0; d < s->latent; d++)
		squares += (double)was[d] * (double)was[d];
	for (int d = 0; d < s->latent; d++)
		want[d] = (double)was[d] / sqrt(squares / s->latent + 1e-6) * (double)r->gain[d];
	turned(r, was + s->latent, pos, want + s->latent);
	for (int d = 0; d < width; d++)
		most = fmax(most, fabs(want[d]));
	for (int d = 0; d < width; d++)
		expect_near("a latent row", r->o, element(r, seq, pos, d), want[d], type_error(s->type, want[d], most));
}

/* Rows of seq 0 and, one of four, of seq 1, from their begin on, written in steps of n. */
static void write_rows(struct rig *r, const struct shape *s, int n_per_seq, int chunk)
{
	int width = s->latent + s->turned, query = s->plain + s->turned;
	float *row = guarded(r->o, r->b, (size_t)(LONGEST * width)),
	      *was = malloc((size_t)(LONGEST * width) * sizeof *was);
	size_t n_q = (size_t)(LONGEST * s->n_heads * query), n_to = (size_t)(LONGEST * s->n_heads * width);
	float *q = random_floats(r->o, r->b, n_q), *to = guarded(r->o, r->b, n_to),
	      *gain = guarded(r->o, r->b, MOST_WIDTH);
	int32_t pos[LONGEST], of[LONGEST];
	memcpy(gain, r->gain, sizeof r->gain);
	for (int seq = 0; seq < SEQS; seq++)
		for (int from = 0, n; from < n_per_seq; from += n) {
			n = n_per_seq - from < chunk ? n_per_seq - from : chunk;
			for (int i = 0; i < n * width; i++)
				was[i] = row[i] = next_float();
			for (int i = 0; i < n; i++)
				pos[i] = from + i, of[i] = seq;
			struct kn_step step = {.n_rows = n,
					       .row_pos = pos,
					       .row_seq = of,
					       .n_seqs = SEQS,
					       .page_table = r->table,
					       .max_pages = PAGES};
			assert_int_equal(r->o->step_begin(r->b, &step), 0);
			assert_int_equal(r->o->latent_write(r->b, &r->rope, gain, 1e-6f, q, s->n_heads, query, row, to,
							    &r->kv, LAYER),
					 0);
			assert_int_equal(r->o->step_end(r->b), 0);
			for (int i = 0; i < n; i++)
				check_row(r, s, seq, from + i, was + i * width);
			double want[MOST_WIDTH];
			const float *last = q + ((n - 1) * s->n_heads + s->n_heads - 1) * query + s->plain;
			const float *got = to + ((n - 1) * s->n_heads + s->n_heads - 1) * width + s->latent;
			turned(r, last, from + n - 1, want);
			for (int i = 0; i < s->turned; i++)
				expect_near("a turned query", r->o, (double)got[i], want[i], 16 * U);
		}
	check_guards(row, (size_t)(LONGEST * width));
	check_guards(to, n_to);
	float *all[] = {row, q, to, gain};
	for (int i = 0; i < N(all); i++)
		drop(r->o, r->b, all[i]);
	free(was);
}

static void attend(struct rig *r, const struct shape *s, const float *q, const int32_t *pos, const int32_t *seq, int n,
		   float *out)
{
	const struct kn_attn how = {.scale = 0.5f};
	struct kn_step step = {
	    .n_rows = n, .row_pos = pos, .row_seq = seq, .n_seqs = SEQS, .page_table = r->table, .max_pages = PAGES};
	assert_int_equal(r->o->step_begin(r->b, &step), 0);
	assert_int_equal(r->o->attention(r->b, q, s->n_heads, &r->kv, LAYER, &how, out), 0);
	assert_int_equal(r->o->step_end(r->b), 0);
}

static void check_attention(const struct rig *r, const struct shape *s, const float *q, int seq, int pos,
			    const float *out)
{
	int width = s->latent + s->turned;
	double p[LONGEST], max = -INFINITY, sum = 0, off = 0;
	for (int j = 0; j <= pos; j++) {
		double size = 0;
		p[j] = 0;
		for (int d = 0; d < width; d++) {
			p[j] += 0.5 * (double)q[d] * element(r, seq, j, d);
			size += 0.5 * fabs((double)q[d] * element(r, seq, j, d));
		}
		off = fmax(off, size * gamma_of(width + 2));
		max = fmax(max, p[j]);
	}
	for (int j = 0; j <= pos; j++)
		sum += p[j] = exp(p[j] - max);
	for (int d = 0; d < s->latent; d++) {
		double want = 0, size = 0;
		for (int j = 0; j <= pos; j++) {
			want += p[j] / sum * element(r, seq, j, d);
			size += p[j] / sum * fabs(element(r, seq, j, d));
		}
		/* A score's error is a weight's relative one, twice because of the sum; an exponential has a few units
		 * of the last place. */
		expect_near("attention to latent rows", r->o, (double)out[d], want,
			    (4 * off + gamma_of(2 * pos + 64)) * size);
	}
}

static void attention_case(const struct kn_ops *o, const struct shape *s)
{
	static const int32_t pos[] = {528, 0, 5, 255, 256, 257, 258, 259, 511, 512, 513, 514, 90, 91, 529};
	static const int32_t seq[] = {0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1};
	enum { ROWS = N(pos) };
	struct rig r, two;
	int width = s->latent + s->turned, each = s->n_heads * width, made = s->n_heads * s->latent;
	open_rig(&r, o, s, 1);
	write_rows(&r, s, LONGEST, 97);
	float *q = random_floats(o, r.b, (size_t)(ROWS * each)), *out = guarded(o, r.b, (size_t)(ROWS * made));
	float *again = guarded(o, r.b, (size_t)(ROWS * made));
	attend(&r, s, q, pos, seq, ROWS, out);
	for (int i = 0; i < ROWS; i++)
		for (int h = 0; h < s->n_heads; h += 1 + s->n_heads / 3)
			check_attention(&r, s, q + i * each + h * width, seq[i], pos[i],
					out + i * made + h * s->latent);
	for (int i = 0; i < ROWS; i++)
		attend(&r, s, q + i * each, pos + i, seq + i, 1, again + i * made);
	assert_memory_equal(again, out, (size_t)(ROWS * made) * sizeof *out);
	if (!one_thread(o)) {
		open_rig(&two, o, s, 2);
		size_t bytes = kn_kv_page_bytes(&r.kv) * (size_t)r.kv.n_pages;
		memcpy(two.kv.k, r.kv.k, bytes);
		memcpy(two.kv.v, r.kv.v, bytes);
		for (int i = 0; i < ROWS; i++)
			attend(&two, s, q + i * each, pos + i, seq + i, 1, again + i * made);
		assert_memory_equal(again, out, (size_t)(ROWS * made) * sizeof *out);
		attend(&two, s, q, pos, seq, ROWS, again);
		assert_memory_equal(again, out, (size_t)(ROWS * made) * sizeof *out);
		close_rig(&two);
	}
	/* A page copied with both halves is the same page. */
	int32_t free_page = r.table[1 * PAGES];
	assert_int_equal(o->page_copy(r.b, &r.kv, r.table[0], free_page), 0);
	r.table[0] = free_page;
	attend(&r, s, q, pos, seq, 1, again);
	assert_memory_equal(again, out, (size_t)made * sizeof *out);
	check_guards(out, (size_t)(ROWS * made));
	check_guards(q, (size_t)(ROWS * each));
	drop(o, r.b, q);
	drop(o, r.b, out);
	drop(o, r.b, again);
	close_rig(&r);
}

static void test_attention(void **arg)
{
	(void)arg;
	static const struct shape shapes[] = {
	    {.type = KN_F32, .n_heads = 5, .latent = 36, .turned = 10, .plain = 7, .page_tokens = 6, .halves = true},
	    {.type = KN_F16, .n_heads = 37, .latent = 64, .turned = 16, .plain = 32, .page_tokens = 16},
	    {.type = KN_F16, .n_heads = 1, .latent = 3, .turned = 2, .plain = 1, .page_tokens = 32},
	    {.type = KN_KV_Q8, .n_heads = 16, .latent = 48, .turned = 8, .plain = 16, .page_tokens = 16},
	    {.type = KN_KV_Q8, .n_heads = 3, .latent = 41, .turned = 6, .plain = 5, .page_tokens = 10},
	};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; i < N(shapes) && (*o)->latent_write != NULL; i++)
			if (strcmp((*o)->name, "cpu-ref") != 0 || shapes[i].n_heads < 16)
				attention_case(*o, &shapes[i]);
}

/* ---- products of heads ---- */

static void heads_case(const struct kn_ops *o, int type, int n_heads, int n_out, int n_in, int n_rows, int n_threads)
{
	int x_width = n_in + 3, y_width = n_out + 5;
	size_t n_x = (size_t)(n_rows * n_heads * x_width), n_y = (size_t)(n_rows * n_heads * y_width);
	struct matrix m[MOST_HEADS];
	struct kn_weight w[MOST_HEADS];
	struct sl_err err;
	struct kn_backend *b =
	    open_with(o, &(struct kn_config){.n_threads = n_threads, .max_rows = 600, .max_width = 4096});
	for (int h = 0; h < n_heads; h++) {
		m[h] = make_matrix(type, n_out, n_in);
		assert_int_equal(o->weight_load(b, m[h].bytes, type, n_out, n_in, &w[h], &err), 0);
	}
	float *x = random_floats(o, b, n_x), *y = guarded(o, b, n_y), *one = guarded(o, b, (size_t)n_out);
	float *in = guarded(o, b, (size_t)n_in);
	size_t n_work = kn_heads_work(n_heads, n_out, n_in) * (size_t)n_rows;
	float *work = guarded(o, b, n_work);
	struct kn_step s = {.n_rows = n_rows};
	for (size_t i = 0; i < n_y; i++)
		y[i] = 77;
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul_heads(b, w, n_heads, x, x_width, n_rows, work, y, y_width), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = 0; i < n_rows * n_heads; i++) {
		struct kn_step alone = {.n_rows = 1};
		memcpy(in, x + i * x_width, (size_t)n_in * sizeof *in);
		assert_int_equal(o->step_begin(b, &alone), 0);
		assert_int_equal(o->matmul(b, &w[i % n_heads], in, 1, one), 0);
		assert_int_equal(o->step_end(b), 0);
		assert_memory_equal(y + i * y_width, one, (size_t)n_out * sizeof *one);
		for (int k = n_out; k < y_width; k++)
			assert_true(y[i * y_width + k] == 77);
	}
	check_guards(x, n_x);
	check_guards(y, n_y);
	check_guards(work, n_work);
	float *all[] = {x, y, one, in, work};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	for (int h = 0; h < n_heads; h++) {
		o->weight_free(b, &w[h]);
		drop_matrix(&m[h]);
	}
	o->close(b);
}

static void test_heads(void **arg)
{
	(void)arg;
	static const struct {
		int type, n_heads, n_out, n_in;
	} cases[] = {{KN_F32, 3, 36, 22},  {KN_BF16, 16, 64, 32}, {KN_F16, 1, 20, 36},
		     {KN_Q8_0, 5, 48, 64}, {KN_Q4_K, 4, 40, 256}, {KN_Q5_0, 37, 33, 32}};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; i < N(cases) && (*o)->matmul_heads != NULL; i++)
			for (int rows = 1; rows < (strncmp((*o)->name, "cuda", 4) == 0 ? 50 : 300); rows = rows * 6 + 1)
				heads_case(*o, cases[i].type, cases[i].n_heads, cases[i].n_out, cases[i].n_in, rows,
					   1 + rows % 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_heads)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
