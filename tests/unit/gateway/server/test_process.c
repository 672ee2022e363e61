/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway's process in a child: several threads, readiness, signals, drain, ports, reloads, and
 * another process that takes over its sockets.
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/beat.h"
#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/log.h"
#include "gateway/server/process.h"

enum { PATIENCE_MS = 10000, NEVER_READY = 66 };

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
		char text[64];
		int n = strcmp(r->path, "/who") == 0
			    ? snprintf(text, sizeof text, "%d%s.", (int)getpid(), http_is_late(s) ? " late" : "")
			: strcmp(r->path, "/beat") == 0
			    ? snprintf(text, sizeof text, "%d.", (int)app->t->cfg->heartbeat_ms)
			    : snprintf(text, sizeof text, "%d", app->t->index);
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

static bool ready(struct gw_app *app) { return app->t->cfg->heartbeat_ms != NEVER_READY; }

/* 13 is wrong for the application. */
static int prepare(struct gw_snapshot *next, const struct gw_snapshot *now, struct sl_err *err)
{
	(void)now;
	return next->cfg.heartbeat_ms == 13 ? sl_errf(err, SL_EINVAL, "unlucky") : 0;
}

static void reload(struct gw_app *app, struct gw_snapshot *next)
{
	if (app->t->cfg != &next->cfg)
		abort();
}

static const struct http_app http = {on_request, on_body, on_body_end, on_close, NULL};
static const struct gw_app_ops ops = {
    .create = create, .destroy = destroy, .ready = ready, .http = &http, .prepare = prepare, .reload = reload};

/* The n-th reload brings the n-th value for heartbeat_ms; 0 can't be read. */
static const uint64_t reloads[] = {0, 11, 13, 17};
static size_t n_reloads;

static int load(void *ctx, const struct gw_snapshot *now, struct gw_snapshot **out, struct sl_err *err)
{
	struct gw_config cfg = now->cfg;
	(void)ctx;
	cfg.heartbeat_ms = reloads[n_reloads++];
	if (cfg.heartbeat_ms == 0)
		return sl_errf(err, SL_EINVAL, "file:1:1: wrong");
	return gw_snapshot_create(&cfg, NULL, NULL, out);
}

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
					   .refused_per_s = 5,
					   .refused_burst = 50,
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
		prctl(PR_SET_PDEATHSIG, SIGKILL);   /* nothing outlives a failed test */
		for (int fd = 3; fd < 1024; fd++) { /* the parent's connections are not the child's */
			if (fd != beat[1] && fd != cfg.handover_fd)
				close(fd);
		}
		cfg.beat_fd = beat[1];
		log_init("test", LOG_INFO);
		const struct gw_reload from = {load, NULL};
		struct gw_snapshot *first;
		if (gw_snapshot_create(&cfg, NULL, NULL, &first) != 0)
			exit(1);
		exit(gateway_serve_snapshot(first, &ops, &from));
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
	while (poll(&p, 1, PATIENCE_MS) == 1 && n + 1 < size && (m = read(c->log, text + n, size - 1 - n)) > 0)
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
	int rc = is6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6) : connect(fd, (struct sockaddr *)&v4, sizeof v4);
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

/* Reads the log until it has said that. */
static void await_log(struct child *c, const char *what)
{
	char text[16384];
	size_t n = 0;
	struct pollfd p = {.fd = c->log, .events = POLLIN};
	text[0] = '\0';
	while (strstr(text, what) == NULL) {
		if (poll(&p, 1, PATIENCE_MS) != 1 || n + 1 == sizeof text)
			fail_msg("\"%s\" was not logged, but: %s", what, text);
		ssize_t m = read(c->log, text + n, sizeof text - 1 - n);
		if (m <= 0)
			fail_msg("\"%s\" was not logged, but: %s", what, text);
		n += (size_t)m;
		text[n] = '\0';
	}
}

/* The body of a small answer, which ends with a dot. */
static const char *answer(int fd, const char *path)
{
	static char text[4096];
	ask(fd, path);
	read_until(fd, text, sizeof text, ".");
	char *body = strstr(text, "\r\n\r\n");
	while (body == NULL || strchr(body, '.') == NULL) { /* the first dot was in a header */
		size_t n = strlen(text);
		ssize_t m = recv(fd, text + n, sizeof text - 1 - n, 0);
		assert_true(m > 0);
		text[n + (size_t)m] = '\0';
		body = strstr(text, "\r\n\r\n");
	}
	return body + 4;
}

