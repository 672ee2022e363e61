/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks of constrained answers, made before the step that draws from them. A mask may take many times as long as a
 * step, so it is made in slices: until it is finished, its sequence sits steps out, and the others go on. A step has
 * one slice for an unfinished mask and about one for new ones. A mask depends on its sequence's tokens only, so how
 * long it takes changes no answer.
 */
#include "engine/step/batch.h"

/* Of the sequences whose mask is unfinished, the one that has had the least work. */
static const struct eng_seq *next_unfinished(const struct sched_plan *plan)
{
	const struct eng_seq *least = NULL;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		const struct eng_seq *s = seq_of(plan->run[i]);
		if (s->constraint.waiting && (least == NULL || s->constraint.n_work < least->constraint.n_work))
			least = s;
	}
	return least;
}

/* Whether the masks are ready for all draws from the next n rows of s, which verify the beginning of an answer. Its
 * tokens are known, so the masks are too. */
static bool prefix_masks_ready(struct step *st, struct eng_seq *s, uint32_t n)
{
	struct seq_constraint *c = &s->constraint;
	uint32_t i = eng_seq_n_own(s), end = s->sched.n_past + n;
	if (end > i + STEP_EXTRA_ROWS)
		end = i + STEP_EXTRA_ROWS;
	constrain_ahead(c);
	for (;; i++) {
		if (!constrain_ready(c, &c->ahead, st->mask, GRAMMAR_SLICE / 8))
			return false;
		if (i >= end || i >= eng_seq_n_tokens(s) || constrain_take(c, &c->ahead, s->tokens[i]) != 0)
			return true;
	}
}

void mask_turns(struct step *st, const struct sched_plan *plan)
{
	st->mask_turn = next_unfinished(plan);
	st->mask_work = GRAMMAR_SLICE;
	st->masks_missing = false;
}

bool mask_ready(struct step *st, struct eng_seq *s, uint32_t n)
{
	struct seq_constraint *c = &s->constraint;
	if (!constrain_is_on(c) || s->embed || s->prefill_only)
		return true;
	bool ready = false, searching = is_searching(s) && s->state == SEQ_DECODE;
	uint32_t work = st->mask_work;
	if (c->waiting) /* out of turn: only to see whether another sequence has finished it */
		work = st->mask_turn == s ? GRAMMAR_SLICE : 1;
	if (s->draft_prefix.open)
		ready = prefix_masks_ready(st, s, n);
	else if (searching)
		ready = beam_rows_ready(st, s, work / 4 + 1);
	else if (n < s->sched.n_left)
		return true;
	else
		ready = constrain_ready(c, &c->now, st->mask, work);
	if (ready)
		return true;
	st->masks_missing = true;
	st->mask_work = GRAMMAR_SLICE / 8;
	s->spec.n_draft = 0;
	return false;
}
