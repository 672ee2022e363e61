/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry has up to two owners: who waits, and the message that tells him that he is displaced. The
 * message runs on the thread that may leave meanwhile, so what it finds is either still wanted or told to nobody.
 */
#include "gateway/waiting.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/metrics.h"
#include "gateway/thread.h"

enum { LINES = 16 }; /* priorities; those beyond are the last one */

struct waiting {
	struct gw_message message;
	struct list node; /* under the room's lock; empty: it has no place any more */
	struct waiting_room *room;
	struct gw_thread *t;
	int line;
	atomic_int refs;
	void (*displaced)(void *ctx); /* NULL: it has left; its thread's */
	void *ctx;
};

struct waiting_room {
	pthread_mutex_t lock;
	struct list lines[LINES]; /* newest last */
	size_t n;
};

static struct metric waiting_now = {.kind = METRIC_GAUGE, .name = "sluice_waiting",
				    .help = "Answers that wait for their first token behind others"};
static struct metric displaced_total = {.kind = METRIC_COUNTER, .name = "sluice_load_displaced_total",
					.help = "Waiting answers that had to go for one of a better tier"};

__attribute__((constructor)) static void register_metrics(void)
{
	metric_register(&waiting_now);
	metric_register(&displaced_total);
}

int waiting_room_create(struct waiting_room **out)
{
	struct waiting_room *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	for (int i = 0; i < LINES; i++)
		list_init(&r->lines[i]);
	*out = r;
	return 0;
}

void waiting_room_destroy(struct waiting_room *r)
{
	if (r == NULL)
		return;
	BUG_IF(r->n != 0, "%zu still wait in a room that goes", r->n);
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

static int line_of(int64_t priority) { return priority < LINES ? (int)priority : LINES - 1; }

/* Under the lock. The newest of the worst that is worse than `line`; NULL: there is none. */
static struct waiting *find_worse(struct waiting_room *r, int line)
{
	for (int i = LINES - 1; i > line; i--)
		if (!list_empty(&r->lines[i]))
			return list_entry(r->lines[i].prev, struct waiting, node);
	return NULL;
}

int waiting_enter(struct waiting_room *r, size_t most, int64_t priority, struct gw_thread *t,
		  void (*displaced)(void *ctx), void *ctx, struct waiting **out)
{
	_Static_assert(offsetof(struct waiting, message) == 0, "a message is its entry");
	struct waiting *w = sl_zalloc(sizeof *w), *victim = NULL;
	if (w == NULL)
		return SL_ENOMEM;
	*w = (struct waiting){.message.run = on_displaced, .room = r, .t = t, .displaced = displaced, .ctx = ctx,
			      .line = line_of(priority)};
	atomic_init(&w->refs, 1);
	pthread_mutex_lock(&r->lock);
	if (r->n >= most && (victim = find_worse(r, w->line)) == NULL) {
		pthread_mutex_unlock(&r->lock);
		sl_free(w);
		return SL_ELIMIT;
	}
	list_push_back(&r->lines[w->line], &w->node);
	r->n++;
	if (victim != NULL) {
		list_remove(&victim->node);
		r->n--;
		atomic_fetch_add(&victim->refs, 1);
		/* Under the lock: its thread can't have ended before it has left. */
		gw_post(victim->t, &victim->message);
		metric_add(&displaced_total, 1);
	}
	metric_set(&waiting_now, (int64_t)r->n);
	pthread_mutex_unlock(&r->lock);
	*out = w;
	return 0;
}

void waiting_leave(struct waiting *w)
{
	if (w == NULL)
		return;
	struct waiting_room *r = w->room;
	pthread_mutex_lock(&r->lock);
	if (!list_empty(&w->node)) {
		list_remove(&w->node);
		r->n--;
		metric_set(&waiting_now, (int64_t)r->n);
	}
	pthread_mutex_unlock(&r->lock);
	w->displaced = NULL;
	unref(w);
}

bool waiting_has_room(struct waiting_room *r, size_t most, int64_t priority)
{
	pthread_mutex_lock(&r->lock);
	bool room = r->n < most || find_worse(r, line_of(priority)) != NULL;
	pthread_mutex_unlock(&r->lock);
	return room;
}

size_t waiting_count(struct waiting_room *r)
{
	pthread_mutex_lock(&r->lock);
	size_t n = r->n;
	pthread_mutex_unlock(&r->lock);
	return n;
}
