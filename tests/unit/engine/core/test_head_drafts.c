/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with a layer that drafts for them, with random weights: every answer is, bit for bit, the one alone and
 * without drafts, in batches, in other chunks and pages, after prefix hits, pre-empted, on one thread and on two,
 * beside other drafters. The layer may have a file of its own. Wrong ones are refused in one line that names the key or
 * the tensor. With the demonstration model's trained one, answers take fewer steps.
 */
#include "crowd_run.h"

#include <jansson.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/adapter/adapter_make.h"
#include "engine/kv/kv.h"
#include "engine/model/draft_head.h"
#include "engine/source/model_file.h"
#include "tests/support/random_file.h"

static const char base[] = "base.gguf", whole[] = "whole.gguf";
static char base_path[256], whole_path[256];

static struct model_arch drafting(const char *shape)
{
	struct model_arch a = random_arch(shape);
	a.n_drafting = 1;
	return a;
}

static struct eng_config drafts_of(int mode, int most)
{
	struct eng_config cfg = crowd_config();
	cfg.spec_mode = mode;
	cfg.spec_max_draft = most;
	cfg.spec_fixed = true;
	return cfg;
}

static void told(const char *shape, const char *how, const struct proto_stats *s)
{
	print_message("%s, %s: %llu drafts, %llu of %llu tokens accepted, %u pre-empted\n", shape, how,
		      (unsigned long long)s->spec_drafts, (unsigned long long)s->spec_accepted,
		      (unsigned long long)s->spec_drafted, (unsigned)s->preemptions);
	assert_true(s->spec_drafts > 0);
}

/* ---- answers ---- */

static void in_every_way(const char *shape, const struct answer *expect)
{
	struct eng_config cfg = drafts_of(ENG_SPEC_HEAD, 6);
	struct proto_stats s = crowd_together(&cfg, expect, 2);
	told(shape, "wide steps, found again", &s);
	cfg.max_sequences = 8;
	cfg.step_tokens = 17; /* fewer rows than are kept */
	cfg.n_threads = 2;
	cfg.page_tokens = 6;
	s = crowd_together(&cfg, expect, 1);
	told(shape, "small steps, two threads", &s);
	cfg = drafts_of(ENG_SPEC_AUTO, 16);
	cfg.kv_one_group = true;
	s = crowd_together(&cfg, expect, 1);
	told(shape, "beside n-grams", &s);
	cfg.spec_fixed = false;
	(void)crowd_together(&cfg, expect, 1);
}

static void as_alone(void **state)
{
	(void)state;
	static const struct {
		const char *shape, *kv_type, *type;
		int n_most, n_requests; /* most: with THOROUGH */
	} cases[] = {{"tiny-llama", "f16", "q8_0", 120, 40},   {"tiny-glm4moe", "q8", "q8_0", 32, 12},
		     {"tiny-deepseek3", "f32", "f32", 32, 12}, {"tiny-qwen3next", "f16", "f16", 32, 12},
		     {"tiny-qwen3.5", "f16", "q8_0", 32, 12},  {"tiny-gemma3", "f16", "q8_0", 32, 12},
		     {"tiny-granite", "f16", "q8_0", 24, 8},   {"tiny-mistral3", "f16", "q8_0", 24, 8}};
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	assert_non_null(expect);
	crowd_model[0].path = whole_path;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model_arch a = drafting(cases[i].shape);
		random_file_of(whole, &a, cases[i].type, 5, 2);
		crowd_kv_type = cases[i].kv_type;
		crowd_n = getenv("THOROUGH") != NULL ? cases[i].n_most : cases[i].n_requests;
		struct eng_config cfg = crowd_config();
		crowd_alone(&cfg, expect);
		in_every_way(cases[i].shape, expect);
	}
	free(expect);
}

