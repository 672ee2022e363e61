/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/model_residency.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/step/step.h"

enum {
	LOOK_MS = 10,
	FIRST_RETRY_MS = 1000,
	MOST_DOUBLINGS = 8, /* of the time to the next attempt: about four minutes */
};

static const double first_rate = 1.0; /* bytes per ns, until one was measured */

bool model_is_here(const struct eng_model *m)
{
	int state = atomic_load(&m->residence);
	return state == RESIDENCY_HERE || state == RESIDENCY_LEAVING;
}

double model_residency_ns(const struct eng_model *m)
{
	double rate = m->e->bring_rate > 0 ? m->e->bring_rate : first_rate;
	return model_is_here(m) ? 0 : (double)m->weights_bytes / rate;
}

static bool is_ready(const struct eng_model *m) { return atomic_load(&m->state) == PROTO_MODEL_READY; }

/* ---- the pair ---- */

/* The other one, if it is on demand and READY. */
static const struct eng_model *partner_of(const struct eng_model *m)
{
	for (int i = 0; i < m->e->n_models; i++) {
		const struct eng_model *other = &m->e->models[i];
		if (other != m && other->role != PROTO_ROLE_NONE && is_ready(other) && other->on_demand)
			return other;
	}
	return NULL;
}

bool model_residency_fits(const struct eng_model *m, char *line, size_t size)
{
	uint64_t bound = m->e->residency.cfg.bound;
	const struct eng_model *other = m->on_demand && m->role != PROTO_ROLE_NONE ? partner_of(m) : NULL;
	unsigned long long mine = m->weights_bytes >> 20, room = bound >> 20;
	if (!m->on_demand || m->weights_bytes + (other != NULL ? other->weights_bytes : 0) <= bound)
		return true;
	if (m->weights_bytes > bound)
		snprintf(line, size, "its weights of %llu MiB do not fit into the %llu MiB for models on demand", mine,
			 room);
	else
		snprintf(line, size,
			 "its weights of %llu MiB and the %llu MiB of %s do not fit together into the %llu MiB for "
			 "models on demand, which the models of a cascade must: raise engine.on_demand.memory, or "
			 "remove a role",
			 mine, (unsigned long long)(other->weights_bytes >> 20), other->name, room);
	return false;
}

/* ---- work ---- */

/* Has work that could get on, or waits only for its pace. */
static bool works(const struct eng_seq *s)
{
	return s->model != NULL && s->credit > 0 &&
	       (s->state == SEQ_WAITING || s->state == SEQ_PREFILL || s->state == SEQ_DECODE);
}

/* Since it got credit, or tokens last. */
static uint64_t waits_since(const struct eng_seq *s) { return s->sched.served_ns; }

/* ---- what there is ---- */

static void look_at_model(const struct eng_model *m, struct residency_model *out)
{
	*out = (struct residency_model){.state = RESIDENCY_HERE};
	if (!is_ready(m))
		return; /* the loader still has it, or it has failed */
	*out = (struct residency_model){.on_demand = m->on_demand,
					.state = (enum residency_state)atomic_load(&m->residence),
					.bytes = m->weights_bytes,
					.expires_ns = keep_alive_end(&m->keep),
					.here_ns = m->here_ns,
					.used_ns = m->used_ns,
					.retry_ns = m->retry_ns,
					.busy = m->n_in_flight > 0,
					.paired = m->role != PROTO_ROLE_NONE};
}

static void add_wish(const struct engine *e, struct residency_model *m, const struct eng_seq *s, uint64_t now)
{
	uint64_t since = waits_since(s);
	if (m->wished && residency_rank(&e->residency, m->tenant, m->since_ns, now) <=
			     residency_rank(&e->residency, s->tenant_digest, since, now))
		return;
	m->wished = true;
	m->tenant = s->tenant_digest;
	m->since_ns = since;
}

/* The drafter of s is in use, too. */
static void note_drafter(const struct eng_seq *s, uint64_t now)
{
	struct eng_model *drafter = s->model->drafter;
	if (drafter == NULL || s->spec.small_pages == 0)
		return;
	drafter->used_ns = now;
	keep_alive_use(&drafter->keep, s->tenant_digest, now);
}

static unsigned look(struct step *st, struct residency_model *models, uint64_t now)
{
	struct engine *e = st->e;
	unsigned n_waiting = 0;
	pthread_mutex_lock(&e->info_lock);
	for (int i = 0; i < e->n_models; i++)
		look_at_model(&e->models[i], &models[i]);
	list_each(it, &st->all) {
		const struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		if (s->model == NULL)
			continue;
		if (works(s))
			note_drafter(s, now);
		if (!models[s->model->index].on_demand)
			continue;
		struct residency_model *m = &models[s->model->index];
		m->begun = m->begun || s->sched.started_index != 0;
		if (!works(s))
			continue;
		m->busy = m->busy || m->state == RESIDENCY_HERE || s->sched.started_index != 0;
		n_waiting += !model_is_here(s->model);
		keep_alive_use(&s->model->keep, s->tenant_digest, now);
		if (m->state == RESIDENCY_ABSENT)
			add_wish(e, m, s, now);
	}
	pthread_mutex_unlock(&e->info_lock);
	for (int i = 0; i < e->n_models; i++)
		if (models[i].busy && model_is_here(&e->models[i]))
			e->models[i].used_ns = models[i].used_ns = now;
	return n_waiting;
}

/* ---- what is done ---- */

/* What the metric shows; each change of a model counts anew, so that one which has come is never missing from it. */
static void count_here(struct engine *e)
{
	unsigned n = 0;
	for (int i = 0; i < e->n_models; i++)
		n += e->models[i].on_demand && model_is_here(&e->models[i]);
	atomic_store(&e->models_here, n);
}

