/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers of both formats need for layers that keep a state.
 */
#include "engine/source/arch_read.h"
#include "kernels/kernels.h"

void arch_set_recurrent(struct model_arch *a, int layer)
{
	a->recurrent.layers[layer / 64] |= (uint64_t)1 << layer % 64;
}

void arch_recurrent_all_but(struct model_arch *a, int every)
{
	for (int i = 0; i < a->n_layers; i++)
		if ((i + 1) % every != 0)
			arch_set_recurrent(a, i);
}

const char *arch_recurrent_fault(const struct model_arch *a, const struct arch_recurrent_keys *keys, const char **key)
{
	const struct arch_recurrent *r = &a->recurrent;
	*key = keys->layers;
	if (arch_n_recurrent(a, a->n_layers) == 0 || arch_n_attending(a, a->n_layers) == 0)
		return "gives no layer with attention, or no other";
	*key = keys->conv;
	if (r->conv < 1 || r->conv > KN_MAX_CONV)
		return "is no width of a convolution";
	if (r->kind == ARCH_SHORT_CONV)
		return NULL;
	*key = keys->heads;
	if (r->k_heads < 1 || r->v_heads < 1 || r->v_heads % r->k_heads != 0)
		return r->kind == ARCH_SSM ? "is no multiple of the groups" : "is no multiple of the key heads";
	*key = keys->dims;
	if (r->k_dim > KN_MAX_DELTA || r->v_dim > KN_MAX_DELTA || r->k_dim < 1 || r->v_dim < 1)
		return "gives no width of a head";
	int64_t channels = 2 * (int64_t)r->k_heads * r->k_dim + (int64_t)r->v_heads * r->v_dim;
	return channels > ARCH_MAX_WIDTH ? "gives heads that are too wide together" : NULL;
}
