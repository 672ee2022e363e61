/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step takes, as it was measured: ns = f(rows) + wanted · want + positions · position + reads · read. f is known
 * at the numbers of rows that were measured, which are denser than the powers of two of struct cost: kernels change
 * their form between them. A wanted row's logits cost a product with the output matrix, so 16 rows of 16 answers take
 * longer than 16 rows of a prompt. The engine itself knows less (struct cost): a simulated engine plans with what it
 * has learnt and takes what this says.
 */
#ifndef CMD_PLAN_CURVE_H
#define CMD_PLAN_CURVE_H

#include "engine/sched/cost.h"

enum { PLAN_CURVE_POINTS = 20 };

struct plan_step {
	uint32_t rows, wanted;
	struct cost_past past;
	double ns; /* measured */
};

struct plan_curve {
	int n; /* 0: nothing is known */
	struct {
		double rows, ns;
	} at[PLAN_CURVE_POINTS]; /* ascending */
	double want_ns, position_ns, read_ns;
};

/* The non-negative fit with the least sum of squared relative errors. At most PLAN_CURVE_POINTS different numbers of
 * rows; further ones are left out. */
void plan_curve_fit(struct plan_curve *c, const struct plan_step *steps, int n);
/* n > 0. s->ns is not read. */
double plan_curve_ns(const struct plan_curve *c, const struct plan_step *s);

#endif
