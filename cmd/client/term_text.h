/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's text in a terminal, as it streams. Markdown becomes bold, colours and bullets: headings, emphasis, code,
 * fences, lists, quotes; everything else stays as written. Characters that command a terminal, or turn the order of a
 * line, are replaced, so no answer can do more than be read. At most a few bytes are held back until their meaning is
 * known. Linear; no memory of its own.
 */
#ifndef CMD_TERM_TEXT_H
#define CMD_TERM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TERM_HELD_MAX = 16 };

struct term_text {
	FILE *out;
	bool plain; /* no markup is interpreted and nothing is replaced: for a pipe */
	bool quiet; /* all of it dim: thoughts */
	bool bold, italic, code, heading, fence;
	bool at_start; /* of a line */
	char last;     /* the byte before; a space at the start */
	char held[TERM_HELD_MAX];
	size_t n_held;
	size_t n_tail; /* bytes of an unfinished character */
	char tail[4];
};

void term_text_init(struct term_text *t, FILE *out, bool plain, bool quiet);
/* UTF-8, cut anywhere. */
void term_text_put(struct term_text *t, const char *text, size_t n);
/* Writes what is held and resets the terminal's colours. */
void term_text_end(struct term_text *t);

#endif
