/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts. Rows are copied in the order of their experts, so that each expert's rows are adjacent and its
 * weights are read once. All experts' products of one kind are one job of the pool: a row alone has eight experts of a
 * few hundred outputs, and a fork and join for each would cost as much as some of them.
 *
 * A row's result does not depend on other rows: its experts are computed on their own, and their outputs are added in
 * the order of its choice.
 *
 * VERSIONS (OLMoE's shape, Q4_K, two threads of an AMX machine that read 34.5 GB/s; shares of reading the bytes that a
 * step touches, by `sluice bench model`)
 *   1  this. One answer 64 %, two 65 %, four 65 %, eight 61 %; a prompt of 512 at 288 tokens/s.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/route.h"
#include "kernels/cpu/some.h"

enum {
	PIECE_ROWS = 256, /* rows of an expert in one product */
	WAVE = 8 << 20,   /* bytes of packed rows at a time, if more than one piece has */
	SHARES = 2,       /* of the remaining outputs, per thread */
	MANY_ROWS = 16,
	MANY_TILES = 16,
	ROUTE_COST = 64, /* of a logit, in multiply-adds */
};

/* Adjacent rows of one expert, in the order of experts. */
struct piece {
	int expert, at, n;
	const void *packed;
};

struct one_product {
	const struct kn_weight *w;
	const struct piece *piece;
	const float *x;
	float *y;
};

enum { SETS = 2 }; /* matrices of an expert that are multiplied with the same rows */

/* A step's rows by expert. Slot k of row r is number r·n_used + k, and row place[number] of the ordered ones. */
struct kn_by_expert {
	int n, n_used, n_pieces, room;
	int32_t *chosen, *place, *row; /* [n]; row: of an ordered one, the step's row */
	float *weights;                /* [n] */
	float *scales;                 /* [n] the weights of the ordered rows */
	struct piece *pieces;
	struct one_product *products; /* SETS of each piece */
};

void kn_by_expert_free(struct kn_by_expert *s)
{
	if (s == NULL)
		return;
	sl_free(s->chosen);
	sl_free(s->place);
	sl_free(s->row);
	sl_free(s->weights);
	sl_free(s->scales);
	sl_free(s->pieces);
	sl_free(s->products);
	sl_free(s);
}

/* Room for n slots of n_experts. */
static struct kn_by_expert *make_room(struct kn_backend *b, int n, int n_experts)
{
	struct kn_by_expert *s = b->by_expert;
	size_t slots = (size_t)n, pieces = slots / PIECE_ROWS + (size_t)(n < n_experts ? n : n_experts) + 1;
	if (s != NULL && s->room >= n)
		return s;
	kn_by_expert_free(s);
	b->by_expert = s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return NULL;
	s->chosen = sl_zalloc_n(slots, sizeof *s->chosen);
	s->place = sl_zalloc_n(slots, sizeof *s->place);
	s->row = sl_zalloc_n(slots, sizeof *s->row);
	s->weights = sl_zalloc_n(slots, sizeof *s->weights);
	s->scales = sl_zalloc_n(slots, sizeof *s->scales);
	s->pieces = sl_zalloc_n(pieces, sizeof *s->pieces);
	s->products = sl_zalloc_n(SETS * pieces, sizeof *s->products);
	if (s->products == NULL || s->chosen == NULL || s->place == NULL || s->row == NULL || s->weights == NULL ||
	    s->scales == NULL || s->pieces == NULL)
		return NULL;
	s->room = n;
	return s;
}

/* ---- order ---- */

struct routing {
	const struct kn_route *route;
	const float *logits;
	struct kn_by_expert *by;
	int n_rows, n_parts;
};

static void run_routing(void *ctx, int part)
{
	const struct routing *g = ctx;
	int from = (int)((int64_t)g->n_rows * part / g->n_parts);
	int to = (int)((int64_t)g->n_rows * (part + 1) / g->n_parts);
	for (int r = from; r < to; r++) {
		size_t at = (size_t)r * (size_t)g->route->n_used;
		kn_route_row(g->route, g->logits + (size_t)r * (size_t)g->route->n, g->by->chosen + at,
			     g->by->weights + at);
	}
}

