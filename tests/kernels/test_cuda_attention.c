/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA kernels for keys and values of every type, in their emulation: what is written to pages has the
 * reference's bits; attention is the same computation in double within a bound derived here; and a row's bits are
 * those it has alone, in parts of a prompt, and in company.
 *
 * The bound. U is float32's unit roundoff, gamma as in weights.h. On tensor cores queries and weights become 16-bit
 * numbers, off by u = 2^-11 (float16) or 2^-8 (bfloat16) of themselves; float16's subnormals by 2^-25 where the
 * largest is 1 or more. 8-bit values become float16 once more. All products of two such numbers are exact in
 * float32, sums of n of them off by gamma(n) in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/kv_type.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum {
	SEQS = 3,
	LAYERS = 2,
	LAYER = 1,
	PAGES = 96,
	MAX_PAGES = 48,
	KV_HEADS = 2,
	PROMPT = 21,
	ROWS = PROMPT + 3,
	LONGEST = 525
};

/* A prompt's part over the end of a block, and three decodes. */
static const int lengths[SEQS] = {236 + PROMPT, LONGEST, 18};

struct rig {
	const struct kn_ops *o;
	struct kn_backend *b;
	struct kn_kv kv;
};

struct shape {
	int type, head_dim, group, page_tokens, window;
	float sharpness, softcap;
	bool both_ways; /* every row sees its whole sequence */
	bool sinks;     /* around the largest scores */
};

struct world {
	const struct shape *shape;
	struct rig rigs[2]; /* the reference, the kernels under test */
	int32_t table[SEQS * MAX_PAGES], pos[ROWS], seq[ROWS], sees[ROWS];
	int n_heads;
};

static void *memory(struct rig *r, size_t bytes, int fill)
{
	void *p = NULL;
	assert_int_equal(r->o->mem_alloc(r->b, bytes, &p), 0);
	memset(p, fill, bytes);
	return p;
}

static void give_up(struct rig *r, void *p) { r->o->mem_free(r->b, p); }

/* Pages are scattered; what nobody writes is no number in any type, and what nobody has is no page. */
static void make_world(struct world *w, const struct shape *shape)
{
	struct kn_config cfg = {.n_threads = 1, .max_rows = 64, .max_width = 8192};
	struct sl_err err = {0};
	*w = (struct world){.shape = shape, .n_heads = KV_HEADS * shape->group};
	w->rigs[0].o = kn_available()[0];
	w->rigs[1].o = open_cuda();
	for (int i = 0; i < 2; i++) {
		struct rig *r = &w->rigs[i];
		assert_int_equal(r->o->open(&cfg, &r->b, &err), 0);
		assert_true(r->o->kv_type(shape->type));
		r->kv = (struct kn_kv){.type = shape->type,
				       .n_pages = PAGES,
				       .page_tokens = shape->page_tokens,
				       .n_layers = LAYERS,
				       .n_kv_heads = KV_HEADS,
				       .head_dim = shape->head_dim};
		r->kv.k = memory(r, kn_kv_page_bytes(&r->kv) * PAGES, 0xFF);
		r->kv.v = memory(r, kn_kv_page_bytes(&r->kv) * PAGES, 0xFF);
	}
	for (int i = 0; i < SEQS * MAX_PAGES; i++)
		w->table[i] = -1;
	for (int s = 0, next = 0; s < SEQS; s++)
		for (int p = 0; p * shape->page_tokens < lengths[s]; p++)
			w->table[s * MAX_PAGES + p] = (next++ * 29 + 7) % PAGES;
	for (int i = 0; i < ROWS; i++) {
		static const int decode_seq[] = {1, 2, 1}, decode_pos[] = {LONGEST - 1, 17, 255};
		w->seq[i] = i < PROMPT ? 0 : decode_seq[i - PROMPT];
		w->pos[i] = i < PROMPT ? 236 + i : decode_pos[i - PROMPT];
		w->sees[i] = lengths[w->seq[i]];
	}
}

