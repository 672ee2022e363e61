/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the tags of a text and pairs them. A tag must have HTML's syntax (13.1.2) up to its last attribute: `a < b`,
 * `<3`, `x <y and z> w` and a tag cut off by the end of the text are not tags.
 *
 * Linear time: failed attempts are charged to a budget, and a failed search for an end is not repeated.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "gateway/cleanse/cleanse_html.h"
#include "gateway/cleanse/cleanse_priv.h"

enum {
	MAX_TAGS = 1 << 18,
	MAX_NAME = 32,
	MAX_STACK = 256,
	MAX_UP = 32,
	VAIN_READS = 4,
	N_RAW = 2,
	FIRST_ROOM = 64,
	MAX_DECLARATION = 400
};

#define BLOCK HTML_BLOCK
#define PARA (HTML_BLOCK | HTML_PARAGRAPH)
#define SURE HTML_SURE

/* One row for each kind of element; the most frequent ones come first. */
static const struct html_element elements[] = {
    {"p", HTML_P, PARA | HTML_OPTIONAL | SURE},
    {"div center form", HTML_OTHER, BLOCK | SURE},
    {"span b big em font i ins mark small strong u", HTML_OTHER, HTML_FORMAT},
    {"br", HTML_BR, HTML_VOID},
    {"li", HTML_LI, BLOCK | HTML_OPTIONAL},
    {"a", HTML_A, 0},
    {"td th", HTML_CELL, HTML_OPTIONAL},
    {"tr", HTML_ROW, BLOCK | HTML_OPTIONAL},
    {"ul", HTML_UL, PARA | SURE},
    {"abbr acronym bdi bdo cite colgroup dfn kbd label nobr output picture rp rt ruby samp time tt var", HTML_OTHER, 0},
    {"address article aside button caption details dialog fieldset figcaption figure footer header legend main nav "
     "optgroup section select summary textarea",
     HTML_OTHER, BLOCK},
    {"area base col embed input link meta param source track wbr", HTML_OTHER, HTML_VOID},
    {"audio canvas datalist iframe map noscript object svg template video", HTML_OTHER, HTML_DROP},
    {"blockquote dl h1 h2 h3 h4 h5 h6", HTML_OTHER, PARA | SURE},
    {"body head html", HTML_OTHER, BLOCK | HTML_PAGE},
    {"code", HTML_CODE, 0},
    {"dd dt option", HTML_OTHER, BLOCK | HTML_OPTIONAL},
    {"del s strike", HTML_STRUCK, HTML_FORMAT},
    {"hr", HTML_HR, HTML_VOID},
    {"img", HTML_IMG, HTML_VOID},
    {"menu", HTML_UL, BLOCK},
    {"ol", HTML_OL, PARA | SURE},
    {"pre", HTML_PRE, PARA | SURE},
    {"q", HTML_Q, 0},
    {"script", HTML_OTHER, HTML_DROP | HTML_RAW},
    {"style", HTML_OTHER, HTML_DROP | HTML_RAW},
    {"sub", HTML_SUB, HTML_FORMAT},
    {"sup", HTML_SUP, HTML_FORMAT},
    {"table", HTML_TABLE, PARA | SURE},
    {"tbody tfoot thead", HTML_OTHER, HTML_OPTIONAL},
    {"title", HTML_OTHER, PARA},
};

