/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of expressions. Every node is a step; work on text is charged by its bytes; recursion
 * is as deep as the tree, which the parser bounds, times the macros that call each other, so the
 * nodes at work are counted too.
 */
#include <string.h>

#include "engine/jinja/jinja.h"

static int eval_slice(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue self, values[3];
	const struct jnode *nodes[3] = {n->b, n->c, n->d};
	const struct jvalue *parts[3] = {NULL, NULL, NULL};
	int rc = jinja_eval(r, n->a, &self);
	for (int i = 0; i < 3 && rc == 0; i++)
		if (nodes[i] != NULL) {
			rc = jinja_eval(r, nodes[i], &values[i]);
			parts[i] = &values[i];
		}
	r->place = n->place;
	return rc == 0 ? jvalue_slice(r, &self, parts, out) : rc;
}

/* a.b or a[b]. */
static int eval_member(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue self, key;
	int rc = jinja_eval(r, n->a, &self);
	if (rc == 0 && n->kind == JN_INDEX)
		rc = jinja_eval(r, n->b, &key);
	if (rc != 0)
		return rc;
	r->place = n->place;
	return n->kind == JN_INDEX ? jvalue_index(r, &self, &key, out) : jvalue_attr(r, &self, n->text, out);
}

static int eval_binary(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue a, b;
	int rc = jinja_eval(r, n->a, &a);
	if (rc == 0)
		rc = jinja_eval(r, n->b, &b);
	if (rc != 0)
		return rc;
	r->place = n->place;
	if (n->op < JO_EQ)
		return jvalue_binary(r, n->op, &a, &b, out);
	bool yes;
	rc = jvalue_compare(r, n->op, &a, &b, &yes);
	*out = jvalue_bool(yes);
	return rc;
}

/* a < b < c: each value once, up to the first comparison that fails. */
static int eval_chain(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue left, right;
	bool yes = true;
	int rc = jinja_eval(r, n->a, &left);
	for (const struct jnode *c = n->b; c != NULL && rc == 0 && yes; c = c->next) {
		rc = jinja_eval(r, c->b, &right);
		r->place = c->place;
		if (rc == 0)
			rc = jvalue_compare(r, c->op, &left, &right, &yes);
		left = right;
	}
	*out = jvalue_bool(yes);
	return rc;
}

/* ---- calls ---- */

static int spread(struct jrun *r, const struct jnode *n, struct jlist *at)
{
	struct jvalue v;
	struct jlist *l;
	int rc = jinja_eval(r, n->a, &v);
	if (rc == 0)
		rc = jvalue_items(r, &v, &l);
	for (size_t i = 0; rc == 0 && i < l->n; i++)
		rc = jlist_add(r, at, &l->items[i]);
	return rc;
}

/* As pairs: a key behind its value. */
static int spread_names(struct jrun *r, const struct jnode *n, struct jlist *pairs)
{
	struct jvalue v;
	int rc = jinja_eval(r, n->a, &v);
	if (rc == 0 && v.type != JV_DICT)
		rc = jrun_fail(r, SL_EINVAL, "arguments with names from %s", jvalue_type_name(&v));
	for (const struct jpair *p = rc == 0 ? v.dict->first : NULL; p != NULL && rc == 0; p = p->next) {
		rc = jinja_want_string(r, &p->key);
		if (rc == 0)
			rc = jlist_add(r, pairs, &p->value);
		if (rc == 0)
			rc = jlist_add(r, pairs, &p->key);
	}
	return rc;
}

static int add_named(struct jrun *r, const struct jnode *n, struct jlist *pairs)
{
	struct jvalue value, key = jvalue_literal(n->text);
	int rc = jinja_eval(r, n->a, &value);
	if (rc == 0)
		rc = jlist_add(r, pairs, &value);
	return rc == 0 ? jlist_add(r, pairs, &key) : rc;
}

