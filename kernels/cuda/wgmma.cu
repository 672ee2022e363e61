/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows by warp groups, on devices that have them (kn_wgmma), for weights without scales: F16, BF16,
 * FP8.
 *
 * A block computes 128 outputs for 64, 128 or 192 rows; each of its two warp groups has 64 outputs, whose weights its
 * lanes hold in the order in which they are stored (packed.h), and reads the activations of all rows from shared
 * memory. Asynchronous copies bring both to a ring of stages of two slabs. While a stage is multiplied, the next one's
 * weights are decoded.
 *
 * If that gives too few blocks for the device, each block computes one part of K into scratch memory, and another
 * kernel adds the parts in the same order: the bits are the same, as they are in mma.cu and matvec.cu.
 *
 * VERSIONS (on an H200; 8192³ by cuBLASLt: 692 TFLOP/s)
 *  1  this one. Weights by cp.async, too. Measured for 2048 rows and an 8B Llama's layer, TFLOP/s: gate and up 608,
 * down
 *     605, o 535, qkv 601; 64 rows: 66.5, 35.1, 10.3 and 21.4 us (3.5 TB/s for gate and up). mma.cu: 205, 211, 198, 198;
 *     97, 48.6, 18.5, 27.9 us. 192 rows a block, not 256: the accumulators of a part and of the parts before are 192
 *     registers. A block reads 53 bytes of the second-level cache for each clock that the matrix units take.
 *  0  tried: weights from memory to registers two to seven slabs ahead: 186 TFLOP/s. One warp starting a bulk copy
 *     (cp.async.bulk) of 1 to 2 KiB for each tile: 285, since those start one after the other; each warp its own: 555.
 *     Two blocks with other outputs that share the rows' copies (a cluster, multicast): no gain over either.
 */
#include "kernels/cuda/stages.h"

enum {
	WARPS = 8, /* two groups */
	THREADS = WARPS * KN_WARP,
	OUTS = WARPS * KN_OUTS,
	SLABS = 2, /* of a stage */
	STAGES_IN_CHUNK = KN_SLABS / SLABS,
};

template <int TYPE, int NT> struct plan {
	static constexpr int slab = kn_form<TYPE>::main * KN_PIECE / KN_SLABS; /* bytes of a tile's weights */
	static constexpr int units = NT * SLABS * KN_PIECE, stage = units + WARPS * SLABS * slab;
	/* Two blocks a multiprocessor of the narrow ones. */
	static constexpr int stages = NT == 8 ? 4 : NT == 16 ? 6 : 5, blocks = NT == 8 ? 2 : 1;
	static_assert(blocks * (stages * stage + 1024) <= 228 << 10, "a multiprocessor's, of which blocks take 1 KiB");
};

#if KN_CODE_HAS_WGMMA

/* What a warp reads of the product, stage by stage. */
struct source {
	const struct kn_product &p;
	const uint8_t *w;         /* the lane's first 16 bytes of the warp's weights */
	int first_tile, first, n; /* tile of rows; stage of the row; stages */
};

/* Starts loading stage i, if there is one. The warp's weights go to where the same lanes read them. */
template <int TYPE, int NT>
__device__ static inline void fetch(const struct source &from, uint8_t *stages, int warp, int lane, int i)
{
	typedef struct plan<TYPE, NT> P;
	uint8_t *stage = stages + i % P::stages * P::stage;
	if (i < from.n) {
		uint8_t *to = stage + P::units + warp * SLABS * P::slab + lane * 16;
		UNROLL_FOR(int at = 0; at < SLABS * P::slab; at += KN_PIECE)
			kn_cp_async16(to + at, from.w + (int64_t)i * SLABS * P::slab + at);
		kn_fetch_rows<NT, SLABS, KN_PIECE, THREADS>(from.p.x, from.p.x.units, stage, from.first_tile,
							    (from.first + i) * SLABS);
	}
	kn_cp_async_commit(); /* even if empty, so that groups correspond to stages */
}

