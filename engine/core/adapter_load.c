/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's adapters: its configuration and its events for engine/lora, and requests that name one. An adapter that
 * does not load is FAILED, with its reason; its base and the others serve.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/step/internal.h"

enum { WATCH_MS = 500 };

/* ---- events ---- */

static void on_changed(void *ctx, int entry)
{
	struct engine *e = ctx;
	struct eng_event ev = {.kind = ENG_MODEL};
	pthread_mutex_lock(&e->report_lock);
	engine_model_info(e, e->n_models + entry, &ev.u.model);
	e->on_event(e->on_event_ctx, &ev);
	pthread_mutex_unlock(&e->report_lock);
}

static void on_answered(void *ctx, uint64_t id, uint8_t error, const char *message)
{
	struct engine *e = ctx;
	const struct proto_str none = {"", 0};
	const struct eng_event ev = {
	    .kind = ENG_COUNTED,
	    .id = id,
	    .u.counted = {.error = error, .message = {message, strlen(message)}, .ids = none, .text = none}};
	e->on_event(e->on_event_ctx, &ev);
}

static void on_news(void *ctx)
{
	struct engine *e = ctx;
	atomic_store(&e->lora_news, true);
	mailbox_nudge(&e->box);
}

int engine_adapter(struct engine *e, uint64_t id, const struct proto_adapter *ask)
{
	return lora_ask(e->lora, id, ask);
}

/* ---- the configuration ---- */

static int check(const struct eng_config *cfg, int i, struct sl_err *err)
{
	const struct eng_adapter_config *a = &cfg->adapters[i];
	size_t n = strlen(a->name);
	if (n < 1 || n > PROTO_MAX_NAME)
		return sl_errf(err, SL_EINVAL, "an adapter's name has 1 to %d bytes", PROTO_MAX_NAME);
	if (a->model < 0 || a->model >= cfg->n_models)
		return sl_errf(err, SL_EINVAL, "adapter %s: no such base model", a->name);
	for (int k = 0; k < cfg->n_models; k++)
		if (strcmp(cfg->models[k].name, a->name) == 0)
			return sl_errf(err, SL_EINVAL, "two models are named %s", a->name);
	return 0;
}

static int type_of(const char *name, int *out, struct sl_err *err)
{
	static const struct {
		const char *name;
		int type;
	} types[] = {{"auto", -1}, {"", -1}, {"int8", KN_LORA_I8}, {"bf16", KN_BF16}, {"f32", KN_F32}};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (strcmp(name != NULL ? name : "", types[i].name) == 0) {
			*out = types[i].type;
			return 0;
		}
	return sl_errf(err, SL_EINVAL, "adapters have no type %s", name);
}

static int create(struct engine *e, const struct eng_config *cfg, struct sl_err *err)
{
	struct lora_config lc = {.n_folders = cfg->n_adapter_folders,
				 .memory = cfg->adapter_memory > 0 ? cfg->adapter_memory : UINT64_MAX,
				 .slots = cfg->adapter_slots > 0 ? cfg->adapter_slots : MODEL_MAX_ADAPTERS,
				 .first = cfg->n_models,
				 .turn_ns = cfg->adapter_turn_ms * (uint64_t)NS_PER_MS,
				 .watch_ms = cfg->adapter_watch_ms > 0 ? cfg->adapter_watch_ms : WATCH_MS,
				 .changed = on_changed,
				 .answered = on_answered,
				 .wake = on_news,
				 .ctx = e};
	struct lora_folder *folders = sl_zalloc_n((size_t)cfg->n_adapter_folders + 1, sizeof *folders);
	int rc = folders != NULL ? type_of(cfg->adapter_type, &lc.type, err) : SL_ENOMEM;
	for (int i = 0; rc == 0 && i < cfg->n_adapter_folders; i++) {
		const struct eng_adapter_folder *f = &cfg->adapter_folders[i];
		if (f->model < 0 || f->model >= cfg->n_models)
			rc = sl_errf(err, SL_EINVAL, "folder %s: no such base model", f->path);
		else
			folders[i] = (struct lora_folder){f->path, cfg->models[f->model].name, f->model, f->watched};
	}
	lc.folders = folders;
	if (rc == 0)
		rc = lora_create(&lc, &e->lora, err);
	sl_free(folders);
	return rc;
}

int adapters_create(struct engine *e, const struct eng_config *cfg, struct sl_err *err)
{
	if (cfg->n_adapters < 0 || cfg->n_models + cfg->n_adapters > PROTO_MAX_MODELS)
		return sl_errf(err, SL_EINVAL, "an engine has at most %d models and adapters", PROTO_MAX_MODELS);
	int rc = create(e, cfg, err);
	for (int i = 0; rc == 0 && i < cfg->n_adapters; i++)
		if ((rc = check(cfg, i, err)) == 0)
			rc = lora_add(e->lora, cfg->adapters[i].name, cfg->adapters[i].path, cfg->adapters[i].model,
				      err);
	for (int i = 0; rc == 0 && i < e->n_models; i++)
		e->models[i].adapter_bytes = adapters_memory(e, cfg, i);
	return rc;
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

/* Folders may fill all of engine.adapter_memory; their models share it. */
uint64_t adapters_memory(const struct engine *e, const struct eng_config *cfg, int model)
{
	uint64_t bytes = 0, most = cfg->adapter_memory;
	for (int i = 0; i < cfg->n_adapters; i++)
		bytes += cfg->adapters[i].model == model ? file_bytes(cfg->adapters[i].path) : 0;
	for (int i = 0; i < cfg->n_adapter_folders && most > 0; i++)
		if (cfg->adapter_folders[i].model == model)
			bytes += most / (uint64_t)cfg->n_adapter_folders;
	(void)e;
	return most > 0 && bytes > most ? most : bytes;
}

/* ---- requests ---- */

void adapters_resolve(const struct engine *e, struct eng_seq *s)
{
	struct lora_info info;
	int i = (int)s->text.model - e->n_models;
	if (i < 0 || i >= lora_n(e->lora))
		return;
	struct lora_version *v = lora_take(e->lora, i);
	lora_get(e->lora, i, &info);
	s->text.model = (uint16_t)info.model;
	if (v != NULL)
		eng_seq_set_lora(s, v);
	else
		s->text.no_adapter = info.state == LORA_FREE ? PROTO_ERR_NO_MODEL : PROTO_ERR_NOT_READY;
}