/* Out of pages, the layer's own, which are a quarter of the memory at most, stay. */
static void pre_empted(void **state)
{
	(void)state;
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	assert_non_null(expect);
	struct model_arch a = drafting("tiny-smollm3");
	random_file_of(whole, &a, "q8_0", 5, 2);
	crowd_model[0].path = whole_path;
	crowd_kv_type = "f16";
	crowd_n = 60;
	struct eng_config cfg = crowd_config();
	crowd_alone(&cfg, expect);
	cfg = drafts_of(ENG_SPEC_HEAD, 6);
	cfg.max_sequences = 6;
	cfg.kv_bytes = 4 << 20;
	struct proto_stats s = {0};
	/* When requests come decides which one needs a page while none is free. */
	for (int i = 0; i < 50 && s.preemptions == 0; i++)
		s = crowd_together(&cfg, expect, 1);
	told("tiny-smollm3", "few pages", &s);
	assert_true(s.preemptions > 0);
	free(expect);
}

/* Answers longer than what the layer attends to, and with paused readers. */
static struct proto_submit long_request(int i)
{
	struct proto_submit req = crowd_request(i);
	req.max_tokens = 2 * DRAFT_HEAD_PAST + 40;
	return req;
}

static void long_answers(void **state)
{
	(void)state;
	enum { N = 6 };
	static struct answer expect[N];
	struct model_arch a = drafting("tiny-llama");
	struct run r;
	random_file_of(whole, &a, "q8_0", 5, 2);
	crowd_model[0].path = whole_path;
	struct eng_config cfg = crowd_config();
	cfg.no_prefix_cache = true;
	run_each_alone(&cfg, N, long_request, expect);
	cfg = drafts_of(ENG_SPEC_HEAD, 8);
	run_start(&r, &cfg);
	run_crowd(&r, 1, N, long_request, expect);
	run_stop(&r);
}

/* The layer's weights come into memory and leave it with the model's. */
static void on_demand(void **state)
{
	(void)state;
	enum { N = 4 };
	static struct answer expect[N];
	struct model_arch plain = random_arch("tiny-llama"), with = drafting("tiny-llama");
	struct run r;
	struct proto_stats s;
	random_file_of(base, &plain, "f16", 5, 2);
	random_file_of(whole, &with, "f16", 5, 2);
	crowd_kv_type = "f16";
	crowd_model[0] = (struct eng_model_config){.name = "crowd", .path = base_path};
	struct eng_config cfg = crowd_config();
	run_each_alone(&cfg, N, crowd_request, expect);
	crowd_model[0].head = whole_path;
	crowd_model[0].on_demand = true;
	crowd_model[0].keep_alive_ms = 1;
	cfg = drafts_of(ENG_SPEC_HEAD, 4);
	cfg.turn_ms = 1;
	cfg.weights_bytes = 64 << 20;
	run_start(&r, &cfg);
	uint64_t loads = 0;
	for (int i = 0; i < N; i++) {
		struct proto_submit req = crowd_request(i);
		run_assert_same(run_one(&r, (uint64_t)i + 1, &req), &expect[i]);
		/* Until it has left: the next answer brings it again. */
		uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
		do {
			usleep(1000);
			engine_stats(r.e, &s);
		} while (s.models_here > 0 && clock_now_ns() < until);
		/* It may have left once more before its request came. */
		assert_true(s.models_here == 0 && s.model_loads > loads);
		loads = s.model_loads;
	}
	assert_true(s.spec_drafts > 0);
	run_stop(&r);
	crowd_model[0] = (struct eng_model_config){.name = "crowd"};
}

/* ---- files ---- */

