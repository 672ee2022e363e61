/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of single rows' attention (attention_alone.h) where a kernel of its own would cost more than it does: the
 * block that writes the last of a key head's parts merges them, for all heads of its group, and writes the row's
 * numbers as products take them. As combine (attention.cu), with the same bits.
 */
#ifndef KERNELS_CUDA_ATTENTION_MERGE_H
#define KERNELS_CUDA_ATTENTION_MERGE_H

#include "kernels/cuda/activations.h"
#include "kernels/cuda/attention.h"

enum { KN_MERGE_AHEAD = 7 }; /* parts in flight per thread */

/* Values d…d+3 of a head, of the parts of blocks first to last. */
__device__ static inline struct kn_f4 kn_attn_merged(const struct kn_attn_call &c, int row, int head, int d, int first,
						     int last)
{
	float max = -INFINITY, sum = 0, keep, take;
	struct kn_f4 value = {0, 0, 0, 0};
	const float *parts = kn_attn_part(c, row, head, 0);
	int each = c.pages.head_dim + KN_PART_VALUES;
#pragma unroll 1
	for (int block = first; block <= last; block += KN_MERGE_AHEAD) {
		float most[KN_MERGE_AHEAD], total[KN_MERGE_AHEAD];
		struct kn_f4 part[KN_MERGE_AHEAD];
		UNROLL_FOR(int i = 0; i < KN_MERGE_AHEAD; i++) {
			const float *at = parts + (block + i < last ? block + i : last) * each;
			most[i] = at[0];
			total[i] = at[1];
			part[i] = *(const struct kn_f4 *)(const void *)(at + KN_PART_VALUES + d);
		}
		UNROLL_FOR(int i = 0; i < KN_MERGE_AHEAD; i++) {
			if (block + i > last)
				continue;
			kn_attn_merge<true>(&max, &sum, most[i], total[i], &keep, &take);
			value.x = value.x * keep + part[i].x * take;
			value.y = value.y * keep + part[i].y * take;
			value.z = value.z * keep + part[i].z * take;
			value.w = value.w * keep + part[i].w * take;
		}
	}
	float share = 1.0f / kn_attn_whole<true>(c, head, max, sum);
	return {value.x * share, value.y * share, value.z * share, value.w * share};
}

/* What else the row's products read: its factor, and zeros past its end. */
__device__ static inline void kn_attn_fill(const struct kn_attn_call &c, int row, int t)
{
	const struct kn_f4 zero = {0, 0, 0, 0};
	if (t == 0)
		c.to.inverse[row] = 1;
	for (int k = c.n_heads * c.pages.head_dim + 4 * t; k < c.to.n_slabs * KN_SLAB; k += 4 * (int)blockDim.x)
		kn_put_units(c.to, row, k, zero, 1);
}

/* By a block, after it wrote a part, or the only one's result, of a row's key head. c.to is of bfloat16. */
__device__ static inline void kn_attn_finish(const struct kn_attn_call &c, int row, int kv_head, int t)
{
	int first, end, hd = c.pages.head_dim, k = kv_head * c.group * hd;
	kn_seen_by(c, row, &first, &end);
	first /= KN_ATTN_BLOCK;
	end = (end - 1) / KN_ATTN_BLOCK;
	if (c.n_parts > 1 &&
	    !kn_is_last_block(c.arrived + blockIdx.x * c.pages.n_kv_heads + kv_head, (uint32_t)(end + 1 - first)))
		return;
	if (c.to.units != NULL && kv_head == 0)
		kn_attn_fill(c, row, t);
	if (c.n_parts == 1)
		kn_barrier(); /* other threads wrote the result */
	for (int i = 4 * t; i < c.group * hd; i += 4 * (int)blockDim.x) {
		struct kn_f4 *out = (struct kn_f4 *)(void *)(c.out + (int64_t)row * c.n_heads * hd + k + i), v = *out;
		if (c.n_parts > 1)
			*out = v = kn_attn_merged(c, row, kv_head * c.group + i / hd, i % hd, first, end);
		if (c.to.units != NULL)
			kn_put_units(c.to, row, k + i, v, 1);
	}
}

#endif
