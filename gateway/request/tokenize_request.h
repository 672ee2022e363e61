/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the bodies of POST /tokenize and /detokenize, in vLLM's forms. Pure.
 */
#ifndef GATEWAY_TOKENIZE_REQUEST_H
#define GATEWAY_TOKENIZE_REQUEST_H

#include <stdbool.h>

#include "base/buf.h"
#include "gateway/request/chat_request.h"
#include "gateway/request/request_fields.h"

struct tokenize_request {
	struct json_doc body;     /* owned; of a plain prompt or of tokens; strings point into it */
	struct chat_request chat; /* owned; with is_chat */
	bool is_chat;
	struct sl_buf tokens; /* owned; what a prompt of tokens points to */
	const char *model;    /* "default" where none is named */
	const char *param;    /* what the prompt's field is called */
	uint8_t kind, wants;  /* as in proto_count */
	struct proto_str prompt;
};

/* {"model", "prompt", "add_special_tokens"}, or a chat's fields. 0; SL_EINVAL with *e filled; SL_ENOMEM. On failure
 * *out needs no dispose. */
int tokenize_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct tokenize_request *out,
			   struct request_error *e);
/* {"model", "tokens"}. */
int detokenize_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct tokenize_request *out,
			     struct request_error *e);
void tokenize_request_dispose(struct tokenize_request *r);

#endif
