/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on text that keep each byte's trust: a part keeps its own, a joint has its parts', a
 * changed letter has that of the one it was. Characters are code points; their properties and
 * cases are Unicode's (utf8proc), with the letters that become several (SpecialCasing.txt, the
 * unconditional ones that occur in practice) and the final sigma as in Python.
 */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "engine/jinja/jinja.h"

/* ---- characters ---- */

/* Python's str.isspace. */
bool jinja_is_space(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Python's str.isprintable: no controls, formats, separators (but the space) or unassigned ones. */
bool jinja_is_printable(uint32_t c)
{
	if (c < 0x7F)
		return c >= ' ';
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP: return false;
	case UTF8PROC_CATEGORY_ZS: return c == ' ';
	default: return true;
	}
}

bool jinja_is_alpha(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO: return true;
	default: return false;
	}
}

bool jinja_is_alnum(uint32_t c)
{
	if (jinja_is_alpha(c))
		return true;
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO: return true;
	default: return false;
	}
}

bool jstr_equal(struct jstr a, struct jstr b) { return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0); }

size_t jstr_chars(struct jstr s)
{
	size_t n = 0;
	for (size_t i = 0; i < s.n; i++)
		n += ((uint8_t)s.at[i] & 0xC0) != 0x80;
	return n;
}

size_t jstr_offset(struct jstr s, size_t k)
{
	size_t i = 0;
	for (; i < s.n; i++)
		if (((uint8_t)s.at[i] & 0xC0) != 0x80 && k-- == 0)
			return i;
	return s.n;
}

size_t jstr_char(struct jstr s, size_t i, uint32_t *out)
{
	*out = (uint8_t)s.at[i];
	if (*out < 0x80)
		return 1;
	int n = utf8_decode((const uint8_t *)s.at + i, s.n - i, out);
	/* Texts are valid (JSON's and the source's are checked, and parts end at characters). */
	BUG_IF(n <= 0, "text that is not UTF-8");
	return (size_t)n;
}

/* ---- parts and joints ---- */

struct jstr jstr_sub(struct jstr s, size_t from, size_t n)
{
	s.at += from;
	s.n = n;
	if (s.trust == JTRUST_MASK)
		s.mask += from;
	return s;
}

static void copy_trust(uint8_t *mask, struct jstr from)
{
	if (from.trust == JTRUST_MASK)
		memcpy(mask, from.mask, from.n);
	else
		memset(mask, from.trust == JTRUST_ALL, from.n);
}

int jstr_concat(struct jrun *r, const struct jstr *parts, size_t n, struct jstr *out)
{
	size_t total = 0, filled = 0;
	bool mixed = false;
	const struct jstr *first = NULL;
	for (size_t i = 0; i < n; i++) {
		if (parts[i].n == 0)
			continue;
		if (__builtin_add_overflow(total, parts[i].n, &total))
			return jrun_fail(r, SL_ELIMIT, "a text of too many bytes");
		filled++;
		mixed |= parts[i].trust == JTRUST_MASK || (first && first->trust != parts[i].trust);
		first = first ? first : &parts[i];
	}
	if (filled < 2) {
		*out = filled ? *first : (struct jstr){.at = "", .trust = JTRUST_NONE};
		return 0;
	}
	int rc = jrun_charge(r, total);
	char *at = rc == 0 ? jrun_alloc(r, total) : NULL;
	uint8_t *mask = at && mixed ? jrun_alloc(r, total) : NULL;
	if (at == NULL || (mixed && mask == NULL))
		return r->err->code;
	*out = (struct jstr){.at = at, .n = total, .mask = mask, .trust = mixed ? JTRUST_MASK : first->trust};
	for (size_t i = 0; i < n; i++) {
		if (parts[i].n == 0)
			continue;
		memcpy(at, parts[i].at, parts[i].n);
		at += parts[i].n;
		if (mixed) {
			copy_trust(mask, parts[i]);
			mask += parts[i].n;
		}
	}
	return 0;
}

