/* SPDX-License-Identifier: Apache-2.0
 *
 * The recognizer's state and what its files share.
 *
 * The queue has the symbols that are not consumed yet: bytes of text, and markers. A state looks at the front of the
 * queue, then consumes symbols and emits events, or waits. It may wait only if the symbols so far allow several
 * outcomes, so no outcome depends on how the tokens arrived. At the end of the tokens (final) it must decide.
 *
 *   state    meaning                                       next (one function per state: the table in parts.c)
 *   TEXT     content or reasoning                          HEAD at a literal that begins calls, TEXT at one of reasoning
 *   HEAD     everything since that literal is held         a body, once the name is a tool's; TEXT if it can't be a call
 *   MEMBERS  the other members of a JSON call              ARGS at its arguments, BETWEEN at its end
 *   ARGS     arguments that are JSON                       MEMBERS or AFTER at their end
 *   TAGS     between the arguments of TAGGED               VALUE, BETWEEN
 *   VALUE    one argument of TAGGED                        TAGS
 *   PYTHON   arguments of PYTHON                           BETWEEN
 *   AFTER    the arguments are complete                    BETWEEN at the call's end
 *   BETWEEN  after a call                                  a body at another call, TEXT at the section's end or at text
 *   STOPPED  after the only allowed call                   none
 */
#ifndef GATEWAY_PARTS_PRIV_H
#define GATEWAY_PARTS_PRIV_H

#include "base/buf.h"
#include "gateway/parts/parts.h"

enum parts_state {
	ST_TEXT,
	ST_HEAD,
	ST_MEMBERS,
	ST_ARGS,
	ST_TAGS,
	ST_VALUE,
	ST_PYTHON,
	ST_AFTER,
	ST_BETWEEN,
	ST_STOPPED,
	ST_N
};

/* NO and YES are final, whatever follows. */
enum verdict { NO, MORE, YES };

enum text_kind { TEXT_CONTENT, TEXT_REASONING };

/* Blanks at the end of a text are held, because a call may follow. No format writes more than these before a call. */
enum { MAX_BLANKS = 64 };

struct text_out {
	char blanks[MAX_BLANKS];
	uint8_t n_blanks;
	bool fresh; /* nothing of this run of text was emitted: leading blanks are dropped */
	bool shown; /* some text of this kind was emitted */
};

/* A literal that text is searched for. */
struct trigger {
	const char *lit;
	uint8_t n;
	bool marker;
	enum trigger_what { TRIGGER_CALL, TRIGGER_OPEN, TRIGGER_CLOSE } what;
};

enum { MAX_TRIGGERS = 2 * PARTS_MAX_FORMS + 2 };

/* How JSON arguments are read. */
enum args_mode {
	ARGS_START,  /* nothing yet */
	ARGS_NESTED, /* within { or [ */
	ARGS_STRING, /* JSON text as a JSON string */
	ARGS_RAW,    /* anything else */
};

enum { MAX_DEPTH = 64 };

/* Position in a Python literal. */
enum python_state { PY_KEY, PY_VALUE, PY_AFTER, PY_STRING };

struct python {
	enum python_state state;
	char stack[MAX_DEPTH]; /* closing bracket of each open container; the outermost are the arguments */
	bool keyed[MAX_DEPTH]; /* it has keys */
	uint8_t depth;
	bool first;    /* nothing in the innermost container yet */
	bool as_key;   /* the string is a key */
	char quote;    /* closes the string; 0: the form's literal closes it */
	uint8_t times; /* how many quotes close it: 1 or 3 */
	uint16_t n_positional;
};

/* What text uses comes first (PARTS_TEXT_BYTES). */
struct parts {
	const struct parts_format_desc *format;
	const struct parts_reasoning_desc *reasoning;
	const struct parts_tools *tools;
	const struct parts_marker *markers;
	size_t n_markers;
	uint8_t known[(PARTS_MAX_MARKERS + 7) / 8]; /* literals of the format: only these enter the queue */
	bool one_call;
	parts_on_event *on_event;
	void *ctx;

	enum parts_state state;
	bool final;
	int rc;

	struct sl_buf queue;
	struct sl_buf out; /* text of one event, not emitted yet */
	enum parts_event_kind out_kind;

	/* text */
	enum text_kind kind;
	bool begins;                      /* only blanks in this run of text so far */
	const char *label;                /* may follow; excluded from the reasoning */
	const struct parts_form *section; /* the open one */
	size_t front;                     /* HEAD: bytes of the literal at the front of the queue; 0: none */
	uint8_t first[2][32];             /* bytes that begin triggers, by kind of text */
	struct text_out text[2];
	struct trigger triggers[MAX_TRIGGERS];
	int n_triggers;

	/* the call */
	const struct parts_form *form;
	size_t tool;
	int n_calls;
	bool any_args; /* an argument, or a byte of one, was emitted */

	/* JSON */
	bool in_list, wrapped, has_args;
	uint8_t objects; /* open around the arguments */
	enum args_mode mode;
	uint32_t depth;
	bool in_string, escaped;

	/* TAGGED */
	bool value_fresh, value_string;
	unsigned value_types;

	struct python py;
};

/* ---- parts_lex.c: the queue ---- */

enum { SYM_END = -1, SYM_MARKER = 256 };
enum { LEX_ESCAPE = 0xff }; /* in the queue, before a marker's index or itself */

