/* SPDX-License-Identifier: Apache-2.0
 *
 * What `sluice bench serve` counts, and its report as a table or as JSON.
 */
#ifndef CMD_SERVE_STATS_H
#define CMD_SERVE_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/load/histogram.h"

enum { STATS_MAX_ERRORS = 32, STATS_NAME_BYTES = 80 };

struct serve_error {
	char what[STATS_NAME_BYTES]; /* "429 rate_limit_exceeded", "connection: …" */
	uint64_t n;
};

struct serve_stats {
	struct histogram ttft, itl, total;
	uint64_t n_done, n_good, n_failed, n_cut; /* cut: still running at the end */
	uint64_t n_events, n_completion, n_prompt, n_cached;
	uint64_t n_counted; /* of n_completion, reported by the server; the others are events */
	struct serve_error errors[STATS_MAX_ERRORS];
	int n_errors;
	double seconds; /* of the measurement */
};

/* One request as it went. */
struct serve_outcome {
	uint64_t started_ns, first_ns, last_ns, ended_ns; /* first, last: 0 without text */
	uint64_t n_events, n_prompt, n_cached, n_completion;
	bool has_usage;
};

/* What makes a request a good one; 0: no demand. */
struct serve_slo {
	double ttft_ms, itl_ms; /* itl: the mean between its events */
};

void serve_stats_done(struct serve_stats *s, const struct serve_outcome *o, const struct serve_slo *slo);
void serve_stats_error(struct serve_stats *s, const char *what);

/* name: "all", or whose share this is. */
void serve_stats_table(const struct serve_stats *s, const char *name, const struct serve_slo *slo);
void serve_stats_json(const struct serve_stats *s);

#endif
