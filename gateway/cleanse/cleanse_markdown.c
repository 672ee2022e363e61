/* SPDX-License-Identifier: Apache-2.0
 *
 * Removes the decoration of Markdown: the marks of headings and emphasis. Shortens rules and table rules, turns bullets
 * into dashes and embedded images into their descriptions. Lists, tables, links, quotations, struck text and code stay.
 *
 * It works line by line, because the same characters may be code: `# install` before a command is a comment, `2*3*4`
 * and `**kwargs` are not emphasis. Emphasis is a pair of marks on one line at the edges of words (stricter than
 * CommonMark 0.31, 6.2, and suited to scripts without spaces).
 *
 * Linear time: the marks of a line are collected once and matched with a short stack.
 */
#include <string.h>

#include "gateway/cleanse/cleanse_priv.h"

enum { MAX_MARKS = 128, MAX_OPEN = 16, CODE_INDENT = 4, MAX_LEVEL = 6, RULE = 3, MAX_EMPHASIS = 300 };

struct line {
	size_t at, words, end; /* words: its first character that is not blank */
};

enum mark_kind { SPAN, EMPHASIS, REPLACE };

struct mark {
	size_t at, end;
	enum mark_kind kind;
	bool opens, closes, goes;
	size_t text_at, text_end; /* REPLACE: the text that stays */
};

struct writer {
	const char *t;
	size_t n;
	struct sl_buf *out;
	struct protect p;
	struct mark marks[MAX_MARKS];
	size_t n_marks;
	size_t from;                     /* the text before it is written */
	size_t no_image;                 /* no embedded image begins before this position */
	bool code, as_is;                /* as_is: its typography stays */
	struct line before, before_that; /* words == end: blank, or none */
};

static struct line line_at(const struct writer *w, size_t at)
{
	size_t end = cleanse_line_end(w->t, w->n, at);
	return (struct line){at, cleanse_skip(w->t, at, end), end};
}

static bool is_blank(struct line l) { return l.words == l.end; }

static struct line line_after(const struct writer *w, struct line l)
{
	return l.end < w->n ? line_at(w, l.end + 1) : (struct line){w->n, w->n, w->n};
}

static bool begins(const struct writer *w, struct line l, const char *with)
{
	size_t n = strlen(with);
	return l.end - l.words >= n && memcmp(w->t + l.words, with, n) == 0;
}

static bool contains(const struct writer *w, struct line l, const char *what)
{
	return l.end > l.words && memmem(w->t + l.words, l.end - l.words, what, strlen(what)) != NULL;
}

/* Looks for signs that hardly ever occur in a sentence. */
static bool is_code(const struct writer *w, struct line l)
{
	static const char *const first[] = {
	    "$ ",    ">>> ",     "#!",    "#include", "import ", "from ",   "def ",    "class ",  "const ", "let ",
	    "var ",  "return ",  "if (",  "for (",    "while (", "public ", "npm ",    "pip ",    "sudo ",  "git ",
	    "apt ",  "apt-get ", "cd ",   "rm ",      "ls ",     "cp ",     "mv ",     "find ",   "grep ",  "cat ",
	    "echo ", "docker ",  "curl ", "make ",    "export ", "SELECT ", "UPDATE ", "INSERT ", "DELETE "};
	static const char *const inside[] = {" = ", "=>", "->", "::", "==", "()", "&&", "*/", "/*", "+="};
	if (is_blank(l))
		return false;
	if (strchr(";{}", w->t[l.end - 1]) != NULL)
		return true;
	for (size_t i = 0; i < sizeof first / sizeof *first; i++)
		if (begins(w, l, first[i]))
			return true;
	for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
		if (contains(w, l, inside[i]))
			return true;
	return false;
}

static bool has_cjk(const struct writer *w, struct line l)
{
	for (size_t i = l.words, bytes; i < l.end; i += bytes) {
		bytes = 1;
		if ((unsigned char)w->t[i] >= 0xe1 && cleanse_cp_cjk(cleanse_cp_at(w->t, w->n, i, &bytes)))
			return true;
	}
	return false;
}

/* ---- lines ---- */

/* The level of `## Heading` and the start of its text; 0: not a heading. */
static size_t heading_level(const struct writer *w, struct line l, size_t *text)
{
	size_t i = l.words < l.end && w->t[l.words] == '#' ? cleanse_run(w->t, l.words, l.end) : l.words;
	size_t level = i - l.words;
	if (level == 0 || level > MAX_LEVEL || l.words - l.at >= CODE_INDENT || i >= l.end || !cleanse_blank(w->t[i]))
		return 0;
	*text = cleanse_skip(w->t, i, l.end);
	return *text < l.end ? level : 0;
}

