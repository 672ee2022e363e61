/* SPDX-License-Identifier: Apache-2.0
 *
 * Lark's EBNF (https://lark-parser.readthedocs.io/en/stable/grammar.html). There is no lexer: a text is in the grammar
 * if it is any sequence of its terminals, with ignored terminals after any of them. Priorities only choose among
 * parses, so they are skipped. The start rule is `start`. Refused with a message: templates, %declare, %override,
 * %extend, and imports other than of `common`.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/constraint/charset.h"
#include "engine/constraint/ebnf.h"
#include "engine/constraint/regex.h"

struct lark {
	struct ebnf g;
	struct ebnf_node *ignored; /* EBNF_ALT */
};

/* ---- the library `common`: the terminals that Lark's documentation lists ---- */

#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT "(?:[eE][+-]?[0-9]+)"
#define FLOAT "(?:[0-9]+" EXPONENT "|" DECIMAL EXPONENT "?)"

static const struct {
	const char *name, *expression;
} terminals[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", DECIMAL},
    {"_EXP", EXPONENT},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", "[+-]?" FLOAT},
    {"NUMBER", "(?:" FLOAT "|[0-9]+)"},
    {"SIGNED_NUMBER", "[+-]?(?:" FLOAT "|[0-9]+)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
};

/* NULL: no such name. */
static const char *common_terminal(struct proto_str name)
{
	for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++)
		if (strlen(terminals[i].name) == name.n && memcmp(terminals[i].name, name.at, name.n) == 0)
			return terminals[i].expression;
	return NULL;
}

/* ---- characters ---- */

static char peek(const struct ebnf *g) { return g->at < g->n ? g->text[g->at] : '\0'; }

static bool looking_at(const struct ebnf *g, const char *what)
{
	size_t n = strlen(what);
	return g->n - g->at >= n && memcmp(g->text + g->at, what, n) == 0;
}

static void skip_line(struct ebnf *g)
{
	while (g->at < g->n && peek(g) != '\n')
		g->at += g->at < g->n;
}

static void skip_blanks(struct ebnf *g, bool lines)
{
	while (g->at < g->n) {
		char ch = peek(g);
		if (looking_at(g, "//") || ch == '#')
			skip_line(g);
		else if (ch == ' ' || ch == '\t' || (lines && (ch == '\n' || ch == '\r')))
			g->at += g->at < g->n;
		else
			return;
	}
}

