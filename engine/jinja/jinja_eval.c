/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of expressions. Every node is a step; work on text is charged by its bytes. Recursion is as deep as the
 * tree, which the parser bounds, times the macros that call each other, so nested nodes are counted too.
 */
#include "engine/jinja/jinja.h"

static struct jvalue eval_slice(struct jrun *r, const struct jnode *n)
{
	struct jvalue self = jinja_eval(r, n->a), values[3];
	const struct jnode *nodes[3] = {n->b, n->c, n->d};
	const struct jvalue *parts[3] = {NULL, NULL, NULL};
	for (int i = 0; i < 3; i++)
		if (nodes[i] != NULL) {
			values[i] = jinja_eval(r, nodes[i]);
			parts[i] = &values[i];
		}
	r->place = n->place;
	return jvalue_slice(r, &self, parts);
}

static struct jvalue eval_attr(struct jrun *r, const struct jnode *n)
{
	struct jvalue self = jinja_eval(r, n->a);
	r->place = n->place;
	return jvalue_attr(r, &self, n->text);
}

/* A binary operator or an index. */
static struct jvalue eval_binary(struct jrun *r, const struct jnode *n)
{
	struct jvalue a = jinja_eval(r, n->a), b = jinja_eval(r, n->b);
	r->place = n->place;
	if (n->kind == JN_INDEX)
		return jvalue_index(r, &a, &b);
	return n->op < JO_EQ ? jvalue_binary(r, n->op, &a, &b) : jvalue_bool(jvalue_compare(r, n->op, &a, &b));
}

/* a < b < c: each value once, up to the first comparison that fails. */
static struct jvalue eval_chain(struct jrun *r, const struct jnode *n)
{
	struct jvalue left = jinja_eval(r, n->a);
	bool yes = true;
	for (const struct jnode *c = n->b; c != NULL && yes; c = c->next) {
		struct jvalue right = jinja_eval(r, c->b);
		r->place = c->place;
		yes = jvalue_compare(r, c->op, &left, &right);
		left = right;
	}
	return jvalue_bool(yes);
}

/* ---- calls ---- */

static void spread(struct jrun *r, const struct jnode *n, struct jlist *at)
{
	struct jvalue v = jinja_eval(r, n->a);
	const struct jlist *l = jvalue_items(r, &v);
	for (size_t i = 0; i < l->n; i++)
		jlist_add(r, at, l->items[i]);
}

/* As pairs: a value, then its key. */
static void add_named(struct jrun *r, struct jlist *pairs, struct jvalue key, struct jvalue value)
{
	jlist_add(r, pairs, value);
	jlist_add(r, pairs, key);
}

static void spread_names(struct jrun *r, const struct jnode *n, struct jlist *pairs)
{
	struct jvalue v = jinja_eval(r, n->a);
	if (v.type != JV_DICT)
		jrun_fail(r, SL_EINVAL, "arguments with names from %s", jvalue_type_name(&v));
	for (const struct jpair *p = v.dict->first; p != NULL; p = p->next) {
		(void)jinja_want_string(r, &p->key);
		add_named(r, pairs, p->key, p->value);
	}
}

struct jargs jinja_eval_args(struct jrun *r, const struct jnode *list)
{
	struct jlist at = {0}, pairs = {0};
	for (const struct jnode *a = list; a != NULL; a = a->next)
		switch (a->kind) {
		case JN_KEYWORD: add_named(r, &pairs, jvalue_literal(a->text), jinja_eval(r, a->a)); break;
		case JN_SPREAD_NAMES: spread_names(r, a, &pairs); break;
		case JN_SPREAD: spread(r, a, &at); break;
		default: jlist_add(r, &at, jinja_eval(r, a));
		}
	struct jargs out = {.at = at.items, .n = at.n};
	if (pairs.n > 0)
		out.named = jrun_alloc(r, pairs.n / 2 * sizeof(*out.named));
	for (size_t i = 0; i < pairs.n; i += 2)
		out.named[out.n_named++] =
		    (struct jnamed){.name = jname_of(pairs.items[i + 1].s), .value = pairs.items[i]};
	return out;
}

static struct jvalue eval_applied(struct jrun *r, const struct jnode *n, const struct jvalue *self)
{
	struct jargs args = jinja_eval_args(r, n->b);
	r->place = n->place;
	if (n->fn == NULL) /* in a condition: jinja_parse.c */
		jrun_fail(r, SL_EUNSUPPORTED, "the %s \"%.*s\" is not supported",
			  n->kind == JN_TEST ? "test" : "filter", JINJA_SHOWN(n->text));
	struct jvalue v = jinja_call_function(r, n->fn, self, &args);
	return n->negate ? jvalue_bool(!jvalue_true(&v)) : v;
}

static struct jvalue eval_function(struct jrun *r, const struct jnode *n)
{
	struct jvalue self = jinja_eval(r, n->a);
	return eval_applied(r, n, &self);
}

struct jvalue jinja_eval_filters(struct jrun *r, const struct jnode *n, struct jvalue text)
{
	struct jvalue self = n->a != NULL ? jinja_eval_filters(r, n->a, text) : text;
	return eval_applied(r, n, &self);
}

