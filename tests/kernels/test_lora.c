/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters of every table that has them, against the same sums in double written here. A row's bits depend on
 * its numbers and its adapter only: not on the others, on how many the step has, nor on the number of threads; nor on
 * whether a device's product adds them itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/quantize.h"
#include "tests/emulation/emu_count.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/weights.h"

enum { ADAPTERS = 3, ROWS = 23, MANY_ROWS = 300, MOST_RANK = 3 * KN_LORA_RANK };

/* An adapter and its numbers, which are in the backend's memory. */
struct made {
	const struct kn_ops *o;
	struct kn_backend *backend;
	struct kn_lora l;
	struct kn_lora *sites;       /* of the backend: a copy of l */
	float *a, *b[KN_LORA_PARTS]; /* as floats; b [n_out][rank] */
};

/* Takes n bytes of malloc's to the backend. */
static void *give(const struct made *m, void *from, size_t n)
{
	void *p;
	assert_int_equal(m->o->mem_alloc(m->backend, n, &p), 0);
	memcpy(p, from, n);
	free(from);
	return p;
}

/* n random numbers that the type holds exactly, and their bytes. */
static void *numbers(int type, size_t n, float *as)
{
	void *bytes = malloc(n * 4);
	if (type == KN_LORA_I8) {
		for (size_t i = 0; i < n; i++)
			as[i] = ((int8_t *)bytes)[i] = (int8_t)(i < 2 ? 127 - 254 * (int)i : (int)(next_float() * 127));
		return bytes;
	}
	for (size_t i = 0; i < n; i++)
		as[i] = next_float();
	assert_int_equal(kn_quantize_row(type, as, n, bytes), 0);
	kn_dequantize(type, bytes, n, as);
	return bytes;
}

static void make_part(struct made *m, int i, int n_out, int rank)
{
	size_t each = kn_lora_bytes(m->l.type), tiles = (size_t)(n_out + KN_LORA_TILE - 1) / KN_LORA_TILE;
	struct kn_lora_part *p = &m->l.parts[i];
	*p = (struct kn_lora_part){.n_out = n_out, .rank = rank, .scale = 0.5f + (float)i};
	if (rank == 0)
		return;
	m->b[i] = malloc((size_t)(n_out * rank) * sizeof(float));
	uint8_t *bytes = numbers(m->l.type, (size_t)(n_out * rank), m->b[i]);
	uint8_t *tiled = calloc(tiles * (size_t)rank * KN_LORA_TILE, each);
	for (int o = 0; o < n_out; o++)
		for (int j = 0; j < rank; j++)
			memcpy(tiled + (size_t)((o / KN_LORA_TILE * rank + j) * KN_LORA_TILE + o % KN_LORA_TILE) * each,
			       bytes + (size_t)(o * rank + j) * each, each);
	free(bytes);
	p->b = give(m, tiled, tiles * (size_t)rank * KN_LORA_TILE * each);
}

static struct made make(const struct kn_ops *o, struct kn_backend *b, int type, int n_in, const int *n_outs,
			const int *ranks, int n_parts)
{
	struct made m = {.o = o, .backend = b, .l = {.type = type, .n_in = n_in, .n_parts = n_parts}};
	for (int i = 0; i < n_parts; i++)
		m.l.rank += ranks[i];
	m.a = malloc((size_t)(m.l.rank * n_in) * sizeof(float));
	size_t n_a = (size_t)(m.l.rank * n_in);
	m.l.a = give(&m, numbers(type, n_a, m.a), n_a * kn_lora_bytes(type));
	if (type == KN_LORA_I8) { /* check_row has them in A */
		float *scales = malloc((size_t)m.l.rank * sizeof *scales);
		for (int j = 0; j < m.l.rank; j++) {
			scales[j] = 1e-4f * (1 + next_float() / 2);
			for (int i = 0; i < n_in; i++)
				m.a[j * n_in + i] *= scales[j];
		}
		m.l.scales = give(&m, scales, (size_t)m.l.rank * sizeof *scales);
	}
	for (int i = 0; i < n_parts; i++)
		make_part(&m, i, n_outs[i], ranks[i]);
	struct kn_lora *copy = malloc(sizeof *copy);
	*copy = m.l;
	m.sites = give(&m, copy, sizeof *copy);
	return m;
}

