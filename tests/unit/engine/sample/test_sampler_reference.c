/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler against a slow reference: doubles, full sorts, one thing after the other. Requests at random, log
 * probabilities, and distributions by chi-square (SAMPLER_DRAWS draws of every filter, a million in `make soak`).
 */
#include "tests/unit/engine/sample/sampler_draws.h"

#include "kernels/race.h"

static uint64_t many_draws(void)
{
	const char *said = getenv("SAMPLER_DRAWS");
	return said != NULL ? strtoull(said, NULL, 10) : FEW_DRAWS;
}

/* ---- the reference ---- */

struct text {
	int32_t prompt[40], made[40];
	int n_prompt, n_made;
};

struct reference {
	double p[WIDE]; /* probability, 0: out */
	double key[WIDE];
	int32_t order[WIDE];
	int n;
};
static struct reference ref;

static int by_key(const void *a, const void *b)
{
	int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
	return ref.key[i] != ref.key[j] ? (ref.key[i] > ref.key[j] ? -1 : 1) : (i > j) - (i < j);
}

/* Keeps the best by key: at most k, and no more than reach the share. */
static void ref_keep(int k, double share)
{
	double mass = 0, kept = 0;
	int m = 0;
	for (int i = 0; i < ref.n; i++) {
		ref.order[i] = i;
		mass += ref.p[i];
	}
	qsort(ref.order, (size_t)ref.n, sizeof *ref.order, by_key);
	for (int i = 0; i < ref.n; i++) {
		int32_t id = ref.order[i];
		if (ref.p[id] == 0)
			continue;
		if (m >= k || (m > 0 && kept >= share * mass))
			ref.p[id] = 0;
		kept += ref.p[id];
		m += ref.p[id] > 0;
	}
}

static void ref_adjust(const struct sampler_params *p, const struct text *t, float *l, uint64_t index)
{
	for (int i = 0; i < p->n_bias; i++)
		l[p->bias[i].id] += p->bias[i].v;
	for (int id = 0; id < ref.n; id++) {
		int made = 0, seen = 0;
		for (int i = 0; i < t->n_made; i++)
			made += t->made[i] == id;
		for (int i = 0; i < t->n_prompt; i++)
			seen += t->prompt[i] == id;
		if (made + seen > 0)
			l[id] = l[id] > 0 ? l[id] / p->repetition_penalty : l[id] * p->repetition_penalty;
		if (made > 0)
			l[id] -= p->presence_penalty + p->frequency_penalty * (float)made;
	}
	for (int id = 0; id < ref.n && p->only_biased; id++) {
		bool has = false;
		for (int i = 0; i < p->n_bias; i++)
			has = has || p->bias[i].id == (uint32_t)id;
		l[id] = has ? l[id] : -INFINITY;
	}
	for (int i = 0; i < p->n_stop_ids && index < p->min_tokens; i++)
		l[p->stop_ids[i]] = -INFINITY;
	for (uint32_t i = 0; i < p->n_end_ids && (p->ignore_eos || index < p->min_tokens); i++)
		l[p->end_ids[i]] = -INFINITY;
	for (int i = 0; i < ref.n; i++)
		if (p->mask != NULL && (p->mask[i / 32] >> (i % 32) & 1) == 0)
			l[i] = -INFINITY;
}

