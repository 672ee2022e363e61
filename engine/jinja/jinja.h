/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandboxed Jinja interpreter behind engine/chat/chat_template.h, which alone may use it. A pass runs on its
 * caller's thread and shares nothing. Passes:
 *
 *   jinja_lex.c                 source → tokens; white space control is done here
 *   jinja_expr.c, jinja_stmt.c  tokens → syntax tree; unknown constructs are refused with line and column
 *   jinja_eval.c, jinja_run.c   tree + variables → values; statements, macros and calls → text and trust
 *
 * All memory of a pass comes from one bounded arena and is released at once. A pass that fails therefore ends with one
 * jump (jinja_fail to jinja_catch): functions return results, never error codes. Nothing but the arena and the run's
 * two buffers may own memory between the two.
 */
#ifndef ENGINE_JINJA_H
#define ENGINE_JINJA_H

#include <jansson.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto/proto.h"

enum {
	JINJA_MAX_SOURCE = 256 << 10,
	JINJA_MAX_NODES = 64 << 10,
	JINJA_MAX_NAMES = 2048,
	JINJA_MAX_DEPTH = 64,       /* nesting in the source: blocks, brackets, unary operators */
	JINJA_MAX_TREE_DEPTH = 512, /* including chains of operators and filters, which are left-deep */
	JINJA_MAX_RUN_DEPTH = 1500, /* nodes being evaluated at once: macros may recurse */
	JINJA_MAX_VALUE_DEPTH = 64, /* lists in lists */
	JINJA_MAX_STEPS = 4 * 1000 * 1000,
	JINJA_MAX_OUTPUT = 8 << 20,
	JINJA_MAX_ARENA = 64 << 20,
	JINJA_BYTES_PER_STEP = 256, /* work on text is charged as steps … */
	JINJA_SEARCH_COST = 8,      /* … and searching its characters costs this factor more */
};

/* ---- errors and memory ---- */

struct jescape {
	jmp_buf to;
	struct sl_err *err; /* may be NULL */
	int code;
};
/* Runs work(arg). 0, or the code of the jinja_fail that ended it. */
int jinja_catch(struct jescape *e, void (*work)(void *), void *arg);
void jinja_fail(struct jescape *e, int code, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));

struct jarena_block;
struct jarena {
	struct jarena_block *blocks;
	size_t used, cap; /* of the first block */
	size_t total, max;
	bool full; /* an allocation exceeded max */
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

/* In the arena; the last is JT_EOF. */
const struct jtok *jinja_lex(struct jescape *e, struct jarena *a, const char *src, size_t n);

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
	JN_DO, /* a, for its side effects */
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

/* Names that a macro receives only if it mentions them. */
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

/* Source to tree, both in the arena. *loops_content: some loop iterates over a value called content. SL_EINVAL,
 * SL_ELIMIT, SL_ENOMEM, SL_EUNSUPPORTED. */
int jinja_compile(struct jarena *a, const char *src, size_t n, struct jnode **out, bool *loops_content,
		  struct sl_err *err);

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
	bool trusted; /* numbers and booleans: trust of their printed text */
	bool markup;  /* strings: jinja_markup.c */
	union {
		int64_t i; /* also of a boolean: 0 or 1 */
		double f;
		struct jstr s;
		struct jlist *list; /* also of a tuple, a cycler (its values) and a joiner */
		struct jdict *dict; /* also of a namespace */
		struct jloop *loop;
		const struct jmacro *macro;
		struct {
			const struct jfunction *fn;
			const struct jvalue *self; /* of a method; else NULL */
		} function;
		struct proto_str name; /* undefined: its name, for the message */
	};
};
struct jlist { /* shared by all values that refer to it */
	struct jvalue *items;
	size_t n, cap;
	size_t at;    /* of a cycler; of a joiner: whether it was called */
	bool grouped; /* a pair of groupby, with named items */
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
	struct jframe *outer;          /* alive until the loop is over */
	bool over;
	struct jvalue changed; /* the last arguments of changed(); JV_ABSENT at first */
};
struct jmacro {
	const struct jnode *node;
	struct jframe *frame; /* where it was defined: holds its free names */
};

