/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine with a model that has no weights (fake_model.h): phases can be held, devices can fail,
 * and any mistake with pages or positions shows in the text.
 */
#include "../unit/engine/engine_run.h"
#include "fake_model.h"

#include "base/fault.h"
#include "engine/kv.h"

static const struct eng_model_config one_model[] = {{.name = "fake", .path = "fake.gguf"}};

static int spec_mode; /* of the engines that tests start */

static struct eng_config config(void)
{
	return (struct eng_config){.models = one_model,
				   .n_models = 1,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 2,
				   .page_tokens = 4,
				   .kv_bytes = 16 << 20,
				   .max_sequences = 8,
				   .max_waiting = 64,
				   .step_tokens = 16,
				   .max_prompt_bytes = 1 << 20,
				   .spec_mode = spec_mode,
				   .spec_max_draft = 8,
				   .spec_fixed = true};
}

enum { MANY = 32 };

static char prompts[MANY][160];

static struct proto_submit nth_request(int i)
{
	int n = 1 + i * 37 % 150;
	memset(prompts[i], 'a' + i % 26, (size_t)n);
	prompts[i][n / 2] = (char)('A' + i % 26);
	prompts[i][n] = '\0';
	struct proto_submit req = run_plain(prompts[i], (uint32_t)(20 + i));
	req.seed = (uint64_t)i * 1000;
	req.temperature = i % 3 == 0 ? 0 : 0.9f;
	req.tenant = (uint64_t)(i % 5);
	req.priority = (uint8_t)(i % 2);
	return req;
}

/* Each alone, on an engine with room for it. */
static void alone(struct answer *out)
{
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		out[i] = *run_one(&r, (uint64_t)i + 1, &req);
		assert_int_not_equal(out[i].end.finish, PROTO_FINISH_ERROR);
	}
	run_stop(&r);
}

/* Returns how many prompt tokens were computed again after a pre-emption. */
static uint64_t together(const struct eng_config *cfg, const struct answer *expect)
{
	struct run r;
	run_start(&r, cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		run_submit(&r, (uint64_t)i + 1, &req);
		run_credit(&r, (uint64_t)i + 1, 3); /* pauses on the way */
	}
	for (int i = 0; i < MANY; i++)
		run_credit(&r, (uint64_t)i + 1, 1000);
	for (int i = 0; i < MANY; i++)
		run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	run_until_idle(&r);
	struct proto_stats s;
	engine_stats(r.e, &s);
	for (int i = 0; i < MANY; i++)
		s.prefill_tokens -= expect[i].end.n_prompt - r.answers[i + 1].end.n_cached;
	run_stop(&r);
	return s.prefill_tokens;
}

static void same_together_as_alone(void **state)
{
	(void)state;
	struct answer *expect = calloc(MANY, sizeof *expect);
	alone(expect);
	struct eng_config cfg = config();
	cfg.max_sequences = MANY; /* a place for each: nobody has to give way */
	atomic_store(&fake.max_rows_seen, 0);
	assert_int_equal(together(&cfg, expect), 0);
	assert_true(atomic_load(&fake.max_rows_seen) > 16);
	assert_true(atomic_load(&fake.max_rows_seen) <= 16 + MANY);
	cfg = config();
	together(&cfg, expect);
	cfg.no_prefix_cache = true;
	together(&cfg, expect);
	cfg = config();
	cfg.step_tokens = 1;
	together(&cfg, expect);
	/* Pages for 208 tokens: less than two of the longest at once, so many are pre-empted. */
	cfg = config();
	cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52;
	assert_true(together(&cfg, expect) > 0);
	free(expect);
}

static void credit_is_exact(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("hello", 50);
	run_submit(&r, 1, &req);
	RUN_UNTIL(&r, r.answers[1].queued);
	int before = atomic_load(&fake.forwards);
	run_submit(&r, 2, &req); /* a full turn of another sequence */
	run_credit(&r, 2, 50);
	run_until_done(&r, 2);
	assert_int_equal(r.answers[1].n_tokens, 0);
	assert_int_equal(atomic_load(&fake.forwards) - before, 50);
	run_credit(&r, 1, 7);
	RUN_UNTIL(&r, r.answers[1].n_tokens == 7);
	run_submit(&r, 3, &req);
	run_credit(&r, 3, 50);
	run_until_done(&r, 3);
	assert_int_equal(r.answers[1].n_tokens, 7); /* the collector checks "never more" too */
	run_credit(&r, 1, 43);
	const struct answer *a = run_until_done(&r, 1);
	assert_int_equal(a->n_tokens, 50);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_MAX_TOKENS);
	run_assert_same(a, &r.answers[2]);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

static void expect_cancelled(struct run *r, uint64_t id)
{
	engine_cancel(r->e, id);
	engine_cancel(r->e, id);
	const struct answer *a = run_until_done(r, id);
	assert_int_equal(a->end.finish, PROTO_FINISH_CANCELLED);
	run_until_idle(r);
}

