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
	       s->constraint.grammar == NULL && sampler_on_device(&s->sampling, &s->said, s->model->info.arch.n_vocab);
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

void device_draw_plan(struct step *st, const struct batch *b, const struct eng_model *m, struct model_draws *out)
{
	bool can = model_can_draw(m->model);
	*out = (struct model_draws){.draws = st->draws, .drawn = in_flight_drawn(m), .taken = st->taken};
	st->adjusts.n = 0;
	for (int32_t i = 0; i < b->n_want; i++) {
		const struct eng_seq *s = st->want_seqs[i];
		st->drawn_at[i] = -1;
		/* Drawn on the host if there is no memory for its adjustments. */
		st->taken[i] =
		    can && is_last(st, b, i) && draws_here(s) &&
		    sampler_device_draw(&s->sampling, &s->said, s->n_made + s->n_coming, i,
					s->n_coming > 0 ? st->want[i] + 1 : 0, &st->adjusts, &st->draws[out->n]) == 0;
		if (st->taken[i])
			st->drawn_at[i] = out->n++;
	}
	sampler_adjusts_point(&st->adjusts, st->draws, out->n);
}