int jstr_repeat(struct jrun *r, struct jstr s, int64_t times, struct jstr *out)
{
	size_t total = 0;
	*out = (struct jstr){.at = ""};
	if (times <= 0 || s.n == 0)
		return 0;
	if (__builtin_mul_overflow(s.n, (size_t)times, &total))
		return jrun_fail(r, SL_ELIMIT, "a text of too many bytes");
	int rc = jrun_charge(r, total);
	char *at = rc == 0 ? jrun_alloc(r, total) : NULL;
	uint8_t *mask = at && s.trust == JTRUST_MASK ? jrun_alloc(r, total) : NULL;
	if (at == NULL || (s.trust == JTRUST_MASK && mask == NULL))
		return r->err->code;
	for (size_t i = 0; i < total; i += s.n) {
		memcpy(at + i, s.at, s.n);
		if (mask != NULL)
			memcpy(mask + i, s.mask, s.n);
	}
	*out = (struct jstr){.at = at, .n = total, .mask = mask, .trust = s.trust};
	return 0;
}

int jstr_join(struct jrun *r, struct jstr sep, const struct jlist *parts, bool any, struct jstr *out)
{
	size_t n = parts->n, k = 0;
	int rc = jrun_charge(r, n * sizeof(struct jstr));
	struct jstr *all = rc == 0 ? jrun_alloc(r, (2 * n + 1) * sizeof(*all)) : NULL;
	if (all == NULL)
		return r->err->code;
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (i > 0)
			all[k++] = sep;
		rc = any ? 0 : jinja_want_string(r, &parts->items[i]);
		if (rc == 0)
			rc = jvalue_string(r, &parts->items[i], &all[k++]);
	}
	return rc == 0 ? jstr_concat(r, all, k, out) : rc;
}

static bool in_set(const char *at, size_t len, const struct jstr *set)
{
	return memmem(set->at, set->n, at, len) != NULL;
}

struct jstr jstr_strip(struct jstr s, bool left, bool right, const struct jstr *set)
{
	uint32_t c;
	while (left && s.n > 0) {
		size_t len = jstr_char(s, 0, &c);
		if (!(set ? in_set(s.at, len, set) : jinja_is_space(c)))
			break;
		s = jstr_sub(s, len, s.n - len);
	}
	while (right && s.n > 0) {
		size_t at = s.n - 1;
		while (at > 0 && ((uint8_t)s.at[at] & 0xC0) == 0x80)
			at--;
		size_t len = jstr_char(s, at, &c);
		if (!(set ? in_set(s.at + at, len, set) : jinja_is_space(c)))
			break;
		s = jstr_sub(s, 0, at);
	}
	return s;
}

int jlist_add_part(struct jrun *r, struct jlist *l, struct jstr s, size_t from, size_t to)
{
	struct jvalue v = jvalue_string_of(jstr_sub(s, from, to - from));
	return jlist_add(r, l, &v);
}

static void reverse(struct jlist *l)
{
	for (size_t i = 0; i < l->n / 2; i++) {
		struct jvalue v = l->items[i];
		l->items[i] = l->items[l->n - 1 - i];
		l->items[l->n - 1 - i] = v;
	}
}

/* The last occurrence of sep in the first n bytes. */
static const char *find_last(const char *at, size_t n, struct jstr sep)
{
	for (size_t i = n >= sep.n ? n - sep.n + 1 : 0; i-- > 0;)
		if (at[i] == sep.at[0] && memcmp(at + i, sep.at, sep.n) == 0)
			return at + i;
	return NULL;
}

static int split_at(struct jrun *r, struct jstr s, struct jstr sep, int64_t max, bool right, struct jlist *l)
{
	size_t from = 0, to = s.n;
	int rc = 0;
	while (rc == 0 && (max < 0 || (int64_t)l->n < max)) {
		const char *hit = right ? find_last(s.at, to, sep) : memmem(s.at + from, to - from, sep.at, sep.n);
		if (hit == NULL)
			break;
		size_t at = (size_t)(hit - s.at);
		rc = right ? jlist_add_part(r, l, s, at + sep.n, to) : jlist_add_part(r, l, s, from, at);
		if (right)
			to = at;
		else
			from = at + sep.n;
	}
	return rc == 0 ? jlist_add_part(r, l, s, from, to) : rc;
}

