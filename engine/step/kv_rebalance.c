/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/kv_rebalance.h"

#include "base/log.h"
#include "engine/step/in_flight.h"
#include "engine/kv/kv_memory.h"

/* ---- the memory ---- */

size_t model_page_bytes(const struct eng_model *m)
{
	const struct kn_kv layout =
	    model_kv_layout(&m->info.arch, m->kv_type, m->e->cfg.page_tokens, (int)m->kv_groups.n_layers);
	return kv_layout_bytes(&layout);
}

uint64_t model_context_pages(const struct eng_model *m, uint64_t n_tokens)
{
	return m->inspected ? kv_groups_peak(&m->kv_groups, n_tokens, (uint32_t)m->step_tokens) : 0;
}

uint64_t model_useful_pages(const struct eng_model *m)
{
	return (uint64_t)m->e->cfg.max_sequences * model_context_pages(m, (uint64_t)m->info.arch.n_ctx);
}

void kv_rebalance_create_memory(struct engine *e)
{
	size_t page_bytes[PROTO_MAX_MODELS];
	uint64_t pages[PROTO_MAX_MODELS], bytes = 0;
	int n = 0;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		m->memory_index = -1;
		if (!m->inspected)
			continue;
		page_bytes[n] = model_page_bytes(m);
		pages[n] = m->kv_pages;
		bytes += page_bytes[n] * pages[n];
		m->memory_index = n++;
	}
	struct sl_err err;
	struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = 64};
	if (n == 0 || (n == 1 && e->ops->memory != NULL))
		return; /* a device's memory is not given back while it runs */
	int rc = e->ops->open(&kc, &e->memory_backend, &err);
	if (rc == 0)
		rc = kv_memory_create(e->ops, e->memory_backend, bytes, page_bytes, pages, n, &e->memory, &err);
	if (rc != 0 && n > 1)
		log_warn("models can't share KV memory: %s", err.text);
}

void kv_rebalance_destroy_memory(struct engine *e)
{
	kv_memory_destroy(e->memory);
	if (e->memory_backend != NULL)
		e->ops->close(e->memory_backend);
	e->memory = NULL;
	e->memory_backend = NULL;
}

/* ---- unused slabs ---- */

static struct eng_model *owner_of(const struct engine *e, int slab)
{
	int i = kv_memory_owner(e->memory, slab);
	for (int k = 0; i >= 0 && k < e->n_models; k++) {
		if (e->models[k].memory_index == i)
			return &e->models[k];
	}
	return NULL;
}

static uint32_t move(struct engine *e, int slab, struct eng_model *from, struct eng_model *to)
{
	if (from != NULL) {
		in_flight_await(from); /* rows in flight may still write to freed pages, */
		if (from->ops->settle != NULL)
			(void)from->ops->settle(from->backend); /* and so may copies; the next step reports a fault */
		kv_pool_take_slab(from->pool, slab);
	}
	kv_memory_set_owner(e->memory, slab, to->memory_index);
	kv_pool_give_slab(to->pool, slab);
	return (uint32_t)kv_pool_slab(to->pool, slab)->n_pages;
}

static bool is_idle(const struct kv_slab *s) { return s->n_free + s->n_idle == s->n_pages; }

/* Drops the prefixes of an idle slab. */
static void evict_slab(struct eng_model *m, const struct kv_slab *s)
{
	for (int32_t page = s->first; page < s->first + s->n_pages; page++)
		prefix_evict_page(m->prefix, page);
}

/* Takes an idle slab last used before `before`. Returns its number of pages. */
static uint32_t take_idle(struct eng_model *m, uint64_t before)
{
	struct engine *e = m->e;
	uint64_t best_used = before;
	int best = -1;
	for (int slab = 0; slab < kv_memory_n_slabs(e->memory); slab++) {
		if (kv_memory_owner(e->memory, slab) == m->memory_index || kv_pool_slab(m->pool, slab)->n_pages == 0)
			continue;
		if (kv_memory_owner(e->memory, slab) == KV_MEMORY_WITHHELD)
			continue;
		struct eng_model *from = owner_of(e, slab);
		if (from == NULL)
			return move(e, slab, NULL, m);
		if (!from->rebalancing)
			continue;
		const struct kv_slab *s = kv_pool_slab(from->pool, slab);
		uint64_t used = s->n_idle > 0 ? s->used + 1 : 0;
		if (is_idle(s) && used < best_used) {
			best = slab;
			best_used = used;
		}
	}
	if (best < 0)
		return 0;
	struct eng_model *from = owner_of(e, best);
	evict_slab(from, kv_pool_slab(from->pool, best));
	return move(e, best, from, m);
}