/* Why the statements of a body end early. */
enum jflow { JFLOW_ON, JFLOW_BREAK, JFLOW_CONTINUE };

/* A run of a template. */
struct jrun {
	struct jarena arena;
	struct jescape escape;
	struct jplace place; /* of the current node */
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

void jrun_fail(struct jrun *r, int code, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));
void jrun_fail_undefined(struct jrun *r, const struct jvalue *v) __attribute__((noreturn));
/* Accounts for a step and for work on n bytes. */
void jrun_charge(struct jrun *r, size_t n);
/* Zeroed; never NULL. */
void *jrun_alloc(struct jrun *r, size_t n);
/* Guards recursion into nested values; each call is paired with r->depth--. */
void jrun_descend(struct jrun *r);

/* Appends to the output. */
void jrun_put(struct jrun *r, struct jstr s);
/* Removes and returns the output since mark (a former r->text->len). */
struct jstr jrun_capture(struct jrun *r, size_t mark);

/* At most 64 bytes of a name, for a format's %.*s. */
#define JINJA_SHOWN(name) (int)((name).n < 64 ? (name).n : 64), (name).at

static inline struct proto_str jname(const char *word) { return (struct proto_str){word, strlen(word)}; }
static inline struct proto_str jname_of(struct jstr s) { return (struct proto_str){s.at, s.n}; }
static inline bool proto_str_same(struct proto_str a, struct proto_str b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}
static inline bool proto_str_is(struct proto_str a, const char *b) { return proto_str_same(a, jname(b)); }

const char *jvalue_type_name(const struct jvalue *v);
bool jvalue_true(const struct jvalue *v);
static inline bool jvalue_is_list(const struct jvalue *v) { return v->type == JV_LIST || v->type == JV_TUPLE; }
static inline bool jvalue_has_pairs(const struct jvalue *v) { return v->type == JV_DICT || v->type == JV_NAMESPACE; }
static inline bool jvalue_is_integer(const struct jvalue *v) { return v->type == JV_INT || v->type == JV_BOOL; }
static inline bool jvalue_is_number(const struct jvalue *v) { return jvalue_is_integer(v) || v->type == JV_FLOAT; }
/* Of a number. */
static inline double jvalue_double(const struct jvalue *v) { return v->type == JV_FLOAT ? v->f : (double)v->i; }
/* None or absent: for optional arguments. */
static inline bool jvalue_is_nothing(const struct jvalue *v) { return v->type == JV_ABSENT || v->type == JV_NONE; }
struct jvalue jvalue_none(void);
struct jvalue jvalue_int(int64_t i, bool trusted);
struct jvalue jvalue_float(double f, bool trusted);
struct jvalue jvalue_bool(bool b);
struct jvalue jvalue_string_of(struct jstr s, bool markup);
struct jvalue jvalue_literal(struct proto_str text); /* trusted; borrowed */
struct jvalue jvalue_undefined(struct proto_str name);
/* Untrusted; the texts are borrowed. */
struct jvalue jvalue_from_json(struct jrun *r, const json_t *j);
bool jvalue_text_is(const struct jvalue *v, const char *text);

/* Lists. */
struct jlist *jlist_new(struct jrun *r, size_t cap);
/* Into capacity that jlist_new reserved. */
static inline void jlist_put(struct jlist *l, struct jvalue v) { l->items[l->n++] = v; }
void jlist_add(struct jrun *r, struct jlist *l, struct jvalue v);
/* Adds the bytes of s in [from, to). */
void jlist_add_part(struct jrun *r, struct jlist *l, struct jstr s, size_t from, size_t to);
struct jlist *jlist_copy(struct jrun *r, const struct jvalue *items, size_t n);
void jlist_reverse(struct jlist *l);
struct jvalue jvalue_list_of(struct jlist *l);
struct jvalue jvalue_tuple_of(struct jlist *l);
/* The items that a loop over v visits: items, keys or characters. */
struct jlist *jvalue_items(struct jrun *r, const struct jvalue *v);

