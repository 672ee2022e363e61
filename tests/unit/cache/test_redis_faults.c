/* SPDX-License-Identifier: Apache-2.0
 *
 * A Redis that fails in every way: killed, stopped, full, a replica, locked, loading, mute, talking
 * nonsense. Whatever it does, every operation ends once and in time, by the policy of its kind; it is
 * counted; the loop never waits; and when it works again it is used again.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "base/fault.h"
#include "base/metrics.h"
#include "cache/limits.h"
#include "cache/priv.h"
#include "tests/support/cache_rig.h"
#include "tests/support/fake_redis.h"
#include "tests/support/on_both.h"
#include "tests/support/perf.h"

enum { SHORT_MS = 1600 }; /* a quarter of it is the fallback's, also on a busy machine */

/* A client with little patience for whatever listens there. */
static void open_rig(struct rig *g, const char *address)
{
	rig_init(g);
	g->cfg.store = CACHE_REDIS;
	g->cfg.address = address;
	g->cfg.op_timeout_ms = SHORT_MS;
	g->cfg.connect_timeout_ms = SHORT_MS;
	g->cfg.backoff_least_ms = 5;
	g->cfg.backoff_most_ms = 20;
	rig_open(g);
}

/* ---- looking ---- */

/* The longest and the typical time that the loop was elsewhere. */
struct lag {
	struct event *tick;
	int schedstat;
	uint64_t last_ns, last_waited_ns;
	int n, n_late; /* over 10 ms */
};

/* How long this thread has been ready to run while others ran: their lateness, not the loop's. 0 where the kernel
 * does not tell (proc(5), schedstat). */
static uint64_t waited_ns(const struct lag *l)
{
	char text[96] = "";
	char *at = text;
	if (l->schedstat < 0 || pread(l->schedstat, text, sizeof text - 1, 0) <= 0)
		return 0;
	(void)strtoull(at, &at, 10); /* on a processor */
	return strtoull(at, NULL, 10);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct lag *l = arg;
	uint64_t now = clock_now_ns(), waited = waited_ns(l);
	l->n++;
	l->n_late += now - l->last_ns > 10 * NS_PER_MS + (waited - l->last_waited_ns);
	l->last_ns = now;
	l->last_waited_ns = waited;
}

static void lag_begin(struct lag *l, struct rig *g)
{
	static const struct timeval every = {.tv_usec = 1000};
	*l = (struct lag){.schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC),
			  .last_ns = clock_now_ns()};
	l->last_waited_ns = waited_ns(l);
	l->tick = event_new(g->base, -1, EV_PERSIST, on_tick, l);
	event_add(l->tick, &every);
}

/* Others use the machine too: a few late ticks are theirs. */
static void lag_end(struct lag *l, struct rig *g)
{
	rig_turn_until(g, &l->n, l->n + 3);
	event_free(l->tick);
	if (l->schedstat >= 0)
		close(l->schedstat);
	if (perf())
		assert_true(l->n_late <= 2 + l->n / 20);
}

struct outcome {
	int good, degraded, failed; /* a degraded one may be either of the others as well */
	uint64_t longest_ns;
};

/* n gets of a kind at once, waited for. */
static struct outcome ask(struct rig *g, enum cache_kind kind, int n)
{
	static struct answer answers[64];
	struct cache_key key;
	struct outcome o = {0};
	assert_true(n <= 64);
	rig_key(&key, kind, "k");
	uint64_t began = clock_now_ns();
	for (int i = 0; i < n; i++)
		cache_get(g->cl, &answers[i].op, &key, 1, on_answer);
	/* Starting takes no time worth the name. */
	o.longest_ns = clock_now_ns() - began;
	if (perf())
		assert_true(o.longest_ns < 100 * NS_PER_MS);
	for (int i = 0; i < n; i++) {
		const struct cache_result *r = rig_wait(g, &answers[i]);
		uint64_t took = clock_now_ns() - began;
		o.longest_ns = took > o.longest_ns ? took : o.longest_ns;
		o.good += r->code == 0 || (r->code == SL_ENOTFOUND && !r->degraded);
		o.failed += r->code != 0 && r->code != SL_ENOTFOUND;
		o.degraded += r->degraded;
		assert_int_equal(answers[i].n_done, 1);
		answer_reset(&answers[i]);
	}
	return o;
}

