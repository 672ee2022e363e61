/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat JSON of a request, validated as if nobody had done so before.
 *
 *   {"messages": […], "tools": […], "documents": […], "chat_template_kwargs": {…},
 *    "add_generation_prompt": true, "continue_final_message": false}
 *
 * Messages have a role and content: a string, a list of {"type":"text","text":…}, or for an
 * assistant with reasoning or calls also null or nothing. Other members go to the template as they
 * are. A call's arguments that are a JSON object in a string (as OpenAI's API has them) become that
 * object, which is what templates expect.
 */
#ifndef ENGINE_PROMPT_H
#define ENGINE_PROMPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
	PROMPT_MAX_DEPTH = 32,
	PROMPT_MAX_MESSAGES = 4096,
	PROMPT_MAX_PARTS = 1024, /* of a message */
	PROMPT_MAX_CALLS = 256,  /* of a message */
	PROMPT_MAX_TOOLS = 1024,
	PROMPT_MAX_DOCUMENTS = 1024,
	PROMPT_MAX_VARIABLES = 64, /* chat_template_kwargs */
};

struct prompt_chat {
	json_t *root; /* owned; the rest is borrowed from it */
	const json_t *messages;
	const json_t *tools, *documents, *variables; /* NULL: none */
	bool add_generation_prompt;                  /* true unless said otherwise or a message is continued */
	bool continue_final_message;
	uint8_t refused; /* after SL_EINVAL: enum proto_error where that is about one field; else 0 */
};

/* SL_EINVAL with a sentence for the client, SL_ENOMEM; *out is then empty, but for `refused`. */
int prompt_parse_chat(const char *text, size_t n, struct prompt_chat *out, struct sl_err *err);
void prompt_chat_dispose(struct prompt_chat *c);

#endif
