/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_disk.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kv_type.h"

enum {
	MAX_LOADS = 64,
	MAX_BEGUN = 4, /* of them: only these hold pages */
	MAX_TRIES = 2,
	TICK_BYTES = 2 << 20, /* copied to the write queue in one iteration of the step thread */
	PATIENCE = 4,         /* a load may take so many times what was predicted, */
	PATIENCE_MS = 250,    /* and so long besides */
};

struct kv_load {
	struct list link, waiters;
	struct kv_disk *of;
	struct disk_read read;
	atomic_bool done; /* the reader has finished with it */
	bool begun, late, forgotten;
	uint64_t salt, deadline_ns;
	struct prefix_origin origin;
	uint32_t first, n; /* page indices */
	int32_t *tokens;   /* of first + n pages */
	uint32_t n_held;
	int32_t *page_nos; /* [n], the first n_held of them are held */
	struct disk_page *pages;
	void **k, **v;
};

struct kv_disk {
	struct kv_disk_config cfg;
	struct disk_key model;
	uint32_t page_tokens;
	size_t half;
	struct list loads; /* oldest first, which is as the scheduler picks */
	uint32_t n_loads, n_begun;
};

static void *half_at(const struct kv_disk *d, void *halves, int32_t page)
{
	return (uint8_t *)halves + (size_t)page * d->half;
}

static size_t page_bytes(const struct kv_disk *d) { return 2 * d->half; }

/* What n tokens after n_past cost to compute. */
static double compute_ns(const struct kv_disk *d, uint32_t n_past, uint32_t n)
{
	return cost_added_ns(d->cfg.cost, 0, n_past, n);
}

/* ---- to the disk ---- */

static void write_page(struct kv_disk *d, const struct disk_page *p, int32_t page)
{
	const struct kn_kv *layout = kv_pool_layout(d->cfg.pool);
	(void)disk_tier_write(d->cfg.tier, p, half_at(d, layout->k, page), half_at(d, layout->v, page), d->half);
}

/* As one of the pages of a full step: alone it costs more. */
static bool pays_to_write(const struct kv_disk *d)
{
	double row = cost_rows_ns(d->cfg.cost, d->cfg.step_tokens) / d->cfg.step_tokens;
	return d->cfg.always || row * d->page_tokens > disk_tier_ns(d->cfg.tier, 1, page_bytes(d));
}

static void on_going(void *ctx, const struct disk_page *p, int32_t page, bool saved)
{
	struct kv_disk *d = ctx;
	if ((saved && disk_tier_has(d->cfg.tier, p->key)) || !pays_to_write(d))
		return;
	write_page(d, p, page);
}

/* False: nothing is left to be written, or the queue is full. */
static bool write_behind(struct kv_disk *d)
{
	struct disk_page p;
	int32_t page;
	for (size_t bytes = 0; bytes < TICK_BYTES; bytes += page_bytes(d)) {
		if (!disk_tier_has_room(d->cfg.tier, page_bytes(d)) || !prefix_next_unsaved(d->cfg.prefix, &p, &page))
			return false;
		if (pays_to_write(d))
			write_page(d, &p, page);
	}
	return true;
}

/* ---- life ---- */

int kv_disk_create(const struct kv_disk_config *cfg, struct kv_disk **out)
{
	struct kv_disk *d = sl_zalloc(sizeof *d);
	if (d == NULL)
		return SL_ENOMEM;
	d->cfg = *cfg;
	d->model = disk_tier_model(cfg->tier, cfg->model, cfg->n_model);
	d->cfg.model = NULL;
	d->page_tokens = (uint32_t)kv_page_tokens(cfg->pool);
	d->half = kn_kv_page_bytes(kv_pool_layout(cfg->pool));
	list_init(&d->loads);
	const struct prefix_sink sink = {.model = d->model, .going = on_going, .ctx = d};
	prefix_set_sink(cfg->prefix, &sink);
	*out = d;
	return 0;
}

static void free_load(struct kv_load *l)
{
	struct kv_disk *d = l->of;
	BUG_IF(!list_empty(&l->waiters), "a load that a sequence waits for is freed");
	for (uint32_t i = 0; i < l->n_held; i++)
		kv_page_unref(d->cfg.pool, l->page_nos[i]);
	list_remove(&l->link);
	d->n_loads--;
	d->n_begun -= l->begun;
	sl_free(l->tokens);
	sl_free(l->page_nos);
	sl_free(l->pages);
	sl_free(l->k);
	sl_free(l->v);
	sl_free(l);
}

