/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters behind engine/engine.h: answers of eight adapters and of their base, side by side, are bit for bit what each
 * is alone, in other chunks and on other numbers of threads, after prefix hits, pre-emptions and drafts; no prefix of
 * one is another's; one that does not fit fails alone. Run from the repository's root.
 */
#include "engine_run.h"

#include "base/fault.h"
#include "engine/adapter/adapter_make.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "tests/support/random_file.h"

enum { ADAPTERS = 8, N = 18, TOKENS = 16, BEAMS = 4 };

static char base[256];
static bool mixture;
static struct eng_model_config model[] = {{.name = "small", .path = base}};
static struct eng_adapter_config adapters[ADAPTERS];
static char names[ADAPTERS][32], paths[ADAPTERS][256], prompts[N][700];
static const char *backend;

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .adapters = adapters,
				   .n_adapters = ADAPTERS,
				   .backend = backend,
				   .kv_type = "f16",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 64 << 20,
				   .max_sequences = N,
				   .max_waiting = 2 * N,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

/* What the base has: a dense half or a mixture in each layer. */
static bool has_target(int t)
{
	if (t < ADAPTER_GATE || t >= ADAPTER_EMBED)
		return true;
	return (t >= ADAPTER_DENSE_TARGETS) == mixture;
}

/* Of many ranks, and not of every matrix. */
static int make_for_base(void)
{
	struct sl_err err = {0};
	for (int i = 0; i < ADAPTERS; i++) {
		snprintf(names[i], sizeof names[i], "small:a%d", i);
		snprintf(paths[i], sizeof paths[i], "%s/a%d.gguf", dir, i);
		struct adapter_make m = {.base = base,
					 .out = paths[i],
					 .type = i % 3 == 0   ? KN_BF16
						 : i % 3 == 1 ? KN_F16
							      : KN_F32,
					 .seed = (uint64_t)i + 1};
		for (int t = 0; t < ADAPTER_TARGETS; t++) {
			m.ranks[t] = !has_target(t) || (i + t) % 4 == 3 ? 0 : 1 << (i + t) % 6;
			m.alphas[t] = 8;
		}
		if (adapter_make(&m, &err) != 0)
			fail_msg("%s", err.text);
		adapters[i] = (struct eng_adapter_config){.name = names[i], .path = paths[i]};
	}
	return 0;
}

static int make_adapters(void **arg)
{
	if (setup(arg) != 0)
		return -1;
	mixture = false;
	snprintf(base, sizeof base, "etc/models/demo-small.gguf");
	return make_for_base();
}

static int make_mixture(void **arg)
{
	if (setup(arg) != 0)
		return -1;
	mixture = true;
	random_file("mixture.gguf", "tiny-qwen2moe", "q8_0", 7, 1);
	md_path(base, dir, "mixture.gguf");
	return make_for_base();
}

static const char *fastest(void)
{
	const struct kn_ops *best = NULL;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++)
		if ((*o)->lora_lookup != NULL)
			best = *o;
	return best->name;
}

static void start(struct run *r, const struct eng_config *cfg)
{
	run_start(r, cfg);
	for (int i = 0; i < cfg->n_adapters; i++)
		RUN_UNTIL(r, r->states[cfg->n_models + i] > PROTO_MODEL_LOADING);
	for (int i = 0; i < cfg->n_models + cfg->n_adapters; i++)
		if (r->states[i] != PROTO_MODEL_READY)
			fail_msg("%s", r->reasons[i]);
}

/* Number i is of the base or of an adapter; half begin alike, whatever they are of. */
static struct proto_submit request(int i)
{
	char *at = prompts[i];
	size_t n = 0;
	if (i % 2 == 0)
		n = (size_t)snprintf(at, sizeof prompts[i], "You are a careful helper who answers in one sentence. ");
	run_say(at, sizeof prompts[i], n, 30 + (size_t)(i * 97) % 400, 0, (size_t)(i / 2));
	struct proto_submit req = run_plain(at, TOKENS);
	req.model = (uint16_t)(i % (ADAPTERS + 1));
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 3 == 0 || i == 14 ? 0 : 0.8f;
	req.beam_width = i == 14 ? BEAMS : 0; /* one of them searches */
	req.seed = 100 + (uint64_t)i;
	req.tenant = (uint64_t)i % 2;
	return req;
}

static void all_at_once(struct run *r, const struct answer *expect)
{
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(i);
		req.priority = (uint8_t)(i % 4);
		run_submit(r, (uint64_t)i + 1, &req);
	}
	for (int i = 0; i < N; i++)
		run_credit(r, (uint64_t)i + 1, TOKENS / 2);
	for (int i = N - 1; i >= 0; i--)
		run_credit(r, (uint64_t)i + 1, TOKENS);
	for (int i = 0; i < N; i++)
		run_assert_same(run_until_done(r, (uint64_t)i + 1), &expect[i]);
}

