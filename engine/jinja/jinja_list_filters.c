/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters of lists and dictionaries. All make new lists; none changes its input. Sorting is a merge sort: stable,
 * and n log n steps for every order.
 */
#include "engine/jinja/jinja.h"

/* ---- attributes of items ---- */

static struct jvalue get_part(struct jrun *r, const struct jvalue *v, struct jstr part)
{
	struct jvalue key = jvalue_string_of(part, false);
	bool digits = part.n > 0 && part.n < 10;
	int64_t i = 0;
	for (size_t k = 0; k < part.n && digits; k++) {
		digits = part.at[k] >= '0' && part.at[k] <= '9';
		i = i * 10 + (part.at[k] - '0');
	}
	if (digits)
		key = jvalue_int(i, true);
	return jvalue_index(r, v, &key);
}

/* The attribute "a.b.0" of v; v itself without an attribute. otherwise, unless NULL or absent, replaces undefined
 * values on the way. */
static struct jvalue get_attribute(struct jrun *r, const struct jvalue *v, const struct jvalue *attribute,
				   const struct jvalue *otherwise)
{
	struct jvalue out = *v;
	if (jvalue_is_nothing(attribute))
		return out;
	if (attribute->type == JV_INT)
		return jvalue_index(r, v, attribute);
	struct jstr path = jinja_want_string(r, attribute);
	for (;;) {
		const char *dot = memchr(path.at, '.', path.n);
		size_t n = dot != NULL ? (size_t)(dot - path.at) : path.n;
		struct jvalue self = out;
		out = get_part(r, &self, jstr_sub(path, 0, n));
		if (out.type == JV_UNDEFINED && otherwise != NULL && otherwise->type != JV_ABSENT)
			out = *otherwise;
		if (dot == NULL)
			return out;
		path = jstr_sub(path, n + 1, path.n - n - 1);
	}
}

/* What sort, unique, groupby, min and max compare. */
struct order {
	const struct jvalue *attribute, *otherwise;
	bool case_sensitive, down;
};

static struct jvalue get_key(struct jrun *r, const struct jvalue *v, const struct order *o)
{
	struct jvalue key = get_attribute(r, v, o->attribute, o->otherwise);
	if (!o->case_sensitive && key.type == JV_STRING)
		key.s = jstr_case(r, key.s, JCASE_LOWER);
	return key;
}

/* ---- sorting ---- */

struct keyed {
	struct jvalue key, value;
};

static void merge_sort(struct jrun *r, struct keyed *at, struct keyed *room, size_t n, bool down)
{
	if (n < 2)
		return;
	size_t half = n / 2, i = 0, k = half, to = 0;
	merge_sort(r, at, room, half, down);
	merge_sort(r, at + half, room, n - half, down);
	while (i < half && k < n) {
		jrun_charge(r, 0);
		bool second = jvalue_order(r, &at[i].key, &at[k].key) == (down ? -1 : 1);
		room[to++] = second ? at[k++] : at[i++];
	}
	while (i < half)
		room[to++] = at[i++];
	memcpy(at, room, to * sizeof(*at));
}

/* Several attributes are a list of keys, which orders as one. */
static struct jvalue get_keys(struct jrun *r, const struct jvalue *v, const struct order *o)
{
	if (o->attribute->type != JV_STRING || memchr(o->attribute->s.at, ',', o->attribute->s.n) == NULL)
		return get_key(r, v, o);
	struct jlist *keys = jlist_new(r, 0);
	const struct jstr comma = {.at = ",", .n = 1};
	struct jlist *names = jstr_split(r, o->attribute->s, &comma, -1, false);
	for (size_t i = 0; i < names->n; i++) {
		struct order one = *o;
		one.attribute = &names->items[i];
		jlist_add(r, keys, get_key(r, v, &one));
	}
	return jvalue_tuple_of(keys);
}

static struct jlist *sort_items(struct jrun *r, const struct jlist *l, const struct order *o)
{
	jrun_charge(r, 2 * l->n * sizeof(struct keyed));
	struct keyed *at = jrun_alloc(r, (2 * l->n + 1) * sizeof(*at));
	for (size_t i = 0; i < l->n; i++)
		at[i] = (struct keyed){.value = l->items[i], .key = get_keys(r, &l->items[i], o)};
	merge_sort(r, at, at + l->n, l->n, o->down);
	struct jlist *out = jlist_new(r, l->n);
	for (size_t i = 0; i < l->n; i++)
		jlist_put(out, at[i].value);
	return out;
}

