/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts. Rows are chosen and ordered on the device (route.cu), converted for products in the order of
 * their experts, and multiplied in groups of one expert each by the kernels of other products (matvec.cu, mma.cu), so
 * that a row has the bits that it has alone. Each expert's weights are read once a step, or once for each group's rows
 * if one group does not take them all; the others' are not read.
 *
 * A mixture's matrices are a table in device memory, made once (kn_cuda_experts_ready).
 *
 * Of the caller's scratch memory, per slot (experts.h): `in`, a row as F32 matrices take it, `out`, `gate` and `up`.
 *
 * VERSIONS (OLMoE's shape, 64 experts of 1024 of which a row uses 8, 2048 wide, bfloat16, on an H100; a step, with the
 * bytes that it touches a second)
 *  2  products of few rows open their gates at their end (matvec.cu), few slots are ordered where they are chosen
 *     (route.cu), groups of 64 rows go through warp groups: 15 and a half launches a layer instead of 17 and a half.
 *     Products of F32, which routers are, have eight loads a lane on their way instead of one. 1.92 ms for one row, 4.77
 *     and 2.15 TB/s for 8, 9.5 and 2.34 for 64, a prompt of 2048 29.2 ms instead of 40.4.
 *  1  seven kernels a layer beside the router: 1.83 ms and 1.36 TB/s for one row, 4.95 ms and 2.08 TB/s for 8, 9.9 ms
 * and
 *     2.25 TB/s for 64; a prompt of 2048 40.4 ms, 116 TFLOP/s. gpt-oss 20B, MXFP4: 3.1, 7.8 and 16.6 ms; 110 ms, 121
 *     TFLOP/s.
 */
#include "kernels/cuda/experts.h"

#include <string.h>

enum {
	THREADS = KN_OPEN_THREADS, /* of a block that has a row */
	SUM_THREADS = 128,
	SOME_ROWS = 32, /* of a group, */
	MANY_ROWS = 64, /* at most */
	UP = 1,
	DOWN = 2, /* kinds of matrices; 0: gates */
	MOST_TYPES = 4,
};

/* A kind's matrices by number, and their types. */
struct kn_kind {
	struct kn_matrix *at; /* of the device; NULL: none */
	int n_types, types[MOST_TYPES];
};

/* What is known of a struct kn_experts. */
struct kn_mixture {
	const struct kn_experts *of;
	const void *up, *down; /* of the first expert */
	uint64_t freed;        /* kn_backend.freed then: weights that were freed may be others now */
	struct kn_kind kinds[3];
	enum kn_format opened;   /* that the downs take */
	int counts_at, n_counts; /* in kn_backend.counts */
};

/* ---- rows in ---- */

struct spread_call {
	struct kn_order order;
	const float *x;
	float *to; /* KN_AS_F32 */
	struct kn_into into;
	int n_used, width, weighs, none;
};

/* Block s has ordered slot s: its row of x, times its weight. */
template <enum kn_format FORMAT> __global__ void spread(struct spread_call c)
{
	kn_begin();
	int s = (int)blockIdx.x, t = (int)threadIdx.x;
	if (s >= c.order.totals[1])
		return; /* the whole block */
	int slot = c.order.slot[s], row = c.order.unit_row[s], exponent = 0;
	const float *x = c.x + (int64_t)(slot / c.n_used) * c.width;
	float factor = c.weighs ? c.order.weight[slot] : 1.0f, v[4];
	if constexpr (FORMAT == KN_AS_F16) {
		float most = 0;
		for (int k = 4 * t; k < c.width; k += 4 * THREADS) {
			kn_load4(x, k, c.width, true, v);
			UNROLL_FOR(int i = 0; i < 4; i++)
				most = fmaxf(most, fabsf(v[i] * factor));
		}
		exponent = kn_scaling_exponent(kn_block_largest(most, THREADS));
	}
	if constexpr (FORMAT == KN_AS_F32) {
		for (int k = t; k < c.width; k += THREADS)
			c.to[(int64_t)s * c.width + k] = x[k] * factor;
	} else {
		if (t == 0)
			c.into.inverse[row] = kn_power(-exponent);
		for (int k = 4 * t; k < c.into.n_slabs * KN_SLAB; k += 4 * THREADS) {
			kn_load4(x, k, c.width, true, v);
			UNROLL_FOR(int i = 0; i < 4; i++)
				v[i] *= factor;
			kn_put4<FORMAT>(c.into, row, k, v, kn_power(exponent));
		}
	}
}

