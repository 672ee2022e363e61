/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat JSON of a request, validated as if nobody had done so before.
 */
#ifndef ENGINE_PROMPT_H
#define ENGINE_PROMPT_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

enum { PROMPT_MAX_DEPTH = 16, PROMPT_MAX_MESSAGES = 4096 };

/* {"messages":[{"role":…,"content":…},…]} → the messages array (owned: json_decref). SL_EINVAL with
 * a sentence for the client. */
int prompt_parse_chat(const char *text, size_t n, json_t **out, struct sl_err *err);

#endif
