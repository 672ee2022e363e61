/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculation in an engine whose models have no weights (fake_model.h): whatever is drafted, and
 * whether it is right, right now and then or wrong, every answer is the plain one, bit for bit, and
 * every page comes back. The fake model shows any mistake with pages and positions in its text.
 */
#include "tests/unit/engine/core/engine_run.h"
#include "fake_model.h"

#include "base/fault.h"
#include "base/log.h"
#include "engine/kv/kv.h"

/* The drafter agrees with the other one after three texts of four. */
static const struct eng_model_config pair[] = {{.name = "large", .path = "fake.gguf", .role = PROTO_ROLE_LARGE},
					       {.name = "small", .path = "near.gguf", .role = PROTO_ROLE_SMALL}};

static struct eng_config config(int mode)
{
	return (struct eng_config){.models = pair,
				   .n_models = 2,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 2,
				   .page_tokens = 4,
				   .kv_bytes = 16 << 20,
				   .max_sequences = 8,
				   .max_waiting = 64,
				   .step_tokens = 32,
				   .max_prompt_bytes = 1 << 20,
				   .spec_mode = mode,
				   .spec_max_draft = 8,
				   .spec_fixed = true};
}

static struct proto_stats stats_of(struct run *r)
{
	struct proto_stats s;
	run_until_idle(r);
	engine_stats(r->e, &s);
	return s;
}

/* ---- everything that a request can ask for ---- */

enum { MANY = 48 };

static char prompts[MANY][200];
/* Few letters are left, so that what was said is said again. */
static const struct proto_id_f32 biases[] = {{'a', 9}, {'b', 8}, {'c', 7}, {'z', -100}};

static struct proto_submit nth_request(int i)
{
	static const char *const words[] = {"ab", "abc ", "the cat ", "x"};
	size_t n = 1 + (size_t)(i * 41 % 150), at = 0;
	while (at < n)
		at += (size_t)snprintf(prompts[i] + at, sizeof prompts[i] - at, "%s", words[i % 4]);
	struct proto_submit req = run_plain(prompts[i], (uint32_t)(20 + i));
	req.seed = (uint64_t)i * 1000;
	req.temperature = i % 3 == 0 ? 0 : i % 3 == 1 ? 0.2f : 0.9f;
	req.top_p = i % 5 == 0 ? 0.8f : 1;
	req.top_k = i % 7 == 0 ? 5 : 0;
	req.tenant = (uint64_t)(i % 5);
	req.priority = (uint8_t)(i % 2);
	req.presence_penalty = i % 4 == 1 ? 0.7f : 0;
	req.frequency_penalty = i % 4 == 2 ? 0.9f : 0;
	req.repetition_penalty = i % 6 == 5 ? 1.3f : 1;
	req.min_tokens = i % 8 == 3 ? 15 : 0;
	req.flags = i % 9 == 4 ? 0 : PROTO_SUBMIT_WANT_LOGPROBS;
	req.n_top_logprobs = i % 9 == 4 ? 0 : 1;
	req.prompt_logprobs = i % 10 == 6 ? 2 : 0;
	if (i % 2 == 0) {
		req.logit_bias = biases;
		req.n_logit_bias = 4;
	}
	if (i % 10 == 2 || i % 10 == 7) {
		req.n_stops = 2;
		req.stops[0] = (struct proto_str){"e", 1};
		req.stops[1] = (struct proto_str){"ab", 2};
	}
	if (i % 13 == 3) {
		req.n_stop_ids = 1;
		req.stop_ids[0] = 'q';
	}
	if (i % 12 == 8)
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	return req;
}

static void plain_answers(struct answer *out)
{
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_OFF);
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		out[i] = *run_one(&r, 1, &req);
		assert_int_not_equal(out[i].end.finish, PROTO_FINISH_ERROR);
	}
	assert_int_equal(stats_of(&r).spec_drafts, 0);
	run_stop(&r);
}