/* ---- gates ---- */

/* Block s has ordered slot s. */
template <enum kn_format FORMAT> __global__ void open_gates(struct kn_gate_call c)
{
	kn_begin();
	if ((int)blockIdx.x < c.order.totals[1])
		kn_open_row<FORMAT, false>(c, (int)blockIdx.x, (int)threadIdx.x);
}

/* ---- rows out ---- */

struct sum_call {
	struct kn_order order;
	struct kn_real_rows rows;
	const float *out, *bias;
	float *y;
	int n_used, width, weighs_input, none;
};

/* y[r] = Σ weight · out, in the order of choice. Block (r, part) has four numbers a thread. */
__global__ void add_up(struct sum_call c)
{
	kn_begin();
	int i = 4 * ((int)blockIdx.y * SUM_THREADS + (int)threadIdx.x), row = (int)blockIdx.x, real = kn_real(c.rows);
	if (i >= c.width)
		return;
	int from = (row < real ? row : real - 1) * c.n_used;
	float sum[4], v[4], bias[4];
	for (int k = 0; k < c.n_used; k++) {
		int slot = from + k;
		float weight = c.weighs_input ? 1.0f : c.order.weight[slot];
		kn_load4(c.out + (int64_t)c.order.place[slot] * c.width, i, c.width, true, v);
		if (c.bias != NULL) {
			kn_load4(c.bias + (int64_t)c.order.chosen[slot] * c.width, i, c.width, true, bias);
			UNROLL_FOR(int j = 0; j < 4; j++)
				v[j] += bias[j];
		}
		UNROLL_FOR(int j = 0; j < 4; j++)
			sum[j] = k == 0 ? v[j] * weight : sum[j] + v[j] * weight;
	}
	for (int j = 0; j < 4 && i + j < c.width; j++)
		c.y[(int64_t)row * c.width + i + j] = sum[j];
}

/* ---- tables ---- */

static const struct kn_weight *of_kind(const struct kn_experts *e, int kind)
{
	return kind == DOWN ? e->down : kind == UP ? e->up : e->act == KN_NO_GATE ? NULL : e->gate;
}

static bool is_packed(int type) { return kn_cuda_record_bytes(type) > 0; }

static enum kn_format format_of(int type)
{
	return type == KN_F32 ? KN_AS_F32 : type == KN_BF16 ? KN_AS_BF16 : KN_AS_F16;
}

/* Adds a type that the kind has. 0 or SL_EUNSUPPORTED. */
static int note_type(struct kn_kind *k, int type)
{
	for (int i = 0; i < k->n_types; i++)
		if (k->types[i] == type)
			return 0;
	if (k->n_types == MOST_TYPES || (type != KN_F32 && !is_packed(type)))
		return SL_EUNSUPPORTED;
	k->types[k->n_types++] = type;
	return 0;
}

/* Brings the kind's table to the device. */
static int make_kind(struct kn_backend *b, const struct kn_weight *w, int n, struct kn_kind *out)
{
	void *at;
	size_t bytes = (size_t)n * sizeof(struct kn_matrix);
	struct kn_matrix *here = (struct kn_matrix *)b->host->zalloc(bytes);
	int rc = here == NULL ? SL_ENOMEM : 0;
	for (int i = 0; i < n && rc == 0; i++) {
		here[i] = {(const uint8_t *)w[i].data, w[i].type == KN_CUDA_FP8 ? kn_cuda_fp8_scales(&w[i]) : NULL,
			   w[i].type, 0};
		rc = note_type(out, w[i].type);
	}
	if (rc == 0)
		rc = dev_alloc(b->dev, bytes, &at);
	if (rc == 0) {
		out->at = (struct kn_matrix *)at;
		rc = dev_copy_in(b->dev, at, here, bytes);
	}
	b->host->free(here);
	return rc;
}

