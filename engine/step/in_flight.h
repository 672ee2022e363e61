/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps on their way. Private to engine/; the step thread's.
 *
 * A step is planned, issued, waited for and served: its tokens are taken and told. On a device two of a model's steps
 * may be on their way: while one runs the next is planned and issued, so that the device never waits for the host.
 * What is not known yet, the tokens that the first one draws, the second takes on the device (kn_step.row_from).
 * A flight keeps what serving needs.
 *
 * Which steps are launched so: those after one whose tokens are all drawn on the device, and in which nobody has to
 * give anything up for another (sched_owner.gentle). Where penalties count what was said, the device counts the token
 * that is coming (kn_draw.said). A sequence of the first goes on in the second where its token, whatever it is, does
 * not use up its credit, its length or its pace. If it ends all the same, by a stop or because it was cancelled, the
 * second has computed a row too many: it is dropped, and nothing of it was told.
 *
 * A sequence that loses its place (it has ended, or is pre-empted) leaves the flights at once, and its pages and place
 * may be another's at once too, though rows on their way still write there: everything of one model takes effect
 * in the order in which it was issued, so who gets a page writes to it later. Whoever takes memory to another model
 * waits for what is on its way first (in_flight_await). A pre-empted sequence's token is drawn again, and is the same.
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

/* m's flights, empty. 0 or SL_ENOMEM. */
int in_flight_create(struct eng_model *m);
void in_flight_destroy(struct eng_model *m);
/* The step of b, which is issued: its draws are in st. */
void in_flight_depart(struct step *st, struct eng_model *m, const struct batch *b, const struct sched_plan *plan);
/* Where the next step's draws go. */
struct kn_drawn *in_flight_drawn(const struct eng_model *m);
/* Waits for the oldest. 0 or SL_EIO. */
int in_flight_wait(struct eng_model *m);
/* Waits for all of them, serves none: what they read and write is done. */
void in_flight_await(struct eng_model *m);
/* Whether m may compute a step at once, with logits in st: it has none on its way, and nobody's logits are in st that
 * have not been served. */
bool in_flight_may_forward(const struct eng_model *m);
/* The oldest has been served. */
void in_flight_pop(struct eng_model *m);
/* s is in none of them any more. */
void in_flight_leave(struct eng_seq *s);
/* Nobody is served: m has failed, or the engine stops. */
void in_flight_drop(struct eng_model *m);
/* Shows the scheduler those who are on their way as they are after that, whatever is drawn. False: somebody's next step
 * can't be known before the last one is served. */
bool in_flight_foresee(struct eng_model *m, uint64_t now_ns);

#endif
