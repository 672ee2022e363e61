/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a draft should be (Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, has
 * the arithmetic of acceptance). Pure: it knows numbers, not sequences.
 *
 * Each request has, for each source of drafts, a moving average of how likely a drafted token is accepted, given that
 * those before it were. From that and from what steps of so many rows cost on this machine (struct cost, of steps
 * without prompts) follows the length with which the step makes the most tokens a second; if no length beats a plain
 * step, nothing is drafted. Acceptance can't be measured without drafts, so a short one is tried occasionally, at
 * growing intervals, and only once its cost is small relative to the steps since the last.
 */
#ifndef ENGINE_SPEC_H
#define ENGINE_SPEC_H

#include <stdint.h>

#include "engine/sched/cost.h"

enum {
	SPEC_MAX_DRAFT = 16,
	SPEC_TRIAL = 2,           /* tokens of a draft that is not expected to pay */
	SPEC_FIRST_PATIENCE = 16, /* chances left unused before a trial, doubled by each until one is right */
	SPEC_MOST_PATIENCE = 512,
	SPEC_PLAIN_EACH = 32, /* steps with drafts, then one without, so that its cost stays known */
};

enum spec_source { SPEC_NGRAM, SPEC_HEAD, SPEC_MODEL, SPEC_SOURCES };

struct spec_rate {
	double accept;
	uint32_t unused, patience;
};

/* Like cost_learn, for a step without prompts, but clips outliers: drafts that seem to pay only because one plain step
 * was disturbed would prevent that step's cost from being measured again. */
void spec_cost_learn(struct cost *c, uint32_t rows, struct cost_past past, double ns);

/* What drafting costs beside verifying. */
struct spec_price {
	double each_ns; /* a token */
	double once_ns; /* now, before the first one, and not again for the next `spread` tokens */
	uint32_t spread;
};

/* The step as it is planned so far. */
struct spec_now {
	const struct cost *cost;
	double rows, tokens; /* tokens: expected to come of it */
	struct cost_past past;
};

/* accept: a guess, held within what leaves room to learn. */
void spec_rate_init(struct spec_rate *r, double accept);
/* Of a draft so many tokens were compared with the model's, and so many accepted: all compared ones, or all but the
 * last. */
void spec_rate_learn(struct spec_rate *r, uint32_t n_compared, uint32_t n_accepted);
/* Tokens that a draft of n adds on the average. */
double spec_expected(const struct spec_rate *r, uint32_t n);
/* How many tokens to draft, at most `most`, for a sequence of n_past tokens. */
uint32_t spec_length(struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		     const struct spec_price *price);
/* The throughput of the step with the best such draft, as a multiple of the throughput without. */
double spec_gain(const struct spec_rate *r, const struct spec_now *now, uint32_t n_past, uint32_t most,
		 const struct spec_price *price);
/* The step has these rows as well. */
void spec_now_add(struct spec_now *now, const struct spec_rate *r, uint32_t n_past, uint32_t n);

#endif
