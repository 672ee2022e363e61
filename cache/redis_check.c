/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/redis_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cache/redis_priv.h"

enum { PINGS = 5, SECRET_MOST = 1024, ADDRESS_MOST = 256 };

struct check {
	redisContext *redis;
	struct redis_facts *facts;
	struct sl_err *err;
};

static redisContext *connect_to(const char *address, struct timeval limit)
{
	size_t at, n;
	int port;
	char host[ADDRESS_MOST];
	if (strncmp(address, "unix:", 5) == 0 || address[0] == '/')
		return redisConnectUnixWithTimeout(address[0] == '/' ? address : address + 5, limit);
	if (!redis_split_address(address, strlen(address), &at, &n, &port) || n >= sizeof host)
		return NULL;
	snprintf(host, sizeof host, "%.*s", (int)n, address + at);
	return redisConnectWithTimeout(host, port, limit);
}

/* A command's reply, which the caller frees; NULL: none came, with *err. */
static redisReply *ask(struct check *c, int argc, const char **argv)
{
	redisReply *r = redisCommandArgv(c->redis, argc, argv, NULL);
	if (r == NULL)
		sl_errf(c->err, SL_EIO, "no answer to %s: %s", argv[0], c->redis->errstr);
	return r;
}

/* 0 if it answers OK. */
static int must(struct check *c, int argc, const char **argv)
{
	redisReply *r = ask(c, argc, argv);
	int rc = r == NULL ? SL_EIO : 0;
	if (r != NULL && r->type == REDIS_REPLY_ERROR) {
		/* Before Redis 6 a server without a password refuses AUTH; the gateway's link sees the same. */
		rc = sl_errf(c->err, SL_EINVAL, "%.200s", r->str);
		c->facts->is_refused = strcmp(argv[0], "AUTH") == 0 || strncmp(r->str, "NOAUTH", 6) == 0;
		c->facts->password_needless = strstr(r->str, "without any password") != NULL;
	}
	freeReplyObject(r);
	return rc;
}

static int read_secret(const char *path, char out[SECRET_MOST], struct sl_err *err)
{
	struct sl_buf text;
	struct sl_err why = {0};
	int rc = file_read(path, SECRET_MOST - 1, &text, &why);
	if (rc != 0) {
		sl_errf(err, rc, "%s: %s", path, why.text);
	} else {
		snprintf(out, SECRET_MOST, "%.*s", (int)text.len, text.len > 0 ? (const char *)buf_data(&text) : "");
		out[strcspn(out, "\r\n")] = '\0';
	}
	void *bytes = buf_data(&text);
	if (bytes != NULL)
		explicit_bzero(bytes, text.len);
	buf_dispose(&text);
	return rc;
}

static int log_in(struct check *c, const char *user, const char *password_file)
{
	char secret[SECRET_MOST] = "";
	int rc = 0;
	if (password_file != NULL) {
		rc = read_secret(password_file, secret, c->err);
		c->facts->is_password_file = rc != 0;
	}
	if (rc == 0 && password_file != NULL && user != NULL)
		rc = must(c, 3, (const char *[]){"AUTH", user, secret});
	else if (rc == 0 && password_file != NULL)
		rc = must(c, 2, (const char *[]){"AUTH", secret});
	explicit_bzero(secret, sizeof secret);
	return rc;
}

/* A line "NAME:value" of INFO. */
static void info_line(const char *info, const char *name, char *out, size_t room)
{
	size_t n = strlen(name);
	for (const char *at = info; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
		if (strncmp(at, name, n) == 0 && at[n] == ':') {
			snprintf(out, room, "%.*s", (int)strcspn(at + n + 1, "\r\n"), at + n + 1);
			text_one_line(out, '?');
			return;
		}
	}
}

static void read_info(struct check *c)
{
	redisReply *r = ask(c, 1, (const char *[]){"INFO"});
	char bytes[32] = "0";
	if (r != NULL && r->type == REDIS_REPLY_STRING) {
		info_line(r->str, "redis_version", c->facts->version, sizeof c->facts->version);
		info_line(r->str, "role", c->facts->role, sizeof c->facts->role);
		info_line(r->str, "maxmemory_policy", c->facts->policy, sizeof c->facts->policy);
		info_line(r->str, "maxmemory", bytes, sizeof bytes);
		c->facts->max_memory = strtoull(bytes, NULL, 10);
	}
	freeReplyObject(r);
}

