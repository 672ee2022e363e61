/* SPDX-License-Identifier: Apache-2.0
 *
 * The room constrains an answer to a grammar: which tokens may come next, where it may end, and which tokens are
 * forced. A byte-level automaton with a stack runs over a trie of the vocabulary. Masks are cached by the automaton's
 * state; tokens that stay inside a common terminal use masks that are made once per vocabulary.
 *
 *   vocab     a tokenizer's tokens as a trie; immutable, counted, any thread
 *   grammar   a compiled grammar and its caches; counted, shared by sequences and threads, locks itself
 *   state     a sequence's position; small, copied for each choice, beam and draft; one thread at a time
 *
 * Callers: engine/core, engine/step.
 */
#ifndef ENGINE_GRAMMAR_H
#define ENGINE_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/grammar/rules.h"

struct tokenizer;

/* ---- the vocabulary ---- */

struct grammar_vocab;
/* Masks never contain unused tokens or tokens without bytes. They contain a control token only where the grammar has
 * its text between two bytes 0xFF. t must outlive the vocabulary. SL_ENOMEM. */
int grammar_vocab_create(const struct tokenizer *t, struct grammar_vocab **out);
struct grammar_vocab *grammar_vocab_ref(struct grammar_vocab *v);
void grammar_vocab_unref(struct grammar_vocab *v);
size_t grammar_vocab_mask_words(const struct grammar_vocab *v); /* (n_vocab + 31) / 32 */

/* ---- grammars ---- */

enum { GRAMMAR_MASK_WORK = 16, GRAMMAR_SLICE = 1 << 11 };
struct grammar_limits {
	size_t max_states, max_bytes; /* of the automaton and its caches; beyond it, caches are dropped and rebuilt */
	/* Derivatives and items for one token; beyond, SL_ELIMIT. A mask may take GRAMMAR_MASK_WORK times as many. */
	uint64_t max_work;
};

struct grammar;
/* Owns r, also on failure. limits NULL: defaults. SL_EINVAL: the grammar has no string (with *err); SL_ELIMIT,
 * SL_ENOMEM. */
int grammar_create(struct grammar_vocab *v, struct rules *r, const struct grammar_limits *limits, struct grammar **out,
		   struct sl_err *err);
struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar *g);

/* ---- states ---- */

enum { GRAMMAR_TAIL = 32 };
struct grammar_state {
	struct grammar *g; /* counted; NULL: none */
	uint32_t at;       /* index of a configuration in g's automaton, counted there */
	/* The last bytes of the text, for forced tokens; cut: the text is longer. Unused bytes are zero. */
	uint8_t n_tail;
	bool cut;
	char tail[GRAMMAR_TAIL];
};
int grammar_state_init(struct grammar_state *s, struct grammar *g);
void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from); /* to: uninitialised */
void grammar_state_dispose(struct grammar_state *s);

/* Writes which tokens may come next: bit id % 32 of word id / 32, grammar_vocab_mask_words words. The caller adds end
 * tokens (grammar_may_end). If a token is forced (grammar_forced), the mask has only that. The mask depends only on the
 * text so far. 0; SL_ELIMIT, SL_ENOMEM: the sequence fails. */
int grammar_mask(struct grammar_state *s, uint32_t *mask);
/* The same in slices of about so much work (GRAMMAR_SLICE: about a millisecond): SL_EAGAIN while the mask is
 * unfinished; the next call continues it. Once it is finished, grammar_mask is cheap. work 0: only a mask that needs no
 * more work is finished; any more gets it a little further. */
int grammar_mask_within(struct grammar_state *s, uint32_t *mask, uint64_t work);
/* May this token come next? Cheaper than computing a mask. */
bool grammar_permits(struct grammar_state *s, int32_t id);
/* Advances s by a token. SL_EINVAL: the token is not permitted, and s is unchanged. SL_ELIMIT, SL_ENOMEM. */
int grammar_accept(struct grammar_state *s, int32_t id);
/* The same for about so much work: SL_EAGAIN beyond it, and s is unchanged. */
int grammar_accept_within(struct grammar_state *s, int32_t id, uint64_t work);
/* The same for raw bytes, by the grammar alone (without canonical tokens): for front ends and tests. */
int grammar_accept_bytes(struct grammar_state *s, const char *text, size_t n);
/* May the text end here, so that end tokens are permitted? Must it end here? */
bool grammar_may_end(struct grammar_state *s);
bool grammar_must_end(struct grammar_state *s);
/* Writes the tokens that must come next, at most max. Returns how many; 0: the next is free.
 *
 * Text is forced where the grammar permits exactly one byte and no end. Its tokens are those of the canonical encoding
 * (tokenizer_encode) of the whole text, as far as later text can't change them: up to the last seam of the forced text,
 * a boundary between two bytes that no token has side by side. After the last seam any permitted token may come. No
 * tokens are forced if the text so far is not tokenized canonically, if its last GRAMMAR_TAIL bytes have no seam, or if
 * an encoding changes the bytes of its text (by adding a space). So the canonical encoding of a text is always
 * permitted. */
size_t grammar_forced(struct grammar_state *s, int32_t *ids, size_t max);
/* The same for about so much work; also 0 if it takes more. */
size_t grammar_forced_within(struct grammar_state *s, int32_t *ids, size_t max, uint64_t work);

/* What the calling thread has spent on grammars so far, in the units of GRAMMAR_SLICE: what a caller that shares its
 * thread with others may compare before and after. */
uint64_t grammar_spent(void);

#endif
