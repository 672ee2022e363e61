/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of many rows by warp groups, on devices that have them (kn_wgmma).
 *
 * A block computes 128 outputs for 64, 128 or 192 rows; each of its two warp groups has 64 outputs, whose weights its
 * lanes hold in the order in which they are stored (packed.h), and reads the activations of all rows from shared
 * memory. Asynchronous copies bring both to a ring of stages of two slabs. While a stage is multiplied, the next one's
 * weights are decoded. Weights with scales: 64 or 96 rows, a chunk of each output's record a stage, and each slab's
 * product, or that of as many as have one scale, is scaled and added by the lanes while the other group multiplies.
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
#include "kernels/cuda/rows.h"
#include "kernels/cuda/stages.h"

enum {
	WARPS = 8, /* two groups */
	THREADS = WARPS * KN_WARP,
	OUTS = WARPS * KN_OUTS,
	SLABS = 2, /* of a stage */
	STAGES_IN_CHUNK = KN_SLABS / SLABS,
	GROUP_TILES = 8, /* of rows of a group */
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
	const uint8_t *w;         /* the warp's */
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
			kn_cp_async16(to + at, from.w + (int64_t)i * SLABS * P::slab + lane * 16 + at);
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

/* ---- weights with scales ---- */

template <int TYPE, int NT> struct scaled_plan {
	static constexpr int record = kn_form<TYPE>::record, units = NT * KN_SLABS * KN_PIECE;
	static constexpr int sums = kn_form<TYPE>::has_min ? NT * KN_SLABS * KN_SUMS : 0;
	static constexpr int stage = units + sums + WARPS * record, stages = NT == 8 ? 3 : 2;
	static_assert(stages * stage <= 227 << 10, "what a block can have");
	static_assert(record % 16 == 0 && KN_SUMS % 16 == 0, "copies of 16 bytes");
};

#if KN_CODE_HAS_WGMMA

/* A lane's pieces of a record in shared memory, from those of a group of slabs on. */
struct shared_pieces {
	const uint8_t *at;
	__device__ struct kn_u4 operator[](int i) const { return kn_shared_load16(at + i * KN_PIECE); }
};

/* Starts loading chunk i of the warp's record and of the block's rows, if there is one. */
template <int TYPE, int NT>
__device__ static inline void fetch_chunk(const struct source &from, uint8_t *stages, int warp, int lane, int i)
{
	typedef struct scaled_plan<TYPE, NT> P;
	uint8_t *stage = stages + i % P::stages * P::stage;
	if (i < from.n) {
		uint8_t *to = stage + P::units + P::sums + warp * P::record;
		const uint8_t *record = from.w + (int64_t)i * P::record;
		const int slab = (from.first + i) * KN_SLABS;
		for (int at = lane * 16; at < P::record; at += KN_PIECE)
			kn_cp_async16(to + at, record + at);
		kn_fetch_rows<NT, KN_SLABS, KN_PIECE, THREADS>(from.p.x, from.p.x.units, stage, from.first_tile, slab);
		if (P::sums > 0)
			kn_fetch_rows<NT, KN_SLABS, KN_SUMS, THREADS>(from.p.x, from.p.x.sums, stage + P::units,
								      from.first_tile, slab);
	}
	kn_cp_async_commit();
}

/* A slab's quants, as operands. */
template <int TYPE>
__device__ static inline void take_quants(const uint8_t *record, int slab, int lane, uint32_t (*q)[4])
{
	typedef kn_form<TYPE> form;
	const struct shared_pieces piece = {record + slab / form::group * form::held * KN_PIECE + lane * 16};
	UNROLL_FOR(int half = 0; half < 2; half++)
		kn_quants<TYPE>(piece, slab % form::group, half, q[half]);
}

/* Starts part = the product of half j of the slab, or adds it. */
template <int NT>
__device__ static inline void start_half(const uint8_t *stage, int slab, int j, const uint32_t (*q)[4], bool add,
					 float (*part)[4])
{
	const uint32_t a[4] = {q[0][2 * j], q[1][2 * j], q[0][2 * j + 1], q[1][2 * j + 1]};
	const uint8_t *at = stage + slab * KN_PIECE + j * (KN_PIECE / 2);
	kn_wgmma<NT, false>(part, a, kn_matrices_at(at, KN_SLABS * KN_PIECE), add);
}

/* Adds the scaled product of half j, or of all that has one scale. */
template <int TYPE, int NT>
__device__ static inline void add_part(const uint8_t *sums, int slab, int lane, int j, const float (*scale)[2],
				       const float (*min)[2], const float (*part)[4], float (*sum)[4])
{
	UNROLL_FOR(int n = 0; n < NT; n++) {
		float xsum[2][2] = {};
		if (kn_form<TYPE>::has_min)
			kn_take_sums<TYPE>(kn_shared_load16(sums + (n * KN_SLABS + slab) * KN_SUMS + lane % 4 * 16),
					   xsum);
		kn_add_scaled<TYPE>(part[n], scale, min, xsum, j, sum[n]);
	}
}

template <int TYPE, int NT>
__device__ static inline void multiply_chunk(const uint8_t *stage, int warp, int lane, float (*sum)[4])
{
	typedef kn_form<TYPE> form;
	typedef struct scaled_plan<TYPE, NT> P;
	const uint8_t *record = stage + P::units + P::sums + warp * P::record;
	float part[NT][4], scale[2][2], min[2][2];
	uint32_t q[2][2][4];
	struct kn_heads heads[2];
	UNROLL_FOR(int n = 0; n < NT; n++)
		UNROLL_FOR(int i = 0; i < 4; i++)
			part[n][i] = 0;
	UNROLL_FOR(int half = 0; half < 2; half++)
		heads[half] = kn_load_heads<TYPE>(record, half * 8 + lane / 4);
	take_quants<TYPE>(record, 0, lane, q[0]);
	UNROLL_FOR(int slab = 0; slab < KN_SLABS; slab++) {
		constexpr int every = form::every;
		kn_wgmma_begin();
		start_half<NT>(stage, slab, 0, q[slab % 2], slab % every != 0, part);
		if (!form::by16)
			start_half<NT>(stage, slab, 1, q[slab % 2], true, part);
		kn_wgmma_commit();
		if (slab + 1 < KN_SLABS) /* meanwhile */
			take_quants<TYPE>(record, slab + 1, lane, q[(slab + 1) % 2]);
		UNROLL_FOR(int half = 0; half < 2; half++)
			kn_scales<TYPE>(heads[half], slab, scale[half], min[half]);
		kn_wgmma_wait<0>();
		if (form::by16 || slab % every == every - 1)
			add_part<TYPE, NT>(stage + P::units, slab, lane, 0, scale, min, part, sum);
		if (form::by16) {
			kn_wgmma_begin();
			start_half<NT>(stage, slab, 1, q[slab % 2], false, part);
			kn_wgmma_commit();
			kn_wgmma_wait<0>();
			add_part<TYPE, NT>(stage + P::units, slab, lane, 1, scale, min, part, sum);
		}
	}
}

#endif

#if KN_CODE_HAS_WGMMA

/* The warp's tile of outputs where blockIdx.y counts blocks of all outputs. */
__device__ static inline int tile_in_order() { return (int)blockIdx.y * WARPS + (int)threadIdx.x / KN_WARP; }

/* A warp's tile of outputs for NT tiles of rows from first_n on; by_parts: of part blockIdx.z. put(tile, lane, total,
 * sum): stores them; stages are free once the block has met. */
template <int TYPE, int NT, class PUT>
__device__ static inline void multiply_plain(const struct kn_product &p, bool by_parts, int first_n, int tile,
					     const PUT &put)
{
	typedef struct plan<TYPE, NT> P;
	int lane = (int)threadIdx.x % KN_WARP, warp = (int)threadIdx.x / KN_WARP;
	int n_tiles = (p.n_out + KN_OUTS - 1) / KN_OUTS;
	int first_part = by_parts ? (int)blockIdx.z : 0, end_part_ = by_parts ? first_part + 1 : (int)KN_PARTS;
	int begin = kn_part_begin(first_part, p.n_chunks), end = kn_part_begin(end_part_, p.n_chunks);
	/* A warp without outputs multiplies the last ones, since its group waits for it, and stores nothing. */
	int64_t row = (int64_t)(tile < n_tiles ? tile : n_tiles - 1) * p.n_chunks + begin;
	const struct source from = {p, p.w + row * KN_SLABS * P::slab, first_n, begin * STAGES_IN_CHUNK,
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
	put(tile, lane, total, sum);
}

/* The same for weights with scales. */
template <int TYPE, int NT, class PUT>
__device__ static inline void multiply_scaled(const struct kn_product &p, bool by_parts, int first_n, const PUT &put)
{
	typedef struct scaled_plan<TYPE, NT> P;
	int lane = (int)threadIdx.x % KN_WARP, warp = (int)threadIdx.x / KN_WARP;
	int tile = tile_in_order(), n_tiles = (p.n_out + KN_OUTS - 1) / KN_OUTS;
	int part = by_parts ? (int)blockIdx.z : 0, last_part = by_parts ? part + 1 : (int)KN_PARTS;
	int begin = kn_part_begin(part, p.n_chunks), end = kn_part_begin(last_part, p.n_chunks);
	int64_t row = (int64_t)(tile < n_tiles ? tile : n_tiles - 1) * p.n_chunks + begin;
	const struct source from = {p, p.w + row * P::record, first_n, begin, end - begin};
	uint8_t *stages = (uint8_t *)kn_shared();
	float sum[NT][4] = {}, total[NT][4] = {};
	for (int i = 0; i < P::stages - 1; i++)
		fetch_chunk<TYPE, NT>(from, stages, warp, lane, i);
	for (int i = 0; i < end - begin; i++) {
		for (; kn_part_begin(part + 1, p.n_chunks) <= begin + i; part++)
			end_part<NT>(sum, total);
		kn_cp_async_wait<P::stages - 2>();
		kn_wgmma_sees_shared();
		kn_barrier(); /* the stage is complete, and the one before is free */
		fetch_chunk<TYPE, NT>(from, stages, warp, lane, i + P::stages - 1);
		multiply_chunk<TYPE, NT>(stages + i % P::stages * P::stage, warp, lane, sum);
	}
	kn_cp_async_wait<0>();
	put(tile, lane, total, sum);
}

template <int TYPE, int NT, class PUT>
__device__ static inline void multiply_any(const struct kn_product &p, bool by_parts, int first_n, const PUT &put)
{
	if constexpr (kn_form<TYPE>::scaled == KN_PLAIN)
		multiply_plain<TYPE, NT>(p, by_parts, first_n, tile_in_order(), put);
	else
		multiply_scaled<TYPE, NT>(p, by_parts, first_n, put);
}

#endif

template <int TYPE, int NT> struct blocks_of {
	static constexpr int n = kn_form<TYPE>::scaled == KN_PLAIN ? plan<TYPE, NT>::blocks : 1;
};

/* parts: NULL, or [KN_PARTS][n_rows][n_out]; the block fills part blockIdx.z. */
template <int TYPE, int NT>
__global__ void __launch_bounds__(THREADS, (blocks_of<TYPE, NT>::n)) wgmma(struct kn_product p, float *parts)
{
	kn_begin();
#if KN_CODE_HAS_WGMMA
	int first_n = (int)blockIdx.x * NT;
	multiply_any<TYPE, NT>(p, parts != NULL, first_n,
			       [&](int tile, int lane, const float(*total)[4], const float(*sum)[4]) {
				       kn_put_tiles<NT>(p, parts, first_n, tile, lane, total, sum);
			       });
#endif
}

/* ---- with the gate that follows ---- */

enum {
	HALF = WARPS / 2 * KN_OUTS, /* outputs of a group */
	GATED = HALF + 8,           /* floats from row to row, so that few lanes meet in a bank */
};

#if KN_CODE_HAS_WGMMA

/* The group with the other half's outputs leaves them in shared memory, the one with the gates multiplies there. */
template <int NT, class OP>
__device__ static inline void gate_sums(const OP &op, const struct kn_product &p, bool gates, int tile,
					const float (*total)[4], const float (*sum)[4], float *gated)
{
	int lane = (int)threadIdx.x % KN_WARP, warp = (int)threadIdx.x / KN_WARP % (WARPS / 2);
	UNROLL_FOR(int n = 0; n < NT; n++)
		UNROLL_FOR(int e = 0; e < 4; e++) {
			int in = n * KN_ROWS + lane % 4 * 2 + e % 2, out = lane / 4 + e / 2 * 8;
			int row = (int)blockIdx.x * NT * KN_ROWS + in;
			float *at = gated + in * GATED + warp * KN_OUTS + out, v = total[n][e] + sum[n][e];
			v = row < p.x.n_rows ? kn_finished(p, row, tile * KN_OUTS + out, v) : 0;
			*at = gates ? op.of(v, *at) : v;
		}
}

#endif

/* A group has 64 outputs, the other one those of the second half that they are multiplied with; they become rows of the
 * next product. */
template <int TYPE, int NT, class OP>
__global__ void __launch_bounds__(THREADS, (plan<TYPE, NT>::blocks))
    wgmma_gated(OP op, struct kn_product p, struct kn_into to)
{
	kn_begin();
#if KN_CODE_HAS_WGMMA
	static_assert(NT * KN_ROWS * GATED * sizeof(float) <= plan<TYPE, NT>::stages * plan<TYPE, NT>::stage,
		      "it fits");
	bool gates = (int)threadIdx.x < THREADS / 2;
	int tile = (int)blockIdx.y * (WARPS / 2) + (int)threadIdx.x / KN_WARP % (WARPS / 2) +
		   (gates ? 0 : p.n_out / 2 / KN_OUTS);
	float *gated = (float *)kn_shared();
	multiply_plain<TYPE, NT>(p, false, (int)blockIdx.x * NT, tile,
				 [&](int, int, const float(*total)[4], const float(*sum)[4]) {
					 kn_barrier();
					 if (!gates)
						 gate_sums<NT>(op, p, false, tile, total, sum, gated);
					 kn_barrier();
					 if (gates)
						 gate_sums<NT>(op, p, true, tile, total, sum, gated);
				 });
	kn_barrier();
	for (int i = (int)threadIdx.x; i < NT * KN_ROWS * HALF / 4; i += THREADS) {
		int four = i % 4 + i / (4 * KN_ROWS) % (HALF / 16) * 4,
		    in = i / 4 % KN_ROWS + i / (KN_ROWS * HALF / 4) * KN_ROWS;
		int row = (int)blockIdx.x * NT * KN_ROWS + in;
		if (row < to.n_all)
			kn_put_units(to, row, (int)blockIdx.y * HALF + four * 4,
				     *(const struct kn_f4 *)(const void *)(gated + in * GATED + four * 4), 1.0f);
		if (row < to.n_all && blockIdx.y == 0 && four == 0)
			to.inverse[row] = 1;
	}
#endif
}

/* A block's group, behind its stages in shared memory: in registers there is no room for it. */
struct group_place {
	struct kn_product p;
	int there;
};

template <int TYPE, bool PLAIN> struct group_plan : plan<TYPE, GROUP_TILES> {
};
template <int TYPE> struct group_plan<TYPE, false> : scaled_plan<TYPE, GROUP_TILES> {
};

/* Bytes of a group's stages. */
template <int TYPE> struct group_stages {
	typedef struct group_plan<TYPE, kn_form<TYPE>::scaled == KN_PLAIN> P;
	static constexpr int bytes = P::stages * P::stage;
};

template <int TYPE>
__global__ void __launch_bounds__(THREADS, (blocks_of<TYPE, GROUP_TILES>::n))
    wgmma_grouped(struct kn_product p, struct kn_grouped g)
{
	kn_begin();
#if KN_CODE_HAS_WGMMA
	struct group_place *at = (struct group_place *)(void *)((uint8_t *)kn_shared() + group_stages<TYPE>::bytes);
	if (threadIdx.x == 0) {
		at->there = kn_take_group<TYPE>(g, (int)blockIdx.x, (int)blockIdx.z, &p);
		at->p = p;
	}
	kn_barrier();
	if (at->there)
		multiply_any<TYPE, GROUP_TILES>(
		    at->p, false, 0, [&](int tile, int lane, const float(*total)[4], const float(*sum)[4]) {
			    kn_put_tiles<GROUP_TILES>(at->p, NULL, 0, tile, lane, total, sum);
		    });
#endif
}

/* ---- which blocks ---- */

/* How a product is shared out: the tiles of rows that a block has, and whether it has one part of K. */
struct way {
	int tiles;
	bool by_parts;
};

/* About how long that takes. Measured: what two slabs take a multiprocessor, or two blocks there if they are narrow;
 * and the bytes of parts that it moves in a nanosecond. With scales: counted, 2 × 130 and 2 × 174 instructions of a
 * scheduler. */
static double ns_of(struct kn_backend *b, const struct kn_product *p, bool scaled, struct way way)
{
	const double stage_ns = scaled            ? (way.tiles == 8 ? 330 : 420)
				: way.tiles == 8  ? 640
				: way.tiles == 16 ? 556
						  : 680;
	const double part_bytes = 3000, launch_ns = 3000;
	int64_t rows = (p->x.n_rows + way.tiles * KN_ROWS - 1) / (way.tiles * KN_ROWS);
	int64_t blocks = rows * ((p->n_out + OUTS - 1) / OUTS) * (way.by_parts ? KN_PARTS : 1);
	int64_t at_once = dev_processors(b->dev) * (!scaled && way.tiles == 8 ? 2 : 1);
	int64_t waves = (blocks + at_once - 1) / at_once, stages = (int64_t)p->n_chunks * STAGES_IN_CHUNK;
	if (!way.by_parts)
		return (double)waves * stage_ns * (double)stages;
	return (double)waves * stage_ns * (double)((stages + KN_PARTS - 1) / KN_PARTS + 2) + launch_ns +
	       2.0 * KN_PARTS * sizeof(float) * p->x.n_rows * p->n_out / part_bytes;
}

static struct way best_way(struct kn_backend *b, const struct kn_product *p, bool scaled)
{
	static const int sizes[2][3] = {{24, 16, 8}, {12, 8, 0}};
	struct way best = {sizes[scaled][0], false};
	for (int i = 1; i < 6 && sizes[scaled][i / 2] > 0; i++) {
		const struct way w = {sizes[scaled][i / 2], i % 2 != 0};
		if (ns_of(b, p, scaled, w) < ns_of(b, p, scaled, best))
			best = w;
	}
	return best;
}

/* The kernel, which needs so much shared memory, in blocks of so many tiles. */
template <class K>
static int launch(struct kn_backend *b, const struct kn_product *p, struct way way, const char *name, K kernel,
		  size_t shared)
{
	unsigned outs = ((unsigned)p->n_out + OUTS - 1) / OUTS, each = (unsigned)way.tiles * KN_ROWS;
	unsigned rows = ((unsigned)p->x.n_rows + each - 1) / each;
	size_t room = (size_t)KN_PARTS * (size_t)p->x.n_rows * (size_t)p->n_out * sizeof(float);
	int rc = way.by_parts ? kn_cuda_room(b, &b->parts, room) : 0;
	float *parts = way.by_parts ? (float *)b->parts.at : NULL;
	/* Blocks with the same weights start one after the other, so that the first brings them for all. */
	if (rc == 0)
		rc = kn_launch(b->dev, name, kernel, dim3(rows, outs, way.by_parts ? KN_PARTS : 1), THREADS, shared, *p,
			       parts);
	return rc == 0 && way.by_parts ? kn_cuda_add_parts(b, p, parts) : rc;
}

template <int TYPE, int NT> static int plain(struct kn_backend *b, const struct kn_product *p, struct way way)
{
	typedef struct plan<TYPE, NT> P;
	size_t at = dev_recording(b->dev) != NULL ? dev_recording(b->dev)->n : 0;
	int rc = launch(b, p, way, "wgmma", wgmma<TYPE, NT>, P::stages * P::stage);
	if (!way.by_parts)
		b->last_wide = {at, dev_serial(b->dev), TYPE, NT};
	return rc;
}

/* The recorded product, if nothing followed it. */
static const struct kn_product *last_wide(struct kn_backend *b)
{
	struct kn_list *l = dev_recording(b->dev);
	if (l == NULL || b->last_wide.serial != dev_serial(b->dev) || b->last_wide.at >= l->n)
		return NULL;
	return (const struct kn_product *)kn_args_of(kn_list_at(l, b->last_wide.at));
}

template <int NT, class OP>
static int launch_gated(struct kn_backend *b, OP op, const struct kn_product &p, const struct kn_into &to)
{
	typedef struct plan<KN_BF16, NT> P;
	constexpr int each = NT * KN_ROWS;
	dim3 grid((unsigned)((p.x.n_rows + each - 1) / each), (unsigned)(p.n_out / 2 / HALF));
	return kn_launch(b->dev, "wgmma_gated", wgmma_gated<KN_BF16, NT, OP>, grid, THREADS, P::stages * P::stage, op,
			 p, to);
}

template <class OP> static int gated(struct kn_backend *b, OP op, const struct kn_product &p, const struct kn_into &to)
{
	int tiles = b->last_wide.tiles;
	return tiles == 8    ? launch_gated<8>(b, op, p, to)
	       : tiles == 16 ? launch_gated<16>(b, op, p, to)
			     : launch_gated<24>(b, op, p, to);
}

int kn_cuda_wgmma_gated(struct kn_backend *b, const float *y, int n_out, bool gelu, const struct kn_into *to)
{
	const struct kn_product *last = last_wide(b);
	/* Whole chunks of the next product's rows, whose padding nobody else would write. */
	if (last == NULL || last->y != y || last->n_out != n_out || b->last_wide.type != KN_BF16 ||
	    n_out / 2 % KN_CHUNK != 0 || last->x.n_rows != to->n_rows)
		return KN_NOT_TAKEN;
	struct kn_product p = *last;
	kn_list_undo(b->dev, b->last_wide.at);
	return gelu ? gated(b, gelu_mul{}, p, *to) : gated(b, silu_mul{}, p, *to);
}

template <int TYPE, int NT> static int scaled(struct kn_backend *b, const struct kn_product *p, struct way way)
{
	typedef struct scaled_plan<TYPE, NT> P;
	return launch(b, p, way, "wgmma_scaled", wgmma<TYPE, NT>, P::stages * P::stage);
}

int kn_cuda_wgmma(struct kn_backend *b, int type, const struct kn_product *p)
{
	if (!dev_has_wgmma(b->dev))
		return KN_NOT_TAKEN;
	return kn_of_packed(type, (int)KN_NOT_TAKEN, [&](auto t) {
		constexpr int of = decltype(t)::type;
		constexpr bool has_scales = kn_form<of>::scaled != KN_PLAIN;
		const struct way way = best_way(b, p, has_scales);
		if constexpr (has_scales)
			return way.tiles == 8 ? scaled<of, 8>(b, p, way) : scaled<of, 12>(b, p, way);
		else
			return way.tiles == 8    ? plain<of, 8>(b, p, way)
			       : way.tiles == 16 ? plain<of, 16>(b, p, way)
						 : plain<of, 24>(b, p, way);
	});
}

template <int TYPE>
static int launch_grouped(struct kn_backend *b, const struct kn_product *p, const struct kn_grouped *g)
{
	dim3 grid((unsigned)g->most, ((unsigned)p->n_out + OUTS - 1) / OUTS, (unsigned)g->n_sides);
	return KN_LAUNCH(b->dev, wgmma_grouped<TYPE>, grid, THREADS,
			 group_stages<TYPE>::bytes + sizeof(struct group_place), *p, *g);
}

int kn_cuda_wgmma_grouped(struct kn_backend *b, int type, const struct kn_product *p, const struct kn_grouped *g)
{
	if (!dev_has_wgmma(b->dev) || g->rows > GROUP_TILES * KN_ROWS)
		return KN_NOT_TAKEN;
	return kn_of_packed(type, (int)KN_NOT_TAKEN,
			    [&](auto t) { return launch_grouped<decltype(t)::type>(b, p, g); });
}
