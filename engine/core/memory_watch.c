/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/memory_watch.h"

#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/core/machine_memory.h"
#include "engine/kv/kv_pressure.h"
#include "engine/step/internal.h"

enum { PERIOD_MS = 500 };

struct memory_watch {
	struct engine *e;
	const char *root;
	long period_ms;
	struct kv_pressure pressure;
	bool pressed; /* as last logged */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;
};

static void say(struct memory_watch *w, const struct machine_memory *now, int64_t ask)
{
	if (ask == 0 || (ask > 0) == w->pressed)
		return;
	w->pressed = ask > 0;
	log_info("memory: %llu MiB are available, %llu MiB should stay free: keys and values %s",
		 (unsigned long long)(now->available >> 20), (unsigned long long)(w->pressure.reserve >> 20),
		 w->pressed ? "give memory back" : "may take more again");
}

static void look(struct memory_watch *w)
{
	struct machine_memory now;
	if (machine_memory_read(w->root, NULL, &now) != 0)
		return;
	const struct kv_pressure_reading reading = {.available = now.available,
						    .events = now.events,
						    .stalled = now.stalled,
						    .withheld = atomic_load(&w->e->kv_withheld)};
	int64_t ask = kv_pressure_decide(&w->pressure, &reading);
	say(w, &now, ask);
	if (ask == 0)
		return;
	atomic_store(&w->e->kv_ask, ask);
	mailbox_nudge(&w->e->box);
}

static void wait_a_while(struct memory_watch *w)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += w->period_ms % 1000 * 1000000;
	until.tv_sec += w->period_ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (!w->stop && pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0)
		;
}

static void *run(void *ctx)
{
	struct memory_watch *w = ctx;
	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		pthread_mutex_unlock(&w->lock);
		look(w);
		pthread_mutex_lock(&w->lock);
		wait_a_while(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

struct memory_watch *memory_watch_start(struct engine *e)
{
	struct memory_watch *w = sl_zalloc(sizeof *w);
	pthread_condattr_t monotonic;
	if (w == NULL) {
		log_warn("memory is not watched: out of memory");
		return NULL;
	}
	*w = (struct memory_watch){.e = e,
				   .root = e->cfg.memory_root != NULL ? e->cfg.memory_root : "",
				   .period_ms = e->cfg.memory_watch_ms > 0 ? e->cfg.memory_watch_ms : PERIOD_MS,
				   .pressure = {.reserve = e->memory_reserve, .all = atomic_load(&e->kv_bytes)}};
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (pthread_create(&w->thread, NULL, run, w) == 0)
		return w;
	log_warn("memory is not watched: the thread can't be started");
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->changed);
	sl_free(w);
	return NULL;
}

void memory_watch_stop(struct memory_watch *w)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->changed);
	sl_free(w);
}
