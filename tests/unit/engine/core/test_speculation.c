/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculation with real kernels and random weights: answers with drafts are those without, bit for bit,
 * greedy and sampled, on many prompts (SPEC_PROMPTS, 120 by default); what is sampled is distributed as
 * it is without. Random weights fall into loops, so there is something to find in the text, and what a
 * drafter with other weights says is mostly wrong.
 */
#include "engine_run.h"

#include <math.h>
#include <unistd.h>

#include "tests/support/tiny_gguf.h"
#include "base/log.h"
#include "engine/step/internal.h"
#include "engine/kv/kv_memory.h"

enum { BATCH = 40, TOKENS = 32 };

static char large_path[64], small_path[64];
static struct eng_model_config models[2];

/* The drafter has the same weights as the other model, or others. */
static struct eng_config config(int mode, bool alike)
{
	models[0] = (struct eng_model_config){.name = "large", .path = large_path, .role = PROTO_ROLE_LARGE};
	models[1] = (struct eng_model_config){
	    .name = "small", .path = alike ? large_path : small_path, .role = PROTO_ROLE_SMALL};
	return (struct eng_config){.models = models,
				   .n_models = 2,
				   .backend = "auto",
				   .n_threads = 2,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 32 << 20,
				   .max_sequences = BATCH,
				   .max_waiting = 2 * BATCH,
				   .step_tokens = 512,
				   .max_prompt_bytes = 1 << 20,
				   .spec_mode = mode,
				   .spec_max_draft = 6,
				   .spec_fixed = true};
}

static char prompts[BATCH][160];

/* The i-th of any number of prompts; every second one is sampled, in all ways. */
static struct proto_submit request(int i)
{
	char *at = prompts[i % BATCH];
	uint64_t random = (uint64_t)i * 2654435761u + 99;
	size_t n = 1 + (size_t)(i * 7919) % 120;
	for (size_t k = 0; k < n; k++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		at[k] = k >= 12 && i % 3 == 0 ? at[k - 12] : (char)('a' + (random >> 33) % 26);
	}
	at[n] = '\0';
	struct proto_submit req = run_plain(at, TOKENS);
	req.seed = (uint64_t)i;
	if (i % 7 < 5)
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	if (i % 2 == 1) {
		req.temperature = i % 4 == 1 ? 0.3f : 1;
		req.top_p = i % 6 == 1 ? 0.9f : 1;
		req.top_k = i % 10 == 3 ? 12 : 0;
		req.min_p = i % 14 == 5 ? 0.05f : 0;
	}
	req.frequency_penalty = i % 8 == 6 ? 0.4f : 0;
	req.presence_penalty = i % 12 == 7 ? 0.6f : 0;
	req.repetition_penalty = i % 20 == 9 ? 1.2f : 1;
	req.min_tokens = i % 9 == 2 ? 10 : 0;
	return req;
}

/* Answers from..from+BATCH of an engine that runs. */
static void answer(struct run *r, int from)
{
	for (int i = 0; i < BATCH; i++) {
		struct proto_submit req = request(from + i);
		run_submit(r, (uint64_t)i + 1, &req);
		run_credit(r, (uint64_t)i + 1, TOKENS);
	}
	for (int i = 0; i < BATCH; i++)
		run_until_done(r, (uint64_t)i + 1);
}

static int n_prompts(void)
{
	const char *text = getenv("SPEC_PROMPTS");
	long n = text != NULL ? strtol(text, NULL, 10) : 0;
	return n > 0 && n < 1000000 ? (int)n : 3 * BATCH;
}

static void answers_are_the_plain_ones(void **state)
{
	static const struct {
		int mode;
		bool alike, adapts;
	} ways[] = {{ENG_SPEC_NGRAM, false, false},
		    {ENG_SPEC_DRAFT, true, false},
		    {ENG_SPEC_DRAFT, false, false},
		    {ENG_SPEC_AUTO, true, false},
		    {ENG_SPEC_AUTO, false, true}};
	enum { WAYS = sizeof ways / sizeof *ways };
	(void)state;
	struct run plain, r[WAYS];
	struct eng_config cfg = config(ENG_SPEC_OFF, false);
	run_start(&plain, &cfg);
	for (int k = 0; k < WAYS; k++) {
		cfg = config(ways[k].mode, ways[k].alike);
		cfg.spec_fixed = !ways[k].adapts;
		run_start(&r[k], &cfg);
	}
	for (int from = 0; from < n_prompts(); from += BATCH) {
		answer(&plain, from);
		for (int k = 0; k < WAYS; k++) {
			answer(&r[k], from);
			for (int i = 1; i <= BATCH; i++)
				run_assert_same(&r[k].answers[i], &plain.answers[i]);
		}
	}
	for (int k = 0; k < WAYS; k++) {
		struct proto_stats s;
		run_until_idle(&r[k]);
		engine_stats(r[k].e, &s);
		print_message("mode %d%s: %llu drafts, %llu of %llu tokens accepted\n", ways[k].mode,
			      ways[k].alike    ? ", alike"
			      : ways[k].adapts ? ", adapting"
					       : "",
			      (unsigned long long)s.spec_drafts, (unsigned long long)s.spec_accepted,
			      (unsigned long long)s.spec_drafted);
		assert_true(ways[k].adapts || (s.spec_drafts > 100 && s.spec_accepted > 0));
		/* The drafter draws with the same random numbers; penalties it counts a little late. */
		if (ways[k].alike && ways[k].mode == ENG_SPEC_DRAFT)
			assert_true(s.spec_accepted * 100 > s.spec_drafted * 80);
		run_stop(&r[k]);
	}
	run_stop(&plain);
}

