/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of single rows (decodes) over pages of float16, bfloat16 and 8-bit numbers on tensor cores.
 *
 * A thread block has up to 16 queries of one row that share a key head, and one block of KN_ATTN_BLOCK positions. It
 * computes what a warp of attention_mma.h computes, with the same bits: tiles of 64 positions, each relative to the
 * largest score so far, sums and weighted values from the first tile to the last. But its eight warps share the work,
 * so that no result waits for one warp's chain of operations:
 *  1. Each warp multiplies the queries with the keys of half a tile.
 *  2. The maxima are exchanged, from which each warp has the running maximum of its own tile and of all. Maxima are
 *     exact in any order.
 *  3. Each warp turns its scores into weights, which are exchanged as operands of matrix operations. The warp of a
 *     tile's second half adds its weights to the sum of the first.
 *  4. Each warp multiplies the weights of all tiles with an eighth of each value's elements. Columns of a product are
 *     independent, so the order of a column's sum is that of one warp.
 *
 * Pages arrive in units of 16 positions, each through the loading warp's own ring in shared memory (cp.async): first
 * its keys, which no other warp reads, then its share of the values, which all do. Units of 8-bit numbers are converted
 * in place.
 *
 * VERSIONS
 *   3  eight warps, rings with room for half of all units, queries converted once for all warps. A float16 kernel of
 *     version 2 had 135 kB of code, since it loaded each of ten units by instructions of its own; now 58 kB, 80
 *     registers, no spills. 288 us for 64 sequences of 4096 on an H200.
 *   2  four warps a block of positions, 32 KiB of rings: 14.2 us, 88 us and 304 us for what version 1 took, and 313 us
 *     for 256 sequences of 1024. Hints (prefetch) for what the rings had no room for made it slower: 14.7, 106, 370.
 *   1  decodes by the kernel of prompts, one warp a block (attention_mma.h): 52.2 us for a sequence of 1024, 102 us
 *     for 64 of them and 388 us for 64 of 4096 (8 key heads of 128, float16, groups of 4), measured on an H200, where a
 *     copy of the bytes takes 1, 61 and 242.
 */
#ifndef KERNELS_CUDA_ATTENTION_ALONE_H
#define KERNELS_CUDA_ATTENTION_ALONE_H

#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_mma.h"

enum {
	TILES = KN_ATTN_BLOCK / TILE,
	ALONE_WARPS = 8,
	HALF_TILE = KN_ATTN_BLOCK / ALONE_WARPS, /* positions: a warp's keys */
	UNIT = 16,                               /* positions */
	KEY_UNITS = HALF_TILE / UNIT,            /* of a warp */
	VALUE_UNITS = KEY_UNITS,                 /* likewise, each for another pair of tiles */
	UNITS = KEY_UNITS + VALUE_UNITS,
	GROUP = 8, /* positions that are in one page, if c.wide */
};
static_assert(2 * HALF_TILE == TILE && ALONE_WARPS * UNIT == 2 * TILE, "warps and tiles");

/* How a kernel lays out its shared memory. */
template <int KIND, int WIDE> struct alone_plan {
	static constexpr int threads = KN_WARP; /* that load a unit */
	static constexpr int keys = UNIT;
	static constexpr int bytes = KIND == EIGHT ? 1 : 2; /* of a number in the pool */
	static constexpr int numbers = UNIT * WIDE;         /* scales follow 8-bit numbers */
	static constexpr int slot_bytes = numbers * 2;      /* float16 */
	/* Of each warp. The emulation's tests have narrow heads, and none too many slots. */
#ifdef KN_EMULATED
	static constexpr int slots = WIDE == 128 ? 2 : 1;
#else
	static constexpr int slots = MOST_WIDE / WIDE;
#endif
	static constexpr int ring_bytes = slots * slot_bytes;
	/* Of a multiprocessor, by registers. */
	static constexpr int blocks = WIDE <= 128 ? 3 : KIND == EIGHT ? 1 : 2;
};

/* Where a warp's units are in k or v, for each group of positions: its numbers, -1 if no position is seen; its scales,
 * from there. */
struct alone_where {
	int64_t at[UNITS * UNIT / GROUP];
	int32_t scales[UNITS * UNIT / GROUP];
};

