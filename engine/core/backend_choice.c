/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/backend_choice.h"

#include <string.h>
#include <unistd.h>

#include "engine/core/driver_call.h"
#include "engine/model/lacks.h"
#include "engine/model/model.h"

bool backend_device_plausible(void)
{
	return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0; /* of Linux; of Windows' Linux */
}

/* A model that can't be read is none of the choice's: its load says why. */
static bool can_compute(const struct kn_ops *ops, const struct eng_model_config *m, struct sl_err *why)
{
	struct model_info info;
	struct sl_err unread;
	if (model_inspect(m->path, &info, &unread) != 0)
		return true;
	const char *lacks = model_backend_lacks(&info.arch, ops);
	if (lacks != NULL)
		sl_errf(why, SL_EUNSUPPORTED, "model %s needs %s, which %s lacks", m->name, lacks, ops->name);
	return lacks == NULL;
}

bool backend_can_compute(const struct eng_config *cfg, const struct kn_ops *ops, struct sl_err *why)
{
	if (ops->lora_shrink == NULL && (cfg->n_adapters > 0 || cfg->n_adapter_folders > 0)) {
		sl_errf(why, SL_EUNSUPPORTED, "there are adapters, which %s lacks", ops->name);
		return false;
	}
	for (int i = 0; i < cfg->n_models; i++)
		if (!can_compute(ops, &cfg->models[i], why))
			return false;
	return true;
}

const struct kn_ops *backend_choose(const struct eng_config *cfg, bool device, struct sl_err *why, struct sl_err *err)
{
	*why = (struct sl_err){0};
	if (strcmp(cfg->backend, "auto") == 0 && device) {
		const struct kn_ops *ops = driver_select("cuda", why);
		if (ops != NULL && backend_can_compute(cfg, ops, why))
			return ops;
	}
	return driver_select(cfg->backend, err);
}
