/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/admission/load.h"

#include <math.h>

#include "base/clock.h"

enum {
	MEMO_PART = 4,       /* a prediction is valid for 1/MEMO_PART of the wait */
	MEMO_LEAST_MS = 100, /* and at least for this time */
	CERTAIN_MS = 50,     /* shorter waits are too random to learn from */
};

/* ---- decisions ---- */

enum load_verdict load_decide(const struct gw_tier_config *tier, const struct load_case *c, uint64_t *retry_ms)
{
	double expected = (double)c->predicted_ms * c->margin;
	uint64_t target = tier->ttft_target_ms, least = c->most_ms;
	bool hopeless = c->predicted_ms > c->most_ms, late = target > 0 && expected > (double)target;
	*retry_ms = 0;
	if (c->guess)
		return LOAD_GO;
	if (!hopeless && (!late || tier->when_late == GW_LATE_QUEUE))
		return LOAD_GO;
	if (tier->when_late == GW_LATE_DEGRADE && c->other_model)
		return LOAD_DEGRADE;
	/* A shorter answer does not start sooner, but it leaves capacity for others, so it may wait. */
	if (tier->when_late == GW_LATE_DEGRADE && !hopeless && (c->shorter || c->is_shorter))
		return c->shorter ? LOAD_DEGRADE : LOAD_GO;
	if (tier->when_late != GW_LATE_QUEUE && target > 0 && target < least)
		least = target;
	*retry_ms = expected > (double)least ? (uint64_t)(expected - (double)least) + 1 : 1;
	return LOAD_REFUSE;
}

unsigned load_retry_s(uint64_t ms)
{
	uint64_t s = (ms + 999) / 1000;
	return s == 0 ? 1 : s < 86400 ? (unsigned)s : 86400;
}

/* ---- margins ---- */

/* The margin decays, so that an old one that was not confirmed refuses nothing. */
static double log_now(const struct load_margin *m, uint64_t now_ns)
{
	static const double half_life_ns = 30e9;
	return now_ns > m->at_ns ? m->log * exp2(-(double)(now_ns - m->at_ns) / half_life_ns) : m->log;
}

void load_margin_learn(struct load_margin *m, uint64_t predicted_ns, uint64_t true_ns, uint64_t now_ns)
{
	static const double step = 0.002, most = 0.7;
	if (predicted_ns < CERTAIN_MS * NS_PER_MS)
		return;
	m->log = log_now(m, now_ns);
	m->at_ns = now_ns;
	m->log += (double)true_ns > (double)predicted_ns * exp(m->log) ? 32 * step : -step;
	m->log = m->log < 0 ? 0 : m->log > most ? most : m->log;
}

double load_margin_factor(const struct load_margin *m, uint64_t now_ns) { return exp(log_now(m, now_ns)); }

/* ---- levels ---- */

bool load_levels_see(struct load_levels *l, const struct proto_load *now, uint64_t high_ms, uint64_t low_ms)
{
	uint8_t before = l->high[now->model], after = before;
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		uint64_t ms = now->idle ? 0 : now->of[i].wait_us / 1000;
		if (ms >= high_ms)
			after = (uint8_t)(after | 1u << i);
		else if (ms < low_ms)
			after = (uint8_t)(after & ~(1u << i));
	}
	l->high[now->model] = after;
	return after != before;
}

bool load_is_high(const struct load_levels *l, int model, int64_t priority)
{
	int64_t i = priority < PROTO_PRIORITIES ? priority : PROTO_PRIORITIES - 1;
	return (l->high[model] >> i & 1) != 0;
}

/* ---- the memo ---- */

static size_t row_of(uint64_t tenant, int model, uint8_t priority)
{
	uint64_t line = (uint64_t)model * PROTO_PRIORITIES + priority;
	return (size_t)((tenant ^ line * 0x9e3779b97f4a7c15u) %
			(sizeof((struct load_memo *)0)->of / sizeof(struct load_word)));
}

/* Sets until_ns. The next request after it renews the prediction. */
static void hold(struct load_word *w, uint64_t now_ns)
{
	uint64_t part = (w->begin_ns - now_ns) / MEMO_PART, least = MEMO_LEAST_MS * NS_PER_MS;
	w->until_ns = now_ns + (part > least ? part : least);
	w->until_ns = w->until_ns < w->begin_ns ? w->until_ns : w->begin_ns;
}

void load_memo_put(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t wait_ms, uint64_t now_ns)
{
	struct load_word *w = &m->of[row_of(tenant, model, priority)];
	*w = (struct load_word){
	    .tenant = tenant, .model = model, .priority = priority, .begin_ns = now_ns + wait_ms * NS_PER_MS};
	hold(w, now_ns);
}

void load_memo_sent(struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t each_us,
		    uint64_t now_ns)
{
	struct load_word *w = &m->of[row_of(tenant, model, priority)];
	if (w->tenant != tenant || w->model != model || w->priority != priority || now_ns >= w->begin_ns)
		return;
	w->begin_ns += each_us * 1000;
	if (now_ns >= w->until_ns)
		hold(w, now_ns);
}

uint64_t load_memo_find(const struct load_memo *m, uint64_t tenant, int model, uint8_t priority, uint64_t now_ns)
{
	const struct load_word *w = &m->of[row_of(tenant, model, priority)];
	if (w->tenant != tenant || w->model != model || w->priority != priority || now_ns >= w->until_ns)
		return 0;
	return (w->begin_ns - now_ns) / NS_PER_MS + 1;
}
