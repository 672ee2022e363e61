/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the parser, jinja_expr.c and jinja_stmt.c, share; jinja_parse.c has it.
 */
#ifndef ENGINE_JINJA_PARSE_H
#define ENGINE_JINJA_PARSE_H

#include <string.h>

#include "engine/jinja/jinja.h"

/* A name that a template gives a value to, or one that it calls: such a name must have a value from
 * somewhere, which shows when the whole template is read. */
struct jname {
	struct proto_str name;
	const struct jnode *call;
	struct jname *next;
};

struct junknown {
	const char *what;
	struct proto_str name;
	struct jplace place;
	const struct junknown *next;
};

struct parser {
	struct jarena *arena;
	const struct jtok *t; /* the token at hand */
	size_t n_nodes;
	int depth;
	int loops;           /* around this place, inside of its macro */
	int64_t *macro_uses; /* of the macro around this place, or NULL */
	struct jname *bound, *called;
	/* Names of filters, tests and methods that nothing has, latest first: jinja_parse.c says where they may stand.
	 */
	const struct junknown *unknown;
	int n_bound; /* different ones */
	bool loops_content;
	struct sl_err *err;
};

/* They fill err and give its code. */
int parse_fail(struct parser *p, struct jplace at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int parse_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name);
int parse_unexpected(struct parser *p, const char *wanted);
int parse_no_memory(struct parser *p);

/* One level deeper in the source; ends with p->depth--, also when it failed. */
int parse_enter(struct parser *p);
int parse_new(struct parser *p, enum jnode_kind kind, struct jplace at, struct jnode **out);
/* Closes a node: its depth follows from its children. */
int parse_finish(struct parser *p, struct jnode *n);
/* A node with two children. */
int parse_wrap(struct parser *p, enum jnode_kind kind, struct jplace at, struct jnode *a, struct jnode *b,
	       struct jnode **out);
/* Notes that the name has a value somewhere, or that it is called. */
int parse_bind(struct parser *p, struct proto_str name);
int parse_note_call(struct parser *p, struct proto_str name, const struct jnode *call);
/* Notes a name that nothing has. */
int parse_note_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name);
/* A condition ends, before which p->unknown was mark: those in it fail only when they run. */
static inline void parse_end_condition(struct parser *p, const struct junknown *mark) { p->unknown = mark; }
/* A scope ends that no condition around it reaches into, with rc: any in it are refused. */
int parse_end_scope(struct parser *p, const struct junknown *mark, int rc);

static inline struct proto_str parse_text(const struct jtok *t) { return (struct proto_str){t->at, t->n}; }

static inline bool parse_is_op(const struct parser *p, const char *op)
{
	return p->t->kind == JT_OP && strcmp(p->t->op, op) == 0;
}

static inline bool parse_is_word(const struct jtok *t, const char *word)
{
	return t->kind == JT_NAME && proto_str_is(parse_text(t), word);
}

static inline bool parse_take_op(struct parser *p, const char *op)
{
	bool is = parse_is_op(p, op);
	p->t += is;
	return is;
}

static inline bool parse_take_word(struct parser *p, const char *word)
{
	bool is = parse_is_word(p->t, word);
	p->t += is;
	return is;
}

int parse_expect_op(struct parser *p, const char *op);
int parse_expect_name(struct parser *p, struct proto_str *out);

int parse_expr(struct parser *p, struct jnode **out);
/* An expression, or several with commas between: a tuple. conditional: `if` belongs to it. */
int parse_tuple(struct parser *p, bool conditional, struct jnode **out);
/* One item, or several with commas between: a tuple. how is passed to item. */
int parse_items(struct parser *p, int (*item)(struct parser *, bool, struct jnode **), bool how, struct jnode **out);
/* Whether fn can be called like that; fills err if not. */
int parse_check_args(struct parser *p, const struct jfunction *fn, struct jplace at, const struct jnode *args);
/* `name(args)|name…` behind an end or a `filter`, as JN_FILTERs around nothing. */
int parse_filter_chain(struct parser *p, struct jnode **out);

#endif
