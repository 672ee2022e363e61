/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values: rotated, written to their pages, and attended to.
 *
 * Attention is an online softmax over absolute blocks of KN_ATTN_BLOCK positions, left to right
 * (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
 * "FlashAttention", 2022). A row's result depends on its own position and past only: neighbouring
 * rows of one sequence and the heads that share a key head go through the blocks together, so that a
 * block is read from memory once for all of them, but each has a state of its own and sees its
 * blocks in the same order as it would alone; what another one of them sees and it does not has the
 * weight zero. A window begins inside of a block: the blocks stay where they are.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/backend.h"

enum {
	TILE_HEADS = 4,
	TILE_QUERIES = 64,
	MAX_LANES = 16,
};

/* Floats from the start of k or v to a page's part for one key head. */
static size_t page_offset(const struct kn_kv *kv, int layer, int32_t page, int head)
{
	BUG_IF(page < 0 || page >= kv->n_pages, "page %d of %d", page, kv->n_pages);
	return (((size_t)page * (size_t)kv->n_layers + (size_t)layer) * (size_t)kv->n_kv_heads + (size_t)head) *
	       (size_t)kv->page_tokens * (size_t)kv->head_dim;
}

bool kn_cpu_kv_type(int type)
{
	return type == KN_F32;
}

static int32_t page_of(const struct kn_step *s, int32_t seq, int page_index)
{
	return s->page_table[(size_t)seq * (size_t)s->max_pages + (size_t)page_index];
}

/* ---- rotary embedding ---- */

/* In double: a float angle of a late position would be off by more than the result may be. */
static void angles(const struct kn_rope *rope, int32_t pos, float *cosines, float *sines)
{
	for (int i = 0; i < rope->n_rot / 2; i++) {
		double angle = (double)pos * rope->inv_freq[i];
		cosines[i] = (float)(cos(angle) * (double)rope->magnitude);
		sines[i] = (float)(sin(angle) * (double)rope->magnitude);
	}
}

/* The turns of the step's rows; NULL without memory. */
static const float *turns_of_step(struct kn_backend *b, const struct kn_rope *rope)
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
	size_t half = (size_t)rope->n_rot / 2, need = 2 * half * (size_t)s->n_rows;
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

