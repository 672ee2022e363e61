/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue: records of tokens and of choices' ends. What fills it is in remote_event.c.
 */
#include "engine/remote/remote_answer.h"

#include <string.h>

#include "base/parts/parts_format.h"
#include "engine/remote/remote_queue.h"

/* ---- the announced form ---- */

static const struct {
	const char *literal;
	int32_t id;
} markers[] = {{"<tool_call>", REMOTE_MARK_CALL},
	       {"</tool_call>", REMOTE_MARK_CALL_END},
	       {"<think>", REMOTE_MARK_THINK},
	       {"</think>", REMOTE_MARK_THINK_END}};

static int32_t marker_of(const char *literal)
{
	for (size_t i = 0; i < sizeof markers / sizeof *markers; i++)
		if (strcmp(markers[i].literal, literal) == 0)
			return markers[i].id;
	return -1;
}

void remote_model_parts(struct proto_model *m)
{
	const char *literals[PARTS_MAX_LITERALS];
	size_t n = parts_format_literals(PARTS_HERMES, PARTS_REASONING_THINK, literals, PARTS_MAX_LITERALS);
	m->format = PARTS_HERMES;
	m->reasoning = PARTS_REASONING_THINK;
	m->n_markers = (uint8_t)(n < PROTO_MAX_MARKERS ? n : PROTO_MAX_MARKERS);
	for (uint8_t i = 0; i < m->n_markers; i++)
		m->markers[i] = marker_of(literals[i]);
}

/* ---- life ---- */

void remote_answer_init(struct remote_answer *a, const struct proto_submit *asked, uint32_t prompt_most)
{
	*a = (struct remote_answer){.asked = asked, .prompt_most = prompt_most};
	buf_init(&a->queue, REMOTE_QUEUE_MAX);
	remote_form_init(&a->form);
	for (int i = 0; i < PROTO_MAX_CHOICES; i++)
		a->choices[i].call = -1;
}

void remote_answer_dispose(struct remote_answer *a)
{
	buf_dispose(&a->queue);
	remote_form_dispose(&a->form);
}

bool remote_answer_ended(const struct remote_answer *a)
{
	for (int i = 0; i < a->asked->n; i++)
		if (a->choices[i].finish == 0)
			return false;
	return true;
}

