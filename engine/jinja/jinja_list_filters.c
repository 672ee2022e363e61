/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters of lists and dictionaries. All make new lists; none changes its own. Sorting is a
 * merge sort: stable, and n log n steps whatever the order is.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/jinja/jinja.h"

/* ---- attributes of items ---- */

static int get_part(struct jrun *r, const struct jvalue *v, struct jstr part, struct jvalue *out)
{
	struct jvalue key = jvalue_string_of(part);
	bool digits = part.n > 0 && part.n < 10;
	int64_t i = 0;
	for (size_t k = 0; k < part.n && digits; k++) {
		digits = part.at[k] >= '0' && part.at[k] <= '9';
		i = i * 10 + (part.at[k] - '0');
	}
	if (digits)
		key = jvalue_int(i, true);
	return jvalue_index(r, v, &key, out);
}

/* "a.b.0" of v; v itself when no attribute is wanted. */
static int get_attribute(struct jrun *r, const struct jvalue *v, const struct jvalue *attribute,
			 const struct jvalue *otherwise, struct jvalue *out)
{
	*out = *v;
	if (jvalue_is_nothing(attribute))
		return 0;
	if (attribute->type == JV_INT)
		return jvalue_index(r, v, attribute, out);
	int rc = jinja_want_string(r, attribute);
	struct jstr path = attribute->type == JV_STRING ? attribute->s : (struct jstr){.at = ""};
	while (rc == 0) {
		const char *dot = memchr(path.at, '.', path.n);
		size_t n = dot != NULL ? (size_t)(dot - path.at) : path.n;
		struct jvalue self = *out;
		rc = get_part(r, &self, jstr_sub(path, 0, n), out);
		if (rc == 0 && out->type == JV_UNDEFINED && otherwise != NULL && otherwise->type != JV_ABSENT)
			*out = *otherwise;
		if (dot == NULL)
			break;
		path = jstr_sub(path, n + 1, path.n - n - 1);
	}
	return rc;
}

static int without_case(struct jrun *r, struct jvalue *v)
{
	return v->type == JV_STRING ? jstr_case(r, v->s, JCASE_LOWER, &v->s) : 0;
}

/* What sort, unique, groupby, min and max compare. */
static int get_key(struct jrun *r, const struct jvalue *v, const struct jvalue *attribute,
		   const struct jvalue *otherwise, bool case_sensitive, struct jvalue *out)
{
	int rc = get_attribute(r, v, attribute, otherwise, out);
	return rc == 0 && !case_sensitive ? without_case(r, out) : rc;
}

/* ---- sorting ---- */

struct keyed {
	struct jvalue key, value;
};

static int merge_sort(struct jrun *r, struct keyed *at, struct keyed *room, size_t n, bool down)
{
	if (n < 2)
		return 0;
	size_t half = n / 2, i = 0, k = half, to = 0;
	int rc = merge_sort(r, at, room, half, down);
	if (rc == 0)
		rc = merge_sort(r, at + half, room, n - half, down);
	while (rc == 0 && i < half && k < n) {
		int order = 0;
		rc = jrun_charge(r, 0);
		if (rc == 0)
			rc = jvalue_order(r, &at[i].key, &at[k].key, &order);
		bool second = down ? order == -1 : order == 1;
		if (rc == 0)
			room[to++] = second ? at[k++] : at[i++];
	}
	if (rc != 0)
		return rc;
	while (i < half)
		room[to++] = at[i++];
	memcpy(at, room, to * sizeof(*at));
	return 0;
}

/* Several attributes are a list of keys, which orders as one. */
static int get_keys(struct jrun *r, const struct jvalue *v, const struct jvalue *attribute,
		    const struct jvalue *otherwise, bool case_sensitive, struct jvalue *out)
{
	if (attribute->type != JV_STRING || memchr(attribute->s.at, ',', attribute->s.n) == NULL)
		return get_key(r, v, attribute, otherwise, case_sensitive, out);
	struct jlist *names, *keys = jlist_new(r, 0);
	const struct jstr comma = {.at = ",", .n = 1};
	if (keys == NULL)
		return r->err->code;
	int rc = jstr_split(r, attribute->s, &comma, -1, false, &names);
	for (size_t i = 0; rc == 0 && i < names->n; i++) {
		struct jvalue key;
		rc = get_key(r, v, &names->items[i], otherwise, case_sensitive, &key);
		if (rc == 0)
			rc = jlist_add(r, keys, &key);
	}
	*out = jvalue_tuple_of(keys);
	return rc;
}

