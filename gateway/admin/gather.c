/* SPDX-License-Identifier: Apache-2.0
 *
 * A gather is freed by the last of its references: one of each message under way, one of the thread that asked. A
 * thread leaves the table before its inbox goes, and messages are posted with the table locked, so none is posted to a
 * thread that has gone; those that a thread leaves behind are run as it is disposed of, without an application.
 */
#include "gateway/admin/gather.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "gateway/exchange/app_state.h"
#include "gateway/loop/thread.h"
#include "gateway/loop/timer.h"

static struct {
	pthread_mutex_t lock;
	struct gw_thread *threads[GATHER_THREADS];
	size_t n;
	unsigned under_way;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct ask {
	struct gw_message m;
	struct gather *g;
	struct gather_part part;
	atomic_bool there;
};

struct gather {
	struct gw_thread *home;
	void (*visit)(struct gw_app *app, struct gather_part *part);
	void (*done)(void *ctx, const struct gather_part *parts, size_t n); /* NULL: it was called, or cancelled */
	void *ctx;
	struct gw_timer timer;
	struct gw_message back;
	atomic_uint refs, n_left;
	char word[GATHER_WORD];
	size_t n;
	struct ask asks[];
};

void gather_enter(struct gw_app *app)
{
	pthread_mutex_lock(&table.lock);
	if (table.n < GATHER_THREADS)
		table.threads[table.n++] = app->t;
	pthread_mutex_unlock(&table.lock);
}

void gather_leave(struct gw_app *app)
{
	pthread_mutex_lock(&table.lock);
	for (size_t i = 0; i < table.n; i++)
		if (table.threads[i] == app->t)
			table.threads[i--] = table.threads[--table.n];
	pthread_mutex_unlock(&table.lock);
}

static void unref(struct gather *g)
{
	if (atomic_fetch_sub(&g->refs, 1) > 1)
		return;
	for (size_t i = 0; i < g->n; i++) {
		buf_dispose(&g->asks[i].part.out);
		sl_free(g->asks[i].part.own);
	}
	sl_free(g);
	pthread_mutex_lock(&table.lock);
	table.under_way--;
	pthread_mutex_unlock(&table.lock);
}

/* With the parts that are there. False: it was cancelled, or its time was over. */
static bool finish(struct gather *g)
{
	struct gather_part parts[GATHER_THREADS];
	if (g->done == NULL)
		return false;
	gw_timer_stop(&g->home->timers, &g->timer);
	for (size_t i = 0; i < g->n; i++) {
		const bool there = atomic_load_explicit(&g->asks[i].there, memory_order_acquire);
		parts[i] = there ? g->asks[i].part : (struct gather_part){.there = false};
		parts[i].there = there;
	}
	void (*done)(void *, const struct gather_part *, size_t) = g->done;
	g->done = NULL;
	done(g->ctx, parts, g->n);
	return true;
}

static void on_back(struct gw_thread *t, struct gw_message *m)
{
	struct gather *g = list_entry(m, struct gather, back);
	(void)t;
	if (finish(g))
		unref(g); /* that of the thread that asked */
	unref(g);         /* the message's */
}

static void on_time(struct gw_timer *timer)
{
	struct gather *g = list_entry(timer, struct gather, timer);
	finish(g);
	unref(g);
}

/* To the thread that asked, if it is still there. */
static void send_back(struct gather *g)
{
	bool sent = false;
	atomic_fetch_add(&g->refs, 1);
	pthread_mutex_lock(&table.lock);
	for (size_t i = 0; i < table.n && !sent; i++)
		if (table.threads[i] == g->home) {
			gw_post(g->home, &g->back);
			sent = true;
		}
	pthread_mutex_unlock(&table.lock);
	if (!sent)
		unref(g);
}

static void on_ask(struct gw_thread *t, struct gw_message *m)
{
	struct ask *a = list_entry(m, struct ask, m);
	struct gather *g = a->g;
	if (t->app != NULL) {
		g->visit(t->app, &a->part);
		atomic_store_explicit(&a->there, true, memory_order_release);
	}
	if (atomic_fetch_sub(&g->n_left, 1) == 1)
		send_back(g);
	unref(g);
}

static struct gather *create(struct gw_thread *t, size_t n, const char *word)
{
	struct gather *g = sl_zalloc(sizeof *g + n * sizeof *g->asks);
	if (g == NULL)
		return NULL;
	g->home = t;
	g->n = n;
	g->back.run = on_back;
	gw_timer_init(&g->timer, on_time);
	snprintf(g->word, sizeof g->word, "%s", word);
	atomic_store(&g->refs, (unsigned)n + 1);
	atomic_store(&g->n_left, (unsigned)n);
	for (size_t i = 0; i < n; i++) {
		struct ask *a = &g->asks[i];
		a->m.run = on_ask;
		a->g = g;
		a->part.word = g->word;
		buf_init(&a->part.out, GATHER_BYTES);
	}
	return g;
}

int gather_start(struct gw_thread *t, void (*visit)(struct gw_app *app, struct gather_part *part), const char *word,
		 void (*done)(void *ctx, const struct gather_part *parts, size_t n), void *ctx, struct gather **out)
{
	*out = NULL;
	pthread_mutex_lock(&table.lock);
	const bool busy = table.under_way >= GATHER_MOST;
	struct gather *g = busy ? NULL : create(t, table.n, word);
	if (g != NULL) {
		table.under_way++;
		g->visit = visit;
		g->done = done;
		g->ctx = ctx;
		gw_timer_start(&t->timers, &g->timer, GATHER_MS * NS_PER_MS);
		for (size_t i = 0; i < g->n; i++)
			gw_post(table.threads[i], &g->asks[i].m);
	}
	pthread_mutex_unlock(&table.lock);
	*out = g;
	return g != NULL ? 0 : busy ? SL_ELIMIT : SL_ENOMEM;
}

void gather_cancel(struct gather *g)
{
	g->done = NULL;
	gw_timer_stop(&g->home->timers, &g->timer);
	unref(g);
}
