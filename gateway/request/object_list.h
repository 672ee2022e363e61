/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of objects with "id" and "created_at", as a store keeps them: one in each line.
 */
#ifndef GATEWAY_OBJECT_LIST_H
#define GATEWAY_OBJECT_LIST_H

#include <jansson.h>
#include <stddef.h>

/* A line without its end. *out: its object, NULL if it does not belong to the list. 0 or SL_ENOMEM. */
typedef int object_of_line(void *ctx, const char *line, size_t n, json_t **out);

/* All of them, the oldest first, then by id. NULL: no memory. */
json_t *object_list(const char *lines, size_t n, object_of_line *of, void *ctx);

#endif
