/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine with real weights (random ones): everything from the file to the text, on every
 * backend that this processor has.
 */
#include "engine_run.h"

#include <unistd.h>

#include "tests/support/part.h"
#include "tests/support/tiny_gguf.h"
#include "base/fault.h"
#include "engine/kv/kv.h"
#include "kernels/kv_type.h"

static char small_path[64], large_path[64], broken_path[64];
static struct eng_model_config models[3];

static struct eng_config config(void)
{
	return (struct eng_config){.models = models,
				   .n_models = 1,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 2,
				   .page_tokens = 16,
				   .kv_bytes = 8 << 20,
				   .max_sequences = 32,
				   .max_waiting = 64,
				   .step_tokens = 64,
				   .max_prompt_bytes = 1 << 20};
}

enum { MANY = PART_OF(32) };

static char chats[MANY][512];

static struct proto_submit nth_request(int i)
{
	char word[200];
	int n = 1 + i * 53 % 190;
	memset(word, 'a' + i % 26, sizeof word);
	word[n] = '\0';
	snprintf(chats[i], sizeof chats[i],
		 "{\"messages\":[{\"role\":\"system\",\"content\":\"Be number %d.\"},"
		 "{\"role\":\"user\",\"content\":\"%s \xc3\xa9?\"}]}",
		 i, word);
	struct proto_submit req = run_plain(chats[i], (uint32_t)(8 + i % 24));
	req.prompt_kind = PROTO_PROMPT_CHAT;
	req.seed = (uint64_t)(i + 1) * 305419896;
	req.temperature = i % 4 == 0 ? 0 : 0.3f * (float)(i % 4);
	req.top_p = i % 3 == 0 ? 1 : 0.9f;
	req.top_k = i % 5 == 0 ? 20 : 0;
	req.frequency_penalty = i % 6 == 0 ? 0.5f : 0;
	req.repetition_penalty = i % 7 == 0 ? 1.2f : 1;
	req.typical_p = i % 8 == 0 ? 0.9f : 1;
	req.min_p = i % 9 == 0 ? 0.02f : 0;
	req.min_tokens = i % 10 == 0 ? 6 : 0;
	req.tenant = (uint64_t)(i % 4);
	return req;
}

static void together(const struct eng_config *cfg, const struct answer *expect)
{
	struct run r;
	run_start(&r, cfg);
	run_crowd(&r, 1, MANY, nth_request, expect);
	run_stop(&r);
}

/* The first to say it: a stream equals its own run alone, bit by bit, whatever shares its steps. */
static void same_together_as_alone(void **state)
{
	(void)state;
	struct answer *expect = calloc(MANY, sizeof *expect);
	for (const struct kn_ops *const *ops = kn_available(); *ops != NULL; ops++) {
		struct eng_config cfg = config();
		cfg.backend = (*ops)->name;
		run_each_alone(&cfg, MANY, nth_request, expect);
		together(&cfg, expect);
		cfg.n_threads = 2;
		cfg.step_tokens = 7;
		together(&cfg, expect);
		/* Pages for 40 × 16 tokens: about two of the longest prompts. */
		cfg = config();
		cfg.backend = (*ops)->name;
		cfg.kv_bytes = 40 * kv_page_bytes(kn_kv_type_auto(*ops), 16, TINY_LAYERS, TINY_KV_HEADS, TINY_HEAD);
		together(&cfg, expect);
	}
	free(expect);
}

/* A prompt that is computed and nothing more is found by the next one of its tenant, and of no other. */
static void prefill_only(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	struct proto_submit req =
	    run_plain("The grey bridge over the river was built by people whose names are lost.", 8);
	const struct answer alone =
	    *run_one(&r, 1,
		     &(struct proto_submit){PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .flags = req.flags,
					    .n_top_logprobs = 1, .top_p = 1, .seed = 7, .max_tokens = 8, .tenant = 9,
					    .prompt = req.prompt});
	req.tenant = 1;
	struct proto_submit only = req;
	only.flags = PROTO_SUBMIT_PREFILL_ONLY;
	only.n_top_logprobs = 0;
	run_submit(&r, 2, &only);
	RUN_UNTIL(&r, r.answers[2].queued);
	assert_false(r.answers[2].done); /* not before there is credit */
	run_credit(&r, 2, 1);
	const struct answer *a = run_until_done(&r, 2);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->end.error, PROTO_ERR_NONE);
	assert_int_equal(a->end.n_completion, 0);
	assert_int_equal(a->n_tokens, 0);
	assert_int_equal(a->queued_as.n_cached, 0);
	assert_true(a->end.n_prompt > 32);
	const struct answer *b = run_one(&r, 3, &req);
	assert_true(b->end.n_cached >= b->end.n_prompt - 16);
	assert_int_equal(b->n_tokens, alone.n_tokens);
	assert_memory_equal(b->ids, alone.ids, alone.n_tokens * sizeof *alone.ids);
	req.tenant = 2;
	assert_int_equal(run_one(&r, 4, &req)->end.n_cached, 0);
	run_stop(&r);
}

