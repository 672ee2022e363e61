/* SPDX-License-Identifier: Apache-2.0
 *
 * What an engine gets of a configuration: of models computed here, of another server's, of echoes.
 */
#include <string.h>

#include "cmd/config/schema_priv.h"
#include "engine/core/backend_choice.h"
#include "kernels/plugin.h"

/* Of tiers with one priority the least. */
static void set_ease(const struct sluice_config *cfg, struct eng_config *out)
{
	const struct conf_list *tiers = &cfg->gateway.tiers;
	for (size_t i = 0; i < tiers->n && cfg->engine.ease == 0; i++) {
		const struct gw_tier_config *t = LIST_AT(*tiers, const struct gw_tier_config, i);
		uint64_t *ms = &out->ease_itl_ms[t->priority < PROTO_PRIORITIES ? t->priority : PROTO_PRIORITIES - 1];
		if (t->itl_target_ms > 0 && (*ms == 0 || t->itl_target_ms < *ms))
			*ms = t->itl_target_ms;
	}
}

static void set_floors(const struct sluice_config *cfg, struct eng_config *out)
{
	const struct conf_list *tiers = &cfg->gateway.tiers;
	for (size_t i = 0; i < tiers->n; i++) {
		const struct gw_tier_config *t = LIST_AT(*tiers, const struct gw_tier_config, i);
		uint64_t *us = &out->floor_us[t->priority < PROTO_PRIORITIES ? t->priority : PROTO_PRIORITIES - 1];
		uint64_t its = t->floor_tps > 0 ? (uint64_t)(1e6 / t->floor_tps) : 0;
		if (its > 0 && (*us == 0 || its < *us))
			*us = its;
	}
}

void sluice_engine_config(const struct sluice_config *cfg, struct eng_model_config *models, struct eng_config *out)
{
	const struct engine_settings *e = &cfg->engine;
	int n_models = 0;
	for (size_t i = 0; i < e->models.n; i++) {
		const struct model_settings *m = LIST_AT(e->models, const struct model_settings, i);
		if (!engines_serves(cfg, m->name))
			continue;
		models[n_models++] =
		    (struct eng_model_config){.name = m->name,
					      .path = m->path,
					      .head = m->head[0] != '\0' ? m->head : NULL,
					      .role = m->role,
					      .quantize = m->quantize,
					      .kv_type = m->kv_type > 0 ? schema_kv_types[m->kv_type] : NULL,
					      .pooling = m->pooling > 0 ? schema_poolings[m->pooling] : NULL,
					      .on_demand = m->start == 1,
					      .keep_alive_ms = m->keep_alive_ms,
					      .matryoshka = schema_matryoshkas[m->matryoshka]};
	}
	*out = (struct eng_config){
	    .models = models,
	    .n_models = n_models,
	    .adapters = cfg->served_adapters,
	    .n_adapters = cfg->n_served_adapters,
	    .adapter_folders = cfg->served_folders,
	    .n_adapter_folders = cfg->n_served_folders,
	    .adapter_memory = e->adapter_memory,
	    .adapter_slots = (int)e->adapter_slots,
	    .adapter_turn_ms = e->adapter_turn_ms,
	    .adapter_wait_ms = e->adapter_wait_ms,
	    .adapter_type = schema_adapter_types[e->adapter_type],
	    .backend = schema_backends[e->backend],
	    .n_threads = (int)e->threads,
	    .pin = e->pin,
	    .n_text_workers = (int)e->text_workers,
	    .page_tokens = (int)e->page_tokens,
	    .kv_bytes = e->kv_memory,
	    .memory_bytes = e->memory,
	    .weights_bytes = e->on_demand_memory,
	    .turn_ms = e->on_demand_turn_ms,
	    .load_wait_ms = e->on_demand_wait_ms,
	    .kv_type = (schema_kv_types + 1)[e->kv_type],
	    .kv_rotation = e->kv_rotation,
	    .max_model_bytes = e->max_model_memory,
	    .max_sequences = (int)e->max_sequences,
	    .max_waiting = (int)e->max_waiting,
	    .step_tokens = (int)e->step_tokens,
	    .most_chunk = (int)e->most_chunk,
	    .max_prompt_bytes = (uint32_t)e->max_prompt,
	    .itl_target_ms = (int)e->itl_target_ms,
	    .no_prefix_cache = !e->prefix_cache,
	    .share_prefixes = e->share_prefixes,
	    .no_launch_ahead = e->launch_ahead == 1,
	    .spec_mode = e->spec_mode,
	    .spec_max_draft = (int)e->spec_max_draft,
	    .spec_fixed = e->spec_fixed,
	    .device_memory = e->cuda_memory,
	    .swap_bytes = e->cuda_swap,
	    .loose_products = !e->cuda_batch_invariant,
	    .choices_path = cfg->cuda_products,
	    .weight_cache = strcmp(e->weight_cache, "off") != 0 ? e->weight_cache : NULL,
	    .weight_cache_bytes = e->weight_cache_size,
	    .kv_disk = e->kv_disk_bytes > 0 ? e->kv_disk : NULL,
	    .kv_disk_bytes = e->kv_disk_bytes,
	    .kv_disk_age_s = e->kv_disk_age_ms / 1000,
	    .kv_disk_policy = e->kv_disk_policy,
	    .kv_disk_always = e->kv_disk_always,
	};
	set_ease(cfg, out);
	set_floors(cfg, out);
}

