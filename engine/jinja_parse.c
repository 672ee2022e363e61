/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to a syntax tree, by recursive descent, one function per level of precedence:
 *
 *   if-else < or < and < not < comparison < + - < ~ < * / // % < unary - < . [] | is
 *
 * What the evaluator does not know is refused here by name: a template either compiles and means
 * what Jinja says, or it does not compile. Bounds: nesting of the source (recursion here), depth of
 * the tree (recursion of the evaluator, chains like a + b + c included) and number of nodes.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/jinja.h"

struct parser {
	struct jarena *arena;
	const struct jtok *t; /* the token at hand */
	size_t n_nodes;
	int depth;
	struct sl_err *err;
};

static __attribute__((format(printf, 3, 4))) int fail(struct parser *p, int line, const char *fmt,
						       ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return sl_errf(p->err, SL_EINVAL, "template line %d: %s", line, text);
}

static int unknown(struct parser *p, int line, const char *what, struct proto_str name)
{
	int n = name.n < 64 ? (int)name.n : 64;
	return sl_errf(p->err, SL_EUNSUPPORTED, "template line %d: %s \"%.*s\" is not supported", line,
		       what, n, name.at);
}

static int enter(struct parser *p)
{
	if (++p->depth > JINJA_MAX_DEPTH)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: nested deeper than %d", p->t->line,
			       JINJA_MAX_DEPTH);
	return 0;
}

static int new_node(struct parser *p, enum jnode_kind kind, int line, struct jnode **out)
{
	if (++p->n_nodes > JINJA_MAX_NODES)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: more than %d nodes", line,
			       JINJA_MAX_NODES);
	struct jnode *n = jarena_alloc(p->arena, sizeof(*n));
	if (n == NULL)
		return sl_errf(p->err, SL_ENOMEM, "template line %d: no memory", line);
	n->kind = (uint8_t)kind;
	n->line = line;
	*out = n;
	return 0;
}

static void deepen(struct jnode *n, const struct jnode *list)
{
	for (; list != NULL; list = list->next)
		if (n->depth <= list->depth)
			n->depth = (uint16_t)(list->depth + 1);
}

/* Closes a node: its depth follows from its children. */
static int finish(struct parser *p, struct jnode *n)
{
	deepen(n, n->a);
	deepen(n, n->b);
	deepen(n, n->c);
	deepen(n, n->d);
	if (n->depth > JINJA_MAX_TREE_DEPTH)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: an expression of more than %d parts",
			       n->line, JINJA_MAX_TREE_DEPTH);
	return 0;
}

static int wrap(struct parser *p, enum jnode_kind kind, int line, struct jnode *a, struct jnode *b,
		struct jnode **out)
{
	struct jnode *n = NULL;
	int rc = new_node(p, kind, line, &n);
	if (rc != 0)
		return rc;
	n->a = a;
	n->b = b;
	*out = n;
	return finish(p, n);
}

static struct proto_str text_of(const struct jtok *t)
{
	return (struct proto_str){t->at, t->n};
}

static bool is_op(const struct parser *p, const char *op)
{
	return p->t->kind == JT_OP && strcmp(p->t->op, op) == 0;
}

static bool text_is(struct proto_str s, const char *word)
{
	return s.n == strlen(word) && memcmp(s.at, word, s.n) == 0;
}

static bool is_word(const struct jtok *t, const char *word)
{
	return t->kind == JT_NAME && text_is(text_of(t), word);
}

static bool take_op(struct parser *p, const char *op)
{
	bool is = is_op(p, op);
	p->t += is;
	return is;
}

static bool take_word(struct parser *p, const char *word)
{
	bool is = is_word(p->t, word);
	p->t += is;
	return is;
}

static int unexpected(struct parser *p, const char *wanted)
{
	const struct jtok *t = p->t;
	const char *what = NULL;
	switch (t->kind) {
	case JT_EOF:
		what = "the end of the template";
		break;
	case JT_OUT_END:
		what = "}}";
		break;
	case JT_STMT_END:
		what = "%}";
		break;
	case JT_STRING:
		what = "a string";
		break;
	default:
		break;
	}
	if (what != NULL)
		return fail(p, t->line, "%s expected, not %s", wanted, what);
	return fail(p, t->line, "%s expected, not \"%.*s\"", wanted, t->n < 40 ? (int)t->n : 40, t->at);
}

static int expect_op(struct parser *p, const char *op)
{
	return take_op(p, op) ? 0 : unexpected(p, op);
}

