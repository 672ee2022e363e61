/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to a syntax tree, the expressions: by recursive descent, one function per level of precedence, the levels
 * being Jinja's own:
 *
 *   if-else < or < and < not < comparison < + - < ~ < * / // % < ** < unary - + < . [] () | is
 *
 * Constructs that the evaluator does not support are rejected here by name: a template that compiles means the same as
 * in Jinja. Bounds: nesting of the source (recursion here), depth of the tree (recursion of the evaluator, chains like
 * a + b + c included) and number of nodes.
 */
#include "engine/jinja/jinja_parse.h"

static struct jnode *parse_primary(struct parser *p);
static struct jnode *parse_postfix(struct parser *p, struct jnode *n);

/* ---- arguments ---- */

/* Behind an open bracket up to its end; named: `name=value`, `*items` and `**names` are allowed. */
static struct jnode *parse_args(struct parser *p, const char *close, bool named)
{
	struct jnode *list = NULL, **tail = &list;
	bool names = false;
	for (int n = 0; parse_next(p, n, close); n++, tail = &(*tail)->next) {
		struct jplace at = p->t->place;
		bool has_name = p->t->kind == JT_NAME && p->t[1].kind == JT_OP && strcmp(p->t[1].op, "=") == 0;
		bool items = named && parse_take_op(p, "*");
		if (items || (named && parse_take_op(p, "**"))) {
			*tail = parse_wrap(p, items ? JN_SPREAD : JN_SPREAD_NAMES, at, parse_expr(p), NULL);
			names = names || !items;
		} else if (named && has_name) {
			struct proto_str name = parse_expect_name(p);
			p->t++;
			*tail = parse_named(p, JN_KEYWORD, at, name, parse_expr(p));
			names = true;
		} else if (names) {
			parse_fail(p, at, "an argument without a name behind one with a name");
		} else {
			*tail = parse_expr(p);
		}
	}
	return list;
}

/* `map("trim")` and similar filters name a function by a string: it is checked now too. */
static void check_named_function(struct parser *p, const struct jfunction *fn, struct jplace at,
				 const struct jnode *args)
{
	int index;
	bool tests;
	if (!jinja_is_filter_of_functions(fn, &index, &tests))
		return;
	for (; args != NULL && index > 0; args = args->next)
		index--;
	if (args == NULL || args->kind != JN_STRING)
		return;
	if (tests ? jinja_find_test(args->text) == NULL : jinja_find_filter(args->text) == NULL)
		parse_note_unknown(p, at, tests ? "the test" : "the filter", args->text);
}

void parse_check_args(struct parser *p, const struct jfunction *fn, struct jplace at, const struct jnode *args)
{
	struct proto_str name;
	const char *wrong = jinja_wrong_args(fn, args, &name);
	if (wrong != NULL && name.n > 0)
		parse_unknown(p, at, wrong, name);
	if (wrong != NULL)
		parse_fail(p, at, "\"%s\" with %s", fn->name, wrong);
}

/* A node that applies fn, which may be unknown, to self. */
static struct jnode *apply(struct parser *p, enum jnode_kind kind, struct jplace at, const struct jtok *name,
			   const struct jfunction *fn, struct jnode *self, struct jnode *args)
{
	if (fn != NULL)
		parse_check_args(p, fn, at, args);
	if (fn != NULL && kind == JN_FILTER)
		check_named_function(p, fn, at, args);
	struct jnode *n = parse_wrap(p, kind, at, self, args);
	n->fn = fn;
	n->text = parse_text(name);
	return n;
}

/* The name of a filter and its arguments behind it, applied to self. */
static struct jnode *parse_filter(struct parser *p, struct jnode *self)
{
	const struct jtok *name = p->t;
	struct jnode *args = NULL;
	if (name->kind != JT_NAME)
		parse_unexpected(p, "a filter");
	p->t++;
	const struct jfunction *fn = jinja_find_filter(parse_text(name));
	if (fn == NULL)
		parse_note_unknown(p, name->place, "the filter", parse_text(name));
	if (parse_take_op(p, "("))
		args = parse_args(p, ")", true);
	return apply(p, JN_FILTER, name->place, name, fn, self, args);
}

struct jnode *parse_filter_chain(struct parser *p)
{
	struct jnode *n = parse_filter(p, NULL);
	while (parse_take_op(p, "|"))
		n = parse_filter(p, n);
	return n;
}