/* What the warps tell each other. */
struct alone_shared {
	union {
		struct kn_u4 queries[MOST_WIDE / 16][KN_WARP]; /* as operands; needed until all scores are there */
		struct kn_u4 weights[TILES][TILE / 16][KN_WARP];
	};
	float sum[TILES][2][KN_WARP]; /* of weights: of a tile's first half, then of the tile */
	float most[ALONE_WARPS][QUERIES], factor[QUERIES], max[QUERIES];
	float base[TILES][QUERIES]; /* that a tile's weights are relative to */
	float keep[TILES][QUERIES]; /* factor of what the tiles before gave */
	struct alone_where where[ALONE_WARPS];
};

/* A warp of a thread block. */
struct alone {
	struct span span;  /* within one block of positions */
	int row, n, begin; /* queries; the block's first position */
	int warp, lane;
	unsigned char *rings;      /* of all warps */
	struct alone_where *where; /* the warp's own */
};

/* The first position of a warp's unit u: its keys, then its values. */
__device__ static inline int alone_unit_at(const struct alone &a, int u)
{
	return a.begin +
	       (u < KEY_UNITS ? a.warp * HALF_TILE + u * UNIT : (u - KEY_UNITS) * ALONE_WARPS * UNIT + a.warp * UNIT);
}

/* Whether some of n positions from `at` on is seen. */
__device__ static inline bool alone_sees(const struct alone &a, int at, int n)
{
	return at < a.span.to && at + n > a.span.from;
}

__device__ static inline bool alone_has(const struct alone &a, int tile)
{
	return alone_sees(a, a.begin + tile * TILE, TILE);
}

/* Looks up where the warp's units are. */
template <int KIND> __device__ static inline void alone_find_pages(const struct kn_attn_call &c, const struct alone &a)
{
	const struct kn_pages &p = c.pages;
	int u = a.lane / 2, pos = alone_unit_at(a, u), n = UNIT;
	if (c.wide && u < UNITS) {
		bool keys = u < KEY_UNITS;
		if (KIND != EIGHT || !keys) { /* whose keys are loaded by 16 positions */
			pos += a.lane % 2 * GROUP;
			n = GROUP;
		}
		int64_t at = -1;
		int scales = 0;
		if (alone_sees(a, pos, n)) {
			int64_t page = p.table[(int64_t)a.span.seq * p.row + (pos >> p.page_shift)];
			int in = pos & (p.page_tokens - 1);
			at = ((page * p.n_layers + p.layer) * p.n_kv_heads + a.span.kv_head) * p.head_bytes;
			int numbers = (keys ? in : in * p.head_dim) * (KIND == EIGHT ? 1 : 2);
			at += numbers;
			scales = p.scales_at + in * 4 - numbers;
		}
		a.where->at[a.lane] = at;
		a.where->scales[a.lane] = scales;
	}
	kn_warp_barrier();
}

/* Unit u of keys by chunks of 16 bytes. */
template <int KIND, int WIDE>
__device__ static inline void alone_load_keys(const struct kn_attn_call &c, const struct alone &a, int u,
					      unsigned char *to)
{
	typedef struct alone_plan<KIND, WIDE> P;
	enum { CHUNK = 16 / P::bytes, N = UNIT / CHUNK, ROWS = KN_WARP / N };
	int i = a.lane % N, first = a.lane / N, hd = c.pages.head_dim, row = c.pages.page_tokens * P::bytes;
	int64_t in = a.where->at[2 * u + i];
	const uint8_t *at = c.k + (in >= 0 ? in + first * row : 0);
	UNROLL_FOR(int r = 0; r < WIDE / ROWS; r++) {
		int d = r * ROWS + first;
		if (r * ROWS < hd)
			kn_cp_async16_or_zero(to + 16 * (KIND == EIGHT ? d : place_of<N>(d, i)),
					      at + (int64_t)r * ROWS * row, in >= 0 && d < hd);
	}
}

