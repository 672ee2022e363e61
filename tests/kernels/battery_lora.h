/* SPDX-License-Identifier: Apache-2.0
 *
 * The battery's part on adapters (battery.h includes it): what a table adds to a product's outputs against what the
 * reference adds to the same. Two adapters, of bfloat16 and of bytes, of two products of a model, so that a wrong one's
 * numbers show.
 */
#ifndef TESTS_KERNELS_BATTERY_LORA_H
#define TESTS_KERNELS_BATTERY_LORA_H

#include "kernels/quantize.h"

enum { BL_IN = 288, BL_PARTS = 2, BL_OUT = 48 + 32, BL_SITES = 2, BL_WIDTH = 26, BL_ROWS = 11 };

static const int bl_outs[BL_PARTS] = {48, 32}, bl_ranks[2][BL_PARTS] = {{5, 13}, {17, 2}};

/* An adapter in a table's memory. */
struct bl_adapter {
	struct kn_lora sites[BL_SITES], *there;
	void *memory[BL_SITES * (2 + BL_PARTS)];
	int n;
};

/* n numbers of that type, the same at each call with that seed. */
static inline void *bl_numbers(struct rig *r, struct bl_adapter *a, int type, size_t n, uint64_t seed)
{
	uint64_t was = state;
	void *p = NULL;
	state = seed;
	did(r, r->o->mem_alloc(r->b, (n + 8) * sizeof(float), &p));
	for (size_t i = 0; i < n && p != NULL; i++) {
		float f = next_float();
		if (type == KN_LORA_I8)
			((int8_t *)p)[i] = (int8_t)(f * 127);
		else
			(void)kn_quantize_row(type, &f, 1, (uint8_t *)p + i * kn_lora_bytes(type));
	}
	state = was;
	return a->memory[a->n++] = p;
}

static inline void bl_make(struct rig *r, struct bl_adapter *a, int number)
{
	int type = number == 0 ? KN_BF16 : KN_LORA_I8;
	void *p = NULL;
	*a = (struct bl_adapter){0};
	for (int s = 0; s < BL_SITES; s++) {
		struct kn_lora *l = &a->sites[s];
		uint64_t seed = (uint64_t)(100 * number + 10 * s);
		*l = (struct kn_lora){.type = type, .n_in = BL_IN, .n_parts = BL_PARTS};
		for (int i = 0; i < BL_PARTS; i++) {
			int rank = bl_ranks[number][i];
			l->parts[i] =
			    (struct kn_lora_part){.n_out = bl_outs[i], .rank = rank, .scale = 0.5f + (float)i};
			l->parts[i].b = bl_numbers(r, a, type, (size_t)(bl_outs[i] * rank), seed + 1 + (uint64_t)i);
			l->rank += rank;
		}
		l->a = bl_numbers(r, a, type, (size_t)(l->rank * BL_IN), seed + 7);
		if (type != KN_LORA_I8)
			continue;
		float *scales = bl_numbers(r, a, KN_F32, (size_t)l->rank, seed + 8);
		for (int j = 0; j < l->rank && scales != NULL; j++)
			scales[j] /= 127 * 127;
		l->scales = scales;
	}
	did(r, r->o->mem_alloc(r->b, sizeof a->sites, &p));
	a->there = p;
	if (p != NULL)
		memcpy(p, a->sites, sizeof a->sites);
}

static inline void bl_drop(struct rig *r, struct bl_adapter *a)
{
	for (int i = 0; i < a->n; i++)
		r->o->mem_free(r->b, a->memory[i]);
	r->o->mem_free(r->b, a->there);
}

