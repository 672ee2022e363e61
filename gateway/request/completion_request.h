/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the body of POST /v1/completions. Pure: bytes in, a request or an error that
 * names the field out. What is done with each field: request_table.c.
 */
#ifndef GATEWAY_COMPLETION_REQUEST_H
#define GATEWAY_COMPLETION_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"

struct completion_prompt {
	uint8_t kind;          /* PROTO_PROMPT_TEXT or PROTO_PROMPT_TOKENS */
	struct proto_str text; /* borrowed from the body, or tokens in the wire's form from `tokens` */
};

struct completion_request {
	struct json_doc body;              /* owned; strings point into it */
	struct request_common c;           /* c.submit.prompt is the first of the prompts */
	bool echo;                         /* with prompts of text only, and without log probabilities */
	struct completion_prompt *prompts; /* owned; 1 … limits->prompts */
	int n_prompts;                     /* × best_of is at most limits->prompts or PROTO_MAX_CHOICES */
	struct sl_buf tokens;              /* owned; what prompts of tokens point into */
};

/* 0; SL_EINVAL with *e filled; SL_ENOMEM. On failure *out needs no dispose. */
int completion_request_parse(const void *bytes, size_t n, const struct request_limits *l,
			     struct completion_request *out, struct request_error *e);
void completion_request_dispose(struct completion_request *r);

#endif