/* Leaves the weights in ref.p. The likeliest; -1: there is none. */
static int32_t ref_filter(const struct sampler_params *p, const struct text *t, const float *raw, int n, uint64_t index)
{
	static float l[WIDE];
	double max = -INFINITY, mass = 0, mean = 0, most = 0;
	int32_t best = -1;
	memcpy(l, raw, (size_t)n * sizeof *l);
	ref.n = n;
	ref_adjust(p, t, l, index);
	for (int i = 0; i < n; i++) {
		if ((double)l[i] > max) {
			max = (double)l[i];
			best = i;
		}
	}
	if (best < 0 || p->temperature == 0)
		return best;
	for (int i = 0; i < n; i++) {
		double x = ((double)l[i] - max) / (double)p->temperature;
		ref.p[i] = x > -86 ? exp(x) : 0;
		ref.key[i] = (double)l[i];
	}
	if (p->top_k > 0)
		ref_keep((int)p->top_k, 2);
	if (p->typical_p < 1) {
		for (int i = 0; i < n; i++)
			mass += ref.p[i];
		for (int i = 0; i < n; i++)
			mean -= ref.p[i] > 0 ? ref.p[i] / mass * log(ref.p[i] / mass) : 0;
		for (int i = 0; i < n; i++)
			ref.key[i] = ref.p[i] > 0 ? -fabs(-log(ref.p[i] / mass) - mean) : -INFINITY;
		/* Equal raw are equally typical; their doubles agree to the bit as well. */
		ref_keep(n, (double)p->typical_p);
		for (int i = 0; i < n; i++)
			ref.key[i] = (double)l[i];
	}
	if (p->top_p < 1)
		ref_keep(n, (double)p->top_p);
	for (int i = 0; i < n; i++)
		most = fmax(most, ref.p[i]);
	for (int i = 0; i < n; i++)
		if (ref.p[i] < most * (double)p->min_p)
			ref.p[i] = 0;
	return best;
}

static int32_t ref_draw(const struct sampler_params *p, const struct text *t, const float *raw, int n, uint64_t index)
{
	double at = INFINITY;
	int32_t last = -1, best = ref_filter(p, t, raw, n, index);
	if (best < 0 || p->temperature == 0)
		return best;
	uint64_t key = race_key(p->seed, p->choice, index);
	for (int i = 0; i < n; i++) {
		struct race_arrival first = race_first(key, i / RACE_BLOCK);
		double arrival = ref.p[i] > 0 ? race_time(key, &first, i) / ref.p[i] : INFINITY;
		if (arrival < at) {
			at = arrival;
			last = i;
		}
	}
	return last;
}

static void ref_logprobs(const float *raw, int n, double *lp)
{
	double max = -INFINITY, sum = 0;
	for (int i = 0; i < n; i++)
		max = fmax(max, (double)raw[i]);
	for (int i = 0; i < n; i++)
		sum += exp((double)raw[i] - max);
	for (int i = 0; i < n; i++)
		lp[i] = (double)raw[i] - max - log(sum);
}

/* Of a float of this size, and of sums whose terms are good to 3e-7 (raw.h). */
static bool near(float got, double exact) { return fabs((double)got - exact) <= 4e-7 + fabs(exact) * 0x1p-23; }

static void check_tops(const struct sampler_choice *c, const float *raw, int n, int n_top)
{
	static double lp[WIDE];
	ref_logprobs(raw, n, lp);
	for (int i = 0; i < n; i++) {
		ref.key[i] = lp[i];
		ref.order[i] = i;
	}
	qsort(ref.order, (size_t)n, sizeof *ref.order, by_key);
	assert_true(near(c->logprob, lp[c->id]));
	assert_int_equal(c->n_top, n_top < n ? n_top : n);
	for (int i = 0; i < c->n_top; i++) {
		assert_int_equal(c->top[i].id, ref.order[i]);
		assert_true(near(c->top[i].v, lp[ref.order[i]]));
	}
}

/* A grammar's mask: few of the tokens, about half or nearly all. */
static const uint32_t *any_mask(int n)
{
	static uint32_t mask[WIDE / 32];
	unsigned of = (unsigned)ONE_OF(2, 64, 128, 250);
	memset(mask, 0, sizeof mask);
	for (int i = 0; i < n; i++)
		mask[i / 32] |= (uint32_t)(next_random() % 256 < of) << (i % 32);
	return mask;
}

