/* SPDX-License-Identifier: Apache-2.0
 *
 * What a key may use: requests per minute (of the key, and of each subject of its browser tokens), tokens per minute,
 * tokens per day. A request is charged an estimate before it is submitted (quota_take) and settled at its end with what
 * it used (quota_settle). Gateways that share one Redis share the limits exactly. The rules of each limit are in
 * quota.c.
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

/* Those of a thread. */
struct quotas {
	struct cache_client *client;
	struct event *tick, *contention_tick;
	struct list all; /* struct quota */
	struct deadline_list renewals, retries;
	struct deadline_list contention;
	struct list contenders;        /* those that wait for what others hold, in the order of asking */
	size_t n_waiting, n_unsettled; /* n_waiting: for the store */
	uint64_t run_ns;               /* of the run in progress */
};

/* client NULL: nothing is limited. 0, SL_ENOMEM. */
int quotas_init(struct quotas *qs, struct event_base *base, struct cache_client *client);
/* What is still under way is forgotten: what was reserved ends by itself. Nothing may be HELD: BUG. */
void quotas_dispose(struct quotas *qs);
/* The store is being updated: a drain waits for it. */
bool quotas_busy(const struct quotas *qs);
/* Renews and repeats what is due; by itself once a second. */
void quotas_run(struct quotas *qs, uint64_t now_ns);

struct quota_ask {
	const struct auth_key *key;
	int64_t requests; /* how many this one counts for: its prompts times its choices; 0: it is part of one */
	int64_t tokens;   /* of prompt and answer, the most there may be */
	int64_t least;    /* fewer make no sense: those of the prompt and one more */
	uint64_t wait_ms; /* for what others hold in reserve of the day */
};

enum quota_limit { QUOTA_REQUESTS, QUOTA_SUBJECT, QUOTA_TOKENS, QUOTA_DAY, QUOTA_N_LIMITS };

struct quota_result {
	int code; /* negative: the store gave no answer; not admitted */
	bool admitted;
	bool degraded;   /* Redis failed; by this gateway's share */
	bool contended;  /* not admitted: others held in reserve what it needs, for all the time it waited */
	int64_t granted; /* tokens, of the day; INT64_MAX: no such limit */
	struct quota_left {
		int64_t limit; /* 0: there is none */
		int64_t remaining;
		int64_t reset_us; /* until all of it is there again */
	} each[QUOTA_N_LIMITS];
	/* Not admitted: which one refuses (the one to wait for longest), and for how long; -1: for ever. */
	enum quota_limit refused_by;
	int64_t retry_after_us;
};

/* From the loop, exactly once, unless quota_settle comes first. r is lent. Not admitted: q goes when it
 * returns. */
typedef void quota_done(void *ctx, struct quota *q, const struct quota_result *r);

/* 1: nothing is limited, *out is NULL and done is not called: continue. 0: done will be called. SL_ENOMEM. */
int quota_take(struct quotas *qs, const struct quota_ask *ask, quota_done *done, void *ctx, struct quota **out);
/* The same, but nothing is charged: how much is left. done gets no answer that could be refused; q goes
 * when it returns. */
int quota_peek(struct quotas *qs, const struct auth_key *key, quota_done *done, void *ctx, struct quota **out);
/* More tokens of the day for one that is held and was granted fewer than it wants. used: as for
 * quota_settle, up to now. done gets granted, of `want` at least 1 or, where the day has none left (or
 * wait_ms is over), 0; it is not called when q is settled first. Not while another one is under way. */
void quota_extend(struct quota *q, int64_t used, int64_t want, uint64_t wait_ms, quota_done *done, void *ctx);
/* It has used so many by now: what it waits for may depend on that. */
void quota_used(struct quota *q, int64_t used);
/* Once for each admitted one, or while an answer is awaited (then nothing was used); takes q, which may
 * be NULL. used: tokens of prompt and answer. */
void quota_settle(struct quota *q, int64_t used);

/* What another process needs to take over a reservation whose holder has died. */
struct quota_ticket {
	uint8_t id[16];
	int64_t requests, tokens; /* as they were asked for */
	bool local;               /* of a share of that process, which went with it */
};
/* Forgets an admitted one without settling it, for another gateway to adopt. Takes q, which may be NULL. */
void quota_leave(struct quota *q);
void quota_ticket(const struct quota *q, struct quota_ticket *out);
/* Holds the reservation here from now on. done(…, r->admitted): false when it has expired, the store did not answer
 * or nothing of it could be kept; then nothing is charged, q goes when done returns, and the caller may quota_take
 * anew. As quota_take otherwise. */
int quota_adopt(struct quotas *qs, const struct auth_key *key, const struct quota_ticket *ticket, quota_done *done,
		void *ctx, struct quota **out);

/* ---- quota_text.c ---- */

enum { QUOTA_MAX_FIELDS = 9, QUOTA_TEXT_BYTES = 32 };
struct quota_text {
	char at[QUOTA_MAX_FIELDS][QUOTA_TEXT_BYTES];
};

/* The header fields of r, x-ratelimit-{limit,remaining,reset}-{requests,tokens} and, when it
 * refuses, retry-after, retry-after-ms and x-should-retry. Of the two limits on tokens the one that is
 * scarcer, or that refuses. Their number; values point into text. */
size_t quota_fields(const struct quota_result *r, struct quota_text *text, struct http_field out[QUOTA_MAX_FIELDS]);
/* A time as Go writes durations: "0s", "12ms", "1.5s", "6m0s", "1h0m0s"; rounded up to milliseconds. */
void quota_duration(int64_t us, char *out, size_t size);
/* A request was refused by its key's concurrency, of which nothing else is known here. */
void quota_count_concurrency(void);
/* Answers with 429, or 503 when the store gave no answer. */
void quota_refuse(struct exchange *x, const struct quota_result *r);

#endif
