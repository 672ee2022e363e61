/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandboxed Jinja interpreter behind engine/chat_template.h; private to it. Three passes:
 *
 *   jinja_lex.c   source → tokens, white space control done
 *   jinja_parse.c tokens → syntax tree; whatever is not known is refused here, with its line
 *   jinja_eval.c  tree + variables → text and trust; jinja_value.c has the values' own rules,
 *                 jinja_filters.c the filters, tests and methods
 *
 * All memory of a pass comes from an arena with a bound and goes at once.
 */
#ifndef ENGINE_JINJA_H
#define ENGINE_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto.h"

enum {
	JINJA_MAX_SOURCE = 256 << 10,
	JINJA_MAX_NODES = 64 << 10,
	JINJA_MAX_DEPTH = 64,        /* nesting in the source: blocks, brackets, unary operators */
	JINJA_MAX_TREE_DEPTH = 512,  /* with chains of operators and filters, which lean to the left */
	JINJA_MAX_STEPS = 1000 * 1000,
	JINJA_MAX_OUTPUT = 8 << 20,
	JINJA_MAX_ARENA = 64 << 20,
	JINJA_BYTES_PER_STEP = 256,  /* work on text is charged as steps */
};

/* ---- arena ---- */

struct jarena_block;
struct jarena {
	struct jarena_block *blocks;
	size_t used, cap; /* of the first block */
	size_t total, max;
};
void jarena_init(struct jarena *a, size_t max);
void jarena_dispose(struct jarena *a);
/* Zeroed; NULL when the bound or the memory is exhausted. */
void *jarena_alloc(struct jarena *a, size_t n);

/* ---- tokens ---- */

enum jtok_kind { JT_TEXT, JT_OUT_BEGIN, JT_OUT_END, JT_STMT_BEGIN, JT_STMT_END, JT_NAME, JT_STRING,
		 JT_INT, JT_FLOAT, JT_OP, JT_EOF };

struct jtok {
	uint8_t kind;
	char op[3]; /* JT_OP: "+", "==", …, terminated */
	int line;
	const char *at; /* text, name, decoded string; in the arena */
	size_t n;
	int64_t i;
	double f;
};

/* The source must outlive the tokens. *out ends with JT_EOF. SL_EINVAL, SL_ELIMIT, SL_ENOMEM. */
int jinja_lex(struct jarena *a, const char *src, size_t n, struct jtok **out, struct sl_err *err);

/* ---- syntax tree ---- */

enum jnode_kind {
	JN_STRING, JN_INT, JN_FLOAT, JN_BOOL, JN_NONE, JN_NAME,
	JN_LIST,   /* items in a */
	JN_DICT,   /* keys and values in turn in a */
	JN_ATTR,   /* a.text */
	JN_INDEX,  /* a[b] */
	JN_SLICE,  /* a[b:c:d] */
	JN_BINARY, /* op */
	JN_AND, JN_OR, JN_NOT, JN_NEGATE,
	JN_COND,   /* a if b else c */
	JN_FILTER, JN_TEST, JN_METHOD, /* fn applied to a with arguments b */
	JN_RAISE,     /* raise_exception(a) */
	JN_RANGE,     /* range(a…) */
	JN_NAMESPACE, /* namespace(keys = values in a, names in text) */
	JN_TEXT, JN_OUT,
	JN_IF,     /* branches in a: JN_BRANCH, condition a (NULL: else), body b */
	JN_BRANCH,
	JN_FOR,    /* for text[, text2] in a: body b, else c */
	JN_SET,    /* text = a, or text.text2 = a */
};

enum jop { JO_ADD, JO_SUB, JO_MUL, JO_DIV, JO_FLOORDIV, JO_MOD, JO_CONCAT, JO_EQ, JO_NE, JO_LT, JO_GT,
	   JO_LE, JO_GE, JO_IN, JO_NOT_IN };

struct jnode {
	uint8_t kind;
	uint8_t op;      /* enum jop, or an index into the table of filters, tests or methods */
	bool negate;     /* JN_TEST: is not */
	uint16_t depth;  /* of the tree below */
	int line;
	struct jnode *a, *b, *c, *d;
	struct jnode *next; /* in a list */
	struct proto_str text, text2;
	int64_t i;
	double f;
};

int jinja_parse(struct jarena *a, const struct jtok *toks, struct jnode **out, struct sl_err *err);

/* ---- values ---- */

enum jtype { JV_UNDEFINED, JV_NONE, JV_BOOL, JV_INT, JV_FLOAT, JV_STRING, JV_LIST, JV_DICT,
	     JV_NAMESPACE, JV_LOOP };

enum jtrust { JTRUST_NONE, JTRUST_ALL, JTRUST_MASK };