static void drop_world(struct world *w)
{
	for (int i = 0; i < 2; i++) {
		struct rig *r = &w->rigs[i];
		r->o->mem_free(r->b, r->kv.k);
		r->o->mem_free(r->b, r->kv.v);
		r->o->close(r->b);
	}
}

static struct kn_step step_of(const struct world *w, int first, int n)
{
	return (struct kn_step){.n_rows = n,
				.row_pos = w->pos + first,
				.row_seq = w->seq + first,
				.row_sees = w->shape->both_ways ? w->sees + first : NULL,
				.n_seqs = SEQS,
				.page_table = w->table,
				.max_pages = MAX_PAGES};
}

/* Keys and values of all positions by both backends: their pages have the same bits, unwritten ones too. */
static void write_all(struct world *w)
{
	enum { MOST = 40 };
	int hd = w->shape->head_dim;
	double freqs[16];
	for (int i = 0; i < 16; i++)
		freqs[i] = 0; /* nothing turns: cosine and sine of a device's own library are not looked at here */
	struct kn_rope rope = {.n_rot = hd < 32 ? hd : 32, .halves = hd % 3 == 0, .magnitude = 1, .inv_freq = freqs};
	size_t n_q = (size_t)(MOST * w->n_heads * hd), n_kv = (size_t)(MOST * KV_HEADS * hd);
	float *q = memory(&w->rigs[1], n_q * sizeof *q, 0), *k = memory(&w->rigs[1], n_kv * sizeof *k, 0),
	      *v = memory(&w->rigs[1], n_kv * sizeof *v, 0);
	for (int s = 0; s < SEQS; s++)
		for (int from = 0; from < lengths[s]; from += MOST) {
			int n = lengths[s] - from < MOST ? lengths[s] - from : MOST;
			int32_t pos[MOST], seq[MOST];
			struct kn_step step = {.n_rows = n,
					       .row_pos = pos,
					       .row_seq = seq,
					       .n_seqs = SEQS,
					       .page_table = w->table,
					       .max_pages = MAX_PAGES};
			for (int i = 0; i < n; i++) {
				pos[i] = from + i;
				seq[i] = s;
			}
			for (size_t i = 0; i < n_kv; i++) {
				k[i] = next_float();
				v[i] = next_float() * (i % 5 == 0 ? 4.0f : 1.0f);
			}
			if (from == 0) /* all zero: a scale of zero */
				memset(v, 0, (size_t)hd * sizeof *v);
			for (int i = 0; i < 2; i++) {
				struct rig *r = &w->rigs[i];
				assert_int_equal(r->o->step_begin(r->b, &step), 0);
				assert_int_equal(r->o->rope_kv_write(r->b, &rope, q, w->n_heads, k, v, &r->kv, LAYER),
						 0);
				assert_int_equal(r->o->step_end(r->b), 0);
			}
		}
	size_t bytes = kn_kv_page_bytes(&w->rigs[0].kv) * PAGES;
	assert_memory_equal(w->rigs[0].kv.k, w->rigs[1].kv.k, bytes);
	assert_memory_equal(w->rigs[0].kv.v, w->rigs[1].kv.v, bytes);
	give_up(&w->rigs[1], q);
	give_up(&w->rigs[1], k);
	give_up(&w->rigs[1], v);
}

/* Element d of a position as the pages have it. */
static double kv_at(const struct world *w, bool keys, int seq, int pos, int head, int d)
{
	const struct kn_kv *kv = &w->rigs[0].kv;
	int32_t page = w->table[seq * MAX_PAGES + pos / kv->page_tokens];
	const uint8_t *side = keys ? kv->k : kv->v;
	return (double)kn_kv_get(kv->type, side + kn_kv_block_at(kv, page, LAYER, head), keys, kv->page_tokens,
				 kv->head_dim, pos % kv->page_tokens, d);
}

