/* SPDX-License-Identifier: Apache-2.0
 *
 * How deep a JSON text nests and how much there is in it, found before it is parsed: parsers recurse
 * and build trees, and a hostile document should cost nothing.
 */
#ifndef BASE_JSON_DEPTH_H
#define BASE_JSON_DEPTH_H

#include <stdbool.h>
#include <stddef.h>

/* Does the text nest objects and arrays deeper than max? It need not be valid JSON. */
bool json_deeper_than(const char *text, size_t n, size_t max);

/* The same, false where it does, and in the same pass what a tree of the text costs to build, about in units of an
 * array's element: an object or array 8, a key 4, an element 1. A body of a megabyte can hold half a million objects,
 * and building them stops everything else for as long. The text need not be valid JSON. */
bool json_measure(const char *text, size_t n, size_t max_depth, size_t *weight);

#endif
