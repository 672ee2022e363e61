/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks between keys: what no row of the table (schema.c) can check alone. Each fault is one line with its key.
 */
#include "cmd/config/schema_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/remote/remote_http.h"
#include "gateway/auth/cors.h"
#include "gateway/loop/net_addr.h"
#include "gateway/observe/tracer.h"
#include "gateway/trial/trial.h"
#include "gateway/transport/unix_listen.h"
#include "kernels/kernels.h"

enum { KEY_BYTES = 272 };

/* "LIST.NAME.FIELD", the key of an item's field; returns out. */
static const char *key_of(char out[KEY_BYTES], const char *list, const char *name, const char *field)
{
	snprintf(out, KEY_BYTES, "%s.%s.%s", list, name, field);
	return out;
}

static const struct model_settings *find_model(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->engine.models.n; i++) {
		const struct model_settings *m = LIST_AT(cfg->engine.models, const struct model_settings, i);
		if (strcmp(m->name, name) == 0)
			return m;
	}
	return NULL;
}

static bool has_tier(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->gateway.tiers.n; i++) {
		if (strcmp(LIST_AT(cfg->gateway.tiers, const struct gw_tier_config, i)->name, name) == 0)
			return true;
	}
	return false;
}

/* Does the configuration list the models? Not with the echo, nor with an engine that was started separately. */
static bool knows_models(const struct sluice_config *cfg)
{
	return !cfg->echo.enabled && !sluice_has_upstream(cfg) && cfg->engine.models.n > 0 &&
	       strcmp(cfg->gateway.engine_socket, cfg->engine.socket) == 0;
}

static bool is_model_name(const char *name)
{
	for (const char *p = name; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && strchr("._:/-", *p) == NULL)
			return false;
	return strcmp(name, "auto") != 0 && strcmp(name, "default") != 0;
}

static int check_models(const struct sluice_config *cfg, struct sl_err *err)
{
	const char *with_role[3] = {NULL, NULL, NULL};
	for (size_t i = 0; i < cfg->engine.models.n; i++) {
		const struct model_settings *m = LIST_AT(cfg->engine.models, const struct model_settings, i);
		char key[KEY_BYTES];
		if (m->role != 0 && with_role[m->role] != NULL)
			return conf_fail(cfg->conf, key_of(key, "engine.models", m->name, "role"), err,
					 "'%.60s' is the %s model already", with_role[m->role], schema_roles[m->role]);
		with_role[m->role] = m->name;
		for (const char *p = m->name; *p != '\0'; p++) {
			if (!isalnum((unsigned char)*p) && strchr("._:/-", *p) == NULL)
				return conf_fail(cfg->conf, key_of(key, "engine.models", m->name, "name"), err,
						 "a name is made of letters, digits and . _ : / -");
		}
		if (m->quantize[0] != '\0' && kn_type_from_name(m->quantize) < 0 && strcasecmp(m->quantize, "fp8") != 0)
			return conf_fail(cfg->conf, key_of(key, "engine.models", m->name, "quantize"), err,
					 "no weight type is named '%.16s'", m->quantize);
		bool is_auto = strcmp(m->name, "auto") == 0;
		if (is_auto || strcmp(m->name, "default") == 0)
			return conf_fail(cfg->conf, key_of(key, "engine.models", m->name, "name"), err, "%s",
					 is_auto ? "auto stands for the cascade"
						 : "default stands for gateway.default_model");
	}
	return 0;
}

/* A path that stays one when it is put behind a host. */
static bool is_path(const char *text)
{
	for (const char *at = text; *at != '\0'; at++)
		if (*at <= ' ' || *at > '~' || strchr("#@\\\"<>", *at) != NULL)
			return false;
	return text[0] == '/';
}

