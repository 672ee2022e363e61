/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of two models that got the same texts and the same tasks. Pure.
 *
 * Cluster     positions that are not independent of each other: a document, or a block of a long text. Only clusters
 *             count as independent, so correlation within a text does not make errors look small.
 * Detectable  the least difference that a comparison of this size finds with STATS_POWER, at the level STATS_LEVEL.
 */
#ifndef CMD_COMPARE_STATS_H
#define CMD_COMPARE_STATS_H

#include <stddef.h>
#include <stdint.h>

#define STATS_LEVEL 0.05 /* of a two-sided test */
#define STATS_POWER 0.95

struct estimate {
	double value, se; /* se: its standard error; NAN with fewer than two clusters */
};

/* Σx / Σn over m clusters, with the error of a ratio of sums by linearization (Cochran, "Sampling Techniques", 1977,
 * 6.3). x[i] is the sum over a cluster, n[i] > 0 its size; x and n are `step` doubles apart. */
struct estimate stats_ratio(const double *x, const double *n, size_t m, size_t step);

/* The value that a Student variable of df > 0 degrees of freedom exceeds with probability 1 - p, 0 < p < 1. */
double stats_t_quantile(double p, double df);

enum stats_found {
	STATS_TOO_FEW,   /* clusters to tell */
	STATS_IDENTICAL, /* every pair is equal */
	STATS_NONE,      /* no difference found */
	STATS_WORSE,     /* B is worse */
	STATS_BETTER,
};

/* A difference, B less A, in a measure where more is worse (log loss) or better (right answers). */
struct stats_verdict {
	enum stats_found found;
	double difference, low, high; /* with its interval of 1 - STATS_LEVEL */
	double detectable;
};

/* By Student's t with m - 1 degrees of freedom; more is worse. */
struct stats_verdict stats_judge_loss(struct estimate difference, size_t m);

/* Tasks by whether A and B answered rightly. */
struct stats_pairs {
	uint64_t both, only_a, only_b, neither;
};

/* By the exact form of McNemar's test ("Note on the sampling error of the difference between correlated proportions",
 * 1947): the tasks that one model alone answers rightly are a fair coin's throws if the models are equally good.
 * `difference` is of the shares of right answers; more is better. */
struct stats_verdict stats_judge_tasks(const struct stats_pairs *p);
/* The test's two-sided probability. */
double stats_pairs_probability(const struct stats_pairs *p);
/* The share of tasks on which models of equal quality may differ in each direction: half of the upper limit (95 %,
 * Clopper and Pearson, 1934) of the share on which these did. */
double stats_pairs_churn(const struct stats_pairs *p);
/* The probability that n tasks find that B is worse by the share `loss`, where A alone is right on churn + loss of
 * tasks and B alone on churn. */
double stats_tasks_power(uint64_t n, double churn, double loss);
/* The number of tasks that find a loss with STATS_POWER, at most STATS_MOST_TASKS; 0: more. */
uint64_t stats_tasks_needed(double churn, double loss);
enum { STATS_MOST_TASKS = 10000000 };

#endif
