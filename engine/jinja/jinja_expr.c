/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to a syntax tree, the expressions: by recursive descent, one function per level of
 * precedence, the levels being Jinja's own:
 *
 *   if-else < or < and < not < comparison < + - < ~ < * / // % < ** < unary - + < . [] () | is
 *
 * What the evaluator does not know is refused here by name: a template either compiles and means
 * what Jinja says, or it does not compile. Bounds: nesting of the source (recursion here), depth of
 * the tree (recursion of the evaluator, chains like a + b + c included) and number of nodes.
 */
#include "engine/jinja/jinja_parse.h"

static int parse_unary(struct parser *p, bool filters, struct jnode **out);
static int parse_primary(struct parser *p, struct jnode **out);
static int parse_postfix(struct parser *p, struct jnode *n, struct jnode **out);

/* ---- arguments ---- */

/* Behind an open bracket up to its end; named: `name=value` may stand there. */
static int parse_args(struct parser *p, const char *close, bool named, struct jnode **list)
{
	struct jnode **tail = list;
	bool names = false;
	for (int n = 0; !parse_take_op(p, close); n++) {
		int rc = n > 0 ? parse_expect_op(p, ",") : 0;
		if (rc == 0 && n > 0 && parse_take_op(p, close))
			return 0;
		struct jplace at = p->t->place;
		bool has_name = p->t->kind == JT_NAME && p->t[1].kind == JT_OP && strcmp(p->t[1].op, "=") == 0;
		bool items = rc == 0 && named && parse_take_op(p, "*");
		if (items || (rc == 0 && named && parse_take_op(p, "**"))) {
			struct jnode *value = NULL;
			rc = parse_expr(p, &value);
			if (rc == 0)
				rc = parse_wrap(p, items ? JN_SPREAD : JN_SPREAD_NAMES, at, value, NULL, tail);
			names = names || !items;
		} else if (rc == 0 && named && has_name) {
			struct jnode *value = NULL;
			struct proto_str name;
			rc = parse_expect_name(p, &name);
			p->t += rc == 0;
			if (rc == 0)
				rc = parse_expr(p, &value);
			if (rc == 0)
				rc = parse_wrap(p, JN_KEYWORD, at, value, NULL, tail);
			if (rc == 0)
				(*tail)->text = name;
			names = true;
		} else if (rc == 0 && names) {
			return parse_fail(p, at, "an argument without a name behind one with a name");
		} else if (rc == 0) {
			rc = parse_expr(p, tail);
		}
		if (rc != 0)
			return rc;
		tail = &(*tail)->next;
	}
	return 0;
}

/* `map("trim")` and its like name a function by a text: it too is checked now. */
static int check_named_function(struct parser *p, const struct jfunction *fn, struct jplace at,
				const struct jnode *args)
{
	int index;
	bool tests;
	if (!jinja_is_filter_of_functions(fn, &index, &tests))
		return 0;
	for (; args != NULL && index > 0; args = args->next)
		index--;
	if (args == NULL || args->kind != JN_STRING)
		return 0;
	if (tests ? jinja_find_test(args->text) == NULL : jinja_find_filter(args->text) == NULL)
		return parse_note_unknown(p, at, tests ? "the test" : "the filter", args->text);
	return 0;
}

int parse_check_args(struct parser *p, const struct jfunction *fn, struct jplace at, const struct jnode *args)
{
	struct proto_str name;
	const char *wrong = jinja_wrong_args(fn, args, &name);
	if (wrong == NULL)
		return 0;
	if (name.n > 0)
		return parse_unknown(p, at, wrong, name);
	return parse_fail(p, at, "\"%s\" with %s", fn->name, wrong);
}

/* The name of a filter and its arguments behind it, applied to self. */
static int parse_filter(struct parser *p, struct jnode *self, struct jnode **out)
{
	struct jplace at = p->t->place;
	struct jnode *args = NULL;
	if (p->t->kind != JT_NAME)
		return parse_unexpected(p, "a filter");
	struct proto_str name = parse_text(p->t++);
	const struct jfunction *fn = jinja_find_filter(name);
	int rc = fn == NULL ? parse_note_unknown(p, at, "the filter", name) : 0;
	if (rc == 0 && parse_take_op(p, "("))
		rc = parse_args(p, ")", true, &args);
	if (rc == 0 && fn != NULL)
		rc = parse_check_args(p, fn, at, args);
	if (rc == 0 && fn != NULL)
		rc = check_named_function(p, fn, at, args);
	if (rc == 0)
		rc = parse_wrap(p, JN_FILTER, at, self, args, out);
	if (rc == 0) {
		(*out)->fn = fn;
		(*out)->text = name;
	}
	return rc;
}

