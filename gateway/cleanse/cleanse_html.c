/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides whether a text is pasted HTML, a text about HTML, or not HTML. Tags are removed from pasted HTML only.
 * Keeping tags by mistake costs tokens; removing them by mistake costs the meaning. So there must be evidence for HTML
 * and none against.
 *
 * For: tags of a whole document; a block (p, div, table, ul, h1 …) with content at the beginning of a line or right
 * after another tag; formatted words in a sentence; several line breaks right after words.
 *
 * Against: the user's own words, outside all elements, mention markup, code or an error; braces or lines of code among
 * them; attributes of templates or JSX; elements that HTML does not have (XML); an element that contains only its own
 * name (`<b>bold</b>`).
 */
#include "gateway/cleanse/cleanse_html.h"

#include <string.h>

#include "base/err.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { MIN_BREAKS = 2, MAX_WORD = 16, UNKNOWN_SHARE = 4, MAX_NAMED = 16 };

static unsigned flags_of(const struct html_tag *tag) { return tag->element != NULL ? tag->element->flags : 0; }

static bool is_element(const struct html_tag *tag) { return tag->kind == HTML_TAG && tag->element != NULL; }

static bool is_open_pair(const struct html_tag *tag)
{
	return tag->kind == HTML_TAG && !tag->close && tag->partner != HTML_NONE;
}

/* ---- the user's own words ---- */

/* Words that occur in questions about the tags themselves. Those in other scripts (markup_parts) match inside words. */
static const char *const markup_words[] = {
    "html",       "xhtml",      "css",       "xml",      "jsx",       "tsx",        "svg",           "dom",
    "tag",        "tags",       "element",   "elements", "attribute", "attributes", "markup",        "markdown",
    "javascript", "typescript", "react",     "vue",      "svelte",    "angular",    "selector",      "selectors",
    "xpath",      "scrape",     "scraper",   "scraping", "regex",     "parser",     "parse",         "code",
    "snippet",    "div",        "span",      "iframe",   "href",      "onclick",    "flexbox",       "bootstrap",
    "tailwind",   "template",   "render",    "renders",  "rendered",  "rendering",  "accessibility", "accessible",
    "fix",        "bug",        "debug",     "broken",   "working",   "work",       "works",         "error",
    "errors",     "function",   "component", "escape",   "escaped",   "sanitize",   "xss",           "webpage's",
    "stylesheet", "indent",     "minify",    "balise",   "balises",   "etiqueta",   "etiquetas",     "quellcode",
    "quelltext",
};
static const char *const markup_parts[] = {"태그", "코드", "タグ", "コード", "标签", "代码", "標籤", "тег", "код"};

static bool is_markup_word(const char *word)
{
	for (size_t i = 0; i < sizeof markup_words / sizeof *markup_words; i++)
		if (strcmp(word, markup_words[i]) == 0)
			return true;
	return false;
}

static bool mentions_markup(const char *t, size_t n)
{
	char word[MAX_WORD];
	size_t len = 0;
	for (size_t i = 0; i <= n; i++) {
		char c = i < n ? cleanse_lower(t[i]) : ' ';
		if (cleanse_alnum(c)) {
			if (len < MAX_WORD)
				word[len] = c;
			len++;
			continue;
		}
		if (len > 0 && len < MAX_WORD) {
			word[len] = '\0';
			if (is_markup_word(word))
				return true;
		}
		len = 0;
	}
	for (size_t i = 0; i < sizeof markup_parts / sizeof *markup_parts; i++)
		if (n > 0 && memmem(t, n, markup_parts[i], strlen(markup_parts[i])) != NULL)
			return true;
	return false;
}

static bool is_program(const char *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (t[i] == '{' || t[i] == '}')
			return true;
		if (t[i] == ';' && (i + 1 == n || t[i + 1] == '\n' || t[i + 1] == '\r'))
			return true;
		if (i + 1 < n && ((t[i] == '=' && t[i + 1] == '>') || (t[i] == '?' && t[i + 1] == '>')))
			return true;
	}
	return false;
}

static bool is_against(const struct html *h, size_t at, size_t end)
{
	return end > at && (mentions_markup(h->t + at, end - at) || is_program(h->t + at, end - at));
}

/* Is there evidence against HTML in the text outside all pairs of known elements? */
static bool words_are_against(const struct html *h)
{
	size_t from = 0, i = 0;
	while (i < h->n_tags) {
		const struct html_tag *tag = &h->tags[i];
		if (tag->at > from && is_against(h, from, tag->at))
			return true;
		if (is_open_pair(tag) && tag->element != NULL)
			i = tag->partner;
		/* Skips the content of a raw element, whose end is the next tag. */
		from = h->tags[i].end;
		if (flags_of(&h->tags[i]) & HTML_RAW && !h->tags[i].close && i + 1 < h->n_tags)
			from = h->tags[i + 1].end > from ? h->tags[i + 1].at : from;
		i++;
	}
	return is_against(h, from, h->n);
}

