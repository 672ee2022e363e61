/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_curve.h"

#include <math.h>
#include <stddef.h>

enum { ROUNDS = 4000 };

static int index_of(const struct plan_curve *c, double rows)
{
	int i = 0;
	while (i < c->n && c->at[i].rows < rows)
		i++;
	return i;
}

/* Numbers of rows, ascending; a first guess of their time. */
static void add_point(struct plan_curve *c, const struct plan_step *s)
{
	int i = index_of(c, s->rows);
	if ((i < c->n && c->at[i].rows == s->rows) || c->n == PLAN_CURVE_POINTS)
		return;
	for (int k = c->n++; k > i; k--)
		c->at[k] = c->at[k - 1];
	c->at[i].rows = s->rows;
	c->at[i].ns = s->ns;
}

static double at_rows(const struct plan_curve *c, double rows)
{
	const int i = index_of(c, rows);
	if (i == 0)
		return c->at[0].ns;
	if (i == c->n)
		return c->at[i - 1].ns * rows / c->at[i - 1].rows;
	const double part = (rows - c->at[i - 1].rows) / (c->at[i].rows - c->at[i - 1].rows);
	return c->at[i - 1].ns + (c->at[i].ns - c->at[i - 1].ns) * part;
}

double plan_curve_ns(const struct plan_curve *c, const struct plan_step *s)
{
	return at_rows(c, s->rows) + s->wanted * c->want_ns + s->past.positions * c->position_ns +
	       s->past.reads * c->read_ns;
}

/* What *unknown is multiplied by in the time of s. */
static double factor(const struct plan_curve *c, const struct plan_step *s, const double *unknown)
{
	if (unknown == &c->want_ns)
		return s->wanted;
	if (unknown == &c->position_ns)
		return s->past.positions;
	if (unknown == &c->read_ns)
		return s->past.reads;
	const int i = index_of(c, s->rows);
	return i < c->n && c->at[i].rows == s->rows && unknown == &c->at[i].ns;
}

/* One unknown at its best, the others as they are. */
static void descend(struct plan_curve *c, const struct plan_step *steps, int n, double *unknown)
{
	double up = 0, down = 0;
	for (int i = 0; i < n; i++) {
		const double x = factor(c, &steps[i], unknown) / steps[i].ns;
		if (x == 0)
			continue;
		const double off = 1 - plan_curve_ns(c, &steps[i]) / steps[i].ns;
		up += x * (off + x * *unknown);
		down += x * x;
	}
	if (down > 0)
		*unknown = fmax(up / down, 0);
}

void plan_curve_fit(struct plan_curve *c, const struct plan_step *steps, int n)
{
	*c = (struct plan_curve){0};
	for (int i = 0; i < n; i++)
		add_point(c, &steps[i]);
	for (int round = 0; round < ROUNDS; round++) {
		descend(c, steps, n, &c->want_ns);
		descend(c, steps, n, &c->position_ns);
		descend(c, steps, n, &c->read_ns);
		for (int i = 0; i < c->n; i++)
			descend(c, steps, n, &c->at[i].ns);
	}
}
