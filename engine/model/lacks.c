/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/lacks.h"

static const char *lacks_mixer(const struct model_arch *a)
{
	switch (a->recurrent.kind) {
	case ARCH_DELTA: return "recurrent layers (the gated delta rule)";
	case ARCH_SSM: return "recurrent layers (state spaces)";
	default: return "recurrent layers (short convolutions)";
	}
}

const char *model_backend_lacks(const struct model_arch *a, const struct kn_ops *ops)
{
	if (a->sinks && !ops->sinks)
		return "attention sinks";
	if (a->experts.n > 0 && ops->experts == NULL)
		return "mixtures of experts";
	if (a->latent.n > 0 && ops->latent_write == NULL)
		return "latent attention";
	return arch_is_recurrent(a) && ops->conv == NULL ? lacks_mixer(a) : NULL;
}
