/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread takes the whole buffer and leaves an empty one, so a caller of aside_put waits for a copy at most. It is
 * detached and frees itself.
 */
#include "gateway/observe/aside.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/cond.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

struct aside {
	const struct aside_ops *ops;
	void *ctx;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct sl_buf waiting;
	int64_t n_waiting; /* lines */
	bool stops, full;  /* full: the last line found no room, which is logged */
};

struct batch {
	struct sl_buf lines;
	int64_t n;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_ended = PTHREAD_COND_INITIALIZER;
static int n_ending;

/* Of CLOCK_MONOTONIC, which does not step. */
static struct timespec in_ms(unsigned ms)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += (long)(ms % 1000) * 1000000;
	if (at.tv_nsec >= 1000000000) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000;
	}
	return at;
}

static bool is_half_full(const struct aside *a) { return a->waiting.len >= a->ops->max_bytes / 2; }

/* Waits for lines and takes them. False: it stops, and there are none. */
static bool next(struct aside *a, struct batch *out)
{
	pthread_mutex_lock(&a->lock);
	while (!a->stops && a->n_waiting == 0)
		cond_wait(&a->changed, &a->lock);
	struct timespec until = in_ms(a->ops->linger_ms);
	while (!a->stops && a->ops->linger_ms > 0 && !is_half_full(a) &&
	       pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	*out = (struct batch){.lines = a->waiting, .n = a->n_waiting};
	buf_init(&a->waiting, a->ops->max_bytes);
	a->n_waiting = 0;
	pthread_mutex_unlock(&a->lock);
	return out->n > 0;
}

static void *run(void *arg)
{
	struct aside *a = arg;
	struct batch b;
	pthread_setname_np(pthread_self(), a->ops->thread);
	while (next(a, &b)) {
		bool good = a->ops->take(a->ctx, (const char *)buf_data(&b.lines), b.lines.len);
		metric_add(good ? a->ops->taken : a->ops->failed, b.n);
		buf_dispose(&b.lines);
	}
	a->ops->dispose(a->ctx);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	sl_free(a);
	pthread_mutex_lock(&all_lock);
	n_ending--;
	pthread_cond_broadcast(&one_ended);
	pthread_mutex_unlock(&all_lock);
	return NULL;
}

int aside_create(const struct aside_ops *ops, void *ctx, struct aside **out, struct sl_err *err)
{
	pthread_attr_t attr;
	pthread_t thread;
	struct aside *a = sl_zalloc(sizeof *a);
	*out = NULL;
	if (a == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", ops->key);
	a->ops = ops;
	a->ctx = ctx;
	buf_init(&a->waiting, ops->max_bytes);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int rc = pthread_create(&thread, &attr, run, a);
	pthread_attr_destroy(&attr);
	if (rc != 0) {
		pthread_cond_destroy(&a->changed);
		pthread_mutex_destroy(&a->lock);
		sl_free(a);
		return sl_errf(err, SL_EIO, "%s: no thread can be started: %s", ops->key, strerror(rc));
	}
	*out = a;
	return 0;
}

void aside_put(struct aside *a, int rc, const struct sl_buf *line)
{
	pthread_mutex_lock(&a->lock);
	bool was_empty = a->n_waiting == 0, was_half_full = is_half_full(a), was_full = a->full;
	if (rc == 0)
		rc = buf_append(&a->waiting, buf_data(line), line->len);
	a->n_waiting += rc == 0;
	a->full = rc != 0;
	/* Lines in between change nothing that the thread waits for. */
	if (rc == 0 && (was_empty || is_half_full(a) != was_half_full))
		pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (rc == 0)
		return;
	metric_add(a->ops->full, 1);
	if (!was_full)
		log_warn("%s: a full queue, or no memory: lines are dropped until there is room", a->ops->key);
}

void aside_destroy(struct aside *a)
{
	if (a == NULL)
		return;
	pthread_mutex_lock(&all_lock);
	n_ending++;
	pthread_mutex_unlock(&all_lock);
	pthread_mutex_lock(&a->lock);
	a->stops = true;
	pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

bool aside_wait(unsigned ms)
{
	struct timespec until = in_ms(ms);
	int rc = 0;
	pthread_mutex_lock(&all_lock);
	while (n_ending > 0 && rc == 0)
		rc = pthread_cond_clockwait(&one_ended, &all_lock, CLOCK_MONOTONIC, &until);
	bool all = n_ending == 0;
	pthread_mutex_unlock(&all_lock);
	return all;
}
