/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts: the choice of a row's experts against the same rules written once more here, and the operation
 * bit for bit against the table's own products of one expert and one row at a time, in any company, with any number of
 * threads. That the products are right is shown in test_ops.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/cpu/route.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { MOST_ROWS = 300, MOST = 64 };

/* ---- the choice ---- */

/* Place of expert e by rank, the highest first, of equal ones the lower number. */
static int place_of(const double *rank, int n, int e)
{
	int place = 0;
	for (int i = 0; i < n; i++)
		place += rank[i] > rank[e] || (rank[i] == rank[e] && i < e);
	return place;
}

static void check_route(const struct kn_route *r, const float *logits)
{
	double score[MOST], rank[MOST], sum = 0, of_chosen = 0;
	int32_t chosen[MOST];
	float weights[MOST];
	for (int e = 0; e < r->n; e++)
		sum += exp((double)logits[e]);
	for (int e = 0; e < r->n; e++) {
		score[e] = r->sigmoid ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e]) / sum;
		rank[e] = score[e] + (r->bias != NULL ? (double)r->bias[e] : 0);
	}
	kn_route_row(r, logits, chosen, weights);
	for (int k = 0; k < r->n_used; k++) {
		assert_int_equal(place_of(rank, r->n, chosen[k]), k);
		of_chosen += score[chosen[k]];
	}
	for (int k = 0; k < r->n_used; k++) {
		double want = score[chosen[k]] * (double)r->scale / (r->norm ? of_chosen : 1);
		assert_true(fabs((double)weights[k] - want) <= 1e-6 * fabs(want));
	}
}

static void test_choice(void **arg)
{
	(void)arg;
	float logits[MOST], bias[MOST];
	for (int round = 0; round < 500; round++) {
		int n = 1 + (int)(next_bits() % MOST);
		struct kn_route r = {.n = n, .n_used = 1 + (int)(next_bits() % (unsigned)n), .scale = 1};
		r.sigmoid = round % 2 == 0;
		r.norm = round % 3 == 0;
		r.scale = round % 5 == 0 ? 2.5f : 1;
		r.bias = round % 7 == 0 ? bias : NULL;
		for (int e = 0; e < n; e++) {
			logits[e] = 4 * next_float();
			bias[e] = next_float();
		}
		if (round % 4 == 0 && n > 2) /* equal scores: the lower number */
			logits[n - 1] = logits[0], bias[n - 1] = bias[0];
		check_route(&r, logits);
	}
}

/* Eight experts in four groups, the two best groups by the sum of their two best. */
static void test_groups(void **arg)
{
	(void)arg;
	static const float logits[] = {3, -3, 1, 1.5f, 2, -9, 1.2f, 1.4f};
	struct kn_route r = {.n = 8, .n_used = 3, .sigmoid = true, .scale = 1, .n_groups = 4, .n_groups_used = 2};
	int32_t chosen[3];
	float weights[3];
	/* Sums of sigmoids: 1.00, 1.55, 0.88, 1.57. */
	kn_route_row(&r, logits, chosen, weights);
	assert_int_equal(chosen[0], 3);
	assert_int_equal(chosen[1], 7);
	assert_int_equal(chosen[2], 6);
	/* By their best ones: 0.95, 0.82, 0.88, 0.80. */
	r.group_best = true;
	kn_route_row(&r, logits, chosen, weights);
	assert_int_equal(chosen[0], 0);
	assert_int_equal(chosen[1], 4);
	assert_int_equal(chosen[2], 1);
	r.n_groups_used = 4;
	kn_route_row(&r, logits, chosen, weights);
	assert_int_equal(chosen[0], 0);
	assert_int_equal(chosen[1], 4);
}

