/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values: rotated, written to their pages, and attended to.
 *
 * Attention is an online softmax over absolute blocks of KN_ATTN_BLOCK positions, left to right (Milakov, Gimelshein,
 * "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). A row's result depends only
 * on its own position and past. Adjacent rows of one sequence, and heads that share a key head, process the blocks
 * together, so that each block is read from memory once for all. But each row and head has its own state and the order
 * of blocks that it would have alone; positions that only other rows see get weight zero. Rows that see later positions
 * (kn_step.row_sees) only end later. A window may start inside a block; blocks stay aligned.
 *
 * A block's sums use the block's own largest score and are then merged with those of the preceding blocks. So it does
 * not matter which thread computes them: with few rows and heads, threads divide the blocks of a sequence, and the
 * sums are merged in order afterwards.
 *
 * VERSIONS: simd_attention.h.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/backend.h"
#include "kernels/hadamard.h"
#include "kernels/kv_type.h"

enum {
	TILE_HEADS = 4,
	LATENT_HEADS = 16, /* as many share a row that is ten times as wide as a head */
	TILE_QUERIES = 64,
	STRETCH = 64,        /* positions */
	SPLIT_QUERIES = 256, /* blocks are divided up to this many rows · heads, each with its own sums */
	PARTS_A_THREAD = 8,  /* so that a delayed thread does not delay all */
	MAX_LANES = 16,
	TURN_COST = 28,  /* cost of rotating and writing an element, in multiply-adds */
	LONG_HEAD = 512, /* elements */
};

bool kn_cpu_kv_type(int type) { return type == KN_F32 || type == KN_F16 || type == KN_KV_Q8; }

/* A page's block of one key head, in k or v. */
static void *block_of(const struct kn_kv *kv, void *side, int layer, int32_t page, int head)
{
	BUG_IF(page < 0 || page >= kv->n_pages, "page %d of %d", page, kv->n_pages);
	return (uint8_t *)side + kn_kv_block_at(kv, page, layer, head);
}

static float *scales_of(const struct kn_kv *kv, void *block)
{
	return (float *)(void *)((uint8_t *)block + kn_kv_scales_at(kv->type, kn_kv_block_tokens(kv), kv->head_dim));
}

static int32_t page_of(const struct kn_step *s, const struct kn_kv *kv, int32_t seq, int page_index)
{
	return kn_table_of(s, seq, kv->group)[page_index];
}

/* ---- rotary embedding ---- */

/* In double: the angle of a late position, as a float, would exceed the error bound. */
static void angles(const struct kn_rope *rope, int32_t pos, float *cosines, float *sines)
{
	for (int i = 0; i < rope->n_rot / 2; i++) {
		double angle = (double)pos * rope->inv_freq[i];
		cosines[i] = (float)(cos(angle) * (double)rope->magnitude);
		sines[i] = (float)(sin(angle) * (double)rope->magnitude);
	}
}

const float *kn_turns_of_step(struct kn_backend *b, const struct kn_rope *rope)
{
	const struct kn_step *s = b->step;
	struct kn_turns *t = NULL;
	for (int i = 0; i < KN_N_ROPES; i++) {
		if (b->turns[i].inv_freq == rope->inv_freq && b->turns[i].magnitude == rope->magnitude)
			return b->turns[i].at;
		if (t == NULL && b->turns[i].inv_freq == NULL)
			t = &b->turns[i];
	}
	if (t == NULL)
		t = &b->turns[0];
	size_t half = (size_t)rope->n_rot / 2, need = 2 * half * (size_t)s->n_rows + 1;
	if (need > t->n) {
		float *grown = sl_realloc_n(t->at, need, sizeof *grown);
		if (grown == NULL)
			return NULL;
		t->at = grown;
		t->n = need;
	}
	for (int r = 0; r < s->n_rows; r++)
		angles(rope, s->row_pos[r], t->at + (size_t)r * 2 * half, t->at + ((size_t)r * 2 + 1) * half);
	t->inv_freq = rope->inv_freq;
	t->magnitude = rope->magnitude;
	return t->at;
}

void kn_rotate(const struct kn_rope *rope, float *head, const float *cosines, const float *sines)
{
	int half = rope->n_rot / 2, step = rope->halves ? 1 : 2, apart = rope->halves ? half : 1;
	for (int i = 0; i < half; i++) {
		float *x = head + i * step, *y = x + apart, a = *x, c = *y;
		*x = a * cosines[i] - c * sines[i];
		*y = a * sines[i] + c * cosines[i];
	}
}

/* Queries at later positions are larger. */
static void grow(float *q, size_t n, float factor)
{
	if (factor == 1.0f)
		return;
	for (size_t i = 0; i < n; i++)
		q[i] *= factor;
}

struct writing {
	const struct kn_backend *b;
	const struct kn_rope *rope;
	const float *turns;
	float *q, *k;
	const float *v;
	int n_heads;
	const struct kn_kv *kv;
	int layer, n_parts;
};

/* A key's elements lie page_tokens apart. */
static void put_key(const struct writing *w, const float *k, void *block, int token)
{
	const struct kn_kv *kv = w->kv;
	size_t apart = (size_t)kv->page_tokens, at = (size_t)token, n = (size_t)kv->head_dim;
	_Alignas(KN_ALIGN) float row[LONG_HEAD];
	if (kv->head_dim > LONG_HEAD) {
		kn_kv_put(kv->type, block, true, kv->page_tokens, kv->head_dim, token, k);
		return;
	}
	float scale = w->b->isa->put_kv(kv->type, k, kv->head_dim, row);
	switch (kn_kv_element_bytes(kv->type)) {
	case 1:
		for (size_t d = 0; d < n; d++)
			((uint8_t *)block)[d * apart + at] = ((const uint8_t *)row)[d];
		break;
	case 2:
		for (size_t d = 0; d < n; d++)
			((uint16_t *)block)[d * apart + at] = ((const uint16_t *)(const void *)row)[d];
		break;
	default:
		for (size_t d = 0; d < n; d++)
			((float *)block)[d * apart + at] = row[d];
	}
	if (kn_kv_has_scales(kv->type))
		scales_of(kv, block)[token] = scale;
}

static void write_row(const struct writing *w, int r)
{
	const struct kn_step *s = w->b->step;
	const struct kn_kv *kv = w->kv;
	size_t hd = (size_t)kv->head_dim, width = (size_t)kv->n_kv_heads * hd, half = (size_t)w->rope->n_rot / 2;
	const float *cosines = w->turns + (size_t)r * 2 * half, *sines = cosines + half;
	float *q = w->q + (size_t)r * (size_t)w->n_heads * hd, *k = w->k + (size_t)r * width;
	int32_t pos = s->row_pos[r];
	for (int h = 0; h < w->n_heads; h++)
		kn_rotate(w->rope, q + (size_t)h * hd, cosines, sines);
	grow(q, (size_t)w->n_heads * hd, (float)kn_rope_grown(w->rope, pos));
	for (int h = 0; h < kv->n_kv_heads; h++)
		kn_rotate(w->rope, k + (size_t)h * hd, cosines, sines);
	if (kv->rotate > 0) { /* heads are whole blocks */
		kn_hadamard(q, w->n_heads * kv->head_dim, kv->rotate);
		kn_hadamard(k, kv->n_kv_heads * kv->head_dim, kv->rotate);
	}
	int32_t page = page_of(s, kv, s->row_seq[r], pos / kv->page_tokens);
	int token = pos % kv->page_tokens;
	const float *v = w->v + (size_t)r * width;
	for (int h = 0; h < kv->n_kv_heads; h++, k += hd, v += hd) {
		put_key(w, k, block_of(kv, kv->k, w->layer, page, h), token);
		void *values = block_of(kv, kv->v, w->layer, page, h);
		size_t at = (size_t)token * hd * kn_kv_element_bytes(kv->type);
		float scale = w->b->isa->put_kv(kv->type, v, kv->head_dim, (uint8_t *)values + at);
		if (kn_kv_has_scales(kv->type))
			scales_of(kv, values)[token] = scale;
	}
}

static void run_writing(void *ctx, int part)
{
	const struct writing *w = ctx;
	int64_t n = w->b->step->n_rows;
	for (int64_t r = n * part / w->n_parts; r < n * (part + 1) / w->n_parts; r++)
		write_row(w, (int)r);
}

int kn_cpu_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads, float *k,
			 const float *v, const struct kn_kv *kv, int layer)
{
	struct writing w = {.b = b,
			    .rope = rope,
			    .q = q,
			    .k = k,
			    .v = v,
			    .n_heads = n_heads,
			    .kv = kv,
			    .layer = layer,
			    .turns = kn_turns_of_step(b, rope)};
	b->packed_of = NULL;
	if (w.turns == NULL)
		return SL_EIO;
	int n_rows = b->step->n_rows;
	int parts = kn_parts_of(b, (int64_t)n_rows * (n_heads + kv->n_kv_heads) * kv->head_dim * TURN_COST);
	w.n_parts = parts < n_rows ? parts : n_rows;
	kn_run_parts(b, w.n_parts, run_writing, &w);
	return 0;
}