static bool lists(const char *names, const char *name, size_t n)
{
	for (const char *at = names; (at = strstr(at, name)) != NULL; at += n)
		if ((at == names || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
			return true;
	return false;
}

const struct html_element *html_element(const char *t, size_t n)
{
	char name[MAX_NAME];
	if (n == 0 || n >= MAX_NAME)
		return NULL;
	for (size_t i = 0; i < n; i++)
		name[i] = cleanse_lower(t[i]);
	name[n] = '\0';
	for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
		if (lists(elements[i].names, name, n))
			return &elements[i];
	return NULL;
}

static bool is_space(char c) { return cleanse_blank(c) || c == '\n' || c == '\r' || c == '\f'; }

static size_t spaces(const struct html *h, size_t i)
{
	while (i < h->n && is_space(h->t[i]))
		i++;
	return i;
}

static bool equals(const char *t, size_t n, const char *name)
{
	return strlen(name) == n && strncasecmp(t, name, n) == 0;
}

static bool begins(const struct html *h, size_t at, const char *with)
{
	size_t n = strlen(with);
	return h->n - at >= n && strncasecmp(h->t + at, with, n) == 0;
}

/* ---- one tag ---- */

struct finder {
	struct html *h;
	struct protect p;
	size_t budget;
	size_t no_comment_end;                    /* no comment ends after this position */
	const struct html_element *no_end[N_RAW]; /* raw elements without an end tag in the rest of the text */
	size_t stack[MAX_STACK], depth;
};

/* Is it an HTML attribute without a value? Any other word belongs to a sentence. */
static bool is_flag(const char *t, size_t n)
{
	static const char *const flags[] = {
	    "allowfullscreen", "async",     "autofocus",   "autoplay", "border",   "checked",  "controls",
	    "crossorigin",     "default",   "defer",       "disabled", "download", "hidden",   "inert",
	    "ismap",           "itemscope", "loop",        "multiple", "muted",    "nomodule", "novalidate",
	    "nowrap",          "open",      "playsinline", "readonly", "required", "reversed", "selected"};
	if (n > 5 && strncasecmp(t, "data-", 5) == 0)
		return true;
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (equals(t, n, flags[i]))
			return true;
	return memchr(t, '-', n) != NULL; /* aria-…, _ngcontent-… */
}

static bool is_alien(const char *t, size_t n)
{
	return strchr("@:*#([", t[0]) != NULL || (n > 2 && t[0] == 'v' && t[1] == '-') || equals(t, n, "classname") ||
	       equals(t, n, "htmlfor");
}

/* The end of an attribute's value; 0: none. *braces: a JSX value. */
static size_t value_end(const struct html *h, size_t i, bool *braces)
{
	char c = i < h->n ? h->t[i] : '>';
	if (c == '"' || c == '\'') {
		const char *end = memchr(h->t + i + 1, c, h->n - i - 1);
		return end != NULL ? (size_t)(end - h->t) + 1 : 0;
	}
	size_t from = i;
	*braces = c == '{';
	while (i < h->n && !is_space(h->t[i]) && strchr("<>\"'`", h->t[i]) == NULL)
		i++;
	return i > from && i < h->n && (is_space(h->t[i]) || h->t[i] == '>') ? i : 0;
}

/* The end of the attribute at i, or 0. */
static size_t attribute_end(const struct html *h, size_t i, struct html_tag *tag)
{
	size_t from = i;
	while (i < h->n && !is_space(h->t[i]) && strchr("<>=\"'/`", h->t[i]) == NULL && (unsigned char)h->t[i] < 0x80)
		i++;
	size_t n = i - from, next = spaces(h, i);
	if (n == 0)
		return 0;
	if (next >= h->n || h->t[next] != '=')
		return is_flag(h->t + from, n) ? i : 0;
	bool braces = false;
	i = value_end(h, spaces(h, next + 1), &braces);
	tag->attributes = true;
	tag->alien = tag->alien || braces || is_alien(h->t + from, n);
	return i;
}

/* The end of the tag that begins with `<` at tag->at, or 0. *read: the end of the examined text. */
static size_t tag_end(const struct html *h, struct html_tag *tag, size_t *read)
{
	size_t i = tag->at + 1;
	tag->close = i < h->n && h->t[i] == '/';
	i += tag->close;
	tag->name_at = i;
	if (i >= h->n || !cleanse_letter(h->t[i]))
		return 0;
	while (i < h->n && (cleanse_alnum(h->t[i]) || h->t[i] == '-' || h->t[i] == ':')) {
		tag->custom = tag->custom || h->t[i] == '-' || h->t[i] == ':';
		i++;
	}
	tag->name_n = i - tag->name_at;
	tag->element = html_element(h->t + tag->name_at, tag->name_n);
	for (;;) {
		size_t next = spaces(h, i);
		*read = next;
		if (next >= h->n)
			return 0;
		if (h->t[next] == '>')
			return next + 1;
		if (h->t[next] == '/' && next + 1 < h->n && h->t[next + 1] == '>' && !tag->close) {
			tag->self = true;
			return next + 2;
		}
		if (next == i || tag->close || (i = attribute_end(h, next, tag)) == 0)
			return 0;
	}
}

bool html_attribute(const struct html *h, const struct html_tag *tag, const char *name, size_t *at, size_t *n)
{
	size_t i = tag->name_at + tag->name_n;
	for (;;) {
		struct html_tag scratch = {0};
		size_t from = spaces(h, i), len;
		if (from >= tag->end || h->t[from] == '>' || h->t[from] == '/' ||
		    (i = attribute_end(h, from, &scratch)) == 0)
			return false;
		len = strcspn(h->t + from, " \t\n\r\f=>");
		const char *eq = memchr(h->t + from, '=', i - from);
		if (eq == NULL || !equals(h->t + from, len, name))
			continue;
		*at = spaces(h, (size_t)(eq - h->t) + 1);
		*n = i - *at;
		if (*n >= 2 && (h->t[*at] == '"' || h->t[*at] == '\'')) {
			(*at)++;
			*n -= 2;
		}
		return true;
	}
}

/* <!-- … -->, <!doctype …>, <![…]>, <?xml …?> */
static size_t comment_end(struct finder *f, struct html_tag *tag)
{
	const struct html *h = f->h;
	const char *from = h->t + tag->at, *end;
	size_t left = h->n - tag->at;
	tag->kind = HTML_COMMENT;
	if (begins(h, tag->at, "<!--")) {
		if (tag->at >= f->no_comment_end)
			return 0;
		end = memmem(from + 4, left - 4, "-->", 3);
		if (end == NULL)
			f->no_comment_end = tag->at;
		return end != NULL ? (size_t)(end - h->t) + 3 : 0;
	}
	tag->doctype = begins(h, tag->at, "<!doctype html");
	if (!tag->doctype && !begins(h, tag->at, "<![") && !begins(h, tag->at, "<?xml") &&
	    !begins(h, tag->at, "<!doctype"))
		return 0;
	end = memchr(from, '>', left < MAX_DECLARATION ? left : MAX_DECLARATION);
	return end != NULL ? (size_t)(end - h->t) + 1 : 0;
}

/* ---- all tags ---- */

static int add(struct html *h, const struct html_tag *tag)
{
	if (h->n_tags == MAX_TAGS)
		return SL_ELIMIT;
	if (h->n_tags == h->room) {
		size_t room = h->room > 0 ? h->room * 2 : FIRST_ROOM;
		struct html_tag *tags = sl_realloc_n(h->tags, room, sizeof *tags);
		if (tags == NULL)
			return SL_ENOMEM;
		h->tags = tags;
		h->room = room;
	}
	h->tags[h->n_tags++] = *tag;
	return 0;
}

static bool same_name(const struct html *h, const struct html_tag *a, const struct html_tag *b)
{
	return a->name_n == b->name_n && strncasecmp(h->t + a->name_at, h->t + b->name_at, a->name_n) == 0;
}

static enum html_id id_of(const struct html_tag *tag) { return tag->element != NULL ? tag->element->id : HTML_OTHER; }

/* Closes the open elements whose end this tag implies. */
static void end_implied(struct finder *f, const struct html_tag *tag)
{
	const struct html *h = f->h;
	while (f->depth > 0 && tag->element != NULL) {
		const struct html_tag *top = &h->tags[f->stack[f->depth - 1]];
		enum html_id open = id_of(top), id = tag->element->id;
		bool ends =
		    (open == HTML_LI && id == HTML_LI) || (open == HTML_CELL && (id == HTML_CELL || id == HTML_ROW)) ||
		    (open == HTML_ROW && id == HTML_ROW) || (open == HTML_P && (tag->element->flags & HTML_BLOCK)) ||
		    ((tag->element->flags & HTML_OPTIONAL) && same_name(h, top, tag));
		if (!ends)
			return;
		f->depth--;
	}
}

/* A table is for layout if its role says so or if it contains a table. */
static void mark_layout(struct finder *f, struct html_tag *table)
{
	size_t at, n;
	table->layout = html_attribute(f->h, table, "role", &at, &n) && equals(f->h->t + at, n, "presentation");
	for (size_t i = f->depth; i > 0; i--) {
		struct html_tag *outer = &f->h->tags[f->stack[i - 1]];
		if (id_of(outer) != HTML_TABLE)
			continue;
		outer->layout = true;
		return;
	}
}

/* Pairs the last added tag. */
static void pair(struct finder *f)
{
	struct html *h = f->h;
	size_t index = h->n_tags - 1;
	struct html_tag *tag = &h->tags[index];
	bool is_void = tag->element != NULL && (tag->element->flags & HTML_VOID);
	if (tag->kind != HTML_TAG || is_void || tag->self)
		return;
	if (!tag->close) {
		end_implied(f, tag);
		if (id_of(tag) == HTML_TABLE)
			mark_layout(f, tag);
		if (f->depth < MAX_STACK)
			f->stack[f->depth++] = index;
		return;
	}
	for (size_t up = 0; up < f->depth && up < MAX_UP; up++) {
		size_t k = f->stack[f->depth - 1 - up];
		if (!same_name(h, &h->tags[k], tag))
			continue;
		h->tags[k].partner = index;
		tag->partner = k;
		f->depth -= up + 1;
		return;
	}
}

/* The start of a raw element's end tag, or h->n. */
static size_t raw_end(struct finder *f, const struct html_tag *tag)
{
	const struct html *h = f->h;
	for (size_t i = 0; i < N_RAW; i++)
		if (f->no_end[i] == tag->element)
			return h->n;
	for (const char *p = h->t + tag->end; (p = memmem(p, (size_t)(h->t + h->n - p), "</", 2)) != NULL; p += 2) {
		size_t at = (size_t)(p - h->t);
		if (begins(h, at + 2, tag->element->names))
			return at;
	}
	f->no_end[f->no_end[0] != NULL] = tag->element;
	return h->n;
}

static int find(struct finder *f, size_t *at)
{
	struct html *h = f->h;
	struct html_tag tag = {.at = *at, .partner = HTML_NONE};
	size_t read = *at;
	bool comment = *at + 1 < h->n && (h->t[*at + 1] == '!' || h->t[*at + 1] == '?');
	tag.end = comment ? comment_end(f, &tag) : f->budget > 0 ? tag_end(h, &tag, &read) : 0;
	h->alien = h->alien || tag.alien;
	if (tag.end == 0) {
		size_t cost = read - *at;
		f->budget -= cost < f->budget ? cost : f->budget;
		(*at)++;
		return 0;
	}
	int rc = add(h, &tag);
	if (rc != 0)
		return rc;
	pair(f);
	*at = tag.end;
	if (tag.element != NULL && (tag.element->flags & HTML_RAW) && !tag.close && !tag.self) {
		size_t end = raw_end(f, &tag);
		*at = end < h->n ? end : tag.end;
	}
	return 0;
}

int html_find_tags(struct html *h)
{
	struct finder f = {.h = h, .budget = VAIN_READS * h->n, .no_comment_end = h->n};
	int rc = 0;
	protect_init(&f.p, h->t, h->n, PROTECT_CODE | PROTECT_JSON | PROTECT_DIFF);
	for (size_t at = 0; at < h->n && rc == 0;) {
		size_t span = protect_at(&f.p, at);
		if (span > at)
			at = span;
		else if (h->t[at] == '<')
			rc = find(&f, &at);
		else
			at++;
	}
	return rc;
}

void html_dispose(struct html *h)
{
	sl_free(h->tags);
	h->tags = NULL;
}