/* A heading stands alone, above text or a deeper heading; otherwise it may be a program's comment. */
static size_t heading(const struct writer *w, struct line l, size_t *text)
{
	size_t level = heading_level(w, l, text), other;
	if (level == 0)
		return 0;
	size_t above = heading_level(w, w->before, &other);
	if (!is_blank(w->before) && (above == 0 || above == level))
		return 0;
	struct line next = line_after(w, l);
	size_t below = heading_level(w, next, &other);
	if (is_blank(next))
		return level;
	if (below == level || is_code(w, next))
		return 0;
	unsigned char c = (unsigned char)w->t[next.words];
	bool sentence = c >= 0x80 || (c >= 'A' && c <= 'Z' && contains(w, next, " ")) || strchr("-*|>`!", c) != NULL;
	return below > level || level > 1 || sentence ? level : 0;
}

/* The character of a line that repeats it at least RULE times; else 0. */
static char rule(const struct writer *w, struct line l)
{
	char c = is_blank(l) ? '\0' : w->t[l.words];
	if (strchr("-=_*~", c) == NULL || c == '\0')
		return '\0';
	return cleanse_run(w->t, l.words, l.end) == l.end && l.end - l.words >= RULE ? c : '\0';
}

/* Does the line underline a heading: is a single line of words above it? */
static bool underlines(const struct writer *w, struct line l)
{
	char c = rule(w, l);
	if ((c != '=' && c != '-') || l.words > l.at || is_blank(w->before) || !is_blank(w->before_that))
		return false;
	return strchr("|-#>+*<=_~`", w->t[w->before.words]) == NULL && !cleanse_digit(w->t[w->before.words]) &&
	       !contains(w, w->before, ": ") && w->t[w->before.end - 1] != ':' && !is_code(w, w->before);
}

/* Is the line like |-----|:---:| ? */
static bool table_rule(const struct writer *w, struct line l)
{
	bool bar = false, dash = false;
	for (size_t i = l.words; i < l.end; i++) {
		if (strchr("|:- ", w->t[i]) == NULL)
			return false;
		bar = bar || w->t[i] == '|';
		dash = dash || w->t[i] == '-';
	}
	return bar && dash;
}

static int put_table_rule(struct writer *w, struct line l)
{
	int rc = buf_append(w->out, w->t + l.at, l.words - l.at);
	size_t dashes = 0;
	for (size_t i = l.words; i < l.end && rc == 0; i++) {
		dashes = w->t[i] == '-' ? dashes + 1 : 0;
		if (dashes <= RULE)
			rc = buf_append(w->out, w->t + i, 1);
	}
	return rc;
}

/* The bytes of a typographic bullet followed by a blank; else 0. */
static size_t bullet(const struct writer *w, struct line l)
{
	size_t bytes, next;
	uint32_t cp = cleanse_cp_at(w->t, l.end, l.words, &bytes);
	uint32_t after = cleanse_cp_at(w->t, l.end, l.words + bytes, &next);
	bool is = cp == 0x2022 || cp == 0x2023 || cp == 0x2043 || cp == 0x25aa || cp == 0x25ab || cp == 0x25cf ||
		  cp == 0x25e6;
	return is && (after == ' ' || after == '\t' || after == 0xa0) ? bytes : 0;
}

static bool is_item(const struct writer *w, struct line l)
{
	size_t i = l.words;
	while (i < l.end && cleanse_digit(w->t[i]))
		i++;
	bool number = i > l.words && i + 1 < l.end && (w->t[i] == '.' || w->t[i] == ')') && w->t[i + 1] == ' ';
	return number || begins(w, l, "- ") || begins(w, l, "* ") || begins(w, l, "+ ") || bullet(w, l) > 0;
}

static bool is_indented_code(const struct writer *w, struct line l)
{
	bool indented = l.words - l.at >= CODE_INDENT || (l.words > l.at && w->t[l.at] == '\t');
	return indented && !is_item(w, l);
}

/* ---- within a line ---- */

static bool is_wordish(uint32_t cp) { return cp >= 0xa1 || (cp < 0x80 && cleanse_alnum((char)cp)); }

static bool is_quote(uint32_t cp) { return cp == '"' || cp == '\'' || cp == '`'; }

