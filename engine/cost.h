/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step costs, learnt from the steps that were made: ns = fixed + rows · per_row +
 * positions · per_position, where positions counts what every row's attention reads. Recursive
 * least squares with forgetting (Ljung, "System Identification", 1999, §11.2), so it follows the
 * machine. One thread.
 */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include <stdint.h>

struct cost {
	double theta[3], p[3][3]; /* in scaled units */
	uint32_t n;
};

/* A first guess, trusted little. */
void cost_init(struct cost *c, double fixed_ns, double row_ns);
void cost_learn(struct cost *c, uint32_t rows, uint64_t positions, double ns);

double cost_fixed_ns(const struct cost *c);
double cost_row_ns(const struct cost *c);
double cost_position_ns(const struct cost *c);
double cost_step_ns(const struct cost *c, uint32_t rows, uint64_t positions);

/* Positions that n rows read which begin after n_past tokens. */
static inline uint64_t cost_positions(uint64_t n_past, uint64_t n)
{
	return n * n_past + n * (n + 1) / 2;
}

/* How many rows after n_past tokens add at most ns to a step; at most `most`. */
uint32_t cost_rows_within(const struct cost *c, double ns, uint32_t n_past, uint32_t most);
/* Rows at which a step reaches 90 % of the throughput that it could have with endless rows:
 * n / (fixed + n · row) = 0.9 / row. */
uint32_t cost_knee_rows(const struct cost *c, uint32_t most);

#endif
