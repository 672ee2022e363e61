/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over pages of float16, bfloat16 and 8-bit numbers on tensor cores (Dao, "FlashAttention-2", 2023; split
 * along the sequence as in Dao et al., "Flash-Decoding", 2023), for runs of rows. Single rows: attention_alone.h, which
 * has the same results, bit for bit.
 *
 * A warp has 16 queries, the rows of a matrix operation. It iterates over tiles of 64 positions: scores, their
 * maximum and exponentials, and weighted values added to those of the block's preceding tiles. Each block of
 * KN_ATTN_BLOCK positions starts anew and is merged as in attention.h. A query's result depends only on its own row
 * of the matrices; a fully masked tile changes nothing. So its bits depend neither on other queries nor on the other
 * warps of the thread block, which share pages.
 *
 * Pages arrive in shared memory unit by unit (attention_units.h), several units ahead of the computation and across
 * tiles and blocks; ldmatrix rearranges keys and values for the matrix operation.
 *
 * Precision. Queries become 16-bit, each with a power of two as factor so that it neither overflows nor underflows.
 * 8-bit keys are exact in float16, and their scale multiplies the score; values become float16 with their scale (a
 * scale above 65504/127, or /448, is clamped to that). Weights become 16-bit relative to the largest so far; their
 * sums stay float32. So in addition to float32's rounding, the error is 2^-11 (bfloat16: 2^-8) of each |q·k| and of
 * each weighted value, and another 2^-11 for 8-bit values.
 *
 * A position that a query must not see gets weight zero, and value zero if no query of the thread block sees it: its
 * page may be unwritten.
 *
 * VERSIONS
 *   4  as 3, without single rows: one warp a block of positions took 53.9 us for a sequence of 1024 on an H200.
 *   3  as 2; the build no longer splits a file's kernels before ptxas (--split-compile of nvcc), which made up to 352
 *     bytes of local memory in kernels for sm_100 and sm_120, in others with each build. Parts are merged at the end
 *     (attention_merge.h).
 *   2  as 1, without spills. Rows of matrices are found from two or four addresses a unit (248 registers became 222 for
 *     prompts of head_dim 128); merged values wait in the result's own memory between blocks of positions, not in a
 *     second set of accumulators; three quarters of the queries of head_dim 256 (decodes: all) are in shared memory:
 *     one more load of 16 bytes a lane beside each ldmatrix of keys. Spilled before, for sm_90 and float16: 2,292 bytes
 *     (256, prompts without parts), 556 (with), 416 (decodes), 592 (128, prompts without parts). A page is
 *     looked up once for 16 rows of values, not for each row: 6,160 instructions for decodes of head_dim 128, 10,224 before.
 *   1  as above. Counted for head_dim 128, per 256 positions of a key head, float16 (128 KiB of pages).
 *     Decode, one warp: 256 cp.async of 512 bytes and some 15 instructions around each, 256 ldmatrix, 512 mma, 128
 *     scores per lane at about 12 instructions, 256 rescalings of the sums so far: about 7,000 instructions. One SM of
 *     an H200 takes 7,000 cycles for the bytes (4.3 TB/s, 132 SMs, 1.755 GHz) and issues 4 instructions a cycle, so
 *     this is a quarter of its rate. 8 bits: the same work for half the bytes, plus twice 8 instructions per 16 bytes:
 *     a little over half. Each warp has three units of 4 KiB in flight; 8 warps fit an SM by registers (232 for sm_90,
 *     no spills): 96 KiB, where 33 KiB cover a microsecond. Parts cost 4 + 4 bytes per value and query head: 3 % of the
 *     traffic for groups of 4, in the L2 cache up to about 50 MB.
 *     Prompts: one ldmatrix (512 bytes, 4 cycles) feeds two mma (4096 multiply-adds): at most 1,024 a cycle, half of
 *     the rate of wgmma on a Hopper SM and four fifths of that of mma.sync.
 *     Tried: unrolled loops of units (4 minutes of compiling, the same registers), 12 warps an SM (80 spilled words in
 *     the loop).
 *     Expected: 75 to 85 % of copy bandwidth for 64 sequences of 4096; 0.7 to 0.85 of FlashAttention-2 for prompts. Not
 *     measured on a device yet.
 *     Keys transposed within a page cost nothing: with pages of 16 tokens or more, every load is 16 bytes of a
 *     contiguous block, and ldmatrix.trans reads keys as it reads values. Pages whose number of tokens is not a power
 *     of two of at least 8 (8-bit: 16), and heads that are not a multiple of 8 (16), are loaded one number at a time.
 */