/* A request at random: each wish is off half of the time. */
static struct sampler_params any_params(int n, struct proto_id_f32 *bias, int32_t *stops, int32_t *ends)
{
	struct sampler_params p = plain;
	p.seed = next_random();
	p.choice = next_random() % 4;
	p.temperature = ONE_OF(0, 0.1f, 0.7f, 1, 1, 1.5f, 2);
	if (next_random() % 2)
		p.top_k = 1 + next_random() % (unsigned)(n + 3);
	if (next_random() % 4 == 0)
		p.top_k = 1 + next_random() % 20;
	if (next_random() % 2)
		p.top_p = ONE_OF(0.01f, 0.3f, 0.9f, 0.95f, 0.999f);
	if (next_random() % 2)
		p.typical_p = ONE_OF(0.05f, 0.2f, 0.8f, 0.95f);
	if (next_random() % 2)
		p.min_p = ONE_OF(0.01f, 0.1f, 0.5f, 1);
	if (next_random() % 2)
		p.repetition_penalty = ONE_OF(0.5f, 1.1f, 1.3f, 2);
	if (next_random() % 2)
		p.presence_penalty = ONE_OF(-2, -0.5f, 0.7f, 2);
	if (next_random() % 2)
		p.frequency_penalty = ONE_OF(-1, 0.1f, 0.9f);
	p.n_bias = (uint16_t)(next_random() % 5);
	p.bias = bias;
	for (int i = 0; i < p.n_bias; i++) {
		bias[i].id = next_random() % (unsigned)n;
		bias[i].v = ONE_OF(-100, -1, 0.5f, 3, 100, -INFINITY);
		for (int k = i; k > 0 && bias[k].id < bias[k - 1].id; k--) {
			struct proto_id_f32 other = bias[k];
			bias[k] = bias[k - 1];
			bias[k - 1] = other;
		}
	}
	p.only_biased = p.n_bias > 0 && next_random() % 4 == 0;
	p.n_stop_ids = (uint8_t)(next_random() % 3);
	p.n_end_ids = next_random() % 3;
	p.stop_ids = stops;
	p.end_ids = ends;
	for (int i = 0; i < 3; i++) {
		stops[i] = (int32_t)(next_random() % (unsigned)n);
		ends[i] = (int32_t)(next_random() % (unsigned)n);
	}
	p.min_tokens = next_random() % 3;
	p.ignore_eos = next_random() % 3 == 0;
	p.mask = next_random() % 3 == 0 ? any_mask(n) : NULL;
	p.want_logprob = next_random() % 2;
	p.n_top = (uint8_t)(next_random() % 21);
	return p;
}

static void any_text(int n, struct text *t, struct sampler_state *said)
{
	*t = (struct text){.n_prompt = (int)(next_random() % 40), .n_made = (int)(next_random() % 40)};
	for (int i = 0; i < t->n_prompt; i++)
		t->prompt[i] = (int32_t)(next_random() % (unsigned)n);
	for (int i = 0; i < t->n_made; i++)
		t->made[i] = (int32_t)(next_random() % (unsigned)(n < 9 ? n : 9));
	assert_int_equal(sampler_state_add_prompt(said, t->prompt, (size_t)t->n_prompt), 0);
	for (int i = 0; i < t->n_made; i++)
		assert_int_equal(sampler_state_add(said, t->made[i]), 0);
}

static void compare(int n, const float *l, int draws)
{
	struct proto_id_f32 bias[5];
	int32_t stops[3], ends[3];
	struct sampler_state said = {0};
	struct text t;
	struct sampler_params p = any_params(n, bias, stops, ends);
	any_text(n, &t, &said);
	for (int k = 0; k < draws; k++) {
		uint64_t index = next_random() % 5;
		struct sampler_choice c = draw_said(&p, &said, l, n, index);
		int32_t expected = ref_draw(&p, &t, l, n, index);
		if (c.id != expected)
			fail_msg("n %d: %d, expected %d: T %g top_k %u typical %g top_p %g min_p %g", n, c.id, expected,
				 (double)p.temperature, p.top_k, (double)p.typical_p, (double)p.top_p, (double)p.min_p);
		if (c.id < 0)
			continue;
		if (p.want_logprob)
			check_tops(&c, l, n, p.n_top);
		else
			assert_true(c.logprob != c.logprob && c.n_top == 0);
		p.seed++;
	}
	sampler_state_dispose(&said);
}