static void take(const struct made *m, const void *p)
{
	if (p != NULL)
		m->o->mem_free(m->backend, (void *)(uintptr_t)p);
}

static void drop_made(struct made *m)
{
	take(m, m->l.a);
	take(m, m->l.scales);
	take(m, m->sites);
	free(m->a);
	for (int i = 0; i < m->l.n_parts; i++) {
		take(m, m->l.parts[i].b);
		free(m->b[i]);
	}
}

/* ---- what is right ---- */

/* y, which was `was`, of a row. t is off by gamma(n_in) of the sum of magnitudes (with scales: by the product, and
 * their products with A as floats, which this test has; gamma(n_in + 3)), and each of its rank terms by as much; the
 * sum over the rank by gamma(rank) of its magnitudes; then a product and a sum. */
static void check_row(const struct kn_ops *o, const struct made *m, int part, const float *x, const float *was,
		      const float *y)
{
	const struct kn_lora_part *p = &m->l.parts[part];
	double t[KN_LORA_RANK], size[KN_LORA_RANK];
	int first = 0;
	for (int k = 0; k < part; k++)
		first += m->l.parts[k].rank;
	for (int j = 0; j < p->rank; j++) {
		t[j] = size[j] = 0;
		for (int k = 0; k < m->l.n_in; k++) {
			double term = (double)m->a[(first + j) * m->l.n_in + k] * (double)x[k];
			t[j] += term;
			size[j] += fabs(term);
		}
	}
	for (int i = 0; i < p->n_out; i++) {
		double sum = 0, error = 0, all = 0, scale = (double)p->scale;
		for (int j = 0; j < p->rank; j++) {
			double b = (double)m->b[part][i * p->rank + j];
			sum += b * t[j];
			all += fabs(b * t[j]);
			error += fabs(b) * size[j] * gamma_of(m->l.n_in + (m->l.scales != NULL ? 3 : 1));
		}
		double want = (double)was[i] + scale * sum;
		error = scale * (error + (all + error) * gamma_of(p->rank + 1));
		error += 2 * U * (fabs(want) + fabs((double)was[i]) + scale * fabs(sum) + error);
		expect_near("lora", o, (double)y[i], want, 1.01 * error);
	}
}

/* ---- steps ---- */

struct kit {
	const struct kn_ops *o;
	struct kn_backend *b;
	int n_parts, n_in;
	const int *n_outs;
	float *x, *t, *y[KN_LORA_PARTS];
};

static struct kn_lora_rows rows_of(struct kn_lora_group *groups, int n_groups, const int32_t *rows, int n_in)
{
	struct kn_lora_rows r = {
	    .groups = groups, .n_groups = n_groups, .rows = rows, .t_width = MOST_RANK, .n_in = n_in};
	for (int i = 0; i < n_groups; i++) {
		r.n_rows += groups[i].n;
		r.rank = groups[i].lora->rank > r.rank ? groups[i].lora->rank : r.rank;
	}
	return r;
}

/* In a step of so many rows, of which those past ROWS have no memory. */
static void both(struct kit *k, int n_rows, struct kn_lora_group *groups, int n_groups, const int32_t *rows)
{
	struct kn_lora_rows r = rows_of(groups, n_groups, rows, k->n_in);
	struct kn_lora_out outs[KN_LORA_PARTS] = {{0}};
	struct kn_step s = {.n_rows = n_rows, .adapters = &r};
	for (int i = 0; i < k->n_parts; i++)
		outs[i] = (struct kn_lora_out){k->y[i], k->n_outs[i], k->n_outs[i]};
	assert_int_equal(k->o->step_begin(k->b, &s), 0);
	assert_int_equal(k->o->lora_shrink(k->b, &r, k->x, k->t), 0);
	assert_int_equal(k->o->lora_expand(k->b, &r, k->t, outs), 0);
	assert_int_equal(k->o->step_end(k->b), 0);
}

