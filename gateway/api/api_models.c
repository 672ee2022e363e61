/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/models and /v1/models/{id}: the models that the caller's tier may use, as the engine last reported them. Ids
 * are unique by construction. Models that are loading or failed are listed with their state, so that a client sees why
 * it cannot use them. With the header anthropic-version the form is Anthropic's, and only models that serve are listed.
 *
 * POST /v1/load_lora_adapter and /v1/unload_lora_adapter change what there is: administrators only.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/auth/snapshot.h"
#include "gateway/answer/answer_cascade.h"
#include "gateway/exchange/app_state.h"
#include "gateway/api/api_request.h"
#include "gateway/dialect/dialect.h"
#include "gateway/exchange/exchange.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/exchange/route.h"
#include "gateway/request/adapter_request.h"
#include "gateway/variant/variant.h"

enum { MAX_LIST = 1 << 20 };

bool api_model_visible(const struct exchange *x, const struct link_model *m)
{
	return m->name[0] != '\0' && auth_may(&x->snapshot->cfg, x->key, m->name);
}

bool api_model_loads(const struct link_model *m)
{
	return m->state == PROTO_MODEL_LOADING ||
	       (m->state == PROTO_MODEL_READY && m->residence == PROTO_RESIDENCE_COMING);
}

const char *api_model_state(const struct link_model *m)
{
	if (m->state == PROTO_MODEL_FAILED)
		return "failed";
	return api_model_loads(m) ? "loading" : m->residence == PROTO_RESIDENCE_HERE ? "ready" : "absent";
}

static json_t *model_json(const struct exchange *x, const char *id, const char *state, const char *role, uint32_t n_ctx,
			  uint64_t n_params)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I}", "id", id, "object", "model", "created",
			 (json_int_t)x->app->started_s, "owned_by", "sluice", "state", state, "role", role,
			 "context_length", (json_int_t)n_ctx, "parameters", (json_int_t)n_params);
}

static json_t *json_of(const struct exchange *x, const struct link_model *m)
{
	static const char *const roles[] = {"none", "small", "large"};
	json_t *v = model_json(x, m->name, api_model_state(m), roles[m->role], m->n_ctx, m->n_params);
	const struct link_model *parent = engine_link_parent(x->app->link, m);
	if (api_model_loads(m) && v != NULL)
		(void)json_object_set_new(v, "percent", json_integer(m->percent));
	if (parent != NULL && v != NULL)
		(void)json_object_set_new(v, "parent", json_string(parent->name));
	return v;
}

/* The cascade as a model: as large as the larger of the two, and ready when one of them is. */
static json_t *auto_json(const struct exchange *x, const struct cascade_models *m)
{
	const struct engine_link *link = x->app->link;
	const struct link_model *small = engine_link_model(link, m->small), *large = engine_link_model(link, m->large);
	return model_json(x, answer_auto_name, m->can_small || m->can_large ? "ready" : "loading", "cascade",
			  small->n_ctx > large->n_ctx ? small->n_ctx : large->n_ctx, small->n_params + large->n_params);
}

/* A name that only its variants have is a model like its base. NULL: it is one of the engine's, or not for x. */
static const struct link_model *base_of(const struct exchange *x, const struct variant_group *g)
{
	const struct engine_link *link = x->app->link;
	if (engine_link_find_model(link, g->of) >= 0 || !auth_may(&x->snapshot->cfg, x->key, g->of))
		return NULL;
	int base = engine_link_find_model(link, g->all[0].cfg->model);
	return base >= 0 ? engine_link_model(link, base) : NULL;
}

static json_t *group_json(const struct exchange *x, const struct variant_group *g, const struct link_model *base)
{
	json_t *v = json_of(x, base);
	if (v != NULL)
		(void)json_object_set_new(v, "id", json_string(g->of));
	return v;
}

/* ---- as Anthropic has them ---- */

static int put_id(struct sl_buf *out, const char *member, const char *id)
{
	int rc = buf_printf(out, ",\"%s\":", member);
	if (rc == 0)
		rc = id != NULL ? json_out_string(out, id, strlen(id)) : buf_append_str(out, "null");
	return rc;
}

/* Number i of the models of the engines, then of the names that only variants have, then the cascade; NULL: it is none
 * that x may use, or none that serves. */
