/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions shared by the files that build a batch. Private to engine/; step thread. batch.c executes the plan and
 * serves sequences; beam_rows.c does so for beam searches, whose hypotheses have rows of their own.
 */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/step/choices.h"
#include "engine/sched/cost.h"
#include "engine/step/step.h"

struct batch {
	int n_rows, n_want;
	uint32_t n_extra_rows; /* whose logits are wanted but for a draw: at most STEP_EXTRA_ROWS */
	uint32_t n_decode, n_prefill;
	struct cost_past attended;
};

static inline struct eng_seq *seq_of(const struct sched_seq *s)
{
	return (struct eng_seq *)(void *)((char *)(uintptr_t)s - offsetof(struct eng_seq, sched));
}

static inline bool is_searching(const struct eng_seq *s) { return s->choices != NULL && s->choices->searching; }

static inline int32_t *batch_row(const struct eng_model *m, int slot)
{
	return m->page_tables + (size_t)slot * m->max_pages;
}

/* A slot for s; BUG when there is none. */
int batch_take_slot(const struct step *st, struct eng_seq *s);
/* Draws a token for s and tells it; s may end, and then is gone. */
void batch_draw(struct step *st, struct eng_seq *s, float *logits, uint64_t now);
/* id is the next token of s's answer: puts it behind its own ones, counts it, and leaves in st->text what text
 * may be told. *stopped: the answer ends with it. 0, SL_ENOMEM, SL_ELIMIT. */
int batch_take_token(struct step *st, struct eng_seq *s, int32_t id, bool *stopped);
/* Whole pages behind the next token go back. */
void batch_trim_pages(struct eng_seq *s);
/* s gives up its slot and pages and waits. */
void batch_preempt(struct eng_seq *s, uint64_t now);
/* How many pages s has in the page table of this slot, which is one of its own. */
uint32_t batch_row_pages(const struct eng_seq *s, int slot);
/* s computes one token next. */
void batch_go_on(struct step *st, struct eng_seq *s, uint64_t now);

/* ---- device_draw.c ---- */

/* Which of the batch's rows a token is drawn from on the device; out is for model_forward_draw. */
void device_draw_plan(struct step *st, const struct batch *b, const struct eng_model *m, struct model_draws *out);

/* ---- beam_rows.c ---- */

/* s has a slot: takes the others. */
void beam_rows_start(const struct step *st, struct eng_seq *s);
/* Gives back the other slots, and what the search has so far: it begins again. Leaves in s->slot's
 * row the pages of the prompt. */
void beam_rows_release(struct eng_seq *s);
uint32_t beam_rows_pages_back(const struct eng_seq *s);
/* While it searches: how many pages the hypothesis of this slot has. */
uint32_t beam_rows_row_pages(const struct eng_seq *s, int slot);
/* Adds the last token of every hypothesis. */
void beam_rows_rows(struct step *st, struct batch *b, struct eng_seq *s, uint64_t now);
/* The logits of the prompt's last row, or of every hypothesis. */
void beam_rows_serve(struct step *st, struct eng_seq *s, float *logits, uint64_t now);

#endif
