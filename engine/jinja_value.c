/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of values: truth, equality, order, indexing. Python's, as Jinja has them; where Python
 * raises a TypeError, the run fails.
 *
 * Trust: a string knows byte by byte whether the template wrote it. Strings of one kind carry no
 * mask; joining different ones makes one. The request's JSON becomes values once, at the beginning;
 * its texts are borrowed. Lists and dictionaries are shared by reference, as in Python.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/jinja.h"

/* ---- the run's account ---- */

int jrun_fail(struct jrun *r, int code, const char *fmt, ...)
{
	char text[384];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A long text from the request may have been cut inside a character. */
	text[utf8_whole_prefix((const uint8_t *)text, strlen(text))] = '\0';
	return sl_errf(r->err, code, "chat template line %d, column %d: %s", r->place.line,
		       r->place.column, text);
}

int jrun_charge(struct jrun *r, size_t n)
{
	r->steps += 1 + n / JINJA_BYTES_PER_STEP;
	if (r->steps > JINJA_MAX_STEPS)
		return jrun_fail(r, SL_ELIMIT, "more than %d steps", JINJA_MAX_STEPS);
	return 0;
}

void *jrun_alloc(struct jrun *r, size_t n)
{
	void *at = jarena_alloc(&r->arena, n);
	if (at == NULL)
		jrun_fail(r, r->arena.full ? SL_ELIMIT : SL_ENOMEM, "not enough memory");
	return at;
}

int jrun_descend(struct jrun *r)
{
	int rc = jrun_charge(r, 0);
	if (rc == 0 && r->depth >= JINJA_MAX_VALUE_DEPTH)
		rc = jrun_fail(r, SL_ELIMIT, "values nested deeper than %d", JINJA_MAX_VALUE_DEPTH);
	if (rc == 0)
		r->depth++;
	return rc;
}

/* ---- making and asking ---- */

const char *jvalue_type_name(const struct jvalue *v)
{
	static const char *const names[] = {"nothing",  "undefined", "none",         "a boolean",
					    "an integer", "a number",  "a string",     "a list",
					    "a tuple",  "a dictionary", "a namespace", "loop",
					    "a function", "a macro", "a cycler", "a joiner"};
	return names[v->type];
}

struct jvalue jvalue_none(void)
{
	return (struct jvalue){.type = JV_NONE, .trusted = true};
}

struct jvalue jvalue_int(int64_t i, bool trusted)
{
	return (struct jvalue){.type = JV_INT, .trusted = trusted, .i = i};
}

struct jvalue jvalue_float(double f, bool trusted)
{
	return (struct jvalue){.type = JV_FLOAT, .trusted = trusted, .f = f};
}

struct jvalue jvalue_bool(bool b)
{
	return (struct jvalue){.type = JV_BOOL, .trusted = true, .b = b};
}

struct jvalue jvalue_string_of(struct jstr s)
{
	return (struct jvalue){.type = JV_STRING, .s = s};
}

struct jvalue jvalue_literal(struct proto_str text)
{
	return jvalue_string_of((struct jstr){.at = text.at, .n = text.n, .trust = JTRUST_ALL});
}

struct jvalue jvalue_undefined(struct proto_str name)
{
	return (struct jvalue){.type = JV_UNDEFINED, .name = name};
}

struct jvalue jvalue_list_of(struct jlist *l)
{
	return (struct jvalue){.type = JV_LIST, .list = l};
}

struct jvalue jvalue_tuple_of(struct jlist *l)
{
	return (struct jvalue){.type = JV_TUPLE, .list = l};
}

bool jvalue_text_is(const struct jvalue *v, const char *text)
{
	return v->type == JV_STRING && v->s.n == strlen(text) && memcmp(v->s.at, text, v->s.n) == 0;
}

static int list_from_json(struct jrun *r, const json_t *j, struct jvalue *out)
{
	size_t n = json_array_size(j);
	struct jlist *l = jlist_new(r, n);
	if (l == NULL)
		return r->err->code;
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = jvalue_from_json(r, json_array_get(j, i), &l->items[l->n++]);
	*out = jvalue_list_of(l);
	return rc;
}

