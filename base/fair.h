/* SPDX-License-Identifier: Apache-2.0
 *
 * Fairness between tenants in a bounded queue: which item is served next, and which item a new one displaces when the
 * queue is full. Each item has a tenant, a priority (0 is the best) and a size in units of the owner's choice.
 *
 *   served next   the best priority; in it the tenant with the least service so far (start-time fair queueing: Goyal,
 *                 Vin, Cheng, 1996), first in, first out within a tenant. Every FAIR_AGING-th turn is the oldest
 *                 item's, whatever its priority, so no priority starves.
 *   displaced     the worst priority that is worse than the newcomer's; without one, the newcomer's own priority, where
 *                 a tenant holds more than the newcomer's would. Of these the tenant with most units; its newest item.
 *
 * A lone tenant may fill the queue. As others arrive, its share shrinks to an equal share of its priority, but never
 * below one item while the queue has room for one item per tenant. The owner keeps the bound, the lock and the items.
 * Nothing here runs a callback.
 */
#ifndef BASE_FAIR_H
#define BASE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

enum {
	FAIR_PRIORITIES = 16, /* larger values count as the last */
	FAIR_BUCKETS = 64,
	FAIR_AGING = 8,
};

struct fair_line;

/* Embedded in its owner. Zeroed: not queued. */
struct fair_item {
	struct list node;       /* in its line, newest last; or among the urgent ones */
	struct fair_line *line; /* NULL: not queued */
	uint32_t units;
	uint64_t start; /* virtual time */
	uint64_t order;
};

struct fair {
	struct fair_tier {
		struct list lines; /* struct fair_line: those with items */
		uint64_t units;
		uint64_t vtime; /* start of the last item served */
	} tiers[FAIR_PRIORITIES];
	struct fair_line *buckets[FAIR_BUCKETS];
	struct list urgent;
	uint64_t next_order, n_served;
	uint64_t n; /* items, urgent ones included */
};

void fair_init(struct fair *f);
/* BUG when an item is queued. */
void fair_dispose(struct fair *f);

/* Queues it, or returns SL_ENOMEM. units: at least 1. */
int fair_enter(struct fair *f, struct fair_item *it, uint64_t tenant, int64_t priority, uint32_t units);
/* Does nothing when it is not queued. */
void fair_leave(struct fair *f, struct fair_item *it);
static inline bool fair_queued(const struct fair_item *it) { return it->line != NULL; }

/* Units of this priority and of better ones. */
uint64_t fair_units(const struct fair *f, int64_t priority);

/* An item of a worse priority to displace; NULL: none. */
struct fair_item *fair_worse(const struct fair *f, int64_t priority);
/* An item of the same priority whose tenant holds more than this tenant would with `units` more; NULL: none. */
struct fair_item *fair_richer(const struct fair *f, uint64_t tenant, int64_t priority, uint32_t units);

/* A lower bound on the units that fair_richer could displace. */
uint64_t fair_richer_units(const struct fair *f, uint64_t tenant, int64_t priority, uint32_t units);

/* Takes the next item; NULL: there is none. */
struct fair_item *fair_take(struct fair *f);
/* Serves it before all others: a cancelled item costs nothing and should leave soon. Does nothing when not queued. */
void fair_hurry(struct fair *f, struct fair_item *it);

#endif
