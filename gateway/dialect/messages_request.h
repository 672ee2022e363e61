/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the bodies of POST /v1/messages and /v1/messages/count_tokens (Anthropic's Messages API) into
 * a chat's request. Pure: bytes in, a request or an error that names the field out.
 */
#ifndef GATEWAY_MESSAGES_REQUEST_H
#define GATEWAY_MESSAGES_REQUEST_H

#include "gateway/dialect/turns.h"
#include "gateway/request/chat_request.h"

/* As chat_request_parse. */
int messages_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct chat_request *out,
			   struct request_error *e);
/* The same for a request that generates nothing: max_tokens is optional. */
int messages_count_parse(const void *bytes, size_t n, const struct request_limits *l, struct chat_request *out,
			 struct request_error *e);

/* ---- messages_table.c ---- */

extern const struct request_shape messages_shape;

/* ---- messages_tools.c ---- */

/* Reads the members tools and tool_choice, already checked against the table, into OpenAI's form. 0, SL_EINVAL,
 * SL_ENOMEM; on failure *out needs no dispose. */
int messages_tools_read(const json_t *body, struct tools_request *out, struct request_ignored *ignored,
			struct request_error *e);

/* ---- messages_turns.c ---- */

/* Appends `"messages":[…]` from the members system and messages. *prefill: the last message is the assistant's text,
 * which the answer continues. 0, SL_EINVAL with *e filled, SL_ELIMIT, SL_ENOMEM. */
int messages_turns_put(struct sl_buf *out, const json_t *body, const struct request_limits *l,
		       struct cleanse_stats *cleansed, bool *prefill, struct request_error *e);

#endif
