/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts that wait for the text workers, taken in fair order of tenants.
 */
#include "engine/step/internal.h"

/* Fixed cost of a prompt, in bytes. */
enum { REQUEST_BYTES = 1 << 10 };

void text_queue_init(struct text_queue *q)
{
	*q = (struct text_queue){0};
	fair_init(&q->queued);
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->filled, NULL);
}

void text_queue_dispose(struct text_queue *q)
{
	fair_dispose(&q->queued);
	pthread_cond_destroy(&q->filled);
	pthread_mutex_destroy(&q->lock);
}

int text_queue_put(struct text_queue *q, struct eng_seq *s)
{
	uint32_t cost = REQUEST_BYTES + (uint32_t)s->text.prompt.n;
	pthread_mutex_lock(&q->lock);
	int rc = fair_enter(&q->queued, &s->in_text, s->tenant_digest, s->sched.priority, cost);
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

void text_queue_expedite(struct text_queue *q, struct eng_seq *s)
{
	pthread_mutex_lock(&q->lock);
	fair_hurry(&q->queued, &s->in_text);
	pthread_mutex_unlock(&q->lock);
}

struct eng_seq *text_queue_take(struct text_queue *q)
{
	pthread_mutex_lock(&q->lock);
	struct fair_item *it;
	while ((it = fair_take(&q->queued)) == NULL && !q->closed)
		pthread_cond_wait(&q->filled, &q->lock);
	pthread_mutex_unlock(&q->lock);
	return it != NULL ? list_entry(it, struct eng_seq, in_text) : NULL;
}

void text_queue_close(struct text_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->closed = true;
	pthread_cond_broadcast(&q->filled);
	pthread_mutex_unlock(&q->lock);
}
