/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits on condition variables that don't rely on being woken: glibc before 2.41 may lose a wake-up when threads wait
 * and are woken in quick succession (https://sourceware.org/bugzilla/show_bug.cgi?id=25847).
 */
#ifndef BASE_COND_H
#define BASE_COND_H

#include <pthread.h>
#include <time.h>

enum { COND_LOOK_MS = 100 };

/* As pthread_cond_wait, but returns after COND_LOOK_MS at most: callers look at their condition in a loop anyway. */
static inline void cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += COND_LOOK_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &until);
}

#endif
