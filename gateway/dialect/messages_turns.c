/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes to the template what it can use of each block: text, the assistant's reasoning and tool calls, and the results
 * of calls. A result becomes a separate message before the user's text that follows it. Consecutive messages of one
 * role form one turn, as in the API; its documents come before its text (request_files.h). Hints (cache_control,
 * citations) have no effect; blocks that cannot be shown to the model are refused by name.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/dialect/messages_request.h"
#include "gateway/request/request_files.h"

enum { MAX_BLOCKS = 1 << 16 };

struct writer {
	struct turns t;
	struct request_error *e;
	const json_t *messages;
	size_t i;      /* of the message */
	size_t blocks; /* in all messages */
	bool called;   /* the last turn has calls */
	bool begins;   /* the message has had no text yet */
	char param[96];
};

/* "messages[i].NAME" */
static const char *at(struct writer *w, const char *name)
{
	snprintf(w->param, sizeof w->param, "messages[%zu]%s%s", w->i, name[0] != '\0' ? "." : "", name);
	return w->param;
}

/* "messages[i].content[k]TAIL" */
static const char *at_block(struct writer *w, size_t k, const char *tail)
{
	char name[64];
	snprintf(name, sizeof name, "content[%zu]%s", k, tail);
	return at(w, name);
}

/* A string of a block; *out borrowed. */
static int get_string(struct writer *w, const json_t *block, size_t k, const char *key, const json_t **out)
{
	char tail[32];
	*out = request_get(block, key);
	snprintf(tail, sizeof tail, ".%s", key);
	if (*out == NULL)
		return request_missing(w->e, at_block(w, k, tail));
	if (!json_is_string(*out))
		return request_wrong_type(w->e, at_block(w, k, tail), "a string", *out);
	return request_text_fits(*out) ? 0 : request_check_text(*out, at_block(w, k, tail), w->e);
}

/* ---- blocks ---- */

/* Messages of one role form one turn; their texts are separated. */
static int add_text(struct writer *w, const json_t *text)
{
	int rc = w->begins && w->t.text.len > 0 ? turns_text(&w->t, "\n", 1) : 0;
	w->begins = false;
	return rc == 0 ? turns_text(&w->t, json_string_value(text), json_string_length(text)) : rc;
}

static int put_text(struct writer *w, const json_t *block, size_t k)
{
	const json_t *text;
	int rc = get_string(w, block, k, "text", &text);
	return rc != 0 ? rc : add_text(w, text);
}

static int put_thinking(struct writer *w, const json_t *block, size_t k)
{
	const json_t *text;
	int rc = get_string(w, block, k, "thinking", &text);
	return rc != 0 ? rc : turns_reasoning(&w->t, json_string_value(text), json_string_length(text));
}

static int put_call(struct writer *w, const json_t *block, size_t k)
{
	const json_t *id, *name, *input = request_get(block, "input");
	int rc;
	if ((rc = get_string(w, block, k, "id", &id)) != 0 || (rc = get_string(w, block, k, "name", &name)) != 0)
		return rc;
	if (input == NULL)
		return request_missing(w->e, at_block(w, k, ".input"));
	if (!json_is_object(input))
		return request_wrong_type(w->e, at_block(w, k, ".input"), "an object", input);
	w->called = true;
	return turns_call(&w->t, json_string_value(id), json_string_value(name), input);
}

/* The text of one block of a result. */
static int gather_part(struct writer *w, const json_t *part, size_t k, size_t m, struct sl_buf *out)
{
	char tail[48];
	const json_t *type = request_get(part, "type"), *text = request_get(part, "text");
	snprintf(tail, sizeof tail, ".content[%zu].type", m);
	if (!json_is_string(type))
		return request_bad(w->e, "invalid_type", at_block(w, k, tail), "'%s' must be a string.",
				   at_block(w, k, tail));
	if (strcmp(json_string_value(type), "text") != 0)
		return request_bad(w->e, "unsupported_value", at_block(w, k, tail),
				   "Unsupported value: '%s' is '%.*s', and only 'text' is supported by this version.",
				   at_block(w, k, tail), request_quoted(type), json_string_value(type));
	snprintf(tail, sizeof tail, ".content[%zu].text", m);
	if (!json_is_string(text))
		return request_bad(w->e, "invalid_type", at_block(w, k, tail), "'%s' must be a string.",
				   at_block(w, k, tail));
	int rc = request_text_fits(text) ? 0 : request_check_text(text, at_block(w, k, tail), w->e);
	return rc == 0 ? buf_append(out, json_string_value(text), json_string_length(text)) : rc;
}

