/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculation's arithmetic: what an n-gram index finds against a plain search, and the draft lengths
 * that acceptance and the cost of rows lead to.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/fault.h"
#include "engine/sched/ngram.h"
#include "engine/sched/spec.h"

/* ---- n-grams ---- */

/* The definition: the last earlier place of the last three tokens, else of the last two. */
static uint32_t plain_draft(const int32_t *t, uint32_t n, int32_t *out, uint32_t most)
{
	for (uint32_t length = 3; length >= 2 && n > length; length--) {
		for (uint32_t end = n - 2; end + 1 >= length; end--) {
			uint32_t k = 0;
			while (k < length && t[end - k] == t[n - 1 - k])
				k++;
			if (k < length)
				continue;
			for (uint32_t i = 0; i < most; i++) {
				uint32_t from = end + 1 + i;
				out[i] = from < n ? t[from] : out[from - n];
			}
			return most;
		}
	}
	return 0;
}

static void ngrams_as_defined(void **state)
{
	enum { N = 700, MOST = 8 };
	(void)state;
	uint64_t random = 5;
	for (int vocabulary = 2; vocabulary <= 130; vocabulary *= 4) {
		int32_t t[N], got[MOST], want[MOST];
		struct ngram g = {0};
		uint32_t found = 0, step = 1;
		for (uint32_t i = 0; i < N; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			t[i] = (int32_t)((random >> 33) % (uint64_t)vocabulary);
		}
		/* Chains of few different pairs are long, where a walk may end early: there what is found
		 * must be an earlier pair all the same. */
		for (uint32_t n = 1; n <= N; n += step, step = 1 + n % 3) {
			uint32_t have = ngram_draft(&g, t, n, got, MOST);
			uint32_t expect = plain_draft(t, n, want, MOST);
			assert_int_equal(have, expect);
			if (have > 0 && vocabulary > 2)
				assert_memory_equal(got, want, sizeof got);
			found += have > 0;
		}
		assert_true(vocabulary > 64 || found > N / 20);
		ngram_dispose(&g);
	}
}

static void ngrams_of_loops(void **state)
{
	(void)state;
	struct ngram g = {0};
	int32_t out[6];
	static const int32_t same[] = {4, 4, 4};
	assert_int_equal(ngram_draft(&g, same, 2, out, 6), 0);
	assert_int_equal(ngram_draft(&g, same, 3, out, 6), 6);
	for (int i = 0; i < 6; i++)
		assert_int_equal(out[i], 4); /* beyond the text's end it goes on with itself */
	ngram_dispose(&g);
	static const int32_t loop[] = {9, 1, 2, 3, 1, 2, 3, 1, 2}, goes_on[] = {3, 1, 2, 3, 1, 2};
	assert_int_equal(ngram_draft(&g, loop, 9, out, 6), 6);
	assert_memory_equal(out, goes_on, sizeof out);
	ngram_dispose(&g);
	/* Three alike before two alike that are younger. */
	static const int32_t three[] = {7, 1, 2, 50, 8, 1, 2, 60, 7, 1, 2};
	assert_int_equal(ngram_draft(&g, three, 11, out, 1), 1);
	assert_int_equal(out[0], 50);
	ngram_dispose(&g);
	static const int32_t two[] = {7, 1, 2, 50, 8, 1, 2, 60, 9, 1, 2};
	assert_int_equal(ngram_draft(&g, two, 11, out, 1), 1);
	assert_int_equal(out[0], 60);
	ngram_dispose(&g);
}

static void ngrams_without_memory(void **state)
{
	(void)state;
	static int32_t t[1000];
	int32_t out[4];
	for (int i = 0; i < 1000; i++)
		t[i] = i % 7;
	for (long nth = 1; nth <= 2; nth++) {
		struct ngram g = {0};
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(ngram_draft(&g, t, 20, out, 4), 0);
		fault_disarm_all();
		assert_int_equal(ngram_draft(&g, t, 21, out, 4), 4);
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(ngram_draft(&g, t, 900, out, 4), 0);
		fault_disarm_all();
		assert_int_equal(ngram_draft(&g, t, 1000, out, 4), 4);
		for (int i = 0; i < 4; i++)
			assert_int_equal(out[i], (1000 + i) % 7);
		ngram_dispose(&g);
	}
}

/* ---- lengths ---- */

static const struct spec_price free_draft = {0};

/* Without trials. */
static uint32_t length_of(const struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
			  const struct spec_price *price)
{
	struct spec_trial t = {.patience = SPEC_MOST_PATIENCE};
	return spec_length(r, &t, 0, now, n_past, most, price);
}

