/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/chat/completions.
 */
#include "gateway/api_request.h"
#include "gateway/chat_request.h"
#include "gateway/handlers.h"

static void start(struct exchange *x, const struct chat_request *r)
{
	int model = answer_choose_model(x, r->c.model);
	if (model < 0)
		return;
	const struct answer_prompt prompt = {r->c.submit.prompt_kind, r->c.submit.prompt};
	struct answer_spec spec = api_spec(&r->c, &answer_chat, model);
	spec.logged = spec.ids = spec.stream && api_wants_ids(x);
	spec.prompts = &prompt;
	spec.n_prompts = 1;
	api_cleansed(x, &r->c.cleansed);
	answer_start(x, &spec);
}

void api_chat(struct exchange *x)
{
	struct request_limits limits = api_limits(x);
	struct chat_request r;
	struct request_error e;
	int rc = chat_request_parse(api_body(x), x->body.len, &limits, &r, &e);
	if (!api_parsed(x, rc, &e))
		return;
	start(x, &r);
	chat_request_dispose(&r);
}