/* The same answers with the layer in the model's file and in one of its own. */
static void of_its_own_file(void **state)
{
	(void)state;
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	assert_non_null(expect);
	struct model_arch plain = random_arch("tiny-qwen3"), with = drafting("tiny-qwen3");
	random_file_of(base, &plain, "q8_0", 5, 2);
	random_file_of(whole, &with, "q8_0", 5, 2);
	crowd_kv_type = "f16";
	crowd_n = 24;
	crowd_model[0].path = base_path;
	struct eng_config cfg = crowd_config();
	crowd_alone(&cfg, expect);
	uint64_t drafted[2], accepted[2];
	for (int own = 0; own < 2; own++) {
		crowd_model[0].path = own ? base_path : whole_path;
		crowd_model[0].head = own ? whole_path : NULL;
		struct run r;
		struct proto_stats s;
		cfg = drafts_of(ENG_SPEC_HEAD, 5);
		run_start(&r, &cfg);
		for (int i = 0; i < crowd_n; i++) {
			struct proto_submit req = crowd_request(i);
			run_assert_same(run_one(&r, (uint64_t)i + 1, &req), &expect[i]);
		}
		run_until_idle(&r);
		engine_stats(r.e, &s);
		drafted[own] = s.spec_drafted;
		accepted[own] = s.spec_accepted;
		run_stop(&r);
	}
	crowd_model[0].head = NULL;
	assert_true(drafted[0] > 0 && drafted[0] == drafted[1] && accepted[0] == accepted[1]);
	free(expect);
}

/* What an engine says that is asked to draft with these files. */
static void refused(const char *path, const char *head, const char *said)
{
	struct run r;
	crowd_model[0].path = path;
	crowd_model[0].head = head;
	struct eng_config cfg = drafts_of(ENG_SPEC_AUTO, 4);
	run_start(&r, &cfg);
	if (r.states[0] != PROTO_MODEL_FAILED || strstr(r.reasons[0], said) == NULL ||
	    strchr(r.reasons[0], '\n') != NULL)
		fail_msg("state %d, \"%s\", not \"%s\"", r.states[0], r.reasons[0], said);
	run_stop(&r);
	crowd_model[0].head = NULL;
}

static uint8_t *file;
static size_t n_file;

static void write_whole(const char *shape)
{
	struct model_arch a = drafting(shape);
	random_file_of(whole, &a, "q8_0", 5, 2);
	free(file);
	file = md_read(dir, whole, &n_file);
}

static void test_missing(void **state)
{
	(void)state;
	static const char *const names[] = {"blk.2.nextn.eh_proj.weight", "blk.2.nextn.enorm.weight",
					    "blk.2.nextn.hnorm.weight", "blk.2.attn_norm.weight",
					    "blk.2.ffn_down.weight"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char said[96];
		write_whole("tiny-llama");
		random_file_after(file, n_file, names[i])[-1] = 'x';
		md_write(dir, whole, file, n_file);
		snprintf(said, sizeof said, "tensor %s is missing", names[i]);
		refused(whole_path, NULL, said);
	}
}

static void test_shapes(void **state)
{
	(void)state;
	static const struct {
		const char *tensor, *said;
	} wrong[] = {{"blk.2.nextn.eh_proj.weight", "tensor blk.2.nextn.eh_proj.weight is 256 × 256, not 512 × 256"},
		     {"blk.2.nextn.hnorm.weight", "tensor blk.2.nextn.hnorm.weight is not a vector of 256 floats"},
		     {"blk.2.attn_output.weight", "tensor blk.2.attn_output.weight is 128 × 256, not 256 × 256"}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		write_whole("tiny-llama");
		/* The number of dimensions, then the first: half of it. */
		uint8_t *at = random_file_after(file, n_file, wrong[i].tensor);
		at[5] = (uint8_t)(at[5] >> 1);
		at[4] = at[5] == 0 ? 128 : 0;
		md_write(dir, whole, file, n_file);
		refused(whole_path, NULL, wrong[i].said);
	}
}

