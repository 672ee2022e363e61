/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of mixtures of experts share: the choice and order of rows (route.cu), and what is done with them
 * (experts.cu).
 *
 * A slot is a row with one of its experts: slot k of row r is number r · n_used + k. The ordered slots are sorted by
 * expert, those of one expert by number, so that an expert's rows are adjacent in activations, products and groups
 * (matmul.h). Everything that depends on the choice is in device memory: launches depend on the numbers of rows and
 * experts only.
 */
#ifndef KERNELS_CUDA_EXPERTS_H
#define KERNELS_CUDA_EXPERTS_H

#include "kernels/cuda/rows.h"

enum { KN_ROUTE_THREADS = 128 };

/* What a choice makes, in device memory, for at most n slots. */
struct kn_order {
	int32_t *chosen;   /* [n]: a slot's expert */
	float *weight;     /* [n]: and its weight */
	int32_t *place;    /* [n]: where the slot is among the ordered ones */
	int32_t *slot;     /* [n]: the reverse */
	int32_t *unit_row; /* [n]: the ordered slot's row of activations, whose tiles begin with each expert's first */
	struct kn_group *groups;
	int32_t *totals; /* groups, slots */
};

/* Rows of the caller's: a padded step has copies of the last one after them, which take part in nothing and get its
 * results. */
struct kn_real_rows {
	const int32_t *step; /* of the device: the step's rows without padding; NULL: all are real */
	int times, all;      /* times that, at most `all` */
};

__device__ static inline int kn_real(const struct kn_real_rows &r)
{
	return r.step == NULL ? r.all : *r.step * r.times;
}

/* Chooses each row's experts and orders the slots, in groups of at most group_rows rows; counts [route->n] of the
 * device, or NULL: how many rows each expert has. 0 or SL_EIO. */
int kn_cuda_route(struct kn_backend *b, const struct kn_route *route, const float *logits,
		  const struct kn_real_rows *rows, int group_rows, const struct kn_order *out, uint32_t *counts);

/* ---- gates ---- */

/* Formats of rows. */
enum kn_format { KN_AS_F16, KN_AS_BF16, KN_AS_F32, KN_N_FORMATS };

enum { KN_OPEN_THREADS = 256 }; /* of a block that has a row */

struct kn_gate_call {
	struct kn_order order;
	float *gate; /* [ordered slot][n_ff]; becomes the result */
	const float *up, *gate_bias, *up_bias;
	struct kn_into into;
	int n_ff, act; /* enum kn_gate */
};

/* A row's numbers k…k+3 as products take them, for all lanes of a warp. */
template <enum kn_format FORMAT>
__device__ static inline void kn_put4(const struct kn_into &to, int row, int k, const float *v, float scale)
{
	struct kn_into into = to;
	into.bf16 = FORMAT == KN_AS_BF16; /* known to the compiler */
	kn_put_units(into, row, k, {v[0], v[1], v[2], v[3]}, scale);
}

__device__ static inline float kn_opened(int act, float g, float up)
{
	switch (act) {
	case KN_GATE_SILU: return silu_mul{}.of(g, up);
	case KN_GATE_GELU: return gelu_mul{}.of(g, up);
	case KN_NO_GATE: return g < 0 ? 0.0f : g * g;
	default: {
		float x = fminf(g, KN_CLAMP), y = fmaxf(fminf(up, KN_CLAMP), -KN_CLAMP);
		return x / (1.0f + expf(-KN_CLAMP_SLOPE * x)) * (y + 1.0f);
	}
	}
}

/* Numbers k…k+3 of slot s, zero past the end. */
__device__ static inline void kn_open4(const struct kn_gate_call &c, int s, int expert, int k, float *v)
{
	int64_t at = (int64_t)s * c.n_ff, bias = (int64_t)expert * c.n_ff;
	float up[4] = {0, 0, 0, 0}, more[4];
	kn_load4(c.gate + at, k, c.n_ff, true, v);
	if (c.up != NULL)
		kn_load4(c.up + at, k, c.n_ff, true, up);
	if (c.gate_bias != NULL) {
		kn_load4(c.gate_bias + bias, k, c.n_ff, true, more);
		UNROLL_FOR(int i = 0; i < 4; i++)
			v[i] += more[i];
	}
	if (c.up_bias != NULL) {
		kn_load4(c.up_bias + bias, k, c.n_ff, true, more);
		UNROLL_FOR(int i = 0; i < 4; i++)
			up[i] += more[i];
	}
	UNROLL_FOR(int i = 0; i < 4; i++)
		v[i] = k + i < c.n_ff ? kn_opened(c.act, v[i], up[i]) : 0.0f;
}

/* Opens the gates of ordered slot s by a warp or by KN_OPEN_THREADS threads, with the same bits. Each thread reads
 * again only what it wrote. */
template <enum kn_format FORMAT, bool WARP>
__device__ static inline void kn_open_row(const struct kn_gate_call &c, int s, int t)
{
	constexpr int N = WARP ? (int)KN_WARP : (int)KN_OPEN_THREADS;
	int slot = c.order.slot[s], expert = c.order.chosen[slot], row = c.order.unit_row[s], exponent = 0;
	float *gate = c.gate + (int64_t)s * c.n_ff, v[4];
	if constexpr (FORMAT != KN_AS_BF16) {
		float most = 0;
		for (int k = 4 * t; k < c.n_ff; k += 4 * N) {
			kn_open4(c, s, expert, k, v);
			UNROLL_FOR(int i = 0; i < 4; i++) {
				if (k + i < c.n_ff)
					gate[k + i] = v[i];
				most = fmaxf(most, fabsf(v[i]));
			}
		}
		if (FORMAT == KN_AS_F16)
			exponent = kn_scaling_exponent(WARP ? kn_warp_max(most) : kn_block_largest(most, N));
	}
	if constexpr (FORMAT != KN_AS_F32) {
		if (t == 0)
			c.into.inverse[row] = kn_power(-exponent);
		for (int k = 4 * t; k < c.into.n_slabs * KN_SLAB; k += 4 * N) {
			if (FORMAT == KN_AS_BF16)
				kn_open4(c, s, expert, k, v);
			else
				kn_load4(gate, k, c.n_ff, true, v);
			kn_put4<FORMAT>(c.into, row, k, v, kn_power(exponent));
		}
	}
}

/* matvec.cu: as kn_cuda_matvec_grouped for all matrices of one type, whose last block of each group then opens its
 * gates: of at most KN_ROWS rows, a warp each. KN_NOT_TAKEN: not for these. */
int kn_cuda_matvec_opened(struct kn_backend *b, int type, const struct kn_product *p, const struct kn_grouped *g,
			  const struct kn_gate_call *c);

#endif
