/* SPDX-License-Identifier: Apache-2.0
 *
 * The room splits an answer into content, reasoning and tool calls, between a generation's tokens and the formats of
 * responses. base/parts has the models' formats as data, and the terms: literal, marker, section, form, bare.
 *
 * - Pure: the result is a function of the sequence of tokens. How tokens are grouped only affects how text is cut into
 *   events, so a logged answer stays the same byte for byte.
 * - Incremental: text is held only while it may begin a literal or a call, or while it is blanks before one.
 * - Nothing a model writes is an error. A call begins once its name is complete and is a declared tool's; until then it
 *   may still be content, and an unknown name stays content. After that, malformed JSON arguments are passed on
 *   unchanged; in other syntaxes the call ends (cut) and the rest is content.
 * - If the tokens end within a call, the call ends (cut). An incomplete literal, key, number or word is dropped,
 *   because 12 might have become 123.
 * - Bounded: at most PARTS_MAX_HELD bytes and one token are held. Anything longer is not a call.
 *
 * The states are in parts_priv.h. Thread: any; a stream belongs to one thread at a time. Callers: gateway/answer.
 */
#ifndef GATEWAY_PARTS_H
#define GATEWAY_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/parts/parts_format.h"

enum {
	PARTS_MAX_HELD = 16384, /* bytes of a call's beginning, or of a value of unknown type */
	PARTS_MAX_MARKERS = 120,
	PARTS_MAX_NAME = 256,
	PARTS_MAX_TOOLS = 1024,
	PARTS_TEXT_BYTES = 384, /* of a stream's state, what a token of text uses */
};

/* ---- declared tools ---- */

struct parts_tool {
	const char *name;
	const char *schema; /* JSON Schema of the arguments, n_schema bytes; NULL: not given */
	size_t n_schema;
};

/* Names and argument types: immutable, with copies of all texts, so any number of streams may borrow it. */
struct parts_tools;

/* 0; SL_EINVAL: an empty or too long name, or a schema that is not a JSON object; SL_ELIMIT: too many; SL_ENOMEM. */
int parts_tools_create(const struct parts_tool *tools, size_t n, struct parts_tools **out);
void parts_tools_destroy(struct parts_tools *t); /* NULL allowed */

/* ---- the stream ----
 *
 * Text. Blanks before a call and around reasoning are dropped, but blanks before a call separate the content before it
 * from content after it. An answer without calls and reasoning is passed on byte for byte. Reasoning begins where
 * content would begin (at the start or after a call); a marker begins it anywhere. In reasoning, only a marker begins a
 * call. A control token without meaning in the format is dropped.
 *
 * Arguments are JSON text. JSON syntaxes pass bytes on. TAGGED: the declared type decides; without one, a JSON number,
 * true, false, null, object or array is that, anything else a string. PYTHON: the literal decides; words other than
 * True, False and None are strings. */

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

/* A control token of the model. */
struct parts_marker {
	int32_t id;
	const char *text; /* terminated */
};

struct parts_init {
	enum parts_format format;
	enum parts_reasoning reasoning;
	bool starts_in_reasoning;           /* the prompt opens it */
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
/* Copies the stream, with another callback. */
int parts_copy(const struct parts *p, parts_on_event *on_event, void *ctx, struct parts **out);
void parts_destroy(struct parts *p); /* NULL allowed */

/* Takes the next token: a marker if id is one (text is ignored then); otherwise text, as the engine released it, which
 * may be empty. id -1: text without a token. 0; PARTS_STOP: the only allowed call is complete, generation may end, and
 * later tokens are ignored; SL_ENOMEM or the callback's code, which later calls return, too. */
enum { PARTS_STOP = 1 };
int parts_feed(struct parts *p, int32_t id, const char *text, size_t n);

/* The end of the tokens: decides what is held, and ends an open call. Call it once. 0 or a negative code. */
int parts_finish(struct parts *p);

/* Would text that follows the tokens so far be reasoning? */
bool parts_reasons(const struct parts *p);

/* The number of calls that have begun. */
int parts_calls(const struct parts *p);

/* ---- forced calls ---- */

/* The text of forced calls as pieces for a grammar:
 *   begin, then one or more of (prefix of a tool, arguments, suffix) with separators between them, then end
 * With number, a prefix continues with the call's number in the conversation and that text.
 * Arguments are JSON of the tool's schema; or, with member, each is member with its name for the %s, its value, and
 * member_end. A literal that is a control token of the model (parts_format_literals) means that token. If the model may
 * but need not call, one of the triggers begins its calls. channels: calls are messages, and others may precede them.
 */
struct parts_grammar_call {
	const char *name;   /* borrowed from the tools given */
	char *prefix;       /* owned; with the name */
	const char *schema; /* borrowed; NULL: any object */
	size_t n_schema;
};

struct parts_grammar {
	const char *begin, *suffix, *separator, *end; /* constants */
	const char *member, *member_end;              /* constants, or NULL */
	const char *number;                           /* constant; NULL: no numbers */
	const char *triggers[2 * PARTS_MAX_FORMS];    /* constants */
	size_t n_triggers;                            /* 0: calls may begin as other text does */
	bool channels;
	struct parts_grammar_call *calls; /* owned */
	size_t n_calls;
	bool several; /* more than one call may follow */
};

/* named: the tool to call; NULL: any. several: parallel calls are allowed; ignored if the format has no separator. 0;
 * SL_EUNSUPPORTED: the format has no calls, err names it; SL_ENOTFOUND: no such tool; SL_ENOMEM. */
int parts_grammar(enum parts_format f, const struct parts_tool *tools, size_t n, const char *named, bool several,
		  struct parts_grammar *out, struct sl_err *err);
void parts_grammar_dispose(struct parts_grammar *g);

#endif
