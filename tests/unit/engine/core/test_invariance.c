/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request says does not depend on anything but itself: greedy and seeded answers of the small
 * demonstration model, and of a mixture of experts, their log probabilities bit for bit, alone, among 31 others, in
 * other chunks, on other numbers of threads, after a prefix hit, after a pre-emption, after a credit stall, and with
 * pages that another engine left on disk. Run from the repository's root.
 */
#include "engine_run.h"

#include <unistd.h>

#include "engine/kv/kv.h"
#include "kernels/kv_type.h"
#include "kernels/kernels.h"
#include "tests/support/backends.h"
#include "tests/support/random_file.h"

enum { N = 32, TOKENS = 24 };

static struct eng_model_config model[] = {{.name = "small", .path = "etc/models/demo-small.gguf"}};
static char prompts[N][1400];
static size_t longest = 1200; /* characters, more or less */
static const char *backend, *kv_type;

static struct eng_config config(void)
{
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .backend = backend,
				   .kv_type = kv_type,
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 256 << 20,
				   .max_sequences = N,
				   .max_waiting = 2 * N,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

/* Half of them begin alike; from a few tokens to, one of four, more than an attention block. */
static struct proto_submit request(int i)
{
	char *at = prompts[i];
	size_t n = 0, length = 10 + (size_t)(i * 97) % (i % 4 == 0 ? longest : longest / 6);
	if (i % 2 == 0)
		n = (size_t)snprintf(at, sizeof prompts[i], "You are a careful helper who answers in one sentence. ");
	run_say(at, sizeof prompts[i], n, length, 0, (size_t)i);
	struct proto_submit req = run_plain(at, TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.temperature = i % 3 == 0 ? 0 : 0.8f;
	req.top_p = i % 5 == 0 ? 0.9f : 1;
	req.seed = 1000 + (uint64_t)i;
	req.tenant = (uint64_t)i % 3;
	return req;
}

static void each_alone(struct answer *out)
{
	struct eng_config cfg = config();
	cfg.no_prefix_cache = true;
	run_each_alone(&cfg, N, request, out);
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i].n_tokens, TOKENS);
}

static void all_at_once(struct run *r, const struct answer *expect)
{
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(i);
		run_submit(r, (uint64_t)i + 1, &req);
	}
	for (int i = 0; i < N; i++)
		run_credit(r, (uint64_t)i + 1, TOKENS);
	for (int i = 0; i < N; i++)
		run_assert_same(run_until_done(r, (uint64_t)i + 1), &expect[i]);
}

static uint64_t preempted(struct run *r)
{
	struct proto_stats s;
	run_until_idle(r);
	engine_stats(r->e, &s);
	return s.preemptions;
}

static void in_turn(struct run *r, int n, const struct answer *expect)
{
	for (int i = 0; i < n; i++) {
		struct proto_submit req = request(i);
		run_submit(r, (uint64_t)i + 1, &req);
		run_credit(r, (uint64_t)i + 1, TOKENS);
		run_assert_same(run_until_done(r, (uint64_t)i + 1), &expect[i]);
	}
}

/* Pages of an engine that has ended come from disk: of the first prompts, which come in turn, all that was written; of
 * the others, which come at once, as many as there is room for, while the rest is computed in the same steps. */
