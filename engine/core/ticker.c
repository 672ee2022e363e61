/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/core/ticker.h"

#include <time.h>

#include "base/err.h"

void ticker_wait(pthread_cond_t *changed, pthread_mutex_t *lock, const bool *end, long ms)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ms % 1000 * 1000000;
	until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (!*end && pthread_cond_clockwait(changed, lock, CLOCK_MONOTONIC, &until) == 0)
		;
}

static void *run(void *ctx)
{
	struct ticker *t = ctx;
	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		pthread_mutex_unlock(&t->lock);
		t->tick(t->ctx);
		pthread_mutex_lock(&t->lock);
		ticker_wait(&t->changed, &t->lock, &t->stop, t->period_ms);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void dispose(struct ticker *t)
{
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->changed);
}

int ticker_start(struct ticker *t, void (*tick)(void *ctx), void *ctx, long period_ms)
{
	*t = (struct ticker){.tick = tick, .ctx = ctx, .period_ms = period_ms};
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->changed, NULL);
	if (pthread_create(&t->thread, NULL, run, t) == 0)
		return 0;
	dispose(t);
	return SL_EIO;
}

void ticker_stop(struct ticker *t)
{
	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	dispose(t);
}
