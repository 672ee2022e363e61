/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on a device, what its kernels share: attention.cu (which kernel, float32 pages, merging) and
 * attention_mma.h (all other pages, on tensor cores).
 *
 * Queries are numbered within an item, the adjacent rows of one sequence: query i of a key head
 * is of row i / group and of head i % group of its group, so that all that read the same keys are
 * neighbours. A thread block takes a tile of them (c.n_tiles of an item at the most; what an item does not
 * have ends at once) and goes over absolute blocks of KN_ATTN_BLOCK positions. What a block of positions gives
 * (maximum, sum, weighted values) is merged into what the ones before gave, left to right (Milakov, Gimelshein,
 * "Online normalizer calculation for softmax", 2018).
 *
 * In parts, a thread block takes one block of positions, puts what it got into scratch memory, and
 * kn_attn_combine merges in the same order with the same function. The bits are the same either way, so which
 * one runs may depend on the step. A grid in parts is as wide as the power of two that holds the longest
 * sequence's blocks; which of them a row has, the device looks up: a step with other positions has the same launch.
 */
#ifndef KERNELS_CUDA_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/backend.h"

/* At an address that is a multiple of T's size. */
template <class T> __device__ static inline T kn_load(const uint8_t *at) { return *reinterpret_cast<const T *>(at); }

struct kn_attn_call {
	struct kn_pages pages;
	int type;
	const float *q;
	const uint8_t *k, *v;
	float *out, *parts;
	const int32_t *row_pos, *row_seq;
	const int32_t *row_sees; /* NULL: up to its own position */
	const struct kn_item *items;
	struct kn_attn attn;
	int n_heads, group; /* query heads, and how many of them share a key head */
	int n_tiles;        /* of an item and a key head, at the most */
	int n_parts;        /* blocks of positions that there is room for; 0: not in parts, 1: nothing to merge */
	bool alone;         /* items have one row, and parts are by item; otherwise by row */
	bool wide;          /* pages are laid out so that 16 bytes may be loaded at once */
};

/* [first, end) of the positions that a row sees. */
__device__ static inline void kn_seen_by(const struct kn_attn_call &c, int row, int *first, int *end)
{
	*end = c.row_sees != NULL ? c.row_sees[row] : c.row_pos[row] + 1;
	*first = c.attn.window > 0 && *end > c.attn.window ? *end - c.attn.window : 0;
}

/* Scores of float32 pages are to the base e, those of the others to the base 2, one instruction of the device. */
template <bool BASE_2> __device__ static inline float kn_attn_exp(float x) { return BASE_2 ? exp2f(x) : expf(x); }

/* Factors of what there is and what comes, and the new maximum and sum. */
template <bool BASE_2>
__device__ static inline void kn_attn_merge(float *max, float *sum, float block_max, float block_sum, float *keep,
					    float *take)
{
	float m = fmaxf(*max, block_max);
	*keep = kn_attn_exp<BASE_2>(*max - m);
	*take = kn_attn_exp<BASE_2>(block_max - m);
	*sum = *sum * *keep + block_sum * *take;
	*max = m;
}

/* Maximum, sum and head_dim values of a row's block of positions. */
__device__ static inline float *kn_attn_part(const struct kn_attn_call &c, int row, int head, int block)
{
	int64_t at = c.alone ? (int64_t)blockIdx.x : row;
	return c.parts + ((at * c.n_heads + head) * c.n_parts + block) * (c.pages.head_dim + 2);
}

/* The queries that a thread block of that kernel takes. */
int kn_attn_mma_tile(bool alone);
/* Whether the tensor cores' kernels take heads so wide. */
bool kn_attn_mma_can(int head_dim);
/* Launches it for c->items. Single rows are always in parts. */
int kn_attn_mma(struct kn_backend *b, const struct kn_attn_call *c, int n_items);
/* The same for one kind of pages each: KN_F16; KN_BF16; KN_KV_Q8 and KN_FP8. */
int kn_attn_mma_f16(struct kn_backend *b, const struct kn_attn_call *c, int n_items);
int kn_attn_mma_bf16(struct kn_backend *b, const struct kn_attn_call *c, int n_items);
int kn_attn_mma_8bit(struct kn_backend *b, const struct kn_attn_call *c, int n_items);

#endif