static void a_reload_is_whole_or_refused(void **state)
{
	(void)state;
	char text[4096];
	uint16_t port = free_port();
	struct gw_config cfg = config("127.0.0.1", port, 3);
	cfg.heartbeat_ms = 7;
	struct child c = start(cfg);
	assert_true(await_beat(&c, BEAT_READY));
	int fd[12];
	for (int i = 0; i < 12; i++) {
		fd[i] = dial("127.0.0.1", port);
		assert_string_equal(answer(fd[i], "/beat"), "7.");
	}
	static const struct {
		const char *log, *value;
	} steps[] = {{"refused, the old configuration stays: file:1:1: wrong", "7."},
		     {"reloaded", "11."},
		     {"stays: unlucky", "11."},
		     {"reloaded", "17."}};
	for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
		kill(c.pid, SIGHUP);
		await_log(&c, steps[s].log);
		/* On all threads, over connections that were there before. */
		for (int i = 0; i < 12; i++)
			assert_string_equal(answer(fd[i], "/beat"), steps[s].value);
	}
	for (int i = 0; i < 12; i++)
		close(fd[i]);
	kill(c.pid, SIGTERM);
	assert_int_equal(finish(&c, text, sizeof text), 0);
}

static void a_drain_goes_on_answering(void **state)
{
	(void)state;
	char text[4096];
	uint16_t port = free_port();
	struct gw_config cfg = config("127.0.0.1", port, 1);
	struct child c = start(cfg);
	assert_true(await_beat(&c, BEAT_READY));
	int idle = dial("127.0.0.1", port), runs = dial("127.0.0.1", port);
	assert_null(strstr(answer(idle, "/who"), "late"));
	ask(runs, "/never");
	read_until(runs, text, sizeof text, "\r\n\r\n");
	kill(c.pid, SIGTERM);
	assert_true(await_beat(&c, BEAT_NOT_READY));
	/* The idle one is closed; who comes now is answered, once, and known to be late. */
	assert_int_equal(recv(idle, text, sizeof text, 0), 0);
	close(idle);
	for (int i = 0; i < 3; i++) {
		int late = dial("127.0.0.1", port);
		assert_non_null(strstr(answer(late, "/who"), "late"));
		assert_int_equal(recv(late, text, sizeof text, 0), 0);
		close(late);
	}
	close(runs); /* the last that was waited for */
	assert_int_equal(finish(&c, text, sizeof text), 0);
}

/* The supervisor's part: a socket over which a child gets sets of sockets and sends them. */
static struct child start_keeping(struct gw_config cfg, const struct fd_pass_set *given, int *ours)
{
	int ends[2];
	assert_int_equal(fd_pass_pair(ends), 0);
	if (given != NULL)
		assert_int_equal(fd_pass_send(ends[0], given->fds, given->n), 0);
	cfg.handover_fd = ends[1];
	struct child c = start(cfg);
	close(ends[1]);
	*ours = ends[0];
	return c;
}

static size_t take_set(int ours, struct fd_pass_set *out)
{
	static struct fd_pass_in in;
	assert_int_equal(fd_pass_receive(ours, &in, out), 1);
	return out->n;
}