static int check_upstream(const struct sluice_config *cfg, struct sl_err *err)
{
	static const char list[] = "engine.upstream.models";
	const struct conf_list *all = &cfg->upstream.models;
	const char *with_role[3] = {NULL, NULL, NULL};
	char key[KEY_BYTES];
	if (!sluice_has_upstream(cfg))
		return 0;
	if (!remote_url_fits(cfg->upstream.url))
		return conf_fail(cfg->conf, "engine.upstream.url", err,
				 "http://HOST[:PORT][/PATH] or https://… is wanted, without a slash at its end");
	if (cfg->upstream.metrics[0] != '\0' && !is_path(cfg->upstream.metrics))
		return conf_fail(cfg->conf, "engine.upstream.metrics", err, "a path is wanted, such as /metrics");
	if (cfg->echo.enabled)
		return conf_fail(cfg->conf, "engine.upstream.url", err, "given, but engine.echo is enabled");
	for (size_t i = 0; i < all->n; i++) {
		const struct upstream_model_settings *m = LIST_AT(*all, const struct upstream_model_settings, i);
		if (!is_model_name(m->name))
			return conf_fail(cfg->conf, key_of(key, list, m->name, "name"), err,
					 "a name is made of letters, digits and . _ : / -, and not auto or default");
		if (m->role != 0 && with_role[m->role] != NULL)
			return conf_fail(cfg->conf, key_of(key, list, m->name, "role"), err,
					 "'%.60s' is the %s model already", with_role[m->role], schema_roles[m->role]);
		with_role[m->role] = m->name;
	}
	return 0;
}

/* How many models and adapters before number i of the latter have that name. */
static int n_named(const struct sluice_config *cfg, const char *name, size_t i)
{
	int n = find_model(cfg, name) != NULL;
	for (size_t k = 0; k < i; k++)
		n += strcmp(cfg->adapters[k].name, name) == 0;
	return n;
}

static int check_adapters(const struct sluice_config *cfg, struct sl_err *err)
{
	char key[KEY_BYTES];
	if (cfg->engine.models.n + cfg->engine.adapters.n > PROTO_MAX_MODELS)
		return conf_fail(cfg->conf, "engine.adapters", err, "with the models there are more than %d",
				 PROTO_MAX_MODELS);
	for (size_t i = 0; i < cfg->engine.adapters.n; i++) {
		const struct adapter_settings *a = LIST_AT(cfg->engine.adapters, const struct adapter_settings, i);
		for (const char *p = a->name; *p != '\0'; p++)
			if (!isalnum((unsigned char)*p) && strchr("._/-", *p) == NULL)
				return conf_fail(cfg->conf, key_of(key, "engine.adapters", a->name, "name"), err,
						 "a name is made of letters, digits and . _ / -");
		if (cfg->adapters[i].model < 0)
			return conf_fail(cfg->conf, key_of(key, "engine.adapters", a->name, "model"), err,
					 "no model is named '%.60s'", a->model);
		if (strlen(cfg->adapters[i].name) > PROTO_MAX_NAME)
			return conf_fail(cfg->conf, key_of(key, "engine.adapters", a->name, "name"), err,
					 "with its model's it is longer than %d bytes", PROTO_MAX_NAME);
		if (n_named(cfg, cfg->adapters[i].name, i) > 0)
			return conf_fail(cfg->conf, key_of(key, "engine.adapters", a->name, "name"), err,
					 "two models are named '%.60s'", cfg->adapters[i].name);
	}
	return 0;
}

static int check_names(const struct sluice_config *cfg, const char *key, const struct conf_strings *tiers,
		       struct sl_err *err)
{
	for (size_t i = 0; i < tiers->n; i++)
		if (!has_tier(cfg, tiers->items[i]))
			return conf_fail(cfg->conf, key, err, "no tier is named '%.60s'", tiers->items[i]);
	return 0;
}

