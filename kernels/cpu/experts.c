/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts. Rows are copied in the order of their experts, so that each expert's rows are adjacent and its
 * weights are read once. All experts' products of one kind are one job of the pool (grouped.h).
 *
 * A row's result does not depend on other rows: its experts are computed on their own, and their outputs are added in
 * the order of its choice.
 *
 * VERSIONS (OLMoE's shape, Q4_K, two threads of an AMX machine that read 34.5 GB/s; shares of reading the bytes that a
 * step touches, by `sluice bench model`)
 *   1  One answer 64 %, two 65 %, four 65 %, eight 61 %; a prompt of 512 at 288 tokens/s.
 *   2  this: the next share is taken and its first weights prefetched before one is computed (grouped.c), with products
 *      of version 3 in int8_vnni.c. Two threads of a Zen 5, runs alternating, one round, tokens/s of one and of eight
 *      answers: Q4_K 41.5 and 78 before, 47.9 and 92 now; MXFP4 36.2 and 74 before, 42.0 and 110 now.
 */
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/grouped.h"
#include "kernels/cpu/route.h"
#include "kernels/cpu/some.h"

enum {
	ROUTE_COST = 64, /* of a logit, in multiply-adds */
};

/* A step's rows by expert. Slot k of row r is number r·n_used + k, and row place[number] of the ordered ones. */
struct kn_by_expert {
	int n, n_used, room;
	int32_t *chosen, *place, *row; /* [n]; row: of an ordered one, the step's row */
	float *weights;                /* [n] */
	float *scales;                 /* [n] the weights of the ordered rows */
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
	sl_free(s);
}

/* Room for n slots. */
static struct kn_by_expert *make_room(struct kn_backend *b, int n)
{
	struct kn_by_expert *s = b->by_expert;
	size_t slots = (size_t)n;
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
	if (s->chosen == NULL || s->place == NULL || s->row == NULL || s->weights == NULL || s->scales == NULL)
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
static void order(struct kn_by_expert *s, const struct kn_experts *e, struct kn_pieces *pieces)
{
	int32_t first[KN_MAX_EXPERTS + 1] = {0};
	for (int i = 0; i < s->n; i++)
		first[s->chosen[i] + 1]++;
	pieces->n = 0;
	for (int x = 0; x < e->route.n; x++) {
		int n = first[x + 1];
		first[x + 1] += first[x];
		if (e->n_rows != NULL)
			e->n_rows[x] += (uint64_t)n;
		kn_pieces_add(pieces, x, first[x], n);
	}
	for (int i = 0; i < s->n; i++) {
		s->place[i] = first[s->chosen[i]]++;
		s->row[s->place[i]] = i / s->n_used;
		s->scales[s->place[i]] = s->weights[i];
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
	const struct kn_pieces *pieces;
	const float *bias;
	float *y;
	int width;
};

static void run_biases(void *ctx, int i_piece)
{
	const struct biases *s = ctx;
	const struct kn_piece *piece = &s->pieces->all[i_piece];
	const float *bias = s->bias + (size_t)piece->matrix * (size_t)s->width;
	for (int r = piece->at; r < piece->at + piece->n; r++)
		add_weighted(s->y + (size_t)r * (size_t)s->width, bias, 1, s->width, false);
}

static void add_biases(struct kn_backend *b, int n_rows, const float *bias, int width, float *y)
{
	struct biases s = {.pieces = b->pieces, .bias = bias, .y = y, .width = width};
	if (bias == NULL)
		return;
	if (kn_parts_of(b, (int64_t)n_rows * width) > 1)
		kn_run_parts(b, s.pieces->n, run_biases, &s);
	else
		for (int i = 0; i < s.pieces->n; i++)
			run_biases(&s, i);
}

static void activate(struct kn_backend *b, enum kn_gate act, float *gate, const float *up, int n_rows, int width)
{
	switch (act) {
	case KN_GATE_SILU: (void)kn_cpu_silu_mul(b, gate, up, n_rows, width); break;
	case KN_GATE_GELU: (void)kn_cpu_gelu_mul(b, gate, up, n_rows, width); break;
	case KN_GATE_CLAMPED: (void)kn_cpu_clamped_mul(b, gate, up, n_rows, width); break;
	case KN_NO_GATE: (void)kn_cpu_relu_square(b, gate, n_rows, width); break;
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
	order(by, e, b->pieces);
}

/* Adds to the product of x what adapters do; up NULL: y is of one matrix, which with KN_NO_GATE is up. */
static int add_lora(struct kn_backend *b, const struct kn_experts *e, int which, const float *x, float *y, float *up)
{
	int n_in = which == 0 ? e->up[0].n_in : e->up[0].n_out, n = which == 0 ? e->up[0].n_out : e->up[0].n_in;
	struct kn_lora_out outs[KN_LORA_PARTS] = {{y, n, n}, {up, n, up != NULL ? n : 0}};
	if (e->lora == NULL)
		return 0;
	if (which == 0 && up == NULL) {
		outs[1] = outs[0];
		outs[0] = (struct kn_lora_out){NULL, 0, 0};
	}
	return kn_expert_lora_add(b, e, which, x, n_in, outs);
}

int kn_cpu_experts(struct kn_backend *b, const struct kn_experts *e, const float *logits, const float *x, int n_rows,
		   float *work, float *y)
{
	int width = e->up[0].n_in, n_ff = e->up[0].n_out, n = n_rows * e->route.n_used;
	struct kn_by_expert *by = make_room(b, n);
	if (by == NULL || kn_pieces_reserve(b, n, e->route.n, width > n_ff ? width : n_ff) != 0)
		return SL_EIO;
	route_rows(b, e, logits, n_rows, by);
	const struct kn_slots slots = {.chosen = by->chosen, .place = by->place, .n_used = by->n_used};
	if (e->lora != NULL && kn_expert_lora_begin(b, e, &slots) != 0)
		return SL_EIO;
	int rc;

	size_t wide = (size_t)n * (size_t)width, narrow = (size_t)n * (size_t)n_ff;
	float *in = work, *out = in + wide, *gate = out + wide, *up = gate + narrow;
	struct moves copies = {.by = by, .from = x, .to = in, .width = width, .n = n, .weighs_input = e->weighs_input};
	move(b, &copies, (int64_t)wide, run_copies);
	if (e->act == KN_NO_GATE) { /* up alone, where a gate would be */
		kn_pieces_run(b, &(struct kn_sets){.w = {e->up}, .y = {gate}, .n = 1, .x = in});
		rc = add_lora(b, e, 0, in, gate, NULL);
		add_biases(b, n, e->up_bias, n_ff, gate);
	} else {
		kn_pieces_run(b, &(struct kn_sets){.w = {e->gate, e->up}, .y = {gate, up}, .n = 2, .x = in});
		rc = add_lora(b, e, 0, in, gate, up);
		add_biases(b, n, e->gate_bias, n_ff, gate);
		add_biases(b, n, e->up_bias, n_ff, up);
	}
	activate(b, e->act, gate, up, n, n_ff);
	kn_pieces_run(b, &(struct kn_sets){.w = {e->down}, .y = {out}, .n = 1, .x = gate});
	if (rc == 0)
		rc = add_lora(b, e, 1, gate, out, NULL);
	add_biases(b, n, e->down_bias, width, out);
	struct moves sums = {
	    .by = by, .from = out, .to = y, .width = width, .n = n_rows, .weighs_input = e->weighs_input};
	move(b, &sums, (int64_t)wide, run_sums);
	return rc;
}
