/* SPDX-License-Identifier: Apache-2.0
 *
 * Blanks: none at the ends of lines, at most one blank line in a row, one space between words.
 *
 * Spaces that are layout stay: at the beginning of a line, on a line indented like code, within double quotes, and on a
 * line in columns. A line is in columns if a run of its spaces ends in the same column as a run of the line before or
 * after, or if it has a wide run and is next to such a line (column headings). The relation is symmetric and such lines
 * stay unchanged, so it still holds afterwards. Tables with | do not need spaces for their columns. Tabs stay, because
 * they separate.
 */
#include <string.h>

#include "base/err.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { CODE_INDENT = 4, MAX_BLANK_LINES = 1, WIDE = 3 };

struct line {
	size_t at, end; /* end: its newline or the text's */
};

struct writer {
	const char *t;
	size_t n;
	uint8_t *dst;
	size_t used, floor; /* floor: bytes before it are final */
	struct protect p;
	struct line before, before_that; /* empty: none */
};

static struct line line_after(const struct writer *w, struct line l)
{
	struct line after = {.at = l.end + 1 < w->n ? l.end + 1 : w->n};
	after.end = cleanse_line_end(w->t, w->n, after.at);
	return after;
}

static bool in_column(const struct writer *w, struct line l, size_t column)
{
	size_t at = l.at + column;
	return column >= 2 && at < l.end && !cleanse_blank(w->t[at]) && w->t[at - 1] == ' ' && w->t[at - 2] == ' ';
}

/* Does a run of spaces in the line end in the same column as one in `before` or `after`? *wide: the line has a wide
 * run.
 */
static bool in_columns(const struct writer *w, struct line l, struct line before, struct line after, bool *wide)
{
	*wide = false;
	for (size_t i = cleanse_skip(w->t, l.at, l.end); i + 2 < l.end; i++) {
		if (w->t[i] != ' ' || w->t[i + 1] != ' ')
			continue;
		size_t from = i;
		while (i + 2 < l.end && w->t[i + 2] == ' ')
			i++;
		size_t column = i + 2 - l.at;
		if (in_column(w, before, column) || in_column(w, after, column))
			return true;
		*wide = *wide || i + 2 - from >= WIDE;
	}
	return false;
}

static bool is_layout(const struct writer *w, struct line l, size_t words)
{
	struct line after = line_after(w, l);
	bool wide, other;
	size_t indent = words - l.at;
	if (indent >= CODE_INDENT || (indent > 0 && w->t[l.at] == '\t'))
		return true;
	if (w->t[words] == '|')
		return false;
	if (in_columns(w, l, w->before, after, &wide))
		return true;
	return wide && (in_columns(w, w->before, w->before_that, l, &other) ||
			in_columns(w, after, l, line_after(w, after), &other));
}

static void put(struct writer *w, size_t at, size_t end)
{
	memcpy(w->dst + w->used, w->t + at, end - at);
	w->used += end - at;
}

/* Writes the line from `at` on; a protected span may cover its beginning. */
static size_t rest_of_line(struct writer *w, size_t at, struct line l, bool *blank)
{
	enum { UNKNOWN, LAYOUT, WORDS } kind = UNKNOWN;
	bool begun = at > l.at, quoted = false;
	while (at < w->n && w->t[at] != '\n') {
		size_t end = protect_at(&w->p, at);
		if (end > at) {
			put(w, at, end);
			w->floor = w->used;
			at = end;
			begun = true;
			continue;
		}
		if (!cleanse_blank(w->t[at])) {
			quoted ^= w->t[at] == '"';
			w->dst[w->used++] = (uint8_t)w->t[at++];
			begun = true;
			continue;
		}
		end = cleanse_skip(w->t, at, w->n);
		if (end == w->n || w->t[end] == '\n') {
			at = end;
			break;
		}
		bool run = begun && !quoted && end - at > 1 && memchr(w->t + at, '\t', end - at) == NULL;
		if (run && kind == UNKNOWN)
			kind = l.at < l.end && is_layout(w, l, cleanse_skip(w->t, l.at, w->n)) ? LAYOUT : WORDS;
		put(w, at, run && kind == WORDS ? at + 1 : end);
		*blank = false;
		at = end;
	}
	*blank = *blank && !begun;
	return at;
}

int cleanse_blanks(const char *text, size_t n, struct sl_buf *out)
{
	struct writer w = {.t = text, .n = n};
	size_t n_blank = MAX_BLANK_LINES; /* blank lines at the beginning are removed */
	int rc = buf_reserve(out, n, &w.dst);
	if (rc != 0)
		return rc;
	protect_init(&w.p, text, n, PROTECT_CODE | PROTECT_JSON | PROTECT_DIFF | PROTECT_URL);
	for (size_t at = 0; at < n;) {
		struct line l = {at, cleanse_line_end(text, n, at)};
		bool blank = true;
		at = rest_of_line(&w, at, l, &blank);
		/* A span may end on a later line. */
		w.before_that = w.before;
		w.before = at == l.end || at == n ? l : (struct line){0};
		if (at == n)
			break;
		at++;
		n_blank = blank ? n_blank + 1 : 0;
		if (n_blank <= MAX_BLANK_LINES)
			w.dst[w.used++] = '\n';
	}
	while (w.used > w.floor && (w.dst[w.used - 1] == '\n' || cleanse_blank((char)w.dst[w.used - 1])))
		w.used--;
	/* Indentation is layout only in a text of several lines. */
	size_t lead = memchr(text, '\n', n) == NULL ? cleanse_skip((const char *)w.dst, 0, w.used) : 0;
	memmove(w.dst, w.dst + lead, w.used - lead);
	w.used -= lead;
	BUG_IF(w.used > n, "blanks made %zu bytes of %zu", w.used, n);
	buf_commit(out, w.used);
	return 0;
}