static int gather_result(struct writer *w, const json_t *content, size_t k, struct sl_buf *out)
{
	int rc = 0;
	if (content == NULL)
		return 0;
	if (json_is_string(content)) {
		rc = request_text_fits(content) ? 0 : request_check_text(content, at_block(w, k, ".content"), w->e);
		return rc == 0 ? buf_append(out, json_string_value(content), json_string_length(content)) : rc;
	}
	if (!json_is_array(content))
		return request_wrong_type(w->e, at_block(w, k, ".content"), "a string or an array of blocks", content);
	w->blocks += json_array_size(content);
	for (size_t m = 0; m < json_array_size(content) && rc == 0; m++)
		rc = gather_part(w, json_array_get(content, m), k, m, out);
	return rc;
}

/* The name of the tool of a call, looked up in the preceding assistant message. NULL: there is none. */
static const char *name_of_call(const struct writer *w, const char *id)
{
	const json_t *before = w->i > 0 ? json_array_get(w->messages, w->i - 1) : NULL;
	const json_t *blocks = request_get(before, "content");
	for (size_t k = 0; k < json_array_size(blocks); k++) {
		const json_t *block = json_array_get(blocks, k);
		const char *own = json_string_value(request_get(block, "id"));
		if (own != NULL && strcmp(own, id) == 0)
			return json_string_value(request_get(block, "name"));
	}
	return NULL;
}

static int put_result(struct writer *w, const json_t *block, size_t k)
{
	struct sl_buf text;
	const json_t *id, *failed = request_get(block, "is_error");
	int rc = get_string(w, block, k, "tool_use_id", &id);
	if (rc != 0)
		return rc;
	if (failed != NULL && !json_is_boolean(failed))
		return request_wrong_type(w->e, at_block(w, k, ".is_error"), "a boolean", failed);
	buf_init(&text, REQUEST_MAX_PROMPT);
	rc = gather_result(w, request_get(block, "content"), k, &text);
	if (rc == 0)
		rc = turns_result(&w->t, json_string_value(id), name_of_call(w, json_string_value(id)),
				  json_is_true(failed) ? "Error: " : "",
				  text.len > 0 ? (const char *)buf_data(&text) : "", text.len);
	buf_dispose(&text);
	return rc;
}

/* ---- documents ---- */

/* {"type":"text","media_type","data"}: the text itself. title: NULL: none. */
static int put_inline(struct writer *w, const json_t *source, const char *title, size_t k)
{
	const json_t *type = request_get(source, "media_type"), *data = request_get(source, "data");
	int rc;
	if (type != NULL && !json_is_string(type))
		return request_wrong_type(w->e, at_block(w, k, ".source.media_type"), "a string", type);
	if (type != NULL && (rc = request_file_check_type(json_string_value(type), json_string_length(type),
							  at_block(w, k, ".source.media_type"), w->e)) != 0)
		return rc;
	if (data == NULL)
		return request_missing(w->e, at_block(w, k, ".source.data"));
	if (!json_is_string(data))
		return request_wrong_type(w->e, at_block(w, k, ".source.data"), "a string", data);
	rc = request_file_check_text(json_string_value(data), json_string_length(data), at_block(w, k, ".source.data"),
				     w->e);
	return rc == 0 ? turns_file(&w->t, title != NULL ? title : "file", json_string_value(data),
				    json_string_length(data))
		       : rc;
}

static int put_named(struct writer *w, const json_t *source, const char *title, size_t k)
{
	const struct request_file *f;
	int rc = request_file_named(w->t.l->files, request_get(source, "file_id"), at_block(w, k, ".source.file_id"),
				    &f, w->e);
	if (rc != 0 || f->text == NULL)
		return rc;
	return turns_file(&w->t, title != NULL ? title : f->name, f->text, f->n);
}

