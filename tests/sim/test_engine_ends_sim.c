/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine with a model that has no weights (fake_model.h): answers that are cancelled in every phase, models and
 * devices that fail, memory that ends, and steps that are launched while one is on its way, in turmoil. Nothing is ever
 * left behind.
 */
#include "engine_requests.h"

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
	/* And a device that fails takes all of them with it. None can end before it fails: they have no credit yet. */
	for (uint64_t i = 1; i <= 4; i++) {
		struct proto_submit req = fan((int)i % 3);
		run_submit_again(&r, i, &req);
	}
	for (uint64_t i = 1; i <= 4; i++)
		RUN_UNTIL(&r, r.answers[i].queued);
	atomic_store(&fake.end_never, 1);
	atomic_store(&fake.fail_next, 5);
	for (uint64_t i = 1; i <= 4; i++)
		run_credit(&r, i, 1000);
	for (uint64_t i = 1; i <= 4; i++)
		run_until_done(&r, i);
	atomic_store(&fake.fail_next, -1);
	atomic_store(&fake.end_never, 0);
	run_stop(&r);
	assert_int_equal(atomic_load(&faults), 1); /* reported once, as the streams are */
}

/* However many are cancelled while the text workers are busy, none that waits makes room for them. */
static void cancelled_displace_none(void **state)
{
	(void)state;
	enum { WAITING = 2, CANCELLED = 200 };
	struct run r;
	struct eng_config cfg = config();
	cfg.n_text_workers = 1;
	for (uint8_t better = 0; better <= 1; better++) {
		struct proto_submit waits = run_plain("waits", 5), other = run_plain("other", 5);
		waits.tenant = 1;
		waits.priority = 1;
		other.tenant = 2;
		other.priority = 1 - better;
		run_start(&r, &cfg);
		pthread_mutex_lock(&fake.text_gate);
		for (uint64_t i = 1; i <= WAITING; i++) {
			run_submit(&r, i, &waits);
			run_credit(&r, i, 5);
		}
		for (int i = 0; i < CANCELLED; i++) {
			run_submit(&r, WAITING + 1, &other);
			engine_cancel(r.e, WAITING + 1);
			assert_int_equal(run_until_done(&r, WAITING + 1)->end.finish, PROTO_FINISH_CANCELLED);
		}
		pthread_mutex_unlock(&fake.text_gate);
		for (uint64_t i = 1; i <= WAITING; i++)
			assert_int_not_equal(run_until_done(&r, i)->end.finish, PROTO_FINISH_ERROR);
		run_until_idle(&r);
		run_stop(&r);
	}
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
	static const struct eng_model_config two[] = {{.name = "a", .path = "a.gguf"}, {.name = "b", .path = "b.gguf"}};
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
			atomic_store(&fake.n_beside, 0);
			atomic_store(&fake.n_crowding, 0);
			pthread_mutex_lock(&fake.gate); /* both begin together */
			run_credit(&r, 1, 5);
			run_credit(&r, 2, 25);
			pthread_mutex_unlock(&fake.gate);
			run_assert_same(run_until_done(&r, 1), &expect[0]);
			run_assert_same(run_until_done(&r, 2), &expect[1]);
			/* 25 chunks of the one while the other makes 25 tokens. */
			assert_true(atomic_load(&fake.n_beside) >= 20);
			/* Which of them is served first, and so is alone at the end, is for the clock to say. */
			assert_int_equal(atomic_load(&fake.n_crowding), 0);
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
		if (round == 1 || round == 3)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cancel_in_every_phase),
	    cmocka_unit_test(choices_are_cancelled),
	    cmocka_unit_test(cancelled_displace_none),
	    cmocka_unit_test(failures_of_models),
	    cmocka_unit_test(faults),
	};
	/* Again with drafts; the others count steps. */
	const struct CMUnitTest with_drafts[] = {
	    cmocka_unit_test(cancel_in_every_phase),
	    cmocka_unit_test(failures_of_models),
	    cmocka_unit_test(faults),
	};
	/* And where steps go on by themselves. */
	const struct CMUnitTest ahead[] = {
	    cmocka_unit_test(cancel_in_every_phase),    cmocka_unit_test(choices_are_cancelled),
	    cmocka_unit_test(failures_of_models),       cmocka_unit_test(faults),
	    cmocka_unit_test(models_beside_each_other), cmocka_unit_test(ahead_in_turmoil),
	    cmocka_unit_test(ahead_only_what_can),      cmocka_unit_test(ahead_fails),
	};
	return RUN_IN_EVERY_MODE(tests, with_drafts, ahead);
}