static bool is_letter(char ch) { return ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') || ch == '_'; }
static bool is_name(char ch) { return is_letter(ch) || (ch >= '0' && ch <= '9'); }

static struct proto_str read_name(struct ebnf *g)
{
	size_t begin = g->at;
	while (g->at < g->n && is_name(peek(g)))
		g->at += g->at < g->n;
	return (struct proto_str){g->text + begin, g->at - begin};
}

static bool is_terminal(struct proto_str name)
{
	for (size_t i = 0; i < name.n; i++)
		if (name.at[i] != '_')
			return name.at[i] >= 'A' && name.at[i] <= 'Z';
	return false;
}

/* ---- strings and regular expressions ---- */

/* Python's escapes; an unknown escape stays unchanged. */
static uint32_t read_char(struct ebnf *g)
{
	static const char from[] = "nrtfvab0\"'\\/", to[] = "\n\r\t\f\v\a\b\0\"'\\/";
	uint32_t cp = 0;
	if (peek(g) == '\\' && g->n - g->at > 1) {
		char ch = g->text[g->at + 1];
		const char *which = ch != '\0' ? strchr(from, ch) : NULL;
		g->at += 2;
		if (ch == 'x' || ch == 'u' || ch == 'U')
			return ebnf_hex(g, ch == 'x' ? 2 : ch == 'u' ? 4 : 8);
		if (which != NULL)
			return (unsigned char)to[which - from];
		g->at--;
		return '\\';
	}
	int len = utf8_decode((const uint8_t *)g->text + g->at, g->n - g->at, &cp);
	if (len <= 0)
		ebnf_fail(g, SL_EINVAL, g->at, "invalid UTF-8");
	g->at += len > 0 ? (size_t)len : g->at < g->n;
	return cp;
}

struct word {
	uint32_t *chars;
	size_t n;
};

static struct word read_string(struct ebnf *g)
{
	size_t begin = g->at++;
	struct word w = {con_alloc(g->c, g->n - begin, sizeof(uint32_t)), 0};
	while (w.chars != NULL && g->at < g->n && peek(g) != '"' && peek(g) != '\n' && g->c->rc == 0)
		w.chars[w.n++] = read_char(g);
	if (peek(g) != '"')
		ebnf_fail(g, SL_EINVAL, begin, "a string does not end");
	g->at += g->at < g->n;
	return w;
}

static rx word_rx(struct ebnf *g, const struct word *w, bool fold)
{
	rx out = RX_EPS;
	for (size_t i = w->n; i-- > 0 && con_step(g->c, 1);) {
		struct charset set = {0};
		charset_add(g->c, &set, w->chars[i], w->chars[i]);
		if (fold)
			charset_fold(g->c, &set);
		out = rx_cat(g->c->pool, charset_rx(g->c, &set), out);
	}
	return out;
}

static struct ebnf_node *read_text(struct ebnf *g)
{
	size_t begin = g->at;
	struct word w = read_string(g);
	if (looking_at(g, "..")) {
		g->at += 2;
		struct word to = peek(g) == '"' ? read_string(g) : (struct word){0};
		if (w.n != 1 || to.n != 1 || w.chars[0] > to.chars[0]) {
			ebnf_fail(g, SL_EINVAL, begin, "a range must be from one character to a later one");
			return NULL;
		}
		struct rx_range range = {w.chars[0], to.chars[0]};
		return ebnf_rx(g, rx_chars(g->c->pool, &range, 1));
	}
	bool fold = peek(g) == 'i' && !(g->n - g->at > 1 && is_name(g->text[g->at + 1]));
	g->at += fold;
	return g->c->rc == 0 ? ebnf_rx(g, word_rx(g, &w, fold)) : NULL;
}

static unsigned read_flags(struct ebnf *g)
{
	unsigned how = 0;
	for (; g->at < g->n && peek(g) != '\0' && strchr("imslux", peek(g)) != NULL; g->at++)
		switch (peek(g)) {
		case 'i': how |= REGEX_FOLD; break;
		case 's': how |= REGEX_ALL; break;
		case 'x': how |= REGEX_SPACED; break;
		case 'u': break;
		default: ebnf_fail(g, SL_EUNSUPPORTED, g->at, "the flag %c is not supported", peek(g));
		}
	return how;
}

static struct ebnf_node *read_regex(struct ebnf *g)
{
	size_t begin = ++g->at, n = 0;
	char *text = con_alloc(g->c, g->n - begin + 1, 1);
	struct regex_fault fault;
	while (text != NULL && g->at < g->n && peek(g) != '/' && peek(g) != '\n') {
		if (looking_at(g, "\\/"))
			g->at += g->at < g->n;
		else if (peek(g) == '\\' && g->n - g->at > 1)
			text[n++] = g->text[g->at++];
		text[n++] = g->text[g->at++];
	}
	if (text == NULL || peek(g) != '/') {
		ebnf_fail(g, SL_EINVAL, begin - 1, "a regular expression does not end");
		return NULL;
	}
	g->at += g->at < g->n;
	rx lang = regex_rx(g->c, text, n, read_flags(g), &fault);
	if (fault.code != 0)
		ebnf_fail(g, fault.code, begin - 1, "regular expression: %s at offset %zu", fault.what, fault.at);
	return ebnf_rx(g, lang);
}

/* ---- expressions ---- */

static struct ebnf_node *read_choice(struct ebnf *g);

static struct ebnf_node *read_group(struct ebnf *g, char closing)
{
	size_t begin = g->at++;
	if (++g->depth > g->c->max_depth) {
		ebnf_fail(g, SL_ELIMIT, begin, "parentheses are nested too deep");
		return NULL;
	}
	struct ebnf_node *n = read_choice(g);
	skip_blanks(g, true);
	if (g->c->rc == 0 && peek(g) != closing)
		ebnf_fail(g, SL_EINVAL, begin, "a parenthesis does not close");
	g->at += g->at < g->n;
	g->depth--;
	return closing == ']' ? ebnf_repeat(g, n, 0, 1) : n;
}

static struct ebnf_node *read_reference(struct ebnf *g)
{
	size_t at = g->at;
	struct proto_str name = read_name(g);
	if (name.n == 0) {
		ebnf_fail(g, SL_EINVAL, at, "unexpected character");
		return NULL;
	}
	if (peek(g) == '{') {
		ebnf_fail(g, SL_EUNSUPPORTED, at, "templates are not supported");
		return NULL;
	}
	struct ebnf_node *n = ebnf_node(g, EBNF_REF);
	if (n == NULL)
		return NULL;
	n->rule = ebnf_rule(g, name, at);
	g->rules[n->rule].terminal = is_terminal(name);
	return n;
}

static struct ebnf_node *read_atom(struct ebnf *g)
{
	switch (peek(g)) {
	case '"': return read_text(g);
	case '/': return read_regex(g);
	case '(': return read_group(g, ')');
	case '[': return read_group(g, ']');
	case '@':
	case '%': ebnf_fail(g, SL_EUNSUPPORTED, g->at, "inline directives are not supported"); return NULL;
	default: return read_reference(g);
	}
}

/* ~ 3, ~ 3..5 */
static void read_times(struct ebnf *g, uint32_t *least, uint32_t *most)
{
	size_t begin = g->at++;
	skip_blanks(g, false);
	bool good = ebnf_number(g, least);
	*most = *least;
	skip_blanks(g, false);
	if (looking_at(g, "..")) {
		g->at += 2;
		skip_blanks(g, false);
		good = ebnf_number(g, most) && good;
	}
	if (!good || *least > *most)
		ebnf_fail(g, SL_EINVAL, begin, "a malformed repetition");
}

static struct ebnf_node *read_item(struct ebnf *g)
{
	struct ebnf_node *n = read_atom(g);
	size_t at = g->at;
	skip_blanks(g, false);
	char ch = peek(g);
	uint32_t least = ch == '+', most = ch == '?' ? 1 : RX_UNBOUNDED;
	if (n == NULL || g->c->rc != 0)
		return NULL;
	if (ch == '~')
		read_times(g, &least, &most);
	else if (at == g->at && (ch == '*' || ch == '+' || ch == '?'))
		g->at += g->at < g->n;
	else
		return n;
	return ebnf_repeat(g, n, least, most);
}

/* Does the next line continue this rule: with |, or inside parentheses? */
static bool continues(struct ebnf *g)
{
	size_t before = g->at;
	skip_blanks(g, true);
	if (g->depth > 0 || peek(g) == '|')
		return true;
	g->at = before;
	return false;
}

static struct ebnf_node *read_sequence(struct ebnf *g)
{
	struct ebnf_node *n = ebnf_node(g, EBNF_SEQ);
	for (skip_blanks(g, g->depth > 0); g->at < g->n && g->c->rc == 0; skip_blanks(g, g->depth > 0)) {
		char ch = peek(g);
		if (ch == '|' || ch == ')' || ch == ']' || ch == '\n' || ch == '\r')
			break;
		if (looking_at(g, "->")) {
			g->at += 2;
			skip_blanks(g, false);
			read_name(g);
			continue;
		}
		ebnf_add(g, n, read_item(g));
	}
	return n;
}

static struct ebnf_node *read_choice(struct ebnf *g)
{
	struct ebnf_node *n = ebnf_node(g, EBNF_ALT);
	ebnf_add(g, n, read_sequence(g));
	while (g->c->rc == 0 && continues(g) && peek(g) == '|') {
		g->at += g->at < g->n;
		ebnf_add(g, n, read_sequence(g));
	}
	return n;
}

/* ---- statements ---- */

static void define(struct ebnf *g, struct proto_str name, size_t at, struct ebnf_node *body)
{
	uint32_t rule = ebnf_rule(g, name, at);
	if (g->c->rc != 0)
		return;
	if (g->rules[rule].body != NULL)
		ebnf_fail(g, SL_EINVAL, at, "%.*s is defined twice", (int)(name.n < 80 ? name.n : 80), name.at);
	g->rules[rule].terminal = is_terminal(name);
	g->rules[rule].body = body;
}

static void read_rule(struct ebnf *g)
{
	uint32_t priority;
	if (peek(g) == '?' || peek(g) == '!')
		g->at += g->at < g->n;
	if (peek(g) == '?' || peek(g) == '!')
		g->at += g->at < g->n;
	size_t begin = g->at;
	struct proto_str name = read_name(g);
	if (peek(g) == '{') {
		ebnf_fail(g, SL_EUNSUPPORTED, begin, "templates are not supported");
		return;
	}
	if (peek(g) == '.') {
		g->at += g->at < g->n;
		g->at += peek(g) == '-';
		ebnf_number(g, &priority);
	}
	skip_blanks(g, false);
	if (name.n == 0 || peek(g) != ':') {
		ebnf_fail(g, SL_EINVAL, begin, "a rule is expected: name: …");
		return;
	}
	g->at += g->at < g->n;
	define(g, name, begin, read_choice(g));
	if (g->c->rc == 0 && g->at < g->n && peek(g) != '\n' && peek(g) != '\r')
		ebnf_fail(g, SL_EINVAL, g->at, "unexpected character");
}

/* %ignore is applied once all terminals are known. */
static void read_ignore(struct lark *l)
{
	struct ebnf *g = &l->g;
	skip_blanks(g, false);
	ebnf_add(g, l->ignored, read_choice(g));
}

static void import_one(struct lark *l, struct proto_str name, struct proto_str as, size_t at)
{
	struct ebnf *g = &l->g;
	struct regex_fault fault;
	const char *expression = common_terminal(name);
	if (expression == NULL) {
		ebnf_fail(g, SL_EUNSUPPORTED, at, "common.%.*s is not known", (int)(name.n < 60 ? name.n : 60),
			  name.at);
		return;
	}
	rx lang = regex_rx(g->c, expression, strlen(expression), 0, &fault);
	define(g, as, at, ebnf_rx(g, lang));
}

static struct proto_str read_alias(struct ebnf *g, struct proto_str name)
{
	skip_blanks(g, false);
	if (!looking_at(g, "->"))
		return name;
	g->at += 2;
	skip_blanks(g, false);
	return read_name(g);
}

static void import_list(struct lark *l)
{
	struct ebnf *g = &l->g;
	g->at += g->at < g->n;
	for (skip_blanks(g, true); g->c->rc == 0 && peek(g) != ')'; skip_blanks(g, true)) {
		size_t at = g->at;
		struct proto_str name = read_name(g);
		if (name.n == 0) {
			ebnf_fail(g, SL_EINVAL, at, "a name is expected");
			return;
		}
		import_one(l, name, name, at);
		skip_blanks(g, true);
		if (peek(g) == ',')
			g->at += g->at < g->n;
	}
	g->at += g->at < g->n;
}

static void read_import(struct lark *l)
{
	struct ebnf *g = &l->g;
	skip_blanks(g, false);
	size_t begin = g->at;
	struct proto_str library = read_name(g);
	if (library.n != 6 || memcmp(library.at, "common", 6) != 0) {
		ebnf_fail(g, SL_EUNSUPPORTED, begin, "only %%import common.NAME is supported");
		return;
	}
	if (peek(g) == '.') {
		g->at += g->at < g->n;
		size_t at = g->at;
		struct proto_str name = read_name(g);
		import_one(l, name, read_alias(g, name), at);
		return;
	}
	skip_blanks(g, false);
	if (peek(g) == '(')
		import_list(l);
	else
		ebnf_fail(g, SL_EINVAL, g->at, "a name is expected");
}

static void read_directive(struct lark *l)
{
	struct ebnf *g = &l->g;
	size_t begin = g->at++;
	struct proto_str name = read_name(g);
	if (name.n == 6 && memcmp(name.at, "ignore", 6) == 0)
		read_ignore(l);
	else if (name.n == 6 && memcmp(name.at, "import", 6) == 0)
		read_import(l);
	else
		ebnf_fail(g, SL_EUNSUPPORTED, begin, "%%%.*s is not supported", (int)(name.n < 60 ? name.n : 60),
			  name.at);
}

void con_lark(struct con *c, const char *text, size_t n)
{
	struct lark l = {.g = {.c = c, .text = text, .n = n}};
	struct ebnf *g = &l.g;
	l.ignored = ebnf_node(g, EBNF_ALT);
	for (skip_blanks(g, true); g->at < n && con_step(c, 1); skip_blanks(g, true))
		if (peek(g) == '%')
			read_directive(&l);
		else
			read_rule(g);
	g->depth = 0;
	if (c->rc == 0 && l.ignored->n > 0)
		g->ignored = rx_repeat(c->pool, ebnf_terminal(g, l.ignored), 0, RX_UNBOUNDED);
	ebnf_write(g, "start");
}
