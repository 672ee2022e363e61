/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a model on demand stays in memory without work: for its configured time after its last use, unless tenants
 * asked for another time. Each tenant's time counts from that tenant's last use, and the latest end of all applies, so
 * no tenant can end what another one uses. It decides only when an unused model goes by itself: whatever it says, a
 * model makes room for others (residency.h).
 *
 * Pure, no lock. The tenants whose times end last are known one by one; of all others only the latest end, at most the
 * configured time after the use. What those asked for is forgotten: after their next use the configured time applies.
 */
#ifndef ENGINE_KEEP_ALIVE_H
#define ENGINE_KEEP_ALIVE_H

#include <stdint.h>

enum { KEEP_ALIVE_TENANTS = 16 };

struct keep_alive {
	uint64_t configured_ns; /* UINT64_MAX: it never goes by itself */
	uint64_t others_end_ns; /* of tenants that are not in `of`; 0: none */
	struct keep_alive_of {
		uint64_t tenant, used_ns; /* used_ns 0: unused */
		uint64_t keep_ns;         /* UINT64_MAX: for ever */
	} of[KEEP_ALIVE_TENANTS];
};

/* Times are at least 1. */
void keep_alive_init(struct keep_alive *k, uint64_t configured_ns);
/* The tenant uses it now. */
void keep_alive_use(struct keep_alive *k, uint64_t tenant, uint64_t now_ns);
/* From now on, keep_ns after the tenant's last use, which is now. */
void keep_alive_ask(struct keep_alive *k, uint64_t tenant, uint64_t keep_ns, uint64_t now_ns);
/* It has left memory: what was asked for is over. */
void keep_alive_clear(struct keep_alive *k);
/* When an unused model goes; UINT64_MAX: never. */
uint64_t keep_alive_end(const struct keep_alive *k);

#endif