/* Two folders of one model would give a name two meanings, and two answers to who may use it. */
static int check_adapter_folders(const struct sluice_config *cfg, struct sl_err *err)
{
	char key[KEY_BYTES];
	int rc = 0;
	for (size_t i = 0; i < cfg->engine.adapters.n && rc == 0; i++) {
		const struct adapter_settings *a = LIST_AT(cfg->engine.adapters, const struct adapter_settings, i);
		rc = check_names(cfg, key_of(key, "engine.adapters", a->name, "tiers"), &a->tiers, err);
	}
	for (size_t i = 0; i < cfg->engine.adapter_folders.n && rc == 0; i++) {
		const struct adapter_folder_settings *f =
		    LIST_AT(cfg->engine.adapter_folders, const struct adapter_folder_settings, i);
		key_of(key, "engine.adapter_folders", f->name, "model");
		if (cfg->adapter_folders[i].model < 0)
			return conf_fail(cfg->conf, key, err, "no model is named '%.60s'", f->model);
		for (size_t k = 0; k < i; k++)
			if (cfg->adapter_folders[k].model == cfg->adapter_folders[i].model)
				return conf_fail(cfg->conf, key, err, "another folder is of '%.60s'", f->model);
		rc = check_names(cfg, key_of(key, "engine.adapter_folders", f->name, "tiers"), &f->tiers, err);
	}
	return rc;
}

/* Whether an adapter of that name may be loaded later. */
static bool may_come(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->engine.adapter_folders.n; i++) {
		const char *base = LIST_AT(cfg->engine.adapter_folders, const struct adapter_folder_settings, i)->model;
		size_t n = strlen(base);
		if (strncmp(name, base, n) == 0 && name[n] == ':' && name[n + 1] != '\0')
			return true;
	}
	return false;
}

static bool has_variants(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->gateway.variants.n; i++)
		if (strcmp(LIST_AT(cfg->gateway.variants, const struct gw_variant_config, i)->of, name) == 0)
			return true;
	return false;
}

static bool is_known_model(const struct sluice_config *cfg, const char *name)
{
	return !knows_models(cfg) || n_named(cfg, name, cfg->engine.adapters.n) > 0 || may_come(cfg, name);
}

/* name is "", a model or one that has variants, or "auto" if that is allowed. */
static int check_model(const struct sluice_config *cfg, const char *key, const char *name, bool or_auto,
		       struct sl_err *err)
{
	if (name[0] == '\0' || is_known_model(cfg, name) || (or_auto && strcmp(name, "auto") == 0) ||
	    (or_auto && has_variants(cfg, name)))
		return 0;
	return conf_fail(cfg->conf, key, err, "no model is named '%.60s'", name);
}

static int check_tier(const struct sluice_config *cfg, const char *key, const char *name, struct sl_err *err)
{
	return has_tier(cfg, name) ? 0 : conf_fail(cfg->conf, key, err, "no tier is named '%.60s'", name);
}

/* The value of key must be at least that of other. */
static int check_least(const struct sluice_config *cfg, const char *key, uint64_t is, const char *other, uint64_t least,
		       struct sl_err *err)
{
	return is >= least ? 0 : conf_fail(cfg->conf, key, err, "must be at least %s", other);
}

static int check_origins(const struct sluice_config *cfg, const struct conf_strings *origins, const char *key,
			 struct sl_err *err)
{
	for (size_t i = 0; i < origins->n; i++)
		if (!cors_is_origin(origins->items[i]))
			return conf_fail(cfg->conf, key, err,
					 "'%.80s' is not an origin such as https://chat.example or http://localhost:*",
					 origins->items[i]);
	return 0;
}