/* By hand: shares among the logits within 2 · 0.1 of the largest, then the same without the first. */
static void test_sparse(void **arg)
{
	(void)arg;
	static const float logits[] = {1, 2, 1.7f, 1.5f, -3};
	const struct kn_route r = {.n = 5, .n_used = 2, .scale = 1, .sparse = 0.1f};
	int32_t chosen[2];
	float weights[2];
	kn_route_row(&r, logits, chosen, weights);
	assert_true(chosen[0] == 1 && chosen[1] == 2);
	/* 2 - 1.7 is within 0.4, 2 - 1.5 is not; 1.7 - 1.5 is within 0.34, 1.7 - 1 is not. */
	assert_true(fabs((double)weights[0] - 1 / (1 + exp(-0.3))) < 1e-6);
	assert_true(fabs((double)weights[1] - 1 / (1 + exp(-0.2))) < 1e-6);
}

/* Whatever the logits, experts that exist are chosen, each once; a row that is not finite has weights that are not. */
static void test_not_finite(void **arg)
{
	(void)arg;
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	for (int i = 0; i < N(bad); i++) {
		float logits[] = {1, bad[i], 0, 2}, weights[3];
		int32_t chosen[3];
		kn_route_row(&(struct kn_route){.n = 4, .n_used = 3, .scale = 1}, logits, chosen, weights);
		for (int k = 0; k < 3; k++) {
			assert_true(isnan(weights[k]));
			assert_in_range(chosen[k], 0, 3);
			for (int j = 0; j < k; j++)
				assert_int_not_equal(chosen[j], chosen[k]);
		}
	}
}

/* ---- the operation ---- */

struct shape {
	int n, n_used, width, n_ff, type, down_type;
	enum kn_gate act;
	bool biases, weighs_input;
};

/* Adapters of rows r % 3 == 0 and 1; an expert's two products have ranks of their own. */
enum { LORAS = 2, LORA_RANK = 9 };

struct loras {
	struct kn_lora of[LORAS][MOST * KN_EXPERT_LORAS];
	const struct kn_lora *lists[LORAS];
	float *numbers, *t; /* of the backend */
	int32_t rows[MOST_ROWS];
	struct kn_lora_group groups[LORAS];
	struct kn_lora_rows by;
	struct kn_expert_lora e;
};

struct mixture {
	struct loras *loras; /* NULL: none */
	struct shape s;
	struct matrix file[3][MOST];
	struct kn_weight w[3][MOST];
	struct kn_experts e;
	uint64_t used[MOST];
	float *bias[3];
};

static void open_mixture(struct mixture *m, const struct kn_ops *o, struct kn_backend *b, const struct shape *s)
{
	struct sl_err err;
	m->s = *s;
	memset(m->used, 0, sizeof m->used);
	for (int i = 0; i < 3; i++)
		for (int e = 0; e < s->n; e++) {
			int n_out = i == 2 ? s->width : s->n_ff, n_in = i == 2 ? s->n_ff : s->width;
			m->file[i][e] = make_matrix(i == 2 ? s->down_type : s->type, n_out, n_in);
			assert_int_equal(
			    o->weight_load(b, m->file[i][e].bytes, m->file[i][e].type, n_out, n_in, &m->w[i][e], &err),
			    0);
		}
	m->e = (struct kn_experts){.route = {.n = s->n, .n_used = s->n_used, .norm = true, .scale = 1},
				   .gate = m->w[0],
				   .up = m->w[1],
				   .down = m->w[2],
				   .act = s->act,
				   .weighs_input = s->weighs_input,
				   .n_rows = m->used};
}

/* After the weights, so that the others' numbers stay. */
static void add_biases(struct mixture *m, const struct kn_ops *o, struct kn_backend *b)
{
	for (int i = 0; i < 3; i++)
		m->bias[i] = random_floats(o, b, (size_t)(m->s.n * (i == 2 ? m->s.width : m->s.n_ff)));
	if (!m->s.biases)
		return;
	m->e.gate_bias = m->bias[0];
	m->e.up_bias = m->bias[1];
	m->e.down_bias = m->bias[2];
}

static void close_mixture(struct mixture *m, const struct kn_ops *o, struct kn_backend *b)
{
	for (int i = 0; i < 3; i++)
		drop(o, b, m->bias[i]);
	for (int i = 0; i < 3; i++)
		for (int e = 0; e < m->s.n; e++) {
			o->weight_free(b, &m->w[i][e]);
			drop_matrix(&m->file[i][e]);
		}
}

