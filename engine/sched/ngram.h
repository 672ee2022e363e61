/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts from the text itself: the tokens that followed the previous occurrence of its last three
 * tokens, or of its last two (prompt lookup decoding: Saxena 2023; Yang
 * et al., "Inference with Reference", 2023).
 */
#ifndef ENGINE_NGRAM_H
#define ENGINE_NGRAM_H

#include <stdint.h>

/* An index of one text. Init to zero. */
struct ngram {
	uint32_t *heads;  /* [n_heads], by hash: 1 + where the youngest pair of tokens ends; 0: nowhere */
	uint32_t *before; /* [cap], of a pair that ends there: the one before it with the same hash */
	uint32_t n_heads, cap;
	uint32_t n; /* tokens whose pairs are in it */
};

/* At most `most` tokens that may follow tokens[n], a text that may have grown since the last call. Returns their
 * number. 0: no earlier occurrence, or no memory. */
uint32_t ngram_draft(struct ngram *g, const int32_t *tokens, uint32_t n, int32_t *out, uint32_t most);
void ngram_dispose(struct ngram *g);

#endif
