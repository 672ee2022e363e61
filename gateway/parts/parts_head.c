/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning of a call, up to its name. It is short, so it is held in the queue and parsed again with every token.
 * Nothing is consumed before the name is known to be a declared tool's.
 */
#include <string.h>

#include "gateway/parts/parts_priv.h"

static bool find_prefixed(const struct parts *p, const char *name, size_t n, size_t *tool)
{
	size_t skip = p->format->prefix != NULL ? strlen(p->format->prefix) : 0;
	if (tools_find(p->tools, name, n, tool))
		return true;
	return skip > 0 && n > skip && memcmp(name, p->format->prefix, skip) == 0 &&
	       tools_find(p->tools, name + skip, n - skip, tool);
}

bool head_tool(const struct parts *p, size_t from, size_t to, size_t *tool)
{
	const char *name = (const char *)buf_data(&p->queue) + from;
	size_t n = to - from, digits = 0;
	if (p->tools == NULL || n == 0 || n > 2 * PARTS_MAX_NAME || memchr(name, 0xff, n) != NULL)
		return false;
	if (find_prefixed(p, name, n, tool))
		return true;
	while (digits < n && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9')
		digits++;
	return p->format->numbered && digits > 0 && digits < n && name[n - 1 - digits] == ':' &&
	       find_prefixed(p, name, n - 1 - digits, tool);
}

/* ---- NAMED and TAGGED ---- */

static enum verdict name_text(const struct parts *p, size_t at, struct head *h)
{
	size_t n;
	h->name = at;
	while (lex_name_byte(lex_at(p, at, &n)) && at - h->name <= 2 * PARTS_MAX_NAME)
		at += n;
	h->name_end = h->end = at;
	if (lex_at(p, at, &n) == SYM_END)
		return lex_wait(p);
	return at > h->name ? YES : NO;
}

/* [CALL_ID] and the identifier after it. */
static enum verdict skip_id(const struct parts *p, const struct parts_form *f, struct head *h)
{
	size_t at, n;
	enum verdict v = lex_match(p, h->end, f->id, &at);
	if (v != YES)
		return v == NO ? YES : MORE;
	while (lex_name_byte(lex_at(p, at, &n)))
		at += n;
	h->end = at;
	return lex_at(p, at, &n) == SYM_END ? lex_wait(p) : YES;
}

/* After the name: the literal that must follow, or its alternatives. */
static enum verdict after_name(const struct parts *p, const struct parts_form *f, struct head *h)
{
	size_t at = lex_skip_blanks(p, h->end), n;
	enum verdict v;
	if (f->name_end != NULL) {
		v = lex_match(p, at, f->name_end, &h->end);
		return v == NO && f->syntax == PARTS_SYNTAX_NAMED && lex_at(p, at, &n) == '{' ? YES : v;
	}
	v = lex_match(p, at, f->key, &n);
	if (v == NO)
		v = lex_match(p, at, f->end, &n);
	return v == NO && lex_at(p, at, &n) == '{' ? YES : v;
}

/* "function", literal, then the name: up to a blank, a fence or the arguments. */
static enum verdict labelled(const struct parts *p, struct head *h)
{
	size_t n, at = lex_skip_blanks(p, h->end);
	int sym = lex_at(p, at, &n);
	if (sym == SYM_END)
		return lex_wait(p);
	if (!lex_name_byte(sym))
		return YES;
	return name_text(p, at, h);
}

static enum verdict named_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h)
{
	enum verdict v = lex_match(p, at, f->call, &at);
	if (v == YES)
		v = name_text(p, lex_skip_blanks(p, at), h);
	if (v == YES && f->id != NULL)
		v = skip_id(p, f, h);
	if (v == YES)
		v = after_name(p, f, h);
	if (v == YES && f->labelled)
		v = labelled(p, h);
	h->body = f->syntax == PARTS_SYNTAX_NAMED ? ST_ARGS : ST_TAGS;
	return v;
}

/* ---- any form ---- */

static enum verdict form_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h)
{
	switch (f->syntax) {
	case PARTS_SYNTAX_JSON: return json_head(p, f, at, h);
	case PARTS_SYNTAX_PYTHON: return python_head(p, f, at, h);
	case PARTS_SYNTAX_CHANNEL: return channel_head(p, f, at, h);
	case PARTS_SYNTAX_NAMED:
	case PARTS_SYNTAX_TAGGED: return named_head(p, f, at, h);
	}
	return NO;
}

static enum verdict one_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h)
{
	*h = (struct head){.objects = 1, .list = p->in_list, .wrapped = p->wrapped};
	enum verdict v = form_head(p, f, at, h);
	if (v == YES && !h->is_text && !h->found && !head_tool(p, h->name, h->name_end, &h->tool))
		return NO;
	return v;
}

/* Arguments before the name: the queue becomes these arguments and what follows the name. */
static void splice(struct parts *p, const struct head *h)
{
	size_t rest = p->queue.len - h->end, n = h->args_end - h->args;
	uint8_t *q = buf_data(&p->queue);
	memmove(q, q + h->args, n);
	memmove(q + n, q + h->end, rest);
	buf_cut(&p->queue, n + rest);
}

