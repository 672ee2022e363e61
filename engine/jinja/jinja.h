/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandboxed Jinja interpreter behind engine/chat/chat_template.h; private to it. Three passes:
 *
 *   jinja_lex.c    source → tokens, white space control done
 *   jinja_expr.c   tokens → syntax tree: expressions; whatever is not known is refused here, with
 *                  its line and column
 *   jinja_stmt.c   the same for statements (jinja_parse.c: what both stand on)
 *   jinja_eval.c   tree + variables → values: expressions
 *   jinja_run.c    statements, macros and calls: tree + variables → text and trust
 *
 * and what they stand on: jinja_value.c (the values' own rules), jinja_containers.c (lists and
 * dictionaries), jinja_access.c (what stands in them), jinja_arith.c (operators), jinja_print.c
 * (values as text and JSON), jinja_text.c (letters and parts of text), jinja_format.c (the operator
 * % on text), jinja_call.c (arguments, and the functions that every template knows),
 * jinja_filters.c, jinja_list_filters.c (the filters of lists), jinja_tests.c, jinja_methods.c,
 * jinja_string_methods.c, jinja_markup.c (what `safe` makes of text).
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
#include "base/proto/proto.h"

enum {
	JINJA_MAX_SOURCE = 256 << 10,
	JINJA_MAX_NODES = 64 << 10,
	JINJA_MAX_NAMES = 2048,
	JINJA_MAX_DEPTH = 64,       /* nesting in the source: blocks, brackets, unary operators */
	JINJA_MAX_TREE_DEPTH = 512, /* with chains of operators and filters, which lean to the left */
	JINJA_MAX_RUN_DEPTH = 1500, /* nodes at work at once: macros may call themselves */
	JINJA_MAX_VALUE_DEPTH = 64, /* lists in lists */
	JINJA_MAX_STEPS = 4 * 1000 * 1000,
	JINJA_MAX_OUTPUT = 8 << 20,
	JINJA_MAX_ARENA = 64 << 20,
	JINJA_BYTES_PER_STEP = 256, /* work on text is charged as steps … */
	JINJA_SEARCH_COST = 8,      /* … and what looks at its characters as so much more text */
};

/* ---- arena ---- */

struct jarena_block;
struct jarena {
	struct jarena_block *blocks;
	size_t used, cap; /* of the first block */
	size_t total, max;
	bool full; /* something was refused for max */
};
void jarena_init(struct jarena *a, size_t max);
void jarena_dispose(struct jarena *a);
/* Zeroed; NULL when the bound or the memory is exhausted. */
void *jarena_alloc(struct jarena *a, size_t n);

/* ---- tokens ---- */

enum jtok_kind {
	JT_TEXT,
	JT_OUT_BEGIN,
	JT_OUT_END,
	JT_STMT_BEGIN,
	JT_STMT_END,
	JT_NAME,
	JT_STRING,
	JT_INT,
	JT_FLOAT,
	JT_OP,
	JT_EOF
};

struct jplace {
	int line, column; /* from 1; columns are characters */
};

struct jtok {
	uint8_t kind;
	char op[3]; /* JT_OP: "+", "==", …, terminated */
	struct jplace place;
	const char *at; /* text, name, decoded string; in the arena */
	size_t n;
	int64_t i;
	double f;
};

/* *out, in the arena, ends with JT_EOF. SL_EINVAL, SL_ELIMIT, SL_ENOMEM. */
int jinja_lex(struct jarena *a, const char *src, size_t n, struct jtok **out, struct sl_err *err);

/* ---- syntax tree ---- */