static void cancel_in_every_phase(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("hello", 400);

	/* With the text worker (or just after). */
	for (int i = 0; i < 20; i++) {
		run_submit(&r, 1, &req);
		expect_cancelled(&r, 1);
	}
	/* Waiting for credit. */
	run_submit(&r, 2, &req);
	RUN_UNTIL(&r, r.answers[2].queued);
	expect_cancelled(&r, 2);
	/* In prefill: the step is held, with chunks still to come. */
	char longer[200];
	memset(longer, 'x', sizeof longer);
	longer[sizeof longer - 1] = '\0';
	struct proto_submit req_long = run_plain(longer, 100);
	run_submit(&r, 3, &req_long);
	RUN_UNTIL(&r, r.answers[3].queued);
	int before = atomic_load(&fake.forwards);
	pthread_mutex_lock(&fake.gate);
	run_credit(&r, 3, 100);
	struct proto_stats stats;
	do
		engine_stats(r.e, &stats);
	while (stats.running == 0);
	engine_cancel(r.e, 3);
	pthread_mutex_unlock(&fake.gate);
	expect_cancelled(&r, 3);
	assert_int_equal(r.answers[3].n_tokens, 0);
	/* Within one step, or the one that is on its way behind it. */
	assert_in_range(atomic_load(&fake.forwards) - before, 1, atomic_load(&fake.ahead) != 0 ? 2 : 1);
	/* Waiting in the queue behind others: all places are taken. */
	for (uint64_t i = 10; i < 18; i++) {
		run_submit(&r, i, &req);
		run_credit(&r, i, 2);
		RUN_UNTIL(&r, r.answers[i].n_tokens == 2);
	}
	run_submit(&r, 20, &req);
	RUN_UNTIL(&r, r.answers[20].queued);
	engine_cancel(r.e, 20);
	assert_int_equal(run_until_done(&r, 20)->end.finish, PROTO_FINISH_CANCELLED);
	/* Paused, with pages. */
	engine_stats(r.e, &stats);
	assert_int_equal(stats.running, 8);
	for (uint64_t i = 10; i < 18; i++)
		engine_cancel(r.e, i);
	for (uint64_t i = 10; i < 18; i++)
		assert_int_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_CANCELLED);
	run_until_idle(&r);
	/* Decoding. */
	run_submit(&r, 4, &req);
	run_credit(&r, 4, 400);
	RUN_UNTIL(&r, r.answers[4].n_tokens >= 1);
	engine_cancel(r.e, 4);
	run_until_done(&r, 4);
	run_until_idle(&r);
	/* Asleep for its pace. */
	req.rate_tps = 0.01f;
	req.burst = 1;
	run_submit(&r, 5, &req);
	run_credit(&r, 5, 400);
	RUN_UNTIL(&r, r.answers[5].n_tokens == 1);
	expect_cancelled(&r, 5);
	/* Unknown identifiers are ignored. */
	engine_cancel(r.e, 99);
	engine_credit(r.e, 99, 5);
	/* Going down with everything in flight: each gets its DONE. */
	req.rate_tps = 0;
	for (uint64_t i = 30; i < 60; i++) {
		run_submit(&r, i, i % 2 ? &req : &req_long);
		if (i % 3 != 0)
			run_credit(&r, i, 400);
	}
	engine_destroy(r.e);
	for (uint64_t i = 30; i < 60; i++)
		assert_true(r.answers[i].done);
	run_free(&r);
	atomic_store(&fake.end_never, 0);
}

/* Every choice of a is that of b, in whatever order they came. */
static void same_choices(const struct answer *a, const struct answer *b, int n)
{
	static int32_t x[RUN_TOKENS], y[RUN_TOKENS];
	static float p[RUN_TOKENS], q[RUN_TOKENS];
	assert_int_equal(a->end.finish, b->end.finish);
	assert_int_equal(a->end.n_completion, b->end.n_completion);
	assert_int_equal(a->n_choices_ended, n);
	assert_int_equal(b->n_choices_ended, n);
	for (uint8_t i = 0; i < n; i++) {
		uint32_t n_x = run_choice(a, i, x, p), n_y = run_choice(b, i, y, q);
		assert_int_equal(n_x, n_y);
		assert_memory_equal(x, y, n_x * sizeof *x);
		assert_memory_equal(p, q, n_x * sizeof *p);
	}
}

static struct proto_submit fan(int kind)
{
	struct proto_submit req = run_plain("choose well among the many", 30);
	req.temperature = kind < 2 ? 0.9f : 0;
	req.n = kind == 0 ? 4 : 2;
	req.best_of = kind == 0 ? 4 : kind == 1 ? 6 : 2;
	req.beam_width = kind < 2 ? 0 : 5;
	return req;
}

/* n, best_of and beams: the same whatever the chunks, the pages, the credit and the others. */
static void several_choices(void **state)
{
	(void)state;
	static struct answer expect[3];
	struct run r;
	struct eng_config cfg = config();
	cfg.max_sequences = 24;
	run_start(&r, &cfg);
	for (int kind = 0; kind < 3; kind++) {
		struct proto_submit req = fan(kind);
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 1000);
		expect[kind] = *run_until_done(&r, 1);
		assert_int_not_equal(expect[kind].end.finish, PROTO_FINISH_ERROR);
		assert_int_equal(expect[kind].n_choices_ended, req.n);
	}
	/* The first choice is what one alone would be, and the others are others. */
	struct proto_submit one = fan(0);
	one.n = one.best_of = 1;
	const struct answer *alone = run_one(&r, 2, &one);
	static int32_t ids[RUN_TOKENS];
	static float logprobs[RUN_TOKENS];
	uint32_t n = run_choice(&expect[0], 0, ids, logprobs);
	assert_int_equal(n, alone->n_tokens);
	assert_memory_equal(ids, alone->ids, n * sizeof *ids);
	uint32_t n_other = run_choice(&expect[0], 1, ids, logprobs);
	assert_true(n_other != n || memcmp(ids, alone->ids, n * sizeof *ids) != 0);
	/* The best are ranked by the log probability of a token. */
	const struct proto_choice *best = expect[1].choices;
	assert_true(best[0].cumulative_logprob / (float)best[0].n_completion >=
		    best[1].cumulative_logprob / (float)best[1].n_completion);
	/* A wider search finds nothing worse than the greedy answer. */
	struct proto_submit greedy = run_plain("choose well among the many", 30);
	const struct answer *g = run_one(&r, 3, &greedy);
	float sum = 0;
	for (uint32_t i = 0; i < g->n_tokens; i++)
		sum += g->logprobs[i];
	if (g->end.finish == PROTO_FINISH_LENGTH && expect[2].choices[0].n_completion == g->n_tokens)
		assert_true(expect[2].choices[0].cumulative_logprob >= sum - 1e-3f);
	run_until_idle(&r);
	run_stop(&r);

	for (int how = 0; how < 4; how++) {
		cfg = config();
		cfg.max_sequences = how == 1 ? 8 : 24;
		cfg.step_tokens = how == 2 ? 3 : 16;
		if (how == 3)
			cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52;
		cfg.no_prefix_cache = how == 2;
		run_start(&r, &cfg);
		for (int i = 0; i < 12; i++) {
			struct proto_submit req = i < 3 ? fan(i) : nth_request(i);
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, how == 0 ? 1 : 7);
		}
		for (int k = 0; k < 200 && how == 0; k++)
			for (uint64_t i = 1; i <= 3; i++)
				run_credit(&r, i, 1);
		for (uint64_t i = 1; i <= 12; i++)
			run_credit(&r, i, 1000);
		for (int i = 0; i < 12; i++)
			run_until_done(&r, (uint64_t)i + 1);
		for (int i = 0; i < 3; i++)
			same_choices(&r.answers[i + 1], &expect[i], i == 0 ? 4 : 2);
		run_until_idle(&r);
		run_stop(&r);
	}
}

