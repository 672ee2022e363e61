/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes HTML as text: blocks are lines, paragraphs have blank lines around them, list items have dashes or numbers,
 * table rows are lines with | between cells, preformatted text is fenced code.
 *
 * Within paired elements white space follows HTML: it becomes one blank. Outside them the user's white space and lines
 * stay. Outside code, characters that would form a tag or a character reference stay escaped (`&lt;b&gt;`), so that the
 * result is not HTML again.
 *
 * Breaks, markers and separators are pending ("owed") until a word is written, so empty elements leave no trace.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "gateway/cleanse/cleanse_html.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { MAX_LISTS = 32, MAX_TABLES = 64, MAX_INDENT = 4, MAX_BREAKS = 2, NBSP = 0xa0 };

struct list {
	bool ordered;
	unsigned n;
};

struct writer {
	const struct html *h;
	struct sl_buf *out;
	size_t begin;
	struct protect p;
	size_t depth;     /* open paired elements */
	size_t cells;     /* open data cells */
	unsigned breaks;  /* owed: newlines */
	bool space;       /* owed: a blank */
	bool marker;      /* owed: a list item's marker */
	unsigned n_cells; /* in this row */
	unsigned bars;    /* owed: between cells */
	struct list lists[MAX_LISTS];
	size_t n_lists;
	bool layout[MAX_TABLES]; /* for each open table */
	size_t n_tables;
	int rc;
};

static void put(struct writer *w, const char *s, size_t n)
{
	if (w->rc == 0)
		w->rc = buf_append(w->out, s, n);
}

static void put_str(struct writer *w, const char *s) { put(w, s, strlen(s)); }

static char last(const struct writer *w, size_t back)
{
	return w->out->len >= w->begin + back ? (char)buf_data(w->out)[w->out->len - back] : '\0';
}

static bool at_line_begin(const struct writer *w) { return w->out->len == w->begin || last(w, 1) == '\n'; }

static void owe_breaks(struct writer *w, unsigned n)
{
	if (w->cells > 0)
		w->space = true;
	else if (n > w->breaks)
		w->breaks = n;
}

static void pay_breaks(struct writer *w)
{
	unsigned have = last(w, 1) == '\n' ? 1 + (last(w, 2) == '\n') : 0;
	if (w->breaks > 0) {
		for (; w->out->len > w->begin && have < w->breaks; have++)
			put_str(w, "\n");
		w->space = false;
	}
	w->breaks = 0;
}

static void pay_marker(struct writer *w)
{
	char marker[16 + 2 * MAX_INDENT];
	size_t depth = w->n_lists > MAX_INDENT ? MAX_INDENT : w->n_lists;
	struct list *l = w->n_lists > 0 ? &w->lists[w->n_lists - 1] : NULL;
	int indent = depth > 1 && w->cells == 0 ? (int)(2 * (depth - 1)) : 0;
	if (l != NULL && l->ordered)
		snprintf(marker, sizeof marker, "%*s%u. ", indent, "", ++l->n);
	else
		snprintf(marker, sizeof marker, "%*s- ", indent, "");
	put_str(w, marker);
	w->marker = w->space = false;
}

/* Writes what is owed, before a word. */
static void pay(struct writer *w)
{
	pay_breaks(w);
	if (w->bars > 0) {
		bool begin = at_line_begin(w);
		for (unsigned i = 0; i < w->bars; i++)
			put_str(w, begin && i == 0 ? "|" : " |");
		w->bars = 0;
		w->space = true;
	}
	if (w->marker) {
		if (w->space && !at_line_begin(w))
			put_str(w, " ");
		pay_marker(w);
	}
	if (w->space && !at_line_begin(w) && last(w, 1) != ' ')
		put_str(w, " ");
	w->space = false;
}

/* ---- characters ---- */

/* Would the text at `at` form a tag after `<`: does the name of an element or of a custom element begin there? */
static bool begins_tag(const struct html *h, size_t at)
{
	char c = at < h->n ? h->t[at] : ' ';
	at += c == '/';
	size_t end = at;
	bool custom = false;
	for (; end < h->n && (cleanse_alnum(h->t[end]) || h->t[end] == '-' || h->t[end] == ':'); end++)
		custom = custom || !cleanse_alnum(h->t[end]);
	char next = end < h->n ? h->t[end] : ' ';
	if (c == '!' || c == '?' || c == '&' || c == '<')
		return true;
	return end > at && strchr(" \t\n/>&<", next) != NULL && (custom || html_element(h->t + at, end - at) != NULL);
}

