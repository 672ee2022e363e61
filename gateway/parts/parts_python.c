/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls like Python's, f(k="v", n=[1, None]), and Gemma's call:f{k:<|"|>v<|"|>,o:{a:1}}, converted to JSON as they
 * arrive. A stack of open containers tracks the nesting.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "gateway/parts/parts_priv.h"

/* ---- the beginning ---- */

static enum verdict skip_literal(const struct parts *p, const char *lit, size_t *at)
{
	size_t end;
	enum verdict v = lex_match(p, *at, lit, &end);
	if (v == YES)
		*at = lex_skip_blanks(p, end);
	return v;
}

/* The bracket of a list, print(, or call:, if the form has them. */
static enum verdict before_name(const struct parts *p, const struct parts_form *f, size_t *at, struct head *h)
{
	enum verdict v = YES;
	if (f->listed && !h->list) {
		v = skip_literal(p, "[", at);
		h->list = v == YES;
	} else if (f->call != NULL) {
		v = skip_literal(p, f->call, at);
	} else if (!f->listed) {
		v = skip_literal(p, "print(", at);
		h->objects = v == YES ? 2 : 1;
		v = v == MORE ? MORE : YES;
	}
	return v;
}

enum verdict python_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h)
{
	size_t n, end;
	if (f->listed && !h->list && p->state == ST_BETWEEN)
		return NO;
	enum verdict v = before_name(p, f, &at, h);
	if (v != YES)
		return v;
	h->name = at;
	while (lex_name_byte(lex_at(p, at, &n)) && at - h->name <= 2 * PARTS_MAX_NAME)
		at += n;
	h->name_end = at;
	end = lex_skip_blanks(p, at);
	int sym = lex_at(p, end, &n);
	if (sym == SYM_END)
		return lex_wait(p);
	h->end = end + n;
	h->body = ST_PYTHON;
	return sym == f->around && at > h->name ? YES : NO;
}

static void push(struct parts *p, char closing, bool keyed)
{
	struct python *py = &p->py;
	if (py->depth == MAX_DEPTH) {
		out_call_end(p, true);
		return;
	}
	py->stack[py->depth] = closing;
	py->keyed[py->depth++] = keyed;
	py->first = true;
	py->state = keyed ? PY_KEY : PY_VALUE;
	out_args_str(p, keyed ? "{" : "[");
}

void python_begin(struct parts *p)
{
	p->py = (struct python){0};
	push(p, p->form->around == '(' ? ')' : '}', true);
}

/* ---- containers ---- */

static bool keyed(const struct parts *p) { return p->py.keyed[p->py.depth - 1]; }
static char closer(const struct parts *p) { return p->py.stack[p->py.depth - 1]; }

static void pop(struct parts *p)
{
	out_args_str(p, keyed(p) ? "}" : "]");
	p->py.depth--;
	p->py.first = false;
	p->py.state = PY_AFTER;
	if (p->py.depth == 0 && p->objects == 1)
		out_call_end(p, false);
}

static void next_item(struct parts *p)
{
	if (!p->py.first)
		out_args_str(p, ", ");
	p->py.first = false;
}

/* ---- strings ---- */

static void open_string(struct parts *p, char quote, uint8_t times, bool as_key)
{
	p->py.state = PY_STRING;
	p->py.quote = quote;
	p->py.times = times;
	p->py.as_key = as_key;
	out_args_str(p, "\"");
}

/* Quotes at the front of the queue: one or three. */
static bool quoted(struct parts *p, int sym, bool as_key)
{
	size_t n;
	int a = lex_at(p, 1, &n), b = lex_at(p, 2, &n);
	if ((a == SYM_END || (a == sym && b == SYM_END)) && !p->final)
		return false;
	uint8_t times = a == sym && b == sym ? 3 : 1;
	if (as_key || !keyed(p))
		next_item(p);
	open_string(p, (char)sym, times, as_key);
	lex_consume(p, times);
	return true;
}

