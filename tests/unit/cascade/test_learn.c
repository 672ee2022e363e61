/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning: weights are found where there is something to find and nowhere else; thresholds are what
 * trying every one of them gives, and the gate they are made for is the state machine's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "cascade/learn.h"

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 31);
}

static float unit(uint64_t *state) { return (float)(draw(state) >> 40) / (float)(1 << 24); }

/* ---- weights ---- */

enum { N = 600, WORDS = 8 };

static float dense[N][CASC_N_FEATURES];
static uint32_t words[N][WORDS];
static struct casc_example examples[N];

/* Hard when word 7 is in it, else easy; noise: labels that say nothing. */
static void make_examples(bool noise)
{
	uint64_t random = 11;
	for (int i = 0; i < N; i++) {
		bool hard = draw(&random) % 3 == 0;
		for (int k = 0; k < CASC_N_FEATURES; k++)
			dense[i][k] = unit(&random);
		for (int k = 0; k < WORDS; k++)
			words[i][k] = (uint32_t)(draw(&random) % 200 + 100) * 2654435761u;
		if (hard)
			words[i][draw(&random) % WORDS] = 7 * 2654435761u;
		examples[i] = (struct casc_example){dense[i], words[i], WORDS, noise ? draw(&random) % 2 == 0 : hard};
	}
}

static const struct casc_train_settings usual = {
    .bits = 14, .epochs = 20, .rate = 0.1, .decay = 0.01, .held_out = 0.3, .seed = 5};

static void something_to_learn(void **state)
{
	(void)state;
	struct casc_fit trained, held;
	struct casc_weights *w, *again;
	make_examples(false);
	assert_int_equal(casc_train(examples, N, &usual, &w, &trained, &held, NULL), 0);
	assert_int_equal(trained.n + held.n, N);
	assert_int_equal(held.n, 180);
	assert_true(held.auc > 0.97 && held.accuracy > 0.9 && held.loss < held.base_loss * 0.6);
	/* The same again, bit by bit; another seed is another model. */
	assert_int_equal(casc_train(examples, N, &usual, &again, &trained, &held, NULL), 0);
	assert_memory_equal(w, again, sizeof *w + (sizeof w->grams[0] << 14));
	casc_weights_destroy(again);
	struct casc_train_settings other = usual;
	other.seed = 6;
	assert_int_equal(casc_train(examples, N, &other, &again, &trained, &held, NULL), 0);
	assert_memory_not_equal(w, again, sizeof *w + (sizeof w->grams[0] << 14));
	casc_weights_destroy(again);
	casc_weights_destroy(w);
}

static void nothing_to_learn(void **state)
{
	(void)state;
	struct casc_fit trained, held;
	struct casc_weights *w;
	struct sl_err err = {0};
	make_examples(true);
	assert_int_equal(casc_train(examples, N, &usual, &w, &trained, &held, NULL), 0);
	assert_true(held.auc > 0.38 && held.auc < 0.62);
	casc_weights_destroy(w);
	assert_int_equal(casc_train(examples, 0, &usual, &w, &trained, &held, &err), SL_EINVAL);
	for (int i = 0; i < N; i++)
		examples[i].hard = true;
	assert_int_equal(casc_train(examples, N, &usual, &w, &trained, &held, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "600 of them hard"));
	make_examples(true);
	struct casc_train_settings bad = usual;
	bad.bits = 30;
	assert_int_equal(casc_train(examples, N, &bad, &w, &trained, &held, &err), SL_EINVAL);
	bad = usual;
	bad.rate = 0;
	assert_int_equal(casc_train(examples, N, &bad, &w, &trained, &held, &err), SL_EINVAL);
	for (long nth = 1; nth <= 4; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(casc_train(examples, N, &usual, &w, &trained, &held, &err), SL_ENOMEM);
		fault_disarm_all();
	}
}

/* ---- thresholds ---- */

enum { OUTCOMES = 400, LONGEST = 40 };

static float traces[OUTCOMES][LONGEST];
static struct casc_outcome outcomes[OUTCOMES];
static const struct casc_gate gate = {8, 3, 0.2f, 0.1f};

