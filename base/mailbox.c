/* SPDX-License-Identifier: Apache-2.0
 *
 * A mutex and a list: the lock is held for a few instructions, and the receiver takes everything at once, so contention
 * is rare. The eventfd is written only on the transition from empty to filled.
 */
#include "base/mailbox.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/err.h"

int mailbox_init(struct mailbox *box)
{
	box->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (box->wake_fd < 0)
		return SL_EIO;
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&box->lock, NULL);
	pthread_cond_init(&box->filled, &attr);
	pthread_condattr_destroy(&attr);
	box->first = NULL;
	box->last = &box->first;
	box->nudged = box->woken = false;
	return 0;
}

void mailbox_dispose(struct mailbox *box)
{
	BUG_IF(box->first != NULL, "mailbox disposed with mail in it");
	close(box->wake_fd);
	box->wake_fd = -1;
	pthread_cond_destroy(&box->filled);
	pthread_mutex_destroy(&box->lock);
}

static void wake(struct mailbox *box)
{
	uint64_t one = 1;
	box->woken = true;
	ssize_t n = write(box->wake_fd, &one, sizeof one);
	(void)n; /* fails only when the counter is full: then the receiver is awake already */
}

static void append(struct mailbox *box, struct mail *m)
{
	m->next = NULL;
	*box->last = m;
	box->last = &m->next;
}

void mailbox_keep(struct mailbox *box, struct mail *m)
{
	pthread_mutex_lock(&box->lock);
	append(box, m);
	pthread_mutex_unlock(&box->lock);
}

void mailbox_send(struct mailbox *box, struct mail *m)
{
	pthread_mutex_lock(&box->lock);
	bool was_empty = box->first == NULL;
	append(box, m);
	if (was_empty) {
		wake(box);
		pthread_cond_signal(&box->filled);
	}
	pthread_mutex_unlock(&box->lock);
}

static struct mail *take_locked(struct mailbox *box)
{
	struct mail *all = box->first;
	box->first = NULL;
	box->last = &box->first;
	box->nudged = false;
	if (box->woken) {
		uint64_t count;
		ssize_t n = read(box->wake_fd, &count, sizeof count);
		(void)n;
		box->woken = false;
	}
	return all;
}

struct mail *mailbox_take_all(struct mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	struct mail *all = take_locked(box);
	pthread_mutex_unlock(&box->lock);
	return all;
}

struct mail *mailbox_wait(struct mailbox *box, uint64_t deadline_ns)
{
	pthread_mutex_lock(&box->lock);
	while (box->first == NULL && !box->nudged) {
		if (deadline_ns == UINT64_MAX) {
			cond_wait(&box->filled, &box->lock);
		} else {
			struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
					      .tv_nsec = (long)(deadline_ns % NS_PER_S)};
			if (pthread_cond_timedwait(&box->filled, &box->lock, &ts) == ETIMEDOUT)
				break;
		}
	}
	struct mail *all = take_locked(box);
	pthread_mutex_unlock(&box->lock);
	return all;
}

void mailbox_nudge(struct mailbox *box)
{
	pthread_mutex_lock(&box->lock);
	if (!box->nudged)
		wake(box);
	box->nudged = true;
	pthread_cond_signal(&box->filled);
	pthread_mutex_unlock(&box->lock);
}
