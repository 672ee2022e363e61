/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine with a model of four layers, three of which see a window (fake_model.h): its layers are in four groups,
 * and sequences give pages back as the window passes. Whoever reads a page that was given back, or another's, says
 * something else than with one group of layers that keeps everything. Pages are scarce, sequences are pre-empted,
 * swapped, cancelled and searched with beams, steps are in flight, and pages move between such models and others.
 */
#include "engine_requests.h"

#include "base/log.h"
#include "engine/step/internal.h"

/* Bytes of the pages of one group. */
static uint64_t pages(uint64_t n) { return kv_page_bytes(KN_F16, 4, 1, 1, 8) * n; }

/* Each alone, with all layers in one group. */
static struct answer *alone_in_one_group(void)
{
	one_group = true;
	struct answer *expect = alone_once();
	one_group = false;
	return expect;
}

static void same_as_with_one_group(void **state)
{
	(void)state;
	struct answer *expect = alone_in_one_group();
	struct eng_config cfg = config();
	cfg.max_sequences = MANY;
	assert_int_equal(together(&cfg, expect), 0);
	cfg = config();
	together(&cfg, expect);
	cfg.no_prefix_cache = true;
	together(&cfg, expect);
	cfg = config();
	cfg.step_tokens = 1;
	together(&cfg, expect);
	static const int page_tokens[] = {1, 7, 16, 32}; /* a window over many pages, and smaller than one */
	static int passes;                               /* two of them in one pass, two in the next */
	const int by = some_of(2, 1);
	for (int i = passes++ % by; i < 4; i += by) {
		cfg = config();
		cfg.page_tokens = page_tokens[i];
		cfg.kv_bytes = 4 << 20;
		together(&cfg, expect);
	}
	/* Pages for less than two of the longest at once. */
	cfg = config();
	cfg.kv_bytes = pages(110);
	assert_true(together(&cfg, expect) > 0);
	free(expect);
}

static void same_when_swapped(void **state)
{
	(void)state;
	struct answer *expect = alone_in_one_group();
	uint64_t out = 0, in = 0;
	for (int how = 0; how < 4; how++) {
		struct eng_config cfg = config();
		struct run r;
		struct proto_stats s;
		cfg.kv_bytes = pages(110);
		cfg.swap_bytes = pages(how == 1 ? 17 : 1600);
		cfg.swap_fixed = true;
		cfg.no_prefix_cache = how == 2;
		cfg.page_tokens = how == 3 ? 8 : 4;
		run_start(&r, &cfg);
		run_crowd(&r, 1, MANY, nth_request, expect);
		engine_stats(r.e, &s);
		assert_true(s.preemptions > 0);
		assert_int_equal(s.swap_used, 0);
		assert_true(how != 2 || s.swapped_in == s.swapped_out);
		out += s.swapped_out;
		in += s.swapped_in;
		run_stop(&r);
	}
	assert_true(out > 0 && in > 0);
	free(expect);
}

static void turmoil_in_groups(void **state)
{
	(void)state;
	static const struct eng_model_config twins[] = {{.name = "a", .path = "windowed-a.gguf"},
							{.name = "b", .path = "windowed-b.gguf"}};
	struct answer *expect = alone_in_one_group();
	static uint64_t passes; /* one pass has the odd ones, the next the even ones; with THOROUGH each all */
	const uint64_t by = (uint64_t)some_of(2, 1);
	for (uint64_t seed = 21 + passes++ % by; seed <= 28; seed += by) {
		struct eng_config cfg = config();
		cfg.kv_bytes = pages(seed % 2 == 0 ? 110 : 160);
		cfg.swap_bytes = seed % 3 == 0 ? 0 : pages(seed % 3 == 1 ? 60 : 1600);
		cfg.swap_fixed = true;
		cfg.max_sequences = seed % 4 == 0 ? 4 : 8;
		cfg.no_prefix_cache = seed == 24;
		if (seed >= 26) { /* their pages change hands */
			cfg.models = twins;
			cfg.n_models = 2;
			cfg.kv_bytes = pages(260);
		}
		turmoil(&cfg, expect, seed);
	}
	free(expect);
}

