/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "cache/mem_priv.h"

enum { FIRST_BUCKETS = 256 };

static struct mem_entry **bucket_of(const struct mem_table *t, size_t hash)
{
	return &t->buckets[hash & (t->n_buckets - 1)];
}

int mem_table_init(struct mem_table *t)
{
	*t = (struct mem_table){.buckets = sl_zalloc_n(FIRST_BUCKETS, sizeof *t->buckets), .n_buckets = FIRST_BUCKETS};
	return t->buckets == NULL ? SL_ENOMEM : 0;
}

void mem_table_dispose(struct mem_table *t)
{
	BUG_IF(t->n != 0, "the memory store leaves %zu entries", t->n);
	sl_free(t->buckets);
}

/* Only for speed: without memory for it the chains are longer. */
static void grow(struct mem_table *t)
{
	struct mem_table bigger = {.n_buckets = t->n_buckets * 2, .n = t->n};
	bigger.buckets = sl_zalloc_n(bigger.n_buckets, sizeof *bigger.buckets);
	if (bigger.buckets == NULL)
		return;
	for (size_t i = 0; i < t->n_buckets; i++)
		for (struct mem_entry *e = t->buckets[i], *next; e != NULL; e = next) {
			struct mem_entry **to = bucket_of(&bigger, e->hash);
			next = e->next;
			e->next = *to;
			*to = e;
		}
	sl_free(t->buckets);
	*t = bigger;
}

void mem_table_add(struct mem_table *t, struct mem_entry *e, size_t hash)
{
	if (t->n >= t->n_buckets)
		grow(t);
	struct mem_entry **to = bucket_of(t, hash);
	*e = (struct mem_entry){.next = *to, .hash = hash};
	*to = e;
	t->n++;
}

void mem_table_remove(struct mem_table *t, struct mem_entry *e)
{
	struct mem_entry **at = bucket_of(t, e->hash);
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	t->n--;
}

struct mem_entry *mem_table_first(const struct mem_table *t, size_t hash)
{
	struct mem_entry *e = *bucket_of(t, hash);
	return e == NULL || e->hash == hash ? e : mem_table_next(e, hash);
}

struct mem_entry *mem_table_next(const struct mem_entry *e, size_t hash)
{
	struct mem_entry *next = e->next;
	while (next != NULL && next->hash != hash)
		next = next->next;
	return next;
}
