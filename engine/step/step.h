/* SPDX-License-Identifier: Apache-2.0
 *
 * The step thread's state. Private to engine/. step.c runs the loop and owns the life of sequences, batch.c computes
 * one step, prompt_logprobs.c reports the prompt's log probabilities.
 */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include "base/buf.h"
#include "engine/step/internal.h"
#include "engine/sample/sampler_device.h"

/* Rows of prompts and of drafts whose logits one step may have beside those of the draws. */
enum { STEP_EXTRA_ROWS = 32 };

struct step {
	struct engine *e;
	struct list all;   /* struct eng_seq.in_all: every sequence that is not DONE */
	struct list ended; /* to be freed at the end of the turn */
	struct heap deadlines;
	struct sched_tenants tenants;
	int beat_slot;
	uint64_t load_ns, told_ns; /* of queue_status.c */

	/* The batch's arrays. */
	int32_t *row_token, *row_pos, *row_seq, *row_from, *want;
	struct eng_seq **want_seqs;
	/* Draws on the device (device_draw.c): of row i of want, or -1. */
	struct kn_draw *draws;
	int32_t *drawn_at;
	bool *taken;
	struct sampler_adjusts adjusts;
	float *logits; /* [max_sequences + STEP_EXTRA_ROWS][widest vocabulary] */
	struct sampler_scratch scratch;
	struct sampler_choice choice; /* of the sequence that is being served */
	size_t n_vocab_max;
	struct sl_buf text; /* released with one token */
	/* Of the sequence that is being served: n × (itself and its rivals), with a first token that no
	 * row tells about. */
	struct proto_id_f32 prompt_entries[(STEP_EXTRA_ROWS + 1) * (1 + PROTO_MAX_TOP_LOGPROBS)];
	uint32_t n_prompt_entries;
};

/* ---- batch.c ---- */

enum batch_issued {
	BATCH_IDLE,    /* nothing; *next_due_ns was lowered to when something may be */
	BATCH_CHANGED, /* no step, but something else is different now: m may have failed */
	BATCH_ISSUED,  /* one more step is on its way */
};

/* Plans and issues m's next step, if its steps in flight allow it. */
enum batch_issued batch_issue(struct step *st, struct eng_model *m, uint64_t *next_due_ns);
/* Whether a step may be issued while one is in flight. */
bool batch_may_go_ahead(const struct eng_model *m);
/* Waits for m's oldest step in flight and serves its sequences. Returns its device time, ns. */
uint64_t batch_land(struct step *st, struct eng_model *m);
/* Frees slot and pages; the caller changes the state and updates the scheduler. */
void batch_release(struct eng_seq *s);
/* Wakes the sequences that waited for pages which are computed now, or never will be. */
void batch_wake(struct eng_model *m, uint64_t now_ns);

/* ---- prompt_logprobs.c ---- */

/* Whether the row at this position is wanted for the prompt's log probabilities. */
bool prompt_row_tells(const struct eng_seq *s, uint32_t position);
/* How many of the n rows from past may be computed when at most room of them tell. */
uint32_t prompt_rows_fit(const struct eng_seq *s, uint32_t past, uint32_t n, uint32_t room);
/* Takes what the next row that tells says; rows come in order. False: no usable logits. */
bool prompt_row_take(struct step *st, struct eng_seq *s, float *logits);
/* After the last such row of a step, and before a draw: tells what was taken. */
void prompt_rows_tell(struct step *st, struct eng_seq *s);

/* ---- step.c ---- */

/* Ends s: frees its resources, reports DONE. s is invalid afterwards. */
void step_finish(struct step *st, struct eng_seq *s, uint8_t finish, uint8_t error, const char *message);
/* Ends s without DONE: frees its resources; s is freed at the end of the iteration. */
void step_leave(struct step *st, struct eng_seq *s);
/* Frees the resources of s, which waits for the other choices of its request. */
void step_rest(struct step *st, struct eng_seq *s);
/* The device failed: every sequence of m ends. */
void step_fail_model(struct step *st, struct eng_model *m, const char *reason);

#endif
