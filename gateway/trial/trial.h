/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: experiments with variants of a model, as decisions only: which variant a user gets (assign.c), and whether
 * a variant is worse than its base (trial.c, events.c, ranks.c). Pure: no clock, no I/O, no thread, no memory. Callers:
 * gateway/variant, simulations.
 *
 *   base, variant   the two arms that a trial compares
 *   event           a failure, or a reader that left before the end
 *   stratum         the answers after one event, up to and with the next
 *   e-process       a product of factors whose mean is at most 1 while the arms are alike. It exceeds 1 / alpha with
 *                   probability at most alpha, however often it is looked at (Ville 1939)
 *
 * Three measures, whose alphas add up to 1 %: the probability that a variant that is like its base is ever
 * called worse.
 *
 *   failures     (1) An e-process. Given how many answers of each arm are in a stratum, an event belongs to the variant
 *                with probability n_variant / n if the arms are alike, whatever their common rate is; if the odds of
 *                the variant's events are psi times as large, with psi n_variant / (psi n_variant + n_base). The factor
 *                is the ratio of the two; the process, a mixture over TRIAL_ODDS values of psi (Robbins 1970).
 *                (2) One look, once the variant has TRIAL_LOOK answers: the same events as one binomial sample
 *                (Fisher's conditional test; strata of different shares only make the tail lighter, Hoeffding 1956).
 *                It spends most of alpha (Lan and DeMets 1983), since an e-process alone detects 3 percentage points
 *                over 1 % within 500 answers too seldom.
 *   departures   An e-process like (1).
 *   first token  Ranks among the latest answers of both arms, which are uniform and independent while the arms are
 *                alike, whatever the times' distribution is. An e-process bets on high ranks of the variant and, at
 *                the odds that make up for it, on low ranks of the base (Shafer and Vovk 2019): times that grow for
 *                both arms gain nothing.
 *
 * The tests take answers for independent, and users are what is assigned to the arms: one who sends many long prompts
 * makes an arm slow that is not. So of each user only the first answer counts for departures and first tokens, which
 * depend on habits, and the first TRIAL_FAILS_OF_USER count for failures: one user alone moves no variant.
 *
 * Both arms are compared at the same time, so what hits both alike, such as an engine that dies, counts against
 * neither. The factors' logarithms add up, so gateways add their sums up and judge the same evidence.
 *
 * Sources: Ville, "Étude critique de la notion de collectif"; Robbins, "Statistical methods related to the law of the
 * iterated logarithm"; Lan and DeMets, "Discrete sequential boundaries for clinical trials"; Hoeffding, "On the
 * distribution of the number of successes in independent trials"; Shafer and Vovk, "Game-Theoretic Foundations for
 * Probability and Finance"; Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", 2023.
 */
#ifndef GATEWAY_TRIAL_H
#define GATEWAY_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- assign.c: which variant a user gets ---- */

enum { TRIAL_MAX_VARIANTS = 8 };

struct trial_choice {
	uint64_t name; /* a digest of the variant's name */
	double weight; /* not negative */
};

/* The index of the variant that `user` (a keyed digest) gets, or -1: no weight is above 0. Each gets its share of the
 * users; when a weight changes, users move only to that variant or away from it, and no more than the shares ask for
 * (weighted rendezvous hashing; Mosharaf and Thaler, "Weighted Distributed Hash Tables", 2005). */
int trial_assign(const struct trial_choice *of, size_t n, uint64_t user);

/* ---- evidence ---- */

enum trial_arm { TRIAL_BASE, TRIAL_VARIANT, TRIAL_ARMS };
enum trial_cause { TRIAL_ALIKE, TRIAL_FAILS, TRIAL_LEFT, TRIAL_SLOW, TRIAL_CAUSES };

enum {
	TRIAL_LOOK = 500,   /* answers of the variant */
	TRIAL_ODDS = 4,     /* values of psi */
	TRIAL_BETS = 3,     /* stakes on ranks */
	TRIAL_WINDOW = 256, /* answers that ranks are taken among; then it begins anew */
	TRIAL_MICRO = 1000000,
	TRIAL_FAILS_OF_USER = 4,
	TRIAL_USERS = 1 << 17, /* slots, by digest: users that share one count as one */
};

/* What is added up over threads and gateways. Logarithms are natural, in millionths. */
enum trial_sum {
	TRIAL_ANSWERS,                               /* of each arm: all of them, as in the next two */
	TRIAL_FAILURES = TRIAL_ANSWERS + TRIAL_ARMS, /* likewise */
	TRIAL_DEPARTURES = TRIAL_FAILURES + TRIAL_ARMS,
	TRIAL_EVENTS = TRIAL_DEPARTURES + TRIAL_ARMS, /* failures in strata that have both arms */
	TRIAL_HITS,                                   /* those of the variant */
	TRIAL_EXPECTED,                               /* how many would be if the arms were alike, in millionths */
	TRIAL_LOG_FAILS,
	TRIAL_LOG_LEFT = TRIAL_LOG_FAILS + TRIAL_ODDS,
	TRIAL_LOG_SLOW = TRIAL_LOG_LEFT + TRIAL_ODDS,
	TRIAL_SUMS = TRIAL_LOG_SLOW + TRIAL_BETS,
};

struct trial_sums {
	int64_t of[TRIAL_SUMS];
};

struct trial_stratum {
	uint32_t n[TRIAL_ARMS];
};

/* One place at which answers end. */
struct trial {
	struct trial_sums sums;
	struct trial_stratum fails, left;
	uint64_t window[TRIAL_WINDOW]; /* first-token times in ascending order */
	uint32_t n_window, n_window_variant;
	uint8_t seen[TRIAL_USERS]; /* answers of each slot's users that have counted */
};

struct trial_answer {
	bool failed, left; /* on the server's side; its reader left before its end */
	uint64_t ttft_ns;  /* 0: no token came */
	uint64_t user;     /* whose: a digest */
};

/* An answer of one arm has ended. */
void trial_take(struct trial *t, enum trial_arm arm, const struct trial_answer *a);
/* Whether s tells that the variant is worse. before: its number of answers when s was last judged; the look of
 * TRIAL_LOOK answers is taken by the call that passes them. */
enum trial_cause trial_judge(const struct trial_sums *s, int64_t before);
/* Natural logarithm of the e-process of a cause, and the bound it must reach. For display. */
double trial_log_evidence(const struct trial_sums *s, enum trial_cause cause);
double trial_log_bound(enum trial_cause cause);
/* "errors", "stops", "ttft"; "" of TRIAL_ALIKE. */
const char *trial_cause_name(enum trial_cause cause);

#endif
