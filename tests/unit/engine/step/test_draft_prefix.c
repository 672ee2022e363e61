/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on with what another model made, with real kernels and random weights. The referee is always the
 * undisturbed answer: agreed is as much as the given tokens have in common with it, and what follows is
 * its rest to the bit, whatever chunks, drafts and shared prefixes there are.
 */
#include "tests/unit/engine/core/draft_prefix_run.h"

#include <unistd.h>

#include "tests/support/part.h"
#include "tests/support/tiny_gguf.h"
#include "base/log.h"

enum { REQUESTS = 40, RUNS = PART_OF(REQUESTS), TOKENS = 40 };

static char large_path[64], small_path[64];
static struct eng_model_config models[2];

static struct eng_config config(void)
{
	models[0] = (struct eng_model_config){.name = "large", .path = large_path, .role = PROTO_ROLE_LARGE};
	models[1] = (struct eng_model_config){.name = "small", .path = small_path, .role = PROTO_ROLE_SMALL};
	return (struct eng_config){.models = models,
				   .n_models = 2,
				   .backend = "auto",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 32 << 20,
				   .max_sequences = 8,
				   .max_waiting = 2 * REQUESTS,
				   .step_tokens = 64,
				   .max_prompt_bytes = 1 << 20,
				   .spec_max_draft = 6,
				   .spec_fixed = true};
}

static char prompts[REQUESTS][160];

/* Every second one is sampled; with penalties, biases, minimum lengths and log probabilities among them. */
static struct proto_submit request(int i)
{
	uint64_t random = (uint64_t)i * 2654435761u + 17;
	size_t n = 1 + (size_t)(i * 7919) % 120;
	for (size_t k = 0; k < n; k++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		prompts[i][k] = (char)('a' + (random >> 33) % 26);
	}
	struct proto_submit req = run_plain(prompts[i], TOKENS);
	req.seed = (uint64_t)i;
	if (i % 7 < 5)
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	if (i % 2 == 1) {
		req.temperature = i % 4 == 1 ? 0.4f : 1;
		req.top_p = i % 6 == 1 ? 0.9f : 1;
		req.top_k = i % 10 == 3 ? 12 : 0;
	}
	req.frequency_penalty = i % 8 == 6 ? 0.4f : 0;
	req.presence_penalty = i % 12 == 7 ? 0.6f : 0;
	req.repetition_penalty = i % 5 == 4 ? 1.2f : 1;
	req.min_tokens = i % 9 == 2 ? 30 : 0;
	if (i % 4 < 2) {
		req.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
		req.n_top_logprobs = (uint8_t)(i % 4);
	}
	return req;
}

static const struct answer *again(struct run *r, uint64_t id, const struct proto_submit *req)
{
	r->answers[id] = (struct answer){0};
	return run_one(r, id, req);
}

/* All that can be given of this answer by seams and places of a wrong token. */
static void check_seams(struct run *r, const struct proto_submit *req, const struct answer *whole, uint32_t step)
{
	for (uint32_t n = 1; n <= whole->n_tokens; n += step) {
		/* The answer must go on: at least one token is to come, or an end without a word. */
		uint32_t most = n < req->max_tokens ? n : req->max_tokens - 1, wrong = most / 2;
		for (int way = 0; way < 4; way++) {
			bool right = way == 1 || way == 2;
			uint32_t keep = way == 0 ? 0 : way == 1 ? most : way == 2 ? most / 2 : wrong;
			struct draft_prefix_case c = draft_prefix_of(whole, most, right ? most : wrong, keep);
			uint32_t agreed = right ? most : wrong;
			struct proto_submit s = draft_prefix_request(req, &c, agreed);
			const struct answer *got = again(r, 1, &s);
			draft_prefix_expect(got, agreed, agreed);
			draft_prefix_assert_rest(got, whole, agreed);
		}
	}
}

static void it_goes_on_as_if_undisturbed(void **state)
{
	(void)state;
	static const struct {
		int step_tokens, page_tokens, spec;
		bool no_cache;
	} ways[] = {{64, 16, ENG_SPEC_OFF, false}, {5, 4, ENG_SPEC_OFF, true}, {512, 16, ENG_SPEC_AUTO, false}};
	struct answer *whole = calloc(1, sizeof *whole);
	for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
		struct eng_config cfg = config();
		struct run r;
		cfg.step_tokens = ways[w].step_tokens;
		cfg.page_tokens = ways[w].page_tokens;
		cfg.spec_mode = ways[w].spec;
		cfg.no_prefix_cache = ways[w].no_cache;
		run_start(&r, &cfg);
		for (int i = (int)w; i < RUNS; i += w == 0 ? 1 : 5) {
			struct proto_submit req = request(i);
			*whole = *again(&r, 2, &req);
			check_seams(&r, &req, whole, 13);
		}
		run_until_idle(&r);
		run_stop(&r);
	}
	free(whole);
}

