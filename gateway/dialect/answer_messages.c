/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in the form of Anthropic's Messages API: one message of content blocks, whole or as events.
 *
 *   message_start, (content_block_start, content_block_delta …, content_block_stop) …, message_delta, message_stop
 *
 * A text block begins with its first text, since clients expect no empty ones; a call begins with its name. As the API
 * defines it, input_tokens excludes cached tokens. Thinking blocks have no signature; requests may contain any.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "gateway/dialect/dialect.h"

struct messages {
	bool open;           /* a block is */
	unsigned n_complete; /* blocks before it */
};

void *answer_messages_create(void) { return sl_zalloc(sizeof(struct messages)); }

static void dispose(void *own) { sl_free(own); }

/* ---- shared by both ways ---- */

static int put_usage(const struct answer *a, struct sl_buf *out)
{
	const struct sse_usage u = answer_usage(a);
	return buf_printf(out,
			  "{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%u,"
			  "\"output_tokens\":%u}",
			  u.n_prompt > u.n_cached ? u.n_prompt - u.n_cached : 0, u.n_cached, u.n_completion);
}

/* "stop_reason":…,"stop_sequence":… */
static int put_stop(const struct answer *a, struct sl_buf *out)
{
	const struct answer_choice *c = &a->choices[0];
	struct proto_str stop;
	const char *reason = c->reason == NULL                      ? "end_turn"
			     : strcmp(c->reason, "tool_calls") == 0 ? "tool_use"
			     : strcmp(c->reason, "length") == 0     ? "max_tokens"
								    : "end_turn";
	if (!answer_stop_string(a, c, &stop))
		return buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":null", reason);
	int rc = buf_append_str(out, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":");
	return rc == 0 ? json_out_string(out, stop.at, stop.n) : rc;
}

/* {"id":…, up to its content. */
static int put_head(const struct answer *a, struct sl_buf *out)
{
	int rc = buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
	if (rc == 0)
		rc = json_out_string(out, a->model, strlen(a->model));
	return rc == 0 ? buf_append_str(out, ",\"content\":[") : rc;
}

/* ---- streamed ---- */

