/* SPDX-License-Identifier: Apache-2.0
 *
 * Delivers a run's released tokens, unchanged, and its end to the generation.
 *
 * While a decision is being stored, for gateways that may continue the answer, nothing is delivered.
 *
 * Delivering may make the last subscriber leave; then the generation is gone and the rest is dropped.
 *
 * Usage counts what readers can count: the prompt once, and the tokens that were delivered. Other computed tokens
 * appear in metrics and in the outcome log.
 */
#include <string.h>

#include "gateway/cascade/cascade_run_priv.h"

static const char no_memory[] = "The server is out of memory.";

/* Keeps the text after which a large model with another tokenizer would continue. */
static void keep_text(struct cascade_run *r, const struct proto_tokens *m)
{
	bool may_switch = r->casc.phase != CASC_ONE && r->casc.phase != CASC_OVER;
	if (!r->verifiable && may_switch && buf_append(&r->kept, m->text.at, m->text.n) != 0)
		r->large.model = -1; /* no memory: no switch */
}

static void flush_side(struct cascade_side *s)
{
	struct cascade_run *r = s->run;
	while (s->n_ready > 0 && r->gen != NULL && !r->saving) {
		struct proto_tokens m;
		cascade_queue_front(&s->queue, s->n_ready, &m);
		if (s == &r->small)
			keep_text(r, &m);
		s->n_sent += m.n;
		if (s->sent_by != NULL && m.choice < r->n_choices)
			s->sent_by[m.choice] += m.n;
		s->n_ready -= m.n;
		gen_told.on_tokens(r->gen, &m);
		cascade_queue_pop(&s->queue, &m);
	}
}

void cascade_feed_flush(struct cascade_run *r)
{
	flush_side(&r->small);
	flush_side(&r->large);
}

/* The generation makes no further call to the run. */
static void deliver_end(struct cascade_run *r, const struct proto_done *m)
{
	struct generation *g = r->gen;
	r->over = true;
	cascade_run_book(r);
	if (g == NULL)
		return;
	r->gen = NULL;
	gen_told.on_done(g, m);
	cascade_run_unref(r);
}

void cascade_feed_failed(struct cascade_run *r, const struct cascade_side *s)
{
	const char *message = r->message != NULL ? r->message : no_memory;
	deliver_end(r, &(struct proto_done){.finish = PROTO_FINISH_ERROR,
					    .error = s->done.error != 0 ? s->done.error : PROTO_ERR_OVERLOADED,
					    .n_prompt = r->queued.n_prompt,
					    .n_cached = r->queued.n_cached,
					    .n_completion = r->small.n_sent + r->large.n_sent,
					    .message = {message, strlen(message)}});
}

void cascade_feed_end(struct cascade_run *r, uint32_t how)
{
	r->ends_later = r->saving && how != CASC_END_GONE;
	r->end_how = how;
	if (r->ends_later)
		return;
	/* The large model's end, if it has one; otherwise the small model continued without it. */
	enum casc_run_state want = how == CASC_END_FAILED ? CASC_RUN_FAILED : CASC_RUN_DONE;
	struct cascade_side *last = r->casc.large.state == want ? &r->large : &r->small;
	if (how == CASC_END_FAILED) {
		cascade_feed_failed(r, last);
		return;
	}
	if (how != CASC_END_DONE) {
		r->over = true;
		return;
	}
	struct proto_done done = last->done;
	uint32_t before = last == &r->large ? r->small.n_sent : 0;
	done.n_prompt = r->queued.n_prompt;
	done.n_cached = r->queued.n_cached;
	done.n_completion = before + last->done.n_completion;
	done.message = (struct proto_str){"", 0};
	deliver_end(r, &done);
}