/* What the plain answers are, with the log probabilities of the answers that asked for them. */
static void assert_same(const struct answer *a, const struct answer *b)
{
	assert_int_equal(a->end.finish, b->end.finish);
	assert_int_equal(a->end.length_why, b->end.length_why);
	assert_int_equal(a->end.n_completion, b->end.n_completion);
	assert_int_equal(a->n_tokens, b->n_tokens);
	assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
	assert_memory_equal(a->tops, b->tops, a->n_tokens * sizeof *a->tops);
	for (uint32_t i = 0; i < a->n_tokens; i++)
		assert_true(a->logprobs[i] == b->logprobs[i] ||
			    (a->logprobs[i] != a->logprobs[i] && b->logprobs[i] != b->logprobs[i]));
	assert_int_equal(a->n_prompt_told, b->n_prompt_told);
	assert_int_equal(a->n_text, b->n_text);
	assert_memory_equal(a->text, b->text, a->n_text);
}

static struct proto_stats together(const struct eng_config *cfg, const struct answer *expect, uint32_t credit)
{
	struct run r;
	run_start(&r, cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		run_submit(&r, (uint64_t)i + 1, &req);
		run_credit(&r, (uint64_t)i + 1, credit); /* pauses on the way */
	}
	for (int i = 0; i < MANY; i++)
		run_credit(&r, (uint64_t)i + 1, 1000);
	for (int i = 0; i < MANY; i++)
		assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	struct proto_stats s = stats_of(&r);
	run_stop(&r);
	print_message("mode %d: %llu drafts, %llu of %llu tokens accepted, %llu pre-emptions\n", cfg->spec_mode,
		      (unsigned long long)s.spec_drafts, (unsigned long long)s.spec_accepted,
		      (unsigned long long)s.spec_drafted, (unsigned long long)s.preemptions);
	assert_true(s.spec_accepted <= s.spec_drafted && s.spec_drafts <= s.spec_drafted);
	return s;
}

static void answers_are_the_plain_ones(void **state)
{
	(void)state;
	struct answer *expect = calloc(MANY, sizeof *expect);
	plain_answers(expect);
	for (int mode = ENG_SPEC_NGRAM; mode <= ENG_SPEC_AUTO; mode++) {
		struct eng_config cfg = config(mode);
		struct proto_stats s = together(&cfg, expect, 5);
		assert_true(s.spec_drafts > 5 && s.spec_drafted > s.spec_accepted);
		assert_true(mode == ENG_SPEC_NGRAM || s.spec_accepted > 5);
		cfg.no_prefix_cache = true;
		cfg.max_sequences = MANY; /* a place for each */
		cfg.step_tokens = 64;
		s = together(&cfg, expect, 1);
		assert_true(s.spec_drafts > 0);
		cfg = config(mode);
		cfg.step_tokens = 1;
		cfg.spec_max_draft = 16;
		together(&cfg, expect, 1000);
		/* As long as it pays, which it does when steps take a while and drafts cost nothing. */
		cfg = config(mode);
		cfg.spec_fixed = false;
		cfg.max_sequences = MANY;
		cfg.step_tokens = 256;
		atomic_store(&fake.step_us, 100);
		s = together(&cfg, expect, 1000);
		atomic_store(&fake.step_us, 0);
		assert_true(mode != ENG_SPEC_NGRAM || s.spec_drafts > 0);
		/* Pages for 208 tokens of each model, less than two of the longest, and for 56 of drafts. */
		cfg = config(mode);
		cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52 * (mode == ENG_SPEC_NGRAM ? 8 : 9) / 4;
		s = together(&cfg, expect, 3);
		assert_true(s.preemptions > 0 && s.spec_drafts > 5);
	}
	free(expect);
}

/* ---- steps ---- */

