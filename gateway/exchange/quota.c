/* SPDX-License-Identifier: Apache-2.0
 *
 * Charging and settling. cache/limits.h defines the limits; quota_contend.c waits for reserved tokens.
 *
 *   requests per minute  GCRA: a minute's requests at once, then evenly. A request counts, whatever becomes of it. A
 *                        subject's limit is within its key's
 *   tokens per minute    GCRA: the estimate, at most the whole limit, is charged. Unused tokens come back; tokens used
 *                        beyond it are a debt that later requests wait for
 *   tokens per day       a budget of the UTC day: the estimate is reserved, or what is left of the day if that is at
 *                        least `least`. An answer that uses no more than `granted` never passes the limit. Tokens that
 *                        other answers have only reserved may come back at any moment: requests wait for them
 *                        (wait_ms), first come first served, and an answer that got less than its estimate asks for
 *                        more as it runs (quota_extend). So a budget is used to its end
 *
 * If Redis does not answer, this gateway's share decides; Redis may still have reserved the tokens, so they are
 * released there once it answers.
 *
 * A quota abandoned while the store's reply is pending is not cancelled there: it would be unknown whether it was
 * charged, and refunding an uncharged one would be a gift. It waits for the reply and settles with nothing used.
 *
 * Settling a budget may be repeated (an id that holds nothing is charged nothing); a refund to a rate may not. So only
 * the first try refunds the rate, and what a failing Redis misses of it comes back by itself within the minute.
 */
#include "gateway/exchange/quota_priv.h"

#include <event2/event.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/metrics.h"

/* After MOST_RETRIES, or beyond MOST_UNSETTLED, a reservation expires by itself. */
enum { RENEW_MS = 60000, RETRY_MS = 2000, CONTENDED_RETRY_US = 1000000, MOST_RETRIES = 80, MOST_UNSETTLED = 4096 };

#define REFUSED(label)                                                                 \
	METRIC_OF(METRIC_COUNTER, "sluice_quota_refused_total", "limit=\"" label "\"", \
		  "Requests refused by a limit of their key; unknown: the store gave no answer")
static struct metric refused[] = {
    [QUOTA_REQUESTS] = REFUSED("requests"), [QUOTA_SUBJECT] = REFUSED("subject"),  [QUOTA_TOKENS] = REFUSED("tokens"),
    [QUOTA_DAY] = REFUSED("day"),           [QUOTA_N_LIMITS] = REFUSED("unknown"), REFUSED("concurrency")};
METRICS(refused);
static struct metric *const refused_unknown = &refused[QUOTA_N_LIMITS], *const refused_concurrency =
									    &refused[QUOTA_N_LIMITS + 1];
GAUGE(unsettled, "sluice_quota_unsettled", "Charges whose end Redis has yet to record");

void quota_count_concurrency(void) { metric_add(refused_concurrency, 1); }

static bool waits(enum quota_state s)
{
	return s == QUOTA_TAKING || s == QUOTA_ABANDONED || s == QUOTA_SETTLING || s == QUOTA_PEEKING;
}

void quota_set_state(struct quota *q, enum quota_state to)
{
	static const uint8_t allowed[] = {
	    [QUOTA_TAKING] =
		1 << QUOTA_HELD | 1 << QUOTA_CONTENDED | 1 << QUOTA_ABANDONED | 1 << QUOTA_UNSETTLED | 1 << QUOTA_GONE,
	    [QUOTA_CONTENDED] = 1 << QUOTA_TAKING | 1 << QUOTA_GONE,
	    [QUOTA_ABANDONED] = 1 << QUOTA_HELD | 1 << QUOTA_UNSETTLED | 1 << QUOTA_GONE,
	    [QUOTA_HELD] = 1 << QUOTA_SETTLING | 1 << QUOTA_GONE,
	    [QUOTA_SETTLING] = 1 << QUOTA_UNSETTLED | 1 << QUOTA_GONE,
	    [QUOTA_UNSETTLED] = 1 << QUOTA_SETTLING | 1 << QUOTA_GONE,
	    [QUOTA_PEEKING] = 1 << QUOTA_GONE,
	    [QUOTA_GONE] = 0,
	};
	BUG_IF(!(allowed[q->state] & 1 << to), "a quota from state %d to %d", (int)q->state, (int)to);
	q->home->n_waiting -= waits(q->state);
	q->home->n_waiting += waits(to);
	int change = (to == QUOTA_UNSETTLED) - (q->state == QUOTA_UNSETTLED);
	q->home->n_unsettled += (size_t)change;
	metric_add(&unsettled, change);
	q->state = to;
}

