/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls whose arguments are texts between literals. The declared type decides what a text is. A string is passed on as
 * it arrives. A value that may be something else is held until it ends; if it becomes too long to be held, it is a
 * string.
 */
#include <string.h>

#include "gateway/parts/parts_priv.h"

static bool ended(struct parts *p, size_t n, bool cut)
{
	lex_consume(p, n);
	if (!cut && p->any_args)
		out_args_str(p, "}");
	out_call_end(p, cut);
	return true;
}

/* <parameter=k>, or <arg_key>k</arg_key><arg_value>. */
static enum verdict key_at(const struct parts *p, size_t at, size_t *from, size_t *to, size_t *end)
{
	size_t n;
	enum verdict v = lex_match(p, at, p->form->key, from);
	if (v != YES)
		return v;
	for (at = *from; at - *from <= PARTS_MAX_NAME; at += n) {
		v = lex_match(p, at, p->form->key_end, end);
		int sym = lex_at(p, at, &n);
		if (v != NO || sym >= SYM_MARKER || sym == SYM_END)
			break;
	}
	*to = at;
	if (v != YES || p->form->value == NULL)
		return v;
	return lex_match(p, lex_skip_blanks(p, *end), p->form->value, end);
}

static void begin_value(struct parts *p, size_t from, size_t to)
{
	const char *key = (const char *)buf_data(&p->queue);
	while (from < to && lex_blank((uint8_t)key[from]))
		from++;
	while (from < to && lex_blank((uint8_t)key[to - 1]))
		to--;
	p->value_types = tools_types(p->tools, p->tool, key + from, to - from);
	out_args_str(p, p->any_args ? ", \"" : "{\"");
	out_args_queue(p, from, to);
	out_args_str(p, "\": ");
	p->value_fresh = p->form->lined;
	p->value_string = p->value_types == TYPE_STRING;
	if (p->value_string)
		out_args_str(p, "\"");
	p->state = ST_VALUE;
}

bool tags_step(struct parts *p)
{
	size_t at = lex_skip_blanks(p, 0), from, to, end, n;
	int sym = lex_at(p, at, &n);
	enum verdict v = key_at(p, at, &from, &to, &end);
	if (v == YES) {
		begin_value(p, from, to);
		lex_consume(p, end);
		return true;
	}
	if (v == NO && (v = lex_match(p, at, p->form->end, &end)) == YES)
		return ended(p, end, false);
	if (v == NO && (v = lex_match(p, at, p->form->close, &end)) == YES)
		return ended(p, at, false);
	if (v == MORE && !lex_full(p))
		return false;
	if (sym == '{' && !p->any_args) {
		p->mode = ARGS_START;
		p->state = ST_ARGS;
		return true;
	}
	return ended(p, 0, true);
}

/* ---- one value ---- */

/* The end of the text of the value, or how much of it is certainly text. */
static enum verdict value_end(const struct parts *p, size_t *at, size_t *end)
{
	size_t n;
	enum verdict v = NO;
	for (*at = 0; v == NO; *at += n) {
		int sym = lex_at(p, *at, &n);
		if (sym == SYM_END)
			return lex_wait(p);
		v = lex_match(p, *at, p->form->value_end, end);
		if (v == NO && sym >= SYM_MARKER) {
			*end = SIZE_MAX;
			return YES;
		}
		if (v != NO)
			break;
	}
	return v;
}

static void begin_string(struct parts *p)
{
	p->value_string = true;
	out_args_str(p, "\"");
}

/* The newline before the literal does not belong to the value. */
static size_t without_newline(const struct parts *p, size_t n)
{
	return p->form->lined && n > 0 && buf_data(&p->queue)[n - 1] == '\n' ? n - 1 : n;
}

static bool finish_value(struct parts *p, size_t at, size_t end)
{
	size_t n = without_newline(p, at);
	if (p->value_string) {
		out_args_queue(p, 0, n);
		out_args_str(p, "\"");
	} else {
		value_emit(p, p->value_types, n);
	}
	lex_consume(p, end);
	p->state = ST_TAGS;
	return true;
}

/* The end of the tokens, or a marker, cuts the value: emits the rest of it. */
static bool cut_value(struct parts *p, size_t at)
{
	if (p->value_string)
		out_args_queue(p, 0, at);
	return ended(p, at, true);
}

/* A value not declared as a string: its first byte may show that it is one. */
static void decide(struct parts *p)
{
	size_t n, at = lex_skip_blanks(p, 0), end;
	int sym = lex_at(p, at, &n);
	if (sym != SYM_END && lex_match(p, at, p->form->value_end, &end) == NO &&
	    !value_may_be_json(p->value_types, sym))
		begin_string(p);
}

bool value_step(struct parts *p)
{
	size_t at, end, n;
	if (p->value_fresh && p->queue.len > 0) {
		p->value_fresh = false;
		if (lex_at(p, 0, &n) == '\n')
			lex_consume(p, n);
	}
	if (!p->value_string)
		decide(p);
	enum verdict v = value_end(p, &at, &end);
	if (v == YES)
		return end == SIZE_MAX ? cut_value(p, at) : finish_value(p, at, end);
	if (p->final)
		return cut_value(p, p->queue.len);
	if (!p->value_string && !lex_full(p))
		return false;
	if (!p->value_string)
		begin_string(p);
	at = without_newline(p, at);
	out_args_queue(p, 0, at);
	lex_consume(p, at);
	return at > 0;
}
