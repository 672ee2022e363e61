/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_hand.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kv_type.h"

enum { MAX_WAITS = 256 };

struct kv_hand_wait {
	struct list link, waiters;
	struct kv_hand_turn *turn;
	uint64_t id, began_ns, deadline_ns;
	uint64_t salt;
	struct prefix_origin origin;
	struct hand_reader reader;
	uint32_t first, want; /* page indices: offered from first on; needed up to want */
	uint32_t at;          /* index of the next page to be taken */
	struct disk_key key;  /* of the page before it */
	struct proto_handed result;
	unsigned long long steps; /* when all were there */
	uint32_t n_came;          /* indices */
	bool over, no_room, all_seen;
	int32_t tokens[]; /* of `want` pages */
};

struct kv_hand {
	struct kv_hand_config cfg;
	struct disk_key model;
	uint32_t page_tokens, n_groups, n_full;
	size_t half;
	int32_t *pages;    /* [n_groups][row]: those that have just come */
	struct list waits; /* oldest first */
	uint32_t n_waits;
};

static void *half_at(const struct kv_hand *h, void *halves, int32_t page)
{
	return (uint8_t *)halves + (size_t)page * h->half;
}

static struct disk_page name_of(const struct kv_hand *h, const struct prefix_origin *origin, struct disk_key parent,
				const int32_t *tokens, uint32_t index)
{
	return (struct disk_page){.model = h->model,
				  .key = disk_key_next(parent, tokens, h->page_tokens),
				  .parent = parent,
				  .tokens = tokens,
				  .n_tokens = h->page_tokens,
				  .depth = index + 1,
				  .owner = origin->owner};
}

/* The record of a group's page of that index. */
static struct disk_page in_group(const struct disk_page *p, uint32_t group)
{
	struct disk_page its = *p;
	const int32_t number = (int32_t)group;
	if (group > 0)
		its.key = disk_key_next(p->key, &number, 1);
	return its;
}

/* Of the pages before `index`. */
static struct disk_key key_before(const struct kv_hand *h, uint64_t salt, const struct prefix_origin *origin,
				  const int32_t *tokens, uint32_t index)
{
	struct disk_key key = disk_key_root(h->model, origin->variant, salt);
	for (uint32_t i = 0; i < index; i++)
		key = disk_key_next(key, tokens + (size_t)i * h->page_tokens, h->page_tokens);
	return key;
}

/* ---- life ---- */

int kv_hand_create(const struct kv_hand_config *cfg, struct kv_hand **out)
{
	struct kv_hand *h = sl_zalloc(sizeof *h);
	if (h == NULL)
		return SL_ENOMEM;
	h->cfg = *cfg;
	h->cfg.model = NULL;
	h->model = hand_area_model(cfg->area, cfg->model, cfg->n_model);
	h->page_tokens = (uint32_t)kv_page_tokens(cfg->pool);
	h->half = kn_kv_page_bytes(kv_pool_layout(cfg->pool));
	h->n_groups = kv_pool_groups(cfg->pool)->n_groups;
	h->n_full = kv_pool_groups(cfg->pool)->n_full;
	h->pages = sl_zalloc_n(h->n_groups, cfg->row * sizeof *h->pages);
	list_init(&h->waits);
	*out = h;
	if (h->pages != NULL)
		return 0;
	sl_free(h);
	return SL_ENOMEM;
}

void kv_hand_destroy(struct kv_hand *h)
{
	if (h == NULL)
		return;
	BUG_IF(h->n_waits > 0, "hand-over: %u sequences wait for pages of a model that goes", h->n_waits);
	sl_free(h->pages);
	sl_free(h);
}

/* ---- the engine that computes ---- */

void kv_hand_offer(struct kv_hand_turn *t, const struct proto_hand *m, uint64_t now_ns)
{
	t->ask = *m;
	t->lease_ns = now_ns + (m->wait_ms + (uint64_t)HAND_SPARE_MS) * NS_PER_MS;
}

/* False: nothing is offered. */
static bool begin_offer(struct kv_hand *h, struct kv_hand_turn *t, const struct kv_hand_text *text, uint64_t now_ns)
{
	if (text->origin.nameless || hand_offer_begin(h->cfg.writer, t->ask.handle, t->lease_ns, now_ns) != 0) {
		t->ask.what = 0;
		return false;
	}
	t->begun = true;
	t->next = t->ask.from / h->page_tokens;
	t->key =
	    key_before(h, text->salt, &text->origin, text->tokens, t->next < text->n / h->page_tokens ? t->next : 0);
	return true;
}

