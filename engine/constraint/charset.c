/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constraint/charset.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { LAST = 0x10ffff, MAX_FOLDED = 0x3000, SCAN_STEPS = 40000 };

void charset_add(struct con *c, struct charset *s, uint32_t from, uint32_t to)
{
	struct rx_range *grown = con_grow(c, s->ranges, s->n, &s->cap, sizeof *grown);
	if (grown == NULL)
		return;
	s->ranges = grown;
	s->ranges[s->n++] = (struct rx_range){from, to};
}

void charset_add_all(struct con *c, struct charset *s, const struct charset *other)
{
	for (size_t i = 0; i < other->n; i++)
		charset_add(c, s, other->ranges[i].from, other->ranges[i].to);
}

static int by_start(const void *a, const void *b)
{
	const struct rx_range *x = a, *y = b;
	return x->from < y->from ? -1 : x->from > y->from;
}

/* Sorted, without overlaps. */
static void sort(struct charset *s)
{
	size_t n = 0;
	if (s->n == 0)
		return;
	qsort(s->ranges, s->n, sizeof *s->ranges, by_start);
	for (size_t i = 1; i < s->n; i++) {
		if (s->ranges[i].from <= s->ranges[n].to || s->ranges[i].from == s->ranges[n].to + 1) {
			if (s->ranges[i].to > s->ranges[n].to)
				s->ranges[n].to = s->ranges[i].to;
		} else {
			s->ranges[++n] = s->ranges[i];
		}
	}
	s->n = n + 1;
}

void charset_invert(struct con *c, struct charset *s)
{
	struct charset out = {0};
	uint32_t next = 0;
	sort(s);
	for (size_t i = 0; i < s->n; i++) {
		if (s->ranges[i].from > next)
			charset_add(c, &out, next, s->ranges[i].from - 1);
		next = s->ranges[i].to + 1;
	}
	if (next <= LAST)
		charset_add(c, &out, next, LAST);
	*s = out;
}

void charset_fold(struct con *c, struct charset *s)
{
	size_t n = s->n;
	for (size_t i = 0; i < n; i++)
		for (uint32_t cp = s->ranges[i].from; cp <= s->ranges[i].to && cp < MAX_FOLDED && con_step(c, 1);
		     cp++) {
			uint32_t low = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
			uint32_t up = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
			if (low != cp)
				charset_add(c, s, low, low);
			if (up != cp)
				charset_add(c, s, up, up);
		}
}

