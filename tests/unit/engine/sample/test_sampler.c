/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler against its definition: distributions, the filters' supports, ties, what is not a number, penalties, and
 * the noise of draws. (test_sampler_reference.c has its log probabilities and requests at random.)
 */
#include "tests/unit/engine/sample/sampler_draws.h"

#include "base/fault.h"
#include "kernels/race.h"

/* Keeps the best so many of p (sorted by its index order given) and scales them to 1. */
static void keep(double *p, const int *order, int n, int kept)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += i < kept ? p[order[i]] : 0;
	for (int i = 0; i < n; i++)
		p[order[i]] = i < kept ? p[order[i]] / sum : 0;
}

static const int order[] = {1, 4, 3, 7, 0, 5, 2, 6};

static void test_distributions(void **arg)
{
	(void)arg;
	double p[K];
	static const float temperatures[] = {0.5f, 1, 2};
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct sampler_params s = plain;
		s.seed = seed * 0x100000001ull;
		for (int i = 0; i < 3; i++) {
			s.temperature = temperatures[i];
			softmax(logits, K, (double)s.temperature, p);
			check_distribution(&s, NULL, logits, K, p, FEW_DRAWS);
		}
		s.temperature = 1;
		for (uint32_t k = 1; k <= K; k++) {
			s.top_k = k;
			softmax(logits, K, 1, p);
			keep(p, order, K, (int)k);
			check_distribution(&s, NULL, logits, K, p, FEW_DRAWS);
		}
		/* Masses in order: .30 .30 .18 .11 .067 .041 .015 .0055 */
		static const struct {
			float top_p;
			int kept;
		} tops[] = {{1e-9f, 1}, {0.2f, 1}, {0.45f, 2}, {0.7f, 3}, {0.85f, 4}, {0.999f, 8}, {1, 8}};
		s.top_k = 0;
		for (int i = 0; i < 7; i++) {
			s.top_p = tops[i].top_p;
			softmax(logits, K, 1, p);
			keep(p, order, K, tops[i].kept);
			check_distribution(&s, NULL, logits, K, p, FEW_DRAWS);
		}
		/* Top-p of what top-k left: of .38 .38 .23, 0.7 takes two. */
		s.top_k = 3;
		s.top_p = 0.7f;
		softmax(logits, K, 1, p);
		keep(p, order, K, 2);
		check_distribution(&s, NULL, logits, K, p, FEW_DRAWS);
		/* exp(1.5-2) = .61 stays, exp(1-2) = .37 goes. */
		s = plain;
		s.min_p = 0.5f;
		softmax(logits, K, 1, p);
		keep(p, order, K, 3);
		check_distribution(&s, NULL, logits, K, p, FEW_DRAWS);
	}
}

static void test_greedy_and_ties(void **arg)
{
	(void)arg;
	struct sampler_params s = plain;
	s.temperature = 0;
	static const float flat[MOST];
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(draw(&s, logits, K, i).id, 1);
		assert_int_equal(draw(&s, flat, MOST, i).id, 0);
	}
	/* One kept of equals is the lowest id; k of equals are the k lowest. */
	s = plain;
	for (uint32_t k = 1; k < MOST; k++) {
		s.top_k = k;
		for (uint64_t i = 0; i < 50; i++)
			assert_in_range(draw(&s, flat, MOST, i).id, 0, (int)k - 1);
	}
	s.top_k = 0;
	s.top_p = 0x1p-20f;
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(draw(&s, flat, MOST, i).id, 0);
}

static void test_not_numbers(void **arg)
{
	(void)arg;
	static const float none[] = {NAN, -INFINITY, NAN}, over[] = {0, INFINITY, 1},
			   some[] = {NAN, -INFINITY, -3e38f, NAN};
	static const float temperatures[] = {0, 1e-6f, 1, 100};
	for (int t = 0; t < 4; t++)
		for (uint32_t k = 0; k < 3; k++)
			for (uint64_t i = 0; i < 50; i++) {
				struct sampler_params s = plain;
				s.temperature = temperatures[t];
				s.top_k = k;
				s.want_logprob = i % 2 == 0;
				assert_int_equal(draw(&s, none, 3, i).id, -1);
				assert_int_equal(draw(&s, over, 3, i).id, -1);
				struct sampler_choice c = draw(&s, some, 4, i);
				assert_int_equal(c.id, 2);
				assert_true(i % 2 == 0 ? fabsf(c.logprob) < 1e-6f : isnan((double)c.logprob) != 0);
			}
}

