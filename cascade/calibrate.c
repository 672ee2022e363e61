/* SPDX-License-Identifier: Apache-2.0
 *
 * Thresholds from outcomes. The gate's three thresholds move together, so each answer has one number: the highest
 * threshold that does not escalate it. The number exists because a higher threshold never keeps an answer that a lower
 * one escalates: if the lower one escalates a held answer, the higher one can't have shown it earlier (that needs more
 * confidence); if the lower one escalates a shown answer, the higher one holds it or requires more. So bisection over
 * the gate finds the number, and one sort gives the whole curve. Thresholds are multiples of 1/10000: printed values
 * are exactly those tried.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "cascade/learn.h"

int64_t casc_gate_at(const struct casc_gate *g, float low, const float *trace, uint32_t n)
{
	float sure = low + g->sure_above, drop = low - g->drop_below;
	bool shown = false;
	for (uint32_t i = 0; i < n; i++) {
		bool final = i + 1 == n || i + 1 >= g->hold_tokens;
		if (shown) {
			if (trace[i] < drop)
				return i;
		} else if (i + 1 >= g->hold_min || final) {
			if (trace[i] < low)
				return i;
			shown = trace[i] >= sure || final;
		}
	}
	/* An empty answer has confidence 0. */
	return n == 0 && low > 0 ? 0 : -1;
}

enum { STEPS = 10000 };

struct kept {
	uint32_t most; /* the highest threshold that keeps the answer, in STEPS; 0 keeps every answer */
	uint32_t n;
	bool small_right, large_right;
};

static float threshold(uint32_t steps) { return (float)steps / STEPS; }