/* Unit u of values; zeros where a position is not seen. */
template <int KIND, int WIDE>
__device__ static inline void alone_load_values(const struct kn_attn_call &c, const struct alone &a, int u,
						unsigned char *to)
{
	typedef struct alone_plan<KIND, WIDE> P;
	enum { CHUNK = 16 / P::bytes, N = WIDE / CHUNK, ROWS = KN_WARP / N };
	int i = a.lane % N, first = a.lane / N, pos = alone_unit_at(a, u) + first, row = c.pages.head_dim * P::bytes;
	const uint8_t *at[UNIT / GROUP];
	UNROLL_FOR(int g = 0; g < UNIT / GROUP; g++) {
		int64_t in = a.where->at[2 * u + g];
		at[g] = c.v + (in >= 0 ? in + first * row + 16 * i : 0);
	}
	if (i * CHUNK >= c.pages.head_dim)
		return;
	UNROLL_FOR(int r = 0; r < UNIT / ROWS; r++) {
		int in = r * ROWS + first, chunk = KIND == EIGHT ? in * N + i : place_of<N>(in, i);
		kn_cp_async16_or_zero(to + 16 * chunk, at[r * ROWS / GROUP] + r * ROWS % GROUP * row,
				      alone_sees(a, pos + r * ROWS, 1));
	}
}

/* The scales of a unit's positions. */
__device__ static inline void alone_load_scales(const struct kn_attn_call &c, const struct alone &a, int u,
						unsigned char *to)
{
	if (a.lane >= UNIT / 4)
		return;
	bool there = alone_sees(a, alone_unit_at(a, u) + 4 * a.lane, 4);
	int by = u < KEY_UNITS ? 0 : a.lane / 2; /* keys: all from the unit's first position on */
	const uint8_t *at = u < KEY_UNITS ? c.k : c.v;
	if (there)
		at += a.where->at[2 * u + by] + a.where->scales[2 * u + by] + 16 * (a.lane - 2 * by);
	kn_cp_async16_or_zero(to + 16 * a.lane, at, there);
}

template <int KIND, int WIDE> __device__ static inline unsigned char *alone_slot(const struct alone &a, int warp, int u)
{
	typedef struct alone_plan<KIND, WIDE> P;
	return a.rings + warp * P::ring_bytes + u % P::slots * P::slot_bytes;
}

/* Starts loading the warp's unit u, of keys or of values; past the last one, nothing. */
template <int KIND, int WIDE, bool KEYS>
__device__ static inline void alone_load(const struct kn_attn_call &c, const struct alone &a, int u)
{
	typedef struct alone_plan<KIND, WIDE> P;
	int pos = alone_unit_at(a, u);
	if (u < UNITS &&
	    (KEYS ? alone_sees(a, a.begin + a.warp * HALF_TILE, HALF_TILE) : alone_has(a, (pos - a.begin) / TILE))) {
		unsigned char *to = alone_slot<KIND, WIDE>(a, a.warp, u);
		if (!c.wide)
			load_narrow<KIND, WIDE, P>(c, a.span, KEYS, pos, to, a.lane);
		else if (KEYS)
			alone_load_keys<KIND, WIDE>(c, a, u, to);
		else
			alone_load_values<KIND, WIDE>(c, a, u, to);
		if (KIND == EIGHT && c.wide)
			alone_load_scales(c, a, u, to + P::numbers);
	}
	kn_cp_async_commit(); /* even if empty, so that groups correspond to units */
}

/* Sixteen 8-bit numbers as float16 (f16_pair). */
__device__ static inline void alone_widen(const struct kn_u4 &b, bool fp8, struct kn_u4 *low, struct kn_u4 *high)
{
	*low = {f16_pair(b.x, 0, fp8), f16_pair(b.x, 1, fp8), f16_pair(b.y, 0, fp8), f16_pair(b.y, 1, fp8)};
	*high = {f16_pair(b.z, 0, fp8), f16_pair(b.z, 1, fp8), f16_pair(b.w, 0, fp8), f16_pair(b.w, 1, fp8)};
}

/* Values with their position's scale, as flatten gives them; zeros for a position that no query sees. */
__device__ static inline struct kn_u4 alone_scaled(const struct kn_u4 &v, float scale, bool fp8, bool there)
{
	float most = 65504.0f / (fp8 ? 448.0f : 127.0f);
	scale = (scale > most ? most : scale) * (fp8 ? 256.0f : 1.0f);
	if (!there)
		return {0, 0, 0, 0};
	return {times(v.x, scale), times(v.y, scale), times(v.z, scale), times(v.w, scale)};
}

