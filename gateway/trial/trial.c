/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/trial/trial.h"

#include <math.h>

#include "gateway/trial/trial_priv.h"

/* With the look's they add up to 1 %. */
static const double alphas[TRIAL_CAUSES] = {[TRIAL_FAILS] = 0.0012, [TRIAL_LEFT] = 0.0005, [TRIAL_SLOW] = 0.0002};

int64_t trial_micro(double v) { return llround(v * TRIAL_MICRO); }

double trial_log_mix(const int64_t *log_micro, const double *weights, size_t n)
{
	double most = -INFINITY, sum = 0;
	for (size_t i = 0; i < n; i++)
		most = fmax(most, (double)log_micro[i] / TRIAL_MICRO);
	for (size_t i = 0; i < n; i++)
		sum += weights[i] * exp((double)log_micro[i] / TRIAL_MICRO - most);
	return most + log(sum);
}

void trial_take(struct trial *t, enum trial_arm arm, const struct trial_answer *a)
{
	int64_t *to = t->sums.of;
	double expected;
	to[TRIAL_ANSWERS + arm]++;
	to[TRIAL_FAILURES + arm] += a->failed;
	to[TRIAL_DEPARTURES + arm] += a->left;
	uint8_t *seen = &t->seen[a->user % TRIAL_USERS];
	if (*seen == TRIAL_FAILS_OF_USER)
		return;
	const bool first = (*seen)++ == 0;
	t->begun |= arm == TRIAL_VARIANT;
	if (t->begun) {
		to[TRIAL_TRIED + arm]++;
		to[TRIAL_TRIED_FAILED + arm] += a->failed;
	}
	if (trial_event(&t->fails, arm, a->failed, &to[TRIAL_LOG_FAILS], &expected)) {
		to[TRIAL_EVENTS]++;
		to[TRIAL_HITS] += arm == TRIAL_VARIANT;
		to[TRIAL_EXPECTED] += trial_micro(expected);
	}
	if (first && !a->failed)
		trial_event(&t->left, arm, a->left, &to[TRIAL_LOG_LEFT], &expected);
	if (first && a->ttft_ns > 0)
		trial_rank(t, arm, a->ttft_ns, to);
}

double trial_log_evidence(const struct trial_sums *s, enum trial_cause cause)
{
	switch (cause) {
	case TRIAL_FAILS: return trial_log_mix(&s->of[TRIAL_LOG_FAILS], trial_odds_weights, TRIAL_ODDS);
	case TRIAL_LEFT: return trial_log_mix(&s->of[TRIAL_LOG_LEFT], trial_odds_weights, TRIAL_ODDS);
	case TRIAL_SLOW: return trial_log_mix(&s->of[TRIAL_LOG_SLOW], trial_bet_weights, TRIAL_BETS);
	case TRIAL_ALIKE:
	case TRIAL_CAUSES: break;
	}
	return 0;
}

double trial_log_bound(enum trial_cause cause)
{
	return cause > TRIAL_ALIKE && cause < TRIAL_CAUSES ? -log(alphas[cause]) : INFINITY;
}

enum trial_cause trial_judge(const struct trial_sums *s, struct trial_past past, int64_t before)
{
	for (int c = TRIAL_FAILS; c < TRIAL_CAUSES; c++)
		if (trial_log_evidence(s, (enum trial_cause)c) >= trial_log_bound((enum trial_cause)c))
			return (enum trial_cause)c;
	const int64_t now = s->of[TRIAL_ANSWERS + TRIAL_VARIANT];
	return before < TRIAL_LOOK && now >= TRIAL_LOOK ? trial_look(s, past) : TRIAL_ALIKE;
}

const char *trial_cause_name(enum trial_cause cause)
{
	static const char *const names[TRIAL_CAUSES] = {
	    [TRIAL_ALIKE] = "", [TRIAL_FAILS] = "errors", [TRIAL_LEFT] = "stops", [TRIAL_SLOW] = "ttft"};
	return cause < TRIAL_CAUSES ? names[cause] : "";
}