/* ---- attention ---- */

struct attention {
	const struct kn_backend *b;
	const float *q;
	int n_heads;
	const struct kn_kv *kv;
	int layer;
	const struct kn_attn *attn;
	float *out;
	int dim;      /* elements of a value */
	int group;    /* heads of one key head */
	int most;     /* heads of a chunk */
	int n_chunks; /* of at most `most` heads each, in a group */
	int span;     /* key heads of a tile */
	int n_spans;
	const int32_t *tiles; /* [n_tiles + 1] first rows */
	int n_tiles;
	/* Divided blocks: n_parts per tile, and for each row and head sums[n_blocks][head_dim] and seen[n_blocks]. */
	int n_parts, n_blocks;
	float *sums;
	struct kn_seen *seen;
};

/* Rows of one sequence, key heads next to each other, their query heads, and what they see. Queries of one key head are
 * adjacent, n_each of them. */
struct tile {
	int seq, kv_head, n_kv, n_each, n_q;
	const float *q[TILE_QUERIES];
	size_t number[TILE_QUERIES];                  /* row · n_heads + head */
	int32_t from[TILE_QUERIES], to[TILE_QUERIES]; /* what each sees */
	int32_t first, last;                          /* and all */
};

/* The positions of a block that a tile sees, as contiguous runs, for its first key head. They are processed in
 * stretches, each for all key heads before the next stretch, so that reads are contiguous (a page of a layer has its
 * key heads one after another) and all queries of a key head find the data in the L1 cache. */
