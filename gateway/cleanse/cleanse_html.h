/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that remove HTML: cleanse_tags.c finds the tags, cleanse_html.c decides whether the text is HTML,
 * cleanse_html_text.c writes the result.
 */
#ifndef GATEWAY_CLEANSE_HTML_H
#define GATEWAY_CLEANSE_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum html_id {
	HTML_OTHER,
	HTML_A,
	HTML_BR,
	HTML_CODE,
	HTML_HR,
	HTML_IMG,
	HTML_LI,
	HTML_OL,
	HTML_P,
	HTML_PRE,
	HTML_Q,
	HTML_STRUCK,
	HTML_SUB,
	HTML_SUP,
	HTML_TABLE,
	HTML_CELL,
	HTML_ROW,
	HTML_UL,
};

enum {
	HTML_BLOCK = 1,     /* a line of its own */
	HTML_PARAGRAPH = 2, /* with blank lines around it */
	HTML_VOID = 4,      /* has no end tag */
	HTML_DROP = 8,      /* its content is not text */
	HTML_RAW = 16,      /* its content has no tags; such a row has one name */
	HTML_OPTIONAL = 32, /* the end tag may be omitted */
	HTML_SURE = 64,     /* a block that only HTML uses */
	HTML_FORMAT = 128,  /* formats words */
	HTML_PAGE = 256,    /* of a whole document */
};

struct html_element {
	const char *names; /* separated by blanks */
	enum html_id id;
	unsigned flags;
};

enum html_kind { HTML_TAG, HTML_COMMENT }; /* also doctypes and processing instructions */

#define HTML_NONE SIZE_MAX

struct html_tag {
	size_t at, end;
	enum html_kind kind;
	const struct html_element *element; /* NULL: not an HTML element */
	size_t name_at, name_n;
	bool close, self, attributes;
	bool alien;  /* it has an attribute of templates or JSX */
	bool custom; /* a name with - or : */
	bool doctype;
	bool layout;    /* a table for layout, not data: it contains a table or is marked so */
	bool goes;      /* the tag is removed; set by cleanse_html.c */
	size_t partner; /* the other tag of the pair; HTML_NONE */
};

struct html {
	const char *t;
	size_t n;
	struct html_tag *tags; /* owned */
	size_t n_tags, room;
	bool alien;        /* a tag has an attribute of templates or JSX */
	bool page;         /* the text has blocks, so its links are navigation */
	size_t begin, end; /* of the removed tags and the text between them */
};

/* Finds tags outside code, JSON and diffs, and pairs them. 0, SL_ENOMEM, SL_ELIMIT: too many. */
int html_find_tags(struct html *h);
void html_dispose(struct html *h);
/* The row that lists the name; NULL: not an HTML element. */
const struct html_element *html_element(const char *name, size_t n);
/* Finds an attribute's value, without its quotes; false: none. */
bool html_attribute(const struct html *h, const struct html_tag *tag, const char *name, size_t *at, size_t *n);
/* Appends the text without the removed tags. */
int html_put_text(const struct html *h, struct sl_buf *out);

/* The bytes of the character reference at t, and its character; 0: not a character reference. */
size_t html_entity(const char *t, size_t n, uint32_t *cp);

#endif
