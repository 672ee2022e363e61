/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the battery about layers that keep a state (battery.h): a step with a long run of rows, a short one that
 * begins and a single row, then a decode of the same sequences that pads its rows, beside the reference.
 */
#ifndef TESTS_KERNELS_BATTERY_RECURRENT_H
#define TESTS_KERNELS_BATTERY_RECURRENT_H

#include "tests/kernels/battery_rig.h"

enum { KEPT_ROWS = 70, KEPT_SEQS = 3, KEPT_SLOTS = 4, KEPT_AT = 2 };

/* One of them is there. */
struct kept_op {
	struct kn_conv conv;
	size_t in, out, floats; /* of a row, of a row, of a state */
};

/* What one table has of it. */
struct kept {
	struct kept_op op;
	float *x, *y, *states;
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
			    .state_floats = k->op.floats,
			    .state_of = slots};
	did(r, r->o->step_begin(r->b, &s));
	did(r, r->o->conv(r->b, &k->op.conv, k->x, n, k->y));
	did(r, r->o->step_end(r->b));
}

/* Floats that only one table's rig has, equal in both. */
static inline void both_floats(struct rig *rigs, size_t n, const float **x, const float **y)
{
	float *a = room(&rigs[0], n), *b = room(&rigs[1], n);
	fill(a, b, n);
	*x = a;
	*y = b;
}

static inline const char *compare_kept(struct rig *rigs, struct kept *k, const char *what)
{
	const struct kept_op *op = &k[0].op;
	static int32_t pos[KEPT_ROWS], seq[KEPT_ROWS];
	static const int32_t next_pos[KEPT_SEQS] = {10, 70, 2}, next_seq[KEPT_SEQS] = {1, 0, 2};
	const char *wrong = NULL;
	int n = 0;
	for (; n < 67; n++)
		pos[n] = 3 + n, seq[n] = 0;
	pos[n] = 9, seq[n++] = 1;
	pos[n] = 0, seq[n++] = 2;
	pos[n] = 1, seq[n++] = 2;
	for (int i = 0; i < 2; i++) {
		k[i].x = room(&rigs[i], KEPT_ROWS * op->in);
		k[i].y = room(&rigs[i], KEPT_ROWS * op->out);
		k[i].states = room(&rigs[i], KEPT_SLOTS * op->floats);
	}
	fill(k[0].x, k[1].x, KEPT_ROWS * op->in);
	fill(k[0].states, k[1].states, KEPT_SLOTS * op->floats);
	for (size_t i = KEPT_AT; i < op->floats; i++) /* what begins does not read its own */
		k[0].states[3 * op->floats + i] = k[1].states[3 * op->floats + i] = NAN;
	for (int step = 0; step < 2 && right(rigs, wrong); step++) {
		int rows = step == 0 ? n : KEPT_SEQS;
		for (int i = 0; i < 2; i++)
			run_kept(&rigs[i], &k[i], step == 0 ? pos : next_pos, step == 0 ? seq : next_seq, rows);
		wrong = differ(what, k[0].y, k[1].y, (size_t)rows * op->out, 1e-5);
		/* Of a row that pads. */
		if (wrong == NULL && step == 1 && strncmp(rigs[1].o->name, "cuda", 4) == 0)
			wrong = differ("a copied row", k[0].y + 2 * op->out, k[1].y + 3 * op->out, op->out, 1e-5);
		if (wrong == NULL)
			wrong = differ("a state", k[0].states, k[1].states, KEPT_SLOTS * op->floats, 1e-5);
	}
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, k[i].x);
		rigs[i].o->mem_free(rigs[i].b, k[i].y);
		rigs[i].o->mem_free(rigs[i].b, k[i].states);
	}
	return wrong;
}

static inline const char *battery_conv(struct rig *rigs, int n, int width, bool gated)
{
	struct kept k[2] = {0};
	size_t floats = KEPT_AT + (size_t)(n * (width - 1));
	const float *w[2], *bias[2];
	both_floats(rigs, (size_t)(n * width), &w[0], &w[1]);
	both_floats(rigs, (size_t)n, &bias[0], &bias[1]);
	for (int i = 0; i < 2; i++)
		k[i].op = (struct kept_op){.conv = {.w = w[i],
						    .bias = gated ? NULL : bias[i],
						    .n = n,
						    .width = width,
						    .gated = gated,
						    .at = KEPT_AT},
					   .in = (size_t)(gated ? 3 * n : n),
					   .out = (size_t)n,
					   .floats = floats};
	const char *wrong = compare_kept(rigs, k, "a convolution");
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, (void *)w[i]);
		rigs[i].o->mem_free(rigs[i].b, (void *)bias[i]);
	}
	return wrong;
}

/* With rigs of its own, whose device pads decodes. */
static inline const char *battery_recurrent(const struct kn_ops *o)
{
	struct kn_config cfg = {.n_threads = 1, .max_rows = KEPT_ROWS + 2, .max_width = 4096, .pad_rows = true};
	struct rig rigs[2] = {{.o = kn_available()[0]}, {.o = o}};
	struct sl_err err;
	const char *wrong = NULL;
	for (int i = 0; i < 2; i++)
		if (rigs[i].o->open(&cfg, &rigs[i].b, &err) != 0)
			return "a table does not open";
	if (o->conv != NULL)
		wrong = battery_conv(rigs, 131, 4, false);
	if (o->conv != NULL && right(rigs, wrong))
		wrong = battery_conv(rigs, 5, 3, true);
	if (rigs[1].rc != 0)
		wrong = failure(&rigs[1]);
	for (int i = 0; i < 2; i++)
		rigs[i].o->close(rigs[i].b);
	return wrong;
}

#endif
