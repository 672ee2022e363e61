/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences whose result is an embedding or a score. Private to engine/; step thread. They are prompts without an
 * answer: their rows join any step of their model, the model pools them (engine/model/pooling.c), and the step in which
 * a text ends brings its result to the host. Without tokens to draw they never hold back a step that is planned ahead.
 *
 * A vector is the same bit for bit alone, in any batch and for any cut into chunks: a row depends on its own text only,
 * and the mean's sum takes one row after the other. A pre-empted sequence begins its sum again. The prefix tree is not
 * used for means, whose sum would lack the reused rows, nor where rows see later positions.
 */
#ifndef ENGINE_EMBED_H
#define ENGINE_EMBED_H

#include "engine/step/in_flight.h"

/* Whether m can serve this request: 0, or an error with its reason. Decides what s may share. */
uint8_t embed_accept(struct eng_seq *s, const struct eng_model *m, struct sl_err *err);
/* The last n rows of b are rows of s. */
void embed_rows(struct step *st, struct batch *b, struct eng_seq *s, uint32_t n);
/* Reports and ends the texts that ended with f. */
void embed_serve(struct step *st, struct eng_model *m, const struct step_in_flight *f);

#endif