static void make_outcomes(void)
{
	uint64_t random = 3;
	for (int i = 0; i < OUTCOMES; i++) {
		uint32_t n = (uint32_t)(draw(&random) % LONGEST);
		float level = unit(&random), least = 1;
		for (uint32_t k = 0; k < n; k++) {
			float v = level + 0.3f * (unit(&random) - 0.5f);
			/* Of few values, so that thresholds meet them exactly. */
			traces[i][k] = roundf(100 * (v < 0 ? 0 : v > 1 ? 1 : v)) / 100;
			least = traces[i][k] < least ? traces[i][k] : least;
		}
		outcomes[i] = (struct casc_outcome){traces[i], n, unit(&random) < least + 0.2f, unit(&random) < 0.95f};
	}
}

static struct casc_curve_point tried(float low)
{
	double kept = 0, right = 0, large_right = 0, tokens = 0, tokens_kept = 0;
	for (int i = 0; i < OUTCOMES; i++) {
		bool up = casc_gate_at(&gate, low, outcomes[i].trace, outcomes[i].n) >= 0;
		kept += !up;
		right += up ? outcomes[i].large_right : outcomes[i].small_right;
		large_right += outcomes[i].large_right;
		tokens += outcomes[i].n;
		tokens_kept += up ? 0 : outcomes[i].n;
	}
	return (struct casc_curve_point){low, kept / OUTCOMES, right / large_right, tokens_kept / tokens};
}

static void like_trying_all(void **state)
{
	(void)state;
	static struct casc_curve_point points[1000];
	struct casc_curve_point best;
	size_t n;
	make_outcomes();
	assert_int_equal(casc_calibrate(outcomes, OUTCOMES, &gate, CASC_FOR_RATE, 0.6, points, 1000, &n, &best, NULL),
			 0);
	assert_true(n > 20);
	for (size_t i = 0; i < n; i++) {
		struct casc_curve_point p = tried(points[i].low);
		assert_true(fabs(p.small_rate - points[i].small_rate) < 1e-9);
		assert_true(fabs(p.quality - points[i].quality) < 1e-9);
		assert_true(fabs(p.large_tokens_saved - points[i].large_tokens_saved) < 1e-9);
		assert_true(i == 0 ||
			    (points[i].low > points[i - 1].low && points[i].small_rate < points[i - 1].small_rate));
	}
	assert_true(points[0].low == 0 && points[0].small_rate == 1 && points[n - 1].small_rate <= 0.02);
	/* No threshold does better: those a little above and below what was found. */
	assert_true(best.small_rate >= 0.6);
	for (float low = best.low; low <= 1; low += 0.001f)
		assert_true(tried(low).small_rate <= best.small_rate + 1e-9);
	for (float low = 0; low <= 1; low += 0.001f)
		if (tried(low).small_rate >= 0.6)
			assert_true(tried(low).small_rate >= best.small_rate - 1e-9);
	assert_int_equal(casc_calibrate(outcomes, OUTCOMES, &gate, CASC_FOR_QUALITY, 0.9, points, 10, &n, &best, NULL),
			 0);
	assert_int_equal(n, 10);
	assert_true(points[0].small_rate == 1 && points[9].small_rate <= 0.02);
	assert_true(best.quality >= 0.9 && fabs(tried(best.low).quality - best.quality) < 1e-9);
	for (float low = 0; low < best.low - 0.01f; low += 0.005f)
		assert_true(tried(low).quality < 0.9);
}

static void what_can_not_be(void **state)
{
	(void)state;
	struct casc_curve_point points[10], best;
	size_t n;
	struct sl_err err = {0};
	make_outcomes();
	assert_int_equal(casc_calibrate(outcomes, 0, &gate, CASC_FOR_RATE, 0.5, points, 10, &n, &best, &err),
			 SL_EINVAL);
	assert_int_equal(casc_calibrate(outcomes, OUTCOMES, &gate, CASC_FOR_QUALITY, 1.9, points, 10, &n, &best, &err),
			 SL_ENOTFOUND);
	assert_int_equal(n, 10);
	struct casc_gate bad = gate;
	bad.hold_min = 9;
	assert_int_equal(casc_calibrate(outcomes, OUTCOMES, &bad, CASC_FOR_RATE, 0.5, points, 10, &n, &best, &err),
			 SL_EINVAL);
	float wrong = NAN;
	struct casc_outcome one = {&wrong, 1, true, true};
	assert_int_equal(casc_calibrate(&one, 1, &gate, CASC_FOR_RATE, 0.5, points, 10, &n, &best, &err), SL_EINVAL);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(casc_calibrate(outcomes, OUTCOMES, &gate, CASC_FOR_RATE, 0.5, points, 10, &n, &best, &err),
			 SL_ENOMEM);
	fault_disarm_all();
	/* One that is always sure, one that is empty. */
	float sure = 1;
	struct casc_outcome two[] = {{&sure, 1, true, true}, {NULL, 0, false, true}};
	assert_int_equal(casc_calibrate(two, 2, &gate, CASC_FOR_QUALITY, 1, points, 10, &n, &best, &err), 0);
	assert_true(best.small_rate == 0.5 && best.quality == 1);
}

