/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening sockets that outlive this process. The supervisor keeps a copy of each and sends them to the next gateway,
 * after a crash or for an upgrade.
 */
#ifndef GATEWAY_HANDOVER_H
#define GATEWAY_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

/* Main thread, before any other starts. Receives the sockets that the supervisor has sent to fd, and takes fd. fd ≤ 0:
 * there is no supervisor, and the other functions do nothing. 0 or SL_EIO. */
int handover_open(int fd, struct sl_err *err);
/* The same without a supervisor: duplicates of these sockets were inherited. For a process that checks a configuration
 * while it holds the sockets itself. 0 or SL_EIO. */
int handover_hold(const int *fds, size_t n);
/* Did the supervisor send sockets: does this process succeed another one? Any thread. */
bool handover_given(void);
/* The number of inherited sockets that listen on an address. Any thread. */
size_t handover_count(const struct sockaddr *sa);
/* A duplicate of the k-th of them, which the caller owns; SL_EIO. Any thread. */
int handover_take(const struct sockaddr *sa, size_t k);
/* Adds a listening socket to those that the supervisor will keep; borrowed. Any thread. */
void handover_note(int fd);
/* Main thread, when all threads listen: sends the taken and noted sockets to the supervisor, which replaces its copies.
 */
int handover_publish(void);
/* Main thread, when all others have ended. Closes the remaining descriptors. */
void handover_close(void);

#endif
