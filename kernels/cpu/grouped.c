/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/grouped.h"

#include <stdatomic.h>

#include "base/alloc.h"

enum {
	PIECE_ROWS = 256, /* rows of a matrix in one product */
	WAVE = 8 << 20,   /* bytes of packed rows at a time, if more than one piece has */
	SHARES = 2,       /* of the remaining outputs, per thread */
	MANY_ROWS = 16,
	MANY_TILES = 16,
};

struct kn_one_product {
	const struct kn_weight *w;
	const struct kn_piece *piece;
	const float *x;
	float *y;
};

void kn_pieces_free(struct kn_pieces *p)
{
	if (p == NULL)
		return;
	sl_free(p->all);
	sl_free(p->products);
	sl_free(p);
}

int kn_pieces_reserve(struct kn_backend *b, int n_rows, int n_matrices, int n_in)
{
	struct kn_pieces *p = b->pieces;
	size_t n = (size_t)n_rows / PIECE_ROWS + (size_t)(n_rows < n_matrices ? n_rows : n_matrices) + 1;
	if (p == NULL || p->room < n) {
		kn_pieces_free(p);
		b->pieces = p = sl_zalloc(sizeof *p);
		if (p == NULL)
			return SL_ENOMEM;
		p->all = sl_zalloc_n(n, sizeof *p->all);
		p->products = sl_zalloc_n(KN_SETS * n, sizeof *p->products);
		if (p->all == NULL || p->products == NULL)
			return SL_ENOMEM;
		p->room = n;
	}
	p->n = 0;
	return kn_reserve_packed(b, PIECE_ROWS, n_in, WAVE);
}

void kn_pieces_add(struct kn_pieces *p, int matrix, int at, int n)
{
	for (int i = 0; i < n; i += PIECE_ROWS)
		p->all[p->n++] =
		    (struct kn_piece){.matrix = matrix, .at = at + i, .n = n - i < PIECE_ROWS ? n - i : PIECE_ROWS};
}

/* ---- products of all pieces ---- */

struct products {
	struct kn_backend *b;
	struct kn_one_product *all;
	int n, n_out, n_parts, least;
	_Atomic int64_t taken; /* outputs of all, one product after the other */
};

/* Outputs o0 to o1 - 1 of a product. */
struct share {
	const struct kn_one_product *of;
	int o0, o1;
};

/* False: there is none. */
static bool take_share(struct products *p, struct share *out)
{
	const int step = p->b->isa->tile_outputs;
	const int64_t all = (int64_t)p->n * p->n_out;
	int64_t from = atomic_load_explicit(&p->taken, memory_order_relaxed), n;
	do {
		if (from >= all)
			return false;
		int64_t left = p->n_out - from % p->n_out;
		n = (all - from) / (p->n_parts * SHARES) / step * step;
		n = n > p->least ? n : p->least;
		n = n < left ? n : left;
	} while (!atomic_compare_exchange_weak_explicit(&p->taken, &from, from + n, memory_order_relaxed,
							memory_order_relaxed));
	out->of = &p->all[from / p->n_out];
	out->o0 = (int)(from % p->n_out);
	out->o1 = out->o0 + (int)n;
	return true;
}

/* Takes the next share before it computes one, and brings its first weights: experts lie apart, so what the processor
 * itself prefetches ends with each. */

static void run_products(void *ctx, int part)
{
	struct products *p = ctx;
	struct kn_backend *b = p->b;
	float *tile = (float *)b->tiles + (size_t)kn_pool_self() * b->tile_floats;
	struct share now, next = {0};
	(void)part;
	for (bool more = take_share(p, &now); more; now = next) {
		const struct kn_one_product *q = now.of;
		more = take_share(p, &next);
		if (more)
			kn_bring_share(b, next.of->w, next.o0);
		if (q->piece->packed != NULL)
			b->isa->matmul_packed(q->w, now.o0, now.o1, q->piece->packed, q->piece->n, q->y, tile,
					      b->tile_floats);
		else
			b->isa->matmul(q->w, now.o0, now.o1, q->x, q->piece->n, q->y, tile, b->tile_floats);
	}
}

