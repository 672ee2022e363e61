/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the battery about layers that keep a state (battery.h): a step with a long run of rows, a short one that
 * begins and a single row, then a decode of the same sequences that pads its rows, beside the reference.
 */
#ifndef TESTS_KERNELS_BATTERY_RECURRENT_H
#define TESTS_KERNELS_BATTERY_RECURRENT_H

#include "tests/kernels/battery_rig.h"

enum { KEPT_ROWS = 70, KEPT_SEQS = 3, KEPT_SLOTS = 4, KEPT_AT = 2 };

enum kept_what { KEPT_CONV, KEPT_DELTA, KEPT_SSM };

/* What one table has of an operation. */
struct kept {
	enum kept_what what;
	struct kn_conv conv;
	struct kn_delta delta;
	struct kn_ssm ssm;
	size_t in, out, heads, floats; /* of a row, of a row, of a row, of a state */
	float *x, *y, *states, *beta, *alpha;
	float *of[3]; /* taps and biases; or a, dt, d */
};

static inline void run_kept(struct rig *r, struct kept *k, const int32_t *pos, const int32_t *seq, int n)
{
	static int32_t token[KEPT_ROWS];
	static const int32_t slots[KEPT_SEQS] = {2, 0, 3};
	struct kn_step s = {.n_rows = n,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = KEPT_SEQS,
			    .states = k->states,
			    .state_floats = k->floats,
			    .state_of = slots};
	did(r, r->o->step_begin(r->b, &s));
	if (k->what == KEPT_CONV)
		did(r, r->o->conv(r->b, &k->conv, k->x, n, k->y));
	else if (k->what == KEPT_DELTA)
		did(r, r->o->delta(r->b, &k->delta, k->x, k->beta, k->alpha, n, k->y));
	else
		did(r, r->o->ssm(r->b, &k->ssm, k->x, k->alpha, n, k->y));
	did(r, r->o->step_end(r->b));
}

static inline const char *compare_kept(struct rig *rigs, struct kept *k)
{
	static int32_t pos[KEPT_ROWS], seq[KEPT_ROWS];
	static const int32_t next_pos[KEPT_SEQS] = {10, 70, 2}, next_seq[KEPT_SEQS] = {1, 0, 2};
	const char *wrong = NULL;
	size_t out = k[0].out, floats = k[0].floats;
	int n = 0;
	for (; n < 67; n++)
		pos[n] = 3 + n, seq[n] = 0;
	pos[n] = 9, seq[n++] = 1;
	pos[n] = 0, seq[n++] = 2;
	pos[n] = 1, seq[n++] = 2;
	for (size_t i = KEPT_AT; i < floats; i++) /* what begins does not read its own */
		k[0].states[3 * floats + i] = k[1].states[3 * floats + i] = NAN;
	for (int step = 0; step < 2 && right(rigs, wrong); step++) {
		int rows = step == 0 ? n : KEPT_SEQS;
		for (int i = 0; i < 2; i++)
			run_kept(&rigs[i], &k[i], step == 0 ? pos : next_pos, step == 0 ? seq : next_seq, rows);
		wrong = differ("what reads a state", k[0].y, k[1].y, (size_t)rows * out, 1e-5);
		/* Of a row that pads. */
		if (wrong == NULL && step == 1 && strncmp(rigs[1].o->name, "cuda", 4) == 0)
			wrong = differ("a copied row", k[0].y + 2 * out, k[1].y + 3 * out, out, 1e-5);
		if (wrong == NULL)
			wrong = differ("a state", k[0].states, k[1].states, KEPT_SLOTS * floats, 1e-5);
	}
	return wrong;
}

