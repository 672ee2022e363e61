/* SPDX-License-Identifier: Apache-2.0
 *
 * The tier on disk below the engine, with a model without weights that notices any byte that is not where it was
 * (fake_model.h): every answer is the one that is given without a tier, whether pages come from memory, from disk, from
 * an earlier process's segments or from none, whatever is damaged, and nothing is left when everything ends.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine_requests.h"

static char folder[64];

static void empty_folder(void)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
	if (d != NULL)
		closedir(d);
}

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/sluice-kv-disk-XXXXXX");
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	fault_disarm_all();
	empty_folder();
	return rmdir(folder);
}

/* Memory for 208 tokens, less than two of the longest texts; disk for all. */
static struct eng_config with_disk(void)
{
	struct eng_config cfg = config();
	cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 1, 1, 8) * 52;
	cfg.kv_disk = folder;
	cfg.kv_disk_bytes = 64 << 20;
	cfg.kv_disk_always = true;
	return cfg;
}

static struct answer *answers_alone(void)
{
	struct answer *expect = calloc(MANY, sizeof *expect);
	assert_non_null(expect);
	alone(expect);
	return expect;
}

static struct proto_stats crowd(const struct eng_config *cfg, const struct answer *expect)
{
	struct run r;
	struct proto_stats s;
	run_start(&r, cfg);
	run_crowd(&r, cfg->n_models, MANY, nth_request, expect);
	engine_stats(r.e, &s);
	run_stop(&r);
	return s;
}

/* One after the other, so that each text's pages have left memory when it comes again. Returns the tokens that were
 * computed; *hits: pages from disk. */
static uint64_t in_turn(struct run *r, const struct answer *expect, uint64_t *hits)
{
	struct proto_stats before, after;
	engine_stats(r->e, &before);
	for (int i = 0; i < MANY; i++) {
		struct proto_submit req = nth_request(i);
		run_submit_again(r, 1, &req);
		run_credit(r, 1, 1000);
		run_assert_same(run_until_done(r, 1), &expect[i]);
	}
	engine_stats(r->e, &after);
	*hits = after.kv_disk_hits[0] - before.kv_disk_hits[0];
	return after.prefill_tokens - before.prefill_tokens;
}

/* Until everything that should be on disk is. */
static void written(struct run *r)
{
	struct proto_stats a, b;
	int same = 0;
	for (engine_stats(r->e, &a); same < 10; a = b) {
		usleep(30000);
		engine_stats(r->e, &b);
		same = b.kv_disk_written == a.kv_disk_written && b.kv_disk_written > 0 ? same + 1 : 0;
	}
}

/* Until what an earlier process wrote is found. */
static void found(struct run *r, uint64_t pages)
{
	struct proto_stats s = {0};
	for (int i = 0; i < 60000 && s.kv_disk_pages < pages; i++) {
		engine_stats(r->e, &s);
		usleep(1000);
	}
	assert_true(s.kv_disk_pages >= pages);
}

static void comes_back(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	struct run r;
	struct proto_stats s;
	uint64_t hits[3], computed[3];
	run_start(&r, &cfg);
	computed[0] = in_turn(&r, expect, &hits[0]);
	written(&r);
	computed[1] = in_turn(&r, expect, &hits[1]);
	engine_stats(r.e, &s);
	run_stop(&r);
	run_start(&r, &cfg);
	found(&r, s.kv_disk_pages);
	computed[2] = in_turn(&r, expect, &hits[2]);
	run_stop(&r);
	print_message("computed %llu, %llu, %llu tokens of prompts; %llu, %llu, %llu pages from disk\n",
		      (unsigned long long)computed[0], (unsigned long long)computed[1], (unsigned long long)computed[2],
		      (unsigned long long)hits[0], (unsigned long long)hits[1], (unsigned long long)hits[2]);
	assert_true(hits[1] > 300 && hits[2] > 300);
	assert_true(computed[1] * 4 < computed[0] && computed[2] * 4 < computed[0]);
	free(expect);
}

static void same_in_a_crowd(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	for (int how = 0; how < 4; how++) {
		struct eng_config cfg = with_disk();
		cfg.page_tokens = how == 1 ? 8 : 4;
		cfg.kv_disk_policy = how % 3;
		cfg.kv_disk_bytes = how == 3 ? 2 << 20 : 64 << 20; /* room for a quarter of them */
		cfg.kv_disk_segment = how == 3 ? 128 << 10 : 0;
		struct proto_stats s = {0};
		/* What an engine wrote is found while it already serves: the first prompts may come before. */
		for (int i = 0; i < 3 || (s.kv_disk_hits[how % 3] == 0 && i < 50); i++)
			s = crowd(&cfg, expect);
		assert_true(s.kv_disk_bytes <= cfg.kv_disk_bytes);
		assert_int_equal(s.kv_disk_errors[0] + s.kv_disk_errors[1] + s.kv_disk_errors[2], 0);
		assert_true(s.kv_disk_hits[how % 3] > 0);
		empty_folder();
	}
	free(expect);
}

