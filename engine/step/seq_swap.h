/* SPDX-License-Identifier: Apache-2.0
 *
 * Swapping: pre-empted sequences whose pages wait in host memory (engine/kv/kv_swap.h). Private to engine/; step
 * thread.
 *
 * A pre-empted sequence loses its pages. Full pages stay in the prefix tree until they are needed, usually not for
 * long. If copying the pages out and back takes less time than computing their tokens again (both are measured), they
 * are copied and the sequence resumes with the same bytes. Its answer is the same either way: keys and values do not
 * depend on the other rows of their step.
 *
 * Not swapped: pages that another sequence uses (they stay in the tree), hypotheses of a search, tokens being verified,
 * rows in flight, and drafts.
 */
#ifndef ENGINE_SEQ_SWAP_H
#define ENGINE_SEQ_SWAP_H

#include "engine/step/batch.h"

/* Before s loses its slot; n_past of its own tokens are in its pages. */
void seq_swap_out(struct eng_seq *s, uint32_t n_past);
/* How many tokens would be in the pages of s if it started now and found n_found in the tree. */
uint32_t seq_swap_would_have(const struct eng_seq *s, uint32_t n_found);
/* s starts with what the tree had: allocates pages for its swapped ones and copies them. Nothing stays swapped. */
void seq_swap_in(struct eng_seq *s);
/* Whether copies to the pages of s, which has a slot, are in flight: a step with rows of s would wait for them. */
bool seq_swap_arriving(struct eng_seq *s);
/* Discards the swapped pages of s. */
void seq_swap_drop(struct eng_seq *s);

#endif
