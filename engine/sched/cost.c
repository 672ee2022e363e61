/* SPDX-License-Identifier: Apache-2.0
 *
 * The features of the line are scaled so that their usual values are near 1. Steps are often nearly identical for a
 * long time, and many lines then fit equally well. So a few rounds of coordinate descent continue from the previous
 * solution (each coordinate at its best, or 0; conditions in Lawson, Hanson, "Solving Least Squares Problems", 1974),
 * which moves no coordinate without evidence. A step far slower than expected (other processes on the machine) counts
 * as three times the expectation; one at a third or less shows that the earlier ones were slowed down, and counts with
 * half weight. Where the curve has no points yet, the line is used.
 */
#include "engine/sched/cost.h"

#include <math.h>
#include <stddef.h>

enum { N = 4 };

static const double unit[N] = {1, 64, 65536, 65536};
static const double forget = 0.995, least_ns = 1, recent = 0.1, trust = 0.01, quick = 0.5;

void cost_init(struct cost *c, double fixed_ns, double row_ns)
{
	*c = (struct cost){.theta = {fixed_ns, row_ns * unit[1], row_ns / 200 * unit[2], row_ns / 200 * unit[3]}};
	/* As if each share had been seen by itself, in a hundredth of a step. */
	for (int i = 0; i < N; i++) {
		c->a[i][i] = trust / (fixed_ns * fixed_ns);
		c->b[i] = c->a[i][i] * c->theta[i];
	}
}

static double part(const struct cost *c, int i) { return c->theta[i] / unit[i]; }

double cost_past_ns(const struct cost *c, struct cost_past past)
{
	return past.positions * part(c, 2) + past.reads * part(c, 3);
}

static double line_ns(const struct cost *c, double rows)
{
	double ns = part(c, 0) + rows * part(c, 1);
	return ns > least_ns ? ns : least_ns;
}

double cost_rows_ns(const struct cost *c, double rows)
{
	const struct cost_point *below = NULL, *above = NULL;
	for (int i = 0; i < COST_POINTS; i++) {
		const struct cost_point *p = &c->points[i];
		if (p->rows == 0)
			continue;
		if (p->rows <= rows)
			below = p;
		else {
			above = p;
			break;
		}
	}
	if (below == NULL && above == NULL)
		return line_ns(c, rows);
	if (below == NULL) {
		/* Fewer rows than ever measured: no more expensive, and hardly cheaper. */
		double ns = line_ns(c, rows);
		return ns < above->ns ? ns : above->ns;
	}
	if (above == NULL)
		return below->ns * (rows / below->rows);
	double part_above = (rows - below->rows) / (above->rows - below->rows);
	return below->ns + (above->ns - below->ns) * part_above;
}

double cost_step_ns(const struct cost *c, uint32_t rows, struct cost_past past)
{
	return cost_rows_ns(c, rows) + cost_past_ns(c, past);
}

static void learn_line(struct cost *c, const double x[N], double ns)
{
	enum { ROUNDS = 4 };
	double weight = 1 / (ns * ns);
	for (int i = 0; i < N; i++) {
		for (int k = 0; k < N; k++)
			c->a[i][k] = forget * c->a[i][k] + weight * x[i] * x[k];
		c->b[i] = forget * c->b[i] + weight * x[i] * ns;
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < N; i++) {
			double off = c->b[i];
			for (int k = 0; k < N; k++)
				off -= c->a[i][k] * c->theta[k];
			double at = c->a[i][i] > 0 ? c->theta[i] + off / c->a[i][i] : c->theta[i];
			c->theta[i] = at > 0 ? at : 0;
		}
	}
}

static int index_of(uint32_t rows)
{
	int i = 0;
	while (i + 1 < COST_POINTS && rows >= 2u << i)
		i++;
	return i;
}

struct cost_point *cost_point_of(struct cost *c, uint32_t rows) { return &c->points[index_of(rows)]; }

bool cost_point_seen(const struct cost *c, uint32_t rows) { return c->points[index_of(rows)].n_seen > 0; }