/* A step: the product, unless y has it already, and what the adapters of two rows of each four add to it. */
static inline void bl_step(struct rig *r, const struct kn_weight *w, struct bl_adapter *adapters, int n_rows,
			   const float *x, float *t, float *y)
{
	int32_t order[BL_ROWS];
	int n = 0;
	struct kn_lora_group groups[2];
	for (int g = 0; g < 2; g++) {
		groups[g] =
		    (struct kn_lora_group){.lora = &adapters[g].sites[1], .sites = adapters[g].there, .first = n};
		for (int i = n_rows - 1; i >= 0; i--)
			if (i % 4 == g)
				order[n++] = i;
		groups[g].n = n - groups[g].first;
	}
	struct kn_lora_rows rows = {.groups = groups,
				    .n_groups = 2,
				    .rows = order,
				    .n_rows = n,
				    .t_width = BL_WIDTH,
				    .site = 1,
				    .n_in = BL_IN,
				    .rank = 19};
	struct kn_lora_out outs[KN_LORA_PARTS] = {{y, BL_OUT, bl_outs[0]}, {y + bl_outs[0], BL_OUT, bl_outs[1]}, {0}};
	struct kn_step s = {.n_rows = n_rows, .adapters = &rows};
	did(r, r->o->step_begin(r->b, &s));
	if (w != NULL)
		did(r, r->o->matmul(r->b, w, x, n_rows, y));
	did(r, r->o->lora_shrink(r->b, &rows, x, t));
	did(r, r->o->lora_expand(r->b, &rows, t, outs));
	did(r, r->o->step_end(r->b));
}

static inline const char *bl_rows(struct rig *rigs, struct bl_adapter (*adapters)[2], const struct kn_weight *w,
				  int n_rows)
{
	float *x[2], *y[2], *t[2];
	size_t all = (size_t)(n_rows * BL_OUT);
	struct kn_step s = {.n_rows = n_rows};
	for (int i = 0; i < 2; i++) {
		x[i] = room(&rigs[i], (size_t)(n_rows * BL_IN));
		y[i] = room(&rigs[i], all);
		t[i] = room(&rigs[i], (size_t)(n_rows * BL_WIDTH));
	}
	fill(x[0], x[1], (size_t)(n_rows * BL_IN));
	did(&rigs[1], rigs[1].o->step_begin(rigs[1].b, &s));
	did(&rigs[1], rigs[1].o->matmul(rigs[1].b, w, x[1], n_rows, y[1]));
	did(&rigs[1], rigs[1].o->step_end(rigs[1].b));
	memcpy(y[0], y[1], all * sizeof(float));
	bl_step(&rigs[0], NULL, adapters[0], n_rows, x[0], t[0], y[0]);
	for (int k = 0; k < 2; k++) { /* a second time, when the emulation knows what lets the product start early */
		memset(t[1], 0xFF, (size_t)(n_rows * BL_WIDTH) * sizeof(float));
		bl_step(&rigs[1], w, adapters[1], n_rows, x[1], t[1], y[1]);
	}
	/* Rounding is at most gamma(305) = 2e-5 of the sum of magnitudes, which is a few times the largest output. */
	double most = 0;
	for (size_t i = 0; i < all; i++)
		most = fmax(most, fabs((double)y[0][i]));
	const char *wrong = differ("adapters", y[0], y[1], all, 1e-4 * most);
	for (int i = 0; i < 2; i++) {
		rigs[i].o->mem_free(rigs[i].b, x[i]);
		rigs[i].o->mem_free(rigs[i].b, y[i]);
		rigs[i].o->mem_free(rigs[i].b, t[i]);
	}
	return wrong;
}

/* In steps of few rows, where a product may add it, and of more. */
static inline const char *battery_lora(struct rig *rigs)
{
	struct bl_adapter adapters[2][2];
	struct matrix m = make_matrix(KN_BF16, BL_OUT, BL_IN);
	struct kn_weight w;
	struct sl_err err;
	for (int i = 0; i < 4; i++)
		bl_make(&rigs[i / 2], &adapters[i / 2][i % 2], i % 2);
	did(&rigs[1], rigs[1].o->weight_load(rigs[1].b, m.bytes, KN_BF16, BL_OUT, BL_IN, &w, &err));
	const char *wrong = bl_rows(rigs, adapters, &w, 7);
	if (right(rigs, wrong))
		wrong = bl_rows(rigs, adapters, &w, BL_ROWS);
	rigs[1].o->weight_free(rigs[1].b, &w);
	for (int i = 0; i < 4; i++)
		bl_drop(&rigs[i / 2], &adapters[i / 2][i % 2]);
	drop_matrix(&m);
	return wrong;
}

#endif