/* The rows of each expert, in the order of rows, as pieces. */
static void order(struct kn_by_expert *s, const struct kn_experts *e)
{
	int32_t first[KN_MAX_EXPERTS + 1] = {0};
	for (int i = 0; i < s->n; i++)
		first[s->chosen[i] + 1]++;
	s->n_pieces = 0;
	for (int x = 0; x < e->route.n; x++) {
		int n = first[x + 1];
		first[x + 1] += first[x];
		if (e->n_rows != NULL)
			e->n_rows[x] += (uint64_t)n;
		for (int at = 0; at < n; at += PIECE_ROWS)
			s->pieces[s->n_pieces++] = (struct piece){
			    .expert = x, .at = first[x] + at, .n = n - at < PIECE_ROWS ? n - at : PIECE_ROWS};
	}
	for (int i = 0; i < s->n; i++) {
		s->place[i] = first[s->chosen[i]]++;
		s->row[s->place[i]] = i / s->n_used;
		s->scales[s->place[i]] = s->weights[i];
	}
}

/* ---- products of all experts ---- */

struct products {
	struct kn_backend *b;
	struct one_product *all;
	int n, n_out, n_parts, least;
	_Atomic int64_t taken; /* outputs of all, one product after the other */
};

/* Adjacent outputs of one product; false: there are none left. */
static bool take_share(struct products *p, int *product, int *o0, int *o1)
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
	*product = (int)(from / p->n_out);
	*o0 = (int)(from % p->n_out);
	*o1 = *o0 + (int)n;
	return true;
}

static void run_products(void *ctx, int part)
{
	struct products *p = ctx;
	struct kn_backend *b = p->b;
	float *tile = (float *)b->tiles + (size_t)kn_pool_self() * b->tile_floats;
	int i, o0, o1;
	(void)part;
	while (take_share(p, &i, &o0, &o1)) {
		const struct one_product *q = &p->all[i];
		if (q->piece->packed != NULL)
			b->isa->matmul_packed(q->w, o0, o1, q->piece->packed, q->piece->n, q->y, tile, b->tile_floats);
		else
			b->isa->matmul(q->w, o0, o1, q->x, q->piece->n, q->y, tile, b->tile_floats);
	}
}

static void run_packing(void *ctx, int i)
{
	const struct products *p = ctx;
	const struct one_product *q = &p->all[i];
	p->b->isa->pack(q->w->type, q->x, q->piece->n, q->w->n_in, 0, 1, (void *)(uintptr_t)q->piece->packed);
}

/* Products of n_sets matrices of each expert with x, into y[set]; all matrices of one shape. */
struct sets {
	const struct kn_weight *w[SETS];
	float *y[SETS];
	int n;
	const float *x;
};

static bool packs(const struct kn_backend *b, int type) { return b->isa->packs != NULL && b->isa->packs(type); }

/* The types of an expert's matrices, and of different experts', may differ. */
static bool packs_once(const struct kn_backend *b, const struct sets *s, int expert)
{
	for (int i = 0; i < s->n; i++) {
		if (!packs(b, s->w[i][expert].type))
			return false;
		if (!b->isa->packs_alike && s->w[i][expert].type != s->w[0][expert].type)
			return false;
	}
	return true;
}

