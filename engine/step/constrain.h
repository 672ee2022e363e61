/* SPDX-License-Identifier: Apache-2.0
 *
 * Constrained answers: a grammar (engine/grammar), which begins after the reasoning if there is any, and a token budget
 * for reasoning. Private to engine/; step thread, except constrain_prompt.
 *
 * A draw's mask is a function of the sequence's own tokens, so a constrained answer is as independent of its batch,
 * drafts and pre-emptions as a free one. End tokens are permitted where the grammar may end. If nothing can follow, the
 * answer ends with the token that completes it. Forced tokens are taken without a draw (constrain_forced) and computed
 * together with the next one; a draw would give the same, since the mask has no other token.
 *
 * A mask may take much longer than a step. It is made before the draw, in slices of about a millisecond; until it is
 * finished, its sequence sits steps out, and all others go on (constrain_ready).
 *
 *   MAYBE     the answer begins with reasoning or with the grammar   → THINKING or BODY at its first token
 *   THINKING  draws are free, but can't end before a grammar; once   → BODY at the literal that closes reasoning
 *             the budget is spent, the closing tokens are forced
 *   BODY      the grammar
 *
 * Harmony's grammar of calls has the reasoning's channels itself: the answer is BODY from its first token. Once the
 * budget is spent, the closing tokens are forced wherever that grammar permits the first of them, which is within a
 * message of reasoning or for the user; they lead to the final message or, where a call is required, to the call.
 */
#ifndef ENGINE_CONSTRAIN_H
#define ENGINE_CONSTRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/parts/parts_format.h"
#include "engine/grammar/grammar.h"
#include "engine/sample/sampler.h"

struct tokenizer;

enum { CONSTRAIN_LITERAL = 48, CONSTRAIN_CLOSING = 24 };
/* The work on masks in slices that an answer may take: seconds of a processor. */
enum { CONSTRAIN_MOST_WORK = 1 << 24 };

enum constrain_phase { CONSTRAIN_BODY, CONSTRAIN_MAYBE, CONSTRAIN_THINKING };

/* The request's constraint; constant. */
struct constrain_how {
	struct grammar *grammar;    /* NULL: none */
	enum constrain_phase phase; /* at the beginning of the answer */
	enum parts_reasoning reasoning;
	uint32_t budget;             /* tokens of reasoning; 0: no limit */
	bool channels;               /* the grammar has the reasoning's channels */
	const struct tokenizer *tok; /* borrowed */
};

/* A position in the answer; copied for drafts and hypotheses. */
struct constrain_at {
	struct grammar_state grammar; /* without a grammar the body is free */
	enum constrain_phase phase;
	uint32_t n_thought;
	uint8_t n_closing; /* closing tokens taken since the budget was spent */
	uint8_t n_tail;
	char tail[CONSTRAIN_LITERAL]; /* the end of the reasoning so far */
};

struct seq_constraint {
	struct constrain_how how; /* grammar: owned */
	const char *close;        /* ends reasoning */
	int32_t open_id;          /* begins it; -1: no single token does */
	int32_t closing[CONSTRAIN_CLOSING];
	uint8_t n_closing; /* 0: no budget */
	struct constrain_at now, ahead;
	bool waiting;    /* the mask at `now` is unfinished */
	int fault;       /* what its draw fails with; 0: nothing */
	uint32_t n_work; /* of unfinished masks */
};

/* The phase in which an answer to a chat prompt begins, by the prompt's last bytes. Any thread. */
enum constrain_phase constrain_prompt(enum parts_reasoning r, const char *end, size_t n);

/* Owns the reference to how->grammar, also on failure. 0, SL_ENOMEM, SL_ELIMIT. */
int constrain_init(struct seq_constraint *c, const struct constrain_how *how);
/* The same for another choice, before the first token. */
int constrain_follow(struct seq_constraint *c, const struct seq_constraint *lead);
void constrain_dispose(struct seq_constraint *c);
/* Can the answer ever be constrained? */
static inline bool constrain_is_on(const struct seq_constraint *c)
{
	return c->how.grammar != NULL || c->n_closing > 0;
}

void constrain_copy(struct constrain_at *to, const struct constrain_at *from); /* to: uninitialised */
void constrain_at_dispose(struct constrain_at *at);
/* Makes the mask of the draw at `at` (now or ahead), for about this much work. False: it is unfinished, and the next
 * call continues it (0: unless it needs none). True: a draw at `at` is quick; it may fail. mask is overwritten. */
bool constrain_ready(struct seq_constraint *c, struct constrain_at *at, uint32_t *mask, uint32_t work);
/* Restricts p, the parameters of a draw at `at`, to permitted tokens. mask has one bit per token of the vocabulary; if
 * it is needed, it is written and p borrows it. 0, SL_ELIMIT or SL_ENOMEM. */
int constrain_draw(const struct seq_constraint *c, struct constrain_at *at, uint32_t *mask, struct sampler_params *p);
/* Advances by id, which is not an end token. 0, SL_EINVAL (not permitted), SL_ELIMIT, SL_ENOMEM. */
int constrain_take(const struct seq_constraint *c, struct constrain_at *at, int32_t id);
/* Is the answer complete, so that nothing can follow? */
bool constrain_complete(struct constrain_at *at);
/* Would an answer that ends here be incomplete? */
bool constrain_is_partial(struct constrain_at *at);
/* The next token if it is forced; otherwise -1, also where finding it takes more work. */
int32_t constrain_forced(const struct seq_constraint *c, struct constrain_at *at, uint64_t work);

/* Starts a draft after the sequence's own tokens. */
void constrain_ahead(struct seq_constraint *c);
/* How many of the n draft tokens are permitted, from the first on, as far as each takes no more work. */
uint32_t constrain_cut(struct seq_constraint *c, const int32_t *draft, uint32_t n, uint64_t work);

#endif
