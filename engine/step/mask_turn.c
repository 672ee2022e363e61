/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks of constrained answers, made before the step that draws from them. A mask may take many times as long as a
 * step, so it is made in slices: until it is finished, its sequence sits steps out, and the others go on. A mask
 * depends on its sequence's tokens only, so how long it takes changes no answer.
 *
 * However many sequences are constrained, a step spends about two slices and a quarter of its own time on constraints
 * at most: a slice for the unfinished mask in turn, and the rest for new masks, drafts and forced tokens. What finds
 * nothing left waits for its turn; a forced token is drawn instead.
 */
#include "engine/step/batch.h"

enum { SLICE_NS = 1000000, SHARE_OF_STEP = 4 };

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

static void mask_spend(struct step *st, uint64_t work) { st->mask_left -= work < st->mask_left ? work : st->mask_left; }

bool mask_make(struct step *st, struct seq_constraint *c, struct constrain_at *at, uint32_t most)
{
	uint64_t work = most < st->mask_left ? most : st->mask_left, before = grammar_spent();
	bool ready = constrain_ready(c, at, st->mask, (uint32_t)work);
	mask_spend(st, grammar_spent() - before);
	return ready;
}

uint32_t mask_cut(struct step *st, struct seq_constraint *c, const int32_t *draft, uint32_t n)
{
	uint64_t before = grammar_spent();
	n = constrain_cut(c, draft, n, st->mask_left < GRAMMAR_SLICE / 8 ? st->mask_left : GRAMMAR_SLICE / 8);
	mask_spend(st, grammar_spent() - before);
	return n;
}

/* What is forced, a draw would find as well. */
int32_t mask_forced(struct step *st, struct seq_constraint *c)
{
	if (st->mask_left == 0)
		return -1;
	uint64_t before = grammar_spent();
	int32_t id = constrain_forced(c, &c->now, st->mask_left);
	mask_spend(st, grammar_spent() - before);
	return id;
}

/* Whether the masks are ready for all draws from the next n rows of s, which verify the beginning of an answer. Its
 * tokens are known, so the masks are too. */
static bool prefix_masks_ready(struct step *st, struct eng_seq *s, uint32_t n, uint32_t work)
{
	struct seq_constraint *c = &s->constraint;
	uint32_t i = eng_seq_n_own(s), end = s->sched.n_past + n;
	if (end > i + STEP_EXTRA_ROWS)
		end = i + STEP_EXTRA_ROWS;
	constrain_ahead(c);
	for (;; i++) {
		if (!mask_make(st, c, &c->ahead, work))
			return false;
		if (i >= end || i >= eng_seq_n_tokens(s) || constrain_take(c, &c->ahead, s->tokens[i]) != 0)
			return true;
	}
}

void mask_turns(struct step *st, const struct eng_model *m, const struct sched_plan *plan)
{
	double slices = 1 + m->ns_per_decode_step / SHARE_OF_STEP / SLICE_NS;
	st->mask_turn = next_unfinished(plan);
	st->mask_left = (uint64_t)(slices * GRAMMAR_SLICE);
	st->masks_missing = false;
}

/* Whether all masks of the next n rows of s are ready, or are after so much work each. */
static bool masks_ready(struct step *st, struct eng_seq *s, uint32_t n, uint32_t work)
{
	struct seq_constraint *c = &s->constraint;
	if (s->draft_prefix.open)
		return prefix_masks_ready(st, s, n, work / 8);
	if (is_searching(s) && s->state == SEQ_DECODE)
		return beam_rows_ready(st, s, work / 4);
	return mask_make(st, c, &c->now, work);
}

bool mask_ready(struct step *st, struct eng_seq *s, uint32_t n)
{
	struct seq_constraint *c = &s->constraint;
	bool decoding = s->draft_prefix.open || is_searching(s) || n >= s->sched.n_left;
	if (!constrain_is_on(c) || s->embed || s->prefill_only || !decoding)
		return true;
	bool in_turn = c->waiting && st->mask_turn == s;
	uint64_t left = st->mask_left;
	if (in_turn)
		st->mask_left = GRAMMAR_SLICE;
	/* Out of turn: only to see whether another sequence has finished it. */
	bool ready = masks_ready(st, s, n, c->waiting && !in_turn ? 0 : GRAMMAR_SLICE);
	if (in_turn)
		st->mask_left = left;
	c->waiting = !ready;
	if (ready)
		return true;
	st->masks_missing = true;
	s->spec.n_draft = 0;
	return false;
}
