/* SPDX-License-Identifier: Apache-2.0
 *
 * Process-wide state: the checked configuration, the resolved address (hiredis would resolve names in connect, on the
 * loop), the password, and the memory store's thread, which also serves as the fallback for Redis.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cache/limits.h"
#include "cache/priv.h"

enum { MAX_LISTED = 10000, SMALLEST_MEMORY = 1 << 20, PASSWORD_MOST = 1022, PASSWORD_FILE_MOST = 64 << 10 };

void cache_config_init(struct cache_config *cfg)
{
	*cfg = (struct cache_config){.store = CACHE_MEMORY,
				     .prefix = "sluice:",
				     .connect_timeout_ms = 500,
				     .op_timeout_ms = 100,
				     .backoff_least_ms = 50,
				     .backoff_most_ms = 5000,
				     .breaker_failures = 5,
				     .max_ops = 4096,
				     .max_value_bytes = 1 << 20,
				     .max_log_bytes = 4 << 20,
				     .max_keys_per_tenant = 1000,
				     .memory_bytes = 64 << 20,
				     .n_gateways = 1};
}

static int check(const struct cache_config *c, struct sl_err *err)
{
	size_t n_prefix = c->prefix == NULL ? 0 : strlen(c->prefix);
	if (c->prefix == NULL || n_prefix > 32 ||
	    strspn(c->prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-") != n_prefix)
		return sl_errf(err, SL_EINVAL, "cache prefix: up to 32 of A-Z a-z 0-9 : . _ -");
	if (c->op_timeout_ms < 4 || c->connect_timeout_ms < 1 || c->backoff_least_ms < 1 ||
	    c->backoff_most_ms < c->backoff_least_ms)
		return sl_errf(err, SL_EINVAL, "cache timeouts: each at least 1 ms, an operation's 4 ms");
	if (c->breaker_failures < 1 || c->max_ops < 1 || c->max_ops > 1 << 20 || c->n_gateways < 1)
		return sl_errf(err, SL_EINVAL, "cache: at least one failure, operation and gateway");
	if (c->max_keys_per_tenant < 1 || c->max_keys_per_tenant > MAX_LISTED)
		return sl_errf(err, SL_EINVAL, "cache keys per tenant: 1 to %d", MAX_LISTED);
	if (c->database < 0)
		return sl_errf(err, SL_EINVAL, "cache database: not negative");
	size_t largest = c->max_value_bytes > c->max_log_bytes ? c->max_value_bytes : c->max_log_bytes;
	if (c->max_value_bytes < 1 || c->max_log_bytes < 1 || largest > 256u << 20)
		return sl_errf(err, SL_EINVAL, "cache: values and logs have 1 byte to 256 MiB");
	/* The smallest share (10 %) must hold the largest value. */
	if (c->memory_bytes < SMALLEST_MEMORY || c->memory_bytes / 12 < largest)
		return sl_errf(err, SL_EINVAL, "cache memory: at least 1 MiB and 12 times the largest value or log");
	return 0;
}