void cost_guess(struct cost *c, uint32_t rows, double ns)
{
	*cost_point_of(c, rows) = (struct cost_point){.rows = rows, .ns = ns > least_ns ? ns : least_ns, .last = c->n};
}

static void move_guesses(struct cost *c, double factor)
{
	for (int i = 0; i < COST_POINTS; i++)
		if (c->points[i].rows > 0 && c->points[i].n_seen == 0)
			c->points[i].ns *= factor;
}

static bool is_stale(const struct cost *c, const struct cost_point *p) { return c->n - p->last > COST_STALE; }

/* Fewer rows cost no more than more. */
static void lower_stale(struct cost *c, const struct cost_point *to)
{
	for (struct cost_point *p = c->points; p < to; p++)
		if (p->rows > 0 && p->ns > to->ns && is_stale(c, p))
			p->ns = to->ns;
}

static void learn_point(struct cost *c, uint32_t rows, double ns, double part_of_it)
{
	struct cost_point *p = cost_point_of(c, rows);
	if (p->rows == 0) {
		*p = (struct cost_point){.rows = rows, .ns = ns, .n_seen = COST_SETTLED, .last = c->n};
		return;
	}
	double expected = cost_rows_ns(c, rows), weight = part_of_it;
	if (p->n_seen < COST_SETTLED) {
		weight = p->n_seen == 0 && ns < expected ? 1 : 1.0 / (p->n_seen + 2);
		p->n_seen++;
	} else if (is_stale(c, p) && ns < expected) {
		weight = quick;
	}
	p->last = c->n;
	p->rows += weight * (rows - p->rows);
	p->ns += weight * (ns - p->ns);
	lower_stale(c, p);
	move_guesses(c, 1 + weight * (ns / expected - 1));
}

void cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns)
{
	if (!(ns >= least_ns))
		ns = least_ns;
	const double x[N] = {1, rows / unit[1], past.positions / unit[2], past.reads / unit[3]};
	double expected = cost_step_ns(c, rows, past);
	if (c->n > 8 && ns > 3 * expected)
		ns = 3 * expected;
	learn_line(c, x, ns);
	double own = ns - cost_past_ns(c, past);
	learn_point(c, rows, own > ns / 8 ? own : ns / 8, ns < expected / 3 ? quick : recent);
	c->n++;
}

double cost_added_ns(const struct cost *c, uint32_t beside, uint32_t n_past, uint32_t n)
{
	double before = beside > 0 ? cost_rows_ns(c, beside) : 0;
	double added = cost_rows_ns(c, (double)beside + n) - before;
	const struct cost_past past = {.positions = (double)cost_positions(n_past, n), .reads = (double)n_past + n};
	return (added > 0 ? added : 0) + (n > 0 ? cost_past_ns(c, past) : 0);
}

uint32_t cost_rows_within(const struct cost *c, uint32_t beside, double ns, uint32_t n_past, uint32_t most)
{
	uint32_t lo = 0, hi = most;
	while (lo < hi) {
		uint32_t n = lo + (hi - lo + 1) / 2;
		if (cost_added_ns(c, beside, n_past, n) <= ns)
			lo = n;
		else
			hi = n - 1;
	}
	return lo;
}

uint32_t cost_knee_rows(const struct cost *c, uint32_t most, double part)
{
	double best = 0;
	for (uint32_t n = most; n > 0; n /= 2) {
		double speed = n / cost_rows_ns(c, n);
		best = speed > best ? speed : best;
	}
	uint32_t n = 1;
	while (n < most && n / cost_rows_ns(c, n) < part * best)
		n += n / 8 + 1;
	return n < most ? n : most;
}

void cost_bias_learn(struct cost_bias *b, double predicted_ns, double true_ns)
{
	static const double step = 0.04, least = -0.7, most = 1.1;
	b->log += true_ns > predicted_ns ? step : -step;
	b->log = b->log < least ? least : b->log > most ? most : b->log;
}

double cost_bias_factor(const struct cost_bias *b) { return exp(b->log); }
