/* SPDX-License-Identifier: Apache-2.0
 *
 * Models on demand: their weights are in memory while requests use them. engine/sched/residency.h decides which; this
 * carries it out. Private to engine/; step thread, except weight_jobs_*.
 *
 * A model on demand is READY once its metadata, tokenizer and work space are loaded, and from then on takes requests as
 * any other: prompts are tokenized, QUEUED is sent, limits and tenants' shares apply. Its sequences get steps only
 * while its weights are HERE, or LEAVING for those that have begun. Nothing that points into a model ever moves.
 *
 * A request that has waited for weights for engine.load_wait ends with PROTO_ERR_OVERLOADED, those of a model whose
 * weights can't be read with PROTO_ERR_NOT_READY; the next attempt then waits, twice as long each time.
 *
 * The two models of a pair (roles small and large) may both be on demand. A cascade's sequence that waits for one of
 * them while the other has begun is safe from deadlock because the pair fits as a whole, and neither displaces the
 * other then (residency.h). A pair that does not fit is refused: the model that loads second fails.
 *
 * The loader thread brings weights in and drops them, one model at a time, since both may take seconds.
 */
#ifndef ENGINE_MODEL_RESIDENCY_H
#define ENGINE_MODEL_RESIDENCY_H

#include "engine/step/internal.h"

/* Whether m, just loaded, fits into the memory for models on demand: alone, and with the other model of its pair if
 * that is READY. False: why not is in `line`. */
bool model_residency_fits(const struct eng_model *m, char *line, size_t size);
/* Whether sequences of m may run. */
bool model_is_here(const struct eng_model *m);
/* s has an answer: its model was in use, even if no tick saw it. */
void model_residency_used(const struct eng_seq *s, uint64_t now_ns);
/* Call it in every iteration of the step thread's loop. */
void model_residency_tick(struct step *st, uint64_t now_ns);
/* m's weights have come or gone, or could not. */
void model_residency_done(struct step *st, struct eng_model *m);
/* How long weights that are asked for now take to come, ns; 0: they are here. */
double model_residency_ns(const struct eng_model *m);

/* ---- loader thread ---- */

/* Does the step thread's jobs until weight_jobs_close. */
void weight_jobs_run(struct engine *e);
/* Any thread. */
void weight_jobs_close(struct engine *e);

#endif