/* Waits for the warp's unit u, as 16-bit numbers, and gets the scales of this lane's columns if it is 8-bit keys. Other
 * warps see the unit after a barrier. */
template <int KIND, int WIDE>
__device__ static inline void alone_await(const struct kn_attn_call &c, const struct alone &a, int u, float (*scale)[2])
{
	typedef struct alone_plan<KIND, WIDE> P;
	enum { EACH = P::numbers / 16 / KN_WARP, N = WIDE / 16 };
	kn_cp_async_wait<P::slots - 1>();
	kn_warp_barrier();
	if (KIND != EIGHT)
		return;
	unsigned char *slot = alone_slot<KIND, WIDE>(a, a.warp, u);
	const float *scales = (const float *)(const void *)(slot + P::numbers);
	struct kn_u4 from[EACH], *to = (struct kn_u4 *)(void *)slot;
	float by[EACH];
	bool keys = u < KEY_UNITS, fp8 = c.type == KN_FP8;
	UNROLL_FOR(int x = 0; x < EACH; x++) {
		from[x] = kn_shared_load16(slot + 16 * (x * KN_WARP + a.lane));
		by[x] = keys ? 0.0f : scales[(x * KN_WARP + a.lane) / N];
	}
	if (keys)
		UNROLL_FOR(int i = 0; i < UNIT / 4; i++)
			scale[i / 2][i % 2] = scales[i / 2 * 8 + a.lane % 4 * 2 + i % 2];
	kn_warp_barrier(); /* all lanes have read, and its place is free */
	UNROLL_FOR(int x = 0; x < EACH; x++) {
		int i = x * KN_WARP + a.lane, pos = alone_unit_at(a, u) + i / N;
		struct kn_u4 low, high;
		alone_widen(from[x], fp8, &low, &high);
		if (!keys) {
			bool there = alone_sees(a, pos, 1);
			low = alone_scaled(low, by[x], fp8, there);
			high = alone_scaled(high, by[x], fp8, there);
		}
		to[keys ? place_of<UNIT / 8>(i, 0) : place_of<WIDE / 8>(i / N, i % N * 2)] = low;
		to[keys ? place_of<UNIT / 8>(i, 1) : place_of<WIDE / 8>(i / N, i % N * 2 + 1)] = high;
	}
	kn_warp_barrier();
}

/* ---- scores, weights, values ---- */

/* Converts the queries to operands for all warps, 16 threads each, from query q of the item on. As find_queries
 * (attention_mma.h), with the same bits. */
template <int KIND, int WIDE>
__device__ static inline void alone_convert(const struct kn_attn_call &c, const struct alone &a, int q,
					    struct alone_shared *x)
{
	enum { EACH = WIDE / 64 };
	int t = a.warp * KN_WARP + a.lane, i = t / 16, hd = c.pages.head_dim;
	const float *from = c.q + (int64_t)a.row * c.attn.q_row + (a.span.kv_head * c.group + q + i) * hd;
	float v[EACH][4], most = 0;
	UNROLL_FOR(int p = 0; p < EACH; p++) {
		kn_load4(from, 64 * p + t % 16 * 4, hd, i < a.n, v[p]);
		UNROLL_FOR(int e = 0; e < 4; e++)
			most = fmaxf(most, fabsf(v[p][e]));
	}
	UNROLL_FOR(int step = 1; step < 16; step *= 2)
		most = fmaxf(most, kn_shuffle_xor(most, step));
	/* Multiplied by 2^-exp, all are below 2. */
	int exp = (int)(kn_float_bits(most) >> 23) - 127;
	exp = exp < -100 ? -100 : exp > 100 ? 100 : exp;
	float down = kn_bits_float((uint32_t)(127 - exp) << 23);
	if (t % 16 == 0) {
		float factor =
		    c.attn.scale * kn_bits_float((uint32_t)(127 + exp) << 23) * (c.type == KN_FP8 ? 256.0f : 1.0f);
		x->factor[i] = factor * (c.attn.softcap > 0 ? 1.0f / c.attn.softcap : LOG2_E);
	}
	UNROLL_FOR(int p = 0; p < EACH; p++) {
		int d = 64 * p + t % 16 * 4;
		uint32_t *to = &x->queries[d / 16][i % 8 * 4 + d % 8 / 2].x + i / 8 + d % 16 / 8 * 2;
		to[0] = pair_of<KIND>(v[p][0] * down, v[p][1] * down);
		to[4] = pair_of<KIND>(v[p][2] * down, v[p][3] * down);
	}
}

