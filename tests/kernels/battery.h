/* SPDX-License-Identifier: Apache-2.0
 *
 * A small run over every operation of a table that computes on the host, beside the reference: returns
 * NULL, or the first thing that is wrong. What it is for is not precision, which test_ops.c and test_attention.c prove,
 * but rows of every kind in few operations: so that it can be repeated in every order of threads, under every sanitizer
 * and for every mutant.
 *
 * Bounds of products are those of products.h. A misplaced number is off by more, or not a number.
 */
#ifndef TESTS_KERNELS_BATTERY_H
#define TESTS_KERNELS_BATTERY_H

#include "tests/kernels/battery_latent.h"
#include "tests/kernels/battery_recurrent.h"
#include "tests/kernels/battery_rig.h"

static inline const char *battery_product(struct rig *rigs, int type, int n_in, int n_rows)
{
	enum { OUT = 13 };
	struct matrix m = make_matrix(type, OUT, n_in);
	struct kn_step s = {.n_rows = n_rows};
	float *x[2], *y[2];
	for (int i = 0; i < 2; i++) {
		x[i] = room(&rigs[i], (size_t)(n_rows * n_in));
		y[i] = room(&rigs[i], (size_t)(n_rows * OUT));
	}
	fill(x[0], x[1], (size_t)(n_rows * n_in));
	for (int r = 0; r < n_rows; r++) /* one that stands out, which scales the row */
		x[0][r * n_in + r % n_in] = x[1][r * n_in + r % n_in] *= 64;
	for (int i = 0; i < 2; i++) {
		struct rig *r = &rigs[i];
		struct kn_weight w;
		struct sl_err err;
		did(r, r->o->weight_load(r->b, m.bytes, type, OUT, n_in, &w, &err));
		did(r, r->o->step_begin(r->b, &s));
		did(r, r->o->matmul(r->b, &w, x[i], n_rows, y[i]));
		did(r, r->o->step_end(r->b));
		r->o->weight_free(r->b, &w);
	}
	const char *wrong = NULL;
	for (int i = 0; i < n_rows * OUT && wrong == NULL; i++) {
		double magnitude = 0, e = activation_error(rigs[1].o, type);
		for (int k = 0; k < n_in; k++)
			magnitude += fabs(m.values[i % OUT * n_in + k] * (double)x[0][i / OUT * n_in + k]);
		wrong = differ("a product", y[0] + i, y[1] + i, 1, (gamma_of(n_in) + e) * magnitude + 0x1p-24);
	}
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, x[i]);
		rigs[i].o->mem_free(rigs[i].b, y[i]);
	}
	drop_matrix(&m);
	return wrong;
}

/* Rows that another operation changes between two products of them. */
static inline const char *battery_changed(struct rig *rigs)
{
	enum { WIDTH = 40, OUT = 13 };
	struct matrix m = make_matrix(KN_F16, OUT, WIDTH);
	struct kn_step s = {.n_rows = 1};
	float *x[2], *y[2];
	for (int i = 0; i < 2; i++) {
		x[i] = room(&rigs[i], WIDTH);
		y[i] = room(&rigs[i], (size_t)(2 * OUT));
	}
	fill(x[0], x[1], WIDTH);
	for (int i = 0; i < 2; i++) {
		struct rig *r = &rigs[i];
		struct kn_weight w;
		struct sl_err err;
		did(r, r->o->weight_load(r->b, m.bytes, KN_F16, OUT, WIDTH, &w, &err));
		did(r, r->o->step_begin(r->b, &s));
		did(r, r->o->matmul(r->b, &w, x[i], 1, y[i]));
		did(r, r->o->scale(r->b, x[i], 3, 1, WIDTH));
		did(r, r->o->matmul(r->b, &w, x[i], 1, y[i] + OUT));
		did(r, r->o->step_end(r->b));
		r->o->weight_free(r->b, &w);
	}
	/* Forty weights and activations below 2 and 1, or 3. */
	const char *wrong = differ("a product of changed rows", y[0], y[1], (size_t)(2 * OUT), 3 * 80 * 0x1p-11);
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, x[i]);
		rigs[i].o->mem_free(rigs[i].b, y[i]);
	}
	drop_matrix(&m);
	return wrong;
}

enum { ROW_OPS = 10 };

/* One operation on rows; what is right to U and a few is right to 1e-5 here. */
static inline void row_op(struct rig *r, int op, float *x, const float *y, const float *row, const int32_t *pick, int n,
			  int width, float *z)
{
	const struct kn_ops *o = r->o;
	switch (op) {
	case 0: did(r, o->rmsnorm(r->b, x, row, 1e-5f, n, width, z)); break;
	case 1: did(r, o->rmsnorm(r->b, x, row, 1e-5f, n, width, x)); break;
	case 2: did(r, o->silu_mul(r->b, x, y, n, width)); break;
	case 3: did(r, o->gelu_mul(r->b, x, y, n, width)); break;
	case 4: did(r, o->add(r->b, x, y, n, width)); break;
	case 5: did(r, o->add_row(r->b, x, row, n, width)); break;
	case 6: did(r, o->scale(r->b, x, 0.75f, n, width)); break;
	case 7: did(r, o->softcap(r->b, x, 0.5f, n, width)); break;
	case 8: did(r, o->add_rmsnorm(r->b, x, y, row, 1e-5f, n, width, z)); break;
	default: did(r, o->gather(r->b, x, pick, n, width, z)); break;
	}
}