static void quota_free(struct quota *q)
{
	quota_set_state(q, QUOTA_GONE);
	cache_cancel(&q->op);
	deadline_cancel(&q->due);
	list_remove(&q->contender);
	list_remove(&q->node);
	sl_free(q);
}

/* ---- settling ---- */

static void leave_unsettled(struct quota *q)
{
	if (budget_of(q) == NULL || ++q->retries > MOST_RETRIES || q->home->n_unsettled >= MOST_UNSETTLED) {
		quota_free(q);
		return;
	}
	quota_set_state(q, QUOTA_UNSETTLED);
	deadline_arm(&q->home->retries, &q->due, clock_now_ns());
}

/* Redis did not respond in time and may hold the reservation. */
static void release_at_redis(struct quota *q)
{
	q->local = false;
	q->used = 0;
	leave_unsettled(q);
}

static void on_settled(struct cache_op *op, const struct cache_result *r)
{
	struct quota *q = quota_of(op);
	struct quotas *qs = q->home;
	uint64_t tenant = q->tenant;
	if (q->local)
		release_at_redis(q);
	else if (r->code < 0 || r->degraded)
		leave_unsettled(q);
	else
		quota_free(q);
	quota_wake_contender(qs, tenant);
}

static void settle(struct quota *q)
{
	struct cache_limit items[QUOTA_N_LIMITS];
	size_t n = 0;
	for (size_t i = 0; i < q->n; i++) {
		struct cache_limit *to = &items[n];
		*to = q->items[i];
		if (q->which[i] == QUOTA_TOKENS) {
			to->cost = within(to->cost - q->used, -CACHE_RATE_MAX, CACHE_RATE_MAX);
			n += q->retries == 0 && to->cost != 0;
		} else if (q->which[i] == QUOTA_DAY) {
			n++;
		}
	}
	if (n == 0) {
		quota_free(q);
		return;
	}
	quota_set_state(q, QUOTA_SETTLING);
	int64_t rest = q->used > q->charged ? q->used - q->charged : 0;
	cache_settle(q->home->client, &q->op, q->id, items, n, rest, 0, q->local, on_settled);
}

void quota_settle(struct quota *q, int64_t used)
{
	if (q == NULL)
		return;
	q->done = NULL;
	quota_stop_contending(q);
	if (q->state == QUOTA_PEEKING || q->state == QUOTA_CONTENDED) {
		quota_free(q);
		return;
	}
	if (q->state == QUOTA_TAKING) {
		quota_set_state(q, QUOTA_ABANDONED);
		return;
	}
	BUG_IF(q->state != QUOTA_HELD, "a quota is settled in state %d", (int)q->state);
	q->used = within(used, 0, CACHE_UNITS_MAX);
	deadline_cancel(&q->due);
	cache_cancel(&q->op); /* a renewal, or an extension */
	q->extending = false;
	q->charged += q->charging; /* sent before, so it takes effect first */
	q->charging = 0;
	settle(q);
}

/* ---- holding ---- */

static void on_renewed(struct cache_op *op, const struct cache_result *r)
{
	(void)op, (void)r; /* the reservation outlives two failed renewals */
}

static void on_due(struct deadline *d)
{
	struct quota *q = list_entry(d, struct quota, due);
	if (q->state == QUOTA_UNSETTLED) {
		settle(q);
		return;
	}
	if (q->state == QUOTA_CONTENDED || q->extending) {
		quota_contention_due(q);
		return;
	}
	BUG_IF(q->state != QUOTA_HELD, "a quota of state %d is due", (int)q->state);
	deadline_arm(&q->home->renewals, &q->due, q->home->run_ns);
	if (!cache_op_busy(&q->op))
		cache_settle(q->home->client, &q->op, q->id, budget_of(q), 1, 0, HOLD_US, q->local, on_renewed);
}

