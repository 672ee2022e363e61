/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store's records: one hash table (chained; a key ends in a SHA-256, so nobody can choose
 * collisions), a heap by the end of life, an LRU ring for each kind, and for the kinds that can be
 * listed one ring per tenant, sorted by the end of life.
 *
 * Memory is bounded for each kind apart, so that a flood of sessions evicts sessions and not limits.
 * Evicting happens after an operation, never within: what an operation holds stays. So the bound is
 * passed by one operation at most.
 *
 * Thread: the store's, or a test's.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/priv.h"

enum { FIRST_BUCKETS = 256, RECORD_OVERHEAD = sizeof(struct mem_record) + 64 };

struct mem_index {
	struct mem_index *chain;
	struct list records;
	size_t n;
	struct cache_key key;
};

struct mem_store {
	struct mem_record **buckets;
	size_t n_buckets, n_records; /* a power of two */
	struct mem_index **indices;
	size_t n_index_buckets, n_indices;
	struct heap due;
	struct list lru[CACHE_N_KINDS]; /* the least recently used first */
	uint64_t used[CACHE_N_KINDS], most[CACHE_N_KINDS];
	uint32_t max_keys_per_tenant;
};

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct mem_record, due)->due_us <
	       heap_entry(b, const struct mem_record, due)->due_us;
}

int mem_store_create(const struct cache_config *cfg, struct mem_store **out)
{
	struct mem_store *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return SL_ENOMEM;
	s->n_buckets = s->n_index_buckets = FIRST_BUCKETS;
	s->buckets = sl_zalloc_n(s->n_buckets, sizeof *s->buckets);
	s->indices = sl_zalloc_n(s->n_index_buckets, sizeof *s->indices);
	if (s->buckets == NULL || s->indices == NULL) {
		sl_free(s->buckets);
		sl_free(s->indices);
		sl_free(s);
		return SL_ENOMEM;
	}
	heap_init(&s->due, sooner);
	for (int i = 0; i < CACHE_N_KINDS; i++) {
		list_init(&s->lru[i]);
		s->most[i] = cfg->memory_bytes / 100 * (uint64_t)cache_kind_memory_percent(i);
	}
	s->max_keys_per_tenant = cfg->max_keys_per_tenant;
	*out = s;
	return 0;
}

void mem_store_destroy(struct mem_store *s)
{
	for (int i = 0; i < CACHE_N_KINDS; i++)
		while (!list_empty(&s->lru[i]))
			mem_remove(s, list_entry(s->lru[i].next, struct mem_record, lru));
	BUG_IF(s->n_records != 0 || s->n_indices != 0 || s->due.n != 0, "the memory store leaves records");
	sl_free(s->buckets);
	sl_free(s->indices);
	sl_free(s);
}

/* FNV-1a. */
static size_t hash(const struct cache_key *key)
{
	uint64_t h = 14695981039346656037ull;
	for (int i = 0; i < key->len; i++)
		h = (h ^ (uint8_t)key->text[i]) * 1099511628211ull;
	return (size_t)(h ^ h >> 32);
}

