/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte pair encoding of one pre-token (Sennrich et al. 2016), from single bytes (GPT-2) or from
 * single characters (SentencePiece: Kudo, Richardson 2018). Symbols are byte strings, numbered:
 * every byte, every token and every half or result of a merge. A symbol that is not a token (a
 * model may merge through texts that its vocabulary lacks) is written as its bytes. Immutable after
 * creation.
 */
#ifndef ENGINE_BPE_H
#define ENGINE_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"
#include "engine/token/tokenizer.h"

struct bpe;

struct bpe_source {
	/* Bytes of each token; those not to be found in text have at == NULL. Borrowed. */
	const struct proto_str *tokens;
	size_t n_tokens;
	/* Halves of each merge by falling priority: left at 2i, right at 2i + 1. Borrowed. NULL: any two
	 * tokens that make a token merge, that of the highest score first. */
	const struct proto_str *halves;
	size_t n_merges;
	const float *scores; /* [n_tokens], where there are no merges */
	bool chars;          /* begin with characters, not with bytes */
	/* Of characters only: how one without a token is written. */
	const int32_t *byte_tokens; /* [256], -1: none; NULL: as the unknown token */
	bool fuse_unknown;          /* neighbouring unknown ones are one token */
	/* Token for a byte without one. -1: then every byte of valid UTF-8 must have its token, and
	 * another byte without one is read as U+FFFD. */
	int32_t unknown;
};

/* Borrows src only during the call. SL_EINVAL names what the vocabulary lacks. */
int bpe_create(const struct bpe_source *src, struct bpe **out, struct sl_err *err);
void bpe_destroy(struct bpe *b);

/* Memory of an encoder, reused from piece to piece; init to zero. */
struct bpe_scratch {
	struct bpe_node *nodes;
	uint64_t *heap;
	size_t cap;
};
void bpe_scratch_dispose(struct bpe_scratch *s);

/* Appends the ids of a pre-token: O(n log n). 0, SL_ENOMEM, SL_ELIMIT. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *piece, size_t n, struct tok_ids *out);

int tok_ids_push(struct tok_ids *l, int32_t id);

#endif