static int name_pairs(struct jrun *r, const struct jlist *pairs, struct jargs *out)
{
	if (pairs->n == 0)
		return 0;
	out->named = jrun_alloc(r, pairs->n / 2 * sizeof(*out->named));
	if (out->named == NULL)
		return r->err->code;
	for (size_t i = 0; i < pairs->n; i += 2) {
		struct jstr name = pairs->items[i + 1].s;
		out->named[out->n_named++] = (struct jnamed){.name = {name.at, name.n}, .value = pairs->items[i]};
	}
	return 0;
}

int jinja_eval_args(struct jrun *r, const struct jnode *list, struct jargs *out)
{
	struct jlist at = {0}, pairs = {0};
	int rc = 0;
	*out = (struct jargs){0};
	for (const struct jnode *a = list; a != NULL && rc == 0; a = a->next) {
		struct jvalue v;
		if (a->kind == JN_KEYWORD) {
			rc = add_named(r, a, &pairs);
		} else if (a->kind == JN_SPREAD_NAMES) {
			rc = spread_names(r, a, &pairs);
		} else if (a->kind == JN_SPREAD) {
			rc = spread(r, a, &at);
		} else {
			rc = jinja_eval(r, a, &v);
			if (rc == 0)
				rc = jlist_add(r, &at, &v);
		}
	}
	out->at = at.items;
	out->n = at.n;
	return rc == 0 ? name_pairs(r, &pairs, out) : rc;
}

static int eval_applied(struct jrun *r, const struct jnode *n, const struct jvalue *self, struct jvalue *out)
{
	struct jargs args;
	int rc = jinja_eval_args(r, n->b, &args);
	r->place = n->place;
	if (rc == 0 && n->fn == NULL) /* in a condition: jinja_parse.c */
		return jrun_fail(r, SL_EUNSUPPORTED, "the %s \"%.*s\" is not supported",
				 n->kind == JN_TEST ? "test" : "filter", n->text.n < 64 ? (int)n->text.n : 64,
				 n->text.at);
	if (rc == 0)
		rc = jinja_call_function(r, n->fn, self, &args, out);
	if (rc == 0 && n->negate)
		*out = jvalue_bool(!jvalue_true(out));
	return rc;
}

static int eval_function(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue self;
	int rc = jinja_eval(r, n->a, &self);
	return rc == 0 ? eval_applied(r, n, &self, out) : rc;
}

int jinja_eval_filters(struct jrun *r, const struct jnode *n, const struct jvalue *text, struct jvalue *out)
{
	struct jvalue self = *text;
	int rc = n->a != NULL ? jinja_eval_filters(r, n->a, text, &self) : 0;
	return rc == 0 ? eval_applied(r, n, &self, out) : rc;
}

/* A method that is called is no value of its own. */
static int eval_call(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue callee, self;
	struct jargs args;
	const struct jfunction *method = NULL;
	int rc;
	if (n->a->kind == JN_ATTR) {
		rc = jinja_eval(r, n->a->a, &self);
		r->place = n->a->place;
		method = rc == 0 ? jinja_find_method(n->a->text, self.type) : NULL;
		if (rc == 0 && method == NULL)
			rc = jvalue_attr(r, &self, n->a->text, &callee);
		if (rc == 0 && method == NULL && callee.type == JV_UNDEFINED)
			return jrun_fail(r, SL_EINVAL, "%s has no method \"%.*s\"", jvalue_type_name(&self),
					 (int)n->a->text.n, n->a->text.at);
	} else {
		rc = jinja_eval(r, n->a, &callee);
	}
	if (rc == 0)
		rc = jinja_eval_args(r, n->b, &args);
	if (rc != 0)
		return rc;
	r->place = n->place;
	return method != NULL ? jinja_call_function(r, method, &self, &args, out)
			      : jinja_call_value(r, &callee, &args, out);
}

/* ---- literals ---- */

static int eval_list(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	size_t count = 0;
	for (const struct jnode *a = n->a; a != NULL; a = a->next)
		count++;
	struct jlist *l = jlist_new(r, count);
	if (l == NULL)
		return r->err->code;
	int rc = 0;
	for (const struct jnode *a = n->a; a != NULL && rc == 0; a = a->next)
		rc = jinja_eval(r, a, &l->items[l->n++]);
	*out = n->kind == JN_TUPLE ? jvalue_tuple_of(l) : jvalue_list_of(l);
	return rc;
}