static void count_fault(void *ctx)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
}

/* Requests with several choices end in every phase, and everything comes back. */
static void choices_are_cancelled(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	uint64_t random = 3;
	atomic_int faults = 0;
	cfg.max_sequences = 12;
	cfg.on_fault = count_fault;
	cfg.on_fault_ctx = &faults;
	run_start(&r, &cfg);
	for (int round = 0; round < 60; round++) {
		for (uint64_t i = 1; i <= 4; i++) {
			struct proto_submit req = fan((int)i % 3);
			run_submit_again(&r, i, &req);
			random = random * 6364136223846793005u + 1442695040888963407u;
			run_credit(&r, i, (uint32_t)(random >> 33) % 60);
		}
		random = random * 6364136223846793005u + 1442695040888963407u;
		for (uint64_t k = 0; k < (random >> 33) % 40; k++) {
			struct proto_stats s;
			engine_stats(r.e, &s);
			sched_yield();
		}
		for (uint64_t i = 1; i <= 4; i++)
			engine_cancel(r.e, i);
		for (uint64_t i = 1; i <= 4; i++)
			run_until_done(&r, i);
		run_until_idle(&r);
	}
	assert_int_equal(atomic_load(&faults), 0);
	/* And a device that fails takes all of them with it. */
	for (uint64_t i = 1; i <= 4; i++) {
		struct proto_submit req = fan((int)i % 3);
		run_submit_again(&r, i, &req);
		run_credit(&r, i, 1000);
	}
	atomic_store(&fake.fail_next, 5);
	for (uint64_t i = 1; i <= 4; i++)
		run_until_done(&r, i);
	atomic_store(&fake.fail_next, -1);
	run_stop(&r);
	assert_int_equal(atomic_load(&faults), 1); /* told once, when the streams were */
}

/* Tokens that are drawn where the logits are: the same answers from everybody, among those whose logits must come to
 * the host (beams, log probabilities of prompts, typical sampling). */
static void drawn_on_the_device(void **state)
{
	(void)state;
	enum { KINDS = 9 };
	static struct answer expect[KINDS];
	struct run r;
	struct eng_config cfg = config();
	struct proto_id_f32 bias = {.id = 'e', .v = 3};
	cfg.max_sequences = 24;
	for (int draws = 0; draws < 2; draws++) {
		atomic_store(&fake.draws, draws);
		atomic_store(&fake.drawn, 0);
		run_start(&r, &cfg);
		for (int kind = 0; kind < KINDS; kind++) {
			struct proto_submit req = kind < 3 ? fan(kind) : run_plain("draws where the logits are", 40);
			req.seed = 40 + (uint64_t)kind;
			if (kind > 3)
				req.temperature = 0.8f;
			if (kind == 5)
				req.typical_p = 0.7f;
			if (kind == 6) {
				req.logit_bias = &bias;
				req.n_logit_bias = 1;
				req.flags |= PROTO_SUBMIT_IGNORE_EOS;
			}
			if (kind >= 7) {
				req.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
				req.n_top_logprobs = kind == 7 ? 0 : 5;
				req.prompt_logprobs = kind == 7 ? 0 : 3;
			}
			run_submit(&r, (uint64_t)kind + 1, &req);
			run_credit(&r, (uint64_t)kind + 1, 1000);
			if (draws == 1 && kind == 0)
				run_until_done(&r, 1); /* its choices' tokens come in turn, which others would change */
			if (draws == 0) {
				expect[kind] = *run_until_done(&r, (uint64_t)kind + 1);
				assert_int_not_equal(expect[kind].end.finish, PROTO_FINISH_ERROR);
			}
		}
		for (int kind = 0; draws == 1 && kind < KINDS; kind++)
			run_assert_same(run_until_done(&r, (uint64_t)kind + 1), &expect[kind]);
		run_stop(&r);
		assert_int_equal(atomic_load(&fake.drawn) > 150, draws);
	}
	atomic_store(&fake.draws, 0);
}

/* ---- steps that are launched while one is on its way ---- */

static uint64_t random_state;

