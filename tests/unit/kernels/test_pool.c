/* SPDX-License-Identifier: Apache-2.0
 *
 * The fork-join pool: every part of every job runs once and is visible when the job returns, for
 * any number of threads and any size; idle workers sleep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu/pool.h"

enum { MOST = 257, MAX_THREADS = 8 };

struct job {
	int parts[MOST]; /* plain: the pool must order them */
	int n;
	atomic_int outside;
};

static void count(void *ctx, int i)
{
	struct job *j = ctx;
	if (i < 0 || i >= j->n)
		atomic_fetch_add(&j->outside, 1);
	else
		j->parts[i]++;
}

static struct kn_pool *create(int n_threads)
{
	struct kn_pool *p = NULL;
	struct sl_err err;
	assert_int_equal(kn_pool_create(n_threads, &p, &err), 0);
	assert_int_equal(kn_pool_n_threads(p), n_threads);
	return p;
}

static void run_jobs(struct kn_pool *p, int jobs)
{
	static const int sizes[] = {0, 1, 2, 3, 7, 8, 31, MOST};
	struct job j;
	for (int k = 0; k < jobs; k++) {
		memset(&j, 0, sizeof j);
		j.n = sizes[k % 8];
		if (k % 50 == 0)
			kn_pool_wake(p);
		kn_pool_run(p, j.n, count, &j);
		for (int i = 0; i < MOST; i++)
			assert_int_equal(j.parts[i], i < j.n);
		assert_int_equal(atomic_load(&j.outside), 0);
	}
}

static void test_jobs(void **arg)
{
	(void)arg;
	for (int n = 1; n <= MAX_THREADS; n++) {
		struct kn_pool *p = create(n);
		run_jobs(p, 400);
		kn_pool_destroy(p);
	}
}

/* What one job wrote the next one reads, whichever threads they ran in. */
struct chain {
	int64_t from[64], to[64];
};

static void shift(void *ctx, int i)
{
	struct chain *c = ctx;
	c->to[i] = c->from[(i + 1) % 64] + 1;
}

static void back(void *ctx, int i)
{
	struct chain *c = ctx;
	c->from[i] = c->to[(i + 63) % 64];
}

static void test_order(void **arg)
{
	(void)arg;
	for (int n = 1; n <= MAX_THREADS; n += n == 1 ? 1 : 2) {
		struct kn_pool *p = create(n);
		struct chain c = {0};
		for (int i = 0; i < 64; i++)
			c.from[i] = i;
		for (int k = 0; k < 300; k++) {
			kn_pool_run(p, 64, shift, &c);
			kn_pool_run(p, 64, back, &c);
		}
		for (int i = 0; i < 64; i++)
			assert_int_equal(c.from[i], i + 300);
		kn_pool_destroy(p);
	}
}

/* Pools that never had a job, had one, or are woken and not used. */
static void test_lifecycle(void **arg)
{
	(void)arg;
	for (int k = 0; k < 40; k++) {
		struct kn_pool *p = create(1 + k % MAX_THREADS);
		if (k % 3 == 1)
			run_jobs(p, 1 + k % 8);
		if (k % 3 == 2)
			kn_pool_wake(p);
		kn_pool_destroy(p);
	}
	kn_pool_destroy(NULL);
	struct kn_pool *p;
	struct sl_err err;
	static const int wrong[] = {0, -1, 257, 1 << 30};
	for (int i = 0; i < 4; i++)
		assert_int_equal(kn_pool_create(wrong[i], &p, &err), SL_EINVAL);
}

/* What workers are told to bring is asked for only: it may be unmapped, nothing, or no address at all. Jobs come all
 * the same. */
static void test_soon(void **arg)
{
	(void)arg;
	struct timespec moment = {.tv_nsec = 300000};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *gone = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(gone != MAP_FAILED);
	munmap(gone + 2 * page, 2 * page);
	for (int n = 1; n <= MAX_THREADS; n += 1 + n / 2) {
		struct kn_pool *p = create(n);
		const struct {
			const void *at;
			size_t stride, bytes;
		} told[] = {{gone, page, page}, {gone, 0, 4 * page},           {NULL, 0, 0},
			    {NULL, 1, page},    {gone, SIZE_MAX / 2, 1 << 20}, {told, 1, SIZE_MAX}};
		for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
			kn_pool_wake(p);
			kn_pool_soon(p, told[i].at, told[i].stride, told[i].bytes);
			nanosleep(&moment, NULL); /* they are at it */
			run_jobs(p, 16);
			kn_pool_rest(p);
		}
		kn_pool_soon(p, gone, 0, 1 << 20); /* outside of a step */
		run_jobs(p, 16);
		kn_pool_destroy(p);
	}
	munmap(gone, 2 * page);
}

static int64_t nanoseconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void test_rest(void **arg)
{
	enum { MAX_WINDOWS = 25 };
	(void)arg;
	struct kn_pool *p = create(MAX_THREADS);
	struct timespec moment = {.tv_nsec = 200000000};
	for (int round = 0; round < 2; round++) {
		run_jobs(p, 64);
		/* The spinning after a job may wait long for a core; at last there is none. One spinning worker alone
		 * would take most of the 200 ms of a core. */
		int64_t used = INT64_MAX;
		for (int i = 0; i < MAX_WINDOWS && used >= 20000000; i++) {
			int64_t before = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
			nanosleep(&moment, NULL);
			used = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - before;
		}
		assert_true(used < 20000000);
	}
	run_jobs(p, 64);
	kn_pool_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_jobs),      cmocka_unit_test(test_order), cmocka_unit_test(test_soon),
	    cmocka_unit_test(test_lifecycle), cmocka_unit_test(test_rest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
