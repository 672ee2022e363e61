/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures nesting and size of a JSON text before it is parsed: parsers recurse and build trees, and a hostile document
 * should cost nothing.
 */
#ifndef BASE_JSON_DEPTH_H
#define BASE_JSON_DEPTH_H

#include <stdbool.h>
#include <stddef.h>

/* Does the text nest objects and arrays deeper than max? It need not be valid JSON. */
bool json_deeper_than(const char *text, size_t n, size_t max);

/* False if the text nests deeper. In the same pass it estimates the cost of building a tree, in units of one array
 * element: an object or array 8, a key 4, an element 1. A body of a megabyte can hold half a million objects, and
 * building them blocks the thread. The text need not be valid JSON. */
bool json_measure(const char *text, size_t n, size_t max_depth, size_t *weight);

#endif
