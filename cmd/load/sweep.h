/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for the highest load that a server carries within its targets, and its picture. Pure.
 */
#ifndef CMD_LOAD_SWEEP_H
#define CMD_LOAD_SWEEP_H

#include <stdbool.h>

#include "base/buf.h"

enum { SWEEP_MAX_POINTS = 40, SWEEP_MOST_RATE = 100000 };

struct sweep_point {
	double rate;  /* requests per second that were due */
	double share; /* of them, good */
	double ttft_p50_ms, ttft_p99_ms, tpot_p50_ms, tpot_p99_ms, tokens_per_s;
};

/* Doubles the rate until it fails (or halves it until it passes), then halves the interval between the highest rate
 * that passed and the lowest that failed, in logarithms, until they are within `close` of each other. */
struct sweep {
	double least_share, close;
	double passed, failed; /* rates; 0: none yet */
	struct sweep_point points[SWEEP_MAX_POINTS];
	int n_points;
};

void sweep_init(struct sweep *s, double least_share, double close);
/* The next rate to try, the first near `begin`; 0: the search is over. */
double sweep_next(const struct sweep *s, double begin);
void sweep_add(struct sweep *s, const struct sweep_point *p);

/* Appends an SVG image: share and latencies over the rate, both axes of latencies logarithmic. */
int sweep_plot(const struct sweep *s, const char *title, struct sl_buf *out);

#endif