static struct jvalue filter_sort(struct jrun *r, const struct jcall *c)
{
	const struct order o = {&c->args[2], NULL, jvalue_true(&c->args[1]), jvalue_true(&c->args[0])};
	return jvalue_list_of(sort_items(r, jvalue_items(r, c->self), &o));
}

static struct jvalue filter_dictsort(struct jrun *r, const struct jcall *c)
{
	bool value = jvalue_text_is(&c->args[1], "value");
	const struct jvalue by = jvalue_int(value, true);
	const struct order o = {&by, NULL, jvalue_true(&c->args[0]), jvalue_true(&c->args[2])};
	if (c->self->type != JV_DICT)
		jrun_fail(r, SL_EINVAL, "dictsort of %s", jvalue_type_name(c->self));
	if (c->args[1].type != JV_ABSENT && !value && !jvalue_text_is(&c->args[1], "key"))
		jrun_fail(r, SL_EINVAL, "dictsort is by key or by value");
	return jvalue_list_of(sort_items(r, jdict_list(r, c->self->dict, JDICT_ITEMS).list, &o));
}

static struct jlist *add_group(struct jrun *r, struct jlist *groups, struct jvalue key)
{
	struct jlist *pair = jlist_new(r, 2), *members = jlist_new(r, 0);
	pair->grouped = true;
	jlist_put(pair, key);
	jlist_put(pair, jvalue_list_of(members));
	jlist_add(r, groups, jvalue_tuple_of(pair));
	return members;
}

static struct jvalue filter_groupby(struct jrun *r, const struct jcall *c)
{
	const struct order o = {&c->args[0], &c->args[1], jvalue_true(&c->args[2]), false};
	struct jlist *groups = jlist_new(r, 0), *members = NULL;
	struct jlist *l = sort_items(r, jvalue_items(r, c->self), &o);
	struct jvalue before = {0};
	for (size_t i = 0; i < l->n; i++) {
		struct jvalue key = get_key(r, &l->items[i], &o);
		if (members == NULL || !jvalue_equal(r, &key, &before)) {
			members = add_group(r, groups, get_attribute(r, &l->items[i], o.attribute, o.otherwise));
			before = key;
		}
		jlist_add(r, members, l->items[i]);
	}
	return jvalue_list_of(groups);
}

static struct jvalue filter_unique(struct jrun *r, const struct jcall *c)
{
	const struct order o = {&c->args[1], NULL, jvalue_true(&c->args[0]), false};
	struct jlist *keys = jlist_new(r, 0), *kept = jlist_new(r, 0);
	const struct jlist *l = jvalue_items(r, c->self);
	const struct jvalue known = jvalue_list_of(keys);
	for (size_t i = 0; i < l->n; i++) {
		struct jvalue key = get_key(r, &l->items[i], &o);
		if (key.type == JV_LIST || key.type == JV_DICT)
			jrun_fail(r, SL_EINVAL, "unique of %s", jvalue_type_name(&key));
		if (jvalue_contains(r, &known, &key))
			continue;
		jlist_add(r, keys, key);
		jlist_add(r, kept, l->items[i]);
	}
	return jvalue_list_of(kept);
}

/* min and max: how is the order of a better item to the best so far. */
static struct jvalue filter_extreme(struct jrun *r, const struct jcall *c)
{
	const struct order o = {&c->args[1], NULL, jvalue_true(&c->args[0]), false};
	const struct jlist *l = jvalue_items(r, c->self);
	struct jvalue best = {0}, out = jvalue_undefined(jname("the extreme of an empty list"));
	for (size_t i = 0; i < l->n; i++) {
		struct jvalue key = get_key(r, &l->items[i], &o);
		if (i > 0 && jvalue_order(r, &key, &best) != c->how)
			continue;
		best = key;
		out = l->items[i];
	}
	return out;
}

/* ---- choosing and changing ---- */

/* The items for select and map: none for a false value of any type. */
static const struct jlist *items_or_none(struct jrun *r, const struct jvalue *v)
{
	return jvalue_true(v) ? jvalue_items(r, v) : jlist_new(r, 0);
}

/* A call's positional arguments from `from` on. */
static struct jargs rest(const struct jargs *all, size_t from)
{
	return all->n > from ? (struct jargs){.at = all->at + from, .n = all->n - from} : (struct jargs){0};
}