/* A test may have its argument without brackets: `is divisibleby 3`. */
static bool begins_argument(const struct jtok *t)
{
	static const char *const others[] = {"else", "or", "and", "is", "if", "in", "not", NULL};
	if (t->kind == JT_STRING || t->kind == JT_INT || t->kind == JT_FLOAT)
		return true;
	if (t->kind == JT_OP)
		return strcmp(t->op, "[") == 0 || strcmp(t->op, "{") == 0;
	return t->kind == JT_NAME && parse_which_word(t, others) < 0;
}

static struct jnode *parse_test(struct parser *p, struct jnode *self)
{
	struct jplace at = p->t->place;
	bool negate = parse_take_word(p, "not");
	const struct jtok *name = p->t;
	struct jnode *args = NULL;
	if (name->kind != JT_NAME)
		parse_unexpected(p, "a test");
	p->t++;
	const struct jfunction *fn = jinja_find_test(parse_text(name));
	if (fn == NULL)
		parse_note_unknown(p, at, "the test", parse_text(name));
	if (parse_take_op(p, "(")) {
		args = parse_args(p, ")", true);
	} else if (begins_argument(p->t)) {
		parse_enter(p);
		args = parse_postfix(p, parse_primary(p));
		p->depth--;
	}
	struct jnode *n = apply(p, JN_TEST, at, name, fn, self, args);
	n->negate = negate;
	return n;
}

/* ---- primaries ---- */

static struct jnode *parse_dict(struct parser *p, struct jplace at)
{
	struct jnode *list = NULL, **tail = &list;
	for (int n = 0; parse_next(p, n, "}"); n++) {
		*tail = parse_expr(p);
		parse_expect_op(p, ":");
		(*tail)->next = parse_expr(p);
		tail = &(*tail)->next->next;
	}
	return parse_wrap(p, JN_DICT, at, list, NULL);
}

static struct jnode *parse_bracketed(struct parser *p)
{
	struct jplace at = p->t->place;
	if (parse_take_op(p, "["))
		return parse_wrap(p, JN_LIST, at, parse_args(p, "]", false), NULL);
	if (parse_take_op(p, "{"))
		return parse_dict(p, at);
	if (!parse_take_op(p, "("))
		parse_unexpected(p, "an expression");
	if (parse_take_op(p, ")"))
		return parse_wrap(p, JN_TUPLE, at, NULL, NULL);
	struct jnode *n = parse_tuple(p, true);
	parse_expect_op(p, ")");
	return n;
}

/* 'a' 'b' is one string. */
static struct jnode *parse_string(struct parser *p)
{
	size_t n = 0;
	const struct jtok *t = p->t;
	struct jnode *node = parse_new(p, JN_STRING, t->place);
	node->text = parse_text(t);
	for (; p->t->kind == JT_STRING; p->t++)
		n += p->t->n;
	if (p->t == t + 1)
		return node;
	char *at = parse_alloc(p, n);
	node->text = (struct proto_str){at, n};
	for (; t < p->t; t++) {
		memcpy(at, t->at, t->n);
		at += t->n;
	}
	return node;
}

static struct jnode *parse_name(struct parser *p)
{
	static const char *const constants[] = {"false", "False", "true", "True", "none", "None", NULL};
	static const char *const used[] = {"caller", "varargs", "kwargs", NULL}; /* in the order of enum jmacro_uses */
	struct jplace at = p->t->place;
	int k = parse_which_word(p->t, constants), use = parse_which_word(p->t, used);
	if (k >= 0) {
		p->t++;
		struct jnode *n = parse_new(p, k < 4 ? JN_BOOL : JN_NONE, at);
		n->i = k == 2 || k == 3;
		return n;
	}
	if (use >= 0 && p->macro_uses != NULL)
		*p->macro_uses |= 1 << use;
	return parse_named(p, JN_NAME, at, parse_expect_name(p), NULL);
}

static struct jnode *parse_primary(struct parser *p)
{
	const struct jtok *t = p->t;
	struct jnode *n;
	switch (t->kind) {
	case JT_STRING: return parse_string(p);
	case JT_INT:
	case JT_FLOAT:
		n = parse_new(p, t->kind == JT_INT ? JN_INT : JN_FLOAT, t->place);
		n->i = t->i;
		n->f = t->f;
		p->t++;
		return n;
	case JT_NAME: return parse_name(p);
	default: return parse_bracketed(p);
	}
}