int parse_filter_chain(struct parser *p, struct jnode **out)
{
	int rc = parse_filter(p, NULL, out);
	while (rc == 0 && parse_take_op(p, "|"))
		rc = parse_filter(p, *out, out);
	return rc;
}

/* A test may take its argument without brackets: `is divisibleby 3`. */
static bool begins_argument(const struct jtok *t)
{
	static const char *const not [] = {"else", "or", "and", "is", "if", "in", "not"};
	if (t->kind == JT_STRING || t->kind == JT_INT || t->kind == JT_FLOAT)
		return true;
	if (t->kind == JT_OP)
		return strcmp(t->op, "[") == 0 || strcmp(t->op, "{") == 0;
	for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++)
		if (parse_is_word(t, not [i]))
			return false;
	return t->kind == JT_NAME;
}

static int parse_test(struct parser *p, struct jnode *self, struct jnode **out)
{
	struct jplace at = p->t->place;
	bool negate = parse_take_word(p, "not");
	struct jnode *args = NULL;
	if (p->t->kind != JT_NAME)
		return parse_unexpected(p, "a test");
	struct proto_str name = parse_text(p->t++);
	const struct jfunction *fn = jinja_find_test(name);
	int rc = fn == NULL ? parse_note_unknown(p, at, "the test", name) : 0;
	if (rc != 0)
		return rc;
	if (parse_take_op(p, "(")) {
		rc = parse_args(p, ")", true, &args);
	} else if (begins_argument(p->t)) {
		rc = parse_enter(p);
		if (rc == 0)
			rc = parse_primary(p, &args);
		if (rc == 0)
			rc = parse_postfix(p, args, &args);
		p->depth--;
	}
	if (rc == 0 && fn != NULL)
		rc = parse_check_args(p, fn, at, args);
	if (rc == 0)
		rc = parse_wrap(p, JN_TEST, at, self, args, out);
	if (rc == 0) {
		(*out)->fn = fn;
		(*out)->text = name;
		(*out)->negate = negate;
	}
	return rc;
}

/* ---- primaries ---- */

static int parse_dict(struct parser *p, struct jplace at, struct jnode **out)
{
	struct jnode *list = NULL, **tail = &list;
	while (!parse_take_op(p, "}")) {
		int rc = list != NULL ? parse_expect_op(p, ",") : 0;
		if (rc == 0 && list != NULL && parse_take_op(p, "}"))
			break;
		if (rc == 0)
			rc = parse_expr(p, tail);
		if (rc == 0)
			rc = parse_expect_op(p, ":");
		if (rc == 0)
			rc = parse_expr(p, &(*tail)->next);
		if (rc != 0)
			return rc;
		tail = &(*tail)->next->next;
	}
	return parse_wrap(p, JN_DICT, at, list, NULL, out);
}

static int parse_bracketed(struct parser *p, struct jnode **out)
{
	int rc;
	struct jplace at = p->t->place;
	struct jnode *list = NULL;
	if (parse_take_op(p, "[")) {
		rc = parse_args(p, "]", false, &list);
		return rc != 0 ? rc : parse_wrap(p, JN_LIST, at, list, NULL, out);
	}
	if (parse_take_op(p, "{"))
		return parse_dict(p, at, out);
	p->t++;
	if (parse_take_op(p, ")"))
		return parse_wrap(p, JN_TUPLE, at, NULL, NULL, out);
	rc = parse_tuple(p, true, out);
	return rc != 0 ? rc : parse_expect_op(p, ")");
}

/* 'a' 'b' is one string. */
static int parse_string(struct parser *p, struct jnode **out)
{
	size_t n = 0;
	const struct jtok *end = p->t;
	int rc = parse_new(p, JN_STRING, p->t->place, out);
	for (; end->kind == JT_STRING; end++)
		n += end->n;
	if (rc != 0)
		return rc;
	(*out)->text = parse_text(p->t);
	if (end > p->t + 1) {
		char *at = jarena_alloc(p->arena, n);
		if (at == NULL)
			return parse_no_memory(p);
		(*out)->text = (struct proto_str){at, n};
		for (const struct jtok *t = p->t; t < end; t++) {
			memcpy(at, t->at, t->n);
			at += t->n;
		}
	}
	p->t = end;
	return 0;
}

