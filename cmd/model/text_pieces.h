/* SPDX-License-Identifier: Apache-2.0
 *
 * A text file as token ids, in pieces that a model reads from an empty context each. Bounded by MODEL_MAX_INPUT.
 *
 * A file whose name ends in .jsonl has a document in each line: {"text": …}, of which everything counts; {"prompt": …,
 * "text": …} and {"messages": […]}, of which the text after the prompt and the last message count (the others are their
 * context; the token that ends an answer is the last that counts). Any other file is one text.
 */
#ifndef CMD_TEXT_PIECES_H
#define CMD_TEXT_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/model/model.h"

struct text_piece {
	size_t at, n; /* ids */
	int first;    /* the first that counts, of its own; at least 1 */
	int document; /* counted from 0 */
};

struct text_pieces {
	int32_t *ids;
	struct text_piece *pieces;
	size_t n_ids, n, n_documents;
	size_t ids_cap, pieces_cap;
};

/* Cuts documents into pieces of at most `most` ≥ 2 tokens, BOS included where the model wants one. Pieces in which
 * nothing counts are left out. SL_EINVAL names the line. */
int text_pieces_read(const struct model *m, const char *path, int most, struct text_pieces *out, struct sl_err *err);
void text_pieces_dispose(struct text_pieces *p);

#endif