/* Each in an engine that has its adapter only; the base's in one without adapters. */
static void each_alone(struct answer *out)
{
	for (int of = 0; of <= ADAPTERS; of++) {
		struct run r;
		struct eng_config cfg = config();
		cfg.no_prefix_cache = true;
		cfg.adapters = of > 0 ? &adapters[of - 1] : NULL;
		cfg.n_adapters = of > 0;
		start(&r, &cfg);
		for (int i = of; i < N; i += ADAPTERS + 1) {
			struct proto_submit req = request(i);
			req.model = of > 0;
			out[i] = *run_one(&r, 1, &req);
			assert_int_equal(out[i].n_tokens, TOKENS);
		}
		run_stop(&r);
	}
}

static void test_company(void **arg)
{
	(void)arg;
	struct answer *expect = calloc(N, sizeof *expect);
	struct run r;
	struct proto_stats stats;
	struct model_info info;
	struct sl_err err = {0};
	backend = fastest();
	each_alone(expect);
	struct eng_config cfg = config();

	/* Beside each other, and again, when their prompts are in the tree. */
	uint32_t cached = 0;
	start(&r, &cfg);
	all_at_once(&r, expect);
	all_at_once(&r, expect);
	for (int i = 0; i < N; i++)
		cached += r.answers[i + 1].end.n_cached;
	assert_true(cached > 200);
	run_stop(&r);

	/* Other chunks and threads; drafts from the text. */
	for (int k = 0; k < 3; k++) {
		cfg = config();
		cfg.step_tokens = k == 0 ? 17 : 60;
		cfg.n_threads = 1 + (k > 0);
		cfg.spec_mode = k == 2 ? ENG_SPEC_NGRAM : ENG_SPEC_OFF;
		cfg.spec_max_draft = 4;
		cfg.spec_fixed = true;
		start(&r, &cfg);
		all_at_once(&r, expect);
		run_stop(&r);
	}

	/* Memory for a few of them. */
	cfg = config();
	assert_int_equal(model_inspect(base, &info, &err), 0);
	size_t pages = mixture ? 48 : 22; /* its vocabulary makes longer prompts */
	cfg.kv_bytes = pages * kv_page_bytes(KN_F16, 16, info.arch.n_layers, info.arch.n_kv_heads, info.arch.head_dim);
	start(&r, &cfg);
	all_at_once(&r, expect);
	run_until_idle(&r);
	engine_stats(r.e, &stats);
	assert_true(stats.preemptions > 0);
	run_stop(&r);

	/* They say something of their own. */
	for (int i = 1; i < ADAPTERS; i++)
		assert_memory_not_equal(expect[i].logprobs,
					expect[i + ADAPTERS + 1 < N ? i + ADAPTERS + 1 : 0].logprobs,
					TOKENS * sizeof(float));
	free(expect);
}

static uint32_t cached_for(struct run *r, uint16_t of, uint64_t tenant)
{
	static const char same[] =
	    "one two three four five, tell me of foxes and of hens: the river runs to the sea, the "
	    "river runs to the sea, one two three four five, and so on";
	struct proto_submit req = run_plain(same, 1);
	req.model = of;
	req.tenant = tenant;
	const struct answer *a = run_one(r, 1, &req);
	assert_int_equal(a->end.error, 0);
	return a->end.n_cached;
}

/* The same prompt is computed anew by each of them, and found again by it; also where tenants share prefixes. */
static void test_prefixes(void **arg)
{
	(void)arg;
	backend = fastest();
	for (int shared = 0; shared < 2; shared++) {
		struct run r;
		struct eng_config cfg = config();
		struct proto_stats s;
		cfg.share_prefixes = shared == 1;
		start(&r, &cfg);
		for (uint16_t of = 0; of <= ADAPTERS; of++)
			assert_int_equal(cached_for(&r, of, 1), 0);
		engine_stats(r.e, &s);
		assert_int_equal(s.prefix_hits, 0);
		for (uint16_t of = 0; of <= ADAPTERS; of++) {
			assert_true(cached_for(&r, of, 1) >= 16);
			assert_int_equal(cached_for(&r, of, 2) >= 16, shared == 1);
		}
		run_stop(&r);
	}
}