static int parse_address(struct cache *c, struct sl_err *err)
{
	const char *a = c->cfg.address;
	if (a == NULL)
		return sl_errf(err, SL_EINVAL, "cache address: missing");
	if (strncmp(a, "unix:", 5) == 0 || a[0] == '/') {
		const char *path = a[0] == '/' ? a : a + 5;
		if (path[0] == '\0' || strlen(path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
			return sl_errf(err, SL_EINVAL, "cache address %s: too long for a socket", a);
		c->unix_path = sl_strdup(path);
		return c->unix_path == NULL ? sl_errf(err, SL_ENOMEM, "cache: no memory") : 0;
	}
	if (sentinel_is(a))
		return sentinel_parse(a, &c->sentinels, err);
	size_t at, n;
	if (!redis_split_address(a, strlen(a), &at, &n, &c->port))
		return sl_errf(err, SL_EINVAL, "cache address %s: unix:PATH, HOST:PORT or [ADDRESS]:PORT", a);
	char *host = sl_strndup(a + at, n);
	if (host == NULL)
		return sl_errf(err, SL_ENOMEM, "cache: no memory");
	struct sl_err why;
	int rc = redis_find_host(host, c->port, c->host, &why);
	sl_free(host);
	return rc == 0 ? 0 : sl_errf(err, rc, "cache address %s: %s", a, why.text);
}

static int read_password(const char *key, const char *path, char **out, struct sl_err *err)
{
	struct sl_buf text;
	struct sl_err why = {0};
	if (path == NULL)
		return 0;
	int rc = file_read(path, PASSWORD_FILE_MOST, &text, &why);
	if (rc != 0) {
		sl_errf(err, rc, "%s: %s: %s", key, path, why.text);
	} else {
		const char *line = text.len > 0 ? (const char *)buf_data(&text) : "";
		size_t n = 0;
		while (n < text.len && line[n] != '\r' && line[n] != '\n' && line[n] != '\0')
			n++;
		if (n == 0 || n > PASSWORD_MOST)
			rc = sl_errf(err, SL_EINVAL, "%s: %s: the first line is the password", key, path);
		else if ((*out = sl_strndup(line, n)) == NULL)
			rc = sl_errf(err, SL_ENOMEM, "cache: no memory");
	}
	if (text.len > 0)
		explicit_bzero(buf_data(&text), text.len);
	buf_dispose(&text);
	return rc;
}

static void forget(char *password)
{
	if (password != NULL)
		explicit_bzero(password, strlen(password));
	sl_free(password);
}

static void free_all(struct cache *c)
{
	sl_free(c->unix_path);
	sl_free(c->user);
	forget(c->password);
	forget(c->sentinel_password);
	sl_free(c);
}

static int set_up(struct cache *c, struct sl_err *err)
{
	int rc;
	if (c->cfg.store == CACHE_REDIS) {
		rc = parse_address(c, err);
		if (rc == 0)
			rc = read_password("cache.password_file", c->cfg.password_file, &c->password, err);
		if (rc == 0)
			rc = read_password("cache.sentinel_password_file", c->cfg.sentinel_password_file,
					   &c->sentinel_password, err);
		if (rc == 0 && c->cfg.user != NULL && (c->user = sl_strdup(c->cfg.user)) == NULL)
			rc = sl_errf(err, SL_ENOMEM, "cache: no memory");
		if (rc != 0)
			return rc;
	}
	rc = mem_thread_start(c, &c->memory);
	return rc == 0 ? 0 : sl_errf(err, rc, "cache: the memory store: %s", sl_code_name(rc));
}

int cache_create(const struct cache_config *cfg, const struct cache_proc *const *procs, size_t n_procs,
		 struct cache **out, struct sl_err *err)
{
	int rc = check(cfg, err);
	if (rc != 0)
		return rc;
	BUG_IF(n_procs > CACHE_MAX_PROCS, "%zu procedures", n_procs);
	struct cache *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return sl_errf(err, SL_ENOMEM, "cache: no memory");
	c->cfg = *cfg;
	snprintf(c->prefix, sizeof c->prefix, "%s", cfg->prefix);
	c->procs[c->n_procs++] = &cache_proc_admit;
	c->procs[c->n_procs++] = &cache_proc_settle;
	for (size_t i = 0; i < n_procs; i++)
		c->procs[c->n_procs++] = procs[i];
	rc = set_up(c, err);
	/* The caller's strings are no longer needed. */
	c->cfg.address = c->cfg.user = c->cfg.password_file = c->cfg.sentinel_password_file = NULL;
	c->cfg.prefix = c->prefix;
	if (rc != 0) {
		free_all(c);
		return rc;
	}
	*out = c;
	return 0;
}

void cache_destroy(struct cache *c)
{
	BUG_IF(atomic_load(&c->n_clients) != 0, "the store is destroyed before its clients");
	mem_thread_stop(c->memory);
	free_all(c);
}
