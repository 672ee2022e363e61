/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/chat/completions, and the way that a chat takes whatever API it came by.
 */
#include "gateway/api/api_chat.h"

#include <string.h>

#include "base/alloc.h"
#include "gateway/api/api_form.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/api/body_reader.h"
#include "gateway/request/chat_request.h"
#include "gateway/compress/compress_run.h"
#include "gateway/api/handlers.h"

struct api_chat {
	const struct answer_format *format;
	void *own; /* the format's */
	int model; /* as answer_choose_model has it */
};

/* Digests by which a newer prompt of the same conversation is recognised, where the tier guesses that.
 * at: room for one digest per message. False: no memory, or no messages. */
static bool describe(const struct exchange *x, const struct chat_request *r, struct message_digest *at,
		     struct supersede_messages *out)
{
	const json_t *messages = request_get(r->body.root, "messages");
	struct sl_buf text;
	int rc = 0;
	*out = (struct supersede_messages){.n = json_array_size(messages), .at = at};
	buf_init(&text, REQUEST_MAX_PROMPT);
	for (size_t i = 0; rc == 0 && i < out->n; i++) {
		const json_t *m = json_array_get(messages, i), *role = json_object_get(m, "role"),
			     *content = json_object_get(m, "content");
		buf_clear(&text, SIZE_MAX);
		rc = request_put_json(&text, m);
		supersede_digest(x->app->inflight, i > 0 ? &at[i - 1] : NULL, buf_data(&text), text.len, &at[i]);
		if (i + 1 < out->n && json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0)
			out->answered = true;
		if (i + 1 == out->n && json_is_string(content)) {
			out->last = json_string_value(content);
			out->n_last = json_string_length(content);
		}
	}
	buf_dispose(&text);
	return rc == 0 && out->n > 0;
}

static void dispose_own(const struct answer_format *format, void *own)
{
	if (format->dispose != NULL)
		format->dispose(own);
}

/* members: as in answer_spec. own is taken. */
static void start(struct exchange *x, struct chat_request *r, const struct api_chat *how, struct proto_str text,
		  const char *members)
{
	struct supersede_messages messages;
	struct message_digest *digests = NULL;
	const struct answer_prompt prompt = {r->c.submit.prompt_kind, text};
	struct answer_spec spec = api_spec(x, &r->c, how->format, how->model);
	spec.own = how->own;
	spec.members = members;
	spec.logged = spec.ids = spec.stream && how->format == &answer_chat && api_wants_ids(x);
	spec.prompts = &prompt;
	spec.n_prompts = 1;
	size_t n_messages = json_array_size(request_get(r->body.root, "messages"));
	if (!api_form(x, &r->c, how->model, &spec)) {
		dispose_own(how->format, how->own);
		return;
	}
	if (x->key->tier->supersede == GW_SUPERSEDE_ANY && spec.user != NULL && n_messages > 0)
		digests = sl_zalloc_n(n_messages, sizeof *digests);
	if (digests != NULL && describe(x, r, digests, &messages))
		spec.messages = &messages;
	api_report(x, &r->c);
	answer_start(x, &spec);
	sl_free(digests);
}

/* A request while its conversation is compressed: the exchange's state. */
struct chat_call {
	struct exchange *x;
	struct chat_request request;
	struct api_chat how; /* own is the call's until it starts */
	struct compress_run *run;
};

static void call_free(struct chat_call *c)
{
	compress_free(c->run);
	dispose_own(c->how.format, c->how.own);
	chat_request_dispose(&c->request);
	sl_free(c);
}

static void on_close(struct exchange *x) { call_free(x->state); }

static void on_compressed(void *ctx, struct proto_str prompt, const char *members)
{
	struct chat_call *c = ctx;
	const struct api_chat how = c->how;
	c->how.own = NULL;
	exchange_disown(c->x);
	start(c->x, &c->request, &how, prompt, members);
	call_free(c);
}

/* True: r and own are taken, and on_compressed continues. */
static bool compress(struct exchange *x, struct chat_request *r, const struct api_chat *how)
{
	if (r->c.submit.prompt_kind != PROTO_PROMPT_CHAT)
		return false;
	const struct compress_ask ask = {.model = answer_longest_model(x, how->model),
					 .prompt = r->c.submit.prompt,
					 .max_tokens = r->c.has_max_tokens ? r->c.max_tokens : 0};
	struct chat_call *c = compress_may_apply(x, &ask) ? sl_zalloc(sizeof *c) : NULL;
	if (c == NULL)
		return false;
	*c = (struct chat_call){.x = x, .request = *r, .how = *how};
	if (compress_start(x, &ask, on_compressed, c, &c->run) != 0) {
		sl_free(c);
		return false;
	}
	*r = (struct chat_request){0};
	x->state = c;
	x->on_close = on_close;
	return true;
}

void api_chat_answer(struct exchange *x, struct chat_request *r, const struct answer_format *format, void *own)
{
	const struct api_chat how = {.format = format, .own = own, .model = api_choose_model(x, &r->c)};
	if (how.model < 0 || !api_model_fits(x, &r->c, how.model))
		dispose_own(format, own);
	else if (!compress(x, r, &how))
		start(x, r, &how, r->c.submit.prompt, NULL);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return chat_request_parse(bytes, n, l, out, e);
}

static void dispose(void *r) { chat_request_dispose(r); }
static void on_read(struct exchange *x, void *r) { api_chat_answer(x, r, &answer_chat, NULL); }

void api_chat(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct chat_request), parse, dispose};
	body_read(x, &parser, on_read);
}