/* The keys differ already, so the pairs are put in without looking. */
static int dict_from_json(struct jrun *r, const json_t *j, struct jvalue *out)
{
	struct jdict *d = jdict_new(r);
	if (d == NULL)
		return r->err->code;
	json_t *object = (json_t *)j; /* the iterator only reads */
	for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i)) {
		struct jpair *p = jrun_alloc(r, sizeof(*p));
		if (p == NULL)
			return r->err->code;
		p->key = jvalue_string_of((struct jstr){.at = json_object_iter_key(i),
							.n = json_object_iter_key_len(i)});
		int rc = jvalue_from_json(r, json_object_iter_value(i), &p->value);
		if (rc != 0)
			return rc;
		if (d->last != NULL)
			d->last->next = p;
		else
			d->first = p;
		d->last = p;
		d->n++;
	}
	*out = (struct jvalue){.type = JV_DICT, .dict = d};
	return 0;
}

int jvalue_from_json(struct jrun *r, const json_t *j, struct jvalue *out)
{
	int rc;
	switch (json_typeof(j)) {
	case JSON_STRING:
		*out = jvalue_string_of((struct jstr){
		    .at = json_string_value(j), .n = json_string_length(j), .trust = JTRUST_NONE});
		return 0;
	case JSON_INTEGER:
		*out = jvalue_int(json_integer_value(j), false);
		return 0;
	case JSON_REAL:
		*out = jvalue_float(json_real_value(j), false);
		return 0;
	case JSON_TRUE:
	case JSON_FALSE:
		*out = (struct jvalue){.type = JV_BOOL, .b = json_is_true(j)};
		return 0;
	case JSON_ARRAY:
	case JSON_OBJECT:
		rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = json_is_array(j) ? list_from_json(r, j, out) : dict_from_json(r, j, out);
		r->depth--;
		return rc;
	default:
		*out = (struct jvalue){.type = JV_NONE};
		return 0;
	}
}

bool jvalue_true(const struct jvalue *v)
{
	switch (v->type) {
	case JV_ABSENT:
	case JV_UNDEFINED:
	case JV_NONE:
		return false;
	case JV_BOOL:
		return v->b;
	case JV_INT:
		return v->i != 0;
	case JV_FLOAT:
		return v->f != 0;
	case JV_STRING:
		return v->s.n > 0;
	case JV_LIST:
	case JV_TUPLE:
		return v->list->n > 0;
	case JV_DICT:
		return v->dict->n > 0;
	default:
		return true;
	}
}

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
	case JV_TUPLE:
		*out = v->list;
		return 0;
	case JV_UNDEFINED:
		*out = jlist_new(r, 0);
		return *out != NULL ? 0 : r->err->code;
	case JV_STRING:
		return characters(r, v->s, out);
	case JV_DICT: {
		int rc = jdict_list(r, v->dict, JDICT_KEYS, &keys);
		*out = rc == 0 ? keys.list : NULL;
		return rc;
	}
	default:
		return jrun_fail(r, SL_EINVAL, "%s has no items to go through", jvalue_type_name(v));
	}
}

/* ---- dictionaries ---- */

struct jdict *jdict_new(struct jrun *r)
{
	return jrun_alloc(r, sizeof(struct jdict));
}

static int order_numbers(const struct jvalue *a, const struct jvalue *b);

static bool same_key(const struct jvalue *a, const struct jvalue *b)
{
	if (a->type == JV_STRING || b->type == JV_STRING)
		return a->type == b->type && jstr_equal(a->s, b->s);
	if (jvalue_is_number(a) && jvalue_is_number(b))
		return order_numbers(a, b) == 0;
	return a->type == b->type && a->type == JV_NONE;
}

const struct jpair *jdict_find(const struct jdict *d, const struct jvalue *key)
{
	for (const struct jpair *p = d->first; p != NULL; p = p->next)
		if (same_key(&p->key, key))
			return p;
	return NULL;
}

