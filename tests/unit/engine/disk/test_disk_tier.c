/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages written come back byte for byte, from this process's segments and from those of one that ended or was killed;
 * what is torn, changed or another's is refused; the limits hold; what is erased is on no disk.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <xxhash.h>

#include "base/fault.h"
#include "engine/disk/disk_tier.h"

enum { TOKENS = 16, HALF = 6000, MAX = 4096 };

static char folder[64];
static struct disk_tier *tier;

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/sluice-disk-XXXXXX");
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	(void)state;
	fault_disarm_all();
	disk_tier_close(tier);
	tier = NULL;
	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL)
		closedir(d);
	(void)rmdir(folder);
	return 0;
}

static struct disk_tier_config config(void)
{
	return (struct disk_tier_config){
	    .folder = folder, .max_bytes = 64 << 20, .queue_bytes = 64 << 20, .retry_ms = 1};
}

static void open_tier(const struct disk_tier_config *cfg)
{
	struct sl_err err = {0};
	disk_tier_close(tier);
	tier = NULL;
	assert_int_equal(disk_tier_open(cfg, &tier, &err), 0);
	disk_tier_settle(tier);
}

/* Page i of text t. */
struct page {
	int32_t tokens[TOKENS];
	uint8_t k[HALF], v[HALF];
	struct disk_page page;
};

static const struct page *page_of(uint32_t t, uint32_t i)
{
	static struct page p;
	struct disk_key model = {.lo = 5, .hi = 6}, at = disk_key_root(model, (struct disk_key){0}, t);
	for (uint32_t k = 0; k <= i; k++) {
		for (int n = 0; n < TOKENS; n++)
			p.tokens[n] = (int32_t)(t * 1000 + k * 17 + (uint32_t)n);
		p.page.parent = at;
		at = disk_key_next(at, p.tokens, TOKENS);
	}
	uint32_t random = t * 100003 + i;
	for (int n = 0; n < HALF; n++) {
		random = random * 1664525 + 1013904223;
		p.k[n] = (uint8_t)(random >> 24);
		p.v[n] = (uint8_t)(random >> 16);
	}
	p.page = (struct disk_page){.model = model,
				    .key = at,
				    .parent = p.page.parent,
				    .tokens = p.tokens,
				    .n_tokens = TOKENS,
				    .depth = i + 1,
				    .owner = t};
	return &p;
}

static void write_page(uint32_t t, uint32_t i)
{
	const struct page *p = page_of(t, i);
	assert_int_equal(disk_tier_write(tier, &p->page, p->k, p->v, HALF), 0);
}

static bool is_there(uint32_t t, uint32_t i) { return disk_tier_has(tier, page_of(t, i)->page.key); }

static void on_done(struct disk_read *r) { atomic_store((atomic_bool *)r->ctx, true); }

static bool read_page(uint32_t t, uint32_t i)
{
	static uint8_t k[HALF], v[HALF];
	atomic_bool done = false;
	struct page p = *page_of(t, i);
	p.page.tokens = p.tokens;
	struct disk_read r = {.pages = &p.page,
			      .k = (void *[]){k},
			      .v = (void *[]){v},
			      .n = 1,
			      .half = HALF,
			      .done = on_done,
			      .ctx = &done};
	if (disk_tier_read(tier, &r) != 0)
		return false;
	while (!atomic_load(&done))
		usleep(100);
	disk_tier_stop(tier, &r);
	if (r.n_done == 1) {
		assert_memory_equal(k, p.k, HALF);
		assert_memory_equal(v, p.v, HALF);
	}
	return r.n_done == 1;
}

/* Whether the page comes, and is what it was. A read of a page that is just being moved finds nothing; the next one
 * does. */
static bool comes(uint32_t t, uint32_t i)
{
	if (read_page(t, i))
		return true;
	disk_tier_settle(tier);
	return is_there(t, i) && read_page(t, i);
}

static uint64_t figure(const atomic_ullong *f) { return atomic_load(f); }

