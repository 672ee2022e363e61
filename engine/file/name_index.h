/* SPDX-License-Identifier: Apache-2.0
 *
 * An index over a list of named items: their numbers, ordered by the bytes of their names. Found by binary search;
 * creation reports duplicates.
 */
#ifndef ENGINE_NAME_INDEX_H
#define ENGINE_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

/* The name of the i-th item of list. */
typedef struct proto_str name_index_at(const void *list, size_t i);

/* *out: [n], owned by the caller; *twice: an item with the name of another, or n. 0 or SL_ENOMEM. */
int name_index_make(name_index_at *at, const void *list, size_t n, uint32_t **out, size_t *twice);
/* The number of the item with that name; n: none. */
size_t name_index_find(const uint32_t *index, size_t n, name_index_at *at, const void *list, struct proto_str name);

#endif
