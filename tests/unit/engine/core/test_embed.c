/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings through the engine's own door: the same bits alone and among others, in other chunks and after a hit of
 * the prefix tree or a pre-emption; encoders compute a text at once; what is refused, and with which error.
 */
#include "engine_run.h"

#include <unistd.h>

#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/random_model.h"

enum { N = 16, WIDTH = 256, MEAN = 0, LAST = 1, BERT = 2, RANK = 3, N_MODELS = 4 };

static char paths[3][40] = {"/tmp/sluice-embed-a-XXXXXX", "/tmp/sluice-embed-b-XXXXXX", "/tmp/sluice-embed-c-XXXXXX"};
static const struct eng_model_config models[N_MODELS] = {
    {.name = "mean", .path = paths[0], .pooling = "mean"},
    {.name = "last", .path = paths[0], .pooling = "last"},
    {.name = "bert", .path = paths[1]},
    {.name = "rank", .path = paths[2]},
};
static char texts[N][600];

static struct eng_config config(void)
{
	return (struct eng_config){.models = models,
				   .n_models = N_MODELS,
				   .backend = "auto",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 64 << 20,
				   .max_sequences = N,
				   .max_waiting = 4 * N,
				   .step_tokens = 64,
				   .max_prompt_bytes = 1 << 20};
}

static struct proto_submit request(int model, const char *text)
{
	struct proto_submit req = run_plain(text, 1);
	req.model = (uint16_t)model;
	req.flags = PROTO_SUBMIT_EMBED;
	req.n_top_logprobs = 0;
	req.prompt_kind = PROTO_PROMPT_INPUT;
	return req;
}

/* Every text of a model at once. */
static void all_of(struct run *r, int model, struct answer *out)
{
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(model, texts[i]);
		run_submit(r, (uint64_t)i + 1, &req);
	}
	for (int i = 0; i < N; i++)
		run_credit(r, (uint64_t)i + 1, 1);
	for (int i = 0; i < N; i++)
		out[i] = *run_until_done(r, (uint64_t)i + 1);
}

static void assert_same_vectors(const struct answer *a, const struct answer *b)
{
	for (int i = 0; i < N; i++) {
		assert_int_equal(a[i].end.finish, PROTO_FINISH_STOP);
		assert_int_equal(a[i].end.n_completion, 0);
		assert_int_equal(a[i].n_embedding, WIDTH);
		assert_int_equal(a[i].end.n_prompt, b[i].end.n_prompt);
		assert_memory_equal(a[i].embedding, b[i].embedding, sizeof a[i].embedding);
	}
}

static struct answer alone[BERT + 1][N];

static void assert_same_as_alone(struct run *r, int model, uint32_t *cached)
{
	static struct answer got[N];
	all_of(r, model, got);
	assert_same_vectors(got, alone[model]);
	for (int i = 0; i < N; i++)
		*cached += got[i].end.n_cached;
}

static void vectors_depend_on_their_text_only(void **state)
{
	struct run r;
	struct eng_config cfg = config();
	uint32_t cached;
	(void)state;
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	for (int i = 0; i < (BERT + 1) * N; i++) {
		struct proto_submit req = request(i / N, texts[i % N]);
		alone[i / N][i % N] = *run_one(&r, 1, &req);
	}
	run_stop(&r);
	/* Together, and again, when the tree has the prompts. */
	cfg = config();
	run_start(&r, &cfg);
	for (int model = MEAN; model <= BERT; model++) {
		cached = 0;
		for (int again = 0; again < 2; again++)
			assert_same_as_alone(&r, model, &cached);
		/* Only where rows before a hit are neither summed nor see what follows them. */
		assert_true(model == LAST ? cached > 100 : cached == 0);
	}
	run_until_idle(&r);
	run_stop(&r);
	/* Other chunks, other numbers of threads. */
	for (int k = 0; k < 2; k++) {
		cfg.step_tokens = k == 0 ? 7 : 512;
		cfg.n_threads = k == 0 ? 2 : 3;
		cfg.page_tokens = k == 0 ? 8 : 32;
		run_start(&r, &cfg);
		for (int model = MEAN; model <= BERT; model++)
			assert_same_as_alone(&r, model, &cached);
		run_stop(&r);
	}
}

