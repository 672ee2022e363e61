/* SPDX-License-Identifier: Apache-2.0
 *
 * What the blocks of a product do with its result in place of a kernel after it (matvec.cu). Blocks of the product
 * share the work out by what it needs: a norm needs whole rows, so the block that ends last does it, while a gate needs
 * two tiles of outputs, and the rotation of a head its own. The last block of those that write these does it then, as
 * soon as they are there; no block waits for another.
 */
#ifndef KERNELS_CUDA_THEN_H
#define KERNELS_CUDA_THEN_H

#include "kernels/cuda/lora.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/rows.h"

/* KN_THEN_PAIRED_…: a gate whose rows become bfloat16 for the next product, which needs no maximum of the row. */
enum kn_then_what : int32_t {
	KN_THEN_NORM,
	KN_THEN_SILU,
	KN_THEN_GELU,
	KN_THEN_PAIRED_SILU,
	KN_THEN_PAIRED_GELU,
	KN_THEN_ROPE,
	KN_THEN_NOTHING
};

struct kn_then {
	enum kn_then_what what;
	int q_width;       /* of a rotation: the product's outputs that are queries */
	uint32_t *arrived; /* 0 before and after, one for each share */
	struct row_call c;
	struct rope_call rope;
};

/* How the blocks of a product share what follows. */
struct kn_share {
	int i, n; /* number of this block's share, and of blocks whose outputs it needs */
};

__device__ static inline struct kn_share kn_share_of(const struct kn_then &then, int tile, int n_tiles)
{
	if (then.what < KN_THEN_PAIRED_SILU)
		return {0, n_tiles};
	if (then.what < KN_THEN_ROPE)
		return {tile % (n_tiles / 2), 2};
	const struct rope_call &c = then.rope;
	int n = c.pages.n_kv_heads, each = c.pages.head_dim / KN_OUTS, queries = then.q_width / KN_OUTS;
	int head = tile < queries ? tile / (queries / n) : (tile - queries) / each % n;
	return {head, n_tiles / n};
}

/* By NORM_THREADS threads, as the kernels of these operations do it: narrow norms by a warp each, all else row after
 * row. Rows that a tile lacks need no zeros: the products of a row depend on no other. */
__device__ static inline void kn_then_rows(const struct kn_then &then)
{
	const struct row_call &c = then.c;
	int t = (int)threadIdx.x, warp = t / KN_WARP;
	float *sums = (float *)kn_shared();
	if (then.what == KN_THEN_NORM && c.width <= NARROW) {
		if (warp < c.n_rows)
			norm_row<true, true, KEPT_BESIDE>(c, (int64_t)warp * c.width, t % KN_WARP, NULL);
		return;
	}
	for (int row = 0; row < c.n_rows; row++) {
		kn_barrier(); /* the last row's sums have been read */
		if (then.what == KN_THEN_SILU)
			gate_row<NORM_THREADS, 0>(silu_mul{}, c, row);
		else if (then.what == KN_THEN_GELU)
			gate_row<NORM_THREADS, 0>(gelu_mul{}, c, row);
		else
			norm_row<false, true, KEPT_BESIDE>(c, (int64_t)row * c.width, t, sums);
	}
}

/* Up to KN_ROWS rows of a tile of the gated row, four numbers a thread. The first tile also writes the factors and the
 * zeros past the row's end. */
template <class OP> __device__ static inline void kn_then_tile(const OP &op, const struct row_call &c, int tile)
{
	int t = (int)threadIdx.x, row = t / 4, end = c.to.n_slabs * KN_SLAB;
	if (row < c.n_rows)
		gate4_into(op, c, row, tile * KN_OUTS + t % 4 * 4);
	for (int i = c.width + t % 4 * 4; tile == 0 && row < c.n_rows && i < end; i += 4 * 4)
		gate4_into(op, c, row, i);
	if (tile == 0 && t < c.n_rows)
		c.to.inverse[t] = 1;
}

/* A warp has a row's key head. */
__device__ static inline void kn_then_head(const struct rope_call &c, int head)
{
	int row = (int)threadIdx.x / KN_WARP, lane = (int)threadIdx.x % KN_WARP;
	static_assert((int)NORM_WARPS >= (int)KN_ROWS, "a warp for each row");
	struct head_place to = {0, 0};
	if (row < c.n_rows) {
		to = place_of(c, row, head);
		turn_head(c, row, head, lane);
	}
	kn_barrier(); /* other lanes rotated the values written below */
	if (row < c.n_rows)
		write_head(c, to, row, head, lane);
}

/* Share number i, by the last of its blocks. */
__device__ static inline void kn_then_share(const struct kn_then &then, int i)
{
	if (then.what == KN_THEN_ROPE)
		kn_then_head(then.rope, i);
	else if (then.what == KN_THEN_PAIRED_SILU)
		kn_then_tile(silu_mul{}, then.c, i);
	else if (then.what == KN_THEN_PAIRED_GELU)
		kn_then_tile(gelu_mul{}, then.c, i);
	else
		kn_then_rows(then);
}

/* In place of the operation after it, the last product does the same, if it has few rows, wrote y, and nothing was
 * recorded since. 0, SL_EIO, or KN_NOT_TAKEN. matvec.cu. */
int kn_cuda_then(struct kn_backend *b, const float *y, int n_out, struct kn_then *then);
/* A product that was recorded last, what its blocks add, and its weights' type. */
struct kn_taken {
	struct kn_product p;
	struct kn_lora_after lora; /* step.n_tiles 0: nothing */
	int type;
};
/* Removes it, if it is the last command and nothing follows it yet, for the caller to give to kn_cuda_put_back. False:
 * there is none. */
bool kn_cuda_take_back(struct kn_backend *b, struct kn_taken *out);
int kn_cuda_put_back(struct kn_backend *b, const struct kn_taken *taken);

#endif
