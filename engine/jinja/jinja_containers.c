/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists and dictionaries: made, filled and iterated over. A dictionary is a list of pairs in insertion order, searched
 * linearly: those of templates are small, and searching is charged.
 */
#include "engine/jinja/jinja.h"

/* ---- lists ---- */

struct jlist *jlist_new(struct jrun *r, size_t cap)
{
	size_t bytes;
	struct jlist *l = jrun_alloc(r, sizeof(*l));
	if (__builtin_mul_overflow(cap, sizeof(*l->items), &bytes))
		jrun_fail(r, SL_ELIMIT, "a list of %zu items", cap);
	jrun_charge(r, bytes);
	if (cap > 0)
		l->items = jrun_alloc(r, bytes);
	l->cap = cap;
	return l;
}

void jlist_add(struct jrun *r, struct jlist *l, struct jvalue v)
{
	if (l->n == l->cap) {
		/* Old items stay in the arena: their sizes double, so they sum to one more. */
		size_t cap = l->cap ? l->cap * 2 : 8;
		struct jvalue *items = jrun_alloc(r, cap * sizeof(*items));
		if (l->n > 0)
			memcpy(items, l->items, l->n * sizeof(*items));
		l->items = items;
		l->cap = cap;
	}
	jlist_put(l, v);
	jrun_charge(r, sizeof(v));
}

void jlist_add_part(struct jrun *r, struct jlist *l, struct jstr s, size_t from, size_t to)
{
	jlist_add(r, l, jvalue_string_of(jstr_sub(s, from, to - from), false));
}

struct jlist *jlist_copy(struct jrun *r, const struct jvalue *items, size_t n)
{
	struct jlist *l = jlist_new(r, n);
	for (size_t i = 0; i < n; i++)
		jlist_put(l, items[i]);
	return l;
}

void jlist_reverse(struct jlist *l)
{
	for (size_t i = 0; i < l->n / 2; i++) {
		struct jvalue v = l->items[i];
		l->items[i] = l->items[l->n - 1 - i];
		l->items[l->n - 1 - i] = v;
	}
}

static struct jlist *characters(struct jrun *r, struct jstr s)
{
	struct jlist *l = jlist_new(r, jstr_chars(s));
	uint32_t c;
	for (size_t i = 0, n; i < s.n; i += n) {
		n = jstr_char(s, i, &c);
		jlist_put(l, jvalue_string_of(jstr_sub(s, i, n), false));
	}
	return l;
}

struct jlist *jvalue_items(struct jrun *r, const struct jvalue *v)
{
	switch (v->type) {
	case JV_LIST:
	case JV_TUPLE: return v->list;
	case JV_UNDEFINED: return jlist_new(r, 0);
	case JV_STRING: return characters(r, v->s);
	case JV_DICT: return jdict_list(r, v->dict, JDICT_KEYS).list;
	default: jrun_fail(r, SL_EINVAL, "%s has no items to go through", jvalue_type_name(v));
	}
}

/* ---- dictionaries ---- */

struct jdict *jdict_new(struct jrun *r) { return jrun_alloc(r, sizeof(struct jdict)); }

static bool same_key(const struct jvalue *a, const struct jvalue *b)
{
	if (a->type == JV_STRING || b->type == JV_STRING)
		return a->type == b->type && jstr_equal(a->s, b->s);
	if (jvalue_is_number(a) && jvalue_is_number(b))
		return jvalue_order_numbers(a, b) == 0;
	return a->type == b->type && a->type == JV_NONE;
}

struct jpair *jdict_find(const struct jdict *d, const struct jvalue *key)
{
	for (struct jpair *p = d->first; p != NULL; p = p->next)
		if (same_key(&p->key, key))
			return p;
	return NULL;
}

void jdict_append(struct jdict *d, struct jpair *pair)
{
	if (d->last != NULL)
		d->last->next = pair;
	else
		d->first = pair;
	d->last = pair;
	d->n++;
}

void jdict_put(struct jrun *r, struct jdict *d, struct jvalue key, struct jvalue value)
{
	if (key.type != JV_STRING && key.type != JV_NONE && !jvalue_is_number(&key))
		jrun_fail(r, SL_EINVAL, "%s as the key of a dictionary", jvalue_type_name(&key));
	jrun_charge(r, d->n * 64);
	struct jpair *p = jdict_find(d, &key);
	if (p != NULL) {
		p->value = value;
		return;
	}
	p = jrun_alloc(r, sizeof(*p));
	*p = (struct jpair){.key = key, .value = value};
	jdict_append(d, p);
}

void jdict_put_all(struct jrun *r, struct jdict *d, const struct jdict *from)
{
	for (const struct jpair *p = from->first; p != NULL; p = p->next)
		jdict_put(r, d, p->key, p->value);
}

void jdict_remove(struct jdict *d, const struct jpair *pair)
{
	struct jpair *before = NULL, **link = &d->first;
	while (*link != pair) {
		before = *link;
		link = &before->next;
	}
	*link = pair->next;
	if (d->last == pair)
		d->last = before;
	d->n--;
}

struct jvalue jdict_list(struct jrun *r, const struct jdict *d, enum jdict_part part)
{
	struct jlist *l = jlist_new(r, d->n);
	for (const struct jpair *p = d->first; p != NULL; p = p->next)
		if (part == JDICT_ITEMS)
			jlist_put(l, jvalue_tuple_of(jlist_copy(r, (struct jvalue[]){p->key, p->value}, 2)));
		else
			jlist_put(l, part == JDICT_VALUES ? p->value : p->key);
	return jvalue_list_of(l);
}
