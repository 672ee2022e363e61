/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the battery about latent rows (battery.h): rows written in steps of several, attended to alone and
 * together beyond a block of positions, and products of heads, beside the reference.
 */
#ifndef TESTS_KERNELS_BATTERY_LATENT_H
#define TESTS_KERNELS_BATTERY_LATENT_H

#include "tests/kernels/battery_rig.h"

enum {
	L_HEADS = 3,
	L_LATENT = 40,
	L_TURNED = 6,
	L_WIDTH = L_LATENT + L_TURNED,
	L_PLAIN = 5,
	L_QUERY = L_PLAIN + L_TURNED,
	L_PAGE = 16,
	L_PAGES = 20,
	L_LONGEST = 280,
	L_SEQS = 2,
	L_ROWS = 40, /* of a step that writes */
};

/* Rows of both sequences in both tables' pages. */
static inline const char *write_latent(struct rig *rigs, const struct kn_kv *kv, const int32_t *table)
{
	static const double freq[L_TURNED / 2] = {1, 0.4, 0.1};
	const struct kn_rope rope = {.n_rot = L_TURNED, .magnitude = 1.25f, .inv_freq = freq};
	const char *wrong = NULL;
	enum { GAIN, Q, ROW, TO, ALL };
	static const size_t n[ALL] = {L_LATENT, L_ROWS * L_HEADS * L_QUERY, L_ROWS * L_WIDTH,
				      L_ROWS * L_HEADS * L_WIDTH};
	float *at[2][ALL];
	int32_t pos[L_ROWS], seq[L_ROWS];
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < ALL; k++)
			at[i][k] = room(&rigs[i], n[k]);
	for (int k = 0; k < ALL; k++)
		fill(at[0][k], at[1][k], n[k]);
	for (int from = 0; from < L_SEQS * L_LONGEST && right(rigs, wrong); from += L_ROWS) {
		for (int i = 0; i < L_ROWS; i++) {
			pos[i] = (from + i) % L_LONGEST;
			seq[i] = (from + i) / L_LONGEST;
		}
		struct kn_step s = {.n_rows = L_ROWS,
				    .row_pos = pos,
				    .row_seq = seq,
				    .n_seqs = L_SEQS,
				    .page_table = table,
				    .max_pages = L_PAGES};
		fill(at[0][ROW], at[1][ROW], n[ROW]);
		for (int i = 0; i < 2; i++) {
			struct rig *r = &rigs[i];
			did(r, r->o->step_begin(r->b, &s));
			did(r, r->o->latent_write(r->b, &rope, at[i][GAIN], 1e-5f, at[i][Q], L_HEADS, L_QUERY,
						  at[i][ROW], at[i][TO], &kv[i], 1));
			did(r, r->o->step_end(r->b));
		}
		wrong = differ("turned queries of latent rows", at[0][TO], at[1][TO], n[TO], 1e-5);
	}
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < ALL; k++)
			rigs[i].o->mem_free(rigs[i].b, at[i][k]);
	return wrong;
}

static inline const char *attend_latent(struct rig *rigs, const struct kn_kv *kv, const int32_t *table)
{
	enum { ROWS = 64, RUN = ROWS - 3, EACH = L_HEADS * L_WIDTH, MADE = L_HEADS * L_LATENT };
	/* So many of one sequence that their parts have no room, which others' have. */
	int32_t pos[ROWS] = {279}, seq[ROWS] = {0};
	for (int i = 0; i < RUN; i++)
		pos[1 + i] = 216 + i, seq[1 + i] = 1;
	pos[RUN + 1] = 250, seq[RUN + 1] = 0;
	pos[RUN + 2] = 0, seq[RUN + 2] = 1;
	const struct kn_attn how = {.scale = 0.7f, .softcap = 3};
	struct kn_step s = {.n_rows = ROWS,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = L_SEQS,
			    .page_table = table,
			    .max_pages = L_PAGES};
	float *q[2], *out[2];
	for (int i = 0; i < 2; i++) {
		q[i] = room(&rigs[i], ROWS * EACH);
		out[i] = room(&rigs[i], ROWS * MADE);
	}
	fill(q[0], q[1], ROWS * EACH);
	for (int i = 0; i < 2; i++) {
		struct rig *r = &rigs[i];
		did(r, r->o->step_begin(r->b, &s));
		did(r, r->o->attention(r->b, q[i], L_HEADS, &kv[i], 1, &how, out[i]));
		did(r, r->o->step_end(r->b));
	}
	/* Rows may be off by a rounding to the type of pages, which changes all scores a little. */
	const char *wrong = differ("attention to latent rows", out[0], out[1], ROWS * MADE, 1e-4);
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, q[i]);
		rigs[i].o->mem_free(rigs[i].b, out[i]);
	}
	return wrong;
}