static inline const char *battery_rows(struct rig *rigs, int op)
{
	enum { ROWS = 3, WIDTH = 1031, ALL = ROWS * WIDTH };
	static const int32_t pick[ROWS] = {2, 0, 2};
	float *at[2][4]; /* x, y, one row, z */
	struct kn_step s = {.n_rows = ROWS};
	const char *wrong = NULL;
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 4; k++)
			at[i][k] = room(&rigs[i], ALL);
	for (int k = 0; k < 4; k++)
		fill(at[0][k], at[1][k], ALL);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < ALL; j++)
			at[i][0][j] *= j % 5 == 0 ? 8.0f : 1.0f;
		did(&rigs[i], rigs[i].o->step_begin(rigs[i].b, &s));
		row_op(&rigs[i], op, at[i][0], at[i][1], at[i][2], pick, ROWS, WIDTH, at[i][3]);
		did(&rigs[i], rigs[i].o->step_end(rigs[i].b));
	}
	for (int k = 0; k < 4 && wrong == NULL; k++)
		wrong = differ("an operation on rows", at[0][k], at[1][k], ALL, 1e-5);
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 4; k++)
			rigs[i].o->mem_free(rigs[i].b, at[i][k]);
	return wrong;
}

/* ---- pages ---- */

enum { PAGES = 90, PAGE = 16, HEAD = 48, KV_HEADS = 2, LAYERS = 2, MAX_PAGES = 40, SEQS = 3 };

struct world {
	struct kn_kv kv[2];
	int32_t table[SEQS * MAX_PAGES];
	size_t n; /* bytes of k, over those of a float */
};

/* A pool whose pages are scattered; what nobody has written is no number, and every entry of a table is
 * some page, so that a wrong one is read and not a crash. */
static inline void make_world(struct rig *rigs, struct world *w, int type)
{
	w->n = (size_t)PAGES * LAYERS * KV_HEADS * kn_kv_head_bytes(type, PAGE, HEAD) / sizeof(float);
	for (int i = 0; i < 2; i++)
		w->kv[i] = (struct kn_kv){.type = type,
					  .n_pages = PAGES,
					  .page_tokens = PAGE,
					  .n_layers = LAYERS,
					  .n_kv_heads = KV_HEADS,
					  .head_dim = HEAD,
					  .k = room(&rigs[i], w->n),
					  .v = room(&rigs[i], w->n)};
	/* One table ends where another begins would hide a row of the wrong one. */
	static const int used[SEQS] = {18, 40, 2};
	int next = 0;
	for (int s = 0; s < SEQS; s++)
		for (int p = 0; p < MAX_PAGES; p++)
			w->table[s * MAX_PAGES + p] = p < used[s] ? (next++ * 29 + 7) % 83 : 83 + (s + p) % 7;
}

/* Keys and values of n rows of a sequence from position `from` on, written by the operation under
 * test: a chunk of a prompt. */
static inline const char *write_rows(struct rig *rigs, struct world *w, int seq, int from, int n,
				     const struct kn_rope *rope, int n_heads)
{
	enum { MOST = 48 };
	int32_t pos[MOST], seqs[MOST];
	float *at[2][3];
	size_t q = (size_t)(n * n_heads * HEAD), k = (size_t)(n * KV_HEADS * HEAD), sizes[] = {q, k, k};
	for (int i = 0; i < n; i++) {
		pos[i] = from + i;
		seqs[i] = seq;
	}
	struct kn_step s = {.n_rows = n,
			    .row_pos = pos,
			    .row_seq = seqs,
			    .n_seqs = SEQS,
			    .page_table = w->table,
			    .max_pages = MAX_PAGES};
	for (int j = 0; j < 3; j++) {
		for (int i = 0; i < 2; i++)
			at[i][j] = room(&rigs[i], sizes[j]);
		fill(at[0][j], at[1][j], sizes[j]);
	}
	for (int i = 0; i < 2; i++) {
		did(&rigs[i], rigs[i].o->step_begin(rigs[i].b, &s));
		did(&rigs[i],
		    rigs[i].o->rope_kv_write(rigs[i].b, rope, at[i][0], n_heads, at[i][1], at[i][2], &w->kv[i], 1));
		did(&rigs[i], rigs[i].o->step_end(rigs[i].b));
	}
	const char *wrong = differ("turned queries", at[0][0], at[1][0], q, 1e-5);
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3; j++)
			rigs[i].o->mem_free(rigs[i].b, at[i][j]);
	return wrong;
}

static inline const char *same_pool(const struct world *w)
{
	size_t bytes = w->n * sizeof(float);
	bool same = memcmp(w->kv[0].k, w->kv[1].k, bytes) == 0 && memcmp(w->kv[0].v, w->kv[1].v, bytes) == 0;
	if (w->kv[0].type != KN_F32)
		return same ? NULL : "the pages have other bits";
	for (size_t i = 0; i < w->n; i++)
		for (int which = 0; which < 2; which++) {
			const float *x = which ? w->kv[0].v : w->kv[0].k, *y = which ? w->kv[1].v : w->kv[1].k;
			if (isnan(x[i]) != isnan(y[i]) || (!isnan(x[i]) && fabs((double)x[i] - (double)y[i]) > 1e-5))
				return "the pages are not the same";
		}
	return NULL;
}

/* The reference's attention. Every run of the battery has the same steps in the same order, so the first run that gets
 * so far computes it, and the others, of which there is one for each mutant and order of threads, recall it. */
