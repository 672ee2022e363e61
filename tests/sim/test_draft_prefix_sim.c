/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on with what another model made, where much goes on at once: pages are short, so that some are
 * pre-empted between two chunks of what they check; some are cancelled in the middle of it, allocations fail.
 * The model has no weights (fake_model.h): whoever mixes up pages or positions says something else.
 */
#include "tests/unit/engine/core/draft_prefix_run.h"
#include "fake_model.h"

#include "base/fault.h"
#include "base/log.h"
#include "engine/kv/kv.h"

static struct eng_model_config models[] = {{.name = "large", .path = "a.gguf", .role = PROTO_ROLE_LARGE},
					   {.name = "small", .path = "near.gguf", .role = PROTO_ROLE_SMALL}};

static struct eng_config config(void)
{
	return (struct eng_config){.models = models,
				   .n_models = 2,
				   .backend = "cpu-ref",
				   .kv_type = "q8",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 4,
				   .kv_bytes = 16 << 20,
				   .max_sequences = 8,
				   .max_waiting = 64,
				   .step_tokens = 16,
				   .max_prompt_bytes = 1 << 20,
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
	struct proto_submit req = run_plain(prompts[i], 60);
	req.seed = (uint64_t)i * 1000;
	req.temperature = i % 3 == 0 ? 0 : 0.9f;
	req.frequency_penalty = i % 5 == 1 ? 0.5f : 0;
	req.tenant = (uint64_t)(i % 5);
	req.priority = (uint8_t)(i % 2);
	return req;
}

static struct answer *wholes(void)
{
	struct answer *out = calloc(MANY, sizeof *out);
	struct eng_config cfg = config();
	struct run r;
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		out[i] = *run_one(&r, 1, &req);
	}
	run_stop(&r);
	return out;
}

/* All at once: half of what is given is wrong somewhere, with and without a kept part before that. How many
 * were pre-empted. */
static uint64_t together(const struct eng_config *cfg, const struct answer *whole)
{
	static struct draft_prefix_case c[MANY];
	uint32_t agreed[MANY];
	struct run r;
	run_start(&r, cfg);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		uint32_t n = whole[i].n_tokens < 59 ? whole[i].n_tokens : 59,
			 wrong = i % 2 == 0 ? n : n * (uint32_t)(i % 4) / 4;
		c[i] = draft_prefix_of(&whole[i], n, wrong, i % 3 == 0 ? wrong : wrong / 2);
		agreed[i] = wrong;
		struct proto_submit s = draft_prefix_request(&req, &c[i], wrong);
		run_submit(&r, (uint64_t)i + 1, &s);
		run_credit(&r, (uint64_t)i + 1, 3); /* pauses on the way */
	}
	for (int i = 0; i < MANY; i++)
		run_credit(&r, (uint64_t)i + 1, 1000);
	for (int i = 0; i < MANY; i++) {
		const struct answer *a = run_until_done(&r, (uint64_t)i + 1);
		if (c[i].n > 0)
			draft_prefix_expect(a, agreed[i], agreed[i]);
		draft_prefix_assert_rest(a, &whole[i], agreed[i]);
	}
	run_until_idle(&r);
	struct proto_stats s;
	engine_stats(r.e, &s);
	run_stop(&r);
	return s.preemptions;
}

static void together_as_undisturbed(void **state)
{
	(void)state;
	struct answer *whole = wholes();
	struct eng_config cfg = config();
	cfg.max_sequences = MANY;
	together(&cfg, whole);
	cfg = config();
	cfg.no_prefix_cache = true;
	together(&cfg, whole);
	cfg = config();
	cfg.step_tokens = 1;
	together(&cfg, whole);
	cfg = config();
	cfg.spec_mode = ENG_SPEC_AUTO;
	together(&cfg, whole);
	/* Room for hardly more than the longest. */
	cfg = config();
	cfg.step_tokens = 8;
	cfg.n_models = 1;                                       /* which has nobody to get pages from */
	bool hybrid = strstr(models[0].path, "hybrid") != NULL; /* whose states take up to half */
	cfg.kv_bytes = kv_page_bytes(KN_KV_Q8, 4, 1, 1, 8) * (hybrid ? 90 : 56);
	assert_true(together(&cfg, whole) > 0);
	free(whole);
}

/* Logits of at most so many rows beside the draws, however much there is to check. */
static void rows_are_bounded(void **state)
{
	(void)state;
	struct answer *whole = wholes();
	struct eng_config cfg = config();
	cfg.step_tokens = 512;
	atomic_store(&fake.max_want_seen, 0);
	together(&cfg, whole);
	assert_true(atomic_load(&fake.max_want_seen) > 32);
	assert_true(atomic_load(&fake.max_want_seen) <= 32 + cfg.max_sequences);
	free(whole);
}