static int expect_name(struct parser *p, struct proto_str *out)
{
	static const char *const reserved[] = {"and", "or", "not", "in",   "is",   "if",  "else", "elif",
					       "for", "true", "false", "none", "True", "False", "None"};
	if (p->t->kind != JT_NAME)
		return unexpected(p, "a name");
	*out = text_of(p->t);
	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (text_is(*out, reserved[i]))
			return unexpected(p, "a name");
	p->t++;
	return 0;
}

static int parse_expr(struct parser *p, struct jnode **out);
static int parse_unary(struct parser *p, bool filters, struct jnode **out);

/* ---- calls, filters, tests ---- */

/* Arguments behind an open bracket up to its end. */
static int parse_args(struct parser *p, const char *close, struct jnode **list, int *n)
{
	struct jnode **tail = list;
	*n = 0;
	while (!take_op(p, close)) {
		int rc = *n > 0 ? expect_op(p, ",") : 0;
		if (rc == 0 && *n > 0 && take_op(p, close))
			return 0;
		if (rc != 0)
			return rc;
		if (p->t->kind == JT_NAME && p->t[1].kind == JT_OP && strcmp(p->t[1].op, "=") == 0)
			return unknown(p, p->t->line, "the keyword argument", text_of(p->t));
		rc = parse_expr(p, tail);
		if (rc != 0)
			return rc;
		tail = &(*tail)->next;
		++*n;
	}
	return 0;
}

static int apply(struct parser *p, enum jnode_kind kind, const char *what,
		 const struct jfunction *table, struct proto_str name, int line, bool has_args,
		 struct jnode *self, struct jnode **out)
{
	int fn = jinja_find_function(table, name);
	if (fn < 0)
		return unknown(p, line, what, name);
	struct jnode *args = NULL;
	int n = 0, rc = has_args ? parse_args(p, ")", &args, &n) : 0;
	if (rc != 0)
		return rc;
	if (n < table[fn].min_args || n > table[fn].max_args)
		return fail(p, line, "%s \"%s\" with %d arguments", what, table[fn].name, n);
	rc = wrap(p, kind, line, self, args, out);
	if (rc == 0)
		(*out)->op = (uint8_t)fn;
	return rc;
}

static int parse_namespace(struct parser *p, int line, struct jnode **out)
{
	struct jnode *list = NULL, **tail = &list;
	while (!take_op(p, ")")) {
		struct proto_str name;
		int rc = list != NULL ? expect_op(p, ",") : 0;
		if (rc == 0)
			rc = expect_name(p, &name);
		if (rc == 0)
			rc = expect_op(p, "=");
		if (rc == 0)
			rc = parse_expr(p, tail);
		struct jnode *wrapped;
		/* A node of its own carries the name: the value's may be shared by its parents. */
		if (rc == 0)
			rc = wrap(p, JN_SET, line, *tail, NULL, &wrapped);
		if (rc != 0)
			return rc;
		wrapped->text = name;
		*tail = wrapped;
		tail = &wrapped->next;
	}
	return wrap(p, JN_NAMESPACE, line, list, NULL, out);
}

static int parse_call(struct parser *p, struct proto_str name, int line, struct jnode **out)
{
	struct jnode *args = NULL;
	int n = 0;
	if (text_is(name, "namespace"))
		return parse_namespace(p, line, out);
	bool raises = text_is(name, "raise_exception");
	if (!raises && !text_is(name, "range"))
		return unknown(p, line, "the function", name);
	int rc = parse_args(p, ")", &args, &n);
	if (rc == 0 && (n < 1 || n > (raises ? 1 : 3)))
		return fail(p, line, "\"%.*s\" with %d arguments", (int)name.n, name.at, n);
	return rc != 0 ? rc : wrap(p, raises ? JN_RAISE : JN_RANGE, line, args, NULL, out);
}

static int parse_filter(struct parser *p, struct jnode *self, struct jnode **out)
{
	int line = p->t->line;
	struct proto_str name;
	int rc = expect_name(p, &name);
	return rc != 0 ? rc : apply(p, JN_FILTER, "the filter", jinja_filters, name, line,
				    take_op(p, "("), self, out);
}