struct block {
	int at, begin, end; /* positions */
	int n_runs, n_stretches;
	struct kn_run runs[KN_ATTN_BLOCK];
	int stretch[KN_ATTN_BLOCK + 1]; /* first runs */
};

/* The position's keys and values, and how many positions follow there, itself included. */
static struct kn_run run_at(const struct attention *a, const struct tile *t, int index, int token)
{
	const struct kn_kv *kv = a->kv;
	int32_t page = page_of(a->b->step, kv, t->seq, index);
	void *k, *v;
	if (kv->latent > 0) {
		BUG_IF(page < 0 || page >= kv->n_pages, "page %d of %d", page, kv->n_pages);
		k = v = kn_kv_latent_block(kv, page, a->layer, &token);
	} else {
		k = block_of(kv, kv->k, a->layer, page, t->kv_head);
		v = block_of(kv, kv->v, a->layer, page, t->kv_head);
	}
	bool scaled = kn_kv_has_scales(kv->type);
	return (struct kn_run){.k = k,
			       .v = v,
			       .k_scale = scaled ? scales_of(kv, k) : NULL,
			       .v_scale = scaled ? scales_of(kv, v) : NULL,
			       .token = token,
			       .n = kn_kv_block_tokens(kv) - token};
}

static void find_block(const struct attention *a, const struct tile *t, int at, struct block *b)
{
	const struct kn_kv *kv = a->kv;
	int positions = STRETCH;
	b->at = at;
	b->begin = t->first > at ? t->first : at;
	b->end = t->last < at + KN_ATTN_BLOCK ? t->last : at + KN_ATTN_BLOCK;
	b->n_runs = b->n_stretches = 0;
	for (int i = b->begin; i < b->end;) {
		struct kn_run run = run_at(a, t, i / kv->page_tokens, i % kv->page_tokens);
		run.n = run.n < b->end - i ? run.n : b->end - i;
		run.at = i - at;
		if (positions + run.n > STRETCH) {
			b->stretch[b->n_stretches++] = b->n_runs;
			positions = 0;
		}
		b->runs[b->n_runs++] = run;
		positions += run.n;
		i += run.n;
	}
	b->stretch[b->n_stretches] = b->n_runs;
}