static void rotate(const struct kn_rope *rope, float *head, const float *cosines, const float *sines)
{
	int half = rope->n_rot / 2, step = rope->halves ? 1 : 2, apart = rope->halves ? half : 1;
	for (int i = 0; i < half; i++) {
		float *x = head + i * step, *y = x + apart, a = *x, c = *y;
		*x = a * cosines[i] - c * sines[i];
		*y = a * sines[i] + c * cosines[i];
	}
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

static void write_row(const struct writing *w, int r)
{
	const struct kn_step *s = w->b->step;
	const struct kn_kv *kv = w->kv;
	size_t hd = (size_t)kv->head_dim, width = (size_t)kv->n_kv_heads * hd, half = (size_t)w->rope->n_rot / 2;
	const float *cosines = w->turns + (size_t)r * 2 * half, *sines = cosines + half;
	float *q = w->q + (size_t)r * (size_t)w->n_heads * hd, *k = w->k + (size_t)r * width;
	int32_t pos = s->row_pos[r];
	for (int h = 0; h < w->n_heads; h++)
		rotate(w->rope, q + (size_t)h * hd, cosines, sines);
	for (int h = 0; h < kv->n_kv_heads; h++)
		rotate(w->rope, k + (size_t)h * hd, cosines, sines);
	int32_t page = page_of(s, s->row_seq[r], pos / kv->page_tokens);
	size_t page_tokens = (size_t)kv->page_tokens, token = (size_t)(pos % kv->page_tokens);
	const float *v = w->v + (size_t)r * width;
	for (int h = 0; h < kv->n_kv_heads; h++, k += hd, v += hd) {
		size_t at = page_offset(kv, w->layer, page, h);
		float *keys = (float *)kv->k + at + token;
		for (size_t d = 0; d < hd; d++)
			keys[d * page_tokens] = k[d];
		memcpy((float *)kv->v + at + token * hd, v, hd * sizeof *v);
	}
}

static void run_writing(void *ctx, int part)
{
	const struct writing *w = ctx;
	int64_t n = w->b->step->n_rows;
	for (int64_t r = n * part / w->n_parts; r < n * (part + 1) / w->n_parts; r++)
		write_row(w, (int)r);
}

int kn_cpu_rope_kv_write(struct kn_backend *b, const struct kn_rope *rope, float *q, int n_heads,
			 float *k, const float *v, const struct kn_kv *kv, int layer)
{
	struct writing w = {.b = b, .rope = rope, .q = q, .k = k, .v = v, .n_heads = n_heads, .kv = kv,
			    .layer = layer, .turns = turns_of_step(b, rope)};
	if (w.turns == NULL)
		return SL_EIO;
	int n_rows = b->step->n_rows;
	int parts = kn_parts_of(b, (int64_t)n_rows * (n_heads + kv->n_kv_heads) * kv->head_dim * 4);
	w.n_parts = parts < n_rows ? parts : n_rows;
	kn_run_parts(b, w.n_parts, run_writing, &w);
	return 0;
}

int kn_cpu_page_copy(struct kn_backend *b, const struct kn_kv *kv, int src, int dst)
{
	(void)b;
	size_t from = page_offset(kv, 0, src, 0), to = page_offset(kv, 0, dst, 0);
	size_t bytes = (size_t)kv->n_layers * (size_t)kv->page_tokens * (size_t)kv->n_kv_heads *
		       (size_t)kv->head_dim * sizeof(float);
	memcpy((float *)kv->k + to, (float *)kv->k + from, bytes);
	memcpy((float *)kv->v + to, (float *)kv->v + from, bytes);
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
	int group;     /* heads of one key head */
	int n_chunks;  /* of at most TILE_HEADS heads each, in a group */
	const int32_t *tiles; /* [n_tiles + 1] first rows */
	int n_tiles;
};

/* Where the positions begin … end-1 of a block lie; what they are of. */
static int find_runs(const struct attention *a, int seq, int kv_head, int block, int begin, int end,
		     struct kn_run *runs)
{
	const struct kn_step *s = a->b->step;
	const struct kn_kv *kv = a->kv;
	int n = 0;
	for (int i = begin; i < end; i += runs[n++].n) {
		int token = i % kv->page_tokens, left = kv->page_tokens - token;
		size_t at = page_offset(kv, a->layer, page_of(s, seq, i / kv->page_tokens), kv_head);
		runs[n] = (struct kn_run){.k = (const float *)kv->k + at, .v = (const float *)kv->v + at, .token = token,
					  .at = i - block, .n = left < end - i ? left : end - i};
	}
	return n;
}

static int first_visible(const struct attention *a, int32_t pos)
{
	int window = a->attn->window;
	return window > 0 && pos + 1 > window ? pos + 1 - window : 0;
}

/* The rows row0…row1-1 of one sequence, for the heads head0…head1-1 of one key head. */
static void attend_tile(const struct attention *a, int row0, int row1, int kv_head, int head0, int head1)
{
	const struct kn_step *s = a->b->step;
	const struct kn_isa *isa = a->b->isa;
	int dim = a->kv->head_dim, page_tokens = a->kv->page_tokens, n_q = 0;
	const float *q[TILE_QUERIES];
	float *out[TILE_QUERIES];
	int32_t from[TILE_QUERIES], to[TILE_QUERIES]; /* what each sees */
	struct kn_seen seen[TILE_QUERIES];
	struct kn_run runs[KN_ATTN_BLOCK];
	_Alignas(KN_ALIGN) float scores[TILE_QUERIES * KN_ATTN_BLOCK];
	int32_t first = INT32_MAX, last = 0;
	memset(seen, 0, sizeof seen);
	for (int r = row0; r < row1; r++) {
		int32_t begin = first_visible(a, s->row_pos[r]), end = s->row_pos[r] + 1;
		for (int h = head0; h < head1; h++, n_q++) {
			size_t at = ((size_t)r * (size_t)a->n_heads + (size_t)h) * (size_t)dim;
			q[n_q] = a->q + at;
			out[n_q] = a->out + at;
			to[n_q] = end;
			from[n_q] = begin;
			seen[n_q] = (struct kn_seen){.max = -INFINITY};
			memset(out[n_q], 0, (size_t)dim * sizeof *a->out);
		}
		first = begin < first ? begin : first;
		last = end > last ? end : last;
	}
	for (int block = first / KN_ATTN_BLOCK * KN_ATTN_BLOCK; block < last; block += KN_ATTN_BLOCK) {
		int end = last < block + KN_ATTN_BLOCK ? last : block + KN_ATTN_BLOCK;
		int begin = first > block ? first : block;
		int n_runs = find_runs(a, s->row_seq[row0], kv_head, block, begin, end, runs);
		isa->scores(q, n_q, runs, n_runs, page_tokens, dim, scores);
		for (int i = 0; i < n_q; i++)
			isa->softmax(scores + (size_t)i * KN_ATTN_BLOCK, (begin - block) / MAX_LANES * MAX_LANES, end - block,
				     from[i] - block, to[i] - block, a->attn, &seen[i], out[i], dim);
		isa->weigh(scores, n_q, runs, n_runs, dim, out);
	}
	for (int i = 0; i < n_q; i++)
		for (int d = 0; d < dim; d++)
			out[i][d] /= seen[i].sum;
}

static void run_tile(void *ctx, int i)
{
	const struct attention *a = ctx;
	int chunk = i % a->n_chunks, kv_head = i / a->n_chunks % a->kv->n_kv_heads;
	int tile = i / a->n_chunks / a->kv->n_kv_heads;
	int head0 = kv_head * a->group + chunk * TILE_HEADS, head1 = head0 + TILE_HEADS;
	if (head1 > (kv_head + 1) * a->group)
		head1 = (kv_head + 1) * a->group;
	attend_tile(a, a->tiles[tile], a->tiles[tile + 1], kv_head, head0, head1);
}

/* Neighbouring rows of one sequence, so many at most. */
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

int kn_cpu_attention(struct kn_backend *b, const float *q, int n_heads, const struct kn_kv *kv, int layer,
		     const struct kn_attn *attn, float *out)
{
	const struct kn_step *s = b->step;
	int32_t few[64], *tiles = few;
	struct attention a = {.b = b, .q = q, .n_heads = n_heads, .kv = kv, .layer = layer, .attn = attn,
			      .out = out, .group = n_heads / kv->n_kv_heads};
	if (s->n_rows >= 64 && (tiles = sl_zalloc_n((size_t)s->n_rows + 1, sizeof *tiles)) == NULL)
		return SL_EIO;
	a.tiles = tiles;
	a.n_chunks = (a.group + TILE_HEADS - 1) / TILE_HEADS;
	a.n_tiles = cut_tiles(s, TILE_QUERIES / (a.group < TILE_HEADS ? a.group : TILE_HEADS), tiles);
	int64_t positions = 0;
	for (int r = 0; r < s->n_rows; r++)
		positions += s->row_pos[r] + 1;
	int n_items = a.n_tiles * kv->n_kv_heads * a.n_chunks;
	/* A score costs a product and a weighing, and an exponential worth some thirty multiply-adds. */
	if (kn_parts_of(b, positions * n_heads * (2 * kv->head_dim + 32)) > 1) {
		kn_run_parts(b, n_items, run_tile, &a);
	} else {
		for (int i = 0; i < n_items; i++)
			run_tile(&a, i);
	}
	if (tiles != few)
		sl_free(tiles);
	return 0;
}
