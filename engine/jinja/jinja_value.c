/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of values: truth, equality, order. Python's, as Jinja has them; where Python raises a TypeError, the run
 * fails.
 *
 * Trust: a string records for each byte whether the template wrote it. A string of uniform trust carries no mask;
 * joining different ones creates one. The request's JSON is converted once, at the start; its texts are borrowed. Lists
 * and dictionaries are shared by reference, as in Python.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "engine/jinja/jinja.h"

/* ---- steps, memory, errors ---- */

void jrun_fail(struct jrun *r, int code, const char *fmt, ...)
{
	char text[384];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A long text from the request may have been cut inside a character. */
	text[utf8_whole_prefix((const uint8_t *)text, strlen(text))] = '\0';
	jinja_fail(&r->escape, code, "chat template line %d, column %d: %s", r->place.line, r->place.column, text);
}

void jrun_fail_undefined(struct jrun *r, const struct jvalue *v)
{
	jrun_fail(r, SL_EINVAL, "\"%.*s\" is undefined", JINJA_SHOWN(v->name));
}

void jrun_charge(struct jrun *r, size_t n)
{
	r->steps += 1 + n / JINJA_BYTES_PER_STEP;
	if (r->steps > JINJA_MAX_STEPS)
		jrun_fail(r, SL_ELIMIT, "more than %d steps", JINJA_MAX_STEPS);
}

void *jrun_alloc(struct jrun *r, size_t n)
{
	void *at = jarena_alloc(&r->arena, n);
	if (at == NULL)
		jrun_fail(r, r->arena.full ? SL_ELIMIT : SL_ENOMEM, "not enough memory");
	return at;
}

void jrun_descend(struct jrun *r)
{
	jrun_charge(r, 0);
	if (r->depth++ >= JINJA_MAX_VALUE_DEPTH)
		jrun_fail(r, SL_ELIMIT, "values nested deeper than %d", JINJA_MAX_VALUE_DEPTH);
}

/* ---- constructors and predicates ---- */

const char *jvalue_type_name(const struct jvalue *v)
{
	static const char *const names[] = {
	    "nothing", "undefined",    "none",        "a boolean", "an integer", "a number", "a string", "a list",
	    "a tuple", "a dictionary", "a namespace", "loop",      "a function", "a macro",  "a cycler", "a joiner"};
	return names[v->type];
}

struct jvalue jvalue_none(void) { return (struct jvalue){.type = JV_NONE, .trusted = true}; }

struct jvalue jvalue_int(int64_t i, bool trusted)
{
	return (struct jvalue){.type = JV_INT, .trusted = trusted, .i = i};
}

struct jvalue jvalue_float(double f, bool trusted)
{
	return (struct jvalue){.type = JV_FLOAT, .trusted = trusted, .f = f};
}

struct jvalue jvalue_bool(bool b) { return (struct jvalue){.type = JV_BOOL, .trusted = true, .i = b}; }

struct jvalue jvalue_string_of(struct jstr s, bool markup)
{
	return (struct jvalue){.type = JV_STRING, .markup = markup, .s = s};
}

struct jvalue jvalue_literal(struct proto_str text)
{
	return jvalue_string_of((struct jstr){.at = text.at, .n = text.n, .trust = JTRUST_ALL}, false);
}

struct jvalue jvalue_undefined(struct proto_str name) { return (struct jvalue){.type = JV_UNDEFINED, .name = name}; }

struct jvalue jvalue_list_of(struct jlist *l) { return (struct jvalue){.type = JV_LIST, .list = l}; }

struct jvalue jvalue_tuple_of(struct jlist *l) { return (struct jvalue){.type = JV_TUPLE, .list = l}; }

struct jvalue jvalue_dict_of(struct jdict *d) { return (struct jvalue){.type = JV_DICT, .dict = d}; }

bool jvalue_text_is(const struct jvalue *v, const char *text)
{
	return v->type == JV_STRING && proto_str_is(jname_of(v->s), text);
}

static struct jvalue list_from_json(struct jrun *r, const json_t *j)
{
	size_t n = json_array_size(j);
	struct jlist *l = jlist_new(r, n);
	for (size_t i = 0; i < n; i++)
		jlist_put(l, jvalue_from_json(r, json_array_get(j, i)));
	return jvalue_list_of(l);
}

/* The keys differ already, so the pairs are appended without a search. */
static struct jvalue dict_from_json(struct jrun *r, const json_t *j)
{
	struct jdict *d = jdict_new(r);
	json_t *object = (json_t *)j; /* the iterator only reads */
	for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i)) {
		struct jpair *p = jrun_alloc(r, sizeof(*p));
		struct jstr key = {.at = json_object_iter_key(i), .n = json_object_iter_key_len(i)};
		p->key = jvalue_string_of(key, false);
		p->value = jvalue_from_json(r, json_object_iter_value(i));
		jdict_append(d, p);
	}
	return jvalue_dict_of(d);
}

struct jvalue jvalue_from_json(struct jrun *r, const json_t *j)
{
	struct jvalue v = {.type = JV_NONE};
	switch (json_typeof(j)) {
	case JSON_STRING:
		return jvalue_string_of((struct jstr){.at = json_string_value(j), .n = json_string_length(j)}, false);
	case JSON_INTEGER: return jvalue_int(json_integer_value(j), false);
	case JSON_REAL: return jvalue_float(json_real_value(j), false);
	case JSON_TRUE:
	case JSON_FALSE: return (struct jvalue){.type = JV_BOOL, .i = json_is_true(j)};
	case JSON_ARRAY:
	case JSON_OBJECT:
		jrun_descend(r);
		v = json_is_array(j) ? list_from_json(r, j) : dict_from_json(r, j);
		r->depth--;
		return v;
	default: return v;
	}
}

