/* SPDX-License-Identifier: Apache-2.0
 *
 * GBNF, the grammars of llama.cpp: `name ::= "text" [a-z] . ( … ) * + ? {m,n} | …`, with comments after #. The start rule is
 * `root`. A rule ends at the end of a line, except inside parentheses and after `|` or `::=`.
 */
#include <string.h>

#include "base/utf8.h"
#include "engine/constraint/charset.h"
#include "engine/constraint/ebnf.h"

static char peek(const struct ebnf *g) { return g->at < g->n ? g->text[g->at] : '\0'; }

static void skip_blanks(struct ebnf *g, bool lines)
{
	while (g->at < g->n) {
		char ch = peek(g);
		if (ch == '#') {
			while (g->at < g->n && peek(g) != '\n')
				g->at += g->at < g->n;
		} else if (ch == ' ' || ch == '\t' || (lines && (ch == '\n' || ch == '\r'))) {
			g->at += g->at < g->n;
		} else {
			return;
		}
	}
}

static bool is_name(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '-' ||
	       ch == '_';
}

static struct proto_str read_name(struct ebnf *g)
{
	size_t begin = g->at;
	while (g->at < g->n && is_name(peek(g)))
		g->at += g->at < g->n;
	return (struct proto_str){g->text + begin, g->at - begin};
}

/* ---- characters ---- */

static uint32_t read_escape(struct ebnf *g)
{
	static const char from[] = "nrt\"\\[]-^/'", to[] = "\n\r\t\"\\[]-^/'";
	char ch = peek(g);
	g->at += g->at < g->n;
	if (ch == 'x')
		return ebnf_hex(g, 2);
	if (ch == 'u')
		return ebnf_hex(g, 4);
	if (ch == 'U')
		return ebnf_hex(g, 8);
	const char *which = ch != '\0' ? strchr(from, ch) : NULL;
	if (which == NULL) {
		ebnf_fail(g, SL_EINVAL, g->at - 2, "an unknown escape");
		return 0;
	}
	return (uint32_t)to[which - from];
}

static uint32_t read_char(struct ebnf *g)
{
	uint32_t cp = 0;
	if (peek(g) == '\\') {
		g->at += g->at < g->n;
		return read_escape(g);
	}
	int len = utf8_decode((const uint8_t *)g->text + g->at, g->n - g->at, &cp);
	if (len <= 0)
		ebnf_fail(g, SL_EINVAL, g->at, "invalid UTF-8");
	g->at += len > 0 ? (size_t)len : g->at < g->n;
	return cp;
}

static struct ebnf_node *read_string(struct ebnf *g)
{
	size_t begin = g->at++, n = 0;
	char *out = con_alloc(g->c, g->n - begin + 4, 1);
	while (out != NULL && g->at < g->n && peek(g) != '"' && g->c->rc == 0)
		n += (size_t)utf8_encode(read_char(g), (uint8_t *)out + n);
	if (peek(g) != '"')
		ebnf_fail(g, SL_EINVAL, begin, "a string does not end");
	g->at += g->at < g->n;
	return g->c->rc == 0 ? ebnf_rx(g, rx_literal(g->c->pool, out, n)) : NULL;
}

static struct ebnf_node *read_class(struct ebnf *g)
{
	struct charset set = {0};
	size_t begin = g->at++;
	bool inverted = peek(g) == '^';
	g->at += inverted;
	while (g->at < g->n && peek(g) != ']' && con_step(g->c, 1)) {
		size_t at = g->at;
		uint32_t from = read_char(g), to = from;
		if (g->n - g->at >= 2 && peek(g) == '-' && g->text[g->at + 1] != ']') {
			g->at += g->at < g->n;
			to = read_char(g);
		}
		if (from > to)
			ebnf_fail(g, SL_EINVAL, at, "a range is out of order");
		charset_add(g->c, &set, from, to);
	}
	if (peek(g) != ']')
		ebnf_fail(g, SL_EINVAL, begin, "a class does not end");
	g->at += g->at < g->n;
	if (inverted)
		charset_invert(g->c, &set);
	return g->c->rc == 0 ? ebnf_rx(g, charset_rx(g->c, &set)) : NULL;
}

/* ---- rules ---- */

static struct ebnf_node *read_choice(struct ebnf *g, bool nested);

static struct ebnf_node *read_group(struct ebnf *g)
{
	size_t begin = g->at++;
	if (++g->depth > g->c->max_depth) {
		ebnf_fail(g, SL_ELIMIT, begin, "parentheses are nested too deep");
		return NULL;
	}
	struct ebnf_node *n = read_choice(g, true);
	skip_blanks(g, true);
	if (g->c->rc == 0 && peek(g) != ')')
		ebnf_fail(g, SL_EINVAL, begin, "a parenthesis does not close");
	g->at += g->at < g->n;
	g->depth--;
	return n;
}

