/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "gateway/planner/planner.h"

static const double saturated = 0.95;
static const double ahead_s = 10; /* how far growing backlogs are foreseen */
static const double most_stretch = 50;
static const double most_settled = 1.5; /* that a target will be missed is known, not by how much */
static const double kv_full = 0.9, well_used = 0.9, queue_full = 16;

/* Mean wait for one of n servers in computations' times, at this use. */
static double queue_at(double use, int n)
{
	double u = use < saturated ? use : saturated;
	return pow(u, sqrt(2.0 * (n + 1)) - 1) / (n * (1 - u)) / 2;
}

/* How much longer a step takes with prompts computed in between for this share of the time. */
static double stretch(double share)
{
	double rest = 1 - share;
	return rest > 1 / most_stretch ? 1 / rest : most_stretch * (1 + share);
}

/* The part of computing that hides behind reading weights. */
static double hidden(const struct planner_load *l) { return l->row_us > 0 ? 1 - l->decode_us / l->row_us : 0; }

/* The share of its time that an engine which also decodes `rows` has for prompts. */
static double time_for_prompts(const struct planner_load *l, double rows)
{
	const double reading = (1 - hidden(l)) * l->fixed_us, decodes = l->row_us * rows;
	double share = l->tpot_us > 0 ? 1 - (reading + decodes) / l->tpot_us : 0.5;
	return share > 1 / most_stretch ? share : 1 / most_stretch;
}

/* How much longer steps take with prompts and decodes of these shares of the time. */
static double stretch_by(const struct planner_load *l, double prompts, double decodes)
{
	double all = prompts + decodes, seen = (1 - hidden(l)) * prompts + decodes * (1 - hidden(l));
	return stretch(all > saturated ? all : seen);
}

static double first_token(const struct planner_load *l, int n, double share)
{
	double one_us = l->long_mean * l->prompt_us / share, use = l->long_rate * l->prompt_us / 1e6 / n / share;
	double us = one_us * (1 + 2 * queue_at(use, n)) + l->backlog * one_us / n;
	us += fmax(use - 1, 0) * ahead_s * 1e6;
	return l->ttft_us > 0 ? us / l->ttft_us : use / well_used;
}

/* Time per token with so many rows, and where they settle: step = fixed + row · rate · step, by Little's law. */
static double per_token(const struct planner_load *l, int n, double rows, double prompts)
{
	double now = (l->fixed_us + l->decode_us * rows) * stretch_by(l, prompts, 0);
	double settled = l->fixed_us * stretch_by(l, prompts, l->decode_rate * l->row_us / 1e6 / n);
	return fmax(now / l->tpot_us, fmin(settled / l->tpot_us, most_settled));
}

struct planner_pressure planner_predict(const struct planner_load *l, int n_prefill)
{
	struct planner_pressure p = {0};
	int n = l->n - n_prefill;
	double rows = (l->rows + l->waits) / n;
	double tokens = l->short_rate + (n_prefill == 0 ? l->long_rate : 0);
	if (l->long_mean > 0)
		p.ttft = n_prefill > 0 ? first_token(l, n_prefill, 1) : first_token(l, n, time_for_prompts(l, rows));
	if (l->tpot_us > 0)
		p.tpot = per_token(l, n, rows, tokens * l->row_us / 1e6 / n);
	p.kv = l->kv / n / kv_full;
	p.queue = l->waits / n / queue_full;
	return p;
}

enum planner_why planner_worst(const struct planner_pressure *p)
{
	enum planner_why why = PLANNER_TTFT;
	double most = p->ttft;
	const double others[] = {p->tpot, p->kv, p->queue};
	for (int i = 0; i < 3; i++)
		if (others[i] > most) {
			most = others[i];
			why = (enum planner_why)(PLANNER_TPOT + i);
		}
	return why;
}

double planner_most(const struct planner_pressure *p) { return fmax(fmax(p->ttft, p->tpot), fmax(p->kv, p->queue)); }
