/* SPDX-License-Identifier: Apache-2.0
 *
 * What both halves of the parser stand on: errors with their place, nodes and their bounds, names.
 *
 * A filter, test or method that nothing has is refused when the template loads, except in a condition: the tests and
 * branches of an `if` statement, all of `a if b else c`. There it fails when it runs. Where a statement opens a scope
 * of its own (the body of a loop, macro, call, filter, with or set block, a macro's defaults, a loop's filter), the
 * conditions around that scope don't count, only those inside. For filters and tests this is jinja2's rule
 * (Frame.soft_frame in its compiler). Names are noted as they are met, because the `if` of an expression stands behind
 * its value.
 */
#include "engine/jinja/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>

int parse_fail(struct parser *p, struct jplace at, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return sl_errf(p->err, SL_EINVAL, "template line %d, column %d: %s", at.line, at.column, text);
}

int parse_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name)
{
	int n = name.n < 64 ? (int)name.n : 64;
	return sl_errf(p->err, SL_EUNSUPPORTED, "template line %d, column %d: %s \"%.*s\" is not supported", at.line,
		       at.column, what, n, name.at);
}

int parse_no_memory(struct parser *p)
{
	return sl_errf(p->err, SL_ENOMEM, "template line %d: no memory", p->t->place.line);
}

int parse_enter(struct parser *p)
{
	if (++p->depth > JINJA_MAX_DEPTH)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: nested deeper than %d", p->t->place.line,
			       JINJA_MAX_DEPTH);
	return 0;
}

int parse_new(struct parser *p, enum jnode_kind kind, struct jplace at, struct jnode **out)
{
	if (++p->n_nodes > JINJA_MAX_NODES)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: more than %d nodes", at.line, JINJA_MAX_NODES);
	struct jnode *n = jarena_alloc(p->arena, sizeof(*n));
	if (n == NULL)
		return parse_no_memory(p);
	n->kind = (uint8_t)kind;
	n->place = at;
	*out = n;
	return 0;
}

static void deepen(struct jnode *n, const struct jnode *list)
{
	for (; list != NULL; list = list->next)
		if (n->depth <= list->depth)
			n->depth = (uint16_t)(list->depth + 1);
}

int parse_finish(struct parser *p, struct jnode *n)
{
	deepen(n, n->a);
	deepen(n, n->b);
	deepen(n, n->c);
	deepen(n, n->d);
	if (n->depth > JINJA_MAX_TREE_DEPTH)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: an expression of more than %d parts",
			       n->place.line, JINJA_MAX_TREE_DEPTH);
	return 0;
}

int parse_wrap(struct parser *p, enum jnode_kind kind, struct jplace at, struct jnode *a, struct jnode *b,
	       struct jnode **out)
{
	struct jnode *n = NULL;
	int rc = parse_new(p, kind, at, &n);
	if (rc != 0)
		return rc;
	n->a = a;
	n->b = b;
	*out = n;
	return parse_finish(p, n);
}

static int add_name(struct parser *p, struct jname **list, struct proto_str name, const struct jnode *call)
{
	struct jname *n = jarena_alloc(p->arena, sizeof(*n));
	if (n == NULL)
		return parse_no_memory(p);
	*n = (struct jname){.name = name, .call = call, .next = *list};
	*list = n;
	return 0;
}

int parse_bind(struct parser *p, struct proto_str name)
{
	for (const struct jname *b = p->bound; b != NULL; b = b->next)
		if (proto_str_same(b->name, name))
			return 0;
	if (++p->n_bound > JINJA_MAX_NAMES)
		return sl_errf(p->err, SL_ELIMIT, "template line %d: more than %d names", p->t->place.line,
			       JINJA_MAX_NAMES);
	return add_name(p, &p->bound, name, NULL);
}

int parse_unexpected(struct parser *p, const char *wanted)
{
	const struct jtok *t = p->t;
	const char *what = NULL;
	switch (t->kind) {
	case JT_EOF: what = "the end of the template"; break;
	case JT_OUT_END: what = "}}"; break;
	case JT_STMT_END: what = "%}"; break;
	case JT_STRING: what = "a string"; break;
	default: break;
	}
	if (what != NULL)
		return parse_fail(p, t->place, "%s expected, not %s", wanted, what);
	return parse_fail(p, t->place, "%s expected, not \"%.*s\"", wanted, t->n < 40 ? (int)t->n : 40,
			  t->at != NULL ? t->at : "");
}

int parse_expect_op(struct parser *p, const char *op) { return parse_take_op(p, op) ? 0 : parse_unexpected(p, op); }

int parse_expect_name(struct parser *p, struct proto_str *out)
{
	static const char *const reserved[] = {"and", "or",   "not",   "in",   "is",   "if",    "else", "elif",
					       "for", "true", "false", "none", "True", "False", "None"};
	if (p->t->kind != JT_NAME)
		return parse_unexpected(p, "a name");
	*out = parse_text(p->t);
	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (proto_str_is(*out, reserved[i]))
			return parse_unexpected(p, "a name");
	p->t++;
	return 0;
}

int parse_note_call(struct parser *p, struct proto_str name, const struct jnode *call)
{
	return add_name(p, &p->called, name, call);
}

int parse_note_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name)
{
	struct junknown *u = jarena_alloc(p->arena, sizeof(*u));
	if (u == NULL)
		return parse_no_memory(p);
	*u = (struct junknown){.what = what, .name = name, .place = at, .next = p->unknown};
	p->unknown = u;
	return 0;
}

int parse_end_scope(struct parser *p, const struct junknown *mark, int rc)
{
	const struct junknown *first = NULL;
	for (const struct junknown *u = p->unknown; u != mark; u = u->next)
		first = u;
	return rc != 0 || first == NULL ? rc : parse_unknown(p, first->place, first->what, first->name);
}