/* The unit of reading: keys or values of a stretch of a block, of one key head. */
struct piece {
	const struct block *b;
	bool values;
	int stretch, head;
};

/* Advances to the next piece in processing order; false: the block has no more. */
static bool next_piece(const struct tile *t, struct piece *p)
{
	if (++p->head < t->n_kv)
		return true;
	p->head = 0;
	if (++p->stretch < p->b->n_stretches)
		return true;
	p->stretch = 0;
	p->values = !p->values;
	return p->values;
}

static const void *further(const void *at, size_t bytes) { return (const uint8_t *)at + bytes; }

/* The runs of a piece, each with the memory to prefetch. Returns their number. next_block: the following block, or
 * NULL. */
static int runs_of_piece(const struct attention *a, const struct tile *t, const struct piece *p,
			 const struct block *next_block, struct kn_run *runs)
{
	size_t bytes = kn_kv_head_bytes(a->kv->type, kn_kv_block_tokens(a->kv), a->kv->head_dim),
	       at = (size_t)p->head * bytes;
	int from = p->b->stretch[p->stretch], n = p->b->stretch[p->stretch + 1] - from;
	struct piece after = *p;
	bool any = next_piece(t, &after);
	if (!any && next_block != NULL) {
		after = (struct piece){.b = next_block};
		any = true;
	}
	int next_from = any ? after.b->stretch[after.stretch] : 0;
	int n_next = any ? after.b->stretch[after.stretch + 1] - next_from : 0;
	for (int i = 0; i < n; i++) {
		struct kn_run run = p->b->runs[from + i];
		run.k = further(run.k, at);
		run.v = further(run.v, at);
		if (run.k_scale != NULL) {
			run.k_scale = further(run.k_scale, at);
			run.v_scale = further(run.v_scale, at);
		}
		const void *next = p->values ? run.v : run.k; /* the same memory again if nothing follows */
		if (i < n_next) {
			const struct kn_run *r = &after.b->runs[next_from + i];
			next = further(after.values ? r->v : r->k, (size_t)after.head * bytes);
		}
		run.k_next = run.v_next = next;
		runs[i] = run;
	}
	return n;
}

static int32_t end_visible(const struct kn_step *s, int row)
{
	return s->row_sees != NULL ? s->row_sees[row] : s->row_pos[row] + 1;
}

static int first_visible(const struct attention *a, int32_t pos) { return kn_first_seen(a->attn, pos + 1); }

/* A tile of rows [row0, row1) of one sequence and n_kv key heads, with one chunk of heads of each. */
static void make_tile(const struct attention *a, int row0, int row1, int kv_head, int n_kv, int chunk, struct tile *t)
{
	const struct kn_step *s = a->b->step;
	int head0 = chunk * a->most, head1 = head0 + a->most < a->group ? head0 + a->most : a->group;
	t->seq = s->row_seq[row0];
	t->kv_head = kv_head;
	t->n_kv = n_kv;
	t->n_each = (row1 - row0) * (head1 - head0);
	t->n_q = 0;
	t->first = INT32_MAX;
	t->last = 0;
	for (int k = kv_head; k < kv_head + n_kv; k++)
		for (int r = row0; r < row1; r++) {
			int32_t begin = first_visible(a, s->row_pos[r]), end = end_visible(s, r);
			for (int h = k * a->group + head0; h < k * a->group + head1; h++, t->n_q++) {
				t->number[t->n_q] = (size_t)r * (size_t)a->n_heads + (size_t)h;
				t->q[t->n_q] = a->q + t->number[t->n_q] * (size_t)a->kv->head_dim;
				t->to[t->n_q] = end;
				t->from[t->n_q] = begin;
			}
			t->first = begin < t->first ? begin : t->first;
			t->last = end > t->last ? end : t->last;
		}
}