static void test_penalties(void **arg)
{
	(void)arg;
	struct sampler_state said = {0};
	struct sampler_params s = plain;
	s.temperature = 0;
	s.presence_penalty = 0.4f;
	assert_int_equal(draw_said(&s, &said, logits, K, 0).id, 1);
	assert_int_equal(sampler_state_add(&said, 1), 0);
	assert_int_equal(draw_said(&s, &said, logits, K, 0).id, 4);
	for (int i = 0; i < 9; i++) /* presence counts once: both stand at 1.6, above 1.5 */
		assert_int_equal(sampler_state_add(&said, 4), 0);
	assert_int_equal(draw_said(&s, &said, logits, K, 0).id, 1);
	s.frequency_penalty = 0.2f; /* 2-0.4-0.2 = 1.4 */
	assert_int_equal(draw_said(&s, &said, logits, K, 0).id, 3);
	assert_int_equal(draw_said(&s, NULL, logits, K, 0).id, 1);
	/* The prompt counts for the repetition penalty only: 2 / 1.25 = 1.6, 1.5 / 1.25 = 1.2. */
	static const int32_t prompt[] = {1, 4, 3, 7};
	struct sampler_state asked = {0};
	assert_int_equal(sampler_state_add_prompt(&asked, prompt, 2), 0);
	assert_int_equal(draw_said(&s, &asked, logits, K, 0).id, 1);
	s.repetition_penalty = 1.25f;
	assert_int_equal(draw_said(&s, &asked, logits, K, 0).id, 1);
	s.repetition_penalty = 1.5f; /* 2 / 1.5 is below 1.5 */
	assert_int_equal(draw_said(&s, &asked, logits, K, 0).id, 3);
	s.repetition_penalty = 2;
	assert_int_equal(sampler_state_add_prompt(&asked, prompt, 4), 0);
	assert_int_equal(draw_said(&s, &asked, logits, K, 0).id, 1); /* all halved but .5, at 1 and first */
	/* Negative ones favour; negative logits are multiplied. */
	s = plain;
	s.temperature = 0;
	s.presence_penalty = -2;
	struct sampler_state first = {0};
	assert_int_equal(sampler_state_add(&first, 0), 0);
	assert_int_equal(draw_said(&s, &first, logits, K, 0).id, 0);
	static const float below[] = {-1, -1.5f, -3};
	s.presence_penalty = 0;
	s.repetition_penalty = 2;
	assert_int_equal(draw_said(&s, &first, below, 3, 0).id, 1);
	sampler_state_dispose(&said);
	sampler_state_dispose(&asked);
	sampler_state_dispose(&first);
}

static void test_what_is_out(void **arg)
{
	(void)arg;
	static const int32_t ends[] = {1}, stops[] = {4};
	struct sampler_params s = plain;
	s.temperature = 0;
	s.end_ids = ends;
	s.n_end_ids = 1;
	s.stop_ids = stops;
	s.n_stop_ids = 1;
	s.min_tokens = 2;
	assert_int_equal(draw(&s, logits, K, 0).id, 3);
	assert_int_equal(draw(&s, logits, K, 1).id, 3);
	assert_int_equal(draw(&s, logits, K, 2).id, 1);
	s.ignore_eos = true;
	assert_int_equal(draw(&s, logits, K, 2).id, 4);
	/* Nothing is left. */
	static const float two[] = {-INFINITY, 1};
	for (int t = 0; t < 2; t++) {
		s.want_logprob = t == 0;
		s.n_stop_ids = 0;
		assert_int_equal(draw(&s, two, 2, 5).id, -1);
		s.temperature = 1;
		assert_int_equal(draw(&s, two, 2, 5).id, -1);
		s.temperature = 0;
	}
	/* A bias decides, however high the other stands. */
	static const struct proto_id_f32 biases[] = {{6, 100}, {1, -100}, {6, 1}};
	s = plain;
	s.bias = biases;
	s.n_bias = 3;
	for (uint64_t i = 0; i < 300; i++) {
		struct sampler_choice c = draw(&s, logits, K, i);
		assert_int_equal(c.id, 6);
		assert_true(c.logprob < -4); /* the model's own opinion of it */
	}
}

