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
		uint32_t n = spec_length(&r, &now, 100, 8, &free_draft);
		assert_true(n >= last);
		last = n;
	}
	assert_int_equal(last, 8);
	spec_rate_init(&r, 0.5);
	r.accept = 0.05;
	assert_true(spec_length(&r, &now, 100, 8, &free_draft) <= 1);
	/* A machine on which rows cost nearly what steps cost. */
	now = alone(&dear);
	r.accept = 0.7;
	assert_int_equal(spec_length(&r, &now, 100, 8, &free_draft), 0);
	/* Drafting costs too. */
	now = alone(&cheap);
	r.accept = 0.8;
	assert_true(spec_length(&r, &now, 100, 8, &(struct spec_price){1e5, 0, 1}) <
		    spec_length(&r, &now, 100, 8, &free_draft));
	assert_int_equal(spec_length(&r, &now, 100, 8, &(struct spec_price){2e6, 0, 1}), 0);
	assert_int_equal(spec_length(&r, &now, 100, 8, &(struct spec_price){0, 2e7, 1}), 0);
	assert_int_equal(spec_length(&r, &now, 100, 0, &free_draft), 0);
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
	assert_true(spec_length(&r, &now, 10, 8, &free_draft) >= 3);
	now.rows = now.tokens = 32;
	assert_int_equal(spec_length(&r, &now, 10, 8, &free_draft), 0);
	/* The rows of the sequences before it count. */
	now.rows = now.tokens = 6;
	uint32_t first = spec_length(&r, &now, 10, 8, &free_draft), n = first;
	assert_true(first > 0);
	for (int i = 0; i < 4; i++) {
		spec_now_add(&now, &r, 10, n);
		n = spec_length(&r, &now, 10, 8, &free_draft);
		assert_true(n <= first);
	}
	assert_int_equal(n, 0);
}

/* Drafts that are always wrong: what they cost all in all, and that they are tried again. */
static void losses_are_bounded(void **state)
{
	(void)state;
	static const double each[] = {0.02, 0.1, 0.3, 0.6, 1};
	for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
		struct cost c;
		struct spec_rate r;
		learn(&c, each[k]);
		spec_rate_init(&r, 0.5);
		struct spec_now now = alone(&c);
		double lost = 0;
		int tried_late = 0;
		for (int token = 0; token < 2000; token++) {
			uint32_t n = spec_length(&r, &now, 10, 8, &free_draft);
			lost += each[k] * n;
			tried_late += token > 1000 && n > 0;
			if (n > 0)
				spec_rate_learn(&r, 1, 0);
		}
		assert_true(lost / 2000 < 0.03);
		assert_true(tried_late > 0);
		/* From now on all are right: it is found out and made use of. */
		int n_steps = 0;
		for (int token = 0; token < 2000; n_steps++) {
			uint32_t n = spec_length(&r, &now, 10, 8, &free_draft);
			token += (int)n + 1;
			if (n > 0)
				spec_rate_learn(&r, n, n);
		}
		assert_true(each[k] > 0.8 || n_steps < 1000);
	}
}

/* A trial that costs much waits until much has been done without. */
static void dear_trials_are_rare(void **state)
{
	(void)state;
	struct cost c;
	struct spec_rate r;
	learn(&c, 0.05);
	struct spec_now now = alone(&c);
	const struct spec_price dear = {.each_ns = 4e5, .once_ns = 2e6, .spread = 100};
	spec_rate_init(&r, 0);
	int n_tried = 0;
	for (int token = 0; token < 1000; token++)
		n_tried += spec_length(&r, &now, 10, 8, &dear) > 0; /* 2.9 steps each */
	assert_true(n_tried >= 2 && n_tried <= 3);
	spec_rate_init(&r, 1);
	assert_true(r.accept < 1); /* a guess is not more than a guess */
	assert_true(spec_length(&r, &now, 10, 8, &dear) > 0);
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
	assert_int_equal(spec_length(&r, &now, 10, 8, &(struct spec_price){.each_ns = 2e5}), 0);
	assert_int_equal(spec_length(&r, &now, 10, 8, &free_draft), 0);
	/* Learnt as cost_learn does, it would be seen as an average. */
	for (int i = 0; i < 40; i++)
		cost_learn(&c, 1, (struct cost_past){0}, 3e6);
	double three = cost_rows_ns(&c, 1);
	assert_true(three > 1.5 * cost_rows_ns(&c, 3));
	r.accept = 0.05; /* one draft in twenty right: nothing gained, though a plain step is said to cost twice */
	assert_int_equal(spec_length(&r, &now, 10, 8, &(struct spec_price){.each_ns = 1e5}), 0);
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
	double sum = 0;
	for (int i = 0; i < 400; i++) {
		spec_rate_learn(&r, i % 4 == 0 ? 1 : 3, i % 4 == 0 ? 0 : 3);
		sum += i >= 100 ? r.accept : 0;
	}
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
	const struct spec_price low = {1e5, 0, 1}, high = {6e5, 0, 1}, hopeless = {3e6, 0, 1};
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
	    cmocka_unit_test(dear_trials_are_rare),  cmocka_unit_test(disturbances_pass),
	    cmocka_unit_test(expectations),          cmocka_unit_test(gains_compare_drafters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