/* Whether v passes the test that all->at[from] names; without one, whether it is true. */
static bool passes(struct jrun *r, const struct jvalue *v, const struct jargs *all, size_t from)
{
	if (all->n <= from)
		return jvalue_true(v);
	struct proto_str name = jname_of(jinja_want_string(r, &all->at[from]));
	const struct jfunction *fn = jinja_find_test(name);
	if (fn == NULL)
		jrun_fail(r, SL_EUNSUPPORTED, "the test \"%.*s\" is not supported", JINJA_SHOWN(name));
	struct jargs args = rest(all, from + 1);
	struct jvalue result = jinja_call_function(r, fn, v, &args);
	return jvalue_true(&result);
}

/* select, reject and the same with an attribute: bits of how. */
enum { REJECT = 1, ATTRIBUTE = 2 };

static struct jvalue filter_select(struct jrun *r, const struct jcall *c)
{
	bool attribute = (c->how & ATTRIBUTE) != 0, wanted = (c->how & REJECT) == 0;
	struct jlist *kept = jlist_new(r, 0);
	const struct jlist *l = items_or_none(r, c->self);
	for (size_t i = 0; i < l->n; i++) {
		struct jvalue v = l->items[i];
		jrun_charge(r, 0);
		if (attribute)
			v = get_attribute(r, &l->items[i], &c->all->at[0], NULL);
		if (passes(r, &v, c->all, attribute) == wanted)
			jlist_add(r, kept, l->items[i]);
	}
	return jvalue_list_of(kept);
}

static const struct jvalue *named(const struct jargs *all, const char *name)
{
	for (size_t i = 0; i < all->n_named; i++)
		if (proto_str_is(all->named[i].name, name))
			return &all->named[i].value;
	return NULL;
}

/* map(attribute=…, default=…) or map('filter', its arguments). */
static struct jvalue filter_map(struct jrun *r, const struct jcall *c)
{
	const struct jvalue *attribute = named(c->all, "attribute"), *otherwise = named(c->all, "default");
	const struct jfunction *fn = NULL;
	struct jargs inner = rest(c->all, 1);
	struct jlist *mapped = jlist_new(r, 0);
	const struct jlist *l = items_or_none(r, c->self);
	if (attribute == NULL) {
		if (c->all->n == 0)
			jrun_fail(r, SL_EINVAL, "map needs a filter or an attribute");
		fn = jinja_find_filter(jname_of(jinja_want_string(r, &c->all->at[0])));
		if (fn == NULL)
			jrun_fail(r, SL_EUNSUPPORTED, "the filter of map is not supported");
		inner.named = c->all->named;
		inner.n_named = c->all->n_named;
	}
	for (size_t i = 0; i < l->n; i++) {
		jrun_charge(r, 0);
		jlist_add(r, mapped,
			  fn != NULL ? jinja_call_function(r, fn, &l->items[i], &inner)
				     : get_attribute(r, &l->items[i], attribute, otherwise));
	}
	return jvalue_list_of(mapped);
}

bool jinja_is_filter_of_functions(const struct jfunction *fn, int *at, bool *tests)
{
	*tests = fn->call == filter_select;
	*at = *tests && (fn->how & ATTRIBUTE) != 0;
	return *tests || fn->call == filter_map;
}

/* ---- joining and cutting ---- */

static struct jvalue filter_join(struct jrun *r, const struct jcall *c)
{
	struct jstr sep = {.at = ""};
	if (c->args[0].type != JV_ABSENT)
		sep = jvalue_string(r, &c->args[0]);
	const struct jlist *l = jvalue_items(r, c->self);
	if (!jvalue_is_nothing(&c->args[1])) {
		struct jlist *parts = jlist_new(r, l->n);
		for (size_t i = 0; i < l->n; i++)
			jlist_put(parts, get_attribute(r, &l->items[i], &c->args[1], NULL));
		l = parts;
	}
	return jvalue_string_of(jstr_join(r, sep, l, true), false);
}

static struct jvalue filter_sum(struct jrun *r, const struct jcall *c)
{
	const struct jlist *l = jvalue_items(r, c->self);
	struct jvalue sum = c->args[1].type != JV_ABSENT ? c->args[1] : jvalue_int(0, true);
	for (size_t i = 0; i < l->n; i++) {
		struct jvalue v = get_attribute(r, &l->items[i], &c->args[0], NULL);
		sum = jvalue_binary(r, JO_ADD, &sum, &v);
	}
	return sum;
}

