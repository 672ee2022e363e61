/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits on a redis-server whose own clock is set, with all that Redis itself ends by it (tests/support/clock_shim).
 * What each step means in detail: test_limits_clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/unit/cache/limits_world.h"

#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static int64_t *ahead_us,
    noon_us; /* from the machine's time to the noon of its day, so that no midnight comes by itself */
static char shim_file[] = "/tmp/clock-shim-XXXXXX";

/* Beside the tests of its build: build/[SAN/]tests/unit/cache. */
static void load_shim(void)
{
	char path[512];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
	assert_true(n > 0);
	path[n] = '\0';
	char *slash = strrchr(path, '/');
	snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "../../../libclock-shim.so");
	assert_int_equal(access(path, R_OK), 0);
	int fd = mkstemp(shim_file);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, sizeof *ahead_us), 0);
	ahead_us = mmap(NULL, sizeof *ahead_us, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(ahead_us != MAP_FAILED);
	close(fd);
	setenv("LD_PRELOAD", path, 1);
	setenv("CLOCK_SHIM", shim_file, 1);
}

static int start(void **state)
{
	if (!redis_server_installed())
		return 0;
	load_shim();
	start_server(state);
	unsetenv("LD_PRELOAD");
	return 0;
}

static int stop(void **state)
{
	if (ahead_us != NULL)
		unlink(shim_file);
	return stop_server(state);
}

static int set_up(void **state)
{
	static struct world w;
	if (!installed)
		return 0;
	noon_us = 12 * HOUR - clock_unix_s() % 86400 * SECOND;
	__atomic_store_n(ahead_us, noon_us, __ATOMIC_RELAXED);
	rig_init(&w.g);
	w.redis = true;
	w.g.cfg.now_us = NULL;
	w.g.cfg.store = CACHE_REDIS;
	w.g.cfg.address = server.address;
	redis_server_number(&server, "FLUSHALL");
	rig_open(&w.g);
	rig_turn_until_state(&w.g, CACHE_IS_UP);
	*state = &w;
	return 0;
}

/* Redis ends by itself what is over: it has done so once a key of that time has gone. */
static void set_clock(int64_t us)
{
	__atomic_store_n(ahead_us, noon_us + us, __ATOMIC_RELAXED);
	redis_server_number(&server, "SET gone 1 PX 1");
	for (int i = 0; redis_server_number(&server, "DBSIZE") > 0 && i < 500; i++) {
		redisReply *r = redis_server_ask(&server, "GET gone");
		bool gone = r->type == REDIS_REPLY_NIL;
		freeReplyObject(r);
		if (gone)
			return;
		redis_server_pause();
	}
}

static int burst_of(struct world *w, const struct cache_limit *l)
{
	int n = 0;
	while (admit(w, 0, l, 1, 0, 0, SECOND).admitted)
		n++;
	return n;
}

static int64_t spend(struct world *w, const struct cache_limit *l)
{
	static int id;
	struct cache_admission a = admit(w, ++id, l, 1, 1000, 1, MINUTE);
	if (a.admitted)
		settle(w, id, l, 1, a.granted, 0);
	return a.granted;
}

static void a_clock_that_was_ahead(void **state)
{
	struct world *w = state_of(state);
	/* So slow that what passes meanwhile changes nothing. */
	struct cache_limit l = rate("r", 4, 4, 20 * HOUR, 1), held = lease("l", 1, 1);
	set_clock(100 * HOUR);
	assert_int_equal(burst_of(w, &l), 4);
	assert_true(admit(w, 1, &held, 1, 0, 0, HOUR).admitted);
	set_clock(0);
	struct cache_admission a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_false(a.admitted);
	assert_in_range(a.each[0].reset_us, 15 * HOUR, 20 * HOUR);
	assert_false(admit(w, 2, &held, 1, 0, 0, HOUR).admitted);
	set_clock(20 * HOUR);
	assert_int_equal(burst_of(w, &l), 4);
	assert_true(admit(w, 2, &held, 1, 0, 0, HOUR).admitted);
}

static void two_days_either_way(void **state)
{
	static const int64_t ways[] = {2, -2};
	struct world *w = state_of(state);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		struct cache_limit l = budget(i == 0 ? "ahead" : "back", 1000, DAY);
		assert_int_equal(spend(w, &l), 1000);
		set_clock(ways[i] * DAY);
		if (ways[i] < 0)
			assert_int_equal(spend(w, &l), 0);
		set_clock(0);
		assert_int_equal(spend(w, &l), 0);
	}
	/* Used on both sides of the step: the other day's budget, once. */
	struct cache_limit l = budget("both", 1000, DAY);
	assert_int_equal(spend(w, &l), 1000);
	set_clock(2 * DAY);
	assert_int_equal(spend(w, &l), 1000);
	for (int i = 0; i < 4; i++) {
		set_clock(i % 2 == 0 ? 0 : 2 * DAY);
		assert_int_equal(spend(w, &l), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_clock_that_was_ahead, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(two_days_either_way, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, start, stop);
}
