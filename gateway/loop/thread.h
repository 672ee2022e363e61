/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: a gateway thread's event loop, its timers (timer.h, deadline.h), addresses (net_addr.h) and random names
 * (random.h). All gateway rooms may use it.
 *
 * A thread has its own listeners (SO_REUSEPORT), connections, engine link and application state. Threads share
 * configuration snapshots (snapshot.h), the metrics registry and the generation directory, and no data that each
 * request writes.
 *
 *   turn      one iteration of the loop: it waits for events and handles all that are ready
 *   deferred  work that becomes due during a turn (flushes, frees), queued with gw_defer and run once at the end.
 *             Connections' output (gw_defer_output) may be written earlier (gw_run_output)
 *   message   work for another thread, queued with gw_post in its inbox
 *
 * Thread: each function belongs to the thread of its argument, except gw_post.
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

struct gw_transport; /* listeners and connections of this thread */
struct gw_app;       /* the application's state of this thread */
struct engine_link;
struct cache_client;
struct gw_snapshot;

/* Work to run once at the end of the turn. Embedded in its owner; init with gw_defer_init. */
struct gw_deferred {
	struct list node;
	void (*run)(struct gw_deferred *d);
};

struct gw_thread {
	int index;                    /* 0 … n_threads - 1 */
	const struct gw_config *cfg;  /* the newest; a reload replaces it between two events */
	struct gw_snapshot *snapshot; /* of cfg; NULL: a thread without a process, in tests */
	struct event_base *base;
	struct mailbox inbox; /* struct gw_message from other threads */
	struct event *inbox_event;
	struct list deferred; /* struct gw_deferred */
	struct list output;   /* struct gw_deferred of connections with output */
	uint64_t turn;        /* counts the turns */
	uint64_t now_ns;      /* by gw_now */
	struct gw_timers timers;
	bool draining;
	bool replaced; /* draining, while another process serves on the same addresses */
	struct gw_transport *transport;
	struct gw_app *app;
	struct engine_link *link;
	struct cache_client *cache; /* this thread's client of the store; outlives app. NULL: tests */
};

/* Creates the loop and the inbox; the caller fills in the rest of *t. On failure it releases everything. */
int gw_thread_init(struct gw_thread *t, int index, const struct gw_config *cfg, struct sl_err *err);
/* Runs the remaining deferred functions (frees). Destroy transport, application and link first. */
void gw_thread_dispose(struct gw_thread *t);
/* One turn. 0 or SL_EIO. */
int gw_thread_turn(struct gw_thread *t);

/* The time at which the current work began. The clock is read once per readable socket and once before the deferred
 * functions. Use it for limits, never to measure durations. */
static inline uint64_t gw_now(const struct gw_thread *t) { return t->now_ns; }
static inline uint64_t gw_read_clock(struct gw_thread *t) { return t->now_ns = clock_now_ns(); }

/* A message to another thread: run is called there, between two events, and owns it. */
struct gw_message {
	struct mail mail;
	void (*run)(struct gw_thread *t, struct gw_message *m);
};

void gw_defer_init(struct gw_deferred *d, void (*run)(struct gw_deferred *d));
/* Queues d unless it is queued already. */
void gw_defer(struct gw_thread *t, struct gw_deferred *d);
/* The same for a connection's output. */
void gw_defer_output(struct gw_thread *t, struct gw_deferred *d);
/* Writes queued output now, in the middle of an event that feeds many streams. Nothing is freed. */
void gw_run_output(struct gw_thread *t);
void gw_defer_cancel(struct gw_deferred *d);
/* Any thread. Takes m. */
void gw_post(struct gw_thread *to, struct gw_message *m);

#endif
