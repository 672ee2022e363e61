/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of code points, for classes in regular expressions and grammars.
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
/* Replaces the set by its complement. */
void charset_invert(struct con *c, struct charset *s);
/* Adds the other case of its letters (simple case folding). */
void charset_fold(struct con *c, struct charset *s);
/* \d, \w, \s (ECMA-262 22.2.2.9); upper-case letters: the complement. False: no such class. */
bool charset_add_class(struct con *c, struct charset *s, char name);
/* \p{name}: a general category, long or short, or Any, ASCII, Alphabetic, Lowercase, Uppercase, White_Space. False:
 * unknown. */
bool charset_add_property(struct con *c, struct charset *s, const char *name, size_t n, bool inverted);
rx charset_rx(struct con *c, const struct charset *s);

#endif