/* The steps of the large model that an answer of 200 tokens takes: the drafter's come before. */
static uint64_t steps_of(int mode, const char *drafter, struct proto_stats *out)
{
	struct eng_model_config models[] = {pair[0], {.name = "small", .path = drafter, .role = PROTO_ROLE_SMALL}};
	struct run r;
	struct eng_config cfg = config(mode);
	cfg.models = models;
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("go on", 200);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	run_one(&r, 1, &req);
	*out = stats_of(&r);
	run_stop(&r);
	return out->steps;
}

static void right_drafts_save_steps(void **state)
{
	(void)state;
	struct proto_stats s;
	assert_int_equal(steps_of(ENG_SPEC_OFF, "fake.gguf", &s), 200);
	/* The same model drafts: each step makes nine tokens. */
	assert_true(steps_of(ENG_SPEC_DRAFT, "fake.gguf", &s) <= 200 / 9 + 3);
	assert_int_equal(s.spec_accepted, s.spec_drafted);
	assert_int_equal(s.steps + s.spec_accepted, 200);
	assert_int_equal(s.decode_tokens, 199); /* the first one is the prompt's */
	/* Right in three of four: 1 + .75 + .75² + … = 3.7 tokens a step. */
	uint64_t n = steps_of(ENG_SPEC_DRAFT, "near.gguf", &s);
	assert_true(n > 200 / 9 + 3 && n < 90);
	assert_int_equal(s.steps + s.spec_accepted, 200);
	assert_true(steps_of(ENG_SPEC_AUTO, "near.gguf", &s) < 90);
}

/* Text that repeats itself, as the model sees it: the bias leaves one letter. */
static void repetition_saves_steps(void **state)
{
	(void)state;
	static const struct proto_id_f32 one[] = {{'q', 100}};
	struct run r;
	for (int fixed = 0; fixed < 2; fixed++) {
		struct eng_config cfg = config(ENG_SPEC_NGRAM);
		cfg.n_models = 1;
		cfg.spec_fixed = fixed;
		atomic_store(&fake.step_us, fixed ? 0 : 3000); /* however many rows: so drafts pay */
		run_start(&r, &cfg);
		struct proto_submit req = run_plain("q", 300);
		req.logit_bias = one;
		req.n_logit_bias = 1;
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		const struct answer *a = run_one(&r, 1, &req);
		assert_int_equal(a->n_tokens, 300);
		struct proto_stats s = stats_of(&r);
		/* What a step takes is measured, so how often drafts seem to pay depends on the machine. */
		assert_true(fixed ? s.steps * 4 < 300 : s.spec_accepted > 0);
		assert_int_equal(s.steps + s.spec_accepted, 300);
		run_stop(&r);
		atomic_store(&fake.step_us, 0);
	}
}

/* ---- on a clock that only steps move ---- */

enum { LONG = 400, ANSWERS = 8 };

/* What a step costs: this, and each of its rows, in microseconds. */
struct step_cost {
	int step_us, row_us;
};

static const struct step_cost as_one = {1000, 0}, in_proportion = {0, 1000};

static void set_cost(struct step_cost c)
{
	atomic_store(&fake.step_us, c.step_us);
	atomic_store(&fake.row_us, c.row_us);
}

static void start_timed(struct run *r, int mode, const struct eng_model_config *of, struct step_cost at_first)
{
	struct eng_config cfg = config(mode);
	cfg.models = of;
	cfg.n_models = mode == ENG_SPEC_NGRAM ? 1 : 2;
	cfg.spec_fixed = false;
	run_clock_hold();
	atomic_store(&fake.clock, &run_clock);
	set_cost(at_first);
	run_start(r, &cfg);
}

static void stop_timed(struct run *r)
{
	run_until_idle(r);
	run_stop(r);
	set_cost((struct step_cost){0});
	atomic_store(&fake.clock, NULL);
}

