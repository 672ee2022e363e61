/* SPDX-License-Identifier: Apache-2.0
 *
 * Events. Text of one kind is collected until another kind follows or the token is handled. Blanks at the end of a run
 * of text wait: before a call they are dropped, unless text of the same kind follows later; then they separate the two.
 */
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/parts/parts_priv.h"

void out_failed(struct parts *p, int rc)
{
	if (p->rc == 0 && rc < 0)
		p->rc = rc;
}

static void send(struct parts *p, struct parts_event e)
{
	if (p->rc == 0)
		out_failed(p, p->on_event(p->ctx, &e));
}

void out_flush(struct parts *p)
{
	if (p->out.len == 0)
		return;
	bool args = p->out_kind == PARTS_CALL_ARGUMENTS;
	send(p, (struct parts_event){.kind = p->out_kind,
				     .index = args ? p->n_calls - 1 : 0,
				     .text = (const char *)buf_data(&p->out),
				     .n = p->out.len});
	buf_clear(&p->out, 4096);
}

static void collect(struct parts *p, enum parts_event_kind kind, const char *text, size_t n)
{
	if (n == 0)
		return;
	if (p->out_kind != kind)
		out_flush(p);
	p->out_kind = kind;
	out_failed(p, buf_append(&p->out, text, n));
}

/* ---- content and reasoning ---- */

static void show(struct parts *p, const char *text, size_t n)
{
	struct text_out *t = &p->text[p->kind];
	enum parts_event_kind kind = p->kind == TEXT_CONTENT ? PARTS_CONTENT : PARTS_REASONING;
	collect(p, kind, t->blanks, t->n_blanks);
	collect(p, kind, text, n);
	t->n_blanks = 0;
	t->fresh = false;
	t->shown = true;
}

/* More blanks than can be held are text: emits the held ones and holds the following ones. */
static void hold(struct parts *p, const char *blanks, size_t n)
{
	struct text_out *t = &p->text[p->kind];
	while (n > 0) {
		if (t->n_blanks == MAX_BLANKS)
			show(p, "", 0);
		size_t room = (size_t)(MAX_BLANKS - t->n_blanks), piece = n < room ? n : room;
		memcpy(t->blanks + t->n_blanks, blanks, piece);
		t->n_blanks = (uint8_t)(t->n_blanks + piece);
		blanks += piece;
		n -= piece;
	}
}

void out_text(struct parts *p, const char *text, size_t n)
{
	size_t lead = 0, end = n;
	while (p->text[p->kind].fresh && lead < n && lex_blank((uint8_t)text[lead]))
		lead++;
	while (end > lead && lex_blank((uint8_t)text[end - 1]))
		end--;
	if (end > lead) {
		show(p, text + lead, end - lead);
		p->begins = false;
	}
	hold(p, text + end, n - end);
}

void out_queue(struct parts *p, size_t n)
{
	/* Runs without markers and escapes. */
	const char *q = (const char *)buf_data(&p->queue);
	size_t at = 0, len;
	while (at < n) {
		const char *odd = memchr(q + at, 0xff, n - at);
		size_t plain = odd != NULL ? (size_t)(odd - q) - at : n - at;
		out_text(p, q + at, plain);
		at += plain;
		if (at < n) {
			if (lex_at(p, at, &len) < SYM_MARKER)
				out_text(p, q + at, 1);
			at += len;
		}
	}
	lex_consume(p, n);
}

void out_switch(struct parts *p, enum text_kind kind)
{
	for (int k = 0; k < 2; k++) {
		struct text_out *t = &p->text[k];
		t->fresh = true;
		if (!t->shown)
			t->n_blanks = 0;
	}
	p->kind = kind;
	p->begins = true;
}

void out_finish(struct parts *p)
{
	struct text_out *t = &p->text[p->kind];
	if (!t->fresh && t->n_blanks > 0)
		show(p, "", 0);
	out_flush(p);
}

/* ---- calls ---- */

void out_call_begin(struct parts *p)
{
	const char *name = tools_name(p->tools, p->tool);
	out_switch(p, TEXT_CONTENT);
	out_flush(p);
	p->any_args = false;
	send(p, (struct parts_event){.kind = PARTS_CALL_BEGIN, .index = p->n_calls++, .text = name, .n = strlen(name)});
}

void out_args(struct parts *p, const char *text, size_t n)
{
	p->any_args = p->any_args || n > 0;
	collect(p, PARTS_CALL_ARGUMENTS, text, n);
}

void out_args_str(struct parts *p, const char *text) { out_args(p, text, strlen(text)); }

void out_args_escaped(struct parts *p, const char *text, size_t n)
{
	char room[JSON_ESCAPED_MAX(256)];
	while (n > 0) {
		size_t piece = n < 256 ? n : 256;
		out_args(p, room, (size_t)(json_escape(room, text, piece) - room));
		text += piece;
		n -= piece;
	}
}

void out_args_queue(struct parts *p, size_t from, size_t to)
{
	size_t n;
	for (; from < to; from += n) {
		int sym = lex_at(p, from, &n);
		char byte = (char)sym;
		if (sym == SYM_END)
			return;
		if (sym < SYM_MARKER)
			out_args_escaped(p, &byte, 1);
	}
}

void out_call_end(struct parts *p, bool cut)
{
	if (!p->any_args && !cut)
		out_args(p, "{}", 2);
	/* A call that the end of the tokens cuts may leave an incomplete word or literal. */
	if (cut && p->final)
		lex_consume(p, p->queue.len);
	out_flush(p);
	send(p, (struct parts_event){.kind = PARTS_CALL_END, .index = p->n_calls - 1, .cut = cut});
	p->state = p->one_call ? ST_STOPPED : ST_BETWEEN;
}
