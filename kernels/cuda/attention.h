/* SPDX-License-Identifier: Apache-2.0
 *
 * Definitions shared by the attention kernels: attention.cu (selection, float32 pages, merging) and attention_mma.h
 * (all other pages, on tensor cores).
 *
 * Queries are numbered within an item, a run of adjacent rows of one sequence. Query i of a key head is row i / group
 * and head i % group of the key head's group, so queries that read the same keys are neighbours. A thread block takes
 * a tile of them (at most c.n_tiles per item; surplus blocks end at once) and iterates over absolute blocks of
 * KN_ATTN_BLOCK positions. The result of a block of positions (maximum, sum, weighted values) is merged into that of
 * the preceding ones, left to right (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * With parts, a thread block handles one block of positions and writes its result to scratch memory; kn_attn_combine
 * merges in the same order with the same function. The bits are equal either way, so the choice may depend on the step.
 * Few parts of single rows are merged by the block that writes the last one (attention_merge.h).
 * A grid with parts is as wide as the power of two that holds the longest sequence's blocks, and the device looks up
 * which of them a row has. So steps with other positions have the same launch.
 */
#ifndef KERNELS_CUDA_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/backend.h"

/* at: aligned to T's size. */
template <class T> __device__ static inline T kn_load(const uint8_t *at) { return *reinterpret_cast<const T *>(at); }

struct kn_attn_call {
	struct kn_pages pages;
	int type;
	const float *q;
	const uint8_t *k, *v;
	float *out, *parts;
	struct kn_into to; /* units NULL: no rows in the format of products */
	uint32_t *arrived; /* one for each item's key head, whose blocks merge its parts. NULL: combine does that */
	const int32_t *row_pos, *row_seq;
	const int32_t *row_sees; /* NULL: positions up to the row's own */
	const struct kn_item *items;
	struct kn_attn attn;
	int n_heads, group; /* n_heads: query heads. group: query heads per key head */
	int n_tiles;        /* upper bound per item and key head */
	int latent_row;     /* elements of a latent row, of which the first pages.head_dim are its value; 0: none */
	int n_parts;        /* upper bound for parts, in blocks of positions; 0: no parts, 1: nothing to merge */
	bool alone;         /* items have one row each and parts are indexed by item, otherwise by row */
	bool wide;          /* the pages' layout permits 16-byte loads */
};

/* The positions [first, end) that a row sees. */
__device__ static inline void kn_seen_by(const struct kn_attn_call &c, int row, int *first, int *end)
{
	*end = c.row_sees != NULL ? c.row_sees[row] : c.row_pos[row] + 1;
	*first = c.attn.window <= 0 || *end <= c.attn.window ? 0
		 : c.attn.chunked                            ? (*end - 1) / c.attn.window * c.attn.window
							     : *end - c.attn.window;
}

/* Whether a query that sees [first, end) sees a position of that block. It alone decides whether a block is merged and
 * whether its part is written, never a score: scores may be NaN or -INFINITY, and a part that the merge reads must be
 * this query's. */
__device__ static inline bool kn_attn_sees(int first, int end, int block)
{
	return first < (block + 1) * KN_ATTN_BLOCK && end > block * KN_ATTN_BLOCK;
}

/* Scores of float32 pages use base e, all others base 2, which is a single instruction. */
template <bool BASE_2> __device__ static inline float kn_attn_exp(float x) { return BASE_2 ? exp2f(x) : expf(x); }

/* Merges a block's maximum and sum into the running ones. *keep, *take: factors of the old and the new values. While
 * every score is -INFINITY both are 0, as the sums are; a sum that is NaN stays NaN. */
template <bool BASE_2>
__device__ static inline void kn_attn_merge(float *max, float *sum, float block_max, float block_sum, float *keep,
					    float *take)
{
	float m = fmaxf(*max, block_max), base = m > -INFINITY ? m : 0.0f;
	*keep = kn_attn_exp<BASE_2>(*max - base);
	*take = kn_attn_exp<BASE_2>(block_max - base);
	*sum = *sum * *keep + block_sum * *take;
	*max = m;
}

#define LOG2_E 1.44269504f

/* The sum of a row's weights relative to its largest score, all blocks merged, with that of the head's sink. */
template <bool BASE_2>
__device__ static inline float kn_attn_whole(const struct kn_attn_call &c, int head, float max, float sum)
{
	if (c.attn.sinks == NULL)
		return sum;
	return sum + kn_attn_exp<BASE_2>(c.attn.sinks[head] * (BASE_2 ? LOG2_E : 1.0f) - max);
}

/* Floats of a part: maximum and sum, two that nothing has, values from 16 bytes on. */
enum { KN_PART_VALUES = 4 };
/* Address of a part: of a row's block of positions. */
__device__ static inline float *kn_attn_part(const struct kn_attn_call &c, int row, int head, int block)
{
	int64_t at = c.alone ? (int64_t)blockIdx.x : row;
	return c.parts + ((at * c.n_heads + head) * c.n_parts + block) * (c.pages.head_dim + KN_PART_VALUES);
}

/* Queries per thread block of the tensor core kernel. */
int kn_attn_mma_tile(bool alone);
/* Whether the tensor core kernels support that head_dim. */
bool kn_attn_mma_can(int head_dim);
/* Whether they have kernels for prompts without parts (attention_prompts.h) for that call: heads and pages as most
 * models have. */
bool kn_attn_prompt_can(const struct kn_attn_call *c);
/* Launches it for c->items. Single rows are always in parts. */
int kn_attn_mma(struct kn_backend *b, const struct kn_attn_call *c, int n_items);
/* The same, for one kind of pages: KN_F16; KN_BF16; KN_KV_Q8 and KN_FP8. */
int kn_attn_mma_f16(struct kn_backend *b, const struct kn_attn_call *c, int n_items);
int kn_attn_mma_bf16(struct kn_backend *b, const struct kn_attn_call *c, int n_items);
int kn_attn_mma_8bit(struct kn_backend *b, const struct kn_attn_call *c, int n_items);

/* The same for latent rows (latent.cu), of any type. */
int kn_attn_latent(struct kn_backend *b, const struct kn_attn_call *c, int n_items);

#endif
