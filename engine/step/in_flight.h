/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps in flight. Private to engine/; step thread.
 *
 *    planned ──in_flight_depart──► issued ──in_flight_wait──► computed ──batch_land──► served ──in_flight_pop──► free
 *
 * On a device, two steps of a model may be in flight: while one runs, the next is planned and issued, so the device
 * never waits for the host. The second step reads the tokens that the first draws on the device (kn_step.row_from).
 *
 * A step may follow another in flight if no sequence must yield to another (sched_owner.gentle). Sequences whose next
 * draw depends on the first step's results on the host (logits, or a token that advances a grammar) skip the second
 * step. So does any sequence that needs such logits, because only one step's logits fit. Where penalties count tokens,
 * the device counts the coming one (kn_draw.said). A sequence continues into the second step if its next token,
 * whatever it is, exhausts neither credit, length nor pace. A sequence that ends meanwhile (stop, cancellation) wastes
 * one row; its output is discarded. Where layers keep a state and a snapshot is due after the first step, the state is
 * copied before the second is issued, which moves it on.
 *
 * A sequence that loses its slot (ended or pre-empted) leaves all steps in flight at once. Its pages and slot may be
 * reused at once, although rows in flight still write there: operations of one model take effect in the order of issue,
 * so the new owner writes later. Moving memory to another model first waits for the steps in flight (in_flight_await).
 * A pre-empted sequence's token is drawn again and is the same.
 */
#ifndef ENGINE_IN_FLIGHT_H
#define ENGINE_IN_FLIGHT_H

#include "engine/step/batch.h"

struct in_flight_want {
	struct eng_seq *s; /* NULL: it has left */
	int32_t drawn_at;  /* index of its draw on the device; -1: none, the logits come to the host */
	bool drawing;      /* a token is drawn from it */
};

struct in_flight_run {
	struct eng_seq *s; /* NULL: it has left */
	uint32_t n_rows;   /* in this step */
	uint32_t n_past;   /* tokens in its pages after this step */
};

struct step_in_flight {
	struct batch b;
	struct in_flight_want *wants; /* [b.n_want] */
	struct kn_drawn *drawn;
	struct in_flight_run *runs; /* [n_run]: the sequences with rows in it */
	uint32_t n_run;
	uint32_t n_host; /* wanted rows whose logits come to the host */
	struct in_flight_text {
		struct eng_seq *s; /* NULL: it has left, or continues in a later step */
	} * texts;                 /* [max_sequences], b.n_texts of them */
	float *pooled;             /* [max_sequences][n_embd]; NULL: the model does not pool */
	uint32_t n_dropped;        /* tokens drawn for sequences that have left */
	uint64_t issued_ns;
	double expect_ns;
	bool waited;
	int rc; /* of the wait */
};

/* m's step records, all free. 0 or SL_ENOMEM. */
int in_flight_create(struct eng_model *m);
void in_flight_destroy(struct eng_model *m);
/* Records the step of b, just issued; its draws are in st. */
void in_flight_depart(struct step *st, struct eng_model *m, const struct batch *b, const struct sched_plan *plan);
/* The buffer for the next step's draws. */
struct kn_drawn *in_flight_drawn(const struct eng_model *m);
/* Waits for the oldest. 0 or SL_EIO. */
int in_flight_wait(struct eng_model *m);
/* Waits until all steps in flight are computed; serves none. */
void in_flight_await(struct eng_model *m);
/* Whether m may compute a step at once, with logits in st: m has no step in flight, and all logits in st are served. */
bool in_flight_may_forward(const struct eng_model *m);
/* Frees the oldest, which has been served. */
void in_flight_pop(struct eng_model *m);
/* Removes s from all steps in flight. */
void in_flight_leave(struct eng_seq *s);
/* Discards all steps in flight unserved: m has failed, or the engine stops. */
void in_flight_drop(struct eng_model *m);
/* Gives the scheduler the sequences in flight as they will be after that step, whatever it draws. False: none of them
 * can be in the next step. */
bool in_flight_foresee(struct eng_model *m, uint64_t now_ns);
/* Before rows of s are added to a step that follows one in flight: copies its state if a snapshot is due there. */
void in_flight_keep_state(struct eng_seq *s);
/* The first step in flight is computed, after which s has `past` tokens: takes a snapshot of its state if one is due.
 * whole: all of the step's tokens are its own. */
void in_flight_snapshot(struct eng_seq *s, uint32_t past, bool whole);
/* Whether s must skip the step being planned, which follows one in flight. */
bool in_flight_must_sit_out(const struct eng_seq *s);

#endif
