/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: experiments with variants of a model, as decisions only: which variant a user gets (assign.c), and whether
 * a variant is worse than its base (trial.c, events.c, ranks.c, look.c, history.c). Pure: no clock, no I/O, no thread,
 * no memory. Callers: gateway/variant, simulations.
 *
 *   base, variant   the two arms that a trial compares
 *   event           a failure, or a reader that left before the end
 *   stratum         the answers after one event, up to and with the next
 *   history         how many answers of the base failed before the variant's first
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
 *                (3) Where the base has fewer than TRIAL_ENOUGH answers at that look, its history makes up for them
 *                and a second test takes most of the look's alpha: the same binomial, with the history's answers
 *                scaled down to the number that is missing and added to the base's. See History.
 *   departures   An e-process like (1).
 *   first token  Ranks among the latest answers of both arms, which are uniform and independent while the arms are
 *                alike, whatever the times' distribution is. An e-process bets on high ranks of the variant and, at
 *                the odds that make up for it, on low ranks of the base (Shafer and Vovk 2019): times that grow for
 *                both arms gain nothing. The same score is looked at once, too, with the variant's TRIAL_LOOK answers:
 *                over the root of its sum of squares it is about normal (de la Peña, Lai, Shao 2009).
 *
 * History. A base that shares its requests evenly with a variant has 5 failures among 500 answers, which no test tells
 * from 20 often enough; what it did before says how many to expect. The sum of alphas with it takes an assumption that
 * the rest does without: the base fails now as often as its history says, within about 10 % of that rate. A base that
 * failed in less than TRIAL_FLOOR of its history counts as one that failed in so many, so any rate up to that one may
 * become another. What else drifts is bounded without an assumption: the test also asks that the answers of the same
 * time alone differ at level TRIAL_AGREE, so no drift of both arms rolls back more variants than that; and a history
 * that the base's own answers since refute at level TRIAL_ASTRAY, as in an outage of both arms, is left out. Such
 * tests trade power for robustness to drift (Viele et al. 2014; Kopp-Schneider et al. 2020). Times drift with load by
 * more than what is to be found, so first tokens and departures have no history.
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
 * Probability and Finance"; de la Peña, Lai, Shao, "Self-Normalized Processes"; Viele et al., "Use of historical
 * control data for assessing treatment effects in clinical trials"; Kopp-Schneider et al., "Power gains by using
 * external information in clinical trials are typically not possible when requiring strict type I error control";
 * Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", 2023.
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
	TRIAL_USERS = 1 << 17,   /* slots, by digest: users that share one count as one */
	TRIAL_ENOUGH = 8000,     /* answers of the base that need no history */
	TRIAL_PAST_MOST = 16384, /* answers of a history */
};

/* ---- history.c: what a base did before a variant's first answer ---- */

struct trial_past {
	int64_t n, failed; /* answers, and failures among them */
};

/* Of one place. Of a user the first TRIAL_FAILS_OF_USER answers count, and so many again
 * once TRIAL_PAST_MOST answers have ended. */
struct trial_history {
	struct trial_past fresh; /* since its reader took it and set it to 0 */
	uint32_t n_seen;
	uint8_t seen[TRIAL_USERS];
};

/* An answer of the base has ended. */
void trial_remember(struct trial_history *h, bool failed, uint64_t user);
/* The sum, halved until at most TRIAL_PAST_MOST answers are left: the older, the less they count. */
struct trial_past trial_past_sum(struct trial_past a, struct trial_past b);

/* ---- trial.c ---- */

/* The look with a history: the level at which the answers of the same time must agree, the least share of failures that
 * a history has, and the level at which the base's own answers refute it. */
#define TRIAL_AGREE 0.15
#define TRIAL_FLOOR 0.005
#define TRIAL_ASTRAY 0.002

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
	TRIAL_TRIED = TRIAL_LOG_SLOW + TRIAL_BETS,     /* of each arm: answers that count for failures, since the */
	TRIAL_TRIED_FAILED = TRIAL_TRIED + TRIAL_ARMS, /* variant's first; failures among them */
	TRIAL_SCORE = TRIAL_TRIED_FAILED + TRIAL_ARMS, /* of ranks, in millionths, and its sum of squares */
	TRIAL_SCORE_SQUARES,
	TRIAL_SUMS,
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
	bool begun; /* the variant has answered */
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
/* Whether s tells that the variant is worse. past: the base's history; n 0: it has none. before: the variant's number
 * of answers when s was last judged; the look of TRIAL_LOOK answers is taken by the call that passes them. */
enum trial_cause trial_judge(const struct trial_sums *s, struct trial_past past, int64_t before);
/* Natural logarithm of the e-process of a cause, and the bound it must reach. For display. */
double trial_log_evidence(const struct trial_sums *s, enum trial_cause cause);
double trial_log_bound(enum trial_cause cause);
/* "errors", "stops", "ttft"; "" of TRIAL_ALIKE. */
const char *trial_cause_name(enum trial_cause cause);

#endif
