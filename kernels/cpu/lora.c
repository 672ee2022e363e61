/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters of a step: shrink divides rows of A among the threads, expand outputs, each by the rows that they
 * serve, so that one adapter with a prompt beside seven with a token each leaves no thread idle. Sums are never
 * divided.
 */
#include "kernels/cpu/backend.h"

enum {
	UNIT_RANK = KN_LORA_DOTS,
	UNIT_OUT = 4 * KN_LORA_TILE,
};

struct lora_job {
	const struct kn_backend *b;
	const struct kn_lora_rows *rows;
	const float *x;
	float *t;
	const struct kn_lora_out *outs; /* NULL: shrink */
	int64_t weight;                 /* units of all groups, each times its rows */
	size_t tile_floats;             /* of a thread: rows of A that are widened */
	int n_parts;
};

static float *tile_of(const struct lora_job *j)
{
	return j->tile_floats > 0 ? (float *)j->b->lora_tiles + (size_t)kn_pool_self() * j->tile_floats : NULL;
}

static int units_of(const struct lora_job *j, const struct kn_lora *l, int part)
{
	int n = j->outs == NULL ? l->rank : l->parts[part].rank > 0 ? l->parts[part].n_out : 0;
	int unit = j->outs == NULL ? UNIT_RANK : UNIT_OUT;
	return (n + unit - 1) / unit;
}

static void shrink(const struct lora_job *j, const struct kn_lora_group *g, int u0, int u1)
{
	const struct kn_lora *l = g->lora;
	int j0 = u0 * UNIT_RANK, j1 = u1 * UNIT_RANK < l->rank ? u1 * UNIT_RANK : l->rank;
	const uint8_t *a = (const uint8_t *)l->a + (size_t)j0 * (size_t)l->n_in * kn_lora_bytes(l->type);
	float *t = j->t + (size_t)g->first * (size_t)j->rows->t_width;
	j->b->isa->lora_dots(l->type, a, j1 - j0, l->n_in, j->x, j->rows->rows + g->first, g->n, t + j0,
			     j->rows->t_width, tile_of(j));
	for (int r = 0; r < g->n && l->scales != NULL; r++, t += j->rows->t_width)
		for (int k = j0; k < j1; k++)
			t[k] *= l->scales[k];
}

static void expand(const struct lora_job *j, const struct kn_lora_group *g, int part, int u0, int u1)
{
	const struct kn_lora_part *p = &g->lora->parts[part];
	int o0 = u0 * UNIT_OUT, o1 = u1 * UNIT_OUT < p->n_out ? u1 * UNIT_OUT : p->n_out;
	const float *t = j->t + (size_t)g->first * (size_t)j->rows->t_width;
	for (int k = 0; k < part; k++)
		t += g->lora->parts[k].rank;
	j->b->isa->lora_add(g->lora->type, p, o0, o1, t, j->rows->t_width, j->rows->rows + g->first, g->n,
			    j->outs[part].y, j->outs[part].width);
}

/* The units that begin within this part of the weight. */
static void run_part(void *ctx, int number)
{
	const struct lora_job *j = ctx;
	int64_t from = j->weight * number / j->n_parts, to = j->weight * (number + 1) / j->n_parts, at = 0;
	for (int i = 0; i < j->rows->n_groups; i++) {
		const struct kn_lora_group *g = &j->rows->groups[i];
		for (int part = 0; part < (j->outs == NULL ? 1 : g->lora->n_parts); part++) {
			int64_t units = units_of(j, g->lora, part), u0 = (from - at + g->n - 1) / g->n;
			int64_t u1 = (to - at + g->n - 1) / g->n;
			u0 = from <= at ? 0 : u0 < units ? u0 : units;
			u1 = to <= at ? 0 : u1 < units ? u1 : units;
			if (u0 < u1 && j->outs == NULL)
				shrink(j, g, (int)u0, (int)u1);
			else if (u0 < u1)
				expand(j, g, part, (int)u0, (int)u1);
			at += units * g->n;
		}
	}
}

static int run(struct kn_backend *b, struct lora_job *j)
{
	int64_t work = 0;
	for (int i = 0; i < j->rows->n_groups; i++) {
		const struct kn_lora_group *g = &j->rows->groups[i];
		for (int part = 0; part < (j->outs == NULL ? 1 : g->lora->n_parts); part++) {
			int each = j->outs == NULL ? UNIT_RANK * g->lora->n_in : UNIT_OUT * g->lora->parts[part].rank;
			if (j->outs == NULL && (size_t)each > j->tile_floats)
				j->tile_floats = (size_t)each;
			int64_t units = units_of(j, g->lora, part) * (int64_t)g->n;
			j->weight += units;
			work += units * each;
		}
	}
	if (j->weight == 0)
		return 0;
	j->tile_floats = (j->tile_floats + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN;
	if (kn_reserve_bytes(&b->lora_tiles, &b->lora_bytes,
			     j->tile_floats * (size_t)kn_pool_n_threads(b->pool) * sizeof(float)) != 0)
		j->tile_floats = 0; /* it is faster with them, no more */
	b->packed_of = NULL;
	b->work += work;
	j->b = b;
	j->n_parts = kn_parts_of(b, work);
	kn_run_parts(b, j->n_parts, run_part, j);
	return 0;
}

int kn_cpu_lora_shrink(struct kn_backend *b, const struct kn_lora_rows *rows, const float *x, float *t)
{
	struct lora_job j = {.rows = rows, .x = x, .t = t};
	return run(b, &j);
}

int kn_cpu_lora_expand(struct kn_backend *b, const struct kn_lora_rows *rows, const float *t,
		       const struct kn_lora_out outs[KN_LORA_PARTS])
{
	struct lora_job j = {.rows = rows, .t = (float *)(uintptr_t)t, .outs = outs};
	return run(b, &j);
}
