/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of a step, learnt from measured steps: ns = f(rows) + positions · per_position + reads · per_read. Positions
 * counts what every row attends to, which costs arithmetic; reads counts the positions of each sequence once, however
 * many of its rows attend to them, which costs memory bandwidth: a small chunk far into a long prompt is expensive in
 * reads. f is a curve, not a line: few rows cost what reading the weights costs, many rows are computed side by side.
 * It is kept as a moving average for each power of two of rows, and read between them by interpolation; the other
 * coefficients are the non-negative least squares fit of relative errors, with forgetting. So it adapts to the machine.
 *
 * A point may begin as a guess. Until a step of its rows is measured, a guess moves in proportion with the points that
 * are, since a machine is mostly slower or faster as a whole. The first measurement below a guess replaces it (other
 * work slows steps down, never up), one above it counts as much; the next ones count as in an average, until there are
 * COST_SETTLED. A measurement below a point that none was made of for COST_STALE steps counts half: what slowed the
 * machine then is over, for such points of fewer rows as well. One thread.
 */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include <stdbool.h>
#include <stdint.h>

enum { COST_POINTS = 14 /* 1, 2, 4 … 8192 rows */, COST_SETTLED = 10, COST_STALE = 48 };

struct cost_point {
	double rows, ns;  /* averages of the steps with so many rows; rows 0: none yet */
	uint8_t n_seen;   /* measurements since it was a guess, at most COST_SETTLED; of others COST_SETTLED */
	int8_t n_outside; /* successive outliers above (> 0) or below (spec_cost_learn) */
	uint32_t last;    /* cost.n at its last measurement */
};

struct cost {
	/* Of the line through the steps: fixed, rows, positions, reads, in scaled units; and the normal
	 * equations it solves. */
	double theta[4], a[4][4], b[4];
	uint32_t n;
	struct cost_point points[COST_POINTS];
};

/* Attention of a step. */
struct cost_past {
	double positions, reads;
};

/* A first guess, trusted little. */
void cost_init(struct cost *c, double fixed_ns, double row_ns);
void cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns);
/* Replaces what is known of steps of so many rows, without attention, by a guess. */
void cost_guess(struct cost *c, uint32_t rows, double ns);
/* The point of steps of so many rows; whether it has been measured. */
struct cost_point *cost_point_of(struct cost *c, uint32_t rows);
bool cost_point_seen(const struct cost *c, uint32_t rows);

/* What attention costs; a step of so many rows without it; and with it. */
double cost_past_ns(const struct cost *c, struct cost_past past);
double cost_rows_ns(const struct cost *c, double rows);
double cost_step_ns(const struct cost *c, uint32_t rows, struct cost_past past);

/* Positions that n rows read after n_past tokens. */
static inline uint64_t cost_positions(uint64_t n_past, uint64_t n) { return n * n_past + n * (n + 1) / 2; }

/* What n rows after n_past tokens add to a step that has `beside` rows already. */
double cost_added_ns(const struct cost *c, uint32_t beside, uint32_t n_past, uint32_t n);
/* How many rows may be added so that it is at most ns; at most `most`. */
uint32_t cost_rows_within(const struct cost *c, uint32_t beside, double ns, uint32_t n_past, uint32_t most);
/* The fewest rows that reach this share of the best throughput of steps up to `most`. */
uint32_t cost_knee_rows(const struct cost *c, uint32_t most, double part);

/* The error of predictions: the median of actual over predicted, approached in fixed steps, which limits outliers.
 * Requests that arrive later but go first make waits longer than predictable. Initially zeroed. */
struct cost_bias {
	double log;
};

void cost_bias_learn(struct cost_bias *b, double predicted_ns, double true_ns);
/* The factor for a prediction. */
double cost_bias_factor(const struct cost_bias *b);

#endif
