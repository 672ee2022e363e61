/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on rows and elements. All are bound by memory, and none depends on the other rows: the order of a norm's
 * sum depends on its width alone.
 *
 * VERSIONS
 *  1  one block of 128 threads a row for the norm, one thread a number for the others.
 *  2  16 bytes a thread at a time, everything read once: a norm keeps its row in registers (up to 8192 numbers; what is
 *     beyond is read again from the caches), rows of up to 1024 (a head's) are a warp's, four to a block; the sum of
 *     the residual is part of the norm that follows it. Counted a row of 4096: norm 16 kB in, 16 kB out and the gain
 *     from the caches; with the sum 32 in and 32 out instead of 48 and 32, and one launch instead of two. 8 to 12
 *     instructions for 16 bytes where an SM of an H200 has 110: bound by memory from some 500 rows on, below by the
 *     launch. silu_mul: an exponential and a division for each number, 40 instructions for 32 bytes in and 16 out. Not
 *     measured on a device yet; expected: within 10 % of a copy for 512 rows of 4096.
 *  3  a norm and a gate write their rows as products take them, too: three of a layer's four conversions (the fourth is
 *     attention's output) are no launches any more and read nothing. Counted for a layer of an 8B model (4096 wide,
 *     14336 in the middle, 1024 keys), launches of a decode without parts of attention: before 3 products + convert,
 *     rope, attention, convert + product, norm, convert + 2 products, gate, convert + product, norm: 16 (17 where parts
 *     are combined); with products of several matrices as one and these 10 (11): norm, qkv, rope, attention, convert,
 *     o, norm, gate-up, gate, down; at 1.5 to 2 µs a launch in a graph some 10 µs of a layer whose weights take 110
 *     (bf16). Activations of a row: conversions read 4 bytes of 4096 + 4096 + 14336 numbers, 90 kB, less. Not measured
 *     on a device.
 *  4  after a product of one or two rows no kernel of its own (matvec.cu): 7 launches a layer and 8 with parts of
 *     attention, 234 a step of a decode in bf16, counted in tests/kernels/test_steps.c.
 *  5  a gate in bfloat16 after a product of up to eight rows has none either, nor a rotation or the merging of
 *     attention's parts: 5 launches a layer of one or two rows, 7 of up to eight (the norms).
 *     Measured on an H200, 64 rows: norm and sum of 4096 6.9 us, gate of 14336 13.2 us, where 2.5 us are a launch.
 *  6  what a thread keeps in registers it loads at once: before, each four waited for the one before it, because the
 *     branches for rows that are not of whole 16 bytes stood between the loads. No largest number is looked for where
 *     none is taken (bfloat16), and there a gate's row is shared by several blocks: before, one block of 256 threads
 *     went through 14336 numbers in 14 turns, and through what it had written in 14 more. Other formats have 1024 threads
 *     a row, which keep it.
 */
#include "kernels/cuda/then.h"

enum {
	THREADS = 128,
	WARPS = THREADS / KN_WARP,
	GATE_THREADS = 1024,
	GATE_HELD = 4, /* times 4 numbers per thread stay in registers: rows of up to 16384 */
};

static bool aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* ---- the norm ---- */

__global__ void norm_wide_into(struct row_call c)
{
	kn_begin();
	int row = (int)blockIdx.x, t = (int)threadIdx.x;
	if (row < c.n_rows)
		norm_row<false, true>(c, (int64_t)row * c.width, t, (float *)kn_shared());
	else
		no_row<false>(c.to, row, t, (float *)kn_shared());
}

__global__ void norm_narrow_into(struct row_call c)
{
	kn_begin();
	int t = (int)threadIdx.x,
	    row = (int)blockIdx.x * WARPS + t / KN_WARP; /* each whole warp has one, and there are all */
	if (row < c.n_rows)
		norm_row<true, true>(c, (int64_t)row * c.width, t % KN_WARP, NULL);
	else
		no_row<true>(c.to, row, t % KN_WARP, NULL);
}

__global__ void norm_wide(struct row_call c)
{
	kn_begin();
	norm_row<false>(c, (int64_t)blockIdx.x * c.width, (int)threadIdx.x, (float *)kn_shared());
}