bool sluice_wants_device(const struct sluice_config *cfg)
{
	const char *name = schema_backends[cfg->engine.backend];
	return !cfg->echo.enabled && !sluice_has_upstream(cfg) &&
	       (strcmp(name, "cuda") == 0 || (strcmp(name, "auto") == 0 && backend_device_plausible()));
}

void sluice_load_backends(const struct sluice_config *cfg)
{
	if (cfg->echo.enabled || sluice_has_upstream(cfg))
		return;
	/* Where no device is wanted, the start logs whether there is one. */
	kn_plugin_load("cuda", sluice_wants_device(cfg));
	kn_plugin_load(schema_backends[cfg->engine.backend], true);
}

bool sluice_has_upstream(const struct sluice_config *cfg) { return cfg->upstream.url[0] != '\0'; }

static const struct upstream_model_settings *find_upstream_model(const struct upstream_settings *u, const char *name)
{
	for (size_t i = 0; i < u->models.n; i++) {
		const struct upstream_model_settings *m = LIST_AT(u->models, const struct upstream_model_settings, i);
		if (strcmp(m->name, name) == 0)
			return m;
	}
	return NULL;
}

/* Those of the list, or of its names those that this engine serves. */
static int upstream_models(const struct sluice_config *cfg, struct eng_remote_model *out)
{
	const struct upstream_settings *u = &cfg->upstream;
	const struct conf_strings *serves = &cfg->engine.serves;
	size_t n = serves->n > 0 ? serves->n : u->models.n;
	for (size_t i = 0; i < n; i++) {
		const char *name = serves->n > 0 ? serves->items[i]
						 : LIST_AT(u->models, const struct upstream_model_settings, i)->name;
		const struct upstream_model_settings *m = find_upstream_model(u, name);
		out[i] = (struct eng_remote_model){.name = name, .model = ""};
		if (m == NULL)
			continue;
		out[i].model = m->model;
		out[i].role = m->role;
		out[i].n_ctx = (uint32_t)m->context;
		out[i].n_embd = (uint32_t)m->embeddings;
		out[i].shorten = m->shorten;
		out[i].scores = m->scores;
	}
	return (int)n;
}

size_t sluice_remote_models(const struct sluice_config *cfg) { return cfg->upstream.models.n + cfg->engine.serves.n; }

void sluice_remote_config(const struct sluice_config *cfg, struct eng_remote_model *models,
			  struct eng_remote_config *out)
{
	const struct upstream_settings *u = &cfg->upstream;
	*out = (struct eng_remote_config){
	    .url = u->url,
	    .key_file = u->key_file,
	    .ca_file = u->ca_file,
	    .verify = u->verify,
	    .dialect = u->dialect,
	    .connect_ms = u->connect_ms,
	    .idle_ms = u->idle_ms,
	    .total_ms = u->total_ms,
	    .health_ms = u->health_ms,
	    .metrics = u->metrics,
	    .metrics_ms = u->metrics_ms,
	    .cool_down_ms = u->cool_down_ms,
	    .failures = (int)u->failures,
	    .connections = (int)u->connections,
	    .max_waiting = (int)cfg->engine.max_waiting,
	    .models = models,
	    .n_models = upstream_models(cfg, models),
	};
}

void sluice_echo_config(const struct sluice_config *cfg, struct eng_echo_config *out)
{
	const struct echo_settings *e = &cfg->echo;
	*out = (struct eng_echo_config){
	    .rate_tps = e->rate,
	    .tokens_per_burst = (int)e->burst,
	    .ttft_ms = (int)e->ttft_ms,
	    .fail_after = (int)e->fail_after,
	    .hang_after = (int)e->hang_after,
	    .die_after = (int)e->die_after,
	    .n_ctx = (int)e->context,
	    .stamp = e->stamp,
	    .step_ms = (int)e->step_ms,
	    .step_active = (int)e->step_active,
	    .slots = (int)e->slots,
	    .waiting = (int)e->waiting,
	};
}