static struct kn_lora a_lora(const float *numbers, int n_in, int n_out, int n_parts, int seed)
{
	struct kn_lora l = {.type = KN_F32, .n_in = n_in, .n_parts = n_parts, .a = numbers + seed % 64};
	for (int i = 0; i < n_parts; i++) {
		int rank = (seed + 2 * i) % 4;
		if (rank == 0)
			continue;
		l.parts[i] = (struct kn_lora_part){
		    .b = numbers + 16 * ((seed + i) % 8), .n_out = n_out, .rank = rank, .scale = 0.3f};
		l.rank += rank;
	}
	return l;
}

/* Of each adapter and expert, from one block of numbers. */
static void add_loras(struct mixture *m, struct loras *l, const struct kn_ops *o, struct kn_backend *b, int n_rows)
{
	int most = m->s.width > m->s.n_ff ? m->s.width : m->s.n_ff;
	l->numbers = random_floats(o, b, (size_t)((most + 16) * LORA_RANK + 256));
	l->t = guarded(o, b, (size_t)(n_rows * m->s.n_used * LORA_RANK));
	for (int g = 0; g < LORAS; g++) {
		l->lists[g] = l->of[g];
		for (int e = 0; e < m->s.n; e++) {
			struct kn_lora *both = &l->of[g][e * KN_EXPERT_LORAS];
			both[0] = a_lora(l->numbers, m->s.width, m->s.n_ff, 2, 3 * g + e);
			both[1] = a_lora(l->numbers, m->s.n_ff, m->s.width, 1, 5 * g + e + 1);
			if (m->s.act == KN_NO_GATE && both[0].parts[0].rank > 0) {
				both[0].rank -= both[0].parts[0].rank;
				both[0].parts[0] = (struct kn_lora_part){0};
			}
		}
	}
	l->e = (struct kn_expert_lora){.rows = &l->by, .of = l->lists, .t = l->t, .t_width = LORA_RANK};
	m->loras = l;
}

static void drop_loras(struct mixture *m, const struct kn_ops *o, struct kn_backend *b)
{
	drop(o, b, m->loras->numbers);
	drop(o, b, m->loras->t);
	m->loras = NULL;
}

/* Rows first on, n of them, by their adapters. */
static void group_loras(struct mixture *m, int first, int n)
{
	struct loras *l = m->loras;
	int at = 0;
	m->e.lora = NULL;
	if (l == NULL)
		return;
	for (int g = 0; g < LORAS; g++) {
		l->groups[g].first = at;
		for (int r = 0; r < n; r++)
			if ((first + r) % 3 == g)
				l->rows[at++] = r;
		l->groups[g].n = at - l->groups[g].first;
	}
	l->by = (struct kn_lora_rows){.groups = l->groups, .n_groups = LORAS, .rows = l->rows, .n_rows = at};
	m->e.lora = &l->e;
}

/* The same of row r and one expert, alone. */
static void by_hand_lora(const struct mixture *m, const struct kn_ops *o, struct kn_backend *b, int r, int expert,
			 int which, const float *x, float *y, float *up)
{
	static const int32_t rows[] = {0};
	if (m->loras == NULL || r % 3 >= LORAS)
		return;
	int n = which == 0 ? m->s.n_ff : m->s.width;
	struct kn_lora_group g = {.lora = &m->loras->of[r % 3][expert * KN_EXPERT_LORAS + which], .n = 1};
	struct kn_lora_rows one = {.groups = &g, .n_groups = 1, .rows = rows, .n_rows = 1, .t_width = LORA_RANK};
	const struct kn_lora_out outs[KN_LORA_PARTS] = {{y, n, n}, {up != NULL ? up : y, n, n}};
	assert_int_equal(o->lora_shrink(b, &one, x, m->loras->t), 0);
	assert_int_equal(o->lora_expand(b, &one, m->loras->t, outs), 0);
}