/* Kept although not agreed to: greedy, it is the answer to prompt and kept tokens. */
static void what_is_kept_is_gone_on_from(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	struct run r;
	struct answer *whole = calloc(1, sizeof *whole);
	run_start(&r, &cfg);
	for (int i = 0; i < RUNS; i += 2) {
		struct proto_submit req = request(i), longer = run_plain("", 0);
		req.frequency_penalty = req.presence_penalty = 0;
		req.repetition_penalty = 1;
		req.min_tokens = 0;
		*whole = *again(&r, 2, &req);
		uint32_t n = whole->n_tokens < 24 ? whole->n_tokens : 24, wrong = (uint32_t)i % 5;
		if (n < 10)
			continue;
		for (uint32_t keep = wrong + 1; keep <= n; keep += 7) {
			/* A second wrong one behind what is kept changes nothing. */
			struct draft_prefix_case c = draft_prefix_of(whole, n, wrong, keep);
			uint8_t text[4 * (160 + GIVEN_MOST)];
			size_t at = 0, n_prompt = req.prompt.n;
			for (size_t k = 0; k < n_prompt + keep; k++, at += 4) {
				uint32_t id = k < n_prompt ? (uint8_t)req.prompt.at[k] : c.ids[k - n_prompt];
				for (int b = 0; b < 4; b++)
					text[at + (size_t)b] = (uint8_t)(id >> (8 * b));
			}
			longer = req;
			longer.prompt_kind = PROTO_PROMPT_TOKENS;
			longer.prompt = (struct proto_str){(const char *)text, at};
			longer.max_tokens = req.max_tokens - keep;
			const struct answer *expect = again(&r, 3, &longer);
			/* The text prompt may begin with a token of its own. */
			if (expect->end.n_prompt != whole->end.n_prompt + keep)
				fail_msg("%u and %u tokens", expect->end.n_prompt, whole->end.n_prompt);
			struct proto_submit s = draft_prefix_request(&req, &c, keep);
			const struct answer *got = again(&r, 1, &s);
			draft_prefix_expect(got, wrong, keep);
			assert_int_equal(got->n_tokens, expect->n_tokens);
			assert_memory_equal(got->ids, expect->ids, got->n_tokens * sizeof *got->ids);
			assert_memory_equal(got->logprobs, expect->logprobs, got->n_tokens * sizeof *got->logprobs);
			assert_int_equal(got->end.finish, expect->end.finish);
			assert_int_equal(got->end.n_completion, expect->end.n_completion);
		}
	}
	run_until_idle(&r);
	run_stop(&r);
	free(whole);
}

/* What is kept counts: sampled, with penalties, in one chunk or many, with more given behind it or not. */
static void what_is_kept_counts(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	struct run r, chunks;
	struct answer *whole = calloc(1, sizeof *whole);
	int n_differ = 0;
	run_start(&r, &cfg);
	cfg.step_tokens = 3;
	run_start(&chunks, &cfg);
	for (int i = 0; i < RUNS; i++) {
		struct proto_submit req = request(i);
		*whole = *again(&r, 2, &req);
		if (whole->n_tokens < 12)
			continue;
		struct draft_prefix_case exact = draft_prefix_of(whole, 9, 2, 9),
					 more = draft_prefix_of(whole, 12, 2, 9);
		struct proto_submit s = draft_prefix_request(&req, &exact, 9);
		const struct answer *a = again(&r, 1, &s);
		draft_prefix_expect(a, 2, 9);
		s = draft_prefix_request(&req, &more, 9);
		const struct answer *b = again(&r, 3, &s), *c = again(&chunks, 3, &s);
		draft_prefix_expect(b, 2, 9);
		draft_prefix_expect(c, 2, 9);
		run_assert_same(a, b);
		run_assert_same(a, c);
		/* A penalty that nothing is told about the kept tokens would be another answer. */
		if (req.repetition_penalty == 1)
			continue;
		req.repetition_penalty = 1.0001f;
		s = draft_prefix_request(&req, &exact, 9);
		const struct answer *d = again(&r, 4, &s);
		n_differ += d->n_tokens != a->n_tokens || memcmp(d->ids, a->ids, a->n_tokens * sizeof *a->ids) != 0;
	}
	assert_true(n_differ > 0);
	run_stop(&r);
	run_stop(&chunks);
	free(whole);
}