static uint32_t at_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* Requests of all kinds come, stall and are cancelled at random, with too few pages and places for them. Whoever is let go
 * on says what it says alone, and nothing is left behind (run_stop's counters and pools see). */
static void turmoil(const struct eng_config *cfg, const struct answer *expect, uint64_t seed)
{
	enum { AT_ONCE = 12, ROUNDS = 400, ENOUGH = 8 };
	static struct run r;
	int which[AT_ONCE + 1] = {0}; /* request behind an identifier, 0: nobody's */
	bool cancelled[AT_ONCE + 1] = {0};
	int n_same = 0;
	random_state = seed;
	run_start(&r, cfg);
	/* (However slow the engine is beside this loop, some have to get to their end.) */
	for (int round = 0; round < ROUNDS || n_same < ENOUGH; round++) {
		uint64_t id = 1 + at_random(AT_ONCE);
		if (which[id] == 0) {
			which[id] = 1 + (int)at_random(MANY);
			cancelled[id] = false;
			struct proto_submit req = nth_request(which[id] - 1);
			req.model = (uint16_t)at_random((uint32_t)cfg->n_models);
			run_submit_again(&r, id, &req);
			run_credit(&r, id, at_random(3) == 0 ? 2 : 1000);
		} else if (at_random(4) == 0) {
			engine_cancel(r.e, id);
			cancelled[id] = true;
			which[id] = -which[id];
		} else {
			run_credit(&r, id, 1 + at_random(20));
		}
		for (uint32_t k = at_random(60); k > 0; k--)
			sched_yield();
		for (uint64_t k = 1; k <= AT_ONCE; k++) {
			pthread_mutex_lock(&r.lock);
			bool done = which[k] != 0 && r.answers[k].done;
			pthread_mutex_unlock(&r.lock);
			if (!done)
				continue;
			int n = abs(which[k]) - 1;
			if (!cancelled[k]) {
				run_assert_same(&r.answers[k], &expect[n]);
				n_same++;
			}
			which[k] = 0;
		}
	}
	for (uint64_t k = 1; k <= AT_ONCE; k++) {
		if (which[k] == 0)
			continue;
		run_credit(&r, k, 1000);
		const struct answer *a = run_until_done(&r, k);
		if (!cancelled[k])
			run_assert_same(a, &expect[abs(which[k]) - 1]);
		n_same += !cancelled[k];
	}
	assert_true(n_same >= ENOUGH);
	run_until_idle(&r);
	run_stop(&r);
}

static void ahead_in_turmoil(void **state)
{
	(void)state;
	static const struct eng_model_config two[] = {{.name = "a", .path = "a.gguf"}, {.name = "b", .path = "b.gguf"}};
	struct answer *expect = calloc(MANY, sizeof *expect);
	assert_non_null(expect);
	int ahead = atomic_load(&fake.ahead);
	atomic_store(&fake.ahead, 0);
	alone(expect);
	atomic_store(&fake.ahead, ahead);
	atomic_store(&fake.n_ahead, 0);
	atomic_store(&fake.n_taken, 0);
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct eng_config cfg = config();
		cfg.max_sequences = seed % 2 == 0 ? 4 : 8;
		if (seed % 3 != 0)
			cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52;
		if (seed > 4) {
			cfg.models = two;
			cfg.n_models = 2;
			cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 140;
		}
		cfg.no_prefix_cache = seed == 4;
		turmoil(&cfg, expect, seed);
	}
	assert_int_equal(atomic_load(&fake.n_ahead) > 200, ahead != 0);
	assert_int_equal(atomic_load(&fake.n_taken) > 200, ahead != 0);
	free(expect);
}

/* Two models that have something to do have a step each on its way, none of them two: who decodes does not wait for the
 * other's prompts to be served before its next step is issued. */