static struct ebnf_node *read_atom(struct ebnf *g)
{
	size_t at = g->at;
	char ch = peek(g);
	if (ch == '"')
		return read_string(g);
	if (ch == '[')
		return read_class(g);
	if (ch == '(')
		return read_group(g);
	if (ch == '.') {
		g->at += g->at < g->n;
		return ebnf_rx(g, con_any_char(g->c));
	}
	if (!is_name(ch)) {
		ebnf_fail(g, SL_EINVAL, at, "unexpected character");
		return NULL;
	}
	struct ebnf_node *n = ebnf_node(g, EBNF_REF);
	if (n != NULL)
		n->rule = ebnf_rule(g, read_name(g), at);
	return n;
}

static void read_braces(struct ebnf *g, uint32_t *least, uint32_t *most)
{
	size_t begin = g->at++;
	skip_blanks(g, false);
	if (!ebnf_number(g, least) && g->c->rc == 0)
		*least = 0;
	*most = *least;
	skip_blanks(g, false);
	if (peek(g) == ',') {
		g->at += g->at < g->n;
		skip_blanks(g, false);
		if (!ebnf_number(g, most))
			*most = RX_UNBOUNDED;
		skip_blanks(g, false);
	}
	if (peek(g) != '}' || *least > *most)
		ebnf_fail(g, SL_EINVAL, begin, "a malformed repetition");
	g->at += g->at < g->n;
}

static struct ebnf_node *read_item(struct ebnf *g)
{
	struct ebnf_node *n = read_atom(g);
	for (skip_blanks(g, g->depth > 0); n != NULL && g->c->rc == 0; skip_blanks(g, g->depth > 0)) {
		char ch = peek(g);
		uint32_t least = ch == '+', most = ch == '?' ? 1 : RX_UNBOUNDED;
		if (ch == '{')
			read_braces(g, &least, &most);
		else if (ch == '*' || ch == '+' || ch == '?')
			g->at += g->at < g->n;
		else
			break;
		n = ebnf_repeat(g, n, least, most);
	}
	return n;
}

static struct ebnf_node *read_sequence(struct ebnf *g, bool nested)
{
	struct ebnf_node *n = ebnf_node(g, EBNF_SEQ);
	for (skip_blanks(g, nested); g->at < g->n && g->c->rc == 0; skip_blanks(g, nested)) {
		char ch = peek(g);
		if (ch == '|' || ch == ')' || ch == '\n' || ch == '\r')
			break;
		ebnf_add(g, n, read_item(g));
	}
	return n;
}

static struct ebnf_node *read_choice(struct ebnf *g, bool nested)
{
	struct ebnf_node *n = ebnf_node(g, EBNF_ALT);
	ebnf_add(g, n, read_sequence(g, nested));
	while (peek(g) == '|' && g->c->rc == 0) {
		g->at += g->at < g->n;
		skip_blanks(g, true);
		ebnf_add(g, n, read_sequence(g, nested));
	}
	return n;
}

static void read_rule(struct ebnf *g)
{
	size_t begin = g->at;
	struct proto_str name = read_name(g);
	skip_blanks(g, false);
	if (name.n == 0 || g->n - g->at < 3 || memcmp(g->text + g->at, "::=", 3) != 0) {
		ebnf_fail(g, SL_EINVAL, begin, "a rule is expected: name ::= …");
		return;
	}
	uint32_t rule = ebnf_rule(g, name, begin);
	g->at += 3;
	skip_blanks(g, true);
	struct ebnf_node *body = read_choice(g, false);
	if (g->c->rc != 0)
		return;
	if (g->at < g->n && peek(g) != '\n' && peek(g) != '\r')
		ebnf_fail(g, SL_EINVAL, g->at, "unexpected character");
	if (g->rules[rule].body != NULL)
		ebnf_fail(g, SL_EINVAL, begin, "%.*s is defined twice", (int)(name.n < 80 ? name.n : 80), name.at);
	g->rules[rule].body = body;
}

void con_gbnf(struct con *c, const char *text, size_t n)
{
	struct ebnf g = {.c = c, .text = text, .n = n};
	for (skip_blanks(&g, true); g.at < n && con_step(c, 1); skip_blanks(&g, true))
		read_rule(&g);
	g.depth = 0;
	ebnf_write(&g, "root");
}
