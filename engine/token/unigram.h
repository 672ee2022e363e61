/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram language model segmentation of one pre-token (Kudo, "Subword Regularization", 2018): of
 * all ways to cut it into tokens the one with the highest sum of scores. Immutable after creation.
 */
#ifndef ENGINE_UNIGRAM_H
#define ENGINE_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"
#include "engine/token/tokenizer.h"

struct unigram;

struct unigram_source {
	const struct proto_str *tokens; /* at == NULL: not to be found in text. Borrowed */
	const float *scores;
	size_t n_tokens;
	/* NULL: as the tokenizers library has it. Else as SentencePiece: unknown text is measured by the worst normal
	 * token; a user-defined one costs 0.1 (less its bytes times the best normal score, if that is above zero); sums
	 * are rounded to F32, which decides among equal ones. */
	const int32_t *attrs;
	int32_t unknown;            /* at least 0 */
	const int32_t *byte_tokens; /* [256], -1: none; NULL: unknown text is the unknown token */
};

int unigram_create(const struct unigram_source *src, struct unigram **out, struct sl_err *err);
void unigram_destroy(struct unigram *u);
/* Appends the ids: O(n · longest token). 0, SL_ENOMEM, SL_ELIMIT. */
int unigram_encode(const struct unigram *u, const char *piece, size_t n, struct tok_ids *out);

#endif
