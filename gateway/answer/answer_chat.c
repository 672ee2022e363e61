/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat completions, as OpenAI's API has them: chat.completion.chunk events, or one chat.completion.
 */
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/answer/answer.h"

static int begin(struct answer *a, struct sl_buf *out)
{
	int rc = sse_init(&a->out.sse, &sse_chat_shape, a->id, a->model, a->created, a->out.include_usage,
			  a->out.obfuscate, &a->app->sse_last);
	for (unsigned i = 0; rc == 0 && i < answer_n_choices(a); i++)
		rc = sse_role(&a->out.sse, out, i);
	return rc;
}

static int logprobs_of(const struct answer_choice *c, struct sl_buf *out)
{
	int rc = buf_append_str(out, "{\"content\":[");
	if (rc == 0 && c->logprobs[0].len > 0)
		rc = buf_append(out, buf_data(&c->logprobs[0]), c->logprobs[0].len);
	return rc == 0 ? buf_append_str(out, "],\"refusal\":null}") : rc;
}

static int text(struct answer *a, struct sl_buf *out, unsigned index, const char *at, size_t n)
{
	return answer_chunk_text(a, out, index, at, n, logprobs_of);
}

/* ---- items ---- */

static int put_call_begin(const struct answer *a, const struct answer_item *item, struct sl_buf *out)
{
	int rc = a->split->functions ? buf_append_str(out, "{\"function_call\":{\"name\":")
				     : buf_printf(out,
						  "{\"tool_calls\":[{\"index\":%d,\"id\":\"%s\",\"type\":\"function\","
						  "\"function\":{\"name\":",
						  item->call, item->id);
	if (rc == 0)
		rc = json_out_string(out, item->name, strlen(item->name));
	return rc == 0 ? buf_append_str(out, a->split->functions ? ",\"arguments\":\"\"}}" : ",\"arguments\":\"\"}}]}")
		       : rc;
}

static int put_call_text(const struct answer *a, const struct answer_item *item, const char *text, size_t n,
			 struct sl_buf *out)
{
	int rc = a->split->functions
		     ? buf_append_str(out, "{\"function_call\":{\"arguments\":")
		     : buf_printf(out, "{\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", item->call);
	if (rc == 0)
		rc = json_out_string(out, text, n);
	return rc == 0 ? buf_append_str(out, a->split->functions ? "}}" : "}}]}") : rc;
}

/* Clients know reasoning by either name. */
static int put_reasoning(const char *text, size_t n, struct sl_buf *out)
{
	int rc = buf_append_str(out, "{\"reasoning_content\":");
	if (rc == 0)
		rc = json_out_string(out, text, n);
	if (rc == 0)
		rc = buf_append_str(out, ",\"reasoning\":");
	if (rc == 0)
		rc = json_out_string(out, text, n);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int item(struct answer *a, struct sl_buf *out, unsigned index, const struct answer_item *item,
		enum answer_item_event e, const char *at, size_t n)
{
	struct sl_buf *delta = &a->app->list;
	if (item->kind == ANSWER_CONTENT)
		return e == ANSWER_ITEM_TEXT ? text(a, out, index, at, n) : 0;
	if (e == ANSWER_ITEM_CLOSE || (e == ANSWER_ITEM_OPEN && item->kind == ANSWER_REASONING))
		return 0;
	/* There is room for one function_call. */
	if (item->kind == ANSWER_CALL && a->split->functions && item->call > 0)
		return 0;
	buf_clear(delta, SIZE_MAX);
	int rc = item->kind == ANSWER_REASONING ? put_reasoning(at, n, delta)
		 : e == ANSWER_ITEM_OPEN        ? put_call_begin(a, item, delta)
						: put_call_text(a, item, at, n, delta);
	return rc == 0 ? sse_delta(&a->out.sse, out, index, delta) : rc;
}

/* ---- the whole ---- */

static int put_call(const struct answer_item *item, bool functions, struct sl_buf *out)
{
	int rc = functions ? 0
			   : buf_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":",
					item->call > 0 ? "," : "", item->id);
	if (rc == 0)
		rc = buf_append_str(out, "{\"name\":");
	if (rc == 0)
		rc = json_out_string(out, item->name, strlen(item->name));
	if (rc == 0)
		rc = buf_append_str(out, ",\"arguments\":");
	if (rc == 0)
		rc = json_out_string(out, (const char *)buf_data(&item->text), item->text.len);
	return rc == 0 ? buf_append_str(out, functions ? "}" : "}}") : rc;
}

