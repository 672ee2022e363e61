/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/bench_direct.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proto/proto.h"

enum { READ_BYTES = 256 << 10, ANSWER_TOKENS = 1000000 };

struct direct {
	int fd;
	struct sl_buf in, out;
	struct histogram *times;
	uint64_t now_ns;
};

static int write_all(struct direct *d)
{
	while (d->out.len > 0) {
		ssize_t n = send(d->fd, buf_data(&d->out), d->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return SL_EIO;
		if (n > 0)
			buf_consume(&d->out, (size_t)n);
	}
	return 0;
}

static int begin(struct direct *d, const char *path, uint32_t n)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct proto_hello hello = {.version = PROTO_VERSION, .name = {"bench", 5}};
	static const char text[] = "hello";
	const struct proto_submit req = {PROTO_SUBMIT_OFF, .prompt_kind = PROTO_PROMPT_TEXT, .top_p = 1,
					 .max_tokens = ANSWER_TOKENS, .prompt = {text, sizeof text - 1}};
	const struct proto_credit credit = {.n_tokens = ANSWER_TOKENS};
	if (strlen(path) >= sizeof at.sun_path)
		return SL_EINVAL;
	memcpy(at.sun_path, path, strlen(path) + 1);
	d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (d->fd < 0 || connect(d->fd, (struct sockaddr *)&at, sizeof at) != 0)
		return SL_EIO;
	int rc = proto_put_hello(&d->out, &hello);
	for (uint64_t id = 1; id <= n && rc == 0; id++) {
		rc = proto_put_submit(&d->out, id, &req);
		if (rc == 0)
			rc = proto_put_credit(&d->out, id, &credit);
	}
	return rc == 0 ? write_all(d) : rc;
}

static int take(struct direct *d, struct sl_err *err)
{
	while (d->in.len >= PROTO_HEAD_BYTES) {
		struct proto_head h;
		struct proto_tokens t;
		int rc = proto_head_read(buf_data(&d->in), &h, err);
		if (rc != 0)
			return rc;
		if (d->in.len - PROTO_HEAD_BYTES < h.length)
			return 0;
		if (h.type == PROTO_TOKENS) {
			rc = proto_get_tokens(buf_data(&d->in) + PROTO_HEAD_BYTES, h.length, &t, err);
			if (rc != 0)
				return rc;
			uint64_t made = t.text.n > 1 ? strtoull(t.text.at + 1, NULL, 10) : 0;
			if (made != 0 && made <= d->now_ns)
				histogram_add(d->times, d->now_ns - made);
		}
		buf_consume(&d->in, PROTO_HEAD_BYTES + (size_t)h.length);
	}
	return 0;
}

static int listen_for(struct direct *d, double seconds, struct sl_err *err)
{
	uint64_t end = clock_now_ns() + (uint64_t)(seconds * 1e9);
	int rc = 0;
	while (rc == 0 && clock_now_ns() < end) {
		struct pollfd p = {.fd = d->fd, .events = POLLIN};
		uint8_t *at;
		if (poll(&p, 1, 100) <= 0)
			continue;
		rc = buf_reserve(&d->in, READ_BYTES, &at);
		ssize_t n = rc == 0 ? recv(d->fd, at, READ_BYTES, 0) : -1;
		d->now_ns = clock_now_ns();
		if (n <= 0)
			return sl_errf(err, SL_ECLOSED, "the engine closed its socket");
		buf_commit(&d->in, (size_t)n);
		rc = take(d, err);
	}
	return rc;
}

int bench_direct(const char *socket_path, uint32_t n, double seconds, struct histogram *out, struct sl_err *err)
{
	struct direct d = {.fd = -1, .times = out};
	buf_init(&d.in, READ_BYTES + PROTO_HEAD_BYTES + PROTO_MAX_PAYLOAD);
	buf_init(&d.out, 64 << 20);
	histogram_clear(out);
	int rc = begin(&d, socket_path, n);
	if (rc != 0)
		sl_errf(err, rc, "%s: can't reach the engine", socket_path);
	else
		rc = listen_for(&d, seconds, err);
	if (d.fd >= 0)
		close(d.fd);
	buf_dispose(&d.in);
	buf_dispose(&d.out);
	return rc;
}