static const char *listed(const struct exchange *x, int i)
{
	const struct engine_link *link = x->app->link;
	const int n = engine_link_n_models(link), n_groups = (int)variants_n_groups(x->snapshot->variants);
	struct cascade_models both;
	if (i >= n + n_groups)
		return answer_auto_find(x->app, x->snapshot, x->key->tier, &both) ? answer_auto_name : NULL;
	if (i >= n) {
		const struct variant_group *g = variants_group(x->snapshot->variants, (size_t)(i - n));
		const struct link_model *base = base_of(x, g);
		return base != NULL && base->state == PROTO_MODEL_READY ? g->of : NULL;
	}
	const struct link_model *m = engine_link_model(link, i);
	return api_model_visible(x, m) && m->state == PROTO_MODEL_READY ? m->name : NULL;
}

/* All of them are one page. */
static void list_as_anthropic(struct exchange *x)
{
	const char *first = NULL, *last = NULL;
	struct sl_buf out;
	buf_init(&out, MAX_LIST);
	int n = engine_link_n_models(x->app->link) + (int)variants_n_groups(x->snapshot->variants),
	    rc = buf_append_str(&out, "{\"data\":[");
	for (int i = 0; i <= n && rc == 0; i++) {
		const char *id = listed(x, i);
		if (id == NULL)
			continue;
		rc = first != NULL ? buf_append_str(&out, ",") : 0;
		if (rc == 0)
			rc = messages_put_model(&out, id, x->app->started_s);
		first = first != NULL ? first : id;
		last = id;
	}
	if (rc == 0)
		rc = buf_append_str(&out, "],\"has_more\":false");
	if (rc == 0)
		rc = put_id(&out, "first_id", first);
	if (rc == 0)
		rc = put_id(&out, "last_id", last);
	exchange_reply_text(x, &out, rc == 0 ? buf_append_str(&out, "}") : rc);
}

/* v: the model as OpenAI has it, taken. */
static void reply_model(struct exchange *x, json_t *v)
{
	struct sl_buf out;
	if (v == NULL || x->form != &messages_form) {
		exchange_reply_json(x, v);
		return;
	}
	buf_init(&out, MAX_LIST);
	int rc = messages_put_model(&out, json_string_value(json_object_get(v, "id")), x->app->started_s);
	json_decref(v);
	exchange_reply_text(x, &out, rc);
}

/* ---- the routes ---- */

void api_models(struct exchange *x)
{
	if (x->form == &messages_form) {
		list_as_anthropic(x);
		return;
	}
	const struct engine_link *link = x->app->link;
	struct cascade_models m;
	json_t *data = json_array();
	int rc = 0;
	for (int i = 0; i < engine_link_n_models(link); i++)
		if (api_model_visible(x, engine_link_model(link, i)))
			rc |= json_array_append_new(data, json_of(x, engine_link_model(link, i)));
	for (size_t i = 0; i < variants_n_groups(x->snapshot->variants); i++) {
		const struct variant_group *g = variants_group(x->snapshot->variants, i);
		const struct link_model *base = base_of(x, g);
		if (base != NULL)
			rc |= json_array_append_new(data, group_json(x, g, base));
	}
	if (answer_auto_find(x->app, x->snapshot, x->key->tier, &m))
		rc |= json_array_append_new(data, auto_json(x, &m));
	json_t *list = json_pack("{s:s, s:o}", "object", "list", "data", data);
	if (rc == 0) {
		exchange_reply_json(x, list);
		return;
	}
	json_decref(list);
	exchange_reply_no_memory(x);
}

void api_model(struct exchange *x)
{
	char id[3 * PROTO_MAX_NAME + 1]; /* each byte may be escaped */
	const struct engine_link *link = x->app->link;
	const struct variant_group *g;
	const struct link_model *base;
	struct cascade_models m;
	int i = -1;
	if (!route_part(x->route, http_request(x->stream)->path, id, sizeof id))
		snprintf(id, sizeof id, "(a longer name)");
	else if (!route_unescape(id))
		snprintf(id, sizeof id, "(not a name)");
	else
		i = engine_link_find_model(link, id);
	if (i >= 0 && api_model_visible(x, engine_link_model(link, i)))
		reply_model(x, json_of(x, engine_link_model(link, i)));
	else if (i < 0 && (g = variants_find(x->snapshot->variants, id)) != NULL && (base = base_of(x, g)) != NULL)
		reply_model(x, group_json(x, g, base));
	else if (i < 0 && strcmp(id, answer_auto_name) == 0 && answer_auto_find(x->app, x->snapshot, x->key->tier, &m))
		reply_model(x, auto_json(x, &m));
	else
		exchange_refuse(x, 404, "model_not_found", "model",
				"The model '%s' does not exist or you do not have access to it.", id);
}