static void test_other_models(void **state)
{
	(void)state;
	random_file(base, "tiny-llama", "q8_0", 5, 2);
	refused(base_path, base_path, "no tensor of a layer after the model's 2");
	write_whole("tiny-smollm3");
	refused(base_path, whole_path, "general.architecture is smollm3, the model's is llama");
	write_whole("tiny-llama");
	refused(whole_path, whole_path, "no tensor of a layer after the model's 3");
	uint8_t *at = random_file_after(file, n_file, "llama.block_count");
	at[4] = 4;
	md_write(dir, whole, file, n_file);
	refused(base_path, whole_path,
		"llama.block_count 4 with 1 that draft is for another model than one of 2 layers");
	at[4] = 3;
	random_file_after(file, n_file, "llama.embedding_length")[5] = 2;
	md_write(dir, whole, file, n_file);
	refused(base_path, whole_path, "llama.embedding_length is 512, the model's is 256");
	write_whole("tiny-llama");
	random_file_after(file, n_file, "llama.nextn_predict_layers")[-1] = 'x';
	md_write(dir, whole, file, n_file);
	refused(base_path, whole_path, "key llama.nextn_predict_layers is missing");
	refused(base_path, "/nonexistent/head.gguf", "/nonexistent/head.gguf");
}

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Loads the base with the head as it is, and runs a step of it if that can be. */
static bool drafts_with_head(void)
{
	struct sl_err err = {0};
	const struct kn_ops *o = kn_select("auto", &err);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	const struct model_how how = {.drafts = true, .head = whole_path};
	struct kn_backend *b;
	struct kv_pool *pool;
	struct model *m = NULL;
	assert_int_equal(o->open(&kc, &b, &err), 0);
	int rc = model_load_as(base_path, &how, o, b, 4, 64 << 20, &m, &err);
	if (rc != 0) {
		assert_true(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
	} else if (draft_head_is_here(m)) {
		const struct model_arch *a = &model_info(m)->arch;
		const int32_t zero = 0;
		const struct kn_step s = {.n_rows = 1,
					  .row_token = &zero,
					  .row_pos = &zero,
					  .row_seq = &zero,
					  .n_seqs = 1,
					  .page_table = &zero,
					  .max_pages = 1};
		float *logits = malloc((size_t)a->n_vocab * sizeof *logits);
		struct kn_kv layout = model_kv_layout(a, KN_F32, 16, 1);
		layout.n_pages = 1;
		assert_int_equal(kv_pool_make(o, b, &layout, &pool, &err), 0);
		assert_int_equal(draft_head_make_rows(m, 1, &err), 0);
		assert_int_equal(draft_head_forward(m, &s, kv_pool_layout(pool), &zero, false, &zero, 1, logits), 0);
		free(logits);
		kv_pool_destroy(pool);
	}
	bool has = rc == 0 && draft_head_is_here(m);
	model_free(m);
	o->close(b);
	return has;
}

/* Keys and tensors of a head with changed bytes: most are refused, and what is loaded runs. */
static void test_mutated(void **state)
{
	(void)state;
	enum { ALL = 150 };
	int n = 0;
	uint64_t seed = 7;
	random_file(base, "tiny-llama", "q8_0", 5, 2);
	write_whole("tiny-llama");
	size_t keys = (size_t)(random_file_after(file, n_file, "general.architecture") - file);
	size_t keys_end = (size_t)(random_file_after(file, n_file, "tokenizer.ggml") - file);
	size_t last = (size_t)(random_file_after(file, n_file, "blk.2.attn_norm.weight") - file);
	size_t last_end = (size_t)(random_file_after(file, n_file, "blk.2.nextn.shared_head_norm.weight") - file) + 24;
	for (int i = 0; i < ALL; i++) {
		size_t from = i % 3 == 0 ? keys : last, to = i % 3 == 0 ? keys_end : last_end;
		size_t at = from + next(&seed) % (to - from);
		uint8_t was = file[at];
		file[at] = (uint8_t)(next(&seed) % 2 == 0 ? next(&seed) : was ^ 1u << next(&seed) % 8);
		md_write(dir, whole, file, n_file);
		n += drafts_with_head();
		file[at] = was;
	}
	assert_in_range(n, 1, ALL - 1);
}

/* Without drafts by the layer, it is not looked at; nor where the file has none of its tensors. */
static void not_needed(void **state)
{
	(void)state;
	struct run r;
	write_whole("tiny-llama");
	random_file_after(file, n_file, "blk.2.nextn.hnorm.weight")[-1] = 'x';
	md_write(dir, whole, file, n_file);
	crowd_model[0].path = whole_path;
	struct eng_config cfg = drafts_of(ENG_SPEC_NGRAM, 4);
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	run_stop(&r);
	struct model_arch a = random_arch("tiny-llama");
	random_file_of(base, &a, "q8_0", 5, 2);
	free(file);
	file = md_read(dir, base, &n_file);
	md_write(dir, base, file, n_file);
	crowd_model[0].path = base_path;
	cfg = drafts_of(ENG_SPEC_HEAD, 4);
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	run_stop(&r);
}

/* ---- the trained one ---- */

enum { EVERY = 9, MOST_ASKED = 100 };

static char questions[MOST_ASKED][512];
static int n_questions;

/* Every so many of the held-out questions, as chats. */
static void read_questions(void)
{
	FILE *f = fopen("etc/models/evaluation.jsonl", "r");
	char line[4096];
	assert_non_null(f);
	for (int i = 0; fgets(line, sizeof line, f) != NULL; i++) {
		if (i % EVERY != 0 || n_questions == MOST_ASKED)
			continue;
		json_t *row = json_loads(line, 0, NULL), *chat;
		assert_non_null(row);
		chat = json_pack("{s:[{s:s,s:O}]}", "messages", "role", "user", "content",
				 json_object_get(row, "question"));
		char *text = json_dumps(chat, JSON_COMPACT);
		assert_true(text != NULL && strlen(text) < sizeof questions[0]);
		snprintf(questions[n_questions++], sizeof questions[0], "%s", text);
		free(text);
		json_decref(chat);
		json_decref(row);
	}
	fclose(f);
	assert_true(n_questions > 50);
}

static struct proto_submit question(int i)
{
	struct proto_submit req = run_plain(questions[i], 64);
	req.prompt_kind = PROTO_PROMPT_CHAT;
	return req;
}

static struct proto_stats asked(const struct eng_config *cfg, struct answer *out, const struct answer *expect)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	for (int i = 0; i < n_questions; i++) {
		struct proto_submit req = question(i);
		out[i] = *run_one(&r, (uint64_t)i + 1, &req);
		if (expect != NULL)
			run_assert_same(&out[i], &expect[i]);
	}
	run_until_idle(&r);
	engine_stats(r.e, &s);
	run_stop(&r);
	return s;
}