/* Computes each query's sums over a block: part[i][head_dim], seen[i]. Prefetches next_block, if any. */
static void attend_block(const struct attention *a, const struct tile *t, const struct block *b,
			 const struct block *next_block, float *const *part, struct kn_seen *seen)
{
	const struct kn_isa *isa = a->b->isa;
	int width = a->kv->head_dim, type = a->kv->type;
	bool latent = a->kv->latent > 0;
	struct kn_run runs[STRETCH];
	_Alignas(KN_ALIGN) float scores[TILE_QUERIES * KN_ATTN_BLOCK];
	struct piece p = {.b = b};
	do {
		int n = runs_of_piece(a, t, &p, next_block, runs), q = p.head * t->n_each;
		if (latent)
			isa->row_scores(type, t->q + q, t->n_each, runs, n, width, scores + (size_t)q * KN_ATTN_BLOCK);
		else
			isa->scores(type, t->q + q, t->n_each, runs, n, a->kv->page_tokens, width,
				    scores + (size_t)q * KN_ATTN_BLOCK);
	} while (next_piece(t, &p) && !p.values);
	for (int i = 0; i < t->n_q; i++) {
		isa->softmax(scores + (size_t)i * KN_ATTN_BLOCK, (b->begin - b->at) / MAX_LANES * MAX_LANES,
			     b->end - b->at, t->from[i] - b->at, t->to[i] - b->at, a->attn, &seen[i]);
		memset(part[i], 0, (size_t)a->dim * sizeof *part[i]);
	}
	do {
		int n = runs_of_piece(a, t, &p, next_block, runs), q = p.head * t->n_each;
		isa->weigh(type, scores + (size_t)q * KN_ATTN_BLOCK, t->n_each, runs, n, width, a->dim, part + q);
	} while (next_piece(t, &p));
}

/* Tile i of all: rows of a sequence, some key heads, some heads of each. */
static void tile_at(const struct attention *a, int i, struct tile *t)
{
	int chunk = i % a->n_chunks, kv_head = i / a->n_chunks % a->n_spans * a->span;
	int tile = i / a->n_chunks / a->n_spans, left = a->kv->n_kv_heads - kv_head;
	make_tile(a, a->tiles[tile], a->tiles[tile + 1], kv_head, left < a->span ? left : a->span, chunk, t);
}

/* Divides the sums of query `number` by the sum of all weights. */
static void divide(const struct attention *a, size_t number, const struct kn_seen *all, float *out)
{
	float sum = all->sum;
	if (a->attn->sinks != NULL)
		sum += expf(a->attn->sinks[number % (size_t)a->n_heads] - all->max);
	for (int d = 0; d < a->dim; d++)
		out[d] /= sum;
}

/* All blocks of a tile, in order. */
static void attend_tile(void *ctx, int i_tile)
{
	const struct attention *a = ctx;
	struct tile t;
	tile_at(a, i_tile, &t);
	int dim = a->dim, block = t.first / KN_ATTN_BLOCK * KN_ATTN_BLOCK;
	float *part[TILE_QUERIES], *sums = a->sums + (size_t)kn_pool_self() * TILE_QUERIES * (size_t)dim;
	struct kn_seen seen[TILE_QUERIES], all[TILE_QUERIES] = {{0}};
	struct block two[2];
	for (int i = 0; i < t.n_q; i++) {
		part[i] = sums + (size_t)i * (size_t)dim;
		memset(a->out + t.number[i] * (size_t)dim, 0, (size_t)dim * sizeof *a->out);
	}
	find_block(a, &t, block, &two[0]);
	for (int k = 0; block < t.last; k = !k, block += KN_ATTN_BLOCK) {
		bool more = block + KN_ATTN_BLOCK < t.last;
		if (more)
			find_block(a, &t, block + KN_ATTN_BLOCK, &two[!k]);
		attend_block(a, &t, &two[k], more ? &two[!k] : NULL, part, seen);
		for (int i = 0; i < t.n_q; i++)
			a->b->isa->merge(part[i], &seen[i], &all[i], a->out + t.number[i] * (size_t)dim, dim);
	}
	for (int i = 0; i < t.n_q; i++)
		divide(a, t.number[i], &all[i], a->out + t.number[i] * (size_t)dim);
}

static int n_blocks_of(int32_t first, int32_t last)
{
	return (last + KN_ATTN_BLOCK - 1) / KN_ATTN_BLOCK - first / KN_ATTN_BLOCK;
}

