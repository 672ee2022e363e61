/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of variants under simulated traffic: how soon a worse variant is found, and how often one that is like its
 * base is called worse. SIM_STEPS and SIM_SEED choose another run: SIM_STEPS / 10,000 trials of a kind, of which those
 * without a difference have 100,000 answers each. tests/bench/results/trial-0.1.0.md has the figures of a long run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/trial/trial.h"
#include "tests/support/part.h"

enum { ANSWERS = 100000, USERS = 5000, PAST = 16384 /* answers */ };

/* What an arm's answers are like. */
struct manner {
	double fails, leaves, slow; /* shares; slow: factor on the first token's time */
};

enum weather {
	CALM,
	CACHED,   /* half of the prompts come from the cache: two modes of first-token times */
	CHANGING, /* times rise and fall threefold, and now and then half of all answers fail for a while */
	BY_USER,  /* each user sends many requests, with times and failures of his own */
	WEATHERS,
};

struct scene {
	const char *name;
	double share; /* of the variant */
	struct manner base, variant;
	enum weather weather;
	double spread; /* standard deviation of the logarithm of first-token times */
	long past;     /* answers of the base before the variant's first */
	double was;    /* factor on the base's failures then */
};

struct world {
	uint64_t random;
	double user_slow[USERS], user_fails[USERS], user_leaves[USERS];
	double user_ends[USERS]; /* cumulated activity */
};

static uint64_t draw(struct world *w)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static double unit(struct world *w) { return ((double)(draw(w) >> 11) + 0.5) * 0x1p-53; }
static double normal(struct world *w) { return sqrt(-2 * log(unit(w))) * cos(6.283185307179586 * unit(w)); }

/* Activity after Zipf's law with exponent 0.8: the busiest of 5,000 users sends a hundredth of all requests. */
static void make_users(struct world *w)
{
	double sum = 0;
	for (int i = 0; i < USERS; i++) {
		w->user_slow[i] = exp(0.3 * normal(w));
		w->user_fails[i] = exp(0.5 * normal(w) - 0.125);
		w->user_leaves[i] = exp(0.5 * normal(w) - 0.125);
		w->user_ends[i] = sum += pow(i + 1, -0.8);
	}
}

