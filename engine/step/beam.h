/* SPDX-License-Identifier: Apache-2.0
 *
 * Beam search (Lowerre, "The HARPY Speech Recognition System", 1976; with length normalisation as
 * in Wu et al. 2016): of all one-token continuations of the hypotheses that live, the `width`
 * likeliest live on; those that ended compete by logprob / length^penalty. Pure: it knows neither
 * pages nor logits, only what each hypothesis's likeliest continuations are.
 */
#ifndef ENGINE_BEAM_H
#define ENGINE_BEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { BEAM_MAX = 16 };

struct beam_hyp {
	int32_t *tokens; /* owned, n of them */
	float *logprobs; /* owned */
	uint32_t n;
	double sum;   /* of the logprobs */
	double score; /* of one that ended */
	bool ended;   /* by an end token, which is its last; else by the length */
};

struct beam {
	uint32_t width, max_tokens, n_live, n_done;
	float length_penalty;
	struct beam_hyp live[BEAM_MAX], done[BEAM_MAX]; /* done: the best first */
};

/* A continuation, natural logarithm of its probability. */
struct beam_top {
	int32_t id;
	float logprob;
};

/* One living hypothesis, empty. */
void beam_init(struct beam *b, uint32_t width, uint32_t max_tokens, float length_penalty);
void beam_dispose(struct beam *b);
/* Back to the beginning. */
void beam_reset(struct beam *b);

/* Continuations to give for each living hypothesis: then enough are left when some of them end. */
static inline uint32_t beam_n_tops(const struct beam *b) { return 2 * b->width; }

/* tops: [n_live][k], the likeliest first. The next generation: parents[i] is the hypothesis that
 * the i-th living one continues. *finished: nothing that lives can become better than what ended,
 * or the length is reached; then done[] is the answer. 0 or SL_ENOMEM (nothing has changed). */
int beam_advance(struct beam *b, const struct beam_top *tops, uint32_t k, bool (*is_end)(const void *ctx, int32_t id),
		 const void *ctx, uint8_t *parents, bool *finished);

#endif