static void check_row(const struct world *w, int row, int head, const float *q, const struct kn_attn *how,
		      const float *out)
{
	static double s[LONGEST], weight[LONGEST];
	const struct shape *shape = w->shape;
	int hd = shape->head_dim, n = shape->both_ways ? w->sees[row] : w->pos[row] + 1, seq = w->seq[row],
	    kv_head = head / shape->group;
	int from = how->window > 0 && n > how->window ? n - how->window : 0;
	int merges = (n + 63) / 64 + (n + KN_ATTN_BLOCK - 1) / KN_ATTN_BLOCK;
	bool exact = shape->type == KN_F32, eight = kn_kv_has_scales(shape->type);
	double u = exact ? 0 : shape->type == KN_BF16 ? 0x1p-8 : 0x1p-11, tiny = exact ? 0 : 0x1p-25;
	double scale = (double)how->scale, cap = (double)how->softcap, most_q = 0, max = -INFINITY, min = INFINITY;
	double score_error = 0, sum = 0;
	for (int d = 0; d < hd; d++)
		most_q = fmax(most_q, fabs((double)q[d]));
	for (int p = from; p < n; p++) {
		double dot = 0, magnitude = 0, keys = 0;
		for (int d = 0; d < hd; d++) {
			double k = kv_at(w, true, seq, p, kv_head, d), x = (double)q[d] * k;
			dot += x;
			magnitude += fabs(x);
			keys += fabs(k);
		}
		s[p] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
		max = fmax(max, s[p]);
		min = fmin(min, s[p]);
		/* Queries rounded, the sum, and five factors: the key's scale, the score's, the cap twice, log2 e. The
		 * slope of the cap is at most 1; tanh is off by 2U of itself. */
		score_error =
		    fmax(score_error,
			 ((u + gamma_of(hd) + 5 * U) * magnitude + 2 * tiny * most_q * keys) * scale + 4 * U * cap);
	}
	for (int p = from; p < n; p++)
		sum += weight[p] = exp(s[p] - max);
	if (how->sinks != NULL) { /* one more term, of the errors of the others */
		sum += exp((double)how->sinks[head] - max);
		min = fmin(min, (double)how->sinks[head]);
		max = fmax(max, (double)how->sinks[head]);
	}
	/* As in test_attention.c, with more merges, the base 2 (a rounding of the score more, U of the range) and a
	 * quotient made of an inverse. */
	double range = max - min + 2 * score_error;
	double relative = 1.01 * (2 * (score_error + merges * (2 * U * range + 4 * U)) + u + (eight ? 0x1p-11 : 0) +
				  2 * gamma_of(n) + 2 * U);
	for (int d = 0; d < hd; d++) {
		double want = 0, magnitude = 0, values = 0;
		for (int p = from; p < n; p++) {
			double v = kv_at(w, false, seq, p, kv_head, d), x = weight[p] / sum * v;
			want += x;
			magnitude += fabs(x);
			values += fabs(v);
		}
		/* A weight below float16's normal numbers; an 8-bit value likewise (the weights add up to 1). */
		double bound = relative * magnitude + tiny * (values / sum + (eight ? 1 : 0));
		double off = fabs((double)out[d] - want);
		if (!(off <= bound))
			fail_msg("%s, head_dim %d, row %d, head %d, element %d: %.9g, not %.9g within %.3g",
				 kn_kv_type_name(shape->type), hd, row, head, d, (double)out[d], want, bound);
	}
}

/* The tables of three groups, the second of which has the pages that some row sees; all others are none. */
static void give_back(const struct world *w, int first, int n, const struct kn_attn *how, int32_t *tables)
{
	int page = w->shape->page_tokens;
	for (int i = 0; i < 3 * N(w->table); i++)
		tables[i] = -1;
	for (int r = first; r < first + n; r++) {
		int end = w->shape->both_ways ? w->sees[r] : w->pos[r] + 1, seq = w->seq[r];
		int from = how->window > 0 && end > how->window ? end - how->window : 0;
		for (int p = from / page; p * page < end; p++)
			tables[(seq * 3 + 1) * MAX_PAGES + p] = w->table[seq * MAX_PAGES + p];
	}
}

