/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages on their way to attention's matrix operations (attention_mma.h): what shared memory has where, loads into it,
 * and 8-bit numbers converted to float16.
 *
 * Pages arrive in units of several positions of keys or of values, 16 bytes per load, through a ring in shared memory
 * (cp.async), several units ahead of the computation and across tiles and blocks. A tile is its units of keys, then
 * its units of values. Units have the layout of the pool, keys [d][position] and values [position][d]; ldmatrix
 * rearranges both for the matrix operation. Chunks of 16 bytes are permuted within a row, so that eight rows of a
 * chunk are in different banks. Units of 8-bit numbers are converted to float16 on the way.
 */
#ifndef KERNELS_CUDA_ATTENTION_UNITS_H
#define KERNELS_CUDA_ATTENTION_UNITS_H

#include "kernels/cuda/attention.h"

enum {
	TILE = 64,       /* positions */
	LEAST_PAGE = 16, /* positions: smaller pages are looked up for each row */
	PROMPT_WARPS = 4,
};

enum kind { HALF, BRAIN, EIGHT };

/* Two numbers rounded to nearest even; low is in the lower half. */
template <int KIND> __device__ static inline uint32_t pair_of(float low, float high)
{
#ifdef KN_EMULATED
	return KIND == BRAIN ? kn_pair_bf16(low, high) : kn_pair_f16(low, high);
#else
	uint32_t r;
	if (KIND == BRAIN)
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	return r;
#endif
}

/* How a kernel lays out its shared memory. */
template <int KIND, int WIDE, bool PARTS> struct plan {
	static constexpr int threads = PROMPT_WARPS * KN_WARP;
	static constexpr int keys = WIDE > 128 ? 16 : 32; /* positions per unit */
	static constexpr int per_tile = TILE / keys;      /* units of keys per tile, and as many of values */
	static constexpr int slots = WIDE > 128 && KIND == EIGHT ? 2 : 3;
	static constexpr int bytes = KIND == EIGHT ? 1 : 2; /* of a number in the pool */
	static constexpr int numbers = keys * WIDE;
	static constexpr int slot_bytes = numbers * bytes + (KIND == EIGHT ? keys * (int)sizeof(float) : 0);
	static constexpr int flat_bytes = KIND == EIGHT ? numbers * 2 : 0; /* a unit converted to float16 */
	/* Operands of the queries (per 16 numbers) that stay in registers. The others are in shared memory, 16 bytes
	 * for each lane, since wide heads leave no room. */
	static constexpr int kept = WIDE <= 128 ? WIDE / 16 : KIND == EIGHT ? 2 : PARTS ? 4 : 5;
	static constexpr int rest_bytes = (WIDE / 16 - kept) * threads * 16;
	static constexpr int merged_bytes = PARTS ? 0 : threads * 16;
	static constexpr int all = slots * slot_bytes + flat_bytes + rest_bytes + merged_bytes;
	static_assert(all <= 48 << 10, "more than every device has");
	/* From the 65536 registers: accumulated values, queries, scores, about 60 others. */
	static constexpr int blocks = (WIDE > 64 || !PARTS ? 8 : 12) / PROMPT_WARPS;
};

/* Offset of chunk `chunk` (8 numbers) in a row of N chunks, permuted so that rows read by one ldmatrix are in
 * different banks. */
template <int N> __device__ static inline int place_of(int row, int chunk)
{
	return N >= 8 ? row * N + (chunk ^ (row & 7)) : row * N + (chunk ^ (row / (8 / N) & (N - 1)));
}

/* The positions of a thread block. */
struct span {
	int seq, kv_head;
	int from, to; /* positions that some query of the block sees */
	int first_tile, n_tiles;
};

/* ---- loading units into shared memory ---- */

/* Unit u starts at position *pos. True: it has keys. */
template <class P> __device__ static inline bool unit_of(const struct span &s, int u, int *pos)
{
	int tile = u / (2 * P::per_tile), i = u % (2 * P::per_tile);
	*pos = (s.first_tile + tile) * TILE + i % P::per_tile * P::keys;
	return i < P::per_tile;
}