static int sort_items(struct jrun *r, const struct jlist *l, const struct jvalue *attribute,
		      const struct jvalue *otherwise, bool case_sensitive, bool down, struct jlist **out)
{
	int rc = jrun_charge(r, 2 * l->n * sizeof(struct keyed));
	struct keyed *at = rc == 0 ? jrun_alloc(r, (2 * l->n + 1) * sizeof(*at)) : NULL;
	if (at == NULL)
		return r->err->code;
	for (size_t i = 0; i < l->n && rc == 0; i++) {
		at[i].value = l->items[i];
		rc = get_keys(r, &l->items[i], attribute, otherwise, case_sensitive, &at[i].key);
	}
	if (rc == 0)
		rc = merge_sort(r, at, at + l->n, l->n, down);
	*out = rc == 0 ? jlist_new(r, l->n) : NULL;
	if (*out == NULL)
		return r->err->code;
	for (size_t i = 0; i < l->n; i++)
		(*out)->items[(*out)->n++] = at[i].value;
	return 0;
}

static int filter_sort(JSELF)
{
	struct jlist *l;
	(void)all;
	int rc = jvalue_items(r, self, &l);
	if (rc == 0)
		rc = sort_items(r, l, &args[2], NULL, jvalue_true(&args[1]), jvalue_true(&args[0]), &l);
	if (rc == 0)
		*out = jvalue_list_of(l);
	return rc;
}

static int filter_dictsort(JSELF)
{
	struct jvalue items, by = jvalue_int(0, true);
	struct jlist *l;
	(void)all;
	if (self->type != JV_DICT)
		return jrun_fail(r, SL_EINVAL, "dictsort of %s", jvalue_type_name(self));
	if (args[1].type != JV_ABSENT && jvalue_text_is(&args[1], "value"))
		by.i = 1;
	else if (args[1].type != JV_ABSENT && !jvalue_text_is(&args[1], "key"))
		return jrun_fail(r, SL_EINVAL, "dictsort is by key or by value");
	int rc = jdict_list(r, self->dict, JDICT_ITEMS, &items);
	if (rc == 0)
		rc = sort_items(r, items.list, &by, NULL, jvalue_true(&args[0]), jvalue_true(&args[2]), &l);
	if (rc == 0)
		*out = jvalue_list_of(l);
	return rc;
}

static int add_group(struct jrun *r, struct jlist *groups, const struct jvalue *key, struct jlist **members)
{
	struct jlist *pair = jlist_new(r, 2);
	*members = pair != NULL ? jlist_new(r, 0) : NULL;
	if (*members == NULL)
		return r->err->code;
	pair->grouped = true;
	pair->items[pair->n++] = *key;
	pair->items[pair->n++] = jvalue_list_of(*members);
	struct jvalue v = jvalue_tuple_of(pair);
	return jlist_add(r, groups, &v);
}

static int filter_groupby(JSELF)
{
	struct jlist *l, *groups = jlist_new(r, 0), *members = NULL;
	struct jvalue before = {0};
	(void)all;
	bool case_sensitive = jvalue_true(&args[2]);
	if (groups == NULL)
		return r->err->code;
	int rc = jvalue_items(r, self, &l);
	const struct jvalue *otherwise = &args[1];
	if (rc == 0)
		rc = sort_items(r, l, &args[0], otherwise, case_sensitive, false, &l);
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct jvalue key, shown;
		bool same = false;
		rc = get_key(r, &l->items[i], &args[0], otherwise, case_sensitive, &key);
		if (rc == 0 && members != NULL)
			rc = jvalue_equal(r, &key, &before, &same);
		if (rc == 0 && !same) {
			rc = get_attribute(r, &l->items[i], &args[0], otherwise, &shown);
			if (rc == 0)
				rc = add_group(r, groups, &shown, &members);
			before = key;
		}
		if (rc == 0)
			rc = jlist_add(r, members, &l->items[i]);
	}
	if (rc == 0)
		*out = jvalue_list_of(groups);
	return rc;
}

static int filter_unique(JSELF)
{
	struct jlist *l, *keys = jlist_new(r, 0), *kept = jlist_new(r, 0);
	(void)all;
	if (keys == NULL || kept == NULL)
		return r->err->code;
	int rc = jvalue_items(r, self, &l);
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct jvalue key, in = jvalue_list_of(keys);
		bool known = false;
		rc = get_key(r, &l->items[i], &args[1], NULL, jvalue_true(&args[0]), &key);
		if (rc == 0 && (key.type == JV_LIST || key.type == JV_DICT))
			rc = jrun_fail(r, SL_EINVAL, "unique of %s", jvalue_type_name(&key));
		if (rc == 0)
			rc = jvalue_contains(r, &in, &key, &known);
		if (rc == 0 && !known) {
			rc = jlist_add(r, keys, &key);
			if (rc == 0)
				rc = jlist_add(r, kept, &l->items[i]);
		}
	}
	if (rc == 0)
		*out = jvalue_list_of(kept);
	return rc;
}

