/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds answers of dead gateways: soon after a thread has begun, and every two seconds, it scans the list of gateways;
 * where a lease has expired, the lists of what that gateway's threads were running. Background answers are continued
 * however late, a resumable stream only while its readers may still come back (the grace).
 * Threads share the work by a hash of the stream's name; whether an owner is really dead, and which gateway continues,
 * is decided by the follow (replay_follow.c).
 *
 * One operation at a time:
 *
 *   GATEWAYS ─► for each: GATEWAY ─► LEASE ─(gone)─► for each of its threads: RUNS ─► for each: ENTRY
 */
#include "gateway/resume/replay_follow.h"
#include "gateway/resume/replay_sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "gateway/replay/replay_store_priv.h"

enum { FIRST_MS = 100, EVERY_MS = 2000, MAX_LIST = 1 << 20, MOST_THREADS = 1024, TEXT_BYTES = 128 };

struct replay_sweep {
	struct replay_store *store;
	struct cache_op op;
	struct gw_timer timer;
	struct sl_buf gateways, runs; /* digests that are still to be checked */
	char gateway[REPLAY_GATEWAY_CHARS];
	char tenant[REPLAY_OWNER_CHARS + 24]; /* the owner of runs */
	int n_threads, thread;
	int64_t alive_s; /* when the gateway last renewed its lease */
};

static void next_gateway(struct replay_sweep *w);
static void next_thread(struct replay_sweep *w);
static void next_run(struct replay_sweep *w);

static struct replay_sweep *of_op(struct cache_op *op) { return list_entry(op, struct replay_sweep, op); }

static void rest(struct replay_sweep *w, uint64_t ms)
{
	gw_timer_start(&w->store->app->t->timers, &w->timer, ms * NS_PER_MS);
}

static bool well(const struct cache_result *r) { return r->code == 0 && !r->degraded; }

/* Without memory the rest is checked next time. */
static void keep(struct sl_buf *list, const struct cache_result *r)
{
	buf_clear(list, SIZE_MAX);
	for (size_t i = 0; i < r->n_items; i++)
		if (r->items[i].n != CACHE_DIGEST_LEN || buf_append(list, r->items[i].bytes, CACHE_DIGEST_LEN) != 0)
			return;
}

/* The next key of a list; false: there is none. */
static bool take(struct sl_buf *list, const char *tenant, struct cache_key *key)
{
	if (list->len < CACHE_DIGEST_LEN)
		return false;
	bool good = cache_key_from_digest(key, CACHE_REPLAY, tenant, buf_data(list), CACHE_DIGEST_LEN) == 0;
	buf_consume(list, CACHE_DIGEST_LEN);
	return good;
}

/* A record's text, terminated. */
static bool text_of(const struct cache_result *r, char out[TEXT_BYTES])
{
	if (!well(r) || r->n >= TEXT_BYTES)
		return false;
	memcpy(out, r->bytes, r->n);
	out[r->n] = '\0';
	return true;
}

/* ---- streams of one gateway ---- */

static bool is_mine(const struct replay_sweep *w, const char *id)
{
	const struct gw_thread *t = w->store->app->t;
	uint64_t n = t->cfg->threads > 0 ? (uint64_t)t->cfg->threads : 1;
	return XXH3_64bits(id, strlen(id)) % n == (uint64_t)t->index;
}

static void on_entry(struct cache_op *op, const struct cache_result *r)
{
	struct replay_sweep *w = of_op(op);
	const uint64_t grace_s = w->store->app->t->cfg->resume.grace_ms / 1000 + 1;
	char text[TEXT_BYTES], id[REPLAY_MAX_ID];
	/* "b", the tenant, the stream. */
	if (text_of(r, text) && strlen(text) > 19 && strlen(text + 19) < sizeof id) {
		uint64_t tenant = strtoull(text + 2, NULL, 16);
		snprintf(id, sizeof id, "%.63s", text + 19);
		bool late = clock_unix_s() - w->alive_s > (int64_t)grace_s;
		if ((text[0] == 'b' || !late) && is_mine(w, id))
			replay_follow_orphan(w->store, id, tenant);
	}
	next_run(w);
}

