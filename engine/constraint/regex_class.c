/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters, escapes and classes of regular expressions.
 */
#include <string.h>

#include "base/utf8.h"
#include "engine/constraint/regex_priv.h"

static int hex(char ch)
{
	return ch >= '0' && ch <= '9'   ? ch - '0'
	       : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
	       : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
					: -1;
}

uint32_t re_next(struct re_parser *p)
{
	uint32_t cp;
	if (p->at >= p->n)
		return UINT32_MAX;
	int len = utf8_decode((const uint8_t *)p->text + p->at, p->n - p->at, &cp);
	if (len <= 0) {
		re_fail(p, SL_EINVAL, p->at, "invalid UTF-8");
		return UINT32_MAX;
	}
	p->at += (size_t)len;
	return cp;
}

rx re_set(struct re_parser *p, struct charset *set)
{
	if (p->how & REGEX_FOLD)
		charset_fold(p->c, set);
	return charset_rx(p->c, set);
}

/* Exactly n hexadecimal digits; UINT32_MAX: fewer. */
static uint32_t read_hex(struct re_parser *p, size_t n)
{
	uint32_t v = 0;
	if (p->n - p->at < n)
		return UINT32_MAX;
	for (size_t i = 0; i < n; i++) {
		int d = hex(p->text[p->at + i]);
		if (d < 0)
			return UINT32_MAX;
		v = v * 16 + (uint32_t)d;
	}
	p->at += n;
	return v;
}

static uint32_t read_braced(struct re_parser *p)
{
	uint32_t v = 0;
	size_t begin = ++p->at;
	for (; p->at < p->n && hex(p->text[p->at]) >= 0 && v <= 0x10ffff; p->at++)
		v = v * 16 + (uint32_t)hex(p->text[p->at]);
	if (p->at == begin || p->at >= p->n || p->text[p->at] != '}' || v > 0x10ffff)
		return UINT32_MAX;
	p->at += p->at < p->n;
	return v;
}

/* After \u: four digits, a pair of surrogates, or digits in braces. */
static uint32_t read_unicode(struct re_parser *p)
{
	if (p->at < p->n && p->text[p->at] == '{')
		return read_braced(p);
	uint32_t v = read_hex(p, 4);
	size_t after = p->at;
	if (v < 0xd800 || v > 0xdbff || p->n - p->at < 6 || memcmp(p->text + p->at, "\\u", 2) != 0)
		return v;
	p->at += 2;
	uint32_t low = read_hex(p, 4);
	if (low >= 0xdc00 && low <= 0xdfff)
		return 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
	p->at = after;
	return v;
}

static bool read_property(struct re_parser *p, bool inverted, struct charset *set)
{
	size_t begin = p->at - 2;
	const char *name = p->text + p->at + 1;
	const char *end = p->at < p->n && p->text[p->at] == '{' ? memchr(name, '}', p->n - p->at - 1) : NULL;
	if (end == NULL)
		return re_fail(p, SL_EINVAL, begin, "a property has no braces") == 0;
	if (!charset_add_property(p->c, set, name, (size_t)(end - name), inverted))
		return re_fail(p, SL_EUNSUPPORTED, begin, "the property %.*s is not supported",
			       (int)(end - name < 40 ? end - name : 40), name) == 0;
	p->at = (size_t)(end - p->text) + 1;
	return true;
}

/* Escapes of one character other than itself; UINT32_MAX - 1: not one of them. */
static uint32_t named_char(struct re_parser *p, char ch, bool in_class)
{
	switch (ch) {
	case 't': return '\t';
	case 'n': return '\n';
	case 'v': return '\v';
	case 'f': return '\f';
	case 'r': return '\r';
	case 'a': return UINT32_MAX;
	case 'x': return read_hex(p, 2);
	case 'u': return read_unicode(p);
	case '0': return p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9' ? UINT32_MAX : 0;
	case 'b': return in_class ? '\b' : UINT32_MAX;
	case 'c':
		if (p->at < p->n && ((p->text[p->at] | 0x20) >= 'a' && (p->text[p->at] | 0x20) <= 'z'))
			return (uint32_t)(p->text[p->at++] & 31);
		return UINT32_MAX;
	default: return UINT32_MAX - 1;
	}
}

bool re_escape(struct re_parser *p, bool in_class, struct charset *set, uint32_t *single)
{
	size_t begin = p->at - 1;
	uint32_t cp = re_next(p);
	*single = UINT32_MAX;
	if (cp == UINT32_MAX)
		return re_fail(p, SL_EINVAL, begin, "a backslash at the end") == 0;
	if (cp == 'p' || cp == 'P')
		return read_property(p, cp == 'P', set);
	if (cp < 0x80 && charset_add_class(p->c, set, (char)cp))
		return true;
	uint32_t named = cp < 0x80 ? named_char(p, (char)cp, in_class) : UINT32_MAX - 1;
	if (named == UINT32_MAX - 1) {
		if ((cp >= '1' && cp <= '9') || cp == 'k')
			return re_fail(p, SL_EUNSUPPORTED, begin, "backreferences are not supported") == 0;
		if ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z')
			return re_fail(p, SL_EINVAL, begin, "\\%c is not an escape", (char)cp) == 0;
		named = cp;
	}
	if (named == UINT32_MAX)
		return re_fail(p, SL_EINVAL, begin, "a malformed escape") == 0;
	*single = named;
	charset_add(p->c, set, named, named);
	return true;
}

/* One member of a class; *single as in re_escape. */
static bool class_atom(struct re_parser *p, struct charset *set, uint32_t *single)
{
	uint32_t cp = re_next(p);
	*single = cp;
	if (cp == UINT32_MAX)
		return re_fail(p, SL_EINVAL, p->at, "a class does not end") == 0;
	if (cp == '\\')
		return re_escape(p, true, set, single);
	charset_add(p->c, set, cp, cp);
	return true;
}

static bool class_range(struct re_parser *p, struct charset *set, uint32_t from, size_t begin)
{
	uint32_t to;
	p->at++; /* the dash */
	if (!class_atom(p, set, &to))
		return false;
	if (from == UINT32_MAX || to == UINT32_MAX) /* [\w-.]: the dash is a character of the class */
		charset_add(p->c, set, '-', '-');
	else if (from > to)
		return re_fail(p, SL_EINVAL, begin, "a range is out of order") == 0;
	else
		charset_add(p->c, set, from, to);
	return true;
}

rx re_class(struct re_parser *p)
{
	struct charset set = {0};
	size_t begin = p->at - 1;
	bool inverted = p->at < p->n && p->text[p->at] == '^';
	p->at += inverted;
	while (p->at < p->n && p->text[p->at] != ']' && con_step(p->c, 1)) {
		size_t at = p->at;
		uint32_t single;
		if (!class_atom(p, &set, &single))
			return RX_NONE;
		bool dash = p->n - p->at >= 2 && p->text[p->at] == '-' && p->text[p->at + 1] != ']';
		if (dash && !class_range(p, &set, single, at))
			return RX_NONE;
	}
	if (p->at >= p->n) {
		re_fail(p, SL_EINVAL, begin, "a class does not end");
		return RX_NONE;
	}
	p->at += p->at < p->n;
	if (p->how & REGEX_FOLD)
		charset_fold(p->c, &set);
	if (inverted)
		charset_invert(p->c, &set);
	return charset_rx(p->c, &set);
}
