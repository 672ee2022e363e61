/* SPDX-License-Identifier: Apache-2.0
 *
 * The form that an answer must have: response_format, text.format, structured_outputs, guided_*, regex, ebnf, grammar,
 * json_schema, format. One of them at most.
 */
#ifndef GATEWAY_CONSTRAINT_REQUEST_H
#define GATEWAY_CONSTRAINT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"
#include "gateway/request/request_error.h"

struct constraint_request {
	uint8_t kind;       /* enum proto_constraint */
	bool strict;        /* a schema's; false where it is not given */
	const char *field;  /* which field of the request it is; NULL: none */
	struct sl_buf text; /* owned; as proto_constraint has it. A schema is the client's own bytes */
};

/* values: of a body that request_check passed; text: its bytes, borrowed for the call. 0, SL_EINVAL with *e filled,
 * SL_ENOMEM; on failure *out needs no dispose. */
int constraint_request_read(const struct request_values *values, struct proto_str text, struct constraint_request *out,
			    struct request_error *e);
void constraint_request_dispose(struct constraint_request *c);

#endif