static void from_disk(const struct answer *expect)
{
	struct run r;
	struct proto_stats s = {0};
	struct eng_config cfg = config();
	char folder[300], command[400];
	if (named_backend() != NULL)
		return; /* a device's, which are not stored */
	snprintf(folder, sizeof folder, "%s/kv", dir);
	cfg.kv_disk = folder;
	cfg.kv_disk_bytes = 256 << 20;
	cfg.kv_disk_always = true;
	for (int k = 0; k < 2; k++) {
		uint64_t pages = s.kv_disk_pages;
		run_start(&r, &cfg);
		do { /* what the first one wrote is found */
			usleep(1000);
			engine_stats(r.e, &s);
		} while (s.kv_disk_pages < pages);
		if (k == 1)
			in_turn(&r, N / 4, expect);
		all_at_once(&r, expect);
		run_until_idle(&r);
		do {
			pages = s.kv_disk_written;
			usleep(300000);
			engine_stats(r.e, &s);
		} while (k == 0 && (s.kv_disk_written == 0 || s.kv_disk_written != pages));
		run_stop(&r);
	}
	assert_true(s.kv_disk_hits[0] > 0);
	assert_int_equal(s.kv_disk_errors[2], 0);
	print_message("%s, KV in %s: %llu pages from disk\n", backend, kv_type, (unsigned long long)s.kv_disk_hits[0]);
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void check(const struct answer *expect)
{
	struct run r;
	struct eng_config cfg = config();

	/* Among 31 others, and again: then every prompt is there already. */
	run_start(&r, &cfg);
	all_at_once(&r, expect);
	uint32_t cached = 0;
	all_at_once(&r, expect);
	for (int i = 0; i < N; i++)
		cached += r.answers[i + 1].end.n_cached;
	assert_true(cached > 1000);
	assert_int_equal(preempted(&r), 0);

	/* Credit that comes one by one, from request to request. */
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(i);
		run_submit(&r, (uint64_t)i + 1, &req);
	}
	for (int k = 0; k < TOKENS; k++)
		for (int i = 0; i < N; i++) {
			run_credit(&r, (uint64_t)i + 1, 1);
			if (i % 8 == 0)
				RUN_UNTIL(&r, r.answers[i + 1].n_tokens == (uint32_t)k + 1);
		}
	for (int i = 0; i < N; i++)
		run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	run_stop(&r);

	/* Other chunks, other numbers of threads. */
	for (int k = 0; k < 2; k++) {
		cfg.step_tokens = k == 0 ? 17 : 300;
		cfg.n_threads = k == 0 ? 2 : 3;
		cfg.page_tokens = k == 0 ? 8 : 32;
		run_start(&r, &cfg);
		all_at_once(&r, expect);
		run_stop(&r);
	}

	/* Memory for a few of them: the others are pre-empted and computed again. */
	cfg = config();
	cfg.kv_bytes = 0;
	struct model_info info;
	struct sl_err err;
	assert_int_equal(model_inspect(model[0].path, &info, &err), 0);
	cfg.kv_bytes = 40 * kv_page_bytes(kn_kv_type_from_name(kv_type), 16, info.arch.n_layers, info.arch.n_kv_heads,
					  info.arch.head_dim);
	run_start(&r, &cfg);
	for (int i = 0; i < N; i++) {
		struct proto_submit req = request(i);
		req.priority = (uint8_t)(i % 4); /* the better ones take from the worse */
		run_submit(&r, (uint64_t)i + 1, &req);
		run_credit(&r, (uint64_t)i + 1, TOKENS / 2); /* who has no credit loses its pages first */
	}
	for (int i = N - 1; i >= 0; i--)
		run_credit(&r, (uint64_t)i + 1, TOKENS);
	for (int i = 0; i < N; i++)
		run_assert_same(run_until_done(&r, (uint64_t)i + 1), &expect[i]);
	uint64_t n = preempted(&r);
	print_message("%s, KV in %s: %u prompt tokens came from the tree, %llu pre-emptions\n", backend, kv_type,
		      cached, (unsigned long long)n);
	assert_true(n > 0);
	run_stop(&r);
	from_disk(expect);
}

/* On each backend, keys and values of one type and the other in turn; of both on what this machine would choose and,
 * with THOROUGH or of a named backend, on all. */
static void nothing_else_counts(void **state)
{
	(void)state;
	struct sl_err err;
	const char *chosen = kn_select("auto", &err)->name;
	struct answer *expect = calloc(N, sizeof *expect);
	int turn = 0;
	assert_non_null(expect);
	for (const struct kn_ops *const *o = tested_backends(); *o != NULL; o++) {
		backend = (*o)->name;
		if (strcmp(backend, "cpu-ref") == 0)
			continue; /* the plain oracle: slow, one thread */
		static const char *const types[] = {"f16", "q8"};
		bool both = strcmp(backend, chosen) == 0 || named_backend() != NULL || getenv("THOROUGH") != NULL;
		for (int i = 0; i < 2; i++) {
			if (!both && i != turn)
				continue;
			kv_type = types[i];
			each_alone(expect);
			check(expect);
		}
		turn = !turn;
	}
	free(expect);
}

/* Rows of a step that other experts compute than their neighbours. */
static void experts(void **state)
{
	(void)state;
	char path[256];
	struct sl_err err = {0};
	struct answer *expect = calloc(N, sizeof *expect);
	struct model_arch a = random_arch("tiny-qwen3moe");
	assert_non_null(expect);
	a.n_ctx = 4096;
	random_file_of("experts.gguf", &a, "q8_0", 5, 2);
	md_path(path, dir, "experts.gguf");
	model[0].path = path;
	longest = 450; /* its tokens are shorter */
	backend = kn_select("auto", &err)->name;
	kv_type = "f16";
	each_alone(expect);
	check(expect);
	free(expect);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_else_counts), cmocka_unit_test(experts)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
