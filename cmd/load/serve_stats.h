/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters of `sluice bench serve` and its report, as a table or as JSON.
 */
#ifndef CMD_SERVE_STATS_H
#define CMD_SERVE_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "cmd/load/batch_means.h"
#include "cmd/load/histogram.h"

enum { STATS_MAX_ERRORS = 32, STATS_NAME_BYTES = 80 };

struct serve_error {
	char what[STATS_NAME_BYTES]; /* "429 rate_limit_exceeded", "connection: …" */
	uint64_t n;
};

struct serve_stats {
	struct histogram ttft, itl, tpot,
	    total; /* itl: of each event; tpot: of each request, its mean time per token */
	struct batch_means batches;
	uint64_t n_done, n_good, n_failed, n_cut; /* n_cut: still running at the end */
	uint64_t n_late; /* of n_cut, and requests that were due but not sent: beyond a limit */
	uint64_t n_events, n_completion, n_prompt, n_cached;
	uint64_t n_counted; /* of n_completion: reported by the server; the rest are counted events */
	struct serve_error errors[STATS_MAX_ERRORS];
	int n_errors;
	double seconds; /* the measurement's duration */
};

/* The course of one request. */
struct serve_outcome {
	uint64_t started_ns, first_ns, last_ns, ended_ns; /* first, last: 0 without text */
	uint64_t n_events, n_prompt, n_cached, n_completion;
	bool has_usage;
};

/* The limits of a good request; 0: none. */
struct serve_slo {
	double ttft_ms, itl_ms, tpot_ms, total_ms; /* itl: mean time between events; tpot: between tokens */
};

bool serve_slo_any(const struct serve_slo *slo);
/* Whether a request that has not ended is beyond a limit already. */
bool serve_is_late(const struct serve_outcome *o, uint64_t now_ns, const struct serve_slo *slo);
void serve_stats_init(struct serve_stats *s);
/* Good requests, of all that ended or are late. */
double serve_stats_good(const struct serve_stats *s);
void serve_stats_done(struct serve_stats *s, const struct serve_outcome *o, const struct serve_slo *slo);
void serve_stats_error(struct serve_stats *s, const char *what);

/* name: "all", or the key of a mix. */
void serve_stats_table(const struct serve_stats *s, const char *name, const struct serve_slo *slo);
/* Appends an object. */
int serve_stats_json(const struct serve_stats *s, struct sl_buf *out);

#endif
