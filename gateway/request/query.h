/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of a URL's query: name=value pairs between `&` (WHATWG URL, 5.1
 * application/x-www-form-urlencoded parsing).
 */
#ifndef GATEWAY_QUERY_H
#define GATEWAY_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first value of that name, decoded and terminated. 1; 0: there is none; SL_EINVAL: it does not
 * fit into room, or holds a NUL. */
int query_get(const char *query, const char *name, char *out, size_t room);
/* The same as "true" or "false"; *out stays when there is none. 0 or SL_EINVAL. */
int query_get_bool(const char *query, const char *name, bool *out);
/* The same as a decimal number of at most 2^53. 1, 0 (none) or SL_EINVAL. */
int query_get_u64(const char *query, const char *name, uint64_t *out);

#endif