static int put_document(struct writer *w, const json_t *block, size_t k)
{
	const json_t *source = request_get(block, "source"), *type = request_get(source, "type"),
		     *title = request_get(block, "title");
	int rc;
	if (source == NULL)
		return request_missing(w->e, at_block(w, k, ".source"));
	if (!json_is_object(source))
		return request_wrong_type(w->e, at_block(w, k, ".source"), "an object", source);
	if (!json_is_string(type))
		return request_bad(w->e, "invalid_type", at_block(w, k, ".source.type"), "'%s' must be a string.",
				   at_block(w, k, ".source.type"));
	if (title != NULL && !json_is_string(title))
		return request_wrong_type(w->e, at_block(w, k, ".title"), "a string", title);
	if (title != NULL && (rc = request_file_check_name(json_string_value(title), json_string_length(title),
							   at_block(w, k, ".title"), w->e)) != 0)
		return rc;
	const char *name = json_string_value(title);
	if (strcmp(json_string_value(type), "file") == 0)
		return put_named(w, source, name, k);
	if (strcmp(json_string_value(type), "text") == 0)
		return put_inline(w, source, name, k);
	return request_bad(
	    w->e, "unsupported_value", at_block(w, k, ".source.type"),
	    "Unsupported value: '%s' is '%.*s', and only 'text' and 'file' are supported by this version.",
	    at_block(w, k, ".source.type"), request_quoted(type), json_string_value(type));
}

static const struct {
	const char *type;
	enum turn_role only; /* TURN_NONE: both */
	int (*put)(struct writer *w, const json_t *block, size_t k);
} kinds[] = {{"text", TURN_NONE, put_text},
	     {"document", TURN_USER, put_document},
	     {"thinking", TURN_ASSISTANT, put_thinking},
	     {"tool_use", TURN_ASSISTANT, put_call},
	     {"tool_result", TURN_USER, put_result}};

static int put_block(struct writer *w, const json_t *block, size_t k, enum turn_role role)
{
	const json_t *type = request_get(block, "type");
	if (!json_is_object(block))
		return request_wrong_type(w->e, at_block(w, k, ""), "an object", block);
	if (type == NULL)
		return request_missing(w->e, at_block(w, k, ".type"));
	if (!json_is_string(type))
		return request_wrong_type(w->e, at_block(w, k, ".type"), "a string", type);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(kinds[i].type, json_string_value(type)) != 0)
			continue;
		if (kinds[i].only != TURN_NONE && kinds[i].only != role)
			return request_bad(w->e, "invalid_value", at_block(w, k, ".type"),
					   "Invalid value for '%s': a message of the %s has no '%s'.",
					   at_block(w, k, ".type"), role == TURN_USER ? "user" : "assistant",
					   kinds[i].type);
		int rc = kinds[i].put == put_result ? 0 : turns_open(&w->t, role);
		return rc == 0 ? kinds[i].put(w, block, k) : rc;
	}
	return request_bad(w->e, "unsupported_value", at_block(w, k, ".type"),
			   "Unsupported value: '%s' is '%.*s', which is not supported by this version.",
			   at_block(w, k, ".type"), request_quoted(type), json_string_value(type));
}

/* ---- messages ---- */

static int get_role(struct writer *w, const json_t *m, enum turn_role *out)
{
	const json_t *v = request_get(m, "role");
	const char *param = at(w, "role");
	if (v == NULL)
		return request_missing(w->e, param);
	if (!json_is_string(v))
		return request_wrong_type(w->e, param, "a string", v);
	*out = strcmp(json_string_value(v), "assistant") == 0 ? TURN_ASSISTANT : TURN_USER;
	if (*out == TURN_ASSISTANT || strcmp(json_string_value(v), "user") == 0)
		return 0;
	return request_bad(w->e, "invalid_value", param,
			   "Invalid value for '%s': '%.*s'. Supported values are: user assistant.", param,
			   request_quoted(v), json_string_value(v));
}

static int put_blocks(struct writer *w, const json_t *blocks, enum turn_role role)
{
	int rc = 0;
	if (json_array_size(blocks) == 0)
		return request_bad(w->e, "invalid_value", at(w, "content"), "Invalid value for '%s': it has no blocks.",
				   at(w, "content"));
	w->blocks += json_array_size(blocks);
	for (size_t k = 0; k < json_array_size(blocks) && rc == 0 && w->blocks <= MAX_BLOCKS; k++)
		rc = put_block(w, json_array_get(blocks, k), k, role);
	if (w->blocks > MAX_BLOCKS)
		return request_bad(w->e, "array_above_max_length", at(w, "content"),
				   "Invalid '%s': a request has at most %d blocks.", at(w, "content"), MAX_BLOCKS);
	return rc;
}