/* With keys and values rounded in the pages, the rows after a hit see the same as those that were computed with it. */
static void hits_change_no_rounded_vector(void **state)
{
	static struct answer first[N], again[N];
	struct run r;
	struct eng_config cfg = config();
	uint32_t cached = 0;
	(void)state;
	cfg.kv_type = "f16";
	run_start(&r, &cfg);
	all_of(&r, LAST, first);
	all_of(&r, LAST, again);
	assert_same_vectors(again, first);
	for (int i = 0; i < N; i++)
		cached += again[i].end.n_cached;
	assert_true(cached > 100);
	run_stop(&r);
	/* Without a name the type is float32 for these models. */
	assert_memory_not_equal(first[0].embedding, alone[LAST][0].embedding, sizeof first[0].embedding);
}

/* The rows that texts cost: each token once, whether they come together or as the prompts of answers. */
static void texts_cost_their_prefill(void **state)
{
	struct run r;
	struct eng_config cfg = config();
	struct proto_stats before, stats;
	struct answer got[N];
	(void)state;
	cfg.no_prefix_cache = true;
	run_start(&r, &cfg);
	for (int model = MEAN; model <= BERT; model++) {
		uint64_t tokens = 0;
		engine_stats(r.e, &before);
		all_of(&r, model, got);
		run_until_idle(&r);
		engine_stats(r.e, &stats);
		for (int i = 0; i < N; i++)
			tokens += got[i].end.n_prompt;
		assert_int_equal(stats.prefill_tokens - before.prefill_tokens, tokens);
		assert_int_equal(stats.decode_tokens, before.decode_tokens);
		assert_true(stats.steps - before.steps <= N + tokens / (uint64_t)cfg.step_tokens);
	}
	run_stop(&r);
}

/* Texts and answers in the same steps: neither changes the other. */
static void texts_join_answers(void **state)
{
	struct run r;
	struct eng_config cfg = config();
	struct proto_submit chat = run_plain("one two three", 40), text = request(MEAN, texts[3]);
	(void)state;
	chat.flags |= PROTO_SUBMIT_IGNORE_EOS;
	run_start(&r, &cfg);
	struct answer said = *run_one(&r, 1, &chat), vector = *run_one(&r, 2, &text);
	run_submit(&r, 3, &chat);
	run_credit(&r, 3, 1);
	RUN_UNTIL(&r, r.answers[3].n_tokens == 1);
	run_submit(&r, 4, &text);
	run_credit(&r, 4, 1);
	run_credit(&r, 3, 39);
	run_assert_same(run_until_done(&r, 3), &said);
	assert_memory_equal(run_until_done(&r, 4)->embedding, vector.embedding, sizeof vector.embedding);
	run_stop(&r);
}

/* Memory for few of them, of mixed priorities: those that wait, or are pre-empted and begin their sums again. */
static void little_memory_changes_nothing(void **state)
{
	static struct answer want[N], got[N];
	struct eng_config cfg = config();
	struct model_info info;
	struct sl_err err;
	struct proto_stats stats;
	struct run r;
	(void)state;
	cfg.n_models = 1;
	cfg.no_prefix_cache = true;
	assert_int_equal(model_inspect(paths[0], &info, &err), 0);
	cfg.kv_type = "f32";
	cfg.step_tokens = 16;
	cfg.kv_bytes = 70 * kv_page_bytes(KN_F32, 16, info.arch.n_layers, info.arch.n_kv_heads, info.arch.head_dim);
	run_start(&r, &cfg);
	all_of(&r, MEAN, want);
	run_until_idle(&r);
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(MEAN, texts[i]);
		req.priority = (uint8_t)(N - i) % 4;
		run_submit(&r, (uint64_t)i + 1, &req);
		run_credit(&r, (uint64_t)i + 1, 1);
	}
	for (int i = 0; i < N; i++)
		got[i] = *run_until_done(&r, (uint64_t)i + 1);
	assert_same_vectors(got, want);
	assert_same_vectors(want, alone[MEAN]);
	run_until_idle(&r);
	engine_stats(r.e, &stats);
	assert_int_equal(stats.running + stats.waiting, 0);
	run_stop(&r);
}

static void pair(char *out, size_t *n, const char *a, const char *b)
{
	uint32_t bytes = (uint32_t)strlen(a);
	for (int i = 0; i < 4; i++)
		out[i] = (char)(bytes >> (8 * i));
	*n = 4 + (size_t)sprintf(out + 4, "%s%s", a, b);
}

