/* SPDX-License-Identifier: Apache-2.0
 *
 * The main thread starts the workers, waits for signals (a signalfd: there are no handlers), moves the workers through
 * the phases and reports readiness. It posts messages to workers' inboxes and reads three atomics of each.
 *
 *   process   RUNNING ──SIGTERM──► DRAINING ──SIGTERM, failure──► STOPPING      set_phase
 *                └──────SIGUSR2──► REPLACED ──SIGTERM──▲
 *   worker    STARTING ──► SERVING ──► ENDED, or FAILED with its error          run_worker
 *
 * - Takeover (an old gateway still serves): nothing is accepted until every thread is ready (continue_start). Then the
 *   supervisor sends SIGUSR2 to the old gateway.
 * - Restart after a crash: clients wait in the sockets' queues, so a worker accepts once it is ready, at most a second
 *   later (on_restart_look).
 * - Reload: all that can fail happens on the main thread (prepare_reload). Then each thread switches between
 *   two events.
 * - The store outlives the threads; each thread has a client of it. A thread is ready once its client has reached
 *   Redis, or after STORE_WAIT_MS, so that the first requests are not limited by a local share.
 * - A worker's inbox is disposed of after the join, because messages may arrive until then.
 */
#include "gateway/server/process.h"

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
#include "base/flight.h"
#include "base/log.h"
#include "cache/cache.h"
#include "gateway/server/gateway_procs.h"
#include "gateway/transport/handover.h"
#include "gateway/loop/loop_lag.h"
#include "gateway/auth/store.h"
#include "gateway/transport/tls_context.h"
#include "gateway/transport/transport.h"

enum {
	POLL_MS = 100,
	BEAT_LEAST_MS = 20,
	STORE_WAIT_MS = 2000,
	LAST_WORDS_MS = 300,
	RESTART_WAIT_MS = 1000,
	RESTART_LOOK_MS = 5,
	FLIGHT_EVENTS = 8192
};

enum phase { RUNNING, REPLACED, DRAINING, STOPPING, N_PHASES };

enum worker_state { WORKER_STARTING, WORKER_SERVING, WORKER_FAILED, WORKER_ENDED };

struct worker {
	struct gw_thread t;
	pthread_t id;
	const struct gw_app_ops *ops;
	struct cache *store;
	char name[16];
	atomic_int state; /* enum worker_state */
	atomic_bool ready, accepts;
	struct sl_err err; /* valid once state is FAILED */
	int slot;          /* of the heartbeat; -1: none */
	bool stop_now;     /* used by the worker only, like the next three */
	bool expired;      /* the drain's time is over */
	bool store_found;  /* or STORE_WAIT_MS is over */
	uint64_t since_ns; /* when it began to serve */
	struct event *beat, *drain_timer;
	struct event *restart_look; /* set until it accepts */
	struct loop_lag lag;
	/* Each is posted at most once. */
	struct gw_message accept_msg;
	struct phase_message {
		struct gw_message m;
		enum phase to;
	} phases[N_PHASES];
};

/* One reload of all threads, freed with its last message. */
struct reload_batch {
	struct gw_snapshot *next; /* counted */
	atomic_int_fast64_t n_left;
	struct reload_message {
		struct gw_message m;
		struct reload_batch *batch;
	} messages[];
};

static struct worker *worker_of(struct gw_thread *t) { return list_entry(t, struct worker, t); }

/* ---- workers ---- */