static int put_calls(const struct answer *a, const struct answer_parts *p, struct sl_buf *out)
{
	bool functions = a->split->functions;
	if (answer_parts_calls(p) == 0)
		return 0;
	int rc = buf_append_str(out, functions ? ",\"function_call\":" : ",\"tool_calls\":[");
	for (size_t i = 0; rc == 0 && i < p->n_items; i++)
		if (p->items[i].kind == ANSWER_CALL && (!functions || p->items[i].call == 0))
			rc = put_call(&p->items[i], functions, out);
	return rc == 0 && !functions ? buf_append_str(out, "]") : rc;
}

static int put_text_of(const struct answer *a, const struct answer_parts *p, enum answer_item_kind kind,
		       struct sl_buf *out)
{
	struct sl_buf *all = &a->app->list;
	buf_clear(all, SIZE_MAX);
	int rc = answer_parts_text(p, kind, all);
	return rc == 0 ? json_out_string(out, all->len > 0 ? (const char *)buf_data(all) : "", all->len) : rc;
}

static bool has(const struct answer_parts *p, enum answer_item_kind kind)
{
	for (size_t i = 0; p != NULL && i < p->n_items; i++)
		if (p->items[i].kind == kind && p->items[i].text.len > 0)
			return true;
	return false;
}

/* Content, reasoning and calls of a message. */
static int put_message(struct answer *a, const struct answer_choice *c, struct sl_buf *out)
{
	const struct answer_parts *p = c->parts;
	if (a->split == NULL)
		return json_out_string(out, c->text.len > 0 ? (const char *)buf_data(&c->text) : "", c->text.len);
	int rc = answer_parts_calls(p) > 0 && !has(p, ANSWER_CONTENT) ? buf_append_str(out, "null")
								      : put_text_of(a, p, ANSWER_CONTENT, out);
	for (int i = 0; rc == 0 && i < 2 && has(p, ANSWER_REASONING); i++) {
		rc = buf_append_str(out, i == 0 ? ",\"reasoning_content\":" : ",\"reasoning\":");
		if (rc == 0)
			rc = put_text_of(a, p, ANSWER_REASONING, out);
	}
	return rc == 0 ? put_calls(a, p, out) : rc;
}

static int put_choice(struct answer *a, struct sl_buf *out, unsigned index)
{
	const struct answer_choice *c = &a->choices[index];
	int rc = buf_append_str(out, index > 0 ? ",{\"index\":" : "{\"index\":");
	if (rc == 0)
		rc = buf_append_uint(out, index);
	if (rc == 0)
		rc = buf_append_str(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
	if (rc == 0)
		rc = put_message(a, c, out);
	if (rc == 0)
		rc = buf_append_str(out, ",\"refusal\":null},\"logprobs\":");
	if (rc == 0)
		rc = a->out.wants_logprobs ? logprobs_of(c, out) : buf_append_str(out, "null");
	if (rc == 0)
		rc = buf_append_str(out, ",\"finish_reason\":\"");
	if (rc == 0)
		rc = buf_append_str(out, c->reason);
	if (rc == 0)
		rc = buf_append_str(out, "\"");
	if (rc == 0)
		rc = answer_put_extras(a, c, true, out);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int whole(struct answer *a, struct sl_buf *out)
{
	return answer_chunk_whole(a, out, "chat.completion", put_choice);
}

static int logprob(struct answer *a, struct answer_choice *c, const struct gen_token *t)
{
	return answer_put_logprob(a, &c->logprobs[0], t);
}

const struct answer_format answer_chat = {
    .id_prefix = "chatcmpl-",
    .prompt_param = "messages",
    .begin = begin,
    .text = text,
    .item = item,
    .close = answer_chunk_close,
    .end = answer_chunk_end,
    .error = answer_chunk_error,
    .whole = whole,
    .logprob = logprob,
};