uint32_t remote_answer_tokens(const struct remote_answer *a)
{
	uint64_t n = 0, most = (uint64_t)a->asked->max_tokens * a->asked->n;
	for (int i = 0; i < a->asked->n; i++)
		n += a->choices[i].n_deltas;
	n = n < most ? n : most;
	n = a->usage.known && !a->usage.is_false ? a->usage.n_completion : n;
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* ---- writing ---- */

int remote_queue_put(struct remote_answer *a, const struct remote_record *r, const char *text, struct proto_str piece)
{
	struct remote_record all = *r;
	all.n_piece = (uint16_t)piece.n;
	int rc = buf_append(&a->queue, &all, sizeof all);
	rc = rc == 0 ? buf_append(&a->queue, text, r->n_text) : rc;
	return rc == 0 ? buf_append(&a->queue, piece.at, piece.n) : rc;
}

int remote_queue_put_top(struct remote_answer *a, float logprob, struct proto_str piece)
{
	struct remote_top top = {.logprob = logprob, .n_piece = (uint16_t)piece.n};
	int rc = buf_append(&a->queue, &top, sizeof top);
	return rc == 0 ? buf_append(&a->queue, piece.at, piece.n) : rc;
}

/* ---- reading ---- */

void remote_frame_init(struct remote_frame *f)
{
	*f = (struct remote_frame){0};
	buf_init(&f->text, PROTO_MAX_TEXT_PER_FRAME);
}

void remote_frame_dispose(struct remote_frame *f) { buf_dispose(&f->text); }

static bool record_at(const struct remote_answer *a, size_t at, struct remote_record *out)
{
	if (at >= a->queue.len)
		return false;
	memcpy(out, buf_data(&a->queue) + at, sizeof *out);
	return true;
}

enum remote_next remote_answer_next(const struct remote_answer *a)
{
	struct remote_record r;
	if (!record_at(a, 0, &r))
		return REMOTE_NEXT_NONE;
	return r.is_end ? REMOTE_NEXT_END : REMOTE_NEXT_TOKENS;
}

static struct proto_str piece_of(const void *ctx, uint32_t id)
{
	const struct remote_frame *f = ctx;
	if (id >= REMOTE_TOP_ID)
		return f->top_pieces[id - REMOTE_TOP_ID];
	for (uint16_t i = 0; i < f->tokens.n; i++)
		if (f->list[i].id == id)
			return f->pieces[i];
	return (struct proto_str){"", 0};
}

/* The record's likeliest tokens; returns the offset after them. */
static size_t read_tops(const struct remote_answer *a, size_t at, uint8_t n, struct remote_frame *f, size_t to)
{
	const char *q = (const char *)buf_data(&a->queue);
	for (uint8_t k = 0; k < n; k++, to++) {
		struct remote_top top;
		memcpy(&top, q + at, sizeof top);
		at += sizeof top;
		f->tops[to] = (struct proto_id_f32){REMOTE_TOP_ID + (uint32_t)to, top.logprob};
		f->top_pieces[to] = (struct proto_str){q + at, top.n_piece};
		at += top.n_piece;
	}
	return at;
}

/* Adds the record at an offset; returns the offset after it. */
static size_t add(struct remote_answer *a, size_t at, const struct remote_record *r, struct remote_frame *f)
{
	const char *q = (const char *)buf_data(&a->queue);
	uint16_t i = f->tokens.n++;
	uint32_t id = r->id > PROTO_NO_ID ? r->id
		      : r->id > 0
			  ? r->id - 1
			  : REMOTE_FIRST_ID + (a->choices[r->choice].n_sent + i) % (REMOTE_TOP_ID - REMOTE_FIRST_ID);
	at += sizeof *r;
	f->list[i] = (struct proto_token){.id = id, .logprob = r->logprob, .n_bytes = r->n_text};
	buf_append(&f->text, q + at, r->n_text);
	at += r->n_text;
	f->pieces[i] = (struct proto_str){q + at, r->n_piece};
	return read_tops(a, at + r->n_piece, r->n_top, f, (size_t)i * r->n_top);
}

int remote_answer_look(struct remote_answer *a, uint32_t most, struct remote_frame *f)
{
	struct remote_record first, r;
	uint8_t *room;
	most = most < REMOTE_FRAME_TOKENS ? most : REMOTE_FRAME_TOKENS;
	BUG_IF(!record_at(a, 0, &first) || first.is_end || most == 0, "remote: no tokens");
	buf_clear(&f->text, 64 << 10);
	int rc = buf_reserve(&f->text, (size_t)REMOTE_FRAME_TOKENS * REMOTE_TOKEN_TEXT, &room);
	f->tokens = (struct proto_tokens){.choice = first.choice, .n_top = first.n_top};
	f->n_bytes = 0;
	while (rc == 0 && f->tokens.n < most && record_at(a, f->n_bytes, &r) && !r.is_end && r.choice == first.choice &&
	       r.n_top == first.n_top)
		f->n_bytes = add(a, f->n_bytes, &r, f);
	f->tokens.tokens = f->list;
	f->tokens.tops = f->tops;
	f->tokens.text = (struct proto_str){(const char *)buf_data(&f->text), f->text.len};
	if ((a->asked->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0)
		f->tokens.pieces = (struct proto_pieces){.of = piece_of, .ctx = f};
	return rc;
}

void remote_answer_drop(struct remote_answer *a, const struct remote_frame *f)
{
	a->choices[f->tokens.choice].n_sent += f->tokens.n;
	buf_consume(&a->queue, f->n_bytes);
}

uint8_t remote_answer_take_end(struct remote_answer *a)
{
	struct remote_record r;
	BUG_IF(!record_at(a, 0, &r) || !r.is_end, "remote: no choice ends");
	buf_consume(&a->queue, sizeof r);
	return r.choice;
}
