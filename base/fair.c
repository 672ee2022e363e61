/* SPDX-License-Identifier: Apache-2.0
 *
 * A line holds the items of one tenant and one priority, oldest first; it exists while it has items. A hash table finds
 * lines, and each priority lists its own. Finding the next item or a victim walks that list, whose length is the number
 * of waiting tenants.
 */
#include "base/fair.h"

#include <stddef.h>

#include "base/alloc.h"
#include "base/err.h"

struct fair_line {
	struct list node;       /* in its tier */
	struct fair_line *next; /* in its bucket */
	struct list items;
	uint64_t tenant;
	uint64_t units;
	uint64_t finish; /* virtual time: of its last item */
	uint64_t n;      /* items, urgent ones included */
	int tier;
};

static int tier_of(int64_t priority)
{
	return priority < 0 ? 0 : priority < FAIR_PRIORITIES ? (int)priority : FAIR_PRIORITIES - 1;
}

static struct fair_item *item_of(struct list *node) { return list_entry(node, struct fair_item, node); }

void fair_init(struct fair *f)
{
	*f = (struct fair){0};
	list_init(&f->urgent);
	for (int i = 0; i < FAIR_PRIORITIES; i++)
		list_init(&f->tiers[i].lines);
}

void fair_dispose(struct fair *f) { BUG_IF(f->n != 0, "%llu items are left in a queue", (unsigned long long)f->n); }

/* ---- lines ---- */

static size_t bucket_of(uint64_t tenant, int tier)
{
	return (size_t)(((tenant ^ (uint64_t)tier) * 0x9e3779b97f4a7c15u) >> 58) % FAIR_BUCKETS;
}

static struct fair_line *find_line(const struct fair *f, uint64_t tenant, int tier)
{
	struct fair_line *l = f->buckets[bucket_of(tenant, tier)];
	while (l != NULL && (l->tenant != tenant || l->tier != tier))
		l = l->next;
	return l;
}

static struct fair_line *add_line(struct fair *f, uint64_t tenant, int tier)
{
	struct fair_line *l = sl_zalloc(sizeof *l), **bucket = &f->buckets[bucket_of(tenant, tier)];
	if (l == NULL)
		return NULL;
	l->tenant = tenant;
	l->tier = tier;
	l->next = *bucket;
	*bucket = l;
	list_init(&l->items);
	list_push_back(&f->tiers[tier].lines, &l->node);
	return l;
}

static void drop_line(struct fair *f, struct fair_line *l)
{
	struct fair_line **at = &f->buckets[bucket_of(l->tenant, l->tier)];
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	list_remove(&l->node);
	sl_free(l);
}

/* ---- entering and leaving ---- */

int fair_enter(struct fair *f, struct fair_item *it, uint64_t tenant, int64_t priority, uint32_t units)
{
	int tier = tier_of(priority);
	BUG_IF(fair_queued(it) || units == 0, "an item that can't be queued");
	struct fair_line *l = find_line(f, tenant, tier);
	if (l == NULL && (l = add_line(f, tenant, tier)) == NULL)
		return SL_ENOMEM;
	uint64_t now = f->tiers[tier].vtime;
	*it = (struct fair_item){
	    .line = l, .units = units, .start = l->finish > now ? l->finish : now, .order = f->next_order++};
	l->finish = it->start + units;
	list_push_back(&l->items, &it->node);
	l->units += units;
	l->n++;
	f->tiers[tier].units += units;
	f->n++;
	return 0;
}

void fair_leave(struct fair *f, struct fair_item *it)
{
	struct fair_line *l = it->line;
	if (l == NULL)
		return;
	list_remove(&it->node);
	it->line = NULL;
	l->units -= it->units;
	f->tiers[l->tier].units -= it->units;
	f->n--;
	if (--l->n == 0)
		drop_line(f, l);
}

uint64_t fair_units(const struct fair *f, int64_t priority)
{
	uint64_t n = 0;
	for (int i = 0; i <= tier_of(priority); i++)
		n += f->tiers[i].units;
	return n;
}

/* ---- displacing ---- */