static int eval_dict(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jdict *d = jdict_new(r);
	if (d == NULL)
		return r->err->code;
	int rc = 0;
	for (const struct jnode *a = n->a; a != NULL && rc == 0; a = a->next->next) {
		struct jvalue key, value;
		rc = jinja_eval(r, a, &key);
		if (rc == 0)
			rc = jinja_eval(r, a->next, &value);
		if (rc == 0)
			rc = jdict_put(r, d, &key, &value);
	}
	*out = (struct jvalue){.type = JV_DICT, .dict = d};
	return rc;
}

static int eval_cond(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue c;
	int rc = jinja_eval(r, n->b, &c);
	if (rc != 0)
		return rc;
	if (jvalue_true(&c))
		return jinja_eval(r, n->a, out);
	*out = jvalue_undefined((struct proto_str){"if without else", 15});
	return n->c ? jinja_eval(r, n->c, out) : 0;
}

static int eval_sign(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	bool minus = n->kind == JN_NEGATE;
	int rc = jinja_eval(r, n->a, out);
	r->place = n->place;
	if (rc == 0 && out->type == JV_BOOL)
		*out = jvalue_int(out->b, out->trusted);
	if (rc == 0 && out->type == JV_FLOAT)
		out->f = minus ? -out->f : out->f;
	else if (rc == 0 && (out->type != JV_INT || (minus && __builtin_sub_overflow(0, out->i, &out->i))))
		rc = jrun_fail(r, SL_EINVAL, "a sign before %s", jvalue_type_name(out));
	return rc;
}

static int eval_node(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue self;
	int rc;
	switch ((enum jnode_kind)n->kind) {
	case JN_STRING: *out = jvalue_literal(n->text); return 0;
	case JN_INT: *out = jvalue_int(n->i, true); return 0;
	case JN_FLOAT: *out = jvalue_float(n->f, true); return 0;
	case JN_BOOL: *out = jvalue_bool(n->i != 0); return 0;
	case JN_NONE: *out = jvalue_none(); return 0;
	case JN_NAME: return jinja_look_up(r, n->text, out);
	case JN_LIST:
	case JN_TUPLE: return eval_list(r, n, out);
	case JN_DICT: return eval_dict(r, n, out);
	case JN_ATTR:
	case JN_INDEX: return eval_member(r, n, out);
	case JN_SLICE: return eval_slice(r, n, out);
	case JN_BINARY: return eval_binary(r, n, out);
	case JN_CHAIN: return eval_chain(r, n, out);
	case JN_AND:
	case JN_OR:
		rc = jinja_eval(r, n->a, out);
		if (rc != 0 || jvalue_true(out) == (n->kind == JN_OR))
			return rc;
		return jinja_eval(r, n->b, out);
	case JN_NOT:
		rc = jinja_eval(r, n->a, &self);
		*out = jvalue_bool(rc == 0 && !jvalue_true(&self));
		return rc;
	case JN_NEGATE:
	case JN_PLUS: return eval_sign(r, n, out);
	case JN_COND: return eval_cond(r, n, out);
	case JN_FILTER:
	case JN_TEST: return eval_function(r, n, out);
	case JN_CALL: return eval_call(r, n, out);
	default: BUG("node %d is no expression", n->kind);
	}
}

int jinja_eval(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	int rc = jrun_charge(r, 0);
	r->place = n->place;
	if (rc == 0 && r->nodes_deep >= JINJA_MAX_RUN_DEPTH)
		rc = jrun_fail(r, SL_ELIMIT, "more than %d calls and parts in each other", JINJA_MAX_RUN_DEPTH);
	if (rc != 0)
		return rc;
	r->nodes_deep++;
	rc = eval_node(r, n, out);
	r->nodes_deep--;
	return rc;
}