static void forget(struct kn_backend *b, struct kn_mixture *m)
{
	for (int i = 0; i < 3; i++)
		if (m->kinds[i].at != NULL)
			dev_free(b->dev, m->kinds[i].at);
	memset((void *)m->kinds, 0, sizeof m->kinds);
	m->of = NULL;
}

void kn_cuda_experts_end(struct kn_backend *b)
{
	for (int i = 0; i < b->n_mixtures; i++)
		forget(b, &b->mixtures[i]);
	b->host->free(b->mixtures);
	b->mixtures = NULL;
	b->n_mixtures = b->max_mixtures = 0;
}

/* One more, empty. NULL: no memory. */
static struct kn_mixture *one_more(struct kn_backend *b)
{
	if (b->n_mixtures == b->max_mixtures) {
		int max = 2 * b->max_mixtures + 16;
		struct kn_mixture *grown = (struct kn_mixture *)b->host->zalloc((size_t)max * sizeof *grown);
		if (grown == NULL)
			return NULL;
		if (b->n_mixtures > 0)
			memcpy((void *)grown, (const void *)b->mixtures, (size_t)b->n_mixtures * sizeof *grown);
		b->host->free(b->mixtures);
		b->mixtures = grown;
		b->max_mixtures = max;
	}
	return &b->mixtures[b->n_mixtures++];
}

static bool is_of(const struct kn_backend *b, const struct kn_mixture *m, const struct kn_experts *e)
{
	return m->of == e && m->freed == b->freed && m->up == e->up[0].data && m->down == e->down[0].data;
}

/* What is known of e; layers come in the same order in each step. Makes it at first. */
static int find(struct kn_backend *b, const struct kn_experts *e, struct kn_mixture **out)
{
	struct kn_mixture *m = NULL;
	for (int i = 0; i < b->n_mixtures; i++) {
		struct kn_mixture *one = &b->mixtures[(b->last_mixture + 1 + i) % b->n_mixtures];
		if (is_of(b, one, e)) {
			b->last_mixture = (int)(one - b->mixtures);
			*out = one;
			return 0;
		}
		if (one->of == e || one->of == NULL)
			m = one;
	}
	if (m == NULL && (m = one_more(b)) == NULL)
		return SL_ENOMEM;
	if (m->of != NULL)
		forget(b, m);
	if (m->n_counts < e->route.n) {
		m->counts_at = b->n_counts;
		m->n_counts = e->route.n;
		b->n_counts += e->route.n;
	}
	*m = {e, e->up[0].data, e->down[0].data, b->freed, {}, format_of(e->down[0].type), m->counts_at, m->n_counts};
	int rc = 0;
	for (int kind = 0; kind < 3 && rc == 0; kind++)
		if (of_kind(e, kind) != NULL)
			rc = make_kind(b, of_kind(e, kind), e->route.n, &m->kinds[kind]);
	for (int i = 0; i < m->kinds[DOWN].n_types && rc == 0; i++) /* a gate is opened in one format */
		rc = format_of(m->kinds[DOWN].types[i]) == m->opened ? 0 : (int)SL_EUNSUPPORTED;
	if (rc != 0)
		forget(b, m);
	*out = m;
	return rc;
}

/* ---- memory ---- */

/* How a step's rows are shared out. */
struct share {
	int n_slots, most_tiles, most_groups, group_rows;
	size_t ints, groups, units, all; /* bytes; units: of inputs, after which those of open gates come */
};

/* Rows of a group: about as many as an expert has, so that its weights are read once, by a kernel for as many. */
static int rows_of_group(int n_slots, int n)
{
	int mean = (n_slots + n - 1) / n;
	return mean <= 4 ? (int)KN_ROWS : mean <= 24 ? (int)SOME_ROWS : (int)MANY_ROWS;
}

/* Bytes of n_in numbers of so many tiles as products take them. */
static size_t unit_bytes(int tiles, int n_in)
{
	size_t slabs = (size_t)kn_cuda_chunks(n_in) * KN_SLABS, each = (size_t)tiles;
	return each * slabs * (KN_PIECE + KN_SUMS) + each * KN_ROWS * sizeof(float);
}