static void test_like_the_reference(void **arg)
{
	(void)arg;
	static float l[WIDE];
	for (int round = 0; round < 6000; round++) {
		int n = 1 + (int)(next_random() % (round % 8 == 0 ? 700 : 40));
		fill(l, n, (double)ONE_OF(0.1f, 1, 3, 10), next_random() % 2);
		compare(n, l, 4);
	}
	for (int round = 0; round < 12; round++) {
		fill(l, WIDE, (double)ONE_OF(0.5f, 2, 4), round % 4 == 0);
		compare(WIDE, l, 1);
	}
}

/* Every filter, alone and together with others: the distribution is the reference's. */
static void test_filtered_distributions(void **arg)
{
	(void)arg;
	enum { N = 40 };
	static const struct proto_id_f32 bias[] = {{2, 1.5f}, {9, -1}, {11, -INFINITY}, {30, 2}};
	static const int32_t ends[] = {3}, stops[] = {5};
	static const uint32_t mask[] = {0xF0FF7F3Fu, 0x5Au};
	static const struct sampler_params wanted[] = {
	    {.temperature = 1},
	    {.temperature = 0.6f},
	    {.temperature = 2},
	    {.temperature = 1, .top_k = 7},
	    {.temperature = 1, .top_p = 0.8f},
	    {.temperature = 1, .min_p = 0.1f},
	    {.temperature = 1, .typical_p = 0.7f},
	    {.temperature = 1, .repetition_penalty = 1.3f},
	    {.temperature = 1, .presence_penalty = 0.7f},
	    {.temperature = 1, .frequency_penalty = 0.4f},
	    {.temperature = 1, .bias = bias, .n_bias = 4},
	    {.temperature = 1, .bias = bias, .n_bias = 4, .only_biased = true},
	    {.temperature = 1, .mask = mask},
	    {.temperature = 1, .ignore_eos = true, .end_ids = ends, .n_end_ids = 1},
	    {.temperature = 1, .min_tokens = UINT32_MAX, .stop_ids = stops, .n_stop_ids = 1},
	    {.temperature = 1.5f, .top_k = 20, .top_p = 0.9f, .min_p = 0.05f},
	    {.temperature = 0.8f, .top_k = 30, .typical_p = 0.8f, .top_p = 0.95f, .mask = mask},
	    {.temperature = 2, .top_p = 0.9f, .mask = mask, .bias = bias, .n_bias = 4},
	    {.temperature = 1.2f, .min_p = 0.03f, .repetition_penalty = 1.1f, .frequency_penalty = 0.2f, .mask = mask},
	};
	struct text t = {.prompt = {1, 4, 6, 8}, .made = {4, 4, 7, 12}, .n_prompt = 4, .n_made = 4};
	struct sampler_state said = {0};
	double p[N], mass;
	float l[N];
	assert_int_equal(sampler_state_add_prompt(&said, t.prompt, 4), 0);
	for (int i = 0; i < t.n_made; i++)
		assert_int_equal(sampler_state_add(&said, t.made[i]), 0);
	random_state = 9;
	for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
		struct sampler_params s = wanted[k];
		s.top_p = s.top_p > 0 ? s.top_p : 1;
		s.typical_p = s.typical_p > 0 ? s.typical_p : 1;
		s.repetition_penalty = s.repetition_penalty > 0 ? s.repetition_penalty : 1;
		s.seed = 100 + k;
		fill(l, N, 1, false);
		assert_true(ref_filter(&s, &t, l, N, 0) >= 0);
		mass = 0;
		for (int i = 0; i < N; i++)
			mass += ref.p[i];
		for (int i = 0; i < N; i++)
			p[i] = ref.p[i] / mass;
		check_distribution(&s, &said, l, N, p, many_draws());
	}
	sampler_state_dispose(&said);
}

