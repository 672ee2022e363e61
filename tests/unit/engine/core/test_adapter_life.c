/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters that come, go and are replaced while the engine runs: by name, from folders, and into as many slots as there
 * are. Answers are those of an engine that always had the adapter; a replaced one never meets what the old one
 * computed. Run from the repository's root.
 */
#include "engine_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/adapter/adapter_make.h"
#include "engine/lora/lora.h"
#include "kernels/kernels.h"
#include "tests/support/model_dir_fixture.h"

enum { TOKENS = 12, ASK = 90, MANY = 6 };

static const char base[] = "etc/models/demo-small.gguf";
static const char prompt[] =
    "one two three four five, tell me of foxes and of hens: the river runs to the sea, the river";
static struct eng_model_config model[] = {{.name = "small", .path = base}};
static struct eng_adapter_folder folder;

static const char *fastest(void)
{
	const struct kn_ops *best = NULL;
	for (const struct kn_ops *const *o = kn_available(); *o != NULL; o++)
		if ((*o)->lora_shrink != NULL)
			best = *o;
	return best->name;
}

static struct eng_config config(void)
{
	folder = (struct eng_adapter_folder){.path = dir};
	return (struct eng_config){.models = model,
				   .n_models = 1,
				   .adapter_folders = &folder,
				   .n_adapter_folders = 1,
				   .adapter_turn_ms = 1,
				   .adapter_watch_ms = 5,
				   .backend = fastest(),
				   .kv_type = "f16",
				   .n_threads = 1,
				   .n_text_workers = 1,
				   .page_tokens = 16,
				   .kv_bytes = 16 << 20,
				   .max_sequences = 8,
				   .max_waiting = 64,
				   .step_tokens = 128,
				   .max_prompt_bytes = 1 << 20};
}

static const char *in_dir(const char *name)
{
	static char paths[8][256];
	static int next;
	char *path = paths[next++ % 8];
	md_path(path, dir, name);
	return path;
}

static void make_ranked(const char *name, uint64_t seed, int rank)
{
	struct sl_err err = {0};
	struct adapter_make m = {.base = base, .out = in_dir(name), .type = KN_BF16, .seed = seed, .replace = true};
	for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
		m.ranks[t] = rank;
		m.alphas[t] = 4 * rank;
	}
	if (adapter_make(&m, &err) != 0)
		fail_msg("%s", err.text);
}

static void make(const char *name, uint64_t seed) { make_ranked(name, seed, 4); }

/* The error of an ask; 0: it was done. */
static uint8_t ask(struct run *r, bool load, const char *name, const char *path)
{
	const struct proto_adapter a = {load, {name, strlen(name)}, {path, strlen(path)}};
	pthread_mutex_lock(&r->lock);
	r->answers[ASK] = (struct answer){0};
	pthread_mutex_unlock(&r->lock);
	assert_int_equal(engine_adapter(r->e, ASK, &a), 0);
	RUN_UNTIL(r, r->answers[ASK].counted);
	return r->answers[ASK].count.error;
}

static struct proto_submit request(uint16_t of)
{
	struct proto_submit req = run_plain(prompt, TOKENS);
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	req.model = of;
	return req;
}

/* What an engine answers that has had this file from its start, and nothing else. */
static struct answer *expected(const char *name)
{
	struct run r;
	struct answer *out = malloc(sizeof *out);
	struct eng_config cfg = config();
	struct eng_adapter_config one = {.name = "small:one", .path = in_dir(name)};
	cfg.adapters = &one;
	cfg.n_adapters = 1;
	cfg.n_adapter_folders = 0;
	struct proto_submit req = request(1);
	run_start(&r, &cfg);
	*out = *run_one(&r, 1, &req);
	assert_int_equal(out->n_tokens, TOKENS);
	run_stop(&r);
	return out;
}

static void assert_answers(struct run *r, uint16_t of, const struct answer *want)
{
	struct proto_submit req = request(of);
	run_assert_same(run_one(r, 1, &req), want);
}

static void assert_other(const struct answer *a, const struct answer *b)
{
	assert_memory_not_equal(a->logprobs, b->logprobs, TOKENS * sizeof(float));
}

static struct proto_stats stats_of(struct run *r)
{
	struct proto_stats s;
	engine_stats(r->e, &s);
	return s;
}