static int extreme(struct jrun *r, const struct jvalue *self, const struct jvalue *args, int wanted, struct jvalue *out)
{
	struct jlist *l;
	struct jvalue best = {0};
	int rc = jvalue_items(r, self, &l);
	if (rc == 0)
		*out = jvalue_undefined((struct proto_str){"the extreme of an empty list", 28});
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct jvalue key;
		int order = wanted;
		rc = get_key(r, &l->items[i], &args[1], NULL, jvalue_true(&args[0]), &key);
		if (rc == 0 && i > 0)
			rc = jvalue_order(r, &key, &best, &order);
		if (rc != 0 || order != wanted)
			continue;
		best = key;
		*out = l->items[i];
	}
	return rc;
}

static int filter_min(JSELF)
{
	(void)all;
	return extreme(r, self, args, -1, out);
}

static int filter_max(JSELF)
{
	(void)all;
	return extreme(r, self, args, 1, out);
}

/* ---- choosing and changing ---- */

/* What select and map go through: a false value of any kind has nothing. */
static int items_or_none(struct jrun *r, const struct jvalue *v, struct jlist **out)
{
	if (jvalue_true(v))
		return jvalue_items(r, v, out);
	*out = jlist_new(r, 0);
	return *out != NULL ? 0 : r->err->code;
}

/* The rest of a call's arguments, for the function that its argument `from - 1` names. */
static struct jargs rest(const struct jargs *all, size_t from)
{
	struct jargs more = {0};
	if (all->n > from) {
		more.at = all->at + from;
		more.n = all->n - from;
	}
	return more;
}

/* Whether v passes the test that all->at[from] names; without one, whether it is true. */
static int passes(struct jrun *r, const struct jvalue *v, const struct jargs *all, size_t from, bool *out)
{
	*out = jvalue_true(v);
	if (all->n <= from)
		return 0;
	const struct jvalue *name = &all->at[from];
	int rc = jinja_want_string(r, name);
	if (rc != 0)
		return rc;
	const struct jfunction *fn = jinja_find_test((struct proto_str){name->s.at, name->s.n});
	if (fn == NULL)
		return jrun_fail(r, SL_EUNSUPPORTED, "the test \"%.*s\" is not supported",
				 name->s.n < 64 ? (int)name->s.n : 64, name->s.at);
	struct jargs args = rest(all, from + 1);
	struct jvalue result;
	rc = jinja_call_function(r, fn, v, &args, &result);
	*out = rc == 0 && jvalue_true(&result);
	return rc;
}

static int choose(struct jrun *r, const struct jvalue *self, const struct jargs *all, bool attribute, bool wanted,
		  struct jvalue *out)
{
	struct jlist *l, *kept = jlist_new(r, 0);
	if (kept == NULL)
		return r->err->code;
	int rc = items_or_none(r, self, &l);
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct jvalue v = l->items[i];
		bool good;
		rc = jrun_charge(r, 0);
		if (rc == 0 && attribute)
			rc = get_attribute(r, &l->items[i], &all->at[0], NULL, &v);
		if (rc == 0)
			rc = passes(r, &v, all, attribute, &good);
		if (rc == 0 && good == wanted)
			rc = jlist_add(r, kept, &l->items[i]);
	}
	if (rc == 0)
		*out = jvalue_list_of(kept);
	return rc;
}

static int filter_select(JSELF)
{
	(void)args;
	return choose(r, self, all, false, true, out);
}

static int filter_reject(JSELF)
{
	(void)args;
	return choose(r, self, all, false, false, out);
}

static int filter_selectattr(JSELF)
{
	(void)args;
	return choose(r, self, all, true, true, out);
}

static int filter_rejectattr(JSELF)
{
	(void)args;
	return choose(r, self, all, true, false, out);
}

static const struct jvalue *named(const struct jargs *all, const char *name)
{
	for (size_t i = 0; i < all->n_named; i++)
		if (proto_str_is(all->named[i].name, name))
			return &all->named[i].value;
	return NULL;
}

