/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/models and /v1/models/{id}: what the caller's tier may ask for, with what the engine last
 * said of it. Ids are unique by construction; a model that is loading or failed is listed with its
 * state, so that a client sees why it can't be used.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json/json_out.h"
#include "gateway/answer/answer_cascade.h"
#include "gateway/exchange/app_state.h"
#include "gateway/exchange/exchange.h"
#include "gateway/api/handlers.h"
#include "gateway/exchange/route.h"

enum { MAX_LIST = 64 << 10 };

static bool visible(const struct exchange *x, const struct link_model *m)
{
	return m->name[0] != '\0' && auth_tier_may(x->key->tier, m->name);
}

static int put_model(struct sl_buf *out, const struct link_model *m, int64_t created)
{
	static const char *const states[] = {"loading", "ready", "failed"};
	static const char *const roles[] = {"none", "small", "large"};
	int rc = buf_append_str(out, "{\"id\":");
	if (rc == 0)
		rc = json_out_string(out, m->name, strlen(m->name));
	if (rc == 0)
		rc = buf_printf(out,
				",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"sluice\",\"state\":\"%s\","
				"\"role\":\"%s\",\"context_length\":%u,\"parameters\":%llu}",
				(long long)created, states[m->state], roles[m->role], m->n_ctx,
				(unsigned long long)m->n_params);
	return rc;
}

/* The cascade as a model: as large as the larger of the two, and ready when one of them is. */
static int put_auto(struct sl_buf *out, const struct exchange *x, const struct cascade_models *m)
{
	const struct engine_link *link = x->app->link;
	const struct link_model *small = engine_link_model(link, m->small), *large = engine_link_model(link, m->large);
	return buf_printf(
	    out,
	    "{\"id\":\"%s\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"sluice\",\"state\":\"%s\","
	    "\"role\":\"cascade\",\"context_length\":%u,\"parameters\":%llu}",
	    answer_auto_name, (long long)x->app->started_s, m->can_small || m->can_large ? "ready" : "loading",
	    small->n_ctx > large->n_ctx ? small->n_ctx : large->n_ctx,
	    (unsigned long long)small->n_params + large->n_params);
}

static void reply(struct exchange *x, struct sl_buf *body, int rc)
{
	if (rc == 0)
		exchange_reply(x, 200, "application/json", NULL, 0, buf_data(body), body->len);
	else
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, 1},
			       "The server is out of memory.");
	buf_dispose(body);
}

void api_models(struct exchange *x)
{
	const struct engine_link *link = x->app->link;
	struct sl_buf body;
	buf_init(&body, MAX_LIST);
	int rc = buf_append_str(&body, "{\"object\":\"list\",\"data\":[");
	bool first = true;
	for (int i = 0; i < engine_link_n_models(link) && rc == 0; i++) {
		const struct link_model *m = engine_link_model(link, i);
		if (!visible(x, m))
			continue;
		if (!first)
			rc = buf_append_str(&body, ",");
		first = false;
		if (rc == 0)
			rc = put_model(&body, m, x->app->started_s);
	}
	struct cascade_models m;
	if (rc == 0 && answer_auto_find(x->app, x->snapshot, x->key->tier, &m)) {
		if (!first)
			rc = buf_append_str(&body, ",");
		if (rc == 0)
			rc = put_auto(&body, x, &m);
	}
	if (rc == 0)
		rc = buf_append_str(&body, "]}");
	reply(x, &body, rc);
}

void api_model(struct exchange *x)
{
	char id[3 * PROTO_MAX_NAME + 1]; /* each byte may be escaped */
	const struct engine_link *link = x->app->link;
	int i = -1;
	if (!route_part(x->route, http_request(x->stream)->path, id, sizeof id))
		snprintf(id, sizeof id, "(a longer name)");
	else if (!route_unescape(id))
		snprintf(id, sizeof id, "(not a name)");
	else
		i = engine_link_find_model(link, id);
	struct cascade_models m;
	struct sl_buf body;
	if (i < 0 && strcmp(id, answer_auto_name) == 0 && answer_auto_find(x->app, x->snapshot, x->key->tier, &m)) {
		buf_init(&body, MAX_LIST);
		reply(x, &body, put_auto(&body, x, &m));
		return;
	}
	if (i < 0 || !visible(x, engine_link_model(link, i))) {
		exchange_error(x, &(struct api_error){404, "invalid_request_error", "model_not_found", "model", 0},
			       "The model '%s' does not exist or you do not have access to it.", id);
		return;
	}
	buf_init(&body, MAX_LIST);
	reply(x, &body, put_model(&body, engine_link_model(link, i), x->app->started_s));
}

void api_unbuilt(struct exchange *x)
{
	exchange_error(x, &(struct api_error){404, "invalid_request_error", "unsupported_endpoint", NULL, 0},
		       "%s is not supported by this version. Use /v1/chat/completions.", http_request(x->stream)->path);
}
