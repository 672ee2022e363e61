/* SPDX-License-Identifier: Apache-2.0
 *
 * The room translates what clients send to constrain an answer into rules (engine/grammar/rules.h): JSON Schema,
 * regular expressions, GBNF, Lark's EBNF, lists of choices, tool calls. Pure; any thread. Callers: engine/core.
 */
#ifndef ENGINE_CONSTRAINT_H
#define ENGINE_CONSTRAINT_H

#include <stddef.h>

#include "base/err.h"
#include "engine/grammar/rules.h"

enum constraint_kind {
	CONSTRAINT_NONE = 0,
	CONSTRAINT_JSON_SCHEMA = 1, /* a schema, JSON */
	CONSTRAINT_JSON_OBJECT = 2, /* any JSON object; no text */
	CONSTRAINT_REGEX = 3,       /* matches the whole answer; ECMA-262 syntax with Unicode */
	CONSTRAINT_GBNF = 4,        /* llama.cpp's grammars */
	CONSTRAINT_LARK = 5,        /* Lark's EBNF */
	CONSTRAINT_CHOICE = 6,      /* a JSON array of strings */
	CONSTRAINT_CALLS = 7,       /* tool calls (constraint.c) */
	CONSTRAINT_KINDS,
};

struct constraint_limits {
	size_t max_depth, max_work; /* zero: defaults */
	struct rules_limits rules;
};

/* Translates a constraint to rules for grammar_create. SL_EINVAL: malformed; SL_EUNSUPPORTED; SL_ELIMIT: too large,
 * deep or slow; SL_ENOMEM. *err: one sentence with the keyword and its position: a JSON pointer for schemas,
 * LINE:COLUMN for grammars, an offset for regular expressions. */
int constraint_rules(enum constraint_kind kind, const char *text, size_t n, const struct constraint_limits *limits,
		     struct rules **out, struct sl_err *err);

#endif