/* Answers of three bytes and a letter: most seams cut a character. */
static void characters_across_the_seam(void **state)
{
	(void)state;
	static const struct proto_id_f32 biases[] = {{0xED, 60}, {0x95, 60}, {0x9C, 60}, {'a', 58}};
	struct eng_config cfg = config();
	struct run r;
	struct answer *whole = calloc(1, sizeof *whole);
	int n_inside = 0;
	run_start(&r, &cfg);
	for (int i = 0; i < 6; i++) {
		struct proto_submit req = request(i);
		req.logit_bias = biases;
		req.n_logit_bias = 4;
		req.temperature = 1;
		req.min_tokens = 0;
		*whole = *again(&r, 2, &req);
		assert_int_equal(whole->n_tokens, TOKENS);
		for (uint32_t k = 1; k < TOKENS; k++)
			n_inside += whole->text_end[k] == whole->text_end[k - 1];
		check_seams(&r, &req, whole, 1 + (uint32_t)i / 3);
	}
	assert_true(n_inside > 30);
	run_stop(&r);
	free(whole);
}

/* A stop string of which some stands before the seam; and one that is whole before it. */
static void stop_strings_across_the_seam(void **state)
{
	(void)state;
	static const struct proto_id_f32 biases[] = {{'a', 60}, {'b', 60}};
	struct eng_config cfg = config();
	struct run r;
	struct answer *whole = calloc(1, sizeof *whole);
	char stop[7] = "";
	run_start(&r, &cfg);
	int n_stopped = 0;
	for (int i = 0; i < 8; i++) {
		struct proto_submit req = request(2 * i + 1);
		req.logit_bias = biases;
		req.n_logit_bias = 2;
		req.temperature = 1;
		req.min_tokens = i % 2 == 1 ? 25 : 0;
		req.flags = 0;
		*whole = *again(&r, 2, &req);
		assert_true(whole->n_tokens > 30);
		memcpy(stop, whole->text + 20, 6);
		req.stops[0] = (struct proto_str){stop, 6};
		req.stops[1] = (struct proto_str){stop, 4};
		req.n_stops = i % 4 < 2 ? 1 : 2;
		*whole = *again(&r, 2, &req);
		n_stopped += whole->end.finish == PROTO_FINISH_STOP;
		check_seams(&r, &req, whole, 1);
	}
	assert_true(n_stopped >= 6);
	/* Tokens beyond the end of an answer: it ends where its stop string does. */
	struct proto_submit req = request(1);
	req.logit_bias = biases;
	req.n_logit_bias = 2;
	*whole = *again(&r, 2, &req);
	memcpy(stop, whole->text + 9, 6);
	struct draft_prefix_case c = draft_prefix_of(whole, 30, 30, 30);
	struct proto_submit s = draft_prefix_request(&req, &c, 30);
	s.stops[0] = (struct proto_str){stop, 6};
	s.n_stops = 1;
	const struct answer *got = again(&r, 1, &s);
	assert_true(got->verified_as.n_used >= 6 && got->verified_as.n_used <= 15);
	assert_int_equal(got->verified_as.n_agreed, got->verified_as.n_used);
	assert_int_equal(got->end.finish, PROTO_FINISH_STOP);
	assert_int_equal(got->n_tokens, 0);
	assert_int_equal(got->end.n_completion, 0);
	run_stop(&r);
	free(whole);
}

/* The other model's answers, as they would come: whatever they are, the large one's is told in the end. */
static void answers_of_another_model(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	struct run r;
	struct answer *large = calloc(1, sizeof *large);
	int n_partly = 0;
	static const struct proto_id_f32 biases[] = {{'a', 60}, {'b', 60}};
	run_start(&r, &cfg);
	for (int i = 0; i < RUNS; i++) {
		struct proto_submit req = request(i);
		req.logit_bias = biases; /* so that they have much in common */
		req.n_logit_bias = 2;
		*large = *again(&r, 2, &req);
		req.model = 1;
		const struct answer *small = again(&r, 3, &req);
		uint32_t n = small->n_tokens < TOKENS ? small->n_tokens : TOKENS - 1, agreed = 0;
		while (agreed < n && agreed < large->n_tokens && small->ids[agreed] == large->ids[agreed])
			agreed++;
		if (n == 0)
			continue;
		n_partly += agreed > 0 && agreed < n;
		struct draft_prefix_case c = draft_prefix_of(small, n, n, 0);
		req.model = 0;
		struct proto_submit s = draft_prefix_request(&req, &c, agreed);
		const struct answer *got = again(&r, 1, &s);
		draft_prefix_expect(got, agreed, agreed);
		draft_prefix_assert_rest(got, large, agreed);
	}
	assert_true(n_partly > RUNS / 4);
	run_stop(&r);
	free(large);
}

