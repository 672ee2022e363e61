/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-empted sequences whose pages wait in the host's memory (engine/kv/kv_swap.h). Private to engine/; the step
 * thread's.
 *
 * A sequence that is pre-empted loses its pages; whole ones stay in the prefix tree as long as nobody needs them, which
 * mostly is not long, for pages are short. Where its pages can be brought out and back in less time than computing
 * their tokens again takes (both are measured), they are, and it goes on with the very bytes: keys and values do not
 * depend on what they were computed beside, so it says what it would have said either way.
 *
 * Not kept: what another sequence has in use too (it stays in the tree), the hypotheses of a search, tokens that are
 * judged, rows that are still on their way, and drafts.
 */
#ifndef ENGINE_SEQ_SWAP_H
#define ENGINE_SEQ_SWAP_H

#include "engine/step/batch.h"

/* s, which has a place, is about to lose it; n_past tokens of its own are in its pages. */
void seq_swap_out(struct eng_seq *s, uint32_t n_past);
/* How many tokens s would have in its pages if it started now and found n_found in the tree. */
uint32_t seq_swap_would_have(const struct eng_seq *s, uint32_t n_found);
/* s starts, with what was found in the tree: takes pages for what waits for it, which is nothing afterwards. */
void seq_swap_in(struct eng_seq *s);
/* Whether copies to pages of s, which has a place, are on their way: a step with rows of it would wait for them. */
bool seq_swap_arriving(struct eng_seq *s);
/* What waits for s is not needed any more. */
void seq_swap_drop(struct eng_seq *s);

#endif
