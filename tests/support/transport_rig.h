/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport with a small application, and clients on real loopback sockets, all on the test's own thread: the client
 * writes, and the loop runs until the awaited condition holds. Nothing sleeps; a wait longer than RIG_PATIENCE_S fails
 * the test. Deadlines are driven by a fake clock.
 *
 *   /small          "hello\n"
 *   /echo           the body, once it is complete
 *   /never          no answer
 *   /big?N          N bytes, all there at once
 *   /wait           bytes that the test gives with rig_give
 *   /reset          http_reset in on_request
 *   /hold           no answer; its place is kept until the test releases x->hold
 *   /fail           a source that fails after one byte
 *   /split          a field value that holds a line's end: refused, reset
 */
#ifndef TESTS_SUPPORT_TRANSPORT_RIG_H
#define TESTS_SUPPORT_TRANSPORT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "gateway/transport/http.h"
#include "gateway/transport/transport.h"

#define RIG_UNUSED __attribute__((unused))
enum { RIG_PATIENCE_S = 10, RIG_STREAMS = 512 };

struct rig;

struct rig_exchange {
	struct rig *rig;
	struct http_stream *s; /* NULL once closed */
	struct sl_buf body, give;
	struct http_hold *hold;
	long left;
	bool give_end, fail_next;
	char peer[64], subject[128]; /* of the request; subject "-": none */
};

struct rig {
	struct gw_config cfg;
	struct gw_thread t;
	struct gw_transport *tr;
	struct rig_exchange *ex[RIG_STREAMS]; /* in order of on_request; kept until rig_stop */
	int n_requests, n_body_ends, n_closed;
	int closed[5];
	size_t body_bytes, pulled;
};

static ssize_t rig_pull_big(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct rig_exchange *x = ctx;
	size_t n = (size_t)x->left < room ? (size_t)x->left : room;
	memset(dst, 'x', n);
	x->left -= (long)n;
	x->rig->pulled += n;
	*end = x->left == 0;
	return (ssize_t)n;
}

static ssize_t rig_pull_given(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct rig_exchange *x = ctx;
	size_t n = x->give.len < room ? x->give.len : room;
	if (n > 0)
		memcpy(dst, buf_data(&x->give), n);
	buf_consume(&x->give, n);
	x->rig->pulled += n;
	*end = x->give_end && x->give.len == 0;
	return (ssize_t)n;
}

static ssize_t rig_pull_fail(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct rig_exchange *x = ctx;
	(void)room, (void)end;
	if (x->fail_next)
		return -1;
	x->fail_next = true;
	http_body_ready(x->s);
	dst[0] = '!';
	return 1;
}

static void rig_on_request(void *ctx, struct http_stream *s, const struct http_request *r)
{
	struct rig *rig = ctx;
	struct rig_exchange *x = calloc(1, sizeof *x);
	assert_non_null(x);
	assert_true(rig->n_requests < RIG_STREAMS);
	rig->ex[rig->n_requests++] = x;
	x->rig = rig;
	x->s = s;
	x->left = atol(r->query);
	snprintf(x->peer, sizeof x->peer, "%s", r->peer);
	snprintf(x->subject, sizeof x->subject, "%s", r->subject != NULL ? r->subject : "-");
	buf_init(&x->body, 8 << 20);
	buf_init(&x->give, 8 << 20);
	http_set_user(s, x);
	if (strcmp(r->path, "/small") == 0)
		http_reply(s, 200, NULL, 0, "hello\n", 6);
	else if (strcmp(r->path, "/empty") == 0)
		http_reply(s, 204, NULL, 0, NULL, 0);
	else if (strcmp(r->path, "/split") == 0) {
		struct http_field f = {"x-a", "b\r\nset-cookie: c"};
		assert_int_equal(http_reply(s, 200, &f, 1, "x", 1), SL_EINVAL);
	} else if (strcmp(r->path, "/big") == 0)
		http_reply_stream(s, 200, NULL, 0, (struct http_source){rig_pull_big, x});
	else if (strcmp(r->path, "/wait") == 0)
		http_reply_stream(s, 200, NULL, 0, (struct http_source){rig_pull_given, x});
	else if (strcmp(r->path, "/fail") == 0)
		http_reply_stream(s, 200, NULL, 0, (struct http_source){rig_pull_fail, x});
	else if (strcmp(r->path, "/hold") == 0)
		x->hold = http_hold(s); /* NULL if a test makes that fail */
	else if (strcmp(r->path, "/reset") == 0)
		http_reset(s);
	else if (strcmp(r->path, "/echo") != 0 && strcmp(r->path, "/never") != 0)
		http_reply(s, 404, NULL, 0, "no\n", 3);
}

static void rig_on_body(void *ctx, struct http_stream *s, const uint8_t *data, size_t n)
{
	struct rig *rig = ctx;
	struct rig_exchange *x = http_user(s);
	rig->body_bytes += n;
	if (buf_append(&x->body, data, n) != 0)
		http_reset(s);
}

static void rig_on_body_end(void *ctx, struct http_stream *s)
{
	struct rig *rig = ctx;
	struct rig_exchange *x = http_user(s);
	rig->n_body_ends++;
	if (strcmp(http_request(s)->path, "/echo") == 0)
		http_reply(s, 200, NULL, 0, buf_data(&x->body), x->body.len);
}

