/* SPDX-License-Identifier: Apache-2.0
 *
 * An index over a list of named things: their numbers in the order of their names' bytes. Made once, it finds a
 * name by halving and shows names that stand twice.
 */
#ifndef ENGINE_NAME_INDEX_H
#define ENGINE_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

/* The name of the i-th thing of list. */
typedef struct proto_str name_index_at(const void *list, size_t i);

/* *out: [n], the caller's to free; *twice: a thing that has another one's name, or n. 0 or SL_ENOMEM. */
int name_index_make(name_index_at *at, const void *list, size_t n, uint32_t **out, size_t *twice);
/* The number of the thing with that name; n: there is none. */
size_t name_index_find(const uint32_t *index, size_t n, name_index_at *at, const void *list, struct proto_str name);

#endif
