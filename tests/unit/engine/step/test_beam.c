/* SPDX-License-Identifier: Apache-2.0
 *
 * Beam search against trying every continuation: a small vocabulary with made-up probabilities that
 * depend on the text, and a beam wide enough must find the best answer there is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/fault.h"
#include "engine/step/beam.h"

enum { VOCAB = 5, END = 4 };

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ h >> 29;
}

static void distribution(uint64_t seed, const int32_t *tokens, uint32_t n, float *logprobs)
{
	uint64_t h = seed;
	double sum = 0, p[VOCAB];
	for (uint32_t i = 0; i < n; i++)
		h = mix(h, (uint64_t)tokens[i] + 1);
	for (int i = 0; i < VOCAB; i++) {
		p[i] = exp((double)(mix(h, (uint64_t)i + 100) % 1000) / 300);
		sum += p[i];
	}
	for (int i = 0; i < VOCAB; i++)
		logprobs[i] = (float)log(p[i] / sum);
}

static bool is_end(const void *ctx, int32_t id)
{
	(void)ctx;
	return id == END;
}

static int likelier(const void *a, const void *b)
{
	float x = ((const struct beam_top *)a)->logprob, y = ((const struct beam_top *)b)->logprob;
	return x > y ? -1 : x < y;
}

static int run(struct beam *b, uint64_t seed)
{
	bool finished = false;
	while (!finished) {
		struct beam_top tops[BEAM_MAX * VOCAB];
		uint8_t parents[BEAM_MAX];
		int32_t *before[BEAM_MAX];
		uint32_t k = beam_n_tops(b) < VOCAB ? beam_n_tops(b) : VOCAB, n = b->n_live, length = b->live[0].n;
		for (uint32_t i = 0; i < n; i++) {
			struct beam_top all[VOCAB];
			float lp[VOCAB];
			distribution(seed, b->live[i].tokens, b->live[i].n, lp);
			for (int32_t v = 0; v < VOCAB; v++)
				all[v] = (struct beam_top){.id = v, .logprob = lp[v]};
			qsort(all, VOCAB, sizeof *all, likelier);
			for (uint32_t j = 0; j < k; j++)
				tops[i * k + j] = all[j];
			before[i] = calloc(length + 1, sizeof(int32_t));
			for (uint32_t j = 0; j < length; j++)
				before[i][j] = b->live[i].tokens[j];
		}
		int rc = beam_advance(b, tops, k, is_end, NULL, parents, &finished);
		for (uint32_t i = 0; rc == 0 && i < b->n_live; i++) {
			assert_true(parents[i] < n);
			for (uint32_t j = 0; j < length; j++)
				assert_int_equal(b->live[i].tokens[j], before[parents[i]][j]);
		}
		for (uint32_t i = 0; i < n; i++)
			free(before[i]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* The best answer of at most `left` more tokens. */
static double best_of_all(uint64_t seed, int32_t *tokens, uint32_t n, uint32_t max, double sum, float penalty)
{
	float lp[VOCAB];
	double best = -INFINITY;
	distribution(seed, tokens, n, lp);
	for (int32_t v = 0; v < VOCAB; v++) {
		double s = sum + (double)lp[v];
		tokens[n] = v;
		double got = v == END || n + 1 == max ? s / pow(n + 1, (double)penalty)
						      : best_of_all(seed, tokens, n + 1, max, s, penalty);
		best = got > best ? got : best;
	}
	return best;
}

static void finds_the_best(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 40; seed++) {
		struct beam b;
		int32_t tokens[8];
		/* Three tokens of five: 16 hypotheses are all that can live before the last one. */
		beam_init(&b, 16, 3, 1.0f);
		assert_int_equal(run(&b, seed), 0);
		assert_true(b.n_done >= 1 && b.n_done <= 16);
		assert_true(fabs(b.done[0].score - best_of_all(seed, tokens, 0, 3, 0, 1.0f)) < 1e-6);
		for (uint32_t i = 1; i < b.n_done; i++)
			assert_true(b.done[i].score <= b.done[i - 1].score);
		beam_reset(&b);
	}
}

static void a_beam_of_one_is_greedy(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 40; seed++) {
		struct beam b;
		beam_init(&b, 1, 12, 0);
		assert_int_equal(run(&b, seed), 0);
		assert_int_equal(b.n_done, 1);
		for (uint32_t i = 0; i < b.done[0].n; i++) {
			float lp[VOCAB];
			distribution(seed, b.done[0].tokens, i, lp);
			for (int v = 0; v < VOCAB; v++)
				assert_true(lp[v] <= lp[b.done[0].tokens[i]]);
		}
		assert_true(b.done[0].n == 12 || b.done[0].ended);
		beam_reset(&b);
		assert_int_equal(b.n_live, 1);
		assert_int_equal(run(&b, seed + 1), 0);
		beam_reset(&b);
	}
}

static void no_memory(void **state)
{
	(void)state;
	for (long nth = 1; nth < 60; nth++) {
		struct beam b;
		beam_init(&b, 4, 5, 1.0f);
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = run(&b, 3);
		fault_disarm_all();
		assert_true(rc == 0 || rc == SL_ENOMEM);
		beam_reset(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(finds_the_best),
	    cmocka_unit_test(a_beam_of_one_is_greedy),
	    cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