/* Several choices of one request are all of its adapter. */
static void test_choices(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	int32_t ids[2][TOKENS], other[2][TOKENS];
	float lp[2][TOKENS], other_lp[2][TOKENS];
	backend = cfg.backend = fastest();
	struct proto_submit req = run_plain("Tell me of foxes and of hens: ", TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = 1;
	req.n = req.best_of = 2;
	start(&r, &cfg);
	for (int of = 3; of < 5; of++) {
		req.model = (uint16_t)of;
		run_submit(&r, 1, &req);
		run_credit(&r, 1, 2 * TOKENS);
		const struct answer *a = run_until_done(&r, 1);
		for (uint8_t c = 0; c < 2; c++)
			assert_int_equal(run_choice(a, c, of == 3 ? ids[c] : other[c], of == 3 ? lp[c] : other_lp[c]),
					 TOKENS);
	}
	for (uint8_t c = 0; c < 2; c++)
		assert_memory_not_equal(lp[c], other_lp[c], sizeof lp[c]);
	/* Both at once. */
	for (uint64_t of = 3; of < 5; of++) {
		req.model = (uint16_t)of;
		run_submit(&r, of, &req);
		run_credit(&r, of, 2 * TOKENS);
	}
	for (uint64_t of = 3; of < 5; of++) {
		const struct answer *a = run_until_done(&r, of);
		for (uint8_t c = 0; c < 2; c++) {
			int32_t got[TOKENS];
			float got_lp[TOKENS];
			assert_int_equal(run_choice(a, c, got, got_lp), TOKENS);
			assert_memory_equal(got, of == 3 ? ids[c] : other[c], sizeof got);
			assert_memory_equal(got_lp, of == 3 ? lp[c] : other_lp[c], sizeof got_lp);
		}
	}
	run_stop(&r);
}

/* Its base and the others serve; who asks for it is told. */
static void test_failed(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	struct eng_adapter_config three[] = {adapters[0], {.name = "small:none", .path = "nowhere"}, adapters[1]};
	struct proto_model info;
	struct proto_load load;
	backend = cfg.backend = fastest();
	cfg.adapters = three;
	cfg.n_adapters = 3;
	run_start(&r, &cfg);
	for (int i = 1; i < 4; i++)
		RUN_UNTIL(&r, r.states[i] > PROTO_MODEL_LOADING);
	assert_int_equal(r.states[2], PROTO_MODEL_FAILED);
	assert_non_null(strstr(r.reasons[2], "nowhere"));
	assert_int_equal(engine_n_models(r.e), 4);
	engine_model_info(r.e, 3, &info);
	assert_int_equal(info.parent, 1);
	assert_int_equal(info.index, 3);
	assert_int_equal(info.state, PROTO_MODEL_READY);
	assert_true(info.name.n == 8 && memcmp(info.name.at, "small:a1", 8) == 0);
	engine_model_info(r.e, 0, &info);
	assert_int_equal(info.parent, 0);
	assert_true(engine_load(r.e, 0, &load));
	assert_false(engine_load(r.e, 3, &load)); /* its base's holds */
	struct proto_submit req = run_plain("hello", 2);
	for (uint16_t i = 0; i < 5; i++) {
		req.model = i;
		const struct answer *a = run_one(&r, 1, &req);
		assert_int_equal(a->end.error, i == 2 ? PROTO_ERR_NOT_READY : i == 4 ? PROTO_ERR_NO_MODEL : 0);
	}
	run_stop(&r);
	/* What can't be configured. */
	struct sl_err err = {0};
	three[1].name = "small";
	assert_int_equal(engine_create(&cfg, run_on_event, &r, &r.e, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "two models are named small"));
	three[1] = (struct eng_adapter_config){.name = "x", .path = "x", .model = 1};
	assert_int_equal(engine_create(&cfg, run_on_event, &r, &r.e, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "no such base"));
}

/* Whatever allocation fails before its threads run: the engine does not start, and nothing is lost. */
static void test_no_memory(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	int rc = SL_ENOMEM, n_failed = 0;
	backend = cfg.backend = fastest();
	for (long nth = 1; rc != 0; nth++) {
		fault_arm(FAULT_ALLOC, nth, 1);
		rc = run_start_rc(&r, &cfg);
		fault_disarm_all();
		assert_true(rc == 0 || rc == SL_ENOMEM);
		n_failed += rc != 0;
		if (rc == 0)
			run_stop(&r);
		else
			run_free(&r);
	}
	assert_true(n_failed > 2 * ADAPTERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_company, make_adapters, teardown),
	    {"test_company_of_a_mixture", test_company, make_mixture, teardown, NULL},
	    cmocka_unit_test_setup_teardown(test_prefixes, make_adapters, teardown),
	    cmocka_unit_test_setup_teardown(test_choices, make_adapters, teardown),
	    cmocka_unit_test_setup_teardown(test_failed, make_adapters, teardown),
	    cmocka_unit_test_setup_teardown(test_no_memory, make_adapters, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
