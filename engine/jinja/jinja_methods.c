/* SPDX-License-Identifier: Apache-2.0
 *
 * The methods of lists, dictionaries, loops and cyclers: Python's, by name and type. The parser checks that some type
 * has a method of that name and shape.
 *
 * Templates may change lists and dictionaries, as in plain Jinja: they belong to the run, never to the request.
 */
#include "engine/jinja/jinja.h"

/* ---- dictionaries ---- */

/* items, keys, values. */
static struct jvalue method_pairs(struct jrun *r, const struct jcall *c)
{
	return jdict_list(r, c->self->dict, (enum jdict_part)c->how);
}

/* get, setdefault and pop. */
enum { GET, SETDEFAULT, POP };

static struct jvalue method_get(struct jrun *r, const struct jcall *c)
{
	struct jdict *d = c->self->dict;
	const struct jpair *p = jdict_find(d, &c->args[0]);
	struct jvalue v = c->args[1].type != JV_ABSENT ? c->args[1] : jvalue_none();
	if (p != NULL)
		v = p->value;
	else if (c->how == POP && c->args[1].type == JV_ABSENT)
		jrun_fail(r, SL_EINVAL, "pop of a key that is not there");
	if (c->how == POP && p != NULL)
		jdict_remove(d, p);
	jrun_charge(r, d->n * 64);
	if (c->how == SETDEFAULT && p == NULL)
		jdict_put(r, d, c->args[0], v);
	return v;
}

static struct jvalue method_dict_copy(struct jrun *r, const struct jcall *c)
{
	struct jdict *d = jdict_new(r);
	jdict_put_all(r, d, c->self->dict);
	return jvalue_dict_of(d);
}

/* ---- lists ---- */

static struct jvalue method_append(struct jrun *r, const struct jcall *c)
{
	jlist_add(r, c->self->list, c->args[0]);
	return jvalue_none();
}

static struct jvalue method_extend(struct jrun *r, const struct jcall *c)
{
	const struct jlist *l = jvalue_items(r, &c->args[0]);
	/* A list may be extended with itself: only its items so far count. */
	for (size_t i = 0, n = l->n; i < n; i++)
		jlist_add(r, c->self->list, l->items[i]);
	return jvalue_none();
}

static struct jvalue method_insert(struct jrun *r, const struct jcall *c)
{
	struct jlist *l = c->self->list;
	int64_t at = jinja_want_int(r, &c->args[0]), n = (int64_t)l->n;
	jrun_charge(r, l->n * sizeof(struct jvalue));
	jlist_add(r, l, c->args[1]);
	at = at < 0 ? (at + n < 0 ? 0 : at + n) : at > n ? n : at;
	memmove(&l->items[at + 1], &l->items[at], (size_t)(n - at) * sizeof(struct jvalue));
	l->items[at] = c->args[1];
	return jvalue_none();
}

static struct jvalue method_list_pop(struct jrun *r, const struct jcall *c)
{
	struct jlist *l = c->self->list;
	int64_t at = jinja_want_int_or(r, &c->args[0], -1);
	jrun_charge(r, l->n * sizeof(struct jvalue));
	if (at < 0)
		at += (int64_t)l->n;
	if (at < 0 || at >= (int64_t)l->n)
		jrun_fail(r, SL_EINVAL, "pop of an item that is not there");
	struct jvalue v = l->items[at];
	memmove(&l->items[at], &l->items[at + 1], (l->n - (size_t)at - 1) * sizeof(struct jvalue));
	l->n--;
	return v;
}

/* index and count. */
enum { INDEX, COUNT };

static struct jvalue method_list_find(struct jrun *r, const struct jcall *c)
{
	const struct jlist *l = c->self->list;
	int64_t first = 0, n = 0;
	for (size_t i = 0; i < l->n; i++)
		if (jvalue_equal(r, &l->items[i], &c->args[0]) && n++ == 0)
			first = (int64_t)i;
	jrun_charge(r, l->n * sizeof(struct jvalue));
	if (c->how == INDEX && n == 0)
		jrun_fail(r, SL_EINVAL, "an item that is not in the list");
	return jvalue_int(c->how == INDEX ? first : n, false);
}

static struct jvalue method_list_copy(struct jrun *r, const struct jcall *c)
{
	return jvalue_list_of(jlist_copy(r, c->self->list->items, c->self->list->n));
}

/* ---- loops and cyclers ---- */

static struct jvalue method_cycle(struct jrun *r, const struct jcall *c)
{
	jrun_charge(r, 0);
	return c->all->at[c->self->loop->index % c->all->n];
}

/* Whether the values differ from those of the last call. */
static struct jvalue method_changed(struct jrun *r, const struct jcall *c)
{
	struct jloop *loop = c->self->loop;
	struct jvalue now = jvalue_tuple_of(jlist_copy(r, c->all->at, c->all->n));
	bool same = jvalue_equal(r, &now, &loop->changed);
	loop->changed = now;
	return jvalue_bool(!same);
}

static struct jvalue method_next(struct jrun *r, const struct jcall *c)
{
	struct jlist *l = c->self->list;
	(void)r;
	struct jvalue v = l->items[l->at];
	l->at = (l->at + 1) % l->n;
	return v;
}

static struct jvalue method_reset(struct jrun *r, const struct jcall *c)
{
	(void)r;
	c->self->list->at = 0;
	return jvalue_none();
}

const struct jfunction jinja_methods[] = {
    {"items", "", 0, method_pairs, JDICT_ITEMS, JV_DICT},
    {"keys", "", 0, method_pairs, JDICT_KEYS, JV_DICT},
    {"values", "", 0, method_pairs, JDICT_VALUES, JV_DICT},
    {"get", "key,default", 1, method_get, GET, JV_DICT},
    {"update", "*,**", 0, jinja_update, 0, JV_DICT},
    {"setdefault", "key,default", 1, method_get, SETDEFAULT, JV_DICT},
    {"pop", "key,default", 1, method_get, POP, JV_DICT},
    {"copy", "", 0, method_dict_copy, 0, JV_DICT},
    {"append", "object", 1, method_append, 0, JV_LIST},
    {"extend", "iterable", 1, method_extend, 0, JV_LIST},
    {"insert", "index,object", 2, method_insert, 0, JV_LIST},
    {"pop", "index", 0, method_list_pop, 0, JV_LIST},
    {"index", "value", 1, method_list_find, INDEX, JV_LIST},
    {"count", "value", 1, method_list_find, COUNT, JV_LIST},
    {"copy", "", 0, method_list_copy, 0, JV_LIST},
    {"index", "value", 1, method_list_find, INDEX, JV_TUPLE},
    {"count", "value", 1, method_list_find, COUNT, JV_TUPLE},
    {"cycle", "*", 1, method_cycle, 0, JV_LOOP},
    {"changed", "*", 0, method_changed, 0, JV_LOOP},
    {"next", "", 0, method_next, 0, JV_CYCLER},
    {"reset", "", 0, method_reset, 0, JV_CYCLER},
    {0},
};