/* Loads, replaces and unloads by the same name, with answers under way. */
static void test_by_name(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	struct proto_model info;
	make("a.gguf", 1);
	struct answer *first = expected("a.gguf");
	make("b.gguf", 2);
	struct answer *second = expected("b.gguf");
	assert_other(first, second);
	run_start(&r, &cfg);
	assert_int_equal(engine_n_models(r.e), 1);
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	assert_int_equal(engine_n_models(r.e), 2);
	engine_model_info(r.e, 1, &info);
	assert_int_equal(info.state, PROTO_MODEL_READY);
	assert_int_equal(info.parent, 1);
	assert_true(info.name.n == 7 && memcmp(info.name.at, "small:x", 7) == 0);
	assert_int_equal(stats_of(&r).adapters_here, 0); /* nobody has asked for it */
	assert_answers(&r, 1, first);
	assert_int_equal(stats_of(&r).adapters_here, 1);

	/* One that runs keeps what it has. */
	struct proto_submit req = request(1);
	run_submit(&r, 2, &req);
	run_credit(&r, 2, TOKENS / 2);
	RUN_UNTIL(&r, r.answers[2].n_tokens == TOKENS / 2);
	assert_int_equal(ask(&r, true, "small:x", "b.gguf"), 0);
	assert_int_equal(engine_n_models(r.e), 2);
	assert_answers(&r, 1, second); /* and a new one has nothing of the old one's pages */
	assert_int_equal(r.answers[1].end.n_cached, 0);
	run_credit(&r, 2, TOKENS);
	run_assert_same(run_until_done(&r, 2), first);

	/* It keeps it without its name, too. */
	run_submit(&r, 2, &req);
	run_credit(&r, 2, TOKENS / 2);
	RUN_UNTIL(&r, r.answers[2].n_tokens == TOKENS / 2);
	assert_int_equal(ask(&r, false, "x", ""), 0);
	RUN_UNTIL(&r, r.states[1] == PROTO_MODEL_GONE);
	run_submit(&r, 3, &req);
	assert_int_equal(run_until_done(&r, 3)->end.error, PROTO_ERR_NO_MODEL);
	run_credit(&r, 2, TOKENS);
	run_assert_same(run_until_done(&r, 2), second);
	assert_int_equal(ask(&r, false, "x", ""), PROTO_ERR_NO_MODEL);

	/* The name gets its number again, and the first file's pages are its own. */
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	assert_int_equal(engine_n_models(r.e), 2);
	assert_answers(&r, 1, first);
	assert_true(r.answers[1].end.n_cached >= 16);
	run_until_idle(&r);
	run_stop(&r);
	free(first);
	free(second);
}

/* Same name, same path, same size and times: only the numbers differ. */
static void test_planted(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	struct stat st[2];
	cfg.share_prefixes = true;
	make("b.gguf", 2);
	struct answer *second = expected("b.gguf");
	make("a.gguf", 1);
	assert_int_equal(stat(in_dir("a.gguf"), &st[0]), 0);
	run_start(&r, &cfg);
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	struct proto_submit req = request(1);
	run_one(&r, 1, &req);
	run_one(&r, 1, &req);
	assert_true(r.answers[1].end.n_cached >= 16);
	assert_int_equal(rename(in_dir("b.gguf"), in_dir("a.gguf")), 0);
	const struct timespec times[2] = {st[0].st_atim, st[0].st_mtim};
	assert_int_equal(utimensat(AT_FDCWD, in_dir("a.gguf"), times, 0), 0);
	assert_int_equal(stat(in_dir("a.gguf"), &st[1]), 0);
	assert_int_equal(st[1].st_size, st[0].st_size);
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	assert_answers(&r, 1, second);
	assert_int_equal(r.answers[1].end.n_cached, 0);
	run_stop(&r);
	free(second);
}

/* Six adapters in two slots: each answers as alone, some wait, and never more than two are there. */
static void test_slots(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	struct answer *want[MANY];
	char name[16];
	cfg.adapter_slots = 2;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof name, "a%d.gguf", i);
		make(name, (uint64_t)i + 1);
		want[i] = expected(name);
	}
	run_start(&r, &cfg);
	for (int i = 0; i < MANY; i++) {
		char path[24];
		snprintf(name, sizeof name, "a%d", i);
		snprintf(path, sizeof path, "a%d.gguf", i);
		assert_int_equal(ask(&r, true, name, path), 0);
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 2 * MANY; i++) {
			struct proto_submit req = request((uint16_t)(1 + i % MANY));
			req.tenant = (uint64_t)(i / MANY);
			run_submit(&r, (uint64_t)i + 1, &req);
			run_credit(&r, (uint64_t)i + 1, TOKENS);
		}
		for (int i = 0; i < 2 * MANY; i++) {
			run_assert_same(run_until_done(&r, (uint64_t)i + 1), want[i % MANY]);
			assert_true(stats_of(&r).adapters_here <= 2);
		}
	}
	assert_true(stats_of(&r).adapter_loads >= 3 * MANY - 4);
	run_until_idle(&r);
	run_stop(&r);
	for (int i = 0; i < MANY; i++)
		free(want[i]);
}