static bool found_store(struct worker *w)
{
	enum cache_state state = cache_client_state(w->t.cache);
	if (!w->store_found && (state == CACHE_IS_MEMORY || state == CACHE_IS_UP ||
				clock_now_ns() - w->since_ns > STORE_WAIT_MS * NS_PER_MS)) {
		w->store_found = true;
		if (state == CACHE_IS_DOWN || state == CACHE_IS_CONNECTING)
			log_warn("the store is %s: limits are local to this process until it is up",
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

static struct timeval in_ms(uint64_t ms)
{
	return (struct timeval){.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

static void on_drain_expired(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct worker *w = arg;
	struct timeval last_words = in_ms(LAST_WORDS_MS);
	if (w->ops->expire == NULL || w->expired || event_add(w->drain_timer, &last_words) != 0) {
		w->stop_now = true;
		return;
	}
	w->expired = true;
	w->ops->expire(w->t.app);
}

static void begin_drain(struct worker *w, bool replaced, uint64_t limit_ms)
{
	struct gw_thread *t = &w->t;
	struct timeval limit = in_ms(limit_ms);
	t->draining = true;
	t->replaced = replaced;
	atomic_store(&w->ready, false);
	if (t->transport == NULL)
		return;
	transport_drain(t->transport, replaced);
	if (w->drain_timer == NULL)
		w->drain_timer = event_new(t->base, -1, 0, on_drain_expired, w);
	if (w->drain_timer == NULL || event_add(w->drain_timer, &limit) != 0)
		w->stop_now = true;
}

static void enter_phase(struct gw_thread *t, struct gw_message *m)
{
	enum phase to = list_entry(m, struct phase_message, m)->to;
	if (to == STOPPING)
		worker_of(t)->stop_now = true;
	else
		begin_drain(worker_of(t), to == REPLACED, to == REPLACED ? t->cfg->upgrade_drain_ms : t->cfg->drain_ms);
}

static void accept_worker(struct gw_thread *t, struct gw_message *m)
{
	struct worker *w = worker_of(t);
	(void)m;
	if (t->transport == NULL || t->draining)
		return;
	if (transport_accept(t->transport) == 0) {
		atomic_store(&w->accepts, true);
		return;
	}
	log_error("%s: cannot add a listening socket to the event loop", w->name);
	w->stop_now = true;
}

static void on_restart_look(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct worker *w = arg;
	bool over = clock_now_ns() - w->since_ns > RESTART_WAIT_MS * NS_PER_MS;
	on_beat(-1, 0, w);
	if (!w->t.draining && !over && !atomic_load(&w->ready))
		return;
	event_del(w->restart_look);
	accept_worker(&w->t, NULL);
}

/* A takeover accepts on accept_msg, a restart once it is ready, any other start at once. */
static int begin_accepting(struct worker *w)
{
	const struct timeval often = in_ms(RESTART_LOOK_MS);
	bool later = !w->t.transport->accepting;
	atomic_store(&w->accepts, !later);
	if (!later || w->t.cfg->takeover)
		return 0;
	w->restart_look = event_new(w->t.base, -1, EV_PERSIST, on_restart_look, w);
	if (w->restart_look == NULL || event_add(w->restart_look, &often) != 0)
		return sl_errf(&w->err, SL_EIO, "cannot create a timer");
	return 0;
}

static void reload_worker(struct gw_thread *t, struct gw_message *m)
{
	struct reload_message *r = list_entry(m, struct reload_message, m);
	struct reload_batch *batch = r->batch;
	struct gw_snapshot *before = t->snapshot;
	t->snapshot = gw_snapshot_ref(batch->next);
	t->cfg = &t->snapshot->cfg;
	if (t->app != NULL && worker_of(t)->ops->reload != NULL)
		worker_of(t)->ops->reload(t->app, t->snapshot);
	if (t->transport != NULL)
		transport_reload(t->transport);
	gw_snapshot_unref(before);
	if (atomic_fetch_sub(&batch->n_left, 1) > 1)
		return;
	gw_snapshot_unref(batch->next);
	sl_free(batch);
}

static int start_serving(struct worker *w)
{
	struct gw_thread *t = &w->t;
	struct timeval every = in_ms(t->cfg->beat_ms / 2 > BEAT_LEAST_MS ? t->cfg->beat_ms / 2 : BEAT_LEAST_MS);
	int rc = cache_client_create(w->store, t->base, &t->cache);
	if (rc != 0)
		return sl_errf(&w->err, rc, "cannot create a client of the store: %s", sl_code_name(rc));
	w->since_ns = clock_now_ns();
	rc = w->ops->create(t, &t->app, &w->err);
	if (rc == 0)
		rc = transport_create(t, w->ops->http, t->app, &t->transport, &w->err);
	if (rc != 0)
		return rc;
	w->slot = beat_slot(w->name);
	w->beat = event_new(t->base, -1, EV_PERSIST, on_beat, w);
	if (w->beat == NULL || event_add(w->beat, &every) != 0)
		return sl_errf(&w->err, SL_EIO, "cannot create a timer");
	on_beat(-1, 0, w);
	loop_lag_start(&w->lag, &t->timers);
	return begin_accepting(w);
}

static void end_serving(struct worker *w)
{
	struct gw_thread *t = &w->t;
	loop_lag_stop(&w->lag);
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
	if (w->restart_look != NULL)
		event_free(w->restart_look);
	w->beat = w->drain_timer = w->restart_look = NULL;
	if (w->slot >= 0)
		beat_slot_close(w->slot);
	w->slot = -1;
}

static bool busy(const struct worker *w) { return w->ops->busy != NULL && w->ops->busy(w->t.app); }

static void *run_worker(void *arg)
{
	struct worker *w = arg;
	pthread_setname_np(pthread_self(), w->name);
	flight_open(w->name, FLIGHT_EVENTS);
	if (start_serving(w) != 0) {
		end_serving(w);
		flight_close();
		atomic_store(&w->state, WORKER_FAILED);
		return NULL;
	}
	atomic_store(&w->state, WORKER_SERVING);
	while (!w->stop_now && !(w->t.draining && transport_drained(w->t.transport) && !busy(w))) {
		if (gw_thread_turn(&w->t) != 0) {
			log_error("%s: the event loop failed", w->name);
			break;
		}
	}
	end_serving(w);
	flight_close();
	atomic_store(&w->ready, false);
	atomic_store(&w->state, WORKER_ENDED);
	return NULL;
}

/* ---- the main thread ---- */

struct process {
	struct worker *workers;
	struct cache *store;
	int64_t n, n_started;
	int signal_fd;
	int status;
	enum phase phase;
	bool ready, published, accept_posted;
	const struct gw_app_ops *ops;
	const struct gw_reload *reload;
	struct gw_snapshot *now; /* counted */
};

/* Posts the new phase to every worker. */
static void set_phase(struct process *p, enum phase to)
{
	BUG_IF(to <= p->phase, "gateway: phase %d to %d", (int)p->phase, (int)to);
	p->phase = to;
	for (int64_t i = 0; i < p->n_started; i++)
		gw_post(&p->workers[i].t, &p->workers[i].phases[to].m);
}

static int start_workers(struct process *p)
{
	struct sl_err err = {0};
	p->n = p->now->cfg.threads;
	p->workers = sl_zalloc_n((size_t)p->n, sizeof *p->workers);
	if (p->workers == NULL)
		return SL_ENOMEM;
	for (int64_t i = 0; i < p->n; i++) {
		struct worker *w = &p->workers[i];
		w->ops = p->ops;
		w->store = p->store;
		w->slot = -1;
		w->accept_msg.run = accept_worker;
		for (int k = 0; k < N_PHASES; k++)
			w->phases[k] = (struct phase_message){.m = {.run = enter_phase}, .to = (enum phase)k};
		snprintf(w->name, sizeof w->name, "gateway-%d", (int)i);
		int rc = gw_thread_init(&w->t, (int)i, &p->now->cfg, &err);
		if (rc != 0) {
			log_error("%s", err.text);
			return rc;
		}
		w->t.snapshot = gw_snapshot_ref(p->now);
		if (pthread_create(&w->id, NULL, run_worker, w) != 0) {
			gw_thread_dispose(&w->t);
			gw_snapshot_unref(w->t.snapshot);
			log_error("cannot create a thread: %s", strerror(errno));
			return SL_EIO;
		}
		p->n_started++;
	}
	return 0;
}

/* Publishes the sockets to the supervisor once all threads have theirs; lets a takeover accept once all are ready. */
static void continue_start(struct process *p, bool all_serve, bool all_ready)
{
	if (all_serve && !p->published) {
		p->published = true;
		handover_publish();
	}
	if (!all_ready || p->accept_posted)
		return;
	p->accept_posted = true;
	for (int64_t i = 0; i < p->n_started; i++)
		gw_post(&p->workers[i].t, &p->workers[i].accept_msg);
}

/* Reads the states of the workers. True once all have ended. */
static bool check_workers(struct process *p)
{
	int64_t over = 0, ready = 0, serve = 0, accept = 0;
	for (int64_t i = 0; i < p->n_started; i++) {
		struct worker *w = &p->workers[i];
		int state = atomic_load(&w->state);
		ready += atomic_load(&w->ready);
		accept += atomic_load(&w->accepts);
		serve += state == WORKER_SERVING;
		over += state == WORKER_FAILED || state == WORKER_ENDED;
		if (state == WORKER_FAILED && p->status == 0) {
			log_error("%s", w->err.text);
			p->status = w->err.code == SL_ENOMEM ? 1 : GATEWAY_EXIT_CONFIG;
		} else if (state == WORKER_ENDED && p->phase == RUNNING && p->status == 0) {
			p->status = 1;
		}
	}
	if (p->status != 0 && p->phase != STOPPING)
		set_phase(p, STOPPING);
	bool all = p->n_started == p->n && p->phase == RUNNING;
	continue_start(p, all && serve == p->n, all && ready == p->n);
	all = all && ready == p->n && accept == p->n;
	if (all != p->ready) {
		p->ready = all;
		beat_ready(all);
		log_info(all ? "ready" : "not ready");
	}
	return over == p->n_started;
}

/* ---- reload ---- */

/* Reads the files again even if their names are the same: their contents may differ. */
static int reload_certificates(struct process *p, const struct gw_config *cfg, struct sl_err *err)
{
	if (!gateway_serves_tls(cfg))
		return 0;
	struct gw_thread **threads = sl_zalloc_n((size_t)p->n_started, sizeof *threads);
	if (threads == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	for (int64_t i = 0; i < p->n_started; i++)
		threads[i] = &p->workers[i].t;
	int rc = tls_reload(cfg, threads, (size_t)p->n_started, err);
	sl_free(threads);
	return rc;
}

/* Does everything that can fail. The batch owns the new snapshot. */
static int prepare_reload(struct process *p, struct reload_batch **out, struct sl_err *err)
{
	struct reload_batch *b = sl_zalloc(sizeof *b + (size_t)p->n_started * sizeof *b->messages);
	if (b == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory");
	int rc = p->reload->load(p->reload->ctx, p->now, &b->next, err);
	if (rc == 0 && p->ops->prepare != NULL)
		rc = p->ops->prepare(b->next, p->now, err);
	if (rc == 0) /* last, because it posts messages */
		rc = reload_certificates(p, &b->next->cfg, err);
	if (rc != 0) {
		if (b->next != NULL)
			gw_snapshot_unref(b->next);
		sl_free(b);
		return rc;
	}
	*out = b;
	return 0;
}

static void reload(struct process *p)
{
	struct reload_batch *b = NULL;
	struct sl_err err = {0};
	if (p->reload == NULL) {
		log_info("SIGHUP: there is nothing to reload");
		return;
	}
	if (prepare_reload(p, &b, &err) != 0) {
		log_error("reload refused, the old configuration stays: %s", err.text);
		return;
	}
	gw_snapshot_unref(p->now);
	p->now = gw_snapshot_ref(b->next);
	atomic_store(&b->n_left, p->n_started);
	for (int64_t i = 0; i < p->n_started; i++) { /* the last one may free b at once */
		struct reload_message *r = &b->messages[i];
		*r = (struct reload_message){.m = {.run = reload_worker}, .batch = b};
		gw_post(&p->workers[i].t, &r->m);
	}
	log_info("reloaded");
}

/* ---- signals ---- */

static void take_signal(struct process *p)
{
	struct signalfd_siginfo si;
	if (read(p->signal_fd, &si, sizeof si) != (ssize_t)sizeof si)
		return;
	if (si.ssi_signo == SIGHUP) {
		if (p->phase == RUNNING)
			reload(p);
	} else if (si.ssi_signo == SIGUSR2) {
		if (p->phase != RUNNING)
			return;
		log_info("replaced: draining");
		set_phase(p, REPLACED);
	} else if (p->phase < DRAINING) {
		log_info("draining");
		set_phase(p, DRAINING);
	} else if (p->phase < STOPPING) {
		log_info("stopping");
		set_phase(p, STOPPING);
	}
}

static void supervise(struct process *p)
{
	while (!check_workers(p)) {
		struct pollfd fd = {.fd = p->signal_fd, .events = POLLIN};
		if (poll(&fd, 1, POLL_MS) > 0)
			take_signal(p);
	}
	for (int64_t i = 0; i < p->n_started; i++) {
		pthread_join(p->workers[i].id, NULL);
		gw_thread_dispose(&p->workers[i].t);
		gw_snapshot_unref(p->workers[i].t.snapshot);
	}
}

/* Everything before the first thread starts. 0, or the exit status. */
static int prepare_start(struct process *p)
{
	const struct gw_config *cfg = &p->now->cfg;
	struct sl_err err = {0};
	int rc = handover_open(cfg->handover_fd, &err);
	if (rc == 0)
		rc = transport_check_ports(cfg, &err);
	if (rc == 0 && p->ops->prepare != NULL)
		rc = p->ops->prepare(p->now, NULL, &err);
	if (rc != 0) {
		log_error("%s", err.text);
		return rc == SL_ENOMEM ? 1 : GATEWAY_EXIT_CONFIG;
	}
	if (p->signal_fd < 0 || beat_start(cfg->beat_fd, cfg->beat_ms, cfg->stale_ms) != 0) {
		log_error("cannot start: %s", strerror(errno));
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	rc = gw_store_create(&cfg->store, gateway_procs, GATEWAY_PROCS, &p->store, &err);
	if (rc == 0)
		return 0;
	log_error("%s", err.text);
	beat_stop();
	return rc == SL_ENOMEM ? 1 : GATEWAY_EXIT_CONFIG;
}

int gateway_serve_snapshot(struct gw_snapshot *first, const struct gw_app_ops *ops, const struct gw_reload *reload)
{
	struct process p = {.ops = ops, .reload = reload, .now = first};
	sigset_t set, before;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR2);
	/* Threads inherit the mask, so signals arrive only at the descriptor. */
	pthread_sigmask(SIG_BLOCK, &set, &before);
	p.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	p.status = prepare_start(&p);
	if (p.status == 0) {
		if (start_workers(&p) != 0)
			p.status = 1;
		supervise(&p);
		cache_destroy(p.store);
		beat_stop();
	}
	handover_close();
	if (p.signal_fd >= 0)
		close(p.signal_fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	sl_free(p.workers);
	gw_snapshot_unref(p.now);
	return p.status;
}

int gateway_serve(const struct gw_config *cfg, const struct gw_app_ops *ops)
{
	struct gw_snapshot *first;
	if (gw_snapshot_create(cfg, NULL, NULL, &first) != 0) {
		log_error("no memory");
		return 1;
	}
	return gateway_serve_snapshot(first, ops, NULL);
}
