/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_sim.h"

#include <math.h>

#include "base/alloc.h"
#include "base/percentile.h"
#include "gateway/generation/prefill_choice.h"

/* A request on its way from an engine for prompts. */
struct handover {
	struct plan_request *r;
	uint64_t at_ns;
};

struct sim {
	const struct plan_arrangement *a;
	struct plan_engine *engines[PLAN_MAX_ENGINES];
	bool for_prompts[PLAN_MAX_ENGINES]; /* at first the last ones */
	int n_engines;
	struct handover *on_way; /* [n], in the order of their times: [first, end) */
	size_t first, end;
	uint64_t turn_ns; /* when roles are decided next; UINT64_MAX: never */
	struct planner_traffic traffic;
	int rc;
};

/* In order of time: hand-overs take longer for longer prompts. */
static void put_on_way(struct sim *s, struct handover h)
{
	size_t i = s->end++;
	for (; i > s->first && s->on_way[i - 1].at_ns > h.at_ns; i--)
		s->on_way[i] = s->on_way[i - 1];
	s->on_way[i] = h;
}

static double ttft_ms(const struct plan_request *r) { return (double)(r->first_ns - r->came_ns) / 1e6; }

static double tpot_ms(const struct plan_request *r)
{
	return r->n_made > 1 ? (double)(r->last_ns - r->first_ns) / 1e6 / (r->n_made - 1) : 0;
}

static void count_answer(struct sim *s, const struct plan_request *r)
{
	const struct serve_slo *slo = s->a->roles->slo;
	s->traffic.n_first += slo->ttft_ms > 0;
	s->traffic.n_late += slo->ttft_ms > 0 && ttft_ms(r) > slo->ttft_ms;
	s->traffic.n_paced += slo->tpot_ms > 0;
	s->traffic.n_slow += slo->tpot_ms > 0 && tpot_ms(r) > slo->tpot_ms;
}

static void on_done(void *ctx, struct plan_engine *e, struct plan_request *r, uint64_t now_ns)
{
	struct sim *s = ctx;
	(void)e;
	if (r->n_made < r->work.n_answer)
		put_on_way(s, (struct handover){r, now_ns + (uint64_t)(s->a->handover_ns * r->work.n_prompt)});
	else if (s->a->roles != NULL)
		count_answer(s, r);
}

static void on_gap(void *ctx, uint64_t ns) { histogram_add(((struct sim *)ctx)->a->gaps, ns); }

/* Of engines of one kind: that with the most of the prompt among those with at most two requests more than the least.
 * NULL: there is none. */
static struct plan_engine *choose(const struct sim *s, bool for_prompts, const struct work *w)
{
	struct plan_engine *best = NULL;
	uint32_t least = UINT32_MAX, best_has = 0;
	for (int i = 0; i < s->n_engines; i++) {
		uint32_t n = plan_engine_n_active(s->engines[i]);
		least = s->for_prompts[i] == for_prompts && n < least ? n : least;
	}
	for (int i = 0; i < s->n_engines; i++) {
		struct plan_engine *e = s->engines[i];
		if (s->for_prompts[i] != for_prompts || plan_engine_n_active(e) > least + 2)
			continue;
		uint32_t has = plan_engine_has(e, w), n = plan_engine_n_active(e);
		if (best == NULL || has > best_has || (has == best_has && n < plan_engine_n_active(best))) {
			best = e;
			best_has = has;
		}
	}
	return best;
}

/* Does a prompt go apart where the engine for prompts has n_queued requests? */
static bool goes_apart(const struct sim *s, const struct plan_engine *here, uint32_t n_queued, uint32_t n_missing)
{
	if (s->a->choice == NULL)
		return n_missing > PLAN_OFFLOAD_TOKENS;
	const struct prefill_question q = {.fits = true,
					   .has_engine = true,
					   .n_missing = n_missing,
					   .n_queued = n_queued,
					   .n_running = plan_engine_figures(here).running};
	return prefill_choose(s->a->choice, &q) == PREFILL_APART;
}

static void count_demand(struct sim *s, const struct plan_engine *here, uint32_t n_missing)
{
	const bool is_long = goes_apart(s, here, 0, n_missing);
	s->traffic.n_long += is_long;
	s->traffic.long_tokens += is_long ? n_missing : 0;
	s->traffic.short_tokens += is_long ? 0 : n_missing;
}

static void submit(struct sim *s, struct plan_request *r)
{
	struct plan_engine *e = choose(s, false, &r->work), *apart = choose(s, true, &r->work);
	uint32_t n_missing = r->work.n_prompt - plan_engine_has(e, &r->work), n_answer = r->work.n_answer;
	count_demand(s, e, n_missing);
	if (apart != NULL && goes_apart(s, e, plan_engine_n_active(apart), n_missing)) {
		e = apart;
		n_answer = 1;
	}
	s->rc = plan_engine_add(e, r, n_answer, 0, r->came_ns);
}

static void hand_over(struct sim *s)
{
	struct handover h = s->on_way[s->first++];
	struct plan_engine *e = choose(s, false, &h.r->work);
	s->rc = plan_engine_add(e, h.r, h.r->work.n_answer - h.r->n_made, h.r->work.n_prompt, h.at_ns);
}

/* ---- roles ---- */

static struct planner_engine figures_of(const struct sim *s, int i)
{
	const struct plan_figures f = plan_engine_figures(s->engines[i]);
	return (struct planner_engine){.role = s->for_prompts[i] ? GW_ENGINE_PREFILL : GW_ENGINE_DECODE,
				       .up = true,
				       .running = f.running,
				       .waiting = f.waiting,
				       .kv_used = f.kv_used,
				       .prefill_tokens = f.prefill_tokens,
				       .decode_tokens = f.decode_tokens,
				       .prefill_token_us = f.prefill_token_us,
				       .decode_step_us = f.decode_step_us};
}