static void rig_on_close(void *ctx, struct http_stream *s, enum http_close_reason why)
{
	struct rig *rig = ctx;
	struct rig_exchange *x = http_user(s);
	assert_non_null(x);
	assert_ptr_equal(x->s, s); /* exactly once */
	x->s = NULL;
	rig->n_closed++;
	rig->closed[why]++;
}

static const struct http_app rig_app = {rig_on_request, rig_on_body, rig_on_body_end, rig_on_close, NULL};

static void rig_config(struct rig *rig)
{
	*rig = (struct rig){0};
	rig->cfg.threads = 1;
	rig->cfg.https.off = true;
	strcpy(rig->cfg.http.text, "127.0.0.1:0");
	strcpy(rig->cfg.http.host, "127.0.0.1");
	rig->cfg.drain_ms = 1000;
	rig->cfg.limits = (struct gw_limits){.connections = 1000,
					     .streams_per_connection = 100,
					     .header_bytes = 16384,
					     .header_fields = 100,
					     .body_bytes = 1 << 20,
					     .handshake_ms = 10000,
					     .header_ms = 10000,
					     .body_ms = 30000,
					     .idle_ms = 60000,
					     .stall_ms = 30000,
					     .output_bytes = 262144,
					     .resets_per_s = 10,
					     .resets_burst = 100,
					     .refused_per_s = 5,
					     .refused_burst = 50,
					     .control_frames_per_s = 50,
					     .control_frames_burst = 200};
}

RIG_UNUSED static void rig_start(struct rig *rig)
{
	struct sl_err err = {0};
	assert_int_equal(gw_thread_init(&rig->t, 0, &rig->cfg, &err), 0);
	int rc = transport_create(&rig->t, &rig_app, rig, &rig->tr, &err);
	if (rc != 0)
		fail_msg("%s", err.text);
	rig->t.transport = rig->tr;
}

RIG_UNUSED static void rig_stop(struct rig *rig)
{
	transport_destroy(rig->tr);
	gw_thread_dispose(&rig->t);
	clock_fake(NULL);
	assert_int_equal(rig->n_closed, rig->n_requests);
	for (int i = 0; i < rig->n_requests; i++) {
		http_release(rig->ex[i]->hold);
		buf_dispose(&rig->ex[i]->body);
		buf_dispose(&rig->ex[i]->give);
		free(rig->ex[i]);
	}
}

static void rig_turn(struct rig *rig) { assert_int_equal(gw_thread_turn(&rig->t), 0); }

static time_t rig_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/* Runs the loop until cond holds. */
#define RIG_UNTIL(rig, cond)                                              \
	do {                                                              \
		time_t rig_end = rig_now() + RIG_PATIENCE_S;              \
		while (!(cond)) {                                         \
			if (rig_now() > rig_end)                          \
				fail_msg("waited in vain for %s", #cond); \
			rig_turn(rig);                                    \
		}                                                         \
	} while (0)

/* A connected, non-blocking client. rcvbuf > 0: a small receive buffer. */
RIG_UNUSED static int rig_connect_to(struct rig *rig, bool tls, int rcvbuf)
{
	int one = 1;
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(transport_port(rig->tr, tls))};
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	if (rcvbuf > 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	return fd;
}

RIG_UNUSED static int rig_connect(struct rig *rig) { return rig_connect_to(rig, false, 0); }

/* Sends everything, running the loop while the socket is full. False: the server has closed. */
RIG_UNUSED static bool rig_send(struct rig *rig, int fd, const void *data, size_t n)
{
	const uint8_t *p = data;
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (n > 0) {
		ssize_t m = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (m < 0 && errno != EAGAIN)
			return false;
		if (m < 0) {
			if (rig_now() > end)
				fail_msg("the server does not read");
			rig_turn(rig);
			continue;
		}
		p += m;
		n -= (size_t)m;
	}
	return true;
}

/* Reads available bytes without waiting. False: the end, or a reset. */
RIG_UNUSED static bool rig_recv(int fd, struct sl_buf *in)
{
	uint8_t *at;
	for (;;) {
		assert_int_equal(buf_reserve(in, 65536, &at), 0);
		ssize_t n = recv(fd, at, 65536, MSG_DONTWAIT);
		if (n > 0)
			buf_commit(in, (size_t)n);
		else
			return n < 0 && errno == EAGAIN;
	}
}

/* Reads until there are n bytes. False: it ended before. */
RIG_UNUSED static bool rig_read(struct rig *rig, int fd, struct sl_buf *in, size_t n)
{
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (in->len < n) {
		if (!rig_recv(fd, in))
			return in->len >= n;
		if (in->len >= n)
			break;
		if (rig_now() > end)
			fail_msg("%zu bytes came, %zu are missing", in->len, n - in->len);
		rig_turn(rig);
	}
	return true;
}

/* Reads until the server ends the connection. */
RIG_UNUSED static void rig_read_end(struct rig *rig, int fd, struct sl_buf *in)
{
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (rig_recv(fd, in)) {
		if (rig_now() > end)
			fail_msg("the server does not close");
		rig_turn(rig);
	}
}

/* Supplies bytes to a /wait stream. */
RIG_UNUSED static void rig_give(struct rig_exchange *x, const char *text, bool end)
{
	assert_int_equal(buf_append_str(&x->give, text), 0);
	x->give_end = end;
	http_body_ready(x->s);
}

#endif
