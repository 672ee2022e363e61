/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules in the form that the automaton runs. A position is a symbol and what follows it in its alternative.
 *
 * Compilation removes the empty string, so the automaton never follows it: entries list where the nonempty strings of a
 * rule may begin, and a nullable symbol may be skipped. No rule begins with itself: left-recursive rules are rewritten
 * (compile_left.c). Symbols without strings are removed.
 */
#ifndef ENGINE_GRAMMAR_COMPILE_H
#define ENGINE_GRAMMAR_COMPILE_H

#include "engine/grammar/rules_priv.h"
#include "engine/grammar/rx_dfa.h"

/* A symbol: a rule if this bit is set, otherwise the first state of a terminal. */
#define GRAM_RULE 0x80000000u
/* What follows a position: GRAM_END, a position, or, with this bit, the end of a copy in the repetition. */
#define GRAM_LOOP 0x80000000u
enum { GRAM_END = 0 };

struct gram_pos {
	uint32_t sym, next;
	bool nullable;
};

/* Where a rule may begin. count: complete copies of a repetition before it. */
struct gram_entry {
	uint32_t pos, count;
};

struct gram_rule {
	uint32_t entries, n_entries;
	uint32_t body, n_body; /* in a repetition: where its second and later copies may begin */
	uint32_t least, most;
	uint32_t rank; /* lower than the ranks of rules that it may begin with */
	bool nullable;
};

struct gram {
	struct gram_pos *pos;
	struct gram_entry *entries;
	struct gram_rule *rules;
	uint32_t n_pos, cap_pos, n_entries, cap_entries, n_rules, cap_rules;
	uint32_t start;
};

/* May add rules to r. SL_EINVAL: no string; SL_ELIMIT, SL_ENOMEM. */
int gram_compile(struct rules *r, struct rx_dfa *dfa, struct gram *out, struct sl_err *err);
void gram_dispose(struct gram *g);

#endif
