/* SPDX-License-Identifier: Apache-2.0
 *
 * The features are scaled so that their usual values are near 1. Forgetting stops while there is
 * nothing to learn (steps that are all alike would otherwise blow up the covariance), and a step
 * that took several times what was expected (somebody else's work on the machine) counts as if it
 * had taken three times as long.
 */
#include "engine/cost.h"

#include <math.h>

enum { N = 3 };

static const double unit[N] = {1, 64, 65536};
static const double forget = 0.99, most_trace = 1e3, least_ns = 1;

void cost_init(struct cost *c, double fixed_ns, double row_ns)
{
	*c = (struct cost){.theta = {fixed_ns, row_ns * unit[1], row_ns / 100 * unit[2]}};
	for (int i = 0; i < N; i++)
		c->p[i][i] = 1;
}

void cost_learn(struct cost *c, uint32_t rows, uint64_t positions, double ns)
{
	double x[N] = {1, rows / unit[1], (double)positions / unit[2]}, px[N], gain = 0;
	double expected = cost_step_ns(c, rows, positions);
	if (c->n > 8 && ns > 3 * expected)
		ns = 3 * expected;
	double trace = c->p[0][0] + c->p[1][1] + c->p[2][2];
	double lambda = trace < most_trace ? forget : 1;
	double off = ns;
	for (int i = 0; i < N; i++) {
		px[i] = 0;
		for (int k = 0; k < N; k++)
			px[i] += c->p[i][k] * x[k];
		off -= c->theta[i] * x[i];
	}
	for (int i = 0; i < N; i++)
		gain += x[i] * px[i];
	gain = 1 / (lambda + gain);
	for (int i = 0; i < N; i++) {
		c->theta[i] += gain * px[i] * off;
		for (int k = 0; k < N; k++)
			c->p[i][k] = (c->p[i][k] - gain * px[i] * px[k]) / lambda;
	}
	/* Rounding must not make it lose its symmetry. */
	for (int i = 0; i < N; i++)
		for (int k = 0; k < i; k++)
			c->p[i][k] = c->p[k][i];
	c->n++;
}

static double part(const struct cost *c, int i)
{
	return c->theta[i] > 0 ? c->theta[i] / unit[i] : 0;
}

double cost_fixed_ns(const struct cost *c) { return part(c, 0); }
double cost_position_ns(const struct cost *c) { return part(c, 2); }

double cost_row_ns(const struct cost *c)
{
	double ns = part(c, 1);
	return ns > least_ns ? ns : least_ns;
}

double cost_step_ns(const struct cost *c, uint32_t rows, uint64_t positions)
{
	return cost_fixed_ns(c) + rows * cost_row_ns(c) + (double)positions * cost_position_ns(c);
}

uint32_t cost_rows_within(const struct cost *c, double ns, uint32_t n_past, uint32_t most)
{
	/* a·n²/2 + b·n = ns with a per position and b per row that reads n_past positions. */
	double a = cost_position_ns(c), b = cost_row_ns(c) + a * (n_past + 0.5);
	double n = ns <= 0 ? 0 : a > 0 ? 2 * ns / (b + sqrt(b * b + 2 * a * ns)) : ns / b;
	return n < most ? (uint32_t)n : most;
}

uint32_t cost_knee_rows(const struct cost *c, uint32_t most)
{
	double n = 9 * cost_fixed_ns(c) / cost_row_ns(c);
	return n < 1 ? 1 : n < most ? (uint32_t)n : most;
}