static void put(struct rig *g, enum cache_kind kind, const char *name, const char *value, int code, bool degraded)
{
	struct answer a = {0};
	struct cache_key key;
	rig_key(&key, kind, name);
	cache_put(g->cl, &a.op, &key, 1, value, strlen(value), 60000, on_answer);
	const struct cache_result *r = rig_wait(g, &a);
	assert_int_equal(r->code, code);
	assert_int_equal(r->degraded, degraded);
	answer_reset(&a);
}

static struct cache_admission admit(struct rig *g, int64_t limit)
{
	static const uint8_t id[CACHE_ID_LEN] = {1};
	struct answer a = {0};
	struct cache_admission out;
	struct cache_limit l = {.type = CACHE_RATE, .limit = limit, .burst = limit, .period_us = 60000000, .cost = 1};
	rig_key(&l.key, CACHE_LIMIT, "rate");
	cache_admit(g->cl, &a.op, id, &l, 1, 0, 0, 1000000, on_answer);
	cache_admission_read(rig_wait(g, &a), &out);
	answer_reset(&a);
	return out;
}

static int64_t failures(enum cache_failure f) { return metric_get(&cache_m_failures[f]); }

/* Runs the loop until the connection has been given up n times: for one that is soon made again, which a look at the
 * state may miss. */
static void turn_until_given_up(struct rig *g, int64_t n)
{
	uint64_t end = clock_now_ns() + 100 * NS_PER_S;
	while (metric_get(&cache_m_opened) < n && clock_now_ns() < end)
		event_base_loop(g->base, EVLOOP_ONCE);
	assert_true(metric_get(&cache_m_opened) >= n);
}

/* ---- a real one ---- */

static void killed_and_back(void **state)
{
	(void)state;
	need_redis();
	struct rig g;
	struct lag lag;
	open_rig(&g, server.address);
	g.cfg.n_gateways = 1;
	rig_turn_until_state(&g, CACHE_IS_UP);
	put(&g, CACHE_SESSION, "kept", "value", 0, false);
	int64_t opened = metric_get(&cache_m_opened), degraded = metric_get(&cache_m_degraded[CACHE_SHARED]);
	/* With operations under way: each ends. */
	static struct answer answers[32];
	struct cache_key key;
	rig_key(&key, CACHE_SHARED, "k");
	lag_begin(&lag, &g);
	for (int i = 0; i < 32; i++)
		cache_get(g.cl, &answers[i].op, &key, 1, on_answer);
	redis_server_kill(&server);
	for (int i = 0; i < 32; i++) {
		int code = rig_wait(&g, &answers[i])->code;
		assert_true(code == SL_ENOTFOUND); /* by Redis or by memory */
		answer_reset(&answers[i]);
	}
	rig_turn_until_state(&g, CACHE_IS_DOWN);
	assert_int_equal(metric_get(&cache_m_opened), opened + 1);
	/* Each kind by its policy, and at once. */
	for (int round = 0; round < 10; round++) {
		struct outcome o = ask(&g, CACHE_SHARED, 64);
		assert_int_equal(o.degraded, 64);
		assert_int_equal(o.failed, 0);
		o = ask(&g, CACHE_SESSION, 64);
		assert_int_equal(o.degraded, 64);
		assert_int_equal(o.failed, 64);
	}
	assert_true(metric_get(&cache_m_degraded[CACHE_SHARED]) >= degraded + 640);
	put(&g, CACHE_REPLAY, "here", "only", 0, true);
	struct cache_admission a = admit(&g, 100);
	assert_true(a.admitted && a.degraded);
	lag_end(&lag, &g);
	redis_server_start(&server, NULL);
	rig_turn_until_state(&g, CACHE_IS_UP);
	struct outcome o = ask(&g, CACHE_SESSION, 64);
	assert_int_equal(o.degraded + o.failed, 0);
	assert_int_equal(admit(&g, 100).degraded, false);
	rig_close(&g);
}

