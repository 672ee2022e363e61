/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits over memory and over a real redis-server on the same fake clock, as one asks for them and waits.
 */
#ifndef TESTS_LIMITS_WORLD_H
#define TESTS_LIMITS_WORLD_H

#include "cache/limits.h"
#include "tests/support/cache_rig.h"
#include "tests/support/on_both.h"

#define SECOND INT64_C(1000000)

struct world {
	struct rig g;
	bool redis;
};

static inline void open_world(struct world *w, bool redis)
{
	rig_init(&w->g);
	w->redis = redis;
	if (redis) {
		w->g.cfg.store = CACHE_REDIS;
		w->g.cfg.address = server.address;
		redis_server_number(&server, "FLUSHALL");
	}
	rig_open(&w->g);
	if (redis)
		rig_turn_until_state(&w->g, CACHE_IS_UP);
}

static inline int set_up_memory(void **state)
{
	static struct world w;
	open_world(&w, false);
	*state = &w;
	return 0;
}

static inline int set_up_redis(void **state)
{
	static struct world w;
	if (!installed)
		return 0;
	open_world(&w, true);
	*state = &w;
	return 0;
}

static inline int tear_down(void **state)
{
	if (*state != NULL)
		rig_close(&((struct world *)*state)->g);
	return 0;
}

static inline struct world *world_of(void **state) { return state_of(state); }

static inline void make_id(uint8_t id[CACHE_ID_LEN], int i)
{
	memset(id, 0, CACHE_ID_LEN);
	memcpy(id + 3, &i, sizeof i); /* with NULs in it */
}

static inline struct cache_limit rate(const char *name, int64_t limit, int64_t burst, int64_t period, int64_t cost)
{
	struct cache_limit l = {.type = CACHE_RATE, .limit = limit, .burst = burst, .period_us = period, .cost = cost};
	rig_key(&l.key, CACHE_LIMIT, name);
	return l;
}

static inline struct cache_limit lease(const char *name, int64_t limit, int64_t cost)
{
	struct cache_limit l = {.type = CACHE_LEASE, .limit = limit, .cost = cost};
	rig_key(&l.key, CACHE_LIMIT, name);
	return l;
}

static inline struct cache_limit budget(const char *name, int64_t limit, int64_t period)
{
	struct cache_limit l = {.type = CACHE_BUDGET, .limit = limit, .period_us = period};
	rig_key(&l.key, CACHE_LIMIT, name);
	return l;
}

static inline struct cache_admission admit(struct world *w, int id, const struct cache_limit *items, size_t n,
					   int64_t want, int64_t least, int64_t ttl_us)
{
	struct answer a = {0};
	struct cache_admission out;
	uint8_t bytes[CACHE_ID_LEN];
	make_id(bytes, id);
	cache_admit(w->g.cl, &a.op, bytes, items, n, want, least, ttl_us, on_answer);
	cache_admission_read(rig_wait(&w->g, &a), &out);
	answer_reset(&a);
	assert_false(out.degraded);
	return out;
}

static inline struct cache_settlement settle(struct world *w, int id, const struct cache_limit *items, size_t n,
					     int64_t used, int64_t keep_us)
{
	struct answer a = {0};
	struct cache_settlement out;
	uint8_t bytes[CACHE_ID_LEN];
	make_id(bytes, id);
	cache_settle(w->g.cl, &a.op, bytes, items, n, used, keep_us, false, on_answer);
	cache_settlement_read(rig_wait(&w->g, &a), &out);
	answer_reset(&a);
	assert_int_equal(out.code, 0);
	return out;
}

#endif
