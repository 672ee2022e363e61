/* SPDX-License-Identifier: Apache-2.0
 *
 * A long series of requests as few means, so that two runs can be compared although neighbouring requests resemble each
 * other (they shared a queue): means of long batches are nearly independent (Law and Carson, "A sequential procedure
 * for determining the length of a steady-state simulation", 1979). Memory is fixed: when all batches are full,
 * neighbours are joined and batches become twice as long.
 */
#ifndef CMD_LOAD_BATCH_MEANS_H
#define CMD_LOAD_BATCH_MEANS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { BATCHES = 64, BATCHES_LEAST = 8 };

enum batch_figure { BATCH_TTFT, BATCH_TPOT, BATCH_TOTAL, BATCH_FIGURES };

struct batch {
	uint64_t n[BATCH_FIGURES];
	double sum_log[BATCH_FIGURES]; /* of milliseconds */
};

struct batch_means {
	struct batch all[BATCHES];
	uint64_t n, each; /* requests; in a full batch */
};

void batch_means_init(struct batch_means *b);
/* One request's figures, in ns; 0: it has none. */
void batch_means_add(struct batch_means *b, const uint64_t ns[BATCH_FIGURES]);
/* Appends {"ttft_ms":[…],"tpot_ms":[…],"total_ms":[…]}: the geometric mean of each full batch. */
int batch_means_json(const struct batch_means *b, struct sl_buf *out);

enum verdict { VERDICT_SAME, VERDICT_BETTER, VERDICT_WORSE, VERDICT_UNKNOWN };

struct comparison {
	const char *figure;
	enum verdict verdict;
	double ratio, low, high; /* new to old, with a 99.9 % interval on either side */
};

/* Compares two of those objects (text). worse: the whole interval lies above 1 + tolerance; unknown: it reaches above 1
 * + 5 tolerance, so more requests are needed to see a change of that size. A figure that either lacks, or has too few
 * batches of, is left out. Returns how many were compared. SL_EINVAL (negative): not such an object. */
int batch_means_compare(const char *before, const char *after, double tolerance, struct comparison out[BATCH_FIGURES]);

#endif