static void begin_call(struct parts *p, const struct parts_form *f, const struct head *h)
{
	p->tool = h->tool;
	p->form = f;
	p->section = f;
	p->in_list = h->list;
	p->wrapped = h->wrapped;
	p->objects = h->objects;
	p->has_args = h->body == ST_ARGS;
	p->mode = ARGS_START;
	p->depth = 0;
	p->in_string = p->escaped = false;
	p->state = h->body;
	if (h->args != 0)
		splice(p, h);
	else
		lex_consume(p, h->end);
	out_call_begin(p);
	if (f->syntax == PARTS_SYNTAX_PYTHON)
		python_begin(p);
}

static void begin_text(struct parts *p, const struct head *h)
{
	lex_consume(p, h->end);
	out_switch(p, h->kind);
	p->state = ST_TEXT;
}

static void begin(struct parts *p, const struct parts_form *f, const struct head *h)
{
	if (h->is_text)
		begin_text(p, h);
	else
		begin_call(p, f, h);
}

/* ---- after a literal that begins calls ---- */

static enum verdict open_head(const struct parts *p, const struct parts_form *f, struct head *h)
{
	size_t at = 0;
	if (f->bare != (p->front == 0) && f->syntax != PARTS_SYNTAX_CHANNEL)
		return NO;
	if (f->syntax == PARTS_SYNTAX_CHANNEL)
		return one_head(p, f, 0, h);
	if (f->open != NULL) {
		enum verdict v = lex_match(p, 0, f->open, &at);
		if (v == MORE || (v == NO && (f->call == NULL || f->syntax == PARTS_SYNTAX_PYTHON)))
			return v;
		at = v == YES ? lex_skip_blanks(p, at) : 0;
	}
	return one_head(p, f, at, h);
}

/* Not a call: the literal is text, and what follows is parsed again. */
static void reject(struct parts *p)
{
	size_t n = p->front;
	p->state = ST_TEXT;
	p->begins = false;
	if (n == 0)
		lex_at(p, 0, &n);
	if (p->format->forms[0].syntax == PARTS_SYNTAX_CHANNEL) {
		/* Without a marker, the answer began with text. An incomplete header at the end of the tokens is text.
		 */
		if (p->front > 0)
			lex_consume(p, p->final ? p->queue.len : n);
		return;
	}
	out_queue(p, n);
}

bool head_step(struct parts *p)
{
	struct head h;
	p->in_list = p->wrapped = false;
	for (int i = 0; i < p->format->n_forms; i++) {
		enum verdict v = open_head(p, &p->format->forms[i], &h);
		if (v == MORE && !lex_full(p))
			return false;
		if (v == YES) {
			begin(p, &p->format->forms[i], &h);
			return true;
		}
	}
	reject(p);
	return true;
}

/* ---- after a call ---- */

/* Separators between two calls, and the ends of the list and the section. */
static enum verdict separator(const struct parts *p, size_t *at)
{
	size_t n;
	*at = lex_skip_blanks(p, 0);
	int sym = lex_at(p, *at, &n);
	bool json = p->section->syntax == PARTS_SYNTAX_JSON;
	if (sym == SYM_END)
		return lex_wait(p);
	if ((sym == ',' && (json || p->section->listed)) || (sym == ';' && json && !p->in_list))
		*at = lex_skip_blanks(p, *at + n);
	return YES;
}

static void leave_list(struct parts *p, size_t n)
{
	lex_consume(p, n);
	p->in_list = false;
	if (p->wrapped || p->section->close != NULL)
		return;
	p->section = NULL;
	p->state = ST_TEXT;
}

static void leave_section(struct parts *p, size_t n)
{
	lex_consume(p, n);
	p->section = NULL;
	p->in_list = p->wrapped = false;
	p->state = ST_TEXT;
}

/* The end of the section, of its list, or of the object around the list. */
static enum verdict ends(struct parts *p)
{
	size_t at = lex_skip_blanks(p, 0), end, n;
	int sym = lex_at(p, at, &n);
	enum verdict v = lex_match(p, at, p->section->close, &end);
	if (v == YES) {
		leave_section(p, end);
	} else if (v == NO && p->in_list && sym == ']') {
		leave_list(p, at + n);
		v = YES;
	} else if (v == NO && !p->in_list && p->wrapped && sym == '}') {
		p->wrapped = false;
		leave_list(p, at + n);
		v = YES;
	}
	return v;
}

bool between_step(struct parts *p)
{
	struct head h;
	size_t at;
	enum verdict v = ends(p);
	if (v == YES)
		return true;
	if (v == NO)
		v = separator(p, &at);
	if (v == YES && (p->section->syntax != PARTS_SYNTAX_CHANNEL && !(p->wrapped && !p->in_list)))
		v = one_head(p, p->section, at, &h);
	else if (v == YES)
		v = NO;
	if (v == MORE && !lex_full(p))
		return false;
	if (v == YES) {
		begin(p, p->section, &h);
		return true;
	}
	/* Text. Blanks after a call are dropped. */
	if (p->section->close == NULL && p->section->end == NULL)
		p->section = NULL;
	p->state = ST_TEXT;
	return true;
}
