/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans that no pass may change: fenced code, inline code (CommonMark 0.31, 4.5 and 6.1), JSON, unified diffs, URLs,
 * and formulas between dollars or \( \).
 *
 * Linear time: a span is skipped as a whole, and a failed search is not repeated. For backticks the length of the run
 * and the end of the paragraph are remembered. Failed attempts to parse JSON draw on a budget of bytes; when it is
 * spent, no more JSON is searched for.
 */
#include <string.h>

#include "base/json/json_scan.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { VAIN_READS = 4, MAX_SCHEME = 12, MIN_FENCE = 3 };

size_t cleanse_line_end(const char *text, size_t n, size_t at)
{
	const char *end = at < n ? memchr(text + at, '\n', n - at) : NULL;
	return end != NULL ? (size_t)(end - text) : n;
}

void protect_init(struct protect *p, const char *text, size_t n, unsigned kinds)
{
	*p = (struct protect){.text = text, .n = n, .kinds = kinds, .budget = VAIN_READS * n};
}

static bool starts(const struct protect *p, size_t at, const char *with)
{
	size_t n = strlen(with);
	return p->n - at >= n && memcmp(p->text + at, with, n) == 0;
}

static size_t run_end(const struct protect *p, size_t at) { return cleanse_run(p->text, at, p->n); }

/* ---- fenced code ---- */

/* The start of a fence on the line; it may be in a list or a quotation. */
static size_t fence_at(const struct protect *p, size_t line)
{
	while (line < p->n && (cleanse_blank(p->text[line]) || p->text[line] == '>'))
		line++;
	return line;
}

static bool closes_fence(const struct protect *p, size_t line, size_t end, char mark, size_t len)
{
	size_t at = fence_at(p, line);
	if (at >= end || p->text[at] != mark)
		return false;
	size_t after = run_end(p, at);
	if (after - at < len)
		return false;
	while (after < end && (cleanse_blank(p->text[after]) || p->text[after] == '\r'))
		after++;
	return after == end;
}

static size_t fenced(const struct protect *p, size_t line)
{
	size_t at = fence_at(p, line);
	if (at >= p->n || (p->text[at] != '`' && p->text[at] != '~'))
		return line;
	char mark = p->text[at];
	size_t len = run_end(p, at) - at, end = cleanse_line_end(p->text, p->n, at);
	if (len < MIN_FENCE || (mark == '`' && memchr(p->text + at + len, '`', end - at - len) != NULL))
		return line;
	/* An unclosed fence extends to the end of the text. */
	while (end < p->n) {
		size_t next = end + 1;
		end = cleanse_line_end(p->text, p->n, next);
		if (closes_fence(p, next, end, mark, len))
			break;
	}
	return end;
}

/* ---- diffs ---- */

static bool begins_diff(const struct protect *p, size_t line)
{
	if (starts(p, line, "diff --git ") || starts(p, line, "@@ -"))
		return true;
	size_t end = cleanse_line_end(p->text, p->n, line);
	return starts(p, line, "--- ") && end < p->n && starts(p, end + 1, "+++ ");
}

static bool of_diff(const struct protect *p, size_t line)
{
	static const char *const heads[] = {"diff ",     "index ",        "new file ",       "deleted file ",
					    "rename ",   "similarity ",   "copy ",           "old mode ",
					    "new mode ", "Binary files ", "GIT binary patch"};
	if (line >= p->n)
		return false;
	if (memchr(" +-@\\", p->text[line], 5) != NULL)
		return true;
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		if (starts(p, line, heads[i]))
			return true;
	return false;
}

static size_t diff(const struct protect *p, size_t line)
{
	if (!begins_diff(p, line))
		return line;
	size_t end = cleanse_line_end(p->text, p->n, line);
	while (end < p->n) {
		size_t next = end + 1;
		/* An empty line is a context line that lost its blank. */
		bool empty = next < p->n && p->text[next] == '\n';
		if (!of_diff(p, empty ? next + 1 : next))
			break;
		end = cleanse_line_end(p->text, p->n, next);
	}
	return end;
}

/* ---- inline code ---- */

/* Does the newline end a paragraph: does a blank line or the end of the text follow? */
static bool ends_paragraph(const struct protect *p, size_t newline)
{
	size_t i = newline + 1;
	while (i < p->n && (cleanse_blank(p->text[i]) || p->text[i] == '\r'))
		i++;
	return i >= p->n || p->text[i] == '\n';
}

static size_t ticks(struct protect *p, size_t at)
{
	size_t from = run_end(p, at), len = from - at, i = from;
	if (len > PROTECT_MAX_TICKS || at < p->no_ticks[len])
		return from;
	while (i < p->n) {
		if (p->text[i] == '`') {
			size_t end = run_end(p, i);
			if (end - i == len)
				return end;
			i = end;
			continue;
		}
		if (p->text[i] == '\n' && ends_paragraph(p, i))
			break;
		i++;
	}
	p->no_ticks[len] = i;
	return from;
}

