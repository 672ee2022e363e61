/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_sim.h"

#include <math.h>

#include "base/alloc.h"
#include "base/percentile.h"

/* A request on its way from an engine for prompts. */
struct handover {
	struct plan_request *r;
	uint64_t at_ns;
};

struct sim {
	const struct plan_arrangement *a;
	struct plan_engine *engines[PLAN_MAX_ENGINES]; /* those for prompts come last */
	int n_engines;
	struct handover *on_way; /* [n], in the order of their times: [first, end) */
	size_t first, end;
	int rc;
};

static bool is_for_prompts(const struct sim *s, const struct plan_engine *e)
{
	for (int i = s->a->n_engines; i < s->n_engines; i++)
		if (s->engines[i] == e)
			return true;
	return false;
}

/* In order of time: hand-overs take longer for longer prompts. */
static void put_on_way(struct sim *s, struct handover h)
{
	size_t i = s->end++;
	for (; i > s->first && s->on_way[i - 1].at_ns > h.at_ns; i--)
		s->on_way[i] = s->on_way[i - 1];
	s->on_way[i] = h;
}

static void on_done(void *ctx, struct plan_engine *e, struct plan_request *r, uint64_t now_ns)
{
	struct sim *s = ctx;
	if (is_for_prompts(s, e) && r->n_made < r->work.n_answer)
		put_on_way(s, (struct handover){r, now_ns + (uint64_t)(s->a->handover_ns * r->work.n_prompt)});
}

/* Of engines first … end - 1: that with the most of the prompt among those with at most two requests more than the least. */
static struct plan_engine *choose(const struct sim *s, int first, int end, const struct work *w)
{
	struct plan_engine *best = NULL;
	uint32_t least = UINT32_MAX, best_has = 0;
	for (int i = first; i < end; i++) {
		uint32_t n = plan_engine_n_active(s->engines[i]);
		least = n < least ? n : least;
	}
	for (int i = first; i < end; i++) {
		struct plan_engine *e = s->engines[i];
		uint32_t has = plan_engine_has(e, w), n = plan_engine_n_active(e);
		if (n > least + 2)
			continue;
		if (best == NULL || has > best_has || (has == best_has && n < plan_engine_n_active(best))) {
			best = e;
			best_has = has;
		}
	}
	return best;
}

static void submit(struct sim *s, struct plan_request *r)
{
	struct plan_engine *e = choose(s, 0, s->a->n_engines, &r->work);
	uint32_t n_answer = r->work.n_answer;
	if (s->a->n_prompt_engines > 0 && r->work.n_prompt - plan_engine_has(e, &r->work) > PLAN_OFFLOAD_TOKENS) {
		e = choose(s, s->a->n_engines, s->n_engines, &r->work);
		n_answer = 1;
	}
	s->rc = plan_engine_add(e, r, n_answer, 0, r->came_ns);
}

static void hand_over(struct sim *s)
{
	struct handover h = s->on_way[s->first++];
	struct plan_engine *e = choose(s, 0, s->a->n_engines, &h.r->work);
	s->rc = plan_engine_add(e, h.r, h.r->work.n_answer - h.r->n_made, h.r->work.n_prompt, h.at_ns);
}

static uint64_t next_event(const struct sim *s, const struct plan_request *next)
{
	uint64_t at = next != NULL ? next->came_ns : UINT64_MAX;
	if (s->first < s->end && s->on_way[s->first].at_ns < at)
		at = s->on_way[s->first].at_ns;
	for (int i = 0; i < s->n_engines; i++)
		at = plan_engine_busy_until(s->engines[i]) < at ? plan_engine_busy_until(s->engines[i]) : at;
	return at;
}

static void run(struct sim *s, struct plan_request *all, size_t n)
{
	size_t next = 0;
	while (s->rc == 0) {
		uint64_t now = next_event(s, next < n ? &all[next] : NULL);
		if (now == UINT64_MAX)
			return;
		for (int i = 0; i < s->n_engines; i++)
			if (plan_engine_busy_until(s->engines[i]) <= now)
				plan_engine_finish(s->engines[i]);
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
	struct sim s = {.a = a};
	const struct plan_events events = {.ctx = &s, .done = on_done};
	s.on_way = sl_zalloc_n(n, sizeof *s.on_way);
	s.rc = s.on_way != NULL ? 0 : SL_ENOMEM;
	for (int i = 0; i < a->n_engines + a->n_prompt_engines && s.rc == 0; i++) {
		s.rc = plan_engine_create(i < a->n_engines ? &a->box : &a->prompt, &events, &s.engines[i]);
		s.n_engines += s.rc == 0;
	}
	for (size_t i = 0; i < n; i++)
		all[i].first_ns = all[i].last_ns = all[i].n_made = 0;
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
		double each = r->n_made > 1 ? (double)(r->last_ns - r->first_ns) / 1e6 / (r->n_made - 1) : 0;
		ttft[i] = answered ? (double)(r->first_ns - r->came_ns) / 1e6 : INFINITY;
		if (answered && r->n_made > 1)
			tpot[n_tpot++] = each;
		n_good += answered && is_within(slo->ttft_ms, ttft[i]) && is_within(slo->tpot_ms, each) &&
			  is_within(slo->itl_ms, each) &&
			  is_within(slo->total_ms, (double)(r->last_ns - r->came_ns) / 1e6);
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