/* ---- taking ---- */

static void hold(struct quota *q)
{
	quota_set_state(q, QUOTA_HELD);
	if (budget_of(q) != NULL)
		deadline_arm(&q->home->renewals, &q->due, clock_now_ns());
}

/* An abandoned quota is settled at once. */
static void admit(struct quota *q, const struct quota_result *r)
{
	bool abandoned = q->state == QUOTA_ABANDONED;
	hold(q);
	if (abandoned)
		quota_settle(q, 0);
	else
		q->done(q->ctx, q, r);
}

/* If several limits refuse, the one with the longest wait is reported. */
static void read_answer(const struct quota *q, const struct cache_admission *a, struct quota_result *out)
{
	bool refused_once = false;
	*out = (struct quota_result){.code = a->code,
				     .degraded = a->degraded,
				     .admitted = a->code >= 0 && a->admitted,
				     .granted = budget_of(q) != NULL ? a->granted : INT64_MAX};
	for (size_t i = 0; a->code >= 0 && i < a->n && i < q->n; i++) {
		const struct cache_limit_result *r = &a->each[i];
		const struct cache_limit *l = &q->items[i];
		out->each[q->which[i]] = (struct quota_left){l->limit, r->remaining, r->reset_us};
		if (r->ok)
			continue;
		/* More than a day's budget: waiting does not help. */
		int64_t wait = l->type == CACHE_BUDGET && q->least > l->limit ? -1 : r->retry_after_us;
		bool longer = wait < 0 || (out->retry_after_us >= 0 && wait > out->retry_after_us);
		if (longer || !refused_once) {
			out->refused_by = q->which[i];
			out->retry_after_us = wait;
		}
		refused_once = true;
	}
	if (!out->admitted && refused_once && out->refused_by == QUOTA_DAY && out->retry_after_us == 0) {
		out->contended = true;
		out->retry_after_us = CONTENDED_RETRY_US;
	}
}

static void on_taken(struct cache_op *op, const struct cache_result *r)
{
	struct quota *q = quota_of(op);
	struct cache_admission a;
	struct quota_result result;
	cache_admission_read(r, &a);
	read_answer(q, &a, &result);
	bool abandoned = q->state == QUOTA_ABANDONED;
	q->local = a.degraded;
	if (result.contended && !abandoned && !q->local && clock_now_ns() < q->until_ns) {
		quota_set_state(q, QUOTA_CONTENDED);
		quota_contend(q);
		return;
	}
	quota_stop_contending(q);
	if (result.admitted) {
		admit(q, &result);
		return;
	}
	metric_add(result.code < 0 ? refused_unknown : &refused[result.refused_by], 1);
	if (!abandoned)
		q->done(q->ctx, q, &result);
	if (q->local)
		release_at_redis(q);
	else
		quota_free(q);
}

void quota_ask_store(struct quota *q)
{
	cache_admit(q->home->client, &q->op, q->id, q->items, q->n, q->want, q->least, HOLD_US, on_taken);
}

/* ---- the limits of a key ---- */

static void add_limit(struct quota *q, enum quota_limit which, const struct cache_limit *l, const char *part,
		      const struct auth_key *key)
{
	char tenant[24];
	struct cache_limit *to = &q->items[q->n];
	snprintf(tenant, sizeof tenant, "k%016llx", (unsigned long long)key->tenant);
	*to = *l;
	cache_key_make(&to->key, CACHE_LIMIT, tenant, part, strlen(part));
	q->which[q->n++] = which;
}

static void add_rate(struct quota *q, enum quota_limit which, int64_t limit, int64_t cost, const char *part,
		     const struct auth_key *key)
{
	const struct cache_limit l = {
	    .type = CACHE_RATE, .limit = limit, .burst = limit, .period_us = MINUTE_US, .cost = cost};
	add_limit(q, which, &l, part, key);
}