/* Between two chunks of what is checked; within one step, and nothing is left. */
static void cancelled_in_the_middle(void **state)
{
	(void)state;
	struct eng_config cfg = config();
	struct run r;
	struct answer *whole = calloc(1, sizeof *whole);
	int n_middle = 0;
	atomic_store(&fake.end_never, 1);
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("hello", 200), other = run_plain("x", 1);
	*whole = *run_one(&r, 1, &req);
	struct draft_prefix_case c = draft_prefix_of(whole, 150, 150, 75);
	atomic_store(&fake.step_us, 4000);
	enum { ALL = (5 + 150) / 16 }; /* and one */
	for (int steps = 1; steps < ALL; steps += 2) {
		struct proto_submit s = draft_prefix_request(&req, &c, 150);
		run_submit(&r, 2, &s);
		RUN_UNTIL(&r, r.answers[2].queued);
		int before = atomic_load(&fake.forwards);
		run_credit(&r, 2, 100);
		while (atomic_load(&fake.forwards) < before + steps)
			sched_yield();
		/* The step that goes on now, if any, waits: what is known of it stays true. */
		pthread_mutex_lock(&fake.gate);
		int done = atomic_load(&fake.forwards) - before;
		engine_cancel(r.e, 2);
		pthread_mutex_unlock(&fake.gate);
		const struct answer *a = run_until_done(&r, 2);
		if (done + 1 < ALL) {
			assert_int_equal(a->end.finish, PROTO_FINISH_CANCELLED);
			assert_false(a->verified);
			assert_int_equal(a->end.n_completion, 0);
			assert_int_equal(a->n_tokens, 0);
			n_middle++;
		}
		run_until_idle(&r);
	}
	atomic_store(&fake.step_us, 0);
	run_one(&r, 3, &other);
	assert_true(n_middle > 0);
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
	free(whole);
}

/* The model's device fails while it checks. */
static void a_device_that_fails(void **state)
{
	(void)state;
	atomic_store(&fake.end_never, 1);
	struct answer *whole = wholes();
	for (int at = 1; at < 4; at++) {
		struct eng_config cfg = config();
		struct run r;
		run_start(&r, &cfg);
		struct proto_submit req = nth_request(7);
		struct draft_prefix_case c = draft_prefix_of(&whole[7], 40, 40, 20);
		struct proto_submit s = draft_prefix_request(&req, &c, 40);
		run_submit(&r, 1, &s);
		RUN_UNTIL(&r, r.answers[1].queued);
		atomic_store(&fake.fail_next, at);
		run_credit(&r, 1, 60);
		const struct answer *a = run_until_done(&r, 1);
		assert_int_equal(a->end.finish, PROTO_FINISH_ERROR);
		assert_int_equal(a->end.n_completion, a->n_tokens);
		atomic_store(&fake.fail_next, -1);
		run_stop(&r);
	}
	atomic_store(&fake.end_never, 0);
	free(whole);
}

static void faults(void **state)
{
	(void)state;
	atomic_store(&fake.end_never, 1);
	struct answer *whole = wholes();
	struct eng_config cfg = config();
	struct run r;
	run_start(&r, &cfg);
	struct proto_submit req = nth_request(6);
	struct draft_prefix_case c = draft_prefix_of(&whole[6], 40, 40, 10);
	struct proto_submit s = draft_prefix_request(&req, &c, 40);
	s.tenant = 77;
	int failed = 0, survived = 0;
	for (long nth = 1; nth <= 60; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		r.answers[2] = (struct answer){.credit = 1000};
		int rc = engine_submit(r.e, 2, &s);
		if (rc == 0) {
			engine_credit(r.e, 2, 1000);
			const struct answer *a = run_until_done(&r, 2);
			if (a->end.finish != PROTO_FINISH_ERROR)
				draft_prefix_assert_rest(a, &whole[6], 40);
			else
				assert_true(a->message[0] != '\0');
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
		draft_prefix_assert_rest(run_one(&r, 3, &s), &whole[6], 40);
		fault_disarm_all();
	}
	run_stop(&r);
	atomic_store(&fake.end_never, 0);
	free(whole);
}

int main(void)
{
	log_init("test", LOG_ERROR);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(together_as_undisturbed),
	    cmocka_unit_test(rows_are_bounded),
	    cmocka_unit_test(cancelled_in_the_middle),
	    cmocka_unit_test(a_device_that_fails),
	    cmocka_unit_test(faults),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	models[0].path = "hybrid.gguf"; /* rejected tokens are in its state, too */
	return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