/* Between what the host does with an operation's results and the next operation. */
static void begin_hand(const struct kn_ops *o, struct kn_backend *b)
{
	static const struct kn_step one = {.n_rows = 1};
	assert_int_equal(o->step_begin(b, &one), 0);
}

static void end_hand(const struct kn_ops *o, struct kn_backend *b) { assert_int_equal(o->step_end(b), 0); }

static void open_gate(const struct mixture *m, const struct kn_ops *o, struct kn_backend *b, float *gate,
		      const float *up)
{
	if (m->s.act == KN_NO_GATE && o->relu_square != NULL)
		assert_int_equal(o->relu_square(b, gate, 1, m->s.n_ff), 0);
	else if (m->s.act == KN_GATE_GELU)
		assert_int_equal(o->gelu_mul(b, gate, up, 1, m->s.n_ff), 0);
	else if (m->s.act == KN_GATE_SILU)
		assert_int_equal(o->silu_mul(b, gate, up, 1, m->s.n_ff), 0);
	for (int i = 0; i < m->s.n_ff && m->s.act == KN_NO_GATE && o->relu_square == NULL; i++)
		gate[i] = gate[i] < 0 ? 0 : gate[i] * gate[i];
}

static void by_hand_bias(float *x, const float *bias, int expert, int n)
{
	for (int i = 0; i < n && bias != NULL; i++)
		x[i] += bias[expert * n + i];
}

/* y[width] of one row, one product after the other; room: two rows of n_ff and two of width. */
static void by_hand(const struct mixture *m, const struct kn_ops *o, struct kn_backend *b, int r, const float *logits,
		    const float *x, float *room, float *y)
{
	int32_t chosen[MOST];
	float weights[MOST], *gate = room, *up = room + m->s.n_ff, *out = up + m->s.n_ff, *in = out + m->s.width;
	kn_route_row(&m->e.route, logits, chosen, weights);
	for (int k = 0; k < m->s.n_used; k++) {
		for (int i = 0; i < m->s.width; i++)
			in[i] = m->s.weighs_input ? x[i] * weights[k] : x[i];
		bool alone = m->s.act == KN_NO_GATE;
		begin_hand(o, b);
		if (!alone)
			assert_int_equal(o->matmul(b, &m->w[0][chosen[k]], in, 1, gate), 0);
		assert_int_equal(o->matmul(b, &m->w[1][chosen[k]], in, 1, alone ? gate : up), 0);
		by_hand_lora(m, o, b, r, chosen[k], 0, in, gate, alone ? NULL : up);
		end_hand(o, b);
		by_hand_bias(gate, alone ? m->e.up_bias : m->e.gate_bias, chosen[k], m->s.n_ff);
		by_hand_bias(up, alone ? NULL : m->e.up_bias, chosen[k], m->s.n_ff);
		begin_hand(o, b);
		open_gate(m, o, b, gate, up);
		assert_int_equal(o->matmul(b, &m->w[2][chosen[k]], gate, 1, out), 0);
		by_hand_lora(m, o, b, r, chosen[k], 1, gate, out, NULL);
		end_hand(o, b);
		by_hand_bias(out, m->e.down_bias, chosen[k], m->s.width);
		for (int i = 0; i < m->s.width; i++) {
			float part = m->s.weighs_input ? out[i] : weights[k] * out[i];
			y[i] = k == 0 ? part : y[i] + part;
		}
	}
}

/* Rows from first on. */
static void run_experts(const struct kn_ops *o, struct kn_backend *b, struct mixture *m, const float *logits,
			const float *x, int first, int n, float *work, float *y)
{
	struct kn_step s = {.n_rows = n};
	size_t at = (size_t)first * (size_t)m->s.width;
	group_loras(m, first, n);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->experts(b, &m->e, logits + first * m->s.n, x + at, n, work, y + at), 0);
	assert_int_equal(o->step_end(b), 0);
}