/* Rows of three adapters and some of none, in one step; then each row alone, then on three threads. */
static void lora_case(const struct kn_ops *o, int type, int n_in, const int *n_outs, int ranks[ADAPTERS][KN_LORA_PARTS],
		      int n_parts)
{
	static const int32_t rows[] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 22, 0, 14, 1, 20};
	struct kn_lora_group groups[ADAPTERS] = {{.first = 0, .n = 10}, {.first = 10, .n = 1}, {.first = 11, .n = 3}};
	struct made made[ADAPTERS];
	struct kit k = {.o = o, .n_parts = n_parts, .n_in = n_in, .n_outs = n_outs};
	float *was[KN_LORA_PARTS], *all[KN_LORA_PARTS];
	k.b = open_with(o, &(struct kn_config){.n_threads = 1, .max_rows = MANY_ROWS, .max_width = 4096});
	k.x = random_floats(o, k.b, (size_t)(ROWS * n_in));
	k.t = guarded(o, k.b, (size_t)(N(rows) * MOST_RANK));
	for (int i = 0; i < n_parts; i++) {
		size_t n = (size_t)(ROWS * n_outs[i]);
		k.y[i] = random_floats(o, k.b, n);
		was[i] = malloc(n * sizeof(float));
		all[i] = malloc(n * sizeof(float));
		memcpy(was[i], k.y[i], n * sizeof(float));
	}
	for (int i = 0; i < ADAPTERS; i++) {
		made[i] = make(o, k.b, type, n_in, n_outs, ranks[i], n_parts);
		groups[i].lora = &made[i].l;
		groups[i].sites = made[i].sites;
	}
	both(&k, ROWS, groups, ADAPTERS, rows);
	for (int p = 0; p < n_parts; p++) {
		int n = n_outs[p];
		bool has[ROWS] = {false};
		check_guards(k.y[p], (size_t)(ROWS * n));
		for (int g = 0; g < ADAPTERS; g++)
			for (int i = groups[g].first; i < groups[g].first + groups[g].n; i++) {
				has[rows[i]] = made[g].l.parts[p].rank > 0;
				check_row(o, &made[g], p, k.x + rows[i] * n_in, was[p] + rows[i] * n,
					  k.y[p] + rows[i] * n);
			}
		for (int r = 0; r < ROWS; r++)
			if (!has[r])
				assert_memory_equal(k.y[p] + r * n, was[p] + r * n, (size_t)n * sizeof(float));
		memcpy(all[p], k.y[p], (size_t)(ROWS * n) * sizeof(float));
		memcpy(k.y[p], was[p], (size_t)(ROWS * n) * sizeof(float));
	}
	for (int g = 0; g < ADAPTERS; g++)
		for (int i = groups[g].first; i < groups[g].first + groups[g].n; i++) {
			struct kn_lora_group one = {.lora = &made[g].l, .sites = made[g].sites, .n = 1};
			both(&k, i % 2 == 0 ? (int)ROWS : (int)MANY_ROWS, &one, 1, &rows[i]);
		}
	for (int p = 0; p < n_parts; p++) {
		assert_memory_equal(k.y[p], all[p], (size_t)(ROWS * n_outs[p]) * sizeof(float));
		memcpy(k.y[p], was[p], (size_t)(ROWS * n_outs[p]) * sizeof(float));
	}
	struct kn_backend *single = k.b;
	k.b = open_with(o, &(struct kn_config){.n_threads = 3, .max_rows = MANY_ROWS, .max_width = 4096});
	both(&k, MANY_ROWS, groups, ADAPTERS, rows);
	for (int p = 0; p < n_parts; p++) {
		assert_memory_equal(k.y[p], all[p], (size_t)(ROWS * n_outs[p]) * sizeof(float));
		drop(o, single, k.y[p]);
		free(was[p]);
		free(all[p]);
	}
	check_guards(k.t, (size_t)(N(rows) * MOST_RANK));
	drop(o, single, k.x);
	drop(o, single, k.t);
	for (int i = 0; i < ADAPTERS; i++)
		drop_made(&made[i]);
	o->close(k.b);
	o->close(single);
}

/* Rows of a table: exactly what it has, times the rank's scale; rows of no group, and of an adapter without a table,
 * are not written. */
