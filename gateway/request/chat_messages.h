/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a chat: checked, and written out again in the one form that the engine takes.
 */
#ifndef GATEWAY_CHAT_MESSAGES_H
#define GATEWAY_CHAT_MESSAGES_H

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "gateway/request/request_fields.h"

/* Appends `"messages":[…]` from an array (body.messages, or NULL where there is none). Users' messages
 * are cleansed as l says, which *cleansed counts. 0, SL_EINVAL with *e filled, SL_ELIMIT, SL_ENOMEM. */
int chat_messages_put(struct sl_buf *out, const json_t *messages, const struct request_limits *l,
		      struct cleanse_stats *cleansed, struct request_error *e);

#endif
