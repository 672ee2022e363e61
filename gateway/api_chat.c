/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/chat/completions. A client that can resume says so with `x-sluice-events: 1`.
 */
#include <string.h>

#include "gateway/answer.h"
#include "gateway/chat_request.h"
#include "gateway/handlers.h"

static void start(struct exchange *x, const struct chat_request *r)
{
	int model = answer_choose_model(x, r->c.model);
	if (model < 0)
		return;
	const char *events = http_header(http_request(x->stream), "x-sluice-events");
	const struct request_common *c = &r->c;
	bool logged = c->stream && events != NULL && strcmp(events, "1") == 0;
	const struct answer_prompt prompt = {c->submit.prompt_kind, c->submit.prompt};
	answer_start(x, &(struct answer_spec){
			    .format = &answer_chat,
			    .model = model,
			    .stream = c->stream,
			    .include_usage = c->include_usage,
			    .obfuscate = c->obfuscate,
			    .logged = logged,
			    .ids = logged,
			    .has_max_tokens = c->has_max_tokens,
			    .max_tokens = c->max_tokens,
			    .has_seed = c->has_seed,
			    .submit = &c->submit,
			    .prompts = &prompt,
			    .n_prompts = 1,
			});
}

void api_chat(struct exchange *x)
{
	const struct gw_limits *limits = &x->app->t->cfg->limits;
	struct request_limits bounds = {.messages = (size_t)limits->messages, .json_depth = (size_t)limits->json_depth};
	struct chat_request r;
	struct request_error e;
	int rc = chat_request_parse(x->body.len ? (const char *)buf_data(&x->body) : "", x->body.len, &bounds, &r, &e);
	if (rc == SL_EINVAL) {
		exchange_error(x, &(struct api_error){400, "invalid_request_error", e.code, e.param, 0}, "%s", e.message);
		return;
	}
	if (rc != 0) {
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, 1},
			       "The server is out of memory.");
		return;
	}
	buf_clear(&x->body, 0);
	start(x, &r);
	chat_request_dispose(&r);
}