/* ---- behind a primary: .name, [index], [slice], (arguments) ---- */

static struct jnode *parse_dot(struct parser *p, struct jnode *self)
{
	struct jplace at = p->t->place;
	if (p->t->kind == JT_INT)
		return parse_wrap(p, JN_INDEX, at, self, parse_primary(p));
	if (p->t->kind != JT_NAME)
		parse_unexpected(p, "a name");
	struct proto_str name = parse_text(p->t++);
	if (self->kind == JN_NAME && proto_str_is(self->text, "loop") && !jinja_loop_knows(name))
		parse_unknown(p, at, "the loop's", name);
	return parse_named(p, JN_ATTR, at, name, self);
}

static struct jnode *parse_subscript(struct parser *p, struct jplace at, struct jnode *self)
{
	int n_colons = 0;
	struct jnode *part[3] = {NULL, NULL, NULL};
	while (!parse_take_op(p, "]")) {
		bool colon = parse_take_op(p, ":");
		if (colon ? ++n_colons > 2 : part[n_colons] != NULL)
			parse_unexpected(p, "]");
		if (!colon)
			part[n_colons] = parse_expr(p);
	}
	if (n_colons == 0 && part[0] == NULL)
		parse_fail(p, at, "an index expected");
	struct jnode *n = parse_new(p, n_colons > 0 ? JN_SLICE : JN_INDEX, at);
	n->a = self;
	n->b = part[0];
	n->c = part[1];
	n->d = part[2];
	return parse_finish(p, n);
}

/* Some type must have a method of that name that takes these arguments. */
static void check_method(struct parser *p, const struct jnode *callee, const struct jnode *args)
{
	const struct jfunction *fn = jinja_find_method(callee->text, JV_ABSENT);
	if (fn == NULL)
		parse_note_unknown(p, callee->place, "the method", callee->text); /* when it runs: undefined */
	else if (!jinja_method_fits(callee->text, args))
		parse_check_args(p, fn, callee->place, args);
}

static struct jnode *parse_call(struct parser *p, struct jnode *callee)
{
	struct jnode *args = parse_args(p, ")", true);
	if (callee->kind == JN_ATTR)
		check_method(p, callee, args);
	struct jnode *n = parse_wrap(p, JN_CALL, callee->place, callee, args);
	if (callee->kind == JN_NAME)
		parse_note_call(p, callee->text, n);
	return n;
}

static struct jnode *parse_postfix(struct parser *p, struct jnode *n)
{
	for (;;) {
		struct jplace at = p->t->place;
		if (parse_take_op(p, "."))
			n = parse_dot(p, n);
		else if (parse_take_op(p, "["))
			n = parse_subscript(p, at, n);
		else if (parse_take_op(p, "("))
			n = parse_call(p, n);
		else
			return n;
	}
}

static struct jnode *parse_filters(struct parser *p, struct jnode *n)
{
	for (;;) {
		if (parse_take_op(p, "|"))
			n = parse_filter(p, n);
		else if (parse_take_word(p, "is"))
			n = parse_test(p, n);
		else if (parse_take_op(p, "("))
			n = parse_call(p, n);
		else
			return n;
	}
}

static struct jnode *parse_unary(struct parser *p, bool filters)
{
	struct jplace at = p->t->place;
	struct jnode *n;
	bool minus = parse_take_op(p, "-");
	if (minus || parse_take_op(p, "+")) {
		/* Filters bind weaker than the sign: -1|abs is (-1)|abs. */
		parse_enter(p);
		n = parse_wrap(p, minus ? JN_NEGATE : JN_PLUS, at, parse_unary(p, false), NULL);
		p->depth--;
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	return filters ? parse_filters(p, n) : n;
}

/* ---- operators, loosest last ---- */

struct level {
	struct {
		const char *op;
		enum jop jop;
	} ops[5];
};
static const struct level levels[] = {
    {{{"+", JO_ADD}, {"-", JO_SUB}}},
    {{{"~", JO_CONCAT}}},
    {{{"*", JO_MUL}, {"//", JO_FLOORDIV}, {"/", JO_DIV}, {"%", JO_MOD}}},
    {{{"**", JO_POW}}}, /* left-associative in Jinja */
};
enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };

