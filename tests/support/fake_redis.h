/* SPDX-License-Identifier: Apache-2.0
 *
 * A server on a unix socket that speaks Redis' protocol, with the faults that a test sets. It reads commands one by
 * one. It answers AUTH, SELECT, SCRIPT LOAD and the probe of a handshake correctly unless configured otherwise, and any
 * other command with the test's text. It has its own thread.
 */
#ifndef TESTS_SUPPORT_FAKE_REDIS_H
#define TESTS_SUPPORT_FAKE_REDIS_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

enum { FAKE_CONNECTIONS = 64, FAKE_INPUT = 1 << 18, FAKE_ACCEPTS = 256 };

struct fake_connection {
	int fd; /* -1: free */
	char *in;
	size_t n;
};

struct fake_redis {
	char dir[64], socket[80], address[96];
	int listener, stop[2];
	pthread_t thread;
	/* Behaviour; the test may change it at any time. */
	pthread_mutex_t lock;
	const char *handshake; /* replaces the handshake's answers; "": no answer. NULL: correct answers */
	const char *reply;     /* to all other commands; "": no answer */
	size_t repeat;         /* followed by so many bytes of '0' */
	bool closes;           /* a connection after such a reply, or at once when it accepts one: closes_early */
	bool closes_early;
	/* Observations. */
	atomic_int n_accepts, n_commands;
	_Atomic uint64_t accepted_ns[FAKE_ACCEPTS];
	struct fake_connection connections[FAKE_CONNECTIONS];
};

/* The size of the command at p, 0 if incomplete; its first word in name. */
static inline size_t fake_command(const char *p, size_t n, char name[16], char second[64])
{
	const char *end = memchr(p, '\n', n);
	if (end == NULL)
		return 0;
	BUG_IF(p[0] != '*', "a client that speaks no RESP");
	long words = strtol(p + 1, NULL, 10);
	size_t at = (size_t)(end - p) + 1;
	for (long i = 0; i < words; i++) {
		end = memchr(p + at, '\n', n - at);
		if (end == NULL)
			return 0;
		size_t len = strtoul(p + at + 1, NULL, 10);
		at = (size_t)(end - p) + 1;
		if (n - at < len + 2)
			return 0;
		if (i == 0)
			snprintf(name, 16, "%.*s", (int)(len < 15 ? len : 15), p + at);
		if (i == 1)
			snprintf(second, 64, "%.*s", (int)(len < 63 ? len : 63), p + at);
		at += len + 2;
	}
	return at;
}

static inline void fake_close(struct fake_connection *c)
{
	close(c->fd);
	free(c->in);
	*c = (struct fake_connection){.fd = -1};
}

static inline void fake_send(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
		if (k <= 0)
			return;
		text += k;
		n -= (size_t)k;
	}
}

/* False: the connection is to be closed. */
static inline bool fake_answer(struct fake_redis *f, int fd, const char *name, const char *second)
{
	pthread_mutex_lock(&f->lock);
	const char *handshake = f->handshake, *reply = f->reply;
	size_t repeat = f->repeat;
	bool closes = f->closes;
	pthread_mutex_unlock(&f->lock);
	bool is_script = strcmp(name, "SCRIPT") == 0;
	bool is_handshake =
	    is_script || strcmp(name, "AUTH") == 0 || strcmp(name, "SELECT") == 0 || strstr(second, "probe") != NULL;
	if (is_handshake) {
		static const char sha[] = "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n";
		const char *good = is_script ? sha : "+OK\r\n";
		const char *text = handshake != NULL ? handshake : good;
		fake_send(fd, text, strlen(text));
		return true;
	}
	atomic_fetch_add(&f->n_commands, 1);
	fake_send(fd, reply, strlen(reply));
	static char zeros[4096];
	memset(zeros, '0', sizeof zeros);
	for (; repeat > 0; repeat -= repeat < sizeof zeros ? repeat : sizeof zeros)
		fake_send(fd, zeros, repeat < sizeof zeros ? repeat : sizeof zeros);
	return !closes;
}