#ifndef KERNELS_CUDA_ATTENTION_MMA_H
#define KERNELS_CUDA_ATTENTION_MMA_H

#include "kernels/cuda/attention_units.h"

enum {
	QUERIES = 16,       /* per warp: rows of a matrix operation */
	COLUMNS = TILE / 8, /* column tiles of matrix operations in a tile */
	MOST_WIDE = 256,    /* head_dim */
};

/* Thread blocks per multiprocessor, which bounds the registers of a thread. */
#ifdef KN_EMULATED
#define BLOCKS_AT_LEAST(threads, blocks)
#define IN_PLACE
#else
#define BLOCKS_AT_LEAST(threads, blocks) __launch_bounds__(threads, blocks)
#define IN_PLACE const __grid_constant__
#endif

/* ---- a warp's queries ---- */

template <int KIND> __device__ static inline void multiply(float *d, const uint32_t *a, const uint32_t *b)
{
	if (KIND == BRAIN)
		kn_mma_bf16_16816(d, a, b);
	else
		kn_mma_f16_16816(d, a, b);
}

/* Each lane has queries lane / 4 and lane / 4 + 8 of the warp (index 0 and 1), and columns 2 (lane % 4) and the next of
 * each matrix of 8 columns. */
template <class P> struct queries {
	int from, to;         /* positions that some query of the warp sees */
	int all_from, all_to; /* positions that all of them see */
	float factor[2];      /* from a product to the score, before any cap */
	uint32_t q[P::kept][4];
	struct kn_u4 *rest; /* this lane's, P::threads apart */
};

/* Operand k of the queries. */
template <class P> __device__ static inline void take_query(const struct queries<P> &w, int k, uint32_t *a)
{
	if (k < P::kept) {
		UNROLL_FOR(int e = 0; e < 4; e++)
			a[e] = w.q[k < P::kept ? k : 0][e];
		return;
	}
	struct kn_u4 v = kn_shared_load16(&w.rest[(k - P::kept) * P::threads]);
	a[0] = v.x;
	a[1] = v.y;
	a[2] = v.z;
	a[3] = v.w;
}

/* Loads the warp's queries, from query `begin` of the item on. */
template <int KIND, int WIDE, class P>
__device__ static inline void find_queries(const struct kn_attn_call &c, const struct kn_item &item, int kv_head,
					   int begin, int lane, struct queries<P> *w)
{
	int n = item.n_rows * c.group, hd = c.pages.head_dim;
	int last = begin + QUERIES < n ? begin + QUERIES : n;
	w->from = w->all_to = INT32_MAX;
	w->to = w->all_from = 0;
	for (int r = begin / c.group; r * c.group < last; r++) {
		int first, end;
		kn_seen_by(c, item.row + r, &first, &end);
		w->from = first < w->from ? first : w->from;
		w->all_from = first > w->all_from ? first : w->all_from;
		w->to = end > w->to ? end : w->to;
		w->all_to = end < w->all_to ? end : w->all_to;
	}
	UNROLL_FOR(int j = 0; j < 2; j++) {
		int i = begin + lane / 4 + 8 * j;
		const float *q = NULL;
		if (i < n) {
			int row = item.row + i / c.group;
			q = c.q + (int64_t)row * c.attn.q_row + (kv_head * c.group + i % c.group) * hd;
		}
		float value[WIDE / 16][4], most = 0;
		UNROLL_FOR(int k = 0; k < WIDE / 16; k++)
			UNROLL_FOR(int e = 0; e < 4; e++) {
				int d = 16 * k + 2 * (lane % 4) + e % 2 + e / 2 * 8;
				value[k][e] = q != NULL && d < hd ? q[d] : 0.0f;
				most = fmaxf(most, fabsf(value[k][e]));
			}
		most = fmaxf(most, kn_shuffle_xor(most, 1));
		most = fmaxf(most, kn_shuffle_xor(most, 2));
		/* Multiplied by 2^-exp, all are below 2. */
		int exp = (int)(kn_float_bits(most) >> 23) - 127;
		exp = exp < -100 ? -100 : exp > 100 ? 100 : exp;
		float down = kn_bits_float((uint32_t)(127 - exp) << 23);
		w->factor[j] =
		    c.attn.scale * kn_bits_float((uint32_t)(127 + exp) << 23) * (c.type == KN_FP8 ? 256.0f : 1.0f);
		w->factor[j] *= c.attn.softcap > 0 ? 1.0f / c.attn.softcap : LOG2_E;
		UNROLL_FOR(int k = 0; k < WIDE / 16; k++) {
			uint32_t low = pair_of<KIND>(value[k][0] * down, value[k][1] * down);
			uint32_t high = pair_of<KIND>(value[k][2] * down, value[k][3] * down);
			if (k < P::kept) {
				w->q[k < P::kept ? k : 0][j] = low;
				w->q[k < P::kept ? k : 0][2 + j] = high;
				continue;
			}
			uint32_t *rest = &w->rest[(k - P::kept) * P::threads].x;
			rest[j] = low;
			rest[2 + j] = high;
		}
	}
}