static int split_words(struct jrun *r, struct jstr s, int64_t max, bool right, struct jlist *l)
{
	int rc = 0;
	/* What is left when max is reached keeps the white space at its other end. */
	s = jstr_strip(s, !right, right, NULL);
	while (rc == 0 && s.n > 0) {
		size_t at = 0, n;
		uint32_t c;
		if (max >= 0 && (int64_t)l->n == max)
			return jlist_add_part(r, l, s, 0, s.n);
		if (!right) {
			for (; at < s.n; at += n) {
				n = jstr_char(s, at, &c);
				if (jinja_is_space(c))
					break;
			}
			rc = jlist_add_part(r, l, s, 0, at);
			s = jstr_strip(jstr_sub(s, at, s.n - at), true, false, NULL);
		} else {
			for (at = s.n; at > 0; at -= n) {
				n = 1;
				while (((uint8_t)s.at[at - n] & 0xC0) == 0x80)
					n++;
				(void)jstr_char(s, at - n, &c);
				if (jinja_is_space(c))
					break;
			}
			rc = jlist_add_part(r, l, s, at, s.n);
			s = jstr_strip(jstr_sub(s, 0, at), false, true, NULL);
		}
	}
	return rc;
}

int jstr_split(struct jrun *r, struct jstr s, const struct jstr *sep, int64_t max, bool right, struct jlist **out)
{
	if (sep != NULL && sep->n == 0)
		return jrun_fail(r, SL_EINVAL, "an empty separator");
	/* From the right every place may compare with the whole separator. */
	int rc = jrun_charge(r, JINJA_SEARCH_COST * (right && sep != NULL ? s.n * sep->n : s.n));
	struct jlist *l = rc == 0 ? jlist_new(r, 0) : NULL;
	if (l == NULL)
		return r->err->code;
	rc = sep != NULL ? split_at(r, s, *sep, max, right, l) : split_words(r, s, max, right, l);
	if (right)
		reverse(l);
	*out = l;
	return rc;
}

/* Nothing to look for stands before every character and at the end. */
static int replace_nothing(struct jrun *r, struct jstr s, struct jstr to, int64_t max, struct jstr *out)
{
	struct jlist *l = jlist_new(r, 0);
	struct jvalue with = jvalue_string_of(to);
	if (l == NULL)
		return r->err->code;
	int rc = 0;
	size_t i = 0, n = 0;
	for (int64_t k = 0; rc == 0 && i <= s.n; k++, i += n) {
		uint32_t c;
		if (max >= 0 && k >= max) {
			rc = jlist_add_part(r, l, s, i, s.n);
			break;
		}
		rc = jlist_add(r, l, &with);
		if (i == s.n)
			break;
		n = jstr_char(s, i, &c);
		if (rc == 0)
			rc = jlist_add_part(r, l, s, i, i + n);
	}
	return rc == 0 ? jstr_join(r, (struct jstr){.at = ""}, l, true, out) : rc;
}

int jstr_replace(struct jrun *r, struct jstr s, struct jstr from, struct jstr to, int64_t max, struct jstr *out)
{
	struct jlist *parts;
	if (from.n == 0)
		return replace_nothing(r, s, to, max, out);
	int rc = jstr_split(r, s, &from, max, false, &parts);
	return rc == 0 ? jstr_join(r, to, parts, true, out) : rc;
}

/* ---- case ---- */

