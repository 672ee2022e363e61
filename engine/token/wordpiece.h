/* SPDX-License-Identifier: Apache-2.0
 *
 * WordPiece (Schuster, Nakajima 2012; as in BERT, Devlin et al. 2018): of a word the longest token that begins it, then
 * of the rest the longest that continues one, and so on. A word of which some part is no token is one unknown token,
 * and so is one that is too long. Immutable after creation.
 */
#ifndef ENGINE_WORDPIECE_H
#define ENGINE_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/proto/proto.h"
#include "engine/token/tokenizer.h"

struct wordpiece;

struct wordpiece_source {
	const struct proto_str *tokens; /* at == NULL: not to be found in text. Borrowed for the call */
	size_t n_tokens;
	struct proto_str prefix; /* what tokens are written with that begin a word, or continue one */
	bool prefix_begins;
	size_t max_chars; /* of a word */
	int32_t unknown;  /* at least 0 */
};

int wordpiece_create(const struct wordpiece_source *src, struct wordpiece **out, struct sl_err *err);
void wordpiece_destroy(struct wordpiece *w); /* NULL is fine */
/* Appends the ids of one word: O(characters · longest token). 0, SL_ENOMEM, SL_ELIMIT. */
int wordpiece_encode(const struct wordpiece *w, const char *word, size_t n, struct tok_ids *out);

#endif
