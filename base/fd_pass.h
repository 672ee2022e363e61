/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of descriptors between a process and its children, over a socket (SCM_RIGHTS). A set is sent
 * whole and taken whole: one that comes only in part is dropped with everything in it.
 */
#ifndef BASE_FD_PASS_H
#define BASE_FD_PASS_H

#include <stddef.h>

enum { FD_PASS_MAX = 1024 };

struct fd_pass_set {
	int fds[FD_PASS_MAX]; /* owned */
	size_t n;
};

/* Two ends that do not block and are closed by exec. 0 or SL_EIO. */
int fd_pass_pair(int ends[2]);
/* fds are borrowed. 0; SL_ELIMIT: more than FD_PASS_MAX; SL_EIO: the peer has gone or takes nothing. */
int fd_pass_send(int sock, const int *fds, size_t n);

/* What has come so far of a set. Zeroed to begin with. */
struct fd_pass_in {
	struct fd_pass_set part;
	size_t total;
};

/* 1: *out is a whole set, which the caller owns; 0: none yet; SL_ECLOSED: the peer has gone;
 * SL_EPROTO: something else came. Descriptors are closed by exec. Does not block. */
int fd_pass_receive(int sock, struct fd_pass_in *in, struct fd_pass_set *out);
void fd_pass_in_dispose(struct fd_pass_in *in);
/* Closes what is in it. */
void fd_pass_set_dispose(struct fd_pass_set *set);

#endif