/* While time is held: moves it until the request is done. */
static void until_done(struct run *r, uint64_t id, uint64_t ms)
{
	bool done = false;
	for (int i = 0; i < 100000 && !done; i++) {
		const struct timespec ts = {.tv_nsec = 1000000};
		run_clock_move(r, id, ms);
		nanosleep(&ts, NULL);
		pthread_mutex_lock(&r->lock);
		done = r->answers[id].done;
		pthread_mutex_unlock(&r->lock);
	}
	assert_true(done);
}

/* A reader that takes nothing holds the only slot: others wait for as long as is configured. */
static void test_wait(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	cfg.adapter_slots = 1;
	cfg.adapter_wait_ms = 60000;
	make("a.gguf", 1);
	make("b.gguf", 2);
	struct answer *first = expected("a.gguf"), *second = expected("b.gguf");
	run_start(&r, &cfg);
	assert_int_equal(ask(&r, true, "a", "a.gguf"), 0);
	assert_int_equal(ask(&r, true, "b", "b.gguf"), 0);
	struct proto_submit req = request(1);
	run_submit(&r, 2, &req);
	run_credit(&r, 2, 2);
	RUN_UNTIL(&r, r.answers[2].n_tokens == 2);
	struct proto_submit other = request(2);
	run_clock_hold(); /* from now on nothing is late but by the test */
	run_submit(&r, 3, &other);
	run_credit(&r, 3, TOKENS);
	RUN_UNTIL(&r, r.answers[3].queued);
	run_clock_move(&r, 3, 59000);
	until_done(&r, 3, 100);
	assert_int_equal(r.answers[3].end.error, PROTO_ERR_OVERLOADED);
	assert_non_null(strstr(r.answers[3].message, "adapter"));
	assert_int_equal(r.answers[3].n_tokens, 0);
	run_credit(&r, 2, TOKENS);
	until_done(&r, 2, 1);
	run_assert_same(&r.answers[2], first);
	run_submit(&r, 3, &other);
	run_credit(&r, 3, TOKENS);
	until_done(&r, 3, 1);
	run_assert_same(&r.answers[3], second);
	run_stop(&r);
	free(first);
	free(second);
}

/* What may not be loaded, by its reason; what served goes on. */
static void test_refused(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	char outside[128], deep[PROTO_MAX_PATH];
	md_make(outside);
	make("a.gguf", 1);
	struct answer *first = expected("a.gguf");
	make_ranked("large.gguf", 3, 64);
	cfg.adapter_memory = 1 << 20;
	assert_int_equal(mkdir(in_dir("sub"), 0700), 0);
	assert_int_equal(symlink(outside, in_dir("out")), 0);
	assert_int_equal(symlink("a.gguf", in_dir("in.gguf")), 0);
	md_text(dir, "bad.gguf", "GGUF");
	md_text(outside, "secret.gguf", "GGUF");
	snprintf(deep, sizeof deep, "%s/secret.gguf", outside);
	run_start(&r, &cfg);
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	const struct {
		const char *name, *path, *why;
		uint8_t error;
	} cases[] = {
	    {"x", "bad.gguf", "bad.gguf", PROTO_ERR_BAD_REQUEST},
	    {"x", "large.gguf", "engine.adapter_memory", PROTO_ERR_BAD_REQUEST},
	    {"x", "../a.gguf", "'..'", PROTO_ERR_BAD_REQUEST},
	    {"x", "sub/../a.gguf", "'..'", PROTO_ERR_BAD_REQUEST},
	    {"x", "sub/..", "'..'", PROTO_ERR_BAD_REQUEST},
	    {"x", "/etc/passwd", "in no folder", PROTO_ERR_NO_FOLDER},
	    {"x", deep, "in no folder", PROTO_ERR_NO_FOLDER},
	    {"x", "out/secret.gguf", "leads out", PROTO_ERR_BAD_REQUEST},
	    {"x", "none.gguf", "lora_path", PROTO_ERR_NO_MODEL},
	    {"x", "sub", "adapter_config.json", PROTO_ERR_BAD_REQUEST},
	    {"a b", "a.gguf", "lora_name", PROTO_ERR_BAD_ADAPTER_NAME},
	    {"a:b", "a.gguf", "lora_name", PROTO_ERR_BAD_ADAPTER_NAME},
	    {"\xff", "a.gguf", "lora_name", PROTO_ERR_BAD_ADAPTER_NAME},
	    {"small:", "a.gguf", "lora_name", PROTO_ERR_BAD_ADAPTER_NAME},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint8_t error = ask(&r, true, cases[i].name, cases[i].path);
		const char *text = r.answers[ASK].message;
		if (error != cases[i].error || strstr(text, cases[i].why) == NULL)
			fail_msg("%s: %u: %s", cases[i].path, error, text);
		assert_int_equal(engine_n_models(r.e), 2); /* nothing is listed that never served */
	}
	assert_int_equal(ask(&r, true, "link", "in.gguf"), 0);
	assert_answers(&r, 1, first);
	run_stop(&r);
	free(first);
	unlink(in_dir("out"));
	rmdir(in_dir("sub"));
	md_remove(outside);
}

