/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks of many rows have in common (mma.cu, wgmma.cu): stages of activations in shared memory, and how sums are
 * stored.
 */
#ifndef KERNELS_CUDA_STAGES_H
#define KERNELS_CUDA_STAGES_H

#include "kernels/cuda/matmul.h"

/* Starts loading BYTES of each of NT tiles' SLABS slabs, from slab `slab` on, to [tile][slab]; missing tiles become
 * zeros. By all THREADS of a block. */
template <int NT, int SLABS, int BYTES, int THREADS>
__device__ static inline void kn_fetch_rows(const struct kn_rows &x, const void *from, uint8_t *to, int first_tile,
					    int slab)
{
	constexpr unsigned a_slab = BYTES / 16, a_tile = SLABS * a_slab, all = NT * a_tile;
	unsigned at = threadIdx.x, in = at % a_slab, s = at / a_slab % SLABS;
	int n_tiles = (x.n_rows + KN_ROWS - 1) / KN_ROWS, tile = first_tile + (int)(at / a_tile);
	const uint8_t *unit = (const uint8_t *)from + ((int64_t)tile * x.n_slabs + slab + s) * BYTES + in * 16;
	/* A thread's next 16 bytes are the same place some tiles on: one address instead of one for each. */
	static_assert(THREADS % a_tile == 0, "a thread's place in a tile stays the same");
	constexpr int step = THREADS / a_tile;
	UNROLL_FOR(; at < all; at += THREADS) {
		bool there = tile < n_tiles;
		kn_cp_async16_or_zero(to + at * 16, there ? unit : (const uint8_t *)from, there);
		tile += step;
		unit += (int64_t)step * x.n_slabs * BYTES;
	}
}

/* Stores a warp's tile of outputs for NT tiles of rows: total + sum, or, with parts [KN_PARTS][n_rows][n_out], sum as
 * part blockIdx.z. */
template <int NT>
__device__ static inline void kn_put_tiles(const struct kn_product &p, float *parts, int first_tile, int tile, int lane,
					   const float (*total)[4], const float (*sum)[4])
{
	UNROLL_FOR(int n = 0; n < NT; n++)
		UNROLL_FOR(int e = 0; e < 4; e++) {
			int r = (first_tile + n) * KN_ROWS + lane % 4 * 2 + e % 2;
			int out = tile * KN_OUTS + lane / 4 + e / 2 * 8;
			if (parts == NULL)
				kn_put(p, r, out, total[n][e] + sum[n][e]);
			else if (r < p.x.n_rows && out < p.n_out)
				parts[((int64_t)blockIdx.z * p.x.n_rows + r) * p.n_out + out] = sum[n][e];
		}
}

#endif