static void set_residence(struct eng_model *m, enum residency_state to)
{
	atomic_store(&m->residence, (int)to);
	count_here(m->e);
	sched_hold(m->sched, to == RESIDENCY_LEAVING);
	if (to != RESIDENCY_LEAVING && to != RESIDENCY_GOING)
		model_state_report(m->e, m);
}

static void bring(struct engine *e, struct eng_model *m, uint64_t tenant, uint64_t now)
{
	residency_charge(&e->residency, tenant, now);
	atomic_store(&m->percent, 0);
	m->asked_ns = now;
	set_residence(m, RESIDENCY_COMING);
	weight_job_put(e, m, false);
}

static void carry_out(struct step *st, const struct residency_model *models, struct residency_move move, uint64_t now)
{
	struct engine *e = st->e;
	if (move.act == RESIDENCY_NOTHING)
		return;
	struct eng_model *m = &e->models[move.model];
	if (move.act == RESIDENCY_BRING) {
		bring(e, m, models[move.model].tenant, now);
	} else if (move.act == RESIDENCY_DROP) {
		set_residence(m, RESIDENCY_GOING);
		weight_job_put(e, m, true);
	} else {
		set_residence(m, move.act == RESIDENCY_LEAVE ? RESIDENCY_LEAVING : RESIDENCY_HERE);
	}
}

/* A sequence that waits for weights since before `before`; m NULL: of any model. */
static struct eng_seq *find_late(const struct step *st, const struct eng_model *m, uint64_t before)
{
	list_each(it, &st->all) {
		struct eng_seq *s = list_entry(it, struct eng_seq, in_all);
		if (works(s) && s->model->on_demand && !model_is_here(s->model) && (m == NULL || s->model == m) &&
		    waits_since(s) <= before)
			return s;
	}
	return NULL;
}

static void end_late(struct step *st, uint64_t now)
{
	uint64_t most = (uint64_t)st->e->cfg.load_wait_ms * (uint64_t)NS_PER_MS;
	struct eng_seq *s;
	while (most > 0 && now > most && (s = find_late(st, NULL, now - most)) != NULL)
		step_finish(
		    st, s, PROTO_FINISH_ERROR, PROTO_ERR_OVERLOADED,
		    "The model is not in memory, and those that are there are in use: it did not come in time.");
}

void model_residency_used(const struct eng_seq *s, uint64_t now_ns)
{
	if (s->model == NULL || !s->model->on_demand)
		return;
	pthread_mutex_lock(&s->model->e->info_lock);
	keep_alive_use(&s->model->keep, s->tenant_digest, now_ns);
	pthread_mutex_unlock(&s->model->e->info_lock);
	s->model->used_ns = now_ns;
}

void model_residency_tick(struct step *st, uint64_t now_ns)
{
	struct engine *e = st->e;
	struct residency_model models[PROTO_MAX_MODELS] = {0};
	if (e->residency.cfg.turn_ns == 0 || now_ns < e->residency_look_ns)
		return;
	e->residency_look_ns = now_ns + LOOK_MS * (uint64_t)NS_PER_MS;
	unsigned n_waiting = look(st, models, now_ns);
	if (n_waiting > 0)
		end_late(st, now_ns);
	struct residency_move move = residency_next(&e->residency, models, e->n_models, now_ns);
	carry_out(st, models, move, now_ns);
	count_here(e);
	atomic_store(&e->load_waiting, n_waiting);
}

static void failed(struct step *st, struct eng_model *m, uint64_t now)
{
	unsigned doublings = m->n_failed < MOST_DOUBLINGS ? m->n_failed : MOST_DOUBLINGS;
	uint64_t wait_ms = (uint64_t)FIRST_RETRY_MS << doublings;
	struct eng_seq *s;
	m->n_failed++;
	m->retry_ns = now + wait_ms * (uint64_t)NS_PER_MS;
	set_residence(m, RESIDENCY_ABSENT);
	log_error("model %s: its weights can't be read: tried again in %llu s", m->name,
		  (unsigned long long)(wait_ms / 1000));
	while ((s = find_late(st, m, UINT64_MAX)) != NULL)
		step_finish(st, s, PROTO_FINISH_ERROR, PROTO_ERR_NOT_READY, "The model's weights can't be read.");
}

void model_residency_done(struct step *st, struct eng_model *m)
{
	struct engine *e = st->e;
	uint64_t now = clock_now_ns(), took = now - m->asked_ns;
	if (atomic_load(&m->residence) == RESIDENCY_GOING) {
		atomic_fetch_add(&e->model_drops, 1);
		log_info("model %s: its weights have left memory", m->name);
		pthread_mutex_lock(&e->info_lock);
		keep_alive_clear(&m->keep);
		pthread_mutex_unlock(&e->info_lock);
		set_residence(m, RESIDENCY_ABSENT);
		return;
	}
	if (m->weights_rc != 0) {
		failed(st, m, now);
		return;
	}
	double rate = (double)m->weights_bytes / (double)(took > 0 ? took : 1);
	e->bring_rate = e->bring_rate > 0 ? 0.7 * e->bring_rate + 0.3 * rate : rate;
	m->n_failed = 0;
	m->here_ns = m->used_ns = now;
	atomic_fetch_add(&e->model_loads, 1);
	atomic_fetch_add(&e->model_load_ms, took / NS_PER_MS);
	set_residence(m, RESIDENCY_HERE);
	log_info("model %s: weights of %llu MiB came into memory in %llu ms", m->name,
		 (unsigned long long)(m->weights_bytes >> 20), (unsigned long long)(took / NS_PER_MS));
}