static void models_beside_each_other(void **state)
{
	(void)state;
	static const struct eng_model_config two[] = {{.name = "a", .path = "a.gguf"}, {.name = "b", .path = "b.gguf"}};
	struct run r;
	struct eng_config cfg = config();
	static struct answer expect[2];
	char text[400];
	memset(text, 'p', sizeof text);
	text[sizeof text - 1] = '\0';
	cfg.models = two;
	cfg.n_models = 2;
	atomic_store(&fake.end_never, 1);
	for (int round = 0; round < 2; round++) {
		run_start(&r, &cfg);
		struct proto_submit chunks = run_plain(text, 5), decodes = run_plain("decodes", 25);
		decodes.model = 1;
		if (round == 0) {
			expect[0] = *run_one(&r, 1, &chunks);
			expect[1] = *run_one(&r, 2, &decodes);
		} else {
			run_submit(&r, 1, &chunks);
			run_submit(&r, 2, &decodes);
			RUN_UNTIL(&r, r.answers[1].queued && r.answers[2].queued);
			atomic_store(&fake.n_ahead, 0);
			atomic_store(&fake.n_beside, 0);
			pthread_mutex_lock(&fake.gate); /* both begin together */
			run_credit(&r, 1, 5);
			run_credit(&r, 2, 25);
			pthread_mutex_unlock(&fake.gate);
			run_assert_same(run_until_done(&r, 1), &expect[0]);
			run_assert_same(run_until_done(&r, 2), &expect[1]);
			/* 25 chunks of the one while the other makes 25 tokens. */
			assert_true(atomic_load(&fake.n_beside) >= 20);
			assert_true(atomic_load(&fake.n_ahead) <= 15);
		}
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
}

/* Not launched so: what depends on the host, and nothing when it is turned off. A token more than is told is never
 * computed for a length or a credit that is known. */
static void ahead_only_what_can(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	for (int round = 0; round < 5; round++) {
		struct proto_submit req = run_plain("what can go ahead", 40);
		cfg.no_launch_ahead = round == 1;
		if (round == 2)
			req.presence_penalty = 0.5f;
		if (round == 3)
			req.typical_p = 0.7f;
		run_start(&r, &cfg);
		atomic_store(&fake.n_ahead, 0);
		int before = atomic_load(&fake.forwards);
		run_submit(&r, 1, &req);
		run_credit(&r, 1, round == 4 ? 13 : 40);
		if (round == 4) {
			RUN_UNTIL(&r, r.answers[1].n_tokens == 13);
			assert_int_equal(atomic_load(&fake.forwards) - before, 14);
			run_credit(&r, 1, 27);
		}
		run_until_done(&r, 1);
		assert_int_equal(atomic_load(&fake.forwards) - before, 41); /* the prompt is two chunks */
		int n_ahead = atomic_load(&fake.n_ahead);
		if (round >= 1 && round <= 3)
			assert_true(n_ahead <= (round == 1 ? 0 : 1)); /* a chunk of the prompt behind the other */
		else
			assert_true(n_ahead >= 37);
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
}

/* The device fails while two steps are on their way: everybody is told once, and nothing is left. */
static void ahead_fails(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	atomic_int faults = 0;
	cfg.on_fault = count_fault;
	cfg.on_fault_ctx = &faults;
	atomic_store(&fake.end_never, 1);
	for (int nth = 0; nth < 24; nth++) {
		struct run r;
		run_start(&r, &cfg);
		atomic_store(&faults, 0);
		atomic_store(&fake.fail_next, nth);
		for (uint64_t i = 1; i <= 5; i++) {
			struct proto_submit req = nth_request((int)i);
			req.max_tokens = 60;
			run_submit(&r, i, &req);
			run_credit(&r, i, 1000);
		}
		for (uint64_t i = 1; i <= 5; i++)
			assert_int_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
		atomic_store(&fake.fail_next, -1);
		run_until_idle(&r);
		run_stop(&r);
		assert_int_equal(atomic_load(&faults), 1);
	}
	atomic_store(&fake.end_never, 0);
}

/* QUEUED says what of the prompt is there already, and why not more. */
static void reasons_for_a_miss(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("a prompt of several pages", 4), brief = run_plain("hi", 4), other = req;
	other.tenant = 9;
	assert_int_equal(run_one(&r, 1, &req)->queued_as.miss_reason, PROTO_MISS_NEW);
	const struct answer *again = run_one(&r, 2, &req);
	assert_int_equal(again->queued_as.miss_reason, PROTO_MISS_NONE);
	assert_int_equal(again->queued_as.n_cached, 24);
	assert_int_equal(again->end.n_cached, 24);
	assert_int_equal(run_one(&r, 3, &brief)->queued_as.miss_reason, PROTO_MISS_SHORT);
	/* Another tenant is not told that somebody has asked the same. */
	assert_int_equal(run_one(&r, 4, &other)->queued_as.miss_reason, PROTO_MISS_NEW);
	assert_int_equal(r.answers[4].queued_as.n_cached, 0);
	run_stop(&r);
}

static void stop_strings(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("stops", 60);
	struct answer full = *run_one(&r, 1, &req);
	char stop[4];
	memcpy(stop, full.text + 20, 3);
	stop[3] = '\0';
	full.text[full.n_text] = '\0';
	size_t at = (size_t)(strstr(full.text, stop) - full.text);
	req.n_stops = 2;
	req.stops[0] = (struct proto_str){.at = "not in there", .n = 12};
	req.stops[1] = (struct proto_str){.at = stop, .n = 3};
	const struct answer *a = run_one(&r, 2, &req);
	assert_int_equal(a->end.finish, PROTO_FINISH_STOP);
	assert_int_equal(a->n_text, at);
	assert_memory_equal(a->text, full.text, at);
	assert_int_equal(a->end.n_completion, at + 3);
	/* A stop string that has begun when max_tokens comes is text after all. */
	req.max_tokens = (uint32_t)at + 2;
	a = run_one(&r, 3, &req);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->n_text, at + 2);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

/* Stop ids and end tokens end an answer and are not shown; nothing does before the minimum. */
static void ends_and_minimum(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("stop ids", 60);
	struct answer full = *run_one(&r, 1, &req);
	assert_int_equal(full.n_tokens, 60);
	uint32_t first = 0;
	while (full.ids[first] != full.ids[20])
		first++;
	req.n_stop_ids = 2;
	req.stop_ids[0] = FAKE_BOS;
	req.stop_ids[1] = (uint32_t)full.ids[20];
	const struct answer *a = run_one(&r, 2, &req);
	assert_int_equal(a->end.finish, PROTO_FINISH_STOP);
	assert_int_equal(a->end.n_completion, first + 1);
	assert_int_equal(a->n_text, first);
	assert_memory_equal(a->text, full.text, first);
	/* Before the minimum it is not even chosen. */
	req.min_tokens = 40;
	a = run_one(&r, 3, &req);
	assert_true(a->end.n_completion > 40);
	for (uint32_t i = 0; i < 40; i++)
		assert_int_not_equal(a->ids[i], full.ids[20]);
	/* A stop string before the minimum is text; the same string is one after it. */
	req = run_plain("stop ids", 60);
	req.n_stops = 1;
	req.stops[0] = (struct proto_str){.at = full.text, .n = 1};
	a = run_one(&r, 4, &req);
	assert_int_equal(a->end.n_completion, 1);
	assert_int_equal(a->n_text, 0);
	const char *again = memchr(full.text + 1, full.text[0], 59);
	req.min_tokens = 2;
	a = run_one(&r, 5, &req);
	assert_int_equal(a->end.n_completion, again != NULL ? again - full.text + 1 : 60);
	assert_memory_equal(a->text, full.text, a->n_text);
	/* End tokens, when the model has them: not before the minimum, and never when they are ignored. */
	atomic_store(&fake.end_never, 0);
	req = run_plain("the end", 300);
	a = run_one(&r, 6, &req);
	assert_int_equal(a->end.finish, PROTO_FINISH_STOP);
	uint32_t ends_at = a->end.n_completion;
	req.min_tokens = ends_at + 7;
	a = run_one(&r, 7, &req);
	assert_true(a->end.n_completion > ends_at + 7);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	a = run_one(&r, 8, &req);
	assert_int_equal(a->end.n_completion, 300);
	assert_int_equal(a->n_text, 300);
	/* An id that the model does not have. */
	req = run_plain("the end", 3);
	req.n_stop_ids = 1;
	req.stop_ids[0] = FAKE_VOCAB;
	a = run_one(&r, 9, &req);
	assert_int_equal(a->end.error, PROTO_ERR_BAD_REQUEST);
	run_stop(&r);
}

static void biases_and_logprobs(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	const struct proto_id_f32 biases[] = {{'q', 100}, {'z', -100}};
	struct proto_submit req = run_plain("bias", 20);
	req.logit_bias = biases;
	req.n_logit_bias = 2;
	req.temperature = 1;
	const struct answer *a = run_one(&r, 1, &req);
	assert_int_equal(a->n_tokens, 20);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(a->ids[i], 'q');
		/* The model's own opinion, and of what it would have said. */
		assert_true(a->logprobs[i] <= a->tops[i].v && a->tops[i].v < 0);
		assert_true(a->tops[i].id == 'q' ? a->logprobs[i] == a->tops[i].v
						 : a->logprobs[i] < a->tops[i].v);
	}
	req.flags = 0;
	req.n_top_logprobs = 0;
	a = run_one(&r, 2, &req);
	assert_true(a->logprobs[0] != a->logprobs[0]); /* not asked for */
	const struct proto_id_f32 strange = {FAKE_VOCAB, 1};
	req.logit_bias = &strange;
	req.n_logit_bias = 1;
	a = run_one(&r, 3, &req);
	assert_int_equal(a->end.error, PROTO_ERR_BAD_REQUEST);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

/* The log probabilities of a prompt are those that the same tokens have as an answer, however the
 * prompt is cut into steps and whatever is beside it. */
static void prompt_logprobs(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	for (int round = 0; round < 4; round++) {
		struct run r;
		cfg.step_tokens = round == 0 ? 200 : round == 1 ? 7 : 64;
		if (round == 3) /* pre-empted on the way */
			cfg.kv_bytes = (uint64_t)(240 / cfg.page_tokens + 1) * kv_page_bytes(KN_F16, cfg.page_tokens, 1, 1, 8);
		run_start(&r, &cfg);
		struct proto_submit req = run_plain("a", 150);
		req.n_top_logprobs = 2;
		struct answer said = *run_one(&r, 1, &req);
		assert_int_equal(said.n_tokens, 150);
		static char text[152];
		text[0] = 'a';
		memcpy(text + 1, said.text, 150);
		text[151] = '\0';
		/* It is in the prefix tree by now, and others want it too. */
		req = run_plain(text, 30);
		for (uint64_t id = 2; id < 8; id++) {
			req.prompt_logprobs = (uint8_t)(id % 4);
			run_submit(&r, id, &req);
			run_credit(&r, id, 30);
		}
		run_until_done(&r, 4);
		for (uint64_t id = 2; id < 8; id++) {
			const struct answer *a = run_until_done(&r, id);
			assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
			assert_int_equal(a->n_prompt_told, id % 4 == 0 ? 0 : 151);
			for (uint32_t i = 1; i < a->n_prompt_told; i++) {
				assert_int_equal(a->prompt[i].id, said.ids[i - 1]);
				assert_memory_equal(&a->prompt[i].v, &said.logprobs[i - 1], sizeof(float));
				if (id % 4 > 1)
					assert_memory_equal(&a->prompt_tops[i], &said.tops[i - 1],
							    sizeof a->prompt_tops[i]);
			}
			if (a->n_prompt_told > 0)
				assert_true(a->prompt[0].id == 'a' && a->prompt[0].v != a->prompt[0].v);
			assert_int_equal(a->n_tokens, 30);
			assert_memory_equal(a->text, r.answers[4].text, 30);
		}
		req = run_plain("b", 3);
		req.prompt_logprobs = 3;
		const struct answer *a = run_one(&r, 9, &req);
		assert_int_equal(a->n_prompt_told, 1);
		assert_int_equal(a->prompt[0].id, 'b');
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
}

static void statistics_of_prefixes(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	struct proto_stats before, after;
	char text[101];
	memset(text, 'p', 100);
	text[100] = '\0';
	run_start(&r, &cfg);
	struct proto_submit req = run_plain(text, 1);
	run_one(&r, 1, &req);
	run_until_idle(&r);
	engine_stats(r.e, &before);
	assert_int_equal(before.prefix_queries, 100);
	assert_int_equal(before.prefix_hits, 0);
	assert_true(before.prefix_pages >= 100 / (uint32_t)cfg.page_tokens);
	assert_true(before.kv_used_permille > 0 && before.kv_used_permille <= 1000);
	/* Another tenant's private prefix is not there, the same one's is, but for the last token. */
	req.tenant = 1;
	run_one(&r, 2, &req);
	engine_stats(r.e, &after);
	assert_int_equal(after.prefix_hits, 0);
	run_one(&r, 3, &req);
	engine_stats(r.e, &after);
	assert_int_equal(after.prefix_queries, 300);
	assert_int_equal(after.prefix_hits, 99);
	/* Shared prefixes are for all who share. */
	req.flags |= PROTO_SUBMIT_SHARED_PREFIX;
	req.tenant = 2;
	run_one(&r, 4, &req);
	req.tenant = 3;
	const struct answer *a = run_one(&r, 5, &req);
	assert_int_equal(a->end.n_cached, 99);
	assert_int_equal(a->queued_as.n_cached, 99);
	run_stop(&r);
}

static void limits_of_context(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	char text[FAKE_CTX + 1];
	memset(text, 'c', sizeof text);
	text[FAKE_CTX] = '\0';
	struct proto_submit req = run_plain(text, 5);
	run_submit(&r, 1, &req);
	const struct answer *a = run_until_done(&r, 1);
	assert_int_equal(a->end.error, PROTO_ERR_CONTEXT_LENGTH);
	assert_string_equal(a->message, "This model's maximum context length is 512 tokens. "
					"However, your messages resulted in 512 tokens.");
	assert_false(a->queued);
	text[FAKE_CTX - 1] = '\0';
	req = run_plain(text, 5);
	a = run_one(&r, 2, &req);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_CONTEXT);
	assert_int_equal(a->n_tokens, 1);
	text[FAKE_CTX - 10] = '\0';
	req = run_plain(text, 5);
	a = run_one(&r, 3, &req);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_MAX_TOKENS);
	assert_int_equal(a->n_tokens, 5);
	req = run_plain("", 5);
	assert_int_equal(run_one(&r, 4, &req)->end.error, PROTO_ERR_BAD_REQUEST);
	static const uint8_t ids[] = {'h', 0, 0, 0, 2, 1, 0, 0};
	req.prompt_kind = PROTO_PROMPT_TOKENS;
	req.prompt = (struct proto_str){.at = (const char *)ids, .n = 4};
	assert_int_equal(run_one(&r, 5, &req)->end.finish, PROTO_FINISH_LENGTH);
	req.prompt.n = 8; /* the second one is 258: outside the vocabulary */
	assert_int_equal(run_one(&r, 6, &req)->end.error, PROTO_ERR_BAD_REQUEST);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

static void chats(void **state)
{
	static const struct {
		const char *json;
		uint8_t error;
	} cases[] = {
	    {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 0},
	    {"{\"messages\":[]}", PROTO_ERR_BAD_REQUEST},
	    {"{\"messages\":{}}", PROTO_ERR_BAD_REQUEST},
	    {"[]", PROTO_ERR_BAD_REQUEST},
	    {"{\"messages\":[{\"role\":\"user\"}]}", PROTO_ERR_BAD_REQUEST},
	    {"{\"messages\":[{\"role\":\"god\",\"content\":\"hi\"}]}", PROTO_ERR_BAD_REQUEST},
	    {"{\"messages\":[{\"role\":\"user\",\"content\":[\"hi\"]}]}", PROTO_ERR_BAD_REQUEST},
	    {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},7]}", PROTO_ERR_BAD_REQUEST},
	    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", PROTO_ERR_BAD_REQUEST},
	    {"{\"messages\":[{\"role\":\"user\",\"content\":\"h", PROTO_ERR_BAD_REQUEST},
	};
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct proto_submit req = run_plain(cases[i].json, 3);
		req.prompt_kind = PROTO_PROMPT_CHAT;
		const struct answer *a = run_one(&r, i + 1, &req);
		assert_int_equal(a->end.error, cases[i].error);
		if (i == 0)
			assert_int_equal(a->end.n_prompt, strlen("<user>hi<assistant>"));
	}
	struct proto_count count = {
	    .prompt_kind = PROTO_PROMPT_CHAT,
	    .prompt = {.at = cases[0].json, .n = strlen(cases[0].json)}};
	assert_int_equal(engine_count(r.e, 50, &count), 0);
	RUN_UNTIL(&r, r.answers[50].counted);
	assert_int_equal(r.answers[50].count.n_tokens, strlen("<user>hi<assistant>"));
	count.model = 3;
	assert_int_equal(engine_count(r.e, 51, &count), 0);
	RUN_UNTIL(&r, r.answers[51].counted);
	assert_int_equal(r.answers[51].count.error, PROTO_ERR_NO_MODEL);
	run_stop(&r);
}

