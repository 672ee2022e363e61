/* SPDX-License-Identifier: Apache-2.0
 *
 * A body with messages is a chat's and read as such: what would be tokenized is what a chat's prompt would be.
 */
#include "gateway/request/tokenize_request.h"

#include <stdio.h>

static int get_model(const json_t *body, const char **out, struct request_error *e)
{
	int rc = request_get_label(body, "model", "model", out, e);
	if (rc == 0 && *out == NULL)
		*out = "default";
	return rc;
}

/* otherwise: where it is absent. */
static int get_flag(const json_t *body, const char *name, bool otherwise, bool *out, struct request_error *e)
{
	const json_t *v = request_get(body, name);
	*out = v != NULL ? json_is_true(v) : otherwise;
	return v == NULL || json_is_boolean(v) ? 0 : request_wrong_type(e, name, "a boolean", v);
}

static int get_prompt(struct tokenize_request *r, struct request_error *e)
{
	const json_t *v = request_get(r->body.root, "prompt");
	bool special, strings;
	int rc;
	if (v == NULL)
		return request_missing(e, "prompt");
	if (!json_is_string(v))
		return request_wrong_type(e, "prompt", "a string", v);
	if ((rc = request_check_text(v, "prompt", e)) != 0 || (rc = get_model(r->body.root, &r->model, e)) != 0 ||
	    (rc = get_flag(r->body.root, "add_special_tokens", true, &special, e)) != 0 ||
	    (rc = get_flag(r->body.root, "return_token_strs", false, &strings, e)) != 0)
		return rc;
	if (strings)
		return request_refuse(e, "return_token_strs", "Use POST /detokenize.");
	r->prompt = (struct proto_str){json_string_value(v), json_string_length(v)};
	if (r->prompt.n > REQUEST_MAX_PROMPT)
		return request_too_long(SL_ELIMIT, "prompt", e);
	r->kind = PROTO_PROMPT_TEXT;
	r->param = "prompt";
	r->wants = (uint8_t)(PROTO_COUNT_IDS | (special ? 0 : PROTO_COUNT_PLAIN));
	return 0;
}

static int get_chat(const void *bytes, size_t n, const struct request_limits *l, struct tokenize_request *r,
		    struct request_error *e)
{
	bool strings;
	int rc = get_flag(r->body.root, "return_token_strs", false, &strings, e);
	if (rc == 0 && strings)
		rc = request_refuse(e, "return_token_strs", "Use POST /detokenize.");
	json_doc_dispose(&r->body);
	if (rc == 0)
		rc = chat_request_parse(bytes, n, l, &r->chat, e);
	if (rc != 0)
		return rc;
	r->is_chat = true;
	r->model = r->chat.c.model;
	r->kind = PROTO_PROMPT_CHAT;
	r->param = "messages";
	r->wants = PROTO_COUNT_IDS;
	r->prompt = r->chat.c.submit.prompt;
	return 0;
}

int tokenize_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct tokenize_request *out,
			   struct request_error *e)
{
	*out = (struct tokenize_request){0};
	*e = (struct request_error){0};
	int rc = request_parse_doc(bytes, n, l, &out->body, e);
	if (rc == 0 && request_get(out->body.root, "messages") != NULL)
		rc = get_chat(bytes, n, l, out, e);
	else if (rc == 0)
		rc = get_prompt(out, e);
	if (rc != 0)
		tokenize_request_dispose(out);
	return rc;
}

static int get_tokens(struct tokenize_request *r, struct request_error *e)
{
	const json_t *list = request_get(r->body.root, "tokens");
	size_t n = json_array_size(list);
	if (list == NULL)
		return request_missing(e, "tokens");
	if (!json_is_array(list))
		return request_wrong_type(e, "tokens", "an array of integers", list);
	if (n > PROTO_MAX_LISTED)
		return request_bad(e, "array_above_max_length", "tokens", "Invalid 'tokens': at most %d, not %zu.",
				   PROTO_MAX_LISTED, n);
	buf_init(&r->tokens, n * REQUEST_TOKEN_BYTES);
	int rc = request_put_token_ids(&r->tokens, list, "tokens", e);
	if (rc != 0)
		return rc;
	r->prompt = (struct proto_str){(const char *)buf_data(&r->tokens), r->tokens.len};
	r->kind = PROTO_PROMPT_TOKENS;
	r->wants = PROTO_COUNT_TEXT;
	r->param = "tokens";
	return 0;
}

int detokenize_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct tokenize_request *out,
			     struct request_error *e)
{
	*out = (struct tokenize_request){0};
	*e = (struct request_error){0};
	int rc = request_parse_doc(bytes, n, l, &out->body, e);
	if (rc == 0)
		rc = get_model(out->body.root, &out->model, e);
	if (rc == 0)
		rc = get_tokens(out, e);
	if (rc != 0)
		tokenize_request_dispose(out);
	return rc;
}

void tokenize_request_dispose(struct tokenize_request *r)
{
	json_doc_dispose(&r->body);
	if (r->is_chat)
		chat_request_dispose(&r->chat);
	r->is_chat = false;
	buf_dispose(&r->tokens);
}
