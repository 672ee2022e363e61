/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows on matrix units; weights are decoded on the way.
 *
 * A block computes 128 outputs for 64 rows; each of its eight warps computes 32 outputs (two tiles) for 32 rows.
 * Asynchronous copies bring activations to shared memory, half a chunk at a time: one half loads while the other is
 * multiplied. Weights go from memory to registers in storage order (packed.h); two warps read each, the second from
 * the cache.
 *
 * If that gives too few blocks for the device (few rows, a small matrix), each block computes one part of K into
 * scratch memory, and another kernel adds the parts in the same order: the bits are the same.
 *
 * VERSIONS
 *  1  this one. Counted for a slab of a warp (32 outputs × 32 rows × 32 weights, 16 instructions of the matrix
 *     unit, 32768 multiply-adds, 101 cycles of a scheduler at the 1300 a cycle that mma.sync reaches on a
 *     multiprocessor): 4 loads of 16 bytes from shared memory (2 KiB, 16 cycles of its 128 bytes, of 25), for
 *     Q4_K 44 to decode, 24 for scales, 64 multiply-adds and 32 clears: 184 issue slots, so 55 % of mma.sync's
 *     rate or a third of wgmma's; Q8_0 32 + 8 + 32 + 32 + 20: 80 %; bf16 and f16 24: the matrix unit's. An inner
 *     loop over wgmma would be the next step; it is not emulated. Not measured on a device.
 */
#include "kernels/cuda/matmul.h"

enum {
	WARPS_OUT = 4,
	WARPS_ROWS = 2,
	THREADS = WARPS_OUT * WARPS_ROWS * KN_WARP,
	MT = 2, /* per warp: tiles of outputs; tiles of rows */
	NT = 4,
	BLOCK_TILES = WARPS_OUT * MT,
	BLOCK_N = WARPS_ROWS * NT,
	STAGE_SLABS = KN_SLABS / 2,
	STAGE = BLOCK_N * STAGE_SLABS * KN_PIECE, /* bytes */
	FEW_BLOCKS = 264,                         /* two per multiprocessor of the largest devices */
};

/* Starts loading half a chunk of the block's rows into shared memory; missing tiles become zeros. */
__device__ static inline void fetch(const struct kn_product &p, uint8_t *stage, int first_tile, int slab)
{
	int n_tiles = (p.x.n_rows + KN_ROWS - 1) / KN_ROWS;
	for (int i = (int)threadIdx.x; i < STAGE / 16; i += THREADS) {
		int lane = i % KN_WARP, s = i / KN_WARP % STAGE_SLABS, n = i / KN_WARP / STAGE_SLABS;
		bool there = first_tile + n < n_tiles;
		int64_t unit = (int64_t)(there ? first_tile + n : 0) * p.x.n_slabs + slab + s;
		kn_cp_async16_or_zero(stage + i * 16, p.x.units + unit * KN_PIECE + lane * 16, there);
	}
	kn_cp_async_commit();
}

/* Adds half a chunk, from shared memory, to the warp's sums. */
template <int TYPE>
__device__ static inline void half_chunk(const struct kn_product &p, const uint8_t *stage, const uint8_t *record,
					 const struct kn_heads *heads, int chunk, int from, int first_n, int warp_n,
					 float (*sum)[4])
{
	typedef kn_form<TYPE> form;
	constexpr int group = form::group < STAGE_SLABS ? form::group : STAGE_SLABS;
	int lane = (int)threadIdx.x % KN_WARP, n_tiles = (p.x.n_rows + KN_ROWS - 1) / KN_ROWS;
	float unscaled[NT][4] = {};
	static_assert(STAGE_SLABS % form::every == 0, "a scale's slabs");
	UNROLL_FOR(int g = 0; g < STAGE_SLABS; g += group) {
		struct kn_u4 piece[form::held];
		kn_load_pieces<TYPE>(record, from + g, lane, piece);
		UNROLL_FOR(int s = 0; s < group; s++) {
			struct kn_u4 x[NT];
			float xsum[NT][2][2] = {};
			UNROLL_FOR(int n = 0; n < NT; n++) {
				const uint8_t *unit = stage + ((warp_n + n) * STAGE_SLABS + g + s) * KN_PIECE;
				x[n] = *reinterpret_cast<const struct kn_u4 *>(unit + lane * 16);
				if (form::has_min && first_n + warp_n + n < n_tiles)
					kn_load_sums(p.x, first_n + warp_n + n, chunk * KN_SLABS + from + g + s,
						     lane % 4, xsum[n]);
			}
			kn_slab_product<TYPE, NT>(piece, heads, (from + g + s) % form::group, from + g + s, x, xsum,
						  unscaled, sum);
		}
	}
}