static inline void attend_reference(struct rig *r, const struct kn_step *s, const float *q, int n_heads,
				    const struct kn_kv *kv, const struct kn_attn *how, float *out, size_t n)
{
	enum { MOST = 16 };
	static float *known[MOST];
	if (r->attended >= MOST)
		abort();
	float **at = &known[r->attended++];
	if (*at == NULL) {
		did(r, r->o->step_begin(r->b, s));
		did(r, r->o->attention(r->b, q, n_heads, kv, 1, how, out));
		did(r, r->o->step_end(r->b));
		*at = r->rc == 0 ? malloc(n * sizeof **at) : NULL;
		if (*at != NULL)
			memcpy(*at, out, n * sizeof **at);
	} else {
		memcpy(out, *at, n * sizeof **at);
	}
}

/* Rows of one step: parts of prompts that stand together, decodes that stand alone. */
static inline const char *attend_rows(struct rig *rigs, struct world *w, int n_heads, const struct kn_attn *how)
{
	/* Queries are short enough to be exact in 16 bits: what is off is weights, and 8-bit values, by 2^-11. */
	double bound = 1e-5 + (w->kv[0].type == KN_F32 ? 0 : w->kv[0].type == KN_F16 ? 0x1p-11 : 0x1p-10);
	enum { ROWS = 24 };
	int32_t pos[ROWS], seq[ROWS];
	for (int i = 0; i < ROWS; i++) {
		seq[i] = i < 19 ? 0 : i == 20 ? 2 : 1;
		pos[i] = i < 19 ? 248 + i : i == 20 ? 17 : 639 - (i == 19);
	}
	pos[23] = 255; /* beside another row of its sequence that is far away */
	struct kn_step s = {.n_rows = ROWS,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = SEQS,
			    .page_table = w->table,
			    .max_pages = MAX_PAGES};
	size_t row = (size_t)(n_heads * HEAD), n = ROWS * row;
	float *q[2], *out[2], *alone = room(&rigs[1], row);
	for (int i = 0; i < 2; i++) {
		q[i] = room(&rigs[i], n);
		out[i] = room(&rigs[i], n);
	}
	fill(q[0], q[1], n);
	for (size_t i = 0; i < n; i++)
		q[0][i] = q[1][i] = rintf(q[0][i] * 64) / 64;
	attend_reference(&rigs[0], &s, q[0], n_heads, &w->kv[0], how, out[0], n);
	did(&rigs[1], rigs[1].o->step_begin(rigs[1].b, &s));
	did(&rigs[1], rigs[1].o->attention(rigs[1].b, q[1], n_heads, &w->kv[1], 1, how, out[1]));
	did(&rigs[1], rigs[1].o->step_end(rigs[1].b));
	const char *wrong = differ("attention", out[0], out[1], n, bound);
	for (int r = 0; r < ROWS && wrong == NULL && rigs[1].rc == 0; r += 7) {
		struct rig *g = &rigs[1];
		struct kn_step one = s;
		one.n_rows = 1;
		one.row_pos += r;
		one.row_seq += r;
		did(g, g->o->step_begin(g->b, &one));
		did(g, g->o->attention(g->b, q[1] + (size_t)r * row, n_heads, &w->kv[1], 1, how, alone));
		did(g, g->o->step_end(g->b));
		if (memcmp(alone, out[1] + (size_t)r * row, row * sizeof *alone) != 0)
			wrong = "a row's attention has other bits alone";
	}
	rigs[1].o->mem_free(rigs[1].b, alone);
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, q[i]);
		rigs[i].o->mem_free(rigs[i].b, out[i]);
	}
	return wrong;
}

static inline const char *battery_pages(struct rig *rigs, int type)
{
	float *sinks = room(&rigs[1], 11 * KV_HEADS); /* which the reference reads, too */
	const struct kn_attn plain = {.scale = 1, .sinks = sinks},
			     windowed = {.scale = 3, .softcap = 2, .window = 37, .sinks = sinks};
	for (int h = 0; h < 11 * KV_HEADS; h++)
		sinks[h] = (float)(h % 5 - 1);
	/* Not turned, the others have the same bits. A backend knows frequencies by their address. */
	static const double still[12];
	static double turning[12];
	for (int i = 0; i < 12; i++)
		turning[i] = pow(10000, -2.0 * i / 24);
	struct kn_rope rope = {.n_rot = 24,
			       .halves = true,
			       .magnitude = 1,
			       .inv_freq = type == KN_F32 ? turning : still,
			       .grow = 0.1f,
			       .grow_every = 16};
	struct world w;
	make_world(rigs, &w, type);
	static const int lengths[SEQS] = {18 * PAGE - 5, 40 * PAGE, 18};
	const char *wrong = NULL;
	for (int s = 0; s < SEQS; s++)
		for (int p = 0; p < lengths[s] && right(rigs, wrong); p += 48) {
			rope.halves = s != 1;
			wrong = write_rows(rigs, &w, s, p, p + 48 < lengths[s] ? 48 : lengths[s] - p, &rope, 2);
		}
	if (right(rigs, wrong))
		wrong = same_pool(&w);
	if (right(rigs, wrong))
		wrong = attend_rows(rigs, &w, 2 * KV_HEADS, &plain); /* in parts */
	if (right(rigs, wrong))
		wrong = attend_rows(rigs, &w, 11 * KV_HEADS, &windowed); /* all too many for parts */
	if (right(rigs, wrong) && type == KN_F32)
		wrong = attend_rows(rigs, &w, 11 * KV_HEADS, &plain); /* likewise, and alone in three parts */
	for (int i = 0; i < 2 && right(rigs, wrong); i++) {
		const struct kn_step none = {0}; /* its end comes after the copy's */
		did(&rigs[i], rigs[i].o->page_copy(rigs[i].b, &w.kv[i], w.table[3], 89));
		did(&rigs[i], rigs[i].o->step_begin(rigs[i].b, &none));
		did(&rigs[i], rigs[i].o->step_end(rigs[i].b));
	}
	if (wrong == NULL)
		wrong = same_pool(&w);
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, w.kv[i].k);
		rigs[i].o->mem_free(rigs[i].b, w.kv[i].v);
	}
	rigs[1].o->mem_free(rigs[1].b, sinks);
	return wrong;
}