/* Where a lane's rows of matrices are in a unit whose rows have N chunks: few addresses, to which the others have a
 * constant distance. */
template <int N> struct spots {
	static constexpr int n = N < 8 ? N / 2 : 4;
	const unsigned char *at[n];
};

template <int N> __device__ static inline struct spots<N> find_spots(const unsigned char *unit, int lane) {
	struct spots<N> s;
	UNROLL_FOR(int i = 0; i < s.n; i++)
		s.at[i] = unit + 16 * place_of<N>(lane / 8 % 2 * 8 + lane % 8, 2 * i + lane / 16);
	return s;
}

/* Loads four 8 × 8 matrices from rows row…row + 15 of a unit: the upper and the lower matrix of chunk `chunk`, then those
 * of the next chunk. row: a multiple of 16; chunk: an even number. */
template <int N>
__device__ static inline void take_matrices(const struct spots<N> &s, int row, int chunk, uint32_t *b)
{
	kn_ldmatrix_x4_trans(b, s.at[chunk / 2 % s.n] + 16 * (row * N + chunk / 8 * 8));
}

/* Multiplies the queries with unit i of a tile's keys, into the unit's columns of s[COLUMNS][4]. */
template <int KIND, int WIDE, class P>
__device__ static inline void take_keys(const struct queries<P> &w, int hd, const unsigned char *unit,
					const float *scales, int lane, int i, float (*s)[4])
{
	float sum[P::keys / 8][4];
	UNROLL_FOR(int n = 0; n < P::keys / 8; n++)
		UNROLL_FOR(int e = 0; e < 4; e++)
			sum[n][e] = 0;
	struct spots<P::keys / 8> spots = find_spots<P::keys / 8>(unit, lane);
	UNROLL_FOR(int k = 0; k < WIDE / 16; k++) {
		if (16 * k >= hd)
			continue;
		uint32_t a[4];
		take_query(w, k, a);
		UNROLL_FOR(int n = 0; n < P::keys / 8; n += 2) {
			uint32_t b[4];
			take_matrices(spots, 16 * k, n, b);
			multiply<KIND>(sum[n], a, b);
			multiply<KIND>(sum[n + 1], a, b + 2);
		}
	}
	/* Registers cannot be indexed, so every unit's columns are tested. */
	UNROLL_FOR(int n = 0; n < COLUMNS; n++)
		UNROLL_FOR(int e = 0; e < 4; e++) {
			int in = n % (P::keys / 8);
			if (n / (P::keys / 8) != i)
				continue;
			s[n][e] = KIND == EIGHT ? sum[in][e] * scales[8 * in + lane % 4 * 2 + e % 2] : sum[in][e];
		}
}

/* A query's positions, as kn_seen_by; none if there is no such query. Looked up again where a tile is masked, since
 * registers are short. t: the thread. */
