/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts that wait for the text workers, and constraints that wait for the compiler, taken in fair order of tenants.
 */
#include "engine/step/internal.h"

#include "base/cond.h"

/* Fixed costs in bytes. The time to compile a constraint hardly depends on its length. */
enum { REQUEST_BYTES = 1 << 10, CONSTRAINT_BYTES = 64 << 10 };

void text_queue_init(struct text_queue *q)
{
	*q = (struct text_queue){0};
	pthread_mutex_init(&q->lock, NULL);
	for (int i = 0; i < TEXT_LINES; i++) {
		fair_init(&q->lines[i].queued);
		pthread_cond_init(&q->lines[i].filled, NULL);
	}
}

void text_queue_dispose(struct text_queue *q)
{
	for (int i = 0; i < TEXT_LINES; i++) {
		fair_dispose(&q->lines[i].queued);
		pthread_cond_destroy(&q->lines[i].filled);
	}
	pthread_mutex_destroy(&q->lock);
}

int text_queue_put(struct text_queue *q, enum text_line line, struct eng_seq *s)
{
	uint32_t cost = line == TEXT_PROMPTS ? REQUEST_BYTES + (uint32_t)s->text.prompt.n
					     : CONSTRAINT_BYTES + (uint32_t)s->text.constraint.n;
	pthread_mutex_lock(&q->lock);
	int rc = fair_enter(&q->lines[line].queued, &s->in_text[line], s->tenant_digest, s->sched.priority, cost);
	/* Ended meanwhile: to be discarded soon. */
	if (rc == 0 && atomic_load(&s->text.unwanted))
		fair_hurry(&q->lines[line].queued, &s->in_text[line]);
	pthread_cond_signal(&q->lines[line].filled);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

void text_queue_expedite(struct text_queue *q, struct eng_seq *s)
{
	pthread_mutex_lock(&q->lock);
	for (int i = 0; i < TEXT_LINES; i++)
		fair_hurry(&q->lines[i].queued, &s->in_text[i]);
	pthread_mutex_unlock(&q->lock);
}

bool text_queue_withdraw(struct text_queue *q, struct eng_seq *s)
{
	bool queued = false;
	pthread_mutex_lock(&q->lock);
	for (int i = 0; i < TEXT_LINES; i++) {
		queued = queued || fair_queued(&s->in_text[i]);
		fair_leave(&q->lines[i].queued, &s->in_text[i]);
	}
	pthread_mutex_unlock(&q->lock);
	return queued;
}

struct eng_seq *text_queue_take(struct text_queue *q, enum text_line line)
{
	struct text_wait *l = &q->lines[line];
	pthread_mutex_lock(&q->lock);
	struct fair_item *it;
	while ((it = fair_take(&l->queued)) == NULL && !l->closed)
		cond_wait(&l->filled, &q->lock);
	pthread_mutex_unlock(&q->lock);
	return it != NULL ? list_entry(it, struct eng_seq, in_text[line]) : NULL;
}

void text_queue_close(struct text_queue *q, enum text_line line)
{
	pthread_mutex_lock(&q->lock);
	q->lines[line].closed = true;
	pthread_cond_broadcast(&q->lines[line].filled);
	pthread_mutex_unlock(&q->lock);
}
