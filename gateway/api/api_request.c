/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/api/api_request.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/variant/variant.h"

struct request_limits api_limits(const struct exchange *x)
{
	const struct gw_limits *l = &x->app->t->cfg->limits;
	return (struct request_limits){.messages = (size_t)l->messages,
				       .json_depth = (size_t)l->json_depth,
				       .json_values = (size_t)l->json_values,
				       .prompts = ANSWER_MAX_RUNS,
				       .cleanse = x->key != NULL && x->key->tier != NULL
						      ? (enum cleanse_level)x->key->tier->cleanse
						      : CLEANSE_OFF};
}

/* Estimated bytes per token: removed text is never tokenized. */
enum { TOKEN_BYTES = 4 };

COUNTER(cleansed_requests, "sluice_cleansed_requests_total", "Requests in which cleansing changed a user's message");
COUNTER(cleansed_bytes, "sluice_cleansed_bytes_total", "Bytes that cleansing removed from users' messages");
COUNTER(cleansed_tokens, "sluice_cleansed_tokens_total",
	"Estimated tokens that cleansing saved: a quarter of the bytes");

static void report_cleansed(struct exchange *x, const struct cleanse_stats *stats)
{
	uint64_t saved = cleanse_saved(stats);
	if (stats->n_changed == 0)
		return;
	x->cleansed = true;
	x->cleansed_bytes = saved;
	metric_add(&cleansed_requests, 1);
	metric_add(&cleansed_bytes, (int64_t)saved);
	metric_add(&cleansed_tokens, (int64_t)(saved / TOKEN_BYTES));
}

/* Without memory the header lacks it. */
void api_report_ignored(struct exchange *x, const struct request_ignored *r)
{
	char text[sizeof r->text + 16];
	unsigned more = (unsigned)r->n - r->n_shown;
	if (r->n_shown == 0)
		return;
	snprintf(text, sizeof text, "%s", r->text);
	if (more > 0)
		snprintf(text, sizeof text, "%s, +%u", r->text, more);
	sl_free(x->ignored);
	x->ignored = sl_strdup(text);
}

void api_report(struct exchange *x, const struct request_common *c)
{
	report_cleansed(x, &c->cleansed);
	api_report_ignored(x, &c->ignored);
}

int api_choose_model(struct exchange *x, struct request_common *c)
{
	int model = answer_choose_model(x, c->model, c->user);
	const struct variant_submit to = {.submit = &c->submit,
					  .has_max_tokens = &c->has_max_tokens,
					  .max_tokens = &c->max_tokens,
					  .given = c->sampling};
	if (model >= 0 && x->variant != NULL)
		variant_apply(x->variant, &to);
	x->variant_given = c->sampling;
	return model;
}

bool api_model_fits(struct exchange *x, const struct request_common *c, int model)
{
	if (model != ANSWER_AUTO || c->submit.prompt_logprobs == 0)
		return true;
	return exchange_refuse(x, 400, "invalid_value", "prompt_logprobs",
			       "'prompt_logprobs' requires one model, and '%s' uses two.", c->model);
}

bool api_parsed(struct exchange *x, int rc, const struct request_error *e)
{
	buf_clear(&x->body, 0);
	if (rc == 0)
		return true;
	if (rc == SL_EINVAL)
		return exchange_refuse(x, 400, e->code, e->param, "%s", e->message);
	exchange_reply_no_memory(x);
	return false;
}

bool api_wants_ids(const struct exchange *x)
{
	const char *events = http_header(http_request(x->stream), "x-sluice-events");
	return events != NULL && strcmp(events, "1") == 0;
}

struct answer_spec api_spec(const struct exchange *x, const struct request_common *c,
			    const struct answer_format *format, int model)
{
	const char *conversation = http_header(http_request(x->stream), "x-sluice-conversation");
	return (struct answer_spec){
	    .format = format,
	    .model = model,
	    .stream = c->stream,
	    .include_usage = c->include_usage,
	    .obfuscate = c->obfuscate,
	    .has_max_tokens = c->has_max_tokens,
	    .max_tokens = c->max_tokens,
	    .has_seed = c->has_seed,
	    .token_ids = c->token_ids,
	    .tokens_as_ids = c->tokens_as_ids,
	    .constraint = c->constraint.field,
	    .submit = &c->submit,
	    .user = exchange_user(x, c->user),
	    .conversation = conversation != NULL && conversation[0] != '\0' ? conversation : NULL,
	};
}

bool api_needs_key(struct exchange *x, const char *message)
{
	return x->key->kind == AUTH_CONFIGURED || x->key->kind == AUTH_STORED ||
	       exchange_refuse(x, 403, "insufficient_permissions", NULL, "%s", message);
}