static void pairs_are_scored(void **state)
{
	struct run r;
	struct eng_config cfg = config();
	char both[256], swapped[256];
	struct proto_submit req = request(RANK, "");
	(void)state;
	req.prompt_kind = PROTO_PROMPT_PAIR;
	run_start(&r, &cfg);
	pair(both, &req.prompt.n, "who is it", "it is a fox");
	req.prompt.at = both;
	struct answer first = *run_one(&r, 1, &req);
	assert_int_equal(first.n_embedding, 1);
	/* Each word is one token here or two, and there are [CLS] and two [SEP]. */
	assert_true(first.end.n_prompt > 10);
	struct answer again = *run_one(&r, 2, &req);
	assert_memory_equal(first.embedding, again.embedding, sizeof(float));
	pair(swapped, &req.prompt.n, "it is a fox", "who is it");
	req.prompt.at = swapped;
	assert_true(run_one(&r, 3, &req)->embedding[0] != first.embedding[0]);
	/* A length that the prompt has not. */
	both[3] = 1;
	req.prompt.at = both;
	assert_int_equal(run_one(&r, 4, &req)->end.error, PROTO_ERR_BAD_REQUEST);
	req.prompt.n = 3;
	assert_int_equal(run_one(&r, 5, &req)->end.error, PROTO_ERR_BAD_REQUEST);
	run_stop(&r);
}

static void expect_refused(struct run *r, const struct proto_submit *req, uint8_t error, const char *why)
{
	const struct answer *a = run_one(r, 9, req);
	assert_int_equal(a->end.error, error);
	assert_int_equal(a->n_embedding, 0);
	if (strstr(a->message, why) == NULL)
		fail_msg("%s", a->message);
}

static void what_is_refused(void **state)
{
	struct run r;
	struct eng_config cfg = config();
	struct proto_submit chat = run_plain("hello", 3), req = request(RANK, "hello");
	char *longer = calloc(1, 4000);
	(void)state;
	run_start(&r, &cfg);
	struct proto_model info;
	engine_model_info(r.e, BERT, &info);
	assert_int_equal(info.does, PROTO_DOES_EMBED);
	assert_int_equal(info.n_embd, WIDTH);
	assert_int_equal(info.n_ctx, 256); /* though a step has 64 tokens of others */
	chat.model = BERT;
	expect_refused(&r, &chat, PROTO_ERR_BAD_REQUEST, "does not generate text");
	expect_refused(&r, &req, PROTO_ERR_BAD_REQUEST, "does not make embeddings");
	char both[64];
	req = request(MEAN, "");
	req.prompt_kind = PROTO_PROMPT_PAIR;
	pair(both, &req.prompt.n, "a", "b");
	req.prompt.at = both;
	expect_refused(&r, &req, PROTO_ERR_BAD_REQUEST, "does not score pairs");
	/* As long as the context, with [CLS] and [SEP], and one longer. */
	for (int i = 0; i < 254; i++)
		strcat(longer, "b ");
	req = request(BERT, longer);
	assert_int_equal(run_one(&r, 9, &req)->end.n_prompt, 256);
	assert_int_equal(r.answers[9].n_embedding, WIDTH);
	strcat(longer, "b");
	req = request(BERT, longer);
	expect_refused(&r, &req, PROTO_ERR_CONTEXT_LENGTH, "your input has 257 tokens");
	free(longer);
	run_stop(&r);
}

static int write_model(const char *path, const char *shape)
{
	struct sl_err err = {0};
	struct convert_progress p = {0};
	struct random_model r = {.path = path, .name = "random", .seed = 3, .n_threads = 2};
	return random_shape_find(shape, &r.arch, &err) != 0 || weight_plan_parse("f32", &r.plan, &err) != 0 ||
	       random_model_write(&r, &p, &err) != 0;
}

static int setup(void **state)
{
	static const char *const shapes[] = {"tiny-llama", "tiny-bert", "tiny-reranker"};
	(void)state;
	for (int i = 0; i < 3; i++) {
		int fd = mkstemp(paths[i]);
		if (fd < 0 || write_model(paths[i], shapes[i]) != 0)
			return -1;
		close(fd);
	}
	/* Half of them begin alike; from one word to more than two steps. */
	for (int i = 0; i < N; i++) {
		size_t n = 0, length = 4 + (size_t)(i * 37) % 220;
		if (i % 2 == 0)
			n = (size_t)snprintf(texts[i], sizeof texts[i], "all of these texts begin alike and go on ");
		while (n < length)
			n += (size_t)snprintf(texts[i] + n, sizeof texts[i] - n, "%c%c ",
					      'a' + (int)(n + (size_t)i) % 26, 'a' + (i * 7) % 26);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		unlink(paths[i]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(vectors_depend_on_their_text_only),
	    cmocka_unit_test(hits_change_no_rounded_vector),
	    cmocka_unit_test(texts_cost_their_prefill),
	    cmocka_unit_test(texts_join_answers),
	    cmocka_unit_test(little_memory_changes_nothing),
	    cmocka_unit_test(pairs_are_scored),
	    cmocka_unit_test(what_is_refused),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
