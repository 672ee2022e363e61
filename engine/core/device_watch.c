/* SPDX-License-Identifier: Apache-2.0
 *
 * The polling thread and its owner share struct device_watch with a reference count of two; the last to leave frees it.
 * Stopping therefore waits at most STOP_MS for the driver.
 */
#include "engine/core/device_watch.h"

#include <pthread.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/core/ticker.h"
#include "kernels/backend/nvml.h"

enum { PERIOD_MS = 500, STOP_MS = 2000, STALE_MS = 10000 };

struct device_watch {
	struct kn_nvml *nvml; /* the thread's */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop, ended;
	int users;
	struct proto_device last;
	uint64_t read_ns;              /* of it */
	bool told_silent, told_absurd; /* the thread's, as are Xids that are logged */
	uint64_t told_xids;
};

/* With the lock held; releases it. */
static void leave(struct device_watch *w)
{
	bool last = --w->users == 0;
	pthread_mutex_unlock(&w->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->changed);
	sl_free(w);
}

static struct proto_device report_of(const struct kn_device_state *s)
{
	return (struct proto_device){
	    .known = 1,
	    .busy_percent = s->busy_percent,
	    .memory_busy_percent = s->memory_busy_percent,
	    .memory_bytes = s->memory_bytes,
	    .memory_used_bytes = s->memory_used_bytes,
	    .celsius = s->celsius,
	    .milliwatts = s->milliwatts,
	    .limit_milliwatts = s->limit_milliwatts,
	    .sm_mhz = s->sm_mhz,
	    .memory_mhz = s->memory_mhz,
	    .slowed = s->slowed,
	    .ecc_uncorrected = s->ecc_uncorrected,
	    .nvlinks = s->nvlinks,
	    .nvlink_replays = s->nvlink_replays,
	    .nvlink_crc = s->nvlink_crc,
	    .pcie_replays = s->pcie_replays,
	    .pcie_sent = s->pcie_sent,
	    .pcie_received = s->pcie_received,
	    .xids = s->xids,
	    .last_xid = s->last_xid,
	};
}

/* Once: a driver that errs does so again and again. */
static void say(struct device_watch *w, int rc, const struct kn_device_state *s)
{
	if (rc != 0 && !w->told_silent)
		log_warn("the device's driver does not report its state: figures of the device are missing meanwhile");
	if (rc == 0 && s->absurd != NULL && !w->told_absurd)
		log_warn("the device's driver reports a %s that cannot be: such figures are left out", s->absurd);
	if (rc == 0 && s->xids > w->told_xids)
		log_error("the device's driver reports a critical error: Xid %u (%llu so far)", s->last_xid,
			  (unsigned long long)s->xids);
	w->told_xids = rc == 0 ? s->xids : w->told_xids;
	w->told_silent = w->told_silent || rc != 0;
	w->told_absurd = w->told_absurd || (rc == 0 && s->absurd != NULL);
}

static void *run(void *arg)
{
	struct device_watch *w = arg;
	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct kn_device_state s;
		pthread_mutex_unlock(&w->lock);
		int rc = kn_nvml_read(w->nvml, &s);
		say(w, rc, &s);
		pthread_mutex_lock(&w->lock);
		w->last = rc == 0 ? report_of(&s) : (struct proto_device){0};
		w->read_ns = clock_now_ns();
		ticker_wait(&w->changed, &w->lock, &w->stop, PERIOD_MS);
	}
	pthread_mutex_unlock(&w->lock);
	kn_nvml_close(w->nvml);
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_broadcast(&w->changed);
	leave(w);
	return NULL;
}

struct device_watch *device_watch_start(const char *library, const char *pci)
{
	struct sl_err err = {0};
	struct device_watch *w = sl_zalloc(sizeof *w);
	pthread_t thread;
	if (w == NULL || kn_nvml_open(library, pci, &w->nvml, &err) != 0) {
		log_info("no device metrics: %s", w == NULL ? "out of memory" : err.text);
		sl_free(w);
		return NULL;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->users = 2;
	if (pthread_create(&thread, NULL, run, w) != 0) {
		log_info("no device metrics: the thread can't be started");
		kn_nvml_close(w->nvml);
		w->users = 1;
		pthread_mutex_lock(&w->lock);
		leave(w);
		return NULL;
	}
	pthread_detach(thread);
	return w;
}

void device_watch_stop(struct device_watch *w)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->changed);
	ticker_wait(&w->changed, &w->lock, &w->ended, STOP_MS);
	if (!w->ended)
		log_warn("the device driver does not respond");
	leave(w);
}

void device_watch_read(struct device_watch *w, struct proto_device *out)
{
	*out = (struct proto_device){0};
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	/* A driver that hangs tells nothing of now. */
	if (clock_now_ns() - w->read_ns < STALE_MS * (uint64_t)NS_PER_MS)
		*out = w->last;
	pthread_mutex_unlock(&w->lock);
}
