/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a row of activations and scales it before it is rounded to 16 bits (matmul.h).
 */
#ifndef KERNELS_CUDA_ACTIVATIONS_H
#define KERNELS_CUDA_ACTIVATIONS_H

#include "kernels/cuda/matmul.h"

enum { KN_ROW_THREADS = 256 }; /* per block; a block handles one row */

/* 2^n, for n from -126 to 127. */
__device__ static inline float kn_power(int n) { return kn_bits_float((uint32_t)(n + 127) << 23); }

/* Loads four numbers of the row from k on; zero past the end, or if there is no row. */
__device__ static inline void kn_load4(const float *x, int k, int n_in, bool there, float *v)
{
	if (there && n_in % 4 == 0 && k < n_in && (uintptr_t)(x + k) % sizeof(struct kn_f4) == 0) {
		kn_take4(x + k, v);
		return;
	}
	for (int i = 0; i < 4; i++)
		v[i] = there && k + i < n_in ? x[k + i] : 0.0f;
}

/* The maximum over the block's `threads` threads, none negative, returned in all of them. Shared memory: one float
 * per warp. */
__device__ static inline float kn_block_largest(float mine, int threads)
{
	float *most = (float *)kn_shared(), all = kn_warp_max(mine);
	if (threadIdx.x % KN_WARP == 0)
		most[threadIdx.x / KN_WARP] = all;
	kn_barrier();
	for (int i = 0; i < threads / KN_WARP; i++)
		all = fmaxf(all, most[i]);
	return all;
}

/* The row's largest magnitude, returned in all KN_ROW_THREADS threads. Shared memory: one float per warp. */
__device__ static inline float kn_row_largest(const float *x, int n_in, bool there)
{
	float all = 0, v[4];
	for (int k = 4 * (int)threadIdx.x; k < n_in; k += 4 * KN_ROW_THREADS) {
		kn_load4(x, k, n_in, there, v);
		for (int i = 0; i < 4; i++)
			all = fmaxf(all, fabsf(v[i]));
	}
	return kn_block_largest(all, KN_ROW_THREADS);
}

/* The exponent of the power of two that brings the largest magnitude to [2^14, 2^15), within the range of floats. */
__device__ static inline int kn_scaling_exponent(float largest)
{
	int exponent = (int)(kn_float_bits(largest) >> 23) - 127;
	if (exponent < -126 || exponent == 128) /* zeros and subnormals only; infinite or NaN */
		return exponent == 128 ? 0 : 126;
	return 14 - exponent > 126 ? 126 : 14 - exponent;
}

/* Stores four numbers of row `row` from k on (a multiple of 4) in the layout of products (matmul.h). All lanes of a
 * warp call it, with consecutive k. */
__device__ static inline void kn_put_units(const struct kn_into &to, int row, int k, const struct kn_f4 &v, float scale)
{
	int slab = k / KN_SLAB, half = k % KN_SLAB / 16, t = k / 4 % 4, tile = row / KN_ROWS, in = row % KN_ROWS;
	uint32_t pair[2] = {to.bf16 ? kn_pair_bf16(v.x * scale, v.y * scale) : kn_pair_f16(v.x * scale, v.y * scale),
			    to.bf16 ? kn_pair_bf16(v.z * scale, v.w * scale) : kn_pair_f16(v.z * scale, v.w * scale)};
	int64_t at = (int64_t)tile * to.n_slabs + slab;
	uint32_t *unit = reinterpret_cast<uint32_t *>(to.units + at * KN_PIECE);
	UNROLL_FOR(int i = 0; i < 2; i++)
		unit[kn_unit_at(to.matrices, in, t, 2 * half + i)] = pair[i];
	if (to.bf16)
		return; /* the whole warp */
	float sum = 0;
	for (int i = 0; i < 2; i++)
		sum += kn_f16_float((uint16_t)pair[i]) + kn_f16_float((uint16_t)(pair[i] >> 16));
	sum += kn_shuffle_xor(sum, 1);
	sum += kn_shuffle_xor(sum, 2);
	if (t == 0)
		to.sums[kn_sum_at(at, half, in)] = sum;
}

/* kn_scaling_exponent of a row; needs what kn_row_largest needs. */
__device__ static inline int kn_row_exponent(const float *x, int n_in, bool there)
{
	return kn_scaling_exponent(kn_row_largest(x, n_in, there));
}

#endif
