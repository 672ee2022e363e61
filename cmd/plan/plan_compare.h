/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice plan MODEL --compare FILE`: is the simulation right? A server's records of requests (log.requests), simulated
 * at their own times with the costs of this machine, beside the latencies that the records tell.
 */
#ifndef CMD_PLAN_COMPARE_H
#define CMD_PLAN_COMPARE_H

#include "cmd/plan/plan_ask.h"

enum { COMPARE_PERCENTILES = 4, COMPARE_FEW = 5 };

/* One latency of all requests, ms. */
struct compare_line {
	const char *name;
	size_t n; /* requests that have it */
	struct compare_at {
		double percent, measured_ms, simulated_ms; /* n 0: zeros */
		size_t beyond;                             /* requests above it; fewer than COMPARE_FEW tell little */
	} at[COMPARE_PERCENTILES];
};

struct compare {
	struct compare_line ttft, itl, longest; /* itl: the mean of each answer; longest: the longest gap of each */
	double gap_ms[COMPARE_PERCENTILES];     /* simulated, of all gaps; records do not have them */
	size_t n_gaps;
};

/* Requests as they are in a->trace, at their recorded times. *out: owned by the caller; NULL: out of memory. */
struct plan_request *compare_traffic(const struct plan_ask *a);
/* Simulates them by one engine. SL_ENOMEM. */
int compare_run(const struct plan_ask *a, const struct plan_box *box, struct compare *out);
void compare_print(const struct compare *c, bool json);

#endif
