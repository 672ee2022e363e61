/* SPDX-License-Identifier: Apache-2.0
 *
 * What a value contains: lengths, items, attributes and slices. Missing items are undefined, as in Jinja; the run fails
 * only for values without items and for items of undefined values.
 */
#include "engine/jinja/jinja.h"

int64_t jvalue_length(struct jrun *r, const struct jvalue *v)
{
	switch (v->type) {
	case JV_UNDEFINED: return 0;
	case JV_STRING: jrun_charge(r, v->s.n); return (int64_t)jstr_chars(v->s);
	case JV_LIST:
	case JV_TUPLE: return (int64_t)v->list->n;
	case JV_DICT: return (int64_t)v->dict->n;
	default: jrun_fail(r, SL_EINVAL, "%s has no length", jvalue_type_name(v));
	}
}

static struct jvalue item_at(struct jrun *r, const struct jvalue *v, int64_t i, struct jvalue missing)
{
	int64_t n = jvalue_length(r, v);
	if (i < 0)
		i += n;
	if (i < 0 || i >= n)
		return missing;
	if (v->type != JV_STRING)
		return v->list->items[i];
	jrun_charge(r, v->s.n * JINJA_SEARCH_COST);
	size_t from = jstr_offset(v->s, (size_t)i), to = jstr_offset(v->s, (size_t)i + 1);
	return jvalue_string_of(jstr_sub(v->s, from, to - from), v->markup);
}

struct jvalue jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key)
{
	bool named = key->type == JV_STRING;
	struct jvalue missing = jvalue_undefined(named ? jname_of(key->s) : jname("an item"));
	if (v->type == JV_UNDEFINED)
		jrun_fail_undefined(r, v);
	if (jvalue_has_pairs(v)) {
		const struct jpair *p = jdict_find(v->dict, key);
		if (p == NULL && named && v->type == JV_DICT)
			return jvalue_attr(r, v, jname_of(key->s));
		jrun_charge(r, v->dict->n * 64);
		return p != NULL ? p->value : missing;
	}
	if ((jvalue_is_list(v) || v->type == JV_STRING) && jvalue_is_integer(key))
		return item_at(r, v, key->i, missing);
	return named ? jvalue_attr(r, v, jname_of(key->s)) : missing;
}

/* The attributes of `loop`. */
static const struct {
	const char *name;
	enum { LOOP_INDEX, LOOP_REVINDEX, LOOP_DEPTH, LOOP_LENGTH, LOOP_FIRST, LOOP_LAST, LOOP_PREV, LOOP_NEXT } what;
	int more;
} loop_attrs[] = {
    {"index", LOOP_INDEX, 1},         {"index0", LOOP_INDEX, 0},  {"revindex", LOOP_REVINDEX, 0},
    {"revindex0", LOOP_REVINDEX, -1}, {"first", LOOP_FIRST, 0},   {"last", LOOP_LAST, 0},
    {"length", LOOP_LENGTH, 0},       {"previtem", LOOP_PREV, 0}, {"nextitem", LOOP_NEXT, 0},
    {"depth", LOOP_DEPTH, 1},         {"depth0", LOOP_DEPTH, 0},
};
enum { N_LOOP_ATTRS = sizeof(loop_attrs) / sizeof(loop_attrs[0]) };

static int find_loop_attr(struct proto_str name)
{
	int k = 0;
	while (k < N_LOOP_ATTRS && !proto_str_is(name, loop_attrs[k].name))
		k++;
	return k;
}

bool jinja_loop_knows(struct proto_str name)
{
	return find_loop_attr(name) < N_LOOP_ATTRS || jinja_find_method(name, JV_LOOP) != NULL;
}