static inline const char *battery_latent_rows(struct rig *rigs, int type)
{
	int32_t table[L_SEQS * L_PAGES];
	struct kn_kv kv[2];
	size_t bytes = 0;
	for (int i = 0; i < L_SEQS * L_PAGES; i++)
		table[i] = i * 7 % (L_SEQS * L_PAGES);
	for (int i = 0; i < 2; i++) {
		kv[i] = (struct kn_kv){.type = type,
				       .n_pages = L_SEQS * L_PAGES,
				       .page_tokens = L_PAGE,
				       .n_layers = 2,
				       .n_kv_heads = 1,
				       .head_dim = L_WIDTH,
				       .latent = L_LATENT};
		bytes = kn_kv_page_bytes(&kv[i]) * L_SEQS * L_PAGES;
		kv[i].k = room(&rigs[i], bytes / sizeof(float));
		kv[i].v = room(&rigs[i], bytes / sizeof(float));
	}
	const char *wrong = write_latent(rigs, kv, table);
	for (int i = 0; i < L_SEQS * L_LONGEST && type == KN_F32 && right(rigs, wrong); i++) {
		int token = i % L_LONGEST % L_PAGE, page = table[i / L_LONGEST * L_PAGES + i % L_LONGEST / L_PAGE];
		int same = token;
		const float *x = kn_kv_latent_block(&kv[0], page, 1, &token),
			    *y = kn_kv_latent_block(&kv[1], page, 1, &same);
		wrong = differ("a latent row", x + token * L_WIDTH, y + token * L_WIDTH, L_WIDTH, 1e-5);
	}
	if (right(rigs, wrong))
		wrong = attend_latent(rigs, kv, table);
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, kv[i].k);
		rigs[i].o->mem_free(rigs[i].b, kv[i].v);
	}
	return wrong;
}

static inline const char *battery_head_products(struct rig *rigs, int type, int n_in, int n_rows)
{
	enum { OUT = 19, IN_MORE = 2, OUT_MORE = 3 };
	int x_width = n_in + IN_MORE, y_width = OUT + OUT_MORE;
	size_t n_x = (size_t)(n_rows * L_HEADS * x_width), n_y = (size_t)(n_rows * L_HEADS * y_width);
	size_t n_work = kn_heads_work(L_HEADS, OUT, n_in) * (size_t)n_rows;
	struct matrix m[L_HEADS];
	float *x[2], *y[2];
	for (int h = 0; h < L_HEADS; h++)
		m[h] = make_matrix(type, OUT, n_in);
	for (int i = 0; i < 2; i++) {
		x[i] = room(&rigs[i], n_x);
		y[i] = room(&rigs[i], n_y);
	}
	fill(x[0], x[1], n_x);
	fill(y[0], y[1], n_y); /* what lies between results stays */
	for (int i = 0; i < 2; i++) {
		struct rig *r = &rigs[i];
		struct kn_weight w[L_HEADS];
		struct kn_step s = {.n_rows = n_rows};
		struct sl_err err;
		float *work = room(r, n_work);
		for (int h = 0; h < L_HEADS; h++)
			did(r, r->o->weight_load(r->b, m[h].bytes, type, OUT, n_in, &w[h], &err));
		did(r, r->o->step_begin(r->b, &s));
		did(r, r->o->matmul_heads(r->b, w, L_HEADS, x[i], x_width, n_rows, work, y[i], y_width));
		did(r, r->o->step_end(r->b));
		for (int h = 0; h < L_HEADS; h++)
			r->o->weight_free(r->b, &w[h]);
		r->o->mem_free(r->b, work);
	}
	/* Numbers below 2 and 1. */
	const char *wrong =
	    differ("products of heads", y[0], y[1], n_y, 2 * n_in * (type == KN_F32 ? 0x1p-20 : 0x1p-10));
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, x[i]);
		rigs[i].o->mem_free(rigs[i].b, y[i]);
	}
	for (int h = 0; h < L_HEADS; h++)
		drop_matrix(&m[h]);
	return wrong;
}

static inline const char *battery_latent(struct rig *rigs)
{
	const char *wrong = battery_latent_rows(rigs, KN_F32);
	if (right(rigs, wrong))
		wrong = battery_latent_rows(rigs, KN_KV_Q8);
	if (right(rigs, wrong))
		wrong = battery_head_products(rigs, KN_F16, 37, 19);
	return right(rigs, wrong) ? battery_head_products(rigs, KN_F32, 37, 3) : wrong;
}

#endif