static void decide_roles(struct sim *s, uint64_t now_ns)
{
	const struct plan_roles *roles = s->a->roles;
	struct planner_view v = {.now_ns = now_ns, .n_engines = s->n_engines, .traffic = s->traffic};
	v.traffic.ttft_us = roles->slo->ttft_ms * 1e3;
	v.traffic.tpot_us = roles->slo->tpot_ms * 1e3;
	for (int i = 0; i < s->n_engines; i++)
		v.engines[i] = figures_of(s, i);
	roles->turn(roles->ctx, &v);
	for (int i = 0; i < s->n_engines; i++)
		s->for_prompts[i] = v.engines[i].role == GW_ENGINE_PREFILL;
	s->turn_ns = now_ns + roles->period_ns;
}

/* ---- the course ---- */

static uint64_t next_event(const struct sim *s, const struct plan_request *next)
{
	uint64_t at = next != NULL ? next->came_ns : UINT64_MAX;
	if (s->first < s->end && s->on_way[s->first].at_ns < at)
		at = s->on_way[s->first].at_ns;
	for (int i = 0; i < s->n_engines; i++)
		at = plan_engine_next(s->engines[i]) < at ? plan_engine_next(s->engines[i]) : at;
	return at != UINT64_MAX && s->turn_ns < at ? s->turn_ns : at;
}

static void run(struct sim *s, struct plan_request *all, size_t n)
{
	size_t next = 0;
	while (s->rc == 0) {
		uint64_t now = next_event(s, next < n ? &all[next] : NULL);
		if (now == UINT64_MAX)
			return;
		for (int i = 0; i < s->n_engines; i++)
			if (plan_engine_next(s->engines[i]) <= now)
				plan_engine_finish(s->engines[i]);
		if (s->turn_ns <= now)
			decide_roles(s, now);
		while (next < n && all[next].came_ns <= now && s->rc == 0)
			submit(s, &all[next++]);
		while (s->first < s->end && s->on_way[s->first].at_ns <= now && s->rc == 0)
			hand_over(s);
		for (int i = 0; i < s->n_engines; i++)
			plan_engine_start(s->engines[i], now);
	}
}

int plan_simulate(const struct plan_arrangement *a, struct plan_request *all, size_t n, uint64_t *prefilled)
{
	struct sim s = {.a = a, .turn_ns = a->roles != NULL ? 0 : UINT64_MAX};
	const struct plan_events events = {.ctx = &s, .done = on_done, .gap = a->gaps != NULL ? on_gap : NULL};
	s.on_way = sl_zalloc_n(n, sizeof *s.on_way);
	s.rc = s.on_way != NULL ? 0 : SL_ENOMEM;
	for (int i = 0; i < a->n_engines + a->n_prompt_engines && s.rc == 0; i++) {
		const bool for_prompts = i >= a->n_engines;
		s.for_prompts[i] = for_prompts;
		s.rc = plan_engine_create(for_prompts ? &a->prompt : &a->box, &events, &s.engines[i]);
		s.n_engines += s.rc == 0;
	}
	for (size_t i = 0; i < n; i++)
		all[i].first_ns = all[i].last_ns = all[i].longest_ns = all[i].n_made = 0;
	if (s.rc == 0)
		run(&s, all, n);
	*prefilled = 0;
	for (int i = 0; i < s.n_engines; i++) {
		*prefilled += plan_engine_n_prefilled(s.engines[i]);
		plan_engine_destroy(s.engines[i]);
	}
	sl_free(s.on_way);
	return s.rc;
}

static bool is_within(double limit, double value) { return limit <= 0 || value <= limit; }

bool plan_is_good(const struct plan_request *r, const struct serve_slo *slo)
{
	return r->first_ns != 0 && is_within(slo->ttft_ms, ttft_ms(r)) && is_within(slo->tpot_ms, tpot_ms(r)) &&
	       is_within(slo->itl_ms, tpot_ms(r)) && is_within(slo->total_ms, (double)(r->last_ns - r->came_ns) / 1e6);
}

int plan_judge(const struct plan_request *all, size_t n, const struct serve_slo *slo, struct sweep_point *out)
{
	double *ttft = sl_zalloc_n(n, sizeof *ttft), *tpot = sl_zalloc_n(n, sizeof *tpot);
	size_t n_good = 0, n_tpot = 0;
	double n_tokens = 0;
	uint64_t end = 0;
	if (ttft == NULL || tpot == NULL) {
		sl_free(ttft);
		sl_free(tpot);
		return SL_ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		const struct plan_request *r = &all[i];
		const bool answered = r->first_ns != 0;
		ttft[i] = answered ? ttft_ms(r) : INFINITY;
		if (answered && r->n_made > 1)
			tpot[n_tpot++] = tpot_ms(r);
		n_good += plan_is_good(r, slo);
		n_tokens += answered ? r->n_made : 0;
		end = r->last_ns > end ? r->last_ns : end;
	}
	out->share = n > 0 ? (double)n_good / (double)n : 0;
	out->ttft_p50_ms = percentile(ttft, n, 50);
	out->ttft_p99_ms = percentile(ttft, n, 99);
	out->tpot_p50_ms = percentile(tpot, n_tpot, 50);
	out->tpot_p99_ms = percentile(tpot, n_tpot, 99);
	out->tokens_per_s = end > 0 ? n_tokens / ((double)end / 1e9) : 0;
	sl_free(ttft);
	sl_free(tpot);
	return 0;
}