static bool close_string(struct parts *p, size_t n)
{
	lex_consume(p, n);
	out_args_str(p, p->py.as_key ? "\": " : "\"");
	p->py.state = PY_AFTER;
	return true;
}

static int hex_digit(int c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* `digits` hexadecimal digits at an offset. */
static enum verdict hex_at(const struct parts *p, size_t at, size_t digits, uint32_t *cp)
{
	size_t n;
	*cp = 0;
	for (size_t i = 0; i < digits; i++) {
		int c = lex_at(p, at + i, &n);
		if (c == SYM_END)
			return lex_wait(p);
		if (hex_digit(c) < 0)
			return NO;
		*cp = *cp * 16 + (uint32_t)hex_digit(c);
	}
	return YES;
}

/* The second half of JSON's surrogate pair: \udc00 after \ud800. */
static enum verdict low_half(const struct parts *p, size_t at, uint32_t *cp)
{
	size_t n;
	int slash = lex_at(p, at, &n), letter = lex_at(p, at + 1, &n);
	if (slash == SYM_END || (slash == '\\' && letter == SYM_END))
		return lex_wait(p);
	if (slash != '\\' || letter != 'u')
		return NO;
	enum verdict v = hex_at(p, at + 2, 4, cp);
	return v == YES && (*cp < 0xdc00 || *cp > 0xdfff) ? NO : v;
}

/* \x41, \u0041, \U00000041: `digits` of them after the letter. */
static bool coded_escape(struct parts *p, size_t digits)
{
	uint32_t cp, low;
	uint8_t utf8[4];
	size_t used = 2 + digits;
	enum verdict v = hex_at(p, 2, digits, &cp);
	if (v == NO) {
		lex_consume(p, 1);
		out_args_str(p, "\\\\");
	}
	if (v == YES && cp >= 0xd800 && cp < 0xdc00 && (v = low_half(p, used, &low)) != MORE) {
		cp = v == YES ? 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
		used += v == YES ? 6 : 0;
		v = YES;
	}
	if (v != YES)
		return v == NO;
	if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
		cp = 0xfffd;
	int len = utf8_encode(cp, utf8);
	out_args_escaped(p, (const char *)utf8, (size_t)len);
	lex_consume(p, used);
	return true;
}

static bool escape(struct parts *p)
{
	/* \/ is JSON's. */
	static const char from[] = "\\'\"nrtabfv0/\n", to[] = "\\'\"\n\r\t\a\b\f\v\0/";
	size_t n;
	int sym = lex_at(p, 1, &n);
	if (sym == SYM_END && !p->final)
		return false;
	if (sym == 'x' || sym == 'u' || sym == 'U')
		return coded_escape(p, sym == 'x' ? 2 : sym == 'u' ? 4 : 8);
	const char *which = sym > 0 && sym < SYM_MARKER ? strchr(from, sym) : NULL;
	if (which == NULL) {
		lex_consume(p, 1);
		out_args_str(p, "\\\\");
		return true;
	}
	/* A backslash at the end of a line joins the lines. */
	if (sym != '\n')
		out_args_escaped(p, &to[which - from], 1);
	lex_consume(p, 1 + n);
	return true;
}

/* Are the closing quotes of the string at the front? */
static enum verdict closes(const struct parts *p, size_t *end)
{
	size_t n;
	if (p->py.quote == 0)
		return lex_match(p, 0, p->form->quote, end);
	for (size_t i = 0; i < p->py.times; i++) {
		int sym = lex_at(p, i, &n);
		if (sym == SYM_END)
			return lex_wait(p);
		if (sym != p->py.quote)
			return NO;
	}
	*end = p->py.times;
	return YES;
}

static bool in_string(struct parts *p, int sym, size_t n)
{
	size_t end;
	enum verdict v = closes(p, &end);
	if (v == YES)
		return close_string(p, end);
	if (v == MORE)
		return false;
	if (sym == '\\' && p->py.quote != 0)
		return escape(p);
	out_args_queue(p, 0, n);
	lex_consume(p, n);
	return true;
}

/* ---- bare words ---- */

/* The end of a word: a comma, an unmatched closing bracket, `also` or the section's end. Trailing blanks are excluded.
 */
static enum verdict word_end(const struct parts *p, int also, size_t *end)
{
	size_t n, at = 0, depth = 0, close;
	for (;; at += n) {
		int sym = lex_at(p, at, &n);
		if (sym == SYM_END)
			return lex_wait(p);
		bool opens = sym == '(' || sym == '[' || sym == '{', shuts = sym == ')' || sym == ']' || sym == '}';
		if (sym >= SYM_MARKER || (depth == 0 && (sym == ',' || sym == also || shuts)))
			break;
		enum verdict v = lex_match(p, at, p->form->close, &close);
		if (v == MORE)
			return MORE;
		if (v == YES)
			break;
		depth += opens;
		depth -= shuts;
	}
	*end = at;
	return YES;
}

static void emit_word(struct parts *p, size_t to)
{
	static const char *const words[] = {"True",  "true", "true", "true", "False", "false", "false",
					    "false", "None", "null", "null", "null",  "none",  "null"};
	const char *text = (const char *)buf_data(&p->queue);
	while (to > 0 && lex_blank((uint8_t)text[to - 1]))
		to--;
	for (size_t i = 0; i < sizeof words / sizeof *words; i += 2)
		if (strlen(words[i]) == to && memcmp(words[i], text, to) == 0) {
			out_args_str(p, words[i + 1]);
			return;
		}
	if (value_is_number(text, to)) {
		out_args(p, text, to);
		return;
	}
	out_args_str(p, "\"");
	out_args_queue(p, 0, to);
	out_args_str(p, "\"");
}

static bool malformed(struct parts *p)
{
	out_call_end(p, true);
	return true;
}

static bool word(struct parts *p)
{
	size_t end;
	enum verdict v = word_end(p, SYM_END, &end);
	if (v == MORE && !lex_full(p))
		return false;
	if (v != YES || end == 0)
		return malformed(p);
	if (!keyed(p))
		next_item(p);
	emit_word(p, end);
	lex_consume(p, end);
	p->py.state = PY_AFTER;
	return true;
}

/* ---- keys ---- */

static void emit_key(struct parts *p, size_t to)
{
	const char *text = (const char *)buf_data(&p->queue);
	while (to > 0 && lex_blank((uint8_t)text[to - 1]))
		to--;
	next_item(p);
	out_args_str(p, "\"");
	out_args_queue(p, 0, to);
	out_args_str(p, "\": ");
	p->py.state = PY_VALUE;
}

/* A positional argument gets the name of the declared argument at its position. */
static void positional(struct parts *p)
{
	char made[16];
	size_t i = p->py.n_positional++;
	const char *name = tools_argument(p->tools, p->tool, i);
	if (name == NULL) {
		snprintf(made, sizeof made, "arg%u", (unsigned)i);
		name = made;
	}
	next_item(p);
	out_args_str(p, "\"");
	out_args_escaped(p, name, strlen(name));
	out_args_str(p, "\": ");
	p->py.state = PY_VALUE;
}

/* k= of f(k=…); otherwise the value begins here. */
static bool python_key(struct parts *p)
{
	size_t at = 0, n, next;
	while (lex_name_byte(lex_at(p, at, &n)))
		at += n;
	size_t end = lex_skip_blanks(p, at);
	int sym = lex_at(p, end, &n), after = lex_at(p, end + n, &next);
	if ((sym == SYM_END || (sym == '=' && after == SYM_END)) && !p->final && !lex_full(p))
		return false;
	if (at == 0 || sym != '=' || after == '=') {
		positional(p);
		return true;
	}
	emit_key(p, at);
	lex_consume(p, end + n);
	return true;
}

static bool colon_key(struct parts *p)
{
	size_t end;
	enum verdict v = word_end(p, ':', &end);
	size_t n = 0;
	if (v == MORE && !lex_full(p))
		return false;
	if (v != YES || end == 0 || lex_at(p, end, &n) != ':')
		return malformed(p);
	emit_key(p, end);
	lex_consume(p, end + n);
	return true;
}

/* ---- one symbol ---- */

static enum verdict form_quote(struct parts *p, bool as_key)
{
	size_t end;
	enum verdict v = lex_match(p, 0, p->form->quote, &end);
	if (v != YES)
		return v;
	if (as_key || !keyed(p))
		next_item(p);
	open_string(p, 0, 1, as_key);
	lex_consume(p, end);
	return YES;
}

static bool key(struct parts *p, int sym, size_t n)
{
	if (sym == closer(p)) {
		lex_consume(p, n);
		pop(p);
		return true;
	}
	bool call = p->py.depth == 1 && closer(p) == ')';
	if (call)
		return python_key(p);
	enum verdict v = form_quote(p, true);
	if (v != NO)
		return v == YES;
	if (sym == '"' || sym == '\'')
		return quoted(p, sym, true);
	return colon_key(p);
}

static bool value(struct parts *p, int sym, size_t n)
{
	if (!keyed(p) && sym == closer(p)) {
		lex_consume(p, n);
		pop(p);
		return true;
	}
	enum verdict v = form_quote(p, false);
	if (v != NO)
		return v == YES;
	if (sym == '"' || sym == '\'')
		return quoted(p, sym, false);
	if (sym != '[' && sym != '{' && sym != '(')
		return word(p);
	if (!keyed(p))
		next_item(p);
	lex_consume(p, n);
	push(p, sym == '[' ? ']' : sym == '{' ? '}' : ')', sym == '{');
	return true;
}

static bool after(struct parts *p, int sym, size_t n)
{
	struct python *py = &p->py;
	if (py->depth == 0) {
		/* print(f()) */
		if (sym == ')')
			lex_consume(p, n);
		out_call_end(p, false);
		return true;
	}
	if (py->as_key) {
		py->as_key = false;
		py->state = PY_VALUE;
		if (sym != ':')
			return malformed(p);
		lex_consume(p, n);
		return true;
	}
	if (sym != ',' && sym != closer(p))
		return malformed(p);
	lex_consume(p, n);
	if (sym == ',')
		py->state = keyed(p) ? PY_KEY : PY_VALUE;
	else
		pop(p);
	return true;
}

/* A marker: the form's quote; any other literal ends the call. */
static bool marker(struct parts *p, size_t n)
{
	size_t end;
	if (lex_match(p, 0, p->form->quote, &end) == YES) {
		if (p->py.state == PY_STRING)
			return p->py.quote == 0 ? close_string(p, end) : (lex_consume(p, n), true);
		if (p->py.state == PY_KEY || p->py.state == PY_VALUE)
			return form_quote(p, p->py.state == PY_KEY) == YES;
	}
	out_call_end(p, p->py.depth > 0);
	return true;
}

bool python_step(struct parts *p)
{
	size_t n, end;
	int sym = lex_at(p, 0, &n);
	if (sym == SYM_END) {
		if (p->final)
			out_call_end(p, p->py.depth > 0);
		return p->final;
	}
	if (sym >= SYM_MARKER)
		return marker(p, n);
	if (p->py.state == PY_STRING)
		return in_string(p, sym, n);
	enum verdict v = lex_match(p, 0, p->form->close, &end);
	if (v == YES)
		out_call_end(p, p->py.depth > 0);
	if (v != NO)
		return v == YES;
	if (lex_blank(sym)) {
		lex_consume(p, n);
		return true;
	}
	switch (p->py.state) {
	case PY_KEY: return key(p, sym, n);
	case PY_VALUE: return value(p, sym, n);
	case PY_AFTER: return after(p, sym, n);
	case PY_STRING: break;
	}
	return false;
}