/* Multiplies the queries with a unit of keys, into its columns s. */
template <int KIND, int WIDE>
__device__ static inline void alone_multiply(const struct kn_attn_call &c, const struct alone &a,
					     const struct alone_shared *x, const unsigned char *unit, float (*s)[4])
{
	struct spots<UNIT / 8> spots = find_spots<UNIT / 8>(unit, a.lane);
	UNROLL_FOR(int n = 0; n < UNIT / 8; n++)
		UNROLL_FOR(int e = 0; e < 4; e++)
			s[n][e] = 0;
	UNROLL_FOR(int k = 0; k < WIDE / 16; k++) {
		if (16 * k >= c.pages.head_dim)
			continue;
		struct kn_u4 v = kn_shared_load16(&x->queries[k][a.lane]);
		uint32_t q[4] = {v.x, v.y, v.z, v.w}, b[4];
		take_matrices(spots, 16 * k, 0, b);
		multiply<KIND>(s[0], q, b);
		multiply<KIND>(s[1], q, b + 2);
	}
}

/* The products of the warp's keys and the queries. Begins to load what there is room for then. */
template <int KIND, int WIDE>
__device__ static inline void alone_take_keys(const struct kn_attn_call &c, const struct alone &a,
					      const struct alone_shared *x, float (*s)[4])
{
	enum { SLOTS = alone_plan<KIND, WIDE>::slots };
	UNROLL_FOR(int u = 0; u < KEY_UNITS; u++) {
		float scale[UNIT / 8][2], (*mine)[4] = s + u * (UNIT / 8);
		if (alone_sees(a, a.begin + a.warp * HALF_TILE, HALF_TILE)) {
			alone_await<KIND, WIDE>(c, a, u, scale);
			alone_multiply<KIND, WIDE>(c, a, x, alone_slot<KIND, WIDE>(a, a.warp, u), mine);
			if (KIND == EIGHT)
				UNROLL_FOR(int e = 0; e < 4 * UNIT / 8; e++)
					mine[e / 4][e % 4] *= scale[e / 4][e % 2];
			kn_warp_barrier(); /* all lanes are done with the unit */
		}
		if (u + SLOTS < KEY_UNITS)
			alone_load<KIND, WIDE, true>(c, a, u + SLOTS);
		else
			alone_load<KIND, WIDE, false>(c, a, u + SLOTS);
	}
}

/* Turns products into base-2 scores, -INFINITY where the row does not see the position (score, attention_mma.h), and
 * tells each query's largest. Index j: queries lane / 4 and lane / 4 + 8. */
__device__ static inline void alone_score(const struct kn_attn_call &c, const struct alone &a, struct alone_shared *x,
					  float (*s)[4])
{
	int begin = a.begin + a.warp * HALF_TILE;
	bool masked = begin < a.span.from || begin + HALF_TILE > a.span.to;
	float cap = c.attn.softcap * LOG2_E;
	UNROLL_FOR(int j = 0; j < 2; j++) {
		float factor = x->factor[a.lane / 4 + 8 * j], most = -INFINITY;
		if (8 * j >= a.n)
			continue; /* the whole block */
		UNROLL_FOR(int n = 0; n < HALF_TILE / 8; n++)
			UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++)
				s[n][e] *= factor;
		if (cap > 0)
			UNROLL_FOR(int n = 0; n < HALF_TILE / 8; n++)
				UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++)
					s[n][e] = cap * tanhf(s[n][e]);
		if (masked)
			UNROLL_FOR(int n = 0; n < HALF_TILE / 8; n++)
				UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++) {
					int pos = begin + 8 * n + a.lane % 4 * 2 + e % 2;
					s[n][e] = pos >= a.span.from && pos < a.span.to ? s[n][e] : -INFINITY;
				}
		UNROLL_FOR(int n = 0; n < HALF_TILE / 8; n++)
			most = fmaxf(most, fmaxf(s[n][2 * j], s[n][2 * j + 1]));
		most = fmaxf(most, kn_shuffle_xor(most, 1));
		most = fmaxf(most, kn_shuffle_xor(most, 2));
		if (a.lane % 4 == 0)
			x->most[a.warp][a.lane / 4 + 8 * j] = most;
	}
}