/* False: without room the offer is cut; without the offer the lease is over. */
static bool publish_index(struct kv_hand *h, const struct kv_hand_turn *t, const struct disk_page *p,
			  const int32_t *pages, uint64_t now_ns)
{
	const struct kn_kv *layout = kv_pool_layout(h->cfg.pool);
	for (uint32_t g = 0; g < h->n_groups; g++) {
		const struct disk_page its = in_group(p, g);
		int32_t page = pages[(size_t)g * h->cfg.row + t->next];
		const void *k = half_at(h, layout->k, page >= 0 ? page : 0),
			   *v = half_at(h, layout->v, page >= 0 ? page : 0);
		if (hand_offer_page(h->cfg.writer, t->ask.handle, &its, k, v, page >= 0 ? h->half : 0, now_ns) != 0)
			return false;
	}
	return true;
}

void kv_hand_publish(struct kv_hand *h, struct kv_hand_turn *t, const struct kv_hand_text *text, uint32_t n_past,
		     const int32_t *pages, uint64_t now_ns)
{
	uint32_t end = (n_past < text->n ? n_past : text->n - 1) / h->page_tokens; /* the last token is the reader's */
	if (t->ask.what != PROTO_HAND_OFFER || h->cfg.writer == NULL || (!t->begun && !begin_offer(h, t, text, now_ns)))
		return;
	for (; t->next < end; t->next++) {
		const struct disk_page p =
		    name_of(h, &text->origin, t->key, text->tokens + (size_t)t->next * h->page_tokens, t->next);
		if (!publish_index(h, t, &p, pages, now_ns)) {
			t->ask.what = 0;
			return;
		}
		t->key = p.key;
	}
	if (t->next >= (text->n - 1) / h->page_tokens)
		hand_offer_end(h->cfg.writer, t->ask.handle, HAND_ENDED);
}

void kv_hand_end(struct kv_hand *h, struct kv_hand_turn *t)
{
	if (t->begun)
		hand_offer_end(h->cfg.writer, t->ask.handle, HAND_FAILED);
	t->begun = false;
	t->ask.what = 0;
}

/* ---- the engine that decodes ---- */

static void free_wait(struct kv_hand *h, struct kv_hand_wait *w)
{
	w->turn->wait = NULL;
	list_remove(&w->link);
	h->n_waits--;
	sl_free(w);
}

static void report(struct kv_hand *h, struct kv_hand_turn *t, uint64_t id)
{
	t->unreported = false;
	h->cfg.handed(h->cfg.ctx, id, &t->result);
}

static struct kv_hand_wait *new_wait(struct kv_hand *h, const struct kv_hand_text *text, const struct proto_hand *m)
{
	uint32_t want = text->n > 0 && !text->origin.nameless ? (text->n - 1) / h->page_tokens : 0;
	size_t bytes = (size_t)want * h->page_tokens * sizeof(int32_t);
	struct kv_hand_wait *w = want > 0 && h->n_waits < MAX_WAITS ? sl_zalloc(sizeof *w + bytes) : NULL;
	if (w == NULL)
		return NULL;
	memcpy(w->tokens, text->tokens, bytes);
	w->salt = text->salt;
	w->origin = text->origin;
	w->want = want;
	w->first = w->at = m->from / h->page_tokens < want ? m->from / h->page_tokens : want;
	w->key = key_before(h, w->salt, &w->origin, w->tokens, w->first);
	w->reader = (struct hand_reader){.writer = m->writer, .handle = m->handle};
	list_init(&w->waiters);
	list_push_back(&h->waits, &w->link);
	h->n_waits++;
	return w;
}

void kv_hand_await(struct kv_hand *h, struct kv_hand_turn *t, uint64_t id, const struct kv_hand_text *text,
		   const struct proto_hand *m, uint64_t now_ns)
{
	struct kv_hand_wait *w = t->wait == NULL ? new_wait(h, text, m) : NULL;
	if (w == NULL) {
		t->result = (struct proto_handed){.why = PROTO_HANDED_UNFIT};
		report(h, t, id);
		return;
	}
	t->wait = w;
	w->turn = t;
	w->id = id;
	w->began_ns = now_ns;
	w->deadline_ns = now_ns + m->wait_ms * (uint64_t)NS_PER_MS;
}

void kv_hand_over(struct kv_hand_turn *t)
{
	if (t->wait != NULL)
		t->wait->over = true;
}