static void same_in_turmoil(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	for (uint64_t seed = 1; seed <= (uint64_t)some_of(2, 6); seed++)
		turmoil(&cfg, expect, seed);
	/* As configured: read where it pays, and with deadlines. */
	cfg.kv_disk_always = false;
	atomic_store(&fake.step_us, 2000);
	for (uint64_t seed = 1; seed <= (uint64_t)some_of(1, 2); seed++)
		turmoil(&cfg, expect, seed);
	atomic_store(&fake.step_us, 0);
	free(expect);
}

/* Two models of other layouts share memory and disk, and trade slabs while pages are read. */
static void same_when_traded(void **state)
{
	(void)state;
	static const struct eng_model_config two[] = {{.name = "a", .path = "a.gguf"},
						      {.name = "b", .path = "two.gguf"}};
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	cfg.models = two;
	cfg.n_models = 2;
	cfg.kv_bytes = kv_page_bytes(KN_F16, 4, 2, 1, 8) * 104;
	for (uint64_t seed = 1; seed <= (uint64_t)some_of(2, 4); seed++)
		turmoil(&cfg, expect, seed);
	free(expect);
}

/* ---- what is on disk is not what it was ---- */

static void each_segment(void (*change)(int fd, uint64_t size))
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;
	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		struct stat st;
		if (strstr(e->d_name, ".kv") == NULL)
			continue;
		int fd = openat(dirfd(d), e->d_name, O_RDWR);
		assert_true(fd >= 0 && fstat(fd, &st) == 0);
		change(fd, (uint64_t)st.st_size);
		close(fd);
		n++;
	}
	closedir(d);
	assert_true(n > 0);
}

static void flip(int fd, uint64_t at)
{
	uint8_t byte = 0;
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

static void flip_payloads(int fd, uint64_t size)
{
	for (uint64_t at = 3 * 4096 - 4096; at < size; at += 8192)
		flip(fd, at + 7);
}

static void flip_heads(int fd, uint64_t size)
{
	for (uint64_t at = 4096; at < size; at += 8192)
		flip(fd, at + 150);
}

static void other_version(int fd, uint64_t size)
{
	(void)size;
	flip(fd, 8);
}

static void cut(int fd, uint64_t size) { assert_int_equal(ftruncate(fd, (off_t)(size / 2 + 100)), 0); }

static void other_secret(int fd, uint64_t size)
{
	char path[128];
	(void)fd, (void)size;
	snprintf(path, sizeof path, "%s/secret", folder);
	int of = open(path, O_RDWR);
	assert_int_equal(pwrite(of, "another installation's secret...", 32, 0), 32);
	close(of);
}

static void refuses(void (*change)(int fd, uint64_t size), bool some, uint64_t damaged)
{
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	struct run r;
	struct proto_stats s;
	uint64_t hits;
	empty_folder();
	run_start(&r, &cfg);
	in_turn(&r, expect, &hits);
	written(&r);
	run_stop(&r);
	each_segment(change);
	run_start(&r, &cfg);
	if (some)
		found(&r, 1);
	in_turn(&r, expect, &hits);
	engine_stats(r.e, &s);
	assert_int_equal(hits > 0, some);
	assert_true(s.kv_disk_errors[2] >= damaged);
	run_stop(&r);
	free(expect);
}

static void damaged_payloads(void **state)
{
	(void)state;
	refuses(flip_payloads, false, 10);
}

static void damaged_heads(void **state)
{
	(void)state;
	refuses(flip_heads, false, 0);
}

static void wrong_version(void **state)
{
	(void)state;
	refuses(other_version, false, 0);
}

static void truncated(void **state)
{
	(void)state;
	refuses(cut, true, 0);
}

static void foreign(void **state)
{
	(void)state;
	refuses(other_secret, false, 0);
}

/* Other weights of the same shape: nothing of the first ones is used. */
static void other_weights(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	struct run r;
	uint64_t hits;
	run_start(&r, &cfg);
	in_turn(&r, expect, &hits);
	written(&r);
	run_stop(&r);
	atomic_store(&fake.stamp, 1);
	run_start(&r, &cfg);
	in_turn(&r, expect, &hits);
	assert_int_equal(hits, 0);
	run_stop(&r);
	atomic_store(&fake.stamp, 0);
	free(expect);
}

/* ---- faults ---- */

/* Writing fails from the nth write on, for a while or for good; reading likewise. */
static void faulty_disk(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	static const enum fault_point points[] = {FAULT_WRITE, FAULT_READ};
	for (int i = 0; i < 12; i++) {
		struct run r;
		uint64_t hits;
		run_start(&r, &cfg);
		fault_arm(points[i % 2], 1 + i * 13, i < 6 ? 3 : 1000000);
		in_turn(&r, expect, &hits);
		in_turn(&r, expect, &hits);
		fault_disarm_all();
		run_stop(&r);
	}
	free(expect);
}

/* The folder is gone, or can't be used: service as without it. */
static void no_folder(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	struct run r;
	uint64_t hits;
	cfg.kv_disk = "/proc/self/nothing";
	run_start(&r, &cfg);
	in_turn(&r, expect, &hits);
	assert_int_equal(hits, 0);
	run_stop(&r);
	cfg.kv_disk = folder;
	assert_int_equal(chmod(folder, 0755), 0);
	run_start(&r, &cfg);
	in_turn(&r, expect, &hits);
	assert_int_equal(hits, 0);
	run_stop(&r);
	assert_int_equal(chmod(folder, 0700), 0);
	free(expect);
}

/* Pages of the pool run out while some are read. */
static void no_pages(void **state)
{
	(void)state;
	struct answer *expect = answers_alone();
	struct eng_config cfg = with_disk();
	for (int i = 0; i < 8; i++) {
		struct run r;
		uint64_t hits;
		run_start(&r, &cfg);
		fault_arm(FAULT_KV_PAGE, 1 + i * 11, 2 + i);
		in_turn(&r, expect, &hits);
		fault_disarm_all();
		run_stop(&r);
	}
	free(expect);
}

/* ---- erasing ---- */

static bool folder_has(const void *what, size_t n)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	bool has = false;
	while ((e = readdir(d)) != NULL) {
		struct stat st;
		int fd = openat(dirfd(d), e->d_name, O_RDONLY);
		if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
			close(fd);
			continue;
		}
		char *all = malloc((size_t)st.st_size + 1);
		assert_int_equal(pread(fd, all, (size_t)st.st_size, 0), st.st_size);
		has = has || memmem(all, (size_t)st.st_size, what, n) != NULL;
		free(all);
		close(fd);
	}
	closedir(d);
	return has;
}