/* The demonstration model's head saves a third of the steps of answers to questions that nothing was trained on, and
 * more. Steps are counted, each question is alone, and drafts have one length, so the figures are always the same. */
static void fewer_steps(void **state)
{
	(void)state;
	struct answer *out = calloc(2 * MOST_ASKED, sizeof *out);
	assert_non_null(out);
	read_questions();
	crowd_model[0].path = "etc/models/demo-large.gguf";
	crowd_model[0].head = "etc/models/demo-large-head.gguf";
	struct eng_config cfg = crowd_config();
	struct proto_stats plain = asked(&cfg, out, NULL);
	cfg = drafts_of(ENG_SPEC_HEAD, 6);
	struct proto_stats s = asked(&cfg, out + MOST_ASKED, out);
	crowd_model[0].head = NULL;
	print_message("%d questions: %u steps, with drafts %u; %llu of %llu tokens accepted\n", n_questions,
		      (unsigned)plain.steps, (unsigned)s.steps, (unsigned long long)s.spec_accepted,
		      (unsigned long long)s.spec_drafted);
	assert_true(2 * plain.steps >= 3 * s.steps);
	free(out);
}

/* Where drafts are right and wrong by turns: in batches, chunks and pages of other sizes. */
static void trained_in_every_way(void **state)
{
	(void)state;
	struct answer *expect = calloc(CROWD_MOST, sizeof *expect);
	assert_non_null(expect);
	crowd_model[0].path = "etc/models/demo-large.gguf";
	crowd_model[0].head = "etc/models/demo-large-head.gguf";
	crowd_kv_type = "f16";
	crowd_n = getenv("THOROUGH") != NULL ? 60 : 24;
	struct eng_config cfg = crowd_config();
	crowd_alone(&cfg, expect);
	in_every_way("demo-large", expect);
	crowd_model[0].head = NULL;
	free(expect);
}

