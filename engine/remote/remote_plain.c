/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams over connections without TLS. libcurl resolves the name and connects; from then on the socket is read here.
 * libcurl asks poll(2) after each read whether there is more, and looks at its timers; an event costs one recv here.
 *
 *   a call starts → CONNECTING (libcurl) → SENDING → READING → the response is complete → IDLE, or closed
 *                 → SENDING, on an idle connection
 *
 * The server may close an idle connection while a request is on its way to it: a request whose kept connection brings
 * nothing is sent once more on a new one.
 */
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/http/http1_read.h"
#include "engine/remote/remote_http_priv.h"

enum {
	HEAD_MAX = 3 * REMOTE_URL_MAX + REMOTE_KEY_MAX + 1024,
	IDLE_MAX_S = 118,
	READS_PER_TURN = 4,
	READS_BEFORE_DELAY = 8,
	QUICK_S = 60
};

struct remote_plain {
	struct list node; /* idle */
	struct remote_http *h;
	struct remote_call *c; /* NULL: idle */
	int fd;
	struct remote_soon soon[REMOTE_SOON]; /* as the last bytes left it */
	struct event *readable, *writable;
	bool reads;         /* readable is added */
	bool kept;          /* it has carried another request */
	bool broken;        /* a write failed */
	bool delays;        /* acknowledgements, of this response */
	uint8_t n_read;     /* how often bytes of the response came, up to its largest value */
	bool closing;       /* the server's end has come, maybe behind bytes that are unread */
	struct sl_buf head; /* the request's */
	size_t sent;        /* bytes of head and body */
	struct http1_read response;
	uint64_t idle_ns;
};

static void plain_free(struct remote_plain *p)
{
	if (!list_empty(&p->node))
		p->h->n_idle--;
	list_remove(&p->node);
	if (p->c != NULL)
		p->c->conn = NULL;
	if (p->readable != NULL)
		event_free(p->readable);
	if (p->writable != NULL)
		event_free(p->writable);
	close(p->fd);
	buf_dispose(&p->head);
	http1_read_dispose(&p->response);
	sl_free(p);
}

static void set_reads(struct remote_plain *p, bool on)
{
	if (p->reads != on && (on ? event_add(p->readable, NULL) : event_del(p->readable)) == 0)
		p->reads = on;
}

/* ---- the request ---- */

static int put_head(struct remote_plain *p)
{
	const struct remote_http *h = p->h;
	const struct remote_call *c = p->c;
	enum { SCHEME = 7 }; /* http:// */
	const char *path = c->at_origin ? "" : h->url + h->n_origin;
	buf_clear(&p->head, HEAD_MAX);
	int rc =
	    buf_printf(&p->head, "%s %s%s HTTP/1.1\r\nHost: %.*s\r\nAccept: %s\r\n", c->body != NULL ? "POST" : "GET",
		       path, c->path, h->n_origin - SCHEME, h->url + SCHEME, remote_call_accept(c));
	if (rc == 0 && h->authorization[0] != '\0')
		rc = buf_printf(&p->head, "%s\r\n", h->authorization);
	if (rc == 0 && c->body != NULL)
		rc = buf_printf(&p->head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", c->n_body);
	return rc == 0 ? buf_append_str(&p->head, "\r\n") : rc;
}

static size_t request_bytes(const struct remote_plain *p) { return p->head.len + p->c->n_body; }

/* That it fails is found out by reading: a response may have come before. */
static void send_some(struct remote_plain *p)
{
	while (!p->broken && p->sent < request_bytes(p)) {
		size_t in_head = p->sent < p->head.len ? p->head.len - p->sent : 0,
		       in_body = p->sent > p->head.len ? p->sent - p->head.len : 0;
		struct iovec parts[2] = {{buf_data(&p->head) + p->head.len - in_head, in_head},
					 {(char *)p->c->body + in_body, p->c->n_body - in_body}};
		struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
		ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL);
		if (n >= 0)
			p->sent += (size_t)n;
		else if (errno == EAGAIN)
			break;
		else
			p->broken = errno != EINTR;
	}
	if (!p->broken && p->sent < request_bytes(p))
		p->broken = event_add(p->writable, NULL) != 0;
}

