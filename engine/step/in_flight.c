/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's step records are allocated once, with the model.
 */
#define LOG_SUBSYSTEM LOG_STEP

#include "engine/step/in_flight.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"

int in_flight_create(struct eng_model *m)
{
	const struct eng_config *cfg = &m->e->cfg;
	size_t max_rows = (size_t)m->step_tokens + (size_t)cfg->max_sequences;
	/* One wanted row per sequence that draws, and the extra rows. */
	size_t max_want = (size_t)cfg->max_sequences + STEP_EXTRA_ROWS;
	size_t n_want = max_rows < max_want ? max_rows : max_want;
	for (int i = 0; i < KN_STEPS_AHEAD; i++) {
		struct step_in_flight *f = m->in_flight[i] = sl_zalloc(sizeof *f);
		if (f == NULL)
			break;
		f->wants = sl_zalloc_n(n_want, sizeof *f->wants);
		f->drawn = sl_zalloc_n(n_want, sizeof *f->drawn);
		f->runs = sl_zalloc_n(2 * (size_t)cfg->max_sequences, sizeof *f->runs);
		f->texts = sl_zalloc_n((size_t)cfg->max_sequences, sizeof *f->texts);
		if (f->wants == NULL || f->drawn == NULL || f->runs == NULL || f->texts == NULL)
			break;
		size_t width = (size_t)model_pooled_width(m->model);
		if (width > 0 &&
		    (f->pooled = sl_zalloc_n((size_t)cfg->max_sequences, width * sizeof *f->pooled)) == NULL)
			break;
		if (i + 1 == KN_STEPS_AHEAD)
			return 0;
	}
	in_flight_destroy(m);
	return SL_ENOMEM;
}

void in_flight_destroy(struct eng_model *m)
{
	BUG_IF(m->n_in_flight > 0, "model %s is destroyed with %d steps in flight", m->name, m->n_in_flight);
	for (int i = 0; i < KN_STEPS_AHEAD; i++) {
		struct step_in_flight *f = m->in_flight[i];
		if (f == NULL)
			continue;
		sl_free(f->wants);
		sl_free(f->drawn);
		sl_free(f->runs);
		sl_free(f->texts);
		sl_free(f->pooled);
		sl_free(f);
		m->in_flight[i] = NULL;
	}
}

/* ---- in flight ---- */

struct kn_drawn *in_flight_drawn(const struct eng_model *m)
{
	BUG_IF(m->n_in_flight == KN_STEPS_AHEAD, "model %s already has %d steps in flight", m->name, m->n_in_flight);
	return m->in_flight[m->n_in_flight]->drawn;
}

static void note(const struct eng_model *m, const struct batch *b, const struct sched_plan *plan)
{
	const uint32_t n_waiting = sched_n_queued(m->sched);
	flight_note(FLIGHT_STEP, (uint64_t)m->index, (uint64_t)b->n_rows, b->n_prefill, plan->n_run, n_waiting);
	log_debug(
	    "model %s: a step of %d rows, %u of prompts and %u of decodes, of %u sequences; %u wait, %d pages are free",
	    m->name, b->n_rows, b->n_prefill, b->n_decode, plan->n_run, n_waiting, kv_pool_n_free(m->pool));
}

void in_flight_depart(struct step *st, struct eng_model *m, const struct batch *b, const struct sched_plan *plan)
{
	struct step_in_flight *f = m->in_flight[m->n_in_flight++];
	note(m, b, plan);
	f->b = *b;
	f->n_dropped = 0;
	f->n_host = 0;
	f->waited = false;
	f->rc = 0;
	f->issued_ns = clock_now_ns();
	f->expect_ns = cost_rows_ns(&m->cost, (double)b->n_rows) + cost_past_ns(&m->cost, b->attended);
	f->n_run = plan->n_run;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		struct eng_seq *s = seq_of(plan->run[i]);
		f->runs[i] = (struct in_flight_run){.s = s, .n_rows = s->n_rows, .n_past = s->sched.n_past};
	}
	for (int i = 0; i < b->n_texts; i++)
		f->texts[i].s = st->texts[i].ends ? st->text_seqs[i] : NULL;
	for (int i = 0; i < b->n_want; i++) {
		struct eng_seq *s = st->want_seqs[i];
		bool last = i + 1 == b->n_want || st->want_seqs[i + 1] != s;
		bool drawing = last && s->sched.n_left == 0;
		f->n_host += st->drawn_at[i] < 0;
		f->wants[i] = (struct in_flight_want){.s = s, .drawn_at = st->drawn_at[i], .drawing = drawing};
		if (drawing) {
			s->n_coming++;
			s->coming_from = st->drawn_at[i];
		}
	}
}

static void wait_for(struct eng_model *m, struct step_in_flight *f)
{
	if (!f->waited)
		f->rc = model_wait(m->model);
	f->waited = true;
}

int in_flight_wait(struct eng_model *m)
{
	wait_for(m, m->in_flight[0]);
	return m->in_flight[0]->rc;
}

