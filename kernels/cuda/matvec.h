/* SPDX-License-Identifier: Apache-2.0
 *
 * A product of up to KN_FEW_ROWS rows by a block for each tile of outputs: for one matrix (matvec.cu) and for those of
 * heads (latent.cu), with the same bits.
 */
#ifndef KERNELS_CUDA_MATVEC_H
#define KERNELS_CUDA_MATVEC_H

#include "kernels/cuda/lora.h"
#include "kernels/cuda/matmul.h"

enum { MATVEC_THREADS = KN_PARTS * KN_WARP };

template <int NT> static inline size_t matvec_shared() { return KN_PARTS * NT * KN_ROWS * KN_OUTS * sizeof(float); }

/* y_row: numbers from one row of y to the next; 0: n_out. lora NULL: nothing is added; else the kernel has not begun,
 * and there is shared memory for a kn_lora_tile_row a row behind the parts. */
template <int TYPE, int NT>
__device__ static inline void multiply(const struct kn_product &p, int64_t y_row = 0,
				       const struct kn_lora_after *lora = NULL)
{
	typedef kn_form<TYPE> form;
	constexpr int all = NT * KN_ROWS * KN_OUTS;
	float *parts = (float *)kn_shared(); /* [part][row][out] */
	struct kn_lora_tile_row *adds = (struct kn_lora_tile_row *)(void *)(parts + KN_PARTS * all);
	struct kn_lora_search search = {};
	bool seeks = lora != NULL && (int)threadIdx.x < p.x.n_rows; /* a thread of the first warp for each row */
	if (seeks)
		kn_lora_find(*lora, (int)threadIdx.x, &search);
	int lane = (int)threadIdx.x % KN_WARP, part = (int)threadIdx.x / KN_WARP, tile = (int)blockIdx.x;
	const uint8_t *records = p.w + (int64_t)tile * p.n_chunks * form::record;
	float sum[NT][4] = {}, unscaled[NT][4] = {};
	int begin = kn_part_begin(part, p.n_chunks), end = kn_part_begin(part + 1, p.n_chunks);
	for (int chunk = begin; chunk < end; chunk++) {
		/* With scales, two tiles' numbers take all of a lane's registers: addresses are made again for each
		 * chunk, of one number each, and nothing else of them is kept. */
		if (NT > 1 && form::scaled != KN_PLAIN)
			lane = kn_anew(lane);
		if (NT > 1 && form::scaled != KN_PLAIN && form::more < 2)
			chunk = kn_anew(chunk);
		const uint32_t units = (uint32_t)chunk * (KN_SLABS * KN_PIECE) + (uint32_t)lane * 16;
		const uint32_t sums = (uint32_t)chunk * (KN_SLABS * KN_SUMS) + (uint32_t)lane % 4 * 16;
		const uint8_t *record = records + (int64_t)chunk * form::record;
		struct kn_heads heads[2] = {};
		if (form::scaled != KN_PLAIN)
			for (int half = 0; half < 2; half++)
				heads[half] = kn_load_heads<TYPE>(record, half * 8 + lane / 4);
		UNROLL_FOR(int group = 0; group < KN_SLABS; group += form::group) {
			struct kn_u4 piece[form::held];
			kn_load_pieces<TYPE>(record, group, lane, piece);
			UNROLL_FOR(int s = 0; s < form::group; s++) {
				struct kn_u4 x[NT];
				float xsum[NT][2][2] = {};
				UNROLL_FOR(int n = 0; n < NT; n++) {
					const int64_t skip = (int64_t)n * p.x.n_slabs;
					const uint8_t *unit = p.x.units + skip * KN_PIECE + units;
					/* Rows that are not there are zero, and need not be loaded to be that. */
					x[n] = {0, 0, 0, 0};
					if (n * KN_ROWS + lane / 4 < p.x.n_rows)
						x[n] = kn_load_again(unit + (group + s) * KN_PIECE);
					if (form::has_min) {
						const uint8_t *four = (const uint8_t *)p.x.sums + skip * KN_SUMS + sums;
						kn_take_sums<TYPE>(kn_load_again(four + (group + s) * KN_SUMS),
								   xsum[n]);
					}
				}
				kn_slab_product<TYPE, NT>(piece, heads, s, group + s, x, xsum, unscaled, sum);
			}
		}
		if (seeks && chunk == begin)
			kn_lora_look(*lora, tile, &search);
		else if (seeks && chunk == begin + 1)
			kn_lora_hint(kn_lora_found(*lora, tile, search));
	}
	if (seeks) {
		if (begin == end)
			kn_lora_look(*lora, tile, &search);
		adds[threadIdx.x] = kn_lora_found(*lora, tile, search);
		if (end - begin < 2)
			kn_lora_hint(adds[threadIdx.x]);
	}
	UNROLL_FOR(int n = 0; n < NT; n++)
		UNROLL_FOR(int i = 0; i < 4; i++) {
			int row = n * KN_ROWS + lane % 4 * 2 + i % 2, out = lane / 4 + i / 2 * 8;
			parts[part * all + row * KN_OUTS + out] = sum[n][i];
		}
	if (lora != NULL)
		kn_begin(); /* what shrink made is there */
	kn_barrier();
	for (int i = (int)threadIdx.x; i < all; i += MATVEC_THREADS) {
		int row = i / KN_OUTS, out = tile * KN_OUTS + i % KN_OUTS;
		float total = 0;
		for (int k = 0; k < KN_PARTS; k++)
			total += parts[k * all + i];
		if (lora == NULL)
			kn_put(p, row, out, total, y_row);
		else if (row < p.x.n_rows && out < p.n_out)
			p.y[(int64_t)row * p.n_out + out] =
			    kn_lora_added(adds[row], i % KN_OUTS, kn_finished(p, row, out, total));
	}
}

#endif
