/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to pre-tokens: the pieces inside which byte pairs may merge. A pre-tokenizer is a list of patterns; each cuts
 * the pieces of the previous one into its matches and the gaps between them. Immutable after creation.
 */
#ifndef ENGINE_PRETOKENIZE_H
#define ENGINE_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/proto/proto.h"

struct pretok;

/* What becomes of a pattern's matches and of the gaps between them. */
enum pretok_behavior {
	PRETOK_ISOLATED,    /* each match and each gap is a piece */
	PRETOK_REMOVED,     /* matches are dropped */
	PRETOK_CONTIGUOUS,  /* neighbouring matches are one piece */
	PRETOK_MERGED_PREV, /* a match is the end of the gap before it */
	PRETOK_MERGED_NEXT, /* a match is the beginning of the gap after it */
};

enum pretok_prepend { PRETOK_NEVER, PRETOK_FIRST, PRETOK_ALWAYS };

/* name as in tokenizer.ggml.pre; one that is not in the table is SL_EUNSUPPORTED. */
int pretok_create(struct proto_str name, struct pretok **out, struct sl_err *err);
/* None yet: the whole text is one piece. */
int pretok_create_empty(struct pretok **out);
void pretok_destroy(struct pretok *p);

/* ---- adding levels; each cuts what the one before it left. SL_EINVAL for a malformed pattern ---- */

/* invert: what the pattern does not match is taken for the matches. literal: pattern is plain text. */
int pretok_add_split(struct pretok *p, struct proto_str pattern, bool literal, bool invert,
		     enum pretok_behavior behavior, struct sl_err *err);
/* Every space becomes U+2581 (or its replacement), which begins pieces if split is set. */
int pretok_add_metaspace(struct pretok *p, struct proto_str replacement, enum pretok_prepend prepend, bool split,
			 struct sl_err *err);
/* GPT-2's: a space before each piece that begins with none, and its pattern, each on request. */
int pretok_add_byte_level(struct pretok *p, bool prefix_space, bool pattern, struct sl_err *err);
void pretok_set_whole_words(struct pretok *p, bool whole);

/* A pre-token that is a token as a whole is that token, even if the merges would give others. */
bool pretok_whole_words(const struct pretok *p);
/* Whether the family begins prompts with bos, for files without that key. */
bool pretok_adds_bos(const struct pretok *p);

/* Receives a piece; a non-zero result ends the split and is returned by it. */
typedef int (*pretok_fn)(void *arg, const char *piece, size_t n);

/* Calls fn for the pieces of text in order, none of them empty. first: text begins the whole text. A byte that is not
 * valid UTF-8 is a piece of its own. SL_ENOMEM, SL_ELIMIT (a match limit), or fn's result. */
int pretok_split(const struct pretok *p, const char *text, size_t n, bool first, pretok_fn fn, void *arg);

#endif
