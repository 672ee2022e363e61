/* SPDX-License-Identifier: Apache-2.0
 *
 * How many connections and requests each address has open, over all threads. IPv6 by /64. Counting
 * only: limits are the caller's (gateway/transport/client_limits.h).
 */
#ifndef GATEWAY_ADDR_COUNT_H
#define GATEWAY_ADDR_COUNT_H

#include <stddef.h>
#include <stdint.h>

#include "gateway/loop/net_addr.h"

enum addr_kind { ADDR_CONNECTIONS, ADDR_STREAMS, ADDR_N_KINDS };

struct addr_count; /* of one address; lives while it counts anything */

/* One more. How many there are with it, and *out for addr_give; 0: no memory, nothing is counted. Any
 * thread. */
int64_t addr_take(const struct net_addr *a, enum addr_kind kind, struct addr_count **out);
/* One less. Any thread; NULL is fine. */
void addr_give(struct addr_count *c, enum addr_kind kind);
/* Addresses that count something: what the table holds. */
size_t addr_count_entries(void);

#endif
