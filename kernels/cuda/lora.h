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

/* Finds what is added to a row of a tile. Each step loads by what the one before loaded, so a product goes on between
 * them, and none has to be waited for. */
struct kn_lora_search {
	const struct kn_lora *sites;
	const uint8_t *b;
	float scale;
	int32_t at, type, rank, before; /* before: ranks of the parts before the tile's */
};

__device__ static inline void kn_lora_find(const struct kn_lora_after &c, int row, struct kn_lora_search *s)
{
	s->sites = c.step.sites[row];
	s->at = c.step.at[row];
	s->rank = 0;
}

/* Which part a tile of outputs is of, and the first of these in it; -1: of none. */
__device__ static inline int kn_lora_part_of(const struct kn_lora_after &c, int tile, int *first)
{
	int part = -1, out = tile * KN_LORA_TILE;
	UNROLL_FOR(int i = 0; i < KN_LORA_PARTS; i++)
		if (out >= c.at[i] && out < c.at[i] + c.n[i]) {
			part = i;
			*first = out - c.at[i];
		}
	return part;
}

__device__ static inline void kn_lora_look(const struct kn_lora_after &c, int tile, struct kn_lora_search *s)
{
	int first, part = kn_lora_part_of(c, tile, &first);
	if (s->sites == NULL || part < 0)
		return;
	const struct kn_lora *l = s->sites + c.site;
	s->type = l->type;
	s->rank = l->parts[part].rank;
	s->scale = l->parts[part].scale;
	s->b = (const uint8_t *)l->parts[part].b;
	s->before = 0;
	UNROLL_FOR(int i = 0; i < KN_LORA_PARTS - 1; i++)
		s->before += i < part ? l->parts[i].rank : 0;
}

__device__ static inline struct kn_lora_tile_row kn_lora_found(const struct kn_lora_after &c, int tile,
							       const struct kn_lora_search &s)
{
	struct kn_lora_tile_row r = {};
	int first = 0;
	if (s.rank == 0)
		return r;
	(void)kn_lora_part_of(c, tile, &first);
	int bytes = s.type == KN_F32 ? 4 : s.type == KN_LORA_I8 ? 1 : 2;
	r.b = s.b + (int64_t)first * s.rank * bytes;
	r.t = c.t + (int64_t)s.at * c.t_width + s.before;
	r.scale = s.scale;
	r.rank = s.rank;
	r.type = s.type;
	return r;
}

/* Brings it towards the second-level cache. */
__device__ static inline void kn_lora_hint(const struct kn_lora_tile_row &r)
{
	int bytes = r.type == KN_F32 ? 4 : r.type == KN_LORA_I8 ? 1 : 2;
	for (int at = 0; at < r.rank * KN_LORA_TILE * bytes; at += 128)
		kn_prefetch(r.b + at);
}

enum { KN_LORA_AT_ONCE = 16 }; /* ranks whose numbers are on their way together */

template <int TYPE> __device__ static inline float kn_lora_sum(const struct kn_lora_tile_row &r, int in)
{
	float sum = 0;
	for (int from = 0; from < r.rank; from += KN_LORA_AT_ONCE) {
		float w[KN_LORA_AT_ONCE], t[KN_LORA_AT_ONCE];
		UNROLL_FOR(int j = 0; j < KN_LORA_AT_ONCE; j++)
			if (from + j < r.rank) {
				w[j] = kn_lora_number<TYPE>(r.b, (int64_t)(from + j) * KN_LORA_TILE + in);
				t[j] = r.t[from + j];
			}
		UNROLL_FOR(int j = 0; j < KN_LORA_AT_ONCE; j++)
			if (from + j < r.rank)
				sum = kn_fma(w[j], t[j], sum);
	}
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