static void stopped_and_on(void **state)
{
	(void)state;
	need_redis();
	struct rig g;
	struct lag lag;
	open_rig(&g, server.address);
	rig_turn_until_state(&g, CACHE_IS_UP);
	int64_t late = failures(FAILED_TIMEOUT);
	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	lag_begin(&lag, &g);
	/* The first ones find out; they get their answers in their time, all the same. */
	struct outcome o = ask(&g, CACHE_SHARED, 64);
	assert_int_equal(o.degraded, 64);
	assert_int_equal(o.failed, 0);
	if (perf())
		assert_true(o.longest_ns >= SHORT_MS * 3 / 4 * NS_PER_MS);
	rig_turn_until_state(&g, CACHE_IS_DOWN);
	assert_true(failures(FAILED_TIMEOUT) >= late + 5);
	/* The others no longer ask it; attempts to reach it may run out of time. */
	late = failures(FAILED_TIMEOUT);
	for (int i = 0; i < 20; i++)
		assert_int_equal(ask(&g, CACHE_LIMIT, 64).degraded, 64);
	assert_true(failures(FAILED_TIMEOUT) - late < 20);
	lag_end(&lag, &g);
	assert_int_equal(kill(server.pid, SIGCONT), 0);
	rig_turn_until_state(&g, CACHE_IS_UP);
	o = ask(&g, CACHE_SHARED, 64);
	assert_int_equal(o.degraded + o.failed, 0);
	rig_close(&g);
}

static void a_full_one_is_not_used(void **state)
{
	(void)state;
	need_redis();
	struct rig g;
	open_rig(&g, server.address);
	rig_turn_until_state(&g, CACHE_IS_UP);
	redis_server_number(&server, "CONFIG SET maxmemory-policy noeviction");
	redis_server_number(&server, "CONFIG SET maxmemory 1");
	int64_t oom = failures(FAILED_OOM);
	put(&g, CACHE_SESSION, "s", "v", SL_ELIMIT, true);
	put(&g, CACHE_REPLAY, "s", "v", 0, true);
	assert_true(admit(&g, 10).degraded);
	assert_int_equal(failures(FAILED_OOM), oom + 3);
	put(&g, CACHE_SESSION, "s", "v", SL_ELIMIT, true);
	put(&g, CACHE_SESSION, "s", "v", SL_ELIMIT, true);
	/* Five in a row. A probe that can't write doesn't close the circuit. */
	rig_turn_until_state(&g, CACHE_IS_DOWN);
	int64_t connects = metric_get(&cache_m_connects);
	uint64_t end = clock_now_ns() + 100 * NS_PER_S;
	while (metric_get(&cache_m_connects) < connects + 3 && clock_now_ns() < end) {
		event_base_loop(g.base, EVLOOP_ONCE);
		assert_int_equal(cache_client_state(g.cl), CACHE_IS_DOWN);
	}
	redis_server_number(&server, "CONFIG SET maxmemory 0");
	rig_turn_until_state(&g, CACHE_IS_UP);
	put(&g, CACHE_SESSION, "s", "v", 0, false);
	rig_close(&g);
}

static void a_replica_is_left_at_once(void **state)
{
	(void)state;
	need_redis();
	struct rig g;
	open_rig(&g, server.address);
	rig_turn_until_state(&g, CACHE_IS_UP);
	int64_t readonly = failures(FAILED_READONLY);
	redis_server_number(&server, "REPLICAOF 127.0.0.1 1");
	put(&g, CACHE_SESSION, "s", "v", SL_EAGAIN, true);
	assert_true(failures(FAILED_READONLY) > readonly);
	assert_int_equal(cache_client_state(g.cl), CACHE_IS_DOWN);
	assert_non_null(strstr(cache_client_state_text(g.cl), "READONLY"));
	redis_server_number(&server, "REPLICAOF NO ONE");
	rig_turn_until_state(&g, CACHE_IS_UP);
	put(&g, CACHE_SESSION, "s", "v", 0, false);
	rig_close(&g);
}