/* sure, as trying all has it; and answers that are right anyhow are shown at once. */
static void shown_early(void **state)
{
	(void)state;
	struct sl_err err;
	struct casc_early early;
	const float low = 0.5f;
	make_outcomes();
	for (int k = 0; k <= 10; k++) {
		double share = k / 10.0;
		size_t right_at_1 = 0, last = 10000;
		assert_int_equal(casc_calibrate_early(outcomes, OUTCOMES, &gate, low, share, &early, &err), 0);
		assert_true(early.sure >= low && early.sure <= 1 && early.held <= early.held_at_1);
		for (size_t sure = 10000; sure >= 5000; sure--) {
			struct casc_gate g = gate;
			size_t right = 0;
			g.sure_above = (float)sure / 10000 - low;
			for (int i = 0; i < OUTCOMES; i++)
				right += casc_gate_at(&g, low, outcomes[i].trace, outcomes[i].n) < 0
					     ? outcomes[i].small_right
					     : outcomes[i].large_right;
			if (sure == 10000)
				right_at_1 = right;
			if ((double)right < share * (double)right_at_1)
				break;
			last = sure;
		}
		assert_true(early.sure == (float)last / 10000);
	}
	float sure = 0.9f;
	struct casc_outcome right = {&sure, 1, true, true};
	assert_int_equal(casc_calibrate_early(&right, 1, &gate, low, 1, &early, &err), 0);
	assert_true(early.sure == low && early.held == 1);
	assert_int_equal(casc_calibrate_early(NULL, 0, &gate, low, 1, &early, &err), SL_EINVAL);
	float wrong = NAN;
	struct casc_outcome none = {&wrong, 1, true, true};
	assert_int_equal(casc_calibrate_early(&none, 1, &gate, low, 1, &early, &err), SL_EINVAL);
}

/* The machine gives up where the gate says, for any trace and threshold. */
static void as_the_machine(void **state)
{
	(void)state;
	struct casc_policy p;
	memset(&p, 0, sizeof p);
	p.race = p.hard = 1;
	p.hold_tokens = gate.hold_tokens;
	p.hold_min = gate.hold_min;
	p.hold_ms = 1000;
	p.share = 1;
	p.floor = 1;
	p.conf = (struct casc_conf_policy){.w_mean = 1, .smooth = 1, .window = 1};
	make_outcomes();
	int given_up = 0, kept = 0;
	for (int i = 0; i < OUTCOMES; i++) {
		struct casc c;
		struct casc_budget b = {0};
		struct casc_actions out;
		float low = 0.025f + 0.05f * (float)(i % 19), trace[LONGEST];
		p.low = low;
		p.sure = low + gate.sure_above;
		p.drop = low - gate.drop_below;
		casc_init(&c, &p);
		struct casc_event e = {
		    .kind = CASC_START,
		    .plan = {.score = 0.5f, .can_small = true, .can_large = true, .can_watch = true}};
		assert_int_equal(casc_step(&c, &b, &e, &out), 0);
		int64_t at = -1;
		uint32_t n = outcomes[i].n;
		for (uint32_t k = 0; k <= n && at < 0; k++) {
			e = (struct casc_event){.kind = k < n ? CASC_SMALL_TOKEN : CASC_SMALL_DONE};
			if (k < n)
				e.token.logprob = logf(traces[i][k] > 0 ? traces[i][k] : 1e-9f);
			assert_int_equal(casc_step(&c, &b, &e, &out), 0);
			if (k < n)
				trace[k] = casc_conf_value(&c.conf, &p.conf);
			if (c.escalated != CASC_NOT_ESCALATED)
				at = k < n ? k : (int64_t)n - 1;
		}
		/* What comes behind the switch is what the rest of the answer would have been. */
		for (uint32_t k = at >= 0 ? (uint32_t)at + 1 : n; k < n; k++)
			trace[k] = expf(logf(traces[i][k] > 0 ? traces[i][k] : 1e-9f));
		int64_t expected = casc_gate_at(&gate, low, trace, n);
		assert_int_equal(n == 0 ? 0 : at, expected);
		given_up += expected >= 0;
		kept += expected < 0;
	}
	assert_true(given_up > 50 && kept > 50);
}