/* Gives pieces from `first` on their part of the packed memory, as many as fit. Returns the next piece. */
static int place_pieces(struct kn_backend *b, const struct sets *s, struct kn_by_expert *by, int first)
{
	size_t at = 0;
	int i = first;
	for (; i < by->n_pieces; i++) {
		struct piece *piece = &by->pieces[i];
		size_t bytes = 0;
		piece->packed = NULL;
		if (packs_once(b, s, piece->expert)) {
			bytes = b->isa->packed_bytes(piece->n, s->w[0][piece->expert].n_in);
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
static int list_products(const struct sets *s, const struct kn_by_expert *by, int first, int last,
			 struct one_product *out)
{
	int n = 0;
	for (int set = 0; set < s->n; set++)
		for (int i = first; i < last; i++) {
			const struct piece *piece = &by->pieces[i];
			const struct kn_weight *w = &s->w[set][piece->expert];
			out[n++] = (struct one_product){.w = w,
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

static void run_wave(struct kn_backend *b, const struct sets *s, struct kn_by_expert *by, int first, int last)
{
	const int step = b->isa->tile_outputs;
	struct products p = {.b = b, .all = by->products, .n_out = s->w[0][0].n_out};
	int64_t rows = 0, n_in = s->w[0][0].n_in;
	p.n = list_products(s, by, first, last, by->products);
	for (int i = first; i < last; i++)
		rows += by->pieces[i].n;
	pack_rows(&p, last - first);
	int64_t work = rows * n_in * p.n_out * s->n, mean = rows / (last - first);
	int64_t least = KN_MIN_SHARE / (n_in * (mean > 0 ? mean : 1)) / step * step;
	b->work += work;
	p.n_parts = kn_parts_of(b, work) == 1 ? 1 : kn_pool_n_threads(b->pool);
	p.least = p.n_parts == 1 ? p.n_out : mean > MANY_ROWS ? MANY_TILES * step : least > step ? (int)least : step;
	atomic_init(&p.taken, 0);
	kn_run_parts(b, p.n_parts, run_products, &p);
}

static void run_sets(struct kn_backend *b, const struct sets *s, struct kn_by_expert *by)
{
	int next;
	for (int first = 0; first < by->n_pieces; first = next) {
		next = place_pieces(b, s, by, first);
		run_wave(b, s, by, first, next);
	}
}

/* ---- rows in and out ---- */

struct moves {
	const struct kn_by_expert *by;
	const float *from;
	float *to;
	int width, n, n_parts;
	bool weighs_input;
};

static void run_copies(void *ctx, int part)
{
	const struct moves *m = ctx;
	int from = (int)((int64_t)m->n * part / m->n_parts), to = (int)((int64_t)m->n * (part + 1) / m->n_parts);
	size_t width = (size_t)m->width;
	for (int i = from; i < to; i++)
		memcpy(m->to + (size_t)i * width, m->from + (size_t)m->by->row[i] * width, width * sizeof(float));
	for (int i = from; i < to && m->weighs_input; i++)
		for (size_t k = 0; k < width; k++)
			m->to[(size_t)i * width + k] *= m->by->scales[i];
}

/* y += weight · x; y = weight · x for the first. */
static void add_weighted(float *y, const float *x, float weight, int n, bool first)
{
	int i = 0;
	for (; i + SOME <= n; i += SOME)
		some_store(y + i, first ? some_load(x + i) * weight : some_load(y + i) + some_load(x + i) * weight);
	for (; i < n; i++)
		y[i] = first ? x[i] * weight : y[i] + x[i] * weight;
}

static void run_sums(void *ctx, int part)
{
	const struct moves *m = ctx;
	int from = (int)((int64_t)m->n * part / m->n_parts), to = (int)((int64_t)m->n * (part + 1) / m->n_parts);
	for (int r = from; r < to; r++)
		for (int k = 0; k < m->by->n_used; k++) {
			int i = r * m->by->n_used + k;
			add_weighted(m->to + (size_t)r * (size_t)m->width,
				     m->from + (size_t)m->by->place[i] * (size_t)m->width,
				     m->weighs_input ? 1 : m->by->weights[i], m->width, k == 0);
		}
}

static void move(struct kn_backend *b, struct moves *m, int64_t cost, void (*run)(void *ctx, int part))
{
	int parts = kn_parts_of(b, cost);
	m->n_parts = parts < m->n ? parts : m->n;
	kn_run_parts(b, m->n_parts, run, m);
}

/* Each expert's bias, added to its rows; bias NULL: nothing. */
struct biases {
	const struct kn_by_expert *by;
	const float *bias;
	float *y;
	int width;
};

static void run_biases(void *ctx, int i_piece)
{
	const struct biases *s = ctx;
	const struct piece *piece = &s->by->pieces[i_piece];
	const float *bias = s->bias + (size_t)piece->expert * (size_t)s->width;
	for (int r = piece->at; r < piece->at + piece->n; r++)
		add_weighted(s->y + (size_t)r * (size_t)s->width, bias, 1, s->width, false);
}

static void add_biases(struct kn_backend *b, const struct kn_by_expert *by, const float *bias, int width, float *y)
{
	struct biases s = {.by = by, .bias = bias, .y = y, .width = width};
	if (bias == NULL)
		return;
	if (kn_parts_of(b, (int64_t)by->n * width) > 1)
		kn_run_parts(b, by->n_pieces, run_biases, &s);
	else
		for (int i = 0; i < by->n_pieces; i++)
			run_biases(&s, i);
}

static void activate(struct kn_backend *b, enum kn_gate act, float *gate, const float *up, int n_rows, int width)
{
	switch (act) {
	case KN_GATE_SILU: (void)kn_cpu_silu_mul(b, gate, up, n_rows, width); break;
	case KN_GATE_GELU: (void)kn_cpu_gelu_mul(b, gate, up, n_rows, width); break;
	case KN_GATE_CLAMPED: (void)kn_cpu_clamped_mul(b, gate, up, n_rows, width); break;
	}
}

/* The rows' experts, and the rows in their order. */
static void route_rows(struct kn_backend *b, const struct kn_experts *e, const float *logits, int n_rows,
		       struct kn_by_expert *by)
{
	struct routing g = {.route = &e->route, .logits = logits, .by = by, .n_rows = n_rows};
	int parts = kn_parts_of(b, (int64_t)n_rows * e->route.n * ROUTE_COST);
	g.n_parts = parts < n_rows ? parts : n_rows;
	by->n = n_rows * e->route.n_used;
	by->n_used = e->route.n_used;
	kn_run_parts(b, g.n_parts, run_routing, &g);
	order(by, e);
}

int kn_cpu_experts(struct kn_backend *b, const struct kn_experts *e, const float *logits, const float *x, int n_rows,
		   float *work, float *y)
{
	int width = e->up[0].n_in, n_ff = e->up[0].n_out, n = n_rows * e->route.n_used;
	struct kn_by_expert *by = make_room(b, n, e->route.n);
	if (by == NULL || kn_reserve_packed(b, PIECE_ROWS, width > n_ff ? width : n_ff, WAVE) != 0)
		return SL_EIO;
	b->packed_of = NULL;
	route_rows(b, e, logits, n_rows, by);

	size_t wide = (size_t)n * (size_t)width, narrow = (size_t)n * (size_t)n_ff;
	float *in = work, *out = in + wide, *gate = out + wide, *up = gate + narrow;
	struct moves copies = {.by = by, .from = x, .to = in, .width = width, .n = n, .weighs_input = e->weighs_input};
	move(b, &copies, (int64_t)wide, run_copies);
	run_sets(b, &(struct sets){.w = {e->gate, e->up}, .y = {gate, up}, .n = 2, .x = in}, by);
	add_biases(b, by, e->gate_bias, n_ff, gate);
	add_biases(b, by, e->up_bias, n_ff, up);
	activate(b, e->act, gate, up, n, n_ff);
	run_sets(b, &(struct sets){.w = {e->down}, .y = {out}, .n = 1, .x = gate}, by);
	add_biases(b, by, e->down_bias, width, out);
	struct moves sums = {
	    .by = by, .from = out, .to = y, .width = width, .n = n_rows, .weighs_input = e->weighs_input};
	move(b, &sums, (int64_t)wide, run_sums);
	return 0;
}
