/* SPDX-License-Identifier: Apache-2.0
 *
 * Predictions come from the scheduler (sched_predict_ns), corrected by their measured bias. The LOAD prediction assumes
 * a short prompt of a tenant without running sequences whose share equals the least one here. No request of that
 * priority is served sooner, so a gateway that refuses by it refuses only requests that would have been late.
 *
 * Thread: the step thread. LOAD is published under the engine's info_lock for engine_load.
 */
#include "engine/step/queue_status.h"

#include <pthread.h>

#include "base/clock.h"
#include "engine/step/choices.h"
#include "engine/step/model_residency.h"
#include "engine/step/internal.h"
#include "engine/step/step.h"

enum {
	LOAD_MS = 10,    /* between two LOAD predictions */
	REPORT_MS = 250, /* between two reports to waiting requests */
	MAX_REPORTS = 256,
	FRESH_S = 10, /* how long a model's last step predicts the next ones */
	GUEST_ROWS = 64,
};

static uint32_t to_us(double ns)
{
	double us = ns / 1e3;
	return us < (double)UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* Whether no sequence of any model but s runs or waits. Sequences without credit do neither. s may be NULL. */
static bool is_alone(const struct step *st, const struct eng_seq *s)
{
	list_each(it, &st->all) {
		const struct eng_seq *other = list_entry(it, struct eng_seq, in_all);
		if (other != s && (other->sched.started_index != 0 || other->credit > 0))
			return false;
	}
	return true;
}

/* Whether step costs were measured recently. Initial guesses may be far off, as may costs learnt while other processes
 * used the machine. Only another step corrects them, and none would run if they caused every request to be refused. */
static bool is_measured(const struct eng_model *m)
{
	return m->landed_ns != 0 && clock_now_ns() - m->landed_ns < FRESH_S * NS_PER_S;
}

/* Sends QUEUED. busy: whether other sequences run or wait. Returns the predicted time to the first token, ns. */
static double report(struct step *st, const struct eng_seq *s, bool busy)
{
	struct eng_model *m = s->model;
	uint8_t tier = s->sched.priority < SCHED_TIERS ? s->sched.priority : SCHED_TIERS - 1;
	uint32_t position;
	double ns = sched_predict_ns(m->sched, &s->sched, &m->cost, m->ns_per_answer[tier], &position) *
			cost_bias_factor(&m->ttft_bias[busy]) +
		    model_residency_ns(m);
	struct eng_event ev = {.kind = ENG_QUEUED, .id = s->node.key};
	ev.u.queued = (struct proto_queued){.n_prompt = s->n_prompt,
					    .n_cached = s->sched.n_cached,
					    .miss_reason = s->miss,
					    .position = position,
					    .predicted_ttft_us = to_us(ns),
					    .reasoning = s->text.phase == CONSTRAIN_THINKING,
					    .guess = is_alone(st, s) || !is_measured(m) || !model_is_here(m)};
	st->e->on_event(st->e->on_event_ctx, &ev);
	return ns;
}

void queue_status_report(struct step *st, struct eng_seq *s)
{
	/* The queue includes s itself. */
	s->found_busy = sched_n_started(s->model->sched) > 0 || sched_n_queued(s->model->sched) > 1;
	s->queued_ns = clock_now_ns();
	s->predicted_ns = report(st, s, s->found_busy);
}

/* Followers are not reported; neither are requests that have begun: their sequence was pre-empted, or another choice
 * has tokens while the lead, pre-empted before its first, waits again. */
static bool waits(const struct eng_seq *s)
{
	bool begun = s->first_ns != 0 || (s->choices != NULL && s->choices->n_completion > 0);
	return s->state == SEQ_WAITING && s->credit > 0 && s->choice == 0 && !begun;
}

static void report_waiting(struct step *st)
{
	int n = 0;
	list_each(it, &st->all) {
		const struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		if (!waits(s))
			continue;
		(void)report(st, s, true);
		if (++n == MAX_REPORTS)
			return;
	}
}

static struct proto_figures figures_of(const struct eng_model *m)
{
	struct proto_figures f = m->figures;
	f.running = sched_n_started(m->sched);
	f.waiting = sched_n_queued(m->sched);
	f.pages_total = (uint32_t)kv_pool_n_pages(m->pool);
	f.pages_free = (uint32_t)kv_pool_n_free(m->pool) + prefix_n_reclaimable(m->prefix);
	return f;
}

static void publish(struct step *st, struct eng_model *m)
{
	struct proto_load load;
	bool busy = sched_n_started(m->sched) > 0 || sched_n_queued(m->sched) > 0;
	sched_load(m->sched, &st->tenants, &m->cost, m->ns_per_answer, GUEST_ROWS, &load);
	double factor = is_measured(m) && model_is_here(m) ? cost_bias_factor(&m->ttft_bias[busy]) : 0;
	load.idle = is_alone(st, NULL);
	load.figures = figures_of(m);
	load.model = (uint16_t)m->index;
	for (int i = 0; i < PROTO_PRIORITIES; i++)
		load.of[i].wait_us = to_us(load.of[i].wait_us * 1e3 * factor);
	pthread_mutex_lock(&st->e->info_lock);
	m->load = load;
	pthread_mutex_unlock(&st->e->info_lock);
}

void queue_status_tick(struct step *st, uint64_t now_ns)
{
	if (now_ns - st->load_ns >= LOAD_MS * NS_PER_MS) {
		st->load_ns = now_ns;
		for (int i = 0; i < st->e->n_models; i++)
			if (atomic_load(&st->e->models[i].state) == PROTO_MODEL_READY)
				publish(st, &st->e->models[i]);
	}
	if (now_ns - st->reported_ns >= REPORT_MS * NS_PER_MS) {
		st->reported_ns = now_ns;
		report_waiting(st);
	}
}

bool engine_load(struct engine *e, int index, struct proto_load *out)
{
	if (index >= e->n_models || atomic_load(&e->models[index].state) != PROTO_MODEL_READY)
		return false;
	pthread_mutex_lock(&e->info_lock);
	*out = e->models[index].load;
	pthread_mutex_unlock(&e->info_lock);
	return true;
}