static void next_run(struct replay_sweep *w)
{
	struct cache_key key;
	if (take(&w->runs, w->tenant, &key))
		cache_get(w->store->cache, &w->op, &key, REPLAY_VERSION, on_entry);
	else
		next_thread(w);
}

static void on_runs(struct cache_op *op, const struct cache_result *r)
{
	struct replay_sweep *w = of_op(op);
	if (well(r))
		keep(&w->runs, r);
	next_run(w);
}

static void next_thread(struct replay_sweep *w)
{
	if (w->thread >= w->n_threads) {
		next_gateway(w);
		return;
	}
	snprintf(w->tenant, sizeof w->tenant, "run-%s-%d", w->gateway, w->thread++);
	buf_clear(&w->runs, SIZE_MAX);
	cache_list(w->store->cache, &w->op, CACHE_REPLAY, w->tenant, on_runs);
}

/* ---- dead owners ---- */

static void on_lease(struct cache_op *op, const struct cache_result *r)
{
	struct replay_sweep *w = of_op(op);
	bool gone = (r->code == SL_ENOTFOUND && !r->degraded) || (well(r) && replay_lease_is_of_dead(r->bytes, r->n));
	if (gone)
		next_thread(w);
	else
		next_gateway(w);
}

static void on_gateway(struct cache_op *op, const struct cache_result *r)
{
	struct replay_sweep *w = of_op(op);
	struct cache_key key;
	char text[TEXT_BYTES], *end;
	size_t n = REPLAY_GATEWAY_CHARS - 1;
	if (!text_of(r, text) || strcspn(text, " ") != n || memcmp(text, w->store->owner, n) == 0) {
		next_gateway(w);
		return;
	}
	memcpy(w->gateway, text, n);
	w->gateway[n] = '\0';
	long threads = strtol(text + n, &end, 10);
	w->n_threads = threads < 0 ? 0 : threads > MOST_THREADS ? MOST_THREADS : (int)threads;
	w->alive_s = strtoll(end, NULL, 10);
	w->thread = 0;
	replay_lease_key(&key, w->gateway);
	cache_get(w->store->cache, &w->op, &key, REPLAY_VERSION, on_lease);
}

static void next_gateway(struct replay_sweep *w)
{
	struct cache_key key;
	if (take(&w->gateways, "gateways", &key))
		cache_get(w->store->cache, &w->op, &key, REPLAY_VERSION, on_gateway);
	else
		rest(w, EVERY_MS);
}

static void on_gateways(struct cache_op *op, const struct cache_result *r)
{
	struct replay_sweep *w = of_op(op);
	if (well(r))
		keep(&w->gateways, r);
	next_gateway(w);
}

static void on_timer(struct gw_timer *timer)
{
	struct replay_sweep *w = list_entry(timer, struct replay_sweep, timer);
	if (!replay_store_on(w->store) || !replay_store_up(w->store) || w->store->app->t->draining) {
		rest(w, FIRST_MS);
		return;
	}
	cache_list(w->store->cache, &w->op, CACHE_REPLAY, "gateways", on_gateways);
}

/* ---- life ---- */

int replay_sweep_create(struct replay_store *s, struct replay_sweep **out)
{
	*out = NULL;
	if (s == NULL)
		return 0;
	struct replay_sweep *w = sl_zalloc(sizeof *w);
	if (w == NULL)
		return SL_ENOMEM;
	w->store = s;
	buf_init(&w->gateways, MAX_LIST);
	buf_init(&w->runs, MAX_LIST);
	gw_timer_init(&w->timer, on_timer);
	rest(w, FIRST_MS);
	*out = w;
	return 0;
}

void replay_sweep_destroy(struct replay_sweep *w)
{
	if (w == NULL)
		return;
	cache_cancel(&w->op);
	gw_timer_stop(&w->store->app->t->timers, &w->timer);
	buf_dispose(&w->gateways);
	buf_dispose(&w->runs);
	sl_free(w);
}
