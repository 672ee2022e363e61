/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors over a unix socket of messages (SOCK_SEQPACKET), unix(7). One message carries at most 253 of them (the
 * kernel's SCM_MAX_FD), so a larger set takes several. Each carries its offset and the set's size. Offset 0 starts a
 * new set; any other unexpected offset is an error. Messages are queued in the socket with the descriptors in them:
 * what a parent sends before it forks is available to the child at once.
 *
 * Ownership: the sender keeps its descriptors, the receiver gets new ones. Thread: one at each end.
 */
#include "base/fd_pass.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"

enum { PER_MESSAGE = 200 };

struct head {
	uint32_t at, total; /* of the first descriptor in this message; of the set */
};

int fd_pass_pair(int ends[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : SL_EIO;
}

union control {
	char bytes[CMSG_SPACE(PER_MESSAGE * sizeof(int))];
	struct cmsghdr align;
};

static int send_some(int sock, struct head h, const int *fds, size_t n)
{
	union control control;
	struct iovec iov = {.iov_base = &h, .iov_len = sizeof h};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	if (n > 0) {
		memset(&control, 0, sizeof control);
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n * sizeof *fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof *fds);
		memcpy(CMSG_DATA(c), fds, n * sizeof *fds);
	}
	ssize_t sent;
	do {
		sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)sizeof h ? 0 : SL_EIO;
}

int fd_pass_send(int sock, const int *fds, size_t n)
{
	size_t at = 0;
	if (n > FD_PASS_MAX)
		return SL_ELIMIT;
	do {
		size_t some = n - at < PER_MESSAGE ? n - at : PER_MESSAGE;
		int rc = send_some(sock, (struct head){(uint32_t)at, (uint32_t)n}, fds + at, some);
		if (rc != 0)
			return rc;
		at += some;
	} while (at < n);
	return 0;
}

void fd_pass_set_dispose(struct fd_pass_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		close(set->fds[i]);
	set->n = 0;
}

void fd_pass_in_dispose(struct fd_pass_in *in)
{
	fd_pass_set_dispose(&in->part);
	in->total = 0;
}

/* Takes the descriptors out of a message and closes those beyond the limit. False: there were too many. */
static bool take_fds(struct msghdr *msg, struct fd_pass_set *to)
{
	bool room = true;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (to->n < FD_PASS_MAX) {
				to->fds[to->n++] = fd;
			} else {
				close(fd);
				room = false;
			}
		}
	}
	return room;
}

int fd_pass_receive(int sock, struct fd_pass_in *in, struct fd_pass_set *out)
{
	for (;;) {
		union control control;
		struct head h = {0, 0};
		struct iovec iov = {.iov_base = &h, .iov_len = sizeof h};
		struct msghdr msg = {.msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.bytes,
				     .msg_controllen = sizeof control.bytes};
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n <= 0)
			return SL_ECLOSED;
		if (h.at == 0) /* a new set: an incomplete earlier one is dropped */
			fd_pass_in_dispose(in);
		bool fits = h.at == in->part.n && h.total <= FD_PASS_MAX && (h.at == 0 || h.total == in->total);
		bool room = take_fds(&msg, &in->part);
		in->total = h.total;
		if (!fits || !room || n != (ssize_t)sizeof h || in->part.n > in->total ||
		    (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
			fd_pass_in_dispose(in);
			return SL_EPROTO;
		}
		if (in->part.n == in->total) {
			*out = in->part;
			in->part.n = in->total = 0;
			return 1;
		}
	}
}
