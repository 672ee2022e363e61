/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/disk/disk_index.h"

static const struct disk_entry *of_node(const struct heap_node *n)
{
	return heap_entry(n, const struct disk_entry, by_worth);
}

static bool longer_unused(const struct heap_node *a, const struct heap_node *b)
{
	const struct disk_entry *x = of_node(a), *y = of_node(b);
	return x->used != y->used ? x->used < y->used : x->depth > y->depth;
}

static bool worth_less(const struct heap_node *a, const struct heap_node *b)
{
	const struct disk_entry *x = of_node(a), *y = of_node(b);
	return x->worth != y->worth ? x->worth < y->worth : longer_unused(a, b);
}

static bool older(const struct heap_node *a, const struct heap_node *b)
{
	const struct disk_entry *x = of_node(a), *y = of_node(b);
	return x->created_s != y->created_s ? x->created_s < y->created_s : x->came < y->came;
}

const char *disk_policy_name(enum disk_policy p)
{
	static const char *const names[DISK_POLICIES] = {"lru", "lfu", "ttl"};
	return names[p];
}

int disk_index_init(struct disk_index *x, enum disk_policy policy)
{
	static heap_before *const orders[DISK_POLICIES] = {longer_unused, worth_less, older};
	*x = (struct disk_index){.policy = policy};
	heap_init(&x->by_worth, orders[policy]);
	list_init(&x->by_age);
	return idmap_init(&x->entries);
}

void disk_index_dispose(struct disk_index *x) { idmap_dispose(&x->entries); }

struct disk_entry *disk_index_find(const struct disk_index *x, struct disk_key key)
{
	struct idmap_node *it = idmap_find(&x->entries, key.lo);
	struct disk_entry *e = it != NULL ? idmap_entry(it, struct disk_entry, by_key) : NULL;
	return e != NULL && !e->damaged && disk_key_equal(e->key, key) ? e : NULL;
}

bool disk_index_add(struct disk_index *x, struct disk_entry *e)
{
	if (idmap_find(&x->entries, e->key.lo) != NULL)
		return false;
	e->by_key.key = e->key.lo;
	e->came = e->used = ++x->clock;
	e->n_uses = 0;
	e->worth = x->floor + 1;
	idmap_insert(&x->entries, &e->by_key);
	heap_insert(&x->by_worth, &e->by_worth);
	struct list *after = x->by_age.prev;
	while (after != &x->by_age && list_entry(after, struct disk_entry, by_age)->created_s > e->created_s)
		after = after->prev;
	list_push_front(after, &e->by_age);
	return true;
}

void disk_index_remove(struct disk_index *x, struct disk_entry *e)
{
	idmap_remove(&x->entries, &e->by_key);
	heap_remove(&x->by_worth, &e->by_worth);
	list_remove(&e->by_age);
}

void disk_index_use(struct disk_index *x, struct disk_entry *e, bool begin)
{
	x->clock += begin;
	heap_remove(&x->by_worth, &e->by_worth);
	e->used = x->clock;
	e->n_uses++;
	e->worth = x->floor + 1 + (double)e->n_uses;
	heap_insert(&x->by_worth, &e->by_worth);
}

struct disk_entry *disk_index_worst(const struct disk_index *x)
{
	return x->by_worth.top != NULL ? heap_entry(x->by_worth.top, struct disk_entry, by_worth) : NULL;
}

void disk_index_evicting(struct disk_index *x, const struct disk_entry *e)
{
	if (e->worth > x->floor)
		x->floor = e->worth;
}

struct disk_entry *disk_index_oldest(const struct disk_index *x)
{
	return !list_empty(&x->by_age) ? list_entry(x->by_age.next, struct disk_entry, by_age) : NULL;
}
