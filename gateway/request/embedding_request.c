/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs are a string, a list of strings, a list of token ids, or a list of such lists: what the first element is
 * decides what the others must be. Tokens are written as the wire has them into one buffer, whose place is known only
 * when all are there.
 */
#include "gateway/request/embedding_request.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum {
	MAX_DIMENSIONS = PROTO_MAX_EMBEDDING,
	MAX_ALL_TOKENS = 64 << 20, /* bytes: the body's own bound is below */
};

/* ---- fields ---- */

enum { EMBED = 1, EMBED_TEXT = 2, RERANK = 4, SCORE = 8, ANY = 15 };

static const struct request_field fields[] = {
    {.name = "dimensions", .endpoints = EMBED, .types = TYPE_INT, .lo = 1, .hi = MAX_DIMENSIONS},
    {.name = "documents", .endpoints = RERANK, .types = TYPE_STR | TYPE_ARR},
    {.name = "encoding_format", .endpoints = EMBED, .types = TYPE_STR, .values = "float base64 "},
    {.name = "input", .endpoints = EMBED, .types = TYPE_STR | TYPE_ARR},
    {.name = "model", .endpoints = ANY, .types = TYPE_STR},
    {.name = "prompt", .endpoints = EMBED_TEXT, .types = TYPE_STR},
    {.name = "query", .endpoints = RERANK, .types = TYPE_STR},
    {.name = "return_documents", .endpoints = RERANK, .types = TYPE_BOOL},
    {.name = "text_1", .endpoints = SCORE, .types = TYPE_STR | TYPE_ARR},
    {.name = "text_2", .endpoints = SCORE, .types = TYPE_STR | TYPE_ARR},
    {.name = "top_n", .endpoints = RERANK, .types = TYPE_INT, .lo = 1, .hi = INT32_MAX},
    {.name = "user", .endpoints = ANY & ~EMBED_TEXT, .types = TYPE_STR},
};

static int check_fields(const json_t *body, int endpoint, struct request_ignored *ignored, struct request_error *e)
{
	const struct request_shape shape = {
	    .rows = fields, .n = sizeof fields / sizeof *fields, .endpoints = (uint8_t)endpoint};
	struct request_values values;
	return request_check_shape(body, &shape, &values, ignored, e);
}

/* ---- shared ---- */

/* Of a checked integer. */
static int count_or(const json_t *body, const char *key, int absent)
{
	const json_t *v = request_get(body, key);
	return v != NULL ? (int)json_integer_value(v) : absent;
}

/* Identifiers that change nothing. */
static int check_user(const json_t *body, struct request_error *e)
{
	const char *user;
	return request_get_label(body, "user", "user", &user, e);
}

static void name_of(const char *field, int index, char out[80])
{
	if (index < 0)
		snprintf(out, 80, "%.40s", field);
	else
		snprintf(out, 80, "%.40s[%d]", field, index);
}

static int put_text(const json_t *v, const char *field, int index, struct embedding_text *out, struct request_error *e)
{
	char param[80];
	size_t n = json_string_length(v);
	name_of(field, index, param);
	if (!json_is_string(v))
		return request_wrong_type(e, param, "a string", v);
	if (n == 0)
		return request_bad(e, "invalid_value", param, "Invalid value for '%s': it is empty.", param);
	if (n > REQUEST_MAX_PROMPT)
		return request_too_long(SL_ELIMIT, param, e);
	*out = (struct embedding_text){
	    .kind = PROTO_PROMPT_INPUT, .text = {.at = json_string_value(v), .n = n}, .index = index};
	return request_check_text(v, param, e);
}

/* Room for as many texts as list has; *n: how many. */
static int reserve(const json_t *list, const char *field, struct embedding_text **out, int *n, struct request_error *e)
{
	size_t size = json_array_size(list);
	if (size == 0)
		return request_bad(e, "empty_array", field, "Invalid '%s': at least one text is needed.", field);
	if (size > EMBEDDING_MAX_INPUTS)
		return request_bad(e, "array_above_max_length", field, "Invalid '%s': at most %d texts, not %zu.",
				   field, EMBEDDING_MAX_INPUTS, size);
	*out = sl_zalloc_n(size, sizeof **out);
	*n = (int)size;
	return *out != NULL ? 0 : SL_ENOMEM;
}

