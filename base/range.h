/* SPDX-License-Identifier: Apache-2.0
 *
 * A range of values in an error, after "must be": the same words for requests, the configuration and the
 * command line.
 */
#ifndef BASE_RANGE_H
#define BASE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

/* "between 1 and 5", "at least 1", "at most 5", "above 0 and at most 2". A bound that is NULL is none;
 * above: the lower one is itself outside. Returns out, which is always terminated. */
const char *range_text(const char *lo, bool above, const char *hi, char *out, size_t room);
/* The same of numbers; an infinite bound is none. */
const char *range_of(double lo, bool above, double hi, char *out, size_t room);

#endif