static void mixture_case(const struct kn_ops *o, const struct shape *s, int n_rows, bool adapted)
{
	static struct mixture m;
	static struct loras loras;
	size_t n = (size_t)n_rows * (size_t)s->width, bytes = n * sizeof(float);
	float *want = malloc(bytes);
	uint64_t before = state;
	for (int threads = 1; threads <= (one_thread(o) ? 1 : 3); threads++) {
		struct kn_backend *b =
		    open_with(o, &(struct kn_config){.n_threads = threads, .max_rows = MOST_ROWS, .max_width = 4096});
		state = before;
		open_mixture(&m, o, b, s);
		add_biases(&m, o, b);
		size_t n_work = kn_experts_work(&m.e) * (size_t)n_rows;
		float *x = random_floats(o, b, n), *logits = random_floats(o, b, (size_t)n_rows * (size_t)s->n);
		float *y = guarded(o, b, n), *work = guarded(o, b, n_work);
		float *room = guarded(o, b, (size_t)(2 * s->n_ff + 2 * s->width));
		if (adapted)
			add_loras(&m, &loras, o, b, n_rows);
		for (int r = 0; r < n_rows && threads == 1; r++)
			by_hand(&m, o, b, r, logits + r * s->n, x + r * s->width, room, want + r * s->width);
		run_experts(o, b, &m, logits, x, 0, n_rows, work, y);
		assert_memory_equal(y, want, bytes);
		uint64_t used = 0;
		for (int e = 0; e < s->n; e++)
			used += m.used[e];
		assert_int_equal(used, n_rows * s->n_used);
		int half = n_rows / 2;
		if (half > 0)
			run_experts(o, b, &m, logits, x, 0, half, work, y);
		run_experts(o, b, &m, logits, x, half, n_rows - half, work, y);
		assert_memory_equal(y, want, bytes);
		run_experts(o, b, &m, logits, x, 0, n_rows, work, x); /* in place */
		assert_memory_equal(x, want, bytes);
		float *all[] = {x, logits, y, work, room};
		check_guards(x, n);
		check_guards(y, n);
		check_guards(work, n_work);
		for (int i = 0; i < N(all); i++)
			drop(o, b, all[i]);
		if (adapted)
			drop_loras(&m, o, b);
		close_mixture(&m, o, b);
		o->close(b);
	}
	free(want);
}

static void test_mixtures(void **arg)
{
	(void)arg;
	static const struct shape shapes[] = {
	    {.n = 8, .n_used = 2, .width = 64, .n_ff = 96, .type = KN_F32, .down_type = KN_F32},
	    {.n = 60, .n_used = 4, .width = 256, .n_ff = 64, .type = KN_Q8_0, .down_type = KN_F16},
	    {.n = 5,
	     .n_used = 5,
	     .width = 256,
	     .n_ff = 256,
	     .type = KN_Q4_K,
	     .down_type = KN_Q6_K,
	     .act = KN_GATE_GELU},
	    {.n = 1, .n_used = 1, .width = 512, .n_ff = 32, .type = KN_Q4_0, .down_type = KN_MXFP4},
	    {.n = 16, .n_used = 8, .width = 37, .n_ff = 51, .type = KN_F16, .down_type = KN_F32, .biases = true},
	    {.n = 4, .n_used = 2, .width = 64, .n_ff = 96, .type = KN_Q8_0, .down_type = KN_F32, .weighs_input = true},
	    {.n = 6,
	     .n_used = 3,
	     .width = 64,
	     .n_ff = 51,
	     .type = KN_Q8_0,
	     .down_type = KN_F32,
	     .act = KN_NO_GATE,
	     .biases = true},
	};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; i < N(shapes) && (*o)->experts != NULL; i++)
			for (int rows = (*o)->ahead ? 3 : 1; rows <= ((*o)->ahead ? 3 : 33); rows = rows * 2 + 1)
				mixture_case(*o, &shapes[i], rows, false);
}

