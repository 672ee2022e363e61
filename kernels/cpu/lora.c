/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters of a step: shrink divides rows of A among the threads, expand outputs, each by the rows that they
 * serve, so that one adapter with a prompt beside seven with a token each leaves no thread idle. Sums are never
 * divided.
 *
 * In a mixture each row is of a few experts, and its adapter adds to each of these something of its own. Rows of one
 * adapter and one expert are a group, so the adapter's matrices of that expert are read once for all of them. Which
 * rows share a group changes no bit of a row.
 */
#include "base/alloc.h"
#include "kernels/cpu/backend.h"
#include "kernels/quantize.h"

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

static void look_up(const struct kn_lora *l, int32_t token, float *t)
{
	size_t rank = (size_t)l->rank, at = (size_t)token * rank;
	if (l->type == KN_LORA_I8)
		for (size_t j = 0; j < rank; j++)
			t[j] = ((const int8_t *)l->a)[at + j];
	else
		kn_dequantize(l->type, (const uint8_t *)l->a + at * kn_lora_bytes(l->type), rank, t);
	for (size_t j = 0; j < rank && l->scales != NULL; j++)
		t[j] *= l->scales[j];
}

int kn_cpu_lora_lookup(struct kn_backend *b, const struct kn_lora_rows *rows, float *t)
{
	for (int g = 0; g < rows->n_groups; g++)
		for (int i = rows->groups[g].first, end = i + rows->groups[g].n;
		     i < end && rows->groups[g].lora->rank > 0; i++)
			look_up(rows->groups[g].lora, b->step->row_token[rows->rows[i]],
				t + (size_t)i * (size_t)rows->t_width);
	return 0;
}

/* ---- experts ---- */

struct kn_expert_rows {
	int room, n_groups; /* slots that there is room for, and as many groups */
	int32_t *rows;      /* places, by adapter and then by expert */
	struct kn_lora_group *groups;
	int32_t *of; /* of each group its index into kn_expert_lora.of[adapter]: expert · KN_EXPERT_LORAS */
	int32_t *adapter;
};

void kn_expert_rows_free(struct kn_expert_rows *r)
{
	if (r == NULL)
		return;
	sl_free(r->rows);
	sl_free(r->groups);
	sl_free(r->of);
	sl_free(r->adapter);
	sl_free(r);
}

static struct kn_expert_rows *make_room(struct kn_backend *b, int n)
{
	struct kn_expert_rows *r = b->expert_rows;
	size_t slots = (size_t)n;
	if (r != NULL && r->room >= n)
		return r;
	kn_expert_rows_free(r);
	b->expert_rows = r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	r->rows = sl_zalloc_n(slots, sizeof *r->rows);
	r->groups = sl_zalloc_n(slots, sizeof *r->groups);
	r->of = sl_zalloc_n(slots, sizeof *r->of);
	r->adapter = sl_zalloc_n(slots, sizeof *r->adapter);
	if (r->rows == NULL || r->groups == NULL || r->of == NULL || r->adapter == NULL)
		return NULL;
	r->room = n;
	return r;
}

/* Groups of one adapter's rows, by a counting sort; from place `at` of r->rows on. Returns where they end. */
static int sort(struct kn_expert_rows *r, const struct kn_experts *e, const struct kn_slots *s, int adapter, int at)
{
	const struct kn_lora_rows *rows = e->lora->rows;
	const struct kn_lora_group *g = &rows->groups[adapter];
	const int32_t *own = rows->rows + g->first;
	int32_t first[KN_MAX_EXPERTS + 1] = {0};
	for (int i = 0; i < g->n * s->n_used; i++)
		first[s->chosen[own[i / s->n_used] * s->n_used + i % s->n_used] + 1]++;
	for (int x = 0; x < e->route.n; x++) {
		int n = first[x + 1];
		first[x + 1] += first[x];
		if (n == 0)
			continue;
		r->of[r->n_groups] = x * KN_EXPERT_LORAS;
		r->adapter[r->n_groups] = adapter;
		r->groups[r->n_groups++] = (struct kn_lora_group){.first = at + first[x], .n = n};
	}
	for (int i = 0; i < g->n * s->n_used; i++) {
		int slot = own[i / s->n_used] * s->n_used + i % s->n_used;
		r->rows[at + first[s->chosen[slot]]++] = s->place[slot];
	}
	return at + g->n * s->n_used;
}

int kn_expert_lora_begin(struct kn_backend *b, const struct kn_experts *e, const struct kn_slots *s)
{
	const struct kn_lora_rows *rows = e->lora->rows;
	struct kn_expert_rows *r = make_room(b, rows->n_rows * s->n_used);
	if (r == NULL)
		return SL_ENOMEM;
	r->n_groups = 0;
	for (int i = 0, at = 0; i < rows->n_groups; i++)
		if (e->lora->of[i] != NULL)
			at = sort(r, e, s, i, at);
	return 0;
}

int kn_expert_lora_add(struct kn_backend *b, const struct kn_experts *e, int which, const float *x, int n_in,
		       const struct kn_lora_out outs[KN_LORA_PARTS])
{
	struct kn_expert_rows *r = b->expert_rows;
	struct kn_lora_rows all = {
	    .groups = r->groups, .n_groups = r->n_groups, .rows = r->rows, .t_width = e->lora->t_width, .n_in = n_in};
	for (int i = 0; i < r->n_groups; i++) {
		const struct kn_lora *l = &e->lora->of[r->adapter[i]][r->of[i] + which];
		r->groups[i].lora = l;
		all.n_rows += r->groups[i].n;
		all.rank = l->rank > all.rank ? l->rank : all.rank;
	}
	int rc = all.rank > 0 ? kn_cpu_lora_shrink(b, &all, x, e->lora->t) : 0;
	return rc != 0 || all.rank == 0 ? rc : kn_cpu_lora_expand(b, &all, e->lora->t, outs);
}
