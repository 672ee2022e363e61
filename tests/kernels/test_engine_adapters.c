/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters on a device, or on its emulation: answers of eight adapters and of their base, side by side in steps of
 * every mixture, are bit for bit what each is alone; so they are while adapters come into fewer slots than there are,
 * and go. Run from the repository's root.
 */
#include "tests/unit/engine/core/engine_run.h"

#include "engine/adapter/adapter_make.h"
#include "tests/kernels/only_cuda.h"
#include "tests/support/random_file.h"

enum { ADAPTERS = 8, N = 10, TOKENS = 3, SLOTS = 3 };

static char base[256], names[ADAPTERS][32], paths[ADAPTERS][256], prompts[N][200];
static struct eng_model_config model[] = {{.name = "tiny", .path = base}};
static struct eng_adapter_config adapters[ADAPTERS];

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .adapters = adapters,
				   .n_adapters = ADAPTERS,
				   .backend = "cuda-emulated",
				   .kv_type = "f16",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 4 << 20,
				   .max_sequences = N,
				   .max_waiting = 2 * N,
				   .step_tokens = 24,
				   .max_prompt_bytes = 1 << 20,
				   .no_prefix_cache = true};
}

/* Of many ranks and types, and not of every matrix. */
static void make_files(void)
{
	struct sl_err err = {0};
	struct model_arch a = random_arch("tiny-llama");
	a.n_embd = 64;
	a.n_ff = 96;
	a.head_dim = a.rope.n_rot = 16;
	random_file_of("tiny.gguf", &a, "bf16", 3, 1);
	md_path(base, dir, "tiny.gguf");
	for (int i = 0; i < ADAPTERS; i++) {
		snprintf(names[i], sizeof names[i], "tiny:a%d", i);
		snprintf(paths[i], sizeof paths[i], "%s/a%d.gguf", dir, i);
		struct adapter_make m = {.base = base,
					 .out = paths[i],
					 .type = i % 3 == 0   ? KN_BF16
						 : i % 3 == 1 ? KN_F16
							      : KN_F32,
					 .seed = (uint64_t)i + 1,
					 .replace = true};
		for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
			m.ranks[t] = (i + t) % 4 == 3 ? 0 : 1 + (i * 5 + t) % 9;
			m.alphas[t] = 8;
		}
		if (adapter_make(&m, &err) != 0)
			fail_msg("%s", err.text);
		adapters[i] = (struct eng_adapter_config){.name = names[i], .path = paths[i]};
	}
}

static void start(struct run *r, const struct eng_config *cfg)
{
	run_start(r, cfg);
	for (int i = 0; i < cfg->n_models + cfg->n_adapters; i++) {
		RUN_UNTIL(r, r->states[i] > PROTO_MODEL_LOADING);
		if (r->states[i] != PROTO_MODEL_READY)
			fail_msg("%s", r->reasons[i]);
	}
}

/* Number i is of the base or of an adapter; all begin alike, so that what an adapter changes shows. */
static struct proto_submit request(int i)
{
	run_say(prompts[i], sizeof prompts[i], 0, 6 + (size_t)(i * 7) % 15, 0, 1);
	struct proto_submit req = run_plain(prompts[i], TOKENS);
	req.model = (uint16_t)(i % (ADAPTERS + 1));
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 2 == 0 ? 0 : 0.8f;
	req.seed = 100 + (uint64_t)i;
	return req;
}

static void each_alone(struct run *r, struct answer *out)
{
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(i);
		out[i] = *run_one(r, 1, &req);
		assert_int_equal(out[i].end.error, 0);
		assert_int_equal(out[i].n_tokens, TOKENS);
		for (int k = 0; k < i && i <= ADAPTERS; k++)
			assert_memory_not_equal(out[i].logprobs, out[k].logprobs, TOKENS * sizeof(float));
	}
}

static void all_at_once(struct run *r, const struct answer *expect)
{
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(i);
		run_submit(r, (uint64_t)i + 1, &req);
		run_credit(r, (uint64_t)i + 1, TOKENS);
	}
	for (int i = 0; i < N; i++)
		run_assert_same(run_until_done(r, (uint64_t)i + 1), &expect[i]);
}

static void test_company(void **arg)
{
	(void)arg;
	struct answer *expect = calloc(N, sizeof *expect);
	struct proto_stats stats;
	struct run r;
	make_files();
	struct eng_config cfg = config();
	start(&r, &cfg);
	each_alone(&r, expect);
	all_at_once(&r, expect);
	run_stop(&r);
	/* More adapters than slots: they come and go between steps that others are in. */
	cfg.adapter_slots = SLOTS;
	cfg.adapter_turn_ms = 1;
	start(&r, &cfg);
	all_at_once(&r, expect);
	engine_stats(r.e, &stats);
	assert_true(stats.adapter_loads >= ADAPTERS);
	run_stop(&r);
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_company)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