static inline void fake_read(struct fake_redis *f, struct fake_connection *c)
{
	ssize_t k = recv(c->fd, c->in + c->n, FAKE_INPUT - c->n, 0);
	if (k <= 0) {
		fake_close(c);
		return;
	}
	c->n += (size_t)k;
	size_t used;
	char name[16] = "", second[64] = "";
	while ((used = fake_command(c->in, c->n, name, second)) > 0) {
		memmove(c->in, c->in + used, c->n - used);
		c->n -= used;
		if (!fake_answer(f, c->fd, name, second)) {
			fake_close(c);
			return;
		}
	}
	BUG_IF(c->n == FAKE_INPUT, "a command too large for the fake");
}

static inline void fake_accept(struct fake_redis *f)
{
	int fd = accept(f->listener, NULL, NULL);
	if (fd < 0)
		return;
	int i = atomic_fetch_add(&f->n_accepts, 1);
	if (i < FAKE_ACCEPTS)
		f->accepted_ns[i] = clock_now_ns();
	pthread_mutex_lock(&f->lock);
	bool closes = f->closes_early;
	pthread_mutex_unlock(&f->lock);
	for (int k = 0; !closes && k < FAKE_CONNECTIONS; k++) {
		if (f->connections[k].fd < 0) {
			f->connections[k] = (struct fake_connection){.fd = fd, .in = malloc(FAKE_INPUT)};
			return;
		}
	}
	close(fd);
}

static inline void *fake_run(void *arg)
{
	struct fake_redis *f = arg;
	for (;;) {
		struct pollfd fds[FAKE_CONNECTIONS + 2];
		for (int i = 0; i < FAKE_CONNECTIONS; i++)
			fds[i] = (struct pollfd){.fd = f->connections[i].fd, .events = POLLIN};
		fds[FAKE_CONNECTIONS] = (struct pollfd){.fd = f->listener, .events = POLLIN};
		fds[FAKE_CONNECTIONS + 1] = (struct pollfd){.fd = f->stop[0], .events = POLLIN};
		poll(fds, FAKE_CONNECTIONS + 2, -1);
		if (fds[FAKE_CONNECTIONS + 1].revents != 0)
			return NULL;
		for (int i = 0; i < FAKE_CONNECTIONS; i++)
			if (fds[i].fd >= 0 && fds[i].revents != 0)
				fake_read(f, &f->connections[i]);
		if (fds[FAKE_CONNECTIONS].revents != 0)
			fake_accept(f);
	}
}

static inline void fake_redis_start(struct fake_redis *f)
{
	const char *tmp = getenv("TMPDIR");
	memset(f, 0, sizeof *f);
	f->reply = "$-1\r\n";
	pthread_mutex_init(&f->lock, NULL);
	for (int i = 0; i < FAKE_CONNECTIONS; i++)
		f->connections[i].fd = -1;
	snprintf(f->dir, sizeof f->dir, "%.40s/fake-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	BUG_IF(mkdtemp(f->dir) == NULL, "%s: %s", f->dir, strerror(errno));
	snprintf(f->socket, sizeof f->socket, "%s/s", f->dir);
	snprintf(f->address, sizeof f->address, "unix:%s", f->socket);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	memcpy(a.sun_path, f->socket, strlen(f->socket) + 1);
	f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	BUG_IF(bind(f->listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(f->listener, 64) != 0 ||
		   pipe(f->stop) != 0 || pthread_create(&f->thread, NULL, fake_run, f) != 0,
	       "%s: %s", f->socket, strerror(errno));
}

static inline void fake_redis_stop(struct fake_redis *f)
{
	BUG_IF(write(f->stop[1], "", 1) != 1, "the fake can't be stopped");
	pthread_join(f->thread, NULL);
	for (int i = 0; i < FAKE_CONNECTIONS; i++)
		if (f->connections[i].fd >= 0)
			fake_close(&f->connections[i]);
	close(f->listener);
	close(f->stop[0]);
	close(f->stop[1]);
	unlink(f->socket);
	rmdir(f->dir);
	pthread_mutex_destroy(&f->lock);
}

/* Sets the answers from now on. Texts are borrowed. */
static inline void fake_redis_says(struct fake_redis *f, const char *handshake, const char *reply)
{
	pthread_mutex_lock(&f->lock);
	f->handshake = handshake;
	f->reply = reply;
	f->repeat = 0;
	f->closes = f->closes_early = false;
	pthread_mutex_unlock(&f->lock);
}

#endif