static void classify(const struct writer *w, struct mark *m)
{
	size_t bytes, len = m->end - m->at;
	uint32_t before = cleanse_cp_before(w->t, m->at), after = cleanse_cp_at(w->t, w->n, m->end, &bytes);
	bool under = w->t[m->at] == '_', ascii_before = before < 0x80 && cleanse_alnum((char)before);
	bool ascii_after = after < 0x80 && cleanse_alnum((char)after);
	if (len > 3 || (is_quote(before) && before == after))
		return;
	bool edge_before = before == 0 || before == ' ' || before == '\n' || before == '\t' ||
			   (before < 0x80 && strchr("([{\"'->|:,;*_~#", (int)before) != NULL) ||
			   (before >= 0x80 && !under);
	bool edge_after = after == 0 || after == ' ' || after == '\n' || after == '\t' ||
			  (after < 0x80 && strchr(".,;:!?)]}\"'-|<*_~", (int)after) != NULL) ||
			  (after >= 0x80 && !under);
	bool inner_after = is_wordish(after) ||
			   (after != 0 && after < 0x80 && strchr("*_([$`#~", (int)after) != NULL) ||
			   (len > 1 && is_quote(after));
	bool inner_before = is_wordish(before) ||
			    (before != 0 && before < 0x80 && strchr("*_)]$`.!?,:;%~", (int)before) != NULL) ||
			    (len > 1 && is_quote(before));
	m->opens = edge_before && !ascii_before && inner_after;
	m->closes = edge_after && !ascii_after && inner_before;
}

/* Single stars and underscores also occur in patterns, paths and names, so their text must not look like one. */
static bool is_emphasis(const struct writer *w, const struct mark *open, const struct mark *close)
{
	const char *inner = w->t + open->end;
	size_t n = close->at - open->end, len = open->end - open->at;
	if (n == 0)
		return false;
	if (w->t[open->at] == '_')
		return memchr(inner, ' ', n) != NULL && n <= MAX_EMPHASIS;
	if (len > 1)
		return true;
	if (w->code || n > MAX_EMPHASIS)
		return false;
	for (size_t i = 0; i < n; i++)
		if (strchr("/\\=;{}<>", inner[i]) != NULL)
			return false;
	return true;
}

static void match(struct writer *w)
{
	struct mark *open[MAX_OPEN];
	size_t n = 0;
	for (size_t i = 0; i < w->n_marks; i++) {
		struct mark *m = &w->marks[i];
		if (m->kind != EMPHASIS)
			continue;
		size_t k = m->closes ? n : 0;
		for (; k > 0; k--)
			if (w->t[open[k - 1]->at] == w->t[m->at] &&
			    open[k - 1]->end - open[k - 1]->at == m->end - m->at)
				break;
		if (k > 0 && is_emphasis(w, open[k - 1], m)) {
			open[k - 1]->goes = m->goes = true;
			n = k - 1;
		} else if (m->opens && n < MAX_OPEN) {
			open[n++] = m;
		}
	}
}

/* Writes everything up to `at`. */
static int flush(struct writer *w, size_t at)
{
	int rc = 0;
	match(w);
	for (size_t i = 0; i < w->n_marks && rc == 0; i++) {
		const struct mark *m = &w->marks[i];
		if (m->kind == EMPHASIS && !m->goes)
			continue;
		if ((rc = cleanse_type(w->t, w->n, w->from, m->at, w->as_is, w->out)) != 0)
			break;
		if (m->kind == SPAN)
			rc = buf_append(w->out, w->t + m->at, m->end - m->at);
		else if (m->kind == REPLACE)
			rc = buf_append(w->out, w->t + m->text_at, m->text_end - m->text_at);
		w->from = m->end;
	}
	w->n_marks = 0;
	if (rc == 0)
		rc = cleanse_type(w->t, w->n, w->from, at, w->as_is, w->out);
	w->from = at;
	return rc;
}

/* ![description](data:…): an image embedded in the text. */
static bool find_image(struct writer *w, size_t at, size_t end, struct mark *m)
{
	static const char data[] = "](data:";
	if (at < w->no_image || end - at < 2 || w->t[at + 1] != '[')
		return false;
	const char *middle = memmem(w->t + at, end - at, data, sizeof data - 1);
	const char *close = middle != NULL ? memchr(middle, ')', (size_t)(w->t + end - middle)) : NULL;
	if (close == NULL) {
		w->no_image = end;
		return false;
	}
	if (memchr(w->t + at + 2, ']', (size_t)(middle - (w->t + at + 2))) != NULL ||
	    middle - (w->t + at) > MAX_EMPHASIS)
		return false;
	*m = (struct mark){.at = at,
			   .end = (size_t)(close - w->t) + 1,
			   .kind = REPLACE,
			   .text_at = at + 2,
			   .text_end = (size_t)(middle - w->t)};
	return true;
}

