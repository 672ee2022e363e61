/* SPDX-License-Identifier: Apache-2.0
 *
 * A small store, in memory or in a real redis-server, and its operations as one waits for them. Time passes by the
 * rig's clock for memory; in Redis every life (and every score of a list) is shortened by as much.
 */
#ifndef TESTS_CACHE_WORLD_H
#define TESTS_CACHE_WORLD_H

#include "cache/priv.h"
#include "tests/support/cache_rig.h"
#include "tests/support/on_both.h"

/* ---- a procedure of the tests' own ---- */

/* KEYS: counter. ARGV: now, by, text. Answers count, the text before, now. */
static const struct cache_proc tally = {"tally", "local had = redis.call('HMGET', KEYS[1], 'n', 'last')\n"
						 "local n, last = (had[1] or 0) + ARGV[2], had[2] or ''\n"
						 "redis.call('HSET', KEYS[1], 'n', n, 'last', ARGV[3])\n"
						 "redis.call('PEXPIRE', KEYS[1], 60000)\n"
						 "return {n, last, tonumber(ARGV[1])}\n"};
static const struct cache_proc *const procs[] = {&tally};

/* ---- the world ---- */

struct world {
	struct rig g;
	bool redis;
};

static inline void open_world(struct world *w)
{
	w->g.cfg.max_value_bytes = 4096;
	w->g.cfg.max_log_bytes = 20000;
	w->g.cfg.max_keys_per_tenant = 8;
	w->g.cfg.memory_bytes = 1 << 20;
	w->g.cfg.max_ops = 64;
	if (w->redis) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open_with(&w->g, procs, 1);
	if (w->redis)
		rig_turn_until_state(&w->g, CACHE_IS_UP);
}

static inline int set_up(void **state, bool redis)
{
	static struct world w;
	if (redis && !installed)
		return 0;
	rig_init(&w.g);
	w.redis = redis;
	open_world(&w);
	*state = &w;
	return 0;
}

static inline int set_up_memory(void **state) { return set_up(state, false); }
static inline int set_up_redis(void **state) { return set_up(state, true); }

static inline int tear_down(void **state)
{
	struct world *w = *state;
	if (w != NULL)
		rig_close(&w->g);
	return 0;
}

static inline struct world *world_of(void **state) { return state_of(state); }

static inline void pass_ms(struct world *w, uint64_t ms)
{
	w->g.now_us += ms * 1000;
	if (w->redis)
		redis_server_number(&server, "EVAL %s 0 %llu",
				    "for _, key in ipairs(redis.call('KEYS', '*')) do\n"
				    "  if redis.call('TYPE', key).ok == 'zset' then\n"
				    "    for _, m in ipairs(redis.call('ZRANGE', key, 0, -1)) do\n"
				    "      redis.call('ZINCRBY', key, -ARGV[1], m)\n"
				    "    end\n"
				    "  end\n"
				    "  local left = redis.call('PTTL', key)\n"
				    "  if left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end\n"
				    "end return 0",
				    (unsigned long long)ms);
}

/* ---- operations that are waited for ---- */

static inline int code_of(struct world *w, struct answer *a)
{
	const struct cache_result *r = rig_wait(&w->g, a);
	assert_false(r->degraded);
	return r->code;
}

static inline int put_v(struct world *w, const struct cache_key *key, uint8_t version, const void *p, size_t n,
			uint64_t ttl_ms)
{
	struct answer a = {0};
	cache_put(w->g.cl, &a.op, key, version, p, n, ttl_ms, on_answer);
	int rc = code_of(w, &a);
	answer_reset(&a);
	return rc;
}

static inline int put(struct world *w, const struct cache_key *key, const char *text, uint64_t ttl_ms)
{
	return put_v(w, key, 1, text, strlen(text), ttl_ms);
}

/* The value as text, or NULL and *code. */
static inline const char *get_v(struct world *w, const struct cache_key *key, uint8_t version)
{
	static char text[8192];
	struct answer a = {0};
	cache_get(w->g.cl, &a.op, key, version, on_answer);
	int rc = code_of(w, &a);
	if (rc == 0) {
		assert_true(a.r.n < sizeof text);
		memcpy(text, a.r.bytes, a.r.n);
		text[a.r.n] = '\0';
	} else {
		assert_int_equal(rc, SL_ENOTFOUND);
	}
	answer_reset(&a);
	return rc == 0 ? text : NULL;
}

static inline const char *get(struct world *w, const struct cache_key *key) { return get_v(w, key, 1); }

static inline bool forget(struct world *w, const struct cache_key *key)
{
	struct answer a = {0};
	cache_delete(w->g.cl, &a.op, key, on_answer);
	assert_int_equal(code_of(w, &a), 0);
	bool found = a.r.found;
	answer_reset(&a);
	return found;
}

static inline int append(struct world *w, const struct cache_key *key, uint64_t first, uint32_t n, const char *text,
			 struct cache_result *r)
{
	struct answer a = {0};
	cache_log_append(w->g.cl, &a.op, key, first, n, text, strlen(text), 60000, on_answer);
	int rc = code_of(w, &a);
	*r = a.r;
	answer_reset(&a);
	return rc;
}

static inline void read_log(struct world *w, struct answer *a, const struct cache_key *key, uint64_t from, size_t max)
{
	cache_log_read(w->g.cl, &a->op, key, from, max, on_answer);
	(void)code_of(w, a);
}

/* Which of the keys a..h are listed, in order. */
static inline const char *listed(struct world *w, enum cache_kind kind, const char *tenant)
{
	static char names[64];
	struct answer a = {0};
	cache_list(w->g.cl, &a.op, kind, tenant, on_answer);
	assert_int_equal(code_of(w, &a), 0);
	size_t n = 0;
	for (size_t i = 0; i < a.r.n_items; i++)
		for (char c = 'a'; c <= 'z'; c++) {
			struct cache_key key;
			cache_key_make(&key, kind, tenant, &c, 1);
			assert_int_equal(a.r.items[i].n, CACHE_DIGEST_LEN);
			if (memcmp(a.r.items[i].bytes, cache_key_digest(&key), CACHE_DIGEST_LEN) == 0)
				names[n++] = c;
		}
	assert_int_equal(n, a.r.n_items);
	names[n] = '\0';
	answer_reset(&a);
	return names;
}

#endif
