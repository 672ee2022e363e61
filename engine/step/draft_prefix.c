/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuing an answer that another model began.
 *
 * The draft prefix follows the sequence's own tokens (eng_seq_n_own): the prompt and the tokens already verified. All
 * are computed as one prompt, except that rows from the prompt's last on need their logits: a token's row holds the
 * token this model would make next. As in speculation, a draw depends only on the row, the seed, the index and the
 * tokens before it. The result therefore equals the undisturbed answer bit for bit, and the first new token is drawn
 * from the row that disagrees: verification costs no step beyond the prefill.
 *
 * A verified token becomes the sequence's own (n_made), whether the model agrees or the token must be kept, so a
 * pre-emption loses no verification. Prompt log probabilities (prompt_logprobs.c) work alike and share the
 * space for rows with logits. After the first kept token that disagrees, comparison stops: kept tokens are accepted,
 * the others dropped, and the rest is a plain prompt.
 *
 * Dropped tokens are never shared: the prefix tree gets rows of own tokens only (batch.c), and whole pages behind them
 * are freed at once.
 */
#include "engine/step/draft_prefix.h"

#include <string.h>

#include "base/alloc.h"

uint8_t draft_prefix_accept(struct eng_seq *s, const struct eng_model *m, struct sl_err *err)
{
	struct seq_draft_prefix *g = &s->draft_prefix;
	if (g->n == 0)
		return 0;
	uint32_t room = m->n_ctx - s->n_prompt - 1; /* one more is generated */
	if (g->n_keep > room) {
		sl_errf(
		    err, SL_ELIMIT,
		    "This model's maximum context length is %u tokens. However, your messages and the answer so far "
		    "resulted in %u tokens.",
		    m->n_ctx, s->n_prompt + g->n_keep);
		return PROTO_ERR_CONTEXT_LENGTH;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->ids[i] < 0 || g->ids[i] >= m->info.arch.n_vocab) {
			sl_errf(err, SL_EINVAL, "The answer so far has a token that the model does not know.");
			return PROTO_ERR_BAD_REQUEST;
		}
	}
	g->n = g->n < room ? g->n : room;
	size_t n = (size_t)s->n_prompt + g->n;
	if (n > s->tokens_cap) {
		int32_t *grown = sl_realloc_n(s->tokens, n, sizeof *grown);
		if (grown == NULL)
			return step_no_memory(err);
		s->tokens = grown;
		s->tokens_cap = n;
	}
	memcpy(s->tokens + s->n_prompt, g->ids, g->n * sizeof *g->ids);
	sl_free(g->ids);
	g->ids = NULL;
	g->n_left = g->n;
	g->open = true;
	/* The whole context, until the number of accepted tokens is known. */
	g->max_new = s->max_tokens;
	s->max_tokens = room + 1;
	return 0;
}

struct row_range draft_prefix_rows_wanted(const struct eng_seq *s)
{
	return s->draft_prefix.open ? (struct row_range){eng_seq_n_own(s) - 1, eng_seq_n_tokens(s) - 1}
				    : (struct row_range){0};
}

/* Verification is over: s continues after its own tokens. */
static void settle(struct step *st, struct eng_seq *s)
{
	struct seq_draft_prefix *g = &s->draft_prefix;
	uint32_t n_own = eng_seq_n_own(s), room = s->model->n_ctx - s->n_prompt;
	g->open = false;
	g->n_left = 0;
	g->n_used = s->n_made;
	batch_rewind(s);
	s->sched.n_left = n_own - s->sched.n_past;
	s->max_tokens = g->max_new;
	if (__builtin_add_overflow(s->max_tokens, g->n_used, &s->max_tokens) || s->max_tokens > room) {
		s->max_tokens = room;
		s->length_why = PROTO_LENGTH_CONTEXT;
	}
	struct eng_event ev = {
	    .kind = ENG_VERIFIED, .id = s->node.key, .u.verified = {.n_agreed = g->n_agreed, .n_used = g->n_used}};
	st->e->on_event(st->e->on_event_ctx, &ev);
}

/* Accepts the next token of the prefix. False: it ended s. */
static bool take(struct step *st, struct eng_seq *s)
{
	bool stopped = false;
	s->draft_prefix.n_left--;
	/* The client already has its text; the stream only keeps what must be held back. */
	int32_t id = s->tokens[eng_seq_n_own(s)];
	int rc = batch_take_token(st, s, id, &stopped);
	if (rc != 0) {
		step_fail_constraint(st, s, rc);
		return false;
	}
	if (!stopped)
		return true;
	settle(st, s);
	step_finish(st, s, batch_finish_of(s, id), 0, "");
	return false;
}

void draft_prefix_serve(struct step *st, struct eng_seq *s, float *logits, int n_rows, uint64_t now)
{
	struct seq_draft_prefix *g = &s->draft_prefix;
	size_t n_vocab = (size_t)s->model->info.arch.n_vocab;
	uint32_t first = eng_seq_n_own(s); /* the token that the first row predicts */
	bool agrees = true;
	while (agrees && g->n_left > 0) {
		uint32_t row = eng_seq_n_own(s) - first;
		if (row == (uint32_t)n_rows)
			return; /* the rest follows in later steps */
		int32_t own = batch_peek(st, s, 0, logits + row * n_vocab);
		if (own < 0) {
			step_fail(st, s, PROTO_ERR_INTERNAL);
			return;
		}
		agrees = own == s->tokens[eng_seq_n_own(s)];
		g->n_agreed += agrees;
		if (agrees && !take(st, s))
			return;
	}
	while (s->n_made < g->n_keep) {
		if (!take(st, s))
			return;
	}
	settle(st, s);
	/* The row of the last own token may not be computed yet. */
	if (s->sched.n_left == 0)
		batch_draw(st, s, logits + (eng_seq_n_own(s) - first) * n_vocab, now);
	else
		sched_update(s->model->sched, &s->sched, now);
}
