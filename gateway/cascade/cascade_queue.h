/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of one model that are not released yet, as the engine's frames had them. First in,
 * first out.
 */
#ifndef GATEWAY_CASCADE_QUEUE_H
#define GATEWAY_CASCADE_QUEUE_H

#include "base/buf.h"
#include "base/proto/proto.h"

struct cascade_queue {
	uint8_t n_top; /* of each so many of the likeliest are kept, and with them pieces */
	bool pieces;
	uint32_t n; /* tokens */
	struct sl_buf lengths, records, text, piece_bytes;
};

/* n_top, pieces: reported with each token. */
void cascade_queue_init(struct cascade_queue *q, uint8_t n_top, bool pieces);
void cascade_queue_dispose(struct cascade_queue *q);

/* A frame of which tokens are taken one by one, from the first on. */
struct cascade_frame {
	const struct proto_tokens *m;
	uint16_t at;
	size_t text;             /* offset */
	struct proto_str pieces; /* those left */
};

void cascade_frame_begin(struct cascade_frame *f, const struct proto_tokens *m);
/* Appends the frame's next token. 0, SL_ENOMEM, SL_ELIMIT; then the queue is as it was. */
int cascade_queue_push(struct cascade_queue *q, struct cascade_frame *f);
/* The first tokens, at most n of them, of one choice, as a frame. It points into the queue until that changes.
 * n and q->n are above 0. */
void cascade_queue_front(const struct cascade_queue *q, uint32_t n, struct proto_tokens *out);
/* Drops the frame that was at the front. */
void cascade_queue_pop(struct cascade_queue *q, const struct proto_tokens *front);
void cascade_queue_clear(struct cascade_queue *q);
/* Keeps the first n tokens, of at least so many. */
void cascade_queue_keep(struct cascade_queue *q, uint32_t n);

#endif
