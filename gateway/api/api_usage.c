/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/usage: the caller's key, what its tier allows, and what remains. It charges nothing.
 */
#include <jansson.h>

#include "gateway/auth/snapshot.h"
#include "gateway/answer/answer_cascade.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/generation/engine_link.h"
#include "gateway/api/handlers.h"

/* 0: null, there is no limit. */
static json_t *limit_of(int64_t value) { return value == 0 ? json_null() : json_integer(value); }

static const char *text_of(const char *s) { return s != NULL && s[0] != '\0' ? s : NULL; }

/* A failed append makes the array shorter; the caller has no memory for the rest then. */
static json_t *models_of(const struct exchange *x)
{
	const struct engine_link *link = x->app->link;
	struct cascade_models m;
	json_t *models = json_array();
	for (int i = 0; i < engine_link_n_models(link); i++) {
		const char *name = engine_link_model(link, i)->name;
		if (name[0] != '\0' && auth_may(&x->snapshot->cfg, x->key, name))
			json_array_append_new(models, json_string(name));
	}
	if (answer_auto_find(x->app, x->snapshot, x->key->tier, &m))
		json_array_append_new(models, json_string(answer_auto_name));
	return models;
}

static json_t *limits_of(const struct gw_tier_config *t)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "requests_per_minute",
			 limit_of(t->requests_per_minute), "subject_requests_per_minute",
			 limit_of(t->subject_requests_per_minute), "tokens_per_minute", limit_of(t->tokens_per_minute),
			 "tokens_per_day", limit_of(t->tokens_per_day), "max_prompt", limit_of(t->max_prompt),
			 "deadline_ms", limit_of((int64_t)t->deadline_ms), "max_output", (json_int_t)t->max_output,
			 "concurrency", (json_int_t)t->concurrency);
}

/* r NULL: no limit applies. */
static json_t *remaining_of(const struct quota_result *r)
{
	static const char *const names[QUOTA_N_LIMITS] = {"requests_per_minute", "subject_requests_per_minute",
							  "tokens_per_minute", "tokens_per_day"};
	if (r != NULL && r->code < 0)
		return json_null();
	json_t *all = json_object();
	for (int i = 0; r != NULL && i < QUOTA_N_LIMITS; i++) {
		const struct quota_left *l = &r->each[i];
		if (l->limit != 0)
			json_object_set_new(all, names[i],
					    json_pack("{s:I, s:I, s:I}", "limit", (json_int_t)l->limit, "remaining",
						      (json_int_t)l->remaining, "reset_ms",
						      (json_int_t)(l->reset_us + 999) / 1000));
	}
	return all;
}

static void reply(struct exchange *x, const struct quota_result *r)
{
	static const char *const kinds[] = {"key", "key", "browser_token", "anonymous"};
	const struct auth_key *k = x->key;
	exchange_reply_json_no_store(x, json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:o, s:o, s:o, s:i, s:b, s:o}", "object",
						  "usage", "kind", kinds[k->kind], "key", text_of(k->name), "subject",
						  text_of(k->subject), "tier", k->tier->name, "expires_at",
						  limit_of(k->expires_s), "models", models_of(x), "limits",
						  limits_of(k->tier), "running", atomic_load(k->n_running), "degraded",
						  r != NULL && r->degraded, "remaining", remaining_of(r)));
}

static void on_seen(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct exchange *x = ctx;
	(void)q;
	exchange_disown(x);
	reply(x, r);
}

static void on_close(struct exchange *x) { quota_settle(x->state, 0); }

void api_usage(struct exchange *x)
{
	struct quota *q;
	int rc = quota_peek(&x->app->quotas, x->key, on_seen, x, &q);
	if (rc < 0) {
		exchange_reply_no_memory(x);
	} else if (rc > 0) {
		reply(x, NULL);
	} else {
		x->state = q;
		x->on_close = on_close;
	}
}