/* ---- fitting again ---- */

enum { MANY = 4000 };
static float many_dense[MANY][CASC_N_FEATURES];
static struct casc_example many[MANY];

static const struct casc_refit_settings again = {
    .train = {.bits = 10, .epochs = 20, .rate = 0.1, .decay = 0.01, .seed = 1},
    .newest = 0.3,
    .least = 30,
    .small_cost = 0.1,
    .tolerance = 0.02,
};

/* The chance that example i is hard follows from one feature: from feature 1 before `turn`, from feature 2 after it. */
static void make_many(uint64_t seed, size_t turn, double sharpness)
{
	uint64_t random = seed;
	for (size_t i = 0; i < MANY; i++) {
		for (int k = 0; k < CASC_N_FEATURES; k++)
			many_dense[i][k] = unit(&random);
		float x = many_dense[i][i < turn ? 1 : 2];
		float p = casc_sigmoid((float)sharpness * (x - 0.5f));
		many[i] = (struct casc_example){many_dense[i], NULL, 0, unit(&random) < p};
	}
}

static struct casc_weights *fitted_to(size_t n)
{
	struct casc_fit trained, held;
	struct casc_weights *w;
	assert_int_equal(casc_train(many, n, &again.train, &w, &trained, &held, NULL), 0);
	return w;
}

static enum casc_refit_end refit(const struct casc_weights *now, struct casc_refit *r, struct casc_weights **w)
{
	assert_int_equal(casc_refit(many, MANY, many + MANY / 2, MANY / 2, now, &again, w, r, NULL), 0);
	assert_true((*w != NULL) == (r->end == CASC_REFIT_TAKEN));
	return r->end;
}

/* Twenty times each: what has changed is found, what has not is left alone, and noise is no change. */
static void better_weights_are_taken_and_no_others(void **state)
{
	(void)state;
	struct casc_refit r;
	struct casc_weights *w;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		make_many(seed, 1000, 12);
		struct casc_weights *now = fitted_to(1000);
		assert_int_equal(refit(now, &r, &w), CASC_REFIT_TAKEN);
		assert_true(r.fresh < r.now && r.gain > 2 * r.error);
		assert_int_equal(w->ref.n, MANY / 2);
		casc_weights_destroy(w);
		casc_weights_destroy(now);
		make_many(100 + seed, MANY, 12);
		now = fitted_to(MANY * 7 / 10); /* the same examples and settings: the same weights */
		assert_int_equal(refit(now, &r, &w), CASC_REFIT_WORSE);
		casc_weights_destroy(now);
		make_many(200 + seed, MANY, 0);
		now = casc_weights_create(10);
		assert_int_equal(refit(now, &r, &w), CASC_REFIT_WORSE);
		casc_weights_destroy(now);
	}
}

static void few_outcomes_and_wrong_settings(void **state)
{
	(void)state;
	struct casc_refit r;
	struct casc_weights *w, *now = casc_weights_usual(10);
	struct casc_refit_settings s = again;
	struct sl_err err;
	make_many(3, MANY, 12);
	assert_int_equal(casc_refit(many, 150, many, 150, now, &s, &w, &r, &err), 0);
	assert_int_equal(r.end, CASC_REFIT_FEW);
	assert_null(w);
	assert_int_equal(casc_refit(many, 0, many, 0, now, &s, &w, &r, &err), 0);
	assert_int_equal(r.end, CASC_REFIT_FEW);
	for (size_t i = MANY / 2; i < MANY; i++) /* one kind only among the newest */
		many[i].hard = false;
	assert_int_equal(casc_refit(many, MANY, many, MANY, now, &s, &w, &r, &err), 0);
	assert_int_equal(r.end, CASC_REFIT_FEW);
	const double wrong[] = {0, -1, 0.6, NAN};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		s.newest = wrong[i];
		assert_int_equal(casc_refit(many, MANY, many, MANY, now, &s, &w, &r, &err), SL_EINVAL);
	}
	casc_weights_destroy(now);
}