static void add_spaces(struct con *c, struct charset *s)
{
	static const struct rx_range spaces[] = {{9, 13},          {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680},
						 {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
						 {0x3000, 0x3000}, {0xfeff, 0xfeff}};
	for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
		charset_add(c, s, spaces[i].from, spaces[i].to);
}

bool charset_add_class(struct con *c, struct charset *s, char name)
{
	struct charset set = {0};
	switch (name | 0x20) {
	case 'd': charset_add(c, &set, '0', '9'); break;
	case 'w':
		charset_add(c, &set, '0', '9');
		charset_add(c, &set, 'A', 'Z');
		charset_add(c, &set, '_', '_');
		charset_add(c, &set, 'a', 'z');
		break;
	case 's': add_spaces(c, &set); break;
	default: return false;
	}
	if (name < 'a')
		charset_invert(c, &set);
	charset_add_all(c, s, &set);
	return true;
}

/* ---- properties ---- */

struct category {
	const char *name, *longer;
	uint32_t mask; /* of 1 << utf8proc_category_t */
};

#define CAT(x) (1u << UTF8PROC_CATEGORY_##x)
#define LETTERS (CAT(LU) | CAT(LL) | CAT(LT) | CAT(LM) | CAT(LO))
#define OTHER (CAT(CN) | CAT(CC) | CAT(CF) | CAT(CS) | CAT(CO))
static const struct category categories[] = {
    {"L", "Letter", LETTERS},
    {"LC", "Cased_Letter", CAT(LU) | CAT(LL) | CAT(LT)},
    {"Lu", "Uppercase_Letter", CAT(LU)},
    {"Ll", "Lowercase_Letter", CAT(LL)},
    {"Lt", "Titlecase_Letter", CAT(LT)},
    {"Lm", "Modifier_Letter", CAT(LM)},
    {"Lo", "Other_Letter", CAT(LO)},
    {"M", "Mark", CAT(MN) | CAT(MC) | CAT(ME)},
    {"Mn", "Nonspacing_Mark", CAT(MN)},
    {"Mc", "Spacing_Mark", CAT(MC)},
    {"Me", "Enclosing_Mark", CAT(ME)},
    {"N", "Number", CAT(ND) | CAT(NL) | CAT(NO)},
    {"Nd", "Decimal_Number", CAT(ND)},
    {"Nl", "Letter_Number", CAT(NL)},
    {"No", "Other_Number", CAT(NO)},
    {"P", "Punctuation", CAT(PC) | CAT(PD) | CAT(PS) | CAT(PE) | CAT(PI) | CAT(PF) | CAT(PO)},
    {"Pc", "Connector_Punctuation", CAT(PC)},
    {"Pd", "Dash_Punctuation", CAT(PD)},
    {"Ps", "Open_Punctuation", CAT(PS)},
    {"Pe", "Close_Punctuation", CAT(PE)},
    {"Pi", "Initial_Punctuation", CAT(PI)},
    {"Pf", "Final_Punctuation", CAT(PF)},
    {"Po", "Other_Punctuation", CAT(PO)},
    {"S", "Symbol", CAT(SM) | CAT(SC) | CAT(SK) | CAT(SO)},
    {"Sm", "Math_Symbol", CAT(SM)},
    {"Sc", "Currency_Symbol", CAT(SC)},
    {"Sk", "Modifier_Symbol", CAT(SK)},
    {"So", "Other_Symbol", CAT(SO)},
    {"Z", "Separator", CAT(ZS) | CAT(ZL) | CAT(ZP)},
    {"Zs", "Space_Separator", CAT(ZS)},
    {"Zl", "Line_Separator", CAT(ZL)},
    {"Zp", "Paragraph_Separator", CAT(ZP)},
    {"C", "Other", OTHER},
    {"Cc", "Control", CAT(CC)},
    {"Cf", "Format", CAT(CF)},
    {"Cn", "Unassigned", CAT(CN)},
    {"Co", "Private_Use", CAT(CO)},
};

static bool is(const char *name, size_t n, const char *what)
{
	return what != NULL && strlen(what) == n && memcmp(what, name, n) == 0;
}

/* Code points of the categories; costs 1.1 million look-ups. */
static void scan(struct con *c, struct charset *s, uint32_t mask)
{
	uint32_t from = 0;
	bool inside = false;
	con_step(c, SCAN_STEPS);
	for (uint32_t cp = 0; cp <= LAST + 1 && c->rc == 0; cp++) {
		bool in = cp <= LAST && (mask >> utf8proc_category((utf8proc_int32_t)cp) & 1) != 0;
		if (in && !inside)
			from = cp;
		if (!in && inside)
			charset_add(c, s, from, cp - 1);
		inside = in;
	}
}

static uint32_t mask_of(const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
		if (is(name, n, categories[i].name) || is(name, n, categories[i].longer))
			return categories[i].mask;
	return 0;
}

static bool add_named(struct con *c, struct charset *s, const char *name, size_t n)
{
	uint32_t mask = mask_of(name, n);
	if (is(name, n, "Any"))
		charset_add(c, s, 0, LAST);
	else if (is(name, n, "ASCII"))
		charset_add(c, s, 0, 0x7f);
	else if (is(name, n, "White_Space") || is(name, n, "space"))
		charset_add_class(c, s, 's');
	else if (mask != 0)
		scan(c, s, mask);
	else
		return false;
	return true;
}

bool charset_add_property(struct con *c, struct charset *s, const char *name, size_t n, bool inverted)
{
	struct charset set = {0};
	const char *equals = memchr(name, '=', n);
	if (equals != NULL) {
		size_t before = (size_t)(equals - name);
		if (!is(name, before, "General_Category") && !is(name, before, "gc"))
			return false;
		name += before + 1;
		n -= before + 1;
		if (mask_of(name, n) == 0)
			return false;
	}
	if (!add_named(c, &set, name, n))
		return false;
	if (inverted)
		charset_invert(c, &set);
	charset_add_all(c, s, &set);
	return true;
}

rx charset_rx(struct con *c, const struct charset *s)
{
	struct charset sorted = {0};
	charset_add_all(c, &sorted, s);
	sort(&sorted);
	return rx_chars(c->pool, sorted.ranges, sorted.n);
}