static void a_locked_one_wants_the_password(void **state)
{
	(void)state;
	need_redis();
	struct rig g, with;
	char file[96];
	struct cache_key key;
	open_rig(&g, server.address);
	rig_turn_until_state(&g, CACHE_IS_UP);
	rig_key(&key, CACHE_SESSION, "k");
	int64_t noauth = failures(FAILED_NOAUTH);
	redis_server_number(&server, "CONFIG SET requirepass secret");
	redis_server_number(&server, "CLIENT KILL TYPE normal SKIPME yes");
	rig_turn_until_state(&g, CACHE_IS_DOWN);
	uint64_t end = clock_now_ns() + 100 * NS_PER_S;
	while (failures(FAILED_NOAUTH) < noauth + 2 && clock_now_ns() < end)
		event_base_loop(g.base, EVLOOP_ONCE);
	assert_true(failures(FAILED_NOAUTH) >= noauth + 2);
	assert_int_equal(cache_client_state(g.cl), CACHE_IS_DOWN);
	assert_int_equal(ask(&g, CACHE_SESSION, 1).failed, 1);
	assert_null(strstr(cache_client_state_text(g.cl), "secret"));
	/* Another that knows it. */
	snprintf(file, sizeof file, "%s/password", server.dir);
	FILE *f = fopen(file, "w");
	assert_non_null(f);
	fputs("secret\n", f);
	fclose(f);
	rig_init(&with);
	with.cfg.store = CACHE_REDIS;
	with.cfg.address = server.address;
	with.cfg.user = "default";
	with.cfg.password_file = file;
	with.cfg.database = 3;
	rig_open(&with);
	rig_turn_until_state(&with, CACHE_IS_UP);
	put(&with, CACHE_SESSION, "k", "v", 0, false);
	assert_true(redis_server_number(&server, "SELECT 3") == 0);
	assert_true(redis_server_number(&server, "DBSIZE") >= 1);
	redis_server_number(&server, "FLUSHDB");
	redis_server_number(&server, "SELECT 0");
	rig_close(&with);
	unlink(file);
	redis_server_number(&server, "CONFIG SET requirepass %s", "");
	rig_turn_until_state(&g, CACHE_IS_UP);
	rig_close(&g);
}

/* ---- a fake one ---- */

static void open_fake(struct rig *g, struct fake_redis *f)
{
	fake_redis_start(f);
	open_rig(g, f->address);
	rig_turn_until_state(g, CACHE_IS_UP);
}

static void close_fake(struct rig *g, struct fake_redis *f)
{
	rig_close(g);
	fake_redis_stop(f);
}