/* What adapters add to each expert has the bits of a row and an expert alone. */
static void test_adapters(void **arg)
{
	(void)arg;
	static const struct shape shapes[] = {
	    {.n = 8, .n_used = 3, .width = 64, .n_ff = 96, .type = KN_F32, .down_type = KN_F32},
	    {.n = 5,
	     .n_used = 2,
	     .width = 37,
	     .n_ff = 51,
	     .type = KN_F16,
	     .down_type = KN_F32,
	     .biases = true,
	     .weighs_input = true},
	    {.n = 6, .n_used = 3, .width = 64, .n_ff = 51, .type = KN_Q8_0, .down_type = KN_F32, .act = KN_NO_GATE},
	};
	int n_done = 0;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; i < N(shapes) && (*o)->lora_lookup != NULL; i++, n_done++) {
			mixture_case(*o, &shapes[i], 1, true);
			mixture_case(*o, &shapes[i], 22, true);
		}
	assert_true(n_done >= N(shapes)); /* the reference at least */
}

/* As many rows an expert as each kernel of a device takes at a time, and more, which it takes in groups. */
static void test_row_groups(void **arg)
{
	(void)arg;
	static const struct {
		struct shape s;
		int n_rows;
	} cases[] = {
	    {{.n = 3, .n_used = 1, .width = 64, .n_ff = 19, .type = KN_Q8_0, .down_type = KN_F16}, 11},
	    {{.n = 2, .n_used = 2, .width = 32, .n_ff = 32, .type = KN_MXFP4, .down_type = KN_Q4_1}, 13},
	    {{.n = 2, .n_used = 1, .width = 32, .n_ff = 17, .type = KN_BF16, .down_type = KN_BF16}, 70},
	};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; i < N(cases) && (*o)->ahead && (*o)->experts != NULL; i++)
			mixture_case(*o, &cases[i].s, cases[i].n_rows, false);
}

/* More rows than one product takes, and more packed rows than are kept at a time. */
static void test_many_rows(void **arg)
{
	(void)arg;
	static const struct shape one = {
	    .n = 2, .n_used = 2, .width = 64, .n_ff = 32, .type = KN_Q8_0, .down_type = KN_Q8_0};
	static const struct shape wide = {
	    .n = 64, .n_used = 32, .width = 1024, .n_ff = 32, .type = KN_Q8_0, .down_type = KN_Q8_0};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		if ((*o)->experts != NULL && strcmp((*o)->name, "cpu-ref") != 0 && !(*o)->ahead) {
			mixture_case(*o, &one, MOST_ROWS, false);
			mixture_case(*o, &wide, MOST_ROWS, false);
		}
}

/* A step of decodes that a device pads to four rows: the rows' own results, and counts of these alone; whatever experts
 * they choose, a graph that is there. */
static void padded_case(const struct kn_ops *o, struct kn_backend *b, const struct kn_experts *e, const uint64_t *used)
{
	enum { ROWS = 3, WIDTH = 64, STEPS = 5, ALL = 4 };
	static const int32_t ids[ROWS] = {0, 1, 2}, table[ROWS];
	const struct kn_step s = {.n_rows = ROWS,
				  .row_token = ids,
				  .row_pos = (const int32_t[ROWS]){0},
				  .row_seq = ids,
				  .n_seqs = ROWS,
				  .page_table = table,
				  .max_pages = 1};
	size_t n = (size_t)(ALL * WIDTH), n_logits = (size_t)(ALL * e->route.n);
	float *x = random_floats(o, b, n), *y = guarded(o, b, n), *logits = random_floats(o, b, n_logits);
	float *one = guarded(o, b, WIDTH), *work = guarded(o, b, ALL * kn_experts_work(e));
	struct kn_stats before, after;
	for (int i = 0; i < STEPS; i++) {
		uint64_t all = 0;
		for (size_t k = 0; k < n_logits; k++)
			logits[k] = next_float();
		o->stats(b, &before);
		for (int x_ = 0; x_ < e->route.n; x_++)
			all -= used[x_];
		assert_int_equal(o->step_begin(b, &s), 0);
		assert_int_equal(o->experts(b, e, logits, x, ROWS, work, y), 0);
		assert_int_equal(o->step_end(b), 0);
		o->stats(b, &after);
		for (int x_ = 0; x_ < e->route.n; x_++)
			all += used[x_];
		assert_int_equal(all, ROWS * e->route.n_used);
		assert_int_equal(after.graph_hits - before.graph_hits, i > 2); /* seen, captured */
		for (int r = 0; r < ROWS; r++) {
			struct kn_step alone = {.n_rows = 1};
			assert_int_equal(o->step_begin(b, &alone), 0);
			assert_int_equal(o->experts(b, e, logits + r * e->route.n, x + r * WIDTH, 1, work, one), 0);
			assert_int_equal(o->step_end(b), 0);
			assert_memory_equal(one, y + r * WIDTH, WIDTH * sizeof *one);
		}
	}
	check_guards(y, n);
	float *rooms[] = {x, y, logits, one, work};
	for (int i = 0; i < N(rooms); i++)
		drop(o, b, rooms[i]);
}