/* Of the request for the adapter, by an engine that starts anew with this folder on disk; pages that it read there. */
static uint64_t from_disk(const char *disk, const struct answer *want)
{
	struct run r;
	struct eng_config cfg = config();
	cfg.kv_disk = disk;
	cfg.kv_disk_bytes = 64 << 20;
	cfg.kv_disk_always = true;
	run_start(&r, &cfg);
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	assert_answers(&r, 1, want);
	assert_answers(&r, 1, want);
	struct proto_stats s = stats_of(&r);
	for (int i = 0; i < 1000 && s.kv_disk_written + s.kv_disk_hits[0] == 0; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
		s = stats_of(&r);
	}
	assert_true(s.kv_disk_written + s.kv_disk_hits[0] > 0);
	run_stop(&r);
	return s.kv_disk_hits[0];
}

/* Pages on disk are of what an adapter had when they were computed, whatever its name has now. */
static void test_disk(void **arg)
{
	(void)arg;
	char disk[128];
	md_make(disk);
	make("a.gguf", 1);
	struct answer *first = expected("a.gguf");
	assert_int_equal(from_disk(disk, first), 0);
	assert_true(from_disk(disk, first) > 0);
	make("a.gguf", 2);
	struct answer *second = expected("a.gguf");
	assert_other(first, second);
	assert_int_equal(from_disk(disk, second), 0);
	assert_true(from_disk(disk, second) > 0);
	make("a.gguf", 1);
	assert_true(from_disk(disk, first) > 0);
	md_remove(disk);
	free(first);
	free(second);
}

/* Cut short or replaced while it is not in memory: nothing of it is used, nothing dies, and what replaced it serves. */
static void test_changed(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	struct stat st;
	cfg.adapter_slots = 1;
	make("b.gguf", 2);
	struct answer *second = expected("b.gguf");
	make("a.gguf", 1);
	run_start(&r, &cfg);
	assert_int_equal(ask(&r, true, "a", "a.gguf"), 0);
	assert_int_equal(stat(in_dir("a.gguf"), &st), 0);
	assert_int_equal(truncate(in_dir("a.gguf"), st.st_size / 2), 0);
	struct proto_submit req = request(1);
	assert_int_equal(run_one(&r, 1, &req)->end.error, PROTO_ERR_NOT_READY);
	RUN_UNTIL(&r, r.states[1] == PROTO_MODEL_FAILED);
	assert_non_null(strstr(r.reasons[1], "a.gguf"));
	assert_int_equal(ask(&r, true, "a", "a.gguf"), PROTO_ERR_BAD_REQUEST);
	assert_int_equal(rename(in_dir("b.gguf"), in_dir("a.gguf")), 0);
	assert_int_equal(ask(&r, true, "a", "a.gguf"), 0);
	assert_answers(&r, 1, second);
	/* In memory it does not depend on the file. */
	assert_int_equal(truncate(in_dir("a.gguf"), 10), 0);
	assert_answers(&r, 1, second);
	assert_int_equal(ask(&r, true, "a", "a.gguf"), PROTO_ERR_BAD_REQUEST);
	assert_answers(&r, 1, second); /* the old one stays */
	/* One that waits for a slot gets what replaced its adapter meanwhile. */
	make("c.gguf", 3);
	make("d.gguf", 4);
	struct answer *third = expected("c.gguf"), *fourth = expected("d.gguf");
	assert_int_equal(ask(&r, true, "c", "c.gguf"), 0);
	run_submit(&r, 2, &req);
	run_credit(&r, 2, 2);
	RUN_UNTIL(&r, r.answers[2].n_tokens == 2);
	struct proto_submit other = request(2);
	run_submit(&r, 3, &other);
	run_credit(&r, 3, TOKENS);
	RUN_UNTIL(&r, r.answers[3].queued);
	assert_int_equal(rename(in_dir("d.gguf"), in_dir("c.gguf")), 0);
	assert_int_equal(ask(&r, true, "c", "c.gguf"), 0);
	run_credit(&r, 2, TOKENS);
	run_assert_same(run_until_done(&r, 2), second);
	run_assert_same(run_until_done(&r, 3), fourth);
	assert_other(third, fourth);
	run_stop(&r);
	free(second);
	free(third);
	free(fourth);
}