static void comes_back(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	open_tier(&cfg);
	for (uint32_t i = 0; i < 50; i++)
		write_page(1, i);
	write_page(1, 3); /* again: nothing */
	disk_tier_settle(tier);
	assert_int_equal(figure(&disk_tier_stats(tier)->written), 50);
	for (uint32_t i = 0; i < 50; i++)
		assert_true(comes(1, i));
	assert_false(comes(2, 0) || comes(1, 50));
	open_tier(&cfg);
	assert_int_equal(figure(&disk_tier_stats(tier)->pages), 50);
	for (uint32_t i = 50; i-- > 0;)
		assert_true(comes(1, i));
	struct disk_tier *second;
	struct sl_err err = {0};
	assert_int_equal(disk_tier_open(&cfg, &second, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "another process uses it"));
	struct stat st;
	assert_int_equal(stat(folder, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	char path[128];
	snprintf(path, sizeof path, "%s/0000000000000001.kv", folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

/* A process that writes all the time is killed, twenty times: what the next one finds is whole. */
static void killed_while_writing(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	uint32_t n_found = 0;
	for (uint32_t round = 0; round < 20; round++) {
		int ready[2];
		char byte;
		assert_int_equal(pipe(ready), 0);
		pid_t pid = fork();
		if (pid == 0) {
			open_tier(&cfg);
			for (uint32_t i = 0; i < 100000; i++) {
				write_page(round, i % 2000);
				if (i == 20 && write(ready[1], "x", 1) != 1)
					_exit(1);
			}
			pause();
		}
		assert_int_equal(read(ready[0], &byte, 1), 1);
		usleep(round * 150);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		close(ready[0]);
		close(ready[1]);
		open_tier(&cfg);
		for (uint32_t i = 0; i < 2000 && is_there(round, i); i++, n_found++)
			assert_true(comes(round, i));
		assert_int_equal(figure(&disk_tier_stats(tier)->damaged), 0);
		disk_tier_close(tier);
		tier = NULL;
	}
	print_message("%u pages of killed processes found\n", n_found);
	assert_true(n_found > 0);
}

/* ---- limits ---- */

static uint64_t n_segments(void)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	uint64_t n = 0;
	while ((e = readdir(d)) != NULL)
		n += strstr(e->d_name, ".kv") != NULL;
	closedir(d);
	return n;
}

static void limits(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	cfg.max_bytes = 2 << 20;
	cfg.segment_bytes = 256 << 10;
	for (int policy = 0; policy < DISK_POLICIES; policy++) {
		cfg.policy = (enum disk_policy)policy;
		open_tier(&cfg);
		for (uint32_t i = 0; i < 40; i++)
			write_page(1, i);
		disk_tier_settle(tier);
		/* Text 1 is used between the others, each once. */
		for (uint32_t t = 2; t < 40; t++) {
			for (uint32_t i = 0; i < 20; i++)
				write_page(t, i);
			disk_tier_settle(tier);
			for (uint32_t i = 0; i < 40; i++)
				assert_true(comes(1, i) || policy == DISK_TTL);
			assert_true(figure(&disk_tier_stats(tier)->bytes) <= cfg.max_bytes);
		}
		assert_int_equal(is_there(1, 0), policy != DISK_TTL);
		assert_true(is_there(39, 0));
		assert_true(figure(&disk_tier_stats(tier)->evicted) > 500);
		/* All of it again in another process. */
		uint64_t pages = figure(&disk_tier_stats(tier)->pages);
		open_tier(&cfg);
		assert_int_equal(figure(&disk_tier_stats(tier)->pages), pages);
		assert_true(figure(&disk_tier_stats(tier)->bytes) <= cfg.max_bytes);
		for (uint32_t i = 0; i < 40 && policy != DISK_TTL; i++)
			assert_true(comes(1, i));
		assert_int_equal(figure(&disk_tier_stats(tier)->damaged), 0);
		disk_tier_erase_all(tier);
		disk_tier_settle(tier);
		assert_int_equal(figure(&disk_tier_stats(tier)->pages), 0);
	}
}

/* One page of each segment stays: they are moved together, and survive that. */
static void compacted(void **state)
{
	(void)state;
	enum { N = 60 };
	struct disk_tier_config cfg = config();
	cfg.max_bytes = 2 << 20;
	cfg.segment_bytes = 256 << 10;
	open_tier(&cfg);
	for (uint32_t n = 0; n < N; n++) {
		write_page(1, n);
		for (uint32_t i = 0; i < 15; i++)
			write_page(2 + n, i);
		disk_tier_settle(tier);
		for (uint32_t i = 0; i <= n; i++)
			assert_true(comes(1, i));
	}
	assert_true(figure(&disk_tier_stats(tier)->bytes) <= cfg.max_bytes);
	assert_true(n_segments() <= 20);
	open_tier(&cfg);
	for (uint32_t i = 0; i < N; i++)
		assert_true(comes(1, i));
	assert_int_equal(figure(&disk_tier_stats(tier)->damaged), 0);
}

static void age(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	open_tier(&cfg);
	write_page(1, 0);
	disk_tier_settle(tier);
	sleep(3);
	cfg.max_age_s = 1;
	open_tier(&cfg);
	while (is_there(1, 0))
		usleep(10000);
	assert_int_equal(figure(&disk_tier_stats(tier)->evicted), 1);
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

/* Neither tokens nor payload of the page are on the disk. */
static bool is_nowhere(uint32_t t, uint32_t i)
{
	const struct page *p = page_of(t, i);
	return !folder_has(p->tokens, sizeof p->tokens) && !folder_has(p->k, 64) && !folder_has(p->v, 64);
}

static void erased(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	cfg.segment_bytes = 256 << 10;
	open_tier(&cfg);
	for (uint32_t i = 0; i < 60; i++) {
		write_page(1, i);
		write_page(2, i);
	}
	disk_tier_settle(tier);
	assert_false(is_nowhere(1, 30));
	disk_tier_erase(tier, 1);
	write_page(1, 70); /* later: it stays */
	disk_tier_settle(tier);
	for (uint32_t i = 0; i < 60; i++) {
		assert_true(!is_there(1, i) && is_there(2, i));
		assert_true(i % 20 != 0 || is_nowhere(1, i));
	}
	assert_int_equal(figure(&disk_tier_stats(tier)->erased), 60);
	assert_true(comes(1, 70));
	open_tier(&cfg);
	for (uint32_t i = 0; i < 60; i++)
		assert_true(!is_there(1, i) && comes(2, i));
	assert_true(comes(1, 70));
}

/* The process ended between the request on disk and the last page. */
static void interrupted_erasure(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	struct disk_segment *s;
	uint8_t secret[DISK_SECRET];
	char path[128];
	uint64_t at;
	open_tier(&cfg);
	for (uint32_t i = 0; i < 10; i++) {
		write_page(1, i);
		write_page(2, i);
	}
	disk_tier_close(tier);
	tier = NULL;
	snprintf(path, sizeof path, "%s/secret", folder);
	int fd = open(path, O_RDONLY), dir = open(folder, O_RDONLY | O_DIRECTORY);
	assert_int_equal(read(fd, secret, sizeof secret), sizeof secret);
	close(fd);
	uint64_t seed = XXH3_64bits(secret, sizeof secret);
	assert_int_equal(disk_segment_open(dir, seed, 1, &s), 0);
	assert_int_equal(disk_segment_append_erase(s, seed, 1, 1, &at), 0);
	disk_segment_close(s);
	close(dir);
	open_tier(&cfg);
	assert_true(!is_there(1, 0) && !is_there(1, 9) && is_there(2, 9));
	assert_true(is_nowhere(1, 4));
	open_tier(&cfg);
	assert_true(!is_there(1, 0) && comes(2, 9));
}

/* If not even the request can be written, all files go. */
static void erasure_on_a_full_disk(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	for (int nth = 1; nth < 4; nth++) {
		open_tier(&cfg);
		for (uint32_t i = 0; i < 10; i++)
			write_page(1, i);
		disk_tier_settle(tier);
		fault_arm(FAULT_WRITE, nth, 1000);
		disk_tier_erase(tier, 1);
		disk_tier_settle(tier);
		fault_disarm_all();
		assert_false(is_there(1, 0));
		assert_true(is_nowhere(1, 5));
	}
}

/* ---- faults ---- */

static void faults(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	for (int nth = 1; nth < 12; nth++) {
		open_tier(&cfg);
		struct disk_stats *s = disk_tier_stats(tier);
		fault_arm(FAULT_WRITE, nth, 1);
		for (uint32_t i = 0; i < 5; i++) {
			const struct page *p = page_of((uint32_t)nth, i);
			(void)disk_tier_write(tier, &p->page, p->k, p->v, HALF);
			disk_tier_settle(tier);
			usleep(2000); /* until it is tried again */
		}
		fault_disarm_all();
		assert_int_equal(figure(&s->write_errors), 1);
		assert_int_equal(figure(&s->dropped), 1);
		assert_int_equal(figure(&s->written), 4);
		uint32_t n = 0;
		for (uint32_t i = 0; i < 5; i++)
			n += comes((uint32_t)nth, i);
		assert_int_equal(n, 4);
		open_tier(&cfg);
		for (uint32_t i = n = 0; i < 5; i++)
			n += comes((uint32_t)nth, i);
		assert_int_equal(n, 4);
	}
}

/* Three failed reads in a row stop reading for a while; nothing is lost. */
static void failing_reads(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	cfg.retry_ms = 50;
	open_tier(&cfg);
	for (uint32_t i = 0; i < 5; i++)
		write_page(1, i);
	disk_tier_settle(tier);
	fault_arm(FAULT_READ, 1, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_false(comes(1, i));
	struct disk_key key = page_of(1, 0)->page.key;
	while (disk_tier_run(tier, &key, 1) == 0)
		usleep(1000);
	for (uint32_t i = 0; i < 5; i++)
		assert_true(comes(1, i));
	assert_int_equal(figure(&disk_tier_stats(tier)->read_errors), 3);
}

/* The folder is removed while the tier runs: it is made again. */
static void folder_gone(void **state)
{
	(void)state;
	struct disk_tier_config cfg = config();
	char aside[80];
	open_tier(&cfg);
	write_page(1, 0);
	disk_tier_settle(tier);
	snprintf(aside, sizeof aside, "%s-aside", folder);
	assert_int_equal(rename(folder, aside), 0);
	cfg.segment_bytes = 1;
	for (uint32_t i = 1; i < 400; i++)
		write_page(1, i); /* until a new segment is needed */
	disk_tier_settle(tier);
	assert_int_equal(figure(&disk_tier_stats(tier)->damaged), 0);
	char command[200];
	snprintf(command, sizeof command, "rm -r %s", aside);
	assert_int_equal(system(command), 0);
	assert_true(comes(1, 399));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(comes_back),
					   TEST(killed_while_writing),
					   TEST(limits),
					   TEST(compacted),
					   TEST(age),
					   TEST(erased),
					   TEST(interrupted_erasure),
					   TEST(erasure_on_a_full_disk),
					   TEST(faults),
					   TEST(failing_reads),
					   TEST(folder_gone)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
