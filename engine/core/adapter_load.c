/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of the configuration: a request that names one is of its base, with the adapter's slot. One that does not
 * load is FAILED, with its reason; its base and the others serve.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/model/adapters.h"
#include "engine/step/internal.h"

static int check(const struct eng_config *cfg, int i, struct sl_err *err)
{
	const struct eng_adapter_config *a = &cfg->adapters[i];
	size_t n = strlen(a->name);
	if (n < 1 || n > PROTO_MAX_NAME)
		return sl_errf(err, SL_EINVAL, "an adapter's name has 1 to %d bytes", PROTO_MAX_NAME);
	if (a->model < 0 || a->model >= cfg->n_models)
		return sl_errf(err, SL_EINVAL, "adapter %s: no such base model", a->name);
	for (int k = 0; k < cfg->n_models + i; k++) {
		const char *other = k < cfg->n_models ? cfg->models[k].name : cfg->adapters[k - cfg->n_models].name;
		if (strcmp(other, a->name) == 0)
			return sl_errf(err, SL_EINVAL, "two models are named %s", a->name);
	}
	return 0;
}

int adapters_create(struct engine *e, const struct eng_config *cfg, struct sl_err *err)
{
	if (cfg->n_adapters == 0)
		return 0;
	if (cfg->n_adapters < 0 || cfg->n_models + cfg->n_adapters > PROTO_MAX_MODELS)
		return sl_errf(err, SL_EINVAL, "an engine has at most %d models and adapters", PROTO_MAX_MODELS);
	e->adapters = sl_zalloc_n((size_t)cfg->n_adapters, sizeof *e->adapters);
	if (e->adapters == NULL)
		return SL_ENOMEM;
	for (int i = 0; i < cfg->n_adapters; i++) {
		struct eng_adapter *a = &e->adapters[e->n_adapters];
		int rc = check(cfg, i, err);
		if (rc != 0)
			return rc;
		e->n_adapters++;
		a->model = cfg->adapters[i].model;
		a->slot = -1;
		a->name = sl_strdup(cfg->adapters[i].name);
		a->path = sl_strdup(cfg->adapters[i].path);
		if (a->name == NULL || a->path == NULL)
			return SL_ENOMEM;
	}
	return 0;
}

void adapters_destroy(struct engine *e)
{
	for (int i = 0; i < e->n_adapters; i++) {
		sl_free(e->adapters[i].name);
		sl_free(e->adapters[i].path);
	}
	sl_free(e->adapters);
}

void adapters_resolve(const struct engine *e, struct eng_seq *s)
{
	int i = (int)s->text.model - e->n_models;
	if (i < 0 || i >= e->n_adapters)
		return;
	s->text.model = (uint16_t)e->adapters[i].model;
	s->adapter = (uint16_t)(i + 1);
	s->salt = eng_seq_salt_of(s->salt, s->adapter);
}

/* 0 where it can't be read: then it won't load either. */
static uint64_t file_bytes(const char *path)
{
	char in_folder[4200];
	struct stat st;
	if (file_stat(path, &st) != 0)
		return 0;
	snprintf(in_folder, sizeof in_folder, "%.4096s/adapter_model.safetensors", path);
	if (S_ISDIR(st.st_mode) && file_stat(in_folder, &st) != 0)
		return 0;
	return st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

uint64_t adapters_file_bytes(const struct eng_model *m)
{
	uint64_t bytes = 0;
	for (int i = 0; i < m->e->n_adapters; i++)
		bytes += m->e->adapters[i].model == m->index ? file_bytes(m->e->adapters[i].path) : 0;
	return bytes;
}

void adapters_load(struct eng_model *m)
{
	for (int i = 0; i < m->e->n_adapters; i++) {
		struct eng_adapter *a = &m->e->adapters[i];
		uint64_t begin = clock_now_ns();
		if (a->model != m->index)
			continue;
		if (model_load_adapter(m->model, a->path, &a->slot, &a->load_err) != 0) {
			log_error("adapter %s failed: %s", a->name, a->load_err.text);
			continue;
		}
		m->n_adapters++;
		kv_tier_stamp_adapter(a);
		log_info("adapter %s: loaded in %llu ms, %llu KiB", a->name,
			 (unsigned long long)((clock_now_ns() - begin) / NS_PER_MS),
			 (unsigned long long)model_adapter_bytes(m->model, a->slot) >> 10);
	}
}
