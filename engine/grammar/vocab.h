/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary as a trie of its tokens' bytes, in preorder: a node's first child follows it, and its subtree ends at
 * `end`. Tokens are sorted by their bytes, so a subtree's tokens are a range.
 */
#ifndef ENGINE_GRAMMAR_VOCAB_H
#define ENGINE_GRAMMAR_VOCAB_H

#include "engine/grammar/automaton.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/rx_priv.h"

struct trie_node {
	uint32_t end;   /* of its subtree */
	uint32_t first; /* of its subtree's tokens; the node's own end where the next node's begin */
	/* Bit sets of classes. above: those of the text up to and including this node; below: those of all texts after
	 * it. */
	uint8_t above, below;
	uint8_t byte;
	/* The bytes of the longest text after it (MAX_HEIGHT: that or more), and the position inside a character where
	 * it ends (phase.h). */
	uint8_t height : 5, phase : 3;
};
enum { MAX_HEIGHT = 31 };

struct trie {
	struct trie_node *nodes; /* with a sentinel at the end */
	int32_t *ids;            /* sorted by bytes */
	uint32_t n_nodes, n_ids, depth;
};

/* The plain tokens (rx_cover.c) of at most max_chars characters as a mask, and a trie of all other tokens. */
struct slice {
	uint32_t max_chars, n_plain;
	uint32_t *mask;
	struct trie rest;
};
enum { N_SLICES = 4 };

/* Tokens of more than `bytes` bytes, except plain tokens of at most that many characters. The first list is empty: no
 * token is that long. */
struct long_tokens {
	uint32_t bytes, n;
	int32_t *ids;
};
enum { N_LONG = 4 };

/* Texts over one set of characters, and the tokens that are such texts. A configuration that accepts every text of a
 * class (closed.c) permits them all without a walk. CLASS_PLAIN has all plain characters; the other classes are
 * ASCII. */
struct text_class {
	struct rx_set bytes;
	uint32_t n, longest; /* tokens; bytes of the longest one */
	uint32_t *mask;
};
enum { CLASS_PLAIN, N_CLASSES = AUTO_CLASSES };

/* Plain tokens by their number of characters: those with n characters are ids[from[n]] up to ids[from[n + 1]]; all are
 * from[0] up to from[MAX_PLAIN + 1]. Longer ones are not listed. */
enum { MAX_PLAIN = 128 };
struct plain_tokens {
	uint32_t from[MAX_PLAIN + 2];
	int32_t *ids;
};

struct grammar_vocab {
	const struct tokenizer *tok;
	_Atomic uint32_t refs;
	size_t words;
	uint64_t *pairs; /* bit left << 8 | right: some token has these adjacent bytes */
	struct trie all;
	struct slice slices[N_SLICES];    /* by descending max_chars; the first has all plain tokens */
	struct long_tokens longs[N_LONG]; /* by descending bytes */
	struct text_class classes[N_CLASSES];
	char *marks; /* the texts of control tokens as words */
	struct plain_tokens plain;
};

/* A control token is the word VOCAB_MARK, its text, VOCAB_MARK. That byte never occurs in UTF-8, so a grammar can
 * require the token, and no text is mistaken for it. */
enum { VOCAB_MARK = 0xFF };

/* May a token occur in text? id is below n_vocab. */
bool vocab_is_text(const struct tokenizer *t, int32_t id);
bool vocab_is_mark(const struct tokenizer *t, int32_t id);
/* The control token that is this word; -1: none. */
int32_t vocab_mark(const struct grammar_vocab *v, const char *word, size_t n);

#endif
