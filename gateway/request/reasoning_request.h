/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether and how much a model thinks before it answers: reasoning_effort, reasoning.effort, enable_thinking, thinking,
 * think, and the limits of its tokens. The model's template gets what its switch may be called.
 */
#ifndef GATEWAY_REASONING_REQUEST_H
#define GATEWAY_REASONING_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/request/request_error.h"

enum reasoning_switch { REASONING_DEFAULT, REASONING_OFF, REASONING_ON };

struct reasoning_request {
	uint8_t thinking;   /* enum reasoning_switch */
	const char *effort; /* "minimal", "low", …; NULL: not given, or "none", which is OFF */
	bool has_budget;
	uint32_t budget; /* tokens of reasoning */
};

/* values: of a body that request_check passed. 0 or SL_EINVAL with *e filled. */
int reasoning_request_read(const struct request_values *values, struct reasoning_request *out, struct request_error *e);
/* Appends `,"chat_template_kwargs":{…}` unless there is none: the client's own (NULL: none) and what r adds to them. */
int reasoning_request_put(struct sl_buf *out, const struct reasoning_request *r, json_t *kwargs);

#endif
