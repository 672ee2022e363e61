/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the body of POST /v1/chat/completions. Pure: bytes in, a request or an error
 * that names the field out. What this version can't do is refused by name; unknown fields are
 * ignored, as OpenAI's own API does.
 */
#ifndef GATEWAY_CHAT_REQUEST_H
#define GATEWAY_CHAT_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto.h"

struct chat_limits {
	size_t messages;   /* at most */
	size_t json_depth; /* nesting of the body */
};

struct chat_request {
	json_t *body;      /* owned; the strings below point into it */
	const char *model;
	bool stream, include_usage;
	bool has_seed;
	bool has_max_tokens;
	uint32_t max_tokens;
	/* Sampling, stops and seed; model, prompt, max_tokens and what the tier says are the caller's. */
	struct proto_submit submit;
	struct sl_buf prompt; /* {"messages":[…]} as the engine takes it; owned */
};

/* What went wrong, for the client. */
struct chat_error {
	const char *code;  /* "invalid_value", "unsupported_parameter", … ; NULL: null */
	char param[96];    /* "" : null */
	char message[256];
};

/* 0; SL_EINVAL with *error filled; SL_ENOMEM. On failure *out needs no dispose. */
int chat_request_parse(const void *bytes, size_t n, const struct chat_limits *limits,
		       struct chat_request *out, struct chat_error *error);
void chat_request_dispose(struct chat_request *r);

#endif