static void attend(struct world *w, int first, int n, const float *q, const struct kn_attn *how, float *out)
{
	static int32_t tables[3 * SEQS * MAX_PAGES];
	struct rig *r = &w->rigs[1];
	struct kn_step s = step_of(w, first, n);
	struct kn_kv kv = r->kv;
	size_t row = (size_t)(w->n_heads * w->shape->head_dim);
	if (n < ROWS) { /* a part of the rows: without the pages that it does not see */
		give_back(w, first, n, how, tables);
		kv.group = 1;
		s.n_groups = 3;
		s.page_table = tables;
	}
	assert_int_equal(r->o->step_begin(r->b, &s), 0);
	assert_int_equal(r->o->attention(r->b, q + (size_t)first * row, w->n_heads, &kv, LAYER, how, out), 0);
	assert_int_equal(r->o->step_end(r->b), 0);
}

/* All rows, where the device lacks products of warp groups and its blocks have so much shared memory; 0: all that there
 * is. A device has one way. */
static void attend_without_groups(struct world *w, int shared, const float *q, const struct kn_attn *how, float *out)
{
	bool emulated = !on_device() && !on_standin();
	if (emulated) {
		assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", 0));
		assert_true(call_backend(cuda_path(), "sluice_emulation_shared", shared));
	}
	attend(w, 0, ROWS, q, how, out);
	if (emulated) {
		assert_true(call_backend(cuda_path(), "sluice_emulation_wgmma", 2));
		assert_true(call_backend(cuda_path(), "sluice_emulation_shared", 0));
	}
}

static void attention_case(const struct shape *shape)
{
	struct world w;
	make_world(&w, shape);
	write_all(&w);
	size_t row = (size_t)(w.n_heads * shape->head_dim), n = ROWS * row;
	struct kn_attn how = {.scale = shape->sharpness / sqrtf((float)shape->head_dim),
			      .softcap = shape->softcap,
			      .window = shape->window};
	struct rig *r = &w.rigs[1];
	float *q = random_floats(r->o, r->b, n), *out = guarded(r->o, r->b, n), *part = guarded(r->o, r->b, n);
	float *sinks = random_floats(r->o, r->b, (size_t)w.n_heads);
	for (int h = 0; h < w.n_heads; h++)
		sinks[h] *= 8 * shape->sharpness;
	how.sinks = shape->sinks ? sinks : NULL;
	/* Heads of very large and very small queries. */
	for (size_t i = 0; i < n; i++)
		q[i] *= i / (size_t)shape->head_dim % 3 == 1 ? 1e-6f : 1;
	attend(&w, 0, ROWS, q, &how, out);
	for (int i = 0; i < ROWS; i += i < PROMPT - 1 ? 5 : 1)
		for (int h = 0; h < w.n_heads; h++) {
			size_t at = (size_t)i * row + (size_t)(h * shape->head_dim);
			check_row(&w, i, h, q + at, &how, out + at);
		}
	/* Alone, and the prompt in two parts. */
	for (int i = 0; i < ROWS; i += i == 0 ? 19 : 1) {
		attend(&w, i, 1, q, &how, part);
		assert_memory_equal(part, out + (size_t)i * row, row * sizeof *out);
	}
	attend(&w, 0, 8, q, &how, part);
	attend(&w, 8, PROMPT - 8, q, &how, part + 8 * row);
	assert_memory_equal(part, out, PROMPT * row * sizeof *out);
	/* As 8.6, 8.9 and 12.0 have, and as 10.0 has: what is launched fits, or the step fails. */
	static const int shared[] = {99 << 10, 227 << 10};
	for (int i = 0; i < N(shared); i++) {
		attend_without_groups(&w, shared[i], q, &how, part);
		assert_memory_equal(part, out, n * sizeof *out);
	}
	check_guards(out, n);
	check_guards(part, n);
	check_guards(q, n);
	drop(r->o, r->b, q);
	drop(r->o, r->b, out);
	drop(r->o, r->b, part);
	drop(r->o, r->b, sinks);
	drop_world(&w);
}