static void test_logprob(void **arg)
{
	(void)arg;
	static const float temperatures[] = {0, 0.3f, 1, 3};
	struct sampler_state said = {0};
	for (int i = 0; i < 9; i++)
		assert_int_equal(sampler_state_add(&said, i % 3), 0);
	for (int t = 0; t < 4; t++)
		for (int penal = 0; penal < 2; penal++)
			for (uint64_t i = 0; i < 200; i++) {
				struct sampler_params s = plain;
				s.temperature = temperatures[t];
				s.presence_penalty = penal ? 0.5f : 0;
				s.frequency_penalty = penal ? 0.25f : 0;
				s.n_top = (uint8_t)(i % 21);
				struct sampler_choice c = draw_said(&s, &said, logits, K, i);
				check_tops(&c, logits, K, s.n_top);
			}
	sampler_state_dispose(&said);
}

static void test_prompt_logprob(void **arg)
{
	(void)arg;
	static float l[700];
	struct sampler_choice c;
	for (int round = 0; round < 200; round++) {
		int n = 1 + (int)(next_random() % 700);
		fill(l, n, 3, round % 2);
		int32_t id = (int32_t)(next_random() % (unsigned)n);
		uint8_t n_top = (uint8_t)(round % 21);
		sampler_prompt_logprob(l, n, id, n_top, &scratch, &c);
		assert_int_equal(c.id, id);
		check_tops(&c, l, n, n_top);
	}
	float none[] = {NAN, -INFINITY};
	sampler_prompt_logprob(none, 2, 1, 3, &scratch, &c);
	assert_int_equal(c.id, -1);
}

/* The likeliest after the adjustments, and what they weigh among all of those. */
static void test_top(void **arg)
{
	(void)arg;
	static float l[700], was[700];
	static double lp[700];
	struct proto_id_f32 bias[5], out[700];
	int32_t stops[3], ends[3];
	for (int round = 0; round < 400; round++) {
		int n = 4 + (int)(next_random() % 690), k = 1 + (int)(next_random() % 40), there = 0;
		struct sampler_params p = any_params(n, bias, stops, ends);
		struct sampler_state said = {0};
		struct text t;
		uint64_t index = next_random() % 4;
		fill(l, n, 3, round % 2);
		memcpy(was, l, sizeof l);
		any_text(n, &t, &said);
		int have = sampler_top(&p, &said, l, n, index, k, &scratch, out);
		assert_memory_equal(l, was, (size_t)n * sizeof *l);
		ref.n = n;
		const uint32_t *mask = p.mask;
		p.mask = NULL;
		ref_adjust(&p, &t, was, index);
		ref_logprobs(was, n, lp);
		for (int i = 0; i < n; i++) {
			if (mask != NULL && (mask[i / 32] >> (i % 32) & 1) == 0)
				was[i] = -INFINITY;
			there += was[i] > -INFINITY;
			ref.key[i] = (double)was[i];
			ref.order[i] = i;
		}
		qsort(ref.order, (size_t)n, sizeof *ref.order, by_key);
		assert_int_equal(have, k < there ? k : there);
		for (int i = 0; i < have; i++) {
			assert_int_equal(out[i].id, ref.order[i]);
			assert_true(near(out[i].v, lp[ref.order[i]]));
		}
		sampler_state_dispose(&said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_like_the_reference),
	    cmocka_unit_test(test_filtered_distributions),
	    cmocka_unit_test(test_logprob),
	    cmocka_unit_test(test_prompt_logprob),
	    cmocka_unit_test(test_top),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