/* Nothing of what was dropped can be found by others; what was used can. */
static void only_what_is_used_is_shared(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	struct run r;
	struct answer *whole = calloc(1, sizeof *whole);
	cfg.page_tokens = 4;
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("the beginning of something", TOKENS);
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	*whole = *again(&r, 2, &req);
	run_stop(&r);
	run_start(&r, &cfg);
	for (uint32_t wrong = 1; wrong < 30; wrong += 9) {
		struct draft_prefix_case c = draft_prefix_of(whole, 32, wrong, 0);
		struct proto_submit s = draft_prefix_request(&req, &c, wrong), other = req;
		s.tenant = other.tenant = wrong; /* prefixes of its own */
		s.max_tokens = 1;
		const struct answer *got = again(&r, 1, &s);
		draft_prefix_expect(got, wrong, wrong);
		uint32_t n_prompt = whole->end.n_prompt, bos = n_prompt - (uint32_t)req.prompt.n;
		uint8_t text[4 * 128];
		size_t at = 0;
		for (size_t k = bos; k < n_prompt + 32u; k++, at += 4) {
			uint32_t id = k < n_prompt ? (uint8_t)req.prompt.at[k - bos] : c.ids[k - n_prompt];
			memcpy(text + at, &(uint32_t){htole32(id)}, 4);
		}
		other.prompt_kind = PROTO_PROMPT_TOKENS;
		other.prompt = (struct proto_str){(const char *)text, at};
		other.max_tokens = 1;
		got = again(&r, 3, &other);
		assert_true(got->end.n_cached <= n_prompt + wrong);
		assert_true(got->end.n_cached + 4 > n_prompt);
	}
	run_until_idle(&r);
	run_stop(&r);
	free(whole);
}

static void expect_refused(struct run *r, const struct proto_submit *s, uint8_t error)
{
	const struct answer *a = again(r, 1, s);
	assert_int_equal(a->end.finish, PROTO_FINISH_ERROR);
	assert_int_equal(a->end.error, error);
	assert_true(a->message[0] != '\0');
	assert_false(a->verified);
}

static void bounds(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	struct run r;
	static char longest[TINY_CTX];
	static uint32_t ids[PROTO_MAX_GIVEN];
	cfg.max_prompt_bytes = 4096;
	run_start(&r, &cfg);
	for (int i = 0; i < PROTO_MAX_GIVEN; i++)
		ids[i] = 'a' + (uint32_t)i % 26;
	struct proto_submit req = run_plain("x", 5);
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	req.given = ids;
	req.n_given = 3;
	ids[1] = TINY_VOCAB;
	expect_refused(&r, &req, PROTO_ERR_BAD_REQUEST);
	ids[1] = UINT32_MAX;
	expect_refused(&r, &req, PROTO_ERR_BAD_REQUEST);
	ids[1] = 'b';
	/* The context: what has to be kept must fit with one more; what need not is cut. */
	memset(longest, 'y', TINY_CTX - 10);
	req.prompt = (struct proto_str){longest, TINY_CTX - 10};
	req.max_tokens = 100;
	req.n_given = 20;
	const struct answer *a = again(&r, 1, &req);
	uint32_t room = TINY_CTX - a->end.n_prompt;
	assert_true(a->verified_as.n_used < room);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_CONTEXT);
	assert_int_equal(a->end.n_completion, room - a->verified_as.n_used);
	req.n_keep = (uint16_t)(room - 1);
	a = again(&r, 1, &req);
	assert_int_equal(a->verified_as.n_used, room - 1);
	assert_int_equal(a->end.n_completion, 1);
	req.n_keep = (uint16_t)room;
	expect_refused(&r, &req, PROTO_ERR_CONTEXT_LENGTH);
	/* max_tokens is about new ones, and so is credit. */
	req = run_plain("x", 7);
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	req.given = ids;
	req.n_given = req.n_keep = 200;
	a = again(&r, 1, &req);
	assert_int_equal(a->verified_as.n_used, 200);
	assert_int_equal(a->n_tokens, 7);
	assert_int_equal(a->end.length_why, PROTO_LENGTH_MAX_TOKENS);
	run_until_idle(&r);
	run_stop(&r);
}

int main(void)
{
	log_init("test", LOG_ERROR);
	snprintf(large_path, sizeof large_path, "/tmp/sluice-given-a-%d.gguf", (int)getpid());
	snprintf(small_path, sizeof small_path, "/tmp/sluice-given-b-%d.gguf", (int)getpid());
	if (!tiny_gguf_write(large_path, 1) || !tiny_gguf_write(small_path, 2))
		return 1;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_goes_on_as_if_undisturbed), cmocka_unit_test(what_is_kept_is_gone_on_from),
	    cmocka_unit_test(what_is_kept_counts),          cmocka_unit_test(characters_across_the_seam),
	    cmocka_unit_test(stop_strings_across_the_seam), cmocka_unit_test(answers_of_another_model),
	    cmocka_unit_test(only_what_is_used_is_shared),  cmocka_unit_test(bounds),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(large_path);
	unlink(small_path);
	return rc;
}
