/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the open connections and requests of each address, over all threads. IPv6 addresses count by /64. The limits
 * are in client_limits.h. Any thread may call.
 */
#ifndef GATEWAY_ADDR_COUNT_H
#define GATEWAY_ADDR_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/net_addr.h"

enum addr_kind { ADDR_CONNECTIONS, ADDR_STREAMS, ADDR_N_KINDS };

struct addr_count; /* of one address; freed when both counts are 0 */

/* Adds one. Returns the new count, and *out for addr_give; 0: no memory, nothing is counted. */
int64_t addr_take(const struct net_addr *a, enum addr_kind kind, struct addr_count **out);
/* Subtracts one; NULL is fine. */
void addr_give(struct addr_count *c, enum addr_kind kind);
/* The number of addresses in the table. */
size_t addr_count_entries(void);

#endif
