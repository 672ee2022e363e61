/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the tensor core attention kernel (attention_mma.h) for a call. Each kind of pages is compiled from a file
 * of its own, attention_f16.cu, attention_bf16.cu and attention_8bit.cu, because together they take minutes.
 */
#include "kernels/cuda/attention_mma.h"

int kn_attn_mma_tile(bool alone) { return alone ? QUERIES : QUERIES * PROMPT_WARPS; }

bool kn_attn_mma_can(int head_dim) { return head_dim <= MOST_WIDE; }

int kn_attn_mma(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	if (kn_attn_prompt_can(c))
		return kn_attn_prompt(b, c, n_items);
	switch (c->type) {
	case KN_F16: return kn_attn_mma_f16(b, c, n_items);
	case KN_BF16: return kn_attn_mma_bf16(b, c, n_items);
	default: return kn_attn_mma_8bit(b, c, n_items);
	}
}
