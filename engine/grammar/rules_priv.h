/* SPDX-License-Identifier: Apache-2.0
 *
 * A grammar under construction; the compiler (compile.c) reads it.
 */
#ifndef ENGINE_GRAMMAR_RULES_PRIV_H
#define ENGINE_GRAMMAR_RULES_PRIV_H

#include "base/err.h"
#include "engine/grammar/rules.h"

enum { RULES_END = UINT32_MAX };

/* One alternative: n symbols from `from`. */
struct rules_alt {
	uint32_t from, n, next; /* the rule's next alternative, RULES_END: none */
};

struct rules_rule {
	uint32_t first, last; /* alternatives; RULES_END: none */
	/* A repetition (is_repeat) has no alternatives. It has one symbol, then n_between symbols, from `from`. */
	uint32_t from, n_between, least, most;
	bool is_repeat;
};

struct rules {
	struct rx_pool *pool;
	struct rules_rule *rules;
	struct rules_alt *alts;
	struct rules_sym *syms;
	uint32_t n_rules, cap_rules, n_alts, cap_alts, n_syms, cap_syms;
	uint32_t max_rules, max_syms, start;
	int fault;
};

#endif