static int parse_test(struct parser *p, struct jnode *self, struct jnode **out)
{
	int line = p->t->line;
	bool negate = take_word(p, "not");
	if (p->t->kind != JT_NAME)
		return unexpected(p, "a test");
	struct proto_str name = text_of(p->t++);
	int rc = apply(p, JN_TEST, "the test", jinja_tests, name, line, take_op(p, "("), self, out);
	if (rc == 0)
		(*out)->negate = negate;
	return rc;
}

/* ---- primaries ---- */

static int parse_dict(struct parser *p, int line, struct jnode **out)
{
	struct jnode *list = NULL, **tail = &list;
	while (!take_op(p, "}")) {
		int rc = list != NULL ? expect_op(p, ",") : 0;
		if (rc == 0 && list != NULL && take_op(p, "}"))
			break;
		if (rc == 0)
			rc = parse_expr(p, tail);
		if (rc == 0)
			rc = expect_op(p, ":");
		if (rc == 0)
			rc = parse_expr(p, &(*tail)->next);
		if (rc != 0)
			return rc;
		tail = &(*tail)->next->next;
	}
	return wrap(p, JN_DICT, line, list, NULL, out);
}

static int parse_bracketed(struct parser *p, int line, struct jnode **out)
{
	int rc, n;
	struct jnode *list = NULL;
	if (take_op(p, "[")) {
		rc = parse_args(p, "]", &list, &n);
		return rc != 0 ? rc : wrap(p, JN_LIST, line, list, NULL, out);
	}
	if (take_op(p, "{"))
		return parse_dict(p, line, out);
	p->t++;
	if (is_op(p, ")"))
		return unknown(p, line, "the construct", (struct proto_str){"tuple", 5});
	rc = parse_expr(p, out);
	if (rc == 0 && is_op(p, ","))
		return unknown(p, line, "the construct", (struct proto_str){"tuple", 5});
	return rc != 0 ? rc : expect_op(p, ")");
}

/* 'a' 'b' is one string. */
static int parse_string(struct parser *p, struct jnode **out)
{
	size_t n = 0;
	const struct jtok *end = p->t;
	int rc = new_node(p, JN_STRING, p->t->line, out);
	for (; end->kind == JT_STRING; end++)
		n += end->n;
	if (rc != 0)
		return rc;
	(*out)->text = text_of(p->t);
	if (end > p->t + 1) {
		char *at = jarena_alloc(p->arena, n);
		if (at == NULL)
			return sl_errf(p->err, SL_ENOMEM, "template line %d: no memory", p->t->line);
		(*out)->text = (struct proto_str){at, n};
		for (const struct jtok *t = p->t; t < end; t++) {
			memcpy(at, t->at, t->n);
			at += t->n;
		}
	}
	p->t = end;
	return 0;
}

static int parse_name(struct parser *p, struct jnode **out)
{
	int line = p->t->line, rc;
	bool yes = is_word(p->t, "true") || is_word(p->t, "True");
	if (yes || is_word(p->t, "false") || is_word(p->t, "False")) {
		p->t++;
		rc = new_node(p, JN_BOOL, line, out);
		if (rc == 0)
			(*out)->i = yes;
		return rc;
	}
	if (take_word(p, "none") || take_word(p, "None"))
		return new_node(p, JN_NONE, line, out);
	struct proto_str name;
	rc = expect_name(p, &name);
	if (rc != 0)
		return rc;
	if (take_op(p, "("))
		return parse_call(p, name, line, out);
	rc = new_node(p, JN_NAME, line, out);
	if (rc == 0)
		(*out)->text = name;
	return rc;
}

static int parse_primary(struct parser *p, struct jnode **out)
{
	const struct jtok *t = p->t;
	int rc;
	switch (t->kind) {
	case JT_STRING:
		return parse_string(p, out);
	case JT_INT:
	case JT_FLOAT:
		rc = new_node(p, t->kind == JT_INT ? JN_INT : JN_FLOAT, t->line, out);
		if (rc == 0) {
			(*out)->i = t->i;
			(*out)->f = t->f;
			p->t++;
		}
		return rc;
	case JT_NAME:
		return parse_name(p, out);
	default:
		if (is_op(p, "(") || is_op(p, "[") || is_op(p, "{"))
			return parse_bracketed(p, t->line, out);
		return unexpected(p, "an expression");
	}
}

/* ---- behind a primary: .name, .method(), [index], [slice] ---- */