__global__ void norm_narrow(struct row_call c)
{
	kn_begin();
	int t = (int)threadIdx.x, row = (int)blockIdx.x * WARPS + t / KN_WARP;
	if (row < c.n_rows) /* the whole warp */
		norm_row<true>(c, (int64_t)row * c.width, t % KN_WARP, NULL);
}

/* One warp per head: each row's query and key heads, which are contiguous and have their own gains. */
__global__ void norm_heads(struct row_call c, const float *k_gain, int n_heads, int n_all, int row_floats)
{
	kn_begin();
	int t = (int)threadIdx.x, i = (int)blockIdx.x * WARPS + t / KN_WARP, head = i % n_all;
	if (head >= n_heads)
		c.gain = k_gain;
	if (i < c.n_rows) /* the whole warp */
		norm_row<true>(c, (int64_t)(i / n_all) * row_floats + (int64_t)head * c.width, t % KN_WARP, NULL);
}

int kn_cuda_qkv_norm(struct kn_backend *b, float *qkv, int n_heads, int n_kv_heads, int head_dim, const float *q_gain,
		     const float *k_gain, float eps, int n_rows)
{
	struct row_call c = {};
	int all = n_heads + n_kv_heads;
	n_rows = kn_cuda_rows(b, n_rows);
	if (head_dim > NARROW)
		return SL_EUNSUPPORTED; /* wider than attention takes */
	c.x = c.y = qkv;
	c.gain = q_gain;
	c.eps = eps;
	c.n_rows = n_rows * all;
	c.width = head_dim;
	c.wide = head_dim % 4 == 0 && aligned(qkv) && aligned(q_gain) && aligned(k_gain);
	return KN_LAUNCH(b->dev, norm_heads, (unsigned)((c.n_rows + WARPS - 1) / WARPS), THREADS, 0, c, k_gain, n_heads,
			 all, (all + n_kv_heads) * head_dim);
}

/* In place of a kernel of its own, the product that made `from` does it; KN_NOT_TAKEN: none did just before. */
static int follow(struct kn_backend *b, enum kn_then_what what, const struct row_call &c, const float *from,
		  int from_width)
{
	struct kn_then then = {}; /* padding must be zero in a command */
	then.what = what;
	then.c = c;
	return kn_cuda_then(b, from, from_width, &then);
}

static int launch_norm(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
		       int width, float *y)
{
	struct row_call c = {}; /* padding must be zero in a command */
	n_rows = kn_cuda_rows(b, n_rows);
	c.x = x;
	c.add = add;
	c.gain = gain;
	c.y = y;
	c.eps = eps;
	c.n_rows = n_rows;
	c.width = width;
	c.wide = width % 4 == 0 && aligned(x) && (add == NULL || aligned(add)) && aligned(gain) && aligned(y);
	/* An in-place norm is of heads or of a residual, which is not an input of products. */
	if (n_rows > 0 && (add != NULL || x != y) && kn_cuda_into(b, n_rows, width, &c.to) != 0)
		return SL_EIO;
	if (c.to.units != NULL) {
		unsigned all = (unsigned)c.to.n_all; /* a multiple of 8 */
		int rc = add != NULL ? follow(b, KN_THEN_NORM, c, add, width) : (int)KN_NOT_TAKEN;
		if (rc == KN_NOT_TAKEN)
			rc = width <= NARROW
				 ? KN_LAUNCH(b->dev, norm_narrow_into, all / WARPS, THREADS, 0, c)
				 : KN_LAUNCH(b->dev, norm_wide_into, all, NORM_THREADS, NORM_WARPS * sizeof(float), c);
		kn_cuda_converted(b, y, width, &c.to);
		return rc;
	}
	if (width <= NARROW)
		return KN_LAUNCH(b->dev, norm_narrow, (unsigned)((n_rows + WARPS - 1) / WARPS), THREADS, 0, c);
	return KN_LAUNCH(b->dev, norm_wide, (unsigned)n_rows, NORM_THREADS, NORM_WARPS * sizeof(float), c);
}

