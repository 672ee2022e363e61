/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to a syntax tree, the statements and the template as a whole (jinja_expr.c says how).
 *
 * Names that are called must be macros or other values of the template, or functions that the
 * interpreter knows. A macro may be called before it is defined, so this is looked at last.
 */
#include "engine/jinja/jinja_parse.h"

static int parse_body(struct parser *p, const char *const *ends, struct jnode **out);

static int end_statement(struct parser *p)
{
	if (p->t->kind != JT_STMT_END)
		return parse_unexpected(p, "%}");
	p->t++;
	return 0;
}

/* `{% word %}` at hand: takes it. */
static int expect_statement(struct parser *p, const char *word)
{
	if (p->t->kind != JT_STMT_BEGIN || !parse_is_word(p->t + 1, word))
		return parse_unexpected(p, word);
	p->t += 2;
	return end_statement(p);
}

static bool at_statement(const struct parser *p, const char *word)
{
	return p->t->kind == JT_STMT_BEGIN && parse_is_word(p->t + 1, word);
}

/* The end of this statement, its body and `{% end %}`. */
static int parse_block(struct parser *p, const char *end, struct jnode **out)
{
	const char *const ends[] = {end, NULL};
	int rc = end_statement(p);
	if (rc == 0)
		rc = parse_body(p, ends, out);
	return rc != 0 ? rc : expect_statement(p, end);
}

/* ---- what set and for assign to ---- */

static int parse_target(struct parser *p, bool attributes, struct jnode **out);

static int parse_one_target(struct parser *p, bool attributes, struct jnode **out)
{
	struct jplace at = p->t->place;
	struct proto_str name;
	if (parse_take_op(p, "(")) {
		int rc = parse_enter(p);
		if (rc == 0)
			rc = parse_target(p, attributes, out);
		p->depth--;
		return rc == 0 ? parse_expect_op(p, ")") : rc;
	}
	int rc = parse_expect_name(p, &name);
	if (rc == 0)
		rc = parse_new(p, JN_NAME, at, out);
	if (rc != 0)
		return rc;
	(*out)->text = name;
	if (!attributes || !parse_take_op(p, "."))
		return parse_bind(p, name);
	rc = parse_expect_name(p, &name);
	if (rc == 0)
		rc = parse_wrap(p, JN_ATTR, at, *out, NULL, out);
	if (rc == 0)
		(*out)->text = name;
	return rc;
}

static int parse_target(struct parser *p, bool attributes, struct jnode **out)
{
	return parse_items(p, parse_one_target, attributes, out);
}

/* ---- statements ---- */

static int parse_if(struct parser *p, struct jplace at, struct jnode **out)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	const struct junknown *mark = p->unknown;
	struct jnode *n, **tail;
	int rc = parse_new(p, JN_IF, at, &n);
	if (rc != 0)
		return rc;
	*out = n;
	tail = &n->a;
	bool last = false;
	for (;;) {
		struct jnode *branch;
		rc = parse_new(p, JN_BRANCH, p->t->place, &branch);
		if (rc == 0 && !last)
			rc = parse_tuple(p, true, &branch->a);
		if (rc == 0)
			rc = end_statement(p);
		if (rc == 0)
			rc = parse_body(p, last ? ends + 2 : ends, &branch->b);
		if (rc == 0)
			rc = parse_finish(p, branch);
		if (rc != 0)
			return rc;
		*tail = branch;
		tail = &branch->next;
		if (at_statement(p, "endif"))
			break;
		last = parse_is_word(p->t + 1, "else");
		p->t += 2;
	}
	parse_end_condition(p, mark);
	rc = parse_finish(p, n);
	return rc != 0 ? rc : expect_statement(p, "endif");
}

/* message.content, message['content'] or content. */
static bool is_content(const struct jnode *n)
{
	if (n->kind == JN_INDEX)
		n = n->b;
	return (n->kind == JN_ATTR || n->kind == JN_NAME || n->kind == JN_STRING) && proto_str_is(n->text, "content");
}