enum jnode_kind {
	JN_STRING,
	JN_INT,
	JN_FLOAT,
	JN_BOOL,
	JN_NONE,
	JN_NAME,
	JN_LIST,
	JN_TUPLE,  /* items in a */
	JN_DICT,   /* keys and values in turn in a */
	JN_ATTR,   /* a.text */
	JN_INDEX,  /* a[b] */
	JN_SLICE,  /* a[b:c:d] */
	JN_BINARY, /* op */
	JN_CHAIN,  /* a op b op … : the rest as JN_BINARY, without their a, in b */
	JN_AND,
	JN_OR,
	JN_NOT,
	JN_NEGATE,
	JN_PLUS,
	JN_COND, /* a if b else c */
	JN_FILTER,
	JN_TEST,    /* fn applied to a with arguments b; a filter's a may be missing */
	JN_CALL,    /* a called with arguments b */
	JN_KEYWORD, /* an argument: text = a; a parameter: text, a if it has a default */
	JN_SPREAD,
	JN_SPREAD_NAMES, /* arguments *a and **a */
	JN_TEXT,
	JN_OUT,
	JN_IF, /* branches in a: JN_BRANCH, condition a (NULL: else), body b */
	JN_BRANCH,
	JN_FOR, /* for a in b if c: body d->a, else d->b; i: recursive */
	JN_BODIES,
	JN_SET,        /* a = b */
	JN_CAPTURE,    /* a = the text of body b through the filters c */
	JN_FILTERED,   /* the text of body b through the filters c */
	JN_MACRO,      /* text, parameters a, body b, i: enum jmacro_uses */
	JN_CALL_BLOCK, /* the call a with the macro b as its caller */
	JN_WITH,       /* JN_SETs in a, body b, in a frame of their own */
	JN_BREAK,
	JN_CONTINUE,
	JN_DO, /* a, for what it does */
};

enum jop {
	JO_ADD,
	JO_SUB,
	JO_MUL,
	JO_DIV,
	JO_FLOORDIV,
	JO_MOD,
	JO_POW,
	JO_CONCAT,
	JO_EQ,
	JO_NE,
	JO_LT,
	JO_GT,
	JO_LE,
	JO_GE,
	JO_IN,
	JO_NOT_IN
};

/* Names that a macro must mention to be given them. */
enum jmacro_uses { JMACRO_CALLER = 1, JMACRO_VARARGS = 2, JMACRO_KWARGS = 4 };

struct jfunction;
struct jnode {
	uint8_t kind;
	uint8_t op;     /* enum jop */
	bool negate;    /* JN_TEST: is not */
	uint16_t depth; /* of the tree below */
	struct jplace place;
	struct jnode *a, *b, *c, *d;
	struct jnode *next;         /* in a list */
	const struct jfunction *fn; /* JN_FILTER, JN_TEST; NULL: nothing is named text */
	struct proto_str text;
	int64_t i;
	double f;
};

/* *loops_content: some loop goes through what is called content. */
int jinja_parse(struct jarena *a, const struct jtok *toks, struct jnode **out, bool *loops_content, struct sl_err *err);

/* ---- values ---- */

enum jtype {
	JV_ABSENT, /* an argument that was not given; never in a variable */
	JV_UNDEFINED,
	JV_NONE,
	JV_BOOL,
	JV_INT,
	JV_FLOAT,
	JV_STRING,
	JV_LIST,
	JV_TUPLE,
	JV_DICT,
	JV_NAMESPACE,
	JV_LOOP,
	JV_FUNCTION,
	JV_MACRO,
	JV_CYCLER,
	JV_JOINER
};

enum jtrust { JTRUST_NONE, JTRUST_ALL, JTRUST_MASK };

struct jstr {
	const char *at;
	size_t n;
	const uint8_t *mask; /* JTRUST_MASK: a byte per byte */
	uint8_t trust;       /* enum jtrust */
};

struct jvalue;
struct jlist;
struct jdict;
struct jloop;
struct jmacro;
struct jfunction;
struct jframe;

struct jvalue {
	uint8_t type; /* enum jtype */
	bool trusted; /* numbers and booleans: what they print as */
	bool markup;  /* strings: jinja_markup.c */
	union {
		bool b;
		int64_t i;
		double f;
		struct jstr s;
		struct jlist *list; /* also of a tuple, a cycler (what it gives) and a joiner */
		struct jdict *dict; /* also of a namespace */
		struct jloop *loop;
		const struct jmacro *macro;
		struct {
			const struct jfunction *fn;
			const struct jvalue *self; /* of a method; else NULL */
		} function;
		struct proto_str name; /* undefined: of what, for the message */
	};
};
struct jlist { /* shared by all values that mean it */
	struct jvalue *items;
	size_t n, cap;
	size_t at;    /* of a cycler; of a joiner: whether it began */
	bool grouped; /* a pair of groupby, which has names */
};
struct jpair {
	struct jvalue key, value;
	struct jpair *next;
};
struct jdict {
	struct jpair *first, *last;
	size_t n;
};
struct jloop {
	struct jlist *list;
	size_t index;
	int depth0;
	const struct jnode *recursive; /* the JN_FOR that calling it runs again, or NULL */
	struct jframe *outer;          /* lives while the loop is not over */
	bool over;
	struct jvalue changed; /* what changed() was last given; JV_ABSENT at first */
};
struct jmacro {
	const struct jnode *node;
	struct jframe *frame; /* where it was defined: its free names */
};

