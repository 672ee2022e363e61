/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of two arms, compared within strata.
 */
#include <math.h>

#include "gateway/trial/trial_priv.h"

/* Mostly four times the odds: 3 percentage points over 1 %, the least that must be found soon. At a lower base rate the
 * same 3 points are larger odds, which this bet finds sooner still. The others find less harm later, and more sooner.
 */
static const double odds[TRIAL_ODDS] = {1.4, 2, 4, 16};
const double trial_odds_weights[TRIAL_ODDS] = {0.08, 0.08, 0.76, 0.08};

bool trial_event(struct trial_stratum *s, enum trial_arm arm, bool happened, int64_t *log_micro, double *expected)
{
	s->n[arm]++;
	if (!happened)
		return false;
	const double base = s->n[TRIAL_BASE], variant = s->n[TRIAL_VARIANT], all = base + variant;
	*s = (struct trial_stratum){{0}};
	*expected = variant / all;
	for (int k = 0; k < TRIAL_ODDS; k++) {
		double likelier = arm == TRIAL_VARIANT ? odds[k] : 1;
		log_micro[k] += trial_micro(log(likelier * all / (odds[k] * variant + base)));
	}
	return base > 0 && variant > 0;
}

double trial_binomial_tail(int64_t n, double p, int64_t hits)
{
	double sum = 0;
	if (hits <= 0)
		return 1;
	if (p <= 0 || hits > n)
		return 0;
	if (p >= 1)
		return 1;
	const double of_n = lgamma((double)n + 1);
	for (int64_t k = hits; k <= n; k++) {
		const double of_k = lgamma((double)k + 1), of_rest = lgamma((double)(n - k) + 1);
		const double term = exp(of_n - of_k - of_rest + (double)k * log(p) + (double)(n - k) * log1p(-p));
		sum += term;
		if ((double)k > (double)n * p && term < sum * 1e-12)
			break;
	}
	return sum < 1 ? sum : 1;
}
