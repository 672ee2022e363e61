/* SPDX-License-Identifier: Apache-2.0
 *
 * A store with one client and its loop, for tests: it waits for operations and keeps their answers. The clock of memory
 * and of procedures is the rig's unless real_clock is set.
 */
#ifndef TESTS_SUPPORT_CACHE_RIG_H
#define TESTS_SUPPORT_CACHE_RIG_H

#include <event2/event.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cache/cache.h"

enum { RIG_PATIENCE_MS = 20000 };

struct rig {
	struct cache_config cfg;
	struct event_base *base;
	struct cache *cache;
	struct cache_client *cl;
	_Atomic uint64_t now_us;
};

/* A copy of a result. */
struct answer {
	struct cache_op op;
	int n_done;
	struct cache_result r;
	void *kept; /* what r points at */
};

static inline uint64_t rig_now(void *ctx) { return atomic_load(&((struct rig *)ctx)->now_us); }

/* Sets cfg for tests; change it before rig_open. */
static inline void rig_init(struct rig *g)
{
	signal(SIGPIPE, SIG_IGN);
	memset(g, 0, sizeof *g);
	cache_config_init(&g->cfg);
	g->cfg.op_timeout_ms = 10000; /* generous for slow machines; tests of timeouts set their own */
	g->cfg.connect_timeout_ms = 10000;
	g->now_us = UINT64_C(1700000000) * 1000000;
	g->cfg.now_us = rig_now;
	g->cfg.now_ctx = g;
	g->base = event_base_new();
	BUG_IF(g->base == NULL, "no event base");
}

static inline void rig_open_with(struct rig *g, const struct cache_proc *const *procs, size_t n)
{
	struct sl_err err = {0};
	BUG_IF(cache_create(&g->cfg, procs, n, &g->cache, &err) != 0, "%s", err.text);
	BUG_IF(cache_client_create(g->cache, g->base, &g->cl) != 0, "no client");
}

static inline void rig_open(struct rig *g) { rig_open_with(g, NULL, 0); }

static inline void rig_close(struct rig *g)
{
	cache_client_destroy(g->cl);
	cache_destroy(g->cache);
	event_base_free(g->base);
}

static inline void answer_reset(struct answer *a)
{
	BUG_IF(cache_op_busy(&a->op), "an answer that is still to come");
	free(a->kept);
	memset(a, 0, sizeof *a);
}

static inline void on_answer(struct cache_op *op, const struct cache_result *r)
{
	struct answer *a = (struct answer *)(void *)op; /* its first member */
	a->n_done++;
	a->r = *r;
	size_t size = r->n + 1 + r->n_items * sizeof *r->items + r->n_values * sizeof *r->values;
	for (size_t i = 0; i < r->n_items; i++)
		size += r->items[i].n;
	for (size_t i = 0; i < r->n_values; i++)
		size += r->values[i].p == NULL ? 0 : r->values[i].n + 1;
	a->kept = calloc(1, size + 64);
	struct cache_item *items = a->kept;
	struct cache_value *values = (struct cache_value *)(void *)(items + r->n_items);
	uint8_t *to = (uint8_t *)(values + r->n_values);
	for (size_t i = 0; i < r->n_items; i++) {
		items[i] = r->items[i];
		items[i].bytes = to;
		if (r->items[i].n > 0)
			memcpy(to, r->items[i].bytes, r->items[i].n);
		to += r->items[i].n;
	}
	for (size_t i = 0; i < r->n_values; i++) {
		values[i] = r->values[i];
		if (values[i].p == NULL)
			continue;
		values[i].p = to;
		memcpy(to, r->values[i].p, r->values[i].n);
		to += r->values[i].n + 1;
	}
	if (r->n > 0)
		memcpy(to, r->bytes, r->n);
	a->r.bytes = to;
	a->r.items = items;
	a->r.values = values;
}

/* Runs the loop until *flag is n. */
static inline void rig_turn_until(struct rig *g, const int *flag, int n)
{
	uint64_t end = clock_now_ns() + RIG_PATIENCE_MS * NS_PER_MS;
	struct timeval tick = {.tv_usec = 50000};
	while (*flag < n) {
		BUG_IF(clock_now_ns() > end, "nothing happened for %d ms", RIG_PATIENCE_MS);
		event_base_loopexit(g->base, &tick);
		event_base_loop(g->base, EVLOOP_ONCE);
	}
}

static inline const struct cache_result *rig_wait(struct rig *g, struct answer *a)
{
	rig_turn_until(g, &a->n_done, 1);
	return &a->r;
}

/* Runs the loop until the client is in this state. */
static inline void rig_turn_until_state(struct rig *g, enum cache_state state)
{
	uint64_t end = clock_now_ns() + RIG_PATIENCE_MS * NS_PER_MS;
	struct timeval tick = {.tv_usec = 10000};
	while (cache_client_state(g->cl) != state) {
		BUG_IF(clock_now_ns() > end, "the store is %s", cache_client_state_text(g->cl));
		event_base_loopexit(g->base, &tick);
		event_base_loop(g->base, EVLOOP_ONCE);
	}
}

static inline void rig_key(struct cache_key *key, enum cache_kind kind, const char *part)
{
	cache_key_make(key, kind, "tenant", part, strlen(part));
}

#endif
