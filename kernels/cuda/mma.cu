/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows on matrix units; weights are decoded on the way.
 *
 * A block computes 128 outputs for 32 or 64 rows; each of its eight warps computes a tile of 16 outputs for all of
 * them. Asynchronous copies bring activations and their sums to a ring of stages in shared memory, half a chunk each.
 * Weights go from memory to registers in storage order (packed.h), each to one warp of one block: while a group of
 * slabs is multiplied, the next is on its way, and a hint brings what follows to the second-level cache. Blocks with
 * the same weights and other rows start one after the other, so that the first brings them for all.
 *
 * If that gives too few blocks for the device (few rows, a small matrix), each block computes one part of K into
 * scratch memory, and another kernel adds the parts in the same order: the bits are the same.
 *
 * VERSIONS
 *  3  this one: 2 without spills. One address for a thread's copies; for Q2_K, Q3_K, Q5 and Q6_K at more than 32 rows
 *     no loads of the next slab's activations while this one is decoded: 255 registers and up to 80 bytes of stack for
 *     sm_80 became 186 to 209. On an H200: 210 TFLOP/s for 8192³ of bf16, 219 and 682 us for the products of an 8B layer and
 *     64 and 256 rows, where memory and the matrix units take 99 and 142: two warps a scheduler wait for shared memory.
 *  2  1 read each weight four times (two warps, and four-bit types again for the second half of a chunk), the
 *     last three from the second-level cache, and asked for it right before its use: 8 KiB on their way per
 *     multiprocessor, where 4.3 TB/s want 23. Now once, for 8 warps × 2 KiB in registers and 48 KiB by hints. 64 rows:
 *     activations are 128 bytes per 128 outputs and k, four-bit weights 72, so the second-level cache bounds them;
 *     32 rows: memory does. That is why there is no matvec for 32 rows: with 16 outputs a block, 64 bytes of
 *     activations would go with 9 of weights. Counted for a slab of a warp (16 outputs × 64 rows, 16 instructions of
 *     the matrix unit): 8 loads of 16 bytes from shared memory (4 KiB, 32 cycles), 8 of sums for types with minimums
 *     (before: 64 of 4 bytes from the cache), for Q4_K 22 to decode instead of 44 and 12 for scales instead of 24.
 *     Parts of K are used for fewer than 96 blocks (before: 264, where 64 rows of 28672 outputs wrote 59 MB).
 *     Prompts: weights come from memory once, not for each 64 rows.
 *  1  32 outputs a warp, two warps to each 32 rows of 64. Counted for a slab of a warp (32 outputs × 32 rows × 32
 *     weights, 16 instructions of the matrix unit, 32768 multiply-adds, 101 cycles of a scheduler at the 1300 a cycle
 *     that mma.sync reaches on a multiprocessor): 4 loads of 16 bytes from shared memory (2 KiB, 16 cycles of its 128
 *     bytes, of 25), for Q4_K 44 to decode, 24 for scales, 64 multiply-adds and 32 clears: 184 issue slots, so 55 % of
 *     mma.sync's rate or a third of wgmma's; Q8_0 32 + 8 + 32 + 32 + 20: 80 %; bf16 and f16 24: the matrix unit's. An
 *     inner loop over wgmma would be the next step; it is not emulated. Not measured on a device.
 */
#include "kernels/cuda/stages.h"

enum {
	WARPS = 8, /* each computes a tile of outputs for all rows of the block */
	THREADS = WARPS * KN_WARP,
	STAGE_SLABS = KN_SLABS / 2,
	FEW = 4, /* tiles of rows per block: for up to 32 rows, and for more */
	MANY = 8,
	FEW_BLOCKS = 96, /* fewer leave too much of a large device idle */
};

/* How a kernel lays out its shared memory: a ring of stages, half a chunk of the block's rows each, then its sums. */
template <int TYPE, int NT> struct plan {
	static constexpr int units = NT * STAGE_SLABS * KN_PIECE, sums = NT * STAGE_SLABS * KN_SUMS;
	static constexpr int stage = units + (kn_form<TYPE>::has_min ? sums : 0);
	static constexpr int stages = NT == MANY ? 2 : 4;
	static_assert(stages * stage <= 48 << 10, "more than every device has");
	/* Chunks between a hint and the loads: with the eight warps' registers, some 64 KiB on their way. */
	static constexpr int ahead = 6144 / kn_form<TYPE>::record + 1;
};

/* Starts loading half a chunk (the half-th) of the block's rows into its stage. */
template <int TYPE, int NT>
__device__ static inline void fetch(const struct kn_product &p, uint8_t *stages, int first_tile, int half, int end)
{
	typedef struct plan<TYPE, NT> P;
	uint8_t *stage = stages + half % P::stages * P::stage;
	if (half < end) {
		const int slab = half * STAGE_SLABS;
		kn_fetch_rows<NT, STAGE_SLABS, KN_PIECE, THREADS>(p.x, p.x.units, stage, first_tile, slab);
		if (kn_form<TYPE>::has_min)
			kn_fetch_rows<NT, STAGE_SLABS, KN_SUMS, THREADS>(p.x, p.x.sums, stage + P::units, first_tile,
									 slab);
	}
	kn_cp_async_commit(); /* even if empty, so that groups correspond to stages */
}

