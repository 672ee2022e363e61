/* SPDX-License-Identifier: Apache-2.0
 *
 * Log probabilities of a prompt's own tokens. The row of token p says what is likely at p + 1, so all
 * of a prompt's rows but the last want their logits, where a plain prefill wants none. Two things
 * follow: at most STEP_EXTRA_ROWS such rows are in one step (there is memory for so many rows of
 * logits beside those of the draws), and such a sequence takes nothing from the prefix tree, whose
 * pages have no logits. What was told is counted in the sequence, so computing again after a
 * pre-emption tells nothing twice. Step thread.
 */
#include <math.h>

#include "engine/step/step.h"

/* Rows [first, end) are still to be told about. */
static uint32_t first_row(const struct eng_seq *s) { return s->prompt_told > 1 ? s->prompt_told - 1 : 0; }

bool prompt_row_tells(const struct eng_seq *s, uint32_t position)
{
	return s->prompt_logprobs > 0 && position >= first_row(s) && position + 1 < s->n_prompt;
}

uint32_t prompt_rows_fit(const struct eng_seq *s, uint32_t past, uint32_t n, uint32_t room)
{
	if (s->prompt_logprobs == 0)
		return n;
	uint32_t first = first_row(s), end = s->n_prompt - 1;
	uint32_t from = past > first ? past : first, to = past + n < end ? past + n : end;
	return to > from && to - from > room ? from - past + room : n;
}

static struct proto_id_f32 *next_entry(struct step *st, struct eng_seq *s)
{
	size_t each = s->prompt_logprobs;
	struct proto_id_f32 *at = st->prompt_entries + st->n_prompt_entries * each;
	st->n_prompt_entries++;
	*at = (struct proto_id_f32){.id = (uint32_t)s->tokens[s->prompt_told++], .v = NAN};
	for (size_t k = 1; k < each; k++)
		at[k] = (struct proto_id_f32){.v = NAN};
	return at;
}

bool prompt_row_take(struct step *st, struct eng_seq *s, float *logits)
{
	/* Nothing says how likely the first token is. */
	if (s->prompt_told == 0)
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

void prompt_rows_tell(struct step *st, struct eng_seq *s)
{
	/* A prompt of one token has no row that tells. */
	if (s->prompt_logprobs > 0 && s->n_prompt == 1 && s->prompt_told == 0)
		next_entry(st, s);
	uint32_t n = st->n_prompt_entries;
	st->n_prompt_entries = 0;
	if (n == 0)
		return;
	struct eng_event ev = {.kind = ENG_PROMPT_LOGPROBS,
			       .id = s->node.key,
			       .u.prompt_logprobs = {.first = s->prompt_told - n,
						     .n = (uint16_t)n,
						     .n_top = (uint8_t)(s->prompt_logprobs - 1),
						     .entries = st->prompt_entries,
						     .pieces = eng_seq_pieces(s, true)}};
	st->e->on_event(st->e->on_event_ctx, &ev);
}
