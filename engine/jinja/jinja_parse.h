/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the parser, jinja_expr.c and jinja_stmt.c, share; jinja_parse.c implements it. A parser that
 * fails does not return.
 */
#ifndef ENGINE_JINJA_PARSE_H
#define ENGINE_JINJA_PARSE_H

#include "engine/jinja/jinja.h"

/* A name that a template gives a value to, or one that it calls: such a name must have a value from somewhere, which is
 * known once the whole template is read. */
struct jseen {
	struct proto_str name;
	const struct jnode *call;
	struct jseen *next;
};

struct junknown {
	const char *what;
	struct proto_str name;
	struct jplace place;
	const struct junknown *next;
};

struct parser {
	struct jescape escape;
	struct jarena *arena;
	const char *src;
	size_t n_src;
	const struct jtok *t; /* the current token */
	struct jnode *body;
	size_t n_nodes;
	int depth;
	int loops;           /* around the current token, inside of its macro */
	int64_t *macro_uses; /* of the macro around it, or NULL */
	struct jseen *bound, *called;
	/* Unknown filters, tests and methods, latest first: jinja_parse.c explains where they are allowed. */
	const struct junknown *unknown;
	int n_bound; /* different ones */
	bool loops_content;
};

void parse_fail(struct parser *p, struct jplace at, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void parse_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name)
    __attribute__((noreturn));
void parse_unexpected(struct parser *p, const char *wanted) __attribute__((noreturn));
void *parse_alloc(struct parser *p, size_t n);

/* One level deeper in the source; paired with p->depth--. */
void parse_enter(struct parser *p);
struct jnode *parse_new(struct parser *p, enum jnode_kind kind, struct jplace at);
/* Closes a node: its depth follows from its children. Returns it. */
struct jnode *parse_finish(struct parser *p, struct jnode *n);
/* A node with two children. */
struct jnode *parse_wrap(struct parser *p, enum jnode_kind kind, struct jplace at, struct jnode *a, struct jnode *b);
/* A node with a text and one child, which may be NULL. */
struct jnode *parse_named(struct parser *p, enum jnode_kind kind, struct jplace at, struct proto_str text,
			  struct jnode *a);
/* Notes that the name has a value somewhere, or that it is called. */
void parse_bind(struct parser *p, struct proto_str name);
bool parse_is_bound(const struct parser *p, struct proto_str name);
void parse_note_call(struct parser *p, struct proto_str name, const struct jnode *call);
void parse_note_unknown(struct parser *p, struct jplace at, const char *what, struct proto_str name);
/* A condition ends, before which p->unknown was mark: unknown names in it fail only when they run. */
static inline void parse_end_condition(struct parser *p, const struct junknown *mark) { p->unknown = mark; }
/* A scope ends that no condition around it covers: unknown names in it are refused. */
void parse_end_scope(struct parser *p, const struct junknown *mark);

static inline struct proto_str parse_text(const struct jtok *t) { return (struct proto_str){t->at, t->n}; }

static inline bool parse_is_op(const struct parser *p, const char *op)
{
	return p->t->kind == JT_OP && strcmp(p->t->op, op) == 0;
}

static inline bool parse_is_word(const struct jtok *t, const char *word)
{
	return t->kind == JT_NAME && proto_str_is(parse_text(t), word);
}

/* The index of the token in a list of words that ends with NULL; -1: in none. */
static inline int parse_which_word(const struct jtok *t, const char *const *words)
{
	for (int k = 0; words[k] != NULL; k++)
		if (parse_is_word(t, words[k]))
			return k;
	return -1;
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

void parse_expect_op(struct parser *p, const char *op);
struct proto_str parse_expect_name(struct parser *p);

/* The next item of a list, the n-th, with commas between and possibly one at the end: false when close was taken. */
bool parse_next(struct parser *p, int n, const char *close);
struct jnode *parse_expr(struct parser *p);
/* An expression, or several with commas between: a tuple. conditional: `if` belongs to it. */
struct jnode *parse_tuple(struct parser *p, bool conditional);
/* One item, or several with commas between: a tuple. how is passed to item. */
struct jnode *parse_items(struct parser *p, struct jnode *(*item)(struct parser *, bool), bool how);
/* Fails if fn can't be called like that. */
void parse_check_args(struct parser *p, const struct jfunction *fn, struct jplace at, const struct jnode *args);
/* `name(args)|name…` behind an end or a `filter`, as JN_FILTERs around nothing. */
struct jnode *parse_filter_chain(struct parser *p);

#endif
