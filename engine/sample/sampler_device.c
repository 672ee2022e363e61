/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sample/sampler_device.h"

#include "base/alloc.h"
#include "kernels/race.h"

_Static_assert((int)KN_MAX_TOP == (int)PROTO_MAX_TOP_LOGPROBS, "as many as are asked for");

void sampler_adjusts_dispose(struct sampler_adjusts *a)
{
	sl_free(a->at);
	*a = (struct sampler_adjusts){0};
}

static uint32_t n_penalised(const struct sampler_params *p, const struct sampler_state *state)
{
	return state != NULL && sampler_needs_state(p) ? state->n : 0;
}

static size_t n_excluded(const struct sampler_params *p, uint64_t index)
{
	size_t n = index < p->min_tokens ? p->n_stop_ids : 0;
	return p->ignore_eos || index < p->min_tokens ? n + p->n_end_ids : n;
}

bool sampler_on_device(const struct sampler_params *p, const struct sampler_state *state, int n_vocab)
{
	return p->typical_p >= 1 && !p->only_biased && n_vocab <= KN_MAX_SAMPLED_VOCAB &&
	       (size_t)p->n_bias + n_penalised(p, state) + n_excluded(p, 0) <= SAMPLER_MAX_ADJUSTS;
}

static int reserve(struct sampler_adjusts *a, size_t n)
{
	if (a->n + n <= a->room)
		return 0;
	size_t room = 2 * (a->n + n);
	struct kn_adjust *grown = sl_realloc_n(a->at, room, sizeof *grown);
	if (grown == NULL)
		return SL_ENOMEM;
	a->at = grown;
	a->room = room;
	return 0;
}

static void put(struct sampler_adjusts *a, int32_t id, float first, float second)
{
	a->at[a->n++] = (struct kn_adjust){.id = id, .a = first, .b = second};
}

static void put_out(struct sampler_adjusts *a, const int32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		put(a, ids[i], 0, 0);
}

/* What presence and frequency take from a token that was made so often. */
static float taken_from(const struct sampler_params *p, uint32_t made)
{
	return made > 0 ? p->presence_penalty + p->frequency_penalty * (float)made : 0;
}

/* With room for one token that is not among them, if said. */
static void put_penalties(struct sampler_adjusts *a, const struct sampler_params *p, const struct sampler_state *state,
			  int32_t said)
{
	for (uint32_t i = 0; i < state->n_slots; i++) {
		const struct sampler_count *c = &state->slots[i];
		uint32_t made = c->made & ~SAMPLER_IN_PROMPT;
		if (c->id < 0)
			continue;
		put(a, c->id, p->repetition_penalty, taken_from(p, made));
		a->at[a->n - 1].more = taken_from(p, made + 1);
	}
	if (said > 0)
		put(a, -1, p->repetition_penalty, taken_from(p, 1));
}

int sampler_device_draw(const struct sampler_params *p, const struct sampler_state *state, uint64_t index, int32_t row,
			int32_t said, struct sampler_adjusts *a, struct kn_draw *out)
{
	size_t first = a->n;
	uint32_t penalised = n_penalised(p, state);
	said = sampler_needs_state(p) ? said : 0;
	if (reserve(a, p->n_bias + penalised + 1 + n_excluded(p, index)) != 0)
		return SL_ENOMEM;
	for (uint16_t i = 0; i < p->n_bias; i++)
		put(a, (int32_t)p->bias[i].id, p->bias[i].v, 0);
	if (penalised > 0 || said > 0)
		put_penalties(a, p, state, said);
	size_t before_out = a->n;
	if (index < p->min_tokens)
		put_out(a, p->stop_ids, p->n_stop_ids);
	if (p->ignore_eos || index < p->min_tokens)
		put_out(a, p->end_ids, p->n_end_ids);
	*out = (struct kn_draw){.row = row,
				.temperature = p->temperature,
				.top_p = p->top_p,
				.min_p = p->min_p,
				.top_k = p->top_k,
				.key = race_key(p->seed, p->choice, index),
				.want_logprob = p->want_logprob,
				.n_top = p->want_logprob ? p->n_top : 0,
				.n_bias = p->n_bias,
				.n_penalties = (int32_t)(before_out - first) - p->n_bias,
				.n_out = (int32_t)(a->n - before_out),
				.said = said,
				.mask = p->mask};
	return 0;
}

void sampler_adjusts_point(const struct sampler_adjusts *a, struct kn_draw *draws, int n)
{
	const struct kn_adjust *at = a->at;
	for (int i = 0; i < n; i++) {
		draws[i].adjust = at;
		at += draws[i].n_bias + draws[i].n_penalties + draws[i].n_out;
	}
}

void sampler_device_choice(const struct kn_drawn *drawn, struct sampler_choice *out)
{
	out->id = drawn->id;
	out->logprob = drawn->logprob;
	out->n_top = (uint8_t)drawn->n_top;
	for (int i = 0; i < drawn->n_top; i++)
		out->top[i] = (struct proto_id_f32){.id = (uint32_t)drawn->top[i].id, .v = drawn->top[i].logprob};
}
