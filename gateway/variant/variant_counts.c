/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/variant/variant_counts.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/observe/label.h"
#include "gateway/variant/variant_state.h"

enum { LABEL_BYTES = 4 * VARIANT_NAME_BYTES + 64, MILLI = 1000 };
enum {
	WEIGHT = VARIANT_ENDS,
	ROLLED,
	EVIDENCE,
	SHADOWS = EVIDENCE + TRIAL_CAUSES - 1,
	METRICS_OF_ROW = SHADOWS + SHADOW_COUNTS
};

struct variant_counts {
	char of[VARIANT_NAME_BYTES], name[VARIANT_NAME_BYTES];
	struct metric all[METRICS_OF_ROW];
	char labels[METRICS_OF_ROW][LABEL_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct variant_counts *rows[VARIANT_ROWS];
static size_t n_rows;

/* more: a further label with a comma before it, or "". */
static void fill(struct variant_counts *c, int i, enum metric_kind kind, const char *name, const char *more,
		 const char *help)
{
	char of[2 * VARIANT_NAME_BYTES], variant[2 * VARIANT_NAME_BYTES];
	label_escape(of, sizeof of, c->of);
	label_escape(variant, sizeof variant, c->name);
	snprintf(c->labels[i], LABEL_BYTES, "model=\"%s\",variant=\"%s\"%s", of, variant, more);
	c->all[i] = (struct metric){.kind = kind, .name = name, .labels = c->labels[i], .help = help};
	if (kind == METRIC_GAUGE && i != ROLLED)
		c->all[i].scale = 1.0 / MILLI;
	metric_register(&c->all[i]);
}

static void fill_row(struct variant_counts *c)
{
	static const char *const ends[VARIANT_ENDS] = {[VARIANT_STOP] = ",end=\"stop\"",
						       [VARIANT_LENGTH] = ",end=\"length\"",
						       [VARIANT_LEFT] = ",end=\"left\"",
						       [VARIANT_FAILED] = ",end=\"failed\""};
	char cause[32];
	for (int i = 0; i < VARIANT_ENDS; i++)
		fill(c, i, METRIC_COUNTER, "sluice_variant_answers_total", ends[i],
		     "Answers of a model's variants by how they ended; left: the reader did not wait for the end");
	fill(c, WEIGHT, METRIC_GAUGE, "sluice_variant_weight", "", "The variant's weight in force");
	fill(c, ROLLED, METRIC_GAUGE, "sluice_variant_rolled_back", "", "1: the variant is rolled back");
	for (int k = TRIAL_FAILS; k < TRIAL_CAUSES; k++) {
		snprintf(cause, sizeof cause, ",cause=\"%s\"", trial_cause_name((enum trial_cause)k));
		fill(c, EVIDENCE + k - 1, METRIC_GAUGE, "sluice_variant_evidence", cause,
		     "Evidence that the variant is worse than its base, as a share of what rolls it back");
	}
}

static void fill_shadows(struct variant_counts *c)
{
	static const char copies[] = "Copies of requests that the variant got, by what became of them",
			  differ[] = "Copies whose answer differs from the one that was sent",
			  tokens[] = "Tokens of copies that are done, and of the answers that they copy";
	static const struct {
		const char *name, *more, *help;
	} all[SHADOW_COUNTS] = {
	    [SHADOW_DONE] = {"sluice_variant_shadows_total", ",end=\"done\"", copies},
	    [SHADOW_FAILED] = {"sluice_variant_shadows_total", ",end=\"failed\"", copies},
	    [SHADOW_INTERRUPTED] = {"sluice_variant_shadows_total", ",end=\"interrupted\"", copies},
	    [SHADOW_SKIPPED] = {"sluice_variant_shadows_total", ",end=\"skipped\"", copies},
	    [SHADOW_OTHER_TOKEN] = {"sluice_variant_shadow_differs_total", ",in=\"first_token\"", differ},
	    [SHADOW_OTHER_END] = {"sluice_variant_shadow_differs_total", ",in=\"finish_reason\"", differ},
	    [SHADOW_TOKENS] = {"sluice_variant_shadow_tokens_total", ",of=\"copy\"", tokens},
	    [SHADOW_ANSWER_TOKENS] = {"sluice_variant_shadow_tokens_total", ",of=\"answer\"", tokens},
	};
	for (int i = 0; i < SHADOW_COUNTS; i++)
		fill(c, SHADOWS + i, METRIC_COUNTER, all[i].name, all[i].more, all[i].help);
}

static struct variant_counts *add_row(const char *of, const char *name)
{
	struct variant_counts *c = n_rows < VARIANT_ROWS ? sl_zalloc(sizeof *c) : NULL;
	if (c == NULL)
		return NULL;
	snprintf(c->of, sizeof c->of, "%s", of);
	snprintf(c->name, sizeof c->name, "%s", name);
	fill_row(c);
	fill_shadows(c);
	return rows[n_rows++] = c;
}

struct variant_counts *variant_counts_get(const char *of, const char *name)
{
	struct variant_counts *found = NULL;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_rows && found == NULL; i++)
		if (strcmp(rows[i]->of, of) == 0 && strcmp(rows[i]->name, name) == 0)
			found = rows[i];
	if (found == NULL)
		found = add_row(of, name);
	pthread_mutex_unlock(&lock);
	return found;
}

void variant_counts_add(struct variant_counts *c, enum variant_end end)
{
	if (c != NULL)
		metric_add(&c->all[end], 1);
}

void variant_counts_shadow(struct variant_counts *c, enum variant_shadow what, uint64_t n)
{
	if (c != NULL)
		metric_add(&c->all[SHADOWS + (int)what], (int64_t)n);
}

void variant_counts_show(struct variant_counts *c, double weight, struct variant_state *state)
{
	if (c == NULL)
		return;
	metric_set(&c->all[WEIGHT], llround(weight * MILLI));
	if (state == NULL)
		return;
	const struct variant_view v = variant_state_view(state);
	metric_set(&c->all[ROLLED], v.word.rolled != TRIAL_ALIKE || v.word.by_hand);
	for (int k = TRIAL_FAILS; k < TRIAL_CAUSES; k++)
		metric_set(&c->all[EVIDENCE + k - 1], llround(v.evidence[k] * MILLI));
}
