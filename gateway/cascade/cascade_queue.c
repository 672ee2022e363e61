/* SPDX-License-Identifier: Apache-2.0
 *
 * Four buffers: each token's lengths, its record as in a TOKENS frame (12 + 8 · n_top bytes), its text and its pieces.
 * So any run of tokens is a frame without copying.
 *
 * Alternatives that only the confidence needs are dropped here, when a token is queued.
 */
#include "gateway/cascade/cascade_queue.h"

#include <string.h>

enum {
	MAX_TOKENS = 1 << 17, /* at most one window can be held back */
	MAX_TEXT = 16 << 20,
	MAX_PIECES = 64 << 20,
	RECORD_BYTES = 12,
	TOP_BYTES = 8,
	KEEP = 1 << 12, /* bytes of each buffer that stay allocated when it is empty */
};

struct length {
	uint16_t text;
	uint16_t choice;
	uint32_t pieces;
};

void cascade_queue_init(struct cascade_queue *q, uint8_t n_top, bool pieces)
{
	*q = (struct cascade_queue){.n_top = n_top, .pieces = pieces};
	buf_init(&q->lengths, MAX_TOKENS * sizeof(struct length));
	buf_init(&q->records, (size_t)MAX_TOKENS * (RECORD_BYTES + TOP_BYTES * PROTO_MAX_TOP_LOGPROBS));
	buf_init(&q->text, MAX_TEXT);
	buf_init(&q->piece_bytes, MAX_PIECES);
}

void cascade_queue_dispose(struct cascade_queue *q)
{
	buf_dispose(&q->lengths);
	buf_dispose(&q->records);
	buf_dispose(&q->text);
	buf_dispose(&q->piece_bytes);
}

void cascade_queue_clear(struct cascade_queue *q)
{
	q->n = 0;
	buf_clear(&q->lengths, KEEP);
	buf_clear(&q->records, KEEP);
	buf_clear(&q->text, KEEP);
	buf_clear(&q->piece_bytes, KEEP);
}

void cascade_frame_begin(struct cascade_frame *f, const struct proto_tokens *m)
{
	*f = (struct cascade_frame){.m = m, .pieces = m->pieces.all};
}

/* Skips the pieces of the frame's next token. Returns where they begin; *n: bytes of the token and its first n_top
 * alternatives. */
static const char *take_pieces(struct cascade_frame *f, uint8_t n_top, size_t *n)
{
	const char *from = f->pieces.at;
	*n = 0;
	for (int k = 0; f->pieces.n > 0 && k <= f->m->n_top; k++) {
		proto_piece_next(&f->pieces);
		if (k <= n_top)
			*n = (size_t)(f->pieces.at - from);
	}
	return from;
}

int cascade_queue_push(struct cascade_queue *q, struct cascade_frame *f)
{
	const struct proto_tokens *m = f->m;
	static const uint8_t none[TOP_BYTES] = {0, 0, 0, 0, 0, 0, 0x80, 0xff}; /* token 0, minus infinity */
	uint8_t given = m->n_top < q->n_top ? m->n_top : q->n_top;
	size_t n_pieces, before[] = {q->lengths.len, q->records.len, q->text.len, q->piece_bytes.len};
	const uint8_t *record = m->records + f->at * (size_t)(RECORD_BYTES + TOP_BYTES * m->n_top);
	struct proto_token t = proto_token_at(m, f->at);
	const char *pieces = take_pieces(f, q->n_top, &n_pieces);
	if (!q->pieces || given < q->n_top)
		n_pieces = 0;
	struct length len = {.text = t.n_bytes, .choice = m->choice, .pieces = (uint32_t)n_pieces};
	int rc = buf_append(&q->lengths, &len, sizeof len);
	if (rc == 0)
		rc = buf_append(&q->records, record, RECORD_BYTES + (size_t)TOP_BYTES * given);
	for (uint8_t k = given; rc == 0 && k < q->n_top; k++)
		rc = buf_append(&q->records, none, sizeof none);
	if (rc == 0 && t.n_bytes > 0)
		rc = buf_append(&q->text, m->text.at + f->text, t.n_bytes);
	if (rc == 0 && n_pieces > 0)
		rc = buf_append(&q->piece_bytes, pieces, n_pieces);
	f->at++;
	f->text += t.n_bytes;
	if (rc != 0) {
		buf_cut(&q->lengths, before[0]);
		buf_cut(&q->records, before[1]);
		buf_cut(&q->text, before[2]);
		buf_cut(&q->piece_bytes, before[3]);
		return rc;
	}
	q->n++;
	return 0;
}

static struct length length_at(const struct cascade_queue *q, uint32_t i)
{
	struct length len;
	memcpy(&len, buf_data(&q->lengths) + i * sizeof len, sizeof len);
	return len;
}

static const char *text_of(const struct sl_buf *b) { return b->len > 0 ? (const char *)buf_data(b) : ""; }

void cascade_queue_keep(struct cascade_queue *q, uint32_t n)
{
	size_t text = 0, pieces = 0;
	if (n == 0) {
		cascade_queue_clear(q);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct length len = length_at(q, i);
		text += len.text;
		pieces += len.pieces;
	}
	q->n = n;
	buf_cut(&q->lengths, n * sizeof(struct length));
	buf_cut(&q->records, n * (size_t)(RECORD_BYTES + TOP_BYTES * q->n_top));
	buf_cut(&q->text, text);
	buf_cut(&q->piece_bytes, pieces);
}

void cascade_queue_front(const struct cascade_queue *q, uint32_t n, struct proto_tokens *out)
{
	size_t text = 0, pieces = 0;
	uint16_t i = 0, choice = length_at(q, 0).choice;
	for (; i < n && i < q->n && i < PROTO_MAX_TOKENS_PER_FRAME; i++) {
		struct length len = length_at(q, i);
		/* A frame has pieces for all its tokens or for none. */
		if (len.choice != choice || (i > 0 && (len.pieces > 0) != (pieces > 0)))
			break;
		text += len.text;
		pieces += len.pieces;
	}
	*out = (struct proto_tokens){.n = i,
				     .choice = (uint8_t)choice,
				     .n_top = q->n_top,
				     .records = buf_data(&q->records),
				     .text = {text_of(&q->text), text},
				     .pieces.all = {text_of(&q->piece_bytes), pieces}};
}

void cascade_queue_pop(struct cascade_queue *q, const struct proto_tokens *front)
{
	buf_consume(&q->lengths, front->n * sizeof(struct length));
	buf_consume(&q->records, front->n * (size_t)(RECORD_BYTES + TOP_BYTES * q->n_top));
	buf_consume(&q->text, front->text.n);
	buf_consume(&q->piece_bytes, front->pieces.all.n);
	q->n -= front->n;
	if (q->n == 0)
		cascade_queue_clear(q);
}
