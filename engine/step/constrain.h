/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers constrained to a grammar (engine/grammar). Private to engine/; step thread.
 *
 * A draw sees a mask that is a function of the sequence's own tokens, so a constrained answer is as independent of its
 * batch, drafts and pre-emptions as a free one. End tokens are permitted where the grammar may end. Where nothing can
 * follow, the answer ends with the token that completes it. Tokens that the grammar forces are taken without a draw
 * (constrain_forced) and computed together with the next one; a draw would yield the same, since the mask has only
 * them.
 */
#ifndef ENGINE_CONSTRAIN_H
#define ENGINE_CONSTRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/grammar/grammar.h"
#include "engine/sample/sampler.h"

struct seq_constraint {
	struct grammar *grammar;    /* owned; NULL: the answer is free */
	struct grammar_state now;   /* behind the sequence's own tokens */
	struct grammar_state ahead; /* behind its draft, while one is made */
};

/* Takes the reference to g (NULL: none). 0 or SL_ENOMEM; g is released in both cases by constrain_dispose. */
int constrain_init(struct seq_constraint *c, struct grammar *g);
/* The same constraint for another choice; nothing has been taken yet. 0 or SL_ENOMEM. */
int constrain_follow(struct seq_constraint *c, const struct seq_constraint *lead);
void constrain_dispose(struct seq_constraint *c);

/* Sets p, of a draw in this state of c, to what may be drawn; mask [a bit for each token of the vocabulary] is written
 * and borrowed by p. 0, SL_ELIMIT or SL_ENOMEM. */
int constrain_draw(const struct seq_constraint *c, struct grammar_state *state, uint32_t *mask,
		   struct sampler_params *p);
/* id, which does not end the answer, is the next own token. 0, SL_EINVAL (it is not permitted), SL_ELIMIT, SL_ENOMEM.
 */
int constrain_take(struct seq_constraint *c, int32_t id);
/* Nothing can follow: the answer is complete. */
bool constrain_complete(struct seq_constraint *c);
/* An answer that ended here would not be complete. */
bool constrain_is_partial(struct seq_constraint *c);
/* The next token if it is forced; else -1. */
int32_t constrain_forced(struct seq_constraint *c);

/* A draft begins behind the own tokens. */
void constrain_ahead(struct seq_constraint *c);
/* How many of n draft tokens may follow one another. */
uint32_t constrain_cut(struct seq_constraint *c, const int32_t *draft, uint32_t n);

#endif