enum { ADAPTERS = 2 };

static struct proto_submit adapted(int i)
{
	struct proto_submit req = crowd_request(i);
	req.model = (uint16_t)(i % (ADAPTERS + 1));
	return req;
}

/* The layer drafts for adapters of its model, which it knows nothing of. */
static void of_adapters(void **state)
{
	(void)state;
	static char names[ADAPTERS][16], paths[ADAPTERS][256];
	static struct answer expect[CROWD_MOST];
	struct eng_adapter_config adapters[ADAPTERS];
	struct sl_err err = {0};
	crowd_model[0].path = "etc/models/demo-large.gguf";
	crowd_model[0].head = "etc/models/demo-large-head.gguf";
	crowd_kv_type = "f16";
	crowd_n = 30;
	for (int i = 0; i < ADAPTERS; i++) {
		snprintf(names[i], sizeof names[i], "crowd:a%d", i);
		snprintf(paths[i], sizeof paths[i], "%s/a%d.gguf", dir, i);
		struct adapter_make m = {
		    .base = crowd_model[0].path, .out = paths[i], .type = KN_F32, .seed = (uint64_t)i + 1};
		for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
			m.ranks[t] = 4 << i;
			m.alphas[t] = 8;
		}
		if (adapter_make(&m, &err) != 0)
			fail_msg("%s", err.text);
		adapters[i] = (struct eng_adapter_config){.name = names[i], .path = paths[i]};
	}
	for (int with = 0; with < 2; with++) {
		struct run r;
		struct proto_stats s;
		struct eng_config cfg = with ? drafts_of(ENG_SPEC_HEAD, 5) : crowd_config();
		cfg.adapters = adapters;
		cfg.n_adapters = ADAPTERS;
		run_start(&r, &cfg);
		for (int i = 0; i < ADAPTERS; i++)
			RUN_UNTIL(&r, r.states[1 + i] == PROTO_MODEL_READY);
		for (int i = 0; i < crowd_n; i++) {
			struct proto_submit req = adapted(i);
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, CROWD_TOKENS);
		}
		for (int i = 0; i < crowd_n; i++) {
			const struct answer *a = run_until_done(&r, (uint64_t)i + 1);
			assert_int_equal(a->n_tokens, CROWD_TOKENS);
			if (with)
				run_assert_same(a, &expect[i]);
			else
				expect[i] = *a;
		}
		run_until_idle(&r);
		engine_stats(r.e, &s);
		assert_true(!with || (s.spec_drafts > 0 && s.spec_accepted > 0));
		run_stop(&r);
	}
	crowd_model[0].head = NULL;
}

static int set_up(void **state)
{
	int rc = setup(state);
	md_path(base_path, dir, base);
	md_path(whole_path, dir, whole);
	return rc;
}

static int tear_down(void **state)
{
	free(file);
	return teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(as_alone),     cmocka_unit_test(pre_empted),        cmocka_unit_test(long_answers),
	    cmocka_unit_test(on_demand),    cmocka_unit_test(of_its_own_file),   cmocka_unit_test(test_missing),
	    cmocka_unit_test(test_shapes),  cmocka_unit_test(test_other_models), cmocka_unit_test(not_needed),
	    cmocka_unit_test(test_mutated), cmocka_unit_test(fewer_steps),       cmocka_unit_test(trained_in_every_way),
	    cmocka_unit_test(of_adapters),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
