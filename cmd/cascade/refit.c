/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts are rare in a log, so the large model's check counts as one: where it took over from the small model,
 * whether it agreed with what that had written; where the small model's confidence let it finish a checked answer, that
 * it was good enough. Refused, failed and unchecked answers say nothing.
 */
#include "cmd/cascade/refit.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cmd/cascade/outcomes.h"

enum { MOST_OUTCOMES = 200000 /* the newest */ };

static enum verdict verdict_of(const struct outcome *x)
{
	if (x->small_right != VERDICT_NONE)
		return (enum verdict)x->small_right;
	if (x->escalated == CASC_FOR_FAILURE || x->cost.refused > 0)
		return VERDICT_NONE;
	if (x->escalated > CASC_NOT_ESCALATED)
		return x->cost.offered == 0                 ? VERDICT_NONE
		       : x->cost.accepted < x->cost.offered ? VERDICT_WRONG
							    : VERDICT_RIGHT;
	return x->plan == CASC_PLAN_CHECK && x->cost.small_only > 0 ? VERDICT_RIGHT : VERDICT_NONE;
}

struct gathered {
	struct casc_example *examples, *all;
	size_t n, n_all;
};

static void gather(const struct outcomes *o, struct gathered *g)
{
	size_t from = o->n > MOST_OUTCOMES ? o->n - MOST_OUTCOMES : 0;
	for (size_t i = from; i < o->n; i++) {
		const struct outcome *x = &o->at[i];
		enum verdict v = verdict_of(x);
		if (x->dense == NULL)
			continue;
		struct casc_example e = {x->dense, x->grams, x->n_grams, v == VERDICT_WRONG};
		g->all[g->n_all++] = e;
		if (v != VERDICT_NONE)
			g->examples[g->n++] = e;
	}
}

static void print(const struct refit_ask *a, const struct gathered *g, const struct casc_refit *r)
{
	static const char *const names[] = {"taken", "few", "worse"};
	static const char *const texts[] = {"replaced: the new weights are better",
					    "kept: there are too few outcomes of one kind",
					    "kept: the new weights are not better than chance explains"};
	if (a->json)
		printf("{\"end\":\"%s\",\"outcomes\":%zu,\"with_verdict\":%zu,\"loss\":%.6f,\"new_loss\":%.6f,"
		       "\"gain\":%.6f,\"error\":%.6f,\"easy\":%.4f,\"hard\":%.4f}\n",
		       names[r->end], g->n_all, g->n, r->now, r->fresh, r->gain, r->error, (double)r->easy,
		       (double)r->hard);
	else
		printf("%s (%zu outcomes, %zu with a verdict; loss on the newest %.4f, with the new weights %.4f, "
		       "difference %.4f, its error %.4f)\n",
		       texts[r->end], g->n_all, g->n, r->now, r->fresh, r->gain, r->error);
	if (!a->json && r->end == CASC_REFIT_TAKEN)
		printf("thresholds that pay: easy %.4f, hard %.4f\nreload the server to use them\n", (double)r->easy,
		       (double)r->hard);
}

static int present_weights(const struct refit_ask *a, struct casc_weights **out, struct sl_err *err)
{
	if (access(a->weights, F_OK) == 0)
		return casc_weights_read(a->weights, out, err);
	*out = casc_weights_usual(a->settings.train.bits);
	return *out != NULL ? 0 : sl_errf(err, SL_ENOMEM, "no memory for weights");
}

static int fit(const struct refit_ask *a, const struct outcomes *o, struct sl_err *err)
{
	struct casc_refit r = {0};
	struct casc_weights *now = NULL, *fresh = NULL;
	struct gathered g = {.examples = sl_zalloc_n(o->n + 1, sizeof *g.examples),
			     .all = sl_zalloc_n(o->n + 1, sizeof *g.all)};
	bool room = g.examples != NULL && g.all != NULL;
	int rc = room ? present_weights(a, &now, err) : sl_errf(err, SL_ENOMEM, "no memory for %zu outcomes", o->n);
	if (rc == 0) {
		gather(o, &g);
		size_t n_recent = (size_t)((double)g.n_all * a->settings.newest);
		rc = casc_refit(g.examples, g.n, g.all + g.n_all - n_recent, n_recent, now, &a->settings, &fresh, &r,
				err);
	}
	if (rc == 0 && fresh != NULL)
		rc = casc_weights_write(fresh, a->weights, true, err);
	if (rc == 0)
		print(a, &g, &r);
	casc_weights_destroy(now);
	casc_weights_destroy(fresh);
	sl_free(g.examples);
	sl_free(g.all);
	return rc != 0 ? 1 : r.end == CASC_REFIT_TAKEN ? 0 : REFIT_EXIT_KEPT;
}

int refit_run(const struct refit_ask *a, struct sl_err *err)
{
	struct outcomes o = {0};
	char former[4200];
	int n = snprintf(former, sizeof former, "%s.1", a->log), rc = 0;
	if (n > 0 && (size_t)n < sizeof former && access(former, R_OK) == 0)
		rc = outcomes_read(former, &o, err);
	if (rc == 0)
		rc = outcomes_add(a->log, &o, err);
	if (rc != 0)
		return 1;
	rc = fit(a, &o, err);
	outcomes_dispose(&o);
	return rc;
}