static struct jnode *parse_level(struct parser *p, int level)
{
	if (level == N_LEVELS)
		return parse_unary(p, true);
	struct jnode *n = parse_level(p, level + 1);
	for (;;) {
		int k = 0;
		while (levels[level].ops[k].op != NULL && !parse_is_op(p, levels[level].ops[k].op))
			k++;
		if (levels[level].ops[k].op == NULL)
			return n;
		struct jplace at = p->t++->place;
		n = parse_wrap(p, JN_BINARY, at, n, parse_level(p, level + 1));
		n->op = (uint8_t)levels[level].ops[k].jop;
	}
}

/* -1: the token is no comparison. Takes it otherwise. */
static int take_comparison(struct parser *p)
{
	static const char *const ops[] = {"==", "!=", "<", ">", "<=", ">="}; /* in the order of enum jop */
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (parse_take_op(p, ops[i]))
			return JO_EQ + (int)i;
	if (parse_take_word(p, "in"))
		return JO_IN;
	if (parse_is_word(p->t, "not") && parse_is_word(p->t + 1, "in")) {
		p->t += 2;
		return JO_NOT_IN;
	}
	return -1;
}

/* One comparison is a JN_BINARY, several in a row a JN_CHAIN. */
static struct jnode *parse_comparison(struct parser *p)
{
	struct jnode *list = NULL, **tail = &list;
	struct jplace at = p->t->place;
	struct jnode *first = parse_level(p, 0);
	for (;;) {
		struct jplace place = p->t->place;
		int op = take_comparison(p);
		if (op < 0)
			break;
		*tail = parse_wrap(p, JN_BINARY, place, NULL, parse_level(p, 0));
		(*tail)->op = (uint8_t)op;
		tail = &(*tail)->next;
	}
	if (list == NULL)
		return first;
	if (list->next != NULL)
		return parse_wrap(p, JN_CHAIN, at, first, list);
	list->a = first;
	return parse_finish(p, list);
}

static struct jnode *parse_not(struct parser *p)
{
	struct jplace at = p->t->place;
	if (!parse_take_word(p, "not"))
		return parse_comparison(p);
	parse_enter(p);
	struct jnode *n = parse_wrap(p, JN_NOT, at, parse_not(p), NULL);
	p->depth--;
	return n;
}

/* either: `or`, whose operands are `and`s; else `and`. */
static struct jnode *parse_logic(struct parser *p, bool either)
{
	struct jnode *n = either ? parse_logic(p, false) : parse_not(p);
	while (parse_is_word(p->t, either ? "or" : "and")) {
		struct jplace at = p->t++->place;
		struct jnode *right = either ? parse_logic(p, false) : parse_not(p);
		n = parse_wrap(p, either ? JN_OR : JN_AND, at, n, right);
	}
	return n;
}

struct jnode *parse_expr(struct parser *p)
{
	const struct junknown *mark = p->unknown;
	parse_enter(p);
	struct jnode *value = parse_logic(p, true);
	while (parse_is_word(p->t, "if")) {
		struct jnode *n = parse_new(p, JN_COND, p->t++->place);
		n->a = value;
		n->b = parse_logic(p, true);
		if (parse_take_word(p, "else"))
			n->c = parse_expr(p);
		value = parse_finish(p, n);
		parse_end_condition(p, mark);
	}
	p->depth--;
	return value;
}

/* ---- several ---- */

static bool ends_tuple(const struct parser *p)
{
	return p->t->kind == JT_STMT_END || p->t->kind == JT_OUT_END || parse_is_op(p, ")") || parse_is_op(p, "=") ||
	       parse_is_word(p->t, "in");
}

struct jnode *parse_items(struct parser *p, struct jnode *(*item)(struct parser *, bool), bool how)
{
	struct jplace at = p->t->place;
	struct jnode *list = item(p, how), **tail = &list->next;
	if (!parse_take_op(p, ","))
		return list;
	while (!ends_tuple(p)) {
		*tail = item(p, how);
		tail = &(*tail)->next;
		if (!parse_take_op(p, ","))
			break;
	}
	return parse_wrap(p, JN_TUPLE, at, list, NULL);
}

static struct jnode *parse_tuple_item(struct parser *p, bool conditional)
{
	return conditional ? parse_expr(p) : parse_logic(p, true);
}

struct jnode *parse_tuple(struct parser *p, bool conditional)
{
	parse_enter(p);
	struct jnode *n = parse_items(p, parse_tuple_item, conditional);
	p->depth--;
	return n;
}