/* Must the reference to cp stay, because its character would form a tag or a reference with the text after it? */
static bool must_stay(const struct html *h, uint32_t cp, size_t after)
{
	if (cp == '<')
		return begins_tag(h, after);
	if (cp != '&' || (after < h->n && h->t[after] == ';'))
		return false;
	while (after < h->n && (cleanse_alnum(h->t[after]) || h->t[after] == '#'))
		after++;
	return after < h->n && h->t[after] == ';';
}

/* *cp: the character at `at`, decoded. Returns its bytes. literal: in code. */
static size_t character(const struct html *h, size_t at, bool literal, uint32_t *cp)
{
	size_t bytes = h->t[at] == '&' ? html_entity(h->t + at, h->n - at, cp) : 0;
	if (bytes > 0 && (literal || !must_stay(h, *cp, at + bytes)))
		return bytes;
	*cp = cleanse_cp_at(h->t, h->n, at, &bytes);
	return bytes;
}

static void put_cp(struct writer *w, uint32_t cp)
{
	uint8_t bytes[4];
	put(w, (const char *)bytes, (size_t)utf8_encode(cp, bytes));
}

static bool is_space(uint32_t cp) { return cp == ' ' || cp == '\t' || cp == '\n' || cp == '\r' || cp == '\f'; }

/* Writes the user's own text. Its leading breaks are owed. */
static void put_own(struct writer *w, size_t at, size_t end)
{
	size_t i = at;
	unsigned lines = 0;
	for (; i < end && is_space((unsigned char)w->h->t[i]); i++)
		lines += w->h->t[i] == '\n';
	if (i == end) {
		/* Only white space between two elements. */
		if (lines > 0)
			owe_breaks(w, lines > MAX_BREAKS ? MAX_BREAKS : lines);
		else
			w->space = w->space || end > at;
		return;
	}
	if (lines > 0) {
		owe_breaks(w, lines > MAX_BREAKS ? MAX_BREAKS : lines);
		while (at < i && w->h->t[i - 1] != '\n')
			i--;
		at = i;
	} else if (i > at) {
		w->space = true;
		at = i;
	}
	pay(w);
	for (size_t bytes; at < end && w->rc == 0; at += bytes) {
		uint32_t cp;
		size_t span = protect_at(&w->p, at);
		if (span > at && span <= end) {
			put(w, w->h->t + at, span - at);
			bytes = span - at;
			continue;
		}
		/* After the last tag `&` is literal. */
		if (at < w->h->end)
			bytes = character(w->h, at, false, &cp);
		else
			cp = cleanse_cp_at(w->h->t, w->h->n, at, &bytes);
		put_cp(w, cp);
	}
}

static void put_html(struct writer *w, size_t at, size_t end)
{
	for (size_t bytes; at < end && w->rc == 0; at += bytes) {
		uint32_t cp;
		size_t span = protect_at(&w->p, at);
		if (span > at && span <= end) {
			/* Fences need lines of their own. */
			if (memchr(w->h->t + at, '\n', span - at) != NULL)
				owe_breaks(w, 1);
			pay(w);
			put(w, w->h->t + at, span - at);
			bytes = span - at;
			continue;
		}
		bytes = character(w->h, at, false, &cp);
		if (is_space(cp) || cp == NBSP) {
			w->space = true;
			continue;
		}
		pay(w);
		put_cp(w, cp);
	}
}

/* ---- code ---- */

/* Writes code: decoded, without tags, with its white space. */
static void put_literal(struct writer *w, size_t first, size_t at, size_t end)
{
	size_t tag = first;
	while (at < end && w->rc == 0) {
		if (tag < w->h->n_tags && w->h->tags[tag].at == at) {
			const struct html_tag *t = &w->h->tags[tag++];
			if (t->goes) {
				if (t->element != NULL && t->element->id == HTML_BR)
					put_str(w, "\n");
				at = t->end;
				continue;
			}
		}
		uint32_t cp;
		at += character(w->h, at, true, &cp);
		put_cp(w, cp == NBSP ? ' ' : cp);
	}
}

static bool has(const struct html *h, size_t at, size_t end, const char *what)
{
	return end > at && memmem(h->t + at, end - at, what, strlen(what)) != NULL;
}