/* Memory, and the same numbers in both. */
static inline void make_kept(struct rig *rigs, struct kept *k, const size_t *of)
{
	size_t rows = KEPT_ROWS;
	const size_t n[] = {
	    rows * k[0].in, KEPT_SLOTS * k[0].floats, rows * k[0].heads, rows * k[0].heads, of[0], of[1], of[2]};
	float **at[2][N(n)];
	for (int i = 0; i < 2; i++) {
		float **all[] = {&k[i].x, &k[i].states, &k[i].beta, &k[i].alpha, &k[i].of[0], &k[i].of[1], &k[i].of[2]};
		memcpy(at[i], all, sizeof all);
		k[i].y = room(&rigs[i], rows * k[i].out);
		for (int j = 0; j < N(n); j++)
			*at[i][j] = room(&rigs[i], n[j] + 1);
	}
	for (int j = 0; j < N(n); j++)
		fill(*at[0][j], *at[1][j], n[j]);
}

static inline void drop_kept(struct rig *r, struct kept *k)
{
	void *all[] = {k->x, k->y, k->states, k->beta, k->alpha, k->of[0], k->of[1], k->of[2]};
	for (int i = 0; i < N(all); i++)
		r->o->mem_free(r->b, all[i]);
}

static inline const char *battery_conv(struct rig *rigs, int n, int width, bool gated)
{
	struct kept k[2] = {{.what = KEPT_CONV,
			     .in = (size_t)(gated ? 3 * n : n),
			     .out = (size_t)n,
			     .floats = KEPT_AT + (size_t)(n * (width - 1))}};
	k[1] = k[0];
	make_kept(rigs, k, (size_t[]){(size_t)(n * width), (size_t)n, 0});
	for (int i = 0; i < 2; i++)
		k[i].conv = (struct kn_conv){.w = k[i].of[0],
					     .bias = gated ? NULL : k[i].of[1],
					     .n = n,
					     .width = width,
					     .gated = gated,
					     .at = KEPT_AT};
	const char *wrong = compare_kept(rigs, k);
	drop_kept(&rigs[0], &k[0]);
	drop_kept(&rigs[1], &k[1]);
	return wrong;
}

/* Heads of keys and of values with states of n × width. */
static inline const char *battery_heads(struct rig *rigs, enum kept_what what, int keys, int values, int n, int width)
{
	size_t out = (size_t)(values * width), heads = (size_t)values;
	struct kept k[2] = {{.what = what,
			     .in = (size_t)(2 * keys * n) + out,
			     .out = out,
			     .heads = heads,
			     .floats = KEPT_AT + (size_t)n * out}};
	k[1] = k[0];
	make_kept(rigs, k, (size_t[]){heads, heads, heads});
	for (int i = 0; i < 2; i++) {
		for (int h = 0; h < values; h++)
			k[i].of[0][h] = -fabsf(k[i].of[0][h]);
		k[i].delta = (struct kn_delta){.k_heads = keys,
					       .v_heads = values,
					       .k_dim = n,
					       .v_dim = width,
					       .a = k[i].of[0],
					       .dt = k[i].of[1],
					       .at = KEPT_AT};
		k[i].ssm = (struct kn_ssm){.groups = keys,
					   .heads = values,
					   .state = n,
					   .head_dim = width,
					   .a = k[i].of[0],
					   .dt = k[i].of[1],
					   .d = k[i].of[2],
					   .least = 0.6f,
					   .most = 1.5f,
					   .at = KEPT_AT};
	}
	const char *wrong = compare_kept(rigs, k);
	drop_kept(&rigs[0], &k[0]);
	drop_kept(&rigs[1], &k[1]);
	return wrong;
}

static inline const char *battery_recurrent(struct rig *rigs)
{
	const struct kn_ops *o = rigs[1].o;
	const char *wrong = NULL;
	if (o->conv != NULL)
		wrong = battery_conv(rigs, 131, 4, false);
	if (o->conv != NULL && right(rigs, wrong))
		wrong = battery_conv(rigs, 5, 3, true);
	if (o->delta != NULL && right(rigs, wrong))
		wrong = battery_heads(rigs, KEPT_DELTA, 2, 4, 41, 19);
	if (o->ssm != NULL && right(rigs, wrong))
		wrong = battery_heads(rigs, KEPT_SSM, 2, 4, 41, 19);
	return wrong;
}

#endif