/* Weights of a chunk's group that a warp holds, and the heads of the chunk. */
template <int TYPE> struct held {
	struct kn_u4 piece[kn_form<TYPE>::held];
};

template <int TYPE>
__device__ static inline void take_heads(const uint8_t *record, int lane, struct kn_heads (*heads)[2])
{
	if (kn_form<TYPE>::scaled != KN_PLAIN)
		UNROLL_FOR(int half = 0; half < 2; half++)
			(*heads)[half] = kn_load_heads<TYPE>(record, half * 8 + lane / 4);
}

/* Asks for a record's lines; they are loaded later. */
template <int TYPE> __device__ static inline void hint(const uint8_t *record, int lane)
{
	for (int at = lane * 128; at < kn_form<TYPE>::record; at += KN_WARP * 128)
		kn_prefetch(record + at);
}

/* Adds a slab, from a stage in shared memory, to the warp's sums. */
template <int TYPE, int NT>
__device__ static inline void add_slab(const uint8_t *stage, const struct held<TYPE> &w, const struct kn_heads *heads,
				       int slab, int lane, float (*unscaled)[4], float (*sum)[4])
{
	typedef kn_form<TYPE> form;
	struct kn_u4 x[NT];
	float xsum[NT][2][2] = {};
	UNROLL_FOR(int n = 0; n < NT; n++) {
		int at = n * STAGE_SLABS + slab % STAGE_SLABS;
		const uint8_t *unit = stage + at * KN_PIECE;
		uint32_t pairs[4];
		/* ldmatrix is one instruction, but the compiler may not move it to where the pairs are needed. */
		if constexpr (form::scaled == KN_PLAIN)
			kn_ldmatrix_x4(pairs, unit + lane * 16);
		else
			UNROLL_FOR(int i = 0; i < 4; i++)
				pairs[i] = kn_shared_load4(unit + i * (KN_PIECE / 4) + lane * 4);
		x[n] = {pairs[0], pairs[1], pairs[2], pairs[3]};
		if (form::has_min)
			kn_take_sums<TYPE>(
			    kn_shared_load16(stage + plan<TYPE, NT>::units + at * KN_SUMS + lane % 4 * 16), xsum[n]);
	}
	kn_slab_product<TYPE, NT>(w.piece, heads, slab % form::group, slab, x, xsum, unscaled, sum);
}

/* parts: NULL, or [KN_PARTS][n_rows][n_out]; the block fills part blockIdx.z. first_n: its first tile of rows. */
template <int TYPE, int NT>
__device__ static inline void multiply(const struct kn_product &p, float *parts, int first_n)
{
	typedef kn_form<TYPE> form;
	typedef struct plan<TYPE, NT> P;
	int lane = (int)threadIdx.x % KN_WARP, warp = (int)threadIdx.x / KN_WARP;
	int tile = (int)blockIdx.y * WARPS + warp;
	bool busy = tile * KN_OUTS < p.n_out; /* the same in all lanes */
	int first_part = parts != NULL ? (int)blockIdx.z : 0, end_part = parts != NULL ? first_part + 1 : (int)KN_PARTS;
	int begin = kn_part_begin(first_part, p.n_chunks), end = kn_part_begin(end_part, p.n_chunks);
	const uint8_t *record = p.w + ((int64_t)tile * p.n_chunks + begin) * form::record;
	uint8_t *stages = (uint8_t *)kn_shared();
	float sum[NT][4] = {}, total[NT][4] = {}, unscaled[NT][4] = {};
	held<TYPE> now = {}, next = {};
	/* Many rows, or long heads, leave no registers for the next ones. */
	constexpr bool heads_early = NT == FEW && form::first + form::second < 32;
	/* Nor for the next slab's activations, where decoding takes many. */
	constexpr bool in_order = NT == MANY && (form::by16 || form::more > 0);
	struct kn_heads heads[2] = {}, next_heads[2] = {};
	int part = first_part, half = 2 * begin;
	if (busy && begin < end) {
		kn_load_pieces<TYPE>(record, 0, lane, now.piece);
		take_heads<TYPE>(record, lane, &heads);
		for (int i = 1; i < P::ahead && begin + i < end; i++)
			hint<TYPE>(record + i * form::record, lane);
	}
	for (int i = 0; i < P::stages - 1; i++)
		fetch<TYPE, NT>(p, stages, first_n, half + i, 2 * end);
	for (int chunk = begin; chunk < end; chunk++) {
		while (kn_part_begin(part + 1, p.n_chunks) <= chunk) {
			part++;
			UNROLL_FOR(int n = 0; n < NT; n++)
				UNROLL_FOR(int i = 0; i < 4; i++) {
					total[n][i] += sum[n][i];
					sum[n][i] = 0;
				}
		}
		if (busy && chunk + P::ahead < end)
			hint<TYPE>(record + P::ahead * form::record, lane);
		const uint8_t *stage = stages;
		UNROLL_FOR(int slab = 0; slab < KN_SLABS; slab++) {
			if (slab % form::group == 0) { /* the next group's weights are on their way meanwhile */
				bool last = slab + form::group == KN_SLABS;
				if (busy && (!last || chunk + 1 < end))
					kn_load_pieces<TYPE>(record + (last ? form::record : 0),
							     last ? 0 : slab + form::group, lane, next.piece);
				if (last && heads_early && busy && chunk + 1 < end)
					take_heads<TYPE>(record + form::record, lane, &next_heads);
			}
			if (slab % STAGE_SLABS == 0) {
				kn_cp_async_wait<P::stages - 2>();
				kn_barrier(); /* the stage is complete, and the preceding one is free */
				fetch<TYPE, NT>(p, stages, first_n, half + P::stages - 1, 2 * end);
				stage = stages + half % P::stages * P::stage;
				half++;
			}
			if (in_order)
				kn_in_order();
			if (busy)
				add_slab<TYPE, NT>(stage, now, heads, slab, lane, unscaled, sum);
			if (slab % form::group == form::group - 1)
				now = next;
		}
		record += form::record;
		if (heads_early) {
			heads[0] = next_heads[0];
			heads[1] = next_heads[1];
		} else if (busy && chunk + 1 < end) {
			take_heads<TYPE>(record, lane, &heads);
		}
	}
	kn_cp_async_wait<0>();
	kn_put_tiles<NT>(p, parts, first_n, tile, lane, total, sum);
}

