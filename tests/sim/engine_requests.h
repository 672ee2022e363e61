/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of all kinds for the engine with a model that has no weights (fake_model.h), alone, together and in turmoil:
 * what its tests share. Included by one test file each.
 */
#ifndef TESTS_ENGINE_REQUESTS_H
#define TESTS_ENGINE_REQUESTS_H

#include "tests/unit/engine/core/engine_run.h"
#include "fake_model.h"

#include "base/fault.h"
#include "engine/kv/kv.h"
#include "tests/support/part.h"

static struct eng_model_config one_model[] = {{.name = "fake", .path = "fake.gguf"}};

static int spec_mode;  /* of the engines that tests start */
static bool one_group; /* their windowed layers keep all positions */

static inline struct eng_config config(void)
{
	return (struct eng_config){.models = one_model,
				   .n_models = 1,
				   .backend = "cpu-ref",
				   .n_threads = 1,
				   .n_text_workers = 2,
				   .page_tokens = 4,
				   .kv_bytes = 16 << 20,
				   .max_sequences = 8,
				   .max_waiting = 64,
				   .step_tokens = 16,
				   .max_prompt_bytes = 1 << 20,
				   .kv_one_group = one_group,
				   .spec_mode = spec_mode,
				   .spec_max_draft = 8,
				   .spec_fixed = true};
}

enum { MANY = 32 };

static char prompts[MANY][160];

static inline struct proto_submit nth_request(int i)
{
	int n = 1 + i * 37 % 150;
	memset(prompts[i], 'a' + i % 26, (size_t)n);
	prompts[i][n / 2] = (char)('A' + i % 26);
	prompts[i][n] = '\0';
	struct proto_submit req = run_plain(prompts[i], (uint32_t)(20 + i));
	req.seed = (uint64_t)i * 1000;
	req.temperature = i % 3 == 0 ? 0 : 0.9f;
	req.tenant = (uint64_t)(i % 5);
	req.priority = (uint8_t)(i % 2);
	return req;
}

/* Each alone, on an engine with room for it. */
static inline void alone(struct answer *out)
{
	struct eng_config cfg = config();
	run_each_alone(&cfg, MANY, nth_request, out);
}

/* The same in steps that do not go on by themselves, computed once for each model and mode: for the caller to free. */
static inline struct answer *alone_once(void)
{
	static struct {
		const char *path;
		int spec_mode, draws;
		bool one_group;
		struct answer answers[MANY];
	} * kept[16];
	const int draws = atomic_load(&fake.draws), ahead = atomic_load(&fake.ahead);
	size_t i = 0;
	while (i < sizeof kept / sizeof *kept && kept[i] != NULL &&
	       (kept[i]->path != one_model[0].path || kept[i]->spec_mode != spec_mode || kept[i]->draws != draws ||
		kept[i]->one_group != one_group))
		i++;
	assert_true(i < sizeof kept / sizeof *kept);
	if (kept[i] == NULL) {
		kept[i] = calloc(1, sizeof **kept);
		assert_non_null(kept[i]);
		kept[i]->path = one_model[0].path;
		kept[i]->spec_mode = spec_mode;
		kept[i]->draws = draws;
		kept[i]->one_group = one_group;
		atomic_store(&fake.ahead, 0);
		alone(kept[i]->answers);
		atomic_store(&fake.ahead, ahead);
	}
	struct answer *copy = malloc(sizeof kept[i]->answers);
	assert_non_null(copy);
	memcpy(copy, kept[i]->answers, sizeof kept[i]->answers);
	return copy;
}

/* Returns how many prompt tokens were computed again after a pre-emption. */
static inline uint64_t together(const struct eng_config *cfg, const struct answer *expect)
{
	struct run r;
	run_start(&r, cfg);
	run_crowd(&r, 1, MANY, nth_request, expect);
	struct proto_stats s;
	engine_stats(r.e, &s);
	for (int i = 0; i < MANY; i++)
		s.prefill_tokens -= expect[i].end.n_prompt - r.answers[i + 1].end.n_cached;
	run_stop(&r);
	return s.prefill_tokens;
}

static inline struct proto_submit fan(int kind)
{
	struct proto_submit req = run_plain("choose well among the many", 30);
	req.temperature = kind < 2 ? 0.9f : 0;
	req.n = kind == 0 ? 4 : 2;
	req.best_of = kind == 0 ? 4 : kind == 1 ? 6 : 2;
	req.beam_width = kind < 2 ? 0 : 5;
	return req;
}

/* Choices, the best of several, and a search with beams, among eight others: their choices are those of expect, or
 * become it where they run alone before. Returns the tokens of the shortest choice. */