void kv_disk_destroy(struct kv_disk *d)
{
	if (d == NULL)
		return;
	list_each_safe(it, tmp, &d->loads) {
		struct kv_load *l = list_entry(it, struct kv_load, link);
		if (l->begun)
			disk_tier_stop(d->cfg.tier, &l->read);
		free_load(l);
	}
	while (write_behind(d))
		;
	prefix_set_sink(d->cfg.prefix, NULL);
	sl_free(d);
}

/* ---- loads ---- */

/* On the reader's thread: l may be freed as soon as it is done. */
static void on_read(struct disk_read *r)
{
	struct kv_load *l = r->ctx;
	struct kv_disk *d = l->of;
	void (*nudge)(void *ctx) = d->cfg.nudge;
	void *ctx = d->cfg.ctx;
	atomic_store(&l->done, true);
	nudge(ctx);
}

static void miss(struct kv_disk *d, enum disk_miss why)
{
	atomic_fetch_add(&disk_tier_stats(d->cfg.tier)->misses[why], 1);
}

static bool alloc_load(struct kv_load *l, size_t page_tokens)
{
	l->tokens = sl_alloc((l->first + l->n) * page_tokens * sizeof *l->tokens);
	l->page_nos = sl_zalloc_n(l->n, sizeof *l->page_nos);
	l->pages = sl_zalloc_n(l->n, sizeof *l->pages);
	l->k = sl_zalloc_n(l->n, sizeof *l->k);
	l->v = sl_zalloc_n(l->n, sizeof *l->v);
	return l->tokens != NULL && l->page_nos != NULL && l->pages != NULL && l->k != NULL && l->v != NULL;
}

/* Of n pages behind the first ones; their keys follow `parent`. */
static struct kv_load *new_load(struct kv_disk *d, const struct kv_disk_ask *ask, uint32_t first, uint32_t n,
				struct disk_key parent, const struct disk_key *keys)
{
	struct kv_load *l = sl_zalloc(sizeof *l);
	if (l == NULL)
		return NULL;
	*l = (struct kv_load){.of = d, .salt = ask->salt, .origin = ask->origin, .first = first, .n = n};
	list_init(&l->waiters);
	list_push_back(&d->loads, &l->link);
	d->n_loads++;
	if (!alloc_load(l, d->page_tokens)) {
		free_load(l);
		return NULL;
	}
	memcpy(l->tokens, ask->tokens, (size_t)(first + n) * d->page_tokens * sizeof *l->tokens);
	for (uint32_t i = 0; i < n; i++)
		l->pages[i] = (struct disk_page){.model = d->model,
						 .key = keys[i],
						 .parent = i == 0 ? parent : keys[i - 1],
						 .tokens = l->tokens + (size_t)(first + i) * d->page_tokens,
						 .n_tokens = d->page_tokens,
						 .depth = first + i + 1,
						 .owner = l->origin.owner};
	return l;
}

/* Pages of the pool, as many as there are. */
static void take_pages(struct kv_disk *d, struct kv_load *l)
{
	const struct kn_kv *layout = kv_pool_layout(d->cfg.pool);
	for (; l->n_held < l->n; l->n_held++) {
		int32_t *page = &l->page_nos[l->n_held];
		if (prefix_page_alloc(d->cfg.prefix, page) != 0)
			return;
		l->k[l->n_held] = half_at(d, layout->k, *page);
		l->v[l->n_held] = half_at(d, layout->v, *page);
	}
}

/* Not while a plan is made, which has counted the pages. False: the disk or the pool can't now. */
static bool begin(struct kv_disk *d, struct kv_load *l)
{
	/* What the text has already must not make room for what it gets. */
	prefix_touch(d->cfg.prefix, l->salt, l->tokens, l->first);
	take_pages(d, l);
	l->read = (struct disk_read){
	    .pages = l->pages, .k = l->k, .v = l->v, .n = l->n_held, .half = d->half, .done = on_read, .ctx = l};
	l->begun = l->n_held > 0 && !l->forgotten && disk_tier_read(d->cfg.tier, &l->read) == 0;
	d->n_begun += l->begun;
	return l->begun;
}