/* Why the statements of a body end early. */
enum jflow { JFLOW_ON, JFLOW_BREAK, JFLOW_CONTINUE };

/* A run of a template. Functions that return int give 0 or a negative code, with err filled. */
struct jrun {
	struct jarena arena;
	struct sl_err *err;  /* never NULL */
	struct jplace place; /* of the node at work */
	uint64_t steps;
	int depth;      /* of recursion into values */
	int nodes_deep; /* of recursion into nodes */
	enum jflow flow;
	struct jframe *frame;
	struct jframe *free_frames; /* linked by outer */
	struct jvar *free_vars;
	uint64_t n_macros; /* made so far */
	struct sl_buf *text, *trust;
	size_t max_text; /* bound on text->len */
	int64_t now_s;   /* for strftime_now; 0: the clock's */
};

int jrun_fail(struct jrun *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Accounts for a step and for work on n bytes. */
int jrun_charge(struct jrun *r, size_t n);
/* Zeroed arena memory, or NULL with r->err filled. */
void *jrun_alloc(struct jrun *r, size_t n);
/* Guards recursion into nested lists and dictionaries; a good one ends with r->depth--. */
int jrun_descend(struct jrun *r);

/* Appends to the output. */
int jrun_put(struct jrun *r, struct jstr s);
/* What was put since mark (r->text->len then), taken off the output again. */
int jrun_capture(struct jrun *r, size_t mark, struct jstr *out);

const char *jvalue_type_name(const struct jvalue *v);
bool jvalue_true(const struct jvalue *v);
static inline bool jvalue_is_list(const struct jvalue *v) { return v->type == JV_LIST || v->type == JV_TUPLE; }
static inline bool jvalue_is_number(const struct jvalue *v)
{
	return v->type == JV_BOOL || v->type == JV_INT || v->type == JV_FLOAT;
}
/* None and what was not given: for optional arguments. */
static inline bool jvalue_is_nothing(const struct jvalue *v) { return v->type == JV_ABSENT || v->type == JV_NONE; }
struct jvalue jvalue_none(void);
struct jvalue jvalue_int(int64_t i, bool trusted);
struct jvalue jvalue_float(double f, bool trusted);
struct jvalue jvalue_bool(bool b);
struct jvalue jvalue_string_of(struct jstr s);
struct jvalue jvalue_literal(struct proto_str text); /* trusted; borrowed */
struct jvalue jvalue_undefined(struct proto_str name);
/* Untrusted; the texts are borrowed. SL_ELIMIT when it is nested too deep. */
int jvalue_from_json(struct jrun *r, const json_t *j, struct jvalue *out);
bool jvalue_text_is(const struct jvalue *v, const char *text);

/* Lists. */
struct jlist *jlist_new(struct jrun *r, size_t cap); /* NULL with r->err filled */
int jlist_add(struct jrun *r, struct jlist *l, const struct jvalue *v);
/* Adds the bytes of s in [from, to). */
int jlist_add_part(struct jrun *r, struct jlist *l, struct jstr s, size_t from, size_t to);
struct jvalue jvalue_list_of(struct jlist *l);
struct jvalue jvalue_tuple_of(struct jlist *l);
/* What a loop over v goes through: items, keys, characters. */
int jvalue_items(struct jrun *r, const struct jvalue *v, struct jlist **out);

/* Dictionaries. Keys are strings, numbers, booleans and none. */
struct jdict *jdict_new(struct jrun *r); /* NULL with r->err filled */
const struct jpair *jdict_find(const struct jdict *d, const struct jvalue *key);
int jdict_put(struct jrun *r, struct jdict *d, const struct jvalue *key, const struct jvalue *value);
/* A pair of r's memory whose key d does not have yet; d takes it. */
void jdict_append(struct jdict *d, struct jpair *pair);
void jdict_remove(struct jdict *d, const struct jpair *pair);
enum jdict_part { JDICT_KEYS, JDICT_VALUES, JDICT_ITEMS };
int jdict_list(struct jrun *r, const struct jdict *d, enum jdict_part part, struct jvalue *out);

int jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b, bool *out);
/* -1, 0, 1; 2 when one is not a number. */
int jvalue_order_numbers(const struct jvalue *a, const struct jvalue *b);
int jvalue_order(struct jrun *r, const struct jvalue *a, const struct jvalue *b, int *out);
int jvalue_contains(struct jrun *r, const struct jvalue *in, const struct jvalue *what, bool *out);
int jvalue_compare(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b, bool *out);
int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out);
/* v[key]; an index or key that is not there gives an undefined value. */
int jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key, struct jvalue *out);
/* v.name as Jinja finds it: an attribute or a method before an item. */
int jvalue_attr(struct jrun *r, const struct jvalue *v, struct proto_str name, struct jvalue *out);
/* v[from:to:step]; NULL where nothing stands. */
int jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3], struct jvalue *out);
int jvalue_binary(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b, struct jvalue *out);