/* first and last: the index in how. */
static struct jvalue filter_end(struct jrun *r, const struct jcall *c)
{
	const struct jvalue key = jvalue_int(c->how, true);
	if (c->self->type == JV_STRING) {
		struct jvalue v = jvalue_index(r, c->self, &key);
		/* Iterating markup gives plain text in Python, reversing it gives markup. */
		v.markup = v.markup && c->how < 0;
		return v;
	}
	const struct jlist *l = jvalue_items(r, c->self);
	return l->n > 0 ? l->items[c->how < 0 ? l->n - 1 : 0] : jvalue_undefined(jname("the end of an empty list"));
}

static struct jvalue filter_list(struct jrun *r, const struct jcall *c)
{
	const struct jlist *l = jvalue_items(r, c->self);
	return jvalue_list_of(jlist_copy(r, l->items, l->n));
}

static struct jvalue filter_reverse(struct jrun *r, const struct jcall *c)
{
	struct jvalue v = filter_list(r, c);
	jlist_reverse(v.list);
	if (c->self->type != JV_STRING)
		return v;
	return jvalue_string_of(jstr_join(r, (struct jstr){.at = ""}, v.list, false), c->self->markup);
}

static struct jvalue filter_items(struct jrun *r, const struct jcall *c)
{
	if (c->self->type == JV_DICT)
		return jdict_list(r, c->self->dict, JDICT_ITEMS);
	if (c->self->type != JV_UNDEFINED)
		jrun_fail(r, SL_EINVAL, "items of %s", jvalue_type_name(c->self));
	return jvalue_list_of(jlist_new(r, 0));
}

/* batch and slice: rows of a fixed length, or a fixed number of rows. */
enum { BATCH, SLICE };

static struct jvalue filter_rows(struct jrun *r, const struct jcall *c)
{
	struct jlist *rows = jlist_new(r, 0);
	const struct jlist *l = jvalue_items(r, c->self);
	int64_t wanted = jinja_want_int(r, &c->args[0]);
	if (wanted < 1)
		jrun_fail(r, SL_EINVAL, "%s is %lld", c->how == BATCH ? "linecount" : "slices", (long long)wanted);
	size_t n = (size_t)wanted, at = 0;
	size_t width = c->how == BATCH ? n : l->n / n + (l->n % n > 0);
	while (c->how == BATCH ? at < l->n : rows->n < n) {
		size_t left = l->n - at, take = left < width ? left : width;
		if (c->how == SLICE)
			take = l->n / n + (rows->n < l->n % n);
		struct jlist *row = jlist_new(r, 0);
		while (row->n < take)
			jlist_add(r, row, l->items[at++]);
		while (row->n < width && !jvalue_is_nothing(&c->args[1]))
			jlist_add(r, row, c->args[1]);
		jlist_add(r, rows, jvalue_list_of(row));
	}
	return jvalue_list_of(rows);
}

const struct jfunction jinja_list_filters[] = {
    {"sort", "reverse,case_sensitive,attribute", 0, filter_sort, 0, 0},
    {"dictsort", "case_sensitive,by,reverse", 0, filter_dictsort, 0, 0},
    {"groupby", "attribute,default,case_sensitive", 1, filter_groupby, 0, 0},
    {"unique", "case_sensitive,attribute", 0, filter_unique, 0, 0},
    {"min", "case_sensitive,attribute", 0, filter_extreme, -1, 0},
    {"max", "case_sensitive,attribute", 0, filter_extreme, 1, 0},
    {"select", "*", 0, filter_select, 0, 0},
    {"reject", "*", 0, filter_select, REJECT, 0},
    {"selectattr", "*", 1, filter_select, ATTRIBUTE, 0},
    {"rejectattr", "*", 1, filter_select, ATTRIBUTE | REJECT, 0},
    {"map", "*,**", 0, filter_map, 0, 0},
    {"join", "d,attribute", 0, filter_join, 0, 0},
    {"sum", "attribute,start", 0, filter_sum, 0, 0},
    {"first", "", 0, filter_end, 0, 0},
    {"last", "", 0, filter_end, -1, 0},
    {"list", "", 0, filter_list, 0, 0},
    {"reverse", "", 0, filter_reverse, 0, 0},
    {"items", "", 0, filter_items, 0, 0},
    {"batch", "linecount,fill_with", 1, filter_rows, BATCH, 0},
    {"slice", "slices,fill_with", 1, filter_rows, SLICE, 0},
    {0},
};