/* What LOAD has of the first model is what STATS has of the engine, which nothing else uses. */
static bool is_reported(struct run *r, uint64_t drafted, uint64_t accepted)
{
	struct proto_stats s;
	struct proto_load load;
	engine_stats(r->e, &s);
	assert_true(engine_load(r->e, 0, &load));
	const struct proto_figures *f = &load.figures;
	return s.spec_drafted == drafted && s.spec_accepted == accepted && f->spec_drafts == s.spec_drafts &&
	       f->spec_drafted == drafted && f->spec_accepted == accepted && f->prefill_tokens == s.prefill_tokens &&
	       f->decode_tokens == s.decode_tokens && f->prefix_queries == s.prefix_queries &&
	       f->prefix_hits == s.prefix_hits && f->running == 0 && f->waiting == 0;
}

/* Each DONE has the drafts of its own answer, to the last one, and each LOAD the figures of its model. */
static void drafts_are_told_by_answer_and_by_model(void **state)
{
	(void)state;
	struct run r;
	struct eng_config cfg = config(ENG_SPEC_NGRAM, false);
	uint64_t drafted = 0, accepted = 0;
	run_start(&r, &cfg);
	for (int from = 0; from < 3 * BATCH; from += BATCH) {
		answer(&r, from);
		for (int i = 1; i <= BATCH; i++) {
			assert_true(r.answers[i].end.n_accepted <= r.answers[i].end.n_drafted);
			drafted += r.answers[i].end.n_drafted;
			accepted += r.answers[i].end.n_accepted;
		}
	}
	run_until_idle(&r);
	assert_true(drafted > 0 && accepted > 0);
	/* Figures are told after the answers, and no event comes with them. */
	uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
	while (!is_reported(&r, drafted, accepted) && clock_now_ns() < until)
		usleep(1000);
	assert_true(is_reported(&r, drafted, accepted));
	run_stop(&r);
}

/* ---- distributions ---- */

enum { LETTERS = 5, DRAWS = 1600, AT = 4 };

/* How often each pair of letters comes at the places AT - 1 and AT of an answer, over DRAWS seeds. */
static uint64_t draw_pairs(const struct eng_config *cfg, uint64_t seed, float temperature, int count[LETTERS * LETTERS])
{
	static const struct proto_id_f32 biases[LETTERS] = {{'a', 60}, {'b', 60}, {'c', 60}, {'d', 60}, {'e', 60}};
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	memset(count, 0, LETTERS * LETTERS * sizeof *count);
	for (int from = 0; from < DRAWS; from += BATCH) {
		for (int i = 0; i < BATCH; i++) {
			struct proto_submit req = run_plain("Once upon a time", AT + 1);
			req.temperature = temperature;
			req.seed = seed + (uint64_t)(from + i);
			req.logit_bias = biases;
			req.n_logit_bias = LETTERS;
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, AT + 1);
		}
		for (int i = 0; i < BATCH; i++) {
			const struct answer *a = run_until_done(&r, (uint64_t)i + 1);
			assert_int_equal(a->n_tokens, AT + 1);
			int x = a->ids[AT - 1] - 'a', y = a->ids[AT] - 'a';
			assert_true(x >= 0 && x < LETTERS && y >= 0 && y < LETTERS);
			count[x * LETTERS + y]++;
		}
	}
	run_until_idle(&r);
	engine_stats(r.e, &s);
	run_stop(&r);
	return s.spec_accepted;
}

/* Two samples of the same size: chi-square over the cells that either has; *cells: how many. */
static double chi_square(const int *a, const int *b, int *cells)
{
	double sum = 0;
	*cells = 0;
	for (int i = 0; i < LETTERS * LETTERS; i++) {
		if (a[i] + b[i] == 0)
			continue;
		sum += (double)(a[i] - b[i]) * (a[i] - b[i]) / (a[i] + b[i]);
		++*cells;
	}
	return sum;
}

/* Above this only once in 10,000 samples (Wilson, Hilferty 1931); seeds are fixed, so it is always or never. */
static double limit(int freedom)
{
	double k = freedom, z = 3.72;
	return k * pow(1 - 2 / (9 * k) + z * sqrt(2 / (9 * k)), 3);
}

