/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store's records: a hash table (chained; a key ends in a SHA-256, so no client can choose collisions), a
 * heap by the end of life, an LRU ring for each kind, and for the kinds that can be listed one ring per tenant, sorted
 * by the end of life.
 *
 * Memory is bounded for each kind apart, so that a flood of sessions evicts sessions and not limits. Eviction runs
 * after an operation, never during it, so what an operation holds stays valid. The bound is exceeded by at most one
 * operation.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/mem_priv.h"

enum { RECORD_OVERHEAD = sizeof(struct mem_record) + 64 };

struct mem_index {
	struct mem_entry entry;
	struct list records;
	size_t n;
	struct cache_key key;
};

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct mem_record, due)->due_us <
	       heap_entry(b, const struct mem_record, due)->due_us;
}

static void dispose(struct mem_store *s)
{
	mem_lua_destroy(s->lua);
	mem_table_dispose(&s->records);
	mem_table_dispose(&s->indices);
	mem_table_dispose(&s->fields);
	sl_free(s);
}

int mem_store_create(const struct cache_config *cfg, struct mem_store **out)
{
	struct mem_store *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return SL_ENOMEM;
	if (mem_table_init(&s->records) != 0 || mem_table_init(&s->indices) != 0 || mem_table_init(&s->fields) != 0 ||
	    mem_lua_create(cfg->memory_bytes / 2, &s->lua) != 0) {
		dispose(s);
		return SL_ENOMEM;
	}
	heap_init(&s->due, sooner);
	list_init(&s->journal);
	list_init(&s->touched);
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
	BUG_IF(s->due.n != 0, "the memory store leaves records");
	dispose(s);
}

/* FNV-1a. */
size_t mem_hash(const void *p, size_t n, size_t seed)
{
	uint64_t h = 14695981039346656037ull ^ seed;
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
	return (size_t)(h ^ h >> 32);
}

static size_t hash(const struct cache_key *key) { return mem_hash(key->text, key->len, 0); }

static bool same(const struct cache_key *a, const struct cache_key *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static struct mem_index *find_index(const struct mem_store *s, const struct cache_key *key)
{
	struct mem_entry *e = mem_table_first(&s->indices, hash(key));
	while (e != NULL && !same(&((struct mem_index *)e)->key, key))
		e = mem_table_next(e, hash(key));
	return (struct mem_index *)e;
}

struct list *mem_siblings(struct mem_store *s, const struct cache_key *index, size_t *n)
{
	struct mem_index *x = find_index(s, index);
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
	struct mem_index *x = find_index(s, &name);
	if (x != NULL)
		return x;
	x = sl_zalloc(sizeof *x);
	if (x == NULL)
		return NULL;
	list_init(&x->records);
	x->key = name;
	mem_table_add(&s->indices, &x->entry, hash(&name));
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
	mem_table_remove(&s->indices, &x->entry);
	sl_free(x);
}

struct mem_record *mem_find(struct mem_store *s, const struct cache_key *key)
{
	size_t h = hash(key);
	struct mem_entry *e = mem_table_first(&s->records, h);
	while (e != NULL && !same(&((struct mem_record *)e)->key, key))
		e = mem_table_next(e, h);
	struct mem_record *r = (struct mem_record *)e;
	if (r != NULL) {
		list_remove(&r->lru);
		list_push_back(&s->lru[key->kind], &r->lru);
	}
	return r;
}

static bool lower(const struct heap_node *a, const struct heap_node *b)
{
	return heap_entry(a, const struct mem_field, by_score)->score <
	       heap_entry(b, const struct mem_field, by_score)->score;
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
	r->type = type;
	r->key = *key;
	r->due_us = UINT64_MAX;
	list_init(&r->batches);
	list_init(&r->fields);
	list_init(&r->touched);
	heap_init(&r->scores, lower);
	list_init(&r->sibling);
	list_init(&r->lru);
	if (r->index != NULL)
		list_push_back(&r->index->records, &r->sibling);
	list_push_back(&s->lru[key->kind], &r->lru);
	mem_table_add(&s->records, &r->entry, hash(key));
	s->used[key->kind] += RECORD_OVERHEAD;
	metric_add(&cache_m_bytes[key->kind], RECORD_OVERHEAD);
	return r;
}

void mem_account(struct mem_store *s, struct mem_record *r, size_t content)
{
	s->used[r->key.kind] += content - r->content;
	metric_add(&cache_m_bytes[r->key.kind], (int64_t)content - (int64_t)r->content);
	r->content = content;
}

void mem_remove(struct mem_store *s, struct mem_record *r)
{
	mem_table_remove(&s->records, &r->entry);
	if (r->due.in)
		heap_remove(&s->due, &r->due);
	list_remove(&r->lru);
	list_remove(&r->touched);
	leave_index(s, r);
	mem_fields_free(s, r);
	mem_account(s, r, 0);
	s->used[r->key.kind] -= RECORD_OVERHEAD;
	metric_add(&cache_m_bytes[r->key.kind], -(int64_t)RECORD_OVERHEAD);
	while (!list_empty(&r->batches)) {
		struct mem_batch *b = list_entry(r->batches.next, struct mem_batch, node);
		list_remove(&b->node);
		sl_free(b);
	}
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
	/* TTLs within a kind are mostly equal, so the position is near the end. */
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
	size_t n = 0, n_due = 0, n_listed = 0, n_siblings = 0, n_indices = 0, n_fields = 0;
	BUG_IF(!list_empty(&s->journal) || !list_empty(&s->touched), "an operation has not ended");
	for (size_t i = 0; i < s->records.n_buckets; i++)
		for (struct mem_entry *e = s->records.buckets[i]; e != NULL; e = e->next) {
			const struct mem_record *r = (struct mem_record *)e;
			used[r->key.kind] += r->content + RECORD_OVERHEAD;
			n++;
			n_fields += r->n_fields;
			n_due += r->due.in;
			n_listed += r->index != NULL;
			BUG_IF((r->due_us == UINT64_MAX) == r->due.in, "a record's end isn't in the heap");
			BUG_IF(cache_kind_indexed(r->key.kind) != (r->index != NULL), "an unlisted record");
			BUG_IF((r->type == MEM_LOG) != (r->n_fields == 0), "a record has fields of another type");
			BUG_IF(r->type == MEM_ZSET && r->scores.n != r->n_fields, "a sorted set is not sorted");
		}
	BUG_IF(n != s->records.n || n_due != s->due.n || n_fields != s->fields.n, "records are miscounted");
	for (int i = 0; i < CACHE_N_KINDS; i++)
		BUG_IF(used[i] != s->used[i], "%s: bytes are miscounted", cache_kind_name(i));
	for (size_t i = 0; i < s->indices.n_buckets; i++)
		for (struct mem_entry *e = s->indices.buckets[i]; e != NULL; e = e->next) {
			const struct mem_index *x = (struct mem_index *)e;
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
	BUG_IF(n_siblings != n_listed || n_indices != s->indices.n, "lists are miscounted");
}