static void lookup_case(const struct kn_ops *o, int type)
{
	enum { VOCAB = 19, RANK = 11 };
	static const int32_t rows[] = {3, 1, 6, 0}, tokens[] = {4, 18, 0, 7, 2, 5, 18};
	const int n_outs[KN_LORA_PARTS] = {8}, ranks[KN_LORA_PARTS] = {RANK};
	struct kn_backend *b = open_with(o, &(struct kn_config){.n_threads = 1, .max_rows = ROWS, .max_width = 64});
	struct made made = make(o, b, type, VOCAB, n_outs, ranks, 1);
	float table[VOCAB * RANK], *t = guarded(o, b, N(rows) * MOST_RANK);
	const struct kn_lora none = {.type = -1, .n_parts = 1};
	struct kn_lora_group groups[] = {{.lora = &made.l, .n = 3}, {.lora = &none, .first = 3, .n = 1}};
	struct kn_lora_rows r = rows_of(groups, 2, rows, VOCAB);
	struct kn_step s = {.n_rows = N(tokens), .row_token = tokens, .adapters = &r};
	for (int i = 0; i < VOCAB * RANK; i++)
		if (type == KN_LORA_I8)
			table[i] = ((const int8_t *)made.l.a)[i];
		else
			kn_dequantize(type, (const uint8_t *)made.l.a + (size_t)i * kn_lora_bytes(type), 1, table + i);
	for (int i = 0; i < N(rows) * MOST_RANK; i++)
		t[i] = 7;
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->lora_lookup(b, &r, t), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = 0; i < N(rows); i++)
		for (int j = 0; j < MOST_RANK; j++) {
			float want = table[tokens[rows[i]] * RANK + (j < RANK ? j : 0)];
			want *= made.l.scales != NULL && j < RANK ? made.l.scales[j] : 1;
			assert_true(t[i * MOST_RANK + j] == (i < 3 && j < RANK ? want : 7));
		}
	check_guards(t, N(rows) * MOST_RANK);
	drop(o, b, t);
	drop_made(&made);
	o->close(b);
}

static void test_lookup(void **arg)
{
	(void)arg;
	static const int types[] = {KN_F32, KN_F16, KN_BF16, KN_LORA_I8};
	int n_done = 0;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++)
		for (int i = 0; i < N(types) && (*o)->lora_lookup != NULL; i++, n_done++)
			lookup_case(*o, types[i]);
	assert_true(n_done >= N(types)); /* the reference at least */
}

static void test_all(void **arg)
{
	(void)arg;
	static const int types[] = {KN_F32, KN_F16, KN_BF16, KN_LORA_I8};
	int n_done = 0;
	for (const struct kn_ops *const *o = all_tables(); *o != NULL; o++) {
		assert_int_equal((*o)->lora_shrink == NULL, (*o)->lora_expand == NULL);
		if ((*o)->lora_shrink == NULL)
			continue;
		n_done++;
		for (int i = 0; i < N(types); i++) {
			int joined[ADAPTERS][KN_LORA_PARTS] = {{8, 3, 16}, {1, 0, 5}, {0, 2, 0}};
			int one[ADAPTERS][KN_LORA_PARTS] = {{16}, {KN_LORA_RANK}, {1}};
			lora_case(*o, types[i], 64, (const int[]){96, 48, 37}, joined, 3);
			lora_case(*o, types[i], 37, (const int[]){5}, one, 1);
			lora_case(*o, types[i], 515, (const int[]){208, 129}, joined, 2);
		}
		/* Wide enough to be divided among threads. */
		int wide[ADAPTERS][KN_LORA_PARTS] = {{16, 16, 16}, {16, 16, 16}, {64, 8, 4}};
		lora_case(*o, KN_BF16, 2048, (const int[]){2048, 512, 512}, wide, 3);
	}
	assert_true(n_done >= 1); /* the reference at least */
}

/* ---- a product that adds them itself ---- */

enum { FEW = 7, PAST = 20, JOINED = 3, WIDTH = 96 + 48 + 48, DEEP = 288 };

