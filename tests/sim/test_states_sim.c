/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine with a model one of whose layers keeps a state (fake_model.h): it says something else as soon as a state
 * is another sequence's or another position's. Snapshots are scarce and pages are; sequences are pre-empted, cancelled,
 * forked and searched with beams, drafts of another model are rejected, and conversations go on.
 */
#include "engine_requests.h"

#include "base/log.h"
#include "engine/step/internal.h"

/* Bytes of that many pages; an eighth more where the states' part counts. */
static uint64_t pages(uint64_t n) { return kv_page_bytes(KN_F16, 4, 1, 1, 8) * n; }

/* Each alone, without anything that was computed before. */
static struct answer *alone_and_anew(void)
{
	struct answer *expect = calloc(MANY, sizeof *expect);
	struct eng_config cfg = config();
	assert_non_null(expect);
	cfg.no_prefix_cache = true;
	run_each_alone(&cfg, MANY, nth_request, expect);
	return expect;
}

static void same_in_any_company(void **state)
{
	(void)state;
	struct answer *expect = alone_and_anew();
	struct eng_config cfg = config();
	cfg.max_sequences = MANY;
	together(&cfg, expect);
	cfg = config();
	together(&cfg, expect);
	cfg.no_prefix_cache = true;
	together(&cfg, expect);
	static const int chunks[] = {1, 3, 17, 100};
	for (int i = 0; i < 4; i++) {
		cfg = config();
		cfg.step_tokens = chunks[i];
		together(&cfg, expect);
	}
	static const int page_tokens[] = {1, 7, 16, 32};
	for (int i = 0; i < 4; i++) {
		cfg = config();
		cfg.page_tokens = page_tokens[i];
		cfg.kv_bytes = 4 << 20;
		together(&cfg, expect);
	}
	/* Pages for little more than the longest, and a dozen snapshots. */
	cfg = config();
	cfg.kv_bytes = pages(110);
	assert_true(together(&cfg, expect) > 0);
	free(expect);
}

static void turmoil_with_states(void **state)
{
	(void)state;
	static const struct eng_model_config twins[] = {{.name = "a", .path = "hybrid-a.gguf"},
							{.name = "b", .path = "hybrid-b.gguf"}};
	struct answer *expect = alone_and_anew();
	for (uint64_t seed = 31; seed <= 38; seed++) {
		struct eng_config cfg = config();
		cfg.kv_bytes = pages(seed % 2 == 0 ? 110 : 160);
		cfg.max_sequences = seed % 4 == 0 ? 4 : 8;
		cfg.no_prefix_cache = seed == 34;
		if (seed >= 36) {
			cfg.models = twins;
			cfg.n_models = 2;
			cfg.kv_bytes = pages(300);
		}
		turmoil(&cfg, expect, seed);
	}
	free(expect);
}

static void choices_and_beams(void **state)
{
	(void)state;
	static struct answer expect[3];
	for (int how = 0; how < 5; how++) {
		struct eng_config cfg = config();
		cfg.no_prefix_cache = how == 0;
		cfg.max_sequences = how == 2 ? 8 : 24;
		cfg.step_tokens = how == 3 ? 3 : 16;
		cfg.kv_bytes = how == 4 ? pages(220) : cfg.kv_bytes;
		assert_true(fans(&cfg, how == 0, expect) > 0);
	}
}

/* Drafts of a small model, which are always rejected sooner or later: the state goes back. One that keeps states itself
 * says the same as the large one after three texts of four, which only its own state tells it. */
static void drafts_of_a_pair(void **state)
{
	(void)state;
	struct answer *expect = alone_and_anew();
	for (int how = 0; how < 6; how++) {
		const struct eng_model_config pair[] = {
		    {.name = "large", .path = "hybrid.gguf", .role = PROTO_ROLE_LARGE},
		    {.name = "small",
		     .path = how == 0 || how >= 4 ? "hybrid-near.gguf" : "near.gguf",
		     .role = PROTO_ROLE_SMALL}};
		struct eng_config cfg = config();
		struct run r;
		struct proto_stats s;
		cfg.models = pair;
		cfg.n_models = 2;
		cfg.spec_mode = how == 0 || how == 5 ? ENG_SPEC_DRAFT : ENG_SPEC_AUTO;
		cfg.step_tokens = 100;
		cfg.kv_bytes = how == 2 || how == 5 ? pages(900) : 16 << 20;
		cfg.page_tokens = how == 3 ? 16 : 4;
		run_start(&r, &cfg);
		run_crowd(&r, 1, MANY, nth_request, expect);
		engine_stats(r.e, &s);
		assert_true(s.spec_drafted > 20 && s.spec_accepted < s.spec_drafted);
		if (how == 0 || how >= 4)
			assert_true(s.spec_accepted * 10 > s.spec_drafted * 4);
		run_stop(&r);
	}
	free(expect);
}