/* ---- embeddings ---- */

static int put_tokens(struct embedding_request *r, const json_t *ids, int index, struct embedding_text *out,
		      struct request_error *e)
{
	char param[80];
	name_of("input", index, param);
	if (!json_is_array(ids))
		return request_wrong_type(e, param, "an array of integers", ids);
	size_t before = r->tokens.len;
	int rc = request_put_token_ids(&r->tokens, ids, param, e);
	if (rc != 0)
		return rc;
	*out =
	    (struct embedding_text){.kind = PROTO_PROMPT_TOKENS, .text = {.n = r->tokens.len - before}, .index = index};
	return 0;
}

/* Now that no token can move any more. */
static void place_tokens(struct embedding_request *r)
{
	const char *at = (const char *)buf_data(&r->tokens);
	for (int i = 0; i < r->n_inputs; i++)
		if (r->inputs[i].kind == PROTO_PROMPT_TOKENS) {
			r->inputs[i].text.at = at;
			at += r->inputs[i].text.n;
		}
}

static int put_one(struct embedding_request *r, const json_t *v, struct request_error *e)
{
	r->inputs = sl_zalloc(sizeof *r->inputs);
	r->n_inputs = 1;
	if (r->inputs == NULL)
		return SL_ENOMEM;
	return json_is_string(v) ? put_text(v, "input", -1, r->inputs, e) : put_tokens(r, v, -1, r->inputs, e);
}

static int get_inputs(struct embedding_request *r, struct request_error *e)
{
	const json_t *v = request_get(r->body.root, "input"), *first = json_array_get(v, 0);
	buf_init(&r->tokens, MAX_ALL_TOKENS);
	if (v == NULL)
		return request_missing(e, "input");
	if (!json_is_string(v) && !json_is_array(v))
		return request_wrong_type(e, "input", "a string or an array", v);
	if (json_is_string(v) || json_is_integer(first)) {
		int rc = put_one(r, v, e);
		if (rc == 0)
			place_tokens(r);
		return rc;
	}
	int rc = reserve(v, "input", &r->inputs, &r->n_inputs, e);
	for (int i = 0; rc == 0 && i < r->n_inputs; i++) {
		const json_t *it = json_array_get(v, (size_t)i);
		rc = json_is_array(first) ? put_tokens(r, it, i, &r->inputs[i], e)
					  : put_text(it, "input", i, &r->inputs[i], e);
	}
	if (rc == 0)
		place_tokens(r);
	return rc;
}

static bool wants_base64(const json_t *body)
{
	const char *format = json_string_value(request_get(body, "encoding_format"));
	return format != NULL && strcmp(format, "base64") == 0;
}

int embedding_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct embedding_request *out,
			    struct request_error *e)
{
	int rc;
	*out = (struct embedding_request){0};
	*e = (struct request_error){0};
	if ((rc = request_parse_doc(bytes, n, l, &out->body, e)) != 0 ||
	    (rc = check_fields(out->body.root, EMBED, &out->ignored, e)) != 0 ||
	    (rc = request_get_model(out->body.root, &out->model, e)) != 0 ||
	    (rc = check_user(out->body.root, e)) != 0 || (rc = get_inputs(out, e)) != 0) {
		embedding_request_dispose(out);
		return rc;
	}
	out->base64 = wants_base64(out->body.root);
	out->dimensions = (uint32_t)count_or(out->body.root, "dimensions", 0);
	return 0;
}

static int get_text(struct embedding_request *r, const char *field, struct request_error *e)
{
	const json_t *v = request_get(r->body.root, field);
	if (v == NULL)
		return request_missing(e, field);
	r->inputs = sl_zalloc(sizeof *r->inputs);
	r->n_inputs = 1;
	return r->inputs == NULL ? SL_ENOMEM : put_text(v, field, -1, r->inputs, e);
}