static int begin(struct remote_plain *p, struct remote_call *c)
{
	p->c = c;
	c->conn = p;
	p->sent = 0;
	p->n_read = 0;
	http1_read_begin(&p->response);
	int rc = put_head(p);
	if (rc != 0) {
		plain_free(p);
		return SL_ENOMEM;
	}
	send_some(p);
	set_reads(p, true);
	return 0;
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
	struct remote_plain *p = ctx;
	(void)fd;
	(void)what;
	if (p->c != NULL)
		send_some(p);
}

/* ---- the response ---- */

static bool on_line(void *ctx, const char *line, size_t n)
{
	struct remote_plain *p = ctx;
	p->c->status = p->response.status;
	return remote_call_line(p->c, line, n);
}

static bool on_body(void *ctx, const char *bytes, size_t n)
{
	struct remote_plain *p = ctx;
	return remote_call_bytes(p->c, bytes, n);
}

/* Acknowledgements. Linux sends one as soon as a small segment has been read, half of what a read costs; every second
 * segment's is enough (RFC 9293 3.8.6.3), once a stream is under way. A server that leaves Nagle's algorithm on waits
 * for them: its next event is late by at most the kernel's 40 ms, once, because the kernel goes back to immediate ones
 * when one has been due that long. Then the server gets them at once for QUICK_S; streams with longer gaps do, too. */
static void delay_acks(struct remote_plain *p)
{
	const int off = 0;
	if (p->n_read == UINT8_MAX || ++p->n_read != READS_BEFORE_DELAY || clock_now_ns() < p->h->quick_until_ns)
		return;
	p->delays = setsockopt(p->fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off) == 0;
}

/* The response is over. */
static void look_at_acks(struct remote_plain *p)
{
	int quick = 0;
	socklen_t n = sizeof quick;
	if (p->delays && getsockopt(p->fd, IPPROTO_TCP, TCP_QUICKACK, &quick, &n) == 0 && quick != 0)
		p->h->quick_until_ns = clock_now_ns() + QUICK_S * NS_PER_S;
	p->delays = false;
}

/* The call is over; its connection waits for another one. */
static void keep(struct remote_plain *p)
{
	struct remote_http *h = p->h;
	p->c->conn = NULL;
	p->c = NULL;
	p->kept = true;
	p->idle_ns = clock_now_ns();
	set_reads(p, true);
	list_push_back(&h->idle, &p->node);
	h->n_idle++;
}

static void complete(struct remote_plain *p, bool clean)
{
	struct remote_call *c = p->c;
	look_at_acks(p);
	if (clean && http1_read_keeps(&p->response) && !p->broken && p->sent == request_bytes(p) &&
	    p->h->n_idle < p->h->idle_most)
		keep(p);
	else
		plain_free(p);
	remote_call_over(c);
}

static void give_up(struct remote_plain *p, enum proto_fault fault, const char *why)
{
	struct remote_call *c = p->c;
	remote_call_fail(c, fault, why);
	plain_free(p);
	remote_call_over(c);
}

/* The connection has closed, or failed. */
static void lost(struct remote_plain *p, const char *why)
{
	struct remote_call *c = p->c;
	struct remote_http *h = p->h;
	if (c == NULL) {
		plain_free(p);
		return;
	}
	bool began = c->n_head > 0 || p->response.line.len > 0;
	if (http1_read_closed(&p->response)) {
		complete(p, false);
		return;
	}
	if (began || !p->kept) {
		c->n_head += p->response.line.len;
		give_up(p, PROTO_FAULT_CUT, why);
		return;
	}
	plain_free(p);
	if (remote_http_connect(h, c) != 0) {
		remote_call_fail(c, PROTO_FAULT_CUT, why);
		remote_call_over(c);
	}
}

/* False: the call is over, or paused. */
static bool feed(struct remote_plain *p, size_t n)
{
	struct remote_call *c = p->c;
	size_t used;
	switch (http1_read_feed(&p->response, p->h->in, n, &used)) {
	case HTTP1_READ_MORE:
		set_reads(p, !c->paused);
		if (c->on_soon != NULL)
			c->on_soon(c, p->soon);
		return !c->paused;
	case HTTP1_READ_DONE: complete(p, used == n && n < sizeof p->h->in && !p->closing); break;
	case HTTP1_READ_NO_HTTP: give_up(p, PROTO_FAULT_NO_STREAM, "the response is not one of HTTP/1"); break;
	case HTTP1_READ_LONG:
		if (p->response.state == HTTP1_HEAD)
			give_up(p, PROTO_FAULT_HEADERS, "the response's head is too long");
		else
			give_up(p, PROTO_FAULT_CUT, "the response's chunks are malformed");
		break;
	case HTTP1_READ_BROKEN: give_up(p, PROTO_FAULT_CUT, "the response's chunks are malformed"); break;
	case HTTP1_READ_STOPPED: give_up(p, PROTO_FAULT_EVENT, "stopped"); break;
	}
	return false;
}

