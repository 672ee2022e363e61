/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands in a value: lengths, items, attributes and slices. What is not there is undefined, as
 * in Jinja; only what has no parts at all, and parts of what is undefined itself, make the run fail.
 */
#include "engine/jinja/jinja.h"

int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out)
{
	switch (v->type) {
	case JV_UNDEFINED: *out = 0; return 0;
	case JV_STRING: *out = (int64_t)jstr_chars(v->s); return jrun_charge(r, v->s.n);
	case JV_LIST:
	case JV_TUPLE: *out = (int64_t)v->list->n; return 0;
	case JV_DICT: *out = (int64_t)v->dict->n; return 0;
	default: return jrun_fail(r, SL_EINVAL, "%s has no length", jvalue_type_name(v));
	}
}

static int fail_undefined(struct jrun *r, const struct jvalue *v)
{
	return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined", v->name.n < 64 ? (int)v->name.n : 64, v->name.at);
}

static struct jvalue missing(const struct jvalue *key)
{
	return jvalue_undefined(key->type == JV_STRING ? (struct proto_str){key->s.at, key->s.n}
						       : (struct proto_str){"an item", 7});
}

int jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key, struct jvalue *out)
{
	*out = missing(key);
	if (v->type == JV_UNDEFINED)
		return fail_undefined(r, v);
	if (v->type == JV_DICT || v->type == JV_NAMESPACE) {
		const struct jpair *p = jdict_find(v->dict, key);
		if (p != NULL)
			*out = p->value;
		else if (key->type == JV_STRING && v->type == JV_DICT)
			return jvalue_attr(r, v, (struct proto_str){key->s.at, key->s.n}, out);
		return jrun_charge(r, v->dict->n * 64);
	}
	if ((jvalue_is_list(v) || v->type == JV_STRING) && (key->type == JV_INT || key->type == JV_BOOL)) {
		int64_t n, i = key->type == JV_INT ? key->i : key->b;
		int rc = jvalue_length(r, v, &n);
		if (rc != 0)
			return rc;
		if (i < 0)
			i += n;
		if (i < 0 || i >= n)
			return 0;
		if (v->type != JV_STRING) {
			*out = v->list->items[i];
			return 0;
		}
		rc = jrun_charge(r, v->s.n * JINJA_SEARCH_COST);
		if (rc != 0)
			return rc;
		size_t from = jstr_offset(v->s, (size_t)i), to = jstr_offset(v->s, (size_t)i + 1);
		*out = jvalue_string_of(jstr_sub(v->s, from, to - from));
		out->markup = v->markup;
		return 0;
	}
	if (key->type == JV_STRING)
		return jvalue_attr(r, v, (struct proto_str){key->s.at, key->s.n}, out);
	return 0;
}

