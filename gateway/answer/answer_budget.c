/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer may use of its key's quota. All its prompts are counted before it is charged (answer_charge): for the
 * most tokens it can take, or for fewer when the key's day has no more left. Then it asks for more when it is about to
 * use the last (answer_extend), and ends with "length" when none come. What it used is settled once, at its end.
 */
#include "gateway/answer/answer_priv.h"

void answer_cap(struct answer *a)
{
	a->budget.capped = true;
	answer_leave_runs(a);
}

/* The most tokens that it takes and the fewest that are of use. Those of a coalesced request are charged to the one
 * that it joined. */
static struct quota_ask quota_ask_of(const struct answer *a)
{
	struct quota_ask ask = {.key = a->key, .requests = a->n_runs, .wait_ms = a->app->t->cfg->limits.quota_wait_ms};
	if (a->sharing.coalesced)
		return ask;
	for (int i = 0; i < a->n_runs; i++) {
		uint32_t n_prompt = a->runs[i].n_prompt;
		uint32_t room = a->n_ctx > n_prompt ? a->n_ctx - n_prompt : 1;
		ask.tokens += (int64_t)n_prompt + (int64_t)(a->max_tokens < room ? a->max_tokens : room) * a->n_made;
		ask.least += (int64_t)n_prompt + 1;
	}
	return ask;
}

static void refuse(struct answer *a, const struct quota_result *r)
{
	a->budget.quota = NULL;
	if (a->out.log != NULL) { /* another gateway has opened it */
		answer_refuse(a, &(struct api_error){429, "rate_limit_error", "rate_limit_exceeded", NULL, 0},
			      "The limits of this answer's key do not allow it to continue.");
		return;
	}
	a->end = ANSWER_FAILED;
	answer_finish_now(a);
	if (a->x != NULL)
		quota_refuse(a->x, r);
	else
		answer_release(a);
}

static void on_charged(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct answer *a = ctx;
	if (a->x != NULL && r->code == 0)
		exchange_set_quota(a->x, r);
	if (!r->admitted) {
		refuse(a, r);
		return;
	}
	a->budget.quota = q;
	struct quota_ask ask = quota_ask_of(a);
	/* No token of the prompts is sent. */
	if (r->granted < ask.tokens) {
		a->budget.left = r->granted - (ask.least - a->n_runs);
		/* A gateway that continues a logged one knows what was granted at first, not what came later. */
		a->budget.short_by = a->out.logged ? 0 : ask.tokens - r->granted;
	}
	answer_admit(a);
}

static void on_extended(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct answer *a = ctx;
	(void)q;
	a->budget.extending = false;
	a->budget.left += r->granted;
	a->budget.short_by = r->granted > 0 ? a->budget.short_by - r->granted : 0;
	if (a->budget.left == 0)
		answer_cap(a);
	answer_more(a);
}

static int64_t used_up_to_now(const struct answer *a)
{
	return (int64_t)answer_usage(a).n_prompt + (int64_t)a->budget.sent;
}

void answer_extend(struct answer *a)
{
	a->budget.extending = true;
	quota_extend(a->budget.quota, used_up_to_now(a), a->budget.short_by, a->app->t->cfg->limits.quota_wait_ms,
		     on_extended, a);
}

void answer_out_of_tokens(struct answer *a)
{
	if (a->budget.extending)
		quota_used(a->budget.quota, used_up_to_now(a));
	else
		answer_cap(a);
}

/* From here on the quota bounds its wait. */
void answer_charge(struct answer *a)
{
	struct quota_ask ask = quota_ask_of(a);
	gw_timer_stop(&a->app->t->timers, &a->timer);
	int rc = quota_take(&a->app->quotas, &ask, on_charged, a, &a->budget.quota);
	if (rc < 0)
		answer_refuse(a, &answer_no_memory, answer_no_memory_text);
	else if (rc > 0)
		answer_admit(a);
}

void answer_budget_settle(struct answer *a, int64_t used)
{
	quota_settle(a->budget.quota, used);
	a->budget.quota = NULL;
}