static inline uint32_t fans(const struct eng_config *cfg, bool are_first, struct answer expect[3])
{
	struct run r;
	uint32_t shortest = RUN_TOKENS;
	run_start(&r, cfg);
	for (int kind = 0; kind < 3; kind++) {
		struct proto_submit req = fan(kind);
		req.max_tokens = 60;
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		run_submit(&r, (uint64_t)kind + 1, &req);
		run_credit(&r, (uint64_t)kind + 1, 1000);
		if (are_first)
			expect[kind] = *run_until_done(&r, (uint64_t)kind + 1);
	}
	for (int i = 4; i < 12; i++) {
		struct proto_submit req = nth_request(i);
		run_submit(&r, (uint64_t)i, &req);
		run_credit(&r, (uint64_t)i, 1000);
	}
	for (uint64_t i = 4; i < 12; i++)
		run_until_done(&r, i);
	for (int kind = 0; kind < 3; kind++) {
		const struct answer *a = run_until_done(&r, (uint64_t)kind + 1);
		assert_int_not_equal(a->end.finish, PROTO_FINISH_ERROR);
		uint32_t n = run_assert_same_choices(a, &expect[kind], kind == 0 ? 4 : 2);
		shortest = n < shortest ? n : shortest;
	}
	run_until_idle(&r);
	run_stop(&r);
	return shortest;
}

static inline void count_fault(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

static uint64_t random_state;

static inline uint32_t at_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* Requests of all kinds come, stall and are cancelled at random, with too few pages and places for them. Whoever is let
 * go on says what it says alone, and nothing is left behind (run_stop's counters and pools see). */
static inline void turmoil(const struct eng_config *cfg, const struct answer *expect, uint64_t seed)
{
	enum { AT_ONCE = 12, ROUNDS = 400, ENOUGH = 8 };
	static struct run r;
	int which[AT_ONCE + 1] = {0}; /* request behind an identifier, 0: nobody's */
	bool cancelled[AT_ONCE + 1] = {0};
	int n_same = 0;
	random_state = seed;
	run_start(&r, cfg);
	/* (However slow the engine is beside this loop, some have to get to their end.) */
	for (int round = 0; round < ROUNDS || n_same < ENOUGH; round++) {
		uint64_t id = 1 + at_random(AT_ONCE);
		if (which[id] == 0) {
			which[id] = 1 + (int)at_random(MANY);
			cancelled[id] = false;
			struct proto_submit req = nth_request(which[id] - 1);
			req.model = (uint16_t)at_random((uint32_t)cfg->n_models);
			run_submit_again(&r, id, &req);
			run_credit(&r, id, at_random(3) == 0 ? 2 : 1000);
		} else if (at_random(4) == 0) {
			engine_cancel(r.e, id);
			cancelled[id] = true;
			which[id] = -which[id];
		} else {
			run_credit(&r, id, 1 + at_random(20));
		}
		for (uint32_t k = at_random(60); k > 0 && round < ROUNDS; k--)
			sched_yield();
		if (round >= ROUNDS) /* a slow engine is waited for */
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		for (uint64_t k = 1; k <= AT_ONCE; k++) {
			pthread_mutex_lock(&r.lock);
			bool done = which[k] != 0 && r.answers[k].done;
			pthread_mutex_unlock(&r.lock);
			if (!done)
				continue;
			int n = abs(which[k]) - 1;
			if (!cancelled[k]) {
				run_assert_same(&r.answers[k], &expect[n]);
				n_same++;
			}
			which[k] = 0;
		}
	}
	for (uint64_t k = 1; k <= AT_ONCE; k++) {
		if (which[k] == 0)
			continue;
		run_credit(&r, k, 1000);
		const struct answer *a = run_until_done(&r, k);
		if (!cancelled[k])
			run_assert_same(a, &expect[abs(which[k]) - 1]);
		n_same += !cancelled[k];
	}
	assert_true(n_same >= ENOUGH);
	run_until_idle(&r);
	run_stop(&r);
}

/* Lists of tests: as it is, with drafts, and where steps go on by themselves: late ones, whose every wait is needed,
 * and early ones. How many failed. */
#define RUN_IN_EVERY_MODE(plain, with_drafts, ahead_ones)                          \
	({                                                                         \
		int failed_ = cmocka_run_group_tests(plain, NULL, NULL);           \
		spec_mode = ENG_SPEC_AUTO;                                         \
		failed_ += cmocka_run_group_tests(with_drafts, NULL, NULL);        \
		spec_mode = ENG_SPEC_OFF;                                          \
		atomic_store(&fake.draws, 1);                                      \
		for (int mode_ = 1; mode_ <= 2; mode_++) {                         \
			atomic_store(&fake.ahead, mode_);                          \
			failed_ += cmocka_run_group_tests(ahead_ones, NULL, NULL); \
		}                                                                  \
		failed_;                                                           \
	})

#endif
