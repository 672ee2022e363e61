/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as pairs of hexadecimal digits, lower case.
 */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* out: 2·n digits and a zero byte. */
void hex_put(const void *bytes, size_t n, char *out);
/* text must be exactly 2·n digits, of either case; otherwise false, with `out` undefined. text may be NULL. */
bool hex_get(const char *text, void *out, size_t n);

#endif
