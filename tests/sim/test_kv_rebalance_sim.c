/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that share memory, of equal and of other layouts: one that is alone has all of it, one that comes
 * back has its part again, better tiers take from worse ones over both, and whatever changes hands, every
 * answer is the one that it is alone. The models have no weights (fake_model.h): whoever finds another
 * model's keys in its pages says something else.
 */
#include "tests/unit/engine/core/engine_run.h"
#include "fake_model.h"

#include "base/fault.h"
#include "base/log.h"
#include "engine/kv/kv.h"
#include "engine/step/internal.h"

enum { MANY = 24, PAGE = 4, PAGES = 160, LONGEST = 120 };

static struct eng_model_config models[2];

/* Of the two models: layers, and the type of keys and values, so that pages are as long, a multiple, or not. */
static const struct {
	int layers[2], types[2];
} layouts[] = {{{1, 1}, {KN_F32, KN_F32}}, {{3, 1}, {KN_F16, KN_F16}}, {{1, 3}, {KN_KV_Q8, KN_KV_Q8}},
	       {{3, 2}, {KN_F32, KN_F32}}, {{1, 1}, {KN_F16, KN_F32}}, {{2, 1}, {KN_KV_Q8, KN_F16}}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static uint64_t page_of(int k, int model)
{
	return kv_page_bytes(layouts[k].types[model], PAGE, layouts[k].layers[model], 1, 8);
}

static struct eng_config config(int k)
{
	static const char *const paths[] = {"", "one.gguf", "two.gguf", "three.gguf"}, *const names[] = {"a", "b"};
	for (int i = 0; i < 2; i++)
		models[i] = (struct eng_model_config){.name = names[i],
						      .path = paths[layouts[k].layers[i]],
						      .kv_type = kn_kv_type_name(layouts[k].types[i])};
	return (struct eng_config){.models = models,
				   .n_models = 2,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = PAGE,
				   .max_sequences = MANY,
				   .max_waiting = 200,
				   .step_tokens = 64,
				   .max_prompt_bytes = 1 << 20,
				   .kv_bytes = (page_of(k, 0) + page_of(k, 1)) * PAGES};
}

static char prompts[MANY][LONGEST + 1];

static struct proto_submit nth_request(int i, int model)
{
	int n = 1 + i * 37 % LONGEST;
	memset(prompts[i], 'a' + i % 26, (size_t)n);
	prompts[i][n / 2] = (char)('A' + i % 26);
	prompts[i][n] = '\0';
	struct proto_submit req = run_plain(prompts[i], 30 + (uint32_t)i);
	req.seed = (uint64_t)i * 1000;
	req.temperature = i % 3 == 0 ? 0 : 0.9f;
	req.tenant = (uint64_t)i;
	req.model = (uint16_t)model;
	return req;
}

static struct answer *alone(void)
{
	struct answer *out = calloc(MANY, sizeof *out);
	struct eng_config cfg = config(0);
	struct run r;
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i, 0);
		out[i] = *run_one(&r, 1, &req);
	}
	run_stop(&r);
	return out;
}

/* n requests from the first on, to one model, of one tier; identifiers from `id`. */
static void send(struct run *r, uint64_t id, int first, int n, int model, uint8_t priority, uint32_t credit)
{
	for (int i = 0; i < n; i++) {
		struct proto_submit req = nth_request((first + i) % MANY, model);
		req.priority = priority;
		run_submit(r, id + (uint64_t)i, &req);
		if (credit > 0)
			run_credit(r, id + (uint64_t)i, credit);
	}
}

/* All are there before the first begins. */
static void send_together(struct run *r, uint64_t id, int first, int n, int model)
{
	send(r, id, first, n, model, 0, 0);
	for (int i = 0; i < n; i++)
		RUN_UNTIL(r, r->answers[id + (uint64_t)i].queued);
	pthread_mutex_lock(&fake.gate);
	for (int i = 0; i < n; i++)
		run_credit(r, id + (uint64_t)i, 1000);
	pthread_mutex_unlock(&fake.gate);
}

static void expect(struct run *r, uint64_t id, int first, int n, const struct answer *whole)
{
	for (int i = 0; i < n; i++)
		run_assert_same(run_until_done(r, id + (uint64_t)i), &whole[(first + i) % MANY]);
}

static uint64_t preempted(struct run *r)
{
	struct proto_stats s;
	engine_stats(r->e, &s);
	return s.preemptions;
}

static int n_begun(const struct run *r, int id, int n)
{
	int begun = 0;
	for (int i = 0; i < n; i++)
		begun += r->answers[id + i].n_tokens > 0;
	return begun;
}

