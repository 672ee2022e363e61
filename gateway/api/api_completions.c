/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/completions: one prompt or a list of them, as text or as tokens.
 */
#include "base/alloc.h"
#include "gateway/api/api_form.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/request/completion_request.h"
#include "gateway/api/handlers.h"

/* The texts that each choice begins with. NULL: no memory. */
static struct answer_echo *make_echo(const struct completion_request *r)
{
	struct answer_echo *echo = sl_zalloc(sizeof *echo);
	if (echo == NULL)
		return NULL;
	echo->prompts = sl_zalloc_n((size_t)r->n_prompts, sizeof *echo->prompts);
	int rc = echo->prompts == NULL ? SL_ENOMEM : 0;
	for (; rc == 0 && echo->n_prompts < r->n_prompts; echo->n_prompts++) {
		struct sl_buf *text = &echo->prompts[echo->n_prompts];
		struct proto_str from = r->prompts[echo->n_prompts].text;
		buf_init(text, from.n);
		rc = buf_append(text, from.at, from.n);
	}
	if (rc == 0)
		return echo;
	answer_completion.dispose(echo);
	return NULL;
}

static void start(struct exchange *x, struct completion_request *r)
{
	struct answer_prompt prompts[ANSWER_MAX_RUNS];
	int model = api_choose_model(x, &r->c);
	if (model < 0 || !api_model_fits(x, &r->c, model))
		return;
	api_report(x, &r->c);
	struct answer_spec spec = api_spec(x, &r->c, &answer_completion, model);
	if (!api_form(x, &r->c, model, &spec))
		return;
	if (r->echo && (spec.own = make_echo(r)) == NULL) {
		exchange_reply_no_memory(x);
		return;
	}
	for (int i = 0; i < r->n_prompts; i++)
		prompts[i] = (struct answer_prompt){r->prompts[i].kind, r->prompts[i].text};
	spec.logged = spec.ids = spec.stream && api_wants_ids(x);
	spec.prompts = prompts;
	spec.n_prompts = r->n_prompts;
	answer_start(x, &spec);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return completion_request_parse(bytes, n, l, out, e);
}

static void dispose(void *r) { completion_request_dispose(r); }
static void on_read(struct exchange *x, void *r) { start(x, r); }

void api_completions(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct completion_request), parse, dispose};
	body_read(x, &parser, on_read);
}