static uint32_t most_kept(const struct casc_gate *g, const struct casc_outcome *o)
{
	uint32_t lo = 0, hi = STEPS + 1;
	while (hi - lo > 1) {
		uint32_t mid = (lo + hi) / 2;
		if (casc_gate_at(g, threshold(mid), o->trace, o->n) < 0)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

static int by_most(const void *a, const void *b)
{
	uint32_t x = ((const struct kept *)a)->most, y = ((const struct kept *)b)->most;
	return x < y ? -1 : x > y;
}

static int check(const struct casc_outcome *outcomes, size_t n, const struct casc_gate *g, struct sl_err *err)
{
	if (n == 0)
		return sl_errf(err, SL_EINVAL, "no outcome has a trace and a verdict");
	if (g->hold_tokens < 1 || g->hold_min < 1 || g->hold_min > g->hold_tokens || !(g->sure_above >= 0) ||
	    !(g->drop_below >= 0))
		return sl_errf(err, SL_EINVAL,
			       "gate: min tokens must be between 1 and tokens, and distances at least 0");
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < outcomes[i].n; k++)
			if (!(outcomes[i].trace[k] >= 0 && outcomes[i].trace[k] <= 1))
				return sl_errf(err, SL_EINVAL, "outcome %zu: confidence %u is not between 0 and 1",
					       i + 1, k);
	return 0;
}

/* Sums at one threshold. */
struct totals {
	double right, tokens_kept;
	double large_right, tokens;
	size_t n;
};

static struct casc_curve_point point_at(const struct totals *t, size_t escalated, float low)
{
	return (struct casc_curve_point){
	    .low = low,
	    .small_rate = (double)(t->n - escalated) / (double)t->n,
	    /* If the large model is never right, quality is 1. */
	    .quality = t->large_right > 0 ? t->right / t->large_right : 1,
	    .large_tokens_saved = t->tokens > 0 ? t->tokens_kept / t->tokens : 0,
	};
}

static bool better(const struct casc_curve_point *p, enum casc_target kind, double target, bool found)
{
	if (kind == CASC_FOR_RATE)
		return p->small_rate + 1e-12 >= target; /* later points are higher thresholds */
	return !found && p->quality + 1e-12 >= target;
}

int casc_calibrate(const struct casc_outcome *outcomes, size_t n, const struct casc_gate *g, enum casc_target kind,
		   double target, struct casc_curve_point *points, size_t n_max, size_t *n_points,
		   struct casc_curve_point *best, struct sl_err *err)
{
	int rc = check(outcomes, n, g, err);
	*n_points = 0;
	if (rc != 0)
		return rc;
	struct kept *kept = sl_zalloc_n(n, sizeof *kept);
	if (kept == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for %zu outcomes", n);
	struct totals t = {.n = n};
	for (size_t i = 0; i < n; i++) {
		const struct casc_outcome *o = &outcomes[i];
		kept[i] = (struct kept){most_kept(g, o), o->n, o->small_right, o->large_right};
		t.right += o->small_right;
		t.large_right += o->large_right;
		t.tokens += o->n;
		t.tokens_kept += o->n;
	}
	qsort(kept, n, sizeof *kept, by_most);
	bool found = false;
	/* Answers kept at threshold 1 can never be escalated. */
	size_t last = kept[n - 1].most < STEPS ? n : n - 1;
	size_t n_cuts = 1, cut = 0;
	for (size_t i = 1; i <= last; i++)
		n_cuts += i == n || kept[i].most > kept[i - 1].most;
	/* Every threshold that changes the outcome, from "none escalated" on. */
	for (size_t i = 0; i <= last; i++) {
		if (i > 0) {
			t.right += (double)kept[i - 1].large_right - (double)kept[i - 1].small_right;
			t.tokens_kept -= kept[i - 1].n;
			if (i < n && kept[i].most == kept[i - 1].most)
				continue;
		}
		/* The highest threshold that keeps the next answer. */
		uint32_t low = i == 0 ? 0 : i < n ? kept[i].most : kept[n - 1].most + 1;
		struct casc_curve_point p = point_at(&t, i, threshold(low));
		if (better(&p, kind, target, found)) {
			*best = p;
			found = true;
		}
		/* If there are too many points, choose evenly, with the first and the last. */
		if (n_cuts <= n_max || n_max < 2 ? cut < n_max : cut * (n_max - 1) / (n_cuts - 1) >= *n_points)
			points[(*n_points)++] = p;
		cut++;
	}
	sl_free(kept);
	return found ? 0 : sl_errf(err, SL_ENOTFOUND, "no threshold reaches %g", target);
}

/* ---- sure, by itself ---- */

/* Tokens held before the answer is shown or escalated. */
static uint32_t held(const struct casc_gate *g, float low, const float *trace, uint32_t n)
{
	uint32_t i = 0;
	for (; i < n; i++) {
		bool final = i + 1 == n || i + 1 >= g->hold_tokens;
		if ((i + 1 >= g->hold_min || final) && (final || trace[i] < low || trace[i] >= low + g->sure_above))
			break;
	}
	return i < n ? i + 1 : n;
}

static size_t count_right(const struct casc_outcome *outcomes, size_t n, const struct casc_gate *g, float low,
			  double *tokens_held)
{
	size_t right = 0;
	*tokens_held = 0;
	for (size_t i = 0; i < n; i++) {
		const struct casc_outcome *o = &outcomes[i];
		right += casc_gate_at(g, low, o->trace, o->n) < 0 ? o->small_right : o->large_right;
		*tokens_held += held(g, low, o->trace, o->n) / (double)n;
	}
	return right;
}

int casc_calibrate_early(const struct casc_outcome *outcomes, size_t n, const struct casc_gate *g, float low,
			 double share, struct casc_early *out, struct sl_err *err)
{
	struct casc_gate early = *g;
	int rc = check(outcomes, n, g, err);
	if (rc != 0)
		return rc;
	*out = (struct casc_early){.sure = 1};
	early.sure_above = 1 - low;
	double least = share * (double)count_right(outcomes, n, &early, low, &out->held_at_1);
	out->held = out->held_at_1;
	for (uint32_t sure = STEPS; sure-- > 0 && threshold(sure) >= low;) {
		double tokens_held;
		early.sure_above = threshold(sure) - low;
		if ((double)count_right(outcomes, n, &early, low, &tokens_held) < least)
			break;
		out->sure = threshold(sure);
		out->held = tokens_held;
	}
	return 0;
}
