/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by both halves of the parser: errors with positions, nodes and their bounds, names.
 *
 * Unknown filters, tests and methods are refused when the template loads, except in a condition: the tests and branches
 * of an `if` statement, all of `a if b else c`. There they fail when they run. Where a statement opens a scope of its
 * own (the body of a loop, macro, call, filter, with or set block, a macro's defaults, a loop's filter), the conditions
 * around that scope don't count, only those inside. For filters and tests this is jinja2's rule (Frame.soft_frame in
 * its compiler). Names are noted as they are met, because the `if` of an expression follows its value.
 */
#include "engine/jinja/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>

void parse_fail(struct parser *p, struct jplace at, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	jinja_fail(&p->escape, SL_EINVAL, "template line %d, column %d: %s", at.line, at.column, text);
}

void parse_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name)
{
	jinja_fail(&p->escape, SL_EUNSUPPORTED, "template line %d, column %d: %s \"%.*s\" is not supported", at.line,
		   at.column, what, JINJA_SHOWN(name));
}

void *parse_alloc(struct parser *p, size_t n)
{
	void *at = jarena_alloc(p->arena, n);
	if (at == NULL)
		jinja_fail(&p->escape, SL_ENOMEM, "template line %d: no memory", p->t->place.line);
	return at;
}

void parse_enter(struct parser *p)
{
	if (++p->depth > JINJA_MAX_DEPTH)
		jinja_fail(&p->escape, SL_ELIMIT, "template line %d: nested deeper than %d", p->t->place.line,
			   JINJA_MAX_DEPTH);
}

struct jnode *parse_new(struct parser *p, enum jnode_kind kind, struct jplace at)
{
	if (++p->n_nodes > JINJA_MAX_NODES)
		jinja_fail(&p->escape, SL_ELIMIT, "template line %d: more than %d nodes", at.line, JINJA_MAX_NODES);
	struct jnode *n = parse_alloc(p, sizeof(*n));
	n->kind = (uint8_t)kind;
	n->place = at;
	return n;
}

struct jnode *parse_finish(struct parser *p, struct jnode *n)
{
	const struct jnode *children[] = {n->a, n->b, n->c, n->d};
	for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++)
		for (const struct jnode *c = children[i]; c != NULL; c = c->next)
			if (n->depth <= c->depth)
				n->depth = (uint16_t)(c->depth + 1);
	if (n->depth > JINJA_MAX_TREE_DEPTH)
		jinja_fail(&p->escape, SL_ELIMIT, "template line %d: an expression of more than %d parts",
			   n->place.line, JINJA_MAX_TREE_DEPTH);
	return n;
}

struct jnode *parse_wrap(struct parser *p, enum jnode_kind kind, struct jplace at, struct jnode *a, struct jnode *b)
{
	struct jnode *n = parse_new(p, kind, at);
	n->a = a;
	n->b = b;
	return parse_finish(p, n);
}

struct jnode *parse_named(struct parser *p, enum jnode_kind kind, struct jplace at, struct proto_str text,
			  struct jnode *a)
{
	struct jnode *n = parse_wrap(p, kind, at, a, NULL);
	n->text = text;
	return n;
}

static void add_name(struct parser *p, struct jseen **list, struct proto_str name, const struct jnode *call)
{
	struct jseen *n = parse_alloc(p, sizeof(*n));
	*n = (struct jseen){.name = name, .call = call, .next = *list};
	*list = n;
}

bool parse_is_bound(const struct parser *p, struct proto_str name)
{
	const struct jseen *b = p->bound;
	while (b != NULL && !proto_str_same(b->name, name))
		b = b->next;
	return b != NULL;
}

void parse_bind(struct parser *p, struct proto_str name)
{
	if (parse_is_bound(p, name))
		return;
	if (++p->n_bound > JINJA_MAX_NAMES)
		jinja_fail(&p->escape, SL_ELIMIT, "template line %d: more than %d names", p->t->place.line,
			   JINJA_MAX_NAMES);
	add_name(p, &p->bound, name, NULL);
}

void parse_unexpected(struct parser *p, const char *wanted)
{
	static const char *const names[] = {
	    [JT_EOF] = "the end of the template", [JT_OUT_END] = "}}", [JT_STMT_END] = "%}", [JT_STRING] = "a string"};
	const struct jtok *t = p->t;
	if (names[t->kind] != NULL)
		parse_fail(p, t->place, "%s expected, not %s", wanted, names[t->kind]);
	parse_fail(p, t->place, "%s expected, not \"%.*s\"", wanted, t->n < 40 ? (int)t->n : 40,
		   t->at != NULL ? t->at : "");
}

void parse_expect_op(struct parser *p, const char *op)
{
	if (!parse_take_op(p, op))
		parse_unexpected(p, op);
}

struct proto_str parse_expect_name(struct parser *p)
{
	static const char *const reserved[] = {"and", "or",   "not",   "in",   "is",   "if",    "else", "elif",
					       "for", "true", "false", "none", "True", "False", "None", NULL};
	if (p->t->kind != JT_NAME || parse_which_word(p->t, reserved) >= 0)
		parse_unexpected(p, "a name");
	return parse_text(p->t++);
}

void parse_note_call(struct parser *p, struct proto_str name, const struct jnode *call)
{
	add_name(p, &p->called, name, call);
}

void parse_note_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name)
{
	struct junknown *u = parse_alloc(p, sizeof(*u));
	*u = (struct junknown){.what = what, .name = name, .place = at, .next = p->unknown};
	p->unknown = u;
}

void parse_end_scope(struct parser *p, const struct junknown *mark)
{
	const struct junknown *first = NULL;
	for (const struct junknown *u = p->unknown; u != mark; u = u->next)
		first = u;
	if (first != NULL)
		parse_unknown(p, first->place, first->what, first->name);
}

bool parse_next(struct parser *p, int n, const char *close)
{
	if (parse_take_op(p, close))
		return false;
	if (n > 0)
		parse_expect_op(p, ",");
	return n == 0 || !parse_take_op(p, close);
}