static int check_tiers(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_config *g = &cfg->gateway;
	char key[KEY_BYTES];
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < g->tiers.n; i++) {
		const struct gw_tier_config *t = LIST_AT(g->tiers, const struct gw_tier_config, i);
		if (strcmp(t->name, "admin") == 0)
			return conf_fail(cfg->conf, key_of(key, "gateway.tiers", t->name, "name"), err,
					 "admin is not a tier's name");
		rc = check_model(cfg, key_of(key, "gateway.tiers", t->name, "degrade.model"), t->degrade_model, false,
				 err);
		if (rc == 0 && t->when_late == GW_LATE_DEGRADE && t->degrade_model[0] == '\0' &&
		    t->degrade_max_tokens == 0)
			return conf_fail(cfg->conf, key_of(key, "gateway.tiers", t->name, "when_late"), err,
					 "degrade needs degrade.model or degrade.max_tokens");
		for (size_t k = 0; rc == 0 && k < t->models.n; k++)
			rc = check_model(cfg, key_of(key, "gateway.tiers", t->name, "models"), t->models.items[k], true,
					 err);
		if (rc == 0)
			rc = check_model(cfg, key_of(key, "gateway.tiers", t->name, "default_model"), t->default_model,
					 true, err);
	}
	for (size_t i = 0; rc == 0 && i < g->keys.n; i++) {
		const struct gw_key_config *k = LIST_AT(g->keys, const struct gw_key_config, i);
		if (strspn(k->sha256, "0123456789abcdefABCDEF") != 64)
			return conf_fail(cfg->conf, key_of(key, "gateway.keys", k->name, "sha256"), err,
					 "64 hex digits are wanted (printf %%s KEY | sha256sum)");
		if (strcmp(k->tier, "admin") != 0)
			rc = check_tier(cfg, key_of(key, "gateway.keys", k->name, "tier"), k->tier, err);
		if (rc == 0)
			rc = check_origins(cfg, &k->origins, key_of(key, "gateway.keys", k->name, "origins"), err);
	}
	if (rc == 0 && g->anonymous[0] != '\0')
		rc = check_tier(cfg, "gateway.anonymous", g->anonymous, err);
	if (rc == 0 && g->dev_keys && (!has_tier(cfg, "free") || !has_tier(cfg, "paid")))
		return conf_fail(cfg->conf, "gateway.dev_keys", err, "needs the tiers free and paid in gateway.tiers");
	return rc;
}

/* How many variants before number i are of the same name. */
static int variants_before(const struct sluice_config *cfg, size_t i)
{
	const struct gw_variant_config *all = cfg->gateway.variants.items;
	int n = 0;
	for (size_t k = 0; k < i; k++)
		n += strcmp(all[k].of, all[i].of) == 0;
	return n;
}

static const char *variant_fault(const struct sluice_config *cfg, size_t i, const char **field)
{
	const struct gw_variant_config *v = LIST_AT(cfg->gateway.variants, const struct gw_variant_config, i);
	const int before = variants_before(cfg, i);
	*field = "name";
	for (const char *p = v->name; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL)
			return "a name is made of letters, digits and . _ -";
	*field = "of";
	if (!is_model_name(v->of))
		return "a name is made of letters, digits and . _ : / -, and not auto or default";
	if (before >= TRIAL_MAX_VARIANTS)
		return "a name has at most 8 variants";
	*field = "weight";
	if (before == 0 && v->weight <= 0)
		return "the first variant of a name is its base, whose weight must be above 0";
	*field = "shadow";
	if (before == 0 && v->shadow > 0)
		return "the first variant of a name is its base, which gets no copies";
	*field = "model";
	if (!is_known_model(cfg, v->model))
		return "no model has that name";
	if (strcmp(v->model, "auto") == 0 || strcmp(v->model, "default") == 0)
		return "the name of a model is wanted";
	if (knows_models(cfg) && has_variants(cfg, v->model) && strcmp(v->model, v->of) != 0)
		return "a name that has variants itself";
	if (v->temperature < 0 && v->temperature != -1) {
		*field = "temperature";
		return "must be at least 0, or -1: as requested";
	}
	*field = "min_p";
	return v->min_p < 0 && v->min_p != -1 ? "must be at least 0, or -1: as requested" : NULL;
}

static int check_variants(const struct sluice_config *cfg, struct sl_err *err)
{
	for (size_t i = 0; i < cfg->gateway.variants.n; i++) {
		const struct gw_variant_config *v = LIST_AT(cfg->gateway.variants, const struct gw_variant_config, i);
		const char *field, *fault = variant_fault(cfg, i, &field);
		char key[KEY_BYTES];
		if (fault != NULL)
			return conf_fail(cfg->conf, key_of(key, "gateway.variants", v->name, field), err, "%s", fault);
	}
	return 0;
}

