/* SPDX-License-Identifier: Apache-2.0
 *
 * The models and their adapters: whether their files can be loaded, and whether they fit into memory with their KV
 * cache.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cmd/doctor/doctor.h"
#include "engine/adapter/adapter.h"
#include "engine/model/model.h"

#define MIB (1024.0 * 1024)

/* The bytes of its file; 0: it cannot be loaded. */
static uint64_t check_model(struct report *r, const struct sluice_config *cfg, const struct model_settings *m)
{
	struct model_info info;
	struct sl_err err = {0};
	int rc = model_inspect(m->path, &info, &err);
	if (rc == 0)
		rc = model_check(m->path, m->head[0] != '\0' ? m->head : NULL, cfg->engine.max_model_memory, &err);
	bool many = rc == 0 && info.n_params >= 1000000000;
	if (rc == 0) {
		report_add(r, REPORT_OK, "models", "%s: %s, %.1f %s parameters, %.0f MiB, %s", m->name,
			   info.name[0] != '\0' ? info.name : m->path, (double)info.n_params / (many ? 1e9 : 1e6),
			   many ? "billion" : "million", (double)info.file_bytes / MIB, info.weight_types);
		return info.file_bytes;
	}
	report_add(r, REPORT_FAIL, "models", "%s: %s", m->name, err.text);
	report_change(r, "engine.models.%s.path: a GGUF file or a folder of safetensors", m->name);
	return 0;
}

/* Likewise. An adapter whose base cannot be loaded is examined alone. */
static uint64_t check_adapter(struct report *r, const struct sluice_config *cfg, size_t i, bool has_base)
{
	const struct adapter_settings *settings = cfg->engine.adapters.items;
	const struct model_settings *models = cfg->engine.models.items;
	const struct eng_adapter_config *c = &cfg->adapters[i];
	struct adapter *a;
	struct sl_err err = {0};
	if (adapter_open_with(c->path, has_base ? models[c->model].path : NULL, &a, &err) != 0) {
		report_add(r, REPORT_FAIL, "models", "%s: %s", c->name, err.text);
		report_change(r, "engine.adapters.%s.path: a PEFT folder or a GGUF adapter that fits %s",
			      settings[i].name, settings[i].model);
		return 0;
	}
	uint64_t bytes = adapter_bytes(a);
	report_add(r, REPORT_OK, "models", "%s: %s adapter, %.1f MiB", c->name, adapter_form(a), (double)bytes / MIB);
	adapter_close(a);
	return bytes;
}

void check_models(struct report *r, const struct sluice_config *cfg)
{
	const struct model_settings *models = cfg->engine.models.items;
	uint64_t need = cfg->engine.kv_memory, available, all = machine_memory(&available);
	if (cfg->echo.enabled) {
		report_add(r, REPORT_OK, "models", "none are loaded: engine.echo.enabled is on");
		return;
	}
	if (sluice_has_upstream(cfg)) {
		report_add(r, REPORT_OK, "models", "another server runs them: %s", cfg->upstream.url);
		return;
	}
	if (cfg->engine.models.n == 0) {
		report_add(r, REPORT_FAIL, "models", "none is configured");
		report_change(r, "engine.models: [{ name: NAME, path: FILE }]");
		return;
	}
	uint64_t bytes[PROTO_MAX_MODELS] = {0};
	for (size_t i = 0; i < cfg->engine.models.n; i++)
		need += bytes[i] = check_model(r, cfg, &models[i]);
	for (size_t i = 0; i < cfg->engine.adapters.n; i++)
		need += check_adapter(r, cfg, i, bytes[cfg->adapters[i].model] > 0);
	enum report_level level = need > all ? REPORT_FAIL : need > available ? REPORT_WARN : REPORT_OK;
	report_add(r, level, "memory", "models and engine.kv_memory need %.0f MiB; %.0f MiB of %.0f are available",
		   (double)need / MIB, (double)available / MIB, (double)all / MIB);
	if (level != REPORT_OK)
		report_change(r, "engine.kv_memory: less than %.0fMiB; or smaller models",
			      (double)cfg->engine.kv_memory / MIB);
}
