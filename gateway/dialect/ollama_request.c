/* SPDX-License-Identifier: Apache-2.0
 *
 * Differences from a chat besides the names: an answer is streamed unless "stream" is false, and a request without a
 * prompt asks to load a model.
 */
#include "gateway/dialect/ollama_request.h"

#include <string.h>

#include "base/alloc.h"

/* ---- chat and generate ---- */

static int end_prompt(struct chat_request *r, int rc, const char *param, struct request_error *e)
{
	if (rc == 0)
		rc = request_put_template(&r->prompt, &r->c);
	if (rc == 0)
		rc = buf_append_str(&r->prompt, "}");
	return request_too_long(rc, param, e);
}

static int put_messages(const struct request_values *values, struct ollama_request *r, const struct request_limits *l,
			struct request_error *e)
{
	const json_t *messages = values->at[VALUE_MESSAGES];
	struct chat_request *c = &r->chat;
	if (json_array_size(messages) == 0) {
		r->loads = true;
		return 0;
	}
	int rc = buf_append_str(&c->prompt, "{");
	if (rc == 0)
		rc = ollama_turns_put(&c->prompt, messages, l, &c->c.cleansed, e);
	return end_prompt(c, rc, "messages", e);
}

static int check_raw(const struct request_values *values, struct request_error *e)
{
	if (json_string_length(values->at[VALUE_INSTRUCTIONS]) > 0)
		return request_bad(e, "invalid_value", "system",
				   "'system' needs the model's template: not with 'raw'.");
	if (values->at[VALUE_THINK] != NULL)
		return request_bad(e, "invalid_value", "think", "'think' needs the model's template: not with 'raw'.");
	return 0;
}

static int put_prompt(const struct request_values *values, struct ollama_request *r, const struct request_limits *l,
		      struct request_error *e)
{
	const json_t *prompt = values->at[VALUE_PROMPT], *system = values->at[VALUE_INSTRUCTIONS];
	struct chat_request *c = &r->chat;
	int rc;
	if ((prompt != NULL && (rc = request_check_text(prompt, "prompt", e)) != 0) ||
	    (system != NULL && (rc = request_check_text(system, "system", e)) != 0))
		return rc;
	r->raw = json_is_true(request_get(c->body.root, "raw"));
	if (json_string_length(prompt) == 0) {
		r->loads = true;
		return 0;
	}
	if (r->raw) {
		rc = check_raw(values, e);
		if (rc == 0)
			rc = buf_append(&c->prompt, json_string_value(prompt), json_string_length(prompt));
		return request_too_long(rc, "prompt", e);
	}
	rc = buf_append_str(&c->prompt, "{");
	if (rc == 0)
		rc = ollama_prompt_put(&c->prompt, prompt, system, l, &c->c.cleansed);
	return end_prompt(c, rc, "prompt", e);
}

static int read_body(const void *bytes, size_t n, const struct request_limits *l, const struct request_shape *shape,
		     struct ollama_request *r, struct request_error *e)
{
	struct request_values values;
	struct chat_request *c = &r->chat;
	int rc;
	if ((rc = request_parse_doc(bytes, n, l, &c->body, e)) != 0 ||
	    (rc = request_common_read_shape(c->body.root, (struct proto_str){bytes, n}, shape, &values, &c->c, e)) !=
		0 ||
	    (rc = chat_request_logprobs(&values, c, e)) != 0 ||
	    (rc = ollama_keep_read(request_get(c->body.root, "keep_alive"), &r->keep_ms, e)) != 0)
		return rc;
	c->c.stream = !json_is_false(values.at[VALUE_STREAM]);
	return shape == &ollama_chat_shape ? put_messages(&values, r, l, e) : put_prompt(&values, r, l, e);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, const struct request_shape *shape,
		 struct ollama_request *out, struct request_error *e)
{
	*out = (struct ollama_request){0};
	*e = (struct request_error){0};
	buf_init(&out->chat.prompt, REQUEST_MAX_PROMPT);
	int rc = read_body(bytes, n, l, shape, out, e);
	if (rc != 0) {
		ollama_request_dispose(out);
		return rc;
	}
	const struct sl_buf *prompt = &out->chat.prompt;
	out->chat.c.submit.prompt_kind = out->raw ? PROTO_PROMPT_TEXT : PROTO_PROMPT_CHAT;
	out->chat.c.submit.prompt =
	    (struct proto_str){.at = prompt->len > 0 ? (const char *)buf_data(prompt) : "", .n = prompt->len};
	return 0;
}

int ollama_chat_parse(const void *bytes, size_t n, const struct request_limits *l, struct ollama_request *out,
		      struct request_error *e)
{
	return parse(bytes, n, l, &ollama_chat_shape, out, e);
}

int ollama_generate_parse(const void *bytes, size_t n, const struct request_limits *l, struct ollama_request *out,
			  struct request_error *e)
{
	return parse(bytes, n, l, &ollama_generate_shape, out, e);
}

void ollama_request_dispose(struct ollama_request *r) { chat_request_dispose(&r->chat); }

/* ---- names ---- */

int ollama_name_parse(const void *bytes, size_t n, const struct request_limits *l, struct ollama_name *out,
		      struct request_error *e)
{
	struct json_doc body;
	*out = (struct ollama_name){0};
	*e = (struct request_error){0};
	int rc = request_parse_doc(bytes, n, l, &body, e);
	if (rc != 0)
		return rc;
	const char *field =
	    request_get(body.root, "model") != NULL || request_get(body.root, "name") == NULL ? "model" : "name";
	const json_t *v = request_get(body.root, field);
	size_t len = json_string_length(v);
	if (v == NULL)
		rc = request_missing(e, field);
	else if (!json_is_string(v))
		rc = request_wrong_type(e, field, "a string", v);
	else if (len == 0 || len > PROTO_MAX_NAME || strlen(json_string_value(v)) != len)
		rc = request_bad(e, "invalid_value", field, "Invalid value for '%s': a name has 1 to %d bytes.", field,
				 PROTO_MAX_NAME);
	else
		memcpy(out->model, json_string_value(v), len);
	json_doc_dispose(&body);
	return rc;
}
