/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters: removes invisible ones without a meaning, turns line ends into newlines, normalises the rest to NFC.
 *
 * Kept are ZWJ and ZWNJ next to a letter of a script that joins (Unicode 15, 9.2 and 12), ZWJ in an emoji (UTS #51),
 * the zero-width space between words of scripts that have no other, direction marks in a text with right-to-left
 * letters, a variation selector after a character that it can vary, the tags of a flag. Other invisible characters are
 * left over from editors, or hide text.
 *
 * NFC is local: it applies to a character that it changes or that can combine, together with the character before it.
 * Runs of more than MAX_RUN such characters are left unchanged, because ordering a run is quadratic (UAX #15, 13).
 */
#include <utf8proc.h>

#include "base/err.h"
#include "base/utf8.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { MAX_RUN = 64, LONGEST = 4, MAX_ESCAPE = 64 };

enum {
	ESC = 0x1b,
	NEL = 0x85,
	SOFT_HYPHEN = 0xad,
	MONGOLIAN_VOWEL = 0x180e,
	ZWSP = 0x200b,
	ZWNJ = 0x200c,
	ZWJ = 0x200d,
	LRM = 0x200e,
	RLM = 0x200f,
	LINE_SEPARATOR = 0x2028,
	PARAGRAPH_SEPARATOR = 0x2029,
	LRE = 0x202a,
	RLO = 0x202e,
	LRI = 0x2066,
	PDI = 0x2069,
	VS1 = 0xfe00,
	VS16 = 0xfe0f,
	BLACK_FLAG = 0x1f3f4,
	TAG_FIRST = 0xe0000,
	TAG_LAST = 0xe007f,
	VS17 = 0xe0100,
	VS256 = 0xe01ef,
};

struct writer {
	const char *t;
	size_t n;
	struct sl_buf *out;
	bool rtl;
	/* Not written yet: the last base character, then those that may combine with it. */
	uint32_t run[MAX_RUN + 1];
	size_t n_run;
	bool long_run;
	uint32_t last; /* the last kept character; 0 at the beginning */
};

static int put(struct writer *w, uint32_t cp)
{
	uint8_t at[4];
	return buf_append(w->out, at, (size_t)utf8_encode(cp, at));
}

/* Writes the run, in NFC unless it is too long. */
static int flush(struct writer *w)
{
	utf8proc_int32_t made[(MAX_RUN + 1) * LONGEST];
	utf8proc_ssize_t n = 0;
	int last = 0, rc = 0;
	bool as_is = w->long_run || w->n_run == 0 || (w->n_run == 1 && !cleanse_scan_light(w->run[0]));
	for (size_t i = 0; i < w->n_run && !as_is; i++) {
		utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)w->run[i], made + n, LONGEST,
							     UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last);
		BUG_IF(k < 0 || k > LONGEST, "U+%04X decomposes into %zd", (unsigned)w->run[i], (ssize_t)k);
		n += k;
	}
	if (as_is) {
		for (size_t i = 0; i < w->n_run && rc == 0; i++)
			rc = put(w, w->run[i]);
	} else {
		/* Canonical order, by insertion: runs are short. */
		for (utf8proc_ssize_t i = 1; i < n; i++) {
			utf8proc_int32_t cp = made[i];
			int class = utf8proc_get_property(cp)->combining_class;
			utf8proc_ssize_t k = i;
			for (; class != 0 && k > 0 && utf8proc_get_property(made[k - 1])->combining_class > class; k--)
				made[k] = made[k - 1];
			made[k] = cp;
		}
		n = utf8proc_normalize_utf32(made, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
		for (utf8proc_ssize_t i = 0; i < n && rc == 0; i++)
			rc = put(w, (uint32_t)made[i]);
	}
	w->n_run = 0;
	w->long_run = false;
	return rc;
}

static int keep(struct writer *w, uint32_t cp, bool light)
{
	int rc = 0;
	w->last = cp;
	if (!light)
		rc = flush(w);
	else if (w->n_run == MAX_RUN + 1) {
		w->long_run = true;
		rc = flush(w);
		w->long_run = true;
	}
	w->run[w->n_run++] = cp;
	return rc;
}

static bool varies(uint32_t before, uint32_t selector)
{
	if (before >= VS1 && before <= VS16)
		return false;
	if (selector >= VS17)
		return cleanse_cp_cjk(before);
	return before >= 0xa9 ? before < TAG_FIRST && before != ZWJ
			      : cleanse_digit((char)before) || before == '#' || before == '*';
}

/* Does this invisible character have a meaning in its context? */
static bool means(const struct writer *w, uint32_t cp, uint32_t next)
{
	switch (cp) {
	case ZWSP: return cleanse_cp_unspaced(w->last) && cleanse_cp_unspaced(next);
	case ZWNJ: return cleanse_cp_joins(w->last) || cleanse_cp_joins(next);
	case ZWJ:
		return cleanse_cp_joins(w->last) || cleanse_cp_joins(next) ||
		       (cleanse_cp_emoji(w->last) && cleanse_cp_emoji(next));
	case MONGOLIAN_VOWEL: return w->last >= 0x1800 && w->last <= 0x18af;
	default: break;
	}
	if (cp == LRM || cp == RLM || (cp >= LRE && cp <= RLO) || (cp >= LRI && cp <= PDI))
		return w->rtl;
	if ((cp >= VS1 && cp <= VS16) || (cp >= VS17 && cp <= VS256))
		return varies(w->last, cp);
	if (cp >= TAG_FIRST && cp <= TAG_LAST)
		return w->last == BLACK_FLAG || (w->last >= TAG_FIRST && w->last < TAG_LAST);
	/* Controls, soft hyphens, byte order and annotation marks are removed; other characters are only normalised. */
	return !(cp < ' ' || (cp >= 0x7f && cp < 0xa0) || cp == SOFT_HYPHEN || (cp >= 0x2060 && cp <= 0x206f) ||
		 cp == 0xfeff || (cp >= 0xfff9 && cp <= 0xfffc) || (cp > TAG_LAST && cp < VS17));
}

/* The end of a terminal's escape sequence (ECMA-48, 5.4), which is on one line, or at + 1 if it is not one. */
static size_t escape_end(const struct writer *w, size_t at)
{
	size_t i = at + 1, most = w->n - i > MAX_ESCAPE ? i + MAX_ESCAPE : w->n;
	if (i >= w->n || w->t[i] != '[')
		return at + 1;
	for (i++; i < most && w->t[i] >= 0x20 && w->t[i] < 0x40; i++)
		;
	return i < most && w->t[i] >= 0x40 && w->t[i] < 0x7f ? i + 1 : at + 1;
}

static bool ends_line(uint32_t cp)
{
	return cp == '\r' || cp == '\v' || cp == '\f' || cp == NEL || cp == LINE_SEPARATOR || cp == PARAGRAPH_SEPARATOR;
}

static int one(struct writer *w, size_t *at)
{
	size_t bytes, after;
	uint32_t cp = cleanse_cp_at(w->t, w->n, *at, &bytes);
	size_t next = *at + bytes;
	if (cp == ESC)
		next = escape_end(w, *at);
	*at = next;
	if (ends_line(cp)) {
		if (cp == '\r' && next < w->n && w->t[next] == '\n')
			return 0;
		return keep(w, '\n', false);
	}
	bool light = cp != '\t' && cp != '\n' && (cp < ' ' || cp >= 0x7f) && cleanse_scan_light(cp);
	if (light && !means(w, cp, cleanse_cp_at(w->t, w->n, next, &after)))
		return 0;
	return keep(w, cp, light);
}

/* The end of the characters from `at` on that stay and begin no span (URLs begin at a word), without the last one,
 * which may be the base of the next character. */
static size_t plain_end(const struct writer *w, size_t at)
{
	size_t last = at, i = at, bytes;
	while (i < w->n) {
		char c = w->t[i];
		if ((unsigned char)c >= 0x80) {
			uint32_t cp = cleanse_cp_at(w->t, w->n, i, &bytes);
			if (cp < 0xa0 || cleanse_scan_light(cp))
				break;
		} else if (c < ' ' || c == 0x7f ||
			   (cleanse_alnum(c) ? !cleanse_alnum(w->t[i - 1]) : c == '`' || c == '{' || c == '[')) {
			break;
		} else {
			bytes = 1;
		}
		last = i;
		i += bytes;
	}
	return last;
}

static bool has_rtl(const char *t, size_t n)
{
	for (size_t i = 0, bytes; i < n; i += bytes) {
		unsigned char c = (unsigned char)t[i];
		bytes = 1;
		/* Right-to-left letters begin with a byte from 0xd6 on. */
		if (c >= 0xd6 && cleanse_cp_rtl(cleanse_cp_at(t, n, i, &bytes)))
			return true;
	}
	return false;
}

int cleanse_chars(const char *text, size_t n, struct sl_buf *out)
{
	struct writer w = {.t = text, .n = n, .out = out, .rtl = has_rtl(text, n)};
	struct protect p;
	int rc = 0;
	protect_init(&p, text, n, PROTECT_CODE | PROTECT_JSON | PROTECT_DIFF | PROTECT_URL);
	for (size_t at = 0; at < n && rc == 0;) {
		size_t end = protect_at(&p, at);
		if (end == at && at > 0 && text[at - 1] != '\n')
			end = plain_end(&w, at);
		if (end > at) {
			if ((rc = flush(&w)) == 0)
				rc = buf_append(out, text + at, end - at);
			w.last = cleanse_cp_before(text, end);
			at = end;
			continue;
		}
		rc = one(&w, &at);
	}
	return rc != 0 ? rc : flush(&w);
}
