/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-emption with pages that wait in the host's memory, of a model without weights that notices any byte that is not
 * where it was (fake_model.h): everybody says what he says alone, whoever is pre-empted, cancelled or too late, however
 * little room there is, with steps on their way and without, and when everything ends nothing is left.
 */
#include "engine_requests.h"

static const struct eng_model_config two_models[] = {{.name = "a", .path = "a.gguf"},
						     {.name = "b", .path = "two.gguf"}};

/* Pages for 208 tokens, less than two of the longest at once; of the host as much as is said. */
static struct eng_config scarce(uint64_t pages_on_host)
{
	struct eng_config cfg = config();
	cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52;
	cfg.swap_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * pages_on_host;
	cfg.swap_fixed = true;
	return cfg;
}

/* Everybody at once, with pauses; what the engine counted. */
static struct proto_stats crowd(const struct eng_config *cfg, const struct answer *expect)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	run_crowd(&r, cfg->n_models, MANY, nth_request, expect);
	engine_stats(r.e, &s);
	assert_int_equal(s.swap_used, 0);
	run_stop(&r);
	return s;
}

static void same_when_swapped(void **state)
{
	(void)state;
	struct answer *expect = alone_once();
	uint64_t computed[2];
	for (int how = 0; how < 5; how++) {
		struct eng_config cfg = scarce(how == 4 ? 0 : how == 1 ? 9 : 400);
		cfg.no_prefix_cache = how == 2;
		cfg.page_tokens = how == 3 ? 8 : 4;
		struct proto_stats s = crowd(&cfg, expect);
		assert_true(s.preemptions > 0);
		assert_true(s.swapped_in <= s.swapped_out);
		if (how != 1) /* nine pages: whether anybody has so few by then is as it comes */
			assert_int_equal(s.swapped_out > 0, how != 4);
		assert_int_equal(s.swap_places > 0, how != 4);
		if (how == 1)
			assert_true(s.swap_full > 0 && s.swap_places == 9);
		if (how == 2) /* nothing comes from a tree: what is swapped comes back */
			assert_int_equal(s.swapped_in, s.swapped_out);
		if (how == 0 || how == 4)
			computed[how / 4] = s.prefill_tokens;
	}
	print_message("%llu tokens of prompts computed with swapping, %llu without\n", (unsigned long long)computed[0],
		      (unsigned long long)computed[1]);
	free(expect);
}

/* Two models of other layouts, whose pages change hands: what is on its way to the host is waited for. */
static void same_when_traded(void **state)
{
	(void)state;
	struct answer *expect = alone_once();
	struct eng_config cfg = scarce(400);
	cfg.models = two_models;
	cfg.n_models = 2;
	cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 3 * 70;
	cfg.swap_bytes *= 4;
	/* Whether any comes back from the host, or all is computed again, is as they arrive. */
	enum { TRIES = 50 };
	int tries = 0;
	while (crowd(&cfg, expect).swapped_in == 0)
		assert_true(++tries < TRIES);
	free(expect);
}

/* Where computing again is quicker nothing is swapped: a token of this model takes no time. */
static void only_where_it_pays(void **state)
{
	(void)state;
	struct answer *expect = alone_once();
	struct eng_config cfg = scarce(400);
	cfg.swap_fixed = false;
	atomic_store(&fake.step_us, 0);
	atomic_store(&fake.copy_us, 300);
	struct proto_stats s = crowd(&cfg, expect);
	assert_true(s.preemptions > 0);
	assert_int_equal(s.swapped_out, 0);
	/* And where a step takes long and copies do not, it is. */
	atomic_store(&fake.copy_us, 0);
	atomic_store(&fake.step_us, 900);
	s = crowd(&cfg, expect);
	assert_true(s.swapped_out > 0);
	atomic_store(&fake.step_us, 0);
	free(expect);
}

static void turmoil_with_swap(void **state)
{
	(void)state;
	static const struct eng_model_config twins[] = {{.name = "a", .path = "a.gguf"},
							{.name = "b", .path = "b.gguf"}};
	struct answer *expect = alone_once();
	int before = atomic_load(&fake.n_in);
	static uint64_t passes; /* one pass has the odd ones, the next the even ones; with THOROUGH each all */
	const uint64_t by = (uint64_t)some_of(2, 1);
	for (uint64_t seed = 11 + passes++ % by; seed <= 16; seed += by) {
		struct eng_config cfg = scarce(seed % 3 == 0 ? 20 : 400);
		cfg.max_sequences = seed % 2 == 0 ? 4 : 8;
		cfg.no_prefix_cache = seed == 14;
		if (seed >= 15) {
			cfg.models = twins;
			cfg.n_models = 2;
			cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 140;
		}
		turmoil(&cfg, expect, seed);
	}
	assert_true(atomic_load(&fake.n_in) > before + some_of(30, 100));
	free(expect);
}

/* The longest request, pre-empted with its pages on the host, under one of a better priority. */
static void swapped_and_waiting(struct run *r, uint64_t deadline_ms)
{
	static char text[160];
	memset(text, 'w', sizeof text - 1);
	struct proto_submit worse = run_plain(text, 40), better = run_plain("better", 180);
	struct proto_stats s;
	worse.priority = 3;
	worse.deadline_ms = (uint32_t)deadline_ms;
	better.priority = 0;
	better.flags |= PROTO_SUBMIT_IGNORE_EOS;
	run_submit(r, 1, &worse);
	run_credit(r, 1, 2); /* however late the other comes, it is not done by then */
	RUN_UNTIL(r, r->answers[1].n_tokens >= 1);
	run_submit(r, 2, &better);
	run_credit(r, 2, 100); /* nor is that one, and there is room for one of them only */
	RUN_UNTIL(r, (engine_stats(r->e, &s), s.swap_used > 0));
	/* One with a deadline stays there until it has passed. */
	if (deadline_ms != 0)
		return;
	run_credit(r, 2, 80);
	run_credit(r, 1, 38);
}

