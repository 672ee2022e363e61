/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits charged in one atomic step, all or none: rates, leases and budgets.
 *
 *  rate    GCRA, the generic cell rate algorithm (ITU-T I.371, "virtual scheduling"): `limit` units
 *          each `period_us`, of which `burst` may come at once. Exact: the theoretical arrival time is
 *          kept as whole microseconds and a fraction with denominator `limit`.
 *  lease   at most `limit` at once. Held under the call's id until released or until ttl_us after it
 *          was last renewed: a killed gateway gives its leases back.
 *  budget  `limit` units in each window of `period_us` (aligned to the epoch; 0: one window for ever).
 *          Units are reserved under the call's id and settled when they are known; reservations end
 *          like leases. What is used and what is reserved together never exceed the limit.
 *
 * Clocks step. Each record stores its time; a time in the future means that the clock has gone back since. Then, in
 * both stores:
 *
 *  - A rate's arrival time moves back with the clock: the wait is as long as after the last charge and shrinks from the
 * first access on. No key waits longer than without the step.
 *  - A lease or budget has its own clock, which stops until the system clock catches up. Holds keep their remaining
 * time.
 *  - A budget's window that is earlier than the newest one charged counts as that one, until as much time
 *    has passed as was left of it. So a spent day stays spent when the clock goes two days back, and a clock
 *    that was a year ahead locks no tenant out for longer than a day.
 *
 * A step ahead counts as time passed: rates fill up, holds end, a new window begins. A budget's record outlives its
 * window by a week, so that a clock that returns within a week finds it. A budget is granted twice only where its clock
 * is ahead over midnight and the key is used on both sides of the step, and then once for each window of that clock,
 * however often it steps.
 *
 * The id is the caller's (16 random bytes a request). Admitting again under the same id renews what it holds, and
 * reserves `want` more: so a long generation extends its reservation as it goes.
 */
#ifndef CACHE_LIMITS_H
#define CACHE_LIMITS_H

#include "cache/cache.h"

enum cache_limit_type { CACHE_RATE = 1, CACHE_LEASE, CACHE_BUDGET };

enum {
	CACHE_ID_LEN = 16,
	CACHE_MAX_HOLDERS = 65536, /* ids in one lease or budget */
};
#define CACHE_RATE_MAX (INT64_C(1) << 26)  /* limit, burst and cost of a rate */
#define CACHE_UNITS_MAX (INT64_C(1) << 40) /* limit and cost of the others */
#define CACHE_PERIOD_MAX (INT64_C(366) * 86400 * 1000000)

struct cache_limit {
	enum cache_limit_type type;
	struct cache_key key; /* of kind CACHE_LIMIT; all of one tenant */
	int64_t limit;
	int64_t burst;     /* rate */
	int64_t period_us; /* rate, budget */
	/* rate: units (0 looks only); lease: how many of it. Settling a rate: refunded; negative: charged,
	 * whatever it allows: a debt that what follows waits for. */
	int64_t cost;
};

struct cache_limit_result {
	bool ok;
	int64_t remaining;      /* after the call */
	int64_t retry_after_us; /* not ok: how long until it can be; 0: what others hold in reserve would do;
				 * -1: unknown */
	int64_t reset_us;       /* until it is full again; 0: it is full, or unknown */
};

struct cache_admission {
	int code;      /* as of cache_result; the rest is meaningless when negative */
	bool degraded; /* by the local share; settle it with local set */
	bool admitted;
	int64_t granted; /* budgets: reserved by this call, least to want */
	size_t n;
	struct cache_limit_result each[CACHE_MAX_KEYS];
};

/* Charges all items or none. want units are reserved of every budget, or as many as the scarcest has
 * left when those are at least `least`. Ends with SL_EINVAL when a number is out of its range. In done,
 * cache_admission_read gives the answer. */
void cache_admit(struct cache_client *cl, struct cache_op *op, const uint8_t id[CACHE_ID_LEN],
		 const struct cache_limit *items, size_t n, int64_t want, int64_t least, int64_t ttl_us,
		 cache_done *done);
void cache_admission_read(const struct cache_result *r, struct cache_admission *out);

struct cache_settlement {
	int code;
	bool degraded;
	size_t n;
	struct {
		bool known;      /* the id held something here; rate: true */
		int64_t charged; /* budget */
		int64_t remaining;
	} each[CACHE_MAX_KEYS];
};

/* Charges `used` units to each budget: first those reserved under id, then, as far as there are any, free ones. keep_us
 * 0 then releases what is left and the leases; otherwise both are renewed for that long. An id that holds nothing is
 * charged nothing, so a settlement with unknown outcome may be repeated unless it keeps. local: the admission was
 * degraded. */
void cache_settle(struct cache_client *cl, struct cache_op *op, const uint8_t id[CACHE_ID_LEN],
		  const struct cache_limit *items, size_t n, int64_t used, int64_t keep_us, bool local,
		  cache_done *done);
void cache_settlement_read(const struct cache_result *r, struct cache_settlement *out);

/* For cache_create and tests. */
extern const struct cache_proc cache_proc_admit, cache_proc_settle;

#endif
