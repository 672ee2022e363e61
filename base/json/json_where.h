/* SPDX-License-Identifier: Apache-2.0
 *
 * The path of a position in a JSON text, for error messages: parsers report only its offset.
 */
#ifndef BASE_JSON_WHERE_H
#define BASE_JSON_WHERE_H

#include <stddef.h>

/* Writes the path of the value in which text[0..n) ends, like "messages[0].weight", terminated; "" at the top level.
 * text: the prefix that a parser has accepted. Levels deeper than JSON_WHERE_DEPTH, and names that do not fit into
 * room (at least 1), are left out. */
enum { JSON_WHERE_DEPTH = 8 };
void json_where(const char *text, size_t n, char *out, size_t room);

#endif