static int parse_for(struct parser *p, struct jplace at, struct jnode **out)
{
	static const char *const ends[] = {"else", "endfor", NULL};
	struct jnode *n, *bodies;
	int rc = parse_new(p, JN_FOR, at, &n);
	if (rc == 0)
		rc = parse_new(p, JN_BODIES, at, &bodies);
	if (rc != 0)
		return rc;
	*out = n;
	n->d = bodies;
	rc = parse_target(p, false, &n->a);
	if (rc == 0 && !parse_take_word(p, "in"))
		return parse_unexpected(p, "in");
	if (rc == 0)
		rc = parse_tuple(p, false, &n->b);
	if (rc == 0 && is_content(n->b))
		p->loops_content = true;
	const struct junknown *mark = p->unknown;
	if (rc == 0 && parse_take_word(p, "if"))
		rc = parse_expr(p, &n->c);
	if (rc == 0)
		n->i = parse_take_word(p, "recursive");
	if (rc == 0)
		rc = end_statement(p);
	p->loops++;
	if (rc == 0)
		rc = parse_body(p, ends, &bodies->a);
	p->loops--;
	if (rc == 0 && at_statement(p, "else")) {
		rc = expect_statement(p, "else");
		if (rc == 0)
			rc = parse_body(p, ends + 1, &bodies->b);
	}
	rc = parse_end_scope(p, mark, rc);
	if (rc == 0)
		rc = parse_finish(p, bodies);
	if (rc == 0)
		rc = parse_finish(p, n);
	return rc != 0 ? rc : expect_statement(p, "endfor");
}

static int parse_set(struct parser *p, struct jplace at, struct jnode **out)
{
	struct jnode *target = NULL, *value = NULL, *filters = NULL;
	int rc = parse_target(p, true, &target);
	if (rc == 0 && parse_take_op(p, "=")) {
		rc = parse_tuple(p, true, &value);
		if (rc == 0)
			rc = parse_wrap(p, JN_SET, at, target, value, out);
		return rc != 0 ? rc : end_statement(p);
	}
	if (rc == 0 && target->kind == JN_TUPLE)
		return parse_unexpected(p, "=");
	const struct junknown *mark = p->unknown;
	if (rc == 0 && parse_take_op(p, "|"))
		rc = parse_filter_chain(p, &filters);
	if (rc == 0)
		rc = parse_block(p, "endset", &value);
	rc = parse_end_scope(p, mark, rc);
	if (rc == 0)
		rc = parse_wrap(p, JN_CAPTURE, at, target, value, out);
	if (rc != 0)
		return rc;
	(*out)->c = filters;
	return parse_finish(p, *out);
}

static int parse_filter_block(struct parser *p, struct jplace at, struct jnode **out)
{
	const struct junknown *mark = p->unknown;
	struct jnode *filters = NULL, *body = NULL;
	int rc = parse_filter_chain(p, &filters);
	if (rc == 0)
		rc = parse_block(p, "endfilter", &body);
	rc = parse_end_scope(p, mark, rc);
	if (rc == 0)
		rc = parse_wrap(p, JN_FILTERED, at, NULL, body, out);
	if (rc != 0)
		return rc;
	(*out)->c = filters;
	return parse_finish(p, *out);
}

static int parse_parameters(struct parser *p, struct jnode **list)
{
	struct jnode **tail = list;
	bool defaults = false;
	for (int n = 0; !parse_take_op(p, ")"); n++) {
		struct proto_str name;
		struct jplace at = p->t->place;
		int rc = n > 0 ? parse_expect_op(p, ",") : 0;
		if (rc == 0 && n > 0 && parse_take_op(p, ")"))
			return 0;
		if (rc == 0)
			at = p->t->place;
		if (rc == 0)
			rc = parse_expect_name(p, &name);
		if (rc == 0)
			rc = parse_bind(p, name);
		struct jnode *value = NULL;
		if (rc == 0 && parse_take_op(p, "=")) {
			rc = parse_expr(p, &value);
			defaults = true;
		} else if (rc == 0 && defaults) {
			return parse_fail(p, at, "a parameter without a default behind one with a default");
		}
		if (rc == 0)
			rc = parse_wrap(p, JN_KEYWORD, at, value, NULL, tail);
		if (rc != 0)
			return rc;
		(*tail)->text = name;
		tail = &(*tail)->next;
	}
	return 0;
}

