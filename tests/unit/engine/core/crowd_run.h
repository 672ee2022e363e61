/* SPDX-License-Identifier: Apache-2.0
 *
 * A crowd of requests to one model with random weights: each answer is, bit for bit, the one of the request alone, in
 * batches, in other chunks and pages, after prefix hits, with drafts, pre-empted, on one thread and on two. What the
 * tests of each kind of layers share; included by one test file each.
 */
#ifndef TESTS_CROWD_RUN_H
#define TESTS_CROWD_RUN_H

#include "engine_run.h"

enum { CROWD_MOST = 200, CROWD_TOKENS = 16, CROWD_PAGE = 16 };

static struct eng_model_config crowd_model[] = {{.name = "crowd"}};
static const char *crowd_kv_type = "f16";
static int crowd_n;           /* requests: at most CROWD_MOST */
static uint64_t crowd_cached; /* tokens that came from the tree, of all runs */
static char crowd_prompts[CROWD_MOST][700];

static inline struct eng_config crowd_config(void)
{
	return (struct eng_config){.models = crowd_model,
				   .n_models = 1,
				   .kv_type = crowd_kv_type,
				   .backend = "auto",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = CROWD_PAGE,
				   .kv_bytes = 64 << 20,
				   .max_sequences = 24,
				   .max_waiting = 2 * CROWD_MOST,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

/* Some begin alike, for longer and shorter; every tenth is one of before. */
static inline struct proto_submit crowd_request(int i)
{
	int as = i % 10 == 9 ? i / 2 : i;
	char *at = crowd_prompts[i];
	run_say(at, sizeof crowd_prompts[i], 0, 10 + (size_t)(as * 97) % 450, (size_t)(as % 4) * 100, (size_t)as);
	struct proto_submit req = run_plain(at, CROWD_TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = as % 3 == 0 ? 0 : 0.8f;
	req.seed = 1000 + (uint64_t)as;
	req.tenant = (uint64_t)as % 2;
	return req;
}

/* Each alone, with nothing computed before. */
static inline void crowd_alone(const struct eng_config *cfg, struct answer *out)
{
	struct eng_config anew = *cfg;
	anew.no_prefix_cache = true;
	run_each_alone(&anew, crowd_n, crowd_request, out);
	for (int i = 0; i < crowd_n; i++)
		assert_int_equal(out[i].n_tokens, CROWD_TOKENS);
}

/* All of them, n_rounds times; from the second round on much of each prompt is there. Returns the engine's counters. */
static inline struct proto_stats crowd_together(const struct eng_config *cfg, const struct answer *expect, int n_rounds)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	for (int round = 0; round < n_rounds; round++) {
		for (int i = 0; i < crowd_n; i++) {
			struct proto_submit req = crowd_request(i);
			req.priority = (uint8_t)(i % 4); /* the better ones take from the worse */
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, i % 5 == 0 ? CROWD_TOKENS / 2 : CROWD_TOKENS);
		}
		for (int i = 0; i < crowd_n; i += 5)
			run_credit(&r, (uint64_t)i + 1, CROWD_TOKENS);
		for (int i = 0; i < crowd_n; i++) {
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
			crowd_cached += r.answers[i + 1].end.n_cached;
		}
	}
	run_until_idle(&r);
	engine_stats(r.e, &s);
	run_stop(&r);
	return s;
}

/* In steps of many rows, found again; in small ones, on two threads; with drafts, in pages of page_tokens; and in
 * `scarce` bytes for keys and values, for at most max_sequences, where some are pre-empted. Returns the counters of the
 * run with drafts. */
static inline struct proto_stats crowd_in_every_way(const struct answer *expect, int page_tokens, uint64_t scarce,
						    int max_sequences)
{
	struct eng_config cfg = crowd_config();
	(void)crowd_together(&cfg, expect, 2);
	cfg.max_sequences = 8;
	cfg.step_tokens = 17;
	cfg.n_threads = 2;
	(void)crowd_together(&cfg, expect, 1);
	cfg = crowd_config();
	cfg.page_tokens = page_tokens;
	cfg.spec_mode = ENG_SPEC_NGRAM;
	cfg.spec_max_draft = 8;
	cfg.spec_fixed = true;
	struct proto_stats drafted = crowd_together(&cfg, expect, 1);
	cfg = crowd_config();
	cfg.kv_bytes = scarce;
	cfg.max_sequences = max_sequences;
	/* When requests come decides which one needs a page while none is free. */
	uint64_t n_preempted = 0;
	for (int i = 0; i < 50 && n_preempted == 0; i++)
		n_preempted = crowd_together(&cfg, expect, 1).preemptions;
	assert_true(n_preempted > 0);
	return drafted;
}

/* Of each request, 40 tokens and more on average came from the tree, all runs together. */
static inline void crowd_assert_cached(const char *what)
{
	print_message("%s, KV in %s: %d requests, %llu tokens from the tree\n", what, crowd_kv_type, crowd_n,
		      (unsigned long long)crowd_cached);
	assert_true(crowd_cached > 40u * (unsigned)crowd_n);
}

#endif
