/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights fitted again to newer outcomes, and whether they are better than the present ones. Both are judged on
 * outcomes that are newer than any that either was fitted to, since that is what they are for; the paired difference of
 * their losses has a far smaller error than either loss.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cascade/learn.h"

static const double z = 1.959964; /* the normal distribution's, two-sided 95 % */
static const double sure = 2;     /* standard errors by which the fresh weights must be better */

struct judged {
	float score;
	bool hard;
};

static float score_of(const struct casc_weights *w, const struct casc_example *e)
{
	return casc_sigmoid(casc_weights_logit(w, e->dense, e->grams, e->n_grams));
}

static double loss_of(float score, bool hard)
{
	double p = hard ? (double)score : 1 - (double)score;
	return -log(p > 1e-12 ? p : 1e-12);
}

/* ---- thresholds ---- */

/* Wilson's bounds of a share: k of n. */
static double wilson(double k, double n, double sign)
{
	double p = k / n, middle = p + z * z / (2 * n), half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
	return (middle + sign * half) / (1 + z * z / n);
}

void casc_thresholds(const float *scores, const bool *hard, size_t n, double small_cost, double tolerance,
		     float *easy_at, float *hard_at)
{
	double below = 0, above = 0;
	*easy_at = 0;
	*hard_at = 1;
	for (size_t i = 0; i < n; i++) {
		below += hard[i];
		bool last = i + 1 == n || scores[i + 1] > scores[i];
		if (last && i + 1 < n && wilson(below, (double)i + 1, 1) <= tolerance)
			*easy_at = scores[i + 1];
	}
	for (size_t i = n; i-- > 0;) {
		above += hard[i];
		bool first = i == 0 || scores[i - 1] < scores[i];
		if (first && small_cost + wilson(above, (double)(n - i), -1) > 1)
			*hard_at = scores[i];
	}
	*easy_at = *easy_at < *hard_at ? *easy_at : *hard_at;
}

static int by_score(const void *a, const void *b)
{
	float x = ((const struct judged *)a)->score, y = ((const struct judged *)b)->score;
	return x < y ? -1 : x > y;
}

static int find_thresholds(const struct casc_weights *w, const struct casc_example *e, size_t n,
			   const struct casc_refit_settings *s, struct casc_refit *r)
{
	struct judged *all = sl_zalloc_n(n, sizeof *all);
	float *scores = sl_zalloc_n(n, sizeof *scores);
	bool *hard = sl_zalloc_n(n, sizeof *hard);
	bool good = all != NULL && scores != NULL && hard != NULL;
	for (size_t i = 0; good && i < n; i++)
		all[i] = (struct judged){score_of(w, &e[i]), e[i].hard};
	if (good)
		qsort(all, n, sizeof *all, by_score);
	for (size_t i = 0; good && i < n; i++) {
		scores[i] = all[i].score;
		hard[i] = all[i].hard;
	}
	if (good)
		casc_thresholds(scores, hard, n, s->small_cost, s->tolerance, &r->easy, &r->hard);
	sl_free(all);
	sl_free(scores);
	sl_free(hard);
	return good ? 0 : SL_ENOMEM;
}

/* ---- comparison ---- */

static void compare(const struct casc_weights *now, const struct casc_weights *fresh, const struct casc_example *e,
		    size_t n, struct casc_refit *r)
{
	double sum = 0, squares = 0;
	for (size_t i = 0; i < n; i++) {
		double before = loss_of(score_of(now, &e[i]), e[i].hard),
		       after = loss_of(score_of(fresh, &e[i]), e[i].hard);
		double saved = before - after;
		r->now += before / (double)n;
		r->fresh += after / (double)n;
		sum += saved;
		squares += saved * saved;
	}
	r->gain = sum / (double)n;
	double variance = squares / (double)n - r->gain * r->gain;
	r->error = sqrt((variance > 0 ? variance : 0) / (double)(n - 1));
}

static void refer(struct casc_weights *w, const struct casc_example *recent, size_t n, const struct casc_refit *r)
{
	double counts[CASC_DRIFT_BINS] = {0};
	for (size_t i = 0; i < n; i++) {
		int bin = (int)(score_of(w, &recent[i]) * (float)CASC_DRIFT_BINS);
		counts[bin < CASC_DRIFT_BINS ? bin : CASC_DRIFT_BINS - 1] += 1;
	}
	w->ref =
	    (struct casc_reference){.n = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX, .easy = r->easy, .hard = r->hard};
	for (int i = 0; i < CASC_DRIFT_BINS && n > 0; i++)
		w->ref.share[i] = (float)(counts[i] / (double)n);
}

static bool has_enough(const struct casc_example *e, size_t n, uint32_t least)
{
	size_t hard = 0;
	for (size_t i = 0; i < n; i++)
		hard += e[i].hard;
	return n >= 2 && hard >= least && n - hard >= least;
}

int casc_refit(const struct casc_example *examples, size_t n, const struct casc_example *recent, size_t n_recent,
	       const struct casc_weights *now, const struct casc_refit_settings *s, struct casc_weights **out,
	       struct casc_refit *r, struct sl_err *err)
{
	struct casc_train_settings train = s->train;
	struct casc_weights *fresh = NULL;
	struct casc_fit fit, none;
	*out = NULL;
	*r = (struct casc_refit){.end = CASC_REFIT_FEW, .hard = 1};
	if (!(s->newest > 0 && s->newest <= 0.5) || s->least < 1 || !(s->small_cost >= 0 && s->small_cost <= 1) ||
	    !(s->tolerance >= 0 && s->tolerance < 1))
		return sl_errf(
		    err, SL_EINVAL,
		    "newest must be above 0 and at most 0.5, least at least 1, small_cost and tolerance from 0 to 1");
	size_t n_new = (size_t)((double)n * s->newest), n_old = n - n_new;
	if (!has_enough(examples + n_old, n_new, s->least) || !has_enough(examples, n_old, s->least))
		return 0;
	train.held_out = 0;
	int rc = casc_train(examples, n_old, &train, &fresh, &fit, &none, err);
	if (rc != 0)
		return rc;
	compare(now, fresh, examples + n_old, n_new, r);
	r->end = r->gain > sure * r->error ? CASC_REFIT_TAKEN : CASC_REFIT_WORSE;
	if (r->end == CASC_REFIT_TAKEN)
		rc = find_thresholds(fresh, examples + n_old, n_new, s, r);
	if (r->end != CASC_REFIT_TAKEN || rc != 0) {
		casc_weights_destroy(fresh);
		return rc == 0 ? 0 : sl_errf(err, rc, "no memory for %zu outcomes", n);
	}
	refer(fresh, recent, n_recent, r);
	*out = fresh;
	return 0;
}
