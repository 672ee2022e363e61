/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits an answer into its parts: content, reasoning, calls of tools. The one stage between a generation's tokens and
 * the formats of responses. base/parts has the models' formats as data and the terms: literal, marker, section, form,
 * bare.
 *
 * - Pure: the parts are a function of the sequence of tokens. The same text may come in any pieces; only how content,
 *   reasoning and arguments are cut into events depends on them. So a logged answer stays the same byte for byte.
 * - Incremental: text is held only while it may be the beginning of a literal or of a call, or blanks before one.
 * - Nothing fails on what a model writes. A call begins once its name is complete and is a declared tool's. Until then
 *   it may still be content, and an unknown name leaves it as content. After that, malformed JSON arguments are passed
 *   on as they are; in other syntaxes the call ends (cut) and the rest is content.
 * - Where the tokens end within a call, the call ends (cut). Half a literal, key, number or word of it is dropped: 12
 *   may have become 123.
 * - Bounded: at most PARTS_MAX_HELD bytes and what one token brings are held. What is longer is no call.
 *
 * Text of parts:
 *
 * - Blanks before a call or around reasoning are not part of the text. Where content goes on after a call, the blanks
 *   before the call separate the two. An answer without calls and reasoning is passed on byte for byte.
 * - Reasoning begins where content would begin (at the start or after a call); a marker begins it anywhere.
 * - In reasoning, calls count only if they begin with a marker.
 * - A control token that the format gives no meaning is dropped.
 *
 * Arguments are JSON text. JSON syntaxes pass bytes through. TAGGED: the declared type decides what a value is; without
 * a type, what reads as a JSON number, true, false, null, object or array is that, else a string. PYTHON: the literal
 * decides; words other than True, False and None are strings.
 *
 * States and what moves them (one function a state, in parts.c's table):
 *
 *   TEXT     content or reasoning                → HEAD at a literal that begins calls; → TEXT at one of reasoning
 *   HEAD     all since that literal is held      → a body, once the name is a tool's; → TEXT if it can't become a call
 *   MEMBERS  the rest of a JSON call's object    → ARGS at its arguments, → BETWEEN at its end
 *   ARGS     arguments that are JSON             → MEMBERS or AFTER at their end
 *   TAGS     between the arguments of TAGGED     → VALUE, → BETWEEN
 *   VALUE    one argument of TAGGED              → TAGS
 *   PYTHON   arguments of PYTHON                 → BETWEEN
 *   AFTER    arguments are complete              → BETWEEN at the call's end
 *   BETWEEN  after a call                        → HEAD's bodies at another call, → TEXT at the section's end or at text
 *   STOPPED  after the only call that is allowed
 */
#ifndef GATEWAY_PARTS_H
#define GATEWAY_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/parts/parts_format.h"

enum {
	PARTS_MAX_HELD = 16384, /* bytes of a call's beginning, or of a value whose type is not known yet */
	PARTS_MAX_MARKERS = 120,
	PARTS_MAX_NAME = 256,
	PARTS_MAX_TOOLS = 1024,
};

/* ---- declared tools ---- */

struct parts_tool {
	const char *name;
	const char *schema; /* JSON Schema of the arguments, n_schema bytes; NULL: not given */
	size_t n_schema;
};

/* Names and argument types, immutable and without references to what it was made from, so any number of streams may
 * borrow it. */
struct parts_tools;

/* 0; SL_EINVAL: an empty or too long name, or a schema that is no JSON object; SL_ELIMIT: too many; SL_ENOMEM. */
int parts_tools_create(const struct parts_tool *tools, size_t n, struct parts_tools **out);
void parts_tools_destroy(struct parts_tools *t); /* NULL is fine */

/* ---- the stream ---- */

enum parts_event_kind {
	PARTS_CONTENT,        /* text */
	PARTS_REASONING,      /* text */
	PARTS_CALL_BEGIN,     /* index, text: the tool's declared name */
	PARTS_CALL_ARGUMENTS, /* index, text: the next bytes of the arguments */
	PARTS_CALL_END,       /* index, cut */
};

struct parts_event {
	enum parts_event_kind kind;
	int index;        /* of the call, from 0 */
	const char *text; /* n bytes, not terminated; valid during the call */
	size_t n;
	bool cut; /* the arguments are not complete */
};

/* 0 or a negative code, which parts_feed then returns. Must not feed the same stream. */
typedef int parts_on_event(void *ctx, const struct parts_event *e);

/* One of the model's control tokens. */
struct parts_marker {
	int32_t id;
	const char *text; /* terminated */
};

struct parts_init {
	enum parts_format format;
	enum parts_reasoning reasoning;
	bool starts_in_reasoning;           /* the prompt has opened it */
	const struct parts_tools *tools;    /* borrowed; NULL: no calls, their syntax stays content */
	bool one_call;                      /* parallel_tool_calls is false: ends after the first call */
	const struct parts_marker *markers; /* borrowed, with their texts, for the stream's life */
	size_t n_markers;
	parts_on_event *on_event;
	void *ctx;
};

struct parts;

/* 0, SL_EINVAL (an unknown format, too many markers), SL_ENOMEM. */
int parts_create(const struct parts_init *init, struct parts **out);
/* An equal stream whose events go elsewhere. */
int parts_copy(const struct parts *p, parts_on_event *on_event, void *ctx, struct parts **out);
void parts_destroy(struct parts *p); /* NULL is fine */

/* The next token: a marker where id is one's, then text does not matter; else the text that the engine released with
 * it, which may be empty. id -1: text alone. 0; PARTS_STOP: the only call that is allowed is complete, generation may
 * end, and all that follows is ignored; SL_ENOMEM or the callback's code, which stay. */
enum { PARTS_STOP = 1 };
int parts_feed(struct parts *p, int32_t id, const char *text, size_t n);

/* The end of the tokens: what was held becomes what it can be, an open call ends. Once. 0 or a negative code. */
int parts_finish(struct parts *p);

/* How many calls have begun. */
int parts_calls(const struct parts *p);

/* ---- forced calls ---- */

/* The text of forced calls as pieces for a grammar:
 *   begin, then one or more of (prefix of a tool, JSON of its schema, suffix) with the separator between them, then end
 * Literals that are control tokens of the model (parts_format_literals) stand for these tokens. Of a model that may
 * call but need not, the trigger begins its calls. */
struct parts_grammar_call {
	const char *name;   /* borrowed from the tools given */
	char *prefix;       /* owned; with the name */
	const char *schema; /* borrowed; NULL: any object */
	size_t n_schema;
};

struct parts_grammar {
	const char *begin, *suffix, *separator, *end; /* constants */
	const char *trigger;              /* a constant; NULL: calls begin in several ways, or as other text does */
	struct parts_grammar_call *calls; /* owned */
	size_t n_calls;
	bool several; /* more than one call may follow */
};

/* named: the one tool that must be called; NULL: any. several: parallel calls are allowed (formats that write one call
 * only say no). 0; SL_EUNSUPPORTED: the format's arguments are not JSON, err names it; SL_ENOTFOUND: no such tool;
 * SL_ENOMEM. */
int parts_grammar(enum parts_format f, const struct parts_tool *tools, size_t n, const char *named, bool several,
		  struct parts_grammar *out, struct sl_err *err);
void parts_grammar_dispose(struct parts_grammar *g);

#endif
