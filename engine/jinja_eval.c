/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a syntax tree. Every node and every iteration is a step; work on text is charged by its
 * bytes; recursion is as deep as the tree, which the parser bounds. Names live in frames: one for
 * the template and one for each pass of a loop, so that what a loop sets is gone after the pass
 * (only a namespace carries values out). An `if` has no frame of its own.
 */
#include <math.h>
#include <string.h>

#include "engine/jinja.h"

static int eval(struct jrun *r, const struct jnode *n, struct jvalue *out);

static bool same_name(struct proto_str a, struct proto_str b)
{
	return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

static bool name_is(struct proto_str a, const char *b)
{
	return same_name(a, (struct proto_str){b, strlen(b)});
}

/* ---- names ---- */

int jinja_bind(struct jrun *r, struct proto_str name, const struct jvalue *value)
{
	for (struct jvar *v = r->frame->vars; v != NULL; v = v->next)
		if (same_name(v->name, name)) {
			v->value = *value;
			return 0;
		}
	struct jvar *v = jrun_alloc(r, sizeof(*v));
	if (v == NULL)
		return r->err->code;
	*v = (struct jvar){.name = name, .value = *value, .next = r->frame->vars};
	r->frame->vars = v;
	return 0;
}

/* Charges for the names that were passed: a template may define thousands. */
static int look_up(struct jrun *r, struct proto_str name, struct jvalue *out)
{
	size_t passed = 0;
	*out = jvalue_undefined(name);
	for (const struct jframe *f = r->frame; f != NULL; f = f->outer)
		for (const struct jvar *v = f->vars; v != NULL; v = v->next, passed++)
			if (same_name(v->name, name)) {
				*out = v->value;
				return jrun_charge(r, passed * 16);
			}
	return jrun_charge(r, passed * 16);
}

/* ---- attributes ---- */

bool jinja_loop_knows(struct proto_str name)
{
	static const char *const names[] = {"index",    "index0", "revindex", "revindex0", "first",
					    "last",     "length", "previtem", "nextitem"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (name_is(name, names[i]))
			return true;
	return false;
}

static int loop_attr(struct jrun *r, const struct jloop *l, struct proto_str name,
		     struct jvalue *out)
{
	int64_t i = (int64_t)l->index, n = (int64_t)l->list.n;
	if (name_is(name, "index"))
		*out = jvalue_int(i + 1, true);
	else if (name_is(name, "index0"))
		*out = jvalue_int(i, true);
	else if (name_is(name, "revindex"))
		*out = jvalue_int(n - i, true);
	else if (name_is(name, "revindex0"))
		*out = jvalue_int(n - i - 1, true);
	else if (name_is(name, "first"))
		*out = jvalue_bool(i == 0);
	else if (name_is(name, "last"))
		*out = jvalue_bool(i + 1 == n);
	else if (name_is(name, "length"))
		*out = jvalue_int(n, true);
	else if (name_is(name, "previtem"))
		*out = i > 0 ? jlist_at(&l->list, l->index - 1) : jvalue_undefined(name);
	else if (name_is(name, "nextitem"))
		*out = i + 1 < n ? jlist_at(&l->list, l->index + 1) : jvalue_undefined(name);
	else
		return jrun_fail(r, SL_EUNSUPPORTED, "the loop's \"%.*s\" is not supported",
				 name.n < 64 ? (int)name.n : 64, name.at);
	return 0;
}

static int eval_attr(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue self, key = jvalue_literal(n->text);
	int rc = eval(r, n->a, &self);
	if (rc != 0)
		return rc;
	r->line = n->line;
	if (self.type == JV_LOOP)
		return loop_attr(r, self.loop, n->text, out);
	return jvalue_index(r, &self, &key, out);
}

static int eval_slice(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue self, values[3];
	const struct jnode *nodes[3] = {n->b, n->c, n->d};
	const struct jvalue *parts[3] = {NULL, NULL, NULL};
	int rc = eval(r, n->a, &self);
	for (int i = 0; i < 3 && rc == 0; i++)
		if (nodes[i] != NULL) {
			rc = eval(r, nodes[i], &values[i]);
			parts[i] = &values[i];
		}
	r->line = n->line;
	return rc == 0 ? jvalue_slice(r, &self, parts, out) : rc;
}

/* ---- operators ---- */

static int integer_op(struct jrun *r, int op, int64_t a, int64_t b, int64_t *out)
{
	bool over = false;
	switch (op) {
	case JO_ADD:
		over = __builtin_add_overflow(a, b, out);
		break;
	case JO_SUB:
		over = __builtin_sub_overflow(a, b, out);
		break;
	case JO_MUL:
		over = __builtin_mul_overflow(a, b, out);
		break;
	default: /* // and %: towards minus infinity */
		if (b == 0)
			return jrun_fail(r, SL_EINVAL, "division by zero");
		if (a == INT64_MIN && b == -1) {
			over = op == JO_FLOORDIV;
			*out = 0;
			break;
		}
		int64_t q = a / b, rest = a % b;
		bool down = rest != 0 && (rest < 0) != (b < 0);
		*out = op == JO_FLOORDIV ? q - down : rest + (down ? b : 0);
	}
	return over ? jrun_fail(r, SL_EINVAL, "a number out of range") : 0;
}

static double as_double(const struct jvalue *v)
{
	return v->type == JV_FLOAT ? v->f : (double)v->i;
}

static int arithmetic(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b,
		      struct jvalue *out)
{
	bool ints = a->type == JV_INT && b->type == JV_INT, trusted = a->trusted && b->trusted;
	if ((a->type != JV_INT && a->type != JV_FLOAT) || (b->type != JV_INT && b->type != JV_FLOAT))
		return jrun_fail(r, SL_EINVAL, "arithmetic with %s and %s", jvalue_type_name(a),
				 jvalue_type_name(b));
	if (ints && op != JO_DIV) {
		*out = jvalue_int(0, trusted);
		int64_t i = 0;
		int rc = integer_op(r, op, a->i, b->i, &i);
		out->i = i;
		return rc;
	}
	double x = as_double(a), y = as_double(b), f;
	if (y == 0 && op != JO_ADD && op != JO_SUB && op != JO_MUL)
		return jrun_fail(r, SL_EINVAL, "division by zero");
	switch (op) {
	case JO_ADD:
		f = x + y;
		break;
	case JO_SUB:
		f = x - y;
		break;
	case JO_MUL:
		f = x * y;
		break;
	case JO_DIV:
		f = x / y;
		break;
	case JO_FLOORDIV:
		f = floor(x / y);
		break;
	default:
		f = fmod(x, y);
		if (f != 0 && (f < 0) != (y < 0))
			f += y;
	}
	*out = (struct jvalue){.type = JV_FLOAT, .trusted = trusted, .f = f};
	return 0;
}

static int add_lists(struct jrun *r, const struct jlist *a, const struct jlist *b,
		     struct jvalue *out)
{
	size_t n = a->n + b->n;
	int rc = jrun_charge(r, n * sizeof(struct jvalue));
	struct jvalue *items = rc == 0 ? jrun_alloc(r, (n + 1) * sizeof(*items)) : NULL;
	if (items == NULL)
		return r->err->code;
	for (size_t i = 0; i < n; i++)
		items[i] = i < a->n ? jlist_at(a, i) : jlist_at(b, i - a->n);
	*out = jvalue_list_of(items, n);
	return 0;
}

static int concat(struct jrun *r, const struct jvalue *a, const struct jvalue *b,
		  struct jvalue *out)
{
	struct jstr parts[2];
	int rc = jvalue_string(r, a, &parts[0]);
	if (rc == 0)
		rc = jvalue_string(r, b, &parts[1]);
	*out = jvalue_string_of((struct jstr){.at = ""});
	return rc == 0 ? jstr_concat(r, parts, 2, &out->s) : rc;
}

static int compare(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b,
		   struct jvalue *out)
{
	bool yes = false;
	int rc, order = 0;
	if (op == JO_EQ || op == JO_NE) {
		rc = jvalue_equal(r, a, b, &yes);
		yes ^= op == JO_NE;
	} else if (op == JO_IN || op == JO_NOT_IN) {
		rc = jvalue_contains(r, b, a, &yes);
		yes ^= op == JO_NOT_IN;
	} else {
		rc = jvalue_order(r, a, b, &order);
		yes = op == JO_LT ? order == -1 : op == JO_GT ? order == 1 :
		      op == JO_LE ? order <= 0 : order == 0 || order == 1;
	}
	*out = jvalue_bool(yes);
	return rc;
}

static int eval_binary(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue a, b;
	int rc = eval(r, n->a, &a);
	if (rc == 0)
		rc = eval(r, n->b, &b);
	if (rc != 0)
		return rc;
	r->line = n->line;
	if (n->op >= JO_EQ)
		return compare(r, n->op, &a, &b, out);
	if (n->op == JO_CONCAT || (n->op == JO_ADD && a.type == JV_STRING && b.type == JV_STRING))
		return concat(r, &a, &b, out);
	if (n->op == JO_ADD && a.type == JV_LIST && b.type == JV_LIST)
		return add_lists(r, &a.list, &b.list, out);
	return arithmetic(r, n->op, &a, &b, out);
}

/* ---- calls and literals ---- */

static int eval_call(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	const struct jfunction *table = n->kind == JN_FILTER ? jinja_filters
					: n->kind == JN_TEST ? jinja_tests
							     : jinja_methods;
	struct jvalue self, args[JINJA_MAX_ARGS];
	int n_args = 0, rc = eval(r, n->a, &self);
	for (const struct jnode *a = n->b; a != NULL && rc == 0; a = a->next) {
		BUG_IF(n_args == JINJA_MAX_ARGS, "more arguments than %s takes", table[n->op].name);
		rc = eval(r, a, &args[n_args++]);
	}
	if (rc != 0)
		return rc;
	r->line = n->line;
	*out = (struct jvalue){0};
	rc = table[n->op].call(r, &self, args, n_args, out);
	if (rc == 0 && n->negate)
		out->b = !out->b;
	return rc;
}

static int eval_list(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	size_t count = 0, i = 0;
	for (const struct jnode *a = n->a; a != NULL; a = a->next)
		count++;
	struct jvalue *items = jrun_alloc(r, (count + 1) * sizeof(*items));
	if (items == NULL)
		return r->err->code;
	int rc = 0;
	for (const struct jnode *a = n->a; a != NULL && rc == 0; a = a->next)
		rc = eval(r, a, &items[i++]);
	*out = jvalue_list_of(items, count);
	return rc;
}

static int eval_pairs(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jpairs *pairs = jrun_alloc(r, sizeof(*pairs));
	if (pairs == NULL)
		return r->err->code;
	int rc = 0;
	bool space = n->kind == JN_NAMESPACE;
	for (const struct jnode *a = n->a; a != NULL && rc == 0; a = a->next) {
		struct jvalue key = jvalue_literal(a->text), value;
		if (!space) {
			rc = eval(r, a, &key);
			a = a->next;
		}
		if (rc == 0)
			rc = eval(r, space ? a->a : a, &value);
		if (rc == 0)
			rc = jdict_put(r, pairs, &key, &value);
	}
	*out = (struct jvalue){.type = space ? JV_NAMESPACE : JV_DICT, .dict = {.made = pairs}};
	return rc;
}

static int eval_range(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	int64_t part[3] = {0, 0, 1};
	int count = 0, rc = 0;
	for (const struct jnode *a = n->a; a != NULL && rc == 0; a = a->next) {
		struct jvalue v;
		rc = eval(r, a, &v);
		if (rc == 0 && v.type != JV_INT)
			rc = jrun_fail(r, SL_EINVAL, "range of %s", jvalue_type_name(&v));
		if (rc == 0)
			part[count++] = v.i;
	}
	if (rc != 0)
		return rc;
	if (count == 1) {
		part[1] = part[0];
		part[0] = 0;
	}
	int64_t step = part[2], span;
	if (step == 0 || __builtin_sub_overflow(part[1], part[0], &span))
		return jrun_fail(r, SL_EINVAL, "range with these bounds");
	int64_t items_n = (span > 0) == (step > 0) && span != 0 ? span / step + (span % step != 0) : 0;
	if (items_n > JINJA_MAX_STEPS)
		return jrun_fail(r, SL_ELIMIT, "range of %lld numbers", (long long)items_n);
	size_t total = (size_t)items_n;
	rc = jrun_charge(r, total * sizeof(struct jvalue));
	struct jvalue *items = rc == 0 ? jrun_alloc(r, (total + 1) * sizeof(*items)) : NULL;
	if (items == NULL)
		return r->err->code;
	for (size_t i = 0; i < total; i++)
		items[i] = jvalue_int(part[0] + (int64_t)i * step, true);
	*out = jvalue_list_of(items, total);
	return 0;
}

static int eval_raise(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jstr text;
	int rc = eval(r, n->a, out);
	if (rc == 0)
		rc = jvalue_string(r, out, &text);
	return rc == 0 ? jrun_fail(r, SL_EINVAL, "%.*s", text.n < 300 ? (int)text.n : 300, text.at) : rc;
}

static int eval_cond(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue c;
	int rc = eval(r, n->b, &c);
	if (rc != 0)
		return rc;
	if (jvalue_true(&c))
		return eval(r, n->a, out);
	*out = jvalue_undefined((struct proto_str){"if without else", 15});
	return n->c ? eval(r, n->c, out) : 0;
}

static int eval_negate(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	int rc = eval(r, n->a, out);
	r->line = n->line;
	if (rc == 0 && out->type == JV_FLOAT)
		out->f = -out->f;
	else if (rc == 0 && (out->type != JV_INT || __builtin_sub_overflow(0, out->i, &out->i)))
		rc = jrun_fail(r, SL_EINVAL, "minus %s", jvalue_type_name(out));
	return rc;
}

static int eval(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
	struct jvalue key, self;
	int rc = jrun_charge(r, 0);
	if (rc != 0)
		return rc;
	r->line = n->line;
	switch ((enum jnode_kind)n->kind) {
	case JN_STRING:
		*out = jvalue_literal(n->text);
		return 0;
	case JN_INT:
		*out = jvalue_int(n->i, true);
		return 0;
	case JN_FLOAT:
		*out = (struct jvalue){.type = JV_FLOAT, .trusted = true, .f = n->f};
		return 0;
	case JN_BOOL:
		*out = jvalue_bool(n->i != 0);
		return 0;
	case JN_NONE:
		*out = (struct jvalue){.type = JV_NONE, .trusted = true};
		return 0;
	case JN_NAME:
		return look_up(r, n->text, out);
	case JN_LIST:
		return eval_list(r, n, out);
	case JN_DICT:
	case JN_NAMESPACE:
		return eval_pairs(r, n, out);
	case JN_ATTR:
		return eval_attr(r, n, out);
	case JN_INDEX:
		rc = eval(r, n->a, &self);
		if (rc == 0)
			rc = eval(r, n->b, &key);
		r->line = n->line;
		return rc == 0 ? jvalue_index(r, &self, &key, out) : rc;
	case JN_SLICE:
		return eval_slice(r, n, out);
	case JN_BINARY:
		return eval_binary(r, n, out);
	case JN_AND:
	case JN_OR:
		rc = eval(r, n->a, out);
		if (rc != 0 || jvalue_true(out) == (n->kind == JN_OR))
			return rc;
		return eval(r, n->b, out);
	case JN_NOT:
		rc = eval(r, n->a, &self);
		*out = jvalue_bool(rc == 0 && !jvalue_true(&self));
		return rc;
	case JN_NEGATE:
		return eval_negate(r, n, out);
	case JN_COND:
		return eval_cond(r, n, out);
	case JN_FILTER:
	case JN_TEST:
	case JN_METHOD:
		return eval_call(r, n, out);
	case JN_RAISE:
		return eval_raise(r, n, out);
	case JN_RANGE:
		return eval_range(r, n, out);
	default:
		BUG("node %d is no expression", n->kind);
	}
}

/* ---- statements ---- */

static int put(struct jrun *r, struct jstr s)
{
	uint8_t *trust;
	if (s.n > r->max_text - r->text->len)
		return jrun_fail(r, SL_ELIMIT, "more than %d bytes of text", JINJA_MAX_OUTPUT);
	int rc = jrun_charge(r, s.n);
	if (rc != 0)
		return rc;
	rc = buf_reserve(r->trust, s.n, &trust);
	if (rc == 0)
		rc = buf_append(r->text, s.at, s.n);
	if (rc != 0)
		return jrun_fail(r, rc, "no room for the text");
	if (s.n == 0)
		return 0;
	if (s.trust == JTRUST_MASK)
		memcpy(trust, s.mask, s.n);
	else
		memset(trust, s.trust == JTRUST_ALL, s.n);
	buf_commit(r->trust, s.n);
	return 0;
}

static int run_output(struct jrun *r, const struct jnode *n)
{
	struct jvalue v;
	struct jstr s;
	int rc = eval(r, n->a, &v);
	r->line = n->line;
	if (rc == 0)
		rc = jvalue_string(r, &v, &s);
	return rc == 0 ? put(r, s) : rc;
}

static int run_if(struct jrun *r, const struct jnode *n)
{
	for (const struct jnode *branch = n->a; branch != NULL; branch = branch->next) {
		struct jvalue c = jvalue_bool(true);
		int rc = branch->a ? eval(r, branch->a, &c) : 0;
		if (rc != 0)
			return rc;
		if (jvalue_true(&c))
			return jinja_run(r, branch->b);
	}
	return 0;
}

static int bind_items(struct jrun *r, const struct jnode *n, const struct jvalue *item)
{
	if (n->text2.n == 0)
		return jinja_bind(r, n->text, item);
	if (item->type != JV_LIST || item->list.n != 2)
		return jrun_fail(r, SL_EINVAL, "two names for %s", jvalue_type_name(item));
	struct jvalue first = jlist_at(&item->list, 0), second = jlist_at(&item->list, 1);
	int rc = jinja_bind(r, n->text, &first);
	return rc == 0 ? jinja_bind(r, n->text2, &second) : rc;
}

static int run_for(struct jrun *r, const struct jnode *n)
{
	struct jvalue list;
	int rc = eval(r, n->a, &list);
	r->line = n->line;
	if (rc == 0 && list.type == JV_DICT)
		rc = jdict_list(r, &list.dict, false, &list);
	else if (rc == 0 && list.type == JV_UNDEFINED)
		list = jvalue_list_of(NULL, 0);
	else if (rc == 0 && list.type != JV_LIST)
		rc = jrun_fail(r, SL_EINVAL, "a loop over %s", jvalue_type_name(&list));
	if (rc != 0)
		return rc;
	if (list.list.n == 0)
		return jinja_run(r, n->c);
	struct jloop *loop = jrun_alloc(r, sizeof(*loop));
	if (loop == NULL)
		return r->err->code;
	loop->list = list.list;
	struct jframe *outer = r->frame;
	for (; loop->index < loop->list.n && rc == 0; loop->index++) {
		struct jframe frame = {.outer = outer};
		struct jvalue item = jlist_at(&loop->list, loop->index);
		struct jvalue self = {.type = JV_LOOP, .loop = loop};
		r->frame = &frame;
		rc = jrun_charge(r, 0);
		if (rc == 0)
			rc = jinja_bind(r, (struct proto_str){"loop", 4}, &self);
		if (rc == 0)
			rc = bind_items(r, n, &item);
		if (rc == 0)
			rc = jinja_run(r, n->b);
		r->frame = outer;
	}
	return rc;
}

static int run_set(struct jrun *r, const struct jnode *n)
{
	struct jvalue v, space;
	int rc = eval(r, n->a, &v);
	r->line = n->line;
	if (rc != 0)
		return rc;
	if (n->text2.n == 0)
		return jinja_bind(r, n->text, &v);
	rc = look_up(r, n->text, &space);
	if (rc == 0 && space.type != JV_NAMESPACE)
		rc = jrun_fail(r, SL_EINVAL, "set of an attribute of %s", jvalue_type_name(&space));
	struct jvalue key = jvalue_literal(n->text2);
	return rc == 0 ? jdict_put(r, space.dict.made, &key, &v) : rc;
}

int jinja_run(struct jrun *r, const struct jnode *body)
{
	int rc = 0;
	for (const struct jnode *n = body; n != NULL && rc == 0; n = n->next) {
		r->line = n->line;
		rc = jrun_charge(r, 0);
		if (rc != 0)
			break;
		switch ((enum jnode_kind)n->kind) {
		case JN_TEXT:
			rc = put(r, (struct jstr){.at = n->text.at, .n = n->text.n,
						  .trust = JTRUST_ALL});
			break;
		case JN_OUT:
			rc = run_output(r, n);
			break;
		case JN_IF:
			rc = run_if(r, n);
			break;
		case JN_FOR:
			rc = run_for(r, n);
			break;
		case JN_SET:
			rc = run_set(r, n);
			break;
		default:
			BUG("node %d is no statement", n->kind);
		}
	}
	return rc;
}