/* map(attribute=…, default=…) or map('filter', its arguments). */
static int filter_map(JSELF)
{
	struct jlist *l, *mapped = jlist_new(r, 0);
	const struct jvalue *attribute = named(all, "attribute"), *otherwise = named(all, "default");
	const struct jfunction *fn = NULL;
	struct jargs inner = rest(all, 1);
	(void)args;
	if (mapped == NULL)
		return r->err->code;
	int rc = items_or_none(r, self, &l);
	if (rc == 0 && attribute == NULL) {
		if (all->n == 0)
			return jrun_fail(r, SL_EINVAL, "map needs a filter or an attribute");
		rc = jinja_want_string(r, &all->at[0]);
		if (rc == 0)
			fn = jinja_find_filter((struct proto_str){all->at[0].s.at, all->at[0].s.n});
		if (rc == 0 && fn == NULL)
			rc = jrun_fail(r, SL_EUNSUPPORTED, "the filter of map is not supported");
		inner.named = all->named;
		inner.n_named = all->n_named;
	}
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct jvalue v;
		rc = jrun_charge(r, 0);
		if (rc == 0)
			rc = fn != NULL ? jinja_call_function(r, fn, &l->items[i], &inner, &v)
					: get_attribute(r, &l->items[i], attribute, otherwise, &v);
		if (rc == 0)
			rc = jlist_add(r, mapped, &v);
	}
	if (rc == 0)
		*out = jvalue_list_of(mapped);
	return rc;
}

bool jinja_is_filter_of_functions(const struct jfunction *fn, int *at, bool *tests)
{
	*at = fn->call == filter_selectattr || fn->call == filter_rejectattr;
	*tests = fn->call != filter_map;
	return *at > 0 || !*tests || fn->call == filter_select || fn->call == filter_reject;
}

/* ---- joining and cutting ---- */

static int filter_join(JSELF)
{
	struct jstr sep = {.at = ""};
	struct jlist *l = NULL, *parts;
	(void)all;
	int rc = args[0].type != JV_ABSENT ? jvalue_string(r, &args[0], &sep) : 0;
	if (rc == 0)
		rc = jvalue_items(r, self, &l);
	parts = l;
	if (rc == 0 && !jvalue_is_nothing(&args[1])) {
		parts = jlist_new(r, l->n);
		if (parts == NULL)
			return r->err->code;
		for (size_t i = 0; rc == 0 && i < l->n; i++)
			rc = get_attribute(r, &l->items[i], &args[1], NULL, &parts->items[parts->n++]);
	}
	if (rc != 0)
		return rc;
	*out = jvalue_string_of((struct jstr){.at = ""});
	return jstr_join(r, sep, parts, true, &out->s);
}

static int filter_sum(JSELF)
{
	struct jlist *l;
	(void)all;
	struct jvalue sum = args[1].type != JV_ABSENT ? args[1] : jvalue_int(0, true);
	int rc = jvalue_items(r, self, &l);
	for (size_t i = 0; rc == 0 && i < l->n; i++) {
		struct jvalue v, before = sum;
		rc = get_attribute(r, &l->items[i], &args[0], NULL, &v);
		if (rc == 0)
			rc = jvalue_binary(r, JO_ADD, &before, &v, &sum);
	}
	*out = sum;
	return rc;
}

static int end_item(struct jrun *r, const struct jvalue *self, bool last, struct jvalue *out)
{
	struct jlist *l;
	struct jvalue key = jvalue_int(last ? -1 : 0, true);
	if (self->type == JV_STRING) {
		int found = jvalue_index(r, self, &key, out);
		out->markup =
		    out->markup && last; /* Python's iterator of markup gives plain text, what reverses it markup */
		return found;
	}
	int rc = jvalue_items(r, self, &l);
	if (rc == 0)
		*out = l->n > 0 ? l->items[last ? l->n - 1 : 0]
				: jvalue_undefined((struct proto_str){"the end of an empty list", 24});
	return rc;
}

static int filter_first(JSELF)
{
	(void)args, (void)all;
	return end_item(r, self, false, out);
}

static int filter_last(JSELF)
{
	(void)args, (void)all;
	return end_item(r, self, true, out);
}

static int filter_list(JSELF)
{
	struct jlist *l, *copy;
	(void)args, (void)all;
	int rc = jvalue_items(r, self, &l);
	copy = rc == 0 ? jlist_new(r, l->n) : NULL;
	if (copy == NULL)
		return r->err->code;
	for (size_t i = 0; i < l->n; i++)
		copy->items[copy->n++] = l->items[i];
	*out = jvalue_list_of(copy);
	return 0;
}