/* A step of n_rows: a product, what adapters add to its parts, and the gate of its outputs, if wanted. */
static void product_step(const struct kn_ops *o, struct kn_backend *b, const struct kn_weight *w, int n_rows,
			 const struct kn_lora_rows *rows, const int *n_outs, const float *x, float *t, float *y,
			 float *gated)
{
	struct kn_lora_out outs[KN_LORA_PARTS] = {{0}};
	struct kn_step s = {.n_rows = n_rows, .adapters = rows};
	float *at = y;
	for (int i = 0; i < KN_LORA_PARTS; at += n_outs[i++])
		outs[i] = (struct kn_lora_out){at, w->n_out, n_outs[i]};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, w, x, n_rows, y), 0);
	if (rows != NULL) {
		assert_int_equal(o->lora_shrink(b, rows, x, t), 0);
		assert_int_equal(o->lora_expand(b, rows, t, outs), 0);
	}
	if (gated != NULL)
		assert_int_equal(o->gate_mul(b, y, n_rows, w->n_out / 2, false, gated), 0);
	assert_int_equal(o->step_end(b), 0);
}

/* Rows 0 to 6, of which one has no adapter: in a step of their own, where the product adds, and beside others, where it
 * can't. Both with the gate that follows, which a product may make too. */
static void beside_case(const struct kn_ops *o, int type, int weights, const int *n_outs, int w_outs)
{
	static const int32_t order[] = {5, 0, 2, 6, 1, 4};
	int ranks[ADAPTERS][KN_LORA_PARTS] = {{8, 3, 16}, {1, 0, 5}, {0, 20, 0}};
	struct kn_lora_group groups[ADAPTERS] = {{.first = 0, .n = 2}, {.first = 2, .n = 1}, {.first = 3, .n = 3}};
	struct kn_config cfg = {.max_rows = PAST, .max_width = 1024};
	struct kn_backend *b = open_with(o, &cfg);
	struct made made[ADAPTERS];
	struct kn_weight w;
	struct sl_err err = {0};
	size_t n = (size_t)(PAST * w_outs);
	float *x = random_floats(o, b, (size_t)(PAST * DEEP)), *t = guarded(o, b, (size_t)(PAST * MOST_RANK));
	float *plain = guarded(o, b, n), *few = guarded(o, b, n), *many = guarded(o, b, n);
	float *gate_few = guarded(o, b, n / 2), *gate_many = guarded(o, b, n / 2);
	struct matrix m = make_matrix(weights, w_outs, DEEP);
	assert_int_equal(o->weight_load(b, m.bytes, weights, w_outs, DEEP, &w, &err), 0);
	for (int i = 0; i < ADAPTERS; i++) {
		made[i] = make(o, b, type, DEEP, n_outs, ranks[i], JOINED);
		groups[i].lora = &made[i].l;
		groups[i].sites = made[i].sites;
	}
	const struct kn_lora_rows rows = rows_of(groups, ADAPTERS, order, DEEP);
	product_step(o, b, &w, FEW, NULL, n_outs, x, t, plain, NULL);
	product_step(o, b, &w, PAST, &rows, n_outs, x, t, many, gate_many);
	for (int with_gate = 0; with_gate < 2; with_gate++) {
		memset(few, 0, n * sizeof *few);
		product_step(o, b, &w, FEW, &rows, n_outs, x, t, few, with_gate ? gate_few : NULL);
		assert_memory_equal(few, many, (size_t)(FEW * w_outs) * sizeof *few);
	}
	assert_memory_equal(gate_few, gate_many, (size_t)(FEW * w_outs / 2) * sizeof *gate_few);
	assert_memory_equal(few + 3 * w_outs, plain + 3 * w_outs, (size_t)w_outs * sizeof *few); /* it has none */
	for (int g = 0; g < ADAPTERS; g++)
		for (int i = groups[g].first; i < groups[g].first + groups[g].n; i++)
			for (int p = 0, at = order[i] * w_outs; p < JOINED; at += n_outs[p++])
				check_row(o, &made[g], p, x + order[i] * DEEP, plain + at, few + at);
	check_guards(few, n);
	check_guards(t, (size_t)(PAST * MOST_RANK));
	for (int i = 0; i < ADAPTERS; i++)
		drop_made(&made[i]);
	o->weight_free(b, &w);
	drop_matrix(&m);
	float *all[] = {x, t, plain, few, many, gate_few, gate_many};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	o->close(b);
}

