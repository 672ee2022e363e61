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
	int model = answer_choose_model(x, r->model);
	if (model < 0)
		return;
	const char *events = http_header(http_request(x->stream), "x-sluice-events");
	bool logged = r->stream && events != NULL && strcmp(events, "1") == 0;
	const struct answer_prompt prompt = {r->submit.prompt_kind, r->submit.prompt};
	answer_start(x, &(struct answer_spec){
			    .format = &answer_chat,
			    .model = model,
			    .stream = r->stream,
			    .include_usage = r->include_usage,
			    .logged = logged,
			    .ids = logged,
			    .has_max_tokens = r->has_max_tokens,
			    .max_tokens = r->max_tokens,
			    .has_seed = r->has_seed,
			    .submit = &r->submit,
			    .prompts = &prompt,
			    .n_prompts = 1,
			});
}

void api_chat(struct exchange *x)
{
	const struct gw_limits *limits = &x->app->t->cfg->limits;
	struct chat_limits bounds = {.messages = (size_t)limits->messages, .json_depth = (size_t)limits->json_depth};
	struct chat_request r;
	struct chat_error e;
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
