/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry has up to two owners: the waiting answer, and the message that displaces it. The message runs on the
 * answer's thread; if the answer has left meanwhile, the message does nothing.
 */
#include "gateway/admission/admission_queue.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/fair.h"
#include "base/metrics.h"
#include "gateway/loop/thread.h"

struct waiting {
	struct gw_message message;
	struct fair_item here; /* under the queue's lock; unlinked once displaced */
	struct admission_queue *queue;
	struct gw_thread *t;
	atomic_int refs;
	void (*displaced)(void *ctx); /* NULL: the answer has left; used on its thread only */
	void *ctx;
};

struct admission_queue {
	pthread_mutex_t lock;
	struct fair fair;
};

GAUGE(answers_waiting, "sluice_waiting", "Answers queued for their first token");
COUNTER(displaced_total, "sluice_load_displaced_total", "Waiting answers displaced by a newcomer");

int admission_queue_create(struct admission_queue **out)
{
	struct admission_queue *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	fair_init(&r->fair);
	*out = r;
	return 0;
}

void admission_queue_destroy(struct admission_queue *r)
{
	if (r == NULL)
		return;
	fair_dispose(&r->fair);
	pthread_mutex_destroy(&r->lock);
	sl_free(r);
}

static void unref(struct waiting *w)
{
	if (atomic_fetch_sub(&w->refs, 1) == 1)
		sl_free(w);
}

static void on_displaced(struct gw_thread *t, struct gw_message *m)
{
	struct waiting *w = (struct waiting *)(void *)m;
	(void)t;
	if (w->displaced != NULL)
		w->displaced(w->ctx);
	unref(w);
}

/* Under the lock. The entry that the newcomer displaces; NULL: none. */
static struct waiting *find_victim(struct admission_queue *r, struct admission_guest guest)
{
	struct fair_item *it = fair_worse(&r->fair, guest.priority);
	if (it == NULL)
		it = fair_richer(&r->fair, guest.tenant, guest.priority, 1);
	return it != NULL ? list_entry(it, struct waiting, here) : NULL;
}

/* Under the lock, which also covers the post: while the victim is in the queue, its thread is running. */
static void displace(struct admission_queue *r, struct waiting *victim)
{
	fair_leave(&r->fair, &victim->here);
	atomic_fetch_add(&victim->refs, 1);
	gw_post(victim->t, &victim->message);
	metric_add(&displaced_total, 1);
}

int admission_queue_enter(struct admission_queue *r, size_t most, struct admission_guest guest, struct gw_thread *t,
			  void (*displaced)(void *ctx), void *ctx, struct waiting **out)
{
	_Static_assert(offsetof(struct waiting, message) == 0, "a message is its entry");
	struct waiting *w = sl_zalloc(sizeof *w), *victim = NULL;
	if (w == NULL)
		return SL_ENOMEM;
	*w = (struct waiting){.message.run = on_displaced, .queue = r, .t = t, .displaced = displaced, .ctx = ctx};
	atomic_init(&w->refs, 1);
	pthread_mutex_lock(&r->lock);
	bool full = r->fair.n >= most;
	int rc = full && (victim = find_victim(r, guest)) == NULL
		     ? SL_ELIMIT
		     : fair_enter(&r->fair, &w->here, guest.tenant, guest.priority, 1);
	if (rc == 0 && victim != NULL)
		displace(r, victim);
	metric_set(&answers_waiting, (int64_t)r->fair.n);
	pthread_mutex_unlock(&r->lock);
	if (rc != 0) {
		sl_free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void admission_queue_leave(struct waiting *w)
{
	if (w == NULL)
		return;
	struct admission_queue *r = w->queue;
	pthread_mutex_lock(&r->lock);
	fair_leave(&r->fair, &w->here);
	metric_set(&answers_waiting, (int64_t)r->fair.n);
	pthread_mutex_unlock(&r->lock);
	w->displaced = NULL;
	unref(w);
}

bool admission_queue_has_room(struct admission_queue *r, size_t most, struct admission_guest guest)
{
	pthread_mutex_lock(&r->lock);
	bool room = r->fair.n < most || find_victim(r, guest) != NULL;
	pthread_mutex_unlock(&r->lock);
	return room;
}

size_t admission_queue_count(struct admission_queue *r)
{
	pthread_mutex_lock(&r->lock);
	size_t n = (size_t)r->fair.n;
	pthread_mutex_unlock(&r->lock);
	return n;
}
