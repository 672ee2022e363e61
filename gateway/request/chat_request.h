/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the body of POST /v1/chat/completions. Pure: bytes in, a request or an error
 * that names the field out. What is done with each field: request_table.c.
 */
#ifndef GATEWAY_CHAT_REQUEST_H
#define GATEWAY_CHAT_REQUEST_H

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"

struct chat_request {
	struct json_doc body; /* owned; the strings below point into it */
	struct request_common c;
	/* {"messages":[…],…} as the engine takes it; owned, c.submit.prompt points to it */
	struct sl_buf prompt;
};

/* 0; SL_EINVAL with *e filled; SL_ENOMEM; SL_EAGAIN: texts of l->files are to be fetched first. On failure *out needs
 * no dispose. */
int chat_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct chat_request *out,
		       struct request_error *e);
/* logprobs and top_logprobs, of any API that has a chat's: into r's submit. 0 or SL_EINVAL with *e filled. */
int chat_request_logprobs(const struct request_values *values, struct chat_request *r, struct request_error *e);
void chat_request_dispose(struct chat_request *r);

#endif
