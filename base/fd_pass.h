/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of descriptors between a process and its children, over a socket (SCM_RIGHTS). A set is sent and received whole:
 * an incomplete set is dropped and its descriptors are closed.
 */
#ifndef BASE_FD_PASS_H
#define BASE_FD_PASS_H

#include <stddef.h>

enum { FD_PASS_MAX = 1024 };

struct fd_pass_set {
	int fds[FD_PASS_MAX]; /* owned */
	size_t n;
};

/* Two non-blocking, close-on-exec ends. 0 or SL_EIO. */
int fd_pass_pair(int ends[2]);
/* fds are borrowed. 0; SL_ELIMIT: more than FD_PASS_MAX; SL_EIO: the peer is gone or its queue is full. */
int fd_pass_send(int sock, const int *fds, size_t n);

/* The part of a set received so far. Initially zeroed. */
struct fd_pass_in {
	struct fd_pass_set part;
	size_t total;
};

/* 1: *out is a whole set, which the caller owns; 0: none yet; SL_ECLOSED: the peer is gone; SL_EPROTO: a malformed
 * message. Descriptors are closed by exec. Does not block. */
int fd_pass_receive(int sock, struct fd_pass_in *in, struct fd_pass_set *out);
void fd_pass_in_dispose(struct fd_pass_in *in);
/* Closes its descriptors. */
void fd_pass_set_dispose(struct fd_pass_set *set);

#endif