/* Loads a unit by chunks of 16 bytes. */
template <int KIND, int WIDE, class P>
__device__ static inline void load_wide(const struct kn_attn_call &c, const struct span &s, bool keys, int begin,
					unsigned char *slot, int t)
{
	enum { CHUNK = KIND == EIGHT ? 16 : 8 }; /* numbers */
	const struct kn_pages &p = c.pages;
	int hd = p.head_dim;
	if (keys) {
		enum { N = P::keys / CHUNK };
		int i = t % N, pos = begin + i * CHUNK, rows = (hd + 15) / 16 * 16;
		bool there = pos + CHUNK > s.from && pos < s.to;
		const uint8_t *at = c.k;
		if (there)
			at += kn_block_at(p, s.seq, pos, s.kv_head) + kn_pos_in_page(p, pos) * P::bytes;
#pragma unroll 8
		for (int d = t / N; d < rows; d += P::threads / N) {
			int to = KIND == EIGHT ? d * N + i : place_of<N>(d, i);
			kn_cp_async16_or_zero(slot + 16 * to, there ? at + (int64_t)d * p.page_tokens * P::bytes : c.k,
					      there && d < hd);
		}
	} else {
		/* Runs of a thread's rows in one page share its lookup. */
		enum { N = WIDE / CHUNK, STEP = P::threads / N, RUN = STEP > LEAST_PAGE ? STEP : LEAST_PAGE };
		int i = t % N, shared = p.page_tokens >= LEAST_PAGE ? RUN : STEP;
		if (i * CHUNK < hd)
#pragma unroll 1
			for (int first = t / N; first < P::keys; first += shared) {
				int pos = begin + first, run = pos / LEAST_PAGE * LEAST_PAGE;
				bool any = shared == STEP ? pos >= s.from && pos < s.to
							  : run + LEAST_PAGE > s.from && run < s.to;
				const uint8_t *at = c.v;
				if (any)
					at += kn_block_at(p, s.seq, pos, s.kv_head) +
					      (kn_pos_in_page(p, pos) * hd + i * CHUNK) * P::bytes;
				UNROLL_FOR(int r = 0; r < RUN; r += STEP) {
					int row = first + r, to = KIND == EIGHT ? row * N + i : place_of<N>(row, i);
					bool there = pos + r >= s.from && pos + r < s.to;
					if (r < shared)
						kn_cp_async16_or_zero(slot + 16 * to,
								      any ? at + r * hd * P::bytes : c.v, there);
				}
			}
	}
	if (KIND == EIGHT && t < P::keys / 4) {
		int pos = begin + 4 * t;
		bool there = pos + 4 > s.from && pos < s.to;
		const uint8_t *at = keys ? c.k : c.v;
		if (there)
			at += kn_block_at(p, s.seq, pos, s.kv_head) + p.scales_at + kn_pos_in_page(p, pos) * 4;
		kn_cp_async16_or_zero(slot + P::numbers + 16 * t, at, there);
	}
}

/* The same, one number at a time, for other page layouts. */
template <int KIND, int WIDE, class P>
__device__ static inline void load_narrow(const struct kn_attn_call &c, const struct span &s, bool keys, int begin,
					  unsigned char *slot, int t)
{
	const struct kn_pages &p = c.pages;
	int hd = p.head_dim, rows = (hd + 15) / 16 * 16;
#pragma unroll 1
	for (int x = t; x < P::keys * rows; x += P::threads) {
		int r = x % P::keys, d = x / P::keys, pos = begin + r;
		uint16_t value = 0;
		if (d < hd && pos >= s.from && pos < s.to) {
			int64_t at = kn_block_at(p, s.seq, pos, s.kv_head);
			int in = kn_pos_in_page(p, pos);
			at += (keys ? (int64_t)d * p.page_tokens + in : (int64_t)in * hd + d) * P::bytes;
			at += (int64_t)(keys ? (uintptr_t)c.k : (uintptr_t)c.v);
			value = P::bytes == 1 ? *(const uint8_t *)(uintptr_t)at : *(const uint16_t *)(uintptr_t)at;
		}
		int row = keys ? d : r, column = keys ? r : d;
		if (KIND == EIGHT) {
			slot[row * (keys ? P::keys : WIDE) + column] = (unsigned char)value;
			continue;
		}
		int chunk = keys ? place_of<P::keys / 8>(row, column / 8) : place_of<WIDE / 8>(row, column / 8);
		((uint16_t *)(void *)slot)[chunk * 8 + column % 8] = value;
	}
	if (KIND == EIGHT)
#pragma unroll 1
		for (int r = t; r < P::keys; r += P::threads) {
			int pos = begin + r;
			float scale = 0;
			if (pos >= s.from && pos < s.to)
				scale = *(const float *)(const void *)((keys ? c.k : c.v) + p.scales_at +
								       kn_block_at(p, s.seq, pos, s.kv_head) +
								       kn_pos_in_page(p, pos) * 4);
			((float *)(void *)(slot + P::numbers))[r] = scale;
		}
}

