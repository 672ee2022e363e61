/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on tensor cores over pages of float16.
 */
#include "kernels/cuda/attention_mma.h"

int kn_attn_mma_f16(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	return kn_attn_mma_kind<HALF>(b, c, n_items);
}