/* Choices and beams share and copy pages of all groups, far beyond the window. */
static void choices_and_beams(void **state)
{
	(void)state;
	static struct answer expect[3];
	for (int how = 0; how < 5; how++) {
		one_group = how == 0;
		struct eng_config cfg = config();
		cfg.max_sequences = how == 2 ? 8 : 24;
		cfg.step_tokens = how == 3 ? 3 : 16;
		cfg.kv_bytes = how == 4 ? pages(140) : cfg.kv_bytes;
		assert_true(fans(&cfg, how == 0, expect) > FAKE_WINDOW);
	}
	one_group = false;
}

/* A search that needs more pages than there are ends with an error that names the field, and what it held serves
 * others: it does not wait for ever. */
static void a_search_too_large_ends(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		struct run r;
		one_model[0].path = how % 2 == 0 ? "fake.gguf" : "windowed.gguf";
		struct eng_config cfg = config();
		cfg.kv_bytes = pages(how % 2 == 0 ? 30 : 60);
		run_start(&r, &cfg);
		struct proto_submit req = fan(2), other = nth_request(2);
		req.max_tokens = 60;
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 1000);
		run_submit(&r, 2, &other);
		run_credit(&r, 2, how < 2 ? 1000 : 1); /* or its client stops reading */
		const struct answer *a = run_until_done(&r, 1);
		assert_int_equal(a->end.finish, PROTO_FINISH_ERROR);
		assert_int_equal(a->end.error, PROTO_ERR_BAD_REQUEST);
		assert_non_null(strstr(a->message, "beam_width"));
		run_credit(&r, 2, 1000);
		assert_int_not_equal(run_until_done(&r, 2)->end.finish, PROTO_FINISH_ERROR);
		run_until_idle(&r);
		run_stop(&r);
	}
	one_model[0].path = "windowed.gguf";
}

enum early { CANCELLED, FAILED, STOPPED };

/* Two searches far beyond the window that end so. Returns how many did not end by themselves before. */
static int end_searches(enum early how)
{
	struct run r;
	struct eng_config cfg = config();
	struct proto_stats s;
	atomic_int faults = 0;
	int n = 0;
	cfg.on_fault = count_fault;
	cfg.on_fault_ctx = &faults;
	cfg.max_sequences = 12;
	run_start(&r, &cfg);
	atomic_store(&fake.fail_next, how == FAILED ? 3 * FAKE_WINDOW : -1);
	for (uint64_t i = 1; i <= 2; i++) {
		struct proto_submit req = fan(2);
		req.max_tokens = 400;
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		run_submit(&r, i, &req);
		run_credit(&r, i, 1000);
	}
	do { /* a search tells nothing on its way */
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
		engine_stats(r.e, &s);
	} while (how != FAILED && s.steps < 3 * FAKE_WINDOW);
	for (uint64_t i = 1; i <= 2 && how != STOPPED; i++) {
		if (how == CANCELLED)
			engine_cancel(r.e, i);
		uint8_t finish = run_until_done(&r, i)->end.finish;
		n += finish == (how == CANCELLED ? PROTO_FINISH_CANCELLED : PROTO_FINISH_ERROR);
	}
	if (how == CANCELLED)
		run_until_idle(&r);
	run_stop(&r); /* sees that every page is back */
	atomic_store(&fake.fail_next, -1);
	assert_int_equal(atomic_load(&faults), how == FAILED);
	return n;
}

/* Cancelled, with a device that fails, with an engine that stops. */
static void searches_end_early(void **state)
{
	(void)state;
	enum { TRIES = 50 };
	int tries = 0;
	assert_int_equal(end_searches(FAILED), 2);
	atomic_store(&fake.step_us, 500);
	while (end_searches(CANCELLED) == 0) /* slower than the searches */
		assert_true(++tries < TRIES);
	end_searches(STOPPED);
	atomic_store(&fake.step_us, 0);
}

