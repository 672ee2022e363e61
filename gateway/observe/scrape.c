/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread with a mailbox. A scrape is a message there and back: its loop prints nothing and frees it.
 */
#include "gateway/observe/scrape.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/observe/process_gauges.h"

enum { MOST_WAITING = 16 };

struct scraper {
	pthread_t thread;
	struct mailbox asked; /* the `mail` of scrapes' messages */
	atomic_int n_waiting;
	atomic_bool stops;
};

struct scrape {
	struct gw_message m;
	struct gw_thread *home;
	void (*done)(void *ctx, int rc, const struct sl_buf *text); /* NULL: cancelled. The loop's */
	void *ctx;
	struct sl_buf text;
	int rc;
};

/* ---- the scraper's thread ---- */

static void print(struct scraper *sc, struct scrape *s)
{
	atomic_fetch_sub(&sc->n_waiting, 1);
	if (atomic_load(&sc->stops)) {
		s->rc = SL_ECLOSED;
	} else {
		process_gauges_set();
		s->rc = metrics_print(&s->text);
	}
	gw_post(s->home, &s->m);
}

static void print_all(struct scraper *sc, struct mail *m)
{
	while (m != NULL) {
		struct scrape *s = list_entry(m, struct scrape, m.mail);
		m = m->next;
		print(sc, s);
	}
}

static void *run_scraper(void *arg)
{
	struct scraper *sc = arg;
	pthread_setname_np(pthread_self(), "metrics");
	while (!atomic_load(&sc->stops))
		print_all(sc, mailbox_wait(&sc->asked, UINT64_MAX));
	print_all(sc, mailbox_take_all(&sc->asked));
	return NULL;
}

int scraper_create(struct scraper **out)
{
	struct scraper *sc = sl_zalloc(sizeof *sc);
	*out = NULL;
	if (sc == NULL)
		return SL_ENOMEM;
	if (mailbox_init(&sc->asked) != 0) {
		sl_free(sc);
		return SL_EIO;
	}
	if (pthread_create(&sc->thread, NULL, run_scraper, sc) != 0) {
		mailbox_dispose(&sc->asked);
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
	atomic_store(&sc->stops, true);
	mailbox_nudge(&sc->asked);
	pthread_join(sc->thread, NULL);
	mailbox_dispose(&sc->asked);
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

int scrape_start(struct scraper *sc, struct gw_thread *t, void (*done)(void *ctx, int rc, const struct sl_buf *text),
		 void *ctx, struct scrape **out)
{
	*out = NULL;
	if (atomic_fetch_add(&sc->n_waiting, 1) >= MOST_WAITING) {
		atomic_fetch_sub(&sc->n_waiting, 1);
		return SL_ELIMIT;
	}
	struct scrape *s = sl_zalloc(sizeof *s);
	if (s == NULL) {
		atomic_fetch_sub(&sc->n_waiting, 1);
		return SL_ENOMEM;
	}
	*s = (struct scrape){.m = {.run = on_back}, .home = t, .done = done, .ctx = ctx};
	buf_init(&s->text, SCRAPE_BYTES);
	mailbox_send(&sc->asked, &s->m.mail);
	*out = s;
	return 0;
}

void scrape_cancel(struct scrape *s) { s->done = NULL; }
