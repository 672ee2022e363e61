/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/role_planner.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/generation/engine_link.h"
#include "gateway/loop/thread.h"
#include "gateway/observe/observe.h"

_Static_assert((int)GW_MAX_ENGINES <= (int)PLANNER_ENGINES, "the planner has room for every engine");

static atomic_int roles[GW_MAX_ENGINES], awaiting[GW_MAX_ENGINES];
static atomic_ullong n_long, long_tokens, short_tokens;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct role_report last;

#define CHANGE(why)                                                               \
	METRIC_OF(METRIC_COUNTER, "sluice_role_changes_total", "why=\"" why "\"", \
		  "Engines of role auto that got another role, by the pressure that was highest")
#define PRESSURE(of)                                                                                         \
	{                                                                                                    \
		.kind = METRIC_GAUGE, .name = "sluice_role_pressure", .labels = "of=\"" of "\"",             \
		.help = "What the planner predicts of engines as they are: parts of a target or of a bound", \
		.scale = 1e-3                                                                                \
	}
/* By enum planner_why, from PLANNER_TTFT on. */
static struct metric changes[] = {CHANGE("ttft"), CHANGE("tpot"), CHANGE("kv"), CHANGE("queue"), CHANGE("lost")};
static struct metric pressures[] = {PRESSURE("ttft"), PRESSURE("tpot"), PRESSURE("kv"), PRESSURE("queue")};
METRICS(changes);
METRICS(pressures);
_Static_assert(sizeof changes / sizeof *changes == PLANNER_WHYS - PLANNER_TTFT, "one for each reason");

struct role_planner {
	struct gw_thread *t;
	struct planner planner;
	uint64_t next_ns;
	double ttft_us, tpot_us; /* mean targets of the answers that ended last; 0: none has */
	struct observed_targets targets;
};

int role_now(int engine) { return atomic_load_explicit(&roles[engine], memory_order_relaxed); }

void role_demand(bool is_long, uint32_t n_missing)
{
	atomic_fetch_add_explicit(&n_long, is_long, memory_order_relaxed);
	atomic_fetch_add_explicit(is_long ? &long_tokens : &short_tokens, n_missing, memory_order_relaxed);
}

void role_awaits(int engine, int n) { atomic_fetch_add_explicit(&awaiting[engine], n, memory_order_relaxed); }

void role_report(struct role_report *out)
{
	pthread_mutex_lock(&lock);
	*out = last;
	pthread_mutex_unlock(&lock);
}

const char *role_name(int role)
{
	static const char *const names[] = {
	    [GW_ENGINE_BOTH] = "both", [GW_ENGINE_PREFILL] = "prefill", [GW_ENGINE_DECODE] = "decode"};
	return names[role];
}

/* ---- what the planner sees ---- */

static bool serves(const struct engine_link *l, int k)
{
	for (int i = 0; i < engine_link_n_models(l); i++)
		if (engine_link_hands_over(l, i, k))
			return true;
	return false;
}

static struct planner_engine engine_of(const struct engine_link *l, int k)
{
	const struct proto_stats *s = engine_link_engine_stats(l, k);
	int waits = atomic_load_explicit(&awaiting[k], memory_order_relaxed);
	return (struct planner_engine){
	    .role = engine_link_role(l, k),
	    .fixed = !engine_link_role_moves(l, k),
	    .up = serves(l, k),
	    .running = s->running,
	    .waiting = s->waiting,
	    .awaiting = waits > 0 ? (uint32_t)waits : 0,
	    .kv_used = s->pages_total > 0 ? 1 - (double)s->pages_free / s->pages_total : 0,
	    .prefill_tokens = s->prefill_tokens,
	    .decode_tokens = s->decode_tokens,
	    .prefill_token_us = s->us_per_prefill_token,
	    .decode_step_us = s->us_per_decode_step,
	};
}

static uint64_t ttft_target(const struct gw_tier_config *t) { return t->ttft_target_ms; }
static uint64_t tpot_target(const struct gw_tier_config *t) { return t->itl_target_ms; }

/* Microseconds; of the tiers that have one, before the first answers have ended. */
static double mean_target(const struct gw_config *cfg, uint64_t (*of)(const struct gw_tier_config *t))
{
	const struct gw_tier_config *tiers = cfg->tiers.items;
	double sum_ms = 0, n = 0;
	for (size_t i = 0; i < cfg->tiers.n; i++) {
		sum_ms += (double)of(&tiers[i]);
		n += of(&tiers[i]) > 0;
	}
	return n > 0 ? sum_ms / n * 1e3 : 0;
}