static void errors_are_mapped_and_counted(void **state)
{
	(void)state;
	static const struct {
		const char *reply;
		enum cache_failure failure;
		int code;
		bool leaves; /* the connection, at once */
	} cases[] = {
	    {"-LOADING Redis is loading the dataset in memory\r\n", FAILED_LOADING, SL_EAGAIN, false},
	    {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", FAILED_OOM, SL_ELIMIT, false},
	    {"-READONLY You can't write against a read only replica.\r\n", FAILED_READONLY, SL_EAGAIN, true},
	    {"-MASTERDOWN Link with MASTER is down\r\n", FAILED_READONLY, SL_EAGAIN, true},
	    {"-MISCONF Redis is configured to save RDB snapshots\r\n", FAILED_READONLY, SL_EAGAIN, false},
	    {"-NOAUTH Authentication required.\r\n", FAILED_NOAUTH, SL_EIO, true},
	    {"-NOPERM this user has no permissions\r\n", FAILED_NOAUTH, SL_EIO, false},
	    {"-MOVED 3999 127.0.0.1:6381\r\n", FAILED_MOVED, SL_EIO, false},
	    {"-CLUSTERDOWN Hash slot not served\r\n", FAILED_MOVED, SL_EAGAIN, false},
	    {"-BUSY Redis is busy running a script.\r\n", FAILED_BUSY, SL_EAGAIN, false},
	    {"-WRONGTYPE Operation against a key\r\n", FAILED_WRONG_TYPE, SL_EPROTO, false},
	    {"-ERR something else\r\n", FAILED_OTHER, SL_EIO, false},
	    {":7\r\n", FAILED_MALFORMED, SL_EPROTO, false},
	    {"*2\r\n$1\r\na\r\n:1\r\n", FAILED_MALFORMED, SL_EPROTO, false},
	    {"*0\r\n", FAILED_MALFORMED, SL_EPROTO, false},
	    {"+OK\r\n", FAILED_MALFORMED, SL_EPROTO, false},
	};
	static struct fake_redis f;
	struct rig g;
	open_fake(&g, &f);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct answer a = {0};
		struct cache_key key;
		int64_t before = failures(cases[i].failure), opened = metric_get(&cache_m_opened);
		rig_key(&key, CACHE_SESSION, "k");
		fake_redis_says(&f, NULL, cases[i].reply);
		cache_get(g.cl, &a.op, &key, 1, on_answer);
		const struct cache_result *r = rig_wait(&g, &a);
		if (r->code != cases[i].code || !r->degraded || failures(cases[i].failure) != before + 1)
			fail_msg("%s: %d, counted %d times", cases[i].reply, r->code,
				 (int)(failures(cases[i].failure) - before));
		answer_reset(&a);
		assert_int_equal(metric_get(&cache_m_opened), opened + cases[i].leaves);
		/* The kinds that memory can stand in for are answered. */
		fake_redis_says(&f, NULL, cases[i].reply);
		struct outcome o = ask(&g, CACHE_SHARED, 1);
		assert_int_equal(o.degraded, 1);
		assert_int_equal(o.failed, 0);
		/* One good answer, and it is trusted again. */
		fake_redis_says(&f, NULL, "$-1\r\n");
		rig_turn_until_state(&g, CACHE_IS_UP);
		assert_int_equal(ask(&g, CACHE_SESSION, 1).good, 1);
	}
	close_fake(&g, &f);
}

static void nonsense_ends_the_connection_and_nothing_else(void **state)
{
	(void)state;
	static const char *const replies[] = {
	    "nonsense\r\n",
	    "\r\n\r\n",
	    "$5\r\nabc",
	    "*-7\r\n",
	    "*99999999\r\n",
	    "$99999999999999999999\r\n",
	    "$-2\r\n",
	    ":12x\r\n",
	    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
	    "$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", /* two that nobody asked for */
	    "-\r\n",
	    "+\r\n",
	    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
	};
	static struct fake_redis f;
	struct rig g;
	open_fake(&g, &f);
	for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
		for (int closes = 0; closes < 2; closes++) {
			fake_redis_says(&f, NULL, replies[i]);
			f.closes = closes;
			struct outcome o = ask(&g, CACHE_SHARED, 3);
			assert_int_equal(o.failed, 0);
			fake_redis_says(&f, NULL, "$-1\r\n");
			/* What was begun and not finished is found out by its time. */
			uint64_t end = clock_now_ns() + 100 * NS_PER_S;
			while (ask(&g, CACHE_SESSION, 1).good != 1)
				assert_true(clock_now_ns() < end);
		}
	}
	close_fake(&g, &f);
}

