/* SPDX-License-Identifier: Apache-2.0
 *
 * A gateway thread: one event loop with its own listeners (SO_REUSEPORT), connections, engine link
 * and application state. Threads share states of the configuration (snapshot.h), the metrics registry
 * and the generation directory; nothing hot.
 *
 * The end of a turn: whatever becomes due during a turn of the loop (flushes, deferred frees) is
 * queued with gw_defer and run once, after all events of the turn. What connections have to write
 * (gw_defer_output) may go out before that (gw_run_output).
 */
#ifndef GATEWAY_THREAD_H
#define GATEWAY_THREAD_H

#include <event2/event.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "gateway/config/gw_config.h"
#include "gateway/loop/timer.h"

struct gw_transport; /* listener.c: listeners and connections of this thread */
struct gw_app;       /* app.c: the application's state of this thread */
struct engine_link;
struct cache_client;
struct gw_snapshot;

/* Something to do once at the end of the turn. Embedded in its owner; init with gw_defer_init. */
struct gw_deferred {
	struct list node;
	void (*run)(struct gw_deferred *d);
};

struct gw_thread {
	int index;                    /* 0 … n_threads - 1 */
	const struct gw_config *cfg;  /* the newest; a reload changes it between two events */
	struct gw_snapshot *snapshot; /* that cfg is of; NULL: a thread without a process, in tests */
	struct event_base *base;
	struct mailbox inbox; /* struct gw_message: from other threads */
	struct event *inbox_event;
	struct list deferred; /* struct gw_deferred */
	struct list output;   /* the same, of connections that have something to write */
	uint64_t turn;        /* how many there were */
	uint64_t now_ns;      /* by gw_now */
	struct gw_timers timers;
	bool draining;
	bool replaced; /* draining, and another process serves at the same addresses */
	struct gw_transport *transport;
	struct gw_app *app;
	struct engine_link *link;
	struct cache_client *cache; /* this thread's door to the store; outlives app. NULL: tests */
};

/* Makes the loop and the inbox; the rest of *t is the caller's to fill. On failure nothing is left. */
int gw_thread_init(struct gw_thread *t, int index, const struct gw_config *cfg, struct sl_err *err);
/* Transport, application and link have been destroyed before. Runs what is still deferred (frees). */
void gw_thread_dispose(struct gw_thread *t);
/* One turn: waits for events, handles all of them, runs the deferred. 0 or SL_EIO. */
int gw_thread_turn(struct gw_thread *t);

/* The time at which what happens now began to be handled: read once for a readable socket and once
 * for the deferred, not for every event in them. For limits, never to measure durations. */
static inline uint64_t gw_now(const struct gw_thread *t) { return t->now_ns; }
static inline uint64_t gw_read_clock(struct gw_thread *t) { return t->now_ns = clock_now_ns(); }

/* A message to another thread: runs there, between two events; owns itself. */
struct gw_message {
	struct mail mail;
	void (*run)(struct gw_thread *t, struct gw_message *m);
};

void gw_defer_init(struct gw_deferred *d, void (*run)(struct gw_deferred *d));
/* Queues d unless it is queued already. */
void gw_defer(struct gw_thread *t, struct gw_deferred *d);
/* The same for a connection's output. */
void gw_defer_output(struct gw_thread *t, struct gw_deferred *d);
/* Output that is due now goes out now: in the middle of an event, which handles many things one after the
 * other and is between two of them. Nothing is freed. */
void gw_run_output(struct gw_thread *t);
void gw_defer_cancel(struct gw_deferred *d);
/* Any thread. Takes m. */
void gw_post(struct gw_thread *to, struct gw_message *m);

#endif