void in_flight_await(struct eng_model *m)
{
	for (int i = 0; i < m->n_in_flight; i++)
		wait_for(m, m->in_flight[i]);
}

bool in_flight_may_forward(const struct eng_model *m)
{
	for (int i = 0; i < m->e->n_models; i++) {
		const struct eng_model *other = &m->e->models[i];
		if (other->n_in_flight > 0 && other->in_flight[0]->waited)
			return false;
	}
	return m->n_in_flight == 0;
}

void in_flight_pop(struct eng_model *m)
{
	struct step_in_flight *f = m->in_flight[0];
	m->n_in_flight--;
	for (int i = 0; i < m->n_in_flight; i++)
		m->in_flight[i] = m->in_flight[i + 1];
	m->in_flight[m->n_in_flight] = f;
}

void in_flight_drop(struct eng_model *m)
{
	in_flight_await(m);
	for (int i = 0; i < m->n_in_flight; i++) {
		struct step_in_flight *f = m->in_flight[i];
		for (int k = 0; k < f->b.n_want; k++)
			if (f->wants[k].s != NULL)
				f->wants[k].s->n_coming = 0;
		f->b.n_want = f->b.n_texts = 0;
		f->n_run = 0;
	}
	m->n_in_flight = 0;
}

void in_flight_leave(struct eng_seq *s)
{
	struct eng_model *m = s->model;
	for (int i = 0; i < m->n_in_flight; i++) {
		struct step_in_flight *f = m->in_flight[i];
		for (int k = 0; k < f->b.n_want; k++) {
			if (f->wants[k].s != s)
				continue;
			f->wants[k].s = NULL;
			f->n_dropped += f->wants[k].drawing && s->state == SEQ_DECODE;
		}
		for (uint32_t k = 0; k < f->n_run; k++)
			if (f->runs[k].s == s)
				f->runs[k].s = NULL;
		for (int k = 0; k < f->b.n_texts; k++)
			if (f->texts[k].s == s)
				f->texts[k].s = NULL;
	}
	s->n_coming = 0;
	s->n_flying = 0;
	if (s->coming_state >= 0)
		kv_states_give(m->states, s->coming_state);
	s->coming_state = -1;
}

/* ---- after the step in flight ---- */

void in_flight_keep_state(struct eng_seq *s)
{
	const struct eng_model *m = s->model;
	uint32_t past = s->sched.n_past;
	if (m->states != NULL && s->n_flying > 0 && prefix_next_snapshot(m->prefix, &s->path, past - 1) == past)
		s->coming_state = prefix_state_copy(m->prefix, s->slot);
}

void in_flight_snapshot(struct eng_seq *s, uint32_t past, bool whole)
{
	const struct eng_model *m = s->model;
	int32_t slot = s->coming_state;
	s->coming_state = -1;
	if (slot >= 0 && whole)
		prefix_snapshot_copied(m->prefix, &s->path, past, slot);
	else if (slot >= 0)
		kv_states_give(m->states, slot);
	else if (whole && s->n_flying == 0 && s->spec.n_draft == 0)
		prefix_snapshot(m->prefix, &s->path, past, s->slot);
}

/* When the pace allows the token after the one in flight. */
static uint64_t due_after(struct eng_seq *s, uint64_t now)
{
	uint64_t before = s->pace_next_ns;
	eng_seq_pace(s, now);
	uint64_t due = eng_seq_due(s);
	s->pace_next_ns = before;
	return due;
}

bool in_flight_foresee(struct eng_model *m, uint64_t now_ns)
{
	const struct step_in_flight *f = m->in_flight[0];
	uint32_t n_host = 0, n = 0;
	/* Texts that end with that step are complete. */
	for (int i = 0; i < f->b.n_texts; i++) {
		if (f->texts[i].s == NULL)
			continue;
		f->texts[i].s->sched.credit = false;
		sched_update(m->sched, &f->texts[i].s->sched, now_ns);
	}
	for (int i = 0; i < f->b.n_want; i++) {
		struct eng_seq *s = f->wants[i].s;
		if (s == NULL)
			continue;
		n++;
		n_host += f->wants[i].drawn_at < 0;
		if (!f->wants[i].drawing)
			continue;
		s->sched.prefilling = false;
		s->sched.n_left = 1;
		s->sched.credit = s->credit > 1 && s->n_made + 1 < s->max_tokens;
		s->sched.due_ns = due_after(s, now_ns);
		sched_update(m->sched, &s->sched, now_ns);
	}
	return n == 0 || n_host < n || sched_n_started(m->sched) > n || sched_n_queued(m->sched) > 0;
}

bool in_flight_must_sit_out(const struct eng_seq *s)
{
	const struct eng_model *m = s->model;
	if (m->n_in_flight == 0)
		return false;
	/* The next mask depends on the coming token. */
	return (s->n_coming > 0 && constrain_is_on(&s->constraint)) ||
	       (m->in_flight[0]->n_host > 0 && !device_draw_all(s));
}