static void a_huge_reply_is_not_gathered(void **state)
{
	(void)state;
	static struct fake_redis f;
	struct rig g;
	struct lag lag;
	open_fake(&g, &f);
	lag_begin(&lag, &g);
	fake_redis_says(&f, NULL, "$536870912\r\n");
	f.repeat = 64 << 20;
	int64_t closed = failures(FAILED_CLOSED), opened = metric_get(&cache_m_opened);
	struct outcome o = ask(&g, CACHE_SHARED, 1);
	assert_int_equal(o.degraded, 1);
	assert_int_equal(o.failed, 0);
	turn_until_given_up(&g, opened + 1);
	assert_true(failures(FAILED_CLOSED) > closed);
	fake_redis_says(&f, NULL, "$-1\r\n");
	rig_turn_until_state(&g, CACHE_IS_UP);
	lag_end(&lag, &g);
	assert_int_equal(ask(&g, CACHE_SESSION, 1).good, 1);
	close_fake(&g, &f);
}

static void a_mute_one_is_left_alone(void **state)
{
	(void)state;
	static struct fake_redis f;
	struct rig g;
	open_fake(&g, &f);
	fake_redis_says(&f, "", "");
	assert_int_equal(ask(&g, CACHE_SHARED, 10).degraded, 10);
	rig_turn_until_state(&g, CACHE_IS_DOWN);
	/* While the circuit is open nothing is sent. */
	int commands = atomic_load(&f.n_commands);
	for (int i = 0; i < 10; i++)
		assert_int_equal(ask(&g, CACHE_SHARED, 50).degraded, 50);
	assert_int_equal(atomic_load(&f.n_commands), commands);
	/* A handshake that goes wrong keeps it open. */
	static const char *const handshakes[] = {"-LOADING Redis is loading the dataset in memory\r\n", "$3\r\nabc\r\n",
						 ":1\r\n", "-NOPERM no\r\n", "*1\r\n$1\r\nx\r\n"};
	for (size_t i = 0; i < sizeof handshakes / sizeof *handshakes; i++) {
		fake_redis_says(&f, handshakes[i], "$-1\r\n");
		int accepts = atomic_load(&f.n_accepts);
		uint64_t end = clock_now_ns() + 100 * NS_PER_S;
		while (atomic_load(&f.n_accepts) < accepts + 2) {
			assert_true(clock_now_ns() < end);
			event_base_loop(g.base, EVLOOP_ONCE);
			assert_int_equal(cache_client_state(g.cl), CACHE_IS_DOWN);
		}
	}
	assert_int_equal(atomic_load(&f.n_commands), commands);
	fake_redis_says(&f, NULL, "$-1\r\n");
	rig_turn_until_state(&g, CACHE_IS_UP);
	assert_int_equal(ask(&g, CACHE_SESSION, 10).good, 10);
	close_fake(&g, &f);
}

/* The first connection is waited for, but not longer than an operation's time. */
static void at_first_operations_wait_within_their_time(void **state)
{
	(void)state;
	static struct fake_redis f;
	struct rig g;
	fake_redis_start(&f);
	fake_redis_says(&f, "", "");
	open_rig(&g, f.address);
	assert_int_equal(cache_client_state(g.cl), CACHE_IS_CONNECTING);
	struct outcome o = ask(&g, CACHE_SHARED, 10);
	assert_int_equal(o.degraded, 10);
	assert_int_equal(o.failed, 0);
	close_fake(&g, &f);
	open_fake(&g, &f);
	close_fake(&g, &f);
}

