/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the tokens of a step that are drawn on the device, so that only ids are copied back: the next token of a
 * sequence that neither searches nor verifies, if the device supports its sampling (sampler_device.h). Logits of all
 * other sequences are copied to the host in the same step.
 */
#include "engine/step/in_flight.h"

/* Whether the next token of s is drawn on the device. */
static bool draws_here(const struct eng_seq *s)
{
	return !is_searching(s) && !s->prefill_only && !s->draft_prefix.open && s->spec.n_draft == 0 &&
	       sampler_on_device(&s->sampling, &s->said, s->model->info.arch.n_vocab);
}

bool device_draw_all(const struct eng_seq *s)
{
	return model_can_draw(s->model->model) && draws_here(s) &&
	       (s->prompt_logprobs == 0 || s->prompt_reported == s->n_prompt);
}

/* Whether a token is drawn from wanted row i. */
static bool is_last(const struct step *st, const struct batch *b, int i)
{
	const struct eng_seq *s = st->want_seqs[i];
	bool last = i + 1 == b->n_want || st->want_seqs[i + 1] != s;
	return last && s->sched.n_left == 0;
}

/* Describes the draw of s from wanted row i. False: no memory for its adjustments, or its constraint failed; the host
 * then draws, and reports it. */
static bool describe(struct step *st, struct eng_seq *s, int32_t i, uint32_t *mask, struct kn_draw *out)
{
	struct sampler_params p = s->sampling;
	int32_t said = s->n_coming > 0 ? st->want[i] + 1 : 0;
	return constrain_draw(&s->constraint, &s->constraint.now, mask, &p) == 0 &&
	       sampler_device_draw(&p, &s->said, s->n_made + s->n_coming, i, said, &st->adjusts, out) == 0;
}

void device_draw_plan(struct step *st, const struct batch *b, const struct eng_model *m, struct model_draws *out)
{
	bool can = model_can_draw(m->model);
	size_t words = ((size_t)m->info.arch.n_vocab + 31) / 32;
	*out = (struct model_draws){.draws = st->draws, .drawn = in_flight_drawn(m), .taken = st->taken};
	st->adjusts.n = 0;
	for (int32_t i = 0; i < b->n_want; i++) {
		struct eng_seq *s = st->want_seqs[i];
		uint32_t *mask = st->masks + (size_t)out->n * words;
		st->drawn_at[i] = -1;
		st->taken[i] =
		    can && is_last(st, b, i) && draws_here(s) && describe(st, s, i, mask, &st->draws[out->n]);
		if (st->taken[i])
			st->drawn_at[i] = out->n++;
	}
	sampler_adjusts_point(&st->adjusts, st->draws, out->n);
}
