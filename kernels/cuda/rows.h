/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms and gates of one row, for kernels of their own (rows.cu) and for the end of another kernel (then.h), with
 * the same bits: both have NORM_THREADS threads a row.
 */
#ifndef KERNELS_CUDA_ROWS_H
#define KERNELS_CUDA_ROWS_H

#include "kernels/cuda/activations.h"

enum {
	NORM_THREADS = 256,
	NORM_WARPS = NORM_THREADS / KN_WARP,
	NARROW = 1024,   /* the widest row that a warp handles */
	KEPT = 8,        /* times 4 numbers per thread stay in registers, */
	KEPT_BESIDE = 4, /* or so many, for narrower rows and in kernels with other work */
};

/* Numbers i…i+3 of n, zero past the end; wide: a 16-byte load is aligned and within bounds. */
__device__ static inline struct kn_f4 load4(const float *x, int64_t i, int64_t n, bool wide)
{
	if (wide)
		return *(const struct kn_f4 *)(const void *)(x + i);
	return {i < n ? x[i] : 0.0f, i + 1 < n ? x[i + 1] : 0.0f, i + 2 < n ? x[i + 2] : 0.0f,
		i + 3 < n ? x[i + 3] : 0.0f};
}

__device__ static inline void store4(float *x, int64_t i, int64_t n, bool wide, struct kn_f4 v)
{
	if (wide) {
		*(struct kn_f4 *)(void *)(x + i) = v;
		return;
	}
	if (i < n)
		x[i] = v.x;
	if (i + 1 < n)
		x[i + 1] = v.y;
	if (i + 2 < n)
		x[i + 2] = v.z;
	if (i + 3 < n)
		x[i + 3] = v.w;
}

/* A norm of rows [n_rows][width], or a gate of rows of twice that, whose halves are gate and up. */
struct row_call {
	float *x;                /* written only by a norm with a sum */
	const float *add, *gain; /* of a norm; add NULL: no sum */
	float *y;                /* NULL: a gate whose rows go to `to` alone, in bfloat16 */
	float eps;
	int n_rows, width;
	bool wide; /* every row is of whole, aligned 16 bytes */
	struct kn_into to;
};

/* ---- the norm ---- */

__device__ static inline void add4(struct kn_f4 *v, const struct kn_f4 &a)
{
	v->x += a.x;
	v->y += a.y;
	v->z += a.z;
	v->w += a.w;
}

/* Numbers i…i+3 of a row, plus the residual. */
__device__ static inline struct kn_f4 summand(const struct row_call &c, int64_t row, int i, bool wide)
{
	struct kn_f4 v = load4(c.x + row, i, c.width, wide);
	if (c.add != NULL)
		add4(&v, load4(c.add + row, i, c.width, wide));
	return v;
}

__device__ static inline float squares(const struct kn_f4 &v, float sum)
{
	return kn_fma(v.w, v.w, kn_fma(v.z, v.z, kn_fma(v.y, v.y, kn_fma(v.x, v.x, sum))));
}

/* Stores the normed numbers and returns them. */
__device__ static inline struct kn_f4 put_normed(const struct row_call &c, int64_t row, int i, const struct kn_f4 &v,
						 const struct kn_f4 &g, float scale, bool wide)
{
	struct kn_f4 y = {v.x * scale * g.x, v.y * scale * g.y, v.z * scale * g.z, v.w * scale * g.w};
	store4(c.y + row, i, c.width, wide, y);
	if (c.add != NULL)
		store4(c.x + row, i, c.width, wide, v);
	return y;
}