/* Milliseconds that n answers take, one after the other. repeats: of one letter; else each of four is as likely. */
static uint64_t answers_ms(struct run *r, struct step_cost cost, bool repeats, int n)
{
	static const struct proto_id_f32 one[] = {{'q', 100}},
					 four[] = {{'a', 100}, {'b', 100}, {'c', 100}, {'d', 100}};
	set_cost(cost);
	uint64_t begin = run_clock;
	for (int i = 0; i < n; i++) {
		struct proto_submit req = run_plain("abcd", LONG);
		req.tenant = (uint64_t)i + 1;
		req.seed = (uint64_t)i;
		req.temperature = repeats ? 0 : 1e6f;
		req.top_k = 4;
		req.logit_bias = repeats ? one : four;
		req.n_logit_bias = repeats ? 1 : 4;
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		assert_int_equal(run_one(r, 1, &req)->n_tokens, LONG);
		run_until_idle(r);
	}
	return (run_clock - begin) / NS_PER_MS;
}

/* Several rows cost as one: drafts begin with the first answer, whatever was measured at first. */
static void drafts_pay_from_the_start(void **state)
{
	(void)state;
	const struct step_cost at_first[] = {as_one, in_proportion, {0, 5000}};
	for (size_t k = 0; k < sizeof at_first / sizeof *at_first; k++) {
		struct run r;
		start_timed(&r, ENG_SPEC_NGRAM, pair, at_first[k]);
		/* One by one until the first trial, then nine at once, but for one step in 32. */
		assert_in_range(answers_ms(&r, as_one, true, 1), LONG / 9, LONG / 9 + 40);
		stop_timed(&r);
	}
}

/* Rows cost in proportion, so that no draft pays: with any drafter, after any first measurement, the loss of all
 * answers is below two in a hundred. */
static void losses_are_bounded(void **state)
{
	(void)state;
	const struct eng_model_config alike[] = {pair[0],
						 {.name = "small", .path = "fake.gguf", .role = PROTO_ROLE_SMALL}};
	for (int way = 0; way < 8; way++) {
		struct run r;
		int mode = way % 4 == 0 ? ENG_SPEC_NGRAM : way % 4 == 3 ? ENG_SPEC_AUTO : ENG_SPEC_DRAFT;
		start_timed(&r, mode, way % 4 == 2 ? alike : pair, way < 4 ? in_proportion : as_one);
		uint64_t ms = answers_ms(&r, in_proportion, false, ANSWERS);
		struct proto_stats s;
		engine_stats(r.e, &s);
		print_message("way %d: %llu ms of %d, %llu of %llu tokens accepted\n", way, (unsigned long long)ms,
			      ANSWERS * (LONG + 3), (unsigned long long)s.spec_accepted,
			      (unsigned long long)s.spec_drafted);
		assert_true(ms <= ANSWERS * (LONG + 3) * 102 / 100);
		stop_timed(&r);
	}
}

/* What steps cost changes, and back: drafts end and begin again. */
static void decisions_change_back(void **state)
{
	(void)state;
	struct run r;
	start_timed(&r, ENG_SPEC_NGRAM, pair, as_one);
	assert_true(answers_ms(&r, as_one, true, 1) < LONG / 2);
	for (int i = 0; i < 2; i++) {
		const struct step_cost dear = {0, 3000};
		uint64_t plain = 3 * ANSWERS * (LONG + 3);
		assert_true(answers_ms(&r, dear, false, ANSWERS) <= plain * 102 / 100);
		assert_true(answers_ms(&r, as_one, true, ANSWERS) < ANSWERS * LONG / 2);
	}
	stop_timed(&r);
}

/* ---- limits ---- */

