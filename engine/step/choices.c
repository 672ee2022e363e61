/* SPDX-License-Identifier: Apache-2.0
 *
 * See choices.h. A follower is freed at the end of the turn in which it ended (step_leave), because
 * the batch that it ran in may still name it.
 */
#include "engine/step/choices.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/step/step.h"

enum { MAX_LOG = 64 << 20 };

struct choice_record {
	struct proto_token token;
	uint8_t n_top;
};

/* ---- making them ---- */

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
	c->searching = lead->beam_width > 0;
	for (int i = 0; i < PROTO_MAX_CHOICES; i++) {
		buf_init(&c->logs[i].records, MAX_LOG);
		buf_init(&c->logs[i].text, MAX_LOG);
	}
	lead->choices = c;
	c->members[0] = lead;
	c->n_running = 1;
	if (c->silent)
		lead->sampling.want_logprob = true;
	/* What credit has come already is everybody's. */
	uint32_t credit = lead->credit;
	lead->credit = 0;
	lead->sched.credit = false;
	sched_update(lead->model->sched, &lead->sched, clock_now_ns());
	if (c->searching) {
		beam_init(&c->beam, lead->beam_width, lead->max_tokens, lead->length_penalty);
		c->next_rows = sl_zalloc_n((size_t)lead->beam_width * lead->model->max_pages, sizeof *c->next_rows);
		if (c->next_rows == NULL)
			return SL_ENOMEM;
	}
	for (uint8_t i = 1; i < c->n_made && !c->searching; i++) {
		c->members[i] = make_follower(st, lead, i);
		if (c->members[i] == NULL)
			return SL_ENOMEM;
		c->n_running++;
	}
	if (credit > 0)
		choices_credit(st, lead, credit);
	return 0;
}

/* ---- credit ---- */

static void give(struct eng_seq *s, uint32_t n, uint64_t now)
{
	bool had = s->credit > 0;
	if (n == 0)
		return;
	if (__builtin_add_overflow(s->credit, n, &s->credit))
		s->credit = UINT32_MAX;
	if (had)
		return;
	s->sched.served_ns = now;
	s->sched.credit = true;
	sched_update(s->model->sched, &s->sched, now);
}

/* The same for each that runs, what is left over to the first ones. */
static void share(struct choices *c, uint32_t n, uint64_t now)
{
	uint32_t each = c->n_running > 0 ? n / c->n_running : 0, over = n - each * c->n_running;
	for (int i = 0; i < c->n_made; i++) {
		if (c->members[i] == NULL)
			continue;
		give(c->members[i], each + (over > 0), now);
		over -= over > 0;
	}
}

static void tell_found(struct step *st, struct choices *c);

void choices_credit(struct step *st, struct eng_seq *lead, uint32_t n_tokens)
{
	struct choices *c = lead->choices;
	uint64_t now = clock_now_ns();
	if (!c->silent) {
		share(c, n_tokens, now);
		return;
	}
	/* What nobody hears costs no credit, but nothing begins before there is any. */
	if (__builtin_add_overflow(c->credit, n_tokens, &c->credit))
		c->credit = UINT32_MAX;
	for (int i = 0; i < c->n_made; i++)
		if (c->members[i] != NULL && c->members[i]->credit == 0)
			give(c->members[i], UINT32_MAX, now);
	if (c->n_running == 0)
		tell_found(st, c);
}

/* ---- tokens ---- */

static void tell(struct step *st, struct choices *c, uint8_t as, const struct proto_token *token, uint8_t n_top,
		 const struct proto_id_f32 *tops, struct proto_str text)
{
	struct eng_event ev = {.kind = ENG_TOKENS,
			       .id = c->lead->node.key,
			       .u.tokens = {.n = 1,
					    .choice = as,
					    .n_top = n_top,
					    .tokens = token,
					    .tops = tops,
					    .text = text,
					    .pieces = eng_seq_pieces(c->lead, !isnan(token->logprob))}};
	st->e->on_event(st->e->on_event_ctx, &ev);
}

static void keep(struct choices *c, struct choice_log *log, const struct sampler_choice *choice, struct proto_str text)
{
	struct choice_record r = {
	    .token = {.id = (uint32_t)choice->id, .logprob = choice->logprob, .n_bytes = (uint16_t)text.n},
	    .n_top = choice->n_top};
	if (buf_append(&log->records, &r, sizeof r) != 0 ||
	    buf_append(&log->records, choice->top, choice->n_top * sizeof *choice->top) != 0 ||
	    buf_append(&log->text, text.at, text.n) != 0)
		c->lost = true;
	log->n++;
	log->sum += (double)choice->logprob;
}

void choices_token(struct step *st, struct eng_seq *s)
{
	struct choices *c = s->choices;
	struct proto_str text = {(const char *)buf_data(&st->text), st->text.len};
	c->n_completion++;
	if (c->silent) {
		keep(c, &c->logs[s->choice], &st->choice, text);
		return;
	}
	struct proto_token token = {
	    .id = (uint32_t)st->choice.id, .logprob = st->choice.logprob, .n_bytes = (uint16_t)st->text.len};
	c->logs[s->choice].n++;
	c->logs[s->choice].sum += isfinite(st->choice.logprob) ? (double)st->choice.logprob : 0;
	tell(st, c, s->choice, &token, st->choice.n_top, st->choice.top, text);
}