/* The line with the most units among those with an item that is not urgent; NULL: none. */
static struct fair_line *largest(const struct fair_tier *t)
{
	struct fair_line *most = NULL;
	list_each(node, &t->lines) {
		struct fair_line *l = list_entry(node, struct fair_line, node);
		if (!list_empty(&l->items) && (most == NULL || l->units > most->units))
			most = l;
	}
	return most;
}

static struct fair_item *newest(const struct fair_line *l) { return l != NULL ? item_of(l->items.prev) : NULL; }

struct fair_item *fair_worse(const struct fair *f, int64_t priority)
{
	struct fair_item *it = NULL;
	for (int i = FAIR_PRIORITIES - 1; i > tier_of(priority) && it == NULL; i--)
		it = newest(largest(&f->tiers[i]));
	return it;
}

struct fair_item *fair_richer(const struct fair *f, uint64_t tenant, int64_t priority, uint32_t units)
{
	int tier = tier_of(priority);
	const struct fair_line *own = find_line(f, tenant, tier), *l = largest(&f->tiers[tier]);
	uint64_t would = (own != NULL ? own->units : 0) + units;
	return l != NULL && l != own && l->units > would ? newest(l) : NULL;
}

uint64_t fair_richer_units(const struct fair *f, uint64_t tenant, int64_t priority, uint32_t units)
{
	int tier = tier_of(priority);
	const struct fair_line *own = find_line(f, tenant, tier);
	uint64_t would = (own != NULL ? own->units : 0) + units, n = 0;
	list_each(node, &f->tiers[tier].lines) {
		const struct fair_line *l = list_entry(node, struct fair_line, node);
		n += l->units > would && l != own ? l->units - would : 0;
	}
	return n;
}

/* ---- serving ---- */

/* NULL: all of its items are urgent. */
static struct fair_item *oldest(const struct fair_line *l)
{
	return list_empty(&l->items) ? NULL : item_of(l->items.next);
}

static bool is_older(const struct fair_item *a, const struct fair_item *b) { return a->order < b->order; }

static bool is_due(const struct fair_item *a, const struct fair_item *b)
{
	return a->start != b->start ? a->start < b->start : a->order < b->order;
}

/* Of the first items of all lines; NULL: there is none. */
static struct fair_item *first_of_tier(const struct fair_tier *t,
				       bool (*before)(const struct fair_item *, const struct fair_item *))
{
	struct fair_item *it = NULL;
	list_each(node, &t->lines) {
		struct fair_item *first = oldest(list_entry(node, struct fair_line, node));
		if (first != NULL && (it == NULL || before(first, it)))
			it = first;
	}
	return it;
}

static struct fair_item *oldest_of_all(const struct fair *f)
{
	struct fair_item *it = NULL;
	for (int i = 0; i < FAIR_PRIORITIES; i++) {
		struct fair_item *first = first_of_tier(&f->tiers[i], is_older);
		if (first != NULL && (it == NULL || is_older(first, it)))
			it = first;
	}
	return it;
}

static struct fair_item *next_of(const struct fair *f)
{
	struct fair_item *it = NULL;
	if (!list_empty(&f->urgent))
		return item_of(f->urgent.next);
	if (f->n_served % FAIR_AGING == FAIR_AGING - 1)
		return oldest_of_all(f);
	for (int i = 0; i < FAIR_PRIORITIES && it == NULL; i++)
		it = first_of_tier(&f->tiers[i], is_due);
	return it;
}

struct fair_item *fair_take(struct fair *f)
{
	bool urgent = !list_empty(&f->urgent);
	struct fair_item *it = next_of(f);
	if (it == NULL)
		return NULL;
	if (!urgent) {
		struct fair_tier *t = &f->tiers[it->line->tier];
		t->vtime = it->start > t->vtime ? it->start : t->vtime;
		f->n_served++;
	}
	fair_leave(f, it);
	return it;
}

void fair_hurry(struct fair *f, struct fair_item *it)
{
	if (it->line == NULL)
		return;
	list_remove(&it->node);
	list_push_back(&f->urgent, &it->node);
}
