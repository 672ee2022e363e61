/* SPDX-License-Identifier: Apache-2.0
 *
 * The step thread's state. Private to engine/; step thread. step.c runs the loop and owns the life of sequences,
 * batch.c computes one step, prompt_logprobs.c reports a prompt's log probabilities.
 */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include "base/buf.h"
#include "engine/step/internal.h"
#include "engine/sample/sampler_device.h"

/* Rows of prompts and drafts with logits that one step may have besides those of the draws. */
enum { STEP_EXTRA_ROWS = 32 };

struct step {
	struct engine *e;
	struct list all;   /* struct eng_seq.in_all: every sequence that is not DONE */
	struct list ended; /* freed at the end of the iteration */
	struct heap deadlines;
	struct sched_tenants tenants;
	int beat_slot;
	uint64_t load_ns, reported_ns; /* of queue_status.c */

	/* The batch's arrays. */
	int32_t *row_token, *row_pos, *row_seq, *row_from, *row_type, *row_sees, *row_adapter, *want;
	struct eng_seq **want_seqs;
	/* [max_sequences]: rows to pool (embed.c), and their sequences. */
	struct model_text *texts;
	struct eng_seq **text_seqs;
	size_t max_rows; /* of the arrays by rows */
	/* Draws on the device (device_draw.c): of row i of want, or -1. */
	struct kn_draw *draws;
	int32_t *drawn_at;
	bool *taken;
	struct sampler_adjusts adjusts;
	uint32_t *masks; /* [max_sequences] for draws on a device, each as wide as the largest vocabulary */
	float *logits;   /* [max_sequences + STEP_EXTRA_ROWS][widest vocabulary] */
	uint32_t *mask;  /* for the draw of a constrained sequence; for the largest vocabulary */
	/* Of the step being built: the sequence that may continue its unfinished mask, the work that is left for
	 * all constraints until the next step is built (mask_turn.c), and whether a mask is unfinished. */
	const struct eng_seq *mask_turn;
	uint64_t mask_left;
	bool masks_missing;
	struct sampler_scratch scratch;
	struct sampler_choice choice; /* of the sequence being served */
	size_t n_vocab_max;
	struct sl_buf text; /* released with one token */
	/* Of the sequence being served: n × (the token and its rivals), including the first token, which no row
	 * predicts. */
	struct proto_id_f32 prompt_entries[(STEP_EXTRA_ROWS + 1) * (1 + PROTO_MAX_TOP_LOGPROBS)];
	uint32_t n_prompt_entries;
};

static inline struct proto_str step_text(const struct step *st)
{
	return (struct proto_str){.at = (const char *)buf_data(&st->text), .n = st->text.len};
}

/* Positions [first, end) whose rows need logits besides the draw's. */
struct row_range {
	uint32_t first, end;
};

static inline bool in_rows(struct row_range r, uint32_t position) { return position >= r.first && position < r.end; }

/* How many of the n rows after past tokens may run if at most room of them are in r. */
static inline uint32_t rows_fit(struct row_range r, uint32_t past, uint32_t n, uint32_t room)
{
	uint32_t from = past > r.first ? past : r.first, to = past + n < r.end ? past + n : r.end;
	return to > from && to - from > room ? from - past + room : n;
}

/* ---- batch.c ---- */

enum batch_issued {
	BATCH_IDLE,    /* nothing to do; *next_due_ns is at most the time of the next work */
	BATCH_CHANGED, /* no step, but sequences were evicted or m has failed */
	BATCH_ISSUED,  /* one more step is in flight */
};

/* Plans and issues m's next step, if its steps in flight allow it. */
enum batch_issued batch_issue(struct step *st, struct eng_model *m, uint64_t *next_due_ns);
/* Whether a step may be issued while one is in flight. */
bool batch_may_go_ahead(const struct eng_model *m);
/* Waits for m's oldest step in flight and serves its sequences. Returns its device time, ns. */
uint64_t batch_land(struct step *st, struct eng_model *m);
/* Frees slot and pages; the caller changes the state and updates the scheduler. */
void batch_release(struct eng_seq *s);
/* Wakes sequences that waited for pages now computed or abandoned. */
void batch_wake(struct eng_model *m, uint64_t now_ns);

/* ---- prompt_logprobs.c ---- */

struct row_range prompt_rows_wanted(const struct eng_seq *s);
/* Takes the logits of the next wanted row, in order of position. False: no usable logits. */
bool prompt_row_take(struct step *st, struct eng_seq *s, float *logits);
/* Reports what was taken: after the last such row of a step, before a draw. */
void prompt_rows_report(struct step *st, struct eng_seq *s);

/* ---- step.c ---- */

/* Ends the request of s: frees its resources, reports DONE. s is invalid afterwards. */
void step_finish(struct step *st, struct eng_seq *s, uint8_t finish, uint8_t error, const char *message);
/* Ends it with PROTO_ERR_OVERLOADED (out of memory) or PROTO_ERR_INTERNAL (no usable logits). */
void step_fail(struct step *st, struct eng_seq *s, uint8_t error);
/* Writes the error of a request that the engine has no memory for; returns PROTO_ERR_OVERLOADED. */
uint8_t step_no_memory(struct sl_err *err);
/* Ends it because rc (SL_ELIMIT, SL_ENOMEM) stopped its constraint. */
void step_fail_constraint(struct step *st, struct eng_seq *s, int rc);
/* s may make n more tokens. */
void step_give_credit(struct eng_seq *s, uint32_t n);
/* Ends s without DONE: frees its resources; s is freed at the end of the iteration. */
void step_leave(struct step *st, struct eng_seq *s);
/* Frees the resources of s, a lead that waits for the other choices of its request. */
void step_rest(struct step *st, struct eng_seq *s);
/* The device failed: every sequence of m ends. */
void step_fail_model(struct step *st, struct eng_model *m, const char *reason);

#endif