static void tell_end(struct step *st, struct choices *c, uint8_t as, const struct choice_log *log)
{
	struct eng_event ev = {.kind = ENG_CHOICE,
			       .id = c->lead->node.key,
			       .u.choice = {.choice = as,
					    .finish = log->finish,
					    .length_why = log->length_why,
					    .n_completion = log->n,
					    .cumulative_logprob = (float)log->sum}};
	st->e->on_event(st->e->on_event_ctx, &ev);
	if (as == 0) {
		c->finish = log->finish;
		c->length_why = log->length_why;
	}
}

/* Tells the best ones as far as credit goes, then the request's end. */
static void tell_found(struct step *st, struct choices *c)
{
	while (c->telling < c->n) {
		struct choice_log *log = &c->logs[c->order[c->telling]];
		while (log->told < log->n && c->credit > 0) {
			struct choice_record r;
			struct proto_id_f32 tops[PROTO_MAX_TOP_LOGPROBS];
			memcpy(&r, buf_data(&log->records), sizeof r);
			memcpy(tops, buf_data(&log->records) + sizeof r, r.n_top * sizeof *tops);
			if (!c->want_logprob)
				r.token.logprob = NAN;
			uint8_t n_top = c->want_logprob ? r.n_top : 0;
			tell(st, c, c->telling, &r.token, n_top, tops,
			     (struct proto_str){(const char *)buf_data(&log->text), r.token.n_bytes});
			buf_consume(&log->records, sizeof r + r.n_top * sizeof *tops);
			buf_consume(&log->text, r.token.n_bytes);
			log->told++;
			c->credit--;
		}
		if (log->told < log->n)
			return;
		tell_end(st, c, c->telling++, log);
	}
	c->lead->length_why = c->length_why;
	step_finish(st, c->lead, c->finish, 0, "");
}

/* ---- ends ---- */

static double rank(const struct choices *c, int i)
{
	return c->searching ? -i : c->logs[i].sum / (c->logs[i].n > 0 ? c->logs[i].n : 1);
}

static void all_ended(struct step *st, struct choices *c)
{
	if (c->lost) {
		step_finish(st, c->lead, PROTO_FINISH_ERROR, PROTO_ERR_OVERLOADED, "The engine is out of memory.");
		return;
	}
	if (!c->silent) {
		c->lead->length_why = c->length_why;
		step_finish(st, c->lead, c->finish, 0, "");
		return;
	}
	/* The most likely per token first, the earlier of equals. */
	for (int i = 0; i < c->n_made; i++) {
		int at = i;
		for (; at > 0 && rank(c, i) > rank(c, c->order[at - 1]); at--)
			c->order[at] = c->order[at - 1];
		c->order[at] = (uint8_t)i;
	}
	tell_found(st, c);
}

void choices_end(struct step *st, struct eng_seq *s, uint8_t finish)
{
	struct choices *c = s->choices;
	struct choice_log *log = &c->logs[s->choice];
	uint32_t left = s->credit;
	log->finish = finish;
	log->length_why = finish == PROTO_FINISH_LENGTH ? s->length_why : 0;
	c->members[s->choice] = NULL;
	c->n_running--;
	if (!c->silent)
		tell_end(st, c, s->choice, log);
	if (s == c->lead)
		step_rest(st, s);
	else
		step_leave(st, s);
	if (c->n_running == 0)
		all_ended(st, c);
	else if (!c->silent)
		share(c, left, clock_now_ns());
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
	if (c->searching)
		beam_dispose(&c->beam);
	sl_free(c->next_rows);
	sl_free(c);
}

/* ---- what a search found ---- */

static int say(struct step *st, struct choices *c, const struct beam_hyp *h, struct choice_log *log)
{
	const struct tokenizer *t = model_tokenizer(c->lead->model->model);
	struct text_stream stream;
	struct sampler_choice choice = {0};
	bool stopped = false;
	int rc = text_stream_init(&stream, NULL, 0);
	for (uint32_t i = 0; i < h->n && rc == 0; i++) {
		enum tok_attr attr = tokenizer_attr(t, h->tokens[i]);
		bool last = i + 1 == h->n;
		buf_clear(&st->text, PROTO_MAX_TEXT_PER_FRAME);
		if (attr != TOK_CONTROL && attr != TOK_UNUSED && attr != TOK_UNKNOWN && !(last && h->ended)) {
			struct proto_str bytes = tokenizer_bytes(t, h->tokens[i]);
			rc = text_stream_push(&stream, bytes.at, bytes.n, &st->text, &stopped);
		}
		if (rc == 0 && last)
			rc = text_stream_finish(&stream, &st->text);
		choice.id = h->tokens[i];
		choice.logprob = h->logprobs[i];
		/* As in a plain answer: an end that adds no text is not told. */
		if (rc == 0 && !(last && h->ended && st->text.len == 0))
			keep(c, log, &choice, (struct proto_str){(const char *)buf_data(&st->text), st->text.len});
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
		if (say(st, c, &c->beam.done[i], &c->logs[i]) != 0)
			c->lost = true;
		c->n_completion += c->beam.done[i].n;
	}
	c->members[0] = NULL;
	c->n_running = 0;
	step_rest(st, lead);
	all_ended(st, c);
}
