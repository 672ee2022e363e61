/* SPDX-License-Identifier: Apache-2.0
 *
 * Contention for a day's tokens that other requests only reserve. Requests that have not begun wait for them, and so do
 * running answers that extend their grant. Of the waiters of one key on one thread only the first asks the store: when
 * another of the key's quotas ends, and ten times a second.
 */
#include "gateway/exchange/quota_priv.h"

#include <event2/event.h>

#include "base/clock.h"
#include "base/err.h"

/* ---- waiting ---- */

static void charge_part(struct quota *q);

static struct quota *first_contender(struct quotas *qs, uint64_t tenant)
{
	list_each(it, &qs->contenders) {
		struct quota *q = list_entry(it, struct quota, contender);
		if (q->tenant == tenant)
			return q;
	}
	return NULL;
}

static bool contends(const struct quota *q)
{
	return q->state == QUOTA_CONTENDED || (q->state == QUOTA_HELD && q->extending && !cache_op_busy(&q->op));
}

static void contend_again(struct quota *q)
{
	deadline_cancel(&q->due);
	if (q->state == QUOTA_HELD) {
		charge_part(q);
		return;
	}
	quota_set_state(q, QUOTA_TAKING);
	quota_ask_store(q);
}

void quota_wake_contender(struct quotas *qs, uint64_t tenant)
{
	struct quota *q = first_contender(qs, tenant);
	if (q != NULL && contends(q))
		contend_again(q);
}

void quota_stop_contending(struct quota *q)
{
	if (list_empty(&q->contender))
		return;
	list_remove(&q->contender);
	quota_wake_contender(q->home, q->tenant);
}

static void start_contention_tick(struct quotas *qs)
{
	static const struct timeval each = {.tv_usec = QUOTA_CONTENTION_MS * 1000};
	if (!event_pending(qs->contention_tick, EV_TIMEOUT, NULL))
		(void)event_add(qs->contention_tick, &each); /* failed: the slower tick does it */
}

/* Running answers come before requests that have not begun. */
void quota_contend(struct quota *q)
{
	struct quotas *qs = q->home;
	if (list_empty(&q->contender) && q->state == QUOTA_HELD)
		list_push_front(&qs->contenders, &q->contender);
	else if (list_empty(&q->contender))
		list_push_back(&qs->contenders, &q->contender);
	deadline_arm(&qs->contention, &q->due, clock_now_ns());
	start_contention_tick(qs);
}

void quota_contention_due(struct quota *q)
{
	if (first_contender(q->home, q->tenant) == q || q->home->run_ns >= q->until_ns)
		contend_again(q);
	else
		deadline_arm(&q->home->contention, &q->due, q->home->run_ns);
}

void quota_on_contention_tick(evutil_socket_t fd, short what, void *arg)
{
	struct quotas *qs = arg;
	(void)fd, (void)what;
	qs->run_ns = clock_now_ns();
	deadline_list_run(&qs->contention, qs->run_ns);
	if (!list_empty(&qs->contenders))
		start_contention_tick(qs);
}

/* ---- extending ---- */

/* Renewals resume. */
static void end_extension(struct quota *q, const struct quota_result *r)
{
	q->extending = false;
	quota_stop_contending(q);
	deadline_arm(&q->home->renewals, &q->due, clock_now_ns());
	q->done(q->ctx, q, r);
}

static void on_more(struct cache_op *op, const struct cache_result *r)
{
	struct quota *q = quota_of(op);
	const struct quota_result none = {.admitted = true};
	struct cache_admission a;
	cache_admission_read(r, &a);
	bool fits = a.code >= 0 && a.degraded == q->local && a.n == 1;
	if (fits && !a.admitted && !q->local && a.each[0].retry_after_us == 0 && clock_now_ns() < q->until_ns)
		quota_contend(q);
	else if (fits && a.admitted)
		end_extension(q, &(struct quota_result){.admitted = true, .granted = a.granted});
	else
		end_extension(q, &none);
}

static void ask_for_more(struct quota *q)
{
	cache_admit(q->home->client, &q->op, q->id, budget_of(q), 1, q->want, 1, HOLD_US, on_more);
}

/* Used tokens are charged first, so that they no longer count as reserved: otherwise two answers would wait for each
 * other's reserve, which is used up. */
static void on_charged_part(struct cache_op *op, const struct cache_result *r)
{
	struct quota *q = quota_of(op);
	/* Without a reply it may have been charged; never charge it twice. */
	q->charged += q->charging;
	q->charging = 0;
	if (r->code < 0 || r->degraded != q->local)
		end_extension(q, &(struct quota_result){.admitted = true});
	else
		ask_for_more(q);
}

static void charge_part(struct quota *q)
{
	q->charging = within(q->used - q->charged, 0, CACHE_UNITS_MAX);
	cache_settle(q->home->client, &q->op, q->id, budget_of(q), 1, q->charging, HOLD_US, q->local, on_charged_part);
}

void quota_extend(struct quota *q, int64_t used, int64_t want, uint64_t wait_ms, quota_done *done, void *ctx)
{
	BUG_IF(q->state != QUOTA_HELD || q->extending || budget_of(q) == NULL, "more is asked for in state %d",
	       (int)q->state);
	cache_cancel(&q->op); /* a renewal: this is one as well */
	deadline_cancel(&q->due);
	q->extending = true;
	q->want = within(want, 1, CACHE_UNITS_MAX);
	q->until_ns = clock_now_ns() + wait_ms * NS_PER_MS;
	q->used = within(used, 0, CACHE_UNITS_MAX);
	q->done = done;
	q->ctx = ctx;
	charge_part(q);
}

void quota_used(struct quota *q, int64_t used)
{
	BUG_IF(q->state != QUOTA_HELD, "tokens are used in state %d", (int)q->state);
	q->used = within(used, 0, CACHE_UNITS_MAX);
	if (contends(q))
		contend_again(q);
}