/* Every type with every width; groups, windows, caps and pages go round. */
static void test_attention(void **arg)
{
	(void)arg;
	static const int dims[] = {64, 80, 96, 128, 256}, groups[] = {4, 1, 3, 8},
			 pages[] = {16, 32, 16, 24, 64, 12, 16};
	static const int windows[] = {0, 37, 0, 300, 1};
	for (int t = 0, i = 0; t < 5; t++)
		for (int d = 0; d < N(dims); d++, i++) {
			struct shape shape = {.type = kn_kv_type_at(t),
					      .head_dim = dims[d],
					      .group = groups[i % 4],
					      .page_tokens = pages[i % 7],
					      .window = windows[i % 5],
					      .sinks = i % 2 == 0,
					      .sharpness = i % 2 ? 8 : 1,
					      .softcap = i % 3 == 1 ? 3 : 0,
					      .both_ways = windows[i % 5] == 0 && i % 2 == 0};
			attention_case(&shape);
		}
}

/* Queries that are NaN give NaN, whatever a step before left in the scratch for parts, and change no other row. */
static void nan_case(int type, int head_dim)
{
	const struct shape shape = {.type = type, .head_dim = head_dim, .group = 2, .page_tokens = 16, .sharpness = 1};
	enum { LONG = PROMPT, ALL = ROWS }; /* the decode over three blocks of positions */
	struct world w;
	make_world(&w, &shape);
	write_all(&w);
	size_t row = (size_t)(w.n_heads * head_dim), n = ALL * row, bytes = n * sizeof(float);
	struct kn_attn how = {.scale = 1 / sqrtf((float)head_dim)};
	struct rig *r = &w.rigs[1];
	float *q = random_floats(r->o, r->b, n), *out = guarded(r->o, r->b, n), *want = memory(r, bytes, 0);
	static const int ill[] = {LONG, 0, PROMPT - 1}; /* alone; in a prompt, with positions in one block and in two */
	attend(&w, 0, ALL, q, &how, want);
	for (int i = 0; i < N(ill); i++)
		for (size_t d = 0; d < row; d++)
			q[(size_t)ill[i] * row + d] = NAN;
	attend(&w, 0, ALL, q, &how, out);
	for (int i = 0; i < ALL; i++) {
		bool no_number = i == ill[0] || i == ill[1] || i == ill[2];
		for (size_t d = 0; d < row && no_number; d++)
			assert_true(isnan(out[(size_t)i * row + d]));
		if (!no_number)
			assert_memory_equal(out + (size_t)i * row, want + (size_t)i * row, row * sizeof *out);
	}
	give_up(r, want);
	drop(r->o, r->b, q);
	drop(r->o, r->b, out);
	drop_world(&w);
}

static void test_nan_queries(void **arg)
{
	(void)arg;
	for (int t = 0; t < 5; t++)
		nan_case(kn_kv_type_at(t), t % 2 ? 128 : 64);
	nan_case(KN_F16, 272); /* too wide for tensor cores */
}

/* Widths that fill no matrix, more heads than a tile has rows, one position a page, heads too wide for tensor cores. */
static void test_odd_shapes(void **arg)
{
	(void)arg;
	static const struct shape shapes[] = {
	    {.type = KN_F16, .head_dim = 42, .group = 2, .page_tokens = 16, .sharpness = 1},
	    {.type = KN_F16, .head_dim = 32, .group = 1, .page_tokens = 16, .sharpness = 1, .both_ways = true},
	    {.type = KN_KV_Q8, .head_dim = 40, .group = 4, .page_tokens = 16, .sharpness = 4, .window = 256},
	    {.type = KN_FP8, .head_dim = 33, .group = 1, .page_tokens = 20, .sharpness = 1},
	    {.type = KN_BF16, .head_dim = 72, .group = 20, .page_tokens = 16, .sharpness = 2, .window = 257},
	    {.type = KN_F16, .head_dim = 272, .group = 2, .page_tokens = 16, .sharpness = 1},
	    {.type = KN_KV_Q8, .head_dim = 288, .group = 1, .page_tokens = 16, .sharpness = 1, .softcap = 2},
	};
	for (int i = 0; i < N(shapes); i++)
		attention_case(&shapes[i]);
}