/* ---- experts ---- */

struct mix {
	int n, n_used, type, down_type, n_rows, n_groups;
	bool sigmoid, biases, weighs_input;
	enum kn_gate act;
};

enum { MIX_MOST = 7, MIX_WIDTH = 64, MIX_FF = 32 };

/* The mixture in one table. work: its scratch memory. */
static inline void run_mix(struct rig *r, const struct mix *c, const struct matrix *m, const float *logits,
			   float *const *bias, float *x, float *y, uint64_t *used)
{
	struct kn_weight w[3][MIX_MOST];
	struct sl_err err;
	struct kn_step s = {.n_rows = c->n_rows};
	struct kn_experts e = {.route = {.n = c->n,
					 .n_used = c->n_used,
					 .sigmoid = c->sigmoid,
					 .norm = c->sigmoid,
					 .scale = 1.5f,
					 .n_groups = c->n_groups,
					 .n_groups_used = 1,
					 .bias = c->sigmoid ? bias[3] : NULL},
			       .gate = w[0],
			       .up = w[1],
			       .down = w[2],
			       .act = c->act,
			       .weighs_input = c->weighs_input,
			       .n_rows = used};
	for (int i = 0; i < 3 * c->n; i++) {
		const struct matrix *of = &m[i];
		did(r, r->o->weight_load(r->b, of->bytes, of->type, of->n_out, of->n_in, &w[i / c->n][i % c->n], &err));
	}
	if (c->biases) {
		e.gate_bias = bias[0];
		e.up_bias = bias[1];
		e.down_bias = bias[2];
	}
	float *work = room(r, kn_experts_work(&e) * (size_t)c->n_rows);
	did(r, r->o->step_begin(r->b, &s));
	did(r, r->o->experts(r->b, &e, logits, x, c->n_rows, work, y));
	did(r, r->o->add_gated(r->b, x, x, logits, c->n_rows, MIX_WIDTH));
	did(r, r->o->step_end(r->b));
	for (int i = 0; i < 3 * c->n; i++)
		r->o->weight_free(r->b, &w[i / c->n][i % c->n]);
	r->o->mem_free(r->b, work);
}

/* Rows by their experts, as few and as many as there are kernels for; equal logits, and rows that all choose one. */
static inline const char *battery_experts(struct rig *rigs, const struct mix *c)
{
	size_t n = (size_t)(c->n_rows * MIX_WIDTH), n_logits = (size_t)(c->n_rows * c->n);
	struct matrix m[3 * MIX_MOST];
	uint64_t used[2][MIX_MOST] = {{0}};
	float *at[2][7]; /* logits, x, y, biases of gates, ups, downs, of the choice */
	for (int i = 0; i < 3 * c->n; i++)
		m[i] = i / c->n == 2 ? make_matrix(c->down_type, MIX_WIDTH, MIX_FF)
				     : make_matrix(c->type, MIX_FF, MIX_WIDTH);
	for (int k = 0; k < 7; k++) {
		size_t all = k == 0 ? n_logits : k < 3 ? n : (size_t)(MIX_MOST * MIX_WIDTH);
		at[0][k] = room(&rigs[0], all);
		at[1][k] = room(&rigs[1], all);
		fill(at[0][k], at[1][k], all);
	}
	for (int i = 0; i < 2; i++)
		for (int r = 0; r < c->n_rows; r++) {
			at[i][0][r * c->n + c->n - 1] = at[i][0][r * c->n];
			at[i][0][r * c->n + 1] += r % 2 == 0 ? 3 : 0;
		}
	for (int i = 0; i < 2; i++)
		run_mix(&rigs[i], c, m, at[i][0], &at[i][3], at[i][1], at[i][2], used[i]);
	double most = 0;
	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)at[0][2][i]));
	const char *wrong = differ("a mixture of experts", at[0][2], at[1][2], n, most * 0x1p-6);
	if (wrong == NULL)
		wrong = differ("gated rows", at[0][1], at[1][1], n, 1e-5);
	if (wrong == NULL && memcmp(used[0], used[1], sizeof used[0]) != 0)
		wrong = "other numbers of rows an expert";
	for (int k = 0; k < 14; k++)
		rigs[k / 7].o->mem_free(rigs[k / 7].b, at[k / 7][k % 7]);
	for (int i = 0; i < 3 * c->n; i++)
		drop_matrix(&m[i]);
	return wrong;
}

/* ---- joined products ---- */

/* A joined product and what reads it against the same of the table itself with each matrix alone: other bits are wrong.
 */
