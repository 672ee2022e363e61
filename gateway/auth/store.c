/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth/store.h"

static const char *given(const char *text) { return text != NULL && text[0] != '\0' ? text : NULL; }

static void set_u32(uint32_t *to, uint64_t value)
{
	if (value != 0)
		*to = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

void gw_store_config(const struct gw_store_settings *cfg, struct cache_config *out)
{
	cache_config_init(out);
	out->address = given(cfg->address);
	out->own_server = cfg->own_server;
	out->user = given(cfg->user);
	out->password_file = given(cfg->password_file);
	out->sentinel_password_file = given(cfg->sentinel_password_file);
	out->database = (int)cfg->database;
	bool redis = cfg->kind == GW_STORE_REDIS || (cfg->kind == GW_STORE_AUTO && out->address != NULL);
	out->store = redis ? CACHE_REDIS : CACHE_MEMORY;
	if (cfg->prefix != NULL)
		out->prefix = cfg->prefix;
	set_u32(&out->connect_timeout_ms, cfg->connect_timeout_ms);
	set_u32(&out->op_timeout_ms, cfg->timeout_ms);
	set_u32(&out->backoff_least_ms, cfg->backoff_min_ms);
	set_u32(&out->backoff_most_ms, cfg->backoff_max_ms);
	set_u32(&out->breaker_failures, (uint64_t)cfg->failures);
	set_u32(&out->max_ops, (uint64_t)cfg->operations);
	set_u32(&out->max_keys_per_tenant, (uint64_t)cfg->keys_per_tenant);
	set_u32(&out->n_gateways, (uint64_t)cfg->gateways);
	if (cfg->value_bytes != 0)
		out->max_value_bytes = cfg->value_bytes;
	if (cfg->log_bytes != 0)
		out->max_log_bytes = cfg->log_bytes;
	if (cfg->memory_bytes != 0)
		out->memory_bytes = cfg->memory_bytes;
}

int gw_store_create(const struct gw_store_settings *cfg, const struct cache_proc *const *procs, size_t n_procs,
		    struct cache **out, struct sl_err *err)
{
	struct cache_config c;
	gw_store_config(cfg, &c);
	return cache_create(&c, procs, n_procs, out, err);
}
