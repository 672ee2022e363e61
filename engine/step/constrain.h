/* SPDX-License-Identifier: Apache-2.0
 *
 * Constrained answers: a grammar (engine/grammar), which begins after the reasoning where there is some, and a budget
 * of tokens for reasoning. Private to engine/; step thread, but for constrain_prompt.
 *
 * A draw sees a mask that is a function of the sequence's own tokens, so a constrained answer is as independent of its
 * batch, drafts and pre-emptions as a free one. End tokens are permitted where the grammar may end. Where nothing can
 * follow, the answer ends with the token that completes it. Tokens that the constraint forces are taken without a draw
 * (constrain_forced) and computed together with the next one; a draw would yield the same, since the mask has only
 * them.
 *
 *   MAYBE     the answer begins with reasoning or with the grammar   → THINKING or BODY at its first token
 *   THINKING  draws are free but for ends before a grammar; once     → BODY at the literal that closes reasoning
 *             the budget is spent, the tokens that close reasoning
 *             are forced
 *   BODY      the grammar
 */
#ifndef ENGINE_CONSTRAIN_H
#define ENGINE_CONSTRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/parts/parts_format.h"
#include "engine/grammar/grammar.h"
#include "engine/sample/sampler.h"

struct tokenizer;

enum { CONSTRAIN_LITERAL = 48, CONSTRAIN_CLOSING = 8 };

enum constrain_phase { CONSTRAIN_BODY, CONSTRAIN_MAYBE, CONSTRAIN_THINKING };

/* What a request asks for; constant. */
struct constrain_how {
	struct grammar *grammar;    /* NULL: none */
	enum constrain_phase phase; /* at the beginning of the answer */
	enum parts_reasoning reasoning;
	uint32_t budget;             /* tokens of reasoning; 0: no bound */
	const struct tokenizer *tok; /* borrowed */
};

/* A position in the answer; copied for drafts and hypotheses. */
struct constrain_at {
	struct grammar_state grammar; /* of no grammar: the body is free */
	enum constrain_phase phase;
	uint32_t n_thought;
	uint8_t n_closing; /* of the tokens that close reasoning: taken since the budget was spent */
	uint8_t n_tail;
	char tail[CONSTRAIN_LITERAL]; /* the end of the reasoning so far */
};

struct seq_constraint {
	struct constrain_how how; /* grammar: owned */
	const char *close;        /* ends reasoning */
	int32_t open_id;          /* begins it; -1: no single token does */
	int32_t closing[CONSTRAIN_CLOSING];
	uint8_t n_closing; /* 0: there is no budget */
	struct constrain_at now, ahead;
};

/* Where an answer to a chat prompt begins, by the prompt's last bytes. Any thread. */
enum constrain_phase constrain_prompt(enum parts_reasoning r, const char *end, size_t n);

/* Takes the reference to how->grammar, also on failure. 0, SL_ENOMEM, SL_ELIMIT. */
int constrain_init(struct seq_constraint *c, const struct constrain_how *how);
/* The same for another choice; nothing has been taken yet. */
int constrain_follow(struct seq_constraint *c, const struct seq_constraint *lead);
void constrain_dispose(struct seq_constraint *c);
/* Whether the answer may ever be constrained. */
static inline bool constrain_is_on(const struct seq_constraint *c)
{
	return c->how.grammar != NULL || c->n_closing > 0;
}

void constrain_copy(struct constrain_at *to, const struct constrain_at *from); /* to is not in use before */
void constrain_at_dispose(struct constrain_at *at);
/* Sets p, of a draw at `at`, to what may be drawn; mask [a bit for each token of the vocabulary] is written and
 * borrowed by p if it is needed. 0, SL_ELIMIT or SL_ENOMEM. */
int constrain_draw(const struct seq_constraint *c, struct constrain_at *at, uint32_t *mask, struct sampler_params *p);
/* Follows id, which does not end the answer. 0, SL_EINVAL (it is not permitted), SL_ELIMIT, SL_ENOMEM. */
int constrain_take(const struct seq_constraint *c, struct constrain_at *at, int32_t id);
/* Nothing can follow: the answer is complete. */
bool constrain_complete(struct constrain_at *at);
/* An answer that ended here would not be complete. */
bool constrain_is_partial(struct constrain_at *at);
/* The next token if it is forced; else -1. */
int32_t constrain_forced(const struct seq_constraint *c, struct constrain_at *at);

/* A draft begins behind the own tokens. */
void constrain_ahead(struct seq_constraint *c);
/* How many of n draft tokens may follow one another. */
uint32_t constrain_cut(struct seq_constraint *c, const int32_t *draft, uint32_t n);

#endif