static inline const char *battery_joined(struct rig *r)
{
	enum { ROWS = 3, IN = 264, Q = 2 * KV_HEADS * HEAD, K = KV_HEADS * HEAD, ALL = Q + 2 * K };
	static const int outs[3] = {Q, K, K};
	static const double freq[12] = {1, 0.5, 0.3};
	static int32_t pos[ROWS] = {0, 1, 2}, seq[ROWS], table[1];
	const struct kn_rope rope = {.n_rot = 24, .magnitude = 1, .inv_freq = freq};
	const struct kn_attn plain = {.scale = 1}, strided = {.scale = 1, .q_row = ALL};
	const struct kn_ops *o = r->o;
	struct kn_step s = {
	    .n_rows = ROWS, .row_pos = pos, .row_seq = seq, .n_seqs = 1, .page_table = table, .max_pages = 1};
	struct matrix m[3];
	struct kn_weight each[3], all;
	const void *host[3];
	struct sl_err err;
	size_t pool = KV_HEADS * kn_kv_head_bytes(KN_F16, PAGE, HEAD) / sizeof(float);
	struct kn_kv kv[2];
	float *x = room(r, ROWS * IN), *y = room(r, ROWS * ALL), *part[3], *out[2], *gain = room(r, 2 * HEAD);
	for (int i = 0; i < ROWS * IN; i++)
		x[i] = next_float();
	for (int i = 0; i < 2 * HEAD; i++)
		gain[i] = next_float();
	for (int i = 0; i < 3; i++) {
		m[i] = make_matrix(KN_BF16, outs[i], IN);
		host[i] = m[i].bytes;
		part[i] = room(r, (size_t)(ROWS * outs[i]));
		did(r, o->weight_load(r->b, host[i], KN_BF16, outs[i], IN, &each[i], &err));
	}
	for (int i = 0; i < 2; i++) {
		kv[i] = (struct kn_kv){.type = KN_F16,
				       .n_pages = 1,
				       .page_tokens = PAGE,
				       .n_layers = 1,
				       .n_kv_heads = KV_HEADS,
				       .head_dim = HEAD,
				       .k = room(r, pool),
				       .v = room(r, pool)};
		out[i] = room(r, ROWS * ALL);
	}
	did(r, o->weight_load_joined(r->b, host, outs, 3, KN_BF16, IN, &all, &err));
	did(r, o->step_begin(r->b, &s));
	did(r, o->matmul(r->b, &all, x, ROWS, y));
	did(r, o->qkv_norm(r->b, y, 2 * KV_HEADS, KV_HEADS, HEAD, gain, gain + HEAD, 1e-5f, ROWS));
	did(r, o->qkv_rope_write(r->b, &rope, y, 2 * KV_HEADS, &kv[0], 0));
	did(r, o->attention(r->b, y, 2 * KV_HEADS, &kv[0], 0, &strided, out[0]));
	for (int i = 0; i < 3; i++)
		did(r, o->matmul(r->b, &each[i], x, ROWS, part[i]));
	did(r, o->rmsnorm(r->b, part[0], gain, 1e-5f, ROWS * 2 * KV_HEADS, HEAD, part[0]));
	did(r, o->rmsnorm(r->b, part[1], gain + HEAD, 1e-5f, ROWS * KV_HEADS, HEAD, part[1]));
	did(r, o->rope_kv_write(r->b, &rope, part[0], 2 * KV_HEADS, part[1], part[2], &kv[1], 0));
	did(r, o->attention(r->b, part[0], 2 * KV_HEADS, &kv[1], 0, &plain, out[1]));
	did(r, o->step_end(r->b));
	bool same = memcmp(out[0], out[1], ROWS * Q * sizeof(float)) == 0 &&
		    memcmp(kv[0].k, kv[1].k, pool * sizeof(float)) == 0 &&
		    memcmp(kv[0].v, kv[1].v, pool * sizeof(float)) == 0;
	/* Two halves of rows of y, as if they were gates and what they open. */
	did(r, o->step_begin(r->b, &s));
	did(r, o->gate_mul(r->b, y, ROWS, ALL / 2, false, out[0]));
	for (int i = 0; i < ROWS; i++)
		memcpy(out[1] + i * (ALL / 2), y + i * ALL, ALL / 2 * sizeof(float));
	for (int i = 0; i < ROWS; i++)
		did(r, o->silu_mul(r->b, out[1] + i * (ALL / 2), y + i * ALL + ALL / 2, 1, ALL / 2));
	did(r, o->step_end(r->b));
	same = same && memcmp(out[0], out[1], ROWS * (ALL / 2) * sizeof(float)) == 0;
	float *rooms[] = {x, y, gain, part[0], part[1], part[2], out[0], out[1], kv[0].k, kv[0].v, kv[1].k, kv[1].v};
	for (int i = 0; i < N(rooms); i++)
		o->mem_free(r->b, rooms[i]);
	o->weight_free(r->b, &all);
	for (int i = 0; i < 3; i++) {
		o->weight_free(r->b, &each[i]);
		drop_matrix(&m[i]);
	}
	return same ? NULL : "a joined product has other bits";
}

/* Rows that a norm makes, and a gate, and their product, which converts them itself only when they were touched: the
 * same bits; and those of a norm in place, which converts nothing. */
