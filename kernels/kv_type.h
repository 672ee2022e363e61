/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of keys and values in a page (kernels.h) and their rounding. Every backend writes the same bits: ref.c
 * with the functions of kv_type.c, the others with equivalent code.
 *
 *  type       bytes  what is stored
 *  KN_F32         4  x
 *  KN_F16         2  x to the nearest, ties to even; beyond ±65504 those
 *  KN_BF16        2  x to the nearest, ties to even; beyond the largest finite number that one
 *  KN_KV_Q8       1  int8 q, x = scale · q, q = x / scale to the nearest, ties to even
 *  KN_FP8         1  an e4m3 float f (Micikevicius et al., "FP8 Formats for Deep Learning", 2022: four bits of
 *                    exponent, three of mantissa, no infinities), x = scale · f, f = x / scale likewise
 *
 * The last two have a float32 scale for each token of each key head: max |x| / 127, max |x| / 448 of the head's
 * elements, and 0 with zeros for elements where that is below the smallest normal number. Where an element is not
 * finite the scale is NaN, so that the fault shows. All divisions are float32's.
 *
 * Errors of an element: F16 2^-11 |x| and 2^-25, BF16 2^-8 |x|, Q8 scale / 2, FP8 2^-4 |x| and scale · 2^-10.
 */
#ifndef KERNELS_KV_TYPE_H
#define KERNELS_KV_TYPE_H

#include "kernels/kernels.h"

/* Bytes of an element, its scale not included; 0: no type of keys and values. */
static inline size_t kn_kv_element_bytes(int type)
{
	switch (type) {
	case KN_F32: return 4;
	case KN_F16:
	case KN_BF16: return 2;
	case KN_KV_Q8:
	case KN_FP8: return 1;
	default: return 0;
	}
}

static inline bool kn_kv_has_scales(int type) { return type == KN_KV_Q8 || type == KN_FP8; }

/* Offset of the scales in a head's block; any gap after the elements is never read. SIZE_MAX: overflow. */
static inline size_t kn_kv_scales_at(int type, int page_tokens, int head_dim)
{
	size_t n = kn_kv_element_bytes(type);
	if (__builtin_mul_overflow(n, (size_t)page_tokens, &n) || __builtin_mul_overflow(n, (size_t)head_dim, &n) ||
	    __builtin_add_overflow(n, (size_t)3, &n))
		return SIZE_MAX;
	return kn_kv_has_scales(type) ? n / 4 * 4 : n - 3;
}

/* Bytes of one key head's block in a page, of keys or of values. SIZE_MAX: overflow. */
static inline size_t kn_kv_head_bytes(int type, int page_tokens, int head_dim)
{
	size_t n = kn_kv_scales_at(type, page_tokens, head_dim), scales = (size_t)page_tokens * sizeof(float);
	if (n == SIZE_MAX || !kn_kv_has_scales(type))
		return n;
	return __builtin_add_overflow(n, scales, &n) ? SIZE_MAX : n;
}

/* Tokens in a block of k or v. */
static inline int kn_kv_block_tokens(const struct kn_kv *kv)
{
	return kv->latent > 0 ? kv->page_tokens / 2 : kv->page_tokens;
}

/* Bytes of a page of all layers, of keys or of values. */
static inline size_t kn_kv_page_bytes(const struct kn_kv *kv)
{
	return kn_kv_head_bytes(kv->type, kn_kv_block_tokens(kv), kv->head_dim) * (size_t)kv->n_layers *
	       (size_t)kv->n_kv_heads;
}

/* Bytes from the beginning of k or v to a page's block of a layer and key head. */
static inline size_t kn_kv_block_at(const struct kn_kv *kv, int32_t page, int layer, int head)
{
	return (((size_t)page * (size_t)kv->n_layers + (size_t)layer) * (size_t)kv->n_kv_heads + (size_t)head) *
	       kn_kv_head_bytes(kv->type, kn_kv_block_tokens(kv), kv->head_dim);
}

/* The block with the latent row of a page's position `token`, which becomes its number in the block. */
static inline void *kn_kv_latent_block(const struct kn_kv *kv, int32_t page, int layer, int *token)
{
	int half = kv->page_tokens / 2;
	void *side = *token < half ? kv->k : kv->v;
	*token %= half;
	return (uint8_t *)side + kn_kv_block_at(kv, page, layer, 0);
}

/* "f32", "f16", "bf16", "q8", "fp8"; "unknown". */
const char *kn_kv_type_name(int type);
/* -1: unknown name. */
int kn_kv_type_from_name(const char *name);
/* Type i of all, from 0; -1 past the last. */
int kn_kv_type_at(int i);
/* "auto": KN_F16 where the backend has it, otherwise KN_F32. */
int kn_kv_type_auto(const struct kn_ops *ops);
/* The names of the types that a backend supports, "f32, f16, q8", truncated to n bytes. Returns out. */
const char *kn_kv_types_of(const struct kn_ops *ops, char *out, size_t n);

/* Converts to and from e4m3: to nearest, ties to even, saturating at ±448; NaN becomes 0x7F. */
uint8_t kn_fp8_from_f32(float x);
float kn_f32_from_fp8(uint8_t code);

/* One token's elements x[head_dim] into a head's block of page_tokens, of keys (transposed), or of values or latent
 * rows. */
void kn_kv_put(int type, void *block, bool keys, int page_tokens, int head_dim, int token, const float *x);
/* Element d of a token of a block, decoded to float32. */
float kn_kv_get(int type, const void *block, bool keys, int page_tokens, int head_dim, int token, int d);

#endif