/* Writes from `at` to stop, or to the next newline if a span extends beyond stop. */
static int put_inline(struct writer *w, size_t *at, size_t stop)
{
	size_t i = *at, end = cleanse_line_end(w->t, w->n, i);
	int rc = 0;
	w->from = i;
	while (i < w->n && w->t[i] != '\n' && i != stop && rc == 0) {
		struct mark m = {.at = i, .end = i};
		char c = w->t[i];
		size_t span = protect_at(&w->p, i);
		if (span > i) {
			m = (struct mark){.at = i, .end = span, .kind = SPAN};
			if (span > end)
				end = cleanse_line_end(w->t, w->n, span);
		} else if (c == '*' || c == '_') {
			m = (struct mark){.at = i, .end = cleanse_run(w->t, i, end), .kind = EMPHASIS};
			classify(w, &m);
		} else if (c != '!' || !find_image(w, i, end, &m)) {
			i++;
			continue;
		}
		w->marks[w->n_marks++] = m;
		i = m.end;
		if (w->n_marks == MAX_MARKS)
			rc = flush(w, i);
	}
	*at = i;
	return rc != 0 ? rc : flush(w, i);
}

/* Writes the words of a heading, without its closing marks. */
static int put_heading(struct writer *w, struct line l, size_t text, size_t *at)
{
	size_t end = cleanse_trim(w->t, text, l.end), words = end;
	while (words > text && w->t[words - 1] == '#')
		words--;
	if (words > text && cleanse_blank(w->t[words - 1]))
		end = words;
	*at = text;
	int rc = put_inline(w, at, end);
	if (*at == end)
		*at = l.end;
	return rc;
}

static int put_line(struct writer *w, struct line l, size_t *at, bool *dropped)
{
	char c;
	size_t text, bytes;
	int rc;
	*dropped = false;
	w->code = is_code(w, l);
	/* In a line of code that has plain quotes, typographic quotes are data. */
	w->as_is = has_cjk(w, l) || (w->code && (contains(w, l, "\"") || contains(w, l, "'")));
	size_t span = protect_at(&w->p, l.at);
	if (span > l.at) {
		rc = buf_append(w->out, w->t + l.at, span - l.at);
		*at = span;
		return rc != 0 ? rc : put_inline(w, at, w->n);
	}
	if (underlines(w, l)) {
		*dropped = true;
		*at = l.end;
		return 0;
	}
	if ((c = rule(w, l)) != '\0') {
		const char three[RULE] = {c, c, c};
		*at = l.end;
		rc = buf_append(w->out, w->t + l.at, l.words - l.at);
		return rc != 0 ? rc : buf_append(w->out, three, RULE);
	}
	if (table_rule(w, l)) {
		*at = l.end;
		return put_table_rule(w, l);
	}
	if (is_indented_code(w, l)) {
		*at = l.end;
		return buf_append(w->out, w->t + l.at, l.end - l.at);
	}
	if (heading(w, l, &text) > 0)
		return put_heading(w, l, text, at);
	if ((bytes = bullet(w, l)) > 0) {
		if ((rc = buf_append(w->out, w->t + l.at, l.words - l.at)) != 0 ||
		    (rc = buf_append_str(w->out, "-")) != 0)
			return rc;
		*at = l.words + bytes;
	}
	return put_inline(w, at, w->n);
}

int cleanse_markdown(const char *text, size_t n, struct sl_buf *out)
{
	struct writer w = {.t = text, .n = n, .out = out};
	int rc = 0;
	protect_init(&w.p, text, n, PROTECT_ALL);
	for (size_t at = 0; at < n && rc == 0;) {
		struct line l = line_at(&w, at);
		bool dropped;
		rc = put_line(&w, l, &at, &dropped);
		w.before_that = w.before;
		w.before = l;
		if (at > l.end)
			w.before = (struct line){0};
		if (at == n)
			break;
		at++;
		if (rc == 0 && !dropped)
			rc = buf_append_str(out, "\n");
	}
	return rc;
}