/* Sixteen gateways lose the same Redis at the same moment: they don't come back together. */
static void they_come_back_one_by_one(void **state)
{
	(void)state;
	enum { GATEWAYS = 16, LEAST_MS = 100 };
	static struct fake_redis f;
	static struct rig g[GATEWAYS];
	fake_redis_start(&f);
	f.closes_early = true;
	rig_init(&g[0]);
	g[0].cfg.store = CACHE_REDIS;
	g[0].cfg.address = f.address;
	g[0].cfg.backoff_least_ms = LEAST_MS;
	g[0].cfg.backoff_most_ms = 10000;
	rig_open(&g[0]);
	for (int i = 1; i < GATEWAYS; i++) {
		g[i].base = g[0].base;
		BUG_IF(cache_client_create(g[0].cache, g[0].base, &g[i].cl) != 0, "no client");
	}
	uint64_t began = clock_now_ns(), end = began + 200 * NS_PER_S;
	while (atomic_load(&f.n_accepts) < 3 * GATEWAYS && clock_now_ns() < end)
		event_base_loop(g[0].base, EVLOOP_ONCE);
	assert_true(atomic_load(&f.n_accepts) >= 3 * GATEWAYS);
	/* The second try comes after half to all of twice the least, the third after half to all of four times;
	 * each may be late. */
	uint64_t second_first = f.accepted_ns[GATEWAYS], second_last = f.accepted_ns[2 * GATEWAYS - 1];
	if (perf()) {
		assert_true(second_first - f.accepted_ns[0] >= LEAST_MS * 9 / 10 * NS_PER_MS);
		assert_true(second_last - second_first >= LEAST_MS / 4 * NS_PER_MS);
		assert_true(f.accepted_ns[3 * GATEWAYS - 1] - second_last >= LEAST_MS * NS_PER_MS);
	}
	for (int i = 1; i < GATEWAYS; i++)
		cache_client_destroy(g[i].cl);
	rig_close(&g[0]);
	fake_redis_stop(&f);
}

/* ---- memory ---- */

/* Every allocation of a client's whole life, one after the other. */
static void without_memory_every_operation_still_ends(void **state)
{
	(void)state;
	static struct fake_redis f;
	fake_redis_start(&f);
	fake_redis_says(&f, NULL, "$4\r\n\1abc\r\n");
	int ended_well = 0;
	for (long nth = 1; ended_well < 3; nth++) {
		struct rig g;
		struct sl_err err;
		assert_true(nth < 500);
		rig_init(&g);
		g.cfg.store = CACHE_REDIS;
		g.cfg.address = f.address;
		g.cfg.op_timeout_ms = 500;
		g.cfg.backoff_least_ms = g.cfg.backoff_most_ms = 5;
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, nth, 1);
		int rc = cache_create(&g.cfg, NULL, 0, &g.cache, &err);
		if (rc == 0) {
			rc = cache_client_create(g.cache, g.base, &g.cl);
			if (rc != 0)
				cache_destroy(g.cache);
		}
		if (rc != 0) {
			assert_int_equal(rc, SL_ENOMEM);
			fault_disarm_all();
			event_base_free(g.base);
			continue;
		}
		struct answer a[3] = {0};
		struct cache_key key;
		bool well = true;
		rig_key(&key, CACHE_SHARED, "k");
		cache_get(g.cl, &a[0].op, &key, 1, on_answer);
		cache_put(g.cl, &a[1].op, &key, 1, "value", 5, 0, on_answer);
		cache_get(g.cl, &a[2].op, &key, 1, on_answer);
		for (int i = 0; i < 3; i++) {
			const struct cache_result *r = rig_wait(&g, &a[i]);
			well = well && r->code == 0;
			assert_int_equal(a[i].n_done, 1);
			answer_reset(&a[i]);
		}
		well = well && fault_passes(FAULT_ALLOC) - before < nth;
		fault_disarm_all();
		ended_well += well;
		rig_close(&g);
	}
	fake_redis_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(killed_and_back),
	    cmocka_unit_test(stopped_and_on),
	    cmocka_unit_test(a_full_one_is_not_used),
	    cmocka_unit_test(a_replica_is_left_at_once),
	    cmocka_unit_test(a_locked_one_wants_the_password),
	    cmocka_unit_test(errors_are_mapped_and_counted),
	    cmocka_unit_test(nonsense_ends_the_connection_and_nothing_else),
	    cmocka_unit_test(a_huge_reply_is_not_gathered),
	    cmocka_unit_test(a_mute_one_is_left_alone),
	    cmocka_unit_test(at_first_operations_wait_within_their_time),
	    cmocka_unit_test(they_come_back_one_by_one),
	    cmocka_unit_test(without_memory_every_operation_still_ends),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
