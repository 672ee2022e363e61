/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/usage: who asks, what the tier allows, and what is left of it. Looking costs nothing.
 */
#include <string.h>

#include "base/buf.h"
#include "base/json/json_out.h"
#include "gateway/answer/answer_cascade.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/generation/engine_link.h"
#include "gateway/api/handlers.h"

enum { MAX_REPLY = 128 << 10 };

static int put_text(struct sl_buf *out, const char *name, const char *value)
{
	int rc = buf_printf(out, "\"%s\":", name);
	if (rc == 0)
		rc = value == NULL || value[0] == '\0' ? buf_append_str(out, "null")
						       : json_out_string(out, value, strlen(value));
	return rc == 0 ? buf_append_str(out, ",") : rc;
}

/* 0: null, there is none. */
static int put_limit(struct sl_buf *out, const char *name, int64_t value)
{
	return value == 0 ? buf_printf(out, "\"%s\":null,", name)
			  : buf_printf(out, "\"%s\":%lld,", name, (long long)value);
}

static int put_models(struct sl_buf *out, const struct exchange *x)
{
	const struct engine_link *link = x->app->link;
	int rc = buf_append_str(out, "\"models\":[");
	bool first = true;
	for (int i = 0; i < engine_link_n_models(link) && rc == 0; i++) {
		const char *name = engine_link_model(link, i)->name;
		if (name[0] == '\0' || !auth_tier_may(x->key->tier, name))
			continue;
		rc = first ? 0 : buf_append_str(out, ",");
		first = false;
		if (rc == 0)
			rc = json_out_string(out, name, strlen(name));
	}
	struct cascade_models m;
	if (rc == 0 && answer_auto_find(x->app, x->snapshot, x->key->tier, &m))
		rc = buf_printf(out, "%s\"%s\"", first ? "" : ",", answer_auto_name);
	return rc == 0 ? buf_append_str(out, "],") : rc;
}

static int put_limits(struct sl_buf *out, const struct gw_tier_config *t)
{
	int rc = buf_append_str(out, "\"limits\":{");
	if (rc == 0)
		rc = put_limit(out, "requests_per_minute", t->requests_per_minute);
	if (rc == 0)
		rc = put_limit(out, "subject_requests_per_minute", t->subject_requests_per_minute);
	if (rc == 0)
		rc = put_limit(out, "tokens_per_minute", t->tokens_per_minute);
	if (rc == 0)
		rc = put_limit(out, "tokens_per_day", t->tokens_per_day);
	if (rc == 0)
		rc = put_limit(out, "max_prompt", t->max_prompt);
	if (rc == 0)
		rc = put_limit(out, "deadline_ms", (int64_t)t->deadline_ms);
	return rc == 0 ? buf_printf(out, "\"max_output\":%lld,\"concurrency\":%lld},", (long long)t->max_output,
				    (long long)t->concurrency)
		       : rc;
}

/* r NULL: nothing is limited. */
static int put_left(struct sl_buf *out, const struct quota_result *r)
{
	static const char *const names[QUOTA_N_LIMITS] = {"requests_per_minute", "subject_requests_per_minute",
							  "tokens_per_minute", "tokens_per_day"};
	bool first = true;
	if (r != NULL && r->code < 0)
		return buf_append_str(out, "\"remaining\":null}");
	int rc = buf_append_str(out, "\"remaining\":{");
	for (int i = 0; rc == 0 && r != NULL && i < QUOTA_N_LIMITS; i++) {
		const struct quota_left *l = &r->each[i];
		if (l->limit == 0)
			continue;
		rc = buf_printf(out, "%s\"%s\":{\"limit\":%lld,\"remaining\":%lld,\"reset_ms\":%lld}", first ? "" : ",",
				names[i], (long long)l->limit, (long long)l->remaining,
				(long long)((l->reset_us + 999) / 1000));
		first = false;
	}
	return rc == 0 ? buf_append_str(out, "}}") : rc;
}

static void reply(struct exchange *x, const struct quota_result *r)
{
	static const char *const kinds[] = {"key", "key", "browser_token", "anonymous"};
	static const struct http_field fields[] = {{"cache-control", "no-store"}};
	const struct auth_key *k = x->key;
	struct sl_buf out;
	buf_init(&out, MAX_REPLY);
	int rc = buf_printf(&out, "{\"object\":\"usage\",\"kind\":\"%s\",", kinds[k->kind]);
	if (rc == 0)
		rc = put_text(&out, "key", k->name);
	if (rc == 0)
		rc = put_text(&out, "subject", k->subject);
	if (rc == 0)
		rc = put_text(&out, "tier", k->tier->name);
	if (rc == 0)
		rc = put_limit(&out, "expires_at", k->expires_s);
	if (rc == 0)
		rc = put_models(&out, x);
	if (rc == 0)
		rc = put_limits(&out, k->tier);
	if (rc == 0)
		rc = buf_printf(&out, "\"running\":%d,\"degraded\":%s,", atomic_load(k->n_running),
				r != NULL && r->degraded ? "true" : "false");
	if (rc == 0)
		rc = put_left(&out, r);
	if (rc == 0)
		exchange_reply(x, 200, "application/json", fields, 1, buf_data(&out), out.len);
	else
		exchange_reply_no_memory(x);
	buf_dispose(&out);
}

static void on_seen(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct exchange *x = ctx;
	(void)q;
	x->state = NULL;
	x->on_close = NULL;
	reply(x, r);
}

static void on_close(struct exchange *x)
{
	quota_settle(x->state, 0);
	x->state = NULL;
}

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
