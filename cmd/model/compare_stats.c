/* SPDX-License-Identifier: Apache-2.0
 *
 * Tails of the binomial and of Student's distribution are incomplete beta functions, by their continued fraction
 * (Abramowitz, Stegun, "Handbook of Mathematical Functions", 1964, 26.5.8). Quantiles and sizes are found by bisection.
 */
#include "cmd/model/compare_stats.h"

#include <float.h>
#include <math.h>

/* ---- distributions ---- */

static double keep_off_zero(double x) { return fabs(x) < DBL_MIN ? DBL_MIN : x; }

/* By Lentz's method. Converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double x, double a, double b)
{
	enum { MOST_TERMS = 100000 };
	double c = 1, d = 1 / keep_off_zero(1 - (a + b) * x / (a + 1)), f = d;
	for (int i = 1; i < MOST_TERMS; i++) {
		double even = i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i));
		double odd = -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1));
		d = 1 / keep_off_zero(1 + even * d);
		c = keep_off_zero(1 + even / c);
		f *= c * d;
		d = 1 / keep_off_zero(1 + odd * d);
		c = keep_off_zero(1 + odd / c);
		f *= c * d;
		if (fabs(c * d - 1) < 1e-14)
			break;
	}
	return f;
}

/* The incomplete beta function's share up to x, a, b > 0. */
static double beta_share(double x, double a, double b)
{
	if (x <= 0 || x >= 1)
		return x <= 0 ? 0 : 1;
	double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
	return x < (a + 1) / (a + b + 2) ? front * beta_fraction(x, a, b) / a
					 : 1 - front * beta_fraction(1 - x, b, a) / b;
}

/* The probability of at least k of n throws that succeed with probability p. */
static double binomial_tail(uint64_t k, uint64_t n, double p)
{
	return k == 0 ? 1 : k > n ? 0 : beta_share(p, (double)k, (double)(n - k + 1));
}

static double binomial_at(uint64_t k, uint64_t n, double p)
{
	double x = (double)k, m = (double)n;
	if (p <= 0 || p >= 1)
		return k == (p <= 0 ? 0 : n);
	return exp(lgamma(m + 1) - lgamma(x + 1) - lgamma(m - x + 1) + x * log(p) + (m - x) * log1p(-p));
}

/* The probability that a Student variable exceeds t ≥ 0. */
static double t_tail(double t, double df) { return beta_share(df / (df + t * t), df / 2, 0.5) / 2; }

double stats_t_quantile(double p, double df)
{
	double low = 0, high = 1, tail = p < 0.5 ? p : 1 - p;
	while (t_tail(high, df) > tail && high < 1e9)
		high *= 2;
	for (int i = 0; i < 100; i++) {
		double middle = (low + high) / 2;
		*(t_tail(middle, df) > tail ? &low : &high) = middle;
	}
	return p < 0.5 ? -high : high;
}

/* ---- means ---- */

struct estimate stats_ratio(const double *x, const double *n, size_t m, size_t step)
{
	double sum = 0, size = 0, squares = 0;
	for (size_t i = 0; i < m; i++) {
		sum += x[i * step];
		size += n[i * step];
	}
	struct estimate e = {.value = sum / size, .se = NAN};
	for (size_t i = 0; i < m; i++) {
		double rest = x[i * step] - e.value * n[i * step];
		squares += rest * rest;
	}
	if (m > 1)
		e.se = sqrt(squares * (double)m / (double)(m - 1)) / size;
	return e;
}

struct stats_verdict stats_judge_loss(struct estimate d, size_t m)
{
	struct stats_verdict v = {.found = STATS_TOO_FEW, .difference = d.value};
	if (m < 2)
		return v;
	double df = (double)(m - 1), t = stats_t_quantile(1 - STATS_LEVEL / 2, df);
	v.low = d.value - t * d.se;
	v.high = d.value + t * d.se;
	v.detectable = (t + stats_t_quantile(STATS_POWER, df)) * d.se;
	v.found = d.value == 0 && d.se == 0 ? STATS_IDENTICAL
		  : v.low > 0               ? STATS_WORSE
		  : v.high < 0              ? STATS_BETTER
					    : STATS_NONE;
	return v;
}

/* ---- tasks ---- */

double stats_pairs_probability(const struct stats_pairs *p)
{
	uint64_t more = p->only_a > p->only_b ? p->only_a : p->only_b, n = p->only_a + p->only_b;
	double both = 2 * binomial_tail(more, n, 0.5);
	return both < 1 ? both : 1;
}

double stats_pairs_churn(const struct stats_pairs *p)
{
	uint64_t differ = p->only_a + p->only_b, n = differ + p->both + p->neither;
	double low = 0, high = 1;
	if (differ == n)
		return 0.5;
	for (int i = 0; i < 60; i++) {
		double middle = (low + high) / 2;
		*(binomial_tail(differ + 1, n, middle) < STATS_POWER ? &low : &high) = middle;
	}
	return high / 2;
}

/* The fewest of n throws that are significantly more than half. */
static uint64_t critical(uint64_t n)
{
	uint64_t k = (uint64_t)((double)n / 2 + 0.98 * sqrt((double)n)); /* near it, rather too few */
	k = k > 2 ? k - 2 : 0;
	while (k <= n && 2 * binomial_tail(k, n, 0.5) > STATS_LEVEL)
		k++;
	return k;
}

double stats_tasks_power(uint64_t n, double churn, double loss)
{
	double differ = fmin(2 * churn + loss, 1), mean = (double)n * differ;
	double power = 0, spread = 8 * sqrt(mean * (1 - differ)) + 16, last = fmin((double)n, mean + spread);
	for (uint64_t k = mean > spread ? (uint64_t)(mean - spread) : 0; (double)k <= last; k++) {
		double here = binomial_at(k, n, differ);
		if (here > 1e-12)
			power += here * binomial_tail(critical(k), k, (churn + loss) / differ);
	}
	return power;
}

uint64_t stats_tasks_needed(double churn, double loss)
{
	uint64_t low = 1, high = STATS_MOST_TASKS;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (stats_tasks_power(middle, churn, loss) >= STATS_POWER)
			high = middle;
		else
			low = middle + 1;
	}
	return stats_tasks_power(low, churn, loss) >= STATS_POWER ? low : 0;
}

/* The least loss that n tasks find. */
static double detectable_loss(uint64_t n, double churn)
{
	double low = 0, high = 1 - 2 * churn;
	if (high <= 0 || stats_tasks_power(n, churn, high) < STATS_POWER)
		return NAN;
	for (int i = 0; i < 40; i++) {
		double middle = (low + high) / 2;
		*(stats_tasks_power(n, churn, middle) < STATS_POWER ? &low : &high) = middle;
	}
	return high;
}

struct stats_verdict stats_judge_tasks(const struct stats_pairs *p)
{
	double n = (double)(p->both + p->only_a + p->only_b + p->neither);
	double a = (double)p->only_a, b = (double)p->only_b;
	struct stats_verdict v = {.found = STATS_TOO_FEW, .detectable = NAN};
	if (n < 1)
		return v;
	double se = sqrt(a + b - (a - b) * (a - b) / n) / n;
	v.difference = (b - a) / n;
	v.low = v.difference - 1.96 * se;
	v.high = v.difference + 1.96 * se;
	v.detectable = detectable_loss((uint64_t)n, stats_pairs_churn(p));
	v.found = stats_pairs_probability(p) > STATS_LEVEL ? STATS_NONE : a > b ? STATS_WORSE : STATS_BETTER;
	if (p->only_a + p->only_b == 0)
		v.found = STATS_IDENTICAL;
	return v;
}