int jdict_put(struct jrun *r, struct jdict *d, const struct jvalue *key, const struct jvalue *value)
{
	if (key->type != JV_STRING && key->type != JV_NONE && !jvalue_is_number(key))
		return jrun_fail(r, SL_EINVAL, "%s as the key of a dictionary", jvalue_type_name(key));
	int rc = jrun_charge(r, d->n * 16);
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
	if (d->last != NULL)
		d->last->next = p;
	else
		d->first = p;
	d->last = p;
	d->n++;
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

/* ---- comparing ---- */

/* -1, 0, 1; 2 when a number is not one. */
static int order_numbers(const struct jvalue *a, const struct jvalue *b)
{
	if (a->type != JV_FLOAT && b->type != JV_FLOAT) {
		int64_t x = a->type == JV_BOOL ? a->b : a->i, y = b->type == JV_BOOL ? b->b : b->i;
		return (x > y) - (x < y);
	}
	double x = a->type == JV_FLOAT ? a->f : a->type == JV_BOOL ? a->b : (double)a->i;
	double y = b->type == JV_FLOAT ? b->f : b->type == JV_BOOL ? b->b : (double)b->i;
	if (isnan(x) || isnan(y))
		return 2;
	return (x > y) - (x < y);
}

static int equal_lists(struct jrun *r, const struct jlist *a, const struct jlist *b, bool *out)
{
	int rc = 0;
	*out = a->n == b->n;
	for (size_t i = 0; i < a->n && *out && rc == 0; i++)
		rc = jvalue_equal(r, &a->items[i], &b->items[i], out);
	return rc;
}

static int equal_dicts(struct jrun *r, const struct jdict *a, const struct jdict *b, bool *out)
{
	int rc = 0;
	*out = a->n == b->n;
	for (const struct jpair *p = a->first; p != NULL && *out && rc == 0; p = p->next) {
		const struct jpair *q = jdict_find(b, &p->key);
		rc = jrun_charge(r, b->n * 16);
		*out = q != NULL;
		if (rc == 0 && q != NULL)
			rc = jvalue_equal(r, &p->value, &q->value, out);
	}
	return rc;
}

int jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b, bool *out)
{
	*out = false;
	if (jvalue_is_number(a) && jvalue_is_number(b)) {
		*out = order_numbers(a, b) == 0;
		return 0;
	}
	if (a->type != b->type)
		return 0;
	int rc;
	switch (a->type) {
	case JV_UNDEFINED:
	case JV_NONE:
		*out = true;
		return 0;
	case JV_STRING:
		*out = jstr_equal(a->s, b->s);
		return jrun_charge(r, a->s.n);
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = a->type == JV_DICT ? equal_dicts(r, a->dict, b->dict, out)
					: equal_lists(r, a->list, b->list, out);
		r->depth--;
		return rc;
	case JV_FUNCTION:
		*out = a->function.fn == b->function.fn && a->function.self == b->function.self;
		return 0;
	default: /* the same one */
		*out = a->list == b->list;
		return 0;
	}
}

static int order_lists(struct jrun *r, const struct jlist *a, const struct jlist *b, int *out)
{
	for (size_t i = 0; i < a->n && i < b->n; i++) {
		bool same;
		int rc = jvalue_equal(r, &a->items[i], &b->items[i], &same);
		if (rc == 0 && !same)
			return jvalue_order(r, &a->items[i], &b->items[i], out);
		if (rc != 0)
			return rc;
	}
	*out = (a->n > b->n) - (a->n < b->n);
	return 0;
}

int jvalue_order(struct jrun *r, const struct jvalue *a, const struct jvalue *b, int *out)
{
	if (jvalue_is_number(a) && jvalue_is_number(b)) {
		*out = order_numbers(a, b);
		return 0;
	}
	if (a->type == b->type && jvalue_is_list(a)) {
		int rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = order_lists(r, a->list, b->list, out);
		r->depth--;
		return rc;
	}
	if (a->type != JV_STRING || b->type != JV_STRING)
		return jrun_fail(r, SL_EINVAL, "%s and %s have no order", jvalue_type_name(a),
				 jvalue_type_name(b));
	/* UTF-8's bytes order as its code points do. */
	size_t n = a->s.n < b->s.n ? a->s.n : b->s.n;
	int d = n > 0 ? memcmp(a->s.at, b->s.at, n) : 0;
	*out = d != 0 ? (d > 0) - (d < 0) : (a->s.n > b->s.n) - (a->s.n < b->s.n);
	return jrun_charge(r, n);
}