/* The symbol at an offset into the queue: a byte, SYM_MARKER + the marker's index, SYM_END. *n: its bytes there. */
int lex_at(const struct parts *p, size_t at, size_t *n);
int lex_push_text(struct parts *p, const char *text, size_t n);
int lex_push_marker(struct parts *p, size_t k);
void lex_consume(struct parts *p, size_t n);
/* Is the queue full? Later symbols are invisible until some are consumed. */
static inline bool lex_full(const struct parts *p) { return p->queue.len >= PARTS_MAX_HELD; }
/* Bytes of the queue that are visible. */
static inline size_t lex_seen(const struct parts *p) { return lex_full(p) ? PARTS_MAX_HELD : p->queue.len; }
/* Is the literal a control token of this model, or must it be one? */
bool lex_is_marker(const struct parts *p, const char *lit);
/* Is the literal at the offset? NULL: no. *end: the offset after it. */
enum verdict lex_match(const struct parts *p, size_t at, const char *lit, size_t *end);
static inline bool lex_blank(int sym) { return sym == ' ' || sym == '\n' || sym == '\t' || sym == '\r'; }
size_t lex_skip_blanks(const struct parts *p, size_t at);
bool lex_name_byte(int sym);
/* Appends the text of the queue between two offsets, without markers, to out. */
int lex_text(const struct parts *p, size_t from, size_t to, struct sl_buf *out);
/* MORE, or NO at the end of the tokens. */
static inline enum verdict lex_wait(const struct parts *p) { return p->final ? NO : MORE; }

/* A JSON string at an offset; *from, *to: between its quotes. */
enum verdict lex_json_string(const struct parts *p, size_t at, size_t *from, size_t *to, size_t *end);
/* Any JSON value. */
enum verdict lex_json_skip(const struct parts *p, size_t at, size_t *end);

/* ---- parts_out.c: events ---- */

void out_text(struct parts *p, const char *text, size_t n); /* of the current kind */
void out_queue(struct parts *p, size_t n);                  /* consumes n bytes and emits them as text */
void out_switch(struct parts *p, enum text_kind kind);      /* begins another run of text */
void out_args(struct parts *p, const char *text, size_t n);
void out_args_str(struct parts *p, const char *text);
void out_args_escaped(struct parts *p, const char *text, size_t n); /* inside a JSON string */
/* The queue between two offsets, inside a JSON string; does not consume. */
void out_args_queue(struct parts *p, size_t from, size_t to);
void out_call_begin(struct parts *p);
/* The call is over; the next state is BETWEEN, or STOPPED. */
void out_call_end(struct parts *p, bool cut);
void out_flush(struct parts *p);
void out_finish(struct parts *p);
void out_failed(struct parts *p, int rc); /* keeps the first failure; rc 0: none */

/* ---- the states: true: consumed or decided something; false: waits ---- */

bool text_step(struct parts *p);    /* parts_text.c */
bool head_step(struct parts *p);    /* parts_head.c */
bool between_step(struct parts *p); /* parts_head.c */
bool members_step(struct parts *p); /* parts_json.c */
bool args_step(struct parts *p);    /* parts_args.c */
bool after_step(struct parts *p);   /* parts_args.c */
bool tags_step(struct parts *p);    /* parts_tagged.c */
bool value_step(struct parts *p);   /* parts_tagged.c */
bool python_step(struct parts *p);  /* parts_python.c */

void text_init(struct parts *p); /* the triggers */

/* A call's parsed beginning. */
struct head {
	size_t name, name_end; /* offsets of its text */
	size_t end;            /* offset of what follows */
	enum parts_state body;
	size_t args, args_end; /* JSON: arguments before the name; 0: none */
	uint8_t objects;
	bool list, wrapped;
	size_t tool;
	bool found; /* tool is set; otherwise it is looked up by name */
	/* CHANNEL */
	bool is_text;
	enum text_kind kind;
};

/* Looks up the tool that the name in the queue refers to. */
bool head_tool(const struct parts *p, size_t from, size_t to, size_t *tool);
enum verdict json_head(const struct parts *p, const struct parts_form *f, size_t at, struct head *h); /* parts_json.c */
enum verdict channel_head(const struct parts *p, const struct parts_form *f, size_t at,
			  struct head *h); /* parts_channel.c */
enum verdict python_head(const struct parts *p, const struct parts_form *f, size_t at,
			 struct head *h); /* parts_python.c */

void python_begin(struct parts *p);

/* ---- parts_tools.c ---- */

enum { TYPE_STRING = 1, TYPE_NUMBER = 2, TYPE_BOOLEAN = 4, TYPE_OBJECT = 8, TYPE_ARRAY = 16, TYPE_NULL = 32 };

const char *tools_name(const struct parts_tools *t, size_t i);
bool tools_find(const struct parts_tools *t, const char *name, size_t n, size_t *out);
/* The declared types of an argument; 0: none. */
unsigned tools_types(const struct parts_tools *t, size_t tool, const char *key, size_t n);
/* The i-th declared argument, or NULL. */
const char *tools_argument(const struct parts_tools *t, size_t tool, size_t i);

/* ---- parts_value.c ---- */

/* May a value with this first byte be anything but a string? */
bool value_may_be_json(unsigned types, int first);
/* Emits a whole value, the queue's first n bytes, as JSON. */
void value_emit(struct parts *p, unsigned types, size_t n);
/* Is this one whole JSON value, strictly (RFC 8259), nested at most MAX_DEPTH deep? */
bool value_is_json(const char *text, size_t n);
bool value_is_number(const char *text, size_t n);

#endif
