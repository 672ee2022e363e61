/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates regular expressions of ECMA-262 with the u flag, as JSON Schema uses them, to regular languages: `.` is
 * not a line end, and \d and \w are ASCII. Also accepted: unambiguous syntax from the mode without u ([\w-.], an
 * escaped punctuation mark, a brace that is not a quantifier), and (?i).
 *
 * Assertions (^ $ \b \B and lookaheads) are compiled from right to left against the language of what follows, once for
 * each kind of preceding character: none, a word character, another. Lazy quantifiers equal greedy ones.
 * Backreferences, lookbehinds of more than one character and assertions inside an unbounded repetition are refused with
 * a message.
 */
#ifndef ENGINE_CONSTRAINT_REGEX_H
#define ENGINE_CONSTRAINT_REGEX_H

#include "engine/constraint/con.h"

enum {
	REGEX_SEARCH = 1, /* texts that contain a match; otherwise the whole text must match */
	REGEX_FOLD = 2,   /* both cases of letters */
	REGEX_ALL = 4,    /* `.` is any character */
	REGEX_SPACED = 8, /* ignores blanks and # comments */
	REGEX_BYTES = 16, /* in a search, the text around a match need not be UTF-8 */
};

struct regex_fault {
	int code;  /* SL_EINVAL, SL_EUNSUPPORTED, SL_ELIMIT */
	size_t at; /* offset in bytes */
	char what[96];
};

/* The language, in UTF-8. On a fault RX_NONE and fault->code; RX_NONE without a fault: nothing matches. */
rx regex_rx(struct con *c, const char *text, size_t n, unsigned how, struct regex_fault *fault);

#endif