/* The pool has no free page left. */
static bool more(void *ctx)
{
	struct eng_model *m = ctx;
	return take_idle(m, prefix_oldest(m->prefix)) > 0;
}

/* ---- slabs in use ---- */

struct holds {
	bool needed;     /* by a sequence that must not be pre-empted */
	uint32_t n_held; /* rows of page tables with pages in it */
};

static bool may_preempt(const struct eng_seq *s, const struct sched_seq *by, bool entitled)
{
	if (!s->sched.credit)
		return true;
	return s->sched.priority > by->priority || (entitled && s->sched.priority == by->priority);
}

struct held {
	uint32_t i;
	struct prefix_pinned pinned;
};

/* The slab of the next page that only the slot's sequence keeps: of its row, or pinned for it in the tree. -1: none. */
static int next_held(const struct eng_model *m, int slot, struct held *at)
{
	const struct eng_seq *s = m->slots[slot];
	int32_t page = s != NULL ? batch_row_page(s, slot, at->i++) : -1;
	if (page < 0 && s != NULL && slot == s->slot)
		page = prefix_pinned_page(m->prefix, &s->path, &at->pinned);
	return page >= 0 ? kv_pool_slab_of(m->pool, page) : -1;
}

static bool holds_of(const struct eng_model *m, int slot, int slab)
{
	struct held at = {0};
	int of;
	while ((of = next_held(m, slot, &at)) >= 0 && of != slab)
		;
	return of >= 0;
}

/* The slab of m with the fewest rows to preempt; -1: none can be emptied. */
static int cheapest(const struct eng_model *m, const struct eng_model *to, const struct sched_seq *by, bool entitled)
{
	struct holds of[KV_MEMORY_SLABS] = {0};
	int n_slabs = kv_memory_n_slabs(m->e->memory), best = -1;
	for (int slot = 0; slot < m->e->cfg.max_sequences; slot++) {
		struct held at = {0};
		for (int slab, last = -1; (slab = next_held(m, slot, &at)) >= 0; last = slab) {
			of[slab].n_held += slab != last; /* pages of one row are mostly adjacent */
			of[slab].needed = of[slab].needed || !may_preempt(m->slots[slot], by, entitled);
		}
	}
	for (int slab = 0; slab < n_slabs; slab++) {
		of[slab].needed = of[slab].needed || kv_disk_holds(m->disk, slab);
		if (kv_pool_slab(m->pool, slab)->own && !of[slab].needed && kv_pool_slab(to->pool, slab)->n_pages > 0 &&
		    (best < 0 || of[slab].n_held < of[best].n_held))
			best = slab;
	}
	return best;
}

static bool empty(struct eng_model *m, int slab, uint64_t now)
{
	for (int slot = 0; slot < m->e->cfg.max_sequences; slot++) {
		if (m->slots[slot] != NULL && holds_of(m, slot, slab))
			batch_preempt(m->slots[slot], now);
	}
	batch_wake(m, now);
	const struct kv_slab *s = kv_pool_slab(m->pool, slab);
	BUG_IF(!is_idle(s), "slab %d has %d free and %d idle pages of %d, but no sequence holds one", slab, s->n_free,
	       s->n_idle, s->n_pages);
	evict_slab(m, s);
	return s->n_free == s->n_pages;
}

static uint32_t take_held(struct eng_model *m, const struct sched_seq *by, uint64_t now)
{
	struct engine *e = m->e;
	const struct kv_memory *memory = e->memory;
	bool short_of = kv_memory_n_owned(memory, m->memory_index) < kv_memory_part(memory, m->memory_index);
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *from = &e->models[i];
		if (from == m || !from->rebalancing)
			continue;
		bool entitled = short_of && kv_memory_n_owned(memory, from->memory_index) >
						kv_memory_part(memory, from->memory_index);
		int slab = cheapest(from, m, by, entitled);
		if (slab >= 0 && empty(from, slab, now))
			return move(e, slab, from, m);
	}
	return 0;
}

uint32_t kv_rebalance_more_pages(struct eng_model *m, const struct sched_seq *by, uint64_t n, uint64_t now_ns)
{
	uint32_t got = 0, one;
	if (!m->rebalancing)
		return 0;
	while (got < n) {
		one = take_idle(m, UINT64_MAX);
		if (one == 0)
			one = take_held(m, by, now_ns);
		if (one == 0)
			break;
		got += one;
	}
	return got;
}

bool kv_rebalance_may_grow(const struct eng_model *m)
{
	for (int slab = 0; m->rebalancing && slab < kv_memory_n_slabs(m->e->memory); slab++) {
		const struct eng_model *from = owner_of(m->e, slab);
		if (from != NULL && from != m && kv_pool_slab(m->pool, slab)->n_pages > 0)
			return true;
	}
	return false;
}

