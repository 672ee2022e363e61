/* SPDX-License-Identifier: Apache-2.0
 *
 * A follower is freed at the end of the iteration in which it ended (step_leave): its batch may still refer to it.
 */
#include "engine/step/choices.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/step/batch.h"

enum { MAX_LOG = 64 << 20 };

struct choice_record {
	int32_t id;
	float logprob;
	uint16_t n_bytes;
	uint8_t n_top;
};

/* ---- credit ---- */

/* Splits credit evenly among the running choices; the first ones get the remainder. */
static void share(struct choices *c, uint32_t n)
{
	uint32_t each = c->n_running > 0 ? n / c->n_running : 0, over = n - each * c->n_running;
	for (int i = 0; i < c->n_made; i++) {
		if (c->members[i] == NULL)
			continue;
		step_give_credit(c->members[i], each + (over > 0));
		over -= over > 0;
	}
}

/* ---- tokens ---- */

static void keep(struct choices *c, struct choice_log *log, const struct sampler_choice *choice, struct proto_str text)
{
	struct choice_record r = {
	    .id = choice->id, .logprob = choice->logprob, .n_bytes = (uint16_t)text.n, .n_top = choice->n_top};
	if (buf_append(&log->records, &r, sizeof r) != 0 ||
	    buf_append(&log->records, choice->top, choice->n_top * sizeof *choice->top) != 0 ||
	    buf_append(&log->text, text.at, text.n) != 0)
		c->lost = true;
	log->n++;
}

void choices_token(struct step *st, struct eng_seq *s, bool reported)
{
	struct choices *c = s->choices;
	struct choice_log *log = &c->logs[s->choice];
	log->n_drawn++;
	log->sum += isfinite(st->choice.logprob) ? (double)st->choice.logprob : 0;
	if (!reported)
		return;
	c->n_completion++;
	if (c->silent) {
		keep(c, log, &st->choice, step_text(st));
		return;
	}
	log->n++;
	batch_report_token(st, c->lead, s->choice, &st->choice, step_text(st));
}

static void report_end(struct step *st, struct choices *c, uint8_t as, const struct choice_log *log)
{
	struct eng_event ev = {.kind = ENG_CHOICE,
			       .id = c->lead->node.key,
			       .u.choice = {.choice = as,
					    .finish = log->finish,
					    .length_why = log->length_why,
					    .stop = log->stop,
					    .stop_at = log->stop_at,
					    .n_completion = log->n,
					    .cumulative_logprob = (float)log->sum}};
	st->e->on_event(st->e->on_event_ctx, &ev);
	if (as == 0) {
		c->finish = log->finish;
		c->length_why = log->length_why;
		c->lead->stop = log->stop;
		c->lead->stop_at = log->stop_at;
	}
}

/* Reports the kept tokens of the best choices as far as credit goes, then the request's end. */
static void report_kept(struct step *st, struct choices *c)
{
	while (c->n_reported < c->n) {
		struct choice_log *log = &c->logs[c->order[c->n_reported]];
		while (log->n_reported < log->n && c->credit > 0) {
			struct choice_record r;
			struct sampler_choice token;
			memcpy(&r, buf_data(&log->records), sizeof r);
			memcpy(token.top, buf_data(&log->records) + sizeof r, r.n_top * sizeof *token.top);
			token.id = r.id;
			token.logprob = c->want_logprob ? r.logprob : NAN;
			token.n_top = c->want_logprob ? r.n_top : 0;
			batch_report_token(st, c->lead, c->n_reported, &token,
					   (struct proto_str){(const char *)buf_data(&log->text), r.n_bytes});
			buf_consume(&log->records, sizeof r + r.n_top * sizeof *token.top);
			buf_consume(&log->text, r.n_bytes);
			log->n_reported++;
			c->credit--;
		}
		if (log->n_reported < log->n)
			return;
		report_end(st, c, c->n_reported++, log);
	}
	c->lead->length_why = c->length_why;
	step_finish(st, c->lead, c->finish, 0, "");
}

void choices_credit(struct step *st, struct eng_seq *lead, uint32_t n_tokens)
{
	struct choices *c = lead->choices;
	if (!c->silent) {
		share(c, n_tokens);
		return;
	}
	/* Unreported tokens cost no credit, but nothing starts before there is some. */
	eng_add_credit(&c->credit, n_tokens);
	for (int i = 0; i < c->n_made; i++)
		if (c->members[i] != NULL && c->members[i]->credit == 0)
			step_give_credit(c->members[i], UINT32_MAX);
	if (c->n_running == 0)
		report_kept(st, c);
}

/* ---- creation ---- */

static struct eng_seq *make_follower(struct step *st, struct eng_seq *lead, uint8_t choice)
{
	struct eng_seq *s;
	if (eng_seq_follow(lead, choice, &s) != 0)
		return NULL;
	s->sched.tenant = sched_tenant_enter(&st->tenants, lead->tenant_digest, lead->weight);
	eng_seq_set_state(&st->e->counters, s, SEQ_TEXT);
	eng_seq_set_state(&st->e->counters, s, SEQ_WAITING);
	list_push_back(&st->all, &s->in_all);
	lead->n_reserved--;
	if (s->sched.tenant == NULL || sched_add(s->model->sched, &s->sched, clock_now_ns()) != 0) {
		step_leave(st, s);
		return NULL;
	}
	return s;
}

