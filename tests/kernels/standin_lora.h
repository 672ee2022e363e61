/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in's case of adapters (standin_battery.h includes it): steps in flight whose rows have other adapters from
 * one to the next, and adapters that go while a step with them is on its way. All numbers are small and whole, so that
 * every sum is exact.
 */
#ifndef TESTS_KERNELS_STANDIN_LORA_H
#define TESTS_KERNELS_STANDIN_LORA_H

enum { SBL_RANK = 2, SBL_ROWS = 6, SBL_ADAPTERS = 2, SBL_FLOATS = 2 * SBL_RANK * SB_WIDTH };

_Static_assert((int)SB_WIDTH == (int)KN_LORA_TILE, "B is one tile");

/* An adapter: its memory has A, B and, at the end, what the device reads of it. */
struct sbl_adapter {
	float numbers[SBL_FLOATS];
	float *memory;
	struct kn_lora l;
};

struct sbl {
	struct sb s;
	struct sbl_adapter adapters[SBL_ADAPTERS];
	float *t;
	float x[SBL_ROWS * SB_WIDTH];
};

static void sbl_load(struct sbl *l, int i, int seed)
{
	struct sbl_adapter *a = &l->adapters[i];
	for (int k = 0; k < SBL_FLOATS; k++)
		a->numbers[k] = (float)((k * 5 + seed * 7) % 9 - 4);
	a->memory = sb_memory(&l->s, SBL_FLOATS + sizeof a->l / sizeof(float));
	a->l = (struct kn_lora){.type = KN_F32, .n_in = SB_WIDTH, .rank = SBL_RANK, .a = a->memory, .n_parts = 1};
	a->l.parts[0].b = a->memory + SBL_RANK * SB_WIDTH;
	a->l.parts[0].n_out = SB_WIDTH;
	a->l.parts[0].rank = SBL_RANK;
	a->l.parts[0].scale = 2;
	float copy[sizeof a->l / sizeof(float)];
	memcpy(copy, &a->l, sizeof copy);
	assert_int_equal(l->s.o->upload(l->s.b, a->memory, a->numbers, SBL_FLOATS), 0);
	assert_int_equal(l->s.o->upload(l->s.b, a->memory + SBL_FLOATS, copy, N(copy)), 0);
}

/* What adapter i adds to a row of sums. */
static void sbl_expect(const struct sbl *l, int i, const float *x, float *y)
{
	const float *a = l->adapters[i].numbers, *b = a + SBL_RANK * SB_WIDTH;
	for (int j = 0; j < SBL_RANK; j++) {
		float t = 0;
		for (int k = 0; k < SB_WIDTH; k++)
			t += a[j * SB_WIDTH + k] * x[k];
		for (int o = 0; o < SB_WIDTH; o++)
			y[o] += 2 * b[j * SB_WIDTH + o] * t;
	}
}

/* sum += what row r's adapter, number (r + turn) % 3 if there is one, makes of the row. */
static void sbl_step(struct sbl *l, int turn)
{
	struct sb *s = &l->s;
	int32_t order[SBL_ROWS];
	struct kn_lora_group groups[SBL_ADAPTERS];
	int n = 0, at = s->begun % KN_STEPS_AHEAD;
	for (int i = 0; i < SBL_ADAPTERS; i++) {
		groups[i].lora = &l->adapters[i].l;
		groups[i].sites = (const struct kn_lora *)(const void *)(l->adapters[i].memory + SBL_FLOATS);
		groups[i].first = n;
		for (int r = 0; r < SBL_ROWS; r++)
			if ((r + turn) % (SBL_ADAPTERS + 1) == i) {
				sbl_expect(l, i, l->x + r * SB_WIDTH, s->expect + r * SB_WIDTH);
				order[n++] = r;
			}
		groups[i].n = n - groups[i].first;
	}
	const struct kn_lora_rows rows = {.groups = groups,
					  .n_groups = SBL_ADAPTERS,
					  .rows = order,
					  .n_rows = n,
					  .t_width = SBL_RANK,
					  .n_in = SB_WIDTH,
					  .rank = SBL_RANK};
	const struct kn_lora_out outs[KN_LORA_PARTS] = {{s->sum, SB_WIDTH, SB_WIDTH}};
	const struct kn_step step = {.n_rows = SBL_ROWS, .adapters = &rows};
	memcpy(s->want[at], s->expect, sizeof s->expect);
	s->n_rows[at] = SBL_ROWS;
	s->begun++;
	assert_int_equal(s->o->step_begin(s->b, &step), 0);
	assert_int_equal(s->o->lora_shrink(s->b, &rows, s->x, l->t), 0);
	assert_int_equal(s->o->lora_expand(s->b, &rows, l->t, outs), 0);
	assert_int_equal(s->o->read_back(s->b, s->sum, SBL_ROWS * SB_WIDTH, s->host[at]), 0);
	assert_int_equal(s->o->step_issue(s->b), 0);
	memset(order, 0xEE, sizeof order);
	memset(groups, 0xEE, sizeof groups);
}

static void sb_adapters(const struct kn_ops *o)
{
	struct sbl l;
	struct sb *s = &l.s;
	sb_open(s, o);
	l.t = sb_memory(s, SBL_ROWS * SBL_RANK);
	for (int i = 0; i < SBL_ROWS * SB_WIDTH; i++)
		l.x[i] = (float)(i * 11 % 7 - 3);
	assert_int_equal(o->upload(s->b, s->x, l.x, SBL_ROWS * SB_WIDTH), 0);
	for (int i = 0; i < SBL_ADAPTERS; i++)
		sbl_load(&l, i, i);
	for (int turn = 0; turn < 9; turn++) {
		sbl_step(&l, turn);
		if (turn % 3 == 2) { /* one goes while steps with it are on their way, and another one comes */
			int i = turn / 3 % SBL_ADAPTERS;
			o->mem_free(s->b, l.adapters[i].memory);
			sbl_load(&l, i, 10 + turn);
		}
		if (s->begun - s->ended == KN_STEPS_AHEAD)
			assert_int_equal(sb_wait(s), 0);
	}
	while (s->ended < s->begun)
		assert_int_equal(sb_wait(s), 0);
	assert_true(sb_stats(s).graph_hits >= 6); /* whatever the adapters are, the steps are the same */
	for (int i = 0; i < SBL_ADAPTERS; i++)
		o->mem_free(s->b, l.adapters[i].memory);
	o->mem_free(s->b, l.t);
	sb_close(s);
	sb_nothing_left();
}

#endif
