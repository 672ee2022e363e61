/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to a syntax tree: the statements and the template as a whole (jinja_expr.c describes how).
 *
 * Names that are called must be macros or other values of the template, or functions that the interpreter knows. A
 * macro may be called before it is defined, so this is checked last.
 */
#include "engine/jinja/jinja_parse.h"

static struct jnode *parse_body(struct parser *p, const char *const *ends);

static void end_statement(struct parser *p)
{
	if (p->t->kind != JT_STMT_END)
		parse_unexpected(p, "%}");
	p->t++;
}

static bool at_statement(const struct parser *p, const char *word)
{
	return p->t->kind == JT_STMT_BEGIN && parse_is_word(p->t + 1, word);
}

/* `{% word %}`: takes it. */
static void expect_statement(struct parser *p, const char *word)
{
	if (!at_statement(p, word))
		parse_unexpected(p, word);
	p->t += 2;
	end_statement(p);
}

/* The end of this statement, its body and `{% end %}`. */
static struct jnode *parse_block(struct parser *p, const char *end)
{
	const char *const ends[] = {end, NULL};
	end_statement(p);
	struct jnode *body = parse_body(p, ends);
	expect_statement(p, end);
	return body;
}

/* A block that is a scope of its own; unknown names since mark belong to it. loops: jumps reach the loops around it. */
static struct jnode *parse_scope(struct parser *p, const char *end, const struct junknown *mark, bool loops)
{
	int around = p->loops;
	if (!loops)
		p->loops = 0;
	struct jnode *body = parse_block(p, end);
	parse_end_scope(p, mark);
	p->loops = around;
	return body;
}

/* ---- what set and for assign to ---- */

/* attributes: `space.name` is allowed. */
static struct jnode *parse_target(struct parser *p, bool attributes)
{
	struct jplace at = p->t->place;
	if (parse_take_op(p, "(")) {
		parse_enter(p);
		struct jnode *several = parse_items(p, parse_target, attributes);
		p->depth--;
		parse_expect_op(p, ")");
		return several;
	}
	struct jnode *n = parse_named(p, JN_NAME, at, parse_expect_name(p), NULL);
	if (attributes && parse_take_op(p, "."))
		return parse_named(p, JN_ATTR, at, parse_expect_name(p), n);
	parse_bind(p, n->text);
	return n;
}

/* ---- statements ---- */

static struct jnode *parse_if(struct parser *p, struct jplace at)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	const struct junknown *mark = p->unknown;
	struct jnode *n = parse_new(p, JN_IF, at), **tail = &n->a;
	for (bool last = false;; tail = &(*tail)->next) {
		struct jnode *branch = *tail = parse_new(p, JN_BRANCH, p->t->place);
		if (!last)
			branch->a = parse_tuple(p, true);
		end_statement(p);
		branch->b = parse_body(p, last ? ends + 2 : ends);
		parse_finish(p, branch);
		if (at_statement(p, "endif"))
			break;
		last = parse_is_word(p->t + 1, "else");
		p->t += 2;
	}
	parse_end_condition(p, mark);
	parse_finish(p, n);
	expect_statement(p, "endif");
	return n;
}

/* message.content, message['content'] or content. */
static bool is_content(const struct jnode *n)
{
	if (n->kind == JN_INDEX)
		n = n->b;
	return (n->kind == JN_ATTR || n->kind == JN_NAME || n->kind == JN_STRING) && proto_str_is(n->text, "content");
}

static struct jnode *parse_for(struct parser *p, struct jplace at)
{
	static const char *const ends[] = {"else", "endfor", NULL};
	struct jnode *n = parse_new(p, JN_FOR, at);
	n->d = parse_new(p, JN_BODIES, at);
	n->a = parse_items(p, parse_target, false);
	if (!parse_take_word(p, "in"))
		parse_unexpected(p, "in");
	n->b = parse_tuple(p, false);
	if (is_content(n->b))
		p->loops_content = true;
	const struct junknown *mark = p->unknown;
	if (parse_take_word(p, "if"))
		n->c = parse_expr(p);
	n->i = parse_take_word(p, "recursive");
	end_statement(p);
	p->loops++;
	n->d->a = parse_body(p, ends);
	p->loops--;
	if (at_statement(p, "else")) {
		expect_statement(p, "else");
		n->d->b = parse_body(p, ends + 1);
	}
	parse_end_scope(p, mark);
	parse_finish(p, n->d);
	parse_finish(p, n);
	expect_statement(p, "endfor");
	return n;
}