__device__ static inline void seen_by_query(const struct kn_attn_call &c, int t, int j, int *first, int *end)
{
	struct kn_item item = c.items[blockIdx.x];
	int warp = (int)blockIdx.y % c.n_tiles * ((int)blockDim.x / KN_WARP) + t / KN_WARP;
	int i = warp * QUERIES + t % KN_WARP / 4 + 8 * j;
	*first = *end = 0;
	if (i < item.n_rows * c.group)
		kn_seen_by(c, item.row + i / c.group, first, end);
}

/* Turns products into base-2 scores: -INFINITY where a query does not see the position. */
template <class P>
__device__ static inline void score(const struct kn_attn_call &c, const struct queries<P> &w, int begin, int t,
				    float (*s)[4])
{
	bool masked = begin < w.all_from || begin + TILE > w.all_to;
	float cap = c.attn.softcap * LOG2_E;
	int first[2] = {}, end[2] = {};
	if (masked)
		UNROLL_FOR(int j = 0; j < 2; j++)
			seen_by_query(c, t, j, &first[j], &end[j]);
	UNROLL_FOR(int n = 0; n < COLUMNS; n++)
		UNROLL_FOR(int e = 0; e < 4; e++) {
			float x = s[n][e] * w.factor[e / 2];
			if (cap > 0)
				x = cap * tanhf(x);
			if (masked) {
				int pos = begin + 8 * n + t % 4 * 2 + e % 2;
				x = pos >= first[e / 2] && pos < end[e / 2] ? x : -INFINITY;
			}
			s[n][e] = x;
		}
}

/* The running state of a block of positions; sums cover this lane's columns. */
template <int WIDE> struct so_far {
	float max[2], sum[2];
	float value[WIDE / 8][4];
};

template <int WIDE> __device__ static inline void begin_block(struct so_far<WIDE> *b)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		b->max[j] = -INFINITY;
		b->sum[j] = 0;
	}
	UNROLL_FOR(int n = 0; n < WIDE / 8; n++)
		UNROLL_FOR(int e = 0; e < 4; e++)
			b->value[n][e] = 0;
}

/* Turns a tile's scores into weights relative to the largest so far, and rescales the state to match. */
template <int WIDE> __device__ static inline void weigh(float (*s)[4], struct so_far<WIDE> *b)
{
	float keep[2];
	UNROLL_FOR(int j = 0; j < 2; j++) {
		float max = b->max[j], total = 0;
		UNROLL_FOR(int n = 0; n < COLUMNS; n++)
			max = fmaxf(max, fmaxf(s[n][2 * j], s[n][2 * j + 1]));
		max = fmaxf(max, kn_shuffle_xor(max, 1));
		max = fmaxf(max, kn_shuffle_xor(max, 2));
		float base = max > -INFINITY ? max : 0.0f; /* no position seen yet: all weights are 0 */
		keep[j] = exp2f(b->max[j] - base);
		UNROLL_FOR(int n = 0; n < COLUMNS; n++)
			UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++) {
				s[n][e] = exp2f(s[n][e] - base);
				total += s[n][e];
			}
		b->sum[j] = b->sum[j] * keep[j] + total;
		b->max[j] = max;
	}
	UNROLL_FOR(int n = 0; n < WIDE / 8; n++)
		UNROLL_FOR(int e = 0; e < 4; e++)
			b->value[n][e] *= keep[e / 2];
}

/* Rounds weights to operands of matrix operations. */
template <int KIND> __device__ static inline void round_weights(float (*s)[4], uint32_t (*a)[4])
{
	UNROLL_FOR(int k = 0; k < TILE / 16; k++)
		UNROLL_FOR(int e = 0; e < 4; e++)
			a[k][e] = pair_of<KIND>(s[2 * k + e / 2][e % 2 * 2], s[2 * k + e / 2][e % 2 * 2 + 1]);
}

