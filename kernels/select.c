/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/kernels.h"

static const struct kn_ops *const all[] = {&kn_ref_ops, NULL};

const struct kn_ops *const *kn_available(void)
{
	return all;
}

const struct kn_ops *kn_select(const char *name, struct sl_err *err)
{
	const struct kn_ops *best = NULL;
	for (int i = 0; all[i] != NULL; i++) {
		if (strcmp(name, all[i]->name) == 0)
			return all[i];
		best = all[i];
	}
	if (strcmp(name, "auto") == 0)
		return best;
	sl_errf(err, SL_EINVAL, "backend \"%s\" is unknown or not for this processor", name);
	return NULL;
}
