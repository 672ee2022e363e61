/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates (Jinja) of model files: untrusted programs, so the interpreter is sandboxed and bounds source, steps,
 * depth and output. Unsupported constructs are compile errors with their line, never a fallback. A template is
 * immutable after compilation; any thread may render it. Callers: engine/model, cmd/model.
 *
 * Values carry trust byte by byte: text of the template is trusted (it may form control tokens), text of the request
 * never is, even when concatenated with trusted text.
 */
#ifndef ENGINE_CHAT_TEMPLATE_H
#define ENGINE_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/parts/parts_format.h"

struct chat_template;

int chat_template_compile(const char *source, size_t n, struct chat_template **out, struct sl_err *err);
void chat_template_free(struct chat_template *t);

/* How its model writes calls and reasoning, by the template's source. */
struct parts_detected chat_template_parts(const struct chat_template *t);

/* All JSON is borrowed. As in the transformers library, tools and documents are none when they are
 * not given. */
struct chat_vars {
	const json_t *messages;            /* array of objects */
	const json_t *tools;               /* array or NULL */
	const json_t *documents;           /* array or NULL */
	const json_t *more;                /* object or NULL: further variables (enable_thinking, …) */
	const char *bos_token, *eos_token; /* may be NULL: undefined; trusted text */
	bool add_generation_prompt;
	/* The text ends where the last message's content ends, so that the model continues it. */
	bool continue_final_message;
	int64_t now_s; /* seconds since 1970 for strftime_now, in local time; 0: the clock's */
};

/* Appends the text to text and one trust byte per byte of it to trust. SL_EINVAL: the template
 * raised an exception or can't render these messages (*err is for the client); SL_ELIMIT: a bound. */
int chat_template_render(const struct chat_template *t, const struct chat_vars *vars, struct sl_buf *text,
			 struct sl_buf *trust, struct sl_err *err);

#endif
