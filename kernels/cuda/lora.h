/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters on the device. Which adapters a step has is data: step.cu brings it with the step's other inputs,
 * so steps of as many rows have the same commands whatever their adapters are (list.h). An adapter's matrices and their
 * shapes are found through kn_lora_group.sites.
 *
 * Order: x is divided into pieces of KN_LORA_PIECE numbers and the pieces into KN_PARTS parts, by n_in alone. A lane
 * has KN_LORA_EACH adjacent numbers of each piece, a fixed tree adds the lanes of a part, then the parts are added in
 * order. An output adds up the rank in order. So a row has the same bits in every kernel here.
 */
#ifndef KERNELS_CUDA_LORA_H
#define KERNELS_CUDA_LORA_H

#include "kernels/cuda/matmul.h"

enum { KN_LORA_EACH = 8, KN_LORA_PIECE = KN_LORA_EACH * KN_WARP };

/* Bytes of a number, as kn_lora_bytes. */
template <int TYPE> __device__ static constexpr int kn_lora_each()
{
	return TYPE == KN_F32 ? 4 : TYPE == KN_LORA_I8 ? 1 : 2;
}

/* Number i of a matrix. */
template <int TYPE> __device__ static inline float kn_lora_number(const uint8_t *of, int64_t i)
{
	const void *at = of + i * kn_lora_each<TYPE>();
	if (TYPE == KN_F32)
		return *(const float *)at;
	if (TYPE == KN_LORA_I8)
		return (float)*(const int8_t *)at;
	return TYPE == KN_F16 ? kn_f16_float(*(const uint16_t *)at) : kn_bf16_float(*(const uint16_t *)at);
}

/* What a product of few rows adds to its own outputs (matvec.cu). A part's outputs begin at a multiple of KN_OUTS of
 * the product's, so that a tile of them is a tile of its B. */
struct kn_lora_after {
	struct kn_lora_step step;
	const float *t;
	int t_width, site;
	int at[KN_LORA_PARTS], n[KN_LORA_PARTS]; /* first output and number of them */
};

/* A row of a tile of outputs. */
struct kn_lora_tile_row {
	const uint8_t *b; /* of the tile; rank 0: nothing is added */
	const float *t;
	float scale;
	int32_t rank, type;
};

/* What to add to row `row` in that tile of a product. */
__device__ static inline struct kn_lora_tile_row kn_lora_row_of(const struct kn_lora_after &c, int row, int tile)
{
	struct kn_lora_tile_row r = {};
	int group = c.step.group_of[row], part = -1, out = tile * KN_LORA_TILE;
	UNROLL_FOR(int i = 0; i < KN_LORA_PARTS; i++)
		if (tile * KN_LORA_TILE >= c.at[i] && tile * KN_LORA_TILE < c.at[i] + c.n[i]) {
			part = i;
			out = tile * KN_LORA_TILE - c.at[i];
		}
	if (group < 0 || part < 0)
		return r;
	const struct kn_lora *l = c.step.groups[group].sites + c.site;
	r.rank = part < l->n_parts ? l->parts[part].rank : 0;
	if (r.rank == 0)
		return r;
	r.type = l->type;
	r.scale = l->parts[part].scale;
	r.t = c.t + (int64_t)c.step.at[row] * c.t_width;
	for (int k = 0; k < part; k++)
		r.t += l->parts[k].rank;
	int bytes = l->type == KN_F32 ? 4 : l->type == KN_LORA_I8 ? 1 : 2;
	r.b = (const uint8_t *)l->parts[part].b + (int64_t)out * r.rank * bytes;
	return r;
}

template <int TYPE> __device__ static inline float kn_lora_sum(const struct kn_lora_tile_row &r, int in)
{
	float sum = 0;
	for (int j = 0; j < r.rank; j++)
		sum = kn_fma(kn_lora_number<TYPE>(r.b, (int64_t)j * KN_LORA_TILE + in), r.t[j], sum);
	return sum;
}

/* y of output `in` of the tile, which was `was`. */
__device__ static inline float kn_lora_added(const struct kn_lora_tile_row &r, int in, float was)
{
	float sum;
	if (r.rank == 0)
		return was;
	switch (r.type) {
	case KN_BF16: sum = kn_lora_sum<KN_BF16>(r, in); break;
	case KN_F16: sum = kn_lora_sum<KN_F16>(r, in); break;
	case KN_LORA_I8: sum = kn_lora_sum<KN_LORA_I8>(r, in); break;
	default: sum = kn_lora_sum<KN_F32>(r, in); break;
	}
	return kn_fma(r.scale, sum, was);
}

#endif