/* Adds unit i of a tile's values, times the weights of its positions. */
template <int KIND, int WIDE, class P>
__device__ static inline void take_values(uint32_t (*weights)[4], int hd, const unsigned char *unit, int lane, int i,
					  struct so_far<WIDE> *b)
{
	struct spots<WIDE / 8> spots = find_spots<WIDE / 8>(unit, lane);
	UNROLL_FOR(int k = 0; k < P::keys / 16; k++) {
		uint32_t a[4];
		UNROLL_FOR(int e = 0; e < 4; e++) {
			a[e] = weights[k][e];
			UNROLL_FOR(int j = 1; j < P::per_tile; j++)
				a[e] = j == i ? weights[j * (P::keys / 16) + k][e] : a[e];
		}
		UNROLL_FOR(int n = 0; n < WIDE / 8; n += 2) {
			if (8 * n >= hd)
				continue;
			uint32_t m[4];
			take_matrices(spots, 16 * k, n, m);
			multiply<KIND>(b->value[n], a, m);
			multiply<KIND>(b->value[n + 1], a, m + 2);
		}
	}
}

/* Adds up the sums of all columns. */
template <int WIDE> __device__ static inline void end_block(struct so_far<WIDE> *b)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		b->sum[j] += kn_shuffle_xor(b->sum[j], 1);
		b->sum[j] += kn_shuffle_xor(b->sum[j], 2);
	}
}

/* Finds query i of an item; false: there is none. */
__device__ static inline bool find_query(const struct kn_attn_call &c, const struct kn_item &item, int kv_head, int i,
					 int *row, int *head)
{
	*row = item.row + i / c.group;
	*head = kv_head * c.group + i % c.group;
	return i < item.n_rows * c.group;
}

/* Whether a row sees a position of a block. */
__device__ static inline bool row_sees(const struct kn_attn_call &c, int row, int block)
{
	int first, end;
	kn_seen_by(c, row, &first, &end);
	return kn_attn_sees(first, end, block);
}

/* begin: the warp's first query. */
template <int WIDE>
__device__ static inline void put_part(const struct kn_attn_call &c, const struct kn_item &item, int kv_head, int begin,
				       int block, const struct so_far<WIDE> &b, int lane)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		int row, head;
		if (!find_query(c, item, kv_head, begin + lane / 4 + 8 * j, &row, &head) || !row_sees(c, row, block))
			continue;
		float *at = kn_attn_part(c, row, head, block);
		if (lane % 4 == 0) {
			at[0] = b.max[j];
			at[1] = b.sum[j];
		}
		UNROLL_FOR(int n = 0; n < WIDE / 8; n++)
			UNROLL_FOR(int e = 0; e < 2; e++) {
				int d = 8 * n + lane % 4 * 2 + e;
				if (d < c.pages.head_dim)
					at[KN_PART_VALUES + d] = b.value[n][2 * j + e];
			}
	}
}

/* Merges a block into those before it; after the last one, c.out has the result. In between it has the values so far,
 * and *all the maxima and sums (x and y of index 0, z and w of index 1): twice the accumulators would exceed the
 * registers. Only this lane accesses its own. first: there are none before. t: the thread. */
template <int WIDE>
__device__ static inline void merge_block(const struct kn_attn_call &c, struct so_far<WIDE> *b, int t, int block,
					  bool first, bool last, struct kn_f4 *all)
{
	struct kn_item item = c.items[blockIdx.x];
	int warps = (int)blockDim.x / KN_WARP, lane = t % KN_WARP;
	int begin = ((int)blockIdx.y % c.n_tiles * warps + t / KN_WARP) * QUERIES;
	UNROLL_FOR(int j = 0; j < 2; j++) {
		float keep = 1, take = 0, max = -INFINITY, sum = 0;
		int row, head;
		if (!first) {
			max = j == 0 ? all->x : all->z;
			sum = j == 0 ? all->y : all->w;
		}
		bool there = find_query(c, item, (int)blockIdx.y / c.n_tiles, begin + lane / 4 + 8 * j, &row, &head);
		if (there && row_sees(c, row, block))
			kn_attn_merge<true>(&max, &sum, b->max[j], b->sum[j], &keep, &take);
		*(j == 0 ? &all->x : &all->z) = max;
		*(j == 0 ? &all->y : &all->w) = sum;
		b->max[j] = -INFINITY;
		b->sum[j] = 0;
		volatile float *at = c.out + ((int64_t)row * c.n_heads + head) * c.pages.head_dim + lane % 4 * 2;
		float share = last ? 1.0f / kn_attn_whole<true>(c, head, max, sum) : 1.0f; /* as in combine() */
		int hd = there ? c.pages.head_dim - lane % 4 * 2 : 0;
		/* Volatile, so that no more than a few are read ahead: there are no registers for them. */
		UNROLL_FOR(int from = 0; from < WIDE; from += 32) {
			float was[8];
			UNROLL_FOR(int i = 0; i < 8; i++) {
				int d = from + i / 2 * 8 + i % 2;
				was[i] = first || d >= hd ? 0.0f : at[d];
			}
			UNROLL_FOR(int i = 0; i < 8; i++) {
				int d = from + i / 2 * 8 + i % 2;
				float *value = &b->value[d / 8][2 * j + i % 2];
				if (d < hd)
					at[d] = (was[i] * keep + *value * take) * share;
				*value = 0;
			}
		}
	}
}