/* What is no number, too large or too small, becomes what the reference makes of it. */
static void test_extremes(void **arg)
{
	(void)arg;
	static const float numbers[] = {0,      -0.0f, NAN,     INFINITY, -INFINITY, 65504,   65520,
					-70000, 3e38f, 1e-8f,   6e-8f,    1e-40f,    -1e-38f, 448,
					449,    464,   1.0625f, 1,        -2.5f,     0x1p-9f};
	for (int t = 0; t < 5; t++) {
		struct shape shape = {.type = kn_kv_type_at(t), .head_dim = 64, .group = 1, .page_tokens = 16};
		struct world w;
		make_world(&w, &shape);
		struct kn_rope rope = {.n_rot = 0};
		enum { ALL = 18 * KV_HEADS * 64 };
		float *q = memory(&w.rigs[1], ALL * sizeof *q, 0), *k = memory(&w.rigs[1], ALL * sizeof *k, 0),
		      *v = memory(&w.rigs[1], ALL * sizeof *v, 0);
		for (int i = 0; i < ALL; i++) {
			/* A head of each: with faults, of ordinary numbers, of tiny ones. */
			int head = i / 64, kind = head % 4;
			float x = kind == 0   ? numbers[below(N(numbers))]
				  : kind == 1 ? numbers[9 + below(4)]
					      : next_float() * 500;
			k[i] = x;
			v[i] = -x;
		}
		int32_t pos[18], seq[18];
		for (int i = 0; i < 18; i++) {
			pos[i] = i;
			seq[i] = 2;
		}
		struct kn_step step = {.n_rows = 18,
				       .row_pos = pos,
				       .row_seq = seq,
				       .n_seqs = SEQS,
				       .page_table = w.table,
				       .max_pages = MAX_PAGES};
		for (int i = 0; i < 2; i++) {
			struct rig *r = &w.rigs[i];
			assert_int_equal(r->o->step_begin(r->b, &step), 0);
			assert_int_equal(r->o->rope_kv_write(r->b, &rope, q, KV_HEADS, k, v, &r->kv, LAYER), 0);
			assert_int_equal(r->o->step_end(r->b), 0);
		}
		for (int p = 0; p < 18; p++)
			for (int h = 0; h < KV_HEADS; h++)
				for (int d = 0; d < 64; d++)
					for (int keys = 0; keys < 2; keys++) {
						struct world other = w;
						other.rigs[0].kv = w.rigs[1].kv;
						double x = kv_at(&w, keys, 2, p, h, d),
						       y = kv_at(&other, keys, 2, p, h, d);
						assert_true(isnan(x) ? isnan(y) : x == y);
					}
		/* A copied page has the same bytes. */
		struct rig *r = &w.rigs[1];
		size_t page = kn_kv_page_bytes(&r->kv);
		int32_t from = w.table[2 * MAX_PAGES];
		const struct kn_step none = {.n_rows = 1};
		assert_int_equal(r->o->page_copy(r->b, &r->kv, from, 95), 0);
		assert_int_equal(r->o->step_begin(r->b, &none), 0); /* whose end comes after it */
		assert_int_equal(r->o->step_end(r->b), 0);
		assert_memory_equal((uint8_t *)r->kv.k + 95 * page, (uint8_t *)r->kv.k + (size_t)from * page, page);
		assert_memory_equal((uint8_t *)r->kv.v + 95 * page, (uint8_t *)r->kv.v + (size_t)from * page, page);
		give_up(r, q);
		give_up(r, k);
		give_up(r, v);
		drop_world(&w);
	}
}

