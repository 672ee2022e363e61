/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of prompts as attention_prompts.h computes it, with the same bits, by warp groups on devices that have
 * their products (kn_wgmma_rows). A thread block is one group of 64 queries, 16 a warp. It has the queries in
 * registers, and in shared memory one tile's keys [element][64 positions] and values [64 positions][element] in rows of
 * 128 bytes, as the products take them. While the group computes weights, the next tile's keys are on their way; while
 * it multiplies the next keys, the next values. Three blocks share a multiprocessor: one's products run beside the
 * others' weights.
 *
 * VERSIONS (as in attention_prompts.h)
 *   1  this one: 0.50 ms.
 */
#ifndef KERNELS_CUDA_ATTENTION_GROUPS_H
#define KERNELS_CUDA_ATTENTION_GROUPS_H

#include "kernels/cuda/attention_prompts.h"

/* WIDE: the head_dim. */
template <int WIDE> struct group_plan {
	static constexpr int threads = 4 * KN_WARP, asked = 4 * QUERIES;
	static constexpr int kept = WIDE / 16; /* operands of queries in registers, as in struct plan */
	static constexpr int side = WIDE * TILE * 2;
	static constexpr int values_at = 2 * side; /* of the blocks before */
	static constexpr int ends_at = values_at + WIDE / 8 * threads * 16;
	static constexpr int all = ends_at + threads * 4;
	static constexpr int blocks = 3;                /* per multiprocessor */
	static constexpr int pages = TILE / LEAST_PAGE; /* of the values that a thread loads */
};

/* Lane l's part of what a warp looks up for a tile: the block of positions 16 (l % 4)… of it, or, if they are outside the
 * thread block's, of the nearest that exist. */
__device__ static inline int find_block(const struct kn_attn_call &c, const struct span &s, int tile, int t)
{
	int shift = c.pages.page_shift, index = (tile * TILE + t % 4 * LEAST_PAGE) >> shift;
	index = index > (s.to - 1) >> shift ? (s.to - 1) >> shift : index;
	index = index < s.from >> shift ? s.from >> shift : index;
	return c.pages.table[s.seq * c.pages.row + index] * (c.pages.n_layers * c.pages.n_kv_heads) +
	       c.pages.layer * c.pages.n_kv_heads + s.kv_head;
}

/* Starts loading a tile's keys, if there is one: of each 16 elements one chunk of 8 positions a thread. block: from
 * find_block. */
template <int WIDE>
__device__ static inline void load_keys(const struct kn_attn_call &c, const struct span &s, int block, int tile,
					unsigned char *to, int t)
{
	t = kn_anew(t);
	tile = kn_anew(tile);
	int pos = tile * TILE + t % 8 * 8, tokens = c.pages.page_tokens;
	block = kn_shuffle_int(block, t % 8 / 2);
	if (tile * TILE < s.to) {
		const uint8_t *at = c.k + (int64_t)block * (int)c.pages.head_bytes +
				    (uint32_t)(t / 8 * tokens + (pos & (tokens - 1))) * 2;
		to += 16 * place_of<8>(t / 8, t % 8);
		UNROLL_FOR(int i = 0; i < WIDE / 16; i++)
			kn_cp_async16(to + i * 2048, at + (uint32_t)(32 * i * tokens));
	}
	kn_cp_async_commit();
}

/* The same of its values: of each 16 positions a chunk of 8 of each 64 elements. */
template <int WIDE>
__device__ static inline void load_values(const struct kn_attn_call &c, const struct span &s, int block, int tile,
					  unsigned char *to, int t)
{
	t = kn_anew(t);
	tile = kn_anew(tile);
	int pos = tile * TILE + t / 8, tokens = c.pages.page_tokens;
	to += 16 * place_of<8>(t / 8, t % 8);
	UNROLL_FOR(int i = 0; i < TILE / 16; i++, pos += 16) {
		int from = kn_shuffle_int(block, i);
		bool there = pos >= s.from && pos < s.to;
		const uint8_t *at = c.v + (int64_t)from * (int)c.pages.head_bytes +
				    (uint32_t)((pos & (tokens - 1)) * WIDE + t % 8 * 8) * 2;
		UNROLL_FOR(int j = 0; j < WIDE / 64; j++)
			kn_cp_async16_or_zero(to + i * 2048 + j * TILE * 128, at + 128 * j, there);
	}
	kn_cp_async_commit();
}

