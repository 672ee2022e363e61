/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets that outlive this process: the supervisor keeps a copy of each and gives them to
 * the next gateway, after a crash and in an upgrade.
 */
#ifndef GATEWAY_HANDOVER_H
#define GATEWAY_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

/* Main thread, before any other starts: takes what the supervisor has sent to fd (taken over; 0 or
 * less: there is no supervisor, and the rest does nothing). */
int handover_open(int fd, struct sl_err *err);
/* The supervisor gave some: this process comes after another one. Any thread. */
bool handover_given(void);
/* How many given sockets listen on an address. Any thread. */
size_t handover_count(const struct sockaddr *sa, socklen_t len);
/* The k-th of them, as a descriptor of the caller's own; SL_EIO. Any thread. */
int handover_take(const struct sockaddr *sa, socklen_t len, size_t k);
/* This one listens and is to be kept; borrowed. Any thread. */
void handover_note(int fd);
/* Main thread, once all threads listen: what was taken or noted replaces what the supervisor keeps. */
int handover_publish(void);
/* Closes what is left of it. No other thread is there any more. */
void handover_close(void);

#endif