struct jstr {
	const char *at;
	size_t n;
	const uint8_t *mask; /* JTRUST_MASK: a byte per byte */
	uint8_t trust;       /* enum jtrust */
};

struct jvalue;
struct jlist {
	const json_t *json;         /* an array of the request, or … */
	const struct jvalue *items; /* … made here */
	size_t n;
};
struct jpair;
struct jpairs { /* of a dictionary made here, or of a namespace */
	struct jpair *first, *last;
	size_t n;
};
struct jdict {
	const json_t *json; /* an object of the request, or … */
	struct jpairs *made;
};
struct jloop {
	struct jlist list;
	size_t index;
};

struct jvalue {
	uint8_t type; /* enum jtype */
	bool trusted; /* numbers and booleans: what they print as */
	union {
		bool b;
		int64_t i;
		double f;
		struct jstr s;
		struct jlist list;
		struct jdict dict;
		const struct jloop *loop;
		struct proto_str name; /* undefined: of what, for the message */
	};
};
struct jpair {
	struct jvalue key, value;
	struct jpair *next;
};

/* A run of a template. Functions that return int give 0 or a negative code, with err filled. */
struct jrun {
	struct jarena arena;
	struct sl_err *err; /* never NULL */
	int line;           /* of the node at work */
	uint64_t steps;
	int depth; /* of recursion into values */
	struct jframe *frame;
	struct sl_buf *text, *trust;
	size_t max_text; /* bound on text->len */
};

int jrun_fail(struct jrun *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Accounts for a step and for work on n bytes. */
int jrun_charge(struct jrun *r, size_t n);
/* Zeroed arena memory, or NULL with r->err filled. */
void *jrun_alloc(struct jrun *r, size_t n);

const char *jvalue_type_name(const struct jvalue *v);
bool jvalue_true(const struct jvalue *v);
struct jvalue jvalue_int(int64_t i, bool trusted);
struct jvalue jvalue_bool(bool b);
struct jvalue jvalue_string_of(struct jstr s);
struct jvalue jvalue_literal(struct proto_str text); /* trusted; borrowed */
struct jvalue jvalue_undefined(struct proto_str name);
struct jvalue jvalue_from_json(const json_t *j); /* untrusted; borrowed */
struct jvalue jvalue_list_of(const struct jvalue *items, size_t n);
struct jvalue jlist_at(const struct jlist *l, size_t i); /* i < n */

size_t jdict_count(const struct jdict *d);
bool jdict_find(const struct jdict *d, struct jstr key, struct jvalue *out);
int jdict_put(struct jrun *r, struct jpairs *d, const struct jvalue *key,
	      const struct jvalue *value);
/* The keys as a list, or [key, value] lists. */
int jdict_list(struct jrun *r, const struct jdict *d, bool pairs, struct jvalue *out);

int jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b, bool *out);
int jvalue_order(struct jrun *r, const struct jvalue *a, const struct jvalue *b, int *out);
int jvalue_contains(struct jrun *r, const struct jvalue *in, const struct jvalue *what, bool *out);
int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out);
/* v[key]; an index or key that is not there gives an undefined value. */
int jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key,
		 struct jvalue *out);
/* v[from:to:step]; NULL where nothing stands. */
int jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3],
		 struct jvalue *out);

/* What printing v gives; lists and dictionaries fail (tojson says what is meant). */
int jvalue_string(struct jrun *r, const struct jvalue *v, struct jstr *out);
int jstr_concat(struct jrun *r, const struct jstr *parts, size_t n, struct jstr *out);
struct jstr jstr_sub(struct jstr s, size_t from, size_t n);
/* JSON as Python's json.dumps(ensure_ascii=False) writes it; never trusted. */
int jvalue_json(struct jrun *r, const struct jvalue *v, struct jstr *out);
/* Python's repr of a finite number; at least 32 bytes. */
void jinja_print_float(double f, char *out);

/* ---- filters, tests, methods ---- */

enum { JINJA_MAX_ARGS = 4 };
struct jfunction {
	const char *name;
	int min_args, max_args;
	int (*call)(struct jrun *r, const struct jvalue *self, const struct jvalue *args, int n,
		    struct jvalue *out);
};
extern const struct jfunction jinja_filters[], jinja_tests[], jinja_methods[]; /* end: no name */
/* -1: no such function. */
int jinja_find_function(const struct jfunction *table, struct proto_str name);
/* Whether `loop` has the attribute. */
bool jinja_loop_knows(struct proto_str name);

/* ---- evaluation ---- */

struct jvar {
	struct proto_str name;
	struct jvalue value;
	struct jvar *next;
};
struct jframe {
	struct jvar *vars;
	struct jframe *outer;
};
int jinja_bind(struct jrun *r, struct proto_str name, const struct jvalue *value);
int jinja_run(struct jrun *r, const struct jnode *body);

#endif
