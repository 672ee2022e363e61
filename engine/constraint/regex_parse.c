/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/constraint/regex_priv.h"

enum { MAX_GROUPS = 200, MAX_TIMES = 1000000 };

int re_fail(struct re_parser *p, int code, size_t at, const char *fmt, ...)
{
	if (p->fault->code == 0) {
		va_list args;
		va_start(args, fmt);
		vsnprintf(p->fault->what, sizeof p->fault->what, fmt, args);
		va_end(args);
		p->fault->code = code;
		p->fault->at = at;
	}
	return code;
}

static const struct re *node(struct re_parser *p, struct re of)
{
	struct re *e = con_alloc(p->c, 1, sizeof *e);
	if (e != NULL)
		*e = of;
	return e;
}

static const struct re *lang(struct re_parser *p, rx l)
{
	return node(p, (struct re){.kind = RE_LANG, .plain = true, .lang = l});
}

static const struct re *cat(struct re_parser *p, const struct re *a, const struct re *b)
{
	if (a == NULL || b == NULL)
		return NULL;
	if (a->kind == RE_LANG && a->lang == RX_EPS)
		return b;
	bool plain = a->plain && b->plain;
	rx l = plain ? rx_cat(p->c->pool, a->lang, b->lang) : RX_NONE;
	return node(p, (struct re){.kind = RE_CAT, .plain = plain, .lang = l, .a = a, .b = b});
}

static const struct re *alt(struct re_parser *p, const struct re *a, const struct re *b)
{
	if (a == NULL || b == NULL)
		return NULL;
	bool plain = a->plain && b->plain;
	rx l = plain ? rx_or(p->c->pool, a->lang, b->lang) : RX_NONE;
	return node(p, (struct re){.kind = RE_ALT, .plain = plain, .lang = l, .a = a, .b = b});
}

static const struct re *repeat(struct re_parser *p, const struct re *a, uint32_t least, uint32_t most, size_t at)
{
	if (a == NULL)
		return NULL;
	rx l = a->plain ? rx_repeat(p->c->pool, a->lang, least, most) : RX_NONE;
	struct re e = {.kind = RE_REPEAT, .plain = a->plain, .lang = l, .a = a, .least = least, .most = most, .at = at};
	return node(p, e);
}

static char peek(const struct re_parser *p) { return p->at < p->n ? p->text[p->at] : '\0'; }

static bool looking_at(const struct re_parser *p, const char *what)
{
	size_t n = strlen(what);
	return p->n - p->at >= n && memcmp(p->text + p->at, what, n) == 0;
}

static const struct re *parse_choice(struct re_parser *p);

/* ---- quantifiers ---- */

static bool read_count(struct re_parser *p, size_t *at, uint32_t *out)
{
	size_t begin = *at;
	uint64_t v = 0;
	for (; *at < p->n && p->text[*at] >= '0' && p->text[*at] <= '9'; (*at)++)
		v = v > MAX_TIMES ? v : v * 10 + (uint64_t)(p->text[*at] - '0');
	*out = v > MAX_TIMES ? RX_UNBOUNDED : (uint32_t)v;
	return *at > begin;
}

/* {2}, {2,}, {2,5} at the brace; 0: not a quantifier, so the brace is a character. */
static size_t read_braces(struct re_parser *p, uint32_t *least, uint32_t *most)
{
	size_t at = p->at + 1;
	if (!read_count(p, &at, least))
		return 0;
	*most = *least;
	if (at < p->n && p->text[at] == ',') {
		at++;
		if (!read_count(p, &at, most))
			*most = RX_UNBOUNDED;
	}
	return at < p->n && p->text[at] == '}' ? at + 1 : 0;
}