/* The text of a block, through filters or none: to a target, or to the output without one. */
static struct jnode *captured(struct parser *p, struct jplace at, struct jnode *target, struct jnode *filters,
			      struct jnode *body)
{
	struct jnode *n = parse_wrap(p, target != NULL ? JN_CAPTURE : JN_FILTERED, at, target, body);
	n->c = filters;
	return parse_finish(p, n);
}

static struct jnode *parse_set(struct parser *p, struct jplace at)
{
	struct jnode *target = parse_items(p, parse_target, true), *filters = NULL;
	if (parse_take_op(p, "=")) {
		struct jnode *n = parse_wrap(p, JN_SET, at, target, parse_tuple(p, true));
		end_statement(p);
		return n;
	}
	if (target->kind == JN_TUPLE)
		parse_unexpected(p, "=");
	const struct junknown *mark = p->unknown;
	if (parse_take_op(p, "|"))
		filters = parse_filter_chain(p);
	return captured(p, at, target, filters, parse_scope(p, "endset", mark, true));
}

static struct jnode *parse_filter_block(struct parser *p, struct jplace at)
{
	const struct junknown *mark = p->unknown;
	struct jnode *filters = parse_filter_chain(p);
	return captured(p, at, NULL, filters, parse_scope(p, "endfilter", mark, true));
}

static struct jnode *parse_parameters(struct parser *p)
{
	struct jnode *list = NULL, **tail = &list;
	bool defaults = false;
	for (int n = 0; parse_next(p, n, ")"); n++, tail = &(*tail)->next) {
		struct jplace at = p->t->place;
		struct jnode *value = NULL;
		struct proto_str name = parse_expect_name(p);
		parse_bind(p, name);
		if (parse_take_op(p, "=")) {
			value = parse_expr(p);
			defaults = true;
		} else if (defaults) {
			parse_fail(p, at, "a parameter without a default behind one with a default");
		}
		*tail = parse_named(p, JN_KEYWORD, at, name, value);
	}
	return list;
}

/* Parameters (if there are any) or the body up to end of the macro n. */
static void parse_macro_part(struct parser *p, struct jnode *n, bool parameters, const char *end)
{
	int64_t *uses = p->macro_uses;
	const struct junknown *mark = p->unknown;
	int loops = p->loops;
	p->macro_uses = &n->i;
	p->loops = 0;
	if (parameters)
		n->a = parse_parameters(p);
	if (end != NULL)
		n->b = parse_block(p, end);
	parse_end_scope(p, mark);
	p->loops = loops;
	p->macro_uses = uses;
	parse_finish(p, n);
}

static struct jnode *parse_macro(struct parser *p, struct jplace at)
{
	struct proto_str name = parse_expect_name(p);
	parse_bind(p, name);
	parse_expect_op(p, "(");
	struct jnode *n = parse_new(p, JN_MACRO, at);
	n->text = name;
	parse_macro_part(p, n, true, "endmacro");
	return n;
}

/* The body of a call block belongs to the macro that is its caller, but follows the call. */
static struct jnode *parse_call_block(struct parser *p, struct jplace at)
{
	bool parameters = parse_take_op(p, "(");
	struct jnode *macro = parse_new(p, JN_MACRO, at);
	macro->text = jname("caller");
	parse_macro_part(p, macro, parameters, NULL);
	struct jnode *call = parse_expr(p);
	if (call->kind != JN_CALL)
		parse_fail(p, at, "a call expected");
	parse_macro_part(p, macro, false, "endcall");
	return parse_wrap(p, JN_CALL_BLOCK, at, call, macro);
}

static struct jnode *parse_with(struct parser *p, struct jplace at)
{
	struct jnode *sets = NULL, **tail = &sets;
	for (int n = 0; p->t->kind != JT_STMT_END; n++, tail = &(*tail)->next) {
		struct jplace place = p->t->place;
		if (n > 0)
			parse_expect_op(p, ",");
		struct jnode *target = parse_target(p, false);
		parse_expect_op(p, "=");
		*tail = parse_wrap(p, JN_SET, place, target, parse_expr(p));
	}
	return parse_wrap(p, JN_WITH, at, sets, parse_scope(p, "endwith", p->unknown, true));
}

/* The model's own text, marked for training: here only a scope. */
static struct jnode *parse_generation(struct parser *p, struct jplace at)
{
	return parse_wrap(p, JN_WITH, at, NULL, parse_scope(p, "endgeneration", p->unknown, false));
}