/* Dictionaries. Keys are strings, numbers, booleans and none. */
struct jdict *jdict_new(struct jrun *r);
struct jvalue jvalue_dict_of(struct jdict *d);
struct jpair *jdict_find(const struct jdict *d, const struct jvalue *key);
void jdict_put(struct jrun *r, struct jdict *d, struct jvalue key, struct jvalue value);
void jdict_put_all(struct jrun *r, struct jdict *d, const struct jdict *from);
/* Adds a pair in r's memory whose key is not in d. */
void jdict_append(struct jdict *d, struct jpair *pair);
void jdict_remove(struct jdict *d, const struct jpair *pair);
enum jdict_part { JDICT_KEYS, JDICT_VALUES, JDICT_ITEMS };
struct jvalue jdict_list(struct jrun *r, const struct jdict *d, enum jdict_part part);

bool jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b);
/* -1, 0, 1; 2 when one is not a number. */
int jvalue_order_numbers(const struct jvalue *a, const struct jvalue *b);
int jvalue_order(struct jrun *r, const struct jvalue *a, const struct jvalue *b);
bool jvalue_contains(struct jrun *r, const struct jvalue *in, const struct jvalue *what);
bool jvalue_compare(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b);
int64_t jvalue_length(struct jrun *r, const struct jvalue *v);
/* v[key]; a missing index or key gives an undefined value. */
struct jvalue jvalue_index(struct jrun *r, const struct jvalue *v, const struct jvalue *key);
/* v.name as Jinja finds it: an attribute or a method before an item. */
struct jvalue jvalue_attr(struct jrun *r, const struct jvalue *v, struct proto_str name);
/* v[from:to:step]; a NULL part is absent. */
struct jvalue jvalue_slice(struct jrun *r, const struct jvalue *v, const struct jvalue *const part[3]);
struct jvalue jvalue_binary(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b);

/* ---- text of values ---- */

/* The printed text of v. Text of a list or dictionary is never trusted. */
struct jstr jvalue_string(struct jrun *r, const struct jvalue *v);
struct jjson { /* json.dumps' arguments */
	bool ascii, sort_keys;
	const struct jstr *indent; /* of a level, or NULL: on one line */
	struct jstr item, key;     /* separators */
};
/* Never trusted. */
struct jstr jvalue_json(struct jrun *r, const struct jvalue *v, const struct jjson *how);

struct jstr jstr_concat(struct jrun *r, const struct jstr *parts, size_t n);
struct jstr jstr_sub(struct jstr s, size_t from, size_t n);
bool jstr_equal(struct jstr a, struct jstr b);
size_t jstr_chars(struct jstr s);
/* The byte at which the k-th character begins; s.n for the one past the last. */
size_t jstr_offset(struct jstr s, size_t k);
/* The UTF-8 character at byte i and its length; the byte at which the character before byte i begins. */
size_t jstr_char(struct jstr s, size_t i, uint32_t *out);
size_t jstr_before(struct jstr s, size_t i);
/* Strips white space, or the characters of set. */
struct jstr jstr_strip(struct jstr s, bool left, bool right, const struct jstr *set);
enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITAL, JCASE_TITLE_FILTER };
struct jstr jstr_case(struct jrun *r, struct jstr s, enum jcase to);
/* The parts between the occurrences of sep (NULL: of white space), at most max + 1 of them, counted from the right if
 * right. max < 0: all. */
struct jlist *jstr_split(struct jrun *r, struct jstr s, const struct jstr *sep, int64_t max, bool right);
struct jstr jstr_replace(struct jrun *r, struct jstr s, struct jstr from, struct jstr to, int64_t max);
/* any: parts of other types are printed; otherwise they are an error. */
struct jstr jstr_join(struct jrun *r, struct jstr sep, const struct jlist *parts, bool any);
struct jstr jstr_repeat(struct jrun *r, struct jstr s, int64_t times);
/* Python's % with the arguments of a list. exact: all of them must be used. escape: all but markup is escaped. */
struct jstr jstr_format(struct jrun *r, struct jstr format, const struct jlist *args, bool exact, bool escape);
bool jinja_is_space(uint32_t c);
bool jinja_is_printable(uint32_t c);
bool jinja_is_alpha(uint32_t c);
/* A letter or a number of any kind. */
bool jinja_is_alnum(uint32_t c);

