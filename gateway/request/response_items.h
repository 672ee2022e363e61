/* SPDX-License-Identifier: Apache-2.0
 *
 * The items of a response's conversation: what a client sends as input, what the server answered, and
 * what was stored of both. They have one normal form, and that becomes messages for the engine.
 */
#ifndef GATEWAY_RESPONSE_ITEMS_H
#define GATEWAY_RESPONSE_ITEMS_H

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"
#include "gateway/request/request_files.h"

/* Checks and normalises items of any origin (also those stored). param: their name in errors; most:
 * how many there may be. *out: a new array, the caller's, of
 *
 *   {"id"?, "type":"message", "role", "status", "content":[{"type":"input_text", "text"} …]}
 *       of a user, too, {"type":"input_file", "file_id"} or {"type":"input_file", "filename", "file_data"}; of an
 *       assistant {"type":"output_text", "text", "annotations":[], "logprobs":[]} and
 *       {"type":"refusal", "refusal"}
 *   {"id"?, "type":"function_call", "call_id", "name", "arguments", "status"}
 *   {"id"?, "type":"function_call_output", "call_id", "output": string or [{"type":"input_text"} …],
 *    "status"}
 *   {"id"?, "type":"reasoning", "summary":[…], "content"?: [{"type":"reasoning_text", "text"} …]}
 *
 * and "pinned":true in those that have it.
 *
 * 0, SL_EINVAL with *e filled, SL_ENOMEM; on failure *out is NULL. */
int response_items_normalise(const json_t *items, const char *param, size_t most, json_t **out,
			     struct request_error *e);
/* A text as one item, a user's message. NULL without memory. */
json_t *response_items_of_text(const json_t *text);

/* Appends messages of normal items, comma separated; *n_messages counts them; if it is not 0, the first
 * gets a comma. An assistant's reasoning, text and calls that follow one another are one
 * message. Users' messages are cleansed, which *cleansed counts. files: those that response_items_files noted, with
 * their texts. 0, SL_ELIMIT, SL_ENOMEM; SL_EINVAL: a file that is not among them. */
int response_items_put(struct sl_buf *out, const json_t *items, const struct request_files *files,
		       enum cleanse_level level, struct cleanse_stats *cleansed, size_t *n_messages);
/* Notes the files that normal items name, in *files. param: of the items. whole: errors name it alone, since the client
 * did not send the items. 0, or SL_EINVAL with *e. */
int response_items_files(const json_t *items, const char *param, bool whole, struct request_files *files,
			 struct request_error *e);

#endif