static void test_padded(void **arg)
{
	(void)arg;
	static struct mixture m;
	static const struct shape s = {
	    .n = 7, .n_used = 2, .width = 64, .n_ff = 32, .type = KN_Q8_0, .down_type = KN_Q8_0};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		if (!(*o)->ahead || (*o)->experts == NULL)
			continue;
		struct kn_backend *b =
		    open_with(*o, &(struct kn_config){.max_rows = 16, .max_width = 256, .pad_rows = true});
		open_mixture(&m, *o, b, &s);
		add_biases(&m, *o, b);
		assert_int_equal((*o)->experts_ready(b, &m.e), 0);
		padded_case(*o, b, &m.e, m.used);
		close_mixture(&m, *o, b);
		/* Others in their place, perhaps at the same addresses. */
		open_mixture(&m, *o, b, &s);
		add_biases(&m, *o, b);
		padded_case(*o, b, &m.e, m.used);
		close_mixture(&m, *o, b);
		(*o)->close(b);
	}
}

/* Weights that were loaded together are those that were loaded one by one. */
static void test_loaded_together(void **arg)
{
	(void)arg;
	enum { EXPERTS = 3, OUT = 19, IN = 64 };
	static const int types[] = {KN_F32, KN_Q8_0, KN_BF16};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int t = 0; t < N(types) && (*o)->weights_load != NULL; t++) {
			struct kn_backend *b = open_with(*o, &(struct kn_config){.max_rows = 4, .max_width = 256});
			struct matrix m = make_matrix(types[t], EXPERTS * OUT, IN);
			struct kn_weight all[EXPERTS], one;
			struct kn_step s = {.n_rows = 1};
			struct sl_err err;
			const struct kn_noise noise = {.seed = 3};
			size_t bytes = kn_row_bytes(types[t], IN) * OUT;
			float *x = random_floats(*o, b, IN), *y[] = {guarded(*o, b, OUT), guarded(*o, b, OUT)};
			assert_int_equal((*o)->weights_load(b, NULL, &noise, EXPERTS, types[t], OUT, IN, all, &err),
					 SL_EINVAL);
			assert_int_equal((*o)->weights_load(b, m.bytes, NULL, EXPERTS, types[t], OUT, IN, all, &err),
					 0);
			for (int e = 0; e < EXPERTS; e++) {
				const uint8_t *at = (const uint8_t *)m.bytes + (size_t)e * bytes;
				assert_int_equal((*o)->weight_load(b, at, types[t], OUT, IN, &one, &err), 0);
				assert_int_equal((*o)->step_begin(b, &s), 0);
				assert_int_equal((*o)->matmul(b, &all[e], x, 1, y[0]), 0);
				assert_int_equal((*o)->matmul(b, &one, x, 1, y[1]), 0);
				assert_int_equal((*o)->step_end(b), 0);
				assert_memory_equal(y[0], y[1], OUT * sizeof(float));
				(*o)->weight_free(b, &one);
			}
			for (int e = 0; e < EXPERTS; e++)
				(*o)->weight_free(b, &all[e]);
			drop(*o, b, x);
			drop(*o, b, y[0]);
			drop(*o, b, y[1]);
			drop_matrix(&m);
			(*o)->close(b);
		}
}