template <int WIDE>
__device__ static inline void put_out(const struct kn_attn_call &c, const struct kn_item &item, int kv_head, int begin,
				      const struct so_far<WIDE> &all, int lane)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		int row, head;
		if (!find_query(c, item, kv_head, begin + lane / 4 + 8 * j, &row, &head))
			continue;
		float *at = c.out + ((int64_t)row * c.n_heads + head) * c.pages.head_dim;
		float share = 1.0f / kn_attn_whole<true>(c, head, all.max[j], all.sum[j]); /* as in combine() */
		UNROLL_FOR(int n = 0; n < WIDE / 8; n++)
			UNROLL_FOR(int e = 0; e < 2; e++) {
				int d = 8 * n + lane % 4 * 2 + e;
				if (d < c.pages.head_dim)
					at[d] = all.value[n][2 * j + e] * share;
			}
	}
}

/* ---- the kernel ---- */

/* Waits for unit u and starts loading the unit that replaces the preceding one. Returns unit u as 16-bit numbers. */
template <int KIND, int WIDE, class P>
__device__ static inline const unsigned char *next_unit(const struct kn_attn_call &c, const struct span &s, int u,
							unsigned char *ring, unsigned char *flat, int t)
{
	const unsigned char *slot = ring + u % P::slots * P::slot_bytes;
	kn_cp_async_wait<P::slots - 2>();
	kn_barrier(); /* unit u is complete, and the preceding one is free */
	load_unit<KIND, WIDE, P>(c, s, u + P::slots - 1, ring, t);
	if (KIND != EIGHT)
		return slot;
	int pos;
	bool keys = unit_of<P>(s, u, &pos);
	flatten<WIDE, P>(c, s, keys, pos, slot, flat, t);
	kn_barrier(); /* its float16 numbers are complete */
	return flat;
}

/* The positions that the tile's queries see, and this thread block's tiles of positions; false: none. */
template <bool PARTS>
__device__ static inline bool find_span(const struct kn_attn_call &c, const struct kn_item &item, int begin, int end,
					struct span *s)
{
	s->from = INT32_MAX;
	s->to = 0;
	for (int r = begin / c.group; r * c.group < end; r++) {
		int first, last;
		kn_seen_by(c, item.row + r, &first, &last);
		s->from = first < s->from ? first : s->from;
		s->to = last > s->to ? last : s->to;
	}
	if (PARTS) {
		int block = (int)blockIdx.z * KN_ATTN_BLOCK;
		s->from = s->from > block ? s->from : block;
		s->to = s->to < block + KN_ATTN_BLOCK ? s->to : block + KN_ATTN_BLOCK;
	}
	s->first_tile = s->from / TILE;
	s->n_tiles = (s->to + TILE - 1) / TILE - s->first_tile;
	return s->from < s->to;
}