static struct jnode *parse_jump(struct parser *p, struct jplace at, enum jnode_kind kind)
{
	if (p->loops == 0)
		parse_fail(p, at, "\"%s\" outside of a loop", kind == JN_BREAK ? "break" : "continue");
	struct jnode *n = parse_new(p, kind, at);
	end_statement(p);
	return n;
}

static struct jnode *parse_break(struct parser *p, struct jplace at) { return parse_jump(p, at, JN_BREAK); }

static struct jnode *parse_continue(struct parser *p, struct jplace at) { return parse_jump(p, at, JN_CONTINUE); }

static struct jnode *parse_do(struct parser *p, struct jplace at)
{
	struct jnode *n = parse_wrap(p, JN_DO, at, parse_tuple(p, true), NULL);
	end_statement(p);
	return n;
}

static struct jnode *parse_statement(struct parser *p)
{
	static const struct {
		const char *word;
		struct jnode *(*parse)(struct parser *, struct jplace);
	} statements[] = {{"if", parse_if},
			  {"for", parse_for},
			  {"set", parse_set},
			  {"macro", parse_macro},
			  {"call", parse_call_block},
			  {"filter", parse_filter_block},
			  {"with", parse_with},
			  {"generation", parse_generation},
			  {"break", parse_break},
			  {"continue", parse_continue},
			  {"do", parse_do}};
	static const char *const closers[] = {"elif",      "else",    "endif",         "endfor",  "endset", "endmacro",
					      "endfilter", "endcall", "endgeneration", "endwith", "endraw", NULL};
	struct jplace at = p->t++->place;
	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++)
		if (parse_take_word(p, statements[i].word))
			return statements[i].parse(p, at);
	if (p->t->kind != JT_NAME)
		parse_unexpected(p, "a statement");
	int closer = parse_which_word(p->t, closers);
	if (closer >= 0)
		parse_fail(p, at, "\"%s\" without its beginning", closers[closer]);
	parse_unknown(p, at, "the statement", parse_text(p->t));
}

static struct jnode *parse_output(struct parser *p)
{
	struct jplace at = p->t++->place;
	struct jnode *value = parse_tuple(p, true);
	if (p->t->kind != JT_OUT_END)
		parse_unexpected(p, "}}");
	p->t++;
	return parse_wrap(p, JN_OUT, at, value, NULL);
}

/* Up to one of the statements in ends (not taken), or with no ends to the end of the template. */
static struct jnode *parse_body(struct parser *p, const char *const *ends)
{
	struct jnode *list = NULL, **tail = &list;
	parse_enter(p);
	for (; p->t->kind != JT_EOF; tail = &(*tail)->next) {
		if (p->t->kind == JT_TEXT) {
			*tail = parse_named(p, JN_TEXT, p->t->place, parse_text(p->t), NULL);
			p->t++;
		} else if (p->t->kind == JT_OUT_BEGIN) {
			*tail = parse_output(p);
		} else if (ends == NULL || parse_which_word(p->t + 1, ends) < 0) {
			*tail = parse_statement(p);
		} else {
			break;
		}
	}
	p->depth--;
	while (p->t->kind == JT_EOF && ends != NULL && ends[1] != NULL)
		ends++;
	if (p->t->kind == JT_EOF && ends != NULL)
		parse_unexpected(p, *ends);
	return list;
}

static void check_calls(struct parser *p)
{
	for (const struct jseen *c = p->called; c != NULL; c = c->next) {
		if (parse_is_bound(p, c->name) || proto_str_is(c->name, "caller") || proto_str_is(c->name, "loop"))
			continue;
		const struct jfunction *fn = jinja_find_global(c->name);
		if (fn == NULL)
			parse_unknown(p, c->call->place, "the function", c->name);
		parse_check_args(p, fn, c->call->place, c->call->b);
	}
}

static void compile(void *arg)
{
	struct parser *p = arg;
	p->t = jinja_lex(&p->escape, p->arena, p->src, p->n_src);
	p->body = parse_body(p, NULL);
	parse_end_scope(p, NULL);
	check_calls(p);
}

int jinja_compile(struct jarena *a, const char *src, size_t n, struct jnode **out, bool *loops_content,
		  struct sl_err *err)
{
	struct parser p = {.escape.err = err, .arena = a, .src = src, .n_src = n};
	int rc = jinja_catch(&p.escape, compile, &p);
	*out = p.body;
	*loops_content = p.loops_content;
	return rc;
}
