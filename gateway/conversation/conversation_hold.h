/* SPDX-License-Identifier: Apache-2.0
 *
 * A turn holds its conversation from before the answer begins until its input and output are appended, so turns run one
 * after the other. It outlives its request until the store is updated.
 *
 *   TAKING ──held──► HELD ──conversation_turn_add──► ADDING ──► freed
 *      │              └──conversation_turn_drop──► FREEING ──► freed
 *      └─refused──► freed
 *
 * Transitions: on_taken (TAKING), conversation_turn_add and set_free (HELD), on_added, on_freed. HELD is renewed every
 * 6 s; a lease lasts 20 s. A turn that is dropped while TAKING or ADDING waits for the store without calling back.
 *
 * Thread: the thread of the application.
 */
#ifndef GATEWAY_CONVERSATION_HOLD_H
#define GATEWAY_CONVERSATION_HOLD_H

#include <jansson.h>
#include <stdbool.h>

#include "gateway/conversation/conversation.h"

struct conversation_turn;

/* Calls taken once, from the loop, unless the turn is dropped before: doc is the document (borrowed) if a->what is OK;
 * otherwise doc is NULL and the turn is freed. response: the id of the response to be generated. NULL: no memory. */
struct conversation_turn *
conversation_turn_take(struct gw_app *app, uint64_t tenant, const char *id, const char *response,
		       void (*taken)(void *ctx, const struct conversation_answer *a, json_t *doc), void *ctx);
/* Stores items (borrowed) as the conversation's and ends the turn. Calls added once with the outcome, unless the turn
 * is dropped before. SL_ENOMEM: added is not called; drop the turn. */
int conversation_turn_add(struct conversation_turn *t, json_t *items, void (*added)(void *ctx, int what), void *ctx);
/* The response is stored: its id stays in the conversation's list even if the turn fails. NULL allowed. */
void conversation_turn_keep(struct conversation_turn *t);
/* The answer failed, or its client left. NULL allowed. */
void conversation_turn_drop(struct conversation_turn *t);

/* Frees all turns when the application is destroyed. */
void conversation_turns_stop(struct gw_app *app);

#endif