int embedding_request_parse_text(const void *bytes, size_t n, const struct request_limits *l, const char *field,
				 struct embedding_request *out, struct request_error *e)
{
	int rc;
	*out = (struct embedding_request){0};
	*e = (struct request_error){0};
	if ((rc = request_parse_doc(bytes, n, l, &out->body, e)) != 0 ||
	    (rc = check_fields(out->body.root, EMBED_TEXT, &out->ignored, e)) != 0 ||
	    (rc = request_get_model(out->body.root, &out->model, e)) != 0 || (rc = get_text(out, field, e)) != 0)
		embedding_request_dispose(out);
	return rc;
}

void embedding_request_dispose(struct embedding_request *r)
{
	sl_free(r->inputs);
	buf_dispose(&r->tokens);
	json_doc_dispose(&r->body);
	*r = (struct embedding_request){0};
}

/* ---- reranking and scores ---- */

/* A text, or an object that has it as "text"; else v itself, which is then refused. */
static const json_t *text_of(const json_t *v)
{
	const json_t *text = json_object_get(v, "text");
	return text != NULL ? text : v;
}

static int get_texts(const json_t *body, const char *field, struct embedding_text **out, int *n,
		     struct request_error *e)
{
	const json_t *v = request_get(body, field);
	if (v == NULL)
		return request_missing(e, field);
	if (json_is_string(v)) {
		*n = 1;
		*out = sl_zalloc(sizeof **out);
		return *out == NULL ? SL_ENOMEM : put_text(v, field, -1, *out, e);
	}
	if (!json_is_array(v))
		return request_wrong_type(e, field, "a string or an array", v);
	int rc = reserve(v, field, out, n, e);
	for (int i = 0; rc == 0 && i < *n; i++)
		rc = put_text(text_of(json_array_get(v, (size_t)i)), field, i, &(*out)[i], e);
	return rc;
}

static int begin(const void *bytes, size_t n, const struct request_limits *l, int endpoint, struct rank_request *out,
		 struct request_error *e)
{
	const char *left = endpoint == RERANK ? "query" : "text_1",
		   *right = endpoint == RERANK ? "documents" : "text_2";
	int rc;
	*out = (struct rank_request){.left_field = left, .right_field = right};
	*e = (struct request_error){0};
	if ((rc = request_parse_doc(bytes, n, l, &out->body, e)) != 0 ||
	    (rc = check_fields(out->body.root, endpoint, &out->ignored, e)) != 0 ||
	    (rc = request_get_model(out->body.root, &out->model, e)) != 0 ||
	    (rc = check_user(out->body.root, e)) != 0 ||
	    (rc = get_texts(out->body.root, left, &out->left, &out->n_left, e)) != 0)
		return rc;
	return get_texts(out->body.root, right, &out->right, &out->n_right, e);
}

int rerank_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct rank_request *out,
			 struct request_error *e)
{
	int rc = begin(bytes, n, l, RERANK, out, e);
	if (rc != 0) {
		rank_request_dispose(out);
		return rc;
	}
	out->top_n = count_or(out->body.root, "top_n", out->n_right);
	out->top_n = out->top_n < out->n_right ? out->top_n : out->n_right;
	out->return_documents = json_is_true(request_get(out->body.root, "return_documents"));
	return 0;
}

int score_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct rank_request *out,
			struct request_error *e)
{
	int rc = begin(bytes, n, l, SCORE, out, e);
	if (rc == 0 && out->n_left != 1 && out->n_left != out->n_right)
		rc = request_bad(e, "invalid_value", "text_2",
				 "Invalid 'text_2': %d texts for %d in 'text_1', which has one or as many.",
				 out->n_right, out->n_left);
	if (rc != 0)
		rank_request_dispose(out);
	return rc;
}

void rank_request_dispose(struct rank_request *r)
{
	sl_free(r->left);
	sl_free(r->right);
	json_doc_dispose(&r->body);
	*r = (struct rank_request){0};
}
