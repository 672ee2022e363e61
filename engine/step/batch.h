/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions shared by the files that build a batch. Private to engine/; step thread. batch.c executes the plan and
 * serves sequences; beam_rows.c does so for beam searches, where each hypothesis has its own row.
 */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/step/choices.h"
#include "engine/sched/cost.h"
#include "engine/step/step.h"

struct batch {
	int n_rows, n_want;
	int n_texts;           /* whose rows are pooled */
	uint32_t n_extra_rows; /* rows with wanted logits, besides those of draws: at most STEP_EXTRA_ROWS */
	uint32_t n_decode, n_prefill;
	struct cost_past attended;
	/* Of drafts: their rows, what these attend to, how long drafting took and was expected to. */
	uint32_t n_draft;
	struct cost_past drafts;
	double draft_ns, draft_expected_ns;
};

static inline struct eng_seq *seq_of(const struct sched_seq *s)
{
	return list_entry((uintptr_t)s, struct eng_seq, sched);
}

static inline bool is_searching(const struct eng_seq *s) { return s->choices != NULL && s->choices->beam.width > 0; }

static inline int32_t *batch_row(const struct eng_model *m, int slot)
{
	return m->page_tables + (size_t)slot * m->kv_groups.n_groups * m->max_pages;
}

/* A page of a row. */
static inline int32_t *batch_page(const struct eng_model *m, int32_t *row, uint32_t group, uint32_t index)
{
	return &row[(size_t)group * m->max_pages + index];
}

/* Adds a row. */
static inline void batch_add_row(struct step *st, struct batch *b, int slot, uint32_t pos, int32_t token)
{
	int row = b->n_rows++;
	st->row_token[row] = token;
	st->row_from[row] = -1;
	st->row_pos[row] = (int32_t)pos;
	st->row_seq[row] = slot;
}

/* The logits of the last row are wanted for s. */
static inline void batch_want(struct step *st, struct batch *b, struct eng_seq *s)
{
	st->want[b->n_want] = b->n_rows - 1;
	st->want_seqs[b->n_want++] = s;
}

/* Counts the attention of n rows after past tokens of one sequence. */
static inline void batch_attend(struct cost_past *c, uint32_t past, uint32_t n)
{
	c->positions += (double)cost_positions(past, n);
	c->reads += (double)past + n;
}

/* Takes a free slot for s; BUG if there is none. */
int batch_take_slot(const struct step *st, struct eng_seq *s);
/* Draws and reports a token for s. s may end and is then invalid. */
void batch_draw(struct step *st, struct eng_seq *s, float *logits, uint64_t now);
/* The id that s would draw as the i-th token after its own and, if constrained, after those of the calls with 0 … i -
 * 1; without log probabilities. -1: no usable logits. */
int32_t batch_peek(struct step *st, struct eng_seq *s, uint32_t i, float *logits);
/* Appends id to s's own tokens and puts the text that may be released into st->text. *stopped: id ends the answer. 0,
 * SL_ENOMEM, SL_ELIMIT. */
int batch_take_token(struct step *st, struct eng_seq *s, int32_t id, bool *stopped);
/* Why s, which token `last` has stopped, ends: LENGTH if its constraint is left incomplete. */
uint8_t batch_finish_of(struct eng_seq *s, int32_t last);
/* Whether id ends the answer of s: an end token or a stop id. */
bool batch_is_end(const struct eng_seq *s, int32_t id);
/* The text of id in an answer; empty for control tokens. */
struct proto_str batch_token_text(const struct eng_model *m, int32_t id);
/* Reports a token of choice `choice` of the request of s. */
void batch_report_token(struct step *st, const struct eng_seq *s, uint8_t choice, const struct sampler_choice *token,
			struct proto_str text);
/* Allocates the pages of the row's next index in the first n_groups groups. 0; SL_ELIMIT: none of them. */
int batch_take_index(const struct eng_model *m, int32_t *row, uint32_t index, uint32_t n_groups);
/* The row gives up its pages: all with indices below `end`, in windowed groups from `first` on. */
void batch_drop_pages(const struct eng_model *m, int32_t *row, uint32_t first, uint32_t end);
/* And those of windowed groups with indices `from` … first - 1. */
void batch_pass_row(const struct eng_model *m, int32_t *row, uint32_t from, uint32_t first);
/* s keeps only its pages with indices below `end`. */
void batch_cut_pages(struct eng_seq *s, uint32_t end);
/* Unverified tokens of s are not computed: the pages behind its own go, and where layers keep a state, it goes on from
 * the last one that it has. */
void batch_rewind(struct eng_seq *s);
/* Frees full pages after the next token. */
void batch_trim_pages(struct eng_seq *s);
/* s releases its slot and pages and waits. */
void batch_preempt(struct eng_seq *s, uint64_t now);
/* The i-th page of s in the row of this slot, which belongs to s; -1: it has fewer. */
int32_t batch_row_page(const struct eng_seq *s, int slot, uint32_t i);
/* What s asks of the tier on disk. */
struct kv_disk_ask batch_disk_ask(struct eng_seq *s);
/* s, which has not started, awaits its prompt's pages from another engine. */
void batch_await(struct eng_seq *s, const struct proto_hand *m, uint64_t now_ns);
/* s computes one token next. */
void batch_continue(struct step *st, struct eng_seq *s, uint64_t now);

/* ---- mask_turn.c ---- */

/* Before the rows of a step of m are added. */
void mask_turns(struct step *st, const struct eng_model *m, const struct sched_plan *plan);
/* constrain_ready for `most` work, or for less, even none, where the step has less left. */
bool mask_make(struct step *st, struct seq_constraint *c, struct constrain_at *at, uint32_t most);
/* Whether the next n rows of s can be followed by their draws. False: s must sit the step out. */
bool mask_ready(struct step *st, struct eng_seq *s, uint32_t n);
/* constrain_cut, and constrain_forced after the sequence's own tokens, with what the step has left. */
uint32_t mask_cut(struct step *st, struct seq_constraint *c, const int32_t *draft, uint32_t n);
int32_t mask_forced(struct step *st, struct seq_constraint *c);

/* ---- device_draw.c ---- */

/* Whether no row of s in its next step needs its logits on the host. */
bool device_draw_all(const struct eng_seq *s);
/* Selects the rows of b whose token is drawn on the device; out is for model_forward_draw. */
void device_draw_plan(struct step *st, const struct batch *b, const struct eng_model *m, struct model_draws *out);

/* ---- beam_rows.c ---- */

/* s has a slot: takes slots for the other hypotheses. */
void beam_rows_start(const struct step *st, struct eng_seq *s);
/* Frees the other slots and discards the search, which starts over. Leaves the prompt's pages in the row of s->slot. */
void beam_rows_release(struct eng_seq *s);
/* During the search: pages that would be free again without s. */
uint32_t beam_rows_pages_back(const struct eng_seq *s);
/* During the search: the number of page indices of this slot's hypothesis. */
uint32_t beam_rows_row_pages(const struct eng_seq *s, int slot);
/* During the search: no hypothesis needs its pages of windowed groups before index `first`. */
void beam_rows_pass(struct eng_seq *s, uint32_t first);
/* Makes the masks of all hypotheses, each for this much work. False: one is unfinished. */
bool beam_rows_ready(struct step *st, struct eng_seq *s, uint32_t work);
/* Adds the last token of every hypothesis. */
void beam_rows_rows(struct step *st, struct batch *b, struct eng_seq *s, uint64_t now);
/* logits: of the prompt's last row, or of every hypothesis. */
void beam_rows_serve(struct step *st, struct eng_seq *s, float *logits, uint64_t now);

#endif
