/* SPDX-License-Identifier: Apache-2.0
 *
 * Speculative decoding in the steps of a model. Private to engine/; step thread. spec_step.c drafts, adds rows and
 * accepts; draft_model.c drafts with the small model of a pair, head_drafts.c with a layer of the model itself.
 */
#ifndef ENGINE_SPEC_STEP_H
#define ENGINE_SPEC_STEP_H

#include "engine/step/batch.h"

struct step_in_flight;

/* Drafts for the sequences that decode in the plan, after its evictions. b, empty, gets what drafting took. */
void spec_prepare(struct step *st, struct eng_model *m, struct sched_plan *plan, struct batch *b, uint64_t now);
/* f is served; its rows took took_ns, and it was planned and waited for in beside_ns more, drafting included. */
void spec_account_step(struct eng_model *m, const struct step_in_flight *f, uint32_t n_accepted, double took_ns,
		       double beside_ns);
/* Adds a row for each draft token of s after the row of its last token. Its pages are allocated. */
void spec_rows(struct step *st, struct batch *b, struct eng_seq *s);
/* logits: of the last token's row and the draft's rows. Draws from one after another while the draft agrees. s may end
 * and is then invalid. */
void spec_accept(struct step *st, struct eng_seq *s, float *logits, uint64_t now);
/* Whether spec_prepare would draft for a sequence of f, a served step, if it decoded in the next step too. */
bool spec_pays(struct step *st, struct eng_model *m, const struct step_in_flight *f, uint64_t now);
/* s loses its slot. */
void spec_release(struct eng_seq *s);

/* ---- drafters: models and layers that make drafts, by their source ---- */

struct spec_drafter {
	/* Whether it can draft `most` tokens for s. */
	bool (*ready)(const struct eng_seq *s, uint32_t most);
	/* The cost of drafts for s while n_together sequences draft. */
	void (*price)(const struct eng_seq *s, uint32_t n_together, struct spec_price *out);
	/* Drafts at most spec.n_draft tokens for each of seqs[n] and sets n_draft to the length made. */
	void (*draft)(struct step *st, struct eng_model *m, struct eng_seq **seqs, int n);
	/* It discards what was rejected or never verified; the drafts of before are in s still. */
	void (*back)(struct eng_seq *s);
	/* s loses its slot: it frees what it has of s. */
	void (*drop)(struct eng_seq *s);
};

/* Tokens that s may be expected to make still: what a drafter pays once is spread over them. */
uint32_t spec_spread(const struct eng_seq *s);
/* The k-th token of the draft of s by these logits; -1: there is none, or its mask would delay the step. */
int32_t spec_drafted(struct step *st, struct eng_seq *s, uint32_t k, float *logits);

/* ---- draft_model.c ---- */

extern const struct spec_drafter model_drafter;

/* m is ready: pairs it with a model of the other role, if one is ready. */
void spec_pair(struct step *st, struct eng_model *m);
/* Whether m, which is loading, may draft for another model and needs pages, and maybe states, for that. */
bool spec_may_draft(const struct engine *e, const struct eng_model *m);
/* m is unloaded; no sequence has drafts of it. */
void spec_unpair(struct eng_model *m);

/* ---- head_drafts.c ---- */

extern const struct spec_drafter head_drafter;

/* Whether m, which is inspected, is to be loaded with a layer that drafts. */
bool head_drafts_wanted(const struct eng_model *m);
/* Bytes that drafts by that layer need, besides its weights; 0 if it is not wanted. */
uint64_t head_drafts_bytes(const struct eng_model *m);
/* m is loaded and has its pages: makes what they need, if it has such a layer. 0, or a code with m's load error. */
int head_drafts_make(struct eng_model *m);
void head_drafts_dispose(struct eng_model *m);
/* The step of b has been issued: keeps hidden rows of its sequences. */
void head_drafts_keep(struct step *st, struct eng_model *m, const struct batch *b);

#endif
