/* SPDX-License-Identifier: Apache-2.0
 *
 * Beam search (Lowerre, "The HARPY Speech Recognition System", 1976; length normalisation as in Wu et al. 2016). Of all
 * one-token continuations of the live hypotheses, the `width` likeliest live on; ended ones compete by
 * logprob / length^penalty. Pure: it knows neither pages nor logits, only the likeliest continuations.
 */
#ifndef ENGINE_BEAM_H
#define ENGINE_BEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/step/constrain.h"

enum { BEAM_MAX = 16 };

struct beam_hyp {
	int32_t *tokens; /* owned, n of them */
	float *logprobs; /* owned */
	uint32_t n;
	struct constrain_at at; /* behind its tokens */
	double sum;             /* of the logprobs */
	double score;           /* once ended */
	bool ended;             /* by an end token, its last, or complete by its grammar; otherwise by the length */
};

struct beam {
	uint32_t width, max_tokens, n_live, n_done;
	float length_penalty;
	const struct seq_constraint *constraint;        /* NULL: it is free */
	struct beam_hyp live[BEAM_MAX], done[BEAM_MAX]; /* done: the best first */
};

/* A continuation, natural logarithm of its probability. */
struct beam_top {
	int32_t id;
	float logprob;
};

/* One live hypothesis, empty. */
void beam_init(struct beam *b, uint32_t width, uint32_t max_tokens, float length_penalty);
/* Constrains an empty search. c is borrowed until beam_reset. */
void beam_constrain(struct beam *b, const struct seq_constraint *c);
/* Frees all hypotheses and starts over. */
void beam_reset(struct beam *b);

/* Continuations needed per live hypothesis, so that enough remain when some end. */
static inline uint32_t beam_n_tops(const struct beam *b) { return 2 * b->width; }

/* Makes the next generation. tops: [n_live][k], the likeliest first; parents[i]: the hypothesis that live[i] continues.
 * *finished: no live hypothesis can beat the ended ones, or the length is reached; done[] is the result. 0, SL_ENOMEM,
 * SL_ELIMIT (nothing has changed). */
int beam_advance(struct beam *b, const struct beam_top *tops, uint32_t k, bool (*is_end)(const void *ctx, int32_t id),
		 const void *ctx, uint8_t *parents, bool *finished);

#endif