/* Multiplies stage i, whose weights become q; those of the stage before are free again. */
template <int TYPE, int NT>
__device__ static inline void multiply(const uint8_t *stage, int warp, int lane, uint32_t (*q)[2][4], float (*sum)[4])
{
	typedef struct plan<TYPE, NT> P;
	struct kn_u4 piece[SLABS * P::slab / KN_PIECE];
	UNROLL_FOR(int i = 0; i < SLABS * P::slab / KN_PIECE; i++)
		piece[i] = kn_shared_load16(stage + P::units + warp * SLABS * P::slab + i * KN_PIECE + lane * 16);
	UNROLL_FOR(int s = 0; s < SLABS; s++)
		UNROLL_FOR(int half = 0; half < 2; half++)
			kn_quants<TYPE>(piece, s, half, q[s][half]);
	kn_wgmma_begin();
	UNROLL_FOR(int s = 0; s < SLABS; s++)
		UNROLL_FOR(int j = 0; j < 2; j++) {
			const uint32_t a[4] = {q[s][0][2 * j], q[s][1][2 * j], q[s][0][2 * j + 1], q[s][1][2 * j + 1]};
			const uint8_t *at = stage + s * KN_PIECE + j * (KN_PIECE / 2);
			kn_wgmma<NT, TYPE == KN_BF16>(sum, a, kn_matrices_at(at, SLABS * KN_PIECE), true);
		}
	kn_wgmma_commit();
	kn_wgmma_wait<1>();
}

template <int NT> __device__ static inline void end_part(float (*sum)[4], float (*total)[4])
{
	kn_wgmma_wait<0>();
	UNROLL_FOR(int n = 0; n < NT; n++)
		UNROLL_FOR(int i = 0; i < 4; i++) {
			total[n][i] += sum[n][i];
			sum[n][i] = 0;
		}
}

#endif

/* parts: NULL, or [KN_PARTS][n_rows][n_out]; the block fills part blockIdx.z. */
template <int TYPE, int NT>
__global__ void __launch_bounds__(THREADS, (plan<TYPE, NT>::blocks)) wgmma(struct kn_product p, float *parts)
{
	kn_begin();
#if KN_CODE_HAS_WGMMA
	typedef struct plan<TYPE, NT> P;
	int lane = (int)threadIdx.x % KN_WARP, warp = (int)threadIdx.x / KN_WARP;
	int first_n = (int)blockIdx.x * NT, tile = (int)blockIdx.y * WARPS + warp,
	    n_tiles = (p.n_out + KN_OUTS - 1) / KN_OUTS;
	int first_part = parts != NULL ? (int)blockIdx.z : 0,
	    end_part_ = parts != NULL ? first_part + 1 : (int)KN_PARTS;
	int begin = kn_part_begin(first_part, p.n_chunks), end = kn_part_begin(end_part_, p.n_chunks);
	/* A warp without outputs multiplies the last ones, since its group waits for it, and stores nothing. */
	int64_t row = (int64_t)(tile < n_tiles ? tile : n_tiles - 1) * p.n_chunks + begin;
	const struct source from = {p, p.w + row * KN_SLABS * P::slab + lane * 16, first_n, begin * STAGES_IN_CHUNK,
				    (end - begin) * STAGES_IN_CHUNK};
	uint8_t *stages = (uint8_t *)kn_shared();
	float sum[NT][4] = {}, total[NT][4] = {};
	int part = first_part, i = 0;
	for (; i < P::stages - 2; i++)
		fetch<TYPE, NT>(from, stages, warp, lane, i);
	i = 0;
	for (int chunk = begin; chunk < end; chunk++) {
		for (; kn_part_begin(part + 1, p.n_chunks) <= chunk; part++)
			end_part<NT>(sum, total);
		/* By turns, since a stage's weights are read while the next one's are decoded. */
		uint32_t q[2][SLABS][2][4];
		UNROLL_FOR(int k = 0; k < STAGES_IN_CHUNK; k++, i++) {
			kn_cp_async_wait<P::stages - 3>();
			kn_wgmma_sees_shared();
			kn_barrier(); /* the stage is complete, and the one before the preceding one is free */
			fetch<TYPE, NT>(from, stages, warp, lane, i + P::stages - 2);
			multiply<TYPE, NT>(stages + i % P::stages * P::stage, warp, lane, q[k % 2], sum);
		}
	}
	kn_wgmma_wait<0>();
	kn_cp_async_wait<0>();
	UNROLL_FOR(int n = 0; n < NT; n++)
		UNROLL_FOR(int e = 0; e < 4; e++) {
			int r = (first_n + n) * KN_ROWS + lane % 4 * 2 + e % 2,
			    out = tile * KN_OUTS + lane / 4 + e / 2 * 8;
			if (parts == NULL)
				kn_put(p, r, out, total[n][e] + sum[n][e]);
			else if (r < p.x.n_rows && out < p.n_out)
				parts[((int64_t)blockIdx.z * p.x.n_rows + r) * p.n_out + out] = sum[n][e];
		}
#endif
}

