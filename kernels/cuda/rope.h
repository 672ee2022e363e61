/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary embedding and writing keys and values to pages in the pool's type, by a warp for a row's key head with its
 * query heads: for a kernel of its own (pages.cu) and for the end of the product that makes them (then.h), with the
 * same bits.
 */
#ifndef KERNELS_CUDA_ROPE_H
#define KERNELS_CUDA_ROPE_H

#include "kernels/cuda/backend.h"

enum {
	TURN_AHEAD = 2, /* times four pairs a lane loads before it stores any */
	PUT_AHEAD = 4,  /* elements a lane loads before it stores any */
};

struct turn {
	int n_rot;
	bool halves, wide;  /* wide: four numbers at a time */
	const float *turns; /* [row][n_rot / 2][cosine, sine] */
	float grow;         /* of queries (kn_rope) */
	int grow_every, grow_from;
};

/* Queries, keys and values of n_rows rows. q_row, k_row: floats from a row to the next. */
struct rope_call {
	struct turn turn;
	struct kn_pages pages;
	int type;
	const int32_t *row_pos, *row_seq;
	float *q, *k;
	const float *v;
	uint8_t *k_pool, *v_pool;
	int n_rows, n_heads, q_row, k_row;
};

/* Sets what turns the step's rows: their angles, made once a step, and how. 0 or SL_EIO. */
int kn_cuda_turns(struct kn_backend *b, const struct kn_rope *rope, struct turn *turn);

/* Rotates one pair, and stretches it. */
__device__ static inline void turn_pair(float *a, float *b, float c, float s, float factor)
{
	float u = *a, v = *b;
	*a = (u * c - v * s) * factor;
	*b = (u * s + v * c) * factor;
}

/* The factor of queries at a position, as kn_rope_grown. */
__device__ static inline float grown(const struct turn &turn, int pos)
{
	if (turn.grow == 0.0f)
		return 1.0f;
	return (float)(1 + (double)turn.grow * log((double)(1 + ((int64_t)pos + turn.grow_from) / turn.grow_every)));
}

/* Four pairs of a head, and the turns of these. */
struct four_pairs {
	struct kn_f4 *first, *second; /* first NULL: none */
	struct kn_f4 u, v, low, high;
};

/* Number i of n_heads contiguous heads. */
__device__ static inline void load_pairs(const struct turn &turn, const float *turns, float *x, int n_heads,
					 int head_dim, int i, struct four_pairs *p)
{
	int half = turn.n_rot / 2, pair = i * 4 % half, a = turn.halves ? pair : 2 * pair;
	float *head = x + (int64_t)(i * 4 / half) * head_dim;
	const struct kn_f4 *by = (const struct kn_f4 *)(const void *)(turns + 2 * pair);
	p->first = NULL;
	if (i >= n_heads * half / 4)
		return;
	p->first = (struct kn_f4 *)(void *)(head + a);
	p->second = (struct kn_f4 *)(void *)(head + (turn.halves ? pair + half : a + 4));
	p->u = *p->first;
	p->v = *p->second;
	p->low = by[0];
	p->high = by[1];
}

__device__ static inline void store_pairs(const struct turn &turn, const struct four_pairs &p, float factor)
{
	if (p.first == NULL)
		return;
	/* Values, not pointers to one or the other: these would keep both in local memory. */
	struct kn_f4 even = turn.halves ? p.u : kn_f4{p.u.x, p.u.z, p.v.x, p.v.z};
	struct kn_f4 odd = turn.halves ? p.v : kn_f4{p.u.y, p.u.w, p.v.y, p.v.w};
	turn_pair(&even.x, &odd.x, p.low.x, p.low.y, factor);
	turn_pair(&even.y, &odd.y, p.low.z, p.low.w, factor);
	turn_pair(&even.z, &odd.z, p.high.x, p.high.y, factor);
	turn_pair(&even.w, &odd.w, p.high.z, p.high.w, factor);
	*p.first = turn.halves ? even : kn_f4{even.x, odd.x, even.y, odd.y};
	*p.second = turn.halves ? odd : kn_f4{even.z, odd.z, even.w, odd.w};
}

/* A warp rotates the pairs of n_heads contiguous heads, and stretches the heads by the factor. */
__device__ static inline void rotate(const struct turn &turn, const float *turns, float *x, int n_heads, int head_dim,
				     float factor, int lane)
{
	int rest = head_dim - turn.n_rot;
	for (int i = lane; factor != 1.0f && i < n_heads * rest; i += KN_WARP)
		x[(int64_t)(i / rest) * head_dim + turn.n_rot + i % rest] *= factor;
	int half = turn.n_rot / 2;
	for (int i = lane; !turn.wide && i < n_heads * half; i += KN_WARP) {
		int pair = i % half, a = turn.halves ? pair : 2 * pair, b = turn.halves ? pair + half : a + 1;
		float *head = x + (int64_t)(i / half) * head_dim;
		turn_pair(head + a, head + b, turns[2 * pair], turns[2 * pair + 1], factor);
	}
	struct four_pairs p[TURN_AHEAD];
#pragma unroll 1
	for (int i = lane; turn.wide && i < n_heads * half / 4; i += TURN_AHEAD * KN_WARP) {
		UNROLL_FOR(int j = 0; j < TURN_AHEAD; j++) /* all on their way together */
			load_pairs(turn, turns, x, n_heads, head_dim, i + j * KN_WARP, &p[j]);
		UNROLL_FOR(int j = 0; j < TURN_AHEAD; j++)
			store_pairs(turn, p[j], factor);
	}
}