/* More than its part, and not as much as all: nobody has to give way. */
static void one_that_is_alone_has_all(void **state)
{
	(void)state;
	struct answer *whole = alone();
	for (int k = 0; k < LAYOUTS; k++) {
		struct eng_config cfg = config(k);
		struct run r;
		run_start(&r, &cfg);
		uint32_t need = 0;
		for (int model = 0; model < 2; model++) {
			/* As many as would need one and a half times what is one's part, together. */
			int n = 0;
			for (need = 0; n < MANY && need < PAGES * 3 / 2; n++)
				need += (1 + (uint32_t)n * 37 % LONGEST + 30 + (uint32_t)n + PAGE - 1) / PAGE;
			/* The wider of two has less than that to gain. */
			bool wider = page_of(k, model) > 2 * page_of(k, 1 - model);
			if (wider)
				continue;
			uint64_t before = preempted(&r);
			send_together(&r, 1, 0, n, model);
			expect(&r, 1, 0, n, whole);
			run_until_idle(&r);
			if (preempted(&r) != before)
				fail_msg("layout %d, model %d: %llu pre-empted", k, model,
					 (unsigned long long)(preempted(&r) - before));
		}
		run_stop(&r);
	}
	free(whole);
}

/* Both at once, over and over, and with little memory: everything ends, as it is alone. */
static void both_at_once(void **state)
{
	(void)state;
	struct answer *whole = alone();
	uint64_t n_preempted = 0;
	for (int k = 0; k < LAYOUTS; k++) {
		struct eng_config cfg = config(k);
		struct run r;
		cfg.kv_bytes = cfg.kv_bytes * 45 / PAGES; /* each one's part holds the longest, hardly more */
		cfg.no_prefix_cache = k == 3;
		run_start(&r, &cfg);
		for (int round = 0; round < 3; round++) {
			send(&r, 1, round, MANY, 0, 1, round == 1 ? 5 : 1000);
			send(&r, 1 + MANY, round + 5, MANY, 1, round == 2, 1000);
			for (int i = 0; i < MANY; i++)
				run_credit(&r, 1 + (uint64_t)i, 1000);
			expect(&r, 1, round, MANY, whole);
			expect(&r, 1 + MANY, round + 5, MANY, whole);
			run_until_idle(&r);
		}
		n_preempted += preempted(&r);
		run_stop(&r);
	}
	assert_true(n_preempted > 0);
	free(whole);
}

/* One has more than its part, in sequences that have credit and are not due for ever; the other one comes. */
static void a_part_comes_back(void **state)
{
	(void)state;
	enum { HOGS = 12 };
	static char text[256];
	struct answer *whole = alone();
	memset(text, 'x', sizeof text - 1);
	for (int k = 0; k < LAYOUTS; k++) {
		struct eng_config cfg = config(k);
		struct run r;
		cfg.kv_bytes = cfg.kv_bytes * 100 / PAGES;
		run_start(&r, &cfg);
		for (int i = 0; i < HOGS; i++) {
			struct proto_submit req = run_plain(text + i, 10);
			req.flags |= PROTO_SUBMIT_IGNORE_EOS;
			req.tenant = 1000 + (uint64_t)i;
			req.priority = 1;
			req.rate_tps = 0.001f;
			req.burst = 1;
			run_submit(&r, 100 + (uint64_t)i, &req);
			run_credit(&r, 100 + (uint64_t)i, 10);
		}
		RUN_UNTIL(&r, n_begun(&r, 100, HOGS) >= 2); /* 62 pages each */
		assert_int_equal(preempted(&r), 0);
		/* Of the same tier: it needs no better one to have its part. */
		send(&r, 1, 0, MANY, 1, 1, 1000);
		expect(&r, 1, 0, MANY, whole);
		assert_true(preempted(&r) > 0);
		for (int i = 0; i < HOGS; i++) {
			engine_cancel(r.e, 100 + (uint64_t)i);
			assert_int_equal(run_until_done(&r, 100 + (uint64_t)i)->end.finish, PROTO_FINISH_CANCELLED);
		}
		run_until_idle(&r);
		run_stop(&r);
	}
	free(whole);
}

/* A better tier takes beyond its model's part, from a worse one on the other model. */
static void better_tiers_come_first(void **state)
{
	(void)state;
	struct eng_config cfg = config(0);
	struct run r;
	static char text[256];
	atomic_store(&fake.end_never, 1);
	cfg.kv_bytes = cfg.kv_bytes * 100 / PAGES; /* 200 pages */
	run_start(&r, &cfg);
	memset(text, 'x', sizeof text - 1);
	/* 9 of 40 pages each do not fit into one's part, and hardly into both; step by step they grow. */
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 5; i++) {
			struct proto_submit req = run_plain(text + 100 + i, 20);
			req.tenant = 10 * (uint64_t)round + (uint64_t)i;
			req.priority = (uint8_t)(1 - round);
			req.model = (uint16_t)round;
			run_submit(&r, (uint64_t)(10 * round + i) + 1, &req);
			/* Those of the worse tier may make all but one token, and stay. */
			run_credit(&r, (uint64_t)(10 * round + i) + 1, round == 0 ? 19 : 20);
		}
		for (int i = 0; i < 5 && round == 0; i++)
			RUN_UNTIL(&r, r.answers[i + 1].n_tokens == 19);
	}
	for (int i = 0; i < 5; i++)
		assert_int_equal(run_until_done(&r, 11 + (uint64_t)i)->end.finish, PROTO_FINISH_LENGTH);
	for (int i = 0; i < 5; i++) {
		run_credit(&r, 1 + (uint64_t)i, 1);
		assert_int_equal(run_until_done(&r, 1 + (uint64_t)i)->n_tokens, 20);
	}
	assert_true(preempted(&r) > 0);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
}

