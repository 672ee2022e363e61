/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns works into commands. Each is one command, so it is atomic and takes one round trip: GET, SET or UNLINK if that
 * suffices, otherwise a script by its digest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cache/redis_priv.h"

enum { MAX_ARGS = 3 + 2 * CACHE_MAX_KEYS + CACHE_MAX_ARGS + 1, NUMBERS = CACHE_MAX_ARGS + 8 };

struct command {
	int n;
	int n_keys, n_numbers;
	const char *argv[MAX_ARGS];
	size_t len[MAX_ARGS];
	char keys[CACHE_MAX_KEYS + 1][sizeof(((struct cache *)NULL)->prefix) + sizeof(struct cache_key)];
	char numbers[NUMBERS][24];
};

static void add(struct command *c, const void *p, size_t n)
{
	BUG_IF(c->n == MAX_ARGS, "a command of more than %d arguments", MAX_ARGS);
	c->argv[c->n] = p;
	c->len[c->n++] = n;
}

static void add_text(struct command *c, const char *s) { add(c, s, strlen(s)); }

static void add_number(struct command *c, int64_t x)
{
	BUG_IF(c->n_numbers == NUMBERS, "a command of more than %d numbers", NUMBERS);
	char *to = c->numbers[c->n_numbers++];
	add(c, to, (size_t)snprintf(to, sizeof *c->numbers, "%" PRId64, x));
}

/* prefix, the first n of text, last. */
static void add_key(struct command *c, const struct cache *cache, const char *text, size_t n, const char *last)
{
	char *to = c->keys[c->n_keys++];
	int len = snprintf(to, sizeof *c->keys, "%s%.*s%s", cache->prefix, (int)n, text, last);
	BUG_IF(len < 0 || (size_t)len >= sizeof *c->keys, "a key of %d bytes", len);
	add(c, to, (size_t)len);
}

static void add_whole_key(struct command *c, const struct cache *cache, const struct cache_key *key)
{
	add_key(c, cache, key->text, key->len, "");
}

static void add_stem(struct command *c, const struct cache *cache, const struct cache_key *key)
{
	add_key(c, cache, key->text, cache_key_stem(key), "");
}

int redis_script_of(const struct cache *c, const struct cache_work *w)
{
	bool listed = w->n_keys > 0 && cache_kind_indexed(w->keys[0].kind);
	switch (w->type) {
	case WORK_GET:
	case WORK_FLUSH: return -1;
	case WORK_PUT: return listed ? SCRIPT_PUT : -1;
	case WORK_PUT_ABSENT: return SCRIPT_PUT;
	case WORK_DELETE: return listed ? SCRIPT_DELETE : -1;
	case WORK_LOG_APPEND: return SCRIPT_APPEND;
	case WORK_LOG_READ: return SCRIPT_READ;
	case WORK_LIST: return SCRIPT_LIST;
	case WORK_EVAL:
		for (size_t i = 0; i < c->n_procs; i++)
			if (c->procs[i] == w->proc)
				return N_SCRIPTS + (int)i;
	}
	BUG("no script for work of type %d", (int)w->type);
}

const char *redis_script_text(const struct cache *c, int script)
{
	if (script < N_SCRIPTS)
		return cache_scripts[script];
	size_t proc = (size_t)(script - N_SCRIPTS);
	return proc < c->n_procs ? c->procs[proc]->lua : NULL;
}

/* KEYS: the key and, of kinds that are listed, its tenant's list. */
static void add_listed_key(struct command *c, const struct cache *cache, const struct cache_key *key)
{
	bool listed = cache_kind_indexed(key->kind);
	add_number(c, listed ? 2 : 1);
	add_whole_key(c, cache, key);
	if (listed)
		add_key(c, cache, key->text, cache_key_stem(key), "index");
}

static void add_listing(struct command *c, const struct cache *cache, const struct cache_key *key)
{
	add_text(c, cache_key_digest(key));
	add_number(c, cache->cfg.max_keys_per_tenant);
	add_stem(c, cache, key);
}

static void script_arguments(struct command *c, const struct cache *cache, const struct cache_work *w)
{
	const struct cache_config *cfg = &cache->cfg;
	const struct cache_key *key = w->keys;
	switch (w->type) {
	case WORK_PUT:
	case WORK_PUT_ABSENT:
		add_listed_key(c, cache, key);
		add(c, w->bytes, w->n);
		add_number(c, (int64_t)w->ttl_ms);
		add_number(c, w->type == WORK_PUT_ABSENT);
		add_listing(c, cache, key);
		return;
	case WORK_DELETE:
		add_listed_key(c, cache, key);
		add_text(c, cache_key_digest(key));
		return;
	case WORK_LOG_APPEND:
		add_listed_key(c, cache, key);
		add(c, w->bytes, w->n);
		add_number(c, (int64_t)w->ttl_ms);
		add_number(c, (int64_t)w->seq);
		add_number(c, w->n_seq);
		add_number(c, (int64_t)cfg->max_log_bytes);
		add_listing(c, cache, key);
		return;
	case WORK_LOG_READ:
		add_number(c, 1);
		add_whole_key(c, cache, key);
		add_number(c, (int64_t)w->seq);
		add_number(c, (int64_t)w->max_bytes);
		add_number(c, MAX_BATCHES_READ);
		return;
	case WORK_LIST:
		add_number(c, 1);
		add_whole_key(c, cache, key);
		add_stem(c, cache, key);
		return;
	case WORK_EVAL:
		add_number(c, (int64_t)w->n_keys);
		for (size_t i = 0; i < w->n_keys; i++)
			add_whole_key(c, cache, &w->keys[i]);
		add_number(c, cfg->now_us == NULL ? 0 : (int64_t)cfg->now_us(cfg->now_ctx));
		for (size_t i = 0; i < w->n_args; i++) {
			if (w->args[i].p != NULL)
				add(c, w->args[i].p, w->args[i].n);
			else
				add_number(c, w->args[i].i);
		}
		return;
	case WORK_GET:
	case WORK_FLUSH: break;
	}
	BUG("work of type %d runs no script", (int)w->type);
}

static void plain_command(struct command *c, const struct cache *cache, const struct cache_work *w)
{
	add_text(c, w->type == WORK_GET ? "GET" : w->type == WORK_PUT ? "SET" : "UNLINK");
	add_whole_key(c, cache, w->keys);
	if (w->type == WORK_DELETE) /* what procedures keep beside it */
		add_key(c, cache, w->keys->text, w->keys->len, ":x");
	if (w->type != WORK_PUT)
		return;
	add(c, w->bytes, w->n);
	if (w->ttl_ms > 0) {
		add_text(c, "PX");
		add_number(c, (int64_t)w->ttl_ms);
	}
}

int redis_send(redisAsyncContext *ac, const struct cache_work *w, const char *sha, redisCallbackFn *fn, void *privdata)
{
	const struct cache *cache = w->client->cache;
	int script = redis_script_of(cache, w);
	struct command c;
	c.n = c.n_keys = c.n_numbers = 0;
	if (script < 0) {
		plain_command(&c, cache, w);
	} else {
		add_text(&c, sha == NULL ? "EVAL" : "EVALSHA");
		add_text(&c, sha == NULL ? redis_script_text(cache, script) : sha);
		script_arguments(&c, cache, w);
	}
	return redisAsyncCommandArgv(ac, fn, privdata, c.n, c.argv, c.len) == REDIS_OK ? 0 : SL_ECLOSED;
}
