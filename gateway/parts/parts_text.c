/* SPDX-License-Identifier: Apache-2.0
 *
 * Content and reasoning: passes text on up to the next literal that has a meaning there.
 */
#include <string.h>

#include "gateway/parts/parts_priv.h"

static void add_trigger(struct parts *p, const char *lit, enum trigger_what what)
{
	if (lit == NULL)
		return;
	for (int i = 0; i < p->n_triggers; i++)
		if (strcmp(p->triggers[i].lit, lit) == 0)
			return;
	bool marker = lex_is_marker(p, lit);
	p->triggers[p->n_triggers++] =
	    (struct trigger){.lit = lit, .n = (uint8_t)strlen(lit), .marker = marker, .what = what};
	uint8_t bit = (uint8_t)(1u << ((uint8_t)lit[0] & 7));
	for (int kind = 0; kind < 2 && !marker; kind++)
		p->first[kind][(uint8_t)lit[0] >> 3] |= bit;
}

void text_init(struct parts *p)
{
	add_trigger(p, p->reasoning->open, TRIGGER_OPEN);
	add_trigger(p, p->reasoning->close, TRIGGER_CLOSE);
	for (int i = 0; i < p->format->n_forms; i++) {
		const struct parts_form *f = &p->format->forms[i];
		if (p->tools == NULL && f->syntax != PARTS_SYNTAX_CHANNEL)
			continue;
		add_trigger(p, f->open, TRIGGER_CALL);
		/* FunctionGemma's "call:" counts only within its section. */
		if (f->syntax != PARTS_SYNTAX_PYTHON)
			add_trigger(p, f->call, TRIGGER_CALL);
	}
}

static bool applies(const struct parts *p, const struct trigger *t)
{
	bool reasoning = p->kind == TEXT_REASONING;
	switch (t->what) {
	case TRIGGER_CALL: return !reasoning || t->marker;
	case TRIGGER_CLOSE: return reasoning;
	case TRIGGER_OPEN: return p->begins || (t->marker && !reasoning);
	}
	return false;
}

static void act(struct parts *p, const struct trigger *t, size_t n)
{
	if (t->what == TRIGGER_CALL) {
		p->front = n;
		p->state = ST_HEAD;
		return;
	}
	lex_consume(p, n);
	if (t->what == TRIGGER_OPEN && p->kind == TEXT_CONTENT)
		out_switch(p, TEXT_REASONING);
	if (t->what == TRIGGER_OPEN)
		p->label = p->reasoning->label;
	else if (t->what == TRIGGER_CLOSE)
		out_switch(p, TEXT_CONTENT);
}

/* Is a literal at the offset? YES: the trigger and its end; MORE: undecided. */
static enum verdict find(const struct parts *p, size_t at, const struct trigger **t, size_t *end)
{
	for (int i = 0; i < p->n_triggers; i++) {
		*t = &p->triggers[i];
		enum verdict v = applies(p, *t) ? lex_match(p, at, (*t)->lit, end) : NO;
		if (v != NO)
			return v;
	}
	return NO;
}

/* The end of a section or call after text is not text. */
static enum verdict find_stray(const struct parts *p, size_t at, size_t *end)
{
	if (p->section == NULL || p->kind == TEXT_REASONING)
		return NO;
	enum verdict v = lex_match(p, at, p->section->close, end);
	return v != NO ? v : lex_match(p, at, p->section->end, end);
}

static bool may_begin(const struct parts *p, int sym)
{
	if (sym >= SYM_MARKER)
		return true;
	if (p->section != NULL && ((p->section->close != NULL && sym == (uint8_t)p->section->close[0]) ||
				   (p->section->end != NULL && sym == (uint8_t)p->section->end[0])))
		return true;
	return (p->first[p->kind][sym >> 3] >> (sym & 7) & 1) != 0;
}

static bool bare_forms(const struct parts *p)
{
	for (int i = 0; i < p->format->n_forms && p->tools != NULL; i++)
		if (p->format->forms[i].bare)
			return true;
	return false;
}

/* Text begins with something other than a literal. */
static bool begin_text(struct parts *p, size_t at)
{
	p->begins = false;
	if (p->kind == TEXT_REASONING || !bare_forms(p))
		return false;
	out_queue(p, at);
	p->front = 0;
	p->state = ST_HEAD;
	return true;
}

/* A marker without meaning here; in harmony it ends a message. */
static void drop_marker(struct parts *p, size_t at, size_t n)
{
	out_queue(p, at);
	lex_consume(p, n);
	if (p->format->forms[0].syntax == PARTS_SYNTAX_CHANNEL && p->kind == TEXT_REASONING)
		out_switch(p, TEXT_CONTENT);
}

/* Handles the symbol at the offset, after emitting text up to it. *at moves past a symbol that is text. */
static bool at_symbol(struct parts *p, size_t *at, int sym, size_t n, bool *wait)
{
	const struct trigger *t;
	size_t end;
	enum verdict v = may_begin(p, sym) ? find(p, *at, &t, &end) : NO, stray = NO;
	if (v == NO && may_begin(p, sym))
		stray = find_stray(p, *at, &end);
	*wait = v == MORE || stray == MORE;
	if (v == YES) {
		size_t len = end - *at;
		out_queue(p, *at);
		act(p, t, len);
		return true;
	}
	if (stray == YES) {
		out_queue(p, *at);
		if (p->section->close != NULL && lex_match(p, 0, p->section->close, &n) == YES)
			p->section = NULL;
		lex_consume(p, end - *at);
		return true;
	}
	if (!*wait && sym < SYM_MARKER && p->begins && !lex_blank(sym) && begin_text(p, *at))
		return true;
	if (sym >= SYM_MARKER) {
		drop_marker(p, *at, n);
		return true;
	}
	*at += *wait ? 0 : n;
	return false;
}

static bool skip_label(struct parts *p)
{
	size_t end = 0;
	enum verdict v = lex_match(p, 0, p->label, &end);
	if (v == MORE)
		return false;
	if (v == YES)
		lex_consume(p, end);
	p->label = NULL;
	return true;
}

/* Behind the bytes from an offset on that are text and nothing else: nearly all of an answer's. */
static size_t plain_end(const struct parts *p, size_t at)
{
	const uint8_t *q = buf_data(&p->queue);
	size_t seen = lex_seen(p);
	while (!p->begins && at < seen && q[at] != LEX_ESCAPE && !may_begin(p, q[at]))
		at++;
	return at;
}

bool text_step(struct parts *p)
{
	size_t at = 0, n;
	int sym;
	bool wait = false;
	if (p->label != NULL && p->queue.len > 0)
		return skip_label(p);
	while (!wait) {
		at = plain_end(p, at);
		sym = lex_at(p, at, &n);
		if (sym == SYM_END)
			break;
		if (at_symbol(p, &at, sym, n, &wait))
			return true;
	}
	out_queue(p, at);
	return at > 0;
}
