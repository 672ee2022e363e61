/* SPDX-License-Identifier: Apache-2.0
 *
 * A context-free grammar whose terminals are regular languages, as the front ends (engine/constraint) write it. There
 * is no lexer: a string is in the grammar if it is a concatenation of strings of the terminals; ambiguity is permitted.
 * Terminals may be nullable.
 *
 * Built by one thread, then consumed by grammar_create.
 */
#ifndef ENGINE_GRAMMAR_RULES_H
#define ENGINE_GRAMMAR_RULES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/grammar/rx.h"

struct rules;

/* A symbol: a rule or a terminal. */
struct rules_sym {
	uint32_t is_rule : 1, of : 31; /* the rule, or the rx */
};

/* Limits of one grammar; zero fields take the defaults of grammar.c. */
struct rules_limits {
	size_t max_rx_nodes, max_rules, max_symbols;
};
int rules_create(const struct rules_limits *limits, struct rules **out);
void rules_destroy(struct rules *r);
/* The pool for its terminals. */
struct rx_pool *rules_pool(struct rules *r);
/* The first shortage of it or of its pool: 0, SL_ELIMIT, SL_ENOMEM. */
int rules_fault(const struct rules *r);

/* A new rule, without alternatives. */
struct rules_sym rules_new(struct rules *r);
struct rules_sym rules_terminal(struct rules *r, rx terminal);
/* Adds an alternative, a sequence of n symbols; n may be 0. */
void rules_add(struct rules *r, struct rules_sym rule, const struct rules_sym *of, size_t n);
/* least to most copies of s, separated by `between` (n_between symbols, may be 0). Stored as a counter, not unrolled: 1
 * to 1,000,000 copies cost a few symbols. most may be RX_UNBOUNDED. */
struct rules_sym rules_repeat(struct rules *r, struct rules_sym s, const struct rules_sym *between, size_t n_between,
			      uint32_t least, uint32_t most);
void rules_start(struct rules *r, struct rules_sym rule);

#endif