static void test_beside(void **arg)
{
	(void)arg;
	static const int types[] = {KN_F32, KN_F16, KN_BF16, KN_LORA_I8},
			 weights[] = {KN_BF16, KN_Q8_0, KN_F32, KN_F16};
	static const int tiles[] = {96, 48, 48}, apart[] = {96, 50, 46};
	const struct kn_ops *o = open_cuda();
	for (int i = 0; i < N(types); i++) {
		beside_case(o, types[i], weights[i], tiles, WIDTH);
		beside_case(o, types[i], weights[(i + 1) % N(weights)], apart, WIDTH);
	}
}

/* What an adapter reads may be what the product just before it makes, which then stays where it is. */
static void test_after(void **arg)
{
	(void)arg;
	static const int32_t order[] = {2, 0};
	static const int outs[KN_LORA_PARTS] = {32}, ranks[KN_LORA_PARTS] = {6};
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = open_with(o, &(struct kn_config){.max_rows = FEW, .max_width = 1024});
	struct matrix m = make_matrix(KN_BF16, WIDTH, DEEP);
	struct kn_weight w;
	struct sl_err err = {0};
	assert_int_equal(o->weight_load(b, m.bytes, KN_BF16, WIDTH, DEEP, &w, &err), 0);
	struct made made = make(o, b, KN_BF16, WIDTH, outs, ranks, 1);
	struct kn_lora_group group = {.lora = &made.l, .sites = made.sites, .n = N(order)};
	const struct kn_lora_rows rows = rows_of(&group, 1, order, WIDTH);
	float *x = random_floats(o, b, (size_t)(FEW * DEEP)), *t = guarded(o, b, (size_t)(FEW * MOST_RANK));
	float *y = guarded(o, b, (size_t)(FEW * WIDTH)), *z = random_floats(o, b, (size_t)(FEW * 32));
	float *was = malloc((size_t)(FEW * 32) * sizeof *was);
	memcpy(was, z, (size_t)(FEW * 32) * sizeof *was);
	const struct kn_lora_out to[KN_LORA_PARTS] = {{z, 32, 32}};
	const struct kn_step s = {.n_rows = FEW, .adapters = &rows};
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w, x, FEW, y), 0);
	assert_int_equal(o->lora_shrink(b, &rows, y, t), 0);
	assert_int_equal(o->lora_expand(b, &rows, t, to), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = 0; i < N(order); i++)
		check_row(o, &made, 0, y + order[i] * WIDTH, was + order[i] * 32, z + order[i] * 32);
	assert_memory_equal(z + 32, was + 32, 32 * sizeof *z); /* it has none */
	float *all[] = {x, t, y, z};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	free(was);
	drop_made(&made);
	o->weight_free(b, &w);
	drop_matrix(&m);
	o->close(b);
}

/* Rows that pad a step have the adapter of the row that they are copies of: they write to its pages. */
static void test_padded(void **arg)
{
	(void)arg;
	enum { REAL = 5, ALL = 8 };
	static const int32_t ids[REAL] = {0, 1, 2, 3, 4}, pos[REAL], table[REAL], order[] = {2, REAL - 1};
	static const int outs[KN_LORA_PARTS] = {WIDTH}, ranks[KN_LORA_PARTS] = {6};
	const struct kn_ops *o = open_cuda();
	struct kn_backend *b = open_with(o, &(struct kn_config){.max_rows = ALL, .max_width = 1024, .pad_rows = true});
	struct matrix m = make_matrix(KN_BF16, WIDTH, DEEP);
	struct kn_weight w;
	struct sl_err err = {0};
	assert_int_equal(o->weight_load(b, m.bytes, KN_BF16, WIDTH, DEEP, &w, &err), 0);
	struct made made = make(o, b, KN_BF16, DEEP, outs, ranks, 1);
	struct kn_lora_group group = {.lora = &made.l, .sites = made.sites, .n = N(order)};
	const struct kn_lora_rows rows = rows_of(&group, 1, order, DEEP);
	float *x = random_floats(o, b, ALL * DEEP), *t = guarded(o, b, (size_t)(ALL * MOST_RANK));
	float *y = guarded(o, b, ALL * WIDTH);
	const struct kn_lora_out to[KN_LORA_PARTS] = {{y, WIDTH, WIDTH}};
	const struct kn_step s = {.n_rows = REAL,
				  .row_token = ids,
				  .row_pos = pos,
				  .row_seq = ids,
				  .n_seqs = REAL,
				  .page_table = table,
				  .max_pages = 1,
				  .adapters = &rows};
	for (int i = REAL; i < ALL; i++)
		memcpy(x + i * DEEP, x + (REAL - 1) * DEEP, DEEP * sizeof *x);
	assert_int_equal(o->step_begin(b, &s), 0);
	assert_int_equal(o->matmul(b, &w, x, REAL, y), 0);
	assert_int_equal(o->lora_shrink(b, &rows, x, t), 0);
	assert_int_equal(o->lora_expand(b, &rows, t, to), 0);
	assert_int_equal(o->step_end(b), 0);
	for (int i = REAL; i < ALL; i++)
		assert_memory_equal(y + i * WIDTH, y + (REAL - 1) * WIDTH, WIDTH * sizeof *y);
	float *all[] = {x, t, y};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	drop_made(&made);
	o->weight_free(b, &w);
	drop_matrix(&m);
	o->close(b);
}

