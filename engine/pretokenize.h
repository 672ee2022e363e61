/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to pre-tokens: the pieces inside which byte pairs may merge. Each pre-tokenizer is a list of
 * patterns; each pattern cuts the pieces that the one before it left into its matches and what lies
 * between them. Immutable after creation.
 */
#ifndef ENGINE_PRETOKENIZE_H
#define ENGINE_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/proto.h"

struct pretok;

/* name as in tokenizer.ggml.pre; one that is not in the table is SL_EUNSUPPORTED. */
int pretok_create(struct proto_str name, struct pretok **out, struct sl_err *err);
void pretok_destroy(struct pretok *p);
/* A pre-token that is a token as a whole is that token, whatever the merges say. */
bool pretok_whole_words(const struct pretok *p);
/* Whether the family begins prompts with bos when the file does not say. */
bool pretok_adds_bos(const struct pretok *p);

/* Receives a piece; a non-zero result ends the split and is returned by it. */
typedef int (*pretok_fn)(void *arg, const char *piece, size_t n);

/* Calls fn for the pieces of text in order; together they are the text, none is empty. A byte that
 * is not valid UTF-8 is a piece of its own. SL_ENOMEM, SL_ELIMIT (a match limit), or fn's result. */
int pretok_split(const struct pretok *p, const char *text, size_t n, pretok_fn fn, void *arg);

#endif