/* Writes the element as a fence. False: its text would end the fence. */
static bool put_fenced(struct writer *w, size_t i)
{
	const struct html *h = w->h;
	size_t at = h->tags[i].end, end = h->tags[h->tags[i].partner].at;
	if (has(h, at, end, "```") || has(h, at, end, "&#96;") || has(h, at, end, "&#x60;"))
		return false;
	while (at < end && (h->t[at] == '\n' || h->t[at] == '\r'))
		at++;
	while (end > at && strchr(" \t\r\n", h->t[end - 1]) != NULL)
		end--;
	if (at == end)
		return true;
	w->breaks += w->breaks == 0; /* also in a cell */
	w->bars = 0;
	w->marker = false;
	pay(w);
	put_str(w, "```\n");
	size_t from = w->out->len;
	put_literal(w, i + 1, at, end);
	/* Drops line ends that were between tags. */
	while (w->out->len > from && strchr(" \t\r\n", last(w, 1)) != NULL)
		w->out->len--;
	put_str(w, "\n```");
	w->breaks = 1;
	return true;
}

/* Writes the element as `…`. False: it has several lines or backticks. */
static bool put_code(struct writer *w, size_t i)
{
	const struct html *h = w->h;
	size_t at = h->tags[i].end, end = h->tags[h->tags[i].partner].at;
	if (has(h, at, end, "`") || has(h, at, end, "\n") || has(h, at, end, "&#96;") || has(h, at, end, "&#x60;"))
		return false;
	at = cleanse_skip(h->t, at, end);
	end = cleanse_trim(h->t, at, end);
	if (at == end)
		return true;
	pay(w);
	put_str(w, "`");
	put_literal(w, i + 1, at, end);
	put_str(w, "`");
	return true;
}

/* ---- elements ---- */

static void put_image(struct writer *w, const struct html_tag *tag)
{
	size_t at, n;
	if (html_attribute(w->h, tag, "alt", &at, &n) && n > 0)
		put_html(w, at, at + n);
}

/* x² must not become x2: a single letter, digits and signs get the mark; the letters of `1st` do not. */
static void put_raised(struct writer *w, size_t i, const char *mark)
{
	const struct html *h = w->h;
	size_t at = h->tags[i].end, next = i + 1, n;
	if (h->tags[i].partner == HTML_NONE)
		return;
	/* The first text in the element. */
	while (next < h->tags[i].partner && h->tags[next].at == at)
		at = h->tags[next++].end;
	n = h->tags[next].at - at;
	bool letters = n > 1, bracket = n > 0 && strchr("[(*", h->t[at]) != NULL;
	for (size_t k = 0; k < n; k++)
		letters = letters && cleanse_letter(h->t[at + k]);
	if (n == 0 || letters || bracket)
		return;
	pay(w);
	put_str(w, mark);
}

/* Keeps a link's address in a text without blocks, where the user refers to the link. */
static void put_address(struct writer *w, size_t close)
{
	const struct html *h = w->h;
	size_t open = h->tags[close].partner, at, n;
	if (h->page || open == HTML_NONE || !html_attribute(h, &h->tags[open], "href", &at, &n))
		return;
	size_t text = h->tags[open].end, len = h->tags[close].at - text;
	if (n < 4 || strncasecmp(h->t + at, "http", 4) != 0 || (len == n && memcmp(h->t + text, h->t + at, n) == 0))
		return;
	put_str(w, " (");
	put_literal(w, h->n_tags, at, at + n);
	put_str(w, ")");
}

static bool is_data(const struct writer *w)
{
	return w->n_tables == 0 || (w->n_tables <= MAX_TABLES && !w->layout[w->n_tables - 1]);
}

static void begin_table(struct writer *w, const struct html_tag *tag)
{
	if (tag->partner == HTML_NONE)
		return;
	if (w->n_tables < MAX_TABLES)
		w->layout[w->n_tables] = tag->layout;
	w->n_tables++;
}

static void begin_cell(struct writer *w, size_t i)
{
	const struct html_tag *tag = &w->h->tags[i];
	if (!is_data(w)) {
		owe_breaks(w, 1);
		return;
	}
	w->bars += w->n_cells > 0;
	w->n_cells++;
	w->cells += tag->partner != HTML_NONE;
	w->space = false;
}

