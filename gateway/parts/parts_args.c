/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON arguments: passed on as they arrive, from the first byte that is not blank to the end of the value. A literal
 * that ends the call ends them, except within a string; a marker always does.
 */
#include <string.h>

#include "base/utf8.h"
#include "gateway/parts/parts_priv.h"

static bool whole_object(const struct parts *p) { return p->form->syntax == PARTS_SYNTAX_JSON; }

/* The arguments are complete. */
static void complete(struct parts *p)
{
	if (whole_object(p))
		p->state = ST_MEMBERS;
	else if (p->form->end != NULL)
		p->state = ST_AFTER;
	else
		out_call_end(p, false);
}

/* Does something end the call here? Does not consume it. */
static enum verdict terminator(const struct parts *p)
{
	size_t end;
	enum verdict v = lex_match(p, 0, p->form->end, &end);
	return v != NO ? v : lex_match(p, 0, p->form->close, &end);
}

static bool take(struct parts *p, int sym)
{
	char c = (char)sym;
	out_args(p, &c, 1);
	return true;
}

static void ends_early(struct parts *p)
{
	/* AFTER and BETWEEN consume the terminator. */
	bool cut = whole_object(p) || p->mode == ARGS_NESTED;
	if (cut || p->form->end == NULL)
		out_call_end(p, cut);
	else
		p->state = ST_AFTER;
}

/* ```json before the arguments. */
static enum verdict skip_fence(struct parts *p)
{
	size_t end;
	enum verdict v = lex_match(p, 0, "```json", &end);
	if (v == NO)
		v = lex_match(p, 0, "```", &end);
	if (v == YES)
		lex_consume(p, end);
	return v;
}

/* null instead of arguments. */
static enum verdict skip_null(struct parts *p)
{
	size_t end;
	enum verdict v = lex_match(p, 0, "null", &end);
	if (v != YES)
		return v;
	lex_consume(p, end);
	complete(p);
	return YES;
}

static bool start(struct parts *p, int sym, size_t n)
{
	enum verdict v = terminator(p);
	if (v == NO && !whole_object(p))
		v = skip_fence(p);
	else if (v == YES)
		ends_early(p);
	if (v == NO && sym == 'n')
		v = skip_null(p);
	if (v != NO)
		return v == YES;
	if (whole_object(p) && (sym == ',' || sym == '}' || sym == ']')) {
		p->state = ST_MEMBERS;
		return true;
	}
	if (lex_blank(sym)) {
		lex_consume(p, n);
		return true;
	}
	p->mode = sym == '{' || sym == '[' ? ARGS_NESTED : sym == '"' && whole_object(p) ? ARGS_STRING : ARGS_RAW;
	if (p->mode == ARGS_STRING)
		lex_consume(p, n);
	return true;
}

static void track(struct parts *p, int sym)
{
	if (p->escaped) {
		p->escaped = false;
	} else if (p->in_string) {
		p->escaped = sym == '\\';
		p->in_string = sym != '"';
	} else {
		p->in_string = sym == '"';
		p->depth += sym == '{' || sym == '[';
		p->depth -= sym == '}' || sym == ']';
	}
}

static bool nested(struct parts *p, int sym, size_t n)
{
	enum verdict v = p->in_string ? NO : terminator(p);
	if (v == YES)
		ends_early(p);
	if (v != NO)
		return v == YES;
	track(p, sym);
	take(p, sym);
	lex_consume(p, n);
	if (p->depth == 0)
		complete(p);
	return true;
}

/* ---- JSON within a JSON string ---- */

static int hex(const struct parts *p, size_t at, size_t digits, uint32_t *out)
{
	size_t n;
	*out = 0;
	for (; digits > 0; digits--, at += n) {
		int c = lex_at(p, at, &n);
		int d = c >= '0' && c <= '9'   ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10
					       : -1;
		if (c == SYM_END)
			return SYM_END;
		if (d < 0)
			return 0;
		*out = *out * 16 + (uint32_t)d;
	}
	return 1;
}

/* \uXXXX at the front of the queue, possibly a surrogate pair. */
static bool take_unicode(struct parts *p)
{
	uint32_t cp, low;
	uint8_t utf8[4];
	size_t n, used = 6;
	int ok = hex(p, 2, 4, &cp);
	if (ok == SYM_END && !p->final)
		return false;
	if (ok == 1 && cp >= 0xd800 && cp < 0xdc00) {
		int a = lex_at(p, 6, &n), b = lex_at(p, 7, &n), second = hex(p, 8, 4, &low);
		bool open = a == SYM_END || (a == '\\' && (b == SYM_END || (b == 'u' && second == SYM_END)));
		if (open && !p->final)
			return false;
		if (a == '\\' && b == 'u' && second == 1 && low >= 0xdc00 && low < 0xe000) {
			cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
			used = 12;
		}
	}
	if (ok != 1) {
		lex_consume(p, 1);
		return take(p, '\\');
	}
	if (cp >= 0xd800 && cp < 0xe000)
		cp = 0xfffd;
	out_args(p, (const char *)utf8, (size_t)utf8_encode(cp, utf8));
	lex_consume(p, used);
	return true;
}

static bool take_escape(struct parts *p)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	size_t n;
	int sym = lex_at(p, 1, &n);
	if (sym == SYM_END && !p->final)
		return false;
	if (sym == 'u')
		return take_unicode(p);
	const char *which = sym > 0 && sym < SYM_MARKER ? strchr(from, sym) : NULL;
	take(p, which != NULL ? to[which - from] : '\\');
	lex_consume(p, which != NULL ? 1 + n : 1);
	return true;
}

static bool string(struct parts *p, int sym, size_t n)
{
	if (sym == '\\')
		return take_escape(p);
	lex_consume(p, n);
	if (sym == '"')
		complete(p);
	else
		take(p, sym);
	return true;
}

static bool raw(struct parts *p, int sym, size_t n)
{
	enum verdict v = terminator(p);
	if (v == YES || (v == NO && whole_object(p) && (sym == ',' || sym == '}' || sym == ']' || lex_blank(sym)))) {
		if (v == YES)
			ends_early(p);
		else
			p->state = ST_MEMBERS;
		return true;
	}
	if (v == MORE)
		return false;
	lex_consume(p, n);
	return take(p, sym);
}

bool args_step(struct parts *p)
{
	size_t n;
	int sym = lex_at(p, 0, &n);
	if (sym == SYM_END) {
		if (p->final)
			out_call_end(p, true);
		return p->final;
	}
	if (sym >= SYM_MARKER) {
		ends_early(p);
		return true;
	}
	switch (p->mode) {
	case ARGS_START: return start(p, sym, n);
	case ARGS_NESTED: return nested(p, sym, n);
	case ARGS_STRING: return string(p, sym, n);
	case ARGS_RAW: return raw(p, sym, n);
	}
	return false;
}

/* ---- between the arguments and the end of the call ---- */

bool after_step(struct parts *p)
{
	size_t at = lex_skip_blanks(p, 0), end;
	enum verdict v = lex_match(p, at, "```", &end);
	if (v == YES)
		at = lex_skip_blanks(p, end);
	if (v != MORE)
		v = lex_match(p, at, p->form->end, &end);
	if (v == MORE && !lex_full(p))
		return false;
	if (v == YES)
		lex_consume(p, end);
	out_call_end(p, false);
	return true;
}
