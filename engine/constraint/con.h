/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by all front ends: the memory of one translation, freed at its end, and its first fault. Allocations still
 * succeed after a fault, as long as there is memory. So functions check for faults in loops, and callers check once.
 */
#ifndef ENGINE_CONSTRAINT_CON_H
#define ENGINE_CONSTRAINT_CON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"
#include "engine/grammar/rules.h"

enum {
	CON_MAX_DEPTH = 256,        /* levels of nesting: of JSON, of groups, of references without progress */
	CON_MAX_WORK = 2000000,     /* steps of a translation, about 10 ns to 1 us each */
	CON_MAX_DERIVE = 1 << 17,   /* derivatives of its expressions, per translation */
	CON_MAX_BYTES = 256 << 20,  /* of memory */
	CON_MAX_TEXT = 8 << 20,     /* of source text */
	CON_REGEX_BYTES = 64 << 10, /* of one regular expression */
};

struct con_block;
struct con {
	struct rules *rules;
	struct rx_pool *pool;
	struct sl_err *err;
	int rc; /* the first fault */
	size_t work, max_work, max_depth;
	struct con_block *blocks;
	size_t bytes;                                      /* allocated so far */
	rx any_char, any_text, ws, any_string, any_number; /* built once; RX_NONE: not yet */
	struct rules_sym any_value, any_object, any_array; /* the same; unused while of == 0 and not is_rule */
};

void con_dispose(struct con *c);
/* Zeroed; NULL (with fault SL_ENOMEM or SL_ELIMIT) on exhaustion. */
void *con_alloc(struct con *c, size_t n, size_t each);
/* The list, grown if needed so that one more than its n elements fits; it may have moved. NULL: as above. */
void *con_grow(struct con *c, void *list, size_t n, size_t *cap, size_t each);
/* Keeps the first fault; returns its code. */
int con_fail(struct con *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Counts n steps. False after a fault, or when there are too many. */
bool con_step(struct con *c, size_t n);

/* ---- languages ---- */

rx con_any_char(struct con *c);                 /* one character, in UTF-8 */
rx con_any_text(struct con *c);                 /* any number of characters */
rx con_class(struct con *c, const char *bytes); /* one of these ASCII bytes */
rx con_text(struct con *c, const char *s);
rx con_optional(struct con *c, rx a);
rx con_minus(struct con *c, rx a, rx b); /* strings of a that are not in b */

/* A rule with one alternative. */
struct rules_sym con_sequence(struct con *c, const struct rules_sym *of, size_t n);

/* ---- any JSON ---- */

/* Blanks between tokens: none, one space, or one line break with up to 64 spaces or 16 tabs. */
rx con_ws(struct con *c);
rx con_any_string(struct con *c); /* with its quotes */
rx con_any_number(struct con *c);
struct rules_sym con_any_value(struct con *c);
struct rules_sym con_any_object(struct con *c);
struct rules_sym con_any_array(struct con *c);
/* A bracket or comma with the blanks permitted around it. */
struct rules_sym con_open(struct con *c, char bracket);
struct rules_sym con_close(struct con *c, char bracket);
struct rules_sym con_comma(struct con *c);
/* A value between start and end, with permitted blanks after it. None before it: clients that parse an answer while it
 * comes refuse a text of blanks only. */
struct rules_sym con_document(struct con *c, struct rules_sym value);

/* ---- front ends: each sets the start of c->rules, or leaves a fault ---- */

/* A value of the schema, without blanks around it; the empty language after a fault. */
struct rules_sym con_schema(struct con *c, const char *text, size_t n);
struct rules_sym con_schema_object(struct con *c, const char *text, size_t n); /* only objects of the schema */
/* An object of the schema in which each name and value stands between literals instead of in JSON; a string is written
 * as its text (gateway/parts reads it as the declared type). */
struct con_tags {
	bool on;
	rx before, after, end;     /* before and after the name, after the value */
	struct proto_str end_text; /* that no value contains */
};
struct rules_sym con_schema_tagged(struct con *c, const char *text, size_t n, const struct con_tags *tags);
void con_json_schema(struct con *c, const char *text, size_t n);
void con_regex(struct con *c, const char *text, size_t n);
void con_gbnf(struct con *c, const char *text, size_t n);
void con_lark(struct con *c, const char *text, size_t n);

#endif