/* Computes a part of a tile's blocks; their sums stay separate. */
static void attend_part(void *ctx, int i_part)
{
	const struct attention *a = ctx;
	struct tile t;
	tile_at(a, i_part / a->n_parts, &t);
	int64_t n = n_blocks_of(t.first, t.last), i_of_tile = i_part % a->n_parts;
	int dim = a->dim, from = (int)(n * i_of_tile / a->n_parts), to = (int)(n * (i_of_tile + 1) / a->n_parts);
	float *part[TILE_QUERIES];
	struct kn_seen seen[TILE_QUERIES];
	struct block two[2];
	int first = t.first / KN_ATTN_BLOCK;
	if (from == to)
		return;
	find_block(a, &t, (first + from) * KN_ATTN_BLOCK, &two[0]);
	for (int k = 0, b = from; b < to; k = !k, b++) {
		if (b + 1 < to)
			find_block(a, &t, (first + b + 1) * KN_ATTN_BLOCK, &two[!k]);
		for (int i = 0; i < t.n_q; i++)
			part[i] = a->sums + (t.number[i] * (size_t)a->n_blocks + (size_t)b) * (size_t)dim;
		attend_block(a, &t, &two[k], b + 1 < to ? &two[!k] : NULL, part, seen);
		for (int i = 0; i < t.n_q; i++)
			a->seen[t.number[i] * (size_t)a->n_blocks + (size_t)b] = seen[i];
	}
}

static void join_parts(void *ctx, int i_tile)
{
	const struct attention *a = ctx;
	struct tile t;
	tile_at(a, i_tile, &t);
	int n = n_blocks_of(t.first, t.last), dim = a->dim;
	for (int i = 0; i < t.n_q; i++) {
		float *out = a->out + t.number[i] * (size_t)dim;
		struct kn_seen all = {0};
		memset(out, 0, (size_t)dim * sizeof *out);
		for (int b = 0; b < n; b++) {
			size_t at = t.number[i] * (size_t)a->n_blocks + (size_t)b;
			a->b->isa->merge(a->sums + at * (size_t)dim, &a->seen[at], &all, out, dim);
		}
		divide(a, t.number[i], &all, out);
	}
}

/* Cuts the rows into runs of at most `most` adjacent rows of one sequence. */
static int cut_tiles(const struct kn_step *s, int most, int32_t *first)
{
	int n = 0;
	for (int r = 0; r < s->n_rows; r++) {
		if (n == 0 || s->row_seq[r] != s->row_seq[r - 1] || r - first[n - 1] == most)
			first[n++] = r;
	}
	first[n] = s->n_rows;
	return n;
}

/* Whether threads may divide blocks, and not only tiles. */
static bool may_split(const struct attention *a)
{
	return kn_pool_n_threads(a->b->pool) > 1 && (int64_t)a->b->step->n_rows * a->n_heads <= SPLIT_QUERIES;
}

/* The number of parts into which the blocks of each of n tiles are split so that every thread has work; 1: not split.
 */
static int parts_of_tiles(const struct attention *a, int n)
{
	int wanted = kn_pool_n_threads(a->b->pool) * PARTS_A_THREAD, parts = (wanted + n - 1) / n;
	if (!may_split(a))
		return 1;
	return parts < a->n_blocks ? parts : a->n_blocks;
}

/* The number of key heads in a tile: as many as fit while every thread still has work. */
static int span_of_tiles(const struct attention *a)
{
	int most = 1, heads = a->group < a->most ? a->group : a->most, kv_heads = a->kv->n_kv_heads;
	for (int i = 0; i < a->n_tiles; i++)
		most = a->tiles[i + 1] - a->tiles[i] > most ? a->tiles[i + 1] - a->tiles[i] : most;
	int span = TILE_QUERIES / (most * heads), threads = kn_pool_n_threads(a->b->pool);
	int64_t each = (int64_t)a->n_tiles * a->n_chunks * (may_split(a) ? a->n_blocks : 1);
	span = span < kv_heads ? span : kv_heads;
	while (span > 1 && threads > 1 && each * ((kv_heads + span - 1) / span) < (int64_t)threads * PARTS_A_THREAD)
		span = (span + 1) / 2;
	return span;
}