static int pick_user(struct world *w)
{
	double at = unit(w) * w->user_ends[USERS - 1];
	int from = 0, to = USERS - 1;
	while (from < to) {
		int mid = (from + to) / 2;
		if (w->user_ends[mid] < at)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

static enum trial_arm arm_of(struct world *w, const struct scene *s, int user, uint64_t salt)
{
	const struct trial_choice both[TRIAL_ARMS] = {{1, 1 - s->share}, {2, s->share}};
	if (s->weather != BY_USER)
		return unit(w) < s->share ? TRIAL_VARIANT : TRIAL_BASE;
	return (enum trial_arm)trial_assign(both, TRIAL_ARMS, salt ^ ((uint64_t)user << 32));
}

static struct trial_answer answer_of(struct world *w, const struct scene *s, enum trial_arm arm, int user, long i)
{
	const struct manner *m = arm == TRIAL_VARIANT ? &s->variant : &s->base;
	double fails = m->fails, leaves = m->leaves, ms = 300 * m->slow * exp(s->spread * normal(w));
	if (s->weather == CACHED && unit(w) < 0.5)
		ms /= 6;
	if (s->weather == CHANGING) {
		ms *= pow(3, sin((double)i / 3000));
		fails = (i + 1000000) % 20000 < 400 ? 0.5 : fails;
	}
	if (s->weather == BY_USER) {
		ms *= w->user_slow[user];
		fails *= w->user_fails[user];
		leaves *= w->user_leaves[user];
	}
	/* Elsewhere each answer is another user's. */
	struct trial_answer a = {.failed = unit(w) < fails,
				 .user = s->weather == BY_USER ? (uint64_t)user : (uint64_t)i};
	a.left = !a.failed && unit(w) < leaves;
	a.ttft_ns = a.failed && unit(w) < 0.5 ? 0 : (uint64_t)(ms * 1e6);
	return a;
}

/* What the base did before. */
static struct trial_past past_of(struct world *w, const struct scene *s)
{
	static struct trial_history h;
	struct scene then = *s;
	memset(&h, 0, sizeof h);
	then.base.fails *= s->was;
	for (long i = -s->past; i < 0; i++) {
		const struct trial_answer a =
		    answer_of(w, &then, TRIAL_BASE, s->weather == BY_USER ? pick_user(w) : 0, i);
		trial_remember(&h, a.failed, a.user);
	}
	return h.fresh;
}

/* Up to so many answers of all, and of the variant. Returns the cause; *n: the variant's answers until then. */
static enum trial_cause run(struct world *w, const struct scene *s, long most, int64_t most_variant, int64_t *n)
{
	static struct trial t;
	memset(&t, 0, sizeof t);
	const struct trial_past past = past_of(w, s);
	const uint64_t salt = draw(w);
	for (long i = 0; i < most && t.sums.of[TRIAL_ANSWERS + TRIAL_VARIANT] < most_variant; i++) {
		const int user = s->weather == BY_USER ? pick_user(w) : 0;
		const enum trial_arm arm = arm_of(w, s, user, salt);
		const struct trial_answer a = answer_of(w, s, arm, user, i);
		const int64_t before = t.sums.of[TRIAL_ANSWERS + TRIAL_VARIANT];
		trial_take(&t, arm, &a);
		*n = t.sums.of[TRIAL_ANSWERS + TRIAL_VARIANT];
		const enum trial_cause c =
		    arm == TRIAL_VARIANT || a.failed ? trial_judge(&t.sums, past, before) : TRIAL_ALIKE;
		if (c != TRIAL_ALIKE)
			return c;
	}
	return TRIAL_ALIKE;
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *v = getenv(name);
	return v != NULL ? strtoull(v, NULL, 10) : otherwise;
}

static long n_trials(void) { return (long)(from_environment("SIM_STEPS", PART_OF(1000000)) / 10000); }

static void begin(struct world *w)
{
	w->random = from_environment("SIM_SEED", 1);
	make_users(w);
}

/* Three standard deviations of a share p among n trials. */
static double slack(double p, long n) { return 3 * sqrt(p * (1 - p) / (double)n); }

/* The share of trials that find `cause` within TRIAL_LOOK answers of the variant. */
static double power(struct world *w, const struct scene *s, enum trial_cause cause, long trials)
{
	long found = 0;
	double answers = 0;
	for (long i = 0; i < trials; i++) {
		int64_t n;
		if (run(w, s, (long)1 << 40, TRIAL_LOOK, &n) == cause) {
			found++;
			answers += (double)n;
		}
	}
	double share = (double)found / (double)trials;
	print_message("%-44s share %4.1f %%  found within %d: %5.1f %%, mean %3.0f\n", s->name, 100 * s->share,
		      TRIAL_LOOK, 100 * share, found > 0 ? answers / (double)found : 0);
	return share;
}

#define ALIKE(f, l)     \
	{               \
		f, l, 1 \
	}

static void worse_variants_are_found(void **state)
{
	(void)state;
	static const struct {
		struct scene s;
		enum trial_cause cause;
	} all[] = {
	    {{"errors 1 % to 4 %", 0.01, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS},
	    {{"errors 1 % to 4 %", 0.05, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS},
	    {{"errors 0.5 % to 3.5 %", 0.05, ALIKE(0.005, 0.1), ALIKE(0.035, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS},
	    {{"errors 0.1 % to 3.1 %", 0.05, ALIKE(0.001, 0.1), ALIKE(0.031, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS},
	    {{"errors 0 to 3 %", 0.1, ALIKE(0, 0.1), ALIKE(0.03, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS},
	    {{"errors 0.5 % to 3.5 %", 0.1, ALIKE(0.005, 0.1), ALIKE(0.035, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS},
	    {{"first token 20 % later, spread 0.3", 0.05, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.3, 0, 0},
	     TRIAL_SLOW},
	    {{"first token 20 % later, spread 0.5", 0.01, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.5, 0, 0},
	     TRIAL_SLOW},
	    {{"first token 20 % later, spread 0.5", 0.1, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.5, 0, 0},
	     TRIAL_SLOW},
	    {{"errors 1 % to 4 %, history", 0.1, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, PAST, 1}, TRIAL_FAILS},
	    {{"errors 1 % to 4 %, history", 0.2, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, PAST, 1}, TRIAL_FAILS},
	    {{"errors 1 % to 4 %, history", 0.5, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, PAST, 1}, TRIAL_FAILS},
	    {{"errors 0.5 % to 3.5 %, history", 0.5, ALIKE(0.005, 0.1), ALIKE(0.035, 0.1), CALM, 0.5, PAST, 1},
	     TRIAL_FAILS},
	    {{"errors 0 to 3 %, history", 0.5, ALIKE(0, 0.1), ALIKE(0.03, 0.1), CALM, 0.5, PAST, 1}, TRIAL_FAILS},
	    {{"first token 20 % later, spread 0.5", 0.5, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.5, 0, 0},
	     TRIAL_SLOW},
	    {{"first token 20 % later, spread 0.7", 0.05, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.7, 0, 0},
	     TRIAL_SLOW},
	    {{"first token 20 % later, spread 0.7", 0.1, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.7, 0, 0},
	     TRIAL_SLOW},
	    {{"first token 20 % later, half cached", 0.05, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CACHED, 0.3, 0, 0},
	     TRIAL_SLOW},
	};
	static struct world w;
	begin(&w);
	const long n = 2 * n_trials();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		assert_true(power(&w, &all[i].s, all[i].cause, n) >= 0.95 - slack(0.95, n) * (n < 2000));
}

/* Where many answers are the variant's, times scatter widely or users are few, less is found so soon. */
static void what_is_found_later(void **state)
{
	(void)state;
	static const struct {
		struct scene s;
		enum trial_cause cause;
		double least;
	} all[] = {
	    {{"errors 1 % to 4 %", 0.1, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS, 0.93},
	    {{"errors 1 % to 4 %", 0.2, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS, 0.9},
	    {{"errors 1 % to 4 %", 0.5, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, 0, 0}, TRIAL_FAILS, 0.55},
	    {{"errors 1 % to 4 %, history of 2 %", 0.5, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, PAST, 2},
	     TRIAL_FAILS,
	     0.5},
	    {{"errors 1 % to 4 %, history of 2,000", 0.5, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), CALM, 0.5, 2000, 1},
	     TRIAL_FAILS,
	     0.8},
	    {{"first token 20 % later, spread 0.7", 0.2, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.7, 0, 0},
	     TRIAL_SLOW,
	     0.85},
	    {{"first token 20 % later, spread 0.7", 0.5, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 0.7, 0, 0},
	     TRIAL_SLOW,
	     0.6},
	    {{"first token 20 % later, spread 1", 0.05, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, CALM, 1, 0, 0},
	     TRIAL_SLOW,
	     0.3},
	    {{"errors 1 % to 4 %, 5,000 users", 0.1, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), BY_USER, 0.4, 0, 0},
	     TRIAL_FAILS,
	     0.8},
	    {{"errors 1 % to 4 %, 5,000 users, history", 0.5, ALIKE(0.01, 0.1), ALIKE(0.04, 0.1), BY_USER, 0.4, PAST,
	      1},
	     TRIAL_FAILS,
	     0.7},
	    {{"first token 20 % later, 5,000 users", 0.1, ALIKE(0.01, 0.1), {0.01, 0.1, 1.2}, BY_USER, 0.4, 0, 0},
	     TRIAL_SLOW,
	     0.75},
	    {{"readers leave 10 % to 20 %", 0.05, ALIKE(0.01, 0.1), ALIKE(0.01, 0.2), CALM, 0.5, 0, 0},
	     TRIAL_LEFT,
	     0.88},
	};
	static struct world w;
	begin(&w);
	const long n = n_trials();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		assert_true(power(&w, &all[i].s, all[i].cause, n) >= all[i].least - slack(all[i].least, n));
}

/* The share of trials of so many answers that call a variant worse that is not. */
static double alarms(struct world *w, const struct scene *s, long answers, long trials)
{
	long causes[TRIAL_CAUSES] = {0};
	int64_t at;
	for (long k = 0; k < trials; k++)
		causes[run(w, s, answers, INT64_MAX, &at)]++;
	const double share = (double)(trials - causes[TRIAL_ALIKE]) / (double)trials;
	print_message("%-44s share %4.1f %%  false alarms in %ld: %.2f %% (errors %ld, stops %ld, ttft %ld)\n", s->name,
		      100 * s->share, trials, 100 * share, causes[TRIAL_FAILS], causes[TRIAL_LEFT], causes[TRIAL_SLOW]);
	return share;
}

static void alike_variants_stay(void **state)
{
	(void)state;
	static const struct scene all[] = {
	    {"alike, errors 1 %", 0.05, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CALM, 0.5, 0, 0},
	    {"alike, errors 1 %", 0.5, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CALM, 0.5, 0, 0},
	    {"alike, errors 0.1 %", 0.01, ALIKE(0.001, 0.3), ALIKE(0.001, 0.3), CALM, 1, 0, 0},
	    {"alike, times and errors change for both", 0.1, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CHANGING, 0.5, 0, 0},
	    {"alike, half cached", 0.1, ALIKE(0.005, 0.1), ALIKE(0.005, 0.1), CACHED, 0.3, 0, 0},
	    {"alike, users of their own", 0.1, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), BY_USER, 0.4, 0, 0},
	    {"alike, history", 0.2, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CALM, 0.5, PAST, 1},
	    {"alike, history", 0.5, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CALM, 0.5, PAST, 1},
	    {"alike, errors 0.5 %, none before", 0.5, ALIKE(0.005, 0.1), ALIKE(0.005, 0.1), CALM, 0.5, PAST, 1e-9},
	    {"alike, 10 % more errors than before", 0.5, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CALM, 0.5, PAST, 0.91},
	    {"alike, history, users of their own", 0.5, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), BY_USER, 0.4, PAST, 1},
	    {"alike, history, times and errors change", 0.5, ALIKE(0.01, 0.1), ALIKE(0.01, 0.1), CHANGING, 0.5, PAST,
	     1},
	};
	static struct world w;
	begin(&w);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const long n = n_trials() < 1000 ? n_trials() / 5 : n_trials();
		/* A history decides at the look; a short run leaves out what comes later. */
		const long answers = n < 1000 && all[i].past > 0 ? ANSWERS / 10 : ANSWERS;
		assert_true(alarms(&w, &all[i], answers, n) < 0.01 + slack(0.01, n) * (n < 1000));
	}
}

/* Both arms fail more than the base did before: the answers of the same time bound what comes of it. */
static void drift_is_bounded(void **state)
{
	(void)state;
	static const struct scene all[] = {
	    {"alike, half more errors than before", 0.5, ALIKE(0.015, 0.1), ALIKE(0.015, 0.1), CALM, 0.5, PAST, 0.667},
	    {"alike, twice the errors", 0.2, ALIKE(0.02, 0.1), ALIKE(0.02, 0.1), CALM, 0.5, PAST, 0.5},
	    {"alike, twice the errors", 0.5, ALIKE(0.02, 0.1), ALIKE(0.02, 0.1), CALM, 0.5, PAST, 0.5},
	    {"alike, ten times the errors", 0.5, ALIKE(0.1, 0.1), ALIKE(0.1, 0.1), CALM, 0.5, PAST, 0.1},
	};
	static struct world w;
	begin(&w);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const long n = n_trials();
		assert_true(alarms(&w, &all[i], 2000, n) < 0.01 + TRIAL_AGREE + slack(TRIAL_AGREE, n));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(worse_variants_are_found),
	    cmocka_unit_test(what_is_found_later),
	    cmocka_unit_test(alike_variants_stay),
	    cmocka_unit_test(drift_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
