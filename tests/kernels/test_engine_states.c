/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on the emulated device, with models whose layers keep a state or latent rows: what requests say, log
 * probabilities bit for bit, is the same alone and together, in other chunks and pages, after prefix hits, whether the
 * next step is launched while one runs or not; and the tokens are with drafts that are rolled back. A snapshot taken
 * while a further step has moved the state on would change what a conversation's next turn says.
 */
#include "tests/unit/engine/core/engine_run.h"

#include <math.h>

#include "tests/kernels/only_cuda.h"
#include "tests/support/part.h"
#include "tests/support/random_file.h"
#include "tests/support/small_engine.h"

enum { N_REQUESTS = 3, MOST_MADE = 9, TURNS = 2 };

static uint32_t made(void) { return (uint32_t)some_of(6, MOST_MADE); } /* tokens by each */

static char path[256];
static const struct eng_model_config models[] = {{.name = "states", .path = path}};
static const char *const said[N_REQUESTS] = {"A fox and six hens", "One two three four five six seven", "A fox and I"};

static struct eng_config config(bool ahead)
{
	struct eng_config cfg = small_engine("cuda-emulated", models, 1);
	cfg.page_tokens = 4;
	cfg.kv_bytes = 8 << 20;
	cfg.step_tokens = 16;
	cfg.no_launch_ahead = !ahead;
	cfg.spec_mode = ENG_SPEC_OFF;
	return cfg;
}

/* Its first turn; its second, which begins with the first turn's answer. */
static struct proto_submit request(int turn, int i, const struct answer *first)
{
	static char texts[N_REQUESTS][1 << 14];
	if (turn > 0)
		snprintf(texts[i], sizeof texts[i], "%s%.*s, and then", said[i], (int)first[i].n_text, first[i].text);
	struct proto_submit req = run_plain(turn > 0 ? texts[i] : said[i], made());
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 2 == 0 ? 0 : 0.8f;
	req.seed = 50 + (uint64_t)i;
	return req;
}

/* Each request alone, with nothing computed before and no step launched ahead. */
static void each_alone(struct answer expect[TURNS][N_REQUESTS])
{
	struct run r;
	struct eng_config cfg = config(false);
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	for (int turn = 0; turn < TURNS; turn++)
		for (int i = 0; i < N_REQUESTS; i++) {
			struct proto_submit req = request(turn, i, expect[0]);
			expect[turn][i] = *run_one(&r, (uint64_t)(turn * N_REQUESTS + i) + 1, &req);
			assert_int_equal(expect[turn][i].n_tokens, made());
		}
	run_stop(&r);
}

static uint32_t together(const struct eng_config *cfg, struct answer expect[TURNS][N_REQUESTS])
{
	struct run r;
	uint32_t cached = 0;
	run_start(&r, cfg);
	for (int turn = 0; turn < TURNS; turn++) {
		for (int i = 0; i < N_REQUESTS; i++) {
			struct proto_submit req = request(turn, i, expect[0]);
			run_submit(&r, (uint64_t)(turn * N_REQUESTS + i) + 1, &req);
			run_credit(&r, (uint64_t)(turn * N_REQUESTS + i) + 1, made());
		}
		for (int i = 0; i < N_REQUESTS; i++) {
			const struct answer *a = run_until_done(&r, (uint64_t)(turn * N_REQUESTS + i) + 1);
			run_assert_same(a, &expect[turn][i]);
			cached += a->end.n_cached;
		}
	}
	run_until_idle(&r);
	run_stop(&r);
	return cached;
}

static void assert_same_tokens(const struct answer *a, const struct answer *b)
{
	assert_int_equal(a->n_tokens, b->n_tokens);
	assert_memory_equal(a->ids, b->ids, a->n_tokens * sizeof *a->ids);
	for (uint32_t i = 0; i < a->n_tokens; i++) /* a draft's rows are drawn from on the host */
		assert_true(fabsf(a->logprobs[i] - b->logprobs[i]) <= 1e-4f * (1 + fabsf(b->logprobs[i])));
}

/* With drafts, some of which are rejected. */
static void drafted(void)
{
	static const struct proto_id_f32 likely[] = {
	    {.id = 300, .v = 60}, {.id = 301, .v = 60}, {.id = 302, .v = 60}, {.id = 303, .v = 60}};
	static struct answer expect;
	for (int how = 0; how < 2; how++) {
		struct run r;
		struct proto_stats s;
		struct eng_config cfg = config(true);
		cfg.spec_mode = how == 0 ? ENG_SPEC_OFF : ENG_SPEC_NGRAM;
		cfg.spec_max_draft = 4;
		cfg.spec_fixed = true;
		cfg.page_tokens = 16;
		run_start(&r, &cfg);
		struct proto_submit req = run_plain(said[0], 4 * MOST_MADE);
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		req.temperature = 2;
		req.seed = 7;
		req.n_logit_bias = 4;
		req.logit_bias = likely;
		req.frequency_penalty = 1.5f; /* against what would only repeat itself */
		const struct answer *a = run_one(&r, 1, &req);
		run_until_idle(&r);
		engine_stats(r.e, &s);
		if (how == 0)
			expect = *a;
		else
			assert_same_tokens(a, &expect);
		assert_true(how == 0 || (s.spec_accepted > 0 && s.spec_accepted < s.spec_drafted));
		run_stop(&r);
	}
}

/* Emulated kernels take their time. */
static void make_narrow(struct model_arch *a)
{
	a->n_embd = a->n_ff = 64;
	a->n_heads = 2;
	a->experts.n = 0;
	if (a->latent.n > 0)
		return;
	a->n_kv_heads = 1;
	a->head_dim = 32;
	a->rope.n_rot = a->rope.n_rot < 32 ? 8 : 32;
	a->attn_scale = 0.2f;
	a->recurrent.v_dim = a->recurrent.kind == ARCH_SSM ? 16 : a->recurrent.v_dim;
}

/* The first in other chunks and pages, too, and with drafts. */
static void same_in_any_way(void **state)
{
	(void)state;
	static const char *const shapes[] = {"tiny-qwen3.5", "tiny-granite4", "tiny-deepseek2"};
	static struct answer expect[TURNS][N_REQUESTS];
	md_path(path, dir, "states.gguf");
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct model_arch a = random_arch(shapes[i]);
		make_narrow(&a);
		random_file_of("states.gguf", &a, "bf16", 5, 1);
		each_alone(expect);
		struct eng_config cfg = config(true);
		uint32_t cached = together(&cfg, expect);
		print_message("%s: %u tokens from the tree\n", shapes[i], cached);
		assert_true(cached > N_REQUESTS * made());
		if (i > 0)
			continue;
		cfg.step_tokens = 5;
		cfg.page_tokens = 2;
		(void)together(&cfg, expect);
		drafted();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(same_in_any_way, setup, teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
