/* SPDX-License-Identifier: Apache-2.0
 *
 * The head that drafts for its own model: multi-token prediction (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024,
 * 2.2). Its one layer reads, at a position, the hidden row that the model's last layer left there and the embedding of
 * the token after it; the model's head makes of its result logits of the token after that. Applied to its own results
 * it goes on, a token a step.
 *
 * Hidden rows: the last DRAFT_HEAD_ROWS of each sequence are kept, row of position p at p % DRAFT_HEAD_ROWS of its
 * slot. Steps leave them; draft_head_keep copies them in order with what is issued.
 */
#ifndef ENGINE_DRAFT_HEAD_H
#define ENGINE_DRAFT_HEAD_H

#include "engine/model/model.h"

enum {
	DRAFT_HEAD_ROWS = 32,  /* hidden rows that are kept of a sequence */
	DRAFT_HEAD_PAST = 256, /* positions that the head attends to, at most */
};

/* Whether the model was loaded with one (model_how.drafts). */
bool draft_head_is_here(const struct model *m);
/* Bytes of the rows that are kept of n_slots sequences. */
uint64_t draft_head_row_bytes(const struct model_arch *a, int n_slots);
/* Makes room for them; before that, no other function below. SL_ENOMEM. */
int draft_head_make_rows(struct model *m, int n_slots, struct sl_err *err);
/* The model's last step has been issued: its rows row … row + n - 1 are of the sequence in `slot`, at positions from pos
 * on. Keeps the last of them. SL_EIO. */
int draft_head_keep(struct model *m, int row, int n, int slot, uint32_t pos);

/* A step of the head, of s->n_rows rows, with pages of one layer (kv): row_token has the token after each row's
 * position, and hidden[i] is slot · DRAFT_HEAD_ROWS + place of a row that was kept or, with `chained`, which wanted row
 * of the head's last step row i goes on from, with no other step of the model between. Logits of the rows want[n_want],
 * [n_want][n_vocab], come to the host. No step of the model may be in flight. SL_EIO. */
int draft_head_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *hidden,
		       bool chained, const int32_t *want, int n_want, float *logits);

#endif