/* Steps of n rows cost 1 + each · (n - 1). */
static void learn(struct cost *c, double each)
{
	cost_init(c, 1e6, 1e6 * each);
	for (int round = 0; round < 40; round++) {
		for (uint32_t n = 1; n <= 16; n++)
			cost_learn(c, n, (struct cost_past){0}, 1e6 * (1 + each * (n - 1)));
	}
}

static struct spec_now alone(const struct cost *c) { return (struct spec_now){.cost = c, .rows = 1, .tokens = 1}; }

static void lengths_follow_acceptance(void **state)
{
	(void)state;
	struct cost cheap, dear;
	struct spec_rate r;
	learn(&cheap, 0.02);
	learn(&dear, 0.9);
	struct spec_now now = alone(&cheap);
	uint32_t last = 0;
	for (int percent = 10; percent <= 100; percent += 15) {
		spec_rate_init(&r, 0.5);
		r.accept = percent / 100.0;
		uint32_t n = length_of(&r, &now, 100, 8, &free_draft);
		assert_true(n >= last);
		last = n;
	}
	assert_int_equal(last, 8);
	spec_rate_init(&r, 0.5);
	r.accept = 0.05;
	assert_true(length_of(&r, &now, 100, 8, &free_draft) <= 1);
	/* A machine on which rows cost nearly what steps cost. */
	now = alone(&dear);
	r.accept = 0.7;
	assert_int_equal(length_of(&r, &now, 100, 8, &free_draft), 0);
	/* Drafting costs too. */
	now = alone(&cheap);
	r.accept = 0.8;
	assert_true(length_of(&r, &now, 100, 8, &(struct spec_price){.each_ns = 1e5}) <
		    length_of(&r, &now, 100, 8, &free_draft));
	assert_int_equal(length_of(&r, &now, 100, 8, &(struct spec_price){.each_ns = 2e6}), 0);
	assert_int_equal(length_of(&r, &now, 100, 8, &(struct spec_price){.once_ns = 2e7, .spread = 1}), 0);
	assert_int_equal(length_of(&r, &now, 100, 0, &free_draft), 0);
}

/* The more rows are in a step, the less a row more is worth to its throughput. */
static void none_under_load(void **state)
{
	(void)state;
	struct cost c;
	struct spec_rate r;
	cost_init(&c, 1e6, 1e5);
	for (int round = 0; round < 40; round++) {
		for (uint32_t n = 1; n <= 64; n++)
			cost_learn(&c, n, (struct cost_past){0}, n <= 16 ? 1e6 * (1 + 0.01 * n) : 1.16e6 * n / 16);
	}
	spec_rate_init(&r, 0.5);
	r.accept = 0.6;
	struct spec_now now = {.cost = &c, .rows = 2, .tokens = 2};
	assert_true(length_of(&r, &now, 10, 8, &free_draft) >= 3);
	now.rows = now.tokens = 32;
	assert_int_equal(length_of(&r, &now, 10, 8, &free_draft), 0);
	/* The rows of the sequences before it count. */
	now.rows = now.tokens = 6;
	uint32_t first = length_of(&r, &now, 10, 8, &free_draft), n = first;
	assert_true(first > 0);
	for (int i = 0; i < 4; i++) {
		spec_now_add(&now, &r, 10, n);
		n = length_of(&r, &now, 10, 8, &free_draft);
		assert_true(n <= first);
	}
	assert_int_equal(n, 0);
}

/* A model that computes steps at a true cost, which its curve learns, and keeps an account. */
struct drafting {
	struct cost cost;
	struct spec_account account;
	struct spec_rate rate;
	double each, draft; /* plain steps that a row more costs, and a token drafted */
	double took, plain; /* plain steps in all, and what there would have been without drafts */
	int n_drafts, n_tokens;
};

static double rows_ns(const struct drafting *d, uint32_t rows) { return 1e6 * (1 + d->each * (rows - 1)); }

/* `guessed`: what a row more seems to cost at first. */
static void begin(struct drafting *d, double guessed, double each, double draft)
{
	*d = (struct drafting){.each = guessed, .draft = draft};
	cost_init(&d->cost, 1e6, 1e4);
	for (uint32_t rows = 1; rows <= 16; rows *= 2)
		cost_guess(&d->cost, rows, rows_ns(d, rows));
	d->each = each;
	spec_account_init(&d->account);
	spec_rate_init(&d->rate, 0.5);
}

