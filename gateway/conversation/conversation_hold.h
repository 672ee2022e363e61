/* SPDX-License-Identifier: Apache-2.0
 *
 * A turn of a conversation: it is held from before the answer begins until input and output are added,
 * so that turns come one after the other. It outlives its request until the store has been updated.
 * Thread: its application's.
 */
#ifndef GATEWAY_CONVERSATION_HOLD_H
#define GATEWAY_CONVERSATION_HOLD_H

#include <jansson.h>
#include <stdbool.h>

#include "gateway/conversation/conversation.h"

struct conversation_turn;

/* taken is called once, from the loop: doc (lent) with what on OK, otherwise a is what came instead and
 * the turn is over. Not after conversation_turn_drop. response: the name of what will be made.
 * NULL: no memory. */
struct conversation_turn *
conversation_turn_take(struct gw_app *app, uint64_t tenant, const char *id, const char *response,
		       void (*taken)(void *ctx, const struct conversation_answer *a, json_t *doc), void *ctx);
/* The conversation's items are now these (borrowed). added is called once with the outcome, and the turn
 * is over; not after conversation_turn_drop. SL_ENOMEM: nothing follows, it is to be dropped. */
int conversation_turn_add(struct conversation_turn *t, json_t *items, void (*added)(void *ctx, int what), void *ctx);
/* The response is stored under its name, whatever becomes of the turn. NULL is fine. */
void conversation_turn_keep(struct conversation_turn *t);
/* The answer failed, or its request has gone. NULL is allowed. */
void conversation_turn_drop(struct conversation_turn *t);

/* The application goes. */
void conversation_turns_stop(struct gw_app *app);

#endif
