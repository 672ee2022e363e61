/* SPDX-License-Identifier: Apache-2.0
 *
 * A blocking client of the engine protocol for tests: every wait has a deadline.
 */
#ifndef TESTS_LINK_CLIENT_H
#define TESTS_LINK_CLIENT_H

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/proto/proto.h"

enum { CLIENT_WAIT_MS = 20000 };

struct client {
	int fd;
	struct sl_buf in, out;
	struct proto_head head; /* of the frame last read */
	uint8_t payload[1 << 17];
};

/* Waits until the server listens, which another process or thread may still start. */
static inline int client_dial(const char *path)
{
	uint64_t until = clock_now_ns() + 60 * NS_PER_S;
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	while (connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0) {
		assert_true((errno == ENOENT || errno == ECONNREFUSED) && clock_now_ns() < until);
		usleep(1000);
	}
	return fd;
}

static inline void client_open_quiet(struct client *c, const char *path)
{
	c->fd = client_dial(path);
	buf_init(&c->in, 64 << 20);
	buf_init(&c->out, 64 << 20);
}

static inline void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	buf_dispose(&c->in);
	buf_dispose(&c->out);
}

static inline void client_flush(struct client *c)
{
	while (c->out.len > 0) {
		ssize_t n = send(c->fd, buf_data(&c->out), c->out.len, MSG_NOSIGNAL);
		assert_true(n > 0);
		buf_consume(&c->out, (size_t)n);
	}
}

/* Reads what is there into in. False at the end of the stream. */
static inline bool client_fill(struct client *c, int wait_ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	int rc = poll(&p, 1, wait_ms);
	assert_true(rc > 0);
	uint8_t *at;
	assert_int_equal(buf_reserve(&c->in, 65536, &at), 0);
	ssize_t n = recv(c->fd, at, 65536, 0);
	if (n <= 0)
		return false;
	buf_commit(&c->in, (size_t)n);
	return true;
}

/* The next frame of any kind; false at the end of the stream. */
static inline bool client_next_any(struct client *c)
{
	while (c->in.len < PROTO_HEAD_BYTES) {
		if (!client_fill(c, CLIENT_WAIT_MS))
			return false;
	}
	struct sl_err err;
	assert_int_equal(proto_head_read(buf_data(&c->in), &c->head, &err), 0);
	while (c->in.len < PROTO_HEAD_BYTES + c->head.length) {
		if (!client_fill(c, CLIENT_WAIT_MS))
			return false;
	}
	assert_true(c->head.length <= sizeof c->payload);
	memcpy(c->payload, buf_data(&c->in) + PROTO_HEAD_BYTES, c->head.length);
	buf_consume(&c->in, PROTO_HEAD_BYTES + c->head.length);
	return true;
}

/* The next frame but STATS, LOAD and MODEL. */
static inline bool client_next(struct client *c)
{
	do {
		if (!client_next_any(c))
			return false;
	} while (c->head.type == PROTO_STATS || c->head.type == PROTO_LOAD || c->head.type == PROTO_MODEL);
	return true;
}

static inline void client_expect(struct client *c, enum proto_type type)
{
	assert_true(client_next(c));
	assert_string_equal(proto_type_name(c->head.type), proto_type_name((uint8_t)type));
}

static inline void client_hello(struct client *c)
{
	struct proto_hello hello = {.version = PROTO_VERSION, .name = {.at = "test", .n = 4}};
	assert_int_equal(proto_put_hello(&c->out, &hello), 0);
	client_flush(c);
	client_expect(c, PROTO_HELLO);
}

static inline void client_open(struct client *c, const char *path)
{
	client_open_quiet(c, path);
	client_hello(c);
}

/* A request with everything at its plainest. */
static inline struct proto_submit client_plain(const char *prompt, uint8_t kind, uint32_t max_tokens)
{
	return (struct proto_submit){
	    PROTO_SUBMIT_OFF, .prompt_kind = kind,      .top_p = 1,
	    .seed = 7,        .max_tokens = max_tokens, .prompt = {.at = prompt, .n = strlen(prompt)}};
}

static inline void client_submit(struct client *c, uint64_t id, const struct proto_submit *req)
{
	assert_int_equal(proto_put_submit(&c->out, id, req), 0);
	client_flush(c);
}

static inline void client_credit(struct client *c, uint64_t id, uint32_t n)
{
	struct proto_credit credit = {.n_tokens = n};
	assert_int_equal(proto_put_credit(&c->out, id, &credit), 0);
	client_flush(c);
}

static inline void client_cancel(struct client *c, uint64_t id)
{
	assert_int_equal(proto_put_cancel(&c->out, id), 0);
	client_flush(c);
}

static inline struct proto_done client_done(struct client *c)
{
	struct proto_done done;
	struct sl_err err;
	assert_int_equal(c->head.type, PROTO_DONE);
	assert_int_equal(proto_get_done(c->payload, c->head.length, &done, &err), 0);
	return done;
}

static inline struct proto_tokens client_tokens(struct client *c)
{
	struct proto_tokens tokens;
	struct sl_err err;
	assert_int_equal(c->head.type, PROTO_TOKENS);
	assert_int_equal(proto_get_tokens(c->payload, c->head.length, &tokens, &err), 0);
	return tokens;
}

/* Reads TOKENS of any sequence until DONE of id; the text of id goes to text. */
static inline struct proto_done client_until_done(struct client *c, uint64_t id, struct sl_buf *text,
						  uint32_t *n_tokens)
{
	for (;;) {
		assert_true(client_next(c));
		if (c->head.id != id)
			continue;
		if (c->head.type == PROTO_DONE)
			return client_done(c);
		if (c->head.type != PROTO_TOKENS)
			continue;
		struct proto_tokens t = client_tokens(c);
		if (text != NULL)
			assert_int_equal(buf_append(text, t.text.at, t.text.n), 0);
		if (n_tokens != NULL)
			*n_tokens += t.n;
	}
}

/* The next STATS. */
static inline struct proto_stats client_stats(struct client *c)
{
	struct proto_stats s;
	struct sl_err err;
	do
		assert_true(client_next_any(c));
	while (c->head.type != PROTO_STATS);
	assert_int_equal(proto_get_stats(c->payload, c->head.length, &s, &err), 0);
	return s;
}

/* Waits for STATS that say nothing runs or waits. */
static inline struct proto_stats client_until_idle(struct client *c)
{
	struct proto_stats s;
	do
		s = client_stats(c);
	while (s.running > 0 || s.waiting > 0);
	return s;
}

#endif