/* The result is a function of its arguments: not of earlier draws, nor of what scratch held. */
static void test_pure(void **arg)
{
	(void)arg;
	int32_t ids[500];
	struct sampler_params other = plain, third = plain;
	int differ = 0, choices = 0;
	other.seed = 2;
	third.choice = 1;
	for (uint64_t i = 0; i < 500; i++)
		ids[i] = draw(&plain, logits, K, i).id;
	for (uint64_t i = 500; i-- > 0;) {
		differ += draw(&other, logits, K, i).id != ids[i];
		choices += draw(&third, logits, K, i).id != ids[i];
		assert_int_equal(draw(&plain, logits, K, i).id, ids[i]);
	}
	assert_true(differ > 250);
	assert_true(choices > 250);
}

/* What a time of the race is in [0, 1) if it is exponential. */
static double unit_of(uint64_t seed, uint32_t choice, uint64_t index, int32_t id)
{
	uint64_t key = race_key(seed, choice, index);
	struct race_arrival first = race_first(key, id / RACE_BLOCK);
	return -expm1(-race_time(key, &first, id));
}

/* Exponential, and neighbours in seed, choice, index and id have nothing in common, nor the ids of a block or a block's
 * first and the next block's. */
static void test_noise(void **arg)
{
	(void)arg;
	enum { N = 100000, BINS = 16, PAIRS = 6 };
	static int pairs[PAIRS][BINS][BINS];
	for (uint64_t i = 0; i < N; i++) {
		int32_t id = (int32_t)(i % 1000);
		double u = unit_of(7, 0, i, id),
		       v[PAIRS] = {unit_of(7, 0, i + 1, id),   unit_of(8, 0, i, id),
				   unit_of(7, 1, i, id),       unit_of(7, 0, i, id + 1),
				   unit_of(7, 0, i, id ^ 128), unit_of(7, 0, i, id + RACE_BLOCK)};
		assert_true(u > 0 && u < 1);
		for (int k = 0; k < PAIRS; k++)
			pairs[k][(int)(u * BINS)][(int)(v[k] * BINS)]++;
	}
	for (int k = 0; k < PAIRS; k++) {
		double chi = 0, mean = N / (double)(BINS * BINS);
		for (int i = 0; i < BINS * BINS; i++) {
			double d = pairs[k][i / BINS][i % BINS] - mean;
			chi += d * d / mean;
		}
		if (!(chi < 255 + 5 * sqrt(2 * 255.0) && chi > 255 - 5 * sqrt(2 * 255.0)))
			fail_msg("pair %d: chi-square %.0f with 255 degrees", k, chi);
	}
}

/* The logarithm against the library's, over all of its range. */
static void test_log(void **arg)
{
	(void)arg;
	for (int i = 0; i < 200000; i++) {
		double x = ldexp(1 + random_unit(), (int)(next_random() % 70) - 60), e = log(x);
		assert_true(fabs(race_log(x) - e) <= 4 * 0x1p-53 * fmax(fabs(e), fabs(e) < 0.5 ? fabs(e) : 1));
	}
	assert_true(race_log(1) == 0);
}

/* Two models that draw with one key: independent of what they know of each other they coincide with probability at
 * least (1 - d) / (1 + d), d being their total variation distance; a rule that knows both could have 1 - d. */