/* ---- bytes ---- */

/* Bytes of A that shrink reads for n rows of one adapter, in a step of n_rows. */
static uint64_t bytes_of_a(const struct kn_ops *o, int type, int n_in, int rank, int n, int n_rows)
{
	void *count = cuda_function("sluice_emulation_count"), *counted = cuda_function("sluice_emulation_counted");
	int (*set)(int);
	void (*get)(const char *, struct emu_counts *);
	memcpy(&set, &count, sizeof set);
	memcpy(&get, &counted, sizeof get);
	struct kn_backend *b = open_with(o, &(struct kn_config){.max_rows = n_rows, .max_width = 1024});
	const int n_outs[KN_LORA_PARTS] = {32}, ranks[KN_LORA_PARTS] = {rank};
	struct made made = make(o, b, type, n_in, n_outs, ranks, 1);
	struct kn_lora_group group = {.lora = &made.l, .sites = made.sites, .n = n};
	struct emu_counts c = {0};
	int32_t order[MANY_ROWS];
	for (int i = 0; i < n; i++)
		order[i] = i;
	struct kit k = {.o = o, .b = b, .n_parts = 1, .n_in = n_in, .n_outs = n_outs};
	k.x = random_floats(o, b, (size_t)(n * n_in));
	k.t = guarded(o, b, (size_t)(n * MOST_RANK));
	k.y[0] = random_floats(o, b, (size_t)(n * n_outs[0]));
	bool counts = set(1) != 0;
	both(&k, n_rows, &group, 1, order);
	get("shrink", &c);
	(void)set(0);
	float *all[] = {k.x, k.t, k.y[0]};
	for (int i = 0; i < N(all); i++)
		drop(o, b, all[i]);
	drop_made(&made);
	o->close(b);
	if (!counts)
		skip();
	return c.again_bytes;
}

/* Once for eight rows of an adapter. Ranks are read by fours, by eights in steps of more than 256: of a group that is
 * not whole, the last one again. */
static void test_bytes(void **arg)
{
	(void)arg;
	const struct kn_ops *o = open_cuda();
	if (on_device() || on_standin())
		skip();
	assert_int_equal(bytes_of_a(o, KN_BF16, 512, 4, 1, 20), 4 * 512 * 2);
	assert_int_equal(bytes_of_a(o, KN_BF16, 512, 5, 8, 20), 8 * 512 * 2);
	assert_int_equal(bytes_of_a(o, KN_BF16, 512, 8, 17, 20), 3 * 8 * 512 * 2);
	assert_int_equal(bytes_of_a(o, KN_F32, 512, 8, 8, MANY_ROWS), 8 * 512 * 4);
	assert_int_equal(bytes_of_a(o, KN_F32, 512, 9, 16, MANY_ROWS), 2 * 16 * 512 * 4);
	assert_int_equal(bytes_of_a(o, KN_F32, 512, 9, 40, MANY_ROWS), 5 * 16 * 512 * 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lookup), cmocka_unit_test(test_all),    cmocka_unit_test(test_beside),
	    cmocka_unit_test(test_after),  cmocka_unit_test(test_padded), cmocka_unit_test(test_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
