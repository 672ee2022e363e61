/* SPDX-License-Identifier: Apache-2.0
 *
 * How an Idempotency-Key's record changes hands, over memory and over Redis; and when the process of a lease is known
 * to be dead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "gateway/server/gateway_procs.h"
#include "gateway/sharing/idempotent_proc.h"
#include "gateway/replay/replay_store.h"
#include "tests/support/cache_rig.h"
#include "tests/support/on_both.h"

enum { LEASE_MS = 30000, KEEP_MS = 3600000 };

/* A version, a state (0: running), whose. */
#define LEASE(x) "\1\0" x, sizeof("\1\0" x) - 1
#define RESULT(x) "\1\1" x, sizeof("\1\1" x) - 1
#define NEWER(x) "\2\0" x, sizeof("\2\0" x) - 1
#define NOTHING "", 0

struct world {
	struct rig g;
	struct answer a;
	struct cache_key key;
	bool redis;
};

static int set_up(void **state, bool redis)
{
	static struct world w;
	if (redis && !installed)
		return 0;
	memset(&w, 0, sizeof w);
	rig_init(&w.g);
	w.redis = redis;
	if (redis) {
		w.g.cfg.store = CACHE_REDIS;
		w.g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open_with(&w.g, gateway_procs, GATEWAY_PROCS);
	if (redis)
		rig_turn_until_state(&w.g, CACHE_IS_UP);
	cache_key_make(&w.key, CACHE_SHARED, "t", "k", 1);
	*state = &w;
	return 0;
}

static int set_up_memory(void **state) { return set_up(state, false); }
static int set_up_redis(void **state) { return set_up(state, true); }

static int tear_down(void **state)
{
	struct world *w = *state;
	if (w == NULL)
		return 0;
	answer_reset(&w->a);
	rig_close(&w->g);
	return 0;
}

/* True: it was changed. Otherwise w->a has what stands there. */
static bool change(struct world *w, const char *want, size_t n_want, bool absent, const char *to, size_t n_to,
		   int64_t ttl_ms)
{
	const struct cache_value args[] = {
	    {.p = want, .n = n_want}, {.i = absent}, {.p = to, .n = n_to}, {.i = ttl_ms}, {.i = LEASE_MS}};
	answer_reset(&w->a);
	cache_eval(w->g.cl, &w->a.op, &idempotent_change, &w->key, 1, args, 5, on_answer);
	const struct cache_result *r = rig_wait(&w->g, &w->a);
	assert_int_equal(r->code, 0);
	assert_false(r->degraded);
	assert_true(r->n_values == (r->values[0].i == 1 ? 1 : 2));
	return r->values[0].i == 1;
}

static void assert_stands(struct world *w, const char *bytes, size_t n)
{
	assert_false(change(w, LEASE("no such"), false, NOTHING, 0));
	assert_int_equal(w->a.r.values[1].n, n);
	assert_memory_equal(w->a.r.values[1].p, bytes, n);
}

static void a_key_is_held_by_one(void **state)
{
	struct world *w = state_of(state);
	assert_true(change(w, LEASE("a"), true, LEASE("a"), LEASE_MS));
	assert_true(change(w, LEASE("a"), true, LEASE("a"), LEASE_MS)); /* asked again, or renewed */
	assert_false(change(w, LEASE("b"), true, LEASE("b"), LEASE_MS));
	assert_stands(w, LEASE("a"));
	assert_false(change(w, LEASE("b"), false, NOTHING, 0)); /* not b's to give back */
	assert_true(change(w, LEASE("a"), true, RESULT("text"), KEEP_MS));
	/* Late: a renewal, what gives it back, the same result once more. */
	assert_false(change(w, LEASE("a"), true, LEASE("a"), LEASE_MS));
	assert_false(change(w, LEASE("a"), false, NOTHING, 0));
	assert_false(change(w, LEASE("a"), true, RESULT("text"), KEEP_MS));
	assert_stands(w, RESULT("text"));
}

static void a_dead_holders_lease_is_taken_over_by_one(void **state)
{
	struct world *w = state_of(state);
	assert_true(change(w, LEASE("dead"), true, LEASE("dead"), LEASE_MS));
	assert_true(change(w, LEASE("dead"), false, LEASE("b"), LEASE_MS));
	assert_false(change(w, LEASE("dead"), false, LEASE("c"), LEASE_MS));
	assert_stands(w, LEASE("b"));
	/* The dead one wakes up. */
	assert_false(change(w, LEASE("dead"), true, LEASE("dead"), LEASE_MS));
	assert_false(change(w, LEASE("dead"), true, RESULT("late"), KEEP_MS));
	assert_true(change(w, LEASE("b"), false, NOTHING, 0));
	assert_stands(w, NOTHING);
	assert_false(change(w, LEASE("b"), false, LEASE("b"), LEASE_MS)); /* absent, and that was not allowed */
	assert_true(change(w, LEASE("b"), true, RESULT("after all"), KEEP_MS));
}

static void a_record_of_another_version_is_none(void **state)
{
	struct world *w = state_of(state);
	assert_true(change(w, NEWER("x"), true, NEWER("x"), LEASE_MS));
	assert_stands(w, NOTHING);
	assert_true(change(w, LEASE("a"), true, LEASE("a"), LEASE_MS));
	assert_stands(w, LEASE("a"));
}

static long long left_ms(struct world *w)
{
	return redis_server_number(&server, "PTTL %s%s", w->g.cfg.prefix, w->key.text);
}

/* Redis' clock was an hour ahead when it was written: what is left of its life says so. */
static void a_lease_of_a_clock_that_went_back_ends_in_time(void **state)
{
	struct world *w = state_of(state);
	assert_true(change(w, LEASE("a"), true, LEASE("a"), LEASE_MS));
	redis_server_number(&server, "PEXPIRE %s%s %d", w->g.cfg.prefix, w->key.text, 3600000 + LEASE_MS);
	assert_stands(w, LEASE("a"));
	assert_in_range(left_ms(w), 1, LEASE_MS);
	assert_true(change(w, LEASE("a"), true, RESULT("text"), KEEP_MS));
	assert_stands(w, RESULT("text"));
	assert_in_range(left_ms(w), LEASE_MS + 1, KEEP_MS);
}

/* ---- whose process has gone ---- */

static void only_a_process_that_is_gone_is_dead(void **state)
{
	(void)state;
	const char *lease = replay_lease_text();
	char theirs[256];
	struct rlimit was, none;
	assert_true(strlen(lease) > 3);
	assert_false(replay_lease_is_of_dead(lease, strlen(lease)));
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	snprintf(theirs, sizeof theirs, "%.*s %d 1 0123456789abcdef", (int)strcspn(lease, " "), lease, (int)pid);
	assert_true(replay_lease_is_of_dead(theirs, strlen(theirs)));
	/* Without a descriptor to look with, nothing is known of anybody. */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = (struct rlimit){0, was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	bool mine = replay_lease_is_of_dead(lease, strlen(lease)),
	     gone = replay_lease_is_of_dead(theirs, strlen(theirs));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_false(mine);
	assert_false(gone);
}

#define ON_REDIS(f)                                             \
	{                                                       \
#f " (Redis)", f, set_up_redis, tear_down, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ON_BOTH(a_key_is_held_by_one),
	    ON_BOTH(a_dead_holders_lease_is_taken_over_by_one),
	    ON_BOTH(a_record_of_another_version_is_none),
	    ON_REDIS(a_lease_of_a_clock_that_went_back_ends_in_time),
	    cmocka_unit_test(only_a_process_that_is_gone_is_dead),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
