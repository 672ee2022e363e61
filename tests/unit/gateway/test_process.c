/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway's process in a child: several threads, readiness, signals, drain, ports.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/process.h"

enum { PATIENCE_MS = 10000 };

/* ---- the application in the child ---- */

struct gw_app {
	struct gw_thread *t;
	struct http_stream *waiting;
	struct event *timer;
};

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct gw_app *app = ctx;
	(void)room;
	if (app->timer != NULL)
		return 0;
	dst[0] = '!';
	*end = true;
	return 1;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	struct gw_app *app = arg;
	/* /later ends only once the process drains. */
	if (app->waiting != NULL && app->t->draining) {
		event_free(app->timer);
		app->timer = NULL;
		http_body_ready(app->waiting);
	}
}

static void on_request(void *ctx, struct http_stream *s, const struct http_request *r)
{
	struct gw_app *app = ctx;
	if (strcmp(r->path, "/later") == 0 || strcmp(r->path, "/never") == 0) {
		static const struct timeval every = {.tv_usec = 20000};
		app->waiting = r->path[1] == 'l' ? s : NULL;
		app->timer = event_new(app->t->base, -1, EV_PERSIST, on_timer, app);
		event_add(app->timer, &every);
		http_reply_stream(s, 200, NULL, 0, (struct http_source){pull, app});
	} else {
		char text[16];
		int n = snprintf(text, sizeof text, "%d", app->t->index);
		http_reply(s, 200, NULL, 0, text, (size_t)n);
	}
}

static void on_body(void *ctx, struct http_stream *s, const uint8_t *data, size_t n)
{
	(void)ctx, (void)s, (void)data, (void)n;
}

static void on_body_end(void *ctx, struct http_stream *s) { (void)ctx, (void)s; }

static void on_close(void *ctx, struct http_stream *s, enum http_close_reason why)
{
	struct gw_app *app = ctx;
	(void)why;
	if (app->waiting == s)
		app->waiting = NULL;
}

static int create(struct gw_thread *t, struct gw_app **out, struct sl_err *err)
{
	(void)err;
	*out = calloc(1, sizeof **out);
	(*out)->t = t;
	return 0;
}

static void destroy(struct gw_app *app)
{
	if (app->timer != NULL)
		event_free(app->timer);
	free(app);
}

static bool ready(struct gw_app *app)
{
	(void)app;
	return true;
}

static const struct http_app http = {on_request, on_body, on_body_end, on_close};
static const struct gw_app_ops ops = {.create = create, .destroy = destroy, .ready = ready, .http = &http};

/* ---- the parent ---- */

struct child {
	pid_t pid;
	int beat, log; /* read ends */
};

static uint16_t free_port(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof sa;
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	close(fd);
	return ntohs(sa.sin_port);
}

static struct gw_config config(const char *host, uint16_t port, int64_t threads)
{
	struct gw_config cfg = {.threads = threads,
				.drain_ms = 5000,
				.beat_fd = -1,
				.beat_ms = 50,
				.stale_ms = 5000,
				.limits = {.connections = 100,
					   .streams_per_connection = 10,
					   .header_bytes = 16384,
					   .header_fields = 100,
					   .body_bytes = 1 << 20,
					   .handshake_ms = 5000,
					   .header_ms = 5000,
					   .body_ms = 5000,
					   .idle_ms = 60000,
					   .stall_ms = 30000,
					   .output_bytes = 262144,
					   .resets_per_s = 10,
					   .resets_burst = 100,
					   .control_frames_per_s = 10,
					   .control_frames_burst = 100}};
	cfg.https.off = true;
	snprintf(cfg.http.text, sizeof cfg.http.text, "%s:%d", host, port);
	snprintf(cfg.http.host, sizeof cfg.http.host, "%s", host);
	cfg.http.port = port;
	return cfg;
}