/* What the bytes will touch. The read of the socket takes longer than the memory. */
static void fetch_soon(const struct remote_plain *p)
{
	for (size_t at = offsetof(struct remote_plain, response); at < sizeof *p; at += 64)
		__builtin_prefetch((const char *)p + at);
	for (int i = 0; i < REMOTE_SOON; i++)
		for (size_t at = 0; at < p->soon[i].n; at += 64)
			__builtin_prefetch((const void *)((uintptr_t)p->soon[i].at + at));
}

/* True: there may be more. */
static bool read_some(struct remote_plain *p)
{
	struct remote_http *h = p->h;
	fetch_soon(p);
	ssize_t n = recv(p->fd, h->in, sizeof h->in, 0);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n < 0 && errno == EINTR)
		return true;
	if (n > 0 && p->c != NULL)
		delay_acks(p);
	if (n > 0 && p->c != NULL)
		return feed(p, (size_t)n) && ((size_t)n == sizeof h->in || p->closing);
	lost(p, n < 0 ? strerror(errno) : "the connection was closed");
	return false;
}

/* Edges: a level would be asked for again in the next turn. After fewer bytes than there was room for, more are another
 * edge; but the server's end is none if it came with them. What is left after READS_PER_TURN is reported in the next
 * turn, because the descriptor is added anew. */
static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct remote_plain *p = ctx;
	struct remote_http *h = p->h;
	(void)fd;
	p->closing = p->closing || (what & EV_CLOSED) != 0;
	bool more = true;
	for (int i = 0; more && i < READS_PER_TURN; i++)
		more = read_some(p);
	if (more) {
		set_reads(p, false);
		set_reads(p, true);
	}
	remote_http_settle(h);
}

/* ---- connections ---- */

int remote_plain_adopt(struct remote_http *h, struct remote_call *c, int fd)
{
	struct remote_plain *p = sl_zalloc(sizeof *p);
	if (p == NULL) {
		close(fd);
		return SL_ENOMEM;
	}
	p->h = h;
	p->fd = fd;
	list_init(&p->node);
	buf_init(&p->head, HEAD_MAX);
	http1_read_init(&p->response, REMOTE_HEAD_MAX);
	p->response.on_line = on_line;
	p->response.on_body = on_body;
	p->response.ctx = p;
	p->readable = event_new(h->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_readable, p);
	p->writable = event_new(h->base, fd, EV_WRITE | EV_ET, on_writable, p); /* a descriptor has one of both kinds */
	if (p->readable == NULL || p->writable == NULL) {
		plain_free(p);
		return SL_ENOMEM;
	}
	return begin(p, c);
}

/* The one that was used last, or NULL. Those that are old may be forgotten by what is between here and there. */
static struct remote_plain *take_idle(struct remote_http *h)
{
	uint64_t now = clock_now_ns();
	while (!list_empty(&h->idle)) {
		struct remote_plain *oldest = list_entry(h->idle.next, struct remote_plain, node);
		if (now - oldest->idle_ns < IDLE_MAX_S * NS_PER_S)
			break;
		plain_free(oldest);
	}
	if (list_empty(&h->idle))
		return NULL;
	struct remote_plain *p = list_entry(h->idle.prev, struct remote_plain, node);
	list_remove(&p->node);
	h->n_idle--;
	return p;
}

int remote_plain_start(struct remote_http *h, struct remote_call *c)
{
	struct remote_plain *p = c->fresh ? NULL : take_idle(h);
	return p != NULL ? begin(p, c) : remote_http_connect(h, c);
}

void remote_plain_drop(struct remote_call *c)
{
	if (c->conn != NULL)
		plain_free(c->conn);
}

void remote_plain_resume(struct remote_call *c)
{
	if (c->conn != NULL)
		set_reads(c->conn, true);
}

void remote_plain_forget(struct remote_http *h)
{
	while (!list_empty(&h->idle))
		plain_free(list_entry(h->idle.next, struct remote_plain, node));
}