/* ---- memory that is given back ---- */

struct candidate {
	int slab; /* -1: none */
	struct eng_model *from;
	bool written, spare;
	uint64_t used;
};

/* Written slabs first, since they give memory; among them the one that was used longest ago. */
static bool is_better(const struct candidate *a, const struct candidate *b)
{
	if (b->slab < 0 || a->written != b->written)
		return b->slab < 0 || a->written;
	return a->used < b->used;
}

/* Pages beyond those of one whole context. */
static int64_t spare_pages(const struct eng_model *m)
{
	return kv_pool_n_pages(m->pool) - (int64_t)model_context_pages(m, m->n_ctx);
}

/* A slab whose pages no sequence uses. spare: its model has a whole context without it, or none owns it. */
static struct candidate look_at(const struct engine *e, int slab)
{
	struct candidate c = {.slab = -1, .written = kv_memory_is_written(e->memory, slab)};
	int owner = kv_memory_owner(e->memory, slab);
	c.from = owner_of(e, slab);
	if (owner == KV_MEMORY_WITHHELD || (c.from == NULL && owner != KV_MEMORY_NONE) ||
	    (c.from != NULL && !c.from->rebalancing))
		return c;
	const struct kv_slab *s = c.from != NULL ? kv_pool_slab(c.from->pool, slab) : NULL;
	if (s != NULL && !is_idle(s))
		return c;
	c.spare = s == NULL || spare_pages(c.from) >= s->n_pages;
	c.used = s != NULL && s->n_idle > 0 ? s->used + 1 : 0;
	if (c.written || c.spare)
		c.slab = slab;
	return c;
}

uint64_t kv_rebalance_release(struct engine *e)
{
	struct candidate best = {.slab = -1}, one;
	for (int slab = 0; slab < kv_memory_n_slabs(e->memory); slab++) {
		one = look_at(e, slab);
		if (one.slab >= 0 && is_better(&one, &best))
			best = one;
	}
	if (best.slab < 0)
		return 0;
	if (best.from != NULL) {
		in_flight_await(best.from);
		evict_slab(best.from, kv_pool_slab(best.from->pool, best.slab));
	}
	if (best.from != NULL && best.spare)
		kv_pool_take_slab(best.from->pool, best.slab);
	if (best.spare)
		kv_memory_set_owner(e->memory, best.slab, KV_MEMORY_WITHHELD);
	atomic_fetch_add(&e->kv_released, kv_memory_discard(e->memory, best.slab));
	return kv_memory_bytes_of(e->memory, best.slab);
}

uint64_t kv_rebalance_restore(struct engine *e)
{
	for (int slab = 0; slab < kv_memory_n_slabs(e->memory); slab++) {
		if (kv_memory_owner(e->memory, slab) != KV_MEMORY_WITHHELD)
			continue;
		kv_memory_set_owner(e->memory, slab, KV_MEMORY_NONE);
		atomic_fetch_add(&e->kv_restored, kv_memory_bytes_of(e->memory, slab));
		return kv_memory_bytes_of(e->memory, slab);
	}
	return 0;
}

void kv_rebalance_follow_pressure(struct engine *e)
{
	enum { SLABS = 4 }; /* in one iteration: steps go on in between */
	if (!e->memory_in_use)
		return;
	long long none = 0, ask = atomic_exchange(&e->kv_ask, 0);
	for (int i = 0; i < SLABS && ask != 0; i++) {
		uint64_t got = ask > 0 ? kv_rebalance_release(e) : kv_rebalance_restore(e);
		long long left = ask > 0 ? ask - (long long)got : ask + (long long)got;
		ask = got == 0 || (left > 0) != (ask > 0) ? 0 : left;
	}
	if (ask != 0) /* unless a newer one came */
		(void)atomic_compare_exchange_strong(&e->kv_ask, &none, ask);
	atomic_store(&e->kv_withheld, kv_memory_withheld(e->memory));
}

/* ---- models ---- */

void kv_rebalance_join(struct eng_model *m)
{
	if (m->e->memory == NULL)
		return;
	m->rebalancing = m->e->memory_in_use = true;
	prefix_set_more(m->prefix, more, m);
}

void kv_rebalance_leave(struct eng_model *m)
{
	struct kv_memory *memory = m->e->memory;
	if (memory == NULL || m->memory_index < 0)
		return;
	for (int slab = 0; slab < kv_memory_n_slabs(memory); slab++) {
		if (kv_memory_owner(memory, slab) == m->memory_index)
			kv_memory_set_owner(memory, slab, KV_MEMORY_NONE);
	}
}
