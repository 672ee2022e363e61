/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of ECMA-262 with the u flag, as JSON Schema uses them, to regular languages. As there, `.` is no
 * line end and \d, \w are ASCII. Beyond it: what only the other mode takes and is clear ([\w-.], an identity escape of
 * a punctuation mark, a brace that is no quantifier), and (?i).
 *
 * Assertions (^ $ \b \B and lookaheads) are compiled from right to left against the language of what follows, once for
 * each kind of character that may come before: none, a word character, another. Lazy quantifiers equal greedy ones.
 * Refused by name: backreferences, lookbehinds of more than one character, assertions inside an unbounded repetition.
 */
#ifndef ENGINE_CONSTRAINT_REGEX_H
#define ENGINE_CONSTRAINT_REGEX_H

#include "engine/constraint/con.h"

enum {
	REGEX_SEARCH = 1, /* any text with a match in it; else the whole text matches */
	REGEX_FOLD = 2,   /* both cases of letters */
	REGEX_ALL = 4,    /* `.` is any character */
	REGEX_SPACED = 8, /* blanks and # comments mean nothing */
	REGEX_BYTES = 16, /* of a search: what is around a match need not be UTF-8 */
};

struct regex_fault {
	int code;  /* SL_EINVAL, SL_EUNSUPPORTED, SL_ELIMIT */
	size_t at; /* offset in bytes */
	char what[96];
};

/* The language, in UTF-8. RX_NONE and fault->code on a fault (RX_NONE without one: nothing matches). */
rx regex_rx(struct con *c, const char *text, size_t n, unsigned how, struct regex_fault *fault);

#endif
