/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on tensor cores over pages of float16.
 */
#include "kernels/cuda/attention_alone.h"

int kn_attn_mma_f16(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	return c->alone ? kn_attn_alone_kind<HALF>(b, c, n_items) : kn_attn_mma_kind<HALF>(b, c, n_items);
}
