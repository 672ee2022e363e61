/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATEWAY_TRIAL_PRIV_H
#define GATEWAY_TRIAL_PRIV_H

#include "gateway/trial/trial.h"

/* In millionths, rounded. */
int64_t trial_micro(double v);
/* log of the weighted mean of exp(log[i]). */
double trial_log_mix(const int64_t *log_micro, const double *weights, size_t n);

/* ---- events.c ---- */

extern const double trial_odds_weights[TRIAL_ODDS];
/* An answer of one arm, with or without the event. True: the event has ended a stratum that has both arms; *expected:
 * the variant's chance to have it. Adds to log_micro[TRIAL_ODDS]. */
bool trial_event(struct trial_stratum *s, enum trial_arm arm, bool happened, int64_t *log_micro, double *expected);
/* The probability of at least `hits` successes in n draws of chance p each. */
double trial_binomial_tail(int64_t n, double p, int64_t hits);

/* ---- look.c ---- */

/* What the alphas of the look add up to. */
double trial_look_alpha(void);
/* Whether s, with TRIAL_LOOK answers of the variant, tells that it is worse. */
enum trial_cause trial_look(const struct trial_sums *s, struct trial_past past);

/* ---- ranks.c ---- */

extern const double trial_bet_weights[TRIAL_BETS];
/* A first token came after ns. Adds to sums[TRIAL_SUMS]. */
void trial_rank(struct trial *t, enum trial_arm arm, uint64_t ns, int64_t *sums);

#endif