/* What Python's own attributes of a dictionary hide; only their calls are known here. */
static bool is_dict_method(struct proto_str name)
{
	static const char *const names[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
					    "pop",   "popitem", "setdefault", "update", "values"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (text_is(name, names[i]))
			return true;
	return false;
}

static int parse_dot(struct parser *p, struct jnode *self, struct jnode **out)
{
	int line = p->t->line;
	if (p->t->kind != JT_NAME)
		return unexpected(p, "a name");
	struct proto_str name = text_of(p->t++);
	if (take_op(p, "("))
		return apply(p, JN_METHOD, "the method", jinja_methods, name, line, true, self, out);
	if (self->kind == JN_NAME && text_is(self->text, "loop") && !jinja_loop_knows(name))
		return unknown(p, line, "the loop's", name);
	if (is_dict_method(name))
		return unknown(p, line, "without a call, the attribute", name);
	int rc = wrap(p, JN_ATTR, line, self, NULL, out);
	if (rc == 0)
		(*out)->text = name;
	return rc;
}

static int parse_subscript(struct parser *p, struct jnode *self, struct jnode **out)
{
	int line = p->t->line, n_colons = 0, rc = 0;
	struct jnode *part[3] = {NULL, NULL, NULL};
	while (rc == 0 && !is_op(p, "]")) {
		if (take_op(p, ":")) {
			if (++n_colons > 2)
				return unexpected(p, "]");
		} else if (part[n_colons] != NULL) {
			return unexpected(p, "]");
		} else {
			rc = parse_expr(p, &part[n_colons]);
		}
	}
	if (rc != 0)
		return rc;
	p->t++;
	if (n_colons == 0 && part[0] == NULL)
		return fail(p, line, "an index expected");
	struct jnode *n;
	rc = new_node(p, n_colons > 0 ? JN_SLICE : JN_INDEX, line, &n);
	if (rc != 0)
		return rc;
	*n = (struct jnode){.kind = n->kind, .line = line, .a = self, .b = part[0], .c = part[1],
			    .d = part[2]};
	*out = n;
	return finish(p, n);
}

static int parse_postfix(struct parser *p, bool filters, struct jnode *n, struct jnode **out)
{
	int rc = 0;
	while (rc == 0) {
		if (take_op(p, "."))
			rc = parse_dot(p, n, &n);
		else if (take_op(p, "["))
			rc = parse_subscript(p, n, &n);
		else if (is_op(p, "("))
			return unknown(p, p->t->line, "the construct",
				       (struct proto_str){"call of a value", 15});
		else
			break;
	}
	while (rc == 0 && filters) {
		if (take_op(p, "|"))
			rc = parse_filter(p, n, &n);
		else if (take_word(p, "is"))
			rc = parse_test(p, n, &n);
		else
			break;
	}
	*out = n;
	return rc;
}

static int parse_unary(struct parser *p, bool filters, struct jnode **out)
{
	int line = p->t->line, rc;
	struct jnode *n = NULL;
	if (is_op(p, "+"))
		return unknown(p, line, "the operator", (struct proto_str){"unary +", 7});
	if (take_op(p, "-")) {
		/* Filters bind weaker than the sign: -1|abs is (-1)|abs. */
		rc = enter(p);
		if (rc == 0)
			rc = parse_unary(p, false, &n);
		if (rc == 0)
			rc = wrap(p, JN_NEGATE, line, n, NULL, &n);
		p->depth--;
	} else {
		rc = parse_primary(p, &n);
	}
	if (rc == 0)
		rc = parse_postfix(p, filters, n, out);
	if (rc == 0 && is_op(p, "**"))
		return unknown(p, line, "the operator", (struct proto_str){"**", 2});
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
};
enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };

