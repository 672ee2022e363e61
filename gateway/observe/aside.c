/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread takes the whole buffer and leaves an empty one, so a caller of aside_put waits for a copy at most. It is
 * detached and frees itself.
 */
#include "gateway/observe/aside.h"

#include <pthread.h>
#include <time.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

struct aside {
	struct aside_ops ops;
	void *ctx;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct sl_buf waiting;
	bool stops;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_ended = PTHREAD_COND_INITIALIZER;
static int n_ending;

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

/* Waits for lines and takes them. False: it stops, and there are none. */
static bool next(struct aside *a, struct sl_buf *out)
{
	pthread_mutex_lock(&a->lock);
	while (!a->stops && a->waiting.len == 0)
		pthread_cond_wait(&a->changed, &a->lock);
	struct timespec until = in_ms(a->ops.linger_ms);
	while (!a->stops && a->ops.linger_ms > 0 && a->waiting.len < a->ops.max_bytes / 2 &&
	       pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0)
		;
	*out = a->waiting;
	buf_init(&a->waiting, (uint32_t)a->ops.max_bytes);
	pthread_mutex_unlock(&a->lock);
	return out->len > 0;
}

static void *run(void *arg)
{
	struct aside *a = arg;
	struct sl_buf lines;
	pthread_setname_np(pthread_self(), a->ops.thread);
	while (next(a, &lines)) {
		a->ops.take(a->ctx, (const char *)buf_data(&lines), lines.len);
		buf_dispose(&lines);
	}
	buf_dispose(&lines);
	a->ops.dispose(a->ctx);
	buf_dispose(&a->waiting);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	sl_free(a);
	pthread_mutex_lock(&all_lock);
	n_ending--;
	pthread_cond_broadcast(&one_ended);
	pthread_mutex_unlock(&all_lock);
	return NULL;
}

static void init_cond(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

int aside_create(const struct aside_ops *ops, void *ctx, struct aside **out)
{
	pthread_attr_t attr;
	pthread_t thread;
	struct aside *a = sl_zalloc(sizeof *a);
	*out = NULL;
	if (a == NULL)
		return SL_ENOMEM;
	a->ops = *ops;
	a->ctx = ctx;
	buf_init(&a->waiting, (uint32_t)ops->max_bytes);
	pthread_mutex_init(&a->lock, NULL);
	init_cond(&a->changed);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int rc = pthread_create(&thread, &attr, run, a);
	pthread_attr_destroy(&attr);
	if (rc != 0) {
		pthread_cond_destroy(&a->changed);
		pthread_mutex_destroy(&a->lock);
		sl_free(a);
		return SL_EIO;
	}
	*out = a;
	return 0;
}

bool aside_put(struct aside *a, const void *line, size_t n)
{
	pthread_mutex_lock(&a->lock);
	bool put = buf_append(&a->waiting, line, n) == 0;
	if (put)
		pthread_cond_signal(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return put;
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
	const uint64_t until = clock_now_ns() + ms * NS_PER_MS;
	pthread_mutex_lock(&all_lock);
	while (n_ending > 0 && clock_now_ns() < until) {
		struct timespec at;
		clock_gettime(CLOCK_REALTIME, &at);
		at.tv_nsec += 10 * 1000000;
		at.tv_sec += at.tv_nsec / 1000000000;
		at.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&one_ended, &all_lock, &at);
	}
	bool all = n_ending == 0;
	pthread_mutex_unlock(&all_lock);
	return all;
}