static void another_takes_over(void **state)
{
	static const int64_t threads[][2] = {{1, 1}, {3, 2}, {2, 5}};
	static struct fd_pass_set set, next;
	char text[4096];
	(void)state;
	for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
		int ours[2];
		uint16_t port = free_port();
		struct gw_config cfg = config("127.0.0.1", port, threads[t][0]);
		cfg.upgrade_drain_ms = 60000;
		struct child first = start_keeping(cfg, NULL, &ours[0]);
		assert_true(await_beat(&first, BEAT_READY));
		assert_int_equal(take_set(ours[0], &set), threads[t][0]);
		int idle = dial("127.0.0.1", port), runs = dial("127.0.0.1", port);
		assert_int_equal(atoi(answer(idle, "/who")), first.pid);
		ask(runs, "/later");
		read_until(runs, text, sizeof text, "\r\n\r\n");

		/* One that can't serve yet accepts nothing. */
		cfg.threads = threads[t][1];
		cfg.takeover = true;
		cfg.heartbeat_ms = NEVER_READY;
		struct child never = start_keeping(cfg, &set, &ours[1]);
		struct pollfd p = {.fd = ours[1], .events = POLLIN};
		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(take_set(ours[1], &next), threads[t][0]); /* none new, none lost */
		fd_pass_set_dispose(&next);
		for (int i = 0; i < 50; i++) {
			int fd = dial("127.0.0.1", port);
			assert_int_equal(atoi(answer(fd, "/who")), first.pid);
			close(fd);
		}
		kill(never.pid, SIGTERM);
		assert_int_equal(finish(&never, text, sizeof text), 0);
		close(ours[1]);

		/* What waits in the queues of one that does nothing any more is served by the next. */
		cfg.heartbeat_ms = 1;
		int waiting[50], status;
		kill(first.pid, SIGSTOP);
		assert_int_equal(waitpid(first.pid, &status, WUNTRACED), first.pid);
		for (int i = 0; i < 50; i++) {
			waiting[i] = dial("127.0.0.1", port);
			ask(waiting[i], "/who");
		}
		struct child second = start_keeping(cfg, &set, &ours[1]);
		fd_pass_set_dispose(&set);
		assert_true(await_beat(&second, BEAT_READY));
		for (int i = 0; i < 50; i++) {
			read_until(waiting[i], text, sizeof text, "\r\n\r\n");
			close(waiting[i]);
		}
		kill(first.pid, SIGUSR2);
		kill(first.pid, SIGCONT);
		assert_true(await_beat(&first, BEAT_NOT_READY));
		read_until(runs, text, sizeof text, "0001\r\n!\r\n0\r\n\r\n");
		for (int i = 0; i < 50; i++) {
			int fd = dial("127.0.0.1", port);
			assert_int_equal(atoi(answer(fd, "/who")), second.pid);
			close(fd);
		}
		/* The idle connection may ask once more. */
		assert_int_equal(atoi(answer(idle, "/who")), first.pid);
		assert_int_equal(recv(idle, text, sizeof text, 0), 0);
		close(idle);
		close(runs);
		assert_int_equal(finish(&first, text, sizeof text), 0);
		kill(second.pid, SIGTERM);
		assert_int_equal(finish(&second, text, sizeof text), 0);
		for (int i = 0; i < 2; i++)
			close(ours[i]);
	}
}

static void a_replaced_one_has_a_deadline(void **state)
{
	(void)state;
	char text[4096];
	for (int by_signal = 0; by_signal < 2; by_signal++) {
		struct gw_config cfg = config("127.0.0.1", free_port(), 2);
		cfg.upgrade_drain_ms = by_signal ? 60000 : 200;
		cfg.drain_ms = 200;
		struct child c = start(cfg);
		assert_true(await_beat(&c, BEAT_READY));
		int fd = dial("127.0.0.1", cfg.http.port);
		ask(fd, "/never");
		read_until(fd, text, sizeof text, "\r\n\r\n");
		kill(c.pid, SIGUSR2);
		assert_true(await_beat(&c, BEAT_NOT_READY));
		/* Nobody has taken over: once its threads have heard of it, nobody listens. */
		uint64_t from = clock_now_ns();
		for (int probe; (probe = dial("127.0.0.1", cfg.http.port)) >= 0;) {
			assert_true(clock_now_ns() - from < PATIENCE_MS * NS_PER_MS);
			close(probe);
		}
		if (by_signal)
			kill(c.pid, SIGTERM);
		assert_int_equal(finish(&c, text, sizeof text), 0);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(threads_share_a_port_and_end_on_a_signal),
	    cmocka_unit_test(drain_lets_a_stream_finish),
	    cmocka_unit_test(drain_has_an_end),
	    cmocka_unit_test(a_port_in_use_is_one_clear_line),
	    cmocka_unit_test(addresses),
	    cmocka_unit_test(a_reload_is_whole_or_refused),
	    cmocka_unit_test(a_drain_goes_on_answering),
	    cmocka_unit_test(another_takes_over),
	    cmocka_unit_test(a_replaced_one_has_a_deadline),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