static void never_more_than_credit_or_pace(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_DRAFT);
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("credit", 60);
	run_submit(&r, 1, &req);
	/* The collector counts: a token beyond the credit is a BUG. */
	uint32_t given = 0;
	for (uint32_t n = 1; given < 60; n++) {
		uint32_t more = given + n < 60 ? n : 60 - given;
		run_credit(&r, 1, more);
		given += more;
		RUN_UNTIL(&r, r.answers[1].n_tokens == given);
	}
	assert_int_equal(run_until_done(&r, 1)->n_tokens, 60);
	struct proto_stats s = stats_of(&r);
	assert_true(s.spec_accepted > 10);
	/* Five at once, then one after another: those five may be drafted, the others not. */
	req.rate_tps = 400;
	req.burst = 5;
	req.max_tokens = 25;
	uint64_t begin = clock_now_ns();
	run_one(&r, 2, &req);
	assert_true(clock_now_ns() - begin >= 45 * NS_PER_MS);
	run_until_idle(&r);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
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

/* The tokens of one choice and how likely they were. */
static void same_choices(const struct answer *a, const struct answer *b, uint8_t n)
{
	assert_int_equal(a->end.n_completion, b->end.n_completion);
	run_assert_same_choices(a, b, n);
}

static void several_choices(void **state)
{
	(void)state;
	static struct answer expect[3];
	struct run r;
	for (int mode = ENG_SPEC_OFF; mode <= ENG_SPEC_AUTO; mode++) {
		struct eng_config cfg = config(mode);
		cfg.max_sequences = 24;
		run_start(&r, &cfg);
		for (int kind = 0; kind < 3; kind++) {
			struct proto_submit req = fan(kind);
			run_submit(&r, (uint64_t)kind + 1, &req);
			run_credit(&r, (uint64_t)kind + 1, 7);
		}
		for (uint64_t i = 1; i <= 3; i++)
			run_credit(&r, i, 1000);
		for (int kind = 0; kind < 3; kind++) {
			const struct answer *a = run_until_done(&r, (uint64_t)kind + 1);
			if (mode == ENG_SPEC_OFF)
				expect[kind] = *a;
			same_choices(a, &expect[kind], kind == 0 ? 4 : 2);
		}
		struct proto_stats s = stats_of(&r);
		assert_int_equal(s.spec_drafts > 0,
				 mode > ENG_SPEC_NGRAM || (mode == ENG_SPEC_NGRAM && s.spec_drafts > 0));
		run_stop(&r);
	}
}

/* What drafts leave in the prefix tree is what was said: who goes on from there says the same. */
static void nothing_wrong_in_the_tree(void **state)
{
	(void)state;
	struct run r;
	atomic_store(&fake.end_never, 1);
	for (int mode = ENG_SPEC_OFF; mode <= ENG_SPEC_AUTO; mode++) {
		static struct answer expect;
		static char more[RUN_TOKENS];
		struct eng_config cfg = config(mode);
		run_start(&r, &cfg);
		struct proto_submit req = run_plain("tell me", 100);
		const struct answer *first = run_one(&r, 1, &req);
		snprintf(more, sizeof more, "tell me%.*s and then", (int)first->n_text, first->text);
		req = run_plain(more, 50);
		const struct answer *second = run_one(&r, 2, &req);
		assert_true(second->end.n_cached >= 100);
		if (mode == ENG_SPEC_OFF)
			expect = *second;
		run_assert_same(second, &expect);
		assert_int_equal(second->end.n_cached, expect.end.n_cached);
		run_until_idle(&r);
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
}

static void ends_at_any_time(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_AUTO);
	atomic_store(&fake.end_never, 1);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("on and on and on and", 400);
	for (uint32_t n = 1; n < 24; n++) {
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 400);
		RUN_UNTIL(&r, r.answers[1].n_tokens >= n);
		engine_cancel(r.e, 1);
		run_until_done(&r, 1);
		run_until_idle(&r);
	}
	/* A deadline, and the end of the engine, while drafts are under way. */
	req.deadline_ms = 5;
	assert_int_equal(run_one(&r, 2, &req)->end.finish, PROTO_FINISH_LENGTH);
	req.deadline_ms = 0;
	for (uint64_t i = 3; i < 12; i++) {
		run_submit(&r, i, &req);
		run_credit(&r, i, 400);
	}
	RUN_UNTIL(&r, r.answers[3].n_tokens > 0);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