/* What the tiles' maxima make of the state, for all warps: a thread for each tile and query. */
__device__ static inline void alone_find_course(const struct alone &a, struct alone_shared *x)
{
	int t = a.warp * KN_WARP + a.lane, tile = t / QUERIES, query = t % QUERIES;
	float was = -INFINITY, max = -INFINITY;
	if (tile >= TILES)
		return;
	UNROLL_FOR(int i = 0; i < TILES; i++) {
		if (i > tile || !alone_has(a, i))
			continue;
		was = max;
		max = fmaxf(max, fmaxf(x->most[2 * i][query], x->most[2 * i + 1][query]));
	}
	float base = max > -INFINITY ? max : 0.0f; /* no position seen yet: all weights are 0 */
	x->base[tile][query] = base;
	x->keep[tile][query] = exp2f(was - base);
	if (tile == TILES - 1)
		x->max[query] = max;
}

/* Turns the warp's scores into weights and tells them all warps, and the sum of a tile's first half. */
template <int KIND>
__device__ static inline void alone_weigh(const struct alone &a, float (*s)[4], struct alone_shared *x)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		float total = 0, base = x->base[a.warp / 2][a.lane / 4 + 8 * j];
		if (8 * j >= a.n)
			continue; /* the whole block */
		UNROLL_FOR(int n = 0; n < HALF_TILE / 8; n++)
			UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++) {
				s[n][e] = exp2f(s[n][e] - base);
				total += s[n][e];
			}
		if (a.warp % 2 == 0)
			x->sum[a.warp / 2][j][a.lane] = total;
	}
	UNROLL_FOR(int k = 0; k < HALF_TILE / 16; k++)
		x->weights[a.warp / 2][a.warp % 2 * (HALF_TILE / 16) + k][a.lane] = {
		    pair_of<KIND>(s[2 * k][0], s[2 * k][1]), pair_of<KIND>(s[2 * k][2], s[2 * k][3]),
		    pair_of<KIND>(s[2 * k + 1][0], s[2 * k + 1][1]), pair_of<KIND>(s[2 * k + 1][2], s[2 * k + 1][3])};
}

/* Adds the weights of a tile's second half to the sum of the first, one after the other, as one warp does. */
__device__ static inline void alone_sum(const struct alone &a, float (*s)[4], struct alone_shared *x)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		float total = x->sum[a.warp / 2][j][a.lane];
		UNROLL_FOR(int n = 0; n < HALF_TILE / 8; n++)
			UNROLL_FOR(int e = 2 * j; e < 2 * j + 2; e++)
				total += s[n][e];
		x->sum[a.warp / 2][j][a.lane] = total;
	}
}

/* A warp's results: of elements 16 (warp + 8 p) and the next 15, for each p, in two matrices of 8 columns. */
template <int WIDE> struct alone_result {
	static constexpr int n = WIDE > 128 ? WIDE / 16 / ALONE_WARPS : 1;
	float max[2], sum[2], value[n][2][4];
};

/* Adds tile i's values, times their weights. */
template <int KIND, int WIDE>
__device__ static inline void alone_add(const struct kn_attn_call &c, const struct alone &a,
					const struct alone_shared *x, int i, struct alone_result<WIDE> *r)
{
	enum { ACROSS = WIDE / 8 };
	float keep[2] = {x->keep[i][a.lane / 4], x->keep[i][a.lane / 4 + 8]};
	int row = a.lane / 8 % 2 * 8 + a.lane % 8, at = 16 * place_of<ACROSS>(row, 2 * a.warp % ACROSS + a.lane / 16);
	UNROLL_FOR(int p = 0; p < r->n; p++)
		UNROLL_FOR(int e = 0; e < 8; e++)
			r->value[p][e / 4][e % 4] *= keep[e % 4 / 2];
	UNROLL_FOR(int k = 0; k < TILE / 16; k++) {
		struct kn_u4 v = kn_shared_load16(&x->weights[i][k][a.lane]);
		uint32_t weights[4] = {v.x, v.y, v.z, v.w}, m[4];
		const unsigned char *unit = alone_slot<KIND, WIDE>(a, i % 2 * (TILE / 16) + k, KEY_UNITS + i / 2) + at;
		UNROLL_FOR(int p = 0; p < r->n; p++) {
			if (16 * (a.warp + ALONE_WARPS * p) >= c.pages.head_dim)
				continue;
			kn_ldmatrix_x4_trans(m, unit + 16 * 2 * ALONE_WARPS * p);
			multiply<KIND>(r->value[p][0], weights, m);
			multiply<KIND>(r->value[p][1], weights, m + 2);
		}
	}
}

