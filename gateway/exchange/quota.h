/* SPDX-License-Identifier: Apache-2.0
 *
 * What a key may use: requests per minute (of the key, and of each subject of its browser tokens), tokens per minute,
 * tokens per day. A request is charged an estimate before it is submitted (quota_take) and settled at its end with what
 * it used (quota_settle), complete or cut: answer/answer_budget.c decides how much that is. Gateways that share one
 * Redis share the limits exactly. The rules of each limit are in quota.c.
 *
 *   CONTENDED (others hold what it needs: TAKING again when one of them ends, or after 100 ms)
 *     ▲│
 *     │▼
 *   TAKING ──admitted──► HELD ──settle──► SETTLING ──► gone
 *     │ │                   ▲                 ▲│
 *     │ └─settle: ABANDONED─┘                 │▼
 *     └─refused: done, then gone           UNSETTLED (Redis failed: again every 2 s)
 *
 * quota_set_state owns the transitions; quota_peek's is PEEKING until it is gone. A reservation is renewed each minute
 * and expires 3 minutes after its gateway died. Thread: that of its cache client.
 */
#ifndef GATEWAY_QUOTA_H
#define GATEWAY_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/auth/auth.h"
#include "gateway/loop/deadline.h"
#include "gateway/transport/http.h"

struct cache_client;
struct event;
struct event_base;
struct exchange;
struct quota;

/* All quotas of a thread. */
struct quotas {
	struct cache_client *client;
	struct event *tick, *contention_tick;
	struct list all; /* struct quota */
	struct deadline_list renewals, retries;
	struct deadline_list contention;
	struct list contenders;        /* quotas that wait for reserved tokens, in order */
	size_t n_waiting, n_unsettled; /* n_waiting: for the store */
	uint64_t run_ns;               /* of the run in progress */
};

/* client NULL: nothing is limited. 0, SL_ENOMEM. */
int quotas_init(struct quotas *qs, struct event_base *base, struct cache_client *client);
/* Drops pending operations: reservations expire. No quota may be HELD: BUG. */
void quotas_dispose(struct quotas *qs);
/* Are updates of the store pending? A drain waits for them. */
bool quotas_busy(const struct quotas *qs);
/* Renews and repeats what is due; a timer calls it once a second. */
void quotas_run(struct quotas *qs, uint64_t now_ns);

struct quota_ask {
	const struct auth_key *key;
	int64_t
	    requests;   /* that this one counts as: its prompts times its choices; 0: it belongs to a counted request */
	int64_t tokens; /* the most of prompt and answer */
	int64_t least;  /* the fewest that are useful: the prompt's and one more */
	uint64_t wait_ms; /* for tokens of the day that others reserve */
};

enum quota_limit { QUOTA_REQUESTS, QUOTA_SUBJECT, QUOTA_TOKENS, QUOTA_DAY, QUOTA_N_LIMITS };

struct quota_result {
	int code; /* negative: the store did not respond; not admitted */
	bool admitted;
	bool degraded;   /* Redis failed; decided by this gateway's share */
	bool contended;  /* not admitted: others reserved the tokens during the whole wait */
	int64_t granted; /* tokens, of the day; INT64_MAX: no such limit */
	struct quota_left {
		int64_t limit; /* 0: there is none */
		int64_t remaining;
		int64_t reset_us; /* until it is full again */
	} each[QUOTA_N_LIMITS];
	/* Not admitted: the limit with the longest wait, and that wait; -1: for ever. */
	enum quota_limit refused_by;
	int64_t retry_after_us;
};

/* Called from the loop, exactly once, unless quota_settle comes first. r is borrowed. If not admitted, q is freed when
 * it returns. */
typedef void quota_done(void *ctx, struct quota *q, const struct quota_result *r);

/* 1: nothing is limited, *out is NULL and done is not called: continue. 0: done will be called. SL_ENOMEM. */
int quota_take(struct quotas *qs, const struct quota_ask *ask, quota_done *done, void *ctx, struct quota **out);
/* Reports how much is left, without charging. q is freed when done returns. */
int quota_peek(struct quotas *qs, const struct auth_key *key, quota_done *done, void *ctx, struct quota **out);
/* Requests more tokens of the day for a held quota that was granted fewer than it wants. used: as for quota_settle, so
 * far. done gets granted: from 1 to want, or 0 if the day has none left or wait_ms is over. It is not called if q is
 * settled first. One extension at a time. */
void quota_extend(struct quota *q, int64_t used, int64_t want, uint64_t wait_ms, quota_done *done, void *ctx);
/* The tokens used so far: a waiting extension may depend on them. */
void quota_used(struct quota *q, int64_t used);
/* Once for each admitted quota, or while its decision is pending (then nothing was used); takes q, which may be NULL.
 * used: tokens of prompt and answer. */
void quota_settle(struct quota *q, int64_t used);

/* What another process needs to take over the reservation of a dead holder. */
struct quota_ticket {
	uint8_t id[16];
	int64_t requests, tokens; /* as requested */
	bool local;               /* from the share of that process, which is lost */
};
/* Drops an admitted quota without settling it, for another gateway to adopt. Takes q, which may be NULL. */
void quota_leave(struct quota *q);
void quota_ticket(const struct quota *q, struct quota_ticket *out);
/* Holds the reservation here from now on. done gets r->admitted false if it has expired or the store did not respond;
 * then nothing is charged, q is freed when done returns, and the caller may call quota_take. Otherwise as quota_take.
 */
int quota_adopt(struct quotas *qs, const struct auth_key *key, const struct quota_ticket *ticket, quota_done *done,
		void *ctx, struct quota **out);

/* ---- quota_text.c ---- */

enum { QUOTA_MAX_FIELDS = 9, QUOTA_TEXT_BYTES = 32 };
struct quota_text {
	char at[QUOTA_MAX_FIELDS][QUOTA_TEXT_BYTES];
};

/* The header fields of r: x-ratelimit-{limit,remaining,reset}-{requests,tokens} and, after a refusal, retry-after,
 * retry-after-ms and x-should-retry. Of the two limits on tokens it reports the scarcer one, or the one that refuses.
 * Returns their number; values point into text. */
size_t quota_fields(const struct quota_result *r, struct quota_text *text, struct http_field out[QUOTA_MAX_FIELDS]);
/* A time as Go writes durations: "0s", "12ms", "1.5s", "6m0s", "1h0m0s"; rounded up to milliseconds. */
void quota_duration(int64_t us, char *out, size_t size);
/* Counts a request refused by its key's concurrency, which is checked elsewhere. */
void quota_count_concurrency(void);
/* Responds with 429, or 503 if the store did not respond. */
void quota_refuse(struct exchange *x, const struct quota_result *r);

#endif