/* Markup, which `safe` and `escape` make (jinja_markup.c): the value's text, escaped unless it is markup already. */
struct jstr jinja_escape(struct jrun *r, const struct jvalue *v);

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
struct jcall {
	const struct jvalue *self;
	const struct jvalue *args; /* by parameter; JV_ABSENT where none was given */
	const struct jargs *all;
	int how; /* of the function */
};

/* params are the parameters' names with commas between; the first `min` are required. "*" as the last accepts any
 * further arguments, "**" any names: the function finds them in jcall.all. */
struct jfunction {
	const char *name, *params;
	int min;
	struct jvalue (*call)(struct jrun *r, const struct jcall *c);
	int how;      /* which of the functions that share call */
	uint8_t self; /* methods: the type of value that has it */
};
extern const struct jfunction jinja_filters[], jinja_list_filters[], jinja_tests[], jinja_methods[],
    jinja_string_methods[]; /* end: no name */

/* A list of strings that are all parts of a text: markup if that is. */
struct jvalue jinja_marked_list(struct jlist *l, bool markup);
/* In several tables. */
struct jvalue jinja_is_case(struct jrun *r, const struct jcall *c);
struct jvalue jinja_update(struct jrun *r, const struct jcall *c);
struct jvalue jinja_splitlines(struct jrun *r, const struct jcall *c);
struct jvalue jinja_strip(struct jrun *r, const struct jcall *c);
enum { JSTRIP_LEFT = 1, JSTRIP_RIGHT = 2 };

/* NULL: no such function. */
const struct jfunction *jinja_find_global(struct proto_str name);
const struct jfunction *jinja_find_filter(struct proto_str name);
const struct jfunction *jinja_find_test(struct proto_str name);
/* Of that type of value. JV_ABSENT: of any. */
const struct jfunction *jinja_find_method(struct proto_str name, uint8_t type);
/* Whether some type has a method of that name that accepts these arguments. */
bool jinja_method_fits(struct proto_str name, const struct jnode *args);
/* Whether one argument of fn is the name of a test or a filter, and which. */
bool jinja_is_filter_of_functions(const struct jfunction *fn, int *at, bool *tests);

/* What is wrong with a call of fn with these arguments (static text), and with which name; NULL: nothing. */
const char *jinja_wrong_args(const struct jfunction *fn, const struct jnode *args, struct proto_str *name);
struct jvalue jinja_call_function(struct jrun *r, const struct jfunction *fn, const struct jvalue *self,
				  const struct jargs *args);
/* A function, a macro, a joiner or a recursive loop. */
struct jvalue jinja_call_value(struct jrun *r, const struct jvalue *callee, const struct jargs *args);
struct jvalue jinja_call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args);
/* loop(list) inside of that loop. */
struct jvalue jinja_call_loop(struct jrun *r, const struct jloop *l, const struct jargs *args);
/* Whether `loop` has the attribute. */
bool jinja_loop_knows(struct proto_str name);

/* What arguments must be. */
struct jstr jinja_want_string(struct jrun *r, const struct jvalue *v);
int64_t jinja_want_int(struct jrun *r, const struct jvalue *v);
/* JV_ABSENT gives otherwise. */
int64_t jinja_want_int_or(struct jrun *r, const struct jvalue *v, int64_t otherwise);

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
void jinja_bind(struct jrun *r, struct proto_str name, struct jvalue value);
struct jvalue jinja_look_up(struct jrun *r, struct proto_str name);
struct jvalue jinja_eval(struct jrun *r, const struct jnode *n);
/* The arguments of a call, evaluated. */
struct jargs jinja_eval_args(struct jrun *r, const struct jnode *list);
/* The filters of a block, applied to text. */
struct jvalue jinja_eval_filters(struct jrun *r, const struct jnode *n, struct jvalue text);
void jinja_run(struct jrun *r, const struct jnode *body);

#endif