/* A called method is not made a value first. */
static struct jvalue eval_call(struct jrun *r, const struct jnode *n)
{
	struct jvalue callee, self;
	const struct jfunction *method = NULL;
	if (n->a->kind == JN_ATTR) {
		self = jinja_eval(r, n->a->a);
		r->place = n->a->place;
		method = jinja_find_method(n->a->text, self.type);
		callee = method == NULL ? jvalue_attr(r, &self, n->a->text) : self;
		if (callee.type == JV_UNDEFINED)
			jrun_fail(r, SL_EINVAL, "%s has no method \"%.*s\"", jvalue_type_name(&self), (int)n->a->text.n,
				  n->a->text.at);
	} else {
		callee = jinja_eval(r, n->a);
	}
	struct jargs args = jinja_eval_args(r, n->b);
	r->place = n->place;
	return method != NULL ? jinja_call_function(r, method, &self, &args) : jinja_call_value(r, &callee, &args);
}

/* ---- literals ---- */

static struct jvalue eval_list(struct jrun *r, const struct jnode *n)
{
	size_t count = 0;
	for (const struct jnode *a = n->a; a != NULL; a = a->next)
		count++;
	struct jlist *l = jlist_new(r, count);
	for (const struct jnode *a = n->a; a != NULL; a = a->next)
		jlist_put(l, jinja_eval(r, a));
	return n->kind == JN_TUPLE ? jvalue_tuple_of(l) : jvalue_list_of(l);
}

static struct jvalue eval_dict(struct jrun *r, const struct jnode *n)
{
	struct jdict *d = jdict_new(r);
	for (const struct jnode *a = n->a; a != NULL; a = a->next->next) {
		struct jvalue key = jinja_eval(r, a), value = jinja_eval(r, a->next);
		jdict_put(r, d, key, value);
	}
	return jvalue_dict_of(d);
}

static struct jvalue eval_cond(struct jrun *r, const struct jnode *n)
{
	struct jvalue c = jinja_eval(r, n->b);
	if (jvalue_true(&c))
		return jinja_eval(r, n->a);
	return n->c != NULL ? jinja_eval(r, n->c) : jvalue_undefined(jname("if without else"));
}

static struct jvalue eval_sign(struct jrun *r, const struct jnode *n)
{
	bool minus = n->kind == JN_NEGATE;
	struct jvalue v = jinja_eval(r, n->a);
	r->place = n->place;
	if (v.type == JV_BOOL)
		v.type = JV_INT;
	if (v.type == JV_FLOAT)
		v.f = minus ? -v.f : v.f;
	else if (v.type != JV_INT || (minus && __builtin_sub_overflow(0, v.i, &v.i)))
		jrun_fail(r, SL_EINVAL, "a sign before %s", jvalue_type_name(&v));
	return v;
}

/* `and`, `or`: the value that decides. */
static struct jvalue eval_logic(struct jrun *r, const struct jnode *n)
{
	struct jvalue v = jinja_eval(r, n->a);
	return jvalue_true(&v) == (n->kind == JN_OR) ? v : jinja_eval(r, n->b);
}

static struct jvalue eval_not(struct jrun *r, const struct jnode *n)
{
	struct jvalue v = jinja_eval(r, n->a);
	return jvalue_bool(!jvalue_true(&v));
}

static struct jvalue eval_node(struct jrun *r, const struct jnode *n)
{
	switch ((enum jnode_kind)n->kind) {
	case JN_STRING: return jvalue_literal(n->text);
	case JN_INT: return jvalue_int(n->i, true);
	case JN_FLOAT: return jvalue_float(n->f, true);
	case JN_BOOL: return jvalue_bool(n->i != 0);
	case JN_NONE: return jvalue_none();
	case JN_NAME: return jinja_look_up(r, n->text);
	case JN_LIST:
	case JN_TUPLE: return eval_list(r, n);
	case JN_DICT: return eval_dict(r, n);
	case JN_ATTR: return eval_attr(r, n);
	case JN_SLICE: return eval_slice(r, n);
	case JN_INDEX:
	case JN_BINARY: return eval_binary(r, n);
	case JN_CHAIN: return eval_chain(r, n);
	case JN_AND:
	case JN_OR: return eval_logic(r, n);
	case JN_NOT: return eval_not(r, n);
	case JN_NEGATE:
	case JN_PLUS: return eval_sign(r, n);
	case JN_COND: return eval_cond(r, n);
	case JN_FILTER:
	case JN_TEST: return eval_function(r, n);
	case JN_CALL: return eval_call(r, n);
	default: BUG("node %d is no expression", n->kind);
	}
}

struct jvalue jinja_eval(struct jrun *r, const struct jnode *n)
{
	jrun_charge(r, 0);
	r->place = n->place;
	if (r->nodes_deep++ >= JINJA_MAX_RUN_DEPTH)
		jrun_fail(r, SL_ELIMIT, "more than %d calls and parts in each other", JINJA_MAX_RUN_DEPTH);
	struct jvalue v = eval_node(r, n);
	r->nodes_deep--;
	return v;
}