/* ---- text of values ---- */

/* What printing v gives. Python's text of a list or dictionary is never trusted. */
int jvalue_string(struct jrun *r, const struct jvalue *v, struct jstr *out);
struct jjson { /* json.dumps' arguments */
	bool ascii, sort_keys;
	const struct jstr *indent; /* of a level, or NULL: on one line */
	struct jstr item, key;     /* separators */
};
/* Never trusted. */
int jvalue_json(struct jrun *r, const struct jvalue *v, const struct jjson *how, struct jstr *out);
/* Python's repr; at least 32 bytes. */
void jinja_print_float(double f, char *out);

int jstr_concat(struct jrun *r, const struct jstr *parts, size_t n, struct jstr *out);
struct jstr jstr_sub(struct jstr s, size_t from, size_t n);
bool jstr_equal(struct jstr a, struct jstr b);
size_t jstr_chars(struct jstr s);
/* The byte at which the k-th character begins; n for the one past the last. */
size_t jstr_offset(struct jstr s, size_t k);
/* The UTF-8 character at byte i and its length. */
size_t jstr_char(struct jstr s, size_t i, uint32_t *out);
/* Strips white space, or the characters of set. */
struct jstr jstr_strip(struct jstr s, bool left, bool right, const struct jstr *set);
enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITAL, JCASE_TITLE_FILTER };
int jstr_case(struct jrun *r, struct jstr s, enum jcase to, struct jstr *out);
/* The parts between the occurrences of sep (none: of white space), at most max + 1 of them, counted
 * from the right if so wanted. max < 0: all. */
int jstr_split(struct jrun *r, struct jstr s, const struct jstr *sep, int64_t max, bool right, struct jlist **out);
int jstr_replace(struct jrun *r, struct jstr s, struct jstr from, struct jstr to, int64_t max, struct jstr *out);
int jstr_join(struct jrun *r, struct jstr sep, const struct jlist *parts, bool any, struct jstr *out);
int jstr_repeat(struct jrun *r, struct jstr s, int64_t times, struct jstr *out);
/* Python's % with the arguments of a list. exact: all of them must be used. escape: what isn't markup is escaped. */
int jstr_format(struct jrun *r, struct jstr format, const struct jlist *args, bool exact, bool escape,
		struct jstr *out);
bool jinja_is_space(uint32_t c);
bool jinja_is_printable(uint32_t c);
bool jinja_is_alpha(uint32_t c);
/* A letter or a number of any kind. */
bool jinja_is_alnum(uint32_t c);

/* Markup, which `safe` and `escape` make (jinja_markup.c). */
struct jvalue jvalue_markup_of(struct jstr s);
/* The value's text as markup: escaped, unless it is markup already. */
int jinja_escape(struct jrun *r, const struct jvalue *v, struct jvalue *out);
/* Two strings, at least one of them markup, joined. */
int jinja_add_markup(struct jrun *r, const struct jvalue *a, const struct jvalue *b, struct jvalue *out);
/* self.join(l), where self is markup. */
int jinja_join_markup(struct jrun *r, const struct jvalue *self, const struct jlist *l, struct jvalue *out);
/* The strings of a list are parts of self: markup if that is. */
void jinja_mark_parts(const struct jvalue *self, struct jlist *l);