/* ---- elements ---- */

static bool is_empty(const struct html *h, size_t at, size_t end)
{
	while (at < end && strchr(" \t\r\n", h->t[at]) != NULL)
		at++;
	return at == end;
}

static bool begins_line(const struct html *h, size_t i)
{
	size_t at = h->tags[i].at;
	while (at > 0 && cleanse_blank(h->t[at - 1]))
		at--;
	return at == 0 || h->t[at - 1] == '\n' || (i > 0 && h->tags[i - 1].end == at);
}

/* `<b>bold</b>`, `<i>text</i>` */
static bool names_itself(const struct html *h, const struct html_tag *open)
{
	static const char *const examples[] = {
	    "bold",       "strong", "italic",    "italics", "emphasis", "emphasized",  "underline",
	    "underlined", "text",   "some text", "content", "foo",      "bar",         "word",
	    "example",    "...",    "\u2026",    "deleted", "inserted", "highlighted", "x"};
	size_t at = open->end, n = h->tags[open->partner].at - at;
	if (n == open->name_n && strncasecmp(h->t + at, h->t + open->name_at, n) == 0)
		return true;
	for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
		if (strlen(examples[i]) == n && strncasecmp(h->t + at, examples[i], n) == 0)
			return true;
	return false;
}

struct evidence {
	size_t known, unknown, blocks, formats, breaks;
	bool document, named;
};

static struct evidence weigh(const struct html *h)
{
	struct evidence e = {0};
	for (size_t i = 0; i < h->n_tags; i++) {
		const struct html_tag *tag = &h->tags[i];
		e.document = e.document || tag->doctype || (is_open_pair(tag) && (flags_of(tag) & HTML_PAGE));
		if (tag->kind != HTML_TAG || tag->close)
			continue;
		if (tag->element == NULL) {
			e.unknown += tag->partner != HTML_NONE && !tag->custom;
			continue;
		}
		if (tag->element->id == HTML_BR)
			e.breaks += tag->at > 0 && strchr(" \t\n", h->t[tag->at - 1]) == NULL;
		if (tag->partner == HTML_NONE)
			continue;
		e.known++;
		bool full = !is_empty(h, tag->end, h->tags[tag->partner].at);
		if ((tag->element->flags & HTML_SURE) && full && begins_line(h, i))
			e.blocks++;
		else if (((tag->element->flags & HTML_FORMAT) || (tag->element->id == HTML_A && tag->attributes)) &&
			 full) {
			e.named = e.named || names_itself(h, tag);
			e.formats++;
		}
	}
	return e;
}

static bool is_html(struct html *h)
{
	struct evidence e = weigh(h);
	if (h->alien || e.unknown * UNKNOWN_SHARE > e.known)
		return false;
	h->page = e.document || e.blocks > 0;
	if (!h->page && (e.named || (e.formats == 0 && e.breaks < MIN_BREAKS)))
		return false;
	return !words_are_against(h);
}

/* ---- the tags to remove ---- */

static bool goes(const struct html *h, const struct html_tag *tag)
{
	if (tag->kind == HTML_COMMENT || tag->custom)
		return h->page || tag->kind == HTML_COMMENT;
	if (!is_element(tag))
		return false;
	return tag->partner != HTML_NONE || (tag->element->flags & (HTML_VOID | HTML_OPTIONAL)) || tag->attributes ||
	       tag->self || (h->page && tag->close);
}

static bool choose(struct html *h)
{
	h->begin = h->n;
	h->end = 0;
	for (size_t i = 0; i < h->n_tags; i++) {
		struct html_tag *tag = &h->tags[i];
		tag->goes = goes(h, tag);
		if (!tag->goes)
			continue;
		if (tag->at < h->begin)
			h->begin = tag->at;
		h->end = tag->end;
	}
	return h->begin < h->end;
}

int cleanse_html(const char *text, size_t n, struct sl_buf *out)
{
	struct html h = {.t = text, .n = n};
	size_t before = out->len;
	int rc = memchr(text, '<', n) != NULL ? html_find_tags(&h) : 0;
	bool found = rc == 0 && h.n_tags > 0 && is_html(&h) && choose(&h);
	if (found)
		rc = html_put_text(&h, out);
	html_dispose(&h);
	if (rc == SL_ENOMEM)
		return rc;
	/* More tags than any page has, or a text that would become longer: unchanged. */
	if (rc == 0 && found && out->len - before <= n)
		return 0;
	buf_cut(out, before);
	return buf_append(out, text, n);
}
