/* SPDX-License-Identifier: Apache-2.0
 *
 * The tools that a model may call, in the forms of chats (also the deprecated functions) and of responses.
 */
#ifndef GATEWAY_TOOLS_REQUEST_H
#define GATEWAY_TOOLS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/request/request_error.h"

enum { TOOLS_MAX = 128, TOOLS_MAX_NAME = 64 };

enum tool_choice { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED, TOOL_CHOICE_NAMED };

/* Points into the body. */
struct tool {
	const char *name, *description; /* description NULL: none */
	const json_t *parameters;       /* a schema; NULL: none */
	bool strict;
	bool allowed; /* by tool_choice: all, unless that lists some */
};

struct tools_request {
	struct tool *list; /* owned; empty also where tool_choice is none: the model does not get them */
	size_t n;
	uint8_t choice;    /* enum tool_choice */
	const char *named; /* TOOL_CHOICE_NAMED: the tool */
	bool parallel;     /* several calls in one answer; the default */
	bool functions;    /* in the deprecated form, as the answer should then be */
};

struct request_ignored;
/* values: of a body that request_check passed. Members of tools without effect are added to *ignored. 0, SL_EINVAL with
 * *e filled, SL_ENOMEM; on failure *out needs no dispose. */
int tools_request_read(const struct request_values *values, enum request_endpoint endpoint, struct tools_request *out,
		       struct request_ignored *ignored, struct request_error *e);
/* For readers of other forms: room for as many tools as the array v has, called field; 0, SL_EINVAL, SL_ENOMEM. And the
 * tool of that name; NULL: none. */
int tools_request_reserve(struct tools_request *t, const json_t *v, const char *field, struct request_error *e);
struct tool *tools_request_find(const struct tools_request *t, const char *name);
/* Letters, digits, '_', '-' and '.': what any format of calls can write. */
bool tools_name_fits(const char *s, size_t n);
/* May values of the schema be objects, as far as its type says? */
bool tools_schema_fits(const json_t *schema);
void tools_request_dispose(struct tools_request *t);
/* Appends `,"tools":[…]` as templates take them, unless there are none. 0, SL_ELIMIT, SL_ENOMEM. */
int tools_request_put(struct sl_buf *out, const struct tools_request *t);

#endif
