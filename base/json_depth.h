/* SPDX-License-Identifier: Apache-2.0
 *
 * How deep a JSON text nests, found before it is parsed: parsers recurse, and a deep document should
 * cost nothing.
 */
#ifndef BASE_JSON_DEPTH_H
#define BASE_JSON_DEPTH_H

#include <stdbool.h>
#include <stddef.h>

/* Does the text nest objects and arrays deeper than max? It need not be valid JSON. */
bool json_deeper_than(const char *text, size_t n, size_t max);

#endif