static void models_of_one_engine(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.n_models = 3;
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	assert_int_equal(r.states[1], PROTO_MODEL_READY);
	assert_int_equal(r.states[2], PROTO_MODEL_FAILED);
	assert_non_null(strstr(r.reasons[2], broken_path));
	assert_int_equal(r.n_ctx[0], TINY_CTX);
	/* Both at once, and not the same. */
	struct proto_submit req = run_plain("Once upon a time", 40);
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	run_submit(&r, 1, &req);
	req.model = 1;
	run_submit(&r, 2, &req);
	run_credit(&r, 1, 40);
	run_credit(&r, 2, 40);
	const struct answer *a = run_until_done(&r, 1), *b = run_until_done(&r, 2);
	assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(b->end.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(a->n_tokens, 40);
	assert_int_not_equal(memcmp(a->ids, b->ids, 40 * sizeof *a->ids), 0);
	req.model = 2;
	assert_int_equal(run_one(&r, 3, &req)->end.error, PROTO_ERR_NOT_READY);
	struct proto_model info;
	engine_model_info(r.e, 0, &info);
	assert_int_equal(info.n_vocab, TINY_VOCAB);
	run_until_idle(&r);
	run_stop(&r);
}

static void predictions_and_timings(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	struct proto_submit req = nth_request(3);
	const struct answer *a = run_one(&r, 1, &req);
	assert_true(a->queued_as.predicted_ttft_us > 0);
	assert_int_equal(a->queued_as.n_prompt, a->end.n_prompt);
	assert_true(a->end.prefill_us > 0);
	struct proto_stats s;
	engine_stats(r.e, &s);
	assert_int_equal(s.submitted, 1);
	assert_int_equal(s.finished, 1);
	assert_int_equal(s.prefill_tokens, a->end.n_prompt);
	assert_true(s.us_per_prefill_token > 0);
	/* UTF-8 stays whole: the answer of noise is made of bytes. */
	req.max_tokens = 200;
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = 2;
	a = run_one(&r, 2, &req);
	assert_int_equal(a->end.n_completion, 200);
	run_stop(&r);
}

static void run_until_queued(struct run *r, uint64_t id) { RUN_UNTIL(r, r->answers[id].queued); }

/* Nothing may be refused by what is predicted to one that is alone or before any step was measured. */
static void a_guess_says_so(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	struct proto_load load;
	run_start(&r, &cfg);
	assert_true(engine_load(r.e, 0, &load));
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		assert_int_equal(load.of[i].wait_us, 0); /* no step yet */
	struct proto_submit req = run_plain("Once upon a time", 40);
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	run_submit(&r, 1, &req);
	run_until_queued(&r, 1);
	assert_true(r.answers[1].queued_as.guess); /* alone */
	run_submit(&r, 2, &req);
	run_until_queued(&r, 2);
	assert_true(r.answers[2].queued_as.guess); /* not alone, but nothing is known */
	run_credit(&r, 1, 20);
	RUN_UNTIL(&r, r.answers[1].n_tokens == 20);
	run_submit(&r, 3, &req);
	run_until_queued(&r, 3);
	assert_false(r.answers[3].queued_as.guess);
	run_credit(&r, 1, 20);
	run_credit(&r, 2, 40);
	run_credit(&r, 3, 40);
	for (uint64_t id = 1; id <= 3; id++)
		run_until_done(&r, id);
	run_until_idle(&r);
	assert_true(run_one(&r, 4, &req)->queued_as.guess);
	run_stop(&r);
}

/* A control token in a user's text is text: it is spelled out, byte by byte. */
static void users_write_text(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	static const char plain[] = "<|end|>";
	struct proto_count count = {.prompt_kind = PROTO_PROMPT_TEXT, .prompt = {.at = plain, .n = sizeof plain - 1}};
	assert_int_equal(engine_count(r.e, 1, &count), 0);
	RUN_UNTIL(&r, r.answers[1].counted);
	assert_int_equal(r.answers[1].count.n_tokens, 7);
	count.wants = PROTO_COUNT_IDS | PROTO_COUNT_TEXT;
	assert_int_equal(engine_count(r.e, 3, &count), 0);
	RUN_UNTIL(&r, r.answers[3].counted);
	assert_int_equal(r.answers[3].count.error, 0);
	assert_int_equal(r.answers[3].count.ids.n, 4 * r.answers[3].count.n_tokens);
	assert_int_equal(r.answers[3].count.text.n, sizeof plain - 1);
	count.wants = 0;
	static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"<|end|>\"}]}";
	count.prompt_kind = PROTO_PROMPT_CHAT;
	count.prompt = (struct proto_str){.at = chat, .n = sizeof chat - 1};
	assert_int_equal(engine_count(r.e, 2, &count), 0);
	RUN_UNTIL(&r, r.answers[2].counted);
	assert_int_equal(r.answers[2].count.n_tokens, 1 + 6 + 7 + 1 + 1 + 11);
	run_stop(&r);
}

static void faults(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.n_text_workers = 1;
	run_start(&r, &cfg);
	struct proto_submit req = nth_request(6);
	struct answer expect = *run_one(&r, 1, &req);
	int refused = 0, failed = 0, survived = 0;
	for (long nth = 1; nth <= 150; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		r.answers[2] = (struct answer){.credit = 1000};
		int rc = engine_submit(r.e, 2, &req);
		refused += rc != 0;
		if (rc == 0) {
			engine_credit(r.e, 2, 1000);
			const struct answer *a = run_until_done(&r, 2);
			failed += a->end.finish == PROTO_FINISH_ERROR;
			if (a->end.finish != PROTO_FINISH_ERROR) {
				run_assert_same(a, &expect);
				survived++;
			}
		}
		fault_disarm_all();
		run_until_idle(&r);
	}
	assert_true(refused > 0 && failed > 0 && survived > 0);
	for (long nth = 1; nth <= 20; nth++) {
		fault_arm(FAULT_KV_PAGE, nth, 2);
		run_assert_same(run_one(&r, 3, &req), &expect);
		fault_disarm_all();
	}
	run_stop(&r);
}

/* A backend that does not exist is a mistake of the configuration; no memory to ask for one is not. */
static void no_backend(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.backend = "cuda-none";
	for (long nth = 1; nth <= 2; nth++) { /* what is asked, and the call */
		fault_arm(FAULT_ALLOC, nth, 1);
		assert_int_equal(run_start_rc(&r, &cfg), SL_ENOMEM);
		fault_disarm_all();
		run_free(&r);
	}
	assert_int_equal(run_start_rc(&r, &cfg), SL_EINVAL);
	run_free(&r);
}

int main(void)
{
	snprintf(small_path, sizeof small_path, "/tmp/sluice-tiny-a-%d.gguf", (int)getpid());
	snprintf(large_path, sizeof large_path, "/tmp/sluice-tiny-b-%d.gguf", (int)getpid());
	snprintf(broken_path, sizeof broken_path, "/tmp/sluice-tiny-c-%d.gguf", (int)getpid());
	if (!tiny_gguf_write(small_path, 1) || !tiny_gguf_write(large_path, 2) || !tiny_gguf_write(broken_path, 3) ||
	    truncate(broken_path, 20000) != 0)
		return 1;
	models[0] = (struct eng_model_config){.name = "small", .path = small_path, .role = 1};
	models[1] = (struct eng_model_config){.name = "large", .path = large_path, .role = 2};
	models[2] = (struct eng_model_config){.name = "broken", .path = broken_path};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_together_as_alone),
	    cmocka_unit_test(models_of_one_engine),
	    cmocka_unit_test(prefill_only),
	    cmocka_unit_test(predictions_and_timings),
	    cmocka_unit_test(a_guess_says_so),
	    cmocka_unit_test(users_write_text),
	    cmocka_unit_test(faults),
	    cmocka_unit_test(no_backend),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(small_path);
	unlink(large_path);
	unlink(broken_path);
	return rc;
}
