/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /tokenize and /detokenize, in vLLM's forms. They generate nothing and are not charged; the engine bounds how
 * many prompts of all tenants it counts at once, and each has as many tokens as the protocol lists at most.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/api/api_count.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/request/tokenize_request.h"

enum { MAX_REPLY = 16 << 20 };

/* ---- counting ---- */

static void refuse(struct api_count *c, const struct proto_counted *m)
{
	static const struct {
		uint8_t error;
		int status;
		const char *code, *param;
	} as[] = {{PROTO_ERR_BAD_REQUEST, 400, "invalid_value", NULL},
		  {PROTO_ERR_BAD_DOCUMENTS, 400, "invalid_value", "documents"},
		  {PROTO_ERR_BAD_KWARGS, 400, "invalid_value", "chat_template_kwargs"},
		  {PROTO_ERR_NO_CHAT, 400, "invalid_value", "model"},
		  {PROTO_ERR_NO_MODEL, 404, "model_not_found", "model"},
		  {PROTO_ERR_NOT_READY, 503, "engine_unavailable", ""},
		  {PROTO_ERR_OVERLOADED, 503, "overloaded", ""}};
	for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
		if (as[i].error != m->error)
			continue;
		const char *code = as[i].code;
		exchange_refuse(c->x, as[i].status, code, as[i].param != NULL ? as[i].param : c->param, "%.*s",
				(int)m->message.n, m->message.at);
		return;
	}
	exchange_refuse(c->x, 500, "engine_error", NULL, "The engine can't count the tokens.");
}

static void on_counted(void *ctx, const struct proto_counted *m)
{
	struct api_count *c = ctx;
	c->id = 0;
	if (m == NULL)
		exchange_refuse(c->x, 503, "engine_unavailable", NULL,
				"The engine stopped unexpectedly. It is being restarted.");
	else if (m->error != 0)
		refuse(c, m);
	else
		c->done(c, m);
}

void api_count_start(struct api_count *c, struct exchange *x, int model, uint8_t kind, uint8_t wants,
		     struct proto_str prompt, const char *param,
		     void (*done)(struct api_count *c, const struct proto_counted *m))
{
	const struct proto_count req = {.model = (uint16_t)answer_longest_model(x, model),
					.prompt_kind = kind,
					.priority = (uint8_t)x->key->tier->priority,
					.wants = wants,
					.tenant = x->key->tenant,
					.prompt = prompt};
	*c = (struct api_count){.x = x, .param = param, .done = done};
	if (engine_link_count(x->app->link, &req, on_counted, c, &c->id) != 0)
		exchange_refuse(x, 503, "engine_unavailable", NULL,
				"The engine is not there at the moment. It is being restarted.");
}

void api_count_cancel(struct api_count *c)
{
	if (c->id != 0)
		engine_link_uncount(c->x->app->link, c->id);
	c->id = 0;
}

/* ---- the two routes ---- */

struct call {
	struct api_count count;
	uint32_t n_ctx;
};

static void on_close(struct exchange *x)
{
	struct call *c = x->state;
	api_count_cancel(&c->count);
	sl_free(c);
}

static int put_ids(struct sl_buf *out, struct proto_str ids)
{
	int rc = 0;
	for (size_t i = 0; i + 4 <= ids.n && rc == 0; i += 4) {
		const uint8_t *at = (const uint8_t *)ids.at + i;
		uint32_t id = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
		rc = i > 0 ? buf_append_str(out, ",") : 0;
		if (rc == 0)
			rc = buf_append_uint(out, id);
	}
	return rc;
}

static void on_tokens(struct api_count *count, const struct proto_counted *m)
{
	const struct call *c = (const struct call *)(void *)count;
	struct sl_buf out;
	buf_init(&out, MAX_REPLY);
	int rc = buf_printf(&out, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", m->n_tokens, c->n_ctx);
	if (rc == 0)
		rc = put_ids(&out, m->ids);
	if (rc == 0)
		rc = buf_append_str(&out, "],\"token_strs\":null}");
	exchange_reply_text(count->x, &out, rc);
}

static void on_text(struct api_count *count, const struct proto_counted *m)
{
	struct sl_buf out;
	buf_init(&out, MAX_REPLY);
	int rc = buf_append_str(&out, "{\"prompt\":");
	if (rc == 0)
		rc = json_out_string(&out, m->text.at, m->text.n);
	if (rc == 0)
		rc = buf_append_str(&out, "}");
	exchange_reply_text(count->x, &out, rc);
}

static void on_read(struct exchange *x, void *read)
{
	const struct tokenize_request *r = read;
	int model = answer_choose_model(x, r->model, NULL);
	struct call *c = model >= 0 ? exchange_own(x, sizeof *c, on_close) : NULL;
	if (c == NULL)
		return;
	if (r->is_chat)
		api_report(x, &r->chat.c);
	c->n_ctx = engine_link_model(x->app->link, answer_longest_model(x, model))->n_ctx;
	api_count_start(&c->count, x, model, r->kind, r->wants, r->prompt, r->param,
			(r->wants & PROTO_COUNT_TEXT) != 0 ? on_text : on_tokens);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return tokenize_request_parse(bytes, n, l, out, e);
}

static int parse_tokens(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return detokenize_request_parse(bytes, n, l, out, e);
}

static void dispose(void *r) { tokenize_request_dispose(r); }

void api_tokenize(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct tokenize_request), parse, dispose};
	body_read(x, &parser, on_read);
}

void api_detokenize(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct tokenize_request), parse_tokens, dispose};
	body_read(x, &parser, on_read);
}