static inline const char *battery_converted(struct rig *r)
{
	enum { ROWS = 3, OUT = 5 };
	static const struct {
		int type, width;
	} cases[] = {{KN_Q4_1, 288}, {KN_F16, 1285}};
	const struct kn_ops *o = r->o;
	bool same = true;
	for (int i = 0; i < N(cases) && r->rc == 0; i++) {
		int width = cases[i].width;
		size_t n = (size_t)(ROWS * width);
		struct matrix m = make_matrix(cases[i].type, OUT, width);
		struct kn_weight w;
		struct sl_err err;
		struct kn_step s = {.n_rows = ROWS};
		float *x = room(r, 2 * n), *made = room(r, n), *z = room(r, n),
		      *y[2] = {room(r, ROWS * OUT), room(r, ROWS * OUT)};
		for (size_t k = 0; k < 2 * n; k++)
			x[k] = next_float() * (k % 97 == 0 ? 8 : 1);
		memcpy(z, x, n * sizeof *z);
		did(r, o->weight_load(r->b, m.bytes, cases[i].type, OUT, width, &w, &err));
		for (int gate = 0; gate < 2; gate++) {
			for (int touched = 0; touched < 2; touched++) {
				did(r, o->step_begin(r->b, &s));
				did(r, gate ? o->gate_mul(r->b, x, ROWS, width, false, made)
					    : o->rmsnorm(r->b, x, x, 1e-5f, ROWS, width, made));
				if (touched)
					did(r, o->scale(r->b, made, 1, ROWS, width));
				did(r, o->matmul(r->b, &w, made, ROWS, y[touched]));
				did(r, o->step_end(r->b));
			}
			same = same && memcmp(y[0], y[1], ROWS * OUT * sizeof(float)) == 0;
			if (gate)
				continue;
			did(r, o->step_begin(r->b, &s));
			did(r, o->rmsnorm(r->b, z, x, 1e-5f, ROWS, width, z));
			did(r, o->step_end(r->b));
			same = same && memcmp(z, made, n * sizeof(float)) == 0;
		}
		float *rooms[] = {x, made, z, y[0], y[1]};
		for (int k = 0; k < N(rooms); k++)
			o->mem_free(r->b, rooms[k]);
		o->weight_free(r->b, &w);
		drop_matrix(&m);
	}
	return same ? NULL : "a product of rows that were converted where they were made has other bits";
}

/* Gates that are for products alone, of more rows than a block has: by the blocks of the product before them. */
enum { GATED_ROWS = 66 };

static inline const char *battery_gated(struct rig *r)
{
	enum { ROWS = GATED_ROWS, IN = 40, WIDTH = 256, OUT = 5 };
	const struct kn_ops *o = r->o;
	struct matrix m[2] = {make_matrix(KN_BF16, 2 * WIDTH, IN), make_matrix(KN_BF16, OUT, WIDTH)};
	struct kn_weight w[2];
	struct sl_err err;
	struct kn_step s = {.n_rows = ROWS};
	float *x = room(r, ROWS * IN), *both = room(r, ROWS * 2 * WIDTH), *made = room(r, ROWS * WIDTH),
	      *y[2] = {room(r, ROWS * OUT), room(r, ROWS * OUT)};
	for (int k = 0; k < ROWS * IN; k++)
		x[k] = next_float();
	for (int i = 0; i < 2; i++)
		did(r, o->weight_load(r->b, m[i].bytes, KN_BF16, m[i].n_out, m[i].n_in, &w[i], &err));
	for (int only = 0; only < 2; only++) {
		did(r, o->step_begin(r->b, &s));
		did(r, o->matmul(r->b, &w[0], x, ROWS, both));
		if (only && o->for_products != NULL)
			o->for_products(r->b, made);
		did(r, o->gate_mul(r->b, both, ROWS, WIDTH, false, made));
		did(r, o->matmul(r->b, &w[1], made, ROWS, y[only]));
		did(r, o->step_end(r->b));
	}
	bool same = memcmp(y[0], y[1], ROWS * OUT * sizeof(float)) == 0;
	float *rooms[] = {x, both, made, y[0], y[1]};
	for (int i = 0; i < N(rooms); i++)
		o->mem_free(r->b, rooms[i]);
	for (int i = 0; i < 2; i++) {
		o->weight_free(r->b, &w[i]);
		drop_matrix(&m[i]);
	}
	return same ? NULL : "a gate by the product's blocks has other bits";
}

/* ---- what follows a product ---- */

enum { F_ROWS = 3, F_IN = 264, F_Q = 2 * KV_HEADS * HEAD, F_ALL = F_Q + 2 * KV_HEADS * HEAD, F_OUT = 5 };
enum { F_PAST = 44, F_PAGES = F_PAST + F_ROWS };

/* A layer's operations, of rows alone. */
struct followed {
	struct kn_kv kv;
	float *qkv, *attn, *gated, *y[2];
};

static inline size_t followed_pool(void)
{
	return F_PAGES * KV_HEADS * kn_kv_head_bytes(KN_F16, PAGE, HEAD) / sizeof(float);
}

static inline void make_followed(struct rig *r, struct followed *f)
{
	size_t n = followed_pool();
	*f = (struct followed){.kv = {.type = KN_F16,
				      .n_pages = F_PAGES,
				      .page_tokens = PAGE,
				      .n_layers = 1,
				      .n_kv_heads = KV_HEADS,
				      .head_dim = HEAD,
				      .k = room(r, n),
				      .v = room(r, n)},
			       .qkv = room(r, F_ROWS * F_ALL),
			       .attn = room(r, F_ROWS * F_Q),
			       .gated = room(r, F_ROWS * F_Q),
			       .y = {room(r, F_ROWS * F_OUT), room(r, F_ROWS * F_OUT)}};
	uint16_t *pools[] = {f->kv.k, f->kv.v};
	for (size_t i = 0; i < 2 * n; i++) /* numbers from an eighth to a quarter */
		for (int side = 0; side < 2; side++)
			pools[side][i] = (uint16_t)(0x3000 + (i * 2654435761u >> (7 + side) & 0x3FF));
}