/* Key head `head` of a row, and its query heads. */
__device__ static inline void turn_head(const struct rope_call &c, int row, int head, int lane)
{
	int hd = c.pages.head_dim, group = c.n_heads / c.pages.n_kv_heads;
	const float *turns = c.turn.turns + (int64_t)row * c.turn.n_rot;
	rotate(c.turn, turns, c.q + (int64_t)row * c.q_row + (int64_t)head * group * hd, group, hd,
	       grown(c.turn, c.row_pos[row]), lane);
	rotate(c.turn, turns, c.k + (int64_t)row * c.k_row + (int64_t)head * hd, 1, hd, 1.0f, lane);
}

/* The 8-bit scale of a head's elements (kv_type.h), returned in all lanes. */
__device__ static inline float scale_of(int type, const float *x, int n, int lane)
{
	float most = 0, none = 0; /* none: nonzero if an element is not finite */
	for (int d = lane; d < n; d += KN_WARP) {
		most = fmaxf(most, fabsf(x[d]));
		none = fabsf(x[d]) < INFINITY ? none : 1.0f;
	}
	most = kn_warp_max(most);
	none = kn_warp_max(none);
	float scale = most / (type == KN_KV_Q8 ? 127.0f : 448.0f);
	if (none > 0)
		return kn_bits_float(0x7FC00000u);
	return scale >= 0x1p-126f ? scale : 0.0f;
}

/* Clamps x to ±most; NaN stays NaN. */
__device__ static inline float within(float x, float most) { return x > most ? most : x < -most ? -most : x; }

/* NaN has the same bits on every backend. */
__device__ static inline uint16_t f16_of(float x)
{
	if (x != x)
		return (uint16_t)((kn_float_bits(x) >> 16 & 0x8000u) | 0x7E00u);
	return kn_float_f16(within(x, 65504.0f));
}

__device__ static inline uint8_t q8_of(float x)
{
	float q = rintf(x);
	return (uint8_t)(int8_t)(q >= 127.0f ? 127 : q > -127.0f ? (int)q : -127);
}

/* A lane's elements from `first` on, of n, to index at + d · apart for element d; f(where, x) stores one. */
template <class T, class F>
__device__ static inline void put_some(uint8_t *block, const float *v, int first, int n, int at, int apart, const F &f)
{
	UNROLL_FOR(int j = 0; j < PUT_AHEAD; j++) {
		int d = first + j * KN_WARP;
		if (d < n)
			f((T *)(void *)block + at + (int64_t)d * apart, v[j]);
	}
}

/* A warp writes one token's elements to its block: element d at index at + d · apart. */
__device__ static inline void put(int type, uint8_t *block, int scale_at, const float *x, int n, int at, int apart,
				  int lane)
{
	float scale = 1;
	if (kn_has_scales(type)) {
		scale = scale_of(type, x, n, lane);
		if (lane == 0)
			*(float *)(void *)(block + scale_at) = scale;
	}
#pragma unroll 1
	for (int i = lane; i < n; i += PUT_AHEAD * KN_WARP) {
		float v[PUT_AHEAD];
		UNROLL_FOR(int j = 0; j < PUT_AHEAD; j++) /* all on their way together */
			v[j] = i + j * KN_WARP < n ? x[i + j * KN_WARP] : 0.0f;
		switch (type) {
		case KN_F32: put_some<float>(block, v, i, n, at, apart, [](float *to, float e) { *to = e; }); break;
		case KN_F16:
			put_some<uint16_t>(block, v, i, n, at, apart, [](uint16_t *to, float e) { *to = f16_of(e); });
			break;
		case KN_BF16:
			put_some<uint16_t>(block, v, i, n, at, apart,
					   [](uint16_t *to, float e) { *to = kn_float_bf16(within(e, 0x1.FEp127f)); });
			break;
		case KN_KV_Q8:
			put_some<uint8_t>(block, v, i, n, at, apart,
					  [&](uint8_t *to, float e) { *to = scale > 0 ? q8_of(e / scale) : 0; });
			break;
		default:
			put_some<uint8_t>(block, v, i, n, at, apart, [&](uint8_t *to, float e) {
				*to = scale > 0 ? (uint8_t)kn_float_e4m3(e / scale) : 0;
			});
			break;
		}
	}
}

/* Where a row's key head goes; found before the head is turned, so that its loads are on their way meanwhile. */
struct head_place {
	int64_t at; /* of the block */
	int in_page;
};

__device__ static inline struct head_place place_of(const struct rope_call &c, int row, int head)
{
	const struct kn_pages &pages = c.pages;
	int pos = c.row_pos[row], in_page = kn_pos_in_page(pages, pos);
	return {kn_block_at(pages, c.row_seq[row], pos, head), in_page};
}

/* Key head `head` of a row, turned before, and its values, go to their page. */
__device__ static inline void write_head(const struct rope_call &c, const struct head_place &to, int row, int head,
					 int lane)
{
	int hd = c.pages.head_dim, scale_at = c.pages.scales_at + 4 * to.in_page;
	int64_t from = (int64_t)row * c.k_row + (int64_t)head * hd;
	put(c.type, c.k_pool + to.at, scale_at, c.k + from, hd, to.in_page, c.pages.page_tokens, lane);
	put(c.type, c.v_pool + to.at, scale_at, c.v + from, hd, to.in_page * hd, 1, lane);
}

#endif