/* One step, of whose draft at most `right` tokens are right. Returns the draft's length. */
static uint32_t drafting_step(struct drafting *d, uint32_t right, double disturbed)
{
	struct spec_now now = alone(&d->cost);
	struct spec_trial *trial = &d->account.trials[SPEC_HEAD];
	const struct spec_price price = {.each_ns = 1e6 * d->draft};
	uint32_t n = 0, accepted;
	if (spec_may_draft_now(&d->account))
		n = spec_length(&d->rate, trial, d->account.steps, &now, 100, 8, &price);
	d->account.n_drafting = n > 0 ? d->account.n_drafting + 1 : 0;
	accepted = n < right ? n : right;
	double ns = rows_ns(d, 1 + n) * disturbed, drafted_ns = n * price.each_ns;
	spec_cost_learn(&d->cost, 1 + n, (struct cost_past){0}, ns);
	const struct spec_step step = {.plain_ns = cost_rows_ns(&d->cost, 1),
				       .expected_ns = cost_rows_ns(&d->cost, 1 + n) + drafted_ns,
				       .took_ns = ns + drafted_ns,
				       .n_decode = 1,
				       .n_accepted = accepted,
				       .drafted = n > 0};
	spec_account_learn(&d->account, &step);
	if (n > 0)
		spec_rate_learn(&d->rate, trial, accepted < n ? accepted + 1 : n, accepted);
	d->took += (ns + drafted_ns) / 1e6;
	d->plain += (1 + accepted) * disturbed;
	d->n_drafts += n > 0;
	d->n_tokens += (int)(1 + accepted);
	return n;
}

static void run(struct drafting *d, int n_tokens, uint32_t right)
{
	*d = (struct drafting){
	    .cost = d->cost, .account = d->account, .rate = d->rate, .each = d->each, .draft = d->draft};
	while (d->n_tokens < n_tokens)
		drafting_step(d, right, 1);
}

/* Drafts that are always wrong: what they cost all in all, and that they are tried again. */
static void losses_are_bounded(void **state)
{
	(void)state;
	static const double each[] = {0.02, 0.1, 0.3, 0.6, 1, 3};
	for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
		for (size_t g = 0; g < sizeof each / sizeof *each; g++) {
			struct drafting d;
			begin(&d, each[g], each[k], 0.2);
			run(&d, 2000, 0);
			if (d.took > 1.02 * d.plain)
				fail_msg("rows of %g, guessed %g: %g steps in place of %g", each[k], each[g], d.took,
					 d.plain);
			run(&d, 2000, 0);
			assert_true(d.took < 1.013 * d.plain);
			assert_true(d.n_drafts > 0);
			/* From now on all are right: it is found out and made use of. */
			run(&d, 2000, 16);
			if (d.took > (each[k] < 0.5 ? 0.8 : 1.02) * d.plain)
				fail_msg("rows of %g, guessed %g: %g steps in place of %g", each[k], each[g], d.took,
					 d.plain);
		}
	}
}

/* However wrong the first guess was: where several rows cost as one, the first trial shows it. */
static void cheap_rows_are_found(void **state)
{
	(void)state;
	static const double guessed[] = {0, 0.3, 1, 3, 12};
	for (size_t k = 0; k < sizeof guessed / sizeof *guessed; k++) {
		struct drafting d;
		int n_steps = 0;
		begin(&d, guessed[k], 0, 0.1);
		while (drafting_step(&d, 16, 1) <= SPEC_TRIAL)
			n_steps++;
		if (n_steps >= 4 * SPEC_FIRST_PATIENCE)
			fail_msg("guessed %g: %d steps", guessed[k], n_steps);
		run(&d, 2000, 16);
		assert_true(d.took < 0.35 * d.plain);
	}
}

/* Drafts pay, then rows become dear, as when another program takes the other processor, then they pay again. */
static void decisions_change_back(void **state)
{
	(void)state;
	struct drafting d;
	begin(&d, 0.05, 0.05, 0.1);
	run(&d, 2000, 4);
	assert_true(d.took < 0.6 * d.plain);
	d.each = 2;
	run(&d, 4000, 4);
	if (d.took > 1.02 * d.plain)
		fail_msg("%g of %g steps", d.took, d.plain);
	run(&d, 4000, 4);
	assert_true(d.took < 1.013 * d.plain);
	d.each = 0.05;
	run(&d, 4000, 4);
	assert_true(d.took < 0.8 * d.plain);
	/* Drafting itself becomes dear: the estimates of rows are right and nothing gains. */
	d.draft = 3;
	run(&d, 4000, 4);
	assert_true(d.took < 1.02 * d.plain);
}