/* Cancelled, late, with a device that fails or an engine that stops: nothing of it is left. */
static void end_while_swapped(const char *path, uint64_t n_pages)
{
	one_model[0].path = path;
	struct eng_config cfg = scarce(400);
	cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * n_pages;
	struct run r;
	struct proto_stats s;
	atomic_store(&fake.end_never, 1);
	atomic_store(&fake.step_us, 1000);
	for (int how = 0; how < 4; how++) {
		atomic_int faults = 0;
		cfg.on_fault = count_fault;
		cfg.on_fault_ctx = &faults;
		run_start(&r, &cfg);
		swapped_and_waiting(&r, how == 1 ? 1800 * 1000 : 0);
		if (how == 0)
			engine_cancel(r.e, 1);
		if (how == 1) {
			run_clock_hold(); /* an hour later */
			run_clock_move(&r, 1, 0);
		}
		if (how == 2)
			atomic_store(&fake.fail_next, 2);
		if (how < 3) {
			const struct answer *a = run_until_done(&r, 1);
			assert_int_equal(a->end.finish, how == 0   ? PROTO_FINISH_CANCELLED
							: how == 1 ? PROTO_FINISH_LENGTH
								   : PROTO_FINISH_ERROR);
			assert_true(how != 1 || a->end.length_why == PROTO_LENGTH_DEADLINE);
			if (how == 1)
				run_credit(&r, 2, 80);
			run_until_done(&r, 2);
			run_until_idle(&r);
			engine_stats(r.e, &s);
			if (how < 2)
				assert_int_equal(s.swap_used, 0);
		}
		atomic_store(&fake.fail_next, -1);
		run_stop(&r); /* sees that every place is back */
		assert_int_equal(atomic_load(&faults), how == 2);
	}
	atomic_store(&fake.step_us, 0);
	atomic_store(&fake.end_never, 0);
}

static void ends_while_swapped(void **state)
{
	(void)state;
	end_while_swapped("windowed.gguf", 90); /* as scarce */
	end_while_swapped("fake.gguf", 52);
}

/* Memory that ends while pages are brought out or back: computed again, the same answer. */
static void faults_while_swapping(void **state)
{
	(void)state;
	struct eng_config cfg = scarce(400);
	struct answer expect[2];
	cfg.n_text_workers = 1;
	atomic_store(&fake.end_never, 1);
	for (int round = 0, by = some_of(3, 1); round < 13; round += by) {
		struct run r;
		atomic_store(&fake.step_us, 200);
		run_start(&r, &cfg);
		swapped_and_waiting(&r, 0);
		if (round > 0)
			fault_arm(FAULT_KV_PAGE, round * 9, 2);
		for (uint64_t i = 0; i < 2; i++) {
			const struct answer *a = run_until_done(&r, i + 1);
			if (round == 0)
				expect[i] = *a;
			else
				run_assert_same(a, &expect[i]);
		}
		fault_disarm_all();
		run_until_idle(&r);
		run_stop(&r);
	}
	atomic_store(&fake.step_us, 0);
	atomic_store(&fake.end_never, 0);
}

/* Two of the same prompt have stopped reading, and hold nearly all pages between them, none alone: they make room. */
static void paused_twins_make_room(void **state)
{
	(void)state;
	static char text[160], longer[120];
	memset(text, 't', sizeof text - 1);
	memset(longer, 'o', sizeof longer - 1);
	for (int how = 0; how < 2; how++) {
		struct eng_config cfg = scarce(how == 1 ? 400 : 0);
		struct run r;
		struct proto_submit twin = run_plain(text, 40), other = run_plain(longer, 60);
		atomic_store(&fake.end_never, 1);
		run_start(&r, &cfg);
		for (uint64_t i = 1; i <= 2; i++) {
			run_submit(&r, i, &twin);
			run_credit(&r, i, 2);
			RUN_UNTIL(&r, r.answers[i].n_tokens == 2);
		}
		assert_int_equal(run_one(&r, 3, &other)->end.finish, PROTO_FINISH_LENGTH);
		for (uint64_t i = 1; i <= 2; i++) {
			run_credit(&r, i, 38);
			assert_int_equal(run_until_done(&r, i)->n_tokens, 40);
		}
		run_assert_same(&r.answers[1], &r.answers[2]);
		run_until_idle(&r);
		run_stop(&r);
		atomic_store(&fake.end_never, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_when_swapped),      cmocka_unit_test(same_when_traded),
	    cmocka_unit_test(only_where_it_pays),     cmocka_unit_test(turmoil_with_swap),
	    cmocka_unit_test(ends_while_swapped),     cmocka_unit_test(faults_while_swapping),
	    cmocka_unit_test(paused_twins_make_room),
	};
	const struct CMUnitTest again[] = {
	    cmocka_unit_test(same_when_swapped),      cmocka_unit_test(same_when_traded),
	    cmocka_unit_test(turmoil_with_swap),      cmocka_unit_test(ends_while_swapped),
	    cmocka_unit_test(paused_twins_make_room),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	spec_mode = ENG_SPEC_NGRAM;
	failed += cmocka_run_group_tests(again, NULL, NULL);
	spec_mode = ENG_SPEC_OFF;
	atomic_store(&fake.draws, 1);
	for (int mode = 1; mode <= 2; mode++) {
		atomic_store(&fake.ahead, mode);
		failed += cmocka_run_group_tests(again, NULL, NULL);
	}
	return failed;
}
