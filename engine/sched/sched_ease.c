/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sched/sched_ease.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/sched/sched_state.h"

enum { OVER_STEPS = 4 };

/* The factor's logarithm: one step up balances a thousand down. */
static const double recent = 0.5, most_ratio = 3; /* costs are learnt more slowly than a device is slowed */
static const double up = 0.05, down = 0.00005, most_factor = 1.1;

void sched_ease_init(struct sched_ease *e) { *e = (struct sched_ease){.most = UINT32_MAX, .ratio = 1}; }

bool sched_ease_on(const struct sched_ease *e) { return e->itl_ns != NULL || e->most != UINT32_MAX; }

static int by_tier_and_age(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa, *b = *(struct sched_seq *const *)pb;
	if (a->queue->tier != b->queue->tier)
		return a->queue->tier < b->queue->tier ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

static int by_service(const void *pa, const void *pb)
{
	const struct sched_seq *a = *(struct sched_seq *const *)pa, *b = *(struct sched_seq *const *)pb;
	return a->served_ns < b->served_ns ? -1 : a->served_ns > b->served_ns;
}

/* Those that have starved first, in the order of their service. */
static void order(struct sched_seq **all, uint32_t n, uint64_t starve_ns, uint64_t now_ns)
{
	uint32_t n_starved = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct sched_seq *s = all[i];
		if (now_ns < s->served_ns + starve_ns)
			continue;
		all[i] = all[n_starved];
		all[n_starved++] = s;
	}
	qsort(all, n_starved, sizeof *all, by_service);
	qsort(all + n_starved, n - n_starved, sizeof *all, by_tier_and_age);
}

/* The least target of those that would run; 0: none has one. */
static double target_of(const struct sched_ease *e, struct sched_seq *const *all, uint32_t n)
{
	uint64_t least = 0;
	for (uint32_t i = 0; i < n && e->itl_ns != NULL; i++) {
		uint64_t its = e->itl_ns[all[i]->queue->tier];
		least = its > 0 && (least == 0 || its < least) ? its : least;
	}
	return (double)least;
}

/* Does even the first one take longer than that? Then fewer sequences are no help. */
static bool is_hopeless(const struct sched_seq *first, const struct cost *cost, double ns)
{
	const double past = (double)first->width * ((double)first->n_past + 1);
	return cost_step_ns(cost, first->width, (struct cost_past){past, past}) > ns;
}

/* How many rows take at most ns; UINT32_MAX: all of them. */
static uint32_t rows_that_fit(struct sched_seq *const *all, uint32_t n, const struct cost *cost, double ns)
{
	struct cost_past past = {0};
	uint32_t rows = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct sched_seq *s = all[i];
		past.positions += (double)s->width * ((double)s->n_past + 1);
		past.reads += (double)s->width * ((double)s->n_past + 1);
		if (cost_step_ns(cost, rows + s->width, past) > ns)
			return rows > 0 ? rows : s->width;
		rows += s->width;
	}
	return UINT32_MAX;
}

uint32_t sched_ease_slots(const struct sched_ease *e) { return e->most - e->most / 8; }

/* Falls at once, and grows slowly and only where there is room to spare: a sequence that is held and let go with each
 * change of what fits has a long gap each time. */
static void bound(struct sched_ease *e, uint32_t fit, uint32_t wanted, uint64_t now_ns)
{
	const uint32_t more = e->most / 8 + 1;
	if (fit < e->most) {
		e->most = fit;
		e->grew_ns = now_ns;
	} else if (e->most != UINT32_MAX && fit - e->most > more &&
		   now_ns >= e->grew_ns + EASE_GROW_MS * (uint64_t)NS_PER_MS) {
		e->most += more;
		e->grew_ns = now_ns;
		if (e->itl_ns == NULL && e->most >= wanted)
			e->most = UINT32_MAX;
	}
}

uint32_t sched_ease_choose(struct sched_ease *e, struct sched_seq **decoding, uint32_t n, const struct cost *cost,
			   uint64_t starve_ns, uint64_t now_ns, double *step_ns)
{
	uint32_t wanted = 0, rows = 0, kept = 0;
	order(decoding, n, starve_ns, now_ns);
	for (uint32_t i = 0; i < n; i++)
		wanted += decoding[i]->width;
	e->target_ns = target_of(e, decoding, n);
	double factor = exp(e->log_factor), fresh = e->ratio > 1 ? e->ratio : 1;
	if (n > 0 && is_hopeless(decoding[0], cost, e->target_ns / fresh))
		e->target_ns = 0;
	*step_ns = e->target_ns / (fresh > factor ? fresh : factor);
	bound(e, *step_ns > 0 ? rows_that_fit(decoding, n, cost, *step_ns) : UINT32_MAX, wanted, now_ns);
	for (; kept < n && (kept == 0 || rows + decoding[kept]->width <= e->most); kept++)
		rows += decoding[kept]->width;
	e->n_held = n - kept;
	e->rows = rows;
	return kept;
}

void sched_ease_took(struct sched_ease *e, double expected_ns, double ns)
{
	double ratio = expected_ns > 0 ? ns / expected_ns : 1;
	e->ratio += recent * ((ratio < most_ratio ? ratio : most_ratio) - e->ratio);
	if (e->itl_ns == NULL || e->target_ns <= 0)
		return;
	e->n_over = ns > e->target_ns ? e->n_over + 1 : 0;
	if (e->n_over >= OVER_STEPS && e->rows > 1) {
		e->most = e->rows - (e->rows / 8 > 0 ? e->rows / 8 : 1);
		e->n_over = 0;
	}
	e->log_factor += ns > e->target_ns ? up : -down;
	e->log_factor = e->log_factor < 0 ? 0 : e->log_factor > most_factor ? most_factor : e->log_factor;
}
