/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequential ranks. Of exchangeable values, the rank of each among those before it is uniform and independent of the
 * earlier ranks (Rényi 1962). Equal values share their mean rank, whose expectation is the same.
 */
#include <math.h>
#include <string.h>

#include "gateway/trial/trial_priv.h"

static const double stakes[TRIAL_BETS] = {0.2, 0.5, 0.9};
const double trial_bet_weights[TRIAL_BETS] = {0.3, 0.4, 0.3};

/* How many values of the window are below v. */
static uint32_t below(const struct trial *t, uint64_t v)
{
	uint32_t from = 0, to = t->n_window;
	while (from < to) {
		uint32_t mid = (from + to) / 2;
		if (t->window[mid] < v)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

static void insert(struct trial *t, enum trial_arm arm, uint64_t v, uint32_t at)
{
	memmove(&t->window[at + 1], &t->window[at], (t->n_window - at) * sizeof *t->window);
	t->window[at] = v;
	t->n_window++;
	t->n_window_variant += arm == TRIAL_VARIANT;
}

void trial_rank(struct trial *t, enum trial_arm arm, uint64_t ns, int64_t *sums)
{
	if (t->n_window == TRIAL_WINDOW)
		t->n_window = t->n_window_variant = 0;
	const uint32_t n = t->n_window, lower = below(t, ns);
	uint32_t upper = lower;
	while (upper < n && t->window[upper] == ns)
		upper++;
	insert(t, arm, ns, lower);
	/* A window of one arm tells nothing. */
	const double share = n > 0 ? (double)t->n_window_variant / t->n_window : 0;
	if (n == 0 || t->n_window_variant == 0 || t->n_window_variant == t->n_window)
		return;
	const double rank = ((double)lower + upper) / (2.0 * n), high = 2 * rank - 1;
	/* The stakes of both arms cancel out where high ranks have nothing to do with the arm. */
	const double score = (arm == TRIAL_VARIANT ? 1 - share : -share) * high;
	for (int k = 0; k < TRIAL_BETS; k++)
		sums[TRIAL_LOG_SLOW + k] += trial_micro(log1p(stakes[k] * score));
	sums[TRIAL_SCORE] += trial_micro(score);
	sums[TRIAL_SCORE_SQUARES] += trial_micro(score * score);
}
