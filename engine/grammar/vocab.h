/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary as a trie of its tokens' bytes, in preorder: a node's first child follows it, its subtree ends at `end`.
 * Tokens are in the order of their bytes, so a subtree's tokens are a range.
 */
#ifndef ENGINE_GRAMMAR_VOCAB_H
#define ENGINE_GRAMMAR_VOCAB_H

#include "engine/grammar/automaton.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/rx_priv.h"

struct trie_node {
	uint32_t end;   /* of its subtree */
	uint32_t first; /* of its subtree's tokens; its own ones end where the next node's begin */
	/* Classes (a bit each) whose texts are: all that comes before and here; all that may come after. */
	uint8_t above, below;
	uint8_t byte;
	/* Bytes that may come after (MAX_HEIGHT: so many or more), and where in a character it ends (phase.h). */
	uint8_t height : 5, phase : 3;
};
enum { MAX_HEIGHT = 31 };

struct trie {
	struct trie_node *nodes; /* with a sentinel at the end */
	int32_t *ids;            /* tokens by their bytes */
	uint32_t n_nodes, n_ids, depth;
};

/* The plain tokens (rx_cover.c) of at most max_chars characters as a mask, and a trie of all other tokens. */
struct slice {
	uint32_t max_chars, n_plain;
	uint32_t *mask;
	struct trie rest;
};
enum { N_SLICES = 4 };

/* Tokens of more than `bytes` bytes, except plain ones of at most as many characters. The first list is empty: no token
 * is as long. */
struct long_tokens {
	uint32_t bytes, n;
	int32_t *ids;
};
enum { N_LONG = 4 };

/* Texts of one set of characters, and the tokens that are such: a state that takes every text of a class (closed.c)
 * takes all these without a look. Class CLASS_PLAIN is all plain characters; the others are of ASCII. */
struct text_class {
	struct rx_set bytes;
	uint32_t n, longest; /* tokens; bytes of the longest one */
	uint32_t *mask;
};
enum { CLASS_PLAIN, N_CLASSES = AUTO_CLASSES };

/* Plain tokens by their numbers of characters: those of n have the indices from[n] to from[n + 1], of from[0] to
 * from[MAX_PLAIN + 1]. Longer ones are not listed. */
enum { MAX_PLAIN = 128 };
struct plain_tokens {
	uint32_t from[MAX_PLAIN + 2];
	int32_t *ids;
};

struct grammar_vocab {
	const struct tokenizer *tok;
	_Atomic uint32_t refs;
	size_t words;
	uint64_t *pairs; /* bit left << 8 | right: a token has these bytes side by side */
	struct trie all;
	struct slice slices[N_SLICES];    /* by falling max_chars; the first has all plain tokens */
	struct long_tokens longs[N_LONG]; /* by falling bytes */
	struct text_class classes[N_CLASSES];
	char *marks; /* the texts of control tokens as words */
	struct plain_tokens plain;
};

/* A control token is the word VOCAB_MARK, its text, VOCAB_MARK. The byte occurs in no UTF-8, so a grammar may require
 * the token, and no text is taken for it. */
enum { VOCAB_MARK = 0xFF };

/* May a token occur in a text? id is below n_vocab. */
bool vocab_is_text(const struct tokenizer *t, int32_t id);
bool vocab_is_mark(const struct tokenizer *t, int32_t id);
/* The control token that is this word; -1: none. */
int32_t vocab_mark(const struct grammar_vocab *v, const char *word, size_t n);

#endif
