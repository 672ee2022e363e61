/* SPDX-License-Identifier: Apache-2.0
 *
 * What latent rows need besides attention.c: rows written to their pages, and products of each head.
 *
 * A head's product reads and writes a part of its head in every row. Those parts are copied to and from contiguous rows
 * of each head, so that a head's weights are read once for all rows; a copied element costs little beside its product
 * with a hundred weights.
 */
#include <string.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/grouped.h"
#include "kernels/kv_type.h"

enum { TURN_COST = 28 }; /* cost of rotating and writing an element, in multiply-adds */

/* ---- rows and queries ---- */

struct writing {
	struct kn_backend *b;
	const struct kn_rope *rope;
	const float *turns, *gain, *q;
	float eps;
	int n_heads, q_width, layer, n_parts;
	float *row, *q_latent;
	const struct kn_kv *kv;
};

/* The turned elements of a row's queries. */
static void write_queries(const struct writing *w, int r, const float *cosines, const float *sines)
{
	size_t width = (size_t)w->kv->head_dim, latent = (size_t)w->kv->latent, turned = width - latent;
	for (int h = 0; h < w->n_heads; h++) {
		size_t at = (size_t)r * (size_t)w->n_heads + (size_t)h;
		float *to = w->q_latent + at * width + latent;
		memcpy(to, w->q + (at + 1) * (size_t)w->q_width - turned, turned * sizeof *to);
		kn_rotate(w->rope, to, cosines, sines);
	}
}

static void write_row(const struct writing *w, int r)
{
	const struct kn_step *s = w->b->step;
	const struct kn_kv *kv = w->kv;
	size_t half = (size_t)w->rope->n_rot / 2, width = (size_t)kv->head_dim;
	const float *cosines = w->turns + (size_t)r * 2 * half, *sines = cosines + half;
	float *row = w->row + (size_t)r * width;
	int pos = s->row_pos[r], token = pos % kv->page_tokens;
	int32_t page = kn_table_of(s, s->row_seq[r], kv->group)[pos / kv->page_tokens];
	BUG_IF(page < 0 || page >= kv->n_pages, "page %d of %d", page, kv->n_pages);
	write_queries(w, r, cosines, sines);
	kn_norm_floats(w->b, row, w->gain, w->eps, kv->latent, row);
	kn_rotate(w->rope, row + kv->latent, cosines, sines);
	uint8_t *block = kn_kv_latent_block(kv, page, w->layer, &token);
	size_t at = (size_t)token * width * kn_kv_element_bytes(kv->type);
	float scale = w->b->isa->put_kv(kv->type, row, kv->head_dim, block + at);
	if (kn_kv_has_scales(kv->type))
		((float *)(void *)(block + kn_kv_scales_at(kv->type, kv->page_tokens / 2, kv->head_dim)))[token] =
		    scale;
}

static void run_writing(void *ctx, int part)
{
	const struct writing *w = ctx;
	int64_t n = w->b->step->n_rows;
	for (int64_t r = n * part / w->n_parts; r < n * (part + 1) / w->n_parts; r++)
		write_row(w, (int)r);
}

int kn_cpu_latent_write(struct kn_backend *b, const struct kn_rope *rope, const float *gain, float eps, const float *q,
			int n_heads, int q_width, float *row, float *q_latent, const struct kn_kv *kv, int layer)
{
	struct writing w = {.b = b,
			    .rope = rope,
			    .turns = kn_turns_of_step(b, rope),
			    .gain = gain,
			    .q = q,
			    .eps = eps,
			    .n_heads = n_heads,
			    .q_width = q_width,
			    .layer = layer,
			    .row = row,
			    .q_latent = q_latent,
			    .kv = kv};
	b->packed_of = NULL;
	if (w.turns == NULL)
		return SL_EIO;
	int n_rows = b->step->n_rows, turned = kv->head_dim - kv->latent;
	int parts = kn_parts_of(b, (int64_t)n_rows * (n_heads * turned + kv->head_dim) * TURN_COST);
	w.n_parts = parts < n_rows ? parts : n_rows;
	kn_run_parts(b, w.n_parts, run_writing, &w);
	return 0;
}

/* ---- products of heads ---- */

/* The first `n` elements of each head: between rows [n_rows][n_heads][width] and [n_heads][n_rows][n]. */
struct moves {
	const float *from;
	float *to;
	bool out; /* to rows */
	int n_rows, n_heads, width, n, n_parts;
};

static void run_moves(void *ctx, int part)
{
	const struct moves *m = ctx;
	int64_t all = (int64_t)m->n_heads * m->n_rows;
	size_t n = (size_t)m->n, width = (size_t)m->width;
	for (int64_t i = all * part / m->n_parts; i < all * (part + 1) / m->n_parts; i++) {
		size_t head = (size_t)(i / m->n_rows), row = (size_t)(i % m->n_rows);
		size_t wide = (row * (size_t)m->n_heads + head) * width, packed = (size_t)i * n;
		memcpy(m->to + (m->out ? wide : packed), m->from + (m->out ? packed : wide), n * sizeof *m->to);
	}
}

static void move(struct kn_backend *b, struct moves *m)
{
	int64_t all = (int64_t)m->n_heads * m->n_rows;
	int parts = kn_parts_of(b, all * m->n);
	m->n_parts = parts < all ? parts : (int)all;
	kn_run_parts(b, m->n_parts, run_moves, m);
}

int kn_cpu_matmul_heads(struct kn_backend *b, const struct kn_weight *w, int n_heads, const float *x, int x_width,
			int n_rows, float *work, float *y, int y_width)
{
	int n_in = w[0].n_in, n_out = w[0].n_out;
	float *made = work + (size_t)n_heads * (size_t)n_rows * (size_t)n_in;
	if (n_rows == 0)
		return 0;
	if (kn_pieces_reserve(b, n_heads * n_rows, n_heads, n_in) != 0)
		return SL_EIO;
	for (int h = 0; h < n_heads; h++)
		kn_pieces_add(b->pieces, h, h * n_rows, n_rows);
	struct moves in = {.from = x, .to = work, .n_rows = n_rows, .n_heads = n_heads, .width = x_width, .n = n_in};
	move(b, &in);
	kn_pieces_run(b, &(struct kn_sets){.w = {w}, .y = {made}, .n = 1, .x = work});
	struct moves out = {
	    .from = made, .to = y, .out = true, .n_rows = n_rows, .n_heads = n_heads, .width = y_width, .n = n_out};
	move(b, &out);
	return 0;
}
