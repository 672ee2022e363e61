/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculative decoding in the steps of a model. Private to engine/: spec_step.c drafts, adds rows and
 * accepts, draft_model.c drafts with the small model of a pair.
 */
#ifndef ENGINE_SPEC_STEP_H
#define ENGINE_SPEC_STEP_H

#include "engine/step/batch.h"

/* The plan is made and what it evicts is gone: drafts for those that decode in it. */
void spec_prepare(struct step *st, struct eng_model *m, struct sched_plan *plan, uint64_t now);
/* After the row of s's last token: a row for each token of its draft. Pages are there. */
void spec_rows(struct step *st, struct batch *b, struct eng_seq *s);
/* The logits of the last token's row and those of its draft: draws from one after another for as long
 * as the draft says what was drawn. s may end and then is gone. */
void spec_accept(struct step *st, struct eng_seq *s, float *logits, uint64_t now);
/* seqs[n], each with one row, NULL among them, have decoded and may do so in the next step too: whether spec_prepare
 * would draft for one of them then. */
bool spec_pays(struct step *st, struct eng_model *m, struct eng_seq *const *seqs, int n, uint64_t now);
/* s loses its slot. */
void spec_release(struct eng_seq *s);

/* ---- draft_model.c ---- */

/* m is ready: finds its partner, if that is ready too. */
void spec_pair(struct step *st, struct eng_model *m);
/* Whether m, which is being loaded, may have to draft for another: then it needs pages for that. */
bool spec_may_draft(const struct engine *e, const struct eng_model *m);
/* m goes, and its drafts have gone. */
void spec_unpair(struct eng_model *m);
/* Whether the partner of s's model can draft so many tokens for it. */
bool draft_model_ready(const struct eng_seq *s, uint32_t most);
/* What the partner's drafts for s cost with so many sequences that draft together. */
void draft_model_price(const struct eng_seq *s, uint32_t n_together, struct spec_price *out);
/* The drafts of seqs[n], each of at most its spec.n_draft tokens; sets what they became, 0 for those
 * whose text the small model does not know yet. */
void draft_model_draft(struct step *st, struct eng_model *m, struct eng_seq **seqs, int n);
/* Gives back the pages of s's draft sequence. */
void draft_model_drop(struct eng_seq *s);

#endif