int kn_cuda_rmsnorm(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int width, float *y)
{
	return launch_norm(b, const_cast<float *>(x), NULL, gain, eps, n_rows, width, y);
}

int kn_cuda_add_rmsnorm(struct kn_backend *b, float *x, const float *add, const float *gain, float eps, int n_rows,
			int width, float *y)
{
	return launch_norm(b, x, add, gain, eps, n_rows, width, y);
}

/* Rows of n_groups groups, each with its gain: a block or a warp has a group. */
template <bool WARP> __global__ void norm_groups(struct row_call c, int n_groups)
{
	kn_begin();
	int t = (int)threadIdx.x, row = (int)blockIdx.x * (WARP ? (int)WARPS : 1) + (WARP ? t / KN_WARP : 0);
	c.gain += (int64_t)(row % n_groups) * c.width;
	if (row < c.n_rows) /* the whole warp, or block */
		norm_row<WARP>(c, (int64_t)row * c.width, WARP ? t % KN_WARP : t, (float *)kn_shared());
}

int kn_cuda_rmsnorm_groups(struct kn_backend *b, const float *x, const float *gain, float eps, int n_rows, int n_groups,
			   int width, float *y)
{
	struct row_call c = {}; /* padding must be zero in a command */
	c.x = const_cast<float *>(x);
	c.y = y;
	c.gain = gain;
	c.eps = eps;
	c.n_rows = kn_cuda_rows(b, n_rows) * n_groups;
	c.width = width;
	c.wide = width % 4 == 0 && aligned(x) && aligned(gain) && aligned(y);
	if (width <= NARROW)
		return KN_LAUNCH(b->dev, norm_groups<true>, (unsigned)((c.n_rows + WARPS - 1) / WARPS), THREADS, 0, c,
				 n_groups);
	return KN_LAUNCH(b->dev, norm_groups<false>, (unsigned)c.n_rows, NORM_THREADS, NORM_WARPS * sizeof(float), c,
			 n_groups);
}

/* ---- elements ---- */

struct sum {
	__device__ float of(float x, float y) const { return x + y; }
};

struct product {
	float factor;
	__device__ float of(float x, float) const { return x * factor; }
};

struct softcap {
	float cap;
	__device__ float of(float x, float) const { return cap * tanhf(x / cap); }
};

struct numbers {
	float *x;
	const float *y; /* NULL: none */
	int64_t n;
	int period; /* of y, in numbers; 0: as long as x */
	bool wide;
};

template <class OP> __global__ void each(OP op, struct numbers c)
{
	kn_begin();
	int64_t i = 4 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
	if (i >= c.n)
		return;
	struct kn_f4 v = load4(c.x, i, c.n, c.wide), y = {0, 0, 0, 0};
	if (c.y != NULL && (c.period == 0 || c.wide)) {
		y = load4(c.y, c.period > 0 ? i % c.period : i, c.n, c.wide);
	} else if (c.y != NULL) {
		y = {c.y[i % c.period], c.y[(i + 1) % c.period], c.y[(i + 2) % c.period], c.y[(i + 3) % c.period]};
	}
	store4(c.x, i, c.n, c.wide, four_of(op, v, y));
}

static unsigned blocks_of(int64_t n) { return (unsigned)((n + 4 * THREADS - 1) / (4 * THREADS)); }

/* period: y is one row of so many numbers; 0: as many as x. */
template <class OP>
static int launch(struct kn_backend *b, OP op, float *x, const float *y, int n_rows, int width, int period)
{
	struct numbers c = {};
	c.x = x;
	c.y = y;
	c.n = (int64_t)kn_cuda_rows(b, n_rows) * width;
	c.period = period;
	c.wide = (period > 0 ? period : c.n) % 4 == 0 && aligned(x) && aligned(y);
	return KN_LAUNCH(b->dev, each<OP>, blocks_of(c.n), THREADS, 0, op, c);
}

int kn_cuda_silu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	return launch(b, silu_mul{}, gate, up, n_rows, width, 0);
}

int kn_cuda_gelu_mul(struct kn_backend *b, float *gate, const float *up, int n_rows, int width)
{
	return launch(b, gelu_mul{}, gate, up, n_rows, width, 0);
}