static int begin_event(struct sl_buf *out, const char *type)
{
	return buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static int end_event(struct sl_buf *out, int rc) { return rc == 0 ? buf_append_str(out, "}\n\n") : rc; }

static int begin(struct answer *a, struct sl_buf *out)
{
	int rc = begin_event(out, "message_start");
	if (rc == 0)
		rc = buf_append_str(out, ",\"message\":");
	if (rc == 0)
		rc = put_head(a, out);
	if (rc == 0)
		rc = buf_append_str(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
	if (rc == 0)
		rc = put_usage(a, out);
	return end_event(out, rc == 0 ? buf_append_str(out, "}") : rc);
}

static int close_block(struct answer *a, struct sl_buf *out)
{
	struct messages *m = a->own;
	if (!m->open)
		return 0;
	m->open = false;
	int rc = begin_event(out, "content_block_stop");
	if (rc == 0)
		rc = buf_printf(out, ",\"index\":%u", m->n_complete++);
	return end_event(out, rc);
}

/* item: a call, or NULL. */
static int open_block(struct answer *a, struct sl_buf *out, const char *block, const struct answer_item *item)
{
	struct messages *m = a->own;
	int rc = close_block(a, out);
	if (rc == 0)
		rc = begin_event(out, "content_block_start");
	if (rc == 0)
		rc = buf_printf(out, ",\"index\":%u,\"content_block\":%s", m->n_complete, block);
	if (rc == 0 && item != NULL) {
		rc = buf_printf(out, "\"%s\",\"name\":", item->id);
		if (rc == 0)
			rc = json_out_string(out, item->name, strlen(item->name));
		if (rc == 0)
			rc = buf_append_str(out, ",\"input\":{}}");
	}
	m->open = true;
	return end_event(out, rc);
}

/* delta: up to its text. */
static int put_delta(struct answer *a, struct sl_buf *out, const char *delta, const char *text, size_t n)
{
	const struct messages *m = a->own;
	int rc = begin_event(out, "content_block_delta");
	if (rc == 0)
		rc = buf_printf(out, ",\"index\":%u,\"delta\":%s", m->n_complete, delta);
	if (rc == 0)
		rc = json_out_string(out, text, n);
	return end_event(out, rc == 0 ? buf_append_str(out, "}") : rc);
}

static const char text_block[] = "{\"type\":\"text\",\"text\":\"\"}";
static const char thinking_block[] = "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}";
static const char call_block[] = "{\"type\":\"tool_use\",\"id\":";
static const char text_delta[] = "{\"type\":\"text_delta\",\"text\":";
static const char thinking_delta[] = "{\"type\":\"thinking_delta\",\"thinking\":";
static const char call_delta[] = "{\"type\":\"input_json_delta\",\"partial_json\":";

static int text(struct answer *a, struct sl_buf *out, unsigned index, const char *at, size_t n)
{
	const struct messages *m = a->own;
	(void)index;
	if (n == 0)
		return 0;
	int rc = m->open ? 0 : open_block(a, out, text_block, NULL);
	return rc == 0 ? put_delta(a, out, text_delta, at, n) : rc;
}

static int item(struct answer *a, struct sl_buf *out, unsigned index, const struct answer_item *item,
		enum answer_item_event e, const char *at, size_t n)
{
	const struct messages *m = a->own;
	bool is_call = item->kind == ANSWER_CALL, is_thinking = item->kind == ANSWER_REASONING;
	(void)index;
	if (e == ANSWER_ITEM_CLOSE)
		return close_block(a, out);
	if (e == ANSWER_ITEM_OPEN)
		return is_call ? open_block(a, out, call_block, item) : 0;
	if (n == 0)
		return 0;
	int rc = m->open ? 0 : open_block(a, out, is_thinking ? thinking_block : text_block, NULL);
	return rc == 0 ? put_delta(a, out,
				   is_call       ? call_delta
				   : is_thinking ? thinking_delta
						 : text_delta,
				   at, n)
		       : rc;
}

static int close_choice(struct answer *a, struct sl_buf *out, unsigned index, const char *reason)
{
	(void)index, (void)reason;
	return close_block(a, out);
}

static int end(struct answer *a, struct sl_buf *out)
{
	const struct sse_about about = answer_about(a, ANSWER_ALL);
	int rc = begin_event(out, "message_delta");
	if (rc == 0)
		rc = buf_append_str(out, ",\"delta\":{");
	if (rc == 0)
		rc = put_stop(a, out);
	if (rc == 0)
		rc = buf_append_str(out, "},\"usage\":");
	if (rc == 0)
		rc = put_usage(a, out);
	if (rc == 0)
		rc = sse_about_print(out, &about);
	rc = end_event(out, rc);
	return rc == 0 ? end_event(out, begin_event(out, "message_stop")) : rc;
}

static int error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message)
{
	int rc = buf_append_str(out, "event: error\ndata: ");
	if (rc == 0)
		rc = messages_form.print_error(out, a->x, e, message);
	return rc == 0 ? buf_append_str(out, "\n\n") : rc;
}

static int ping(struct answer *a, struct sl_buf *out)
{
	(void)a;
	return end_event(out, begin_event(out, "ping"));
}

/* ---- whole ---- */

static const char *string_of(const struct sl_buf *text) { return text->len > 0 ? (const char *)buf_data(text) : ""; }

static int put_call(const struct answer_item *item, struct sl_buf *out)
{
	int rc = buf_printf(out, "%s\"%s\",\"name\":", call_block, item->id);
	if (rc == 0)
		rc = json_out_string(out, item->name, strlen(item->name));
	if (rc == 0)
		rc = buf_append_str(out, ",\"input\":");
	if (rc == 0)
		rc = dialect_put_arguments(out, &item->text);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int put_text(const struct sl_buf *text, bool is_thinking, struct sl_buf *out)
{
	int rc =
	    buf_append_str(out, is_thinking ? "{\"type\":\"thinking\",\"thinking\":" : "{\"type\":\"text\",\"text\":");
	if (rc == 0)
		rc = json_out_string(out, string_of(text), text->len);
	return rc == 0 ? buf_append_str(out, is_thinking ? ",\"signature\":\"\"}" : "}") : rc;
}

static int put_content(const struct answer *a, struct sl_buf *out)
{
	const struct answer_choice *c = &a->choices[0];
	size_t n = 0;
	int rc = 0;
	if (a->split == NULL)
		return c->text.len > 0 ? put_text(&c->text, false, out) : 0;
	for (size_t i = 0; c->parts != NULL && i < c->parts->n_items && rc == 0; i++) {
		const struct answer_item *it = &c->parts->items[i];
		if (it->kind != ANSWER_CALL && it->text.len == 0)
			continue;
		rc = n++ > 0 ? buf_append_str(out, ",") : 0;
		if (rc == 0)
			rc = it->kind == ANSWER_CALL ? put_call(it, out)
						     : put_text(&it->text, it->kind == ANSWER_REASONING, out);
	}
	return rc;
}

static int whole(struct answer *a, struct sl_buf *out)
{
	const struct sse_about about = answer_about(a, ANSWER_ALL);
	int rc = put_head(a, out);
	if (rc == 0)
		rc = put_content(a, out);
	if (rc == 0)
		rc = buf_append_str(out, "],");
	if (rc == 0)
		rc = put_stop(a, out);
	if (rc == 0)
		rc = buf_append_str(out, ",\"usage\":");
	if (rc == 0)
		rc = put_usage(a, out);
	if (rc == 0)
		rc = sse_about_print(out, &about);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

const struct answer_format answer_messages = {
    .id_prefix = "msg_",
    .prompt_param = "messages",
    .begin = begin,
    .text = text,
    .item = item,
    .close = close_choice,
    .end = end,
    .error = error,
    .ping = ping,
    .whole = whole,
    .dispose = dispose,
};