static bool same(const struct cache_key *a, const struct cache_key *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

/* Doubling is a matter of speed: without memory for it the chains are longer. */
static void grow(struct mem_store *s)
{
	size_t n = s->n_buckets * 2;
	struct mem_record **bigger = sl_zalloc_n(n, sizeof *bigger);
	if (bigger == NULL)
		return;
	for (size_t i = 0; i < s->n_buckets; i++)
		for (struct mem_record *r = s->buckets[i], *next; r != NULL; r = next) {
			next = r->chain;
			size_t at = hash(&r->key) & (n - 1);
			r->chain = bigger[at];
			bigger[at] = r;
		}
	sl_free(s->buckets);
	s->buckets = bigger;
	s->n_buckets = n;
}

static void grow_indices(struct mem_store *s)
{
	size_t n = s->n_index_buckets * 2;
	struct mem_index **bigger = sl_zalloc_n(n, sizeof *bigger);
	if (bigger == NULL)
		return;
	for (size_t i = 0; i < s->n_index_buckets; i++)
		for (struct mem_index *x = s->indices[i], *next; x != NULL; x = next) {
			next = x->chain;
			size_t at = hash(&x->key) & (n - 1);
			x->chain = bigger[at];
			bigger[at] = x;
		}
	sl_free(s->indices);
	s->indices = bigger;
	s->n_index_buckets = n;
}

static struct mem_index **index_place(const struct mem_store *s, const struct cache_key *key)
{
	struct mem_index **at = &s->indices[hash(key) & (s->n_index_buckets - 1)];
	while (*at != NULL && !same(&(*at)->key, key))
		at = &(*at)->chain;
	return at;
}

struct list *mem_siblings(struct mem_store *s, const struct cache_key *index, size_t *n)
{
	struct mem_index *x = *index_place(s, index);
	*n = x == NULL ? 0 : x->n;
	return x == NULL ? NULL : &x->records;
}

/* The index of key's tenant and kind, made when there is none. NULL: exhausted. */
static struct mem_index *index_of(struct mem_store *s, const struct cache_key *key)
{
	struct cache_key name = *key;
	size_t stem = cache_key_stem(key);
	memcpy(name.text + stem, "index", sizeof "index");
	name.len = (uint8_t)(stem + strlen("index"));
	if (s->n_indices >= s->n_index_buckets)
		grow_indices(s);
	struct mem_index **at = index_place(s, &name);
	if (*at != NULL)
		return *at;
	struct mem_index *x = sl_zalloc(sizeof *x);
	if (x == NULL)
		return NULL;
	list_init(&x->records);
	x->key = name;
	*at = x;
	s->n_indices++;
	return x;
}

static void leave_index(struct mem_store *s, struct mem_record *r)
{
	struct mem_index *x = r->index;
	if (x == NULL)
		return;
	list_remove(&r->sibling);
	r->index = NULL;
	if (--x->n > 0)
		return;
	*index_place(s, &x->key) = x->chain;
	s->n_indices--;
	sl_free(x);
}

struct mem_record *mem_find(struct mem_store *s, const struct cache_key *key)
{
	struct mem_record *r = s->buckets[hash(key) & (s->n_buckets - 1)];
	while (r != NULL && !same(&r->key, key))
		r = r->chain;
	if (r != NULL) {
		list_remove(&r->lru);
		list_push_back(&s->lru[key->kind], &r->lru);
	}
	return r;
}

struct mem_record *mem_add(struct mem_store *s, const struct cache_key *key, enum mem_type type)
{
	struct mem_record *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	if (cache_kind_indexed(key->kind)) {
		r->index = index_of(s, key);
		if (r->index == NULL) {
			sl_free(r);
			return NULL;
		}
		r->index->n++;
	}
	if (s->n_records >= s->n_buckets)
		grow(s);
	r->type = type;
	r->key = *key;
	r->due_us = UINT64_MAX;
	list_init(&r->batches);
	list_init(&r->sibling);
	list_init(&r->lru);
	if (r->index != NULL)
		list_push_back(&r->index->records, &r->sibling);
	list_push_back(&s->lru[key->kind], &r->lru);
	struct mem_record **bucket = &s->buckets[hash(key) & (s->n_buckets - 1)];
	r->chain = *bucket;
	*bucket = r;
	s->n_records++;
	mem_account(s, r, 0);
	return r;
}

void mem_account(struct mem_store *s, struct mem_record *r, size_t content)
{
	size_t cost = content + RECORD_OVERHEAD;
	s->used[r->key.kind] += cost - r->cost;
	metric_add(&cache_m_bytes[r->key.kind], (int64_t)cost - (int64_t)r->cost);
	r->cost = cost;
}

void mem_remove(struct mem_store *s, struct mem_record *r)
{
	struct mem_record **at = &s->buckets[hash(&r->key) & (s->n_buckets - 1)];
	while (*at != r)
		at = &(*at)->chain;
	*at = r->chain;
	s->n_records--;
	if (r->due.in)
		heap_remove(&s->due, &r->due);
	list_remove(&r->lru);
	leave_index(s, r);
	s->used[r->key.kind] -= r->cost;
	metric_add(&cache_m_bytes[r->key.kind], -(int64_t)r->cost);
	while (!list_empty(&r->batches)) {
		struct mem_batch *b = list_entry(r->batches.next, struct mem_batch, node);
		list_remove(&b->node);
		sl_free(b);
	}
	sl_free(r->bytes);
	sl_free(r);
}

void mem_set_ttl(struct mem_store *s, struct mem_record *r, uint64_t now_us, uint64_t ttl_ms)
{
	if (r->due.in)
		heap_remove(&s->due, &r->due);
	uint64_t ttl_us;
	if (ttl_ms == 0 || __builtin_mul_overflow(ttl_ms, 1000, &ttl_us) ||
	    __builtin_add_overflow(now_us, ttl_us, &r->due_us))
		r->due_us = UINT64_MAX;
	else
		heap_insert(&s->due, &r->due);
	struct mem_index *x = r->index;
	if (x == NULL)
		return;
	/* Lives of one kind are mostly equally long: the place is near the end. */
	list_remove(&r->sibling);
	struct list *before = x->records.prev;
	while (before != &x->records && list_entry(before, struct mem_record, sibling)->due_us > r->due_us)
		before = before->prev;
	list_push_front(before, &r->sibling);
	while (r->index != NULL && x->n > s->max_keys_per_tenant) {
		struct mem_record *first = list_entry(x->records.next, struct mem_record, sibling);
		metric_add(&cache_m_evicted[first->key.kind], 1);
		mem_remove(s, first);
		if (first == r)
			return;
	}
}

uint64_t mem_store_expire(struct mem_store *s, uint64_t now_us)
{
	while (s->due.top != NULL) {
		struct mem_record *r = heap_entry(s->due.top, struct mem_record, due);
		if (r->due_us > now_us)
			return r->due_us;
		metric_add(&cache_m_expired, 1);
		mem_remove(s, r);
	}
	return UINT64_MAX;
}

void mem_store_evict(struct mem_store *s)
{
	for (int i = 0; i < CACHE_N_KINDS; i++)
		while (s->used[i] > s->most[i] && !list_empty(&s->lru[i])) {
			metric_add(&cache_m_evicted[i], 1);
			mem_remove(s, list_entry(s->lru[i].next, struct mem_record, lru));
		}
}

void mem_store_validate(const struct mem_store *s)
{
	uint64_t used[CACHE_N_KINDS] = {0};
	size_t n = 0, n_due = 0, n_listed = 0, n_siblings = 0, n_indices = 0;
	for (size_t i = 0; i < s->n_buckets; i++)
		for (const struct mem_record *r = s->buckets[i]; r != NULL; r = r->chain) {
			used[r->key.kind] += r->cost;
			n++;
			n_due += r->due.in;
			n_listed += r->index != NULL;
			BUG_IF((r->due_us == UINT64_MAX) == r->due.in, "a record's end isn't in the heap");
			BUG_IF(cache_kind_indexed(r->key.kind) != (r->index != NULL), "an unlisted record");
		}
	BUG_IF(n != s->n_records || n_due != s->due.n, "records are miscounted");
	for (int i = 0; i < CACHE_N_KINDS; i++)
		BUG_IF(used[i] != s->used[i], "%s: bytes are miscounted", cache_kind_name(i));
	for (size_t i = 0; i < s->n_index_buckets; i++)
		for (const struct mem_index *x = s->indices[i]; x != NULL; x = x->chain) {
			uint64_t last = 0;
			size_t here = 0;
			list_each(it, &x->records) {
				const struct mem_record *r = list_entry(it, struct mem_record, sibling);
				BUG_IF(r->due_us < last || r->index != x, "a tenant's list is out of order");
				last = r->due_us;
				here++;
			}
			BUG_IF(here != x->n || here == 0, "a tenant's list is miscounted");
			n_siblings += here;
			n_indices++;
		}
	BUG_IF(n_siblings != n_listed || n_indices != s->n_indices, "lists are miscounted");
}