/* Drafts of a small model, also windowed: rejected ones need no page that was given back. */
static void drafts_of_a_pair(void **state)
{
	(void)state;
	static const struct eng_model_config pair[] = {
	    {.name = "large", .path = "windowed.gguf", .role = PROTO_ROLE_LARGE},
	    {.name = "small", .path = "windowed-near.gguf", .role = PROTO_ROLE_SMALL}};
	struct answer *expect = alone_in_one_group();
	for (int how = 0; how < 3; how++) {
		struct eng_config cfg = config();
		struct run r;
		struct proto_stats s;
		cfg.models = pair;
		cfg.n_models = 2;
		cfg.spec_mode = ENG_SPEC_AUTO;
		cfg.step_tokens = 100; /* of the small model too, which has prompts to catch up with */
		cfg.kv_bytes = how == 1 ? pages(900) : 16 << 20;
		cfg.page_tokens = how == 2 ? 16 : 4;
		run_start(&r, &cfg);
		run_crowd(&r, 1, MANY, nth_request, expect);
		engine_stats(r.e, &s);
		assert_true(s.spec_drafted > 100 && s.spec_accepted > 0 && s.spec_accepted < s.spec_drafted);
		run_stop(&r);
	}
	free(expect);
}

/* The same text again, longer each time, as in a conversation: found from where the last answer ended, also when the
 * windows of earlier turns are gone. */
static void conversations_are_found(void **state)
{
	(void)state;
	static char text[500];
	struct run r;
	struct eng_config cfg = config();
	size_t n = 60;
	cfg.kv_bytes = pages(400);
	memset(text, 'q', n);
	run_start(&r, &cfg);
	for (int turn = 0; turn < 12; turn++) {
		struct proto_submit req = run_plain(text, 12);
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		const struct answer *a = run_one(&r, (uint64_t)turn + 1, &req);
		/* All of the last turn but for the last token, and what is new. */
		assert_true(turn == 0 || a->end.n_cached >= n - 9 - 1);
		memcpy(text + n, a->text, a->n_text);
		n += a->n_text;
		memset(text + n, 'a' + turn, 8);
		n += 8;
		text[n] = '\0';
	}
	run_stop(&r);
}

/* Parts of pages, of one layer each, that nobody can have at once; waits until they are right. */
static uint64_t kept(struct run *r, uint64_t layers_of_a_page, bool (*right)(uint64_t n, uint64_t of), uint64_t of)
{
	uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S, n = 0;
	struct proto_stats s;
	do {
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
		engine_stats(r->e, &s);
		n = (uint64_t)(s.pages_total - s.pages_free) * layers_of_a_page;
	} while (!right(n, of) && clock_now_ns() < until);
	return n;
}

static bool all_of(uint64_t n, uint64_t of) { return n >= of; }
static bool three_tenths_of(uint64_t n, uint64_t of) { return n * 10 <= of * 3; }

/* What a sequence keeps that waits for its reader: with three of four layers windowed, at most 0.3 of what it keeps
 * with one group. */
static void pages_come_back(void **state)
{
	(void)state;
	enum { LENGTH = 480 };
	static char text[LENGTH + 1];
	uint64_t n[2] = {0};
	memset(text, 'p', LENGTH);
	for (int k = 0; k < 2; k++) {
		struct run r;
		one_group = k == 0;
		struct eng_config cfg = config();
		run_start(&r, &cfg);
		struct proto_submit req = run_plain(text, 20);
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 10);
		RUN_UNTIL(&r, r.answers[1].n_tokens == 10);
		n[k] = k == 0 ? kept(&r, 4, all_of, LENGTH) : kept(&r, 1, three_tenths_of, n[0]);
		run_credit(&r, 1, 10);
		run_until_done(&r, 1);
		run_stop(&r);
	}
	print_message("%llu parts of pages kept, with one group %llu\n", (unsigned long long)n[1],
		      (unsigned long long)n[0]);
	assert_true(three_tenths_of(n[1], n[0]));
	one_group = false;
}

