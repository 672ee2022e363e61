/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API.
 */
#include "base/alloc.h"
#include "gateway/api/api_chat.h"
#include "gateway/api/api_count.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/dialect/dialect.h"
#include "gateway/dialect/messages_request.h"

static void dispose(void *r) { chat_request_dispose(r); }

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return messages_request_parse(bytes, n, l, out, e);
}

static void on_read(struct exchange *x, void *r)
{
	void *own = answer_messages_create();
	if (own == NULL)
		exchange_reply_no_memory(x);
	else
		api_chat_answer(x, r, &answer_messages, own);
}

void api_messages(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct chat_request), parse, dispose};
	body_read(x, &parser, on_read);
}

/* ---- counting ---- */

static void on_close(struct exchange *x)
{
	struct api_count *c = x->state;
	api_count_cancel(c);
	sl_free(c);
}

static void on_counted(struct api_count *c, const struct proto_counted *m)
{
	exchange_reply_json(c->x, json_pack("{s:I}", "input_tokens", (json_int_t)m->n_tokens));
}

static void on_read_to_count(struct exchange *x, void *read)
{
	const struct chat_request *r = read;
	int model = answer_choose_model(x, r->c.model, r->c.user);
	struct api_count *c = model >= 0 ? exchange_own(x, sizeof *c, on_close) : NULL;
	if (c == NULL)
		return;
	api_report(x, &r->c);
	api_count_start(c, x, model, PROTO_PROMPT_CHAT, 0, r->c.submit.prompt, "messages", on_counted);
}

static int parse_to_count(const void *bytes, size_t n, const struct request_limits *l, void *out,
			  struct request_error *e)
{
	return messages_count_parse(bytes, n, l, out, e);
}

void api_messages_count(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct chat_request), parse_to_count, dispose};
	body_read(x, &parser, on_read_to_count);
}