static inline void drop_followed(struct rig *r, const struct followed *f)
{
	void *rooms[] = {f->kv.k, f->kv.v, f->qkv, f->attn, f->gated, f->y[0], f->y[1]};
	for (int i = 0; i < N(rooms); i++)
		r->o->mem_free(r->b, rooms[i]);
}

/* touched: between two operations stands one that changes nothing, so each has a kernel of its own. */
static inline void run_followed(struct rig *r, const struct followed *f, const struct kn_weight *all,
				const struct kn_weight *out, const float *x, bool touched)
{
	static const double freq[12] = {1, 0.5, 0.3};
	static int32_t pos[F_ROWS] = {300, 17, 700}, seq[F_ROWS] = {0, 1, 2}, table[F_ROWS * F_PAST];
	const struct kn_rope rope = {
	    .n_rot = 24, .magnitude = 1, .inv_freq = freq, .grow = 0.2f, .grow_every = 100, .grow_from = 1};
	const struct kn_attn how = {.scale = 1, .q_row = F_ALL};
	const struct kn_ops *o = r->o;
	struct kn_step s = {.n_rows = F_ROWS,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = F_ROWS,
			    .page_table = table,
			    .max_pages = F_PAST};
	for (int i = 0; i < F_ROWS * F_PAST; i++)
		table[i] = i % F_PAST < pos[i / F_PAST] / PAGE ? i % F_PAST : F_PAST + i / F_PAST;
	did(r, o->step_begin(r->b, &s));
	did(r, o->matmul(r->b, all, x, F_ROWS, f->qkv));
	if (touched)
		did(r, o->scale(r->b, f->qkv, 1, F_ROWS, F_ALL));
	did(r, o->qkv_rope_write(r->b, &rope, f->qkv, 2 * KV_HEADS, &f->kv, 0));
	did(r, o->attention(r->b, f->qkv, 2 * KV_HEADS, &f->kv, 0, &how, f->attn));
	if (touched)
		did(r, o->scale(r->b, f->attn, 1, F_ROWS, F_Q));
	did(r, o->matmul(r->b, out, f->attn, F_ROWS, f->y[0]));
	did(r, o->matmul(r->b, all, x, F_ROWS, f->qkv));
	if (touched)
		did(r, o->scale(r->b, f->qkv, 1, F_ROWS, F_ALL));
	did(r, o->gate_mul(r->b, f->qkv, F_ROWS, F_ALL / 2, false, f->gated));
	if (touched)
		did(r, o->scale(r->b, f->gated, 1, F_ROWS, F_ALL / 2));
	did(r, o->matmul(r->b, out, f->gated, F_ROWS, f->y[1]));
	did(r, o->step_end(r->b));
}

/* Rotations and gates at the end of the products that make their numbers, and rows that attention and a gate convert:
 * the bits are those of operations that nothing follows at once. Twice, since the first step finds its memory. */
static inline const char *battery_followed(struct rig *r)
{
	struct matrix m[2] = {make_matrix(KN_BF16, F_ALL, F_IN), make_matrix(KN_BF16, F_OUT, F_Q)};
	struct kn_weight w[2];
	struct sl_err err;
	struct followed by[2];
	float *x = room(r, F_ROWS * F_IN);
	size_t pool = followed_pool() * sizeof(float);
	for (int i = 0; i < F_ROWS * F_IN; i++)
		x[i] = next_float();
	did(r, r->o->weight_load(r->b, m[0].bytes, KN_BF16, F_ALL, F_IN, &w[0], &err));
	did(r, r->o->weight_load(r->b, m[1].bytes, KN_BF16, F_OUT, F_Q, &w[1], &err));
	for (int touched = 1; touched >= 0; touched--) {
		make_followed(r, &by[touched]);
		for (int i = 0; i < 2; i++)
			run_followed(r, &by[touched], &w[0], &w[1], x, touched);
	}
	bool same = memcmp(by[0].kv.k, by[1].kv.k, pool) == 0 && memcmp(by[0].kv.v, by[1].kv.v, pool) == 0 &&
		    memcmp(by[0].attn, by[1].attn, F_ROWS * F_Q * sizeof(float)) == 0 &&
		    memcmp(by[0].gated, by[1].gated, F_ROWS * F_ALL / 2 * sizeof(float)) == 0 &&
		    memcmp(by[0].y[0], by[1].y[0], F_ROWS * F_OUT * sizeof(float)) == 0 &&
		    memcmp(by[0].y[1], by[1].y[1], F_ROWS * F_OUT * sizeof(float)) == 0;
	for (int i = 0; i < 2; i++) {
		drop_followed(r, &by[i]);
		r->o->weight_free(r->b, &w[i]);
		drop_matrix(&m[i]);
	}
	r->o->mem_free(r->b, x);
	return same ? NULL : "what follows a product at its end has other bits";
}

#include "tests/kernels/battery_lora.h"

/* ---- the whole ---- */

