/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader thread's part of models on demand. One job at a time: the step thread gives another once the last one's
 * mail has come, so a single place holds it.
 */
#include "base/cond.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/model/residence.h"
#include "engine/step/model_residency.h"

struct bringing {
	struct eng_model *m;
	struct progress at;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct bringing *b = ctx;
	if (!progress_tells(&b->at, done, total, clock_now_ns()))
		return;
	atomic_store(&b->m->percent, b->at.percent);
	model_state_report(b->m->e, b->m);
}

static void do_job(struct engine *e, struct eng_model *m, bool drop)
{
	const struct residence *where = model_residence(m->model);
	struct bringing b = {.m = m};
	struct convert_progress progress = {.report = on_progress, .ctx = &b, .total = where->bytes};
	m->weights_rc = drop ? 0 : residence_bring(where, &progress, &e->stopping);
	if (drop || m->weights_rc != 0)
		residence_drop(where);
	mailbox_send(&e->box, &m->weights_mail.mail);
}

void weight_jobs_run(struct engine *e)
{
	struct weight_jobs *j = &e->weight_jobs;
	pthread_mutex_lock(&j->lock);
	while (!j->closed) {
		struct eng_model *m = j->m;
		if (m == NULL) {
			cond_wait(&j->changed, &j->lock);
			continue;
		}
		bool drop = j->drop;
		j->m = NULL;
		pthread_mutex_unlock(&j->lock);
		do_job(e, m, drop);
		pthread_mutex_lock(&j->lock);
	}
	pthread_mutex_unlock(&j->lock);
}

void weight_jobs_close(struct engine *e)
{
	pthread_mutex_lock(&e->weight_jobs.lock);
	e->weight_jobs.closed = true;
	pthread_cond_broadcast(&e->weight_jobs.changed);
	pthread_mutex_unlock(&e->weight_jobs.lock);
}

void weight_job_put(struct engine *e, struct eng_model *m, bool drop)
{
	struct weight_jobs *j = &e->weight_jobs;
	pthread_mutex_lock(&j->lock);
	BUG_IF(j->m != NULL, "a second job for weights");
	j->m = m;
	j->drop = drop;
	pthread_cond_broadcast(&j->changed);
	pthread_mutex_unlock(&j->lock);
}