static void run_packing(void *ctx, int i)
{
	const struct products *p = ctx;
	const struct kn_one_product *q = &p->all[i];
	p->b->isa->pack(q->w->type, q->x, q->piece->n, q->w->n_in, 0, 1, (void *)(uintptr_t)q->piece->packed);
}

static bool packs(const struct kn_backend *b, int type) { return b->isa->packs != NULL && b->isa->packs(type); }

/* The types of a set's matrices, and of different sets', may differ. */
static bool packs_once(const struct kn_backend *b, const struct kn_sets *s, int matrix)
{
	for (int i = 0; i < s->n; i++) {
		if (!packs(b, s->w[i][matrix].type))
			return false;
		if (!b->isa->packs_alike && s->w[i][matrix].type != s->w[0][matrix].type)
			return false;
	}
	return true;
}

/* Gives pieces from `first` on their part of the packed memory, as many as fit. Returns the next piece. */
static int place_pieces(struct kn_backend *b, const struct kn_sets *s, struct kn_pieces *by, int first)
{
	size_t at = 0;
	int i = first;
	for (; i < by->n; i++) {
		struct kn_piece *piece = &by->all[i];
		size_t bytes = 0;
		piece->packed = NULL;
		if (packs_once(b, s, piece->matrix)) {
			bytes = b->isa->packed_bytes(piece->n, s->w[0][piece->matrix].n_in);
			bytes = (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
			if (at + bytes > b->packed_bytes)
				break;
			piece->packed = (uint8_t *)b->packed + at;
		}
		at += bytes;
	}
	return i;
}

/* The products of pieces first…last-1, one set's after the other's. */
static int list_products(const struct kn_sets *s, const struct kn_pieces *by, int first, int last,
			 struct kn_one_product *out)
{
	int n = 0;
	for (int set = 0; set < s->n; set++)
		for (int i = first; i < last; i++) {
			const struct kn_piece *piece = &by->all[i];
			const struct kn_weight *w = &s->w[set][piece->matrix];
			out[n++] = (struct kn_one_product){.w = w,
							   .piece = piece,
							   .x = s->x + (size_t)piece->at * (size_t)w->n_in,
							   .y = s->y[set] + (size_t)piece->at * (size_t)w->n_out};
		}
	return n;
}

/* Packs the rows of the first set's products, which the others share. */
static void pack_rows(struct products *p, int n)
{
	int64_t floats = 0;
	bool any = false;
	for (int i = 0; i < n; i++) {
		floats += (int64_t)p->all[i].piece->n * p->all[i].w->n_in;
		any = any || p->all[i].piece->packed != NULL;
	}
	if (!any)
		return;
	if (kn_parts_of(p->b, floats * KN_PACK_COST) == 1)
		for (int i = 0; i < n; i++)
			run_packing(p, i);
	else
		kn_run_parts(p->b, n, run_packing, p);
}

static void run_wave(struct kn_backend *b, const struct kn_sets *s, struct kn_pieces *by, int first, int last)
{
	const int step = b->isa->tile_outputs;
	struct products p = {.b = b, .all = by->products, .n_out = s->w[0][0].n_out};
	int64_t rows = 0, n_in = s->w[0][0].n_in;
	p.n = list_products(s, by, first, last, by->products);
	for (int i = first; i < last; i++)
		rows += by->all[i].n;
	pack_rows(&p, last - first);
	int64_t work = rows * n_in * p.n_out * s->n, mean = rows / (last - first);
	int64_t least = KN_MIN_SHARE / (n_in * (mean > 0 ? mean : 1)) / step * step;
	b->work += work;
	p.n_parts = kn_parts_of(b, work) == 1 ? 1 : kn_pool_n_threads(b->pool);
	p.least = p.n_parts == 1 ? p.n_out : mean > MANY_ROWS ? MANY_TILES * step : least > step ? (int)least : step;
	atomic_init(&p.taken, 0);
	kn_run_parts(b, p.n_parts, run_products, &p);
}

void kn_pieces_run(struct kn_backend *b, const struct kn_sets *s)
{
	struct kn_pieces *by = b->pieces;
	int next;
	b->packed_of = NULL;
	for (int first = 0; first < by->n; first = next) {
		next = place_pieces(b, s, by, first);
		run_wave(b, s, by, first, next);
	}
}