enum { TURNS = 50, ADDED = 3, SAID = 5 };

/* The same text again, longer each time: each turn goes on from the last page border of the turn before. */
static void conversations_are_found(void **state)
{
	(void)state;
	static char text[600];
	for (int how = 0; how < 2; how++) {
		struct run r;
		struct eng_config cfg = config();
		size_t n = 40, before = 0;
		cfg.page_tokens = how == 0 ? 4 : 16;
		cfg.kv_bytes = pages(500);
		memset(text, 'q', n);
		text[n] = '\0';
		run_start(&r, &cfg);
		for (int turn = 0; turn < TURNS; turn++) {
			struct proto_submit req = run_plain(text, SAID);
			req.flags |= PROTO_SUBMIT_IGNORE_EOS;
			const struct answer *a = run_one(&r, (uint64_t)turn + 1, &req);
			/* The last token of the answer was not computed. */
			size_t page = (size_t)cfg.page_tokens, whole = before / page * page;
			if (turn > 0 && a->end.n_cached < whole)
				fail_msg("how %d turn %d: %u of %zu cached", how, turn, a->end.n_cached, whole);
			before = n + SAID - 1;
			memcpy(text + n, a->text, a->n_text);
			n += a->n_text;
			memset(text + n, 'a' + turn % 26, ADDED);
			n += ADDED;
			text[n] = '\0';
			/* Others come between. */
			struct proto_submit other = nth_request(turn % MANY);
			(void)run_one(&r, TURNS + 1, &other);
		}
		run_stop(&r);
	}
}

/* Texts that part at one place: the second one finds no state there and leaves one for the third. */
static void where_texts_part(void **state)
{
	(void)state;
	static char texts[3][100];
	struct run r;
	struct eng_config cfg = config();
	run_start(&r, &cfg);
	for (int i = 0; i < 3; i++) {
		memset(texts[i], 's', 40); /* ten pages */
		memset(texts[i] + 40, 'a' + i, 30);
		struct proto_submit req = run_plain(texts[i], 4);
		const struct answer *a = run_one(&r, (uint64_t)i + 1, &req);
		assert_int_equal(a->end.n_cached, i == 2 ? 40 : 0);
	}
	run_stop(&r);
}

static void faults(void **state)
{
	(void)state;
	struct answer *expect = alone_and_anew();
	struct eng_config cfg = config();
	struct run r;
	cfg.kv_bytes = pages(200);
	run_start(&r, &cfg);
	for (long nth = 1; nth <= 80; nth += 3) {
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

/* Memory that does not hold the sequences' states: the model fails, and the line says so. */
static void too_little_memory(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config();
	cfg.kv_bytes = pages(10);
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_FAILED);
	if (strstr(r.reasons[0], "is too small for the states of 8 sequences (1792 bytes) and two pages") == NULL)
		fail_msg("%s", r.reasons[0]);
	run_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(same_in_any_company),
	    cmocka_unit_test(turmoil_with_states),
	    cmocka_unit_test(choices_and_beams),
	    cmocka_unit_test(drafts_of_a_pair),
	    cmocka_unit_test(conversations_are_found),
	    cmocka_unit_test(where_texts_part),
	    cmocka_unit_test(faults),
	    cmocka_unit_test(too_little_memory),
	};
	const struct CMUnitTest with_drafts[] = {
	    cmocka_unit_test(same_in_any_company),
	    cmocka_unit_test(turmoil_with_states),
	    cmocka_unit_test(choices_and_beams),
	    cmocka_unit_test(conversations_are_found),
	};
	log_init("test", LOG_ERROR);
	one_model[0].path = "hybrid.gguf";
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	spec_mode = ENG_SPEC_AUTO;
	return failed + cmocka_run_group_tests(with_drafts, NULL, NULL);
}