/* Letters whose upper case is several letters; title: when only the first of them is upper. */
static const struct {
	uint32_t c;
	const char *upper, *title;
} several[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\u02BCN", "\u02BCN"},
    {0x01F0, "J\u030C", "J\u030C"},
    {0x0390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x03B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
    {0x1E96, "H\u0331", "H\u0331"},
    {0x1E97, "T\u0308", "T\u0308"},
    {0x1E98, "W\u030A", "W\u030A"},
    {0x1E99, "Y\u030A", "Y\u030A"},
    {0x1E9A, "A\u02BE", "A\u02BE"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

static bool is_cased(uint32_t c)
{
	utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
	return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
	       (c != 0xAA && c != 0xBA &&
		(utf8proc_islower((utf8proc_int32_t)c) || utf8proc_isupper((utf8proc_int32_t)c)));
}

/* A sigma ends a word: a letter before it and none behind. */
static bool is_final_sigma(struct jstr s, size_t at)
{
	uint32_t c;
	bool before = false;
	for (size_t i = at; i > 0 && !before;) {
		do
			i--;
		while (((uint8_t)s.at[i] & 0xC0) == 0x80);
		(void)jstr_char(s, i, &c);
		before = is_cased(c);
		if (!before && c != '\'' && utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_MN)
			return false;
	}
	for (size_t i = at + 2, n; before && i < s.n; i += n) {
		n = jstr_char(s, i, &c);
		if (is_cased(c))
			return false;
		if (c != '\'' && utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_MN)
			break;
	}
	return before;
}

/* Writes at most 3 characters, 6 bytes. Returns how many bytes. */
static size_t map_case(struct jstr s, size_t at, uint32_t c, enum jcase to, char *out)
{
	utf8proc_int32_t p = (utf8proc_int32_t)c;
	if (c < 0x80) {
		*out = (char)(to == JCASE_LOWER ? (c >= 'A' && c <= 'Z' ? c | 0x20 : c)
						: (c >= 'a' && c <= 'z' ? c & ~0x20U : c));
		return 1;
	}
	if (to == JCASE_LOWER && c == 0x130) { /* a dotted I */
		memcpy(out, "i\u0307", 3);
		return 3;
	}
	if (to == JCASE_LOWER && c == 0x3A3 && is_final_sigma(s, at))
		return (size_t)utf8_encode(0x3C2, (uint8_t *)out);
	for (size_t i = 0; to != JCASE_LOWER && i < sizeof(several) / sizeof(several[0]); i++)
		if (several[i].c == c) {
			const char *text = to == JCASE_UPPER ? several[i].upper : several[i].title;
			memcpy(out, text, strlen(text));
			return strlen(text);
		}
	p = to == JCASE_UPPER ? utf8proc_toupper(p) : to == JCASE_LOWER ? utf8proc_tolower(p) : utf8proc_totitle(p);
	return (size_t)utf8_encode((uint32_t)p, (uint8_t *)out);
}

/* Whether the filter `title` begins a word behind c. */
static bool begins_word(uint32_t c)
{
	return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || jinja_is_space(c);
}

int jstr_case(struct jrun *r, struct jstr s, enum jcase to, struct jstr *out)
{
	size_t n = 0, len;
	int rc = jrun_charge(r, 4 * s.n);
	/* A character of n bytes becomes at most 6, or 3 n. */
	char *at = rc == 0 ? jrun_alloc(r, 3 * s.n + 8) : NULL;
	uint8_t *mask = at && s.trust == JTRUST_MASK ? jrun_alloc(r, 3 * s.n + 8) : NULL;
	if (at == NULL || (s.trust == JTRUST_MASK && mask == NULL))
		return r->err->code;
	bool begin = true; /* of a word, or of the text */
	for (size_t i = 0; i < s.n; i += len) {
		uint32_t c;
		enum jcase how = to == JCASE_UPPER || to == JCASE_LOWER ? to
				 : begin ? (to == JCASE_TITLE_FILTER ? JCASE_UPPER : JCASE_TITLE)
					 : JCASE_LOWER;
		len = jstr_char(s, i, &c);
		size_t wrote = map_case(s, i, c, how, at + n);
		if (mask != NULL)
			memset(mask + n, s.mask[i], wrote);
		n += wrote;
		begin = to == JCASE_TITLE ? !is_cased(c) : to == JCASE_TITLE_FILTER && begins_word(c);
	}
	*out = (struct jstr){.at = at, .n = n, .mask = mask, .trust = s.trust};
	return 0;
}