/* ---- JSON ---- */

static size_t json(struct protect *p, size_t at)
{
	size_t next = at + 1;
	while (next < p->n && (cleanse_blank(p->text[next]) || p->text[next] == '\n'))
		next++;
	if (next >= p->n || strchr(p->text[at] == '{' ? "\"}" : "{[\"]-0123456789tfn", p->text[next]) == NULL ||
	    p->budget == 0)
		return at;
	struct json_scan s;
	json_scan_init(&s, p->text + at, p->n - at);
	bool whole = json_scan_skip(&s);
	size_t read = (size_t)(s.at - s.text);
	if (whole)
		return at + read;
	p->budget -= read < p->budget ? read : p->budget;
	return at;
}

/* ---- URLs ---- */

static bool ends_url(uint32_t cp)
{
	return cp <= ' ' || cp == '<' || cp == '>' || cp == '"' || cp == '`' || cp == '|' || cp == 0x7f ||
	       cp == 0x3000 || (cp >= 0x80 && cp <= 0xa0) || (cp >= 0x2000 && cp <= 0x206f) || cp == 0xfeff ||
	       cp == 0xfffc || (cp >= 0x3001 && cp <= 0x3011) || (cp >= 0xff01 && cp <= 0xff1f && cp != 0xff0f);
}

static size_t url(const struct protect *p, size_t at)
{
	size_t i = at, last = 0, bytes;
	if (at > 0 && cleanse_alnum(p->text[at - 1]))
		return at;
	if (starts(p, at, "www.") || starts(p, at, "mailto:")) {
		i = at + 4;
	} else {
		while (i < p->n && i - at <= MAX_SCHEME &&
		       (cleanse_alnum(p->text[i]) || p->text[i] == '+' || p->text[i] == '-' || p->text[i] == '.'))
			i++;
		if (i == at || !starts(p, i, "://"))
			return at;
		i += 3;
	}
	/* Trailing punctuation, which ends a sentence or emphasis, does not belong to the URL. */
	while (i < p->n) {
		uint32_t cp = cleanse_cp_at(p->text, p->n, i, &bytes);
		if (ends_url(cp))
			break;
		i += bytes;
		if (cp >= 0x80 || memchr("!\"'),.:;?*_]}~", (int)cp, 14) == NULL)
			last = i;
	}
	return last > at ? last : at;
}

/* ---- formulas ---- */

static const struct {
	const char *open, *close;
	bool line; /* ends on its line */
} maths[PROTECT_MATHS] = {{"$$", "$$", false}, {"\\(", "\\)", false}, {"\\[", "\\]", false}, {"$", "$", true}};

/* Pandoc's rule: no blank inside a single dollar, and no digit after the closing one. */
static bool closes_math(const struct protect *p, size_t k, size_t i)
{
	if (!starts(p, i, maths[k].close))
		return false;
	return !maths[k].line || (!cleanse_blank(p->text[i - 1]) && (i + 1 >= p->n || !cleanse_digit(p->text[i + 1])));
}

static size_t math(struct protect *p, size_t at)
{
	for (size_t k = 0; k < PROTECT_MATHS; k++) {
		if (!starts(p, at, maths[k].open))
			continue;
		size_t i = at + strlen(maths[k].open);
		if (at < p->no_math[k] || (maths[k].line && (i >= p->n || cleanse_blank(p->text[i]))))
			continue;
		for (; i < p->n; i++) {
			if (p->text[i] == '\n' && (maths[k].line || ends_paragraph(p, i)))
				break;
			if (i > at + strlen(maths[k].open) && closes_math(p, k, i))
				return i + strlen(maths[k].close);
		}
		p->no_math[k] = i;
	}
	return at;
}

size_t protect_span(struct protect *p, size_t at)
{
	char c = p->text[at];
	size_t end = at;
	if (at == 0 || p->text[at - 1] == '\n') {
		if (p->kinds & PROTECT_CODE && (end = fenced(p, at)) > at)
			return end;
		if (p->kinds & PROTECT_DIFF && (end = diff(p, at)) > at)
			return end;
	}
	switch (c) {
	case '`': return p->kinds & PROTECT_CODE ? ticks(p, at) : at;
	case '{':
	case '[': return p->kinds & PROTECT_JSON ? json(p, at) : at;
	case '$':
	case '\\': return p->kinds & PROTECT_MATH ? math(p, at) : at;
	default: return p->kinds & PROTECT_URL && cleanse_letter(c) ? url(p, at) : at;
	}
}
