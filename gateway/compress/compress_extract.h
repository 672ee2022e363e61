/* SPDX-License-Identifier: Apache-2.0
 *
 * The paragraphs that matter, extracted from one long message: those that have to do with what is asked, and those with
 * facts. Rules choose, no model, so the result is the same each time and a prefix of it can be found again. Pure.
 *
 *   paragraph   text up to a blank line; a fenced block of code is one. A text without blank lines has lines instead
 *   question    the first and the last paragraph, which always stay
 *   score       BM25 (Robertson, Walker et al., "Okapi at TREC-3", 1994) of the question's words, and the paragraph's facts
 *
 * Paragraphs stay in their order; "[…]" stands for those left out. The result is checked as a summary is: of a fact that
 * it lacks, the sentence is put where its paragraph was.
 */
#ifndef GATEWAY_COMPRESS_EXTRACT_H
#define GATEWAY_COMPRESS_EXTRACT_H

#include <stddef.h>

#include "base/buf.h"

struct compress_extract {
	size_t n_paragraphs, n_kept; /* of the text; whole ones of the result */
	size_t n_facts, n_found;     /* that the check looked for; and found */
};

/* Appends at most about max_bytes; what always stays, and sentences of facts, may exceed it. 0; SL_ENOTFOUND: the text
 * has too few paragraphs to choose from; SL_ELIMIT, SL_ENOMEM. */
int compress_extract(const char *text, size_t n, size_t max_bytes, struct sl_buf *out, struct compress_extract *r);

#endif