/* Parameters and body of a macro: of one with a name, or of the caller in a call block. */
static int parse_macro(struct parser *p, struct jplace at, bool parameters, const char *end, struct jnode **out)
{
	struct jnode *n;
	int rc = parse_new(p, JN_MACRO, at, &n), loops = p->loops;
	int64_t *uses = p->macro_uses;
	const struct junknown *mark = p->unknown;
	if (rc != 0)
		return rc;
	*out = n;
	p->loops = 0;
	p->macro_uses = &n->i;
	if (parameters)
		rc = parse_parameters(p, &n->a);
	if (rc == 0 && strcmp(end, "endcall") != 0)
		rc = parse_block(p, end, &n->b);
	rc = parse_end_scope(p, mark, rc);
	p->loops = loops;
	p->macro_uses = uses;
	return rc != 0 ? rc : parse_finish(p, n);
}

static int parse_named_macro(struct parser *p, struct jplace at, struct jnode **out)
{
	struct proto_str name;
	int rc = parse_expect_name(p, &name);
	if (rc == 0)
		rc = parse_bind(p, name);
	if (rc == 0)
		rc = parse_expect_op(p, "(");
	if (rc == 0)
		rc = parse_macro(p, at, true, "endmacro", out);
	if (rc == 0)
		(*out)->text = name;
	return rc;
}

/* The body of a call block belongs to the macro that is its caller, but stands behind the call. */
static int parse_call_block(struct parser *p, struct jplace at, struct jnode **out)
{
	struct jnode *call = NULL, *macro = NULL;
	int rc = parse_macro(p, at, parse_take_op(p, "("), "endcall", &macro);
	if (rc != 0)
		return rc;
	macro->text = (struct proto_str){"caller", 6};
	rc = parse_expr(p, &call);
	if (rc == 0 && call->kind != JN_CALL)
		return parse_fail(p, at, "a call expected");
	int loops = p->loops;
	int64_t *uses = p->macro_uses;
	const struct junknown *mark = p->unknown;
	p->loops = 0;
	p->macro_uses = &macro->i;
	if (rc == 0)
		rc = parse_block(p, "endcall", &macro->b);
	rc = parse_end_scope(p, mark, rc);
	p->loops = loops;
	p->macro_uses = uses;
	if (rc == 0)
		rc = parse_finish(p, macro);
	return rc != 0 ? rc : parse_wrap(p, JN_CALL_BLOCK, at, call, macro, out);
}

static int parse_with(struct parser *p, struct jplace at, struct jnode **out)
{
	struct jnode *sets = NULL, **tail = &sets, *body = NULL;
	int rc = 0;
	for (int n = 0; rc == 0 && p->t->kind != JT_STMT_END; n++) {
		struct jnode *target = NULL, *value = NULL;
		struct jplace place = p->t->place;
		if (n > 0)
			rc = parse_expect_op(p, ",");
		if (rc == 0)
			rc = parse_one_target(p, false, &target);
		if (rc == 0)
			rc = parse_expect_op(p, "=");
		if (rc == 0)
			rc = parse_expr(p, &value);
		if (rc == 0)
			rc = parse_wrap(p, JN_SET, place, target, value, tail);
		if (rc == 0)
			tail = &(*tail)->next;
	}
	const struct junknown *mark = p->unknown;
	if (rc == 0)
		rc = parse_block(p, "endwith", &body);
	rc = parse_end_scope(p, mark, rc);
	return rc != 0 ? rc : parse_wrap(p, JN_WITH, at, sets, body, out);
}

/* The model's own words of a dialog, marked for training: only a scope of its own here. */
static int parse_generation(struct parser *p, struct jplace at, struct jnode **out)
{
	struct jnode *body = NULL;
	int loops = p->loops;
	const struct junknown *mark = p->unknown;
	p->loops = 0;
	int rc = parse_end_scope(p, mark, parse_block(p, "endgeneration", &body));
	p->loops = loops;
	return rc != 0 ? rc : parse_wrap(p, JN_WITH, at, NULL, body, out);
}

static int parse_jump(struct parser *p, struct jplace at, enum jnode_kind kind, struct jnode **out)
{
	if (p->loops == 0)
		return parse_fail(p, at, "\"%s\" outside of a loop", kind == JN_BREAK ? "break" : "continue");
	int rc = parse_new(p, kind, at, out);
	return rc != 0 ? rc : end_statement(p);
}