int choices_make(struct step *st, struct eng_seq *lead)
{
	struct choices *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return SL_ENOMEM;
	c->lead = lead;
	c->n = lead->n_choices;
	c->n_made = lead->best_of;
	c->silent = c->n_made > c->n || lead->beam_width > 0;
	c->want_logprob = lead->sampling.want_logprob;
	for (int i = 0; i < PROTO_MAX_CHOICES; i++) {
		buf_init(&c->logs[i].records, MAX_LOG);
		buf_init(&c->logs[i].text, MAX_LOG);
	}
	lead->choices = c;
	c->members[0] = lead;
	c->n_running = 1;
	if (c->silent)
		lead->sampling.want_logprob = true;
	/* All choices share the credit given so far. */
	uint32_t credit = lead->credit;
	lead->credit = 0;
	lead->sched.credit = false;
	sched_update(lead->model->sched, &lead->sched, clock_now_ns());
	if (lead->beam_width > 0) {
		beam_init(&c->beam, lead->beam_width, lead->max_tokens, lead->length_penalty);
		size_t row = (size_t)lead->model->kv_groups.n_groups * lead->model->max_pages;
		c->next_rows = sl_zalloc_n(lead->beam_width * row, sizeof *c->next_rows);
		if (c->next_rows == NULL)
			return SL_ENOMEM;
	}
	for (uint8_t i = 1; i < c->n_made && c->beam.width == 0; i++) {
		c->members[i] = make_follower(st, lead, i);
		if (c->members[i] == NULL)
			return SL_ENOMEM;
		c->n_running++;
	}
	if (credit > 0)
		choices_credit(st, lead, credit);
	return 0;
}

/* ---- ends ---- */

static double rank(const struct choices *c, int i)
{
	const struct choice_log *log = &c->logs[i];
	return c->beam.width > 0 ? -i : log->sum / (log->n_drawn > 0 ? log->n_drawn : 1);
}

static void all_ended(struct step *st, struct choices *c)
{
	if (c->lost) {
		step_fail(st, c->lead, PROTO_ERR_OVERLOADED);
		return;
	}
	if (!c->silent) {
		c->lead->length_why = c->length_why;
		step_finish(st, c->lead, c->finish, 0, "");
		return;
	}
	/* By descending mean log probability; ties go to the earlier choice. The token that ended an answer counts:
	 * otherwise an answer that ended at once would always be the best. */
	for (int i = 0; i < c->n_made; i++) {
		int at = i;
		for (; at > 0 && rank(c, i) > rank(c, c->order[at - 1]); at--)
			c->order[at] = c->order[at - 1];
		c->order[at] = (uint8_t)i;
	}
	report_kept(st, c);
}

void choices_end(struct step *st, struct eng_seq *s, uint8_t finish)
{
	struct choices *c = s->choices;
	struct choice_log *log = &c->logs[s->choice];
	uint32_t left = s->credit;
	log->finish = finish;
	log->length_why = finish == PROTO_FINISH_LENGTH ? s->length_why : 0;
	log->stop = finish == PROTO_FINISH_STOP ? s->stop : 0;
	log->stop_at = finish == PROTO_FINISH_STOP ? s->stop_at : 0;
	c->members[s->choice] = NULL;
	c->n_running--;
	if (!c->silent)
		report_end(st, c, s->choice, log);
	if (s == c->lead)
		step_rest(st, s);
	else
		step_leave(st, s);
	if (c->n_running == 0)
		all_ended(st, c);
	else if (!c->silent)
		share(c, left);
}

void choices_drop(struct step *st, struct eng_seq *lead)
{
	struct choices *c = lead->choices;
	lead->choices = NULL;
	for (int i = 0; i < PROTO_MAX_CHOICES; i++) {
		if (c->members[i] != NULL && c->members[i] != lead)
			step_leave(st, c->members[i]);
		buf_dispose(&c->logs[i].records);
		buf_dispose(&c->logs[i].text);
	}
	beam_reset(&c->beam);
	sl_free(c->next_rows);
	sl_free(c);
}

/* ---- results of a beam search ---- */

/* Fills log with the tokens and text of a hypothesis. */
static int keep_hyp(struct step *st, struct choices *c, const struct beam_hyp *h, struct choice_log *log)
{
	struct text_stream stream;
	bool stopped = false;
	int rc = text_stream_init(&stream, NULL, 0);
	stream.whole = c->lead->stream.whole;
	for (uint32_t i = 0; i < h->n && rc == 0; i++) {
		bool last = i + 1 == h->n, is_end = last && h->ended && batch_is_end(c->lead, h->tokens[i]);
		struct proto_str bytes = batch_token_text(c->lead->model, h->tokens[i]);
		buf_clear(&st->text, PROTO_MAX_TEXT_PER_FRAME);
		if (!is_end)
			rc = text_stream_push(&stream, bytes.at, bytes.n, &st->text, &stopped);
		if (rc == 0 && last)
			rc = text_stream_finish(&stream, &st->text);
		/* As in a plain answer, an end token without text is not reported. */
		if (rc == 0 && !(is_end && st->text.len == 0))
			keep(c, log, &(struct sampler_choice){.id = h->tokens[i], .logprob = h->logprobs[i]},
			     step_text(st));
	}
	log->sum = h->sum;
	log->finish = h->ended ? PROTO_FINISH_STOP : PROTO_FINISH_LENGTH;
	log->length_why = h->ended ? 0 : c->lead->length_why;
	text_stream_dispose(&stream);
	return rc;
}

void choices_found(struct step *st, struct eng_seq *lead)
{
	struct choices *c = lead->choices;
	c->n_made = (uint8_t)c->beam.n_done;
	c->n = c->n < c->n_made ? c->n : c->n_made;
	for (int i = 0; i < c->n; i++) {
		if (keep_hyp(st, c, &c->beam.done[i], &c->logs[i]) != 0)
			c->lost = true;
		c->n_completion += c->beam.done[i].n;
	}
	c->members[0] = NULL;
	c->n_running = 0;
	step_rest(st, lead);
	all_ended(st, c);
}