static void deadlines_and_pace(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("late", 400);
	req.deadline_ms = 40;
	req.rate_tps = 100;
	req.burst = 3;
	uint64_t begin = clock_now_ns();
	const struct answer *a = run_one(&r, 1, &req);
	uint64_t took = clock_now_ns() - begin;
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_DEADLINE);
	assert_true(took >= 40 * NS_PER_MS);
	assert_true(a->n_tokens >= 3 && a->n_tokens <= 3 + 4);
	/* A deadline while it waits for credit. */
	run_submit(&r, 2, &req);
	a = run_until_done(&r, 2);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_DEADLINE);
	assert_int_equal(a->n_tokens, 0);
	/* Pace: 3 at once, then 7 at 200 a second; and sleeping is not spinning. */
	req.deadline_ms = 0;
	req.rate_tps = 200;
	req.max_tokens = 10;
	struct timespec cpu0, cpu1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu0);
	begin = clock_now_ns();
	run_one(&r, 3, &req);
	took = clock_now_ns() - begin;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu1);
	assert_true(took >= 35 * NS_PER_MS);
	int64_t cpu_ms = (cpu1.tv_sec - cpu0.tv_sec) * 1000 +
			 (cpu1.tv_nsec - cpu0.tv_nsec) / 1000000;
	assert_true(cpu_ms < 30);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

