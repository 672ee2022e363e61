/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of an answer's queue: written by remote_event.c, read by remote_answer.c.
 *
 *   record, text, piece, then n_top × (remote_top, piece)
 */
#ifndef ENGINE_REMOTE_QUEUE_H
#define ENGINE_REMOTE_QUEUE_H

#include "engine/remote/remote_answer.h"

enum {
	REMOTE_MARK_CALL = PROTO_NO_ID + 1,
	REMOTE_MARK_CALL_END,
	REMOTE_MARK_THINK,
	REMOTE_MARK_THINK_END,
};

struct remote_record {
	uint8_t choice;
	bool is_end; /* of the choice; nothing follows the record */
	uint32_t id; /* REMOTE_MARK_*, or 1 + the token's own; 0: it is not known */
	uint8_t n_top;
	uint16_t n_text;  /* at most REMOTE_TOKEN_TEXT */
	uint16_t n_piece; /* at most PROTO_MAX_PIECE; the token's own bytes */
	float logprob;
};

struct remote_top {
	float logprob;
	uint16_t n_piece;
};

/* 0, SL_ELIMIT, SL_ENOMEM. */
int remote_queue_put(struct remote_answer *a, const struct remote_record *r, const char *text, struct proto_str piece);
int remote_queue_put_top(struct remote_answer *a, float logprob, struct proto_str piece);

#endif
