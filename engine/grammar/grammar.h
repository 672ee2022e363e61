/* SPDX-License-Identifier: Apache-2.0
 *
 * This room constrains an answer to a grammar: which tokens may come next, at which point it may end, and which tokens
 * are forced. One byte-level automaton with a stack runs over a trie of the vocabulary's bytes. Masks are cached by the
 * automaton's state; tokens that stay inside a common terminal come from masks made once for each vocabulary.
 *
 *   vocab     a tokenizer's tokens as a trie; immutable, counted, any thread
 *   grammar   a compiled grammar and its caches, counted. Several sequences and threads may use one: it locks itself
 *   state     a sequence's position. Small, copied for each choice, beam and drafter; its owner's thread only
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
/* Control tokens, unused tokens and tokens without bytes are in no text: masks never have them. t must outlive it.
 * SL_ENOMEM. */
int grammar_vocab_create(const struct tokenizer *t, struct grammar_vocab **out);
struct grammar_vocab *grammar_vocab_ref(struct grammar_vocab *v);
void grammar_vocab_unref(struct grammar_vocab *v);
size_t grammar_vocab_mask_words(const struct grammar_vocab *v); /* of 32 tokens; (n_vocab + 31) / 32 */

/* ---- grammars ---- */

struct grammar_limits {
	size_t max_states, max_bytes; /* of the automaton and its caches; beyond, caches are dropped and made again */
	uint64_t max_work;            /* derivatives and items for one token, 10 ns to 1 us each; beyond, SL_ELIMIT */
};

struct grammar;
/* Takes r, also on failure. limits NULL: defaults. SL_EINVAL: the grammar has no string (err says so); SL_ELIMIT,
 * SL_ENOMEM. */
int grammar_create(struct grammar_vocab *v, struct rules *r, const struct grammar_limits *limits, struct grammar **out,
		   struct sl_err *err);
struct grammar *grammar_ref(struct grammar *g);
void grammar_unref(struct grammar *g);

/* ---- states ---- */

enum { GRAMMAR_TAIL = 32 };
struct grammar_state {
	struct grammar *g; /* counted; NULL: none */
	uint32_t at;       /* an index of g's automaton, counted there */
	/* The last bytes of the text, for forced tokens; cut: there were more before. Unused bytes are zero. */
	uint8_t n_tail;
	bool cut;
	char tail[GRAMMAR_TAIL];
};
int grammar_state_init(struct grammar_state *s, struct grammar *g);
void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from); /* to is not in use before */
void grammar_state_dispose(struct grammar_state *s);

/* Writes the tokens that may come next, one bit a token (bit id % 32 of word id / 32), grammar_vocab_mask_words words.
 * End tokens are the caller's: see grammar_may_end. Where a token is forced (grammar_forced), the mask has only that.
 * The mask is a function of the text so far and of nothing else. 0 or SL_ELIMIT, SL_ENOMEM (the sequence fails). */
int grammar_mask(struct grammar_state *s, uint32_t *mask);
/* Whether one token may come next; cheaper than a mask. */
bool grammar_permits(struct grammar_state *s, int32_t id);
/* Follows a token. SL_EINVAL, and s is unchanged, where it may not come next (in the sense of the mask). SL_ELIMIT,
 * SL_ENOMEM. */
int grammar_accept(struct grammar_state *s, int32_t id);
/* The same for raw bytes, by the grammar alone (no canonical tokens): for front ends and tests. */
int grammar_accept_bytes(struct grammar_state *s, const char *text, size_t n);
/* Whether the text so far is in the grammar: end tokens are permitted then. Nothing else may follow if
 * grammar_must_end. */
bool grammar_may_end(struct grammar_state *s);
bool grammar_must_end(struct grammar_state *s);
/* The tokens that must come next: at most max. Returns how many (0: the next is free).
 *
 * Text is forced where the grammar permits one byte only and no end. Its tokens are those of the canonical encoding
 * (tokenizer_encode) of the whole text, as far as they are certain whatever follows: up to the last seam of the forced
 * text, a boundary between two bytes that are neighbours in no token. What is behind it is forced by the grammar, but
 * not as tokens: any that the grammar permits may come. Nor are there forced tokens where the text so far is not cut
 * as its canonical encoding is, where no seam is among its last GRAMMAR_TAIL bytes, or where an encoding does not
 * keep the bytes of its text (a space put before it). So the canonical encoding of a whole text is never refused. */
size_t grammar_forced(struct grammar_state *s, int32_t *ids, size_t max);

#endif