/* A deleted conversation's tokens and pages leave the disk; those of other tenants stay. */
static void erased(void **state)
{
	(void)state;
	struct eng_config cfg = with_disk();
	struct run r;
	struct proto_stats s;
	static char mine[81], other[81];
	int32_t mine_ids[8], other_ids[8];
	memset(mine, 'm', 80);
	memset(other, 'o', 80);
	for (int i = 0; i < 8; i++) {
		mine_ids[i] = 'm';
		other_ids[i] = 'o';
	}
	struct proto_submit a = run_plain(mine, 4), b = run_plain(other, 4);
	a.tenant = 7;
	b.tenant = 8;
	cfg.page_tokens = 8;
	run_start(&r, &cfg);
	(void)run_one(&r, 1, &a);
	(void)run_one(&r, 2, &b);
	written(&r);
	assert_true(folder_has(mine_ids, sizeof mine_ids) && folder_has(other_ids, sizeof other_ids));
	engine_erase(r.e, &(struct proto_erase){.tenant = 7});
	for (int i = 0; i < 6000 && folder_has(mine_ids, sizeof mine_ids); i++)
		usleep(10000);
	assert_false(folder_has(mine_ids, sizeof mine_ids));
	engine_stats(r.e, &s);
	assert_int_equal(s.kv_disk_erased, 10);
	assert_true(folder_has(other_ids, sizeof other_ids));
	/* What leaves memory now is not written either; a later request's is. */
	run_stop(&r);
	assert_false(folder_has(mine_ids, sizeof mine_ids));
	run_start(&r, &cfg);
	found(&r, 10);
	(void)run_one(&r, 1, &b);
	(void)run_one(&r, 2, &a);
	engine_stats(r.e, &s);
	assert_int_equal(s.kv_disk_hits[0], 9); /* the other's */
	written(&r);
	assert_true(folder_has(mine_ids, sizeof mine_ids));
	run_stop(&r);
}

static void excluded(void **state)
{
	(void)state;
	static const char *const paths[] = {"windowed.gguf", "hybrid.gguf"};
	for (int i = 0; i < 2; i++) {
		struct eng_config cfg = with_disk();
		struct run r;
		struct proto_stats s;
		struct proto_submit req = nth_request(3);
		one_model[0].path = paths[i];
		cfg.kv_bytes *= 8;
		run_start(&r, &cfg);
		(void)run_one(&r, 1, &req);
		engine_stats(r.e, &s);
		assert_int_equal(s.kv_disk_written, 0);
		run_stop(&r);
		assert_int_equal(s.kv_disk_pages, 0);
	}
	one_model[0].path = "fake.gguf";
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(comes_back),       TEST(same_in_a_crowd),  TEST(same_in_turmoil),
					   TEST(same_when_traded), TEST(damaged_payloads), TEST(damaged_heads),
					   TEST(wrong_version),    TEST(truncated),        TEST(foreign),
					   TEST(other_weights),    TEST(faulty_disk),      TEST(no_folder),
					   TEST(no_pages),         TEST(erased),           TEST(excluded)};
	/* As where all memory is the host's. */
	fake_ops.page_out = NULL;
	fake_ops.page_in = NULL;
	fake_ops.host_alloc = NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