static bool has_subject_limit(const struct auth_key *key)
{
	return key->tier->subject_requests_per_minute > 0 && key->subject != NULL && key->subject[0] != '\0';
}

static void add_limits(struct quota *q, const struct quota_ask *ask)
{
	const struct gw_tier_config *t = ask->key->tier;
	int64_t requests = within(ask->requests, 0, CACHE_RATE_MAX), tokens = t->tokens_per_minute,
		day = t->tokens_per_day;
	if (t->requests_per_minute > 0)
		add_rate(q, QUOTA_REQUESTS, t->requests_per_minute, requests, "requests a minute", ask->key);
	if (has_subject_limit(ask->key)) {
		char part[256];
		snprintf(part, sizeof part, "requests a minute of %s", ask->key->subject);
		add_rate(q, QUOTA_SUBJECT, t->subject_requests_per_minute, requests, part, ask->key);
	}
	if (tokens > 0) /* a full minute serves any request */
		add_rate(q, QUOTA_TOKENS, tokens, within(ask->tokens, 1, tokens), "tokens a minute", ask->key);
	if (day > 0) /* the last one: budget_of */
		add_limit(q, QUOTA_DAY, &(struct cache_limit){.type = CACHE_BUDGET, .limit = day, .period_us = DAY_US},
			  "tokens a day", ask->key);
}

/* As many as add_limits adds. */
static size_t n_limits(const struct auth_key *key)
{
	const struct gw_tier_config *t = key->tier;
	return (t->requests_per_minute > 0) + (size_t)has_subject_limit(key) + (t->tokens_per_minute > 0) +
	       (t->tokens_per_day > 0);
}

/* 0, 1: nothing is limited, SL_ENOMEM. */
static int quota_create(struct quotas *qs, const struct quota_ask *ask, enum quota_state born, quota_done *done,
			void *ctx, struct quota **out)
{
	*out = NULL;
	if (qs->client == NULL || ask->key->tier == NULL || n_limits(ask->key) == 0)
		return 1;
	struct quota *q = sl_zalloc(sizeof *q + n_limits(ask->key) * sizeof *q->items);
	if (q == NULL)
		return SL_ENOMEM;
	BUG_IF(RAND_bytes(q->id, sizeof q->id) != 1, "no random bytes");
	q->home = qs;
	q->state = born;
	q->done = done;
	q->ctx = ctx;
	q->requests = ask->requests;
	q->tokens = ask->tokens;
	deadline_init(&q->due, on_due);
	list_init(&q->contender);
	q->tenant = ask->key->tenant;
	list_push_back(&qs->all, &q->node);
	add_limits(q, ask);
	qs->n_waiting += waits(born);
	*out = q;
	return 0;
}

int quota_take(struct quotas *qs, const struct quota_ask *asked, quota_done *done, void *ctx, struct quota **out)
{
	int rc = quota_create(qs, asked, QUOTA_TAKING, done, ctx, out);
	struct quota *q = *out;
	if (rc != 0)
		return rc;
	q->want = within(asked->tokens, 1, CACHE_UNITS_MAX);
	q->least = within(asked->least, 1, q->want);
	q->until_ns = clock_now_ns() + asked->wait_ms * NS_PER_MS;
	quota_ask_store(q);
	return 0;
}

/* ---- adopting the reservation of a dead gateway ---- */

void quota_ticket(const struct quota *q, struct quota_ticket *out)
{
	_Static_assert(sizeof out->id == CACHE_ID_LEN, "a quota's id");
	*out = (struct quota_ticket){.requests = q->requests, .tokens = q->tokens, .local = q->local};
	memcpy(out->id, q->id, sizeof out->id);
}

void quota_leave(struct quota *q)
{
	if (q != NULL && q->state != QUOTA_HELD)
		quota_settle(q, 0);
	else if (q != NULL)
		quota_free(q);
}

static void on_adopted(struct cache_op *op, const struct cache_result *r)
{
	struct quota *q = quota_of(op);
	struct cache_settlement s;
	cache_settlement_read(r, &s);
	struct quota_result result = {.code = s.code, .granted = INT64_MAX};
	result.admitted = s.code >= 0 && !s.degraded && s.n > 0 && s.each[0].known;
	if (result.admitted) {
		admit(q, &result);
		return;
	}
	if (q->state != QUOTA_ABANDONED)
		q->done(q->ctx, q, &result);
	quota_free(q);
}