/* Weights below float32's normal numbers, which fast exponentials flush to zero, times values as large. */
static void tiny_case(int head_dim, int group)
{
	const struct shape shape = {.type = KN_BF16, .head_dim = head_dim, .group = group, .page_tokens = 16};
	enum { SEEN = 3, LARGE = 7 }; /* positions: of the largest score, of the only value */
	struct world w;
	make_world(&w, &shape);
	write_all(&w);
	struct rig *r = &w.rigs[1];
	size_t kv_row = (size_t)(KV_HEADS * head_dim), row = (size_t)(w.n_heads * head_dim), n = ROWS * row;
	float *k = memory(r, kv_row * sizeof *k, 0), *v = memory(r, kv_row * sizeof *v, 0);
	float *q = memory(r, n * sizeof *q, 0), *out = guarded(r->o, r->b, n), *alone = guarded(r->o, r->b, n);
	const struct kn_rope rope = {.n_rot = 0};
	for (int32_t pos = 0, seq = 0; pos < lengths[0]; pos++) {
		struct kn_step step = step_of(&w, 0, 1);
		step.row_pos = &pos;
		step.row_seq = &seq;
		for (size_t i = 0; i < kv_row; i++) {
			k[i] = pos != SEEN && i % (size_t)head_dim == 0 ? -90 : 0;
			v[i] = pos == LARGE ? 0x1p126f : 0;
		}
		assert_int_equal(r->o->step_begin(r->b, &step), 0);
		assert_int_equal(r->o->rope_kv_write(r->b, &rope, q, w.n_heads, k, v, &r->kv, LAYER), 0);
		assert_int_equal(r->o->step_end(r->b), 0);
	}
	for (size_t i = 0; i < n; i += (size_t)head_dim)
		q[i] = 1;
	const struct kn_attn how = {.scale = 1};
	attend(&w, 0, ROWS, q, &how, out);
	attend_without_groups(&w, 0, q, &how, alone);
	assert_memory_equal(alone, out, n * sizeof *out);
	for (int i = 0; i < PROMPT; i++) {
		const float *mine = out + (size_t)i * row;
		attend(&w, i, 1, q, &how, alone);
		assert_memory_equal(mine, alone, row * sizeof *out);
		for (size_t d = 0; d < row; d++) /* a subnormal bfloat16 of four bits */
			expect_near("a tiny weight", r->o, (double)mine[d], exp(-90) * 0x1p126, 0x1p-4 * 0.07);
	}
	give_up(r, k);
	give_up(r, v);
	give_up(r, q);
	drop(r->o, r->b, out);
	drop(r->o, r->b, alone);
	drop_world(&w);
}

static void test_tiny_weights(void **arg)
{
	(void)arg;
	tiny_case(64, 4);
	tiny_case(128, 1);
	tiny_case(128, 4);
}

/* In whatever order threads go on from one barrier to the next, prompts have the same bits. */
static void order_case(int head_dim, int group)
{
	const struct shape shape = {
	    .type = KN_F16, .head_dim = head_dim, .group = group, .page_tokens = 16, .sharpness = 1};
	void (*set)(int, uint32_t);
	void *symbol = cuda_function("sluice_emulation_order");
	struct world w;
	memcpy(&set, &symbol, sizeof set);
	make_world(&w, &shape);
	write_all(&w);
	struct rig *r = &w.rigs[1];
	size_t n = ROWS * (size_t)(w.n_heads * head_dim);
	const struct kn_attn how = {.scale = 0.1f};
	float *q = random_floats(r->o, r->b, n), *want = guarded(r->o, r->b, n), *out = guarded(r->o, r->b, n);
	attend(&w, 0, ROWS, q, &how, want);
	for (int order = 0; order < 3; order++) {
		set(order, 7);
		attend(&w, 0, ROWS, q, &how, out);
		assert_memory_equal(out, want, n * sizeof *out);
		attend_without_groups(&w, 0, q, &how, out);
		assert_memory_equal(out, want, n * sizeof *out);
	}
	set(0, 0);
	drop(r->o, r->b, q);
	drop(r->o, r->b, want);
	drop(r->o, r->b, out);
	drop_world(&w);
}

static void test_orders(void **arg)
{
	(void)arg;
	if (on_device() || on_standin())
		skip();
	order_case(64, 4);
	order_case(128, 1);
	order_case(128, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attention), cmocka_unit_test(test_odd_shapes),   cmocka_unit_test(test_nan_queries),
	    cmocka_unit_test(test_extremes),  cmocka_unit_test(test_tiny_weights), cmocka_unit_test(test_orders),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
