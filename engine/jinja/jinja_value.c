/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of values: truth, equality, order. Python's, as Jinja has them; where Python
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
#include "engine/jinja/jinja.h"

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
	return sl_errf(r->err, code, "chat template line %d, column %d: %s", r->place.line, r->place.column, text);
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

struct jvalue jvalue_bool(bool b) { return (struct jvalue){.type = JV_BOOL, .trusted = true, .b = b}; }

struct jvalue jvalue_string_of(struct jstr s) { return (struct jvalue){.type = JV_STRING, .s = s}; }

struct jvalue jvalue_literal(struct proto_str text)
{
	return jvalue_string_of((struct jstr){.at = text.at, .n = text.n, .trust = JTRUST_ALL});
}

struct jvalue jvalue_undefined(struct proto_str name) { return (struct jvalue){.type = JV_UNDEFINED, .name = name}; }

struct jvalue jvalue_list_of(struct jlist *l) { return (struct jvalue){.type = JV_LIST, .list = l}; }

struct jvalue jvalue_tuple_of(struct jlist *l) { return (struct jvalue){.type = JV_TUPLE, .list = l}; }

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
		p->key =
		    jvalue_string_of((struct jstr){.at = json_object_iter_key(i), .n = json_object_iter_key_len(i)});
		int rc = jvalue_from_json(r, json_object_iter_value(i), &p->value);
		if (rc != 0)
			return rc;
		jdict_append(d, p);
	}
	*out = (struct jvalue){.type = JV_DICT, .dict = d};
	return 0;
}

int jvalue_from_json(struct jrun *r, const json_t *j, struct jvalue *out)
{
	int rc;
	switch (json_typeof(j)) {
	case JSON_STRING:
		*out = jvalue_string_of(
		    (struct jstr){.at = json_string_value(j), .n = json_string_length(j), .trust = JTRUST_NONE});
		return 0;
	case JSON_INTEGER: *out = jvalue_int(json_integer_value(j), false); return 0;
	case JSON_REAL: *out = jvalue_float(json_real_value(j), false); return 0;
	case JSON_TRUE:
	case JSON_FALSE: *out = (struct jvalue){.type = JV_BOOL, .b = json_is_true(j)}; return 0;
	case JSON_ARRAY:
	case JSON_OBJECT:
		rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = json_is_array(j) ? list_from_json(r, j, out) : dict_from_json(r, j, out);
		r->depth--;
		return rc;
	default: *out = (struct jvalue){.type = JV_NONE}; return 0;
	}
}

bool jvalue_true(const struct jvalue *v)
{
	switch (v->type) {
	case JV_ABSENT:
	case JV_UNDEFINED:
	case JV_NONE: return false;
	case JV_BOOL: return v->b;
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

/* -1, 0, 1; 2 when a number is not one. */
int jvalue_order_numbers(const struct jvalue *a, const struct jvalue *b)
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
		rc = jrun_charge(r, b->n * 64);
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
		*out = jvalue_order_numbers(a, b) == 0;
		return 0;
	}
	if (a->type != b->type)
		return 0;
	int rc;
	switch (a->type) {
	case JV_UNDEFINED:
	case JV_NONE: *out = true; return 0;
	case JV_STRING: *out = jstr_equal(a->s, b->s); return jrun_charge(r, a->s.n);
	case JV_LIST:
	case JV_TUPLE:
	case JV_DICT:
		rc = jrun_descend(r);
		if (rc != 0)
			return rc;
		rc = a->type == JV_DICT ? equal_dicts(r, a->dict, b->dict, out) : equal_lists(r, a->list, b->list, out);
		r->depth--;
		return rc;
	case JV_FUNCTION: *out = a->function.fn == b->function.fn && a->function.self == b->function.self; return 0;
	default: /* the same one */ *out = a->list == b->list; return 0;
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
		*out = jvalue_order_numbers(a, b);
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
		return jrun_fail(r, SL_EINVAL, "%s and %s have no order", jvalue_type_name(a), jvalue_type_name(b));
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
	case JV_UNDEFINED: /* an undefined value has no items */ return 0;
	case JV_STRING:
		if (what->type != JV_STRING)
			break;
		*out = what->s.n == 0 || memmem(in->s.at, in->s.n, what->s.at, what->s.n) != NULL;
		return jrun_charge(r, in->s.n * JINJA_SEARCH_COST);
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
		return jrun_charge(r, in->dict->n * 64);
	default: break;
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