static void begin_element(struct writer *w, size_t i)
{
	const struct html_tag *tag = &w->h->tags[i];
	switch (tag->element->id) {
	case HTML_BR:
		if (w->cells > 0)
			w->space = true;
		else if (w->breaks < MAX_BREAKS)
			w->breaks++;
		break;
	case HTML_HR: owe_breaks(w, 2); break;
	case HTML_IMG: put_image(w, tag); break;
	case HTML_OL:
	case HTML_UL:
		/* A nested list is not a paragraph. */
		owe_breaks(w, w->n_lists > 0 ? 1 : 2);
		if (tag->partner != HTML_NONE && w->n_lists < MAX_LISTS)
			w->lists[w->n_lists++] = (struct list){.ordered = tag->element->id == HTML_OL};
		return;
	case HTML_LI:
		owe_breaks(w, 1);
		w->marker = true;
		return;
	case HTML_ROW:
		owe_breaks(w, 1);
		w->n_cells = w->bars = 0;
		return;
	case HTML_CELL: begin_cell(w, i); return;
	case HTML_TABLE: begin_table(w, tag); break;
	case HTML_Q:
		pay(w);
		put_str(w, "\"");
		break;
	case HTML_STRUCK:
		if (tag->partner == HTML_NONE)
			break;
		pay(w);
		put_str(w, "~~");
		break;
	case HTML_SUP: put_raised(w, i, "^"); break;
	case HTML_SUB: put_raised(w, i, "_"); break;
	default: break;
	}
	if (tag->element->flags & HTML_BLOCK)
		owe_breaks(w, tag->element->flags & HTML_PARAGRAPH && w->n_lists == 0 ? 2 : 1);
}

static void end_element(struct writer *w, size_t i)
{
	const struct html_tag *tag = &w->h->tags[i];
	bool paired = tag->partner != HTML_NONE;
	switch (tag->element->id) {
	case HTML_OL:
	case HTML_UL:
		w->n_lists -= paired && w->n_lists > 0;
		w->marker = false;
		owe_breaks(w, w->n_lists > 0 ? 1 : 2);
		return;
	case HTML_ROW:
		w->bars = w->n_cells = 0;
		owe_breaks(w, 1);
		return;
	case HTML_CELL:
		if (paired && w->cells > 0 && is_data(w))
			w->cells--;
		return;
	case HTML_LI: w->marker = false; break;
	case HTML_TABLE: w->n_tables -= paired && w->n_tables > 0; break;
	case HTML_A: put_address(w, i); break;
	case HTML_Q: put_str(w, "\""); break;
	case HTML_STRUCK:
		if (paired)
			put_str(w, "~~");
		break;
	default: break;
	}
	if (tag->element->flags & HTML_BLOCK)
		owe_breaks(w, tag->element->flags & HTML_PARAGRAPH && w->n_lists == 0 ? 2 : 1);
}

/* Writes the tag, and the element if it is written as a whole. Returns the last tag written. */
static size_t put_tag(struct writer *w, size_t i)
{
	const struct html_tag *tag = &w->h->tags[i];
	bool paired = tag->partner != HTML_NONE;
	if (tag->element == NULL)
		return i;
	if (!tag->close && (tag->element->flags & HTML_DROP) && paired)
		return tag->partner;
	if (!tag->close && paired &&
	    ((tag->element->id == HTML_PRE && put_fenced(w, i)) || (tag->element->id == HTML_CODE && put_code(w, i))))
		return tag->partner;
	if (tag->close)
		end_element(w, i);
	else
		begin_element(w, i);
	if (paired && tag->close)
		w->depth--;
	else if (paired)
		w->depth++;
	return i;
}

int html_put_text(const struct html *h, struct sl_buf *out)
{
	struct writer w = {.h = h, .out = out, .begin = out->len};
	size_t at = h->begin;
	protect_init(&w.p, h->t, h->n, PROTECT_CODE | PROTECT_JSON | PROTECT_DIFF);
	put(&w, h->t, h->begin);
	for (size_t i = 0; i < h->n_tags && w.rc == 0; i++) {
		const struct html_tag *tag = &h->tags[i];
		if (!tag->goes)
			continue;
		if (w.depth > 0)
			put_html(&w, at, tag->at);
		else
			put_own(&w, at, tag->at);
		i = put_tag(&w, i);
		at = h->tags[i].end;
	}
	if (w.rc == 0)
		put_own(&w, at, h->n);
	return w.rc;
}