static void note_use(struct parser *p, struct proto_str name)
{
	if (p->macro_uses == NULL)
		return;
	*p->macro_uses |= proto_str_is(name, "caller")    ? JMACRO_CALLER
			  : proto_str_is(name, "varargs") ? JMACRO_VARARGS
			  : proto_str_is(name, "kwargs")  ? JMACRO_KWARGS
							  : 0;
}

static int parse_name(struct parser *p, struct jnode **out)
{
	struct jplace at = p->t->place;
	bool yes = parse_is_word(p->t, "true") || parse_is_word(p->t, "True");
	int rc;
	if (yes || parse_is_word(p->t, "false") || parse_is_word(p->t, "False")) {
		p->t++;
		rc = parse_new(p, JN_BOOL, at, out);
		if (rc == 0)
			(*out)->i = yes;
		return rc;
	}
	if (parse_take_word(p, "none") || parse_take_word(p, "None"))
		return parse_new(p, JN_NONE, at, out);
	struct proto_str name;
	rc = parse_expect_name(p, &name);
	if (rc == 0)
		rc = parse_new(p, JN_NAME, at, out);
	if (rc == 0) {
		(*out)->text = name;
		note_use(p, name);
	}
	return rc;
}

static int parse_primary(struct parser *p, struct jnode **out)
{
	const struct jtok *t = p->t;
	int rc;
	switch (t->kind) {
	case JT_STRING: return parse_string(p, out);
	case JT_INT:
	case JT_FLOAT:
		rc = parse_new(p, t->kind == JT_INT ? JN_INT : JN_FLOAT, t->place, out);
		if (rc == 0) {
			(*out)->i = t->i;
			(*out)->f = t->f;
			p->t++;
		}
		return rc;
	case JT_NAME: return parse_name(p, out);
	default:
		if (parse_is_op(p, "(") || parse_is_op(p, "[") || parse_is_op(p, "{"))
			return parse_bracketed(p, out);
		return parse_unexpected(p, "an expression");
	}
}

/* ---- behind a primary: .name, [index], [slice], (arguments) ---- */

static int parse_dot(struct parser *p, struct jnode *self, struct jnode **out)
{
	struct jplace at = p->t->place;
	if (p->t->kind == JT_INT) {
		struct jnode *index;
		int rc = parse_new(p, JN_INT, at, &index);
		if (rc == 0)
			index->i = p->t++->i;
		return rc != 0 ? rc : parse_wrap(p, JN_INDEX, at, self, index, out);
	}
	if (p->t->kind != JT_NAME)
		return parse_unexpected(p, "a name");
	struct proto_str name = parse_text(p->t++);
	if (self->kind == JN_NAME && proto_str_is(self->text, "loop") && !jinja_loop_knows(name))
		return parse_unknown(p, at, "the loop's", name);
	int rc = parse_wrap(p, JN_ATTR, at, self, NULL, out);
	if (rc == 0)
		(*out)->text = name;
	return rc;
}

static int parse_subscript(struct parser *p, struct jplace at, struct jnode *self, struct jnode **out)
{
	int n_colons = 0, rc = 0;
	struct jnode *part[3] = {NULL, NULL, NULL};
	while (rc == 0 && !parse_is_op(p, "]")) {
		if (parse_take_op(p, ":")) {
			if (++n_colons > 2)
				return parse_unexpected(p, "]");
		} else if (part[n_colons] != NULL) {
			return parse_unexpected(p, "]");
		} else {
			rc = parse_expr(p, &part[n_colons]);
		}
	}
	if (rc != 0)
		return rc;
	p->t++;
	if (n_colons == 0 && part[0] == NULL)
		return parse_fail(p, at, "an index expected");
	struct jnode *n;
	rc = parse_new(p, n_colons > 0 ? JN_SLICE : JN_INDEX, at, &n);
	if (rc != 0)
		return rc;
	n->a = self;
	n->b = part[0];
	n->c = part[1];
	n->d = part[2];
	*out = n;
	return parse_finish(p, n);
}