/* False: there is no quantifier. */
static bool read_quantifier(struct re_parser *p, uint32_t *least, uint32_t *most)
{
	size_t after = p->at + 1;
	*least = peek(p) == '+';
	*most = peek(p) == '?' ? 1 : RX_UNBOUNDED;
	if (peek(p) == '{')
		after = read_braces(p, least, most);
	else if (peek(p) != '*' && peek(p) != '+' && peek(p) != '?')
		return false;
	if (after == 0 || p->at >= p->n)
		return false;
	if (*least > *most || *least == RX_UNBOUNDED)
		re_fail(p, SL_EINVAL, p->at, "a quantifier's bounds are out of order or too large");
	p->at = after;
	if (peek(p) == '?') /* lazy: the same language */
		p->at += p->at < p->n;
	return true;
}

/* ---- atoms ---- */

static const struct re *group_end(struct re_parser *p, size_t begin, const struct re *e)
{
	if (p->fault->code == 0 && peek(p) != ')')
		re_fail(p, SL_EINVAL, begin, "a group does not end");
	p->at += p->at < p->n;
	p->depth--;
	return p->fault->code == 0 ? e : NULL;
}

static const struct re *group_of(struct re_parser *p, size_t begin, enum re_kind kind, bool inverted)
{
	const struct re *e = group_end(p, begin, parse_choice(p));
	if (e == NULL || kind == RE_LANG)
		return e;
	return node(p, (struct re){.kind = kind, .a = e, .inverted = inverted, .at = begin});
}

static bool skip_name(struct re_parser *p, size_t begin)
{
	const char *end = memchr(p->text + p->at, '>', p->n - p->at);
	if (end == NULL)
		return re_fail(p, SL_EINVAL, begin, "a group's name does not end") == 0;
	p->at = (size_t)(end - p->text) + 1;
	return true;
}

/* (?i) for what follows in this group, (?i:…) for the group. */
static const struct re *modified(struct re_parser *p, size_t begin)
{
	unsigned before = p->how, how = p->how;
	for (; p->at < p->n && strchr("isx", peek(p)) != NULL; p->at++)
		how |= peek(p) == 'i' ? REGEX_FOLD : peek(p) == 's' ? REGEX_ALL : REGEX_SPACED;
	if (peek(p) != ')' && peek(p) != ':') {
		re_fail(p, SL_EUNSUPPORTED, begin, "this kind of group is not supported");
		return NULL;
	}
	p->how = how;
	if (peek(p) == ')') {
		p->at += p->at < p->n;
		p->depth--;
		return lang(p, RX_EPS);
	}
	p->at += p->at < p->n;
	const struct re *e = group_of(p, begin, RE_LANG, false);
	p->how = before;
	return e;
}

/* Lookbehinds use the kinds of preceding characters, as \b does. So all lookbehinds of an expression must have the same
 * characters. */
static const struct re *behind(struct re_parser *p, size_t begin, const struct re *e)
{
	if (e == NULL)
		return NULL;
	rx one = e->a->lang;
	bool single =
	    e->a->plain && one != RX_NONE && rx_is_none(p->c->pool, con_minus(p->c, one, con_any_char(p->c)), 64);
	if (!single || (p->behind != RX_NONE && p->behind != one) || p->boundaries) {
		re_fail(p, SL_EUNSUPPORTED, begin, "only lookbehinds of one character and without \\b are supported");
		return NULL;
	}
	p->behind = one;
	return e;
}

static const struct re *parse_group(struct re_parser *p)
{
	size_t begin = p->at++;
	unsigned how = p->how;
	if (++p->depth > MAX_GROUPS) {
		re_fail(p, SL_ELIMIT, begin, "groups are nested more than %d levels deep", MAX_GROUPS);
		return NULL;
	}
	enum re_kind kind = RE_LANG;
	bool inverted = looking_at(p, "?!");
	if (looking_at(p, "?:")) {
		p->at += 2;
	} else if (looking_at(p, "?=") || inverted) {
		p->at += 2;
		kind = RE_AHEAD;
	} else if (looking_at(p, "?<=") || looking_at(p, "?<!")) {
		inverted = looking_at(p, "?<!");
		p->at += 3;
		return behind(p, begin, group_of(p, begin, RE_BEHIND, inverted));
	} else if (looking_at(p, "?<") || looking_at(p, "?P<")) {
		if (!skip_name(p, begin))
			return NULL;
	} else if (peek(p) == '?') {
		p->at += p->at < p->n;
		return modified(p, begin);
	}
	const struct re *e = group_of(p, begin, kind, inverted);
	p->how = how;
	return e;
}

