/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of streamed completions (OpenAI's chat.completion.chunk and text_completion) as bytes.
 * What does not change within a stream is rendered once; a content event then costs a few copies and
 * the escaping of its text.
 */
#ifndef GATEWAY_SSE_H
#define GATEWAY_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/exchange/exchange.h"

/* Where the text of a choice is: between these, after its index. */
struct sse_shape {
	const char *object;
	const char *role;         /* before the end of the event that opens a choice; NULL: there is none */
	const char *text, *after; /* around its text */
	const char *empty;        /* instead of both where there is no text */
};

extern const struct sse_shape sse_chat_shape, sse_completion_shape;

/* What events have between their id and their choices: one text of all streams of a model that begin in the same
 * second. Counted, by one thread. */
struct sse_rest {
	unsigned refs;
	const struct sse_shape *shape;
	int64_t created;
	size_t n_model, n;
	char text[]; /* [n_model] the model's name, [n] JSON */
};
void sse_rest_unref(struct sse_rest *r); /* NULL allowed */

struct sse_stream {
	const struct sse_shape *shape;
	const char *id; /* borrowed */
	size_t n_id;
	struct sse_rest *rest; /* a reference */
	bool include_usage, obfuscate;
};

struct sse_usage {
	uint32_t n_prompt, n_cached, n_completion;
	uint32_t n_reasoning; /* of n_completion */
};

/* id: borrowed while s lives; model: for the call. last: the thread's, where the next stream may find its rest; a
 * reference, NULL at first. 0 or SL_ENOMEM. */
int sse_init(struct sse_stream *s, const struct sse_shape *shape, const char *id, const char *model, int64_t created,
	     bool include_usage, bool obfuscate, struct sse_rest **last);
void sse_dispose(struct sse_stream *s);

/* Each appends one whole event. 0, SL_ELIMIT or SL_ENOMEM, and then nothing was appended. logprobs is
 * JSON text, NULL: null. */
int sse_role(const struct sse_stream *s, struct sl_buf *out, unsigned index);
int sse_content(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *text, size_t n,
		const struct sl_buf *logprobs);
/* delta: the choice's, as JSON text. */
int sse_delta(const struct sse_stream *s, struct sl_buf *out, unsigned index, const struct sl_buf *delta);
/* The same with more members of the choice, JSON that begins with a comma; NULL: none. */
int sse_content_more(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *text, size_t n,
		     const struct sl_buf *logprobs, const struct sl_buf *more);
/* Metadata of a choice beyond the API's; NULL: none. */
struct sse_about {
	const char *ended_by; /* why before its time: "deadline", … */
	const char *degraded; /* how it is less than was asked for: "model", "length" */
	const char *members;  /* more members, as JSON */
	const char *cascade;  /* JSON; what the cascade did; NULL: nothing */
	size_t n_cascade;
};

/* more: as in sse_content_more. */
int sse_finish(const struct sse_stream *s, struct sl_buf *out, unsigned index, const char *reason,
	       const struct sse_about *about, const struct sl_buf *more);
/* ,"sluice":{"ended_by":"…","degraded":"…",…,"cascade":{…}} with what there is, or nothing. */
int sse_about_print(struct sl_buf *out, const struct sse_about *about);
int sse_usage_event(const struct sse_stream *s, struct sl_buf *out, const struct sse_usage *u);
int sse_done(struct sl_buf *out);
int sse_error(struct sl_buf *out, const struct api_error *e, const char *message);
/* Appends a member that makes an event of so_far bytes one of few lengths, against an observer that guesses tokens
 * by them. 0, SL_ELIMIT or SL_ENOMEM. */
int sse_pad(struct sl_buf *out, size_t so_far);
/* A comment that keeps proxies from closing a silent stream: one line and no blank line after it,
 * which would end an (empty) event. */
int sse_ping(struct sl_buf *out);

/* "usage":{…} without the name, as JSON. */
int usage_print(struct sl_buf *out, const struct sse_usage *u);

#endif