static int check_blocks(const struct sluice_config *cfg, const struct conf_strings *blocks, const char *key,
			struct sl_err *err)
{
	struct net_block b;
	for (size_t i = 0; i < blocks->n; i++) {
		if (!net_block_parse(blocks->items[i], &b))
			return conf_fail(cfg->conf, key, err,
					 "'%.60s' is neither an address nor a block such as 10.0.0.0/8",
					 blocks->items[i]);
	}
	return 0;
}

static int check_listeners(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_config *g = &cfg->gateway;
	char key[KEY_BYTES];
	mode_t mode;
	for (size_t i = 0; i < g->listeners.n; i++) {
		const struct gw_listener_config *l = LIST_AT(g->listeners, const struct gw_listener_config, i);
		bool is_unix = l->unix_path[0] != '\0';
		if (is_unix != l->address.off)
			return conf_fail(cfg->conf, key_of(key, "gateway.listeners", l->name, "address"), err,
					 "either an address or unix must be given");
		if (is_unix && !unix_mode_parse(l->unix_mode, &mode))
			return conf_fail(cfg->conf, key_of(key, "gateway.listeners", l->name, "mode"), err,
					 "octal permissions are wanted, such as 0660");
		if (l->client_certs != GW_CLIENT_CERTS_NONE && (!l->tls || g->client_ca[0] == '\0'))
			return conf_fail(cfg->conf, key_of(key, "gateway.listeners", l->name, "client_certs"), err,
					 "needs tls and gateway.client_ca");
		if (l->proxy && !is_unix && g->trusted_proxies.n == 0)
			return conf_fail(cfg->conf, key_of(key, "gateway.listeners", l->name, "proxy"), err,
					 "needs gateway.trusted_proxies");
	}
	if (g->client_certs != GW_CLIENT_CERTS_NONE && g->client_ca[0] == '\0')
		return conf_fail(cfg->conf, "gateway.client_certs", err, "needs gateway.client_ca");
	return 0;
}

static int check_trace(const struct sluice_config *cfg, struct sl_err *err)
{
	struct sl_err why;
	const char *endpoint = cfg->gateway.trace.endpoint;
	if (endpoint[0] == '\0' || tracer_check(endpoint, &why) == 0)
		return 0;
	return conf_fail(cfg->conf, "trace.endpoint", err, "%s", why.text);
}

static int check_gateway(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_config *g = &cfg->gateway;
	int rc = check_listeners(cfg, err);
	if (rc == 0)
		rc = check_blocks(cfg, &g->trusted_proxies, "gateway.trusted_proxies", err);
	if (rc == 0)
		rc = check_blocks(cfg, &g->limits.exempt_addresses, "gateway.limits.exempt_addresses", err);
	if (rc == 0)
		rc = check_origins(cfg, &g->cors_origins, "gateway.cors_origins", err);
	if (rc != 0)
		return rc;
	if (g->https.off && g->http.off && g->listeners.n == 0)
		return conf_fail(cfg->conf, "gateway.https", err,
				 "off, and gateway.http is off too: nothing would be served");
	if (!g->https.off && !g->http.off && g->https.port == g->http.port && g->http.port != 0 &&
	    (strcmp(g->https.host, g->http.host) == 0 || g->https.host[0] == '\0' || g->http.host[0] == '\0'))
		return conf_fail(cfg->conf, "gateway.http", err, "port %u is gateway.https's already",
				 (unsigned)g->http.port);
	if ((g->cert_file[0] != '\0') != (g->key_file[0] != '\0'))
		return conf_fail(cfg->conf, g->cert_file[0] ? "gateway.key" : "gateway.cert", err,
				 "must be given together with gateway.%s", g->cert_file[0] ? "cert" : "key");
	if (g->queue.load_low_ms > g->queue.load_high_ms)
		return conf_fail(cfg->conf, "gateway.load.low", err, "must not be above gateway.load.high");
	return check_model(cfg, "gateway.default_model", g->default_model, true, err);
}

