/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat JSON of a request. Validates everything, although the gateway already has.
 *
 *   {"messages": […], "tools": […], "documents": […], "chat_template_kwargs": {…},
 *    "add_generation_prompt": true, "continue_final_message": false}
 *
 * A message has a role and content: a string, a list of {"type":"text","text":…}, or for an assistant with reasoning or
 * calls also null or nothing. Other members go to the template unchanged. Call arguments that are a string holding a
 * JSON object (as in OpenAI's API) become that object, which templates expect.
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
	bool add_generation_prompt;                  /* default: !continue_final_message */
	bool continue_final_message;
	uint8_t refused; /* after SL_EINVAL: the enum proto_error of one field, or 0 */
};

/* SL_EINVAL with a message for the client, SL_ENOMEM; then *out is empty except for `refused`. */
int prompt_parse_chat(const char *text, size_t n, struct prompt_chat *out, struct sl_err *err);
/* Gives every call the id prefix + name + ":" + its number in the conversation, and its result the same. 0, SL_ENOMEM.
 */
int prompt_number_calls(struct prompt_chat *c, const char *prefix);
void prompt_chat_dispose(struct prompt_chat *c);

#endif
