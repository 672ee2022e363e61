/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler's working state.
 */
#ifndef ENGINE_GRAMMAR_COMPILE_PRIV_H
#define ENGINE_GRAMMAR_COMPILE_PRIV_H

#include "engine/grammar/compile.h"

/* An alternative. A repetition has up to three, one for each way to begin: nothing, s, "s between s". */
struct work_alt {
	uint32_t rule, from, n;
	uint32_t open; /* symbols not yet known to have the property */
	bool productive;
};

struct work_rule {
	uint32_t from, n; /* its alternatives */
	bool productive, nullable, nonempty;
	uint32_t group;  /* of rules that begin with each other */
	uint32_t place;  /* in its group; the last one is its root and links to the others */
	uint32_t link;   /* the rule before it in its group */
	bool left, root; /* left-recursive */
};

struct work {
	struct rules *r;
	struct rx_dfa *dfa;
	struct gram *g;
	struct work_alt *alts;
	uint32_t *syms; /* as in gram_pos */
	struct work_rule *rules;
	uint32_t n_alts, n_syms, n_rules;
	uint32_t *uses_from, *uses; /* rule → alternatives that contain it */
	uint32_t *queue;
	int fault;
};

/* compile_scan.c. Fills alts, syms and rules and determines what they derive. */
int work_scan(struct work *w);
void work_dispose(struct work *w);
bool work_nullable(const struct work *w, uint32_t sym);
bool work_nonempty(const struct work *w, uint32_t sym);

/* compile_left.c. Finds groups of left-recursive rules. *unrolled: a repetition in one was rewritten as plain rules, so
 * the scan must be repeated. */
int work_groups(struct work *w, bool *unrolled);
/* Writes all rules of a left-recursive group, `members` in the order of their index in it. */
void work_write_left(struct work *w, const uint32_t *members, uint32_t n);

/* compile.c. Writes the positions of n symbols before next; returns the first, or next. */
uint32_t work_chain(struct work *w, const uint32_t *syms, uint32_t n, uint32_t next);
uint32_t work_position(struct work *w, uint32_t sym, uint32_t next);
void work_entry(struct work *w, uint32_t pos, uint32_t count);
/* Entries at pos and, past nullable symbols, after it, before `stop`. */
void work_entries(struct work *w, uint32_t pos, uint32_t stop, uint32_t count);
uint32_t work_new_rules(struct work *w, uint32_t n);

#endif