static void samples_are_distributed_alike(void **state)
{
	(void)state;
	static int plain[LETTERS * LETTERS], drafted[LETTERS * LETTERS];
	int cells, kinds = 0;
	struct eng_config cfg = config(ENG_SPEC_OFF, false);
	draw_pairs(&cfg, 1, 0.9f, plain);
	for (int i = 0; i < LETTERS * LETTERS; i++)
		kinds += plain[i] > 10;
	assert_true(kinds > 12); /* there is variety */
	for (int way = 0; way < 3; way++) {
		cfg = config(way == 0 ? ENG_SPEC_NGRAM : ENG_SPEC_DRAFT, way == 1);
		uint64_t accepted = draw_pairs(&cfg, 1000000, 0.9f, drafted);
		double x = chi_square(plain, drafted, &cells);
		print_message("chi-square %.1f, %d cells, limit %.1f; %llu tokens were drafted right\n", x, cells,
			      limit(cells - 1), (unsigned long long)accepted);
		assert_true(accepted > 50);
		assert_true(x < limit(cells - 1));
	}
	/* The test can tell: another temperature is seen. */
	draw_pairs(&cfg, 2000000, 0.3f, drafted);
	assert_true(chi_square(plain, drafted, &cells) > limit(cells - 1));
}

/* ---- pairs ---- */

/* A vocabulary that differs in one token: no drafts, and a line that says so. */
static void other_vocabularies_do_not_pair(void **state)
{
	(void)state;
	struct run r;
	struct proto_stats s;
	char path[80];
	snprintf(path, sizeof path, "%s.other", large_path);
	assert_true(tiny_gguf_write(path, 5));
	FILE *f = fopen(path, "r+b");
	static char head[64 << 10];
	assert_non_null(f);
	size_t n = fread(head, 1, sizeof head, f), at = 0;
	/* The tokens "x" and "y" change places: all bytes are there, with other ids. */
	static const char token[] = {1, 0, 0, 0, 0, 0, 0, 0, 'x'};
	while (at + sizeof token < n && memcmp(head + at, token, sizeof token) != 0)
		at++;
	assert_true(at + sizeof token < n);
	fseek(f, (long)at + 8, SEEK_SET);
	fputc('y', f);
	size_t y = at + sizeof token;
	assert_memory_equal(head + y, "\1\0\0\0\0\0\0\0y", 9);
	fseek(f, (long)y + 8, SEEK_SET);
	fputc('x', f);
	fclose(f);
	struct eng_config cfg = config(ENG_SPEC_DRAFT, false);
	models[1].path = path;
	run_start(&r, &cfg);
	assert_int_equal(r.states[1], PROTO_MODEL_READY);
	answer(&r, 0);
	run_until_idle(&r);
	engine_stats(r.e, &s);
	assert_int_equal(s.spec_drafts, 0);
	run_stop(&r);
	unlink(path);
}

/* Keys and values of both models and of the drafts: what is allocated is what the budget allows, and hardly less. */
static void pages_stay_within_the_budget(void **state)
{
	(void)state;
	for (uint64_t bytes = 256 << 10; bytes <= 8 << 20; bytes *= 2) {
		static struct run r;
		struct eng_config cfg = config(ENG_SPEC_DRAFT, false);
		cfg.kv_bytes = bytes;
		run_start(&r, &cfg);
		const struct eng_model *large = &r.e->models[0], *small = &r.e->models[1];
		const size_t page =
		    kv_page_bytes(small->kv_type, cfg.page_tokens, TINY_LAYERS, TINY_KV_HEADS, TINY_HEAD);
		assert_non_null(r.e->memory);
		uint64_t shared = 2 * (uint64_t)kv_memory_n_slabs(r.e->memory) * kv_memory_slab_bytes(r.e->memory);
		uint64_t drafts = (uint64_t)kv_pool_n_pages(small->draft_pool) * page;
		assert_null(large->draft_pool);
		if (shared + drafts > bytes)
			fail_msg("%llu + %llu bytes are more than %llu", (unsigned long long)shared,
				 (unsigned long long)drafts, (unsigned long long)bytes);
		/* A quarter of what the model has for itself, which is half of what is shared. */
		assert_true(drafts <= shared / 8 + page && drafts + 2 * page >= shared / 8);
		uint64_t useful = (uint64_t)cfg.max_sequences * (TINY_CTX / 16) * page * 9 / 4,
			 most = bytes < useful ? bytes : useful;
		if (shared + drafts + most / 8 < most)
			fail_msg("%llu + %llu bytes of %llu", (unsigned long long)shared, (unsigned long long)drafts,
				 (unsigned long long)most);
		run_stop(&r);
	}
}

int main(void)
{
	log_init("test", LOG_ERROR);
	snprintf(large_path, sizeof large_path, "/tmp/sluice-spec-a-%d.gguf", (int)getpid());
	snprintf(small_path, sizeof small_path, "/tmp/sluice-spec-b-%d.gguf", (int)getpid());
	if (!tiny_gguf_write(large_path, 1) || !tiny_gguf_write(small_path, 2))
		return 1;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(answers_are_the_plain_ones),    cmocka_unit_test(drafts_are_told_by_answer_and_by_model),
	    cmocka_unit_test(samples_are_distributed_alike), cmocka_unit_test(other_vocabularies_do_not_pair),
	    cmocka_unit_test(pages_stay_within_the_budget),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(large_path);
	unlink(small_path);
	return rc;
}
