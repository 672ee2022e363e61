/* SPDX-License-Identifier: Apache-2.0
 *
 * Draft prefixes: tokens of an answer that another model began. The engine verifies them while it prefills them, as in
 * speculation (base/proto/proto.h, `given`, states the contract). Private to engine/; step thread.
 */
#ifndef ENGINE_DRAFT_PREFIX_H
#define ENGINE_DRAFT_PREFIX_H

#include "engine/step/batch.h"

/* The prompt is in s->tokens: puts the given tokens behind it. 0 or an enum proto_error with why. */
uint8_t draft_prefix_accept(struct eng_seq *s, const struct eng_model *m, struct sl_err *err);
/* Whether the logits of the row at this position say something about a given token. */
bool draft_prefix_row_checks(const struct eng_seq *s, uint32_t position);
/* How many of the n rows from past may be computed when at most room of them tell. */
uint32_t draft_prefix_rows_fit(const struct eng_seq *s, uint32_t past, uint32_t n, uint32_t room);
/* The logits of the step's rows that tell, in their order, and of the last row if all have been computed:
 * judges, and draws the first new token where it can be drawn. s may end, and then is gone. */
void draft_prefix_serve(struct step *st, struct eng_seq *s, float *logits, int n_rows, uint64_t now);

#endif