/* The weighted values of all tiles, and the sum of the weights s and all others. */
template <int KIND, int WIDE>
__device__ static inline void alone_take_values(const struct kn_attn_call &c, const struct alone &a, float (*s)[4],
						struct alone_shared *x, struct alone_result<WIDE> *r)
{
	typedef struct alone_plan<KIND, WIDE> P;
	*r = {};
	UNROLL_FOR(int v = 0; v < VALUE_UNITS; v++) {
		if (alone_has(a, 2 * v + a.warp / 4))
			alone_await<KIND, WIDE>(c, a, KEY_UNITS + v, NULL);
		kn_barrier(); /* all warps' units of two tiles are there, and all weights */
		if (v == 0 && a.warp % 2 == 1 && alone_has(a, a.warp / 2))
			alone_sum(a, s, x);
		UNROLL_FOR(int i = 2 * v; i < 2 * v + 2; i++)
			if (alone_has(a, i))
				alone_add<KIND, WIDE>(c, a, x, i, r);
		if (v + P::slots < VALUE_UNITS)
			kn_barrier(); /* all warps are done with the units */
		alone_load<KIND, WIDE, false>(c, a, KEY_UNITS + v + P::slots);
	}
	UNROLL_FOR(int j = 0; j < 2; j++) {
		int query = a.lane / 4 + 8 * j;
		r->max[j] = x->max[query];
		UNROLL_FOR(int i = 0; i < TILES; i++)
			if (alone_has(a, i))
				r->sum[j] = r->sum[j] * x->keep[i][query] + x->sum[i][j][a.lane];
		r->sum[j] += kn_shuffle_xor(r->sum[j], 1);
		r->sum[j] += kn_shuffle_xor(r->sum[j], 2);
	}
}

/* Stores the warp's results: as a part, or as the row's own if there is no other. q: the first query. */
template <int WIDE>
__device__ static inline void alone_put(const struct kn_attn_call &c, const struct alone &a, int q,
					const struct alone_result<WIDE> &r)
{
	UNROLL_FOR(int j = 0; j < 2; j++) {
		int i = a.lane / 4 + 8 * j, head = a.span.kv_head * c.group + q + i, hd = c.pages.head_dim;
		if (i >= a.n)
			continue;
		float *to = c.out + ((int64_t)a.row * c.n_heads + head) * hd, share = 1;
		if (c.n_parts > 1) {
			float *part = kn_attn_part(c, a.row, head, (int)blockIdx.z);
			to = part + KN_PART_VALUES;
			if (a.warp == 0 && a.lane % 4 == 0) {
				part[0] = r.max[j];
				part[1] = r.sum[j];
			}
		} else {
			share = 1.0f / kn_attn_whole<true>(c, head, r.max[j], r.sum[j]); /* as combine() */
		}
		UNROLL_FOR(int p = 0; p < r.n; p++)
			UNROLL_FOR(int n = 0; n < 2; n++) {
				int d = 16 * (a.warp + ALONE_WARPS * p) + 8 * n + a.lane % 4 * 2;
				struct kn_f2 v = {r.value[p][n][2 * j] * share, r.value[p][n][2 * j + 1] * share};
				if (d + 1 < hd && hd % 2 == 0 && (uintptr_t)to % sizeof v == 0) {
					*(struct kn_f2 *)(void *)(to + d) = v;
					continue;
				}
				if (d < hd)
					to[d] = v.x;
				if (d + 1 < hd)
					to[d + 1] = v.y;
			}
	}
}

/* ---- the kernel ---- */

