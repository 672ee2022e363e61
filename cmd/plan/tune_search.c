/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/tune_search.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

struct value {
	double is, not_above; /* NAN: not measured */
};

struct search {
	const struct tune_grid *g;
	tune_measure *measure;
	void *ctx;
	struct value *known; /* by point */
	struct tune_result *out;
	int rc;
};

static int n_points(const struct tune_grid *g)
{
	long n = 1;
	for (int i = 0; i < g->n_knobs && n <= TUNE_POINTS; i++)
		n *= g->knobs[i].n;
	return n <= TUNE_POINTS ? (int)n : -1;
}

static bool is_sound(const struct tune_grid *g)
{
	if (g->n_knobs < 1 || g->n_knobs > TUNE_KNOBS)
		return false;
	for (int i = 0; i < g->n_knobs; i++) {
		const struct tune_knob *k = &g->knobs[i];
		if (k->n < 1 || k->n > TUNE_VALUES || k->usual < 0 || k->usual >= k->n)
			return false;
	}
	return n_points(g) > 0;
}

/* Exact if above `floor`. After an error: what no point beats. */
static double value_at(struct search *s, const int *at, double floor)
{
	int point = 0;
	for (int i = 0; i < s->g->n_knobs; i++)
		point = point * s->g->knobs[i].n + at[i];
	struct value *k = &s->known[point];
	if (s->rc != 0)
		return -1;
	if (!isnan(k->is))
		return k->is;
	if (k->not_above <= floor) /* not of NAN */
		return k->not_above;
	double v = 0;
	s->rc = s->measure(s->ctx, at, floor, &v);
	s->out->n_measured++;
	if (s->rc != 0)
		return -1;
	if (v > floor)
		return k->is = v;
	return k->not_above = floor;
}

static bool take_if_better(struct search *s, const int *at)
{
	double v = value_at(s, at, s->out->best);
	if (v <= s->out->best)
		return false;
	s->out->best = v;
	memcpy(s->out->at, at, sizeof s->out->at);
	return true;
}

static bool improve_knob(struct search *s, int knob)
{
	int at[TUNE_KNOBS];
	bool better = false;
	memcpy(at, s->out->at, sizeof at);
	for (at[knob] = 0; at[knob] < s->g->knobs[knob].n; at[knob]++)
		better = take_if_better(s, at) || better;
	return better;
}

static bool improve_pair(struct search *s, int a, int b)
{
	int at[TUNE_KNOBS];
	bool better = false;
	memcpy(at, s->out->at, sizeof at);
	for (at[a] = 0; at[a] < s->g->knobs[a].n; at[a]++)
		for (at[b] = 0; at[b] < s->g->knobs[b].n; at[b]++)
			better = take_if_better(s, at) || better;
	return better;
}

static void descend(struct search *s)
{
	const int n = s->g->n_knobs;
	bool better;
	do {
		better = false;
		for (int i = 0; i < n; i++)
			better = improve_knob(s, i) || better;
		for (int a = 0; a < n && !better; a++)
			for (int b = a + 1; b < n && !better; b++)
				better = improve_pair(s, a, b);
	} while (better && s->rc == 0);
}

/* Each knob goes back to its default while that loses less than the gain asked for. */
static void settle(struct search *s, double gain)
{
	const double least = s->out->best / (1 + gain) * (1 - 1e-9);
	int at[TUNE_KNOBS];
	for (int i = 0; i < s->g->n_knobs; i++) {
		memcpy(at, s->out->at, sizeof at);
		at[i] = s->g->knobs[i].usual;
		if (at[i] != s->out->at[i] && value_at(s, at, least) > least)
			memcpy(s->out->at, at, sizeof at);
	}
	double v = value_at(s, s->out->at, 0);
	s->out->best = v > 0 ? v : s->out->best;
}

int tune_search(const struct tune_grid *g, double gain, tune_measure *measure, void *ctx, struct tune_result *out)
{
	struct search s = {.g = g, .measure = measure, .ctx = ctx, .out = out};
	*out = (struct tune_result){0};
	if (!is_sound(g))
		return SL_EINVAL;
	const int n = n_points(g);
	s.known = sl_zalloc_n((size_t)n, sizeof *s.known);
	if (s.known == NULL)
		return SL_ENOMEM;
	for (int i = 0; i < n; i++)
		s.known[i] = (struct value){NAN, NAN};
	for (int i = 0; i < g->n_knobs; i++)
		out->at[i] = g->knobs[i].usual;
	out->usual = out->best = value_at(&s, out->at, 0);
	descend(&s);
	settle(&s, gain);
	if (out->best < out->usual) { /* what was given up for defaults was more than they gain */
		for (int i = 0; i < g->n_knobs; i++)
			out->at[i] = g->knobs[i].usual;
		out->best = out->usual;
	}
	sl_free(s.known);
	return s.rc;
}
