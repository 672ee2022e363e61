/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose layers are in groups, with random weights: windows smaller than a page and over several, some of the
 * layers windowed and all of them. Every answer is, bit for bit, the one with all layers in one group that keeps
 * everything: alone, in batches, in other chunks and pages, after prefix hits, with drafts, pre-empted, on one thread
 * and on two. How pages of such models are swapped and move between models: tests/sim/test_windowed_sim.c.
 */
#include "engine_run.h"

#include <unistd.h>

#include "base/log.h"
#include "engine/kv/kv.h"
#include "engine/source/random_model.h"
#include "kernels/kv_type.h"

enum { MOST = 200, TOKENS = 16 };

static struct eng_model_config model[] = {{.name = "windowed"}};
static char prompts[MOST][700];
static int n_requests;
static uint64_t n_cached; /* tokens that came from the tree, in all runs */

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .kv_type = "f16",
				   .backend = "auto",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 64 << 20,
				   .max_sequences = 24,
				   .max_waiting = 2 * MOST,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

/* Some begin alike, for longer and shorter; every tenth is one of before. */
static struct proto_submit request(int i)
{
	int as = i % 10 == 9 ? i / 2 : i;
	char *at = prompts[i];
	run_say(at, sizeof prompts[i], 0, 10 + (size_t)(as * 97) % 450, (size_t)(as % 4) * 100, (size_t)as);
	struct proto_submit req = run_plain(at, TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = as % 3 == 0 ? 0 : 0.8f;
	req.seed = 1000 + (uint64_t)as;
	req.tenant = (uint64_t)as % 2;
	return req;
}

static void each_alone(struct answer *out)
{
	struct run r;
	struct eng_config cfg = config();
	cfg.no_prefix_cache = cfg.kv_one_group = true;
	run_start(&r, &cfg);
	for (int i = 0; i < n_requests; i++) {
		struct proto_submit req = request(i);
		out[i] = *run_one(&r, 1, &req);
		assert_int_equal(out[i].n_tokens, TOKENS);
	}
	run_stop(&r);
}

/* All of them; in a second round much of each prompt is there. Returns the pre-emptions. */
static uint64_t all_at_once(const struct eng_config *cfg, const struct answer *expect, int n_rounds)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	for (int round = 0; round < n_rounds; round++) {
		for (int i = 0; i < n_requests; i++) {
			struct proto_submit req = request(i);
			req.priority = (uint8_t)(i % 4); /* the better ones take from the worse */
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, i % 5 == 0 ? TOKENS / 2 : TOKENS);
		}
		for (int i = 0; i < n_requests; i += 5)
			run_credit(&r, (uint64_t)i + 1, TOKENS);
		for (int i = 0; i < n_requests; i++) {
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
			n_cached += r.answers[i + 1].end.n_cached;
		}
	}
	run_until_idle(&r);
	engine_stats(r.e, &s);
	run_stop(&r);
	return s.preemptions;
}

static void check(struct answer *expect, const struct model_arch *a)
{
	struct eng_config cfg = config();
	each_alone(expect);
	(void)all_at_once(&cfg, expect, 2);
	cfg.max_sequences = 8;
	cfg.step_tokens = 17;
	cfg.n_threads = 2;
	(void)all_at_once(&cfg, expect, 1);
	cfg = config();
	cfg.page_tokens = 5; /* no power of two */
	cfg.spec_mode = ENG_SPEC_NGRAM;
	cfg.spec_max_draft = 8;
	cfg.spec_fixed = true;
	(void)all_at_once(&cfg, expect, 1);
	/* Memory for a few of them, in which window parts of the tree give way too. */
	cfg = config();
	cfg.kv_bytes = 26 * kv_page_bytes(KN_F16, 16, a->n_layers, a->n_kv_heads, a->head_dim);
	assert_true(all_at_once(&cfg, expect, 1) > 0);
}

static void as_with_one_group(void **state)
{
	(void)state;
	static const struct {
		const char *shape;
		int n_layers, window, n_requests;
	} cases[] = {{"tiny-gemma3", 6, 70, MOST}, /* five of six windowed, over several pages */
		     {"tiny-gemma3", 12, 9, 32},   /* smaller than a page */
		     {"tiny-gemma2", 4, 33, 32},   /* every other one */
		     {"tiny-mistral", 3, 50, 32}}; /* all */
	struct answer *expect = calloc(MOST, sizeof *expect);
	assert_non_null(expect);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char path[] = "/tmp/sluice-windows-XXXXXX";
		struct sl_err err = {0};
		struct random_model m = {.path = path, .name = "windowed", .seed = 5, .n_threads = 2};
		int fd = mkstemp(path);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(random_shape_find(cases[i].shape, &m.arch, &err), 0);
		m.arch.n_layers = cases[i].n_layers;
		m.arch.window = cases[i].window;
		assert_int_equal(weight_plan_parse("q8_0", &m.plan, &err), 0);
		if (random_model_write(&m, NULL, &err) != 0)
			fail_msg("%s", err.text);
		model[0].path = path;
		n_requests = cases[i].n_requests;
		n_cached = 0;
		check(expect, &m.arch);
		print_message("%s, %d layers, window %d: %d requests, %llu tokens from the tree\n", cases[i].shape,
			      cases[i].n_layers, cases[i].window, n_requests, (unsigned long long)n_cached);
		assert_true(n_cached > 40u * (unsigned)n_requests);
		unlink(path);
	}
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_with_one_group)};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
