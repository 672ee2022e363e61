/* SPDX-License-Identifier: Apache-2.0
 *
 * A message is a head followed by a path or an address; a descriptor travels beside it (SCM_RIGHTS, unix(7)). Every
 * message is checked against its length: an attacker may control the other process.
 *
 * An answer carries its request's serial number, so a late answer is not mistaken for the next one.
 */
#include "base/broker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

enum { WAIT_MS = 10000 };

struct request {
	uint32_t op, serial, mode, n; /* n bytes follow */
	uint64_t dev, ino;
};

struct answer {
	uint32_t serial;
	int32_t result; /* 0 or -errno */
	uint32_t mode, has_fd;
	uint64_t bytes, dev, ino;
};

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

/* ---- both ends ---- */

static ssize_t send_message(int line, const void *head, size_t n_head, const void *rest, size_t n_rest, int fd)
{
	union control control;
	struct iovec iov[2] = {{(void *)(uintptr_t)head, n_head}, {(void *)(uintptr_t)rest, n_rest}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n_rest > 0 ? 2 : 1};
	if (fd >= 0) {
		memset(&control, 0, sizeof control);
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	ssize_t n;
	do {
		n = sendmsg(line, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* *fd: the one descriptor of the message, or -1. There is no room for more; the kernel closes the others. */
static ssize_t receive_message(int line, void *head, size_t n_head, void *rest, size_t n_rest, int *fd)
{
	union control control;
	struct iovec iov[2] = {{head, n_head}, {rest, n_rest}};
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = n_rest > 0 ? 2 : 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof control.bytes};
	ssize_t n;
	*fd = -1;
	do {
		n = recvmsg(line, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return n;
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof *fd))
		memcpy(fd, CMSG_DATA(c), sizeof *fd);
	return n;
}

/* ---- the client ---- */

static struct {
	pthread_mutex_t lock;
	int line;
	uint32_t serial;
} us = {.lock = PTHREAD_MUTEX_INITIALIZER, .line = -1};

void broker_use(int fd) { us.line = fd; }
bool broker_there(void) { return us.line >= 0; }

static bool wait_for(short what, uint64_t until_ns)
{
	for (;;) {
		uint64_t now = clock_now_ns();
		struct pollfd p = {.fd = us.line, .events = what};
		if (now >= until_ns)
			return false;
		int n = poll(&p, 1, (int)((until_ns - now) / NS_PER_MS) + 1);
		if (n > 0)
			return true;
		if (n < 0 && errno != EINTR)
			return false;
	}
}

/* With the lock held. */
static int exchange(const struct request *r, const void *rest, int fd_out, struct answer *a)
{
	uint64_t until_ns = clock_now_ns() + WAIT_MS * NS_PER_MS;
	while (send_message(us.line, r, sizeof *r, rest, r->n, fd_out) < 0) {
		if (errno != EAGAIN)
			return -errno;
		if (!wait_for(POLLOUT, until_ns))
			return -ETIMEDOUT;
	}
	for (;;) {
		int fd;
		ssize_t n = receive_message(us.line, a, sizeof *a, NULL, 0, &fd);
		if (n == (ssize_t)sizeof *a && a->serial == r->serial) {
			if ((fd >= 0) == (a->has_fd != 0))
				return fd >= 0 ? fd : a->result < 0 ? a->result : 0;
			n = -1, errno = EMFILE; /* this process has no free descriptor */
		}
		if (fd >= 0)
			close(fd);
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EAGAIN)
			return -errno;
		if (n < 0 && !wait_for(POLLIN, until_ns))
			return -ETIMEDOUT;
	}
}

static int ask(struct request r, const void *rest, size_t n, int fd, struct broker_file *out)
{
	struct answer a = {0};
	if (us.line < 0)
		return -EPERM;
	if (n == 0 || n > BROKER_PATH_MOST)
		return -ENAMETOOLONG;
	r.n = (uint32_t)n;
	pthread_mutex_lock(&us.lock);
	r.serial = ++us.serial;
	int rc = exchange(&r, rest, fd, &a);
	pthread_mutex_unlock(&us.lock);
	if (rc >= 0 && out != NULL)
		*out = (struct broker_file){.mode = a.mode, .bytes = a.bytes, .dev = a.dev, .ino = a.ino};
	return rc;
}

static int ask_path(struct request r, const char *path, struct broker_file *out)
{
	return ask(r, path, strlen(path), -1, out);
}

int broker_open(const char *path) { return ask_path((struct request){.op = BROKER_OPEN}, path, NULL); }
int broker_append(const char *path) { return ask_path((struct request){.op = BROKER_APPEND}, path, NULL); }
int broker_rotate(const char *path) { return ask_path((struct request){.op = BROKER_ROTATE}, path, NULL); }

int broker_look(const char *path, struct broker_file *out)
{
	return ask_path((struct request){.op = BROKER_LOOK}, path, out);
}

int broker_bind(int sock, const struct sockaddr *sa, socklen_t len)
{
	return ask((struct request){.op = BROKER_BIND}, sa, len, sock, NULL);
}

int broker_listen(const char *path, mode_t mode, struct broker_file *out)
{
	return ask_path((struct request){.op = BROKER_LISTEN, .mode = mode}, path, out);
}

int broker_adopt(const char *path, mode_t mode, struct broker_file *out)
{
	return ask_path((struct request){.op = BROKER_ADOPT, .mode = mode}, path, out);
}

int broker_remove(const char *path, uint64_t dev, uint64_t ino)
{
	return ask_path((struct request){.op = BROKER_REMOVE, .dev = dev, .ino = ino}, path, NULL);
}

/* ---- the supervisor ---- */

static bool take_address(struct broker_asked *to, const char *bytes, size_t n)
{
	if (n < sizeof(sa_family_t) || n > sizeof to->sa || to->sock < 0)
		return false;
	memset(&to->sa, 0, sizeof to->sa);
	memcpy(&to->sa, bytes, n);
	to->sa_len = (socklen_t)n;
	return true;
}

static bool take_request(struct broker_asked *to, const struct request *r, size_t got, const char *bytes)
{
	to->serial = r->serial;
	if (got < sizeof *r || got - sizeof *r != r->n || r->op < BROKER_OPEN || r->op >= BROKER_N_OPS)
		return false;
	to->op = (enum broker_op)r->op;
	to->mode = r->mode & 0777;
	to->dev = r->dev;
	to->ino = r->ino;
	if (to->op == BROKER_BIND)
		return take_address(to, bytes, r->n);
	if (r->n == 0 || r->n > BROKER_PATH_MOST || memchr(bytes, '\0', r->n) != NULL)
		return false;
	memcpy(to->path, bytes, r->n);
	to->path[r->n] = '\0';
	return true;
}

int broker_receive(int fd, struct broker_asked *out)
{
	struct request r = {0};
	char bytes[BROKER_PATH_MOST];
	*out = (struct broker_asked){.sock = -1};
	ssize_t n = receive_message(fd, &r, sizeof r, bytes, sizeof bytes, &out->sock);
	if (n < 0)
		return errno == EAGAIN ? 0 : SL_ECLOSED;
	if (n == 0 && out->sock < 0)
		return SL_ECLOSED;
	if (!take_request(out, &r, (size_t)n, bytes))
		out->op = BROKER_MALFORMED;
	return 1;
}

void broker_answer(int fd, struct broker_asked *asked, int result, const struct broker_file *file)
{
	struct answer a = {.serial = asked->serial, .result = result < 0 ? result : 0};
	bool passes =
	    result >= 0 && (asked->op == BROKER_OPEN || asked->op == BROKER_APPEND || asked->op == BROKER_LISTEN);
	a.has_fd = passes;
	if (file != NULL) {
		a.mode = file->mode;
		a.bytes = file->bytes;
		a.dev = file->dev;
		a.ino = file->ino;
	}
	(void)send_message(fd, &a, sizeof a, NULL, 0, passes ? result : -1);
	if (asked->sock >= 0)
		close(asked->sock);
	asked->sock = -1;
}