static int time_pings(struct check *c)
{
	int rc = 0;
	for (int i = 0; rc == 0 && i < PINGS; i++) {
		uint64_t from = clock_now_ns(), us;
		rc = must(c, 1, (const char *[]){"PING"});
		us = (clock_now_ns() - from) / 1000;
		if (i == 0 || us < c->facts->latency_us)
			c->facts->latency_us = us;
	}
	return rc;
}

static int examine(struct check *c, const struct cache_config *cfg)
{
	char database[16];
	int rc = log_in(c, cfg->user, cfg->password_file);
	snprintf(database, sizeof database, "%d", cfg->database);
	if (rc == 0)
		rc = time_pings(c);
	if (rc == 0 && cfg->database != 0)
		rc = must(c, 2, (const char *[]){"SELECT", database});
	if (rc == 0)
		read_info(c);
	return rc;
}

/* Connects to one sentinel and authenticates there. 0, or *err. */
static int greet_sentinel(struct check *c, const struct cache_config *cfg, const struct sentinel_place *at,
			  struct timeval limit)
{
	c->redis = redisConnectWithTimeout(at->host, at->port, limit);
	if (c->redis == NULL || c->redis->err != 0 || redisSetTimeout(c->redis, limit) != REDIS_OK)
		return sl_errf(c->err, SL_EIO, "%s", c->redis == NULL ? "no memory" : c->redis->errstr);
	return log_in(c, NULL, cfg->sentinel_password_file);
}

/* Into an address "HOST:PORT"; false: this sentinel does not know, with *err. */
static bool ask_one(struct check *c, const struct cache_config *cfg, const struct sentinel_set *set,
		    struct timeval limit, size_t i, char *out, size_t room)
{
	const struct sentinel_place *at = &set->of[i];
	const char *why = c->err->text, *host = NULL;
	int port;
	*c->facts = (struct redis_facts){.of_sentinel = true};
	redisReply *r = greet_sentinel(c, cfg, at, limit) == 0
			    ? ask(c, 3, (const char *[]){"SENTINEL", "GET-MASTER-ADDR-BY-NAME", set->name})
			    : NULL;
	if (r != NULL && (host = sentinel_named(r, &port, &why)) != NULL) {
		snprintf(out, room, strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host, port);
	} else {
		struct sl_err said;
		c->facts->is_refused |= r != NULL && r->type == REDIS_REPLY_ERROR && strncmp(r->str, "NOAUTH", 6) == 0;
		snprintf(said.text, sizeof said.text, "%s", why);
		sl_errf(c->err, SL_EIO, "the sentinel at %s, port %d: %s", at->host, at->port, said.text);
	}
	freeReplyObject(r);
	redisFree(c->redis);
	c->redis = NULL;
	return host != NULL;
}

static int ask_sentinels(struct check *c, const struct cache_config *cfg, struct timeval limit, char *out, size_t room)
{
	struct sentinel_set set;
	int rc = sentinel_parse(cfg->address, &set, c->err);
	bool known = false;
	for (size_t i = 0; rc == 0 && i < set.n && !known; i++)
		known = ask_one(c, cfg, &set, limit, i, out, room);
	if (rc != 0 || !known)
		return rc != 0 ? rc : SL_EIO;
	*c->facts = (struct redis_facts){0};
	return 0;
}

int redis_check(const struct cache_config *cfg, struct redis_facts *out, struct sl_err *err)
{
	struct check c = {.facts = out, .err = err};
	const struct timeval limit = {.tv_sec = cfg->connect_timeout_ms / 1000,
				      .tv_usec = (cfg->connect_timeout_ms % 1000) * 1000};
	char named[ADDRESS_MOST + 16];
	const char *address = cfg->address;
	*out = (struct redis_facts){.latency_us = 0};
	if (sentinel_is(address)) {
		int rc = ask_sentinels(&c, cfg, limit, named, sizeof named);
		if (rc != 0)
			return rc;
		address = named;
	}
	c.redis = connect_to(address, limit);
	int rc;
	if (c.redis == NULL)
		rc = sl_errf(err, SL_EINVAL, "%s is not unix:PATH or HOST:PORT", address);
	else if (c.redis->err != 0)
		rc = sl_errf(err, SL_EIO, "%s", c.redis->errstr);
	else if (redisSetTimeout(c.redis, limit) != REDIS_OK)
		rc = sl_errf(err, SL_EIO, "%s", c.redis->errstr);
	else
		rc = examine(&c, cfg);
	if (c.redis != NULL)
		redisFree(c.redis);
	return rc;
}
