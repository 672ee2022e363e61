/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the bodies of POST /v1/embeddings, /v1/rerank and /v1/score. Pure: bytes in, a request or an
 * error that names the field out. null counts as absent; unknown fields have no effect and are collected.
 */
#ifndef GATEWAY_EMBEDDING_REQUEST_H
#define GATEWAY_EMBEDDING_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"

enum {
	EMBEDDING_MAX_INPUTS = 2048, /* of a request, as OpenAI has it */
};

struct embedding_text {
	uint8_t kind;          /* PROTO_PROMPT_INPUT or PROTO_PROMPT_TOKENS */
	struct proto_str text; /* borrowed from the body, or tokens in the wire's form from `tokens` */
	int index;             /* in its field's array; -1: the field is the text itself */
};

struct embedding_request {
	struct json_doc body; /* owned; strings point into it */
	const char *model;
	bool base64;
	uint32_t dimensions;           /* 0: all there are */
	struct embedding_text *inputs; /* owned; 1 … EMBEDDING_MAX_INPUTS */
	int n_inputs;
	struct sl_buf tokens; /* owned; what inputs of tokens point into */
	struct request_ignored ignored;
};

/* 0; SL_EINVAL with *e filled; SL_ENOMEM. On failure *out needs no dispose; here and below. */
int embedding_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct embedding_request *out,
			    struct request_error *e);
/* The same of a body whose one text is at `field`, a literal. */
int embedding_request_parse_text(const void *bytes, size_t n, const struct request_limits *l, const char *field,
				 struct embedding_request *out, struct request_error *e);
void embedding_request_dispose(struct embedding_request *r);

/* Texts that are compared: one query with documents (rerank), or two lists (score), of which one may be a single
 * text. */
struct rank_request {
	struct json_doc body; /* owned */
	const char *model;
	const char *left_field, *right_field; /* "query", "documents"; "text_1", "text_2" */
	struct embedding_text *left, *right;  /* owned; both 1 … EMBEDDING_MAX_INPUTS */
	int n_left, n_right;                  /* equal, or n_left is 1 */
	int top_n;                            /* of a rerank: results, 1 … n_right */
	bool return_documents;
	struct request_ignored ignored;
};

int rerank_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct rank_request *out,
			 struct request_error *e);
int score_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct rank_request *out,
			struct request_error *e);
void rank_request_dispose(struct rank_request *r);

#endif