/* The load that will have page index `at` of the text; NULL: none. */
static struct kv_load *find_load(const struct kv_disk *d, const struct kv_disk_ask *ask, uint32_t at)
{
	size_t bytes = (size_t)(at + 1) * d->page_tokens * sizeof(int32_t);
	list_each(it, &d->loads) {
		struct kv_load *l = list_entry(it, struct kv_load, link);
		if (l->salt == ask->salt && !l->forgotten && at >= l->first && at < l->first + l->n &&
		    memcmp(l->tokens, ask->tokens, bytes) == 0)
			return l;
	}
	return NULL;
}

/* Pages that the pool can give beside those of the text itself. */
static uint32_t n_to_have(const struct kv_disk *d, const struct prefix_match *match)
{
	uint64_t n = (uint64_t)kv_pool_n_free(d->cfg.pool) + prefix_n_reclaimable(d->cfg.prefix);
	return n > match->n_unpinned ? (uint32_t)(n - match->n_unpinned) : 0;
}

/* How many pages behind the match the disk has. Keys: for `most` of them, with their parent. */
static uint32_t n_stored(struct kv_disk *d, const struct kv_disk_ask *ask, uint32_t from, uint32_t most,
			 struct disk_key *parent, struct disk_key *keys)
{
	prefix_keys(d->cfg.prefix, ask->salt, ask->origin.variant, ask->tokens, from, most, parent, keys);
	return disk_tier_run(d->cfg.tier, keys, most);
}

/* Pages of loads that have not begun. */
static uint32_t n_before(const struct kv_disk *d)
{
	uint32_t n = 0;
	list_each(it, &d->loads) {
		const struct kv_load *l = list_entry(it, const struct kv_load, link);
		n += l->begun ? 0 : l->n;
	}
	return n;
}

static bool pays_to_read(struct kv_disk *d, const struct prefix_match *match, uint32_t n, double *ns)
{
	uint32_t past = match->n_pages * d->page_tokens, saved = n * d->page_tokens;
	uint32_t part = match->n_tokens > past ? match->n_tokens - past : 0; /* found within the first page */
	*ns = disk_tier_ns(d->cfg.tier, n_before(d) + n, page_bytes(d));
	return d->cfg.always || *ns < compute_ns(d, past + part, saved - part);
}

static uint32_t pages_wanted(const struct kv_disk *d, const struct kv_disk_ask *ask, uint32_t from)
{
	uint32_t most = ask->n > 0 && !ask->origin.nameless ? (ask->n - 1) / d->page_tokens : 0;
	return most > from ? most - from : 0;
}

static bool start(struct kv_disk *d, const struct kv_disk_ask *ask, const struct prefix_match *match,
		  struct disk_key *keys, uint64_t now)
{
	uint32_t first = match->n_pages, room = n_to_have(d, match);
	struct disk_key parent;
	double ns;
	uint32_t n = n_stored(d, ask, first, pages_wanted(d, ask, first), &parent, keys);
	bool again = ask->turn->tries > 0;
	ask->turn->tries = MAX_TRIES;
	if (n == 0) {
		if (!again)
			miss(d, DISK_MISS_ABSENT);
		return false;
	}
	n = n < room ? n : room;
	if (n > 0 && !pays_to_read(d, match, n, &ns)) {
		miss(d, DISK_MISS_SLOW);
		return false;
	}
	struct kv_load *l = n > 0 && d->n_loads < MAX_LOADS ? new_load(d, ask, first, n, parent, keys) : NULL;
	if (l == NULL) {
		miss(d, DISK_MISS_BUSY);
		return false;
	}
	l->deadline_ns = d->cfg.always ? UINT64_MAX : now + PATIENCE_MS * NS_PER_MS + (uint64_t)(PATIENCE * ns);
	ask->turn->tries = again ? MAX_TRIES : 1;
	ask->turn->reach = first + l->n;
	list_push_back(&l->waiters, &ask->waiter->link);
	d->cfg.nudge(d->cfg.ctx); /* the next tick begins it */
	return true;
}