static int parse_level(struct parser *p, int level, struct jnode **out)
{
	if (level == N_LEVELS)
		return parse_unary(p, true, out);
	int rc = parse_level(p, level + 1, out);
	while (rc == 0) {
		int k = 0;
		while (levels[level].ops[k].op != NULL && !is_op(p, levels[level].ops[k].op))
			k++;
		if (levels[level].ops[k].op == NULL)
			break;
		int line = p->t++->line;
		struct jnode *right = NULL;
		rc = parse_level(p, level + 1, &right);
		if (rc == 0)
			rc = wrap(p, JN_BINARY, line, *out, right, out);
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
		if (take_op(p, ops[i].op))
			return (int)ops[i].jop;
	if (take_word(p, "in"))
		return JO_IN;
	if (is_word(p->t, "not") && is_word(p->t + 1, "in")) {
		p->t += 2;
		return JO_NOT_IN;
	}
	return -1;
}

static int parse_comparison(struct parser *p, struct jnode **out)
{
	int rc = parse_level(p, 0, out);
	if (rc != 0)
		return rc;
	int line = p->t->line, op = take_comparison(p);
	if (op < 0)
		return 0;
	struct jnode *right = NULL;
	rc = parse_level(p, 0, &right);
	if (rc == 0)
		rc = wrap(p, JN_BINARY, line, *out, right, out);
	if (rc != 0)
		return rc;
	(*out)->op = (uint8_t)op;
	if (take_comparison(p) >= 0)
		return unknown(p, line, "the construct",
			       (struct proto_str){"chained comparison", 18});
	return 0;
}

static int parse_not(struct parser *p, struct jnode **out)
{
	int line = p->t->line;
	if (!take_word(p, "not"))
		return parse_comparison(p, out);
	int rc = enter(p);
	if (rc == 0)
		rc = parse_not(p, out);
	if (rc == 0)
		rc = wrap(p, JN_NOT, line, *out, NULL, out);
	p->depth--;
	return rc;
}

static int parse_logic(struct parser *p, bool either, struct jnode **out)
{
	int rc = either ? parse_logic(p, false, out) : parse_not(p, out);
	while (rc == 0 && is_word(p->t, either ? "or" : "and")) {
		int line = p->t++->line;
		struct jnode *right = NULL;
		rc = either ? parse_logic(p, false, &right) : parse_not(p, &right);
		if (rc == 0)
			rc = wrap(p, either ? JN_OR : JN_AND, line, *out, right, out);
	}
	return rc;
}

static int parse_expr(struct parser *p, struct jnode **out)
{
	int rc = enter(p);
	if (rc == 0)
		rc = parse_logic(p, true, out);
	while (rc == 0 && is_word(p->t, "if")) {
		struct jnode *n = NULL, *value = *out;
		rc = new_node(p, JN_COND, p->t++->line, &n);
		if (rc == 0) {
			n->a = value;
			rc = parse_logic(p, true, &n->b);
		}
		if (rc == 0 && take_word(p, "else"))
			rc = parse_expr(p, &n->c);
		if (rc == 0)
			rc = finish(p, n);
		*out = n;
	}
	p->depth--;
	return rc;
}

/* ---- statements ---- */

static int parse_body(struct parser *p, const char *const *ends, struct jnode **out);

static int end_statement(struct parser *p)
{
	if (p->t->kind != JT_STMT_END)
		return unexpected(p, "%}");
	p->t++;
	return 0;
}

/* `{% word %}` at hand: takes it. */
static int expect_statement(struct parser *p, const char *word)
{
	if (p->t->kind != JT_STMT_BEGIN || !is_word(p->t + 1, word))
		return unexpected(p, word);
	p->t += 2;
	return end_statement(p);
}

static bool at_statement(const struct parser *p, const char *word)
{
	return p->t->kind == JT_STMT_BEGIN && is_word(p->t + 1, word);
}

static int parse_if(struct parser *p, int line, struct jnode **out)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct jnode *n, **tail;
	int rc = new_node(p, JN_IF, line, &n);
	if (rc != 0)
		return rc;
	*out = n;
	tail = &n->a;
	bool last = false;
	for (;;) {
		struct jnode *branch;
		rc = new_node(p, JN_BRANCH, p->t->line, &branch);
		if (rc == 0 && !last)
			rc = parse_expr(p, &branch->a);
		if (rc == 0)
			rc = end_statement(p);
		if (rc == 0)
			rc = parse_body(p, last ? ends + 2 : ends, &branch->b);
		if (rc == 0)
			rc = finish(p, branch);
		if (rc != 0)
			return rc;
		*tail = branch;
		tail = &branch->next;
		if (at_statement(p, "endif"))
			break;
		last = is_word(p->t + 1, "else");
		p->t += 2;
	}
	rc = finish(p, n);
	return rc != 0 ? rc : expect_statement(p, "endif");
}