/* A method must be one that some value has, with these arguments. */
static int check_method(struct parser *p, struct jplace at, struct proto_str name, const struct jnode *args)
{
	const struct jfunction *fn = jinja_find_method(name, JV_ABSENT);
	if (fn == NULL)
		return parse_note_unknown(p, at, "the method", name); /* when it runs: undefined */
	if (jinja_method_fits(name, args))
		return 0;
	return parse_check_args(p, fn, at, args);
}

static int parse_call(struct parser *p, struct jplace at, struct jnode *callee, struct jnode **out)
{
	struct jnode *args = NULL;
	int rc = parse_args(p, ")", true, &args);
	if (rc == 0 && callee->kind == JN_ATTR)
		rc = check_method(p, callee->place, callee->text, args);
	if (rc == 0)
		rc = parse_wrap(p, JN_CALL, at, callee, args, out);
	if (rc == 0 && callee->kind == JN_NAME)
		rc = parse_note_call(p, callee->text, *out);
	return rc;
}

static int parse_postfix(struct parser *p, struct jnode *n, struct jnode **out)
{
	int rc = 0;
	while (rc == 0) {
		struct jplace at = p->t->place;
		if (parse_take_op(p, "."))
			rc = parse_dot(p, n, &n);
		else if (parse_take_op(p, "["))
			rc = parse_subscript(p, at, n, &n);
		else if (parse_take_op(p, "("))
			rc = parse_call(p, n->place, n, &n);
		else
			break;
	}
	*out = n;
	return rc;
}

static int parse_filters(struct parser *p, struct jnode *n, struct jnode **out)
{
	int rc = 0;
	while (rc == 0) {
		if (parse_take_op(p, "|"))
			rc = parse_filter(p, n, &n);
		else if (parse_take_word(p, "is"))
			rc = parse_test(p, n, &n);
		else if (parse_is_op(p, "(")) {
			p->t++;
			rc = parse_call(p, n->place, n, &n);
		} else
			break;
	}
	*out = n;
	return rc;
}

static int parse_unary(struct parser *p, bool filters, struct jnode **out)
{
	struct jplace at = p->t->place;
	struct jnode *n = NULL;
	int rc;
	bool minus = parse_take_op(p, "-");
	if (minus || parse_take_op(p, "+")) {
		/* Filters bind weaker than the sign: -1|abs is (-1)|abs. */
		rc = parse_enter(p);
		if (rc == 0)
			rc = parse_unary(p, false, &n);
		if (rc == 0)
			rc = parse_wrap(p, minus ? JN_NEGATE : JN_PLUS, at, n, NULL, &n);
		p->depth--;
	} else {
		rc = parse_primary(p, &n);
	}
	if (rc == 0)
		rc = parse_postfix(p, n, &n);
	if (rc == 0 && filters)
		rc = parse_filters(p, n, &n);
	*out = n;
	return rc;
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
    {{{"**", JO_POW}}}, /* to Jinja it leans to the left */
};
enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };

static int parse_level(struct parser *p, int level, struct jnode **out)
{
	if (level == N_LEVELS)
		return parse_unary(p, true, out);
	int rc = parse_level(p, level + 1, out);
	while (rc == 0) {
		int k = 0;
		while (levels[level].ops[k].op != NULL && !parse_is_op(p, levels[level].ops[k].op))
			k++;
		if (levels[level].ops[k].op == NULL)
			break;
		struct jplace at = p->t++->place;
		struct jnode *right = NULL;
		rc = parse_level(p, level + 1, &right);
		if (rc == 0)
			rc = parse_wrap(p, JN_BINARY, at, *out, right, out);
		if (rc == 0)
			(*out)->op = (uint8_t)levels[level].ops[k].jop;
	}
	return rc;
}

/* -1: the token is no comparison. Takes it otherwise. */
static int take_comparison(struct parser *p)
{
	static const struct {
		const char *op;
		enum jop jop;
	} ops[] = {{"==", JO_EQ}, {"!=", JO_NE}, {"<", JO_LT}, {">", JO_GT}, {"<=", JO_LE}, {">=", JO_GE}};
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (parse_take_op(p, ops[i].op))
			return (int)ops[i].jop;
	if (parse_take_word(p, "in"))
		return JO_IN;
	if (parse_is_word(p->t, "not") && parse_is_word(p->t + 1, "in")) {
		p->t += 2;
		return JO_NOT_IN;
	}
	return -1;
}