/* ---- adapters ---- */

struct adapter_call {
	struct exchange *x;
	uint64_t id; /* 0: not under way */
	bool load;
	char name[PROTO_MAX_NAME + 1];
};

static void on_close(struct exchange *x)
{
	struct adapter_call *c = x->state;
	if (c->id != 0)
		engine_link_uncount(x->app->link, c->id);
	sl_free(c);
}

static void refuse_adapter(const struct adapter_call *c, const struct proto_counted *m)
{
	struct exchange *x = c->x;
	int n = (int)m->message.n;
	const char *why = m->message.at, *sought = c->load ? "lora_path" : "lora_name";
	switch (m->error) {
	case PROTO_ERR_NO_FOLDER:
	case PROTO_ERR_BAD_REQUEST: exchange_refuse(x, 400, "invalid_value", "lora_path", "%.*s", n, why); return;
	case PROTO_ERR_BAD_ADAPTER_NAME: exchange_refuse(x, 400, "invalid_value", "lora_name", "%.*s", n, why); return;
	case PROTO_ERR_NO_MODEL: exchange_refuse(x, 404, "adapter_not_found", sought, "%.*s", n, why); return;
	case PROTO_ERR_NOT_READY: exchange_refuse(x, 503, "model_loading", NULL, "%.*s", n, why); return;
	case PROTO_ERR_OVERLOADED: exchange_refuse(x, 503, "overloaded", NULL, "%.*s", n, why); return;
	default: exchange_refuse(x, 500, "engine_error", NULL, "The engine can't change its adapters."); return;
	}
}

static void on_changed(void *ctx, const struct proto_counted *m)
{
	struct adapter_call *c = ctx;
	struct sl_buf out;
	c->id = 0;
	if (m == NULL) {
		exchange_refuse(c->x, 503, "engine_unavailable", NULL,
				"The engine stopped unexpectedly. It is being restarted.");
		return;
	}
	if (m->error != 0) {
		refuse_adapter(c, m);
		return;
	}
	buf_init(&out, 1024);
	int rc = buf_printf(
	    &out, "{\"object\":\"adapter\",\"status\":\"%s\",\"lora_name\":", c->load ? "loaded" : "unloaded");
	if (rc == 0)
		rc = json_out_string(&out, c->name, strlen(c->name));
	exchange_reply_text(c->x, &out, rc == 0 ? buf_append_str(&out, "}") : rc);
}

static void on_adapter(struct exchange *x, void *read)
{
	const struct adapter_request *r = read;
	struct adapter_call *c = exchange_own(x, sizeof *c, on_close);
	if (c == NULL)
		return;
	c->x = x;
	c->load = r->adapter.load;
	memcpy(c->name, r->adapter.name.at, r->adapter.name.n);
	int rc = engine_link_adapter(x->app->link, &r->adapter, on_changed, c, &c->id);
	if (rc == SL_ECLOSED)
		exchange_refuse(x, 503, "engine_unavailable", NULL,
				"The engine is not there at the moment. It is being restarted.");
	else if (rc != 0)
		exchange_refuse(x, 503, "overloaded", NULL, "The server is busy.");
}

static int parse_load(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return adapter_load_request_parse(bytes, n, l, out, e);
}

static int parse_unload(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return adapter_unload_request_parse(bytes, n, l, out, e);
}

static void dispose(void *r) { adapter_request_dispose(r); }

void api_load_adapter(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct adapter_request), parse_load, dispose};
	body_read(x, &parser, on_adapter);
}

void api_unload_adapter(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct adapter_request), parse_unload, dispose};
	body_read(x, &parser, on_adapter);
}
