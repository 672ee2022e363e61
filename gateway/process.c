/* SPDX-License-Identifier: Apache-2.0
 *
 * N threads, one main thread that owns none of their work: it starts them, waits for signals (a
 * signalfd: no handler runs anywhere), tells the threads to drain, and reports readiness to the
 * supervisor. Everything the main thread wants of a worker it posts to the worker's inbox;
 * everything it learns of one it reads from three atomics.
 *
 * Life of a worker: STARTING → SERVING → (drain) → ENDED, or FAILED with its one-line error, which
 * the main thread prints once. Messages to a worker may arrive until it is joined: inboxes are
 * disposed of by the main thread after the join, never by the worker.
 *
 * The store is made before the threads and goes after them; each thread has a client of its own, made
 * before and destroyed after the application. A thread is not ready before its client has found Redis,
 * or has not for a short while: the first requests are then not counted by a local share.
 */
#include "gateway/process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/cache.h"
#include "gateway/store.h"
#include "gateway/transport.h"

enum { POLL_MS = 100, BEAT_LEAST_MS = 20, STORE_WAIT_MS = 2000 };

enum worker_state { WORKER_STARTING, WORKER_SERVING, WORKER_FAILED, WORKER_ENDED };

struct worker {
	struct gw_thread t;
	pthread_t id;
	const struct gw_app_ops *ops;
	struct cache *store;
	char name[16];
	atomic_int state; /* enum worker_state */
	atomic_bool ready;
	struct sl_err err; /* valid once state is FAILED */
	int slot;          /* of the heartbeat; -1: none */
	bool stop_now;     /* worker's own, as are the next two */
	bool store_found;  /* or given up */
	uint64_t since_ns; /* of serving */
	struct event *beat, *drain_timer;
	struct gw_message drain_msg, stop_msg; /* posted at most once each */
};

/* ---- the worker's side ---- */

static bool found_store(struct worker *w)
{
	enum cache_state state = cache_client_state(w->t.cache);
	if (!w->store_found && (state == CACHE_IS_MEMORY || state == CACHE_IS_UP ||
				clock_now_ns() - w->since_ns > STORE_WAIT_MS * NS_PER_MS)) {
		w->store_found = true;
		if (state == CACHE_IS_DOWN || state == CACHE_IS_CONNECTING)
			log_warn("the store is %s: limits are this process's own meanwhile",
				 cache_client_state_text(w->t.cache));
	}
	return w->store_found;
}

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct worker *w = arg;
	beat_touch(w->slot);
	atomic_store(&w->ready, !w->t.draining && found_store(w) && w->ops->ready(w->t.app));
}

static void on_drain_expired(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	((struct worker *)arg)->stop_now = true;
}