static int check_store(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct gw_store_settings *s = &cfg->gateway.store;
	uint64_t largest = s->value_bytes > s->log_bytes ? s->value_bytes : s->log_bytes;
	if (s->kind == GW_STORE_MEMORY && s->address[0] != '\0')
		return conf_fail(cfg->conf, "cache.address", err, "given, but cache.store is memory");
	int rc = check_least(cfg, "cache.backoff_max", s->backoff_max_ms, "cache.backoff_min", s->backoff_min_ms, err);
	if (rc == 0)
		rc = check_least(cfg, "cache.memory", s->memory_bytes / 12,
				 "12 times the larger of cache.value_bytes and cache.log_bytes", largest, err);
	if (rc == 0 && strspn(s->prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-") !=
			   strlen(s->prefix))
		return conf_fail(cfg->conf, "cache.prefix", err, "is made of letters, digits and : . _ -");
	return rc;
}

static int check_cascade(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct casc_settings *c = &cfg->cascade;
	char why_key[256], key[KEY_BYTES];
	struct sl_err why;
	if (casc_settings_check(c, why_key, sizeof why_key, &why) != 0) {
		snprintf(key, sizeof key, "cascade.%s", why_key);
		return conf_fail(cfg->conf, key, err, "%.300s", why.text);
	}
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < c->tiers.n; i++) {
		const struct casc_tier_setting *t = LIST_AT(c->tiers, const struct casc_tier_setting, i);
		rc = check_tier(cfg, key_of(key, "cascade.tiers", t->name, "name"), t->name, err);
	}
	for (size_t i = 0; rc == 0 && i < c->rules.n; i++) {
		const struct casc_rule_setting *r = LIST_AT(c->rules, const struct casc_rule_setting, i);
		if (strcmp(r->model, "small") != 0 && strcmp(r->model, "large") != 0)
			rc = check_model(cfg, key_of(key, "cascade.rules", r->name, "model"), r->model, false, err);
	}
	return rc;
}

static int check_supervisor(const struct sluice_config *cfg, struct sl_err *err)
{
	const struct supervisor_settings *s = &cfg->supervisor;
	int rc =
	    check_least(cfg, "supervisor.hang", s->hang_ms, "twice supervisor.heartbeat", 2 * s->heartbeat_ms, err);
	if (rc == 0)
		rc = check_least(cfg, "supervisor.backoff_max", s->backoff_max_ms, "supervisor.backoff_min",
				 s->backoff_min_ms, err);
	return rc != 0 ? rc
		       : check_least(cfg, "supervisor.drain", s->drain_ms, "gateway.drain", cfg->gateway.drain_ms, err);
}

static int check_hub(const struct sluice_config *cfg, struct sl_err *err)
{
	const char *e = cfg->hub.endpoint, *host = strstr(e, "://");
	if ((strncmp(e, "https://", 8) != 0 && strncmp(e, "http://", 7) != 0) || host[3] == '\0' ||
	    strpbrk(e, "@?# \t") != NULL)
		return conf_fail(cfg->conf, "hub.endpoint", err, "an address is wanted, like https://huggingface.co");
	return 0;
}

int schema_check(const struct sluice_config *cfg, struct sl_err *err)
{
	static int (*const checks[])(const struct sluice_config *, struct sl_err *) = {
	    check_supervisor, engines_check, check_models, check_upstream, check_adapters, check_adapter_folders,
	    check_tiers,      check_gateway, check_store,  check_cascade,  check_hub,      check_trace,
	    check_variants,
	};
	int rc = 0;
	for (size_t i = 0; i < sizeof checks / sizeof *checks && rc == 0; i++)
		rc = checks[i](cfg, err);
	return rc;
}
