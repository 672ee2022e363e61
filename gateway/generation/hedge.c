/* SPDX-License-Identifier: Apache-2.0
 *
 *   (timer) ──late──► NONE, where no engine is idle or the budget is spent
 *              └────► GOING ──hedge_win──► WON
 *                       ├──hedge_lose──► LOST, LEFT
 *                       └──hedge_fail──► FAILED
 *
 * set_end makes all transitions and counts them.
 */
#include "gateway/generation/hedge.h"

#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "gateway/generation/engine_link.h"
#include "gateway/loop/thread.h"

enum { FADE_AT = 512, PER_DOUBLING = 4 };
/* Saved up after a quiet time. */
static const double most_budget = 2;

struct hedge {
	struct gw_thread *t;
	struct hedge_of of;
	struct gw_timer timer;
	uint64_t id; /* of the second sequence; 0: none, or not its any more */
	uint64_t begun_ns;
	struct hedge_told told;
};

#define END(how) METRIC_OF(METRIC_COUNTER, "sluice_hedges_total", "end=\"" how "\"", "Hedges that ended, and how")
#define REFUSED(why)                                                                \
	METRIC_OF(METRIC_COUNTER, "sluice_hedges_refused_total", "why=\"" why "\"", \
		  "Late first tokens for which no second engine was used, and why")
static const char *const end_names[HEDGE_ENDS] = {"none", "going", "won", "lost", "failed", "left"};
/* By enum hedge_end, from WON on. */
static struct metric ends[] = {END("won"), END("lost"), END("failed"), END("left")};
METRICS(ends);
enum { NOT_IDLE, NO_BUDGET, NOT_SENT };
static struct metric refused[] = {REFUSED("busy"), REFUSED("budget"), REFUSED("link")};
METRICS(refused);
_Static_assert(sizeof ends / sizeof *ends == HEDGE_ENDS - HEDGE_WON, "one for each end");

const char *hedge_end_name(enum hedge_end end) { return end_names[end]; }

/* ---- what is learned ---- */

static int bucket_of(uint64_t ns)
{
	double ms = (double)ns / NS_PER_MS;
	int i = ms > 1 ? (int)ceil(log2(ms) * PER_DOUBLING) : 0;
	return i < HEDGE_BUCKETS ? i : HEDGE_BUCKETS - 1;
}

void hedge_times_add(struct hedge_times *t, uint64_t ns)
{
	if (t->n >= FADE_AT) {
		t->n = 0;
		for (int i = 0; i < HEDGE_BUCKETS; i++)
			t->n += t->of[i] /= 2;
	}
	t->of[bucket_of(ns)]++;
	t->n++;
}

uint64_t hedge_times_percentile(const struct hedge_times *t, double share)
{
	uint32_t want = (uint32_t)ceil(share * t->n), seen = 0;
	int i = 0;
	if (t->n < HEDGE_LEAST_TIMES)
		return 0;
	while (i < HEDGE_BUCKETS - 1 && (seen += t->of[i]) < want)
		i++;
	return (uint64_t)(exp2((double)i / PER_DOUBLING) * NS_PER_MS);
}

void hedge_budget_add(struct hedging *h, double share)
{
	h->budget = h->budget + share < most_budget ? h->budget + share : most_budget;
}

bool hedge_budget_take(struct hedging *h)
{
	if (h->budget < 1)
		return false;
	h->budget -= 1;
	return true;
}

/* ---- a generation's ---- */

bool hedge_fits(const struct proto_submit *s)
{
	return s->constraint_kind == PROTO_CONSTRAINT_NONE && s->n == 1 && s->best_of == 1 && s->beam_width == 0 &&
	       s->prompt_logprobs == 0 && s->n_given == 0 &&
	       (s->flags & (PROTO_SUBMIT_PREFILL_ONLY | PROTO_SUBMIT_EMBED)) == 0;
}

static void set_end(struct hedge *h, enum hedge_end end)
{
	BUG_IF(h->told.end != (end == HEDGE_GOING ? HEDGE_NONE : HEDGE_GOING), "a hedge from %d to %d", h->told.end,
	       end);
	h->told.end = end;
	if (end >= HEDGE_WON)
		metric_add(&ends[end - HEDGE_WON], 1);
}

static bool submit(struct hedge *h)
{
	struct engine_link *l = h->t->link;
	struct proto_submit s;
	if (!h->of.left(h->of.ctx, &s) ||
	    engine_link_submit_at(l, h->told.second, &s, h->of.listener, h->of.ctx, &h->id) != 0)
		return false;
	if (h->of.lane != 0)
		engine_link_lane(l, h->id, h->of.lane);
	engine_link_credit(l, h->id, h->of.credit);
	return true;
}

static void refuse(int why) { metric_add(&refused[why], 1); }

static void late(struct gw_timer *timer)
{
	struct hedge *h = list_entry(timer, struct hedge, timer);
	struct hedging *all = engine_link_hedging(h->t->link);
	struct proto_submit s;
	if (!h->of.left(h->of.ctx, &s))
		return;
	h->told.second = engine_link_idle_beside(h->t->link, s.model, h->told.first);
	h->told.after_ms = (uint32_t)((clock_now_ns() - h->begun_ns) / NS_PER_MS);
	if (h->told.second < 0)
		refuse(NOT_IDLE);
	else if (!hedge_budget_take(all))
		refuse(NO_BUDGET);
	else if (!submit(h))
		refuse(NOT_SENT);
	else
		set_end(h, HEDGE_GOING);
}

struct hedge *hedge_begin(struct gw_thread *t, const struct hedge_of *of)
{
	const struct gw_hedge *cfg = &t->cfg->hedge;
	struct hedging *all = engine_link_hedging(t->link);
	int engine = engine_link_engine_of(t->link, of->id);
	uint64_t ns = engine >= 0 ? hedge_times_percentile(&all->times[engine], cfg->percentile) : 0;
	hedge_budget_add(all, cfg->share);
	struct hedge *h = ns > 0 ? sl_zalloc(sizeof *h) : NULL;
	if (h == NULL)
		return NULL;
	*h = (struct hedge){.t = t, .of = *of, .begun_ns = clock_now_ns(), .told = {.first = engine, .second = -1}};
	gw_timer_init(&h->timer, late);
	gw_timer_start(&t->timers, &h->timer, ns > cfg->least_ms * NS_PER_MS ? ns : cfg->least_ms * NS_PER_MS);
	return h;
}

bool hedge_is_going(const struct hedge *h) { return h != NULL && h->told.end == HEDGE_GOING; }

uint64_t hedge_win(struct hedge *h)
{
	if (!hedge_is_going(h))
		return 0;
	uint64_t id = h->id;
	h->id = 0;
	set_end(h, HEDGE_WON);
	return id;
}

void hedge_fail(struct hedge *h)
{
	if (!hedge_is_going(h))
		return;
	h->id = 0;
	set_end(h, HEDGE_FAILED);
}

void hedge_lose(struct hedge *h, bool left)
{
	if (h == NULL)
		return;
	gw_timer_stop(&h->t->timers, &h->timer);
	if (!hedge_is_going(h))
		return;
	engine_link_forget(h->t->link, h->id);
	h->id = 0;
	set_end(h, left ? HEDGE_LEFT : HEDGE_LOST);
}

struct hedge_told hedge_told(const struct hedge *h)
{
	return h != NULL ? h->told : (struct hedge_told){.end = HEDGE_NONE};
}

void hedge_destroy(struct hedge *h)
{
	hedge_lose(h, true);
	sl_free(h);
}