/* The item's row, its sequence, and the positions of the block that it sees; false: none. Mostly an item's row has the
 * item's number: then what belongs to it arrives together with the item. */
__device__ static inline bool alone_find_span(const struct kn_attn_call &c, int n_queries, struct alone *a)
{
	int guess = (int)blockIdx.x, from, to, seq = c.row_seq[guess];
	kn_seen_by(c, guess, &from, &to);
	struct kn_item item = c.items[guess];
	if (item.row != guess) {
		seq = c.row_seq[item.row];
		kn_seen_by(c, item.row, &from, &to);
	}
	a->row = item.row;
	a->n = item.n_rows * c.group - n_queries; /* an item has one row, or none */
	a->begin = (int)blockIdx.z * KN_ATTN_BLOCK;
	a->span.seq = seq;
	a->span.from = from > a->begin ? from : a->begin;
	a->span.to = to < a->begin + KN_ATTN_BLOCK ? to : a->begin + KN_ATTN_BLOCK;
	return a->n > 0 && a->span.from < a->span.to;
}

template <int KIND, int WIDE>
__global__ void BLOCKS_AT_LEAST(ALONE_WARPS *KN_WARP, (alone_plan<KIND, WIDE>::blocks))
    attend_single(IN_PLACE struct kn_attn_call c)
{
	kn_begin();
	typedef struct alone_plan<KIND, WIDE> P;
	int t = (int)threadIdx.x, q = (int)blockIdx.y % c.n_tiles * QUERIES;
	struct alone a;
	a.warp = t / KN_WARP;
	a.lane = t % KN_WARP;
	a.span.kv_head = (int)blockIdx.y / c.n_tiles;
	if (!alone_find_span(c, q, &a))
		return; /* every thread of the block */
	a.rings = (unsigned char *)kn_shared();
	struct alone_shared *x = (struct alone_shared *)(void *)(a.rings + ALONE_WARPS * P::ring_bytes);
	a.where = &x->where[a.warp];
	alone_find_pages<KIND>(c, a);
#pragma unroll 1
	for (int u = 0; u < P::slots && u < KEY_UNITS; u++)
		alone_load<KIND, WIDE, true>(c, a, u);
#pragma unroll 1
	for (int u = KEY_UNITS; u < P::slots; u++)
		alone_load<KIND, WIDE, false>(c, a, u);
	alone_convert<KIND, WIDE>(c, a, q, x);
	kn_barrier(); /* all queries are there */
	struct alone_result<WIDE> r;
	float s[HALF_TILE / 8][4] = {};
	alone_take_keys<KIND, WIDE>(c, a, x, s);
	if (alone_has(a, a.warp / 2))
		alone_score(c, a, x, s);
	kn_barrier(); /* all maxima are there, and the queries are done with */
	alone_find_course(a, x);
	kn_barrier(); /* it is there */
	if (alone_has(a, a.warp / 2))
		alone_weigh<KIND>(a, s, x);
	alone_take_values<KIND, WIDE>(c, a, s, x, &r);
	kn_cp_async_wait<0>();
	alone_put(c, a, q, r);
	if (c.arrived != NULL)
		kn_attn_finish(c, a.row, a.span.kv_head, t);
}

template <int KIND, int WIDE> static int launch_alone(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	typedef struct alone_plan<KIND, WIDE> P;
	enum { SHARED = ALONE_WARPS * P::ring_bytes + (int)sizeof(struct alone_shared) };
	static_assert(3 * (SHARED + 1024) <= 228 << 10, "three blocks of a multiprocessor of 9.0");
	dim3 grid((unsigned)n_items, (unsigned)(c->pages.n_kv_heads * c->n_tiles), (unsigned)c->n_parts);
	return KN_LAUNCH(b->dev, (attend_single<KIND, WIDE>), grid, ALONE_WARPS * KN_WARP, SHARED, *c);
}

/* Single rows. c->type is of that kind. */
template <int KIND> static int kn_attn_alone_kind(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	if (c->pages.head_dim <= 64)
		return launch_alone<KIND, 64>(b, c, n_items);
	if (c->pages.head_dim <= 128)
		return launch_alone<KIND, 128>(b, c, n_items);
	return launch_alone<KIND, MOST_WIDE>(b, c, n_items);
}

#endif
