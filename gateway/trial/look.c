/* SPDX-License-Identifier: Apache-2.0
 *
 * The look at TRIAL_LOOK answers of the variant: failures, with the base's history or without it, and first tokens.
 */
#include <math.h>

#include "gateway/trial/trial_priv.h"

/* Those of failures: without a history the sum of both belongs to the answers of the same time. */
static const double alpha_alone = 0.0012, alpha_past = 0.0066, alpha_slow = 0.0003;
/* Less than this and the score is not near enough to normal: it is that of 30 answers of a rare variant. */
static const double least_squares = 10;

double trial_look_alpha(void) { return alpha_alone + alpha_past + alpha_slow; }

/* The probability of so many hits among n events or more. The binomial's tail bounds the true one, whose events have
 * different chances, from one above the mean on. */
static double tail(int64_t n, double expected, int64_t hits)
{
	if (n == 0 || (double)hits < expected + 1)
		return 1;
	return trial_binomial_tail(n, expected / (double)n, hits);
}

static double tail_alone(const struct trial_sums *s)
{
	return tail(s->of[TRIAL_EVENTS], (double)s->of[TRIAL_EXPECTED] / TRIAL_MICRO, s->of[TRIAL_HITS]);
}

/* Half of what is just as many hits left out, which makes up for there being only whole ones (Lancaster 1961). */
static double middle_alone(const struct trial_sums *s)
{
	const int64_t n = s->of[TRIAL_EVENTS], hits = s->of[TRIAL_HITS];
	const double expected = (double)s->of[TRIAL_EXPECTED] / TRIAL_MICRO;
	if (n == 0)
		return 1;
	const double p = expected / (double)n;
	return (trial_binomial_tail(n, p, hits) + trial_binomial_tail(n, p, hits + 1)) / 2;
}

/* past: scaled to what the base lacks. */
static double tail_with(const struct trial_sums *s, double past, double past_failed)
{
	const int64_t *tried = &s->of[TRIAL_TRIED], *failed = &s->of[TRIAL_TRIED_FAILED];
	const int64_t n = failed[TRIAL_BASE] + failed[TRIAL_VARIANT] + (int64_t)ceil(past_failed);
	const double variant = (double)tried[TRIAL_VARIANT], all = variant + (double)tried[TRIAL_BASE] + past;
	return tail(n, (double)n * variant / all, failed[TRIAL_VARIANT]);
}

/* Whether the base now fails far more than it used to, as in an outage of both arms. */
static bool is_astray(const struct trial_sums *s, double past, double past_failed)
{
	const int64_t failed = s->of[TRIAL_TRIED_FAILED + TRIAL_BASE], n = failed + (int64_t)ceil(past_failed);
	const double now = (double)s->of[TRIAL_TRIED + TRIAL_BASE];
	return tail(n, (double)n * now / (now + past), failed) <= TRIAL_ASTRAY;
}

static bool fails(const struct trial_sums *s, struct trial_past past)
{
	const double alone = tail_alone(s), missing = (double)(TRIAL_ENOUGH - s->of[TRIAL_TRIED + TRIAL_BASE]);
	if (missing <= 0 || past.n <= 0)
		return alone <= alpha_alone + alpha_past;
	const double n = (double)past.n, used = fmin(missing, n), failed = fmax((double)past.failed, n * TRIAL_FLOOR);
	if (alone <= alpha_alone || middle_alone(s) > TRIAL_AGREE || is_astray(s, n, failed))
		return alone <= alpha_alone;
	return tail_with(s, used, failed * used / n) <= alpha_past;
}

static bool is_slow(const struct trial_sums *s)
{
	const double score = (double)s->of[TRIAL_SCORE] / TRIAL_MICRO,
		     squares = (double)s->of[TRIAL_SCORE_SQUARES] / TRIAL_MICRO;
	return squares >= least_squares && 0.5 * erfc(score / sqrt(2 * squares)) <= alpha_slow;
}

enum trial_cause trial_look(const struct trial_sums *s, struct trial_past past)
{
	return fails(s, past) ? TRIAL_FAILS : is_slow(s) ? TRIAL_SLOW : TRIAL_ALIKE;
}
