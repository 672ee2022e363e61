/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of another API, written in the one form that the engine takes (chat_messages.h has the same for
 * OpenAI's). A turn is open until a message of another role, or turns_close, ends it. Everything added to it becomes
 * one message, with its text, reasoning and calls. Users' text is cleansed. Pure.
 */
#ifndef GATEWAY_TURNS_H
#define GATEWAY_TURNS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"

enum turn_role { TURN_NONE, TURN_SYSTEM, TURN_USER, TURN_ASSISTANT };

struct turns {
	struct sl_buf *out;
	const struct request_limits *l;
	struct cleanse_stats *cleansed;
	size_t n; /* messages written */
	enum turn_role open;
	struct sl_buf files;                  /* of the open turn: in their frames, before its text */
	struct sl_buf text, reasoning, calls; /* of the open turn; calls: JSON without the brackets */
};

/* All but init and dispose return 0, SL_ELIMIT or SL_ENOMEM. */

void turns_init(struct turns *t, struct sl_buf *out, const struct request_limits *l, struct cleanse_stats *cleansed);
void turns_dispose(struct turns *t);
/* Appends `"messages":[`. */
int turns_begin(struct turns *t);
/* Opens a turn of that role, or continues it; closes one of another role. */
int turns_open(struct turns *t, enum turn_role role);
/* Adds to the open turn. */
int turns_text(struct turns *t, const char *text, size_t n);
int turns_file(struct turns *t, const char *name, const char *text, size_t n);
int turns_reasoning(struct turns *t, const char *text, size_t n);
/* arguments: an object. */
int turns_call(struct turns *t, const char *id, const char *name, const json_t *arguments);
/* Adds a separate message: the result of the call `id`. name: the tool's; NULL: unknown. prefix: precedes the text. */
int turns_result(struct turns *t, const char *id, const char *name, const char *prefix, const char *text, size_t n);
int turns_close(struct turns *t);
/* Closes the open turn and appends `]`. */
int turns_end(struct turns *t);

#endif