bool kv_disk_look(struct kv_disk *d, const struct kv_disk_ask *ask, const struct prefix_match *match, uint64_t now_ns)
{
	uint32_t at = match->n_pages, want = pages_wanted(d, ask, at);
	struct kv_disk_turn *turn = ask->turn;
	if (turn->tries >= MAX_TRIES || want == 0 || (turn->tries > 0 && at >= turn->reach))
		return false;
	struct kv_load *l = find_load(d, ask, at);
	if (l != NULL && l->late) {
		turn->tries = MAX_TRIES;
		return false;
	}
	if (l != NULL) {
		turn->tries = 1;
		turn->reach = l->first + l->n;
		list_push_back(&l->waiters, &ask->waiter->link);
		return true;
	}
	struct disk_key *keys = sl_zalloc_n(want, sizeof *keys);
	bool waits = keys != NULL && start(d, ask, match, keys, now_ns);
	sl_free(keys);
	return waits;
}

uint32_t kv_disk_foresee(struct kv_disk *d, const struct kv_disk_ask *ask, const struct prefix_match *match)
{
	uint32_t at = match->n_pages, want = pages_wanted(d, ask, at);
	struct disk_key parent, *keys = want > 0 ? sl_zalloc_n(want, sizeof *keys) : NULL;
	double ns;
	uint32_t n = keys != NULL ? n_stored(d, ask, at, want, &parent, keys) : 0;
	sl_free(keys);
	return n > 0 && pays_to_read(d, match, n, &ns) ? (at + n) * d->page_tokens : match->n_tokens;
}

/* ---- the end of loads ---- */

/* Its waiters go on; it is over unless the reader still has it. */
static bool let_go(struct kv_disk *d, struct kv_load *l, bool over)
{
	bool woken = !list_empty(&l->waiters);
	prefix_wake(d->cfg.prefix, &l->waiters);
	if (over)
		free_load(l);
	return woken;
}

static void take_read(struct kv_disk *d, struct kv_load *l)
{
	if (!l->forgotten) {
		prefix_set_origin(d->cfg.prefix, &l->origin);
		(void)prefix_adopt(d->cfg.prefix, l->salt, l->tokens, l->first, l->read.n_done, l->page_nos, true);
	}
	if (l->read.failed)
		miss(d, DISK_MISS_FAILED);
}

static bool turn(struct kv_disk *d, struct kv_load *l, uint64_t now_ns)
{
	if (!l->begun && now_ns < l->deadline_ns) {
		if (d->n_begun >= MAX_BEGUN || begin(d, l))
			return false;
		miss(d, DISK_MISS_BUSY);
		return let_go(d, l, true);
	}
	if (atomic_load(&l->done)) {
		take_read(d, l);
		return let_go(d, l, true);
	}
	if (l->late || now_ns < l->deadline_ns)
		return false;
	l->late = true;
	if (l->begun)
		atomic_store(&l->read.stop, true);
	miss(d, DISK_MISS_LATE);
	return let_go(d, l, !l->begun);
}

bool kv_disk_tick(struct kv_disk *d, uint64_t now_ns)
{
	bool woken = false;
	list_each_safe(it, tmp, &d->loads)
		woken = turn(d, list_entry(it, struct kv_load, link), now_ns) || woken;
	if (write_behind(d))
		d->cfg.nudge(d->cfg.ctx); /* an idle step thread does not sleep before it goes on */
	return woken;
}

bool kv_disk_loading(const struct kv_disk *d) { return d != NULL && d->n_loads > 0; }

bool kv_disk_holds(const struct kv_disk *d, int slab)
{
	if (d == NULL)
		return false;
	list_each(it, &d->loads) {
		const struct kv_load *l = list_entry(it, const struct kv_load, link);
		for (uint32_t i = 0; i < l->n_held; i++)
			if (kv_pool_slab_of(d->cfg.pool, l->page_nos[i]) == slab)
				return true;
	}
	return false;
}

void kv_disk_forget(struct kv_disk *d, uint64_t owner, bool all)
{
	list_each(it, &d->loads) {
		struct kv_load *l = list_entry(it, struct kv_load, link);
		l->forgotten = l->forgotten || all || l->origin.owner == owner;
	}
	prefix_tree_forget(d->cfg.prefix, owner, all);
}