int quota_adopt(struct quotas *qs, const struct auth_key *key, const struct quota_ticket *ticket, quota_done *done,
		void *ctx, struct quota **out)
{
	const struct quota_ask ask = {.key = key, .requests = ticket->requests, .tokens = ticket->tokens};
	int rc = quota_create(qs, &ask, QUOTA_TAKING, done, ctx, out);
	struct quota *q = *out;
	if (rc != 0)
		return rc;
	memcpy(q->id, ticket->id, sizeof q->id);
	if (budget_of(q) == NULL) { /* only rates: charged already, corrected at the end */
		hold(q);
		return 1;
	}
	cache_settle(qs->client, &q->op, q->id, budget_of(q), 1, 0, HOLD_US, false, on_adopted);
	return 0;
}

/* ---- peeking ---- */

static void on_seen(struct cache_op *op, const struct cache_result *r)
{
	struct quota *q = quota_of(op);
	struct cache_admission a;
	struct quota_result result;
	cache_admission_read(r, &a);
	read_answer(q, &a, &result);
	q->done(q->ctx, q, &result);
	quota_free(q);
}

int quota_peek(struct quotas *qs, const struct auth_key *key, quota_done *done, void *ctx, struct quota **out)
{
	const struct quota_ask ask = {.key = key};
	int rc = quota_create(qs, &ask, QUOTA_PEEKING, done, ctx, out);
	struct quota *q = *out;
	if (rc != 0)
		return rc;
	/* A cost of 0 only reads a rate, and 0 units for an id without a reservation only read a budget. */
	for (size_t i = 0; i < q->n; i++)
		q->items[i].cost = 0;
	cache_admit(qs->client, &q->op, q->id, q->items, q->n, 0, 0, HOLD_US, on_seen);
	return 0;
}

/* ---- all quotas of a thread ---- */

void quotas_run(struct quotas *qs, uint64_t now_ns)
{
	qs->run_ns = now_ns;
	deadline_list_run(&qs->renewals, now_ns);
	deadline_list_run(&qs->contention, now_ns);
	deadline_list_run(&qs->retries, now_ns);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	quotas_run(arg, clock_now_ns());
}

int quotas_init(struct quotas *qs, struct event_base *base, struct cache_client *client)
{
	static const struct timeval every = {.tv_sec = 1};
	*qs = (struct quotas){.client = client};
	list_init(&qs->all);
	list_init(&qs->contenders);
	deadline_list_init(&qs->contention, QUOTA_CONTENTION_MS);
	deadline_list_init(&qs->renewals, RENEW_MS);
	deadline_list_init(&qs->retries, RETRY_MS);
	if (client == NULL)
		return 0;
	qs->tick = event_new(base, -1, EV_PERSIST, on_tick, qs);
	qs->contention_tick = event_new(base, -1, 0, quota_on_contention_tick, qs);
	if (qs->tick == NULL || qs->contention_tick == NULL || event_add(qs->tick, &every) != 0) {
		quotas_dispose(qs);
		return SL_ENOMEM;
	}
	return 0;
}

void quotas_dispose(struct quotas *qs)
{
	while (!list_empty(&qs->all)) {
		struct quota *q = list_entry(qs->all.next, struct quota, node);
		BUG_IF(q->state == QUOTA_HELD || q->state == QUOTA_TAKING || q->state == QUOTA_CONTENDED,
		       "a quota is left in state %d", (int)q->state);
		quota_free(q);
	}
	BUG_IF(qs->n_waiting != 0, "%zu quotas wait after the last has gone", qs->n_waiting);
	if (qs->tick != NULL)
		event_free(qs->tick);
	if (qs->contention_tick != NULL)
		event_free(qs->contention_tick);
	qs->tick = qs->contention_tick = NULL;
}

bool quotas_busy(const struct quotas *qs) { return qs->n_waiting > 0; }
