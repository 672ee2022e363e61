/* SPDX-License-Identifier: Apache-2.0
 *
 * What only a completion has: prompts. A prompt is a string or an array of token ids; the field holds
 * one, or an array of them, all of one kind. What the first element of an array is decides what the
 * rest must be.
 *
 * Tokens are written as the wire has them into one buffer. It grows while it is filled, so a prompt's
 * place in it is set only when all are there.
 */
#include "gateway/request/completion_request.h"

#include <stdio.h>

#include "base/alloc.h"

static int put_text(struct completion_request *r, const json_t *v, const char *param, struct request_error *e)
{
	size_t n = json_string_length(v);
	if (n > REQUEST_MAX_PROMPT)
		return request_too_long(SL_ELIMIT, param, e);
	r->prompts[r->n_prompts++] =
	    (struct completion_prompt){.kind = PROTO_PROMPT_TEXT, .text = {.at = json_string_value(v), .n = n}};
	return request_check_text(v, param, e);
}

/* param: the array's own name. */
static int put_tokens(struct completion_request *r, const json_t *ids, const char *param, struct request_error *e)
{
	size_t before = r->tokens.len;
	int rc = request_put_token_ids(&r->tokens, ids, param, e);
	if (rc != 0)
		return rc;
	r->prompts[r->n_prompts++] =
	    (struct completion_prompt){.kind = PROTO_PROMPT_TOKENS, .text = {.n = r->tokens.len - before}};
	return 0;
}

static int put_each(struct completion_request *r, const json_t *list, struct request_error *e)
{
	bool tokens = json_is_array(json_array_get(list, 0));
	int rc = 0;
	for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
		const json_t *v = json_array_get(list, i);
		char param[40];
		snprintf(param, sizeof param, "prompt[%zu]", i);
		if (tokens && json_is_array(v))
			rc = put_tokens(r, v, param, e);
		else if (!tokens && json_is_string(v))
			rc = put_text(r, v, param, e);
		else
			rc = request_wrong_type(e, param, tokens ? "an array of integers" : "a string", v);
	}
	return rc;
}

/* Now that no token can move any more. */
static void place_tokens(struct completion_request *r)
{
	const char *at = (const char *)buf_data(&r->tokens);
	for (int i = 0; i < r->n_prompts; i++)
		if (r->prompts[i].kind == PROTO_PROMPT_TOKENS) {
			r->prompts[i].text.at = at;
			at += r->prompts[i].text.n;
		}
	r->c.submit.prompt_kind = r->prompts[0].kind;
	r->c.submit.prompt = r->prompts[0].text;
}

static int get_prompts(const struct request_values *values, struct completion_request *r,
		       const struct request_limits *l, struct request_error *e)
{
	const json_t *v = values->at[VALUE_PROMPT];
	const json_t *first = json_array_get(v, 0);
	size_t n = 1;
	if (v == NULL)
		return request_missing(e, "prompt");
	if (json_is_array(v) && first == NULL)
		return request_bad(e, "empty_array", "prompt", "Invalid 'prompt': at least one prompt is needed.");
	if (first != NULL && !json_is_integer(first))
		n = json_array_size(v);
	if (n > l->prompts)
		return request_bad(e, "array_above_max_length", "prompt",
				   "Invalid 'prompt': at most %zu prompts, not %zu.", l->prompts, n);
	/* One request's choices are bounded, in whatever fields it requests them. */
	size_t most = l->prompts > PROTO_MAX_CHOICES ? l->prompts : PROTO_MAX_CHOICES;
	if (n * r->c.submit.best_of > most)
		return request_bad(e, "invalid_value", r->c.submit.n > 1 ? "n" : "best_of",
				   "%zu prompts with %d choices each are more than %zu choices.", n,
				   r->c.submit.best_of, most);
	buf_init(&r->tokens, n * REQUEST_MAX_PROMPT);
	r->prompts = sl_zalloc_n(n, sizeof *r->prompts);
	if (r->prompts == NULL)
		return SL_ENOMEM;
	int rc;
	if (json_is_string(v))
		rc = put_text(r, v, "prompt", e);
	else if (json_is_integer(first))
		rc = put_tokens(r, v, "prompt", e);
	else
		rc = put_each(r, v, e);
	if (rc == 0)
		place_tokens(r);
	return rc;
}

static void get_logprobs(const struct request_values *values, struct completion_request *r)
{
	const json_t *v = values->at[VALUE_LOGPROBS];
	if (v == NULL)
		return;
	r->c.submit.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	r->c.submit.n_top_logprobs = (uint8_t)json_integer_value(v);
}

/* An echo is put before the answer as it came: of tokens there is no text, and no log probability. */
static int get_echo(const struct request_values *values, struct completion_request *r, struct request_error *e)
{
	r->echo = json_is_true(values->at[VALUE_ECHO]);
	if (!r->echo)
		return 0;
	if ((r->c.submit.flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0)
		return request_bad(
		    e, "unsupported_parameter", "echo",
		    "Unsupported parameter: 'echo' together with 'logprobs' is not supported by this version.");
	if (r->prompts[0].kind == PROTO_PROMPT_TOKENS)
		return request_bad(
		    e, "unsupported_parameter", "echo",
		    "Unsupported parameter: 'echo' of a prompt of tokens is not supported by this version.");
	return 0;
}

int completion_request_parse(const void *bytes, size_t n, const struct request_limits *l,
			     struct completion_request *out, struct request_error *e)
{
	*out = (struct completion_request){0};
	*e = (struct request_error){0};
	struct request_values values;
	int rc;
	if ((rc = request_parse_doc(bytes, n, l, &out->body, e)) == 0 &&
	    (rc = request_common_read(out->body.root, (struct proto_str){bytes, n}, REQUEST_COMPLETION, &values,
				      &out->c, e)) == 0 &&
	    (rc = get_prompts(&values, out, l, e)) == 0) {
		get_logprobs(&values, out);
		rc = get_echo(&values, out, e);
	}
	if (rc != 0)
		completion_request_dispose(out);
	return rc;
}

void completion_request_dispose(struct completion_request *r)
{
	request_common_dispose(&r->c);
	sl_free(r->prompts);
	r->prompts = NULL;
	r->n_prompts = 0;
	buf_dispose(&r->tokens);
	json_doc_dispose(&r->body);
}
