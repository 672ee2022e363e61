/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated tokens of one model that are not released yet, in the layout of TOKENS frames. First in, first out.
 */
#ifndef GATEWAY_CASCADE_QUEUE_H
#define GATEWAY_CASCADE_QUEUE_H

#include "base/buf.h"
#include "base/proto/proto.h"

struct cascade_queue {
	uint8_t n_top; /* alternatives kept for each token */
	bool pieces;   /* the bytes of each token and alternative are kept */
	uint32_t n;    /* tokens */
	struct sl_buf lengths, records, text, piece_bytes;
};

/* n_top, pieces: what the request asked for. */
void cascade_queue_init(struct cascade_queue *q, uint8_t n_top, bool pieces);
void cascade_queue_dispose(struct cascade_queue *q);

/* Iterates over the tokens of a frame. */
struct cascade_frame {
	const struct proto_tokens *m;
	uint16_t at;
	size_t text;             /* offset */
	struct proto_str pieces; /* the remaining ones */
};

void cascade_frame_begin(struct cascade_frame *f, const struct proto_tokens *m);
/* Appends the frame's next token. 0, SL_ENOMEM, SL_ELIMIT; on error the queue is unchanged. */
int cascade_queue_push(struct cascade_queue *q, struct cascade_frame *f);
/* The first tokens of one choice, at most n, as a frame that points into the queue until that changes. n and q->n must
 * be above 0. */
void cascade_queue_front(const struct cascade_queue *q, uint32_t n, struct proto_tokens *out);
/* Drops the frame that cascade_queue_front returned. */
void cascade_queue_pop(struct cascade_queue *q, const struct proto_tokens *front);
void cascade_queue_clear(struct cascade_queue *q);
/* Drops all tokens after the first n; n is at most q->n. */
void cascade_queue_keep(struct cascade_queue *q, uint32_t n);

#endif