static int parse_do(struct parser *p, struct jplace at, struct jnode **out)
{
	struct jnode *value = NULL;
	int rc = parse_tuple(p, true, &value);
	if (rc == 0)
		rc = parse_wrap(p, JN_DO, at, value, NULL, out);
	return rc != 0 ? rc : end_statement(p);
}

static int parse_statement(struct parser *p, struct jnode **out)
{
	struct jplace at = p->t->place;
	p->t++;
	if (parse_take_word(p, "if"))
		return parse_if(p, at, out);
	if (parse_take_word(p, "for"))
		return parse_for(p, at, out);
	if (parse_take_word(p, "set"))
		return parse_set(p, at, out);
	if (parse_take_word(p, "macro"))
		return parse_named_macro(p, at, out);
	if (parse_take_word(p, "call"))
		return parse_call_block(p, at, out);
	if (parse_take_word(p, "filter"))
		return parse_filter_block(p, at, out);
	if (parse_take_word(p, "with"))
		return parse_with(p, at, out);
	if (parse_take_word(p, "generation"))
		return parse_generation(p, at, out);
	if (parse_take_word(p, "break"))
		return parse_jump(p, at, JN_BREAK, out);
	if (parse_take_word(p, "continue"))
		return parse_jump(p, at, JN_CONTINUE, out);
	if (parse_take_word(p, "do"))
		return parse_do(p, at, out);
	if (p->t->kind != JT_NAME)
		return parse_unexpected(p, "a statement");
	static const char *const closers[] = {"elif",      "else",    "endif",         "endfor",  "endset", "endmacro",
					      "endfilter", "endcall", "endgeneration", "endwith", "endraw"};
	for (size_t i = 0; i < sizeof(closers) / sizeof(closers[0]); i++)
		if (parse_is_word(p->t, closers[i]))
			return parse_fail(p, at, "\"%s\" without its beginning", closers[i]);
	return parse_unknown(p, at, "the statement", parse_text(p->t));
}

static int parse_output(struct parser *p, struct jnode **out)
{
	struct jnode *value = NULL;
	struct jplace at = p->t++->place;
	int rc = parse_tuple(p, true, &value);
	if (rc == 0 && p->t->kind != JT_OUT_END)
		return parse_unexpected(p, "}}");
	if (rc != 0)
		return rc;
	p->t++;
	return parse_wrap(p, JN_OUT, at, value, NULL, out);
}

/* Up to one of the statements in ends (not taken), or with no ends to the end of the template. */
static int parse_body(struct parser *p, const char *const *ends, struct jnode **out)
{
	int rc = parse_enter(p);
	struct jnode **tail = out;
	while (rc == 0 && p->t->kind != JT_EOF) {
		if (p->t->kind == JT_TEXT) {
			rc = parse_new(p, JN_TEXT, p->t->place, tail);
			if (rc == 0)
				(*tail)->text = parse_text(p->t++);
		} else if (p->t->kind == JT_OUT_BEGIN) {
			rc = parse_output(p, tail);
		} else {
			for (const char *const *e = ends; e != NULL && *e != NULL; e++)
				if (parse_is_word(p->t + 1, *e)) {
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
		return parse_unexpected(p, last);
	}
	return rc;
}

static bool is_bound(const struct parser *p, struct proto_str name)
{
	for (const struct jname *b = p->bound; b != NULL; b = b->next)
		if (proto_str_same(b->name, name))
			return true;
	return proto_str_is(name, "caller") || proto_str_is(name, "loop");
}

static int check_calls(struct parser *p)
{
	for (const struct jname *c = p->called; c != NULL; c = c->next) {
		if (is_bound(p, c->name))
			continue;
		const struct jfunction *fn = jinja_find_global(c->name);
		if (fn == NULL)
			return parse_unknown(p, c->call->place, "the function", c->name);
		int rc = parse_check_args(p, fn, c->call->place, c->call->b);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int jinja_parse(struct jarena *a, const struct jtok *toks, struct jnode **out, bool *loops_content, struct sl_err *err)
{
	struct parser p = {.arena = a, .t = toks, .err = err};
	*out = NULL;
	int rc = parse_end_scope(&p, NULL, parse_body(&p, NULL, out));
	*loops_content = p.loops_content;
	return rc != 0 ? rc : check_calls(&p);
}