/* Estimates that are wrong for good, of a drafter that costs more than it says: the account stops it. */
static void the_account_decides(void **state)
{
	(void)state;
	struct spec_account a;
	double took = 0, plain = 0;
	spec_account_init(&a);
	for (int i = 0; i < 3000; i++) {
		bool drafts = spec_may_draft_now(&a);
		const struct spec_step s = {.plain_ns = 1e6,
					    .expected_ns = drafts ? 1.2e6 : 1e6,
					    .took_ns = drafts ? 2.2e6 : 1e6,
					    .n_decode = 4,
					    .n_accepted = drafts ? 3 : 0,
					    .drafted = drafts};
		spec_account_learn(&a, &s);
		a.n_drafting += drafts;
		took += s.took_ns / 1e6;
		plain += drafts ? 1.75 : 1;
	}
	assert_true(took < 1.013 * plain);
	assert_true(took > 1.005 * plain); /* it goes on looking */
	/* What it had to wait for does not count. */
	spec_account_init(&a);
	for (int i = 0; i < 100; i++) {
		const struct spec_step s = {
		    .plain_ns = 1e6, .expected_ns = 1e6, .took_ns = 1e6, .beside_ns = i % 2 ? 1e5 : 5e7, .n_decode = 1};
		spec_account_learn(&a, &s);
	}
	assert_true(a.beside_ns > 0.9e5 && a.beside_ns < 1.1e5);
}

/* Every tenth step takes ten times as long, with drafts and without: what pays still pays, what loses loses little. */
static void disturbances_count_alike(void **state)
{
	(void)state;
	for (int pays = 0; pays < 2; pays++) {
		struct drafting d;
		uint64_t random = 3;
		begin(&d, 0.05, pays ? 0.05 : 1, 0.1);
		for (int i = 0; i < 6000; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			drafting_step(&d, 4, (random >> 33) % 10 == 0 ? 10 : 1);
		}
		if (d.took > (pays ? 0.7 : 1.03) * d.plain)
			fail_msg("%g of %g steps", d.took, d.plain);
	}
}

/* A trial that costs much waits until much has been done without. */
static void dear_trials_are_rare(void **state)
{
	(void)state;
	struct cost c;
	struct spec_rate r;
	struct spec_trial t = {0};
	learn(&c, 0.05);
	struct spec_now now = alone(&c);
	const struct spec_price dear = {.each_ns = 4e5, .once_ns = 2e6, .spread = 100};
	spec_rate_init(&r, 0);
	int n_tried = 0;
	for (int token = 0; token < 1000; token++)
		n_tried += spec_length(&r, &t, 2, &now, 10, 8, &dear) > 0; /* 2.8 steps each */
	assert_int_equal(n_tried, 0);
	assert_int_equal(spec_length(&r, &t, 3, &now, 10, 8, &dear), SPEC_TRIAL);
	for (int token = 0; token < 1000; token++)
		n_tried += spec_length(&r, &t, 3, &now, 10, 8, &dear) > 0;
	assert_in_range(n_tried, 4, 6); /* after 32, 64, 128, … */
	spec_rate_init(&r, 1);
	assert_true(r.accept < 1); /* a guess is not more than a guess */
	assert_true(spec_length(&r, &t, 0, &now, 10, 8, &dear) > 0);
}

/* Answers end sooner than they might: what is paid once is spread over few tokens. */
static void answers_have_a_length(void **state)
{
	(void)state;
	struct spec_account a;
	spec_account_init(&a);
	for (int i = 0; i < 100; i++)
		spec_account_ended(&a, 8 + 4 * (uint32_t)(i % 2));
	assert_true(a.length > 9 && a.length < 11);
}

/* Guesses move with what is measured beside them, until they are measured. */
static void guesses_move_together(void **state)
{
	(void)state;
	struct cost c;
	cost_init(&c, 1e6, 1e6);
	for (uint32_t rows = 1; rows <= 16; rows *= 2)
		cost_guess(&c, rows, 1e6 * rows);
	spec_cost_learn(&c, 1, (struct cost_past){0}, 0.5e6);
	assert_true(cost_rows_ns(&c, 1) < 0.51e6 && cost_rows_ns(&c, 8) < 4.01e6 && cost_rows_ns(&c, 8) > 3.99e6);
	spec_cost_learn(&c, 4, (struct cost_past){0}, 0.6e6);
	double four = cost_rows_ns(&c, 4);
	assert_true(four < 0.61e6 && cost_rows_ns(&c, 8) < 1.21e6);
	/* One was measured, and stays. */
	assert_true(cost_rows_ns(&c, 1) > 0.49e6);
	for (int i = 0; i < 200; i++)
		spec_cost_learn(&c, 8, (struct cost_past){0}, 4e6);
	assert_true(cost_rows_ns(&c, 4) == four && cost_rows_ns(&c, 8) > 3.9e6);
}

