/* SPDX-License-Identifier: Apache-2.0
 *
 * Log probabilities of a prompt's own tokens. The row of token p predicts token p + 1, so all rows of the prompt but
 * the last need logits, which a plain prefill does not compute. Hence a step has at most STEP_EXTRA_ROWS such rows (the
 * room for logits besides those of draws). Such a sequence reuses nothing from the prefix tree, whose pages have no
 * logits. It counts what was reported, so recomputation after a pre-emption reports nothing twice.
 */
#include <math.h>

#include "engine/step/step.h"

/* The rows not yet reported. */
struct row_range prompt_rows_wanted(const struct eng_seq *s)
{
	uint32_t first = s->prompt_reported > 1 ? s->prompt_reported - 1 : 0;
	return s->prompt_logprobs > 0 ? (struct row_range){first, s->n_prompt - 1} : (struct row_range){0};
}

static struct proto_id_f32 *next_entry(struct step *st, struct eng_seq *s)
{
	size_t each = s->prompt_logprobs;
	struct proto_id_f32 *at = st->prompt_entries + st->n_prompt_entries * each;
	st->n_prompt_entries++;
	*at = (struct proto_id_f32){.id = (uint32_t)s->tokens[s->prompt_reported++], .v = NAN};
	for (size_t k = 1; k < each; k++)
		at[k] = (struct proto_id_f32){.v = NAN};
	return at;
}

bool prompt_row_take(struct step *st, struct eng_seq *s, float *logits)
{
	/* No row predicts the first token. */
	if (s->prompt_reported == 0)
		next_entry(st, s);
	struct proto_id_f32 *at = next_entry(st, s);
	sampler_prompt_logprob(logits, s->model->info.arch.n_vocab, (int32_t)at->id, (uint8_t)(s->prompt_logprobs - 1),
			       &st->scratch, &st->choice);
	if (st->choice.id < 0)
		return false;
	at->v = st->choice.logprob;
	for (int k = 0; k < st->choice.n_top; k++)
		at[1 + k] = st->choice.top[k];
	return true;
}

void prompt_rows_report(struct step *st, struct eng_seq *s)
{
	/* A prompt of one token has no wanted row. */
	if (s->prompt_logprobs > 0 && s->n_prompt == 1 && s->prompt_reported == 0)
		next_entry(st, s);
	uint32_t n = st->n_prompt_entries;
	st->n_prompt_entries = 0;
	if (n == 0)
		return;
	struct eng_event ev = {.kind = ENG_PROMPT_LOGPROBS,
			       .id = s->node.key,
			       .u.prompt_logprobs = {.first = s->prompt_reported - n,
						     .n = (uint16_t)n,
						     .n_top = (uint8_t)(s->prompt_logprobs - 1),
						     .entries = st->prompt_entries,
						     .pieces = eng_seq_pieces(s, true)}};
	st->e->on_event(st->e->on_event_ctx, &ev);
}