static void failures_of_models(void **state)
{
	static const struct eng_model_config models[] = {
	    {.name = "gone", .path = "missing.gguf"},
	    {.name = "good", .path = "good.gguf"},
	    {.name = "bad", .path = "bad.gguf"},
	};
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.models = models;
	cfg.n_models = 3;
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_FAILED);
	assert_int_equal(r.states[1], PROTO_MODEL_READY);
	assert_int_equal(r.states[2], PROTO_MODEL_FAILED);
	assert_string_equal(r.reasons[0], "missing.gguf: no such file");
	assert_string_equal(r.reasons[2], "bad.gguf: these are no weights");
	struct proto_submit req = run_plain("x", 50);
	assert_int_equal(run_one(&r, 1, &req)->end.error, PROTO_ERR_NOT_READY);
	req.model = 7;
	assert_int_equal(run_one(&r, 2, &req)->end.error, PROTO_ERR_NO_MODEL);
	req.model = 1;
	assert_int_equal(run_one(&r, 3, &req)->end.finish, PROTO_FINISH_LENGTH);
	run_stop(&r);

	/* The device fails in mid-answer: this model ends, the other one serves. */
	static const struct eng_model_config two[] = {{.name = "a", .path = "a.gguf"},
						      {.name = "b", .path = "b.gguf"}};
	cfg.models = two;
	cfg.n_models = 2;
	run_start(&r, &cfg);
	req.model = 0;
	for (uint64_t i = 1; i <= 4; i++)
		run_submit(&r, i, &req);
	run_credit(&r, 1, 5);
	RUN_UNTIL(&r, r.answers[1].n_tokens == 5);
	for (uint64_t i = 2; i <= 4; i++)
		RUN_UNTIL(&r, r.answers[i].queued);
	atomic_store(&fake.fail_next, 3);
	run_credit(&r, 2, 50);
	for (uint64_t i = 1; i <= 4; i++) {
		assert_int_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
		assert_int_equal(r.answers[i].end.error, PROTO_ERR_INTERNAL);
	}
	RUN_UNTIL(&r, r.states[0] == PROTO_MODEL_FAILED);
	assert_int_equal(run_one(&r, 5, &req)->end.error, PROTO_ERR_NOT_READY);
	req.model = 1;
	assert_int_equal(run_one(&r, 6, &req)->end.finish, PROTO_FINISH_LENGTH);
	run_until_idle(&r);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