/* A plain step that was disturbed once does not make bad drafts look good for long, and never looks dearer
 * than a step with more rows. */
static void disturbances_pass(void **state)
{
	(void)state;
	struct cost c;
	struct spec_rate r;
	learn(&c, 0.3);
	for (int i = 0; i < 3; i++)
		spec_cost_learn(&c, 1, (struct cost_past){0}, 5e7); /* fifty times too long */
	struct spec_now now = alone(&c);
	spec_rate_init(&r, 0.2);
	assert_int_equal(length_of(&r, &now, 10, 8, &(struct spec_price){.each_ns = 2e5}), 0);
	assert_int_equal(length_of(&r, &now, 10, 8, &free_draft), 0);
	/* Learnt as cost_learn does, it would be seen as an average. */
	for (int i = 0; i < 40; i++)
		cost_learn(&c, 1, (struct cost_past){0}, 3e6);
	double three = cost_rows_ns(&c, 1);
	assert_true(three > 1.5 * cost_rows_ns(&c, 3));
	r.accept = 0.05; /* one draft in twenty right: nothing gained, though a plain step is said to cost twice */
	assert_int_equal(length_of(&r, &now, 10, 8, &(struct spec_price){.each_ns = 1e5}), 0);
	/* And the truth comes back. */
	for (int i = 0; i < 80; i++)
		spec_cost_learn(&c, 1, (struct cost_past){0}, 1e6);
	assert_true(cost_rows_ns(&c, 1) < 1.1e6);
}

static void expectations(void **state)
{
	(void)state;
	struct spec_rate r;
	spec_rate_init(&r, 0.5);
	r.accept = 0.5;
	assert_true(spec_expected(&r, 0) == 0);
	assert_true(spec_expected(&r, 3) == 0.875);
	r.accept = 1;
	assert_true(spec_expected(&r, 8) == 8);
	/* The average approaches the truth. */
	spec_rate_init(&r, 0.5);
	struct spec_trial t = {.patience = 64};
	double sum = 0;
	for (int i = 0; i < 400; i++) {
		spec_rate_learn(&r, &t, i % 4 == 0 ? 1 : 3, i % 4 == 0 ? 0 : 3);
		sum += i >= 100 ? r.accept : 0;
	}
	assert_int_equal(t.patience, SPEC_FIRST_PATIENCE);
	assert_true(sum / 300 > 0.8 && sum / 300 < 0.97); /* 9 of 10 */
}

/* What a draft of the best length gains tells drafters apart: by acceptance, and by price. */
static void gains_compare_drafters(void **state)
{
	(void)state;
	struct cost cheap;
	struct spec_rate sure, unsure;
	learn(&cheap, 0.02);
	struct spec_now now = alone(&cheap);
	spec_rate_init(&sure, 0.8);
	spec_rate_init(&unsure, 0.5);
	const struct spec_price low = {.each_ns = 1e5}, high = {.each_ns = 6e5}, hopeless = {.each_ns = 3e6};
	assert_true(spec_gain(&sure, &now, 100, 8, &low) > spec_gain(&unsure, &now, 100, 8, &low));
	assert_true(spec_gain(&sure, &now, 100, 8, &low) > spec_gain(&sure, &now, 100, 8, &high));
	/* The surer drafter may be too dear. */
	assert_true(spec_gain(&unsure, &now, 100, 8, &low) > spec_gain(&sure, &now, 100, 8, &high));
	assert_true(spec_gain(&sure, &now, 100, 8, &hopeless) < 1);
	/* 1 + 0.8 tokens of a step and a drafted one: 1.02 + 0.1 times a plain step, but for what is learned of it. */
	double one = spec_gain(&sure, &now, 100, 1, &low);
	assert_true(one > 1.5 && one < 1.7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ngrams_as_defined),     cmocka_unit_test(ngrams_of_loops),
	    cmocka_unit_test(ngrams_without_memory), cmocka_unit_test(lengths_follow_acceptance),
	    cmocka_unit_test(none_under_load),       cmocka_unit_test(losses_are_bounded),
	    cmocka_unit_test(cheap_rows_are_found),  cmocka_unit_test(decisions_change_back),
	    cmocka_unit_test(the_account_decides),   cmocka_unit_test(disturbances_count_alike),
	    cmocka_unit_test(dear_trials_are_rare),  cmocka_unit_test(answers_have_a_length),
	    cmocka_unit_test(guesses_move_together), cmocka_unit_test(disturbances_pass),
	    cmocka_unit_test(expectations),          cmocka_unit_test(gains_compare_drafters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
