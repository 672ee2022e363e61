/* SPDX-License-Identifier: Apache-2.0
 *
 * The automaton of a grammar over bytes. A configuration is a set of items. An item is a position whose terminal is
 * being read, the terminal's state, and the stacks below. Configurations are interned, and their transitions are
 * computed once.
 *
 * From every configuration except AUTO_DEAD, some text of the grammar can be completed.
 */
#ifndef ENGINE_GRAMMAR_AUTOMATON_H
#define ENGINE_GRAMMAR_AUTOMATON_H

#include "engine/grammar/compile.h"
#include "engine/grammar/stacks.h"

enum {
	AUTO_DEAD = 0,
	AUTO_FAIL = UINT32_MAX,        /* a shortage: see auto_fault */
	AUTO_UNKNOWN = UINT32_MAX - 1, /* after a shortage: see auto_fault */
};
enum { AUTO_CLASSES = 8, AUTO_AHEAD = 256 };

struct auto_item {
	uint32_t pos, count, term, below;
};

struct auto_config {
	uint32_t from, n; /* items */
	uint32_t *next;   /* [256], once expanded */
	struct rx_set alive;
	uint32_t refs;    /* states at this configuration */
	uint32_t mask;    /* mask.c: its mask; 0: none */
	uint32_t relaxed; /* mask.c: the configuration with the same short tokens; 0: not searched yet */
	uint32_t seen;    /* closed.c: the last search that found it, and the phases in which */
	uint8_t seen_in;
	bool may_end, is_free; /* if is_free: from links to the next free one */
	uint8_t level;         /* mask.c: which tokens count as short there */
	/* closed.c, for each class of text: it accepts all texts of up to `safe` bytes; not known to accept all of
	 * `open` bytes (0: not searched). */
	uint8_t safe[AUTO_CLASSES], open[AUTO_CLASSES];
	uint8_t phase, safe_within, open_within; /* the same for CLASS_PLAIN inside a character (phase.h; 0: none) */
};

struct auto_pending {
	uint32_t rule, below;
};

struct auto_arrival {
	uint32_t next, count, below;
};

struct automaton {
	struct rx_dfa dfa;
	struct gram gram;
	struct stacks stacks;
	struct auto_config *configs;
	struct auto_item *items;
	uint32_t *table;
	uint32_t n_configs, cap_configs, table_mask, start;
	size_t n_items, cap_items;
	uint32_t n_ahead;              /* states that auto_ahead expanded */
	uint32_t n_searches;           /* closed.c */
	uint32_t free_configs, n_live; /* configurations in use */
	struct auto_item *packed;      /* automaton_gc.c */
	/* For the step being computed. */
	struct auto_item *found;
	struct auto_pending *pending; /* sorted by descending rank */
	struct auto_arrival *arrivals;
	size_t n_found, cap_found, n_pending, cap_pending, n_arrivals, cap_arrivals;
	uint32_t step;
	bool may_end;
	uint64_t work, max_work, allowed, pause; /* allowed: max_work, except for masks */
	uint32_t n_done;                         /* computations since auto_begin */
	size_t bytes, max_bytes;                 /* of transitions; of everything */
	int fault;
};

struct auto_limits {
	uint32_t search; /* states of a terminal that a search for a string visits */
	uint64_t work;   /* derivatives and items for a token */
	size_t bytes;    /* at twice this number: SL_ELIMIT */
};
/* Also destroys r's pool. */
int auto_init(struct automaton *a, struct rules *r, const struct auto_limits *limits, struct sl_err *err);
void auto_dispose(struct automaton *a);
int auto_fault(const struct automaton *a);
/* Call before each token: resets the work counter. */
void auto_begin(struct automaton *a);
/* After auto_begin: another limit for this once. */
void auto_allow(struct automaton *a, uint64_t work);
/* After auto_begin: beyond this work, what is not yet computed fails with SL_EAGAIN. Some progress is always made,
 * except with work 0. */
void auto_pause_after(struct automaton *a, uint64_t work);
/* Counts work that auto_expand and auto_compute do not. False: a shortage, or SL_EAGAIN. */
bool auto_spend(struct automaton *a, uint64_t work);
/* Computes c's alive set and transitions. False on a shortage. */
bool auto_expand(struct automaton *a, uint32_t c);
/* automaton_ahead.c: expands in advance states of terminals that are slow to expand, at most AUTO_AHEAD. Returns how
 * many; a shortage only ends it early. */
uint32_t auto_ahead(struct automaton *a);
uint32_t auto_compute(struct automaton *a, uint32_t c, uint8_t byte);
size_t auto_bytes(const struct automaton *a);
/* automaton_gc.c: drops everything except what referenced configurations need; these keep their index. SL_ENOMEM:
 * nothing is dropped. */
int auto_collect(struct automaton *a);
void auto_rehash(struct automaton *a);

/* The configuration of c's items with the terminal states terms[0..n). AUTO_FAIL. */
uint32_t auto_with_terms(struct automaton *a, uint32_t c, const uint32_t *terms);

static inline uint32_t auto_step(struct automaton *a, uint32_t c, uint8_t byte)
{
	const uint32_t *next = a->configs[c].next;
	if (next != NULL && next[byte] != AUTO_UNKNOWN)
		return next[byte];
	return auto_compute(a, c, byte);
}

#endif
