/* SPDX-License-Identifier: Apache-2.0
 *
 * The syntax tree of regular expressions, as far as assertions need one; everything else becomes a language at once.
 */
#ifndef ENGINE_CONSTRAINT_REGEX_PRIV_H
#define ENGINE_CONSTRAINT_REGEX_PRIV_H

#include "engine/constraint/charset.h"
#include "engine/constraint/regex.h"

enum re_kind {
	RE_LANG,   /* its language */
	RE_CAT,    /* a, then b */
	RE_ALT,    /* a or b */
	RE_REPEAT, /* least to most times a */
	RE_BEGIN,
	RE_END,
	RE_BOUNDARY, /* inverted: \B */
	RE_AHEAD,    /* inverted: negative */
	RE_BEHIND,   /* inverted: negative; a is one character, the parser's `behind` */
};

struct re {
	enum re_kind kind;
	bool plain; /* contains no assertion: lang is its language */
	rx lang;
	const struct re *a, *b;
	uint32_t least, most;
	bool inverted;
	size_t at; /* offset in the text */
};

struct re_parser {
	struct con *c;
	const char *text;
	size_t n, at;
	unsigned how, depth;
	rx behind; /* of all lookbehinds; RX_NONE: there are none */
	bool boundaries;
	struct regex_fault *fault;
};

int re_fail(struct re_parser *p, int code, size_t at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* NULL after a fault. */
const struct re *re_parse(struct re_parser *p);
/* After `[`; leaves the language of one character. */
rx re_class(struct re_parser *p);
/* After a backslash: an escape that is a set of characters (\d, \p{…}) or one character, added to set. *single: it, or
 * UINT32_MAX. */
bool re_escape(struct re_parser *p, bool in_class, struct charset *set, uint32_t *single);
/* The next character of the text, decoded; UINT32_MAX at the end. */
uint32_t re_next(struct re_parser *p);
rx re_set(struct re_parser *p, struct charset *set);

#endif
