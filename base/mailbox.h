/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between threads: many senders, one receiver, in order per sender. Nodes are embedded in the message;
 * ownership passes from sender to receiver. The wake descriptor (an eventfd) becomes readable when the box goes from
 * empty to not empty, so a receiver can wait for it in an event loop. The box has no bound: each sender limits what it
 * has in flight.
 */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mail {
	struct mail *next;
};

struct mailbox {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct mail *first, **last;
	int wake_fd;
	bool nudged; /* since the receiver last took */
	bool woken;  /* wake_fd has been written since then */
};

/* 0 or SL_EIO. */
int mailbox_init(struct mailbox *m);
/* The box must be empty; BUG otherwise. */
void mailbox_dispose(struct mailbox *m);
/* Any thread. Takes m. */
void mailbox_send(struct mailbox *box, struct mail *m);
/* Receiver only, to itself: without the wake. It takes before it waits. */
void mailbox_keep(struct mailbox *box, struct mail *m);
/* Receiver only. Takes the whole chain, oldest first (NULL when empty), and clears the wake. */
struct mail *mailbox_take_all(struct mailbox *box);
/* Receiver only: blocks until a message arrives, mailbox_nudge is called or the monotonic deadline passes
 * (UINT64_MAX: no deadline), then as mailbox_take_all. */
struct mail *mailbox_wait(struct mailbox *box, uint64_t deadline_ns);
/* Wakes the receiver without a message. */
void mailbox_nudge(struct mailbox *box);

#endif