template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 1) mma(struct kn_product p, float *parts)
{
	kn_begin();
	multiply<TYPE, NT>(p, parts, (int)blockIdx.x * NT);
}

template <int TYPE, int NT>
__global__ void __launch_bounds__(THREADS, 1) mma_grouped(struct kn_product p, struct kn_grouped g)
{
	kn_begin();
	if (kn_take_group<TYPE>(g, (int)blockIdx.x, (int)blockIdx.z, &p))
		multiply<TYPE, NT>(p, NULL, 0);
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

int kn_cuda_add_parts(struct kn_backend *b, const struct kn_product *p, const float *parts)
{
	int64_t all = (int64_t)p->x.n_rows * p->n_out;
	return KN_LAUNCH(b->dev, add_parts, (unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, *p, parts);
}

template <int TYPE, int NT> static int launch(struct kn_backend *b, const struct kn_product *p)
{
	unsigned outs = ((unsigned)kn_cuda_tiles(p->n_out) + WARPS - 1) / WARPS;
	unsigned rows = ((unsigned)p->x.n_rows + NT * KN_ROWS - 1) / (NT * KN_ROWS);
	size_t shared = plan<TYPE, NT>::stages * plan<TYPE, NT>::stage;
	/* Blocks with the same weights start one after the other. */
	if (outs * rows >= FEW_BLOCKS)
		return KN_LAUNCH(b->dev, (mma<TYPE, NT>), dim3(rows, outs), THREADS, shared, *p, (float *)NULL);
	int64_t all = (int64_t)p->x.n_rows * p->n_out;
	int rc = kn_cuda_room(b, &b->parts, (size_t)(all * KN_PARTS) * sizeof(float));
	float *parts = (float *)b->parts.at;
	if (rc == 0)
		rc = KN_LAUNCH(b->dev, (mma<TYPE, NT>), dim3(rows, outs, KN_PARTS), THREADS, shared, *p, parts);
	return rc == 0 ? kn_cuda_add_parts(b, p, parts) : rc;
}

int kn_cuda_mma(struct kn_backend *b, int type, const struct kn_product *p)
{
	return kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		constexpr int of = decltype(t)::type;
		return p->x.n_rows <= FEW * KN_ROWS ? launch<of, FEW>(b, p) : launch<of, MANY>(b, p);
	});
}

template <int TYPE, int NT>
static int launch_grouped(struct kn_backend *b, const struct kn_product *p, const struct kn_grouped *g)
{
	unsigned outs = ((unsigned)kn_cuda_tiles(p->n_out) + WARPS - 1) / WARPS;
	size_t shared = plan<TYPE, NT>::stages * plan<TYPE, NT>::stage;
	/* Groups of one matrix are adjacent, so the first brings it for all. */
	return KN_LAUNCH(b->dev, (mma_grouped<TYPE, NT>), dim3((unsigned)g->most, outs, (unsigned)g->n_sides), THREADS,
			 shared, *p, *g);
}

int kn_cuda_mma_grouped(struct kn_backend *b, int type, const struct kn_product *p, const struct kn_grouped *g)
{
	return kn_of_packed(type, (int)SL_EUNSUPPORTED, [&](auto t) {
		constexpr int of = decltype(t)::type;
		return g->rows <= FEW * KN_ROWS ? launch_grouped<of, FEW>(b, p, g) : launch_grouped<of, MANY>(b, p, g);
	});
}