/* The limited gate, whose inputs' limits are reached: one expert of width 1 with weights of one. */
static void test_clamped(void **arg)
{
	(void)arg;
	static const float ones[32] = {1};
	static const float xs[] = {-20, -7, -1.5f, 0, 0.5f, 6, 7, 9, 30};
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		if ((*o)->experts == NULL)
			continue;
		struct kn_backend *b =
		    open_with(*o, &(struct kn_config){.n_threads = 1, .max_rows = 64, .max_width = 256});
		struct kn_weight w;
		struct sl_err err;
		assert_int_equal((*o)->weight_load(b, ones, KN_F32, 1, 1, &w, &err), 0);
		struct kn_experts e = {.route = {.n = 1, .n_used = 1, .norm = true, .scale = 1},
				       .gate = &w,
				       .up = &w,
				       .down = &w,
				       .act = KN_GATE_CLAMPED};
		float *x = guarded(*o, b, N(xs)), *y = guarded(*o, b, N(xs)), *logits = random_floats(*o, b, N(xs));
		float *work = guarded(*o, b, kn_experts_work(&e) * N(xs));
		struct kn_step s = {.n_rows = N(xs)};
		memcpy(x, xs, sizeof xs);
		assert_int_equal((*o)->step_begin(b, &s), 0);
		assert_int_equal((*o)->experts(b, &e, logits, x, N(xs), work, y), 0);
		assert_int_equal((*o)->step_end(b), 0);
		for (int i = 0; i < N(xs); i++) {
			double g = fmin((double)xs[i], 7), u = fmax(-7, fmin((double)xs[i], 7));
			double want = g / (1 + exp(-(double)KN_CLAMP_SLOPE * g)) * (u + 1);
			expect_near("the limited gate", *o, (double)y[i], want, 64 * U * fabs(want));
		}
		check_guards(y, N(xs));
		float *all[] = {x, y, logits, work};
		for (int i = 0; i < N(all); i++)
			drop(*o, b, all[i]);
		(*o)->weight_free(b, &w);
		(*o)->close(b);
	}
}

/* Numbers are in [-1, 1); the logistic function is right to some units of the last place. */
static void test_add_gated(void **arg)
{
	(void)arg;
	enum { ROWS = 9, WIDTH = 131, ALL = ROWS * WIDTH };
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		if ((*o)->experts == NULL)
			continue;
		struct kn_backend *b =
		    open_with(*o, &(struct kn_config){.n_threads = 2, .max_rows = 64, .max_width = 256});
		struct kn_step s = {.n_rows = ROWS};
		float *x = random_floats(*o, b, ALL), *add = random_floats(*o, b, ALL), was[ALL];
		float *gate = random_floats(*o, b, ROWS);
		memcpy(was, x, sizeof was);
		assert_int_equal((*o)->step_begin(b, &s), 0);
		assert_int_equal((*o)->add_gated(b, x, add, gate, ROWS, WIDTH), 0);
		assert_int_equal((*o)->step_end(b), 0);
		for (int i = 0; i < ALL; i++) {
			double want = (double)was[i] + (double)add[i] / (1 + exp(-(double)gate[i / WIDTH]));
			expect_near("add_gated", *o, (double)x[i], want, 16 * U);
		}
		check_guards(x, ALL);
		drop(*o, b, x);
		drop(*o, b, add);
		drop(*o, b, gate);
		(*o)->close(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_choice),     cmocka_unit_test(test_groups),   cmocka_unit_test(test_sparse),
	    cmocka_unit_test(test_not_finite), cmocka_unit_test(test_mixtures), cmocka_unit_test(test_adapters),
	    cmocka_unit_test(test_row_groups), cmocka_unit_test(test_padded),   cmocka_unit_test(test_loaded_together),
	    cmocka_unit_test(test_many_rows),  cmocka_unit_test(test_clamped),  cmocka_unit_test(test_add_gated)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
