/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/clock.h"
#include "cmd/plan/tune.h"

/* An engine's defaults on a processor (etc/sluice.yaml). */
enum { USUAL_CHUNK = 128, USUAL_ITL_MS = 50, USUAL_DRAFT = 8 };

/* Adds a value, ascending, unless it is there already. Returns its index; -1: no room. */
static int add(struct tune_knob *k, double value)
{
	int at = 0;
	while (at < k->n && k->values[at] < value)
		at++;
	if (at < k->n && k->values[at] == value)
		return at;
	if (k->n == TUNE_VALUES)
		return -1;
	for (int i = k->n++; i > at; i--)
		k->values[i] = k->values[i - 1];
	k->values[at] = value;
	return at;
}

static void knob(struct tune_knob *k, const char *name, const double *values, int n, double usual, double least)
{
	*k = (struct tune_knob){.name = name};
	(void)add(k, usual);
	for (int i = 0; i < n; i++)
		if (values[i] >= least)
			(void)add(k, values[i]);
	k->usual = add(k, usual);
}

void tune_case_init(struct tune_case *c, const struct plan_ask *ask, const struct plan_costs *costs, double accept)
{
	static const double chunks[] = {32, 64, 128, 256, 512}, parts[] = {0, 0.1, 0.25, 0.5, 1, 2},
			    shares[] = {0.25, 0.5, 1}, drafts[] = {0, 2, 4, 8, 16};
	double itl[sizeof parts / sizeof *parts], sequences[4], memory[sizeof shares / sizeof *shares];
	const double target = ask->slo.tpot_ms > 0 ? ask->slo.tpot_ms : 250;
	*c = (struct tune_case){.ask = ask, .box = plan_box_of(ask, costs, 1)};
	c->page_bytes = costs->kv_bytes * PLAN_PAGE;
	for (size_t i = 0; i < sizeof itl / sizeof *itl; i++)
		itl[i] = round(parts[i] * target);
	for (int i = 0; i < 4; i++)
		sequences[i] = fmax(1, round(ask->sequences * pow(2, i < 2 ? i - 2 : i - 1)));
	for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
		memory[i] = round(ask->kv_memory * shares[i]);
	/* The longest request fits, and another one beside it. */
	const double least_mib = 2 * (plan_longest(ask) + 2 * PLAN_PAGE) * costs->kv_bytes / (1 << 20);
	struct tune_knob *k = c->grid.knobs;
	knob(&k[TUNE_CHUNK], "step_tokens", chunks, 5, USUAL_CHUNK, 0);
	knob(&k[TUNE_ITL], "itl_target", itl, 6, USUAL_ITL_MS, 0);
	knob(&k[TUNE_SEQUENCES], "max_sequences", sequences, 4, ask->sequences, 0);
	knob(&k[TUNE_MEMORY], "kv_memory", memory, 3, ask->kv_memory, least_mib);
	knob(&k[TUNE_DRAFT], "max_draft", drafts, accept > 0 ? 5 : 0, USUAL_DRAFT, 0);
	c->grid.n_knobs = TUNE_KNOBS;
	c->box.accept = accept;
}

struct plan_box tune_box(const struct tune_case *c, const int *at)
{
	const struct tune_knob *k = c->grid.knobs;
	struct plan_box b = c->box;
	b.step_tokens = (uint32_t)k[TUNE_CHUNK].values[at[TUNE_CHUNK]];
	b.itl_target_ns = (uint64_t)k[TUNE_ITL].values[at[TUNE_ITL]] * NS_PER_MS;
	b.max_sequences = (uint32_t)k[TUNE_SEQUENCES].values[at[TUNE_SEQUENCES]];
	b.n_pages = (uint32_t)fmin(1e9, k[TUNE_MEMORY].values[at[TUNE_MEMORY]] * (1 << 20) / c->page_bytes);
	b.max_draft = b.accept > 0 ? (uint32_t)k[TUNE_DRAFT].values[at[TUNE_DRAFT]] : 0;
	return b;
}

/* A rate this much above the floor tells at once whether a point is worth its search. */
static const double clearly = 1.005;

int tune_rate(void *ctx, const int *at, double floor, double *out)
{
	struct tune_case *c = ctx;
	const struct plan_arrangement a = {.box = tune_box(c, at), .n_engines = 1};
	struct plan_found found = {0};
	bool carried = true;
	int rc = floor > 0 ? plan_carries(c->ask, &a, floor * clearly, &carried) : 0;
	if (rc == 0 && carried)
		rc = plan_find(c->ask, &a, &found);
	*out = found.sweep.passed;
	if (c->told != NULL)
		c->told(++c->n_told);
	return rc;
}