/* Memory for the sums, followed by the softmax states. */
static int reserve_sums(struct kn_backend *b, struct attention *a)
{
	size_t n = a->n_parts > 1 ? (size_t)a->b->step->n_rows * (size_t)a->n_heads * (size_t)a->n_blocks
				  : (size_t)kn_pool_n_threads(b->pool) * TILE_QUERIES;
	size_t dim = (size_t)a->dim, need = n * dim + 2 * n;
	if (need > b->n_sums) {
		float *grown = sl_realloc_n(b->sums, need, sizeof *grown);
		if (grown == NULL)
			return SL_EIO;
		b->sums = grown;
		b->n_sums = need;
	}
	a->sums = b->sums;
	a->seen = (struct kn_seen *)(void *)(b->sums + n * dim);
	return 0;
}

/* Heads of a chunk. Where each thread has a part of the blocks or several rows, a latent row is read for many. */
static int heads_of_chunk(const struct attention *a)
{
	const struct kn_step *s = a->b->step;
	int threads = kn_pool_n_threads(a->b->pool), rows = s->n_rows;
	if (a->kv->latent == 0)
		return TILE_HEADS;
	for (int r = 0; r < s->n_rows && rows < threads; r++)
		rows += end_visible(s, r) / KN_ATTN_BLOCK;
	return rows >= threads ? LATENT_HEADS : LATENT_HEADS / 2;
}

/* Positions that the rows see, and the most blocks of a tile. */
static int64_t count_positions(struct attention *a)
{
	const struct kn_step *s = a->b->step;
	int64_t positions = 0;
	for (int i = 0; i < a->n_tiles; i++) {
		int32_t first = INT32_MAX, last = 0;
		for (int r = a->tiles[i]; r < a->tiles[i + 1]; r++) {
			int32_t begin = first_visible(a, s->row_pos[r]), end = end_visible(s, r);
			positions += end - begin;
			first = begin < first ? begin : first;
			last = end > last ? end : last;
		}
		int n = n_blocks_of(first, last);
		a->n_blocks = n > a->n_blocks ? n : a->n_blocks;
	}
	return positions;
}

int kn_cpu_attention(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
		     const struct kn_attn *attn, float *out)
{
	const struct kn_step *s = b->step;
	int32_t few[64], *tiles = few;
	struct attention a = {.b = b,
			      .q = q,
			      .n_heads = n_heads,
			      .kv = kv,
			      .layer = layer,
			      .attn = attn,
			      .out = out,
			      .group = n_heads / kv->n_kv_heads};
	b->packed_of = NULL;
	if (s->n_rows >= 64 && (tiles = sl_zalloc_n((size_t)s->n_rows + 1, sizeof *tiles)) == NULL)
		return SL_EIO;
	a.tiles = tiles;
	a.dim = kv->latent > 0 ? kv->latent : kv->head_dim;
	a.most = heads_of_chunk(&a);
	a.n_chunks = (a.group + a.most - 1) / a.most;
	a.n_tiles = cut_tiles(s, TILE_QUERIES / (a.group < a.most ? a.group : a.most), tiles);
	int64_t positions = count_positions(&a);
	a.span = span_of_tiles(&a);
	a.n_spans = (kv->n_kv_heads + a.span - 1) / a.span;
	int n_items = a.n_tiles * a.n_spans * a.n_chunks;
	/* A score costs a product and a weighting, plus an exponential worth some thirty multiply-adds. */
	bool alone = kn_parts_of(b, positions * n_heads * (kv->head_dim + a.dim + 32)) == 1;
	a.n_parts = alone ? 1 : parts_of_tiles(&a, n_items);
	int rc = reserve_sums(b, &a);
	if (rc == 0 && a.n_parts > 1) {
		kn_run_parts(b, n_items * a.n_parts, attend_part, &a);
		kn_run_parts(b, n_items, join_parts, &a);
	} else if (rc == 0 && !alone) {
		kn_run_parts(b, n_items, attend_tile, &a);
	} else if (rc == 0) {
		for (int i = 0; i < n_items; i++)
			attend_tile(&a, i);
	}
	if (tiles != few)
		sl_free(tiles);
	return rc;
}
