/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps in flight. Private to engine/; step thread.
 *
 *    planned ──in_flight_depart──► issued ──in_flight_wait──► computed ──batch_land──► served ──in_flight_pop──► free
 *
 * On a device, two steps of a model may be in flight: while one runs, the next is planned and issued, so the device
 * never waits for the host. The second step reads the tokens that the first draws on the device (kn_step.row_from).
 *
 * A step may follow another in flight if all tokens of the first are drawn on the device and no sequence must yield to
 * another (sched_owner.gentle). Where penalties count tokens, the device counts the coming one (kn_draw.said).
 * A sequence continues into the second step if its next token, whatever it is, exhausts neither credit, length nor
 * pace. A sequence that ends meanwhile (stop, cancellation) wastes one row; its output is discarded.
 *
 * A sequence that loses its slot (ended or pre-empted) leaves all steps in flight at once. Its pages and slot may be
 * reused at once, although rows in flight still write there: operations of one model take effect in the order of issue,
 * so the new owner writes later. Moving memory to another model first waits for the steps in flight (in_flight_await).
 * A pre-empted sequence's token is drawn again and is the same.
 */
#ifndef ENGINE_IN_FLIGHT_H
#define ENGINE_IN_FLIGHT_H

#include "engine/step/batch.h"

struct step_in_flight {
	struct batch b;
	/* Of each wanted row: whose it is (NULL: it has left), which draw on the device it is (-1: none, its logits
	 * come to the host), and whether a token is drawn from it. */
	struct eng_seq **want_seqs;
	int32_t *drawn_at;
	bool *drawing;
	struct kn_drawn *drawn;
	/* Those who have rows in it (NULL: it has left), how many, and how many tokens are in their pages after it. */
	struct eng_seq **run;
	uint32_t *run_rows, *run_past;
	uint32_t n_run;
	uint32_t n_dropped; /* tokens that will be drawn for nobody */
	uint64_t issued_ns;
	double expect_ns;
	bool waited;
	int rc; /* of the wait */
};

/* m's step records, all free. 0 or SL_ENOMEM. */
int in_flight_create(struct eng_model *m);
void in_flight_destroy(struct eng_model *m);
/* The step of b, which is issued: its draws are in st. */
void in_flight_depart(struct step *st, struct eng_model *m, const struct batch *b, const struct sched_plan *plan);
/* Where the next step's draws go. */
struct kn_drawn *in_flight_drawn(const struct eng_model *m);
/* Waits for the oldest. 0 or SL_EIO. */
int in_flight_wait(struct eng_model *m);
/* Waits until all steps in flight are computed; serves none. */
void in_flight_await(struct eng_model *m);
/* Whether m may compute a step at once, with logits in st: it has none on its way, and nobody's logits are in st that
 * have not been served. */
bool in_flight_may_forward(const struct eng_model *m);
/* The oldest has been served. */
void in_flight_pop(struct eng_model *m);
/* Removes s from all steps in flight. */
void in_flight_leave(struct eng_seq *s);
/* Discards all steps in flight unserved: m has failed, or the engine stops. */
void in_flight_drop(struct eng_model *m);
/* Shows the scheduler those who are on their way as they are after that, whatever is drawn. False: somebody's next step
 * can't be known before the last one is served. */
bool in_flight_foresee(struct eng_model *m, uint64_t now_ns);

#endif