/* ---- calls ---- */

enum { JINJA_MAX_ARGS = 4 };

struct jnamed {
	struct proto_str name;
	struct jvalue value;
};
struct jargs {
	struct jvalue *at;
	struct jnamed *named;
	size_t n, n_named;
	const struct jvalue *caller; /* of a call block, or NULL */
};

/* params are the parameters' names with commas between; the first `min` must be given. "*" as the
 * last takes any more arguments, "**" any more names: the function finds them in all. */
struct jfunction {
	const char *name, *params;
	int min;
	int (*call)(struct jrun *r, const struct jvalue *self, const struct jvalue *args, const struct jargs *all,
		    struct jvalue *out);
	uint8_t self; /* methods: the type of value that has it */
};
extern const struct jfunction jinja_filters[], jinja_list_filters[], jinja_tests[], jinja_methods[],
    jinja_string_methods[], jinja_globals[]; /* end: no name */

#define JSELF                                                                                          \
	struct jrun *r, const struct jvalue *self, const struct jvalue *args, const struct jargs *all, \
	    struct jvalue *out

int jinja_method_update(JSELF);
int jinja_method_splitlines(JSELF), jinja_method_islower(JSELF), jinja_method_isupper(JSELF);

/* NULL: no such function. */
const struct jfunction *jinja_find_global(struct proto_str name);
const struct jfunction *jinja_find_filter(struct proto_str name);
const struct jfunction *jinja_find_test(struct proto_str name);
/* Of that type of value. JV_ABSENT: of any. */
const struct jfunction *jinja_find_method(struct proto_str name, uint8_t type);
/* Whether a method of that name and of some type can be called like that. */
bool jinja_method_fits(struct proto_str name, const struct jnode *args);
/* Whether one argument of fn is the name of a test or a filter, and which. */
bool jinja_is_filter_of_functions(const struct jfunction *fn, int *at, bool *tests);

/* Whether a call of that shape can be one of fn; if not, what is wrong (static text), and with
 * which name. */
const char *jinja_wrong_args(const struct jfunction *fn, const struct jnode *args, struct proto_str *name);
int jinja_call_function(struct jrun *r, const struct jfunction *fn, const struct jvalue *self, const struct jargs *args,
			struct jvalue *out);
/* A function, a macro, a joiner or a recursive loop. */
int jinja_call_value(struct jrun *r, const struct jvalue *callee, const struct jargs *args, struct jvalue *out);
int jinja_call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args, struct jvalue *out);
/* loop(list) inside of that loop. */
int jinja_call_loop(struct jrun *r, const struct jloop *l, const struct jargs *args, struct jvalue *out);
/* Whether `loop` has the attribute. */
bool jinja_loop_knows(struct proto_str name);

/* What arguments must be. */
int jinja_want_string(struct jrun *r, const struct jvalue *v);
int jinja_want_int(struct jrun *r, const struct jvalue *v, int64_t *out);

/* ---- evaluation ---- */

struct jvar {
	struct proto_str name;
	struct jvalue value;
	struct jvar *next;
};
struct jframe {
	struct jvar *vars;
	struct jframe *outer;
	uint64_t n_macros; /* made before it */
};
struct jframe *jframe_new(struct jrun *r, struct jframe *outer); /* NULL with r->err filled */
int jinja_bind(struct jrun *r, struct proto_str name, const struct jvalue *value);
int jinja_look_up(struct jrun *r, struct proto_str name, struct jvalue *out);
int jinja_eval(struct jrun *r, const struct jnode *n, struct jvalue *out);
/* The arguments of a call, evaluated. */
int jinja_eval_args(struct jrun *r, const struct jnode *list, struct jargs *out);
/* Filters as the tree of a block has them, applied to text. */
int jinja_eval_filters(struct jrun *r, const struct jnode *n, const struct jvalue *text, struct jvalue *out);
int jinja_run(struct jrun *r, const struct jnode *body);

static inline bool proto_str_is(struct proto_str a, const char *b)
{
	return a.n == __builtin_strlen(b) && __builtin_memcmp(a.at, b, a.n) == 0;
}
static inline bool proto_str_same(struct proto_str a, struct proto_str b)
{
	return a.n == b.n && (a.n == 0 || __builtin_memcmp(a.at, b.at, a.n) == 0);
}

#endif
