/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/tune_search.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

struct search {
	const struct tune_grid *g;
	tune_measure *measure;
	void *ctx;
	double *known; /* by point; NAN: not measured */
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

/* After an error: what no point beats. */
static double value_at(struct search *s, const int *at)
{
	int point = 0;
	for (int i = 0; i < s->g->n_knobs; i++)
		point = point * s->g->knobs[i].n + at[i];
	if (s->rc == 0 && isnan(s->known[point])) {
		double v = 0;
		s->rc = s->measure(s->ctx, at, &v);
		s->known[point] = v >= 0 ? v : 0;
		s->out->n_measured++;
	}
	return s->rc == 0 ? s->known[point] : -1;
}

static bool take_if_better(struct search *s, const int *at)
{
	double v = value_at(s, at);
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
	int from[TUNE_KNOBS], at[TUNE_KNOBS];
	bool better = false;
	memcpy(from, s->out->at, sizeof from);
	for (int da = -1; da <= 1; da += 2)
		for (int db = -1; db <= 1; db += 2) {
			memcpy(at, from, sizeof at);
			at[a] += da;
			at[b] += db;
			if (at[a] >= 0 && at[a] < s->g->knobs[a].n && at[b] >= 0 && at[b] < s->g->knobs[b].n)
				better = take_if_better(s, at) || better;
		}
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
	const double least = s->out->best / (1 + gain);
	int at[TUNE_KNOBS];
	for (int i = 0; i < s->g->n_knobs; i++) {
		memcpy(at, s->out->at, sizeof at);
		at[i] = s->g->knobs[i].usual;
		if (at[i] != s->out->at[i] && value_at(s, at) >= least)
			memcpy(s->out->at, at, sizeof at);
	}
	double v = value_at(s, s->out->at);
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
		s.known[i] = NAN;
	for (int i = 0; i < g->n_knobs; i++)
		out->at[i] = g->knobs[i].usual;
	out->usual = out->best = value_at(&s, out->at);
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
