/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on tensor cores over pages of 8-bit numbers.
 */
#include "kernels/cuda/attention_alone.h"

int kn_attn_mma_8bit(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	return c->alone ? kn_attn_alone_kind<EIGHT>(b, c, n_items) : kn_attn_mma_kind<EIGHT>(b, c, n_items);
}