template <int KIND, int WIDE, class P>
__device__ static inline void load_unit(const struct kn_attn_call &c, const struct span &s, int u, unsigned char *ring,
					int t)
{
	int begin;
	if (u < 2 * P::per_tile * s.n_tiles) {
		bool keys = unit_of<P>(s, u, &begin);
		unsigned char *slot = ring + u % P::slots * P::slot_bytes;
		if (c.wide)
			load_wide<KIND, WIDE, P>(c, s, keys, begin, slot, t);
		else
			load_narrow<KIND, WIDE, P>(c, s, keys, begin, slot, t);
	}
	kn_cp_async_commit(); /* even if empty, so that groups correspond to units */
}

/* ---- 8 bits to 16 ---- */

/* Two of four bytes (high 0: bytes 0 and 1) as float16: int8 exactly, e4m3 times 2^-8 exactly. */
__device__ static inline uint32_t f16_pair(uint32_t four, int high, bool fp8)
{
	if (fp8) {
		uint32_t x = kn_byte_perm(four, 0, high ? 0x3424 : 0x1404); /* in the upper byte of each half */
		return (x & 0x80008000u) | (x & 0x7F007F00u) >> 1;
	}
	/* 0x6400 | b is 1024 + b. */
	return kn_f16x2_sub(kn_byte_perm(four ^ 0x80808080u, 0x64646464u, high ? 0x4342 : 0x4140), 0x64806480u);
}

__device__ static inline uint32_t times(uint32_t pair, float factor)
{
	return pair_of<HALF>(kn_f16_float((uint16_t)pair) * factor, kn_f16_float((uint16_t)(pair >> 16)) * factor);
}

/* Converts a unit of 8-bit numbers to float16; applies the scales of values. */
template <int WIDE, class P>
__device__ static inline void flatten(const struct kn_attn_call &c, const struct span &s, bool keys, int begin,
				      const unsigned char *slot, unsigned char *flat, int t)
{
	bool fp8 = c.type == KN_FP8;
	const struct kn_u4 *from = (const struct kn_u4 *)(const void *)slot;
	const float *scales = (const float *)(const void *)(slot + P::numbers);
	struct kn_u4 *to = (struct kn_u4 *)(void *)flat;
	float most = 65504.0f / (fp8 ? 448.0f : 127.0f);
	int n = keys ? P::keys / 16 : WIDE / 16, rows = keys ? (c.pages.head_dim + 15) / 16 * 16 : P::keys;
	for (int x = t; x < rows * n; x += P::threads) {
		struct kn_u4 b = from[x], low, high;
		int row = x / n, chunk = x % n * 2;
		low.x = f16_pair(b.x, 0, fp8);
		low.y = f16_pair(b.x, 1, fp8);
		low.z = f16_pair(b.y, 0, fp8);
		low.w = f16_pair(b.y, 1, fp8);
		high.x = f16_pair(b.z, 0, fp8);
		high.y = f16_pair(b.z, 1, fp8);
		high.z = f16_pair(b.w, 0, fp8);
		high.w = f16_pair(b.w, 1, fp8);
		if (keys) {
			to[place_of<P::keys / 8>(row, chunk)] = low;
			to[place_of<P::keys / 8>(row, chunk + 1)] = high;
			continue;
		}
		int pos = begin + row;
		bool there = pos >= s.from && pos < s.to;
		float scale = scales[row];
		scale = (scale > most ? most : scale) * (fp8 ? 256.0f : 1.0f);
		low.x = there ? times(low.x, scale) : 0;
		low.y = there ? times(low.y, scale) : 0;
		low.z = there ? times(low.z, scale) : 0;
		low.w = there ? times(low.w, scale) : 0;
		high.x = there ? times(high.x, scale) : 0;
		high.y = there ? times(high.y, scale) : 0;
		high.z = there ? times(high.z, scale) : 0;
		high.w = there ? times(high.w, scale) : 0;
		to[place_of<WIDE / 8>(row, chunk)] = low;
		to[place_of<WIDE / 8>(row, chunk + 1)] = high;
	}
}

#endif