static void queue_is_bounded(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.max_waiting = 3;
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("x", 5);
	for (uint64_t i = 1; i <= 3; i++)
		run_submit(&r, i, &req);
	assert_int_equal(engine_submit(r.e, 4, &req), SL_ELIMIT);
	run_credit(&r, 1, 5);
	run_until_done(&r, 1);
	run_submit(&r, 4, &req);
	RUN_UNTIL(&r, r.answers[4].queued);
	assert_int_equal(r.answers[4].queued_as.position, 2);
	for (uint64_t i = 2; i <= 4; i++) {
		run_credit(&r, i, 5);
		run_until_done(&r, i);
	}
	run_stop(&r);
}

/* Every allocation and every page on the way of a request fails once: an error or a result, never a
 * crash or a leak (the sanitizer and the counters see). */
static void faults(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.n_text_workers = 1;
	run_start(&r, &cfg);
	struct proto_submit req = nth_request(9);
	req.presence_penalty = 0.5f;
	req.repetition_penalty = 1.1f;
	const struct proto_id_f32 bias = {'e', 0.5f};
	req.logit_bias = &bias;
	req.n_logit_bias = 1;
	req.prompt_logprobs = 2;
	req.prompt_kind = PROTO_PROMPT_CHAT;
	static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
	req.prompt = (struct proto_str){.at = chat, .n = sizeof chat - 1};
	req.n_stops = 1;
	req.stops[0] = (struct proto_str){.at = "zzzz", .n = 4};
	struct answer expect = *run_one(&r, 1, &req);
	int failed = 0, survived = 0;
	for (long nth = 1; nth <= 60; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		r.answers[2] = (struct answer){.credit = 1000};
		int rc = engine_submit(r.e, 2, &req);
		if (rc == 0) {
			engine_credit(r.e, 2, 1000);
			const struct answer *a = run_until_done(&r, 2);
			if (a->end.finish == PROTO_FINISH_ERROR)
				assert_true(a->message[0] != '\0');
			else
				run_assert_same(a, &expect);
			survived += a->end.finish != PROTO_FINISH_ERROR;
		} else {
			assert_int_equal(rc, SL_ENOMEM);
			failed++;
		}
		fault_disarm_all();
		run_until_idle(&r);
	}
	assert_true(failed > 0 && survived > 0);
	for (long nth = 1; nth <= 12; nth++) {
		fault_arm(FAULT_KV_PAGE, nth, 3);
		run_assert_same(run_one(&r, 3, &req), &expect);
		fault_disarm_all();
	}
	run_stop(&r);
	/* The same while the engine starts. */
	for (long nth = 1; nth <= 40; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		if (run_start_rc(&r, &cfg) == 0) {
			RUN_UNTIL(&r, r.states[0] > PROTO_MODEL_LOADING);
			engine_destroy(r.e);
		}
		run_free(&r);
		fault_disarm_all();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_together_as_alone), cmocka_unit_test(credit_is_exact),
	    cmocka_unit_test(cancel_in_every_phase), cmocka_unit_test(several_choices),
	    cmocka_unit_test(reasons_for_a_miss),
	    cmocka_unit_test(drawn_on_the_device),
	    cmocka_unit_test(choices_are_cancelled),  cmocka_unit_test(stop_strings),
	    cmocka_unit_test(ends_and_minimum), cmocka_unit_test(biases_and_logprobs), cmocka_unit_test(prompt_logprobs), cmocka_unit_test(statistics_of_prefixes),
	    cmocka_unit_test(limits_of_context),      cmocka_unit_test(chats),
	    cmocka_unit_test(deadlines_and_pace),     cmocka_unit_test(failures_of_models),
	    cmocka_unit_test(queue_is_bounded),	      cmocka_unit_test(faults),
	};
	/* Again with drafts; the others count steps. */
	const struct CMUnitTest with_drafts[] = {
	    cmocka_unit_test(same_together_as_alone), cmocka_unit_test(cancel_in_every_phase),
	    cmocka_unit_test(several_choices), cmocka_unit_test(stop_strings),
	    cmocka_unit_test(ends_and_minimum), cmocka_unit_test(biases_and_logprobs),
	    cmocka_unit_test(prompt_logprobs), cmocka_unit_test(limits_of_context),
	    cmocka_unit_test(deadlines_and_pace), cmocka_unit_test(failures_of_models), cmocka_unit_test(faults),
	};
	/* And where steps go on by themselves: late ones, whose every wait is needed, and early ones. */
	const struct CMUnitTest ahead[] = {
	    cmocka_unit_test(same_together_as_alone), cmocka_unit_test(credit_is_exact),
	    cmocka_unit_test(cancel_in_every_phase), cmocka_unit_test(several_choices),
	    cmocka_unit_test(choices_are_cancelled), cmocka_unit_test(stop_strings), cmocka_unit_test(ends_and_minimum),
	    cmocka_unit_test(biases_and_logprobs), cmocka_unit_test(prompt_logprobs), cmocka_unit_test(limits_of_context),
	    cmocka_unit_test(deadlines_and_pace), cmocka_unit_test(failures_of_models), cmocka_unit_test(faults),
	    cmocka_unit_test(models_beside_each_other),
	    cmocka_unit_test(ahead_in_turmoil), cmocka_unit_test(ahead_only_what_can), cmocka_unit_test(ahead_fails),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	spec_mode = ENG_SPEC_AUTO;
	failed += cmocka_run_group_tests(with_drafts, NULL, NULL);
	spec_mode = ENG_SPEC_OFF;
	atomic_store(&fake.draws, 1);
	for (int mode = 1; mode <= 2; mode++) {
		atomic_store(&fake.ahead, mode);
		failed += cmocka_run_group_tests(ahead, NULL, NULL);
	}
	return failed;
}
