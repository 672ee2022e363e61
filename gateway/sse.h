/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a streamed chat completion (OpenAI's chat.completion.chunk) as bytes. What does not
 * change within a stream is rendered once; a content event then costs two copies and the escaping of
 * its text.
 */
#ifndef GATEWAY_SSE_H
#define GATEWAY_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/exchange.h"

struct sse_chat {
	struct sl_buf head;  /* from "data: {" to just before the choices */
	const char *tail;    /* from the end of a choice on */
	bool include_usage;
};

struct sse_usage {
	uint32_t n_prompt, n_cached, n_completion;
};

/* id, model: borrowed for the call. 0 or SL_ENOMEM. */
int sse_chat_init(struct sse_chat *s, const char *id, const char *model, int64_t created, bool include_usage);
void sse_chat_dispose(struct sse_chat *s);

/* Each appends one whole event. 0, SL_ELIMIT or SL_ENOMEM, and then nothing was appended. */
int sse_chat_role(const struct sse_chat *s, struct sl_buf *out);
int sse_chat_content(const struct sse_chat *s, struct sl_buf *out, const char *text, size_t n);
int sse_chat_finish(const struct sse_chat *s, struct sl_buf *out, const char *reason);
int sse_chat_usage(const struct sse_chat *s, struct sl_buf *out, const struct sse_usage *u);
int sse_done(struct sl_buf *out);
int sse_error(struct sl_buf *out, const struct api_error *e, const char *message);
/* A comment that keeps proxies from closing a silent stream: one line and no blank line after it,
 * which would end an (empty) event. */
int sse_ping(struct sl_buf *out);

/* "usage":{…} without the name, as JSON. */
int usage_print(struct sl_buf *out, const struct sse_usage *u);

#endif
