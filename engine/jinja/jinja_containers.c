/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists and dictionaries: made, filled and gone through. A dictionary is a list of pairs in the order
 * in which they came, looked through from the beginning: those of templates are small, and looking
 * is charged.
 */
#include <string.h>

#include "engine/jinja/jinja.h"

/* ---- lists ---- */

struct jlist *jlist_new(struct jrun *r, size_t cap)
{
	size_t bytes;
	struct jlist *l = jrun_alloc(r, sizeof(*l));
	if (l == NULL)
		return NULL;
	if (__builtin_mul_overflow(cap, sizeof(*l->items), &bytes)) {
		jrun_fail(r, SL_ELIMIT, "a list of %zu items", cap);
		return NULL;
	}
	if (jrun_charge(r, bytes) != 0)
		return NULL;
	if (cap > 0) {
		l->items = jrun_alloc(r, bytes);
		if (l->items == NULL)
			return NULL;
	}
	l->cap = cap;
	return l;
}

int jlist_add(struct jrun *r, struct jlist *l, const struct jvalue *v)
{
	if (l->n == l->cap) {
		/* Old items stay in the arena: their sizes double, so they sum to one more. */
		size_t cap = l->cap ? l->cap * 2 : 8;
		struct jvalue *items = jrun_alloc(r, cap * sizeof(*items));
		if (items == NULL)
			return r->err->code;
		if (l->n > 0)
			memcpy(items, l->items, l->n * sizeof(*items));
		l->items = items;
		l->cap = cap;
	}
	l->items[l->n++] = *v;
	return jrun_charge(r, sizeof(*v));
}

static int characters(struct jrun *r, struct jstr s, struct jlist **out)
{
	struct jlist *l = jlist_new(r, jstr_chars(s));
	uint32_t c;
	if (l == NULL)
		return r->err->code;
	for (size_t i = 0, n; i < s.n; i += n) {
		n = jstr_char(s, i, &c);
		l->items[l->n++] = jvalue_string_of(jstr_sub(s, i, n));
	}
	*out = l;
	return 0;
}

int jvalue_items(struct jrun *r, const struct jvalue *v, struct jlist **out)
{
	struct jvalue keys;
	switch (v->type) {
	case JV_LIST:
	case JV_TUPLE: *out = v->list; return 0;
	case JV_UNDEFINED: *out = jlist_new(r, 0); return *out != NULL ? 0 : r->err->code;
	case JV_STRING: return characters(r, v->s, out);
	case JV_DICT: {
		int rc = jdict_list(r, v->dict, JDICT_KEYS, &keys);
		*out = rc == 0 ? keys.list : NULL;
		return rc;
	}
	default: return jrun_fail(r, SL_EINVAL, "%s has no items to go through", jvalue_type_name(v));
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

const struct jpair *jdict_find(const struct jdict *d, const struct jvalue *key)
{
	for (const struct jpair *p = d->first; p != NULL; p = p->next)
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

int jdict_put(struct jrun *r, struct jdict *d, const struct jvalue *key, const struct jvalue *value)
{
	if (key->type != JV_STRING && key->type != JV_NONE && !jvalue_is_number(key))
		return jrun_fail(r, SL_EINVAL, "%s as the key of a dictionary", jvalue_type_name(key));
	int rc = jrun_charge(r, d->n * 64);
	if (rc != 0)
		return rc;
	struct jpair *p = (struct jpair *)jdict_find(d, key); /* d may be written */
	if (p != NULL) {
		p->value = *value;
		return 0;
	}
	p = jrun_alloc(r, sizeof(*p));
	if (p == NULL)
		return r->err->code;
	*p = (struct jpair){.key = *key, .value = *value};
	jdict_append(d, p);
	return 0;
}

void jdict_remove(struct jdict *d, const struct jpair *pair)
{
	struct jpair *before = NULL;
	for (struct jpair *p = d->first; p != NULL; before = p, p = p->next) {
		if (p != pair)
			continue;
		if (before != NULL)
			before->next = p->next;
		else
			d->first = p->next;
		if (d->last == p)
			d->last = before;
		d->n--;
		return;
	}
}

int jdict_list(struct jrun *r, const struct jdict *d, enum jdict_part part, struct jvalue *out)
{
	struct jlist *l = jlist_new(r, d->n);
	if (l == NULL)
		return r->err->code;
	for (const struct jpair *p = d->first; p != NULL; p = p->next) {
		struct jvalue item = part == JDICT_VALUES ? p->value : p->key;
		if (part == JDICT_ITEMS) {
			struct jlist *both = jlist_new(r, 2);
			if (both == NULL)
				return r->err->code;
			both->items[both->n++] = p->key;
			both->items[both->n++] = p->value;
			item = jvalue_tuple_of(both);
		}
		l->items[l->n++] = item;
	}
	*out = jvalue_list_of(l);
	return 0;
}
