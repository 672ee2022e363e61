/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread, one epoll, one write per event and connection, as an engine behind a proxy would do. A request with
 * "stream":true gets endless events, any other a small response at once. Proxies are trusted: requests are parsed
 * only as far as needed to find the end of the body.
 */
#include "cmd/bench/bench_mock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"

enum { IN_BYTES = 16 << 10, EVENTS = 256, EVENT_BYTES = 512 };

struct client {
	struct list node; /* in the list of streaming clients */
	int fd;
	bool streaming;
	size_t n_in;
	char in[IN_BYTES + 1];
};

struct mock {
	int epoll_fd;
	struct list streaming;
};

#define CHUNK_HEAD "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion"
#define CHUNK_REST \
	"\",\"created\":1795233507,\"model\":\"demo-large\",\"system_fingerprint\":null,\"choices\":[{\"index\":0,"

static void drop(struct client *c)
{
	list_remove(&c->node);
	close(c->fd);
	sl_free(c);
}

/* Writes are small and rare: a full socket ends the connection. */
static bool put(struct client *c, const char *text, size_t n)
{
	return send(c->fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static bool put_event(struct client *c, uint64_t stamp)
{
	char event[EVENT_BYTES], chunk[EVENT_BYTES + 16];
	int n = snprintf(event, sizeof event,
			 "data: " CHUNK_HEAD ".chunk" CHUNK_REST "\"delta\":{\"content\":\"t%020llu \"},"
			 "\"logprobs\":null,\"finish_reason\":null}]}\n\n",
			 (unsigned long long)stamp);
	n = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", (unsigned)n, event);
	return put(c, chunk, (size_t)n);
}

static bool answer(struct mock *m, struct client *c, const char *body)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n";
	static const char json[] = CHUNK_HEAD CHUNK_REST
	    "\"message\":{\"role\":\"assistant\",\"content\":\"Hello \",\"refusal\":null},\"logprobs\":null,"
	    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3,"
	    "\"prompt_tokens_details\":{\"cached_tokens\":0}}}";
	if (strstr(body, "\"stream\":true") != NULL) {
		c->streaming = true;
		list_push_back(&m->streaming, &c->node);
		return put(c, head, sizeof head - 1);
	}
	char whole[sizeof json + 128];
	int n = snprintf(whole, sizeof whole,
			 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			 sizeof json - 1, json);
	return put(c, whole, (size_t)n);
}

/* Bytes of the request body that begins at text, delimited by length or in chunks; 0: incomplete. */
static size_t body_bytes(const char *head, const char *text, const char *end)
{
	const char *length = strcasestr(head, "\ncontent-length:");
	if (length != NULL && length < text) {
		size_t n = strtoul(length + 16, NULL, 10);
		return (size_t)(end - text) >= n ? n : 0;
	}
	const char *last = strstr(text, "0\r\n\r\n");
	return last != NULL ? (size_t)(last + 5 - text) : 0;
}

static bool take_requests(struct mock *m, struct client *c)
{
	while (!c->streaming && c->n_in > 0) {
		c->in[c->n_in] = '\0';
		char *text = strstr(c->in, "\r\n\r\n");
		if (text == NULL)
			return c->n_in < IN_BYTES;
		text += 4;
		size_t n = body_bytes(c->in, text, c->in + c->n_in);
		if (n == 0)
			return c->n_in < IN_BYTES;
		char after = text[n];
		text[n] = '\0';
		if (!answer(m, c, text))
			return false;
		text[n] = after;
		c->n_in -= (size_t)(text + n - c->in);
		memmove(c->in, text + n, c->n_in);
	}
	return true;
}

static void on_readable(struct mock *m, struct client *c)
{
	ssize_t n = recv(c->fd, c->in + c->n_in, IN_BYTES - c->n_in, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(c);
		return;
	}
	c->n_in += (size_t)n;
	if (!take_requests(m, c))
		drop(c);
}

static void accept_all(struct mock *m, int listen_fd)
{
	const int one = 1;
	int fd;
	while ((fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct client *c = sl_zalloc(sizeof *c);
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
		if (c == NULL || epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
			close(fd);
			sl_free(c);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		c->fd = fd;
		list_init(&c->node);
	}
}

static void step(struct mock *m, int timer_fd)
{
	uint64_t times, now = clock_now_ns();
	if (read(timer_fd, &times, sizeof times) != sizeof times)
		return;
	list_each_safe(it, next, &m->streaming) {
		struct client *c = list_entry(it, struct client, node);
		if (!put_event(c, now))
			drop(c);
	}
}

void bench_mock_run(void *arg)
{
	const struct bench_mock *cfg = arg;
	struct mock m = {.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
	int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	const struct timespec each = {.tv_sec = cfg->step_ms / 1000, .tv_nsec = (long)(cfg->step_ms % 1000) * 1000000};
	struct epoll_event ready[EVENTS], on_timer = {.events = EPOLLIN, .data.ptr = &timer_fd},
					  on_accept = {.events = EPOLLIN, .data.ptr = NULL};
	list_init(&m.streaming);
	timerfd_settime(timer_fd, 0, &(struct itimerspec){each, each}, NULL);
	epoll_ctl(m.epoll_fd, EPOLL_CTL_ADD, timer_fd, &on_timer);
	epoll_ctl(m.epoll_fd, EPOLL_CTL_ADD, cfg->listen_fd, &on_accept);
	for (;;) {
		int n = epoll_wait(m.epoll_fd, ready, EVENTS, -1);
		bool due = false;
		for (int i = 0; i < n; i++) {
			if (ready[i].data.ptr == NULL)
				accept_all(&m, cfg->listen_fd);
			else if (ready[i].data.ptr == &timer_fd)
				due = true;
			else
				on_readable(&m, ready[i].data.ptr);
		}
		/* Last, because it may drop connections that the ready list names. */
		if (due)
			step(&m, timer_fd);
	}
}