/* parts: NULL, or [KN_PARTS][n_rows][n_out]; the block fills part blockIdx.z. */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) mma(struct kn_product p, float *parts)
{
	kn_begin();
	typedef kn_form<TYPE> form;
	int lane = (int)threadIdx.x % KN_WARP, warp = (int)threadIdx.x / KN_WARP;
	int warp_n = warp % WARPS_ROWS * NT, first_n = (int)blockIdx.y * BLOCK_N;
	int tile = (int)blockIdx.x * BLOCK_TILES + warp / WARPS_ROWS * MT, n_tiles = (p.n_out + KN_OUTS - 1) / KN_OUTS;
	bool busy = (first_n + warp_n) * KN_ROWS < p.x.n_rows; /* the same in all lanes, like tile */
	int first_part = parts != NULL ? (int)blockIdx.z : 0, end_part = parts != NULL ? first_part + 1 : (int)KN_PARTS;
	int begin = kn_part_begin(first_part, p.n_chunks), end = kn_part_begin(end_part, p.n_chunks);
	uint8_t *stages = (uint8_t *)kn_shared();
	float sum[MT][NT][4] = {}, total[MT][NT][4] = {};
	int part = first_part;
	if (begin < end)
		fetch(p, stages, first_n, begin * KN_SLABS);
	for (int chunk = begin; chunk < end; chunk++) {
		while (kn_part_begin(part + 1, p.n_chunks) <= chunk) {
			part++;
			UNROLL_FOR(int m = 0; m < MT; m++)
				UNROLL_FOR(int n = 0; n < NT; n++)
					UNROLL_FOR(int i = 0; i < 4; i++) {
						total[m][n][i] += sum[m][n][i];
						sum[m][n][i] = 0;
					}
		}
		struct kn_heads heads[MT][2] = {};
		const uint8_t *record[MT];
		UNROLL_FOR(int m = 0; m < MT; m++) {
			record[m] = p.w + ((int64_t)(tile + m) * p.n_chunks + chunk) * form::record;
			if (form::scaled != KN_PLAIN && busy && tile + m < n_tiles)
				for (int half = 0; half < 2; half++)
					heads[m][half] = kn_load_heads<TYPE>(record[m], half * 8 + lane / 4);
		}
		UNROLL_FOR(int h = 0; h < 2; h++) {
			int next = 2 * chunk + h + 1; /* half a chunk */
			if (next < 2 * end)
				fetch(p, stages + next % 2 * STAGE, first_n, next * STAGE_SLABS);
			else
				kn_cp_async_commit(); /* possibly an empty group: the wait below counts groups */
			kn_cp_async_wait<1>();
			kn_barrier();
			UNROLL_FOR(int m = 0; m < MT; m++)
				if (busy && tile + m < n_tiles)
					half_chunk<TYPE>(p, stages + h * STAGE, record[m], heads[m], chunk,
							 h * STAGE_SLABS, first_n, warp_n, sum[m]);
			kn_barrier();
		}
	}
	UNROLL_FOR(int m = 0; m < MT; m++)
		UNROLL_FOR(int n = 0; n < NT; n++)
			UNROLL_FOR(int i = 0; i < 4; i++) {
				int row = (first_n + warp_n + n) * KN_ROWS + lane % 4 * 2 + i % 2;
				int out = (tile + m) * KN_OUTS + lane / 4 + i / 2 * 8;
				if (parts == NULL)
					kn_put(p, row, out, total[m][n][i] + sum[m][n][i]);
				else if (row < p.x.n_rows && out < p.n_out)
					parts[((int64_t)blockIdx.z * p.x.n_rows + row) * p.n_out + out] = sum[m][n][i];
			}
}

__global__ void add_parts(struct kn_product p, const float *parts)
{
	kn_begin();
	int64_t all = (int64_t)p.x.n_rows * p.n_out, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= all)
		return;
	float total = 0;
	for (int k = 0; k < KN_PARTS; k++)
		total += parts[k * all + i];
	kn_put(p, (int)(i / p.n_out), (int)(i % p.n_out), total);
}

template <int TYPE> static int launch(struct kn_backend *b, const struct kn_product *p)
{
	unsigned outs = ((unsigned)kn_cuda_tiles(p->n_out) + BLOCK_TILES - 1) / BLOCK_TILES;
	unsigned rows = ((unsigned)p->x.n_rows + BLOCK_N * KN_ROWS - 1) / (BLOCK_N * KN_ROWS);
	if (outs * rows >= FEW_BLOCKS)
		return KN_LAUNCH(b->dev, mma<TYPE>, dim3(outs, rows), THREADS, 2 * STAGE, *p, (float *)NULL);
	int64_t all = (int64_t)p->x.n_rows * p->n_out;
	int rc = kn_cuda_room(b, &b->parts, (size_t)(all * KN_PARTS) * sizeof(float));
	float *parts = (float *)b->parts.at;
	if (rc == 0)
		rc = KN_LAUNCH(b->dev, mma<TYPE>, dim3(outs, rows, KN_PARTS), THREADS, 2 * STAGE, *p, parts);
	if (rc == 0)
		rc = KN_LAUNCH(b->dev, add_parts, (unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, *p, parts);
	return rc;
}

int kn_cuda_mma(struct kn_backend *b, int type, const struct kn_product *p)
{
	return kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) { return launch<decltype(t)::type>(b, p); });
}