bool kv_hand_waits(struct kv_hand *h, const struct kv_hand_text *text, const struct prefix_match *match,
		   struct prefix_waiter *waiter)
{
	uint32_t have = (match->n_pages + 1) * h->page_tokens;
	list_each(it, &h->waits) {
		struct kv_hand_wait *w = list_entry(it, struct kv_hand_wait, link);
		/* Before those that are offered: they may be on disk. */
		if (match->n_pages < w->first)
			continue;
		if (w->salt != text->salt || match->n_pages >= w->want || have >= text->n ||
		    memcmp(w->tokens, text->tokens, have * sizeof *w->tokens) != 0)
			continue;
		list_push_back(&w->waiters, &waiter->link);
		return true;
	}
	return false;
}

void kv_hand_started(struct kv_hand *h, struct kv_hand_turn *t, uint64_t id)
{
	if (t->wait != NULL) { /* it found its pages elsewhere, or lacks those before */
		t->result = t->wait->result;
		t->n_came = t->wait->n_came * h->page_tokens;
		t->result.why = PROTO_HANDED_GONE;
		kv_hand_leave(h, t);
		report(h, t, id);
	}
	if (!t->unreported)
		return;
	t->result.steps = (uint32_t)(atomic_load(h->cfg.steps) - t->steps);
	report(h, t, id);
}

void kv_hand_leave(struct kv_hand *h, struct kv_hand_turn *t)
{
	struct kv_hand_wait *w = t->wait;
	t->unreported = false;
	if (w == NULL)
		return;
	prefix_wake(h->cfg.prefix, &w->waiters);
	free_wait(h, w);
}

/* ---- pages that come ---- */

/* What the tree has by now need not be taken, of n_offered indices. False: it lacks a page before those that are
 * offered: it was evicted, or is on disk still. */
static bool follow_tree(struct kv_hand *h, struct kv_hand_wait *w, uint32_t n_offered)
{
	uint32_t n;
	if (prefix_held(h->cfg.prefix, w->salt, w->tokens, w->want, w->at, &n) < w->at)
		return false;
	n = n < n_offered ? n : n_offered;
	if (n > 0)
		hand_skip(h->cfg.area, &w->reader, n * h->n_groups);
	for (; n > 0; n--, w->at++)
		w->key = disk_key_next(w->key, w->tokens + (size_t)w->at * h->page_tokens, h->page_tokens);
	return true;
}

static int32_t *page_at(struct kv_hand *h, uint32_t group, uint32_t index)
{
	return &h->pages[(size_t)group * h->cfg.row + index];
}

static void drop_pages(struct kv_hand *h, uint32_t index)
{
	for (uint32_t g = 0; g < h->n_groups; g++)
		if (*page_at(h, g, index) >= 0)
			kv_page_unref(h->cfg.pool, *page_at(h, g, index));
}

/* 0; SL_ELIMIT: the pool has not enough pages. */
static int alloc_index(struct kv_hand *h, uint32_t index)
{
	int rc = 0;
	for (uint32_t g = 0; g < h->n_groups; g++)
		*page_at(h, g, index) = -1;
	for (uint32_t g = 0; rc == 0 && g < h->n_groups; g++)
		rc = prefix_page_alloc(h->cfg.prefix, page_at(h, g, index));
	if (rc != 0)
		drop_pages(h, index);
	return rc == 0 ? 0 : SL_ELIMIT;
}

/* The page of a group; a windowed one's may be gone. */
static int take_page(struct kv_hand *h, struct kv_hand_wait *w, const struct disk_page *p, uint32_t group,
		     int32_t *page)
{
	const struct kn_kv *layout = kv_pool_layout(h->cfg.pool);
	void *k = half_at(h, layout->k, *page), *v = half_at(h, layout->v, *page);
	int rc = hand_take(h->cfg.area, &w->reader, p, k, v, h->half);
	if (rc == 0) {
		w->result.n_pages++;
		w->result.bytes += 2 * h->half;
		return 0;
	}
	if (group < h->n_full || hand_take(h->cfg.area, &w->reader, p, k, v, 0) != 0)
		return rc;
	kv_page_unref(h->cfg.pool, *page);
	*page = -1;
	return 0;
}