static int filter_reverse(JSELF)
{
	int rc = filter_list(r, self, args, all, out);
	struct jlist *l = rc == 0 ? out->list : NULL;
	for (size_t i = 0; rc == 0 && i < l->n / 2; i++) {
		struct jvalue v = l->items[i];
		l->items[i] = l->items[l->n - 1 - i];
		l->items[l->n - 1 - i] = v;
	}
	if (rc != 0 || self->type != JV_STRING)
		return rc;
	*out = jvalue_string_of((struct jstr){.at = ""});
	out->markup = self->markup;
	return jstr_join(r, out->s, l, false, &out->s);
}

static int filter_items(JSELF)
{
	(void)args, (void)all;
	if (self->type == JV_DICT)
		return jdict_list(r, self->dict, JDICT_ITEMS, out);
	if (self->type != JV_UNDEFINED)
		return jrun_fail(r, SL_EINVAL, "items of %s", jvalue_type_name(self));
	struct jlist *l = jlist_new(r, 0);
	if (l == NULL)
		return r->err->code;
	*out = jvalue_list_of(l);
	return 0;
}

/* Takes n items from *at on as a list of its own, with fill behind up to width. */
static int add_row(struct jrun *r, struct jlist *rows, const struct jlist *l, size_t *at, size_t n, size_t width,
		   const struct jvalue *fill)
{
	struct jlist *row = jlist_new(r, 0);
	if (row == NULL)
		return r->err->code;
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = jlist_add(r, row, &l->items[(*at)++]);
	while (rc == 0 && row->n < width && !jvalue_is_nothing(fill))
		rc = jlist_add(r, row, fill);
	struct jvalue v = jvalue_list_of(row);
	return rc == 0 ? jlist_add(r, rows, &v) : rc;
}

/* The items of self, an empty list of rows and the argument, which is at least 1. */
static int begin_rows(struct jrun *r, const struct jvalue *self, const struct jvalue *arg, const char *what,
		      struct jlist **l, struct jlist **rows, size_t *n)
{
	int64_t wanted = 0;
	*rows = jlist_new(r, 0);
	if (*rows == NULL)
		return r->err->code;
	int rc = jvalue_items(r, self, l);
	if (rc == 0)
		rc = jinja_want_int(r, arg, &wanted);
	*n = (size_t)wanted;
	return rc == 0 && wanted < 1 ? jrun_fail(r, SL_EINVAL, "%s is %lld", what, (long long)wanted) : rc;
}

static int filter_batch(JSELF)
{
	struct jlist *l, *rows;
	size_t at = 0, width;
	(void)all;
	int rc = begin_rows(r, self, &args[0], "linecount", &l, &rows, &width);
	while (rc == 0 && at < l->n) {
		size_t left = l->n - at;
		rc = add_row(r, rows, l, &at, left < width ? left : width, width, &args[1]);
	}
	if (rc == 0)
		*out = jvalue_list_of(rows);
	return rc;
}

static int filter_slice(JSELF)
{
	struct jlist *l, *rows;
	size_t at = 0, slices;
	(void)all;
	int rc = begin_rows(r, self, &args[0], "slices", &l, &rows, &slices);
	for (size_t i = 0; rc == 0 && i < slices; i++) {
		size_t each = l->n / slices, more = l->n % slices;
		rc = add_row(r, rows, l, &at, each + (i < more), more > 0 ? each + 1 : each, &args[1]);
	}
	if (rc == 0)
		*out = jvalue_list_of(rows);
	return rc;
}

const struct jfunction jinja_list_filters[] = {
    {"sort", "reverse,case_sensitive,attribute", 0, filter_sort, 0},
    {"dictsort", "case_sensitive,by,reverse", 0, filter_dictsort, 0},
    {"groupby", "attribute,default,case_sensitive", 1, filter_groupby, 0},
    {"unique", "case_sensitive,attribute", 0, filter_unique, 0},
    {"min", "case_sensitive,attribute", 0, filter_min, 0},
    {"max", "case_sensitive,attribute", 0, filter_max, 0},
    {"select", "*", 0, filter_select, 0},
    {"reject", "*", 0, filter_reject, 0},
    {"selectattr", "*", 1, filter_selectattr, 0},
    {"rejectattr", "*", 1, filter_rejectattr, 0},
    {"map", "*,**", 0, filter_map, 0},
    {"join", "d,attribute", 0, filter_join, 0},
    {"sum", "attribute,start", 0, filter_sum, 0},
    {"first", "", 0, filter_first, 0},
    {"last", "", 0, filter_last, 0},
    {"list", "", 0, filter_list, 0},
    {"reverse", "", 0, filter_reverse, 0},
    {"items", "", 0, filter_items, 0},
    {"batch", "linecount,fill_with", 1, filter_batch, 0},
    {"slice", "slices,fill_with", 1, filter_slice, 0},
    {0},
};