bool jinja_loop_knows(struct proto_str name)
{
	static const char *const names[] = {"index",  "index0",   "revindex", "revindex0", "first", "last",
					    "length", "previtem", "nextitem", "depth",     "depth0"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (proto_str_is(name, names[i]))
			return true;
	return jinja_find_method(name, JV_LOOP) != NULL;
}

static bool loop_attr(const struct jloop *l, struct proto_str name, struct jvalue *out)
{
	int64_t i = (int64_t)l->index, n = (int64_t)l->list->n;
	if (proto_str_is(name, "index"))
		*out = jvalue_int(i + 1, true);
	else if (proto_str_is(name, "index0"))
		*out = jvalue_int(i, true);
	else if (proto_str_is(name, "revindex"))
		*out = jvalue_int(n - i, true);
	else if (proto_str_is(name, "revindex0"))
		*out = jvalue_int(n - i - 1, true);
	else if (proto_str_is(name, "first"))
		*out = jvalue_bool(i == 0);
	else if (proto_str_is(name, "last"))
		*out = jvalue_bool(i + 1 == n);
	else if (proto_str_is(name, "length"))
		*out = jvalue_int(n, true);
	else if (proto_str_is(name, "depth"))
		*out = jvalue_int(l->depth0 + 1, true);
	else if (proto_str_is(name, "depth0"))
		*out = jvalue_int(l->depth0, true);
	else if (proto_str_is(name, "previtem"))
		*out = i > 0 ? l->list->items[i - 1] : jvalue_undefined(name);
	else if (proto_str_is(name, "nextitem"))
		*out = i + 1 < n ? l->list->items[i + 1] : jvalue_undefined(name);
	else
		return false;
	return true;
}

int jvalue_attr(struct jrun *r, const struct jvalue *v, struct proto_str name, struct jvalue *out)
{
	struct jvalue key = jvalue_literal(name);
	*out = jvalue_undefined(name);
	if (v->type == JV_UNDEFINED)
		return fail_undefined(r, v);
	if (v->type == JV_LOOP && loop_attr(v->loop, name, out))
		return 0;
	if (v->type == JV_CYCLER && proto_str_is(name, "current")) {
		*out = v->list->items[v->list->at];
		return 0;
	}
	if (v->type == JV_TUPLE && v->list->grouped && (proto_str_is(name, "grouper") || proto_str_is(name, "list"))) {
		*out = v->list->items[proto_str_is(name, "list")];
		return 0;
	}
	/* What Python's own methods of a dictionary hide is still there as an item. */
	const struct jfunction *fn = jinja_find_method(name, v->type);
	if (fn != NULL) {
		struct jvalue *self = jrun_alloc(r, sizeof(*self));
		if (self == NULL)
			return r->err->code;
		*self = *v;
		*out = (struct jvalue){.type = JV_FUNCTION, .function = {.fn = fn, .self = self}};
		return 0;
	}
	if (v->type == JV_DICT || v->type == JV_NAMESPACE) {
		const struct jpair *p = jdict_find(v->dict, &key);
		if (p != NULL)
			*out = p->value;
		return jrun_charge(r, v->dict->n * 64);
	}
	return 0;
}

static int slice_part(struct jrun *r, const struct jvalue *v, int64_t absent, int64_t *out)
{
	*out = absent;
	if (v == NULL || v->type == JV_NONE)
		return 0;
	return jinja_want_int(r, v, out);
}

static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
	if (i < 0)
		i += n;
	return i < low ? low : i > high ? high : i;
}

int jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3], struct jvalue *out)
{
	int64_t n, from, to, step;
	struct jlist *items, *taken;
	if (v->type == JV_UNDEFINED)
		return fail_undefined(r, v);
	if (!jvalue_is_list(v) && v->type != JV_STRING)
		return jrun_fail(r, SL_EINVAL, "a slice of %s", jvalue_type_name(v));
	int rc = jvalue_length(r, v, &n);
	if (rc == 0)
		rc = slice_part(r, part[2], 1, &step);
	if (rc == 0 && step == 0)
		rc = jrun_fail(r, SL_EINVAL, "a slice with step 0");
	if (rc == 0)
		rc = slice_part(r, part[0], step > 0 ? 0 : INT64_MAX, &from);
	if (rc == 0)
		rc = slice_part(r, part[1], step > 0 ? INT64_MAX : -n - 1, &to);
	if (rc != 0)
		return rc;
	int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
	from = clamp(from, n, low, high);
	to = clamp(to, n, low, high);
	if (v->type == JV_STRING && step == 1) {
		rc = jrun_charge(r, v->s.n);
		if (rc != 0)
			return rc;
		size_t begin = jstr_offset(v->s, (size_t)from);
		size_t end = to > from ? jstr_offset(v->s, (size_t)to) : begin;
		*out = jvalue_string_of(jstr_sub(v->s, begin, end - begin));
		out->markup = v->markup;
		return 0;
	}
	rc = jvalue_items(r, v, &items);
	taken = rc == 0 ? jlist_new(r, (size_t)n) : NULL;
	if (taken == NULL)
		return r->err->code;
	/* from stays within [-1, n], so only the step can overflow. */
	for (int64_t i = from; step > 0 ? i < to : i > to;) {
		taken->items[taken->n++] = items->items[i];
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	if (v->type == JV_STRING) {
		*out = jvalue_string_of((struct jstr){.at = ""});
		out->markup = v->markup;
		return jstr_join(r, out->s, taken, false, &out->s);
	}
	*out = v->type == JV_TUPLE ? jvalue_tuple_of(taken) : jvalue_list_of(taken);
	return 0;
}