template <class OP> __global__ void halves(OP op, struct row_call c)
{
	kn_begin();
	int i = 4 * ((int)blockIdx.y * THREADS + (int)threadIdx.x);
	if (i < c.width)
		gate4(op, c, blockIdx.x, i);
}

/* Same, also writing the format of products, which takes the row's largest number: one block per row. */
template <class OP> __global__ void __launch_bounds__(GATE_THREADS) halves_into(OP op, struct row_call c)
{
	kn_begin();
	gate_row<GATE_THREADS, GATE_HELD>(op, c, (int)blockIdx.x);
}

/* bfloat16 takes no largest number: several blocks per row. */
template <class OP> __global__ void halves_into_bf16(OP op, struct row_call c)
{
	kn_begin();
	int row = (int)blockIdx.x, i = 4 * ((int)blockIdx.y * THREADS + (int)threadIdx.x);
	if (i < c.to.n_slabs * KN_SLAB)
		gate4_into(op, c, row, i);
	if (i == 0)
		c.to.inverse[row] = 1;
}

template <class OP> static int launch_into(struct kn_backend *b, OP op, const struct row_call &c)
{
	unsigned rows = (unsigned)c.to.n_all;
	if (c.to.bf16)
		return KN_LAUNCH(b->dev, halves_into_bf16<OP>, dim3(rows, blocks_of(c.to.n_slabs * KN_SLAB)), THREADS,
				 0, op, c);
	return KN_LAUNCH(b->dev, halves_into<OP>, rows, GATE_THREADS, GATE_THREADS / KN_WARP * sizeof(float), op, c);
}

template <class OP>
static int launch_halves(struct kn_backend *b, OP op, enum kn_then_what what, enum kn_then_what paired, const float *x,
			 int n_rows, int width, float *y)
{
	struct row_call c = {}; /* padding must be zero in a command */
	c.x = const_cast<float *>(x);
	c.y = y;
	c.n_rows = n_rows;
	c.width = width;
	c.wide = width % 4 == 0 && aligned(x) && aligned(y);
	bool only = b->only_products == y && !kn_cuda_reads_rows(b, width);
	b->only_products = NULL;
	if (kn_cuda_into(b, n_rows, width, &c.to) != 0)
		return SL_EIO;
	if (c.to.units == NULL)
		return KN_LAUNCH(b->dev, halves<OP>, dim3((unsigned)n_rows, blocks_of(width)), THREADS, 0, op, c);
	int rc = KN_NOT_TAKEN;
	if (only && c.to.bf16) {
		c.y = NULL;
		rc = kn_cuda_wgmma_gated(b, x, 2 * width, paired == KN_THEN_PAIRED_GELU, &c.to);
	}
	if (rc == KN_NOT_TAKEN)
		rc = follow(b, c.to.bf16 ? paired : what, c, x, 2 * width);
	if (rc == KN_NOT_TAKEN)
		rc = launch_into(b, op, c);
	kn_cuda_converted(b, y, width, &c.to);
	return rc;
}

void kn_cuda_for_products(struct kn_backend *b, const float *y) { b->only_products = y; }

int kn_cuda_gate_mul(struct kn_backend *b, const float *x, int n_rows, int width, bool gelu, float *y)
{
	n_rows = kn_cuda_rows(b, n_rows);
	return gelu ? launch_halves(b, gelu_mul{}, KN_THEN_GELU, KN_THEN_PAIRED_GELU, x, n_rows, width, y)
		    : launch_halves(b, silu_mul{}, KN_THEN_SILU, KN_THEN_PAIRED_SILU, x, n_rows, width, y);
}

int kn_cuda_add(struct kn_backend *b, float *x, const float *y, int n_rows, int width)
{
	return launch(b, sum{}, x, y, n_rows, width, 0);
}

int kn_cuda_add_row(struct kn_backend *b, float *x, const float *row, int n_rows, int width)
{
	return launch(b, sum{}, x, row, n_rows, width, width);
}

int kn_cuda_scale(struct kn_backend *b, float *x, float factor, int n_rows, int width)
{
	return launch(b, product{factor}, x, NULL, n_rows, width, 0);
}

