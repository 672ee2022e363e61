/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by quota.c (charging, settling) and quota_contend.c (waiting for reserved tokens, extending).
 */
#ifndef GATEWAY_QUOTA_PRIV_H
#define GATEWAY_QUOTA_PRIV_H

#include "gateway/exchange/quota.h"

#include "cache/limits.h"

#define MINUTE_US (INT64_C(60) * 1000000)
#define DAY_US (INT64_C(86400) * 1000000)
#define HOLD_US (3 * MINUTE_US)

enum { QUOTA_CONTENTION_MS = 100 };

enum quota_state {
	QUOTA_TAKING,
	QUOTA_CONTENDED,
	QUOTA_ABANDONED,
	QUOTA_HELD,
	QUOTA_SETTLING,
	QUOTA_UNSETTLED,
	QUOTA_PEEKING,
	QUOTA_GONE
};

struct quota {
	struct cache_op op;
	struct list node; /* in quotas.all */
	struct deadline due;
	struct quotas *home;
	enum quota_state state;
	uint8_t id[CACHE_ID_LEN];
	enum quota_limit which[QUOTA_N_LIMITS]; /* of each item */
	size_t n;
	int64_t requests, tokens; /* as requested */
	int64_t want, least;      /* of the day */
	int64_t used;
	uint64_t tenant;
	int64_t charged;       /* of used, already */
	int64_t charging;      /* of used, being charged */
	bool extending;        /* HELD: done waits for more */
	uint64_t until_ns;     /* how long it waits for reserved tokens */
	struct list contender; /* in quotas.contenders */
	bool local;            /* taken from this gateway's share */
	unsigned retries;
	quota_done *done;
	void *ctx;
	struct cache_limit items[]; /* [n] */
};

static inline struct quota *quota_of(struct cache_op *op) { return list_entry(op, struct quota, op); }

/* There is at least one item. */
static inline const struct cache_limit *budget_of(const struct quota *q)
{
	const struct cache_limit *last = &q->items[q->n - 1];
	return last->type == CACHE_BUDGET ? last : NULL;
}

static inline int64_t within(int64_t v, int64_t least, int64_t most) { return v < least ? least : v > most ? most : v; }

/* ---- quota.c ---- */

/* Asks the store, in state TAKING. */
void quota_ask_store(struct quota *q);
void quota_set_state(struct quota *q, enum quota_state to);

/* ---- quota_contend.c ---- */

/* Queues q for what others reserve. */
void quota_contend(struct quota *q);
/* Takes q out of the queue; wakes the next. */
void quota_stop_contending(struct quota *q);
/* q's wait is due: asks again, or waits on. */
void quota_contention_due(struct quota *q);
/* Tokens of the tenant may have become free. */
void quota_wake_contender(struct quotas *qs, uint64_t tenant);
/* The tick while quotas wait. */
void quota_on_contention_tick(int fd, short what, void *quotas);

#endif