static int parse_for(struct parser *p, int line, struct jnode **out)
{
	static const char *const ends[] = {"else", "endfor", NULL};
	struct jnode *n;
	int rc = new_node(p, JN_FOR, line, &n);
	if (rc != 0)
		return rc;
	*out = n;
	rc = expect_name(p, &n->text);
	if (rc == 0 && take_op(p, ","))
		rc = expect_name(p, &n->text2);
	if (rc == 0 && !take_word(p, "in"))
		return unexpected(p, "in");
	/* Not parse_expr: an `if` behind the list would filter the loop. */
	if (rc == 0)
		rc = parse_logic(p, true, &n->a);
	if (rc == 0 && (is_word(p->t, "if") || is_word(p->t, "recursive")))
		return unknown(p, p->t->line, "behind a loop's list", text_of(p->t));
	if (rc == 0)
		rc = end_statement(p);
	if (rc == 0)
		rc = parse_body(p, ends, &n->b);
	if (rc == 0 && at_statement(p, "else")) {
		rc = expect_statement(p, "else");
		if (rc == 0)
			rc = parse_body(p, ends + 1, &n->c);
	}
	if (rc == 0)
		rc = finish(p, n);
	return rc != 0 ? rc : expect_statement(p, "endfor");
}

static int parse_set(struct parser *p, int line, struct jnode **out)
{
	struct jnode *n;
	int rc = new_node(p, JN_SET, line, &n);
	if (rc != 0)
		return rc;
	*out = n;
	rc = expect_name(p, &n->text);
	if (rc == 0 && take_op(p, "."))
		rc = expect_name(p, &n->text2);
	if (rc == 0 && (p->t->kind == JT_STMT_END || is_op(p, "|")))
		return unknown(p, line, "the statement", (struct proto_str){"set with a body", 15});
	if (rc == 0 && is_op(p, ","))
		return unknown(p, line, "the construct", (struct proto_str){"set of several names", 20});
	if (rc == 0)
		rc = expect_op(p, "=");
	if (rc == 0)
		rc = parse_expr(p, &n->a);
	if (rc == 0 && is_op(p, ","))
		return unknown(p, line, "the construct", (struct proto_str){"tuple", 5});
	if (rc == 0)
		rc = finish(p, n);
	return rc != 0 ? rc : end_statement(p);
}

static int parse_statement(struct parser *p, struct jnode **out)
{
	int line = p->t->line;
	p->t++;
	if (take_word(p, "if"))
		return parse_if(p, line, out);
	if (take_word(p, "for"))
		return parse_for(p, line, out);
	if (take_word(p, "set"))
		return parse_set(p, line, out);
	if (p->t->kind != JT_NAME)
		return unexpected(p, "a statement");
	static const char *const closers[] = {"elif", "else", "endif", "endfor"};
	for (size_t i = 0; i < sizeof(closers) / sizeof(closers[0]); i++)
		if (is_word(p->t, closers[i]))
			return fail(p, line, "\"%s\" without its beginning", closers[i]);
	return unknown(p, line, "the statement", text_of(p->t));
}

static int parse_output(struct parser *p, struct jnode **out)
{
	struct jnode *value = NULL;
	int line = p->t++->line, rc = parse_expr(p, &value);
	if (rc == 0 && is_op(p, ","))
		return unknown(p, line, "the construct", (struct proto_str){"tuple", 5});
	if (rc == 0 && p->t->kind != JT_OUT_END)
		return unexpected(p, "}}");
	if (rc != 0)
		return rc;
	p->t++;
	return wrap(p, JN_OUT, line, value, NULL, out);
}

/* Up to one of the statements in ends (not taken), or with no ends to the end of the template. */
static int parse_body(struct parser *p, const char *const *ends, struct jnode **out)
{
	int rc = enter(p);
	struct jnode **tail = out;
	while (rc == 0 && p->t->kind != JT_EOF) {
		if (p->t->kind == JT_TEXT) {
			rc = new_node(p, JN_TEXT, p->t->line, tail);
			if (rc == 0)
				(*tail)->text = text_of(p->t++);
		} else if (p->t->kind == JT_OUT_BEGIN) {
			rc = parse_output(p, tail);
		} else {
			for (const char *const *e = ends; e != NULL && *e != NULL; e++)
				if (is_word(p->t + 1, *e)) {
					p->depth--;
					return 0;
				}
			rc = parse_statement(p, tail);
		}
		if (rc == 0)
			tail = &(*tail)->next;
	}
	p->depth--;
	if (rc == 0 && ends != NULL) {
		const char *last = *ends;
		for (; *ends != NULL; ends++)
			last = *ends;
		return unexpected(p, last);
	}
	return rc;
}

int jinja_parse(struct jarena *a, const struct jtok *toks, struct jnode **out, struct sl_err *err)
{
	struct parser p = {.arena = a, .t = toks, .err = err};
	*out = NULL;
	return parse_body(&p, NULL, out);
}
