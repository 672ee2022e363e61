/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/lacks.h"

static const char *lacks_mixer(const struct model_arch *a, const struct kn_ops *ops)
{
	switch (a->recurrent.kind) {
	case ARCH_DELTA: return ops->delta == NULL ? "recurrent layers (the gated delta rule)" : NULL;
	case ARCH_SSM: return ops->ssm == NULL ? "recurrent layers (state spaces)" : NULL;
	default: return ops->conv == NULL ? "recurrent layers (short convolutions)" : NULL;
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
	return arch_is_recurrent(a) ? lacks_mixer(a, ops) : NULL;
}