int kn_cuda_softcap(struct kn_backend *b, float *x, float cap, int n_rows, int width)
{
	return launch(b, softcap{cap}, x, NULL, n_rows, width, 0);
}

struct sigmoid_mul {
	__device__ float of(float x, float gate) const { return x / (1.0f + expf(-gate)); }
};

int kn_cuda_sigmoid_mul(struct kn_backend *b, float *x, const float *gate, int n_rows, int width)
{
	return launch(b, sigmoid_mul{}, x, gate, n_rows, width, 0);
}

struct relu_square {
	__device__ float of(float x, float) const
	{
		float y = x > 0 || x != x ? x : 0.0f; /* NaN stays NaN */
		return y * y;
	}
};

int kn_cuda_relu_square(struct kn_backend *b, float *x, int n_rows, int width)
{
	return launch(b, relu_square{}, x, NULL, n_rows, width, 0);
}

/* Number i of a row of [2][width]: four at a time, of which a block has some. */
__global__ void halve(const float *x, int width, float *first, float *second, bool wide)
{
	kn_begin();
	int i = 4 * ((int)blockIdx.y * THREADS + (int)threadIdx.x);
	int64_t row = blockIdx.x;
	if (i >= width)
		return;
	const float *from = x + row * 2 * width;
	store4(first + row * width, i, width, wide, load4(from, i, width, wide));
	store4(second + row * width, i, width, wide, load4(from + width, i, width, wide));
}

int kn_cuda_halve(struct kn_backend *b, const float *x, int n_rows, int width, float *first, float *second)
{
	unsigned rows = (unsigned)kn_cuda_rows(b, n_rows);
	bool wide = width % 4 == 0 && aligned(x) && aligned(first) && aligned(second);
	return KN_LAUNCH(b->dev, halve, dim3(rows, blocks_of(width)), THREADS, 0, x, width, first, second, wide);
}

/* Block (r, part) has four numbers a thread. */
__global__ void add_gated(float *x, const float *add, const float *gate, int width, bool wide)
{
	kn_begin();
	int i = 4 * ((int)blockIdx.y * THREADS + (int)threadIdx.x);
	int64_t row = (int64_t)blockIdx.x * width;
	float share = 1.0f / (1.0f + expf(-gate[blockIdx.x]));
	if (i >= width)
		return;
	struct kn_f4 v = load4(x + row, i, width, wide), a = load4(add + row, i, width, wide);
	add4(&v, {a.x * share, a.y * share, a.z * share, a.w * share});
	store4(x + row, i, width, wide, v);
}

int kn_cuda_add_gated(struct kn_backend *b, float *x, const float *add, const float *gate, int n_rows, int width)
{
	unsigned rows = (unsigned)kn_cuda_rows(b, n_rows);
	bool wide = width % 4 == 0 && aligned(x) && aligned(add);
	return KN_LAUNCH(b->dev, add_gated, dim3(rows, blocks_of(width)), THREADS, 0, x, add, gate, width, wide);
}

/* Rows are copied whole: block (i, part) has a part of row rows[i]. */
__global__ void gather(const float *x, const int32_t *rows, int width, float *y, bool wide)
{
	kn_begin();
	int i = 4 * ((int)blockIdx.y * THREADS + (int)threadIdx.x);
	int64_t from = (int64_t)rows[blockIdx.x] * width, to = (int64_t)blockIdx.x * width;
	if (i < width)
		store4(y + to, i, width, wide, load4(x + from, i, width, wide));
}

int kn_cuda_gather(struct kn_backend *b, const float *x, const int32_t *rows, int n, int width, float *y)
{
	const int32_t *picks;
	if (kn_cuda_stage_picks(b, rows, n, &picks) != 0)
		return SL_EIO;
	unsigned n_rows = (unsigned)kn_cuda_rows(b, n);
	bool wide = width % 4 == 0 && aligned(x) && aligned(y);
	return KN_LAUNCH(b->dev, gather, dim3(n_rows, blocks_of(width)), THREADS, 0, x, picks, width, y, wide);
}