static const struct re *parse_escape(struct re_parser *p)
{
	size_t begin = p->at++;
	struct charset set = {0};
	uint32_t single;
	if (peek(p) == 'b' || peek(p) == 'B') {
		p->at += p->at < p->n;
		p->boundaries = true;
		if (p->behind != RX_NONE) {
			re_fail(p, SL_EUNSUPPORTED, begin, "\\b beside lookbehinds is not supported");
			return NULL;
		}
		return node(p, (struct re){.kind = RE_BOUNDARY, .inverted = p->text[p->at - 1] == 'B', .at = begin});
	}
	if (!re_escape(p, false, &set, &single))
		return NULL;
	return lang(p, re_set(p, &set));
}

static const struct re *parse_dot(struct re_parser *p)
{
	static const struct rx_range ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
	p->at += p->at < p->n;
	return lang(p, rx_chars_except(p->c->pool, ends, p->how & REGEX_ALL ? 0 : 3));
}

static const struct re *parse_char(struct re_parser *p)
{
	struct charset set = {0};
	uint32_t cp = re_next(p);
	if (cp == UINT32_MAX)
		return NULL;
	charset_add(p->c, &set, cp, cp);
	return lang(p, re_set(p, &set));
}

static const struct re *parse_assertion(struct re_parser *p)
{
	enum re_kind kind = peek(p) == '^' ? RE_BEGIN : RE_END;
	return node(p, (struct re){.kind = kind, .at = p->at++});
}

static const struct re *parse_atom(struct re_parser *p)
{
	uint32_t least, most;
	size_t at = p->at;
	switch (peek(p)) {
	case '(': return parse_group(p);
	case '[': p->at++; return lang(p, re_class(p));
	case '\\': return parse_escape(p);
	case '.': return parse_dot(p);
	case '^':
	case '$': return parse_assertion(p);
	default: break;
	}
	if (read_quantifier(p, &least, &most)) {
		re_fail(p, SL_EINVAL, at, "nothing to repeat");
		return NULL;
	}
	return parse_char(p);
}

static void skip_blanks(struct re_parser *p)
{
	while (p->how & REGEX_SPACED && p->at < p->n && strchr(" \t\r\n#", peek(p)) != NULL) {
		if (peek(p) == '#')
			while (p->at < p->n && peek(p) != '\n')
				p->at += p->at < p->n;
		else
			p->at += p->at < p->n;
	}
}

static const struct re *parse_term(struct re_parser *p)
{
	uint32_t least, most;
	const struct re *e = parse_atom(p);
	size_t at = p->at;
	skip_blanks(p);
	if (e != NULL && p->fault->code == 0 && read_quantifier(p, &least, &most))
		e = repeat(p, e, least, most, at);
	return p->fault->code == 0 ? e : NULL;
}

static const struct re *parse_sequence(struct re_parser *p)
{
	const struct re *e = lang(p, RX_EPS);
	skip_blanks(p);
	while (e != NULL && p->at < p->n && peek(p) != '|' && peek(p) != ')' && con_step(p->c, 1)) {
		e = cat(p, e, parse_term(p));
		skip_blanks(p);
	}
	return e;
}

static const struct re *parse_choice(struct re_parser *p)
{
	const struct re *e = parse_sequence(p);
	while (e != NULL && p->at < p->n && peek(p) == '|') {
		p->at += p->at < p->n;
		e = alt(p, e, parse_sequence(p));
	}
	return e;
}

const struct re *re_parse(struct re_parser *p)
{
	const struct re *e = parse_choice(p);
	if (e != NULL && p->at < p->n)
		re_fail(p, SL_EINVAL, p->at, "an unmatched closing parenthesis");
	return p->fault->code == 0 ? e : NULL;
}