static struct timeval in_ms(uint64_t ms)
{
	return (struct timeval){.tv_sec = (time_t)(ms / 1000),
				.tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

static void drain_worker(struct gw_thread *t, struct gw_message *m)
{
	struct worker *w =
	    (struct worker *)(void *)((char *)m - offsetof(struct worker, drain_msg));
	struct timeval limit = in_ms(t->cfg->drain_ms);
	t->draining = true;
	atomic_store(&w->ready, false);
	if (t->transport == NULL)
		return;
	transport_drain(t->transport);
	w->drain_timer = event_new(t->base, -1, 0, on_drain_expired, w);
	if (w->drain_timer == NULL || event_add(w->drain_timer, &limit) != 0)
		w->stop_now = true;
}

static void stop_worker(struct gw_thread *t, struct gw_message *m)
{
	(void)t;
	((struct worker *)(void *)((char *)m - offsetof(struct worker, stop_msg)))->stop_now = true;
}

static int start_serving(struct worker *w)
{
	struct gw_thread *t = &w->t;
	struct timeval every =
	    in_ms(t->cfg->beat_ms / 2 > BEAT_LEAST_MS ? t->cfg->beat_ms / 2 : BEAT_LEAST_MS);
	int rc = cache_client_create(w->store, t->base, &t->cache);
	if (rc != 0)
		return sl_errf(&w->err, rc, "no client of the store: %s", sl_code_name(rc));
	w->since_ns = clock_now_ns();
	rc = w->ops->create(t, &t->app, &w->err);
	if (rc == 0)
		rc = transport_create(t, w->ops->http, t->app, &t->transport, &w->err);
	if (rc != 0)
		return rc;
	w->slot = beat_slot(w->name);
	w->beat = event_new(t->base, -1, EV_PERSIST, on_beat, w);
	if (w->beat == NULL || event_add(w->beat, &every) != 0)
		return sl_errf(&w->err, SL_EIO, "the event loop refuses a timer");
	on_beat(-1, 0, w);
	return 0;
}

static void end_serving(struct worker *w)
{
	struct gw_thread *t = &w->t;
	if (t->transport != NULL)
		transport_destroy(t->transport);
	t->transport = NULL;
	if (t->app != NULL)
		w->ops->destroy(t->app);
	t->app = NULL;
	if (t->cache != NULL)
		cache_client_destroy(t->cache);
	t->cache = NULL;
	if (w->beat != NULL)
		event_free(w->beat);
	if (w->drain_timer != NULL)
		event_free(w->drain_timer);
	w->beat = w->drain_timer = NULL;
	if (w->slot >= 0)
		beat_slot_close(w->slot);
	w->slot = -1;
}

static bool busy(const struct worker *w) { return w->ops->busy != NULL && w->ops->busy(w->t.app); }

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	pthread_setname_np(pthread_self(), w->name);
	if (start_serving(w) != 0) {
		end_serving(w);
		atomic_store(&w->state, WORKER_FAILED);
		return NULL;
	}
	atomic_store(&w->state, WORKER_SERVING);
	while (!w->stop_now && !(w->t.draining && transport_empty(w->t.transport) && !busy(w))) {
		if (gw_thread_turn(&w->t) != 0) {
			log_error("%s: the event loop failed", w->name);
			break;
		}
	}
	end_serving(w);
	atomic_store(&w->ready, false);
	atomic_store(&w->state, WORKER_ENDED);
	return NULL;
}

/* ---- the main thread's side ---- */

struct process {
	struct worker *workers;
	struct cache *store;
	int64_t n, n_started;
	int signal_fd;
	int status;
	bool ready, draining, stopping;
};

static void tell_drain(struct process *p)
{
	p->draining = true;
	for (int64_t i = 0; i < p->n_started; i++)
		gw_post(&p->workers[i].t, &p->workers[i].drain_msg);
}

static void tell_stop(struct process *p)
{
	p->stopping = true;
	for (int64_t i = 0; i < p->n_started; i++)
		gw_post(&p->workers[i].t, &p->workers[i].stop_msg);
}

static int start_workers(struct process *p, const struct gw_config *cfg,
			 const struct gw_app_ops *ops)
{
	struct sl_err err = {0};
	p->n = cfg->threads;
	p->workers = sl_zalloc_n((size_t)p->n, sizeof *p->workers);
	if (p->workers == NULL)
		return SL_ENOMEM;
	for (int64_t i = 0; i < p->n; i++) {
		struct worker *w = &p->workers[i];
		w->ops = ops;
		w->store = p->store;
		w->slot = -1;
		w->drain_msg.run = drain_worker;
		w->stop_msg.run = stop_worker;
		snprintf(w->name, sizeof w->name, "gateway-%d", (int)i);
		int rc = gw_thread_init(&w->t, (int)i, cfg, &err);
		if (rc != 0) {
			log_error("%s", err.text);
			return rc;
		}
		if (pthread_create(&w->id, NULL, run_worker, w) != 0) {
			gw_thread_dispose(&w->t);
			log_error("no thread: %s", strerror(errno));
			return SL_EIO;
		}
		p->n_started++;
	}
	return 0;
}

/* Reads what the workers say. True once all have ended. */
static bool look_at_workers(struct process *p)
{
	int64_t over = 0, ready = 0;
	for (int64_t i = 0; i < p->n_started; i++) {
		struct worker *w = &p->workers[i];
		int state = atomic_load(&w->state);
		ready += atomic_load(&w->ready);
		over += state == WORKER_FAILED || state == WORKER_ENDED;
		if (state == WORKER_FAILED && p->status == 0) {
			log_error("%s", w->err.text);
			p->status = w->err.code == SL_ENOMEM ? 1 : GATEWAY_EXIT_CONFIG;
		} else if (state == WORKER_ENDED && !p->draining && p->status == 0) {
			p->status = 1;
		}
	}
	if (p->status != 0 && !p->stopping)
		tell_stop(p);
	bool all = p->n_started == p->n && ready == p->n && !p->draining;
	if (all != p->ready) {
		p->ready = all;
		beat_ready(all);
		log_info(all ? "ready" : "not ready");
	}
	return over == p->n_started;
}

static void take_signal(struct process *p)
{
	struct signalfd_siginfo si;
	if (read(p->signal_fd, &si, sizeof si) != (ssize_t)sizeof si)
		return;
	if (!p->draining) {
		log_info("draining");
		tell_drain(p);
	} else if (!p->stopping) {
		log_info("stopping");
		tell_stop(p);
	}
}

static void supervise(struct process *p)
{
	while (!look_at_workers(p)) {
		struct pollfd fd = {.fd = p->signal_fd, .events = POLLIN};
		if (poll(&fd, 1, POLL_MS) > 0)
			take_signal(p);
	}
	for (int64_t i = 0; i < p->n_started; i++) {
		pthread_join(p->workers[i].id, NULL);
		gw_thread_dispose(&p->workers[i].t);
	}
}

int gateway_serve(const struct gw_config *cfg, const struct gw_app_ops *ops)
{
	struct process p = {.signal_fd = -1};
	struct sl_err err = {0};
	sigset_t set, before;
	int rc;
	if (transport_check_ports(cfg, &err) != 0) {
		log_error("%s", err.text);
		return GATEWAY_EXIT_CONFIG;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	/* Inherited by the threads: the signals reach the descriptor only. */
	pthread_sigmask(SIG_BLOCK, &set, &before);
	p.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (p.signal_fd < 0 || beat_start(cfg->beat_fd, cfg->beat_ms, cfg->stale_ms) != 0) {
		log_error("cannot start: %s", strerror(errno));
		p.status = 1;
	} else {
		signal(SIGPIPE, SIG_IGN);
		rc = gw_store_create(&cfg->store, &p.store, &err);
		if (rc != 0) {
			log_error("%s", err.text);
			p.status = rc == SL_ENOMEM ? 1 : GATEWAY_EXIT_CONFIG;
		} else {
			if (start_workers(&p, cfg, ops) != 0)
				p.status = 1;
			supervise(&p);
			cache_destroy(p.store);
		}
		beat_stop();
	}
	if (p.signal_fd >= 0)
		close(p.signal_fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	sl_free(p.workers);
	return p.status;
}
