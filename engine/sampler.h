/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to a token: penalties, temperature, top-k, top-p, min-p, then a draw. The draw is
 * counter-based (a hash of seed and the token's index in the answer), so it depends on nothing that
 * shares the batch and can be resumed anywhere. Temperature 0 is the arg max, the lowest id on ties.
 */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdint.h>

struct sampler_params {
	float temperature, top_p, min_p;
	uint32_t top_k;
	float presence_penalty, frequency_penalty;
	uint64_t seed;
};

/* Counts of what this answer has produced so far, for the penalties; NULL when both are 0. */
struct sampler_choice {
	int32_t id;
	float logprob; /* of the chosen token under softmax(logits), before penalties and temperature */
};

/* logits [n_vocab] are overwritten; scratch is n_vocab int32_t. index: 0 for the answer's first
 * token. counts [n_vocab] or NULL. A NaN counts as -inf; if the largest is not finite (nothing is left,
 * or an overflow) the choice is id -1 (the caller fails the sequence). */
struct sampler_choice sampler_draw(const struct sampler_params *p, float *logits, int n_vocab,
				   const uint16_t *counts, uint64_t index, int32_t *scratch);

#endif
