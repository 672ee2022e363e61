/* SPDX-License-Identifier: Apache-2.0
 *
 * See in_flight.h. A model's step records are allocated once; the ring of them is two pointers.
 */
#include "engine/step/in_flight.h"

#include "base/alloc.h"
#include "base/clock.h"

static void in_flight_free(struct step_in_flight *f)
{
	if (f == NULL)
		return;
	sl_free(f->want_seqs);
	sl_free(f->drawn_at);
	sl_free(f->drawing);
	sl_free(f->drawn);
	sl_free(f->run);
	sl_free(f->run_rows);
	sl_free(f->run_past);
	sl_free(f);
}

static struct step_in_flight *in_flight_make(size_t max_rows, size_t max_run)
{
	struct step_in_flight *f = sl_zalloc(sizeof *f);
	if (f == NULL)
		return NULL;
	f->want_seqs = sl_zalloc_n(max_rows, sizeof(void *));
	f->drawn_at = sl_zalloc_n(max_rows, sizeof *f->drawn_at);
	f->drawing = sl_zalloc_n(max_rows, sizeof *f->drawing);
	f->drawn = sl_zalloc_n(max_rows, sizeof *f->drawn);
	f->run = sl_zalloc_n(max_run, sizeof(void *));
	f->run_rows = sl_zalloc_n(max_run, sizeof *f->run_rows);
	f->run_past = sl_zalloc_n(max_run, sizeof *f->run_past);
	if (f->want_seqs == NULL || f->drawn_at == NULL || f->drawing == NULL || f->drawn == NULL || f->run == NULL ||
	    f->run_rows == NULL || f->run_past == NULL) {
		in_flight_free(f);
		return NULL;
	}
	return f;
}

int in_flight_create(struct eng_model *m)
{
	const struct eng_config *cfg = &m->e->cfg;
	size_t max_rows = (size_t)cfg->step_tokens + (size_t)cfg->max_sequences;
	/* As many wanted rows as one who draws has, and the others whose logits are wanted. */
	size_t max_want = (size_t)cfg->max_sequences + STEP_EXTRA_ROWS;
	for (int i = 0; i < KN_STEPS_AHEAD; i++) {
		m->in_flight[i] =
		    in_flight_make(max_rows < max_want ? max_rows : max_want, 2 * (size_t)cfg->max_sequences);
		if (m->in_flight[i] == NULL) {
			in_flight_destroy(m);
			return SL_ENOMEM;
		}
	}
	return 0;
}

void in_flight_destroy(struct eng_model *m)
{
	BUG_IF(m->n_in_flight > 0, "model %s is destroyed with %d steps in flight", m->name, m->n_in_flight);
	for (int i = 0; i < KN_STEPS_AHEAD; i++) {
		in_flight_free(m->in_flight[i]);
		m->in_flight[i] = NULL;
	}
}

/* ---- on their way ---- */

struct kn_drawn *in_flight_drawn(const struct eng_model *m)
{
	BUG_IF(m->n_in_flight == KN_STEPS_AHEAD, "model %s has %d steps on their way already", m->name, m->n_in_flight);
	return m->in_flight[m->n_in_flight]->drawn;
}

void in_flight_depart(struct step *st, struct eng_model *m, const struct batch *b, const struct sched_plan *plan)
{
	struct step_in_flight *f = m->in_flight[m->n_in_flight++];
	f->b = *b;
	f->n_dropped = 0;
	f->waited = false;
	f->rc = 0;
	f->issued_ns = clock_now_ns();
	f->expect_ns = cost_rows_ns(&m->cost, (double)b->n_rows) + cost_past_ns(&m->cost, b->attended);
	f->n_run = plan->n_run;
	for (uint32_t i = 0; i < plan->n_run; i++) {
		f->run[i] = seq_of(plan->run[i]);
		f->run_rows[i] = f->run[i]->n_rows;
		f->run_past[i] = f->run[i]->sched.n_past;
	}
	for (int i = 0; i < b->n_want; i++) {
		struct eng_seq *s = st->want_seqs[i];
		bool last = i + 1 == b->n_want || st->want_seqs[i + 1] != s;
		f->want_seqs[i] = s;
		f->drawn_at[i] = st->drawn_at[i];
		f->drawing[i] = last && s->sched.n_left == 0;
		if (f->drawing[i]) {
			s->n_coming++;
			s->coming_from = f->drawn_at[i];
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
			if (f->want_seqs[k] != NULL)
				f->want_seqs[k]->n_coming = 0;
		f->b.n_want = 0;
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
			if (f->want_seqs[k] != s)
				continue;
			f->want_seqs[k] = NULL;
			f->n_dropped += f->drawing[k] && s->state == SEQ_DECODE;
		}
		for (uint32_t k = 0; k < f->n_run; k++)
			if (f->run[k] == s)
				f->run[k] = NULL;
	}
	s->n_coming = 0;
	s->n_flying = 0;
}

/* ---- what comes after ---- */

/* When the pace allows the token after the one that is coming. */
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
	for (int i = 0; i < f->b.n_want; i++) {
		const struct eng_seq *s = f->want_seqs[i];
		if (s != NULL && f->drawn_at[i] < 0)
			return false;
	}
	for (int i = 0; i < f->b.n_want; i++) {
		struct eng_seq *s = f->want_seqs[i];
		if (s == NULL)
			continue;
		s->sched.prefilling = false;
		s->sched.n_left = 1;
		s->sched.credit = s->credit > 1 && s->n_made + 1 < s->max_tokens;
		s->sched.due_ns = due_after(s, now_ns);
		sched_update(m->sched, &s->sched, now_ns);
	}
	return true;
}