int jvalue_contains(struct jrun *r, const struct jvalue *in, const struct jvalue *what, bool *out)
{
	int rc = 0;
	*out = false;
	switch (in->type) {
	case JV_UNDEFINED: /* an undefined value has no items */
		return 0;
	case JV_STRING:
		if (what->type != JV_STRING)
			break;
		*out = what->s.n == 0 || memmem(in->s.at, in->s.n, what->s.at, what->s.n) != NULL;
		return jrun_charge(r, in->s.n);
	case JV_LIST:
	case JV_TUPLE:
		for (size_t i = 0; i < in->list->n && !*out && rc == 0; i++) {
			rc = jrun_charge(r, 0);
			if (rc == 0)
				rc = jvalue_equal(r, &in->list->items[i], what, out);
		}
		return rc;
	case JV_DICT:
		if (what->type == JV_LIST || what->type == JV_DICT)
			break;
		*out = jdict_find(in->dict, what) != NULL;
		return jrun_charge(r, in->dict->n * 16);
	default:
		break;
	}
	return jrun_fail(r, SL_EINVAL, "%s in %s", jvalue_type_name(what), jvalue_type_name(in));
}

int jvalue_compare(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b, bool *out)
{
	int rc, order = 0;
	*out = false;
	if (op == JO_EQ || op == JO_NE) {
		rc = jvalue_equal(r, a, b, out);
		*out ^= op == JO_NE;
	} else if (op == JO_IN || op == JO_NOT_IN) {
		rc = jvalue_contains(r, b, a, out);
		*out ^= op == JO_NOT_IN;
	} else {
		rc = jvalue_order(r, a, b, &order);
		*out = op == JO_LT   ? order == -1
		       : op == JO_GT ? order == 1
		       : op == JO_LE ? order <= 0
				     : order == 0 || order == 1;
	}
	return rc;
}

/* ---- parts ---- */

int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out)
{
	switch (v->type) {
	case JV_UNDEFINED:
		*out = 0;
		return 0;
	case JV_STRING:
		*out = (int64_t)jstr_chars(v->s);
		return jrun_charge(r, v->s.n);
	case JV_LIST:
	case JV_TUPLE:
		*out = (int64_t)v->list->n;
		return 0;
	case JV_DICT:
		*out = (int64_t)v->dict->n;
		return 0;
	default:
		return jrun_fail(r, SL_EINVAL, "%s has no length", jvalue_type_name(v));
	}
}

static int fail_undefined(struct jrun *r, const struct jvalue *v)
{
	return jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined", v->name.n < 64 ? (int)v->name.n : 64,
			 v->name.at);
}

static struct jvalue missing(const struct jvalue *key)
{
	return jvalue_undefined(key->type == JV_STRING ? (struct proto_str){key->s.at, key->s.n}
						       : (struct proto_str){"an item", 7});
}

int jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key,
		 struct jvalue *out)
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
		return jrun_charge(r, v->dict->n * 16);
	}
	if ((jvalue_is_list(v) || v->type == JV_STRING) &&
	    (key->type == JV_INT || key->type == JV_BOOL)) {
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
		size_t from = jstr_offset(v->s, (size_t)i), to = jstr_offset(v->s, (size_t)i + 1);
		*out = jvalue_string_of(jstr_sub(v->s, from, to - from));
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
	if (v->type == JV_TUPLE && v->list->grouped &&
	    (proto_str_is(name, "grouper") || proto_str_is(name, "list"))) {
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
		return jrun_charge(r, v->dict->n * 16);
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

int jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3],
		 struct jvalue *out)
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
		size_t begin = jstr_offset(v->s, (size_t)from);
		size_t end = to > from ? jstr_offset(v->s, (size_t)to) : begin;
		*out = jvalue_string_of(jstr_sub(v->s, begin, end - begin));
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
		return jstr_join(r, out->s, taken, false, &out->s);
	}
	*out = v->type == JV_TUPLE ? jvalue_tuple_of(taken) : jvalue_list_of(taken);
	return 0;
}
