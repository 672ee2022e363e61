/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/memory_watch.h"

#include "base/alloc.h"
#include "base/log.h"
#include "engine/core/machine_memory.h"
#include "engine/core/ticker.h"
#include "engine/kv/kv_pressure.h"
#include "engine/step/internal.h"

enum { PERIOD_MS = 500 };

struct memory_watch {
	struct engine *e;
	const char *root;
	struct kv_pressure pressure;
	bool pressed; /* as last logged */
	struct ticker ticker;
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

static void look(void *ctx)
{
	struct memory_watch *w = ctx;
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

struct memory_watch *memory_watch_start(struct engine *e)
{
	struct memory_watch *w = sl_zalloc(sizeof *w);
	if (w == NULL) {
		log_warn("memory is not watched: out of memory");
		return NULL;
	}
	w->e = e;
	w->root = e->cfg.memory_root != NULL ? e->cfg.memory_root : "";
	w->pressure = (struct kv_pressure){.reserve = e->memory_reserve, .all = atomic_load(&e->kv_bytes)};
	if (ticker_start(&w->ticker, look, w, e->cfg.memory_watch_ms > 0 ? e->cfg.memory_watch_ms : PERIOD_MS) == 0)
		return w;
	log_warn("memory is not watched: the thread can't be started");
	sl_free(w);
	return NULL;
}

void memory_watch_stop(struct memory_watch *w)
{
	if (w == NULL)
		return;
	ticker_stop(&w->ticker);
	sl_free(w);
}