static struct share share_of(const struct kn_experts *e, int n_rows)
{
	struct share s = {};
	int n = e->route.n, width = e->up[0].n_in, n_ff = e->up[0].n_out;
	s.n_slots = n_rows * e->route.n_used;
	s.group_rows = rows_of_group(s.n_slots, n);
	int touched = n < s.n_slots ? n : s.n_slots; /* each may have one tile or group that is not full */
	s.most_tiles = (s.n_slots - touched) / KN_ROWS + touched;
	s.most_groups = (s.n_slots - touched) / s.group_rows + touched;
	s.ints = ((size_t)s.n_slots * 5 + 4 + 63) / 64 * 64 * sizeof(int32_t);
	s.groups = (size_t)s.most_groups * sizeof(struct kn_group);
	s.groups = (s.groups + 255) / 256 * 256;
	s.units = (unit_bytes(s.most_tiles, width) + 255) / 256 * 256;
	s.all = s.ints + s.groups + s.units + unit_bytes(s.most_tiles, n_ff);
	return s;
}

static struct kn_order order_in(const struct kn_backend *b, const struct share &s)
{
	int32_t *at = (int32_t *)b->routed.at;
	size_t n = (size_t)s.n_slots;
	struct kn_order o = {};
	o.totals = at;
	o.chosen = at + 4;
	o.weight = (float *)(o.chosen + n);
	o.place = o.chosen + 2 * n;
	o.slot = o.chosen + 3 * n;
	o.unit_row = o.chosen + 4 * n;
	o.groups = (struct kn_group *)((uint8_t *)b->routed.at + s.ints);
	return o;
}

/* Rows of n_in numbers, from so many bytes on. */
static struct kn_into into_in(const struct kn_backend *b, const struct share &s, int n_in, bool bf16, size_t at)
{
	struct kn_into to = {};
	size_t slabs = (size_t)kn_cuda_chunks(n_in) * KN_SLABS * (size_t)s.most_tiles;
	to.units = (uint8_t *)b->routed.at + s.ints + s.groups + at;
	to.sums = (float *)(to.units + slabs * KN_PIECE);
	to.inverse = (float *)(to.units + slabs * (KN_PIECE + KN_SUMS));
	to.n_slabs = (int)kn_cuda_chunks(n_in) * KN_SLABS;
	to.n_rows = s.n_slots;
	to.n_all = s.most_tiles * KN_ROWS;
	to.bf16 = bf16;
	to.matrices = s.group_rows > KN_ROWS;
	return to;
}

int kn_cuda_experts_ready(struct kn_backend *b, const struct kn_experts *e)
{
	struct kn_mixture *m;
	size_t bytes = share_of(e, b->max_rows).all * 3 / 2; /* with growth */
	b->routed_most = bytes > b->routed_most ? bytes : b->routed_most;
	return find(b, e, &m);
}

/* ---- the operation ---- */

/* Whether some matrix of the kinds takes that format. */
static bool takes(const struct kn_kind *kinds, int n, enum kn_format f)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j < kinds[i].n_types; j++)
			if (format_of(kinds[i].types[j]) == f)
				return true;
	return false;
}

/* What the parts of the operation share. */
struct run {
	struct kn_backend *b;
	const struct kn_experts *e;
	const struct kn_mixture *m;
	struct share share;
	struct kn_order order;
	int width, n_ff;
};

/* The operands of a product of the ordered slots but its weights. */
static struct kn_product product_in(const struct kn_into &x, int n_out, int n_in)
{
	struct kn_product p = {};
	p.x = {x.units, x.sums, x.inverse, x.n_rows, x.n_slabs};
	p.n_out = n_out;
	p.n_chunks = (int)kn_cuda_chunks(n_in);
	return p;
}

static int product_of(const struct run &r, int type, const struct kn_into &x, int n_out, int n_in, const float *rows,
		      const struct kn_grouped &g)
{
	if (type == KN_F32)
		return kn_cuda_f32_grouped(r.b, n_out, n_in, rows, &g);
	const struct kn_product p = product_in(x, n_out, n_in);
	if (g.rows <= KN_ROWS)
		return kn_cuda_matvec_grouped(r.b, type, &p, &g);
	int rc = g.rows == MANY_ROWS ? kn_cuda_wgmma_grouped(r.b, type, &p, &g) : (int)KN_NOT_TAKEN;
	return rc == KN_NOT_TAKEN ? kn_cuda_mma_grouped(r.b, type, &p, &g) : rc;
}

