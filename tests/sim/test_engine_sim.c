/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine with a model that has no weights (fake_model.h): what answers say, and any mistake with pages or positions
 * shows in the text. How they end early: test_engine_ends_sim.c.
 */
#include "engine_requests.h"

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

/* Every choice of a is that of b, in whatever order they came. */
static void same_choices(const struct answer *a, const struct answer *b, int n)
{
	assert_int_equal(a->end.finish, b->end.finish);
	assert_int_equal(a->end.n_completion, b->end.n_completion);
	assert_int_equal(a->n_choices_ended, n);
	assert_int_equal(b->n_choices_ended, n);
	run_assert_same_choices(a, b, n);
}

/* Of the tokens drawn: the end token is not among those reported. */
static float mean_logprob(const struct proto_choice *c)
{
	return c->cumulative_logprob / (float)(c->n_completion + (c->finish == PROTO_FINISH_STOP));
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
	/* The best are ranked by the log probability of a token, the one that ends an answer among them. */
	const struct proto_choice *best = expect[1].choices;
	assert_true(mean_logprob(&best[0]) >= mean_logprob(&best[1]));
	assert_true(mean_logprob(&best[0]) < 0);
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

	for (int how = 0; how < 5; how++) {
		cfg = config();
		cfg.max_sequences = how == 1 ? 8 : 24;
		cfg.step_tokens = how == 2 ? 3 : 16;
		cfg.swap_bytes = how == 4 ? 1 << 16 : 0;
		cfg.swap_fixed = true;
		if (how >= 3)
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

/* Two choices of one request whose pages do not fit at once: one yields to the other, and both are what they would be.
 */
static void choices_yield_to_each_other(void **state)
{
	(void)state;
	static struct answer expect;
	struct run r;
	struct proto_stats stats;
	struct proto_submit req = run_plain("choose", 60);
	req.temperature = 0.9f;
	req.n = req.best_of = 2;
	atomic_store(&fake.end_never, 1);
	for (int is_short = 0; is_short < 2; is_short++) {
		struct eng_config cfg = config();
		if (is_short)
			cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 20;
		run_start(&r, &cfg);
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 1000);
		if (!is_short)
			expect = *run_until_done(&r, 1);
		else
			same_choices(run_until_done(&r, 1), &expect, 2);
		run_until_idle(&r);
		engine_stats(r.e, &stats);
		assert_int_equal(stats.preemptions > 0, is_short);
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
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
	assert_int_equal(a->end.error, PROTO_ERR_BAD_STOP_IDS);
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
		assert_true(a->tops[i].id == 'q' ? a->logprobs[i] == a->tops[i].v : a->logprobs[i] < a->tops[i].v);
	}
	req.flags = 0;
	req.n_top_logprobs = 0;
	a = run_one(&r, 2, &req);
	assert_true(a->logprobs[0] != a->logprobs[0]); /* not asked for */
	const struct proto_id_f32 strange = {FAKE_VOCAB, 1};
	req.logit_bias = &strange;
	req.n_logit_bias = 1;
	a = run_one(&r, 3, &req);
	assert_int_equal(a->end.error, PROTO_ERR_BAD_LOGIT_BIAS);
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
	for (int round = 0; round < 5; round++) {
		struct run r;
		cfg.step_tokens = round == 0 ? 200 : round == 1 ? 7 : 64;
		cfg.swap_bytes = round == 4 ? 1 << 16 : 0;
		cfg.swap_fixed = true;
		if (round >= 3) /* pre-empted on the way */
			cfg.kv_bytes =
			    (uint64_t)(240 / cfg.page_tokens + 1) * kv_page_bytes(KN_F16, cfg.page_tokens, 1, 1, 8);
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
	struct proto_count count = {.prompt_kind = PROTO_PROMPT_CHAT,
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
	run_clock_hold();
	struct proto_submit req = run_plain("late", 400);
	req.deadline_ms = 300;
	req.rate_tps = 10;
	req.burst = 3;
	run_submit(&r, 1, &req);
	run_credit(&r, 1, 400);
	/* Three at once, but for a rounding, then one in 100 ms, all on a grid of at most 40 ms. */
	static const struct {
		uint32_t n, then_ms;
	} paced[] = {{2, 145}, {4, 145}, {5, 10}};
	for (size_t i = 0; i < sizeof paced / sizeof *paced; i++) {
		RUN_UNTIL(&r, r.answers[1].n_tokens == paced[i].n);
		run_clock_move(&r, 1, paced[i].then_ms);
	}
	const struct answer *a = run_until_done(&r, 1);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_DEADLINE);
	assert_int_equal(a->n_tokens, 5);
	/* A deadline while it waits for credit. */
	run_submit(&r, 2, &req);
	RUN_UNTIL(&r, r.answers[2].queued);
	run_clock_move(&r, 2, 300);
	a = run_until_done(&r, 2);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_DEADLINE);
	assert_int_equal(a->n_tokens, 0);
	run_stop(&r);
	run_start(&r, &cfg);
	/* Pace: 3 at once, then 7 at 200 a second; and sleeping is not spinning. */
	req.deadline_ms = 0;
	req.rate_tps = 200;
	req.max_tokens = 10;
	struct timespec cpu0, cpu1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu0);
	uint64_t begin = clock_now_ns();
	run_one(&r, 3, &req);
	uint64_t took = clock_now_ns() - begin;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu1);
	assert_true(took >= 35 * NS_PER_MS);
	int64_t cpu_ms = (cpu1.tv_sec - cpu0.tv_sec) * 1000 + (cpu1.tv_nsec - cpu0.tv_nsec) / 1000000;
	assert_true(cpu_ms < 30);
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
	/* The second one has begun, or begins in the step to come. */
	assert_in_range(r.answers[4].queued_as.position, 2, 3);
	for (uint64_t i = 2; i <= 4; i++) {
		run_credit(&r, i, 5);
		run_until_done(&r, i);
	}
	run_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_together_as_alone),
	    cmocka_unit_test(credit_is_exact),
	    cmocka_unit_test(several_choices),
	    cmocka_unit_test(reasons_for_a_miss),
	    cmocka_unit_test(drawn_on_the_device),
	    cmocka_unit_test(stop_strings),
	    cmocka_unit_test(ends_and_minimum),
	    cmocka_unit_test(biases_and_logprobs),
	    cmocka_unit_test(prompt_logprobs),
	    cmocka_unit_test(statistics_of_prefixes),
	    cmocka_unit_test(limits_of_context),
	    cmocka_unit_test(chats),
	    cmocka_unit_test(deadlines_and_pace),
	    cmocka_unit_test(queue_is_bounded),
	    cmocka_unit_test(choices_yield_to_each_other),
	};
	/* Again with drafts; the others count steps. */
	const struct CMUnitTest with_drafts[] = {
	    cmocka_unit_test(same_together_as_alone), cmocka_unit_test(several_choices),
	    cmocka_unit_test(stop_strings),           cmocka_unit_test(ends_and_minimum),
	    cmocka_unit_test(biases_and_logprobs),    cmocka_unit_test(prompt_logprobs),
	    cmocka_unit_test(limits_of_context),      cmocka_unit_test(deadlines_and_pace),
	};
	/* And where steps go on by themselves. */
	const struct CMUnitTest ahead[] = {
	    cmocka_unit_test(same_together_as_alone), cmocka_unit_test(credit_is_exact),
	    cmocka_unit_test(several_choices),        cmocka_unit_test(stop_strings),
	    cmocka_unit_test(ends_and_minimum),       cmocka_unit_test(biases_and_logprobs),
	    cmocka_unit_test(prompt_logprobs),        cmocka_unit_test(limits_of_context),
	    cmocka_unit_test(deadlines_and_pace),
	};
	return RUN_IN_EVERY_MODE(tests, with_drafts, ahead);
}
