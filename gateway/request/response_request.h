/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and validating the body of POST /v1/responses. Pure: bytes in, a request or an error that
 * names the field out. What is done with each field: request_table.c; the items of its input:
 * response_items.h.
 */
#ifndef GATEWAY_RESPONSE_REQUEST_H
#define GATEWAY_RESPONSE_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"
#include "gateway/request/response_items.h"

struct response_request {
	json_t *body; /* owned; strings, and members not marked as owned, point into it */
	/* max_output_tokens is c.max_tokens; c.submit has no prompt yet */
	struct request_common c;
	bool store;                                      /* true by default */
	bool background;                                 /* only with store */
	const char *previous_response_id, *instructions; /* NULL: absent */
	const char *conversation;                        /* its id; NULL: absent */
	const char *prompt_id, *prompt_version;          /* NULL: absent */
	json_t *prompt_variables;                        /* names to strings, or NULL */
	json_t *metadata;                                /* or NULL */
	/* Owned: normal items. Empty only where there is a prompt_id or previous_response_id or conversation. */
	json_t *input;
	enum cleanse_level cleanse; /* of users' messages */
	struct request_files files; /* owned: those that response_files found, and their texts */
};

/* 0; SL_EINVAL with *e filled; SL_ENOMEM. On failure *out needs no dispose. */
int response_request_parse(const void *bytes, size_t n, const struct request_limits *l, struct response_request *out,
			   struct request_error *e);
void response_request_dispose(struct response_request *r);

/* Notes in r->files the files that history (as below) and the input name; their texts are fetched before
 * response_messages. 0, or SL_EINVAL with *e. */
int response_files(struct response_request *r, const json_t *history, struct request_error *e);

/* Appends {"messages":[…]} for the engine: instructions (as the system's), the items of history (an
 * array of any origin, or NULL), then those of the input. *out should be bounded by
 * REQUEST_MAX_PROMPT. Users' messages are cleansed; r->c.cleansed counts what was removed. 0, SL_EINVAL
 * with *e filled (also when it is too long or empty), SL_ENOMEM. */
int response_messages(struct response_request *r, const json_t *history, struct sl_buf *out, struct request_error *e);

#endif
