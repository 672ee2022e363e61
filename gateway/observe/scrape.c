/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread and one bounded queue. A printed text returns to its loop as a message, which frees it.
 */
#include "gateway/observe/scrape.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/observe/process_gauges.h"

enum { MOST_WAITING = 16 };

struct scraper {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct list waiting; /* struct scrape */
	int n_waiting;
	bool stops;
};

struct scrape {
	struct gw_message m;
	struct list in_waiting;
	struct gw_thread *home;
	void (*done)(void *ctx, int rc, const struct sl_buf *text); /* NULL: cancelled. The loop's */
	void *ctx;
	struct sl_buf text;
	int rc;
};

/* ---- the scraper's thread ---- */

static struct scrape *take(struct scraper *sc)
{
	struct scrape *s = NULL;
	pthread_mutex_lock(&sc->lock);
	while (!sc->stops && list_empty(&sc->waiting))
		pthread_cond_wait(&sc->filled, &sc->lock);
	if (!sc->stops) {
		s = list_entry(sc->waiting.next, struct scrape, in_waiting);
		list_remove(&s->in_waiting);
		sc->n_waiting--;
	}
	pthread_mutex_unlock(&sc->lock);
	return s;
}

static void *run_scraper(void *arg)
{
	struct scrape *s;
	pthread_setname_np(pthread_self(), "metrics");
	while ((s = take(arg)) != NULL) {
		process_gauges_set();
		s->rc = metrics_print(&s->text);
		gw_post(s->home, &s->m);
	}
	return NULL;
}

int scraper_create(struct scraper **out)
{
	struct scraper *sc = sl_zalloc(sizeof *sc);
	*out = NULL;
	if (sc == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&sc->lock, NULL);
	pthread_cond_init(&sc->filled, NULL);
	list_init(&sc->waiting);
	if (pthread_create(&sc->thread, NULL, run_scraper, sc) != 0) {
		pthread_cond_destroy(&sc->filled);
		pthread_mutex_destroy(&sc->lock);
		sl_free(sc);
		return SL_EIO;
	}
	*out = sc;
	return 0;
}

void scraper_destroy(struct scraper *sc)
{
	if (sc == NULL)
		return;
	pthread_mutex_lock(&sc->lock);
	sc->stops = true;
	pthread_cond_signal(&sc->filled);
	pthread_mutex_unlock(&sc->lock);
	pthread_join(sc->thread, NULL);
	list_each_safe(it, tmp, &sc->waiting) {
		struct scrape *s = list_entry(it, struct scrape, in_waiting);
		list_remove(it);
		s->rc = SL_ECLOSED;
		gw_post(s->home, &s->m);
	}
	pthread_cond_destroy(&sc->filled);
	pthread_mutex_destroy(&sc->lock);
	sl_free(sc);
}

/* ---- the loop's side ---- */

static void on_back(struct gw_thread *t, struct gw_message *m)
{
	struct scrape *s = list_entry(m, struct scrape, m);
	(void)t;
	if (s->done != NULL)
		s->done(s->ctx, s->rc, &s->text);
	buf_dispose(&s->text);
	sl_free(s);
}

static bool enter(struct scraper *sc, struct scrape *s)
{
	pthread_mutex_lock(&sc->lock);
	bool room = sc->n_waiting < MOST_WAITING;
	if (room) {
		list_push_back(&sc->waiting, &s->in_waiting);
		sc->n_waiting++;
		pthread_cond_signal(&sc->filled);
	}
	pthread_mutex_unlock(&sc->lock);
	return room;
}

int scrape_start(struct scraper *sc, struct gw_thread *t, void (*done)(void *ctx, int rc, const struct sl_buf *text),
		 void *ctx, struct scrape **out)
{
	struct scrape *s = sl_zalloc(sizeof *s);
	*out = NULL;
	if (s == NULL)
		return SL_ENOMEM;
	*s = (struct scrape){.m = {.run = on_back}, .home = t, .done = done, .ctx = ctx};
	buf_init(&s->text, SCRAPE_BYTES);
	if (!enter(sc, s)) {
		sl_free(s);
		return SL_ELIMIT;
	}
	*out = s;
	return 0;
}

void scrape_cancel(struct scrape *s) { s->done = NULL; }
