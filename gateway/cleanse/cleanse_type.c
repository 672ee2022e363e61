/* SPDX-License-Identifier: Apache-2.0
 *
 * Typography: replaces typographic quotes, dashes, dots and spaces by those of a keyboard, and shortens marks repeated
 * three times or more.
 *
 * On a line with Chinese, Japanese or Korean only the spaces change, because its typographic characters are ordinary
 * ones. Guillemets stay; the German low and high pairs are quotes. Marks within identifiers, paths and numbers stay.
 */
#include <string.h>

#include "gateway/cleanse/cleanse_priv.h"

enum {
	NBSP = 0xa0,
	EN_QUAD = 0x2000,
	HAIR_SPACE = 0x200a,
	HYPHEN = 0x2010,
	NON_BREAKING_HYPHEN = 0x2011,
	EN_DASH = 0x2013,
	EM_DASH = 0x2014,
	BAR = 0x2015,
	SINGLE_FIRST = 0x2018,
	SINGLE_LAST = 0x201b,
	DOUBLE_FIRST = 0x201c,
	DOUBLE_LAST = 0x201f,
	ELLIPSIS = 0x2026,
	NARROW_SPACE = 0x202f,
	MATH_SPACE = 0x205f,
	MIN_MARKS = 3,
	DOTS = 3,
};

static bool is_space(uint32_t cp)
{
	return cp == 0 || cp == ' ' || cp == '\t' || cp == '\n' || cp == NBSP || (cp >= EN_QUAD && cp <= HAIR_SPACE) ||
	       cp == NARROW_SPACE || cp == MATH_SPACE;
}

static bool is_digit(uint32_t cp) { return cp >= '0' && cp <= '9'; }

/* A long dash between words separates them, so it gets blanks: a bare hyphen would join them. */
static const char *dash(uint32_t cp, uint32_t before, uint32_t after)
{
	if (after == cp)
		return ""; /* the last of several is written */
	if (is_space(before) || is_space(after) || (is_digit(before) && is_digit(after)))
		return "-";
	return " - ";
}

/* The plain form of a typographic character; NULL: it stays. */
static const char *plain(uint32_t cp, uint32_t before, uint32_t after, bool as_is)
{
	if (cp == NBSP || (cp >= EN_QUAD && cp <= HAIR_SPACE) || cp == NARROW_SPACE || cp == MATH_SPACE)
		return " ";
	if (as_is)
		return NULL;
	if (cp == EM_DASH || cp == BAR)
		return dash(cp, before, after);
	if (cp >= HYPHEN && cp <= EN_DASH)
		return "-";
	if (cp >= SINGLE_FIRST && cp <= SINGLE_LAST)
		return "'";
	if (cp >= DOUBLE_FIRST && cp <= DOUBLE_LAST)
		return "\"";
	return cp == ELLIPSIS ? "..." : NULL;
}

static bool is_mark(char c) { return c == '!' || c == '?'; }

/* The length of a run of marks or dots to shorten, and *stays, its replacement; otherwise 0. */
static size_t marks(const char *t, size_t n, size_t at, size_t end, const char **stays)
{
	size_t i = at, questions = 0;
	if (t[at] == '.') {
		while (i < end && t[i] == '.')
			i++;
		*stays = "...";
		bool path =
		    (at > 0 && (t[at - 1] == '/' || t[at - 1] == '\\')) || (i < n && (t[i] == '/' || t[i] == '\\'));
		return i - at > DOTS && !path ? i - at : 0;
	}
	for (; i < end && is_mark(t[i]); i++)
		questions += t[i] == '?';
	*stays = questions == 0 ? "!" : questions == i - at ? "?" : "?!";
	/* `!!!x` and `?.` are syntax. */
	bool free_after = i >= n || (unsigned char)t[i] >= 0x80 || strchr(" \t\n\"')]}*_.,", t[i]) != NULL;
	bool free_before =
	    at == 0 || !is_space((unsigned char)t[at - 1]) || at + 1 == n || i >= n || is_space((unsigned char)t[i]);
	return i - at >= MIN_MARKS && free_after && free_before ? i - at : 0;
}

int cleanse_type(const char *text, size_t n, size_t at, size_t end, bool as_is, struct sl_buf *out)
{
	size_t from = at, bytes, next;
	int rc = 0;
	while (at < end && rc == 0) {
		const char *stays = NULL;
		char c = text[at];
		bytes = 1;
		if (is_mark(c) || c == '.') {
			size_t run = marks(text, n, at, end, &stays);
			if (run == 0) {
				while (at < end && (is_mark(text[at]) || text[at] == '.'))
					at++;
				continue;
			}
			bytes = run;
		} else if ((unsigned char)c >= 0x80) {
			uint32_t cp = cleanse_cp_at(text, n, at, &bytes);
			if (cp == NBSP || (cp >= EN_QUAD && cp <= MATH_SPACE))
				stays = plain(cp, cleanse_cp_before(text, at),
					      cleanse_cp_at(text, n, at + bytes, &next), as_is);
		}
		if (stays != NULL) {
			rc = buf_append(out, text + from, at - from);
			if (rc == 0)
				rc = buf_append_str(out, stays);
			from = at + bytes;
		}
		at += bytes;
	}
	return rc != 0 ? rc : buf_append(out, text + from, end - from);
}
