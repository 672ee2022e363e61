/* SPDX-License-Identifier: Apache-2.0
 *
 * The methods of lists, dictionaries, loops and cyclers: Python's, by name and type. The parser
 * checks that some type has a method of that name and shape.
 *
 * Lists and dictionaries may be changed, as in plain Jinja; what a template changes are values of
 * its own run, never the request.
 */
#include <string.h>

#include "engine/jinja/jinja.h"

#define UNUSED (void)r, (void)self, (void)args, (void)all

/* ---- dictionaries ---- */

static int method_items(JSELF)
{
	UNUSED;
	return jdict_list(r, self->dict, JDICT_ITEMS, out);
}

static int method_keys(JSELF)
{
	UNUSED;
	return jdict_list(r, self->dict, JDICT_KEYS, out);
}

static int method_values(JSELF)
{
	UNUSED;
	return jdict_list(r, self->dict, JDICT_VALUES, out);
}

static int method_get(JSELF)
{
	(void)all;
	const struct jpair *p = jdict_find(self->dict, &args[0]);
	*out = p != NULL ? p->value : args[1].type != JV_ABSENT ? args[1] : jvalue_none();
	return jrun_charge(r, self->dict->n * 64);
}

static int method_setdefault(JSELF)
{
	int rc = method_get(r, self, args, all, out);
	if (rc == 0 && jdict_find(self->dict, &args[0]) == NULL)
		rc = jdict_put(r, self->dict, &args[0], out);
	return rc;
}

static int method_dict_pop(JSELF)
{
	(void)all;
	const struct jpair *p = jdict_find(self->dict, &args[0]);
	if (p == NULL && args[1].type == JV_ABSENT)
		return jrun_fail(r, SL_EINVAL, "pop of a key that is not there");
	*out = p != NULL ? p->value : args[1];
	if (p != NULL)
		jdict_remove(self->dict, p);
	return jrun_charge(r, self->dict->n * 64);
}

static int method_dict_copy(JSELF)
{
	struct jdict *d = jdict_new(r);
	if (d == NULL)
		return r->err->code;
	int rc = 0;
	(void)args, (void)all;
	for (const struct jpair *p = self->dict->first; p != NULL && rc == 0; p = p->next)
		rc = jdict_put(r, d, &p->key, &p->value);
	*out = (struct jvalue){.type = JV_DICT, .dict = d};
	return rc;
}

/* ---- lists ---- */

static int method_append(JSELF)
{
	(void)all;
	*out = jvalue_none();
	return jlist_add(r, self->list, &args[0]);
}

static int method_extend(JSELF)
{
	struct jlist *l;
	(void)all;
	int rc = jvalue_items(r, &args[0], &l);
	/* A list may be extended with itself: only what it had counts. */
	for (size_t i = 0, n = rc == 0 ? l->n : 0; rc == 0 && i < n; i++) {
		struct jvalue v = l->items[i];
		rc = jlist_add(r, self->list, &v);
	}
	*out = jvalue_none();
	return rc;
}

static int method_insert(JSELF)
{
	struct jlist *l = self->list;
	int64_t at;
	(void)all;
	int rc = jinja_want_int(r, &args[0], &at);
	if (rc == 0)
		rc = jrun_charge(r, l->n * sizeof(struct jvalue));
	if (rc == 0)
		rc = jlist_add(r, l, &args[1]);
	if (rc != 0)
		return rc;
	int64_t n = (int64_t)l->n - 1;
	at = at < 0 ? (at + n < 0 ? 0 : at + n) : at > n ? n : at;
	memmove(&l->items[at + 1], &l->items[at], (size_t)(n - at) * sizeof(struct jvalue));
	l->items[at] = args[1];
	*out = jvalue_none();
	return 0;
}

static int method_list_pop(JSELF)
{
	struct jlist *l = self->list;
	int64_t at = -1;
	(void)all;
	int rc = args[0].type != JV_ABSENT ? jinja_want_int(r, &args[0], &at) : 0;
	if (rc == 0)
		rc = jrun_charge(r, l->n * sizeof(struct jvalue));
	if (rc != 0)
		return rc;
	if (at < 0)
		at += (int64_t)l->n;
	if (at < 0 || at >= (int64_t)l->n)
		return jrun_fail(r, SL_EINVAL, "pop of an item that is not there");
	*out = l->items[at];
	memmove(&l->items[at], &l->items[at + 1], (l->n - (size_t)at - 1) * sizeof(struct jvalue));
	l->n--;
	return 0;
}

