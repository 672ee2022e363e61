/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the cleanser. A pass reads valid UTF-8 and appends its result; passes are independent, and
 * cleanse.c repeats them until nothing changes.
 */
#ifndef GATEWAY_CLEANSE_PRIV_H
#define GATEWAY_CLEANSE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "gateway/cleanse/cleanse.h"

/* 0, SL_ELIMIT, SL_ENOMEM. */
typedef int cleanse_pass(const char *text, size_t n, struct sl_buf *out);

cleanse_pass cleanse_chars, cleanse_blanks; /* light */
cleanse_pass cleanse_html, cleanse_markdown;

/* ---- helpers ---- */

static inline bool cleanse_blank(char c) { return c == ' ' || c == '\t'; }
static inline bool cleanse_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline bool cleanse_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool cleanse_alnum(char c) { return cleanse_letter(c) || cleanse_digit(c); }
static inline char cleanse_lower(char c) { return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c); }
/* The end of the line that contains `at`: its newline, or n. */
size_t cleanse_line_end(const char *text, size_t n, size_t at);
/* The first position from `at` on that is not blank, or end. */
static inline size_t cleanse_skip(const char *text, size_t at, size_t end)
{
	while (at < end && cleanse_blank(text[at]))
		at++;
	return at;
}
/* The end of text[at..end) without trailing blanks. */
static inline size_t cleanse_trim(const char *text, size_t at, size_t end)
{
	while (end > at && cleanse_blank(text[end - 1]))
		end--;
	return end;
}
/* The end of the run of equal bytes that begins at `at`. */
static inline size_t cleanse_run(const char *text, size_t at, size_t end)
{
	size_t i = at;
	while (i < end && text[i] == text[at])
		i++;
	return i;
}

/* ---- cleanse_scan.c ---- */

enum cleanse_found { CLEANSE_CLEAN, CLEANSE_DIRTY, CLEANSE_INVALID };
/* CLEAN: the level changes nothing. DIRTY: it may change something. INVALID: not UTF-8; the text stays unchanged. */
enum cleanse_found cleanse_scan(enum cleanse_level level, const char *text, size_t n);
/* cleanse_cp_light, looked up in a table. */
bool cleanse_scan_light(uint32_t cp);

/* ---- cleanse_unicode.c: classes of characters ---- */

/* cleanse_chars may remove, replace or normalise the character, alone or with those before it. */
bool cleanse_cp_light(uint32_t cp);
bool cleanse_cp_typographic(uint32_t cp); /* cleanse_type may have a plain form */
bool cleanse_cp_joins(uint32_t cp);       /* of a script in which ZWJ and ZWNJ are meaningful */
bool cleanse_cp_emoji(uint32_t cp);       /* may be next to a ZWJ in an emoji sequence */
bool cleanse_cp_rtl(uint32_t cp);
bool cleanse_cp_unspaced(uint32_t cp); /* of a script written without spaces, but not an ideograph */
bool cleanse_cp_cjk(uint32_t cp);      /* letters and punctuation of Chinese, Japanese, Korean */
/* The code point before `at`, or 0 at the beginning. */
uint32_t cleanse_cp_before(const char *text, size_t at);
/* The code point at `at` and its bytes, or 0 and 0 at the end. */
uint32_t cleanse_cp_at(const char *text, size_t n, size_t at, size_t *bytes);

/* ---- cleanse_protect.c: spans that no pass may change ---- */

enum {
	PROTECT_CODE = 1,
	PROTECT_JSON = 2,
	PROTECT_DIFF = 4,
	PROTECT_URL = 8,
	PROTECT_MATH = 16,
	PROTECT_ALL = 31,
	PROTECT_MAX_TICKS = 32,
	PROTECT_MATHS = 4,
};

/* Finds spans. Failed searches are remembered, so the total time is linear. */
struct protect {
	const char *text;
	size_t n;
	unsigned kinds;
	size_t budget;                          /* bytes that failed attempts to parse JSON may still read */
	size_t no_ticks[PROTECT_MAX_TICKS + 1]; /* no closing run of that length before this position */
	size_t no_math[PROTECT_MATHS];
};

void protect_init(struct protect *p, const char *text, size_t n, unsigned kinds);
size_t protect_span(struct protect *p, size_t at);
/* The end of the span that begins at `at`, or `at` if none does. Positions must ascend. */
static inline size_t protect_at(struct protect *p, size_t at)
{
	char c = p->text[at], before = at > 0 ? p->text[at - 1] : '\n';
	if (before != '\n' &&
	    (cleanse_letter(c) ? cleanse_alnum(before) : c != '`' && c != '{' && c != '[' && c != '$' && c != '\\'))
		return at;
	return protect_span(p, at);
}

/* ---- cleanse_type.c ---- */

/* Appends text[at..end) with plain quotes, dashes, dots and spaces, and with repeated marks shortened. Reads the
 * neighbouring characters in text[0..n). as_is: keeps quotes, dashes and dots, because the line is code or has Chinese,
 * Japanese or Korean. */
int cleanse_type(const char *text, size_t n, size_t at, size_t end, bool as_is, struct sl_buf *out);

#endif