static struct jvalue loop_attr(const struct jloop *l, int attr, struct proto_str name)
{
	int64_t i = (int64_t)l->index, n = (int64_t)l->list->n, more = loop_attrs[attr].more;
	switch (loop_attrs[attr].what) {
	case LOOP_INDEX: return jvalue_int(i + more, true);
	case LOOP_REVINDEX: return jvalue_int(n - i + more, true);
	case LOOP_DEPTH: return jvalue_int(l->depth0 + more, true);
	case LOOP_LENGTH: return jvalue_int(n, true);
	case LOOP_FIRST: return jvalue_bool(i == 0);
	case LOOP_LAST: return jvalue_bool(i + 1 == n);
	case LOOP_PREV: return i > 0 ? l->list->items[i - 1] : jvalue_undefined(name);
	default: return i + 1 < n ? l->list->items[i + 1] : jvalue_undefined(name);
	}
}

struct jvalue jvalue_attr(struct jrun *r, const struct jvalue *v, struct proto_str name)
{
	struct jvalue key = jvalue_literal(name);
	int attr = v->type == JV_LOOP ? find_loop_attr(name) : N_LOOP_ATTRS;
	if (v->type == JV_UNDEFINED)
		jrun_fail_undefined(r, v);
	if (attr < N_LOOP_ATTRS)
		return loop_attr(v->loop, attr, name);
	if (v->type == JV_CYCLER && proto_str_is(name, "current"))
		return v->list->items[v->list->at];
	if (v->type == JV_TUPLE && v->list->grouped && (proto_str_is(name, "grouper") || proto_str_is(name, "list")))
		return v->list->items[proto_str_is(name, "list")];
	/* A dictionary's methods hide its items of the same name, as Python's do. */
	const struct jfunction *fn = jinja_find_method(name, v->type);
	if (fn != NULL) {
		struct jvalue *self = jrun_alloc(r, sizeof(*self));
		*self = *v;
		return (struct jvalue){.type = JV_FUNCTION, .function = {.fn = fn, .self = self}};
	}
	const struct jpair *p = jvalue_has_pairs(v) ? jdict_find(v->dict, &key) : NULL;
	if (jvalue_has_pairs(v))
		jrun_charge(r, v->dict->n * 64);
	return p != NULL ? p->value : jvalue_undefined(name);
}

static int64_t slice_part(struct jrun *r, const struct jvalue *v, int64_t absent)
{
	return v == NULL || v->type == JV_NONE ? absent : jinja_want_int(r, v);
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
	if (i < 0)
		i += n;
	return i < low ? low : i > high ? high : i;
}

struct jvalue jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3])
{
	if (v->type == JV_UNDEFINED)
		jrun_fail_undefined(r, v);
	if (!jvalue_is_list(v) && v->type != JV_STRING)
		jrun_fail(r, SL_EINVAL, "a slice of %s", jvalue_type_name(v));
	int64_t n = jvalue_length(r, v), step = slice_part(r, part[2], 1);
	if (step == 0)
		jrun_fail(r, SL_EINVAL, "a slice with step 0");
	int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
	int64_t from = clamp(slice_part(r, part[0], step > 0 ? 0 : INT64_MAX), n, low, high);
	int64_t to = clamp(slice_part(r, part[1], step > 0 ? INT64_MAX : -n - 1), n, low, high);
	if (v->type == JV_STRING && step == 1) {
		jrun_charge(r, v->s.n);
		size_t begin = jstr_offset(v->s, (size_t)from);
		size_t end = to > from ? jstr_offset(v->s, (size_t)to) : begin;
		return jvalue_string_of(jstr_sub(v->s, begin, end - begin), v->markup);
	}
	struct jlist *items = jvalue_items(r, v), *taken = jlist_new(r, (size_t)n);
	/* `from` is within [-1, n], so only the step can overflow. */
	for (int64_t i = from; step > 0 ? i < to : i > to;) {
		jlist_put(taken, items->items[i]);
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	if (v->type == JV_STRING)
		return jvalue_string_of(jstr_join(r, (struct jstr){.at = ""}, taken, false), v->markup);
	return v->type == JV_TUPLE ? jvalue_tuple_of(taken) : jvalue_list_of(taken);
}