/* Products with n adjacent kinds. */
static struct kn_grouped grouped(const struct run &r, const struct kn_kind *kinds, int n, float *const *y)
{
	struct kn_grouped g = {};
	g.groups = r.order.groups;
	g.n_groups = r.order.totals;
	g.most = r.share.most_groups;
	g.rows = r.share.group_rows;
	g.n_sides = n;
	for (int i = 0; i < n; i++) {
		g.matrices[i] = kinds[i].at;
		g.y[i] = y[i];
	}
	return g;
}

/* The products of the rows in that format, one launch for each type that the kinds have. rows: the same rows, for F32.
 */
static int products(const struct run &r, const struct kn_kind *kinds, int n, enum kn_format f, const struct kn_into &x,
		    int n_out, int n_in, const float *rows, float *const *y)
{
	const struct kn_grouped g = grouped(r, kinds, n, y);
	int rc = 0;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < kinds[i].n_types && rc == 0; j++) {
			int type = kinds[i].types[j];
			bool done = false; /* with the kind before */
			for (int k = 0; i > 0 && k < kinds[0].n_types; k++)
				done = done || kinds[0].types[k] == type;
			if (!done && format_of(type) == f)
				rc = product_of(r, type, x, n_out, n_in, rows, g);
		}
	return rc;
}

static int spread_rows(const struct run &r, enum kn_format f, const float *x, const struct kn_into &into, float *to)
{
	struct spread_call c = {};
	c.order = r.order;
	c.x = x;
	c.to = to;
	c.into = into;
	c.n_used = r.e->route.n_used;
	c.width = r.width;
	c.weighs = r.e->weighs_input;
	auto kernel = f == KN_AS_F32 ? spread<KN_AS_F32> : f == KN_AS_BF16 ? spread<KN_AS_BF16> : spread<KN_AS_F16>;
	return kn_launch(r.b->dev, "spread", kernel, (unsigned)r.share.n_slots, THREADS,
			 THREADS / KN_WARP * sizeof(float), c);
}

static struct kn_gate_call gates_of(const struct run &r, float *gate, const float *up)
{
	const struct kn_experts *e = r.e;
	bool alone = e->act == KN_NO_GATE; /* up is where a gate would be */
	struct kn_gate_call c = {};
	c.order = r.order;
	c.gate = gate;
	c.up = alone ? NULL : up;
	c.gate_bias = alone ? e->up_bias : e->gate_bias;
	c.up_bias = alone ? NULL : e->up_bias;
	c.into = into_in(r.b, r.share, r.n_ff, r.m->opened == KN_AS_BF16, r.share.units);
	c.n_ff = r.n_ff;
	c.act = e->act;
	return c;
}

/* Whether the products of few rows may open their gates: all have one type, so a group's blocks are of one launch. */
static bool opens(const struct run &r, const struct kn_kind *kinds, int n)
{
	bool one = kinds[0].n_types == 1 && kinds[n - 1].n_types == 1 && kinds[0].types[0] == kinds[n - 1].types[0];
	return one && kinds[0].types[0] != KN_F32 && r.m->opened != KN_AS_F32 && r.share.group_rows <= KN_ROWS;
}