/* What is in a watched folder is served by its name, replaced and removed with it. */
static void test_watched(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	make("b.gguf", 2);
	struct answer *second = expected("b.gguf");
	assert_int_equal(rename(in_dir("b.gguf"), in_dir("hidden")), 0);
	make("a.gguf", 1);
	struct answer *first = expected("a.gguf");
	folder.watched = true; /* expected() has one of its own */
	run_start(&r, &cfg);
	RUN_UNTIL(&r, r.states[1] == PROTO_MODEL_READY);
	assert_answers(&r, 1, first);
	assert_int_equal(rename(in_dir("hidden"), in_dir("a.gguf")), 0);
	struct proto_submit req = request(1);
	for (uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S; clock_now_ns() < until;) {
		const struct answer *a = run_one(&r, 1, &req);
		if (memcmp(a->logprobs, second->logprobs, sizeof(float) * TOKENS) == 0)
			break;
		run_assert_same(a, first); /* until it has been seen */
	}
	assert_answers(&r, 1, second);
	unlink(in_dir("a.gguf"));
	RUN_UNTIL(&r, r.states[1] == PROTO_MODEL_GONE);
	run_submit(&r, 2, &req);
	assert_int_equal(run_until_done(&r, 2)->end.error, PROTO_ERR_NO_MODEL);
	run_stop(&r);
	free(first);
	free(second);
}

/* Loads and unloads without end: names that failed or came back cost nothing, and the table's end is an answer. */
static void test_flood(void **arg)
{
	(void)arg;
	enum { CALLS = 3000 };
	struct run r;
	struct eng_config cfg = config();
	char name[32];
	int n_full = 0, n_loaded = 0;
	make_ranked("a.gguf", 1, 1);
	struct answer *first = expected("a.gguf");
	run_start(&r, &cfg);
	assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	for (int i = 0; i < CALLS; i++) {
		snprintf(name, sizeof name, "n%d", i);
		if (i % 8 != 0) {
			assert_int_equal(ask(&r, true, name, "none.gguf"), PROTO_ERR_NO_MODEL);
			continue;
		}
		uint8_t error = ask(&r, true, name, "a.gguf");
		n_full += error == PROTO_ERR_OVERLOADED;
		n_loaded += error == 0;
		assert_true(error == 0 || error == PROTO_ERR_OVERLOADED);
		if (error == 0)
			assert_int_equal(ask(&r, false, name, ""), 0);
	}
	assert_true(n_full > 0 && n_loaded == PROTO_MAX_MODELS - 2);
	assert_answers(&r, 1, first);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(ask(&r, false, "x", ""), 0);
		assert_int_equal(ask(&r, true, "x", "a.gguf"), 0);
	}
	assert_answers(&r, 1, first);
	run_stop(&r);
	free(first);
}

/* Asks of several engines' threads at once: each has one answer, also those that the end of the engine cuts off. */
static void test_end(void **arg)
{
	(void)arg;
	struct run r;
	struct eng_config cfg = config();
	make("a.gguf", 1);
	run_start(&r, &cfg);
	int n = 0;
	for (uint64_t i = 1; i <= 80; i++) {
		const struct proto_adapter a = {true, {"x", 1}, {"a.gguf", 6}};
		n += engine_adapter(r.e, i, &a) == 0;
	}
	assert_true(n >= 64);
	engine_destroy(r.e);
	for (int i = 1; i <= 80; i++)
		n -= r.answers[i].counted;
	assert_int_equal(n, 0);
	run_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_by_name, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_planted, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_slots, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_wait, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_disk, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_watched, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_flood, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_end, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