static inline const char *battery_products(struct rig *rigs)
{
	static const struct {
		int type, n_in, n_rows;
	} products[] = {{KN_F32, 37, 1},    {KN_F16, 263, 3},  {KN_BF16, 520, 11}, {KN_Q8_0, 96, 8},
			{KN_Q4_K, 512, 9},  {KN_Q6_K, 256, 2}, {KN_BF16, 2309, 5}, {KN_Q4_K, 2560, 70},
			{KN_Q6_K, 768, 17}, {KN_INT4, 768, 3}, {KN_INT4, 2176, 24}};
	const char *wrong = NULL;
	for (int i = 0; i < N(products) && right(rigs, wrong); i++)
		wrong = battery_product(rigs, products[i].type, products[i].n_in, products[i].n_rows);
	return right(rigs, wrong) ? battery_changed(rigs) : wrong;
}

static inline const char *battery_row_ops(struct rig *rigs)
{
	const char *wrong = NULL;
	for (int op = 0; op < ROW_OPS && right(rigs, wrong); op++)
		wrong = battery_rows(rigs, op);
	return wrong;
}

static inline const char *battery_page_types(struct rig *rigs)
{
	static const int kv_types[] = {KN_F32, KN_F16, KN_KV_Q8};
	const char *wrong = NULL;
	for (int i = 0; i < N(kv_types) && right(rigs, wrong); i++)
		wrong = battery_pages(rigs, kv_types[i]);
	return wrong;
}

static inline const char *battery_mixes(struct rig *rigs)
{
	static const struct mix mixes[] = {
	    {.n = 7, .n_used = 2, .type = KN_F16, .down_type = KN_Q8_0, .n_rows = 3, .act = KN_GATE_SILU},
	    {.n = 6,
	     .n_used = 2,
	     .type = KN_Q8_0,
	     .down_type = KN_BF16,
	     .n_rows = 11,
	     .n_groups = 3,
	     .sigmoid = true,
	     .biases = true,
	     .act = KN_GATE_CLAMPED},
	    {.n = 4,
	     .n_used = 2,
	     .type = KN_F32,
	     .down_type = KN_F32,
	     .n_rows = 5,
	     .weighs_input = true,
	     .act = KN_GATE_GELU},
	    {.n = 2, .n_used = 1, .type = KN_BF16, .down_type = KN_Q4_0, .n_rows = 35, .act = KN_NO_GATE},
	};
	const char *wrong = NULL;
	for (int i = 0; i < N(mixes) && right(rigs, wrong) && rigs[1].o->experts != NULL; i++)
		wrong = battery_experts(rigs, &mixes[i]);
	return wrong;
}

static inline const char *battery_joins(struct rig *rigs)
{
	if (rigs[1].o->weight_load_joined == NULL)
		return NULL;
	const char *wrong = battery_joined(&rigs[1]);
	return right(rigs, wrong) ? battery_converted(&rigs[1]) : wrong;
}

static inline const char *battery_follows(struct rig *rigs)
{
	return rigs[1].o->qkv_rope_write != NULL ? battery_followed(&rigs[1]) : NULL;
}

static inline const char *battery_gates(struct rig *rigs)
{
	return rigs[1].o->gate_mul != NULL ? battery_gated(&rigs[1]) : NULL;
}

static inline const char *battery_latents(struct rig *rigs)
{
	return rigs[1].o->latent_write != NULL ? battery_latent(rigs) : NULL;
}

static inline const char *battery_adapters(struct rig *rigs)
{
	return rigs[1].o->lora_shrink != NULL ? battery_lora(rigs) : NULL;
}

static const struct {
	const char *(*run)(struct rig *rigs);
	int max_rows;
	bool pad_rows;
} battery_parts[] = {{battery_products, 64, false},      {battery_row_ops, 64, false},
		     {battery_page_types, 64, false},    {battery_mixes, 64, false},
		     {battery_joins, 64, false},         {battery_follows, 64, false},
		     {battery_gates, GATED_ROWS, false}, {battery_latents, 64, false},
		     {battery_adapters, 64, false},      {battery_recurrent, KEPT_ROWS + 2, true}};

/* Each part has backends of its own: one converts rows only of the first widths that it meets. */
static inline const char *battery_part(const struct kn_ops *o, int part)
{
	struct kn_config cfg = {.n_threads = 1,
				.max_rows = battery_parts[part].max_rows,
				.max_width = 4096,
				.pad_rows = battery_parts[part].pad_rows};
	static struct rig rigs[2];
	struct sl_err err;
	state = 1;
	rigs[0] = (struct rig){.o = kn_available()[0]};
	rigs[1] = (struct rig){.o = o};
	for (int i = 0; i < 2; i++)
		if (rigs[i].o->open(&cfg, &rigs[i].b, &err) != 0)
			return "a table does not open";
	const char *wrong = battery_parts[part].run(rigs);
	if (rigs[1].rc != 0)
		wrong = failure(&rigs[1]);
	for (int i = 0; i < 2; i++)
		rigs[i].o->close(rigs[i].b);
	return wrong;
}

/* The whole, beginning with one part: NULL when o gives what the reference gives, else *part is the one that saw it. */
static inline const char *battery_from(const struct kn_ops *o, int *part)
{
	const char *wrong = NULL;
	for (int i = 0, first = *part; i < N(battery_parts) && wrong == NULL; i++) {
		*part = (first + i) % N(battery_parts);
		wrong = battery_part(o, *part);
	}
	return wrong;
}

static inline const char *battery(const struct kn_ops *o)
{
	int part = 0;
	return battery_from(o, &part);
}

#endif
