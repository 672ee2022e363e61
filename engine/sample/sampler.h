/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to a token, in the order of the OpenAI and vLLM interfaces:
 *
 *   logit bias              -inf: never; also of all tokens without one, where that is asked for
 *   repetition penalty      of prompt and answer: l > 0 ? l / r : l · r (Keskar et al. 2019, CTRL)
 *   presence, frequency     of the answer: l - presence - frequency · count
 *   minimum of tokens       end tokens and stop ids are out before it; end tokens always with ignore_eos
 *   mask                    a grammar's: all other tokens are out
 *   temperature             0: the arg max of what there is now, the lowest id on ties
 *   top-k                   (Fan et al. 2018)
 *   typical                 (Meister et al. 2022)
 *   top-p                   (Holtzman et al. 2020)
 *   min-p                   (Nguyen et al. 2024), of the likeliest that is left
 *   the draw                an exponential race among what is left (kernels/race.h)
 *
 * Each filter works on what the one before it left, scaled to a mass of 1, keeps the lower of equal
 * ids and at least one. The draw is counter-based (hashes of seed, choice, the token's index in
 * the answer and its id), so it depends on nothing that shares the batch and can be resumed anywhere.
 *
 * Log probabilities are of the model's own logits, before all of the above.
 */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/proto/proto.h"

/* Plain values and borrowed lists: may be copied freely while the lists live. Ids in the lists are
 * below n_vocab. */
struct sampler_params {
	float temperature, top_p, min_p;
	float typical_p, repetition_penalty; /* 1: off */
	float presence_penalty, frequency_penalty;
	uint32_t top_k; /* 0: all */
	uint64_t seed;
	uint32_t choice;     /* which of several answers to one request */
	uint32_t min_tokens; /* of the answer */
	bool ignore_eos;
	bool only_biased;  /* tokens without a bias are out */
	bool want_logprob; /* else logprob is NaN and n_top 0 */
	uint8_t n_top;     /* likeliest tokens reported, at most PROTO_MAX_TOP_LOGPROBS */
	uint16_t n_bias;
	uint8_t n_stop_ids;
	uint32_t n_end_ids;
	/* An id that comes twice is biased twice. In the order of ids where only_biased. */
	const struct proto_id_f32 *bias;
	const int32_t *stop_ids;
	const int32_t *end_ids; /* the model's */
	const uint32_t *mask;   /* bit id % 32 of word id / 32: token id may be drawn; NULL: all may */
};

/* ---- tokens of the answer so far (sampler_state.c) ---- */

/* A token in the answer or its prompt. */
struct sampler_count {
	int32_t id;    /* -1: an empty place */
	uint32_t made; /* in the answer, of the low 31 bits; SAMPLER_IN_PROMPT beside them */
};

#define SAMPLER_IN_PROMPT 0x80000000u

/* Grows with the different tokens of the text, not with the vocabulary. Init to zero. */
struct sampler_state {
	struct sampler_count *slots; /* a hash table of n_slots, a power of two, or NULL */
	uint32_t n_slots, n;
};

/* Whether draws by p use the state at all, and the prompt in it. */
bool sampler_needs_state(const struct sampler_params *p);
bool sampler_needs_prompt(const struct sampler_params *p);
/* 0 or SL_ENOMEM (of a prompt, some may have been taken). */
int sampler_state_add_prompt(struct sampler_state *s, const int32_t *ids, size_t n);
int sampler_state_add(struct sampler_state *s, int32_t id);
/* to is empty before. 0 or SL_ENOMEM. */
int sampler_state_copy(struct sampler_state *to, const struct sampler_state *from);
void sampler_state_dispose(struct sampler_state *s);

/* ---- draws ---- */

struct logits_item;

/* Memory of one thread that draws. Init to zero. */
struct sampler_scratch {
	int n_vocab; /* room for */
	float *l, *w, *key;
	int32_t *ids;
	double *bounds;
	struct logits_item *items;
	struct proto_id_f32 *undo;
	size_t n_undo;
};

/* Makes room for vocabularies up to n_vocab. 0 or SL_ENOMEM (s is unchanged). */
int sampler_scratch_reserve(struct sampler_scratch *s, int n_vocab);
void sampler_scratch_dispose(struct sampler_scratch *s);

struct sampler_choice {
	int32_t id;
	float logprob;
	uint8_t n_top;
	struct proto_id_f32 top[PROTO_MAX_TOP_LOGPROBS]; /* likeliest first, the lower id of equals */
};

/* Draws the token with this index (0: the answer's first). state may be NULL where it is not needed.
 * logits [n_vocab] are used and come back as they were, but for a NaN, which becomes -inf. id is -1 if
 * the largest is not finite, before or after biases (nothing is left, or an overflow): the caller
 * fails the sequence. */
void sampler_draw(const struct sampler_params *p, const struct sampler_state *state, float *logits, int n_vocab,
		  uint64_t index, struct sampler_scratch *scratch, struct sampler_choice *out);

/* The log probability of a given token and the n_top likeliest (≤ PROTO_MAX_TOP_LOGPROBS). logits and out->id == -1 as
 * with sampler_draw; else out->id is id. */
void sampler_prompt_logprob(float *logits, int n_vocab, int32_t id, uint8_t n_top, struct sampler_scratch *scratch,
			    struct sampler_choice *out);

/* For a search: the k ≤ n_vocab likeliest after biases, penalties and the minimum of tokens (p, state) but without
 * temperature and filters, and their log probabilities among all; likeliest first. Returns how many: fewer than k if
 * the rest is excluded, 0 where sampler_draw gives -1. */
int sampler_top(const struct sampler_params *p, const struct sampler_state *state, float *logits, int n_vocab,
		uint64_t index, int k, struct sampler_scratch *scratch, struct proto_id_f32 *out);

#endif