/* Memory of pages goes back to the system and returns, and changes hands, while two models work. */
static void memory_goes_and_returns(void **state)
{
	(void)state;
	/* Pages of one layer and of three. */
	static const struct eng_model_config two[] = {{.name = "a", .path = "windowed.gguf"},
						      {.name = "b", .path = "three.gguf"}};
	struct answer *expect[2] = {alone_in_one_group(), NULL};
	one_model[0].path = "three.gguf";
	expect[1] = alone_in_one_group();
	one_model[0].path = "windowed.gguf";
	struct eng_config cfg = config();
	struct run r;
	unsigned seed = 3;
	cfg.models = two;
	cfg.n_models = 2;
	cfg.kv_bytes = pages(900);
	run_start(&r, &cfg);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < MANY; i++) {
			struct proto_submit req = nth_request(i);
			req.model = (uint16_t)((i + round) % 2);
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, 1000);
		}
		for (int i = 0; i < MANY; i++) {
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[(i + round) % 2][i]);
			long long part = (long long)cfg.kv_bytes / 8 * (rand_r(&seed) % 5);
			atomic_store(&r.e->kv_ask, rand_r(&seed) % 3 == 0 ? -part : part);
		}
		run_until_idle(&r);
	}
	run_stop(&r);
	free(expect[0]);
	free(expect[1]);
}

/* Pages and allocations that fail: a sequence sits out a step, and says the same. */
static void faults(void **state)
{
	(void)state;
	struct answer *expect = alone_in_one_group();
	struct eng_config cfg = config();
	struct run r;
	cfg.kv_bytes = pages(160);
	cfg.swap_bytes = pages(1600);
	cfg.swap_fixed = true;
	run_start(&r, &cfg);
	for (long nth = 1; nth <= 80; nth += some_of(9, 3)) {
		fault_arm(FAULT_KV_PAGE, nth, 3);
		for (int i = 0; i < 8; i++) {
			struct proto_submit req = nth_request((int)(nth + i) % MANY);
			run_submit_again(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, 1000);
		}
		for (int i = 0; i < 8; i++)
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[(nth + i) % MANY]);
		fault_disarm_all();
	}
	run_until_idle(&r);
	run_stop(&r);
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_as_with_one_group),
	    cmocka_unit_test(same_when_swapped),
	    cmocka_unit_test(turmoil_in_groups),
	    cmocka_unit_test(choices_and_beams),
	    cmocka_unit_test(a_search_too_large_ends),
	    cmocka_unit_test(searches_end_early),
	    cmocka_unit_test(drafts_of_a_pair),
	    cmocka_unit_test(conversations_are_found),
	    cmocka_unit_test(pages_come_back),
	    cmocka_unit_test(memory_goes_and_returns),
	    cmocka_unit_test(faults),
	};
	const struct CMUnitTest with_drafts[] = {
	    cmocka_unit_test(same_as_with_one_group),
	    cmocka_unit_test(same_when_swapped),
	    cmocka_unit_test(turmoil_in_groups),
	    cmocka_unit_test(choices_and_beams),
	};
	const struct CMUnitTest ahead[] = {
	    cmocka_unit_test(same_as_with_one_group), cmocka_unit_test(same_when_swapped),
	    cmocka_unit_test(turmoil_in_groups),      cmocka_unit_test(a_search_too_large_ends),
	    cmocka_unit_test(searches_end_early),     cmocka_unit_test(memory_goes_and_returns),
	};
	log_init("test", LOG_ERROR);
	one_model[0].path = "windowed.gguf";
	return RUN_IN_EVERY_MODE(tests, with_drafts, ahead);
}