static int put_message(struct writer *w, const json_t *m)
{
	enum turn_role role = TURN_USER;
	const json_t *content = request_get(m, "content");
	int rc;
	if (!json_is_object(m))
		return request_wrong_type(w->e, at(w, ""), "an object", m);
	if ((rc = get_role(w, m, &role)) != 0)
		return rc;
	if (content == NULL)
		return request_missing(w->e, at(w, "content"));
	w->begins = true;
	w->called = w->called && w->t.open == role;
	if (json_is_array(content))
		return put_blocks(w, content, role);
	if (!json_is_string(content))
		return request_wrong_type(w->e, at(w, "content"), "a string or an array of blocks", content);
	rc = request_text_fits(content) ? turns_open(&w->t, role) : request_check_text(content, at(w, "content"), w->e);
	return rc == 0 ? add_text(w, content) : rc;
}

/* ---- the system message ---- */

static int put_system_block(struct writer *w, const json_t *block, size_t k)
{
	const json_t *type = request_get(block, "type"), *text = request_get(block, "text");
	snprintf(w->param, sizeof w->param, "system[%zu].type", k);
	if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0)
		return request_bad(w->e, "unsupported_value", w->param,
				   "Unsupported value: '%s' is not 'text', and only that is supported by this version.",
				   w->param);
	snprintf(w->param, sizeof w->param, "system[%zu].text", k);
	if (text == NULL)
		return request_missing(w->e, w->param);
	if (!json_is_string(text))
		return request_wrong_type(w->e, w->param, "a string", text);
	int rc = request_check_text(text, w->param, w->e);
	if (rc == 0 && w->t.text.len > 0)
		rc = turns_text(&w->t, "\n", 1);
	return rc == 0 ? turns_text(&w->t, json_string_value(text), json_string_length(text)) : rc;
}

/* Its blocks form one message, one line each. */
static int put_system(struct writer *w, const json_t *v)
{
	int rc = 0;
	if (v == NULL || request_is_empty(v) || (json_is_string(v) && json_string_length(v) == 0))
		return 0;
	if (json_array_size(v) > MAX_BLOCKS)
		return request_bad(w->e, "array_above_max_length", "system",
				   "Invalid 'system': a request has at most %d blocks.", MAX_BLOCKS);
	if ((rc = turns_open(&w->t, TURN_SYSTEM)) != 0)
		return rc;
	if (json_is_string(v)) {
		rc = request_check_text(v, "system", w->e);
		return rc == 0 ? turns_text(&w->t, json_string_value(v), json_string_length(v)) : rc;
	}
	for (size_t k = 0; k < json_array_size(v) && rc == 0; k++)
		rc = put_system_block(w, json_array_get(v, k), k);
	return rc;
}

static int put_all(struct writer *w, const json_t *body, size_t most)
{
	size_t n = json_array_size(w->messages);
	int rc;
	if (w->messages == NULL)
		return request_missing(w->e, "messages");
	if (n == 0)
		return request_bad(w->e, "empty_array", "messages",
				   "Invalid 'messages': at least one message is needed.");
	if (n > most)
		return request_bad(w->e, "array_above_max_length", "messages",
				   "Invalid 'messages': at most %zu messages, not %zu.", most, n);
	if ((rc = turns_begin(&w->t)) != 0 || (rc = put_system(w, request_get(body, "system"))) != 0)
		return rc;
	for (; w->i < n && rc == 0; w->i++)
		rc = put_message(w, json_array_get(w->messages, w->i));
	return rc;
}

int messages_turns_put(struct sl_buf *out, const json_t *body, const struct request_limits *l,
		       struct cleanse_stats *cleansed, bool *prefill, struct request_error *e)
{
	struct writer w = {.e = e, .messages = request_get(body, "messages")};
	turns_init(&w.t, out, l, cleansed);
	int rc = put_all(&w, body, l->messages);
	*prefill = w.t.open == TURN_ASSISTANT && !w.called;
	if (rc == 0)
		rc = turns_end(&w.t);
	turns_dispose(&w.t);
	return rc;
}
