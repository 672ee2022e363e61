/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/slow_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/core/device_watch.h"
#include "engine/core/ticker.h"
#include "engine/sched/slowdown.h"
#include "engine/step/internal.h"

enum { PERIOD_MS = 500, MAX_TEXT = 4096, MAX_PATH = 4096 };

struct slow_watch {
	struct engine *e;
	const char *root;
	struct slowdown slowdown;
	struct ticker ticker;
};

/* ---- the processor ---- */

/* The file of its control group, of version 2: a line "0::/path". */
static bool own_pressure(const char *root, char path[MAX_PATH])
{
	char text[MAX_TEXT];
	if (file_read_text(root, "/proc/self/cgroup", text, sizeof text) == 0)
		return false;
	for (char *line = text, *next; line != NULL; line = next) {
		if ((next = strchr(line, '\n')) != NULL)
			*next++ = '\0';
		if (strncmp(line, "0::/", 4) == 0 && strstr(line, "/..") == NULL)
			return (size_t)snprintf(path, MAX_PATH, "/sys/fs/cgroup%s/cpu.pressure",
						line[4] != '\0' ? line + 3 : "") < MAX_PATH;
	}
	return false;
}

/* `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345` */
static bool stalled_of(const char *text, uint64_t *us)
{
	const char *total = strncmp(text, "some ", 5) == 0 ? strstr(text, "total=") : NULL;
	if (total == NULL || total[6] < '0' || total[6] > '9')
		return false;
	*us = strtoull(total + 6, NULL, 10);
	return true;
}

bool slow_watch_read_cpu(const char *root, uint64_t *us)
{
	char path[MAX_PATH], text[MAX_TEXT];
	if (own_pressure(root, path) && file_read_text(root, path, text, sizeof text) > 0 && stalled_of(text, us))
		return true;
	return file_read_text(root, "/proc/pressure/cpu", text, sizeof text) > 0 && stalled_of(text, us);
}

/* ---- the thread ---- */

static void say(const struct slowdown_news *news)
{
	static const char *const what[SLOWDOWN_N] = {[SLOWDOWN_DEVICE] =
							 "the device is held down by its temperature or power",
						     [SLOWDOWN_CPU] = "the processor is short"};
	static const char *const over[SLOWDOWN_N] = {[SLOWDOWN_DEVICE] = "the device is not held down any more",
						     [SLOWDOWN_CPU] = "the processor is not short any more"};
	for (int i = 0; i < SLOWDOWN_N; i++) {
		if (news->slowed >> i & 1)
			log_info("%s: steps keep the tiers' itl_target by fewer sequences", what[i]);
		if (news->calm >> i & 1)
			log_info("%s", over[i]);
		if (news->unsteady >> i & 1)
			log_warn("%s again and again: that counts until there was none for %d minutes", what[i],
				 SLOWDOWN_TURNS_S / 60);
	}
}

static void look(void *ctx)
{
	struct slow_watch *w = ctx;
	struct engine *e = w->e;
	struct proto_device d;
	struct slowdown_reading r = {.now_ns = clock_now_ns()};
	device_watch_read(atomic_load(&e->watch), &d);
	r.has_device = d.known != 0;
	r.device_slowed = d.slowed;
	/* A device computes whatever the processor does meanwhile. */
	r.has_cpu = !e->ops->ahead && slow_watch_read_cpu(w->root, &r.cpu_stalled_us);
	const struct slowdown_news news = slowdown_take(&w->slowdown, &r);
	say(&news);
	const bool is = slowdown_is(&w->slowdown);
	if (is && atomic_load(&e->slowed) == 0)
		atomic_fetch_add(&e->slowdowns, 1);
	atomic_store(&e->slowed, is);
}

struct slow_watch *slow_watch_start(struct engine *e)
{
	struct slow_watch *w = sl_zalloc(sizeof *w);
	if (w == NULL) {
		log_warn("whether the engine is slowed is not watched: out of memory");
		return NULL;
	}
	w->e = e;
	w->root = e->cfg.memory_root != NULL ? e->cfg.memory_root : "";
	if (ticker_start(&w->ticker, look, w, e->cfg.slow_watch_ms > 0 ? e->cfg.slow_watch_ms : PERIOD_MS) == 0)
		return w;
	log_warn("whether the engine is slowed is not watched: the thread can't be started");
	sl_free(w);
	return NULL;
}

void slow_watch_stop(struct slow_watch *w)
{
	if (w == NULL)
		return;
	ticker_stop(&w->ticker);
	sl_free(w);
}
