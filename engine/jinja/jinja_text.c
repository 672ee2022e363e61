/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on text that keep each byte's trust: a substring keeps its own, a concatenation has its parts', a changed
 * letter that of the original. Characters are code points; their properties and cases are Unicode's (utf8proc), plus
 * letters that map to several (SpecialCasing.txt, the unconditional ones in practical use) and the final sigma as in
 * Python.
 */
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

/* Whether c's general category is one of those in the set of bits. */
static bool is_of(uint32_t c, uint32_t categories)
{
	return (categories >> (unsigned)utf8proc_category((utf8proc_int32_t)c) & 1) != 0;
}

#define CATEGORY(name) (1U << UTF8PROC_CATEGORY_##name)
enum {
	CASED = CATEGORY(LU) | CATEGORY(LL) | CATEGORY(LT),
	LETTERS = CASED | CATEGORY(LM) | CATEGORY(LO),
	NUMBERS = CATEGORY(ND) | CATEGORY(NL) | CATEGORY(NO),
	UNPRINTABLE = CATEGORY(CN) | CATEGORY(CC) | CATEGORY(CF) | CATEGORY(CS) | CATEGORY(CO) | CATEGORY(ZL) |
		      CATEGORY(ZP) | CATEGORY(ZS),
};

/* Python's str.isprintable: no controls, formats, separators (but the space) or unassigned ones. */
bool jinja_is_printable(uint32_t c) { return c < 0x7F ? c >= ' ' : !is_of(c, UNPRINTABLE); }

bool jinja_is_alpha(uint32_t c) { return is_of(c, LETTERS); }

bool jinja_is_alnum(uint32_t c) { return is_of(c, LETTERS | NUMBERS); }

bool jstr_equal(struct jstr a, struct jstr b) { return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0); }

size_t jstr_chars(struct jstr s) { return utf8_characters(s.at, s.n); }

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

size_t jstr_before(struct jstr s, size_t i)
{
	do
		i--;
	while (((uint8_t)s.at[i] & 0xC0) == 0x80);
	return i;
}

/* ---- substrings and concatenation ---- */

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

/* Allocates n bytes of that trust, with a mask if needed. */
static struct jstr new_text(struct jrun *r, size_t n, enum jtrust trust, char **at, uint8_t **mask)
{
	*at = jrun_alloc(r, n);
	*mask = trust == JTRUST_MASK ? jrun_alloc(r, n) : NULL;
	return (struct jstr){.at = *at, .n = n, .mask = *mask, .trust = (uint8_t)trust};
}

struct jstr jstr_concat(struct jrun *r, const struct jstr *parts, size_t n)
{
	size_t total = 0, filled = 0;
	bool mixed = false;
	struct jstr first = {.at = ""};
	for (size_t i = 0; i < n; i++) {
		if (parts[i].n == 0)
			continue;
		if (__builtin_add_overflow(total, parts[i].n, &total))
			jrun_fail(r, SL_ELIMIT, "a text of too many bytes");
		if (filled++ == 0)
			first = parts[i];
		mixed |= parts[i].trust == JTRUST_MASK || first.trust != parts[i].trust;
	}
	if (filled < 2)
		return first;
	char *at;
	uint8_t *mask;
	jrun_charge(r, total);
	struct jstr out = new_text(r, total, mixed ? JTRUST_MASK : first.trust, &at, &mask);
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
	return out;
}

struct jstr jstr_repeat(struct jrun *r, struct jstr s, int64_t times)
{
	size_t total = 0;
	char *at;
	uint8_t *mask;
	if (times <= 0 || s.n == 0)
		return (struct jstr){.at = ""};
	if (__builtin_mul_overflow(s.n, (size_t)times, &total))
		jrun_fail(r, SL_ELIMIT, "a text of too many bytes");
	jrun_charge(r, total);
	struct jstr out = new_text(r, total, s.trust, &at, &mask);
	for (size_t i = 0; i < total; i += s.n) {
		memcpy(at + i, s.at, s.n);
		if (mask != NULL)
			memcpy(mask + i, s.mask, s.n);
	}
	return out;
}

struct jstr jstr_join(struct jrun *r, struct jstr sep, const struct jlist *parts, bool any)
{
	size_t n = parts->n, k = 0;
	jrun_charge(r, n * sizeof(struct jstr));
	struct jstr *all = jrun_alloc(r, (2 * n + 1) * sizeof(*all));
	for (size_t i = 0; i < n; i++) {
		if (i > 0)
			all[k++] = sep;
		all[k++] = any ? jvalue_string(r, &parts->items[i]) : jinja_want_string(r, &parts->items[i]);
	}
	return jstr_concat(r, all, k);
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
		size_t at = jstr_before(s, s.n);
		size_t len = jstr_char(s, at, &c);
		if (!(set ? in_set(s.at + at, len, set) : jinja_is_space(c)))
			break;
		s = jstr_sub(s, 0, at);
	}
	return s;
}

/* The last occurrence of sep in the first n bytes. */
static const char *find_last(const char *at, size_t n, struct jstr sep)
{
	for (size_t i = n >= sep.n ? n - sep.n + 1 : 0; i-- > 0;)
		if (at[i] == sep.at[0] && memcmp(at + i, sep.at, sep.n) == 0)
			return at + i;
	return NULL;
}