/* By what they cost on the data that they were found on, and with other costs. */
static void thresholds_pay(void **state)
{
	(void)state;
	enum { M = 3000 };
	static float scores[M];
	static bool hard[M];
	uint64_t random = 9;
	float easy, from;
	for (int i = 0; i < M; i++) {
		scores[i] = (float)i / M;
		hard[i] = unit(&random) < (i < M / 4 ? 0.002f : i < 3 * M / 4 ? 0.4f : 0.98f);
	}
	casc_thresholds(scores, hard, M, 0.1, 0.02, &easy, &from);
	assert_true(easy > 0.2f && easy < 0.27f);
	assert_true(from > 0.65f && from < 0.78f);
	int wrong = 0, below = 0, won = 0, above = 0;
	for (int i = 0; i < M; i++) {
		below += scores[i] < easy;
		wrong += scores[i] < easy && hard[i];
		above += scores[i] >= from;
		won += scores[i] >= from && hard[i];
	}
	assert_true(wrong <= 0.02 * below);
	assert_true(won + 0.1 * above > above); /* the small model first would cost above * 0.1 + won */
	/* A dearer small model is left out sooner, a free one never; little data gives no certainty. */
	float dear, free_of_charge;
	casc_thresholds(scores, hard, M, 0.7, 0.02, &easy, &dear);
	casc_thresholds(scores, hard, M, 0, 0.02, &easy, &free_of_charge);
	assert_true(dear < from && free_of_charge >= 1);
	casc_thresholds(scores, hard, 50, 0.1, 0.02, &easy, &from);
	assert_true(easy <= 0 && from >= 1);
	casc_thresholds(scores, hard, 0, 0.1, 0.02, &easy, &from);
	assert_true(easy <= 0 && from >= 1);
}

static void drift_shows_change_only(void **state)
{
	(void)state;
	struct casc_reference ref = {.n = 1000};
	struct casc_drift d = {.n = 0};
	uint64_t random = 4;
	for (int i = 0; i < CASC_DRIFT_BINS; i++)
		ref.share[i] = 0.1f;
	for (int i = 0; i < CASC_DRIFT_LEAST - 1; i++)
		casc_drift_add(&d, 0.99f);
	assert_true(casc_drift_index(&d, &ref) <= 0); /* too few */
	d = (struct casc_drift){.n = 0};
	for (int i = 0; i < 20000; i++) {
		casc_drift_add(&d, unit(&random));
		if (i > CASC_DRIFT_LEAST)
			assert_true(casc_drift_index(&d, &ref) < 0.1);
	}
	for (int i = 0; i < 2 * CASC_DRIFT_MEMORY; i++)
		casc_drift_add(&d, unit(&random) * unit(&random));
	assert_true(casc_drift_index(&d, &ref) > 0.25);
	casc_drift_add(&d, 1);
	casc_drift_add(&d, 0);
	for (int i = 0; i < 8 * CASC_DRIFT_MEMORY; i++) /* and back */
		casc_drift_add(&d, unit(&random));
	assert_true(casc_drift_index(&d, &ref) < 0.1);
}

static void fitted_thresholds_of_a_tier(void **state)
{
	(void)state;
	static char name[] = "a";
	struct casc_tier_setting t = {.name = name, .thresholds = 1, .easy = 0.1, .race = 0.6, .hard = 0.85};
	struct casc_settings s = {.tiers = {.items = &t, .n = 1}};
	const struct casc_reference ref = {.n = 9, .easy = 0.2f, .hard = 0.5f},
				    late = {.n = 9, .easy = 0.7f, .hard = 1};
	struct casc_policy p;
	casc_policy_make(&s, "a", &p);
	casc_policy_fit(&s, "a", NULL, &p);
	assert_true(p.easy == 0.1f && p.hard == 0.85f);
	casc_policy_fit(&s, "a", &ref, &p);
	assert_true(p.easy == 0.2f && p.race == 0.5f && p.hard == 0.5f);
	casc_policy_make(&s, "a", &p);
	casc_policy_fit(&s, "a", &late, &p);
	assert_true(p.easy == 0.7f && p.race == 0.7f && p.hard == 1);
	t.thresholds = 0;
	casc_policy_make(&s, "a", &p);
	casc_policy_fit(&s, "a", &ref, &p);
	assert_true(p.easy == 0.1f && p.hard == 0.85f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(better_weights_are_taken_and_no_others),
					   cmocka_unit_test(few_outcomes_and_wrong_settings),
					   cmocka_unit_test(thresholds_pay),
					   cmocka_unit_test(drift_shows_change_only),
					   cmocka_unit_test(fitted_thresholds_of_a_tier),
					   cmocka_unit_test(something_to_learn),
					   cmocka_unit_test(nothing_to_learn),
					   cmocka_unit_test(like_trying_all),
					   cmocka_unit_test(what_can_not_be),
					   cmocka_unit_test(shown_early),
					   cmocka_unit_test(as_the_machine)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