bool jvalue_true(const struct jvalue *v)
{
	switch (v->type) {
	case JV_ABSENT:
	case JV_UNDEFINED:
	case JV_NONE: return false;
	case JV_BOOL:
	case JV_INT: return v->i != 0;
	case JV_FLOAT: return v->f != 0;
	case JV_STRING: return v->s.n > 0;
	case JV_LIST:
	case JV_TUPLE: return v->list->n > 0;
	case JV_DICT: return v->dict->n > 0;
	default: return true;
	}
}

/* ---- comparing ---- */

int jvalue_order_numbers(const struct jvalue *a, const struct jvalue *b)
{
	if (a->type != JV_FLOAT && b->type != JV_FLOAT)
		return (a->i > b->i) - (a->i < b->i);
	double x = jvalue_double(a), y = jvalue_double(b);
	return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static bool equal_lists(struct jrun *r, const struct jlist *a, const struct jlist *b)
{
	bool same = a->n == b->n;
	for (size_t i = 0; i < a->n && same; i++)
		same = jvalue_equal(r, &a->items[i], &b->items[i]);
	return same;
}

static bool equal_dicts(struct jrun *r, const struct jdict *a, const struct jdict *b)
{
	bool same = a->n == b->n;
	for (const struct jpair *p = a->first; p != NULL && same; p = p->next) {
		const struct jpair *q = jdict_find(b, &p->key);
		jrun_charge(r, b->n * 64);
		same = q != NULL && jvalue_equal(r, &p->value, &q->value);
	}
	return same;
}

bool jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b)
{
	bool same;
	if (jvalue_is_number(a) && jvalue_is_number(b))
		return jvalue_order_numbers(a, b) == 0;
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case JV_UNDEFINED:
	case JV_NONE: return true;
	case JV_STRING: jrun_charge(r, a->s.n); return jstr_equal(a->s, b->s);
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		jrun_descend(r);
		same = a->type == JV_DICT ? equal_dicts(r, a->dict, b->dict) : equal_lists(r, a->list, b->list);
		r->depth--;
		return same;
	case JV_FUNCTION: return a->function.fn == b->function.fn && a->function.self == b->function.self;
	default: /* identity */ return a->list == b->list;
	}
}

static int order_lists(struct jrun *r, const struct jlist *a, const struct jlist *b)
{
	for (size_t i = 0; i < a->n && i < b->n; i++)
		if (!jvalue_equal(r, &a->items[i], &b->items[i]))
			return jvalue_order(r, &a->items[i], &b->items[i]);
	return (a->n > b->n) - (a->n < b->n);
}

int jvalue_order(struct jrun *r, const struct jvalue *a, const struct jvalue *b)
{
	if (jvalue_is_number(a) && jvalue_is_number(b))
		return jvalue_order_numbers(a, b);
	if (a->type == b->type && jvalue_is_list(a)) {
		jrun_descend(r);
		int order = order_lists(r, a->list, b->list);
		r->depth--;
		return order;
	}
	if (a->type != JV_STRING || b->type != JV_STRING)
		jrun_fail(r, SL_EINVAL, "%s and %s have no order", jvalue_type_name(a), jvalue_type_name(b));
	/* Byte order of UTF-8 is code point order. */
	size_t n = a->s.n < b->s.n ? a->s.n : b->s.n;
	int d = n > 0 ? memcmp(a->s.at, b->s.at, n) : 0;
	jrun_charge(r, n);
	return d != 0 ? (d > 0) - (d < 0) : (a->s.n > b->s.n) - (a->s.n < b->s.n);
}

bool jvalue_contains(struct jrun *r, const struct jvalue *in, const struct jvalue *what)
{
	bool found = false;
	switch (in->type) {
	case JV_UNDEFINED: return false;
	case JV_STRING:
		if (what->type != JV_STRING)
			break;
		jrun_charge(r, in->s.n * JINJA_SEARCH_COST);
		return what->s.n == 0 || memmem(in->s.at, in->s.n, what->s.at, what->s.n) != NULL;
	case JV_LIST:
	case JV_TUPLE:
		for (size_t i = 0; i < in->list->n && !found; i++) {
			jrun_charge(r, 0);
			found = jvalue_equal(r, &in->list->items[i], what);
		}
		return found;
	case JV_DICT:
		if (what->type == JV_LIST || what->type == JV_DICT)
			break;
		jrun_charge(r, in->dict->n * 64);
		return jdict_find(in->dict, what) != NULL;
	default: break;
	}
	jrun_fail(r, SL_EINVAL, "%s in %s", jvalue_type_name(what), jvalue_type_name(in));
}

bool jvalue_compare(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b)
{
	switch (op) {
	case JO_EQ: return jvalue_equal(r, a, b);
	case JO_NE: return !jvalue_equal(r, a, b);
	case JO_IN: return jvalue_contains(r, b, a);
	case JO_NOT_IN: return !jvalue_contains(r, b, a);
	default: break;
	}
	int order = jvalue_order(r, a, b);
	return op == JO_LT   ? order == -1
	       : op == JO_GT ? order == 1
	       : op == JO_LE ? order <= 0
			     : order == 0 || order == 1;
}