/* All pages of an index. SL_EINVAL: one is not what it should be. */
static int take_index(struct kv_hand *h, struct kv_hand_wait *w)
{
	const struct disk_page p = name_of(h, &w->origin, w->key, w->tokens + (size_t)w->at * h->page_tokens, w->at);
	int rc = alloc_index(h, w->at);
	if (rc != 0)
		return rc;
	for (uint32_t g = 0; rc == 0 && g < h->n_groups; g++) {
		const struct disk_page its = in_group(&p, g);
		rc = take_page(h, w, &its, g, page_at(h, g, w->at));
	}
	if (rc != 0) {
		drop_pages(h, w->at);
		return rc;
	}
	w->key = p.key;
	w->at++;
	w->n_came++;
	return 0;
}

/* At most n indices, which the tree then has. 0 or the first fault. */
static int take_indices(struct kv_hand *h, struct kv_hand_wait *w, uint32_t n)
{
	uint32_t first = w->at;
	int rc = 0;
	prefix_touch(h->cfg.prefix, w->salt, w->tokens, first); /* they must not make room for what follows */
	while (rc == 0 && w->at < first + n)
		rc = take_index(h, w);
	prefix_set_origin(h->cfg.prefix, &w->origin);
	if (w->at > first)
		(void)prefix_adopt(h->cfg.prefix, w->salt, w->tokens, first, w->at - first, h->pages + first, false);
	for (uint32_t i = first; i < w->at; i++)
		drop_pages(h, i);
	/* Some may have what they share with the text. */
	if (w->at > first)
		prefix_wake(h->cfg.prefix, &w->waiters);
	return rc;
}

/* Whether the wait is over, and why. *budget: indices that may be taken still. */
static bool turn(struct kv_hand *h, struct kv_hand_wait *w, uint64_t now_ns, uint32_t *budget)
{
	uint32_t n_pages;
	enum hand_state state = hand_look(h->cfg.area, &w->reader, &n_pages);
	uint32_t n = (n_pages - w->reader.n_taken) / h->n_groups;
	bool last = state == HAND_ENDED || state == HAND_FAILED || state == HAND_FULL;
	if (!w->all_seen && (w->at + n >= w->want || last)) {
		w->all_seen = true;
		w->steps = atomic_load(h->cfg.steps);
	}
	bool follows = n == 0 || follow_tree(h, w, n);
	n = (n_pages - w->reader.n_taken) / h->n_groups;
	uint32_t most = w->want - w->at < *budget ? w->want - w->at : *budget;
	most = n < most ? n : most;
	int rc = follows && most > 0 ? take_indices(h, w, most) : 0;
	*budget -= most;
	w->no_room = rc == SL_ELIMIT;
	if (rc == SL_EINVAL)
		w->result.why = PROTO_HANDED_FOREIGN;
	else if (w->at >= w->want)
		w->result.why = PROTO_HANDED_ALL;
	else if (!follows && w->at > w->first)
		w->result.why = PROTO_HANDED_GONE;
	else if (n_pages - w->reader.n_taken < h->n_groups && (last || w->over))
		w->result.why = state == HAND_FULL ? PROTO_HANDED_FULL : PROTO_HANDED_ENDED;
	else if (now_ns >= w->deadline_ns)
		w->result.why = w->no_room ? PROTO_HANDED_ROOM : PROTO_HANDED_LATE;
	else
		return false;
	return true;
}

/* Its sequences go on. */
static void resolve(struct kv_hand *h, struct kv_hand_wait *w, uint64_t now_ns)
{
	struct kv_hand_turn *t = w->turn;
	uint64_t id = w->id;
	w->result.waited_us = (uint32_t)clock_us_between(w->began_ns, now_ns);
	t->result = w->result;
	t->n_came = w->n_came * h->page_tokens;
	t->steps = w->all_seen ? w->steps : atomic_load(h->cfg.steps);
	t->unreported = true;
	prefix_wake(h->cfg.prefix, &w->waiters);
	free_wait(h, w);
	if (t->result.why != PROTO_HANDED_ALL)
		report(h, t, id);
}

void kv_hand_tick(struct kv_hand *h, uint64_t now_ns)
{
	uint32_t budget = (uint32_t)(HAND_TICK_BYTES / (2 * h->half * h->n_groups)) + 1;
	list_each_safe(it, tmp, &h->waits) {
		struct kv_hand_wait *w = list_entry(it, struct kv_hand_wait, link);
		if (turn(h, w, now_ns, &budget))
			resolve(h, w, now_ns);
	}
}

bool kv_hand_waiting(const struct kv_hand *h) { return h != NULL && h->n_waits > 0; }