static struct child start(struct gw_config cfg)
{
	int beat[2], log[2];
	assert_int_equal(pipe2(beat, O_CLOEXEC), 0);
	assert_int_equal(pipe2(log, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(log[1], STDERR_FILENO);
		close(beat[0]);
		cfg.beat_fd = beat[1];
		log_init("test", LOG_INFO);
		exit(gateway_serve(&cfg, &ops));
	}
	close(beat[1]);
	close(log[1]);
	return (struct child){pid, beat[0], log[0]};
}

/* Waits for that message on the heartbeat. False: the child has ended. */
static bool await_beat(struct child *c, char want)
{
	struct pollfd p = {.fd = c->beat, .events = POLLIN};
	char got;
	for (;;) {
		assert_true(poll(&p, 1, PATIENCE_MS) == 1);
		if (read(c->beat, &got, 1) != 1)
			return false;
		if (got == want)
			return true;
	}
}

/* The exit status; its log goes to text. */
static int finish(struct child *c, char *text, size_t size)
{
	size_t n = 0;
	ssize_t m;
	struct pollfd p = {.fd = c->log, .events = POLLIN};
	while (poll(&p, 1, PATIENCE_MS) == 1 && n + 1 < size &&
	       (m = read(c->log, text + n, size - 1 - n)) > 0)
		n += (size_t)m;
	text[n] = '\0';
	int status;
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	close(c->beat);
	close(c->log);
	if (!WIFEXITED(status))
		fail_msg("ended by signal %d: %s", WTERMSIG(status), text);
	return WEXITSTATUS(status);
}

static int dial(const char *host, uint16_t port)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	bool is6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
	inet_pton(AF_INET, host, &v4.sin_addr);
	int fd = socket(is6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval limit = {.tv_sec = PATIENCE_MS / 1000};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	int rc = is6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6)
		     : connect(fd, (struct sockaddr *)&v4, sizeof v4);
	if (rc != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void ask(int fd, const char *path)
{
	char q[128];
	int n = snprintf(q, sizeof q, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
	assert_int_equal(send(fd, q, (size_t)n, MSG_NOSIGNAL), n);
}

static void read_until(int fd, char *text, size_t size, const char *what)
{
	size_t n = 0;
	text[0] = '\0';
	while (strstr(text, what) == NULL) {
		ssize_t m = recv(fd, text + n, size - 1 - n, 0);
		if (m <= 0)
			fail_msg("\"%s\" did not come, but: %s", what, text);
		n += (size_t)m;
		text[n] = '\0';
	}
}

static void threads_share_a_port_and_end_on_a_signal(void **state)
{
	(void)state;
	char text[4096];
	uint16_t port = free_port();
	struct child c = start(config("127.0.0.1", port, 4));
	assert_true(await_beat(&c, BEAT_READY));
	bool seen[4] = {false};
	for (int i = 0; i < 100; i++) {
		int fd = dial("127.0.0.1", port);
		assert_true(fd >= 0);
		ask(fd, "/");
		read_until(fd, text, sizeof text, "\r\n\r\n");
		seen[strstr(text, "\r\n\r\n")[4] - '0'] = true;
		close(fd);
	}
	/* The kernel spreads by a hash: all four in 100 but for a chance of 1e-12. */
	assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
	kill(c.pid, SIGTERM);
	assert_true(await_beat(&c, BEAT_NOT_READY));
	assert_int_equal(finish(&c, text, sizeof text), 0);
	assert_int_equal(dial("127.0.0.1", port), -1);
}

static void drain_lets_a_stream_finish(void **state)
{
	(void)state;
	char text[4096], log[4096];
	uint16_t port = free_port();
	struct child c = start(config("127.0.0.1", port, 1));
	assert_true(await_beat(&c, BEAT_READY));
	int fd = dial("127.0.0.1", port), idle = dial("127.0.0.1", port);
	ask(fd, "/later");
	read_until(fd, text, sizeof text, "\r\n\r\n");
	kill(c.pid, SIGTERM);
	read_until(fd, text, sizeof text, "0001\r\n!\r\n0\r\n\r\n");
	assert_int_equal(finish(&c, log, sizeof log), 0);
	close(fd);
	close(idle);
}

static void drain_has_an_end(void **state)
{
	(void)state;
	char text[4096], log[4096];
	uint16_t port = free_port();
	struct gw_config cfg = config("127.0.0.1", port, 2);
	cfg.drain_ms = 200;
	struct child c = start(cfg);
	assert_true(await_beat(&c, BEAT_READY));
	int fd = dial("127.0.0.1", port);
	ask(fd, "/never");
	read_until(fd, text, sizeof text, "\r\n\r\n");
	kill(c.pid, SIGINT);
	assert_int_equal(finish(&c, log, sizeof log), 0);
	close(fd);
	/* A second signal does not wait even that long. */
	cfg = config("127.0.0.1", free_port(), 2);
	cfg.drain_ms = 1000000;
	c = start(cfg);
	assert_true(await_beat(&c, BEAT_READY));
	fd = dial("127.0.0.1", cfg.http.port);
	ask(fd, "/never");
	read_until(fd, text, sizeof text, "\r\n\r\n");
	kill(c.pid, SIGTERM);
	assert_true(await_beat(&c, BEAT_NOT_READY));
	kill(c.pid, SIGTERM);
	assert_int_equal(finish(&c, log, sizeof log), 0);
	close(fd);
}

static void a_port_in_use_is_one_clear_line(void **state)
{
	(void)state;
	char text[4096], want[64];
	uint16_t port = free_port();
	struct child first = start(config("127.0.0.1", port, 2));
	assert_true(await_beat(&first, BEAT_READY));
	for (int threads = 1; threads <= 2; threads++) {
		struct child second = start(config("127.0.0.1", port, threads));
		assert_int_equal(finish(&second, text, sizeof text), GATEWAY_EXIT_CONFIG);
		snprintf(want, sizeof want, "127.0.0.1:%d: the port is in use", port);
		assert_non_null(strstr(text, want));
		assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	}
	kill(first.pid, SIGTERM);
	assert_int_equal(finish(&first, text, sizeof text), 0);
}

static void addresses(void **state)
{
	(void)state;
	char text[4096];
	uint16_t port = free_port();
	struct child c = start(config("localhost", port, 1));
	assert_true(await_beat(&c, BEAT_READY));
	int fd = dial("127.0.0.1", port);
	assert_true(fd >= 0);
	close(fd);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has_v6 = probe >= 0 && bind(probe, (struct sockaddr *)&any, sizeof any) == 0;
	close(probe);
	if (has_v6) {
		fd = dial("::1", port);
		assert_true(fd >= 0);
		close(fd);
	}
	kill(c.pid, SIGTERM);
	assert_int_equal(finish(&c, text, sizeof text), 0);
	if (has_v6) {
		c = start(config("::1", free_port(), 1));
		assert_true(await_beat(&c, BEAT_READY));
		kill(c.pid, SIGTERM);
		assert_int_equal(finish(&c, text, sizeof text), 0);
	}
	struct child bad = start(config("example.org", 80, 1));
	assert_int_equal(finish(&bad, text, sizeof text), GATEWAY_EXIT_CONFIG);
	assert_non_null(strstr(text, "example.org:80: not an IP address"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(threads_share_a_port_and_end_on_a_signal),
	    cmocka_unit_test(drain_lets_a_stream_finish),
	    cmocka_unit_test(drain_has_an_end),
	    cmocka_unit_test(a_port_in_use_is_one_clear_line),
	    cmocka_unit_test(addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
