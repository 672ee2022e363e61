/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact decimal numbers as JSON writes them, and the languages of JSON numbers that a comparison or a multiple selects.
 *
 * "At least 5", over every spelling of a number, is not a regular language, because exponents are unbounded. So these
 * languages are exact for plain numbers (without exponent) and contain no others. Bounds at zero are exact for all
 * numbers.
 */
#ifndef ENGINE_CONSTRAINT_DECIMAL_H
#define ENGINE_CONSTRAINT_DECIMAL_H

#include "engine/constraint/con.h"

enum { DECIMAL_MAX_DIGITS = 400 };

struct decimal {
	bool negative;     /* never of zero */
	const char *whole; /* digits without leading zeros; none for zero */
	const char *frac;  /* digits without trailing zeros */
	size_t n_whole, n_frac;
};

bool decimal_is_number(struct proto_str text); /* JSON's grammar */
/* False and a fault for more than DECIMAL_MAX_DIGITS digits. text must be a number. */
bool decimal_read(struct con *c, struct proto_str text, struct decimal *out);
int decimal_compare(const struct decimal *a, const struct decimal *b);
bool decimal_is_zero(const struct decimal *d);
bool decimal_is_whole(const struct decimal *d);

enum decimal_order { DECIMAL_LESS, DECIMAL_AT_MOST, DECIMAL_MORE, DECIMAL_AT_LEAST };
/* Numbers less than (…) d. */
rx decimal_ordered(struct con *c, const struct decimal *d, enum decimal_order order);
rx decimal_plain(struct con *c);                          /* numbers without exponent */
rx decimal_whole(struct con *c, bool with_zeros);         /* plain integers; with_zeros: 1.0 counts as one */
rx decimal_equal(struct con *c, const struct decimal *d); /* plain spellings of d */
/* Plain multiples of d > 0. RX_NONE and a fault if there are too many remainders. */
rx decimal_multiple(struct con *c, const struct decimal *d);
/* The numbers for which a bound at d is decided; among them, the complement of a language above is exact. */
rx decimal_decided(struct con *c, const struct decimal *d);

#endif