/* ---- encoders ---- */

/* The sum over all threads, returned in each. */
__device__ static inline float block_sum(float x, float *sums, int t)
{
	x = kn_warp_sum(x);
	kn_barrier(); /* all have read the last sum */
	if (t % KN_WARP == 0)
		sums[t / KN_WARP] = x;
	kn_barrier();
	x = 0;
	for (int i = 0; i < WARPS; i++)
		x += sums[i];
	return x;
}

/* One block per row; each number is read and written by one thread. */
__global__ void layer_norm(float *x, const float *add, const float *gain, const float *bias, float eps, int width,
			   float *y)
{
	kn_begin();
	float *sums = (float *)kn_shared(), sum = 0, squares = 0;
	int t = (int)threadIdx.x;
	int64_t row = (int64_t)blockIdx.x * width;
	for (int i = t; i < width; i += THREADS) {
		float v = x[row + i] + (add != NULL ? add[row + i] : 0.0f);
		x[row + i] = v;
		sum += v;
	}
	float mean = block_sum(sum, sums, t) / (float)width;
	for (int i = t; i < width; i += THREADS) {
		float apart = x[row + i] - mean;
		squares = kn_fma(apart, apart, squares);
	}
	float scale = 1.0f / sqrtf(block_sum(squares, sums, t) / (float)width + eps);
	for (int i = t; i < width; i += THREADS)
		y[row + i] = (x[row + i] - mean) * scale * gain[i] + (bias != NULL ? bias[i] : 0.0f);
}

int kn_cuda_layernorm(struct kn_backend *b, float *x, const float *add, const float *gain, const float *bias, float eps,
		      int n_rows, int width, float *y)
{
	return KN_LAUNCH(b->dev, layer_norm, (unsigned)kn_cuda_rows(b, n_rows), THREADS, WARPS * sizeof(float), x, add,
			 gain, bias, eps, width, y);
}

struct gelu {
	__device__ float of(float x, float) const { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
};

int kn_cuda_gelu(struct kn_backend *b, float *x, int n_rows, int width)
{
	return launch(b, gelu{}, x, NULL, n_rows, width, 0);
}

__global__ void add_table_row(const float *w, const int32_t *rows, int width, float *y)
{
	kn_begin();
	int i = (int)blockIdx.y * THREADS + (int)threadIdx.x;
	int64_t from = rows != NULL ? (int64_t)rows[blockIdx.x] * width : 0;
	if (i < width)
		y[(int64_t)blockIdx.x * width + i] += w[from + i];
}

int kn_cuda_embed_add(struct kn_backend *b, const float *w, enum kn_embed_by by, int width, float *y)
{
	const int32_t *rows = by == KN_EMBED_POS ? b->pos : b->step->row_type != NULL ? b->type : NULL;
	dim3 grid((unsigned)b->step->n_rows, (unsigned)((width + THREADS - 1) / THREADS));
	return KN_LAUNCH(b->dev, add_table_row, grid, THREADS, 0, w, rows, width, y);
}

/* One block per text; a thread adds a column, row after row. */
__global__ void add_up(const float *x, const struct kn_text *texts, int width, float *sums)
{
	kn_begin();
	struct kn_text text = texts[blockIdx.x];
	int i = (int)blockIdx.y * THREADS + (int)threadIdx.x;
	if (i >= width)
		return;
	float *at = sums + (int64_t)text.slot * width + i, sum = text.begins ? 0.0f : *at;
#pragma unroll 8
	for (int r = 0; r < text.n_rows; r++)
		sum += x[(int64_t)(text.row + r) * width + i];
	*at = sum;
}

int kn_cuda_pool_rows(struct kn_backend *b, const float *x, const struct kn_text *texts, int n_texts, int width,
		      float *sums)
{
	const struct kn_text *at;
	if (kn_cuda_stage_texts(b, texts, n_texts, &at) != 0)
		return SL_EIO;
	dim3 grid((unsigned)n_texts, (unsigned)((width + THREADS - 1) / THREADS));
	return KN_LAUNCH(b->dev, add_up, grid, THREADS, 0, x, at, width, sums);
}
