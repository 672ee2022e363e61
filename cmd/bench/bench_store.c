/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench store`: latency that the store adds before a request's first token, compared with two bare PINGs on a
 * separate socket, alternating in the same run. Redis is a private one, as `sluice serve` starts it.
 *
 *   take    charges a key's limits (gateway/exchange/quota.h): the one round trip on QUEUED
 *   settle  settles the charge at the end; no response waits for it
 */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/percentile.h"
#include "cache/cache.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/bench_child.h"
#include "cmd/bench/bench_folder.h"
#include "cmd/config/cmd.h"
#include "cmd/state/private_redis.h"
#include "gateway/exchange/quota.h"

enum { MOST_TIMES = 100000, PATIENCE_MS = 5000, SERVER_MEMORY = 64 << 20 };

struct bench_store {
	struct private_redis redis;
	struct bench_child server;
	struct cache *cache;
	struct cache_client *client;
	struct event_base *base;
	struct quotas quotas;
	struct gw_tier_config tier;
	struct auth_key key;
	int ping;                   /* a socket to the same server */
	bool done, admitted, whole; /* whole: by Redis, not by the fallback */
};

static void nap(void) { usleep(1000); }

static int connect_to(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
	if (n < 0 || (size_t)n >= sizeof to.sun_path)
		return -1; /* too long for a socket's path */
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* False: the server does not answer. */
static bool ping(int fd)
{
	static const char ask[] = "*1\r\n$4\r\nPING\r\n", want[] = "+PONG\r\n";
	char got[sizeof want];
	size_t n = 0;
	if (write(fd, ask, sizeof ask - 1) != (ssize_t)sizeof ask - 1)
		return false;
	while (n < sizeof want - 1) {
		ssize_t r = read(fd, got + n, sizeof want - 1 - n);
		if (r <= 0)
			return false;
		n += (size_t)r;
	}
	return memcmp(got, want, n) == 0;
}

static void on_taken(void *ctx, struct quota *q, const struct quota_result *r)
{
	struct bench_store *b = ctx;
	(void)q;
	b->done = true;
	b->admitted = r->admitted;
	b->whole = !r->degraded;
}

/* Measures the seconds of one charge and of its settlement. False: it failed. */
static bool charge(struct bench_store *b, double *take, double *settle)
{
	const struct quota_ask ask = {.key = &b->key, .requests = 1, .tokens = 600, .least = 101};
	struct quota *q;
	uint64_t begin = clock_now_ns();
	b->done = false;
	if (quota_take(&b->quotas, &ask, on_taken, b, &q) != 0)
		return false;
	while (!b->done)
		event_base_loop(b->base, EVLOOP_ONCE);
	*take = (double)(clock_now_ns() - begin) / 1e9;
	if (!b->admitted)
		return false;
	begin = clock_now_ns();
	quota_settle(q, 300);
	while (quotas_busy(&b->quotas))
		event_base_loop(b->base, EVLOOP_ONCE);
	*settle = (double)(clock_now_ns() - begin) / 1e9;
	return b->whole;
}

static int run(struct bench_store *b, const char *name, int times, bool json, bool first)
{
	double *pings = sl_zalloc_n((size_t)times * 3, sizeof *pings);
	if (pings == NULL)
		return bench_complain(1, "out of memory");
	double *takes = pings + times, *settles = takes + times;
	int rc = 0;
	for (int i = -times / 10; i < times && rc == 0; i++) {
		int at = i < 0 ? 0 : i; /* the first ones warm up */
		uint64_t begin = clock_now_ns();
		bool there = ping(b->ping);
		there = ping(b->ping) && there;
		pings[at] = (double)(clock_now_ns() - begin) / 1e9;
		if (!there || !charge(b, &takes[at], &settles[at]))
			rc = bench_complain(1, "redis-server gave a wrong answer");
	}
	if (rc == 0) {
		double two = percentile(pings, (size_t)times, 50), take = percentile(takes, (size_t)times, 50);
		double settle = percentile(settles, (size_t)times, 50);
		if (json)
			printf("%s{\"limits\":\"%s\",\"two_pings_us\":%.2f,\"take_us\":%.2f,\"settle_us\":%.2f,"
			       "\"ratio\":%.3f}",
			       first ? "" : ",", name, two * 1e6, take * 1e6, settle * 1e6, take / two);
		else
			printf("%-44s %9.1f %9.1f %9.1f %9.2f\n", name, two * 1e6, take * 1e6, settle * 1e6,
			       take / two);
		fflush(stdout);
	}
	sl_free(pings);
	return rc;
}

static int start_redis(struct bench_store *b, const char *state, struct sl_err *err)
{
	char log[256], sub[256];
	if (!private_redis_find(&b->redis, state, SERVER_MEMORY))
		return sl_errf(err, SL_ENOTFOUND, "redis-server is not installed");
	snprintf(sub, sizeof sub, "%s/run", state);
	if (mkdir(sub, 0700) != 0)
		return sl_errf(err, SL_EIO, "%s: %s", sub, strerror(errno));
	int rc = private_redis_prepare(&b->redis, err);
	if (rc != 0)
		return rc;
	snprintf(log, sizeof log, "%s/redis.log", state);
	rc = bench_child_start(&b->server, (char *const *)(void *)b->redis.argv, 1, log, err);
	uint64_t end = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
	while (rc == 0 && (b->ping = connect_to(b->redis.socket)) < 0) {
		if (clock_now_ns() > end || !bench_child_alive(&b->server))
			return sl_errf(err, SL_EIO, "redis-server failed to start (%s)", log);
		nap();
	}
	return rc;
}

static int start_client(struct bench_store *b, struct sl_err *err)
{
	struct cache_config cfg;
	cache_config_init(&cfg);
	cfg.store = CACHE_REDIS;
	cfg.address = b->redis.address;
	cfg.op_timeout_ms = PATIENCE_MS; /* generous: the machine may be busy, and outliers do not change a median */
	b->base = event_base_new();
	int rc = b->base == NULL ? SL_ENOMEM : cache_create(&cfg, NULL, 0, &b->cache, err);
	if (rc == 0)
		rc = cache_client_create(b->cache, b->base, &b->client);
	if (rc == 0)
		rc = quotas_init(&b->quotas, b->base, b->client);
	uint64_t end = clock_now_ns() + PATIENCE_MS * NS_PER_MS;
	while (rc == 0 && cache_client_state(b->client) != CACHE_IS_UP) {
		if (clock_now_ns() > end)
			return sl_errf(err, SL_EIO, "redis-server does not answer");
		event_base_loop(b->base, EVLOOP_NONBLOCK);
		nap();
	}
	return rc;
}

static void stop(struct bench_store *b)
{
	if (b->quotas.client != NULL)
		quotas_dispose(&b->quotas);
	if (b->client != NULL)
		cache_client_destroy(b->client);
	if (b->cache != NULL)
		cache_destroy(b->cache);
	if (b->base != NULL)
		event_base_free(b->base);
	if (b->ping >= 0)
		close(b->ping);
	bench_child_stop(&b->server);
}

int bench_store(int argc, char **argv)
{
	bool json = false;
	double times = 5000;
	const struct bench_option options[] = {{"--times", &times, NULL, NULL, 10, MOST_TIMES},
					       {"--json", NULL, NULL, &json, 0, 0}};
	int rc = bench_parse(argc, argv, options, 2, NULL);
	if (rc != 0)
		return rc;
	static struct bench_store b = {.ping = -1};
	static const struct {
		const char *name;
		int64_t requests, tokens, day;
	} kinds[] = {{"requests a minute", 1 << 20, 0, 0},
		     {"requests a minute, tokens a day", 1 << 20, 0, INT64_C(1) << 36},
		     {"requests and tokens a minute, tokens a day", 1 << 20, 1 << 26, INT64_C(1) << 36}};
	struct sl_err err = {0};
	char state[96];
	if (bench_folder_make(state, sizeof state, &err) != 0)
		return bench_complain(1, "%s", err.text);
	log_set_level(LOG_ERROR);
	bench_pin(0);
	b.key.tier = &b.tier;
	b.key.tenant = 1;
	rc = start_redis(&b, state, &err);
	if (rc == 0)
		rc = start_client(&b, &err);
	if (rc != 0)
		rc = bench_complain(1, "%s", err.text);
	if (rc == 0 && json) {
		printf("{\"store\":[");
	} else if (rc == 0) {
		bench_header();
		printf("\nus, medians of %d                          two PINGs      take    settle     ratio\n",
		       (int)times);
	}
	for (size_t i = 0; rc == 0 && i < sizeof kinds / sizeof *kinds; i++) {
		b.tier = (struct gw_tier_config){.name = (char *)(uintptr_t) "bench",
						 .requests_per_minute = kinds[i].requests,
						 .tokens_per_minute = kinds[i].tokens,
						 .tokens_per_day = kinds[i].day};
		rc = run(&b, kinds[i].name, (int)times, json, i == 0);
	}
	if (rc == 0 && json)
		printf("]}\n");
	stop(&b);
	bench_folder_remove(state);
	return rc;
}
