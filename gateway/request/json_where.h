/* SPDX-License-Identifier: Apache-2.0
 *
 * Where in a JSON text a place is, by names: what a parser that failed there can't say.
 */
#ifndef GATEWAY_JSON_WHERE_H
#define GATEWAY_JSON_WHERE_H

#include <stddef.h>

/* The path of the value that bytes[0..n) ends in or with, like "messages[0].weight", terminated; "" at the top. bytes:
 * the beginning of a text that a parser has taken so far. What is deeper than JSON_WHERE_DEPTH, or does not fit, is
 * left out. */
enum { JSON_WHERE_DEPTH = 8 };
void json_where(const void *bytes, size_t n, char *out, size_t room);

#endif