static int find_item(struct jrun *r, const struct jlist *l, const struct jvalue *what, int64_t *first, int64_t *n)
{
	int rc = 0;
	*first = -1;
	*n = 0;
	for (size_t i = 0; i < l->n && rc == 0; i++) {
		bool same;
		rc = jvalue_equal(r, &l->items[i], what, &same);
		if (rc == 0 && same && (*n)++ == 0)
			*first = (int64_t)i;
	}
	return rc == 0 ? jrun_charge(r, l->n * sizeof(struct jvalue)) : rc;
}

static int method_list_index(JSELF)
{
	int64_t at, n;
	(void)all;
	int rc = find_item(r, self->list, &args[0], &at, &n);
	if (rc == 0 && n == 0)
		return jrun_fail(r, SL_EINVAL, "an item that is not in the list");
	*out = jvalue_int(rc == 0 ? at : 0, false);
	return rc;
}

static int method_list_count(JSELF)
{
	int64_t at, n;
	(void)all;
	int rc = find_item(r, self->list, &args[0], &at, &n);
	*out = jvalue_int(n, false);
	return rc;
}

static int method_list_copy(JSELF)
{
	struct jlist *l = jlist_new(r, self->list->n);
	(void)args, (void)all;
	if (l == NULL)
		return r->err->code;
	for (size_t i = 0; i < self->list->n; i++)
		l->items[l->n++] = self->list->items[i];
	*out = jvalue_list_of(l);
	return 0;
}

/* ---- loops and cyclers ---- */

static int method_cycle(JSELF)
{
	(void)args;
	*out = all->at[self->loop->index % all->n];
	return jrun_charge(r, 0);
}

/* Whether the values differ from those of the last call. */
static int method_changed(JSELF)
{
	struct jlist *l = jlist_new(r, all->n);
	bool same = false;
	(void)args;
	if (l == NULL)
		return r->err->code;
	for (size_t i = 0; i < all->n; i++)
		l->items[l->n++] = all->at[i];
	struct jvalue now = jvalue_tuple_of(l);
	int rc = jvalue_equal(r, &now, &self->loop->changed, &same);
	self->loop->changed = now;
	*out = jvalue_bool(!same);
	return rc;
}

static int method_next(JSELF)
{
	UNUSED;
	*out = self->list->items[self->list->at];
	self->list->at = (self->list->at + 1) % self->list->n;
	return 0;
}

static int method_reset(JSELF)
{
	UNUSED;
	self->list->at = 0;
	*out = jvalue_none();
	return 0;
}

const struct jfunction jinja_methods[] = {
    {"items", "", 0, method_items, JV_DICT},
    {"keys", "", 0, method_keys, JV_DICT},
    {"values", "", 0, method_values, JV_DICT},
    {"get", "key,default", 1, method_get, JV_DICT},
    {"update", "*,**", 0, jinja_method_update, JV_DICT},
    {"setdefault", "key,default", 1, method_setdefault, JV_DICT},
    {"pop", "key,default", 1, method_dict_pop, JV_DICT},
    {"copy", "", 0, method_dict_copy, JV_DICT},
    {"append", "object", 1, method_append, JV_LIST},
    {"extend", "iterable", 1, method_extend, JV_LIST},
    {"insert", "index,object", 2, method_insert, JV_LIST},
    {"pop", "index", 0, method_list_pop, JV_LIST},
    {"index", "value", 1, method_list_index, JV_LIST},
    {"count", "value", 1, method_list_count, JV_LIST},
    {"copy", "", 0, method_list_copy, JV_LIST},
    {"index", "value", 1, method_list_index, JV_TUPLE},
    {"count", "value", 1, method_list_count, JV_TUPLE},
    {"cycle", "*", 1, method_cycle, JV_LOOP},
    {"changed", "*", 0, method_changed, JV_LOOP},
    {"next", "", 0, method_next, JV_CYCLER},
    {"reset", "", 0, method_reset, JV_CYCLER},
    {0},
};
