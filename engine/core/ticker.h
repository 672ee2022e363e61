/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that does the same again and again, with a pause after each time, until it is stopped. Private to engine/.
 */
#ifndef ENGINE_TICKER_H
#define ENGINE_TICKER_H

#include <pthread.h>
#include <stdbool.h>

/* Waits until *end is set or ms have passed; changed is signalled when it is. Of CLOCK_MONOTONIC. With the lock held.
 */
void ticker_wait(pthread_cond_t *changed, pthread_mutex_t *lock, const bool *end, long ms);

struct ticker {
	void (*tick)(void *ctx);
	void *ctx;
	long period_ms;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop;
};

/* Calls tick(ctx) at once, and again period_ms after each call. SL_EIO: the thread can't be started. */
int ticker_start(struct ticker *t, void (*tick)(void *ctx), void *ctx, long period_ms);
/* Of one that was started: returns once tick does. */
void ticker_stop(struct ticker *t);

#endif