/* ---- failures ---- */

static void pages_that_fail(void **state)
{
	(void)state;
	struct run r;
	static struct answer expect;
	for (int mode = ENG_SPEC_OFF; mode <= ENG_SPEC_AUTO; mode++) {
		struct eng_config cfg = config(mode);
		run_start(&r, &cfg);
		struct proto_submit req = nth_request(9);
		for (long nth = 0; nth <= 40; nth++) {
			if (nth > 0)
				fault_arm(FAULT_KV_PAGE, nth, 2);
			const struct answer *a = run_one(&r, 1, &req);
			fault_disarm_all();
			if (mode == ENG_SPEC_OFF && nth == 0)
				expect = *a;
			assert_same(a, &expect);
		}
		run_until_idle(&r);
		run_stop(&r);
	}
	/* Without memory there are no drafts, or the answer ends with an error. */
	struct eng_config cfg = config(ENG_SPEC_AUTO);
	cfg.n_text_workers = 1;
	run_start(&r, &cfg);
	struct proto_submit req = nth_request(9);
	for (long nth = 1; nth <= 40; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		r.answers[2] = (struct answer){.credit = 1000};
		if (engine_submit(r.e, 2, &req) == 0) {
			engine_credit(r.e, 2, 1000);
			const struct answer *a = run_until_done(&r, 2);
			if (a->end.finish != PROTO_FINISH_ERROR)
				assert_same(a, &expect);
		}
		fault_disarm_all();
		run_until_idle(&r);
	}
	run_stop(&r);
}

static void a_drafter_that_fails(void **state)
{
	(void)state;
	struct run r;
	static struct answer expect;
	atomic_store(&fake.end_never, 1);
	struct eng_config cfg = config(ENG_SPEC_OFF);
	struct proto_submit req = run_plain("hello", 80);
	run_start(&r, &cfg);
	expect = *run_one(&r, 1, &req);
	run_stop(&r);
	/* The device fails in the k-th pass: in the answer it is the large model's or a draft's. */
	int ended[3] = {0};
	for (int k = 1; k < 24; k++) {
		cfg = config(ENG_SPEC_DRAFT);
		run_start(&r, &cfg);
		run_submit(&r, 1, &req);
		RUN_UNTIL(&r, r.answers[1].queued);
		atomic_store(&fake.fail_next, k);
		run_credit(&r, 1, 80);
		const struct answer *a = run_until_done(&r, 1);
		if (a->end.finish == PROTO_FINISH_ERROR) {
			RUN_UNTIL(&r, r.states[0] == PROTO_MODEL_FAILED);
			ended[0]++;
		} else {
			run_assert_same(a, &expect);
			RUN_UNTIL(&r, r.states[1] == PROTO_MODEL_FAILED);
			ended[1]++;
		}
		atomic_store(&fake.fail_next, -1);
		run_stop(&r);
	}
	assert_true(ended[0] > 0 && ended[1] > 0);
	atomic_store(&fake.end_never, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(answers_are_the_plain_ones),
	    cmocka_unit_test(right_drafts_save_steps),
	    cmocka_unit_test(repetition_saves_steps),
	    cmocka_unit_test(drafts_pay_from_the_start),
	    cmocka_unit_test(losses_are_bounded),
	    cmocka_unit_test(decisions_change_back),
	    cmocka_unit_test(never_more_than_credit_or_pace),
	    cmocka_unit_test(several_choices),
	    cmocka_unit_test(nothing_wrong_in_the_tree),
	    cmocka_unit_test(ends_at_any_time),
	    cmocka_unit_test(pages_that_fail),
	    cmocka_unit_test(a_drafter_that_fails),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