__device__ static inline float largest_of(const struct kn_f4 &v, float most)
{
	return fmaxf(fmaxf(fmaxf(most, fabsf(v.x)), fmaxf(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
}

/* The scale of a row whose threads' largest magnitudes are `most`. Shared memory: a float for each warp of the block,
 * whose contents are lost. */
template <bool WARP, int N>
__device__ static inline int exponent_of(const struct kn_into &to, int t, float most, float *largest)
{
	if (to.bf16)
		return 0;
	most = kn_warp_max(most);
	if (!WARP) {
		kn_barrier();
		if (t % KN_WARP == 0)
			largest[t / KN_WARP] = most;
		kn_barrier();
		for (int i = 0; i < N / KN_WARP; i++)
			most = fmaxf(most, largest[i]);
	}
	return kn_scaling_exponent(most);
}

/* Writes a row's units: of each thread the first PER fours are in `kept`, what follows is read from y. BF16 is to.bf16:
 * known to the compiler, it leaves half of the code. */
template <bool BF16, int N, int PER>
__device__ static inline void put_row(struct kn_into to, int row, int t, const struct kn_f4 *kept, const float *y,
				      int width, bool wide, float scale)
{
	const struct kn_f4 zero = {0, 0, 0, 0};
	int end = to.n_slabs * KN_SLAB; /* whole warps of it */
	to.bf16 = BF16;
	UNROLL_FOR(int j = 0; j < PER; j++) {
		int i = 4 * (t + j * N);
		if (i < end)
			kn_put_units(to, row, i, kept[j], scale);
	}
#pragma unroll(PER > 0 ? 1 : 4)
	for (int i = 4 * (t + PER * N); i < end; i += 4 * N)
		kn_put_units(to, row, i, y != NULL && i < width ? load4(y, i, width, wide) : zero, scale);
}

/* Row number `row`, made before by the same N threads, as products take it: of each thread the first PER fours are in
 * `kept`, zeros past the end, what follows is read from y, NULL for a row that is not there. most: the thread's
 * largest. Shared memory: as exponent_of. */
template <bool WARP, int N, int PER>
__device__ static inline void convert_row(const struct kn_into &to, int row, int t, const struct kn_f4 *kept,
					  const float *y, int width, bool wide, float most, float *largest)
{
	int exponent = exponent_of<WARP, N>(to, t, most, largest);
	float scale = kn_power(exponent);
	if (t == 0)
		to.inverse[row] = kn_power(-exponent);
	if (to.bf16)
		put_row<true, N, PER>(to, row, t, kept, y, width, wide, scale);
	else
		put_row<false, N, PER>(to, row, t, kept, y, width, wide, scale);
}

/* The sum over all N threads, in a fixed order, returned in each. */
template <bool WARP, int N> __device__ static inline float sum_of_threads(float sum, int t, float *sums)
{
	sum = kn_warp_sum(sum);
	if (WARP)
		return sum;
	if (t % KN_WARP == 0)
		sums[t / KN_WARP] = sum;
	kn_barrier();
	sum = 0;
	for (int i = 0; i < N / KN_WARP; i++)
		sum += sums[i];
	return sum;
}

/* norm_row with PER fours a thread in registers: all loads of these are on their way together. */
template <bool WARP, bool INTO, bool WIDE, int PER>
__device__ static inline void norm_row_of(const struct row_call &c, int64_t row, int t, float *sums)
{
	constexpr int N = WARP ? (int)KN_WARP : (int)NORM_THREADS;
	const struct kn_f4 zero = {0, 0, 0, 0};
	struct kn_f4 kept[PER], other[PER]; /* other: what is added, then the gain */
	float sum = 0, most = 0;
	UNROLL_FOR(int j = 0; j < PER; j++) {
		int i = 4 * (t + j * N);
		kept[j] = i < c.width ? load4(c.x + row, i, c.width, WIDE) : zero;
	}
	if (c.add != NULL) {
		UNROLL_FOR(int j = 0; j < PER; j++) {
			int i = 4 * (t + j * N);
			other[j] = i < c.width ? load4(c.add + row, i, c.width, WIDE) : zero;
		}
		UNROLL_FOR(int j = 0; j < PER; j++)
			add4(&kept[j], other[j]);
	}
	UNROLL_FOR(int j = 0; j < PER; j++) {
		int i = 4 * (t + j * N);
		other[j] = i < c.width ? load4(c.gain, i, c.width, WIDE) : zero;
	}
	UNROLL_FOR(int j = 0; j < PER; j++)
		if (4 * (t + j * N) < c.width)
			sum = squares(kept[j], sum);
#pragma unroll 1
	for (int i = 4 * (t + PER * N); i < c.width; i += 4 * N)
		sum = squares(summand(c, row, i, WIDE), sum);
	float scale = 1.0f / sqrtf(sum_of_threads<WARP, N>(sum, t, sums) / (float)c.width + c.eps);
	UNROLL_FOR(int j = 0; j < PER; j++) {
		int i = 4 * (t + j * N);
		if (i < c.width) {
			kept[j] = put_normed(c, row, i, kept[j], other[j], scale, WIDE);
			most = largest_of(kept[j], most);
		}
	}
	for (int i = 4 * (t + PER * N); i < c.width; i += 4 * N)
		most = largest_of(
		    put_normed(c, row, i, summand(c, row, i, WIDE), load4(c.gain, i, c.width, WIDE), scale, WIDE),
		    most);
	if constexpr (INTO)
		convert_row<WARP, N, PER>(c.to, (int)(row / c.width), t, kept, c.y + row, c.width, WIDE, most, sums);
}

/* A row by n threads, of which this is number t. What does not stay in registers, MOST fours a thread, is made again:
 * it is written only by the thread that reads it. WARP: by a warp. INTO: as products take it, too. */
template <bool WARP, bool INTO = false, int MOST = KEPT>
__device__ static inline void norm_row(const struct row_call &c, int64_t row, int t, float *sums)
{
	constexpr int FEW = KEPT_BESIDE, HELD = 4 * FEW * (WARP ? (int)KN_WARP : (int)NORM_THREADS);
	if (!c.wide)
		norm_row_of<WARP, INTO, false, 1>(c, row, t, sums);
	else if (MOST == FEW || c.width <= HELD)
		norm_row_of<WARP, INTO, true, FEW>(c, row, t, sums);
	else
		norm_row_of<WARP, INTO, true, MOST>(c, row, t, sums);
}

/* Row number `row` of a tile that has fewer. */
template <bool WARP> __device__ static inline void no_row(const struct kn_into &to, int row, int t, float *sums)
{
	constexpr int N = WARP ? (int)KN_WARP : (int)NORM_THREADS;
	convert_row<WARP, N, 0>(to, row, t, NULL, NULL, 0, false, 0, sums);
}

/* ---- gates ---- */

/* x[i] = of(x[i], y[i]); what is made of one number. */
struct silu_mul {
	__device__ float of(float g, float up) const { return g / (1.0f + expf(-g)) * up; }
};

/* (1 + tanh(z)) / 2 is 1 / (1 + exp(-2z)), which loses nothing where tanh is close to -1. */
struct gelu_mul {
	__device__ float of(float g, float up) const
	{
		float z = 0.7978845608f * (g + 0.044715f * g * g * g);
		return g / (1.0f + expf(-2.0f * z)) * up;
	}
};

template <class OP>
__device__ static inline struct kn_f4 four_of(const OP &op, const struct kn_f4 &x, const struct kn_f4 &y)
{
	return {op.of(x.x, y.x), op.of(x.y, y.y), op.of(x.z, y.z), op.of(x.w, y.w)};
}

/* Numbers i…i+3 of a row of y: op applied to the two halves of that row of x. */
template <class OP>
__device__ static inline struct kn_f4 gate4(const OP &op, const struct row_call &c, int64_t row, int i)
{
	const float *gate = c.x + row * 2 * c.width;
	struct kn_f4 g, up;
	if (c.wide) { /* both are on their way together */
		g = load4(gate, i, c.width, true);
		up = load4(gate + c.width, i, c.width, true);
	} else {
		g = load4(gate, i, c.width, false);
		up = load4(gate + c.width, i, c.width, false);
	}
	struct kn_f4 v = four_of(op, g, up);
	if (c.y != NULL)
		store4(c.y + row * c.width, i, c.width, c.wide, v);
	return v;
}

/* A row by a block of N threads, also in the format of products; a row that a tile lacks is zeros there. PER fours a
 * thread stay in registers. */
template <int N, int PER, class OP>
__device__ static inline void gate_row(const OP &op, const struct row_call &c, int row)
{
	int t = (int)threadIdx.x;
	struct kn_f4 kept[PER > 0 ? PER : 1] = {};
	float most = 0;
	bool there = row < c.n_rows;
	UNROLL_FOR(int j = 0; j < PER; j++) {
		int i = 4 * (t + j * N);
		if (there && i < c.width) {
			kept[j] = gate4(op, c, row, i);
			most = largest_of(kept[j], most);
		}
	}
	for (int i = 4 * (t + PER * N); there && i < c.width; i += 4 * N)
		most = largest_of(gate4(op, c, row, i), most);
	convert_row<false, N, PER>(c.to, row, t, kept, there ? c.y + (int64_t)row * c.width : NULL, c.width, c.wide,
				   most, (float *)kn_shared());
}

/* Numbers i…i+3 of a row of y and, as they are bfloat16, of what products take: whoever has them can write them. Past
 * the row's end: zeros. */
template <class OP> __device__ static inline void gate4_into(const OP &op, const struct row_call &c, int row, int i)
{
	struct kn_f4 v = {0, 0, 0, 0};
	if (row < c.n_rows && i < c.width)
		v = gate4(op, c, row, i);
	kn_put_units(c.to, row, i, v, 1.0f);
}

#endif