/* ---- which blocks ---- */

/* How a product is shared out, and about how long that takes. */
struct way {
	int tiles; /* of rows a block has */
	bool by_parts;
	double ns;
};

/* Measured: a stage's time on a multiprocessor, of two blocks if they are narrow; bytes of parts a nanosecond. */
static double time_of(struct kn_backend *b, const struct kn_product *p, int tiles, bool by_parts)
{
	const double stage_ns = tiles == 8 ? 640 : tiles == 16 ? 556 : 680, part_bytes = 3000;
	int64_t rows = (p->x.n_rows + tiles * KN_ROWS - 1) / (tiles * KN_ROWS), outs = (p->n_out + OUTS - 1) / OUTS;
	int64_t blocks = rows * outs * (by_parts ? KN_PARTS : 1),
		at_once = dev_processors(b->dev) * (tiles == 8 ? 2 : 1);
	int64_t waves = (blocks + at_once - 1) / at_once, stages = (int64_t)p->n_chunks * STAGES_IN_CHUNK;
	double ns = (double)waves * stage_ns * (double)(by_parts ? (stages + KN_PARTS - 1) / KN_PARTS + 2 : stages);
	if (by_parts)
		ns += 3000 + 2.0 * KN_PARTS * sizeof(float) * p->x.n_rows * p->n_out / part_bytes;
	return ns;
}

static struct way best_way(struct kn_backend *b, const struct kn_product *p)
{
	static const int sizes[] = {24, 16, 8};
	struct way best = {0, false, 0};
	for (int i = 0; i < 6; i++) {
		struct way w = {sizes[i / 2], i % 2 != 0, time_of(b, p, sizes[i / 2], i % 2 != 0)};
		if (best.tiles == 0 || w.ns < best.ns)
			best = w;
	}
	return best;
}

template <int TYPE, int NT> static int launch(struct kn_backend *b, const struct kn_product *p, bool by_parts)
{
	typedef struct plan<TYPE, NT> P;
	unsigned outs = ((unsigned)p->n_out + OUTS - 1) / OUTS;
	unsigned rows = ((unsigned)p->x.n_rows + NT * KN_ROWS - 1) / (NT * KN_ROWS);
	size_t room = (size_t)KN_PARTS * (size_t)p->x.n_rows * (size_t)p->n_out * sizeof(float);
	int rc = by_parts ? kn_cuda_room(b, &b->parts, room) : 0;
	float *parts = by_parts ? (float *)b->parts.at : NULL;
	/* Blocks with the same weights start one after the other, so that the first brings them for all. */
	if (rc == 0)
		rc = KN_LAUNCH(b->dev, (wgmma<TYPE, NT>), dim3(rows, outs, by_parts ? KN_PARTS : 1), THREADS,
			       P::stages * P::stage, *p, parts);
	return rc == 0 && by_parts ? kn_cuda_add_parts(b, p, parts) : rc;
}

template <int TYPE> static int product(struct kn_backend *b, const struct kn_product *p)
{
	const struct way way = best_way(b, p);
	return way.tiles == 8    ? launch<TYPE, 8>(b, p, way.by_parts)
	       : way.tiles == 16 ? launch<TYPE, 16>(b, p, way.by_parts)
				 : launch<TYPE, 24>(b, p, way.by_parts);
}

int kn_cuda_wgmma(struct kn_backend *b, int type, const struct kn_product *p)
{
	if (!dev_has_wgmma(b->dev))
		return KN_NOT_TAKEN;
	return type == KN_BF16       ? product<KN_BF16>(b, p)
	       : type == KN_F16      ? product<KN_F16>(b, p)
	       : type == KN_CUDA_FP8 ? product<KN_CUDA_FP8>(b, p)
				     : (int)KN_NOT_TAKEN;
}