static void follow(double *mean, uint64_t sum_us, uint64_t n) { *mean = n > 0 ? (double)sum_us / (double)n : *mean; }

static struct planner_traffic traffic_of(struct role_planner *p)
{
	const struct observed_targets was = p->targets;
	struct observed_targets *now = &p->targets;
	observed_targets(now);
	follow(&p->ttft_us, now->ttft_us - was.ttft_us, now->n_first - was.n_first);
	follow(&p->tpot_us, now->tpot_us - was.tpot_us, now->n_paced - was.n_paced);
	return (struct planner_traffic){
	    .n_long = atomic_load_explicit(&n_long, memory_order_relaxed),
	    .long_tokens = atomic_load_explicit(&long_tokens, memory_order_relaxed),
	    .short_tokens = atomic_load_explicit(&short_tokens, memory_order_relaxed),
	    .n_first = now->n_first,
	    .n_late = now->n_late,
	    .n_paced = now->n_paced,
	    .n_slow = now->n_slow,
	    .ttft_us = p->ttft_us > 0 ? p->ttft_us : mean_target(p->t->cfg, ttft_target),
	    .tpot_us = p->tpot_us > 0 ? p->tpot_us : mean_target(p->t->cfg, tpot_target),
	};
}

/* ---- what follows from a decision ---- */

static void describe(const struct engine_link *l, const struct planner_decision *d, char *line, size_t size)
{
	size_t n = 0;
	for (int i = 0; i < d->n_moves && n < size; i++) {
		const struct planner_move *m = &d->moves[i];
		n += (size_t)snprintf(line + n, size - n, "%s%s %s", i > 0 ? ", " : "", engine_link_name(l, m->engine),
				      role_name(m->role));
	}
	if (n < size)
		snprintf(line + n, size - n, ": %s, pressure %.2f with %d for prompts, %.2f with %d",
			 planner_why_name(d->why), planner_most(&d->now), d->n_prefill, planner_most(&d->best),
			 d->n_best);
}

static void report(const struct planner_decision *d, const char *line)
{
	pthread_mutex_lock(&lock);
	last.any = true;
	last.now = d->now;
	last.n_prefill = d->n_prefill;
	if (d->n_moves > 0) {
		last.n_changes += (uint64_t)d->n_moves;
		last.changed_s = clock_unix_s();
		last.why = d->why;
		snprintf(last.line, sizeof last.line, "%s", line);
	}
	pthread_mutex_unlock(&lock);
	const double all[] = {d->now.ttft, d->now.tpot, d->now.kv, d->now.queue};
	for (int i = 0; i < 4; i++)
		metric_set(&pressures[i], (int64_t)(all[i] * 1e3));
}

static void apply(const struct engine_link *l, const struct planner_decision *d)
{
	char line[sizeof last.line] = "";
	if (d->n_moves > 0) {
		for (int i = 0; i < d->n_moves; i++)
			atomic_store_explicit(&roles[d->moves[i].engine], d->moves[i].role, memory_order_relaxed);
		describe(l, d, line, sizeof line);
		log_info("engines' roles: %s", line);
		if (d->why != PLANNER_STAYS)
			metric_add(&changes[d->why - PLANNER_TTFT], d->n_moves);
	}
	report(d, line);
}

/* ---- life ---- */

struct role_planner *role_planner_create(struct gw_thread *t)
{
	struct role_planner *p = sl_zalloc(sizeof *p);
	if (p != NULL) {
		p->t = t;
		observed_targets(&p->targets);
	}
	return p;
}

void role_planner_destroy(struct role_planner *p)
{
	for (int k = 0; p != NULL && k < GW_MAX_ENGINES; k++)
		atomic_store(&roles[k], GW_ENGINE_BOTH);
	sl_free(p);
}

static bool any_moves(const struct engine_link *l)
{
	for (int k = 0; k < engine_link_n_engines(l); k++)
		if (engine_link_role_moves(l, k))
			return true;
	return false;
}

void role_planner_tick(struct role_planner *p)
{
	const struct engine_link *l = p->t->link;
	struct planner_view v = {.now_ns = gw_now(p->t), .n_engines = engine_link_n_engines(l)};
	if (v.now_ns < p->next_ns || !any_moves(l))
		return;
	p->next_ns = v.now_ns + p->t->cfg->planner.period_ms * NS_PER_MS;
	for (int k = 0; k < v.n_engines; k++)
		v.engines[k] = engine_of(l, k);
	v.traffic = traffic_of(p);
	const struct planner_decision d = planner_turn(&p->planner, &v, p->t->cfg->planner.dwell_ms * NS_PER_MS);
	apply(l, &d);
}