static void test_coincidence(void **arg)
{
	(void)arg;
	enum { PAIRS = 48, DRAWS = 4000, IDS = 400 };
	static float a[IDS], b[IDS];
	static double p[IDS], q[IDS];
	double short_of = 0;
	random_state = 5;
	for (int k = 0; k < PAIRS; k++) {
		double apart = 0.05 * (1 + k % 12), d = 0;
		struct sampler_params s = plain;
		s.want_logprob = false;
		s.temperature = ONE_OF(0.5f, 1, 1.5f, 2);
		s.seed = (uint64_t)k * 977;
		fill(a, IDS, 3, false);
		fill(b, IDS, apart * 4, false);
		for (int i = 0; i < IDS; i++)
			b[i] += a[i];
		softmax(a, IDS, (double)s.temperature, p);
		softmax(b, IDS, (double)s.temperature, q);
		for (int i = 0; i < IDS; i++)
			d += fabs(p[i] - q[i]) / 2;
		int same = 0;
		for (uint64_t i = 0; i < DRAWS; i++)
			same += draw(&s, a, IDS, i).id == draw(&s, b, IDS, i).id;
		double least = (1 - d) / (1 + d), got = same / (double)DRAWS;
		if (got < least - 4 * sqrt(0.25 / DRAWS))
			fail_msg("pair %d: %.3f of the draws coincide, at least %.3f at a distance of %.3f", k, got,
				 least, d);
		short_of += 1 - d - got;
	}
	if (short_of / PAIRS > 0.08)
		fail_msg("%.3f below 1 - d on the mean", short_of / PAIRS);
}

static void test_state(void **arg)
{
	(void)arg;
	struct sampler_state s = {0}, copy = {0};
	for (int32_t i = 0; i < 3000; i++)
		assert_int_equal(sampler_state_add(&s, i * 17 % 1000), 0);
	assert_int_equal(s.n, 1000);
	assert_true(s.n_slots <= 4096);
	assert_int_equal(sampler_state_copy(&copy, &s), 0);
	assert_int_equal(sampler_state_add(&s, 5), 0);
	assert_int_equal(sampler_state_add_prompt(&s, (const int32_t[]){5}, 1), 0);
	for (int k = 0; k < 2; k++) {
		const struct sampler_state *of = k ? &copy : &s;
		int seen = 0;
		for (uint32_t i = 0; i < of->n_slots; i++) {
			if (of->slots[i].id < 0)
				continue;
			bool changed = k == 0 && of->slots[i].id == 5;
			assert_int_equal(of->slots[i].made, changed ? (4 | SAMPLER_IN_PROMPT) : 3);
			seen++;
		}
		assert_int_equal(seen, 1000);
	}
	sampler_state_dispose(&s);
	sampler_state_dispose(&copy);
	assert_int_equal(sampler_state_copy(&copy, &s), 0);
	assert_null(copy.slots);
}

static void test_no_memory(void **arg)
{
	(void)arg;
	for (int nth = 1; nth <= 9; nth++) {
		struct sampler_scratch sc = {0};
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = sampler_scratch_reserve(&sc, 100);
		fault_disarm_all();
		assert_int_equal(rc, nth <= 7 ? SL_ENOMEM : 0);
		assert_int_equal(sc.n_vocab, nth <= 7 ? 0 : 100);
		sampler_scratch_dispose(&sc);
	}
	struct sampler_state s = {0}, copy;
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(sampler_state_add(&s, 1), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(sampler_state_add(&s, 1), 0);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(sampler_state_copy(&copy, &s), SL_ENOMEM);
	fault_disarm_all();
	sampler_state_dispose(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_distributions), cmocka_unit_test(test_greedy_and_ties),
	    cmocka_unit_test(test_not_numbers),   cmocka_unit_test(test_penalties),
	    cmocka_unit_test(test_what_is_out),   cmocka_unit_test(test_pure),
	    cmocka_unit_test(test_noise),         cmocka_unit_test(test_log),
	    cmocka_unit_test(test_coincidence),   cmocka_unit_test(test_state),
	    cmocka_unit_test(test_no_memory),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
