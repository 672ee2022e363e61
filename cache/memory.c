/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store's thread: one per process, so that all gateway threads share a limit. Works arrive through its
 * mailbox and return through their clients', in order.
 *
 * Time is wall time at the start plus what the monotonic clock counted since: comparable with Redis' (windows of
 * budgets are aligned to the epoch) and never stepping back.
 *
 * Ownership: the thread owns a work from its mailbox until it sends the work back.
 */
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cache/mem_priv.h"

struct mem_thread {
	const struct cache_config *cfg;
	struct mem_store *store;
	struct mailbox inbox;
	pthread_t thread;
	atomic_bool stop;
	uint64_t start_us, start_ns;
};

static uint64_t now_us(const struct mem_thread *m)
{
	if (m->cfg->now_us != NULL)
		return m->cfg->now_us(m->cfg->now_ctx);
	return m->start_us + (clock_now_ns() - m->start_ns) / 1000;
}

/* When to wake for the next expiry. With a test clock nothing expires by itself, only on access. */
static uint64_t wake_ns(const struct mem_thread *m, uint64_t due_us)
{
	uint64_t in_us = due_us - m->start_us;
	if (due_us == UINT64_MAX || m->cfg->now_us != NULL || in_us > UINT64_MAX / 2000)
		return UINT64_MAX;
	return m->start_ns + in_us * 1000 + 1000;
}

static void *run(void *arg)
{
	struct mem_thread *m = arg;
	for (;;) {
		uint64_t due_us = mem_store_expire(m->store, now_us(m));
		struct mail *mail = mailbox_wait(&m->inbox, wake_ns(m, due_us));
		if (mail == NULL && atomic_load(&m->stop))
			return NULL;
		while (mail != NULL) {
			struct cache_work *w = list_entry(mail, struct cache_work, mail);
			mail = mail->next;
			mem_work(m->store, m->cfg, w, now_us(m));
			client_take_back(w->client, w);
		}
	}
}

int mem_thread_start(struct cache *c, struct mem_thread **out)
{
	struct mem_thread *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return SL_ENOMEM;
	m->cfg = &c->cfg;
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	m->start_us = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
	m->start_ns = clock_now_ns();
	int rc = mem_store_create(&c->cfg, &m->store);
	if (rc != 0)
		goto no_store;
	rc = mailbox_init(&m->inbox);
	if (rc != 0)
		goto no_inbox;
	/* Signals are for the process's own threads. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&m->thread, NULL, run, m) == 0 ? 0 : SL_EIO;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0) {
		*out = m;
		return 0;
	}
	mailbox_dispose(&m->inbox);
no_inbox:
	mem_store_destroy(m->store);
no_store:
	sl_free(m);
	return rc;
}

void mem_thread_stop(struct mem_thread *m)
{
	atomic_store(&m->stop, true);
	mailbox_nudge(&m->inbox);
	pthread_join(m->thread, NULL);
	mailbox_dispose(&m->inbox);
	mem_store_validate(m->store);
	mem_store_destroy(m->store);
	sl_free(m);
}

void mem_thread_send(struct mem_thread *m, struct cache_work *w) { mailbox_send(&m->inbox, &w->mail); }