static void split_at(struct jrun *r, struct jstr s, struct jstr sep, int64_t max, bool right, struct jlist *l)
{
	size_t from = 0, to = s.n;
	while (max < 0 || (int64_t)l->n < max) {
		const char *hit = right ? find_last(s.at, to, sep) : memmem(s.at + from, to - from, sep.at, sep.n);
		if (hit == NULL)
			break;
		size_t at = (size_t)(hit - s.at);
		if (right) {
			jlist_add_part(r, l, s, at + sep.n, to);
			to = at;
		} else {
			jlist_add_part(r, l, s, from, at);
			from = at + sep.n;
		}
	}
	jlist_add_part(r, l, s, from, to);
}

/* The end of the first word, or the beginning of the last. */
static size_t word_edge(struct jstr s, bool right)
{
	uint32_t c;
	for (size_t at = right ? s.n : 0, next; right ? at > 0 : at < s.n; at = next) {
		next = right ? jstr_before(s, at) : at + jstr_char(s, at, &c);
		(void)jstr_char(s, right ? next : at, &c);
		if (jinja_is_space(c))
			return at;
	}
	return right ? 0 : s.n;
}

static void split_words(struct jrun *r, struct jstr s, int64_t max, bool right, struct jlist *l)
{
	/* The rest after max splits keeps the white space at its other end. */
	s = jstr_strip(s, !right, right, NULL);
	while (s.n > 0 && (max < 0 || (int64_t)l->n < max)) {
		size_t at = word_edge(s, right);
		jlist_add_part(r, l, s, right ? at : 0, right ? s.n : at);
		s = right ? jstr_sub(s, 0, at) : jstr_sub(s, at, s.n - at);
		s = jstr_strip(s, !right, right, NULL);
	}
	if (s.n > 0)
		jlist_add_part(r, l, s, 0, s.n);
}

struct jlist *jstr_split(struct jrun *r, struct jstr s, const struct jstr *sep, int64_t max, bool right)
{
	if (sep != NULL && sep->n == 0)
		jrun_fail(r, SL_EINVAL, "an empty separator");
	/* From the right, every position may be compared with the whole separator. */
	jrun_charge(r, JINJA_SEARCH_COST * (right && sep != NULL ? s.n * sep->n : s.n));
	struct jlist *l = jlist_new(r, 0);
	if (sep != NULL)
		split_at(r, s, *sep, max, right, l);
	else
		split_words(r, s, max, right, l);
	if (right)
		jlist_reverse(l);
	return l;
}

/* The empty text is found before every character and at the end. */
static struct jstr replace_nothing(struct jrun *r, struct jstr s, struct jstr to, int64_t max)
{
	struct jlist *l = jlist_new(r, 0);
	uint32_t c;
	size_t i = 0, n;
	for (int64_t k = 0; max < 0 || k < max; k++, i += n) {
		jlist_add(r, l, jvalue_string_of(to, false));
		if (i == s.n)
			return jstr_join(r, (struct jstr){.at = ""}, l, true);
		n = jstr_char(s, i, &c);
		jlist_add_part(r, l, s, i, i + n);
	}
	jlist_add_part(r, l, s, i, s.n);
	return jstr_join(r, (struct jstr){.at = ""}, l, true);
}

struct jstr jstr_replace(struct jrun *r, struct jstr s, struct jstr from, struct jstr to, int64_t max)
{
	return from.n == 0 ? replace_nothing(r, s, to, max)
			   : jstr_join(r, to, jstr_split(r, s, &from, max, false), true);
}

/* ---- case ---- */

/* Letters whose upper case is several letters; title: with only the first one in upper case. */
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
	return is_of(c, CASED) || (c != 0xAA && c != 0xBA &&
				   (utf8proc_islower((utf8proc_int32_t)c) || utf8proc_isupper((utf8proc_int32_t)c)));
}

static bool is_ignored_by_case(uint32_t c) { return c == '\'' || is_of(c, CATEGORY(MN)); }

/* A sigma at the end of a word: a letter before it and none after it. */
static bool is_final_sigma(struct jstr s, size_t at)
{
	uint32_t c = '\'';
	for (size_t i = at; i > 0 && !is_cased(c) && is_ignored_by_case(c);) {
		i = jstr_before(s, i);
		(void)jstr_char(s, i, &c);
	}
	if (!is_cased(c))
		return false;
	c = '\'';
	for (size_t i = at + 2; i < s.n && !is_cased(c) && is_ignored_by_case(c);)
		i += jstr_char(s, i, &c);
	return !is_cased(c);
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

/* Whether the filter `title` begins a word after c. */
static bool begins_word(uint32_t c)
{
	return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || jinja_is_space(c);
}

struct jstr jstr_case(struct jrun *r, struct jstr s, enum jcase to)
{
	size_t n = 0, len;
	char *at;
	uint8_t *mask;
	jrun_charge(r, 4 * s.n);
	/* A character of n bytes becomes at most 6, or 3 n. */
	struct jstr out = new_text(r, 3 * s.n + 8, s.trust, &at, &mask);
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
	out.n = n;
	return out;
}