/* Gates and ups of all slots. KN_NOT_TAKEN: their gates are not opened. */
static int widen(const struct run &r, const float *x, float *in, float *gate, float *up)
{
	bool alone = r.e->act == KN_NO_GATE;
	const struct kn_kind *kinds = &r.m->kinds[alone ? UP : 0];
	float *const y[KN_SIDES] = {gate, up};
	int rc = 0, n = alone ? 1 : 2;
	for (int i = 0; i < KN_N_FORMATS && rc == 0; i++) {
		enum kn_format f = (enum kn_format)i;
		struct kn_into into = into_in(r.b, r.share, r.width, f == KN_AS_BF16, 0);
		if (!takes(kinds, n, f))
			continue;
		rc = spread_rows(r, f, x, into, in);
		if (rc == 0 && opens(r, kinds, n)) {
			const struct kn_product p = product_in(into, r.n_ff, r.width);
			const struct kn_grouped g = grouped(r, kinds, n, y);
			const struct kn_gate_call c = gates_of(r, gate, up);
			if ((rc = kn_cuda_matvec_opened(r.b, kinds[0].types[0], &p, &g, &c)) != KN_NOT_TAKEN)
				return rc;
			rc = 0;
		}
		if (rc == 0)
			rc = products(r, kinds, n, f, into, r.n_ff, r.width, in, y);
	}
	return rc != 0 ? rc : (int)KN_NOT_TAKEN;
}

static int open_rows(const struct run &r, float *gate, const float *up)
{
	enum kn_format f = r.m->opened;
	auto kernel = f == KN_AS_F32    ? open_gates<KN_AS_F32>
		      : f == KN_AS_BF16 ? open_gates<KN_AS_BF16>
					: open_gates<KN_AS_F16>;
	return kn_launch(r.b->dev, "open_gates", kernel, (unsigned)r.share.n_slots, THREADS,
			 THREADS / KN_WARP * sizeof(float), gates_of(r, gate, up));
}

/* Experts' outputs of all slots, whose gates are open. */
static int narrow(const struct run &r, const float *gate, float *out)
{
	float *const y[KN_SIDES] = {out, NULL};
	const struct kn_into into = into_in(r.b, r.share, r.n_ff, r.m->opened == KN_AS_BF16, r.share.units);
	return products(r, &r.m->kinds[DOWN], 1, r.m->opened, into, r.width, r.n_ff, gate, y);
}

static int add_outputs(const struct run &r, const struct kn_real_rows &rows, const float *out, float *y)
{
	struct sum_call c = {};
	c.order = r.order;
	c.rows = rows;
	c.out = out;
	c.bias = r.e->down_bias;
	c.y = y;
	c.n_used = r.e->route.n_used;
	c.width = r.width;
	c.weighs_input = r.e->weighs_input;
	dim3 grid((unsigned)rows.all, (unsigned)((r.width + 4 * SUM_THREADS - 1) / (4 * SUM_THREADS)));
	return KN_LAUNCH(r.b->dev, add_up, grid, SUM_THREADS, 0, c);
}

int kn_cuda_experts(struct kn_backend *b, const struct kn_experts *e, const float *logits, const float *x, int n_rows,
		    float *work, float *y)
{
	struct run r = {b, e, NULL, share_of(e, kn_cuda_rows(b, n_rows)), {}, e->up[0].n_in, e->up[0].n_out};
	struct kn_real_rows rows = {};
	struct kn_mixture *m;
	uint32_t *counts = NULL;
	int rc = find(b, e, &m);
	if (rc == 0)
		rc = kn_cuda_room(b, &b->routed, r.share.all);
	if (rc == 0 && e->n_rows != NULL)
		rc = kn_cuda_count(b, e->n_rows, e->route.n, m->counts_at, &counts);
	if (rc != 0)
		return rc;
	rows.all = kn_cuda_rows(b, n_rows);
	if (b->step != NULL && n_rows % b->n_real == 0) { /* padded or not: the same launches */
		rows.step = b->real;
		rows.times = n_rows / b->n_real;
	}
	r.m = m;
	r.order = order_in(b, r.share);
	size_t wide = (size_t)r.share.n_slots * (size_t)r.width, n_ff = (size_t)r.share.n_slots * (size_t)r.n_ff;
	float *in = work, *out = in + wide, *gate = out + wide, *up = gate + n_ff;
	if ((rc = kn_cuda_route(b, &e->route, logits, &rows, r.share.group_rows, &r.order, counts)) != 0)
		return rc;
	if ((rc = widen(r, x, in, gate, up)) == KN_NOT_TAKEN)
		rc = open_rows(r, gate, up);
	if (rc == 0)
		rc = narrow(r, gate, out);
	return rc != 0 ? rc : add_outputs(r, rows, out, y);
}