/* Waits for this thread's copies but the last, and for the other threads'. */
__device__ static inline void await_side(void)
{
	kn_cp_async_wait<1>();
#if KN_CODE_HAS_WGMMA
	kn_wgmma_sees_shared();
#endif
	kn_barrier();
}

#if KN_CODE_HAS_WGMMA

/* The products of the queries and a tile's keys. */
template <int KIND, int WIDE, class P>
__device__ static inline void group_keys(const struct queries<P> &w, const unsigned char *keys, float (*s)[4])
{
	kn_wgmma_begin();
	UNROLL_FOR(int k = 0; k < WIDE / 16; k++)
		kn_wgmma_rows<COLUMNS, KIND == BRAIN>(s, w.q[k], kn_rows_at(keys + k * 2048, 0), k > 0);
	kn_wgmma_commit();
	kn_wgmma_wait<0>();
}

/* Adds a tile's values, times their weights. */
template <int KIND, int WIDE>
__device__ static inline void group_values(uint32_t (*weights)[4], const unsigned char *values, struct so_far<WIDE> *b)
{
	kn_wgmma_begin();
	UNROLL_FOR(int k = 0; k < TILE / 16; k++)
		kn_wgmma_rows<WIDE / 8, KIND == BRAIN>(b->value, weights[k], kn_rows_at(values + k * 2048, TILE * 128),
						       true);
	kn_wgmma_commit();
	kn_wgmma_wait<0>();
}

#endif

/* Only for devices whose code has these products. */
template <int KIND, int WIDE>
__global__ void BLOCKS_AT_LEAST(4 * KN_WARP, (group_plan<WIDE>::blocks)) attend_group(IN_PLACE struct kn_attn_call c)
{
	kn_begin();
#if KN_CODE_HAS_WGMMA
	typedef struct group_plan<WIDE> P;
	unsigned char *keys = (unsigned char *)kn_shared(), *values = keys + P::side;
	int t = (int)threadIdx.x;
	struct prompt_place place = find_place<P>(c);
	struct span s;
	if (!find_prompt<P>(c, place, &s))
		return;                                /* every thread of the block */
	int block = find_block(c, s, s.first_tile, t); /* of the tile whose values are next */
	load_keys<WIDE>(c, s, block, s.first_tile, keys, t);
	load_values<WIDE>(c, s, block, s.first_tile, values, t);
	struct queries<P> w;
	find_queries<KIND, WIDE>(c, place.item, s.kv_head, place.begin + t / KN_WARP * QUERIES, t % KN_WARP, &w);
	begin_merge<WIDE, 1, P>(keys, t);
	struct so_far<WIDE> b;
	begin_block(&b);
	block = find_block(c, s, s.first_tile + 1, t);
#pragma unroll 1
	for (int tile = s.first_tile; tile * TILE < s.to; tile++) {
		bool last = (tile + 1) * TILE >= s.to;
		float scores[1][COLUMNS][4];
		uint32_t weights[1][TILE / 16][4];
		await_side();
		group_keys<KIND, WIDE>(w, keys, scores[0]);
		kn_barrier(); /* the keys are no longer needed */
		load_keys<WIDE>(c, s, block, tile + 1, keys, t);
		prompt_weigh<KIND, WIDE, 1, false, P>(c, &w.factor, tile, t,
						      tile * TILE < w.all_from || (tile + 1) * TILE > w.all_to, scores,
						      weights, &b);
		await_side();
		group_values<KIND, WIDE>(weights[0], values, &b);
		kn_barrier();
		load_values<WIDE>(c, s, block, tile + 1, values, t);
		block = find_block(c, s, tile + 2, t);
		if ((tile + 1) * TILE % KN_ATTN_BLOCK != 0 && !last)
			continue;
		int at = tile * TILE / KN_ATTN_BLOCK;
		end_block(&b);
		prompt_merge<WIDE, 1, P>(
		    c, &b, t, at, at * KN_ATTN_BLOCK < w.all_to && (at + 1) * KN_ATTN_BLOCK > w.all_from, last, keys);
	}
	kn_cp_async_wait<0>();
#else
	(void)c;
#endif
}

#endif