/* One comparison is a JN_BINARY, several in a row a JN_CHAIN. */
static int parse_comparison(struct parser *p, struct jnode **out)
{
	struct jnode *first = NULL, *list = NULL, **tail = &list;
	struct jplace at = p->t->place;
	int rc = parse_level(p, 0, &first), op;
	*out = first;
	while (rc == 0) {
		struct jplace place = p->t->place;
		op = take_comparison(p);
		if (op < 0)
			break;
		struct jnode *right = NULL;
		rc = parse_level(p, 0, &right);
		if (rc == 0)
			rc = parse_wrap(p, JN_BINARY, place, NULL, right, tail);
		if (rc != 0)
			return rc;
		(*tail)->op = (uint8_t)op;
		tail = &(*tail)->next;
	}
	if (rc != 0 || list == NULL)
		return rc;
	if (list->next != NULL)
		return parse_wrap(p, JN_CHAIN, at, first, list, out);
	list->a = first;
	*out = list;
	return parse_finish(p, list);
}

static int parse_not(struct parser *p, struct jnode **out)
{
	struct jplace at = p->t->place;
	if (!parse_take_word(p, "not"))
		return parse_comparison(p, out);
	int rc = parse_enter(p);
	if (rc == 0)
		rc = parse_not(p, out);
	if (rc == 0)
		rc = parse_wrap(p, JN_NOT, at, *out, NULL, out);
	p->depth--;
	return rc;
}

static int parse_logic(struct parser *p, bool either, struct jnode **out)
{
	int rc = either ? parse_logic(p, false, out) : parse_not(p, out);
	while (rc == 0 && parse_is_word(p->t, either ? "or" : "and")) {
		struct jplace at = p->t++->place;
		struct jnode *right = NULL;
		rc = either ? parse_logic(p, false, &right) : parse_not(p, &right);
		if (rc == 0)
			rc = parse_wrap(p, either ? JN_OR : JN_AND, at, *out, right, out);
	}
	return rc;
}

int parse_expr(struct parser *p, struct jnode **out)
{
	const struct junknown *mark = p->unknown;
	int rc = parse_enter(p);
	if (rc == 0)
		rc = parse_logic(p, true, out);
	while (rc == 0 && parse_is_word(p->t, "if")) {
		struct jnode *n = NULL, *value = *out;
		rc = parse_new(p, JN_COND, p->t++->place, &n);
		if (rc == 0) {
			n->a = value;
			rc = parse_logic(p, true, &n->b);
		}
		if (rc == 0 && parse_take_word(p, "else"))
			rc = parse_expr(p, &n->c);
		if (rc == 0)
			rc = parse_finish(p, n);
		parse_end_condition(p, mark);
		*out = n;
	}
	p->depth--;
	return rc;
}

/* ---- several ---- */

static bool ends_tuple(const struct parser *p)
{
	return p->t->kind == JT_STMT_END || p->t->kind == JT_OUT_END || parse_is_op(p, ")") || parse_is_op(p, "=") ||
	       parse_is_word(p->t, "in");
}

int parse_items(struct parser *p, int (*item)(struct parser *, bool, struct jnode **), bool how, struct jnode **out)
{
	struct jnode **tail = out;
	struct jplace at = p->t->place;
	bool several = false;
	int rc;
	*out = NULL;
	while ((rc = item(p, how, tail)) == 0 && parse_take_op(p, ",")) {
		several = true;
		tail = &(*tail)->next;
		if (ends_tuple(p))
			break;
	}
	return rc == 0 && several ? parse_wrap(p, JN_TUPLE, at, *out, NULL, out) : rc;
}

static int parse_tuple_item(struct parser *p, bool conditional, struct jnode **out)
{
	return conditional ? parse_expr(p, out) : parse_logic(p, true, out);
}

int parse_tuple(struct parser *p, bool conditional, struct jnode **out)
{
	*out = NULL;
	int rc = parse_enter(p);
	if (rc == 0)
		rc = parse_items(p, parse_tuple_item, conditional, out);
	p->depth--;
	return rc;
}
