/* SPDX-License-Identifier: Apache-2.0
 *
 * A deterministic automaton of byte classes over the pool's expressions, built state by state on demand. A
 * transition never leads to an expression without strings, so every text that can be followed can be completed.
 */
#ifndef ENGINE_GRAMMAR_RX_DFA_H
#define ENGINE_GRAMMAR_RX_DFA_H

#include "engine/grammar/rx_priv.h"

enum { DFA_DEAD = 0, DFA_UNKNOWN = UINT32_MAX };

enum dfa_life { LIFE_UNKNOWN, LIFE_LIVE, LIFE_DEAD };

struct dfa_state {
	rx of;
	uint8_t nullable, life, filled, pruned, covered;
	bool queued;         /* is or was to be expanded in advance (automaton_ahead.c) */
	uint32_t cover;      /* rx_cover; valid once `covered` */
	uint32_t seen;       /* the search that visited it last */
	uint32_t *next;      /* 256; NULL until filled */
	struct rx_set alive; /* bytes with a live transition; valid once filled and pruned */
};

struct rx_dfa {
	struct rx_pool *pool;
	struct dfa_state *states; /* 0 is the dead state */
	uint32_t n, cap;
	uint32_t *of_rx; /* the state of an expression; 0: none yet */
	uint32_t n_of_rx;
	/* A state whose expansion SL_EAGAIN has interrupted; DFA_DEAD: none. left: the bytes not yet derived. */
	uint32_t partial, *partial_next;
	struct rx_set left;
	uint32_t searches, max_search;
	uint32_t *path; /* for searches: pairs of state and next byte */
	size_t cap_path;
	size_t bytes; /* of transitions */
};

int dfa_init(struct rx_dfa *d, struct rx_pool *pool, uint32_t max_search);
void dfa_dispose(struct rx_dfa *d);
/* The state of an expression; DFA_DEAD: RX_NONE, or a shortage (rx_pool_fault). */
uint32_t dfa_state(struct rx_dfa *d, rx of);
/* Computes s's transitions. False on a shortage. */
bool dfa_expand(struct rx_dfa *d, uint32_t s);
/* rx_cover of s. */
uint32_t dfa_cover(struct rx_dfa *d, uint32_t s);
/* Does s have a string? If the search does not decide, SL_ELIMIT is the pool's fault. */
bool dfa_is_live(struct rx_dfa *d, uint32_t s);

#endif
