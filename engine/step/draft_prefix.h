/* SPDX-License-Identifier: Apache-2.0
 *
 * Draft prefixes: tokens of an answer that another model began. The engine verifies them while it prefills them, as in
 * speculation (base/proto/proto.h, `given`, states the contract). Private to engine/; step thread.
 */
#ifndef ENGINE_DRAFT_PREFIX_H
#define ENGINE_DRAFT_PREFIX_H

#include "engine/step/batch.h"

/* Appends the draft prefix to the prompt in s->tokens. 0, or an enum proto_error and its message. */
uint8_t draft_prefix_accept(struct eng_seq *s, const struct eng_model *m, struct sl_err *err);
/* The rows that predict unverified tokens. */
struct row_range draft_prefix_rows_wanted(const struct eng_seq *s);
/* logits: of the step's wanted rows in order, and of the last row once all are computed. Verifies tokens, then draws
 * the first new one if its row is computed. s may end and is then invalid. */
void draft_prefix_serve(struct step *st, struct eng_seq *s, float *logits, int n_rows, uint64_t now);

#endif
