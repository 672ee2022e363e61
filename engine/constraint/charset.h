/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of code points, as the classes of regular expressions and grammars build them.
 */
#ifndef ENGINE_CONSTRAINT_CHARSET_H
#define ENGINE_CONSTRAINT_CHARSET_H

#include "engine/constraint/con.h"

struct charset {
	struct rx_range *ranges;
	size_t n, cap;
};

void charset_add(struct con *c, struct charset *s, uint32_t from, uint32_t to);
void charset_add_all(struct con *c, struct charset *s, const struct charset *other);
/* All code points that are not in it. */
void charset_invert(struct con *c, struct charset *s);
/* The other case of its letters, too (simple case folding). */
void charset_fold(struct con *c, struct charset *s);
/* What \d, \w, \s mean (ECMA-262 22.2.2.9); upper-case letters: the complement. False: no such class. */
bool charset_add_class(struct con *c, struct charset *s, char name);
/* What \p{name} means: a general category, long or short, or Any, ASCII, Alphabetic, Lowercase, Uppercase,
 * White_Space. False: not known. */
bool charset_add_property(struct con *c, struct charset *s, const char *name, size_t n, bool inverted);
rx charset_rx(struct con *c, const struct charset *s);

#endif
