/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks of many rows have in common (mma.cu, wgmma.cu): stages of activations in shared memory.
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

#endif