template <int KIND, int WIDE, bool PARTS>
__global__ void BLOCKS_AT_LEAST(PROMPT_WARPS *KN_WARP, (plan<KIND, WIDE, PARTS>::blocks))
    attend_tiles(IN_PLACE struct kn_attn_call c)
{
	kn_begin();
	typedef struct plan<KIND, WIDE, PARTS> P;
	unsigned char *ring = (unsigned char *)kn_shared(), *flat = ring + P::slots * P::slot_bytes;
	int t = (int)threadIdx.x, lane = t % KN_WARP, hd = c.pages.head_dim;
	struct kn_item item = c.items[blockIdx.x];
	int begin = (int)blockIdx.y % c.n_tiles * QUERIES * PROMPT_WARPS, end = begin + QUERIES * PROMPT_WARPS;
	struct span s;
	end = end < item.n_rows * c.group ? end : item.n_rows * c.group;
	s.kv_head = (int)blockIdx.y / c.n_tiles;
	s.seq = c.row_seq[item.row];
	if (begin >= end || !find_span<PARTS>(c, item, begin, end, &s))
		return; /* every thread of the block */
#pragma unroll 1
	for (int u = 0; u < P::slots - 1; u++)
		load_unit<KIND, WIDE, P>(c, s, u, ring, t);
	struct queries<P> w;
	w.rest = (struct kn_u4 *)(void *)(flat + P::flat_bytes) + t;
	begin += t / KN_WARP * QUERIES;
	find_queries<KIND, WIDE>(c, item, s.kv_head, begin, lane, &w);
	struct so_far<WIDE> block;
	struct kn_f4 *all = (struct kn_f4 *)(void *)(flat + P::flat_bytes + P::rest_bytes) + t;
	bool first = true;
	begin_block(&block);
	int u = 0;
	/* One unit per iteration: unrolled, the code would be eight times as long. */
#pragma unroll 1
	for (int tile = s.first_tile; tile < s.first_tile + s.n_tiles; tile++) {
		/* The same for the whole warp. Skipped tiles would change nothing. */
		bool mine = tile * TILE < w.to && (tile + 1) * TILE > w.from;
		float scores[COLUMNS][4];
		uint32_t weights[TILE / 16][4];
#pragma unroll 1
		for (int i = 0; i < P::per_tile; i++, u++) {
			const unsigned char *slot = ring + u % P::slots * P::slot_bytes;
			const unsigned char *unit = next_unit<KIND, WIDE, P>(c, s, u, ring, flat, t);
			if (mine)
				take_keys<KIND, WIDE, P>(w, hd, unit, (const float *)(const void *)(slot + P::numbers),
							 lane, i, scores);
		}
		if (mine) {
			score<P>(c, w, tile * TILE, t, scores);
			weigh(scores, &block);
			round_weights<KIND>(scores, weights);
		}
#pragma unroll 1
		for (int i = 0; i < P::per_tile; i++, u++) {
			const unsigned char *unit = next_unit<KIND, WIDE, P>(c, s, u, ring, flat, t);
			if (mine)
				take_values<KIND, WIDE, P>(weights, hd, unit, lane, i, &block);
		}
		if ((tile + 1) * TILE % KN_ATTN_BLOCK != 0 && tile + 1 < s.first_tile + s.n_tiles)
			continue;
		end_block(&block);
		if (PARTS)
			continue; /* it was the only block */
		merge_block(c, &block, t, tile * TILE / KN_ATTN_BLOCK, first, tile + 1 == s.first_tile + s.n_tiles,
			    all);
		first = false;
	}
	kn_cp_async_wait<0>();
	if (!PARTS)
		return;
	if (c.n_parts > 1)
		put_part(c, item, s.kv_head, begin, (int)blockIdx.z, block, lane);
	else /* the same as merging it would give */
		put_out(c, item, s.kv_head, begin, block, lane);
}

template <int KIND, int WIDE> static int launch_wide(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	typedef struct plan<KIND, WIDE, true> P;
	typedef struct plan<KIND, WIDE, false> WHOLE;
	dim3 grid((unsigned)n_items, (unsigned)(c->pages.n_kv_heads * c->n_tiles),
		  c->n_parts > 0 ? (unsigned)c->n_parts : 1);
	if (c->n_parts > 0)
		return KN_LAUNCH(b->dev, (attend_tiles<KIND, WIDE, true>), grid, P::threads, P::all, *c);
	return KN_LAUNCH(b->dev, (attend_tiles<KIND, WIDE, false>), grid, WHOLE::threads, WHOLE::all, *c);
}

/* c->type is of that kind. */
template <int KIND> static int kn_attn_mma_kind(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	if (c->pages.head_dim <= 64)
		return launch_wide<KIND, 64>(b, c, n_items);
	if (c->pages.head_dim <= 128)
		return launch_wide<KIND, 128>(b, c, n_items);
	return launch_wide<KIND, MOST_WIDE>(b, c, n_items);
}

#endif