/* A model that does not load leaves its part to the other one; one whose device fails too. */
static void of_one_that_fails(void **state)
{
	(void)state;
	struct answer *whole = alone();
	for (int way = 0; way < 2; way++) {
		struct eng_config cfg = config(0);
		struct run r;
		if (way == 0)
			models[0].path = "bad.gguf";
		cfg.kv_bytes = cfg.kv_bytes * 60 / PAGES;
		run_start(&r, &cfg);
		struct proto_submit req = nth_request(3, 0);
		if (way == 1)
			atomic_store(&fake.fail_next, 3);
		assert_int_equal(run_one(&r, 99, &req)->end.finish, PROTO_FINISH_ERROR);
		atomic_store(&fake.fail_next, -1);
		RUN_UNTIL(&r, r.states[0] == PROTO_MODEL_FAILED);
		send_together(&r, 1, 0, 5, 1); /* 98 pages */
		expect(&r, 1, 0, 5, whole);
		assert_int_equal(preempted(&r), 0);
		run_stop(&r);
	}
	free(whole);
}

static uint64_t withheld(struct run *r)
{
	struct proto_stats s;
	engine_stats(r->e, &s);
	return s.kv_withheld;
}

/* Memory is given back and used again while both work: nothing changes but how much waits. */
static void memory_goes_and_returns(void **state)
{
	(void)state;
	struct answer *whole = alone();
	uint64_t most = 0;
	for (int k = 0; k < LAYOUTS; k++) {
		struct eng_config cfg = config(k);
		struct run r;
		unsigned seed = (unsigned)k;
		run_start(&r, &cfg);
		for (int round = 0; round < 3; round++) {
			send(&r, 1, round, MANY, 0, 1, 1000);
			send(&r, 1 + MANY, round + 5, MANY, 1, round == 2, 1000);
			for (int i = 0; i < MANY; i++) {
				expect(&r, 1 + (uint64_t)i, round + i, 1, whole);
				long long part = (long long)cfg.kv_bytes / 8 * (rand_r(&seed) % 5);
				atomic_store(&r.e->kv_ask, rand_r(&seed) % 3 == 0 ? -part : part);
				most = withheld(&r) > most ? withheld(&r) : most;
			}
			expect(&r, 1 + MANY, round + 5, MANY, whole);
			run_until_idle(&r);
		}
		uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
		while (withheld(&r) > 0 && clock_now_ns() < until) {
			atomic_store(&r.e->kv_ask, -(1ll << 40));
			mailbox_nudge(&r.e->box);
		}
		assert_int_equal(withheld(&r), 0);
		run_stop(&r);
	}
	assert_true(most > 0);
	free(whole);
}

/* Pages and allocations that fail while memory changes hands. */
static void faults(void **state)
{
	(void)state;
	struct answer *whole = alone();
	struct eng_config cfg = config(5);
	struct run r;
	cfg.kv_bytes = cfg.kv_bytes * 50 / PAGES;
	run_start(&r, &cfg);
	for (long nth = 1; nth <= 40; nth += 3) {
		fault_arm(FAULT_KV_PAGE, nth, 3);
		send(&r, 1, (int)nth, 6, nth % 2 == 0, 0, 1000);
		expect(&r, 1, (int)nth, 6, whole);
		fault_disarm_all();
	}
	run_until_idle(&r);
	run_stop(&r);
	for (long nth = 1; nth <= 60; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		if (run_start_rc(&r, &cfg) == 0) {
			for (int i = 0; i < 2; i++)
				RUN_UNTIL(&r, r.states[i] > PROTO_MODEL_LOADING);
			engine_destroy(r.e);
		}
		run_free(&r);
		fault_disarm_all();
	}
	free(whole);
}

int main(void)
{
	log_init("test", LOG_ERROR);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_that_is_alone_has_all),
	    cmocka_unit_test(both_at_once),
	    cmocka_unit_test(a_part_comes_back),
	    cmocka_unit_test(better_tiers_come_first),
	    cmocka_unit_test(of_one_that_fails),
	    cmocka_unit_test(memory_goes_and_returns),
	    cmocka_unit_test(faults),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
