/* SPDX-License-Identifier: Apache-2.0
 *
 * The server and its links: who may connect, what a broken or a slow peer costs, and that nothing
 * is left behind. Behind it stands the echo engine, and once the real one.
 */
#include "link_client.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/support/small_engine.h"
#include "tests/support/tiny_gguf.h"
#include "base/fault.h"
#include "engine/echo/echo.h"

static char path[64];

struct running {
	struct server *server;
	struct echo *echo;
	struct engine *engine;
	pthread_t thread;
};

static void *run(void *server)
{
	server_run(server);
	return NULL;
}

static void start_server(struct running *r)
{
	struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
	struct sl_err err;
	*r = (struct running){0};
	snprintf(path, sizeof path, "/tmp/sluice-server-%d.sock", (int)getpid());
	assert_int_equal(server_create(&srv, &r->server, &err), 0);
}

static void start(struct running *r)
{
	start_server(r);
	struct eng_echo_config cfg = {.n_ctx = 1 << 20, .tokens_per_burst = 64};
	assert_int_equal(echo_create(&cfg, r->server, &r->echo), 0);
	assert_int_equal(pthread_create(&r->thread, NULL, run, r->server), 0);
}

static void stop(struct running *r)
{
	server_stop(r->server);
	pthread_join(r->thread, NULL);
	if (r->echo != NULL)
		echo_destroy(r->echo);
	if (r->engine != NULL)
		engine_destroy(r->engine);
	server_destroy(r->server);
}

static struct client *client_new(void)
{
	struct client *c = calloc(1, sizeof *c);
	c->fd = -1;
	return c;
}

static void drop(struct client *c)
{
	client_close(c);
	free(c);
}

static void socket_is_private(void **state)
{
	(void)state;
	struct running r;
	struct stat st;
	start(&r);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0600);
	/* A second engine on the same socket is refused, and takes nothing away. */
	struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
	struct server *second;
	struct sl_err err;
	assert_int_equal(server_create(&srv, &second, &err), SL_ELIMIT);
	struct client *c = client_new();
	client_open(c, path);
	drop(c);
	stop(&r);
	assert_int_not_equal(lstat(path, &st), 0);

	/* A file that is no socket is left alone. */
	FILE *f = fopen(path, "w");
	fputs("precious", f);
	fclose(f);
	assert_int_equal(server_create(&srv, &second, &err), SL_EINVAL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 8);
	unlink(path);

	char endless[200];
	memset(endless, 'x', sizeof endless);
	endless[sizeof endless - 1] = '\0';
	srv.socket_path = endless;
	assert_int_equal(server_create(&srv, &second, &err), SL_EINVAL);
	srv.socket_path = "/nonexistent/x.sock";
	assert_int_equal(server_create(&srv, &second, &err), SL_EIO);
}

static void start_beside(struct running *r, const struct eng_echo_config *cfg)
{
	struct eng_server_config srv = {.socket_path = path, .beat_fd = -1, .takeover = true};
	struct sl_err err;
	*r = (struct running){0};
	assert_int_equal(server_create(&srv, &r->server, &err), 0);
	assert_int_equal(echo_create(cfg, r->server, &r->echo), 0);
	assert_int_equal(pthread_create(&r->thread, NULL, run, r->server), 0);
}

/* Its inode changes once, and there is one at any time. */
static void await_other_socket(ino_t former)
{
	uint64_t until = clock_now_ns() + 60 * NS_PER_S;
	struct stat st;
	do
		assert_int_equal(lstat(path, &st), 0);
	while (st.st_ino == former && clock_now_ns() < until);
	assert_int_not_equal(st.st_ino, former);
}

/* The former process serves its links until they close, and leaves the socket to the new one. */
static void another_takes_over(void **state)
{
	(void)state;
	struct running r, next;
	struct stat st;
	start_server(&r);
	struct eng_echo_config cfg = {.n_ctx = 1 << 20, .tokens_per_burst = 64};
	assert_int_equal(server_catch_signals(r.server), 0);
	assert_int_equal(echo_create(&cfg, r.server, &r.echo), 0);
	assert_int_equal(pthread_create(&r.thread, NULL, run, r.server), 0);
	assert_int_equal(lstat(path, &st), 0);
	ino_t former = st.st_ino;
	struct client *c = client_new(), *late = client_new();
	client_open(c, path);
	/* Nobody else has the socket: it would come back here. */
	assert_int_equal(kill(getpid(), SIGUSR2), 0);
	client_open(late, path);
	drop(late);
	start_beside(&next, &cfg);
	await_other_socket(former);
	assert_int_equal(kill(getpid(), SIGUSR2), 0);
	client_expect(c, PROTO_LEAVE);
	late = client_new();
	client_open(late, path);
	struct proto_submit req = client_plain("a b c", PROTO_PROMPT_TEXT, 2);
	client_submit(c, 7, &req);
	client_credit(c, 7, 9);
	client_flush(c);
	while (client_next(c) && c->head.type != PROTO_DONE)
		continue;
	assert_true(c->head.type == PROTO_DONE && c->head.id == 7);
	drop(c);
	pthread_join(r.thread, NULL); /* its last link has closed */
	r.thread = 0;
	echo_destroy(r.echo);
	server_destroy(r.server);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_not_equal(st.st_ino, former);
	drop(late);
	stop(&next);
	assert_int_not_equal(lstat(path, &st), 0);
	char beside[80];
	snprintf(beside, sizeof beside, "%s.next", path);
	assert_int_not_equal(lstat(beside, &st), 0);
}

/* A broken frame ends its own link with a BYE; the other one does not notice. */
static void malformed_frames(void **state)
{
	static const struct {
		const char *what;
		uint8_t bytes[40];
		size_t n;
	} cases[] = {
	    {"unknown type", {0, 0, 0, 0, 99, PROTO_VERSION}, 16},
	    {"another version", {0, 0, 0, 0, PROTO_PING, PROTO_VERSION + 1}, 16},
	    {"too long", {0xff, 0xff, 0xff, 0x7f, PROTO_SUBMIT, PROTO_VERSION}, 16},
	    {"truncated submit", {4, 0, 0, 0, PROTO_SUBMIT, PROTO_VERSION}, 20},
	    {"credit too short", {3, 0, 0, 0, PROTO_CREDIT, PROTO_VERSION}, 19},
	    {"cancel with payload", {1, 0, 0, 0, PROTO_CANCEL, PROTO_VERSION}, 17},
	    {"an engine's frame", {8, 0, 0, 0, PROTO_DONE, PROTO_VERSION}, 24},
	    {"http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
	};
	(void)state;
	struct running r;
	start(&r);
	struct client *good = client_new();
	client_open(good, path);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct client *c = client_new();
		client_open(c, path);
		assert_int_equal(send(c->fd, cases[i].bytes, cases[i].n, MSG_NOSIGNAL), cases[i].n);
		client_expect(c, PROTO_BYE);
		struct proto_bye bye;
		struct sl_err err;
		assert_int_equal(proto_get_bye(c->payload, c->head.length, &bye, &err), 0);
		assert_true(bye.reason.n > 0);
		assert_false(client_next(c)); /* and then it is closed */
		drop(c);
	}
	/* Before HELLO nothing is served; a second HELLO and a used identifier are breaches. */
	struct client *c = client_new();
	client_open_quiet(c, path);
	assert_int_equal(proto_put_ping(&c->out, 1), 0);
	client_flush(c);
	client_expect(c, PROTO_BYE);
	drop(c);
	c = client_new();
	client_open(c, path);
	struct proto_hello hello = {.version = PROTO_VERSION};
	assert_int_equal(proto_put_hello(&c->out, &hello), 0);
	client_flush(c);
	client_expect(c, PROTO_BYE);
	drop(c);
	c = client_new();
	client_open(c, path);
	struct proto_submit req = client_plain("repeat it", PROTO_PROMPT_TEXT, 10);
	client_submit(c, 7, &req);
	client_submit(c, 7, &req);
	do
		assert_true(client_next(c));
	while (c->head.type == PROTO_QUEUED); /* it may come before */
	assert_int_equal(c->head.type, PROTO_BYE);
	drop(c);
	c = client_new();
	client_open_quiet(c, path);
	hello.version = 77;
	assert_int_equal(proto_put_hello(&c->out, &hello), 0);
	client_flush(c);
	client_expect(c, PROTO_BYE);
	drop(c);

	client_submit(good, 1, &req);
	client_credit(good, 1, 100);
	assert_int_equal(client_until_done(good, 1, NULL, NULL).finish, PROTO_FINISH_LENGTH);
	client_until_idle(good);
	drop(good);
	stop(&r);
}

/* One byte a write: frames are put together again. */
static void bytes_one_by_one(void **state)
{
	(void)state;
	struct running r;
	start(&r);
	struct client *c = client_new();
	client_open(c, path);
	struct proto_submit req = client_plain("a b c", PROTO_PROMPT_TEXT, 10);
	struct proto_credit credit = {.n_tokens = 10};
	assert_int_equal(proto_put_submit(&c->out, 3, &req), 0);
	assert_int_equal(proto_put_credit(&c->out, 3, &credit), 0);
	while (c->out.len > 0) {
		assert_int_equal(send(c->fd, buf_data(&c->out), 1, MSG_NOSIGNAL), 1);
		buf_consume(&c->out, 1);
	}
	assert_int_equal(client_until_done(c, 3, NULL, NULL).finish, PROTO_FINISH_STOP);
	drop(c);
	stop(&r);
}

static void large_frames(void **state)
{
	(void)state;
	struct running r;
	start(&r);
	struct client *c = client_new();
	client_open(c, path);
	size_t n = PROTO_MAX_PAYLOAD - 1000;
	char *text = malloc(n + 1);
	memset(text, 'x', n);
	text[n] = '\0';
	struct proto_submit req = client_plain(text, PROTO_PROMPT_TEXT, 3);
	for (uint64_t id = 1; id <= 3; id++) {
		client_submit(c, id, &req);
		client_credit(c, id, 10);
		assert_int_equal(client_until_done(c, id, NULL, NULL).finish, PROTO_FINISH_LENGTH);
	}
	free(text);
	drop(c);
	stop(&r);
}

/* A gateway that does not read: its link is closed when 4 MiB are unread, its sequences end, and
 * another link is served all the while. */
static void slow_reader(void **state)
{
	(void)state;
	struct running r;
	start(&r);
	struct client *slow = client_new(), *good = client_new();
	client_open(slow, path);
	client_open(good, path);
	struct proto_submit req = client_plain("clock", PROTO_PROMPT_TEXT, 1000000);
	client_submit(slow, 1, &req);
	client_credit(slow, 1, 1000000);
	while (client_until_idle(good).cancelled == 0)
		;
	struct proto_submit small = client_plain("a b c", PROTO_PROMPT_TEXT, 10);
	client_submit(good, 1, &small);
	client_credit(good, 1, 10);
	assert_int_equal(client_until_done(good, 1, NULL, NULL).finish, PROTO_FINISH_STOP);
	/* What was already in the socket can be read, then the end comes; no DONE. */
	while (client_next(slow))
		assert_int_not_equal(slow->head.type, PROTO_DONE);
	drop(slow);
	drop(good);
	stop(&r);
}

/* A link that closes cancels its sequences, in whatever state they are. */
static void link_drops(void **state)
{
	(void)state;
	struct running r;
	start(&r);
	struct client *watcher = client_new();
	client_open(watcher, path);
	for (int round = 0; round < 5; round++) {
		struct client *c = client_new();
		client_open(c, path);
		struct proto_submit req = client_plain("repeat", PROTO_PROMPT_TEXT, 100000);
		req.rate_tps = 20;
		for (uint64_t id = 1; id <= 50; id++) {
			client_submit(c, id, &req);
			if (id % 2 == 0)
				client_credit(c, id, 1000);
		}
		/* All of them have been read: a socket that is closed with bytes for it loses what it has sent. */
		struct proto_stats s;
		do
			s = client_stats(watcher);
		while (s.submitted < (uint64_t)(round + 1) * 50);
		drop(c);
		do
			s = client_until_idle(watcher);
		while (s.cancelled < (uint64_t)(round + 1) * 50);
	}
	drop(watcher);
	stop(&r);
}

static void stopping_tells_everybody(void **state)
{
	(void)state;
	struct running r;
	start(&r);
	struct client *c = client_new();
	client_open(c, path);
	struct proto_submit req = client_plain("repeat", PROTO_PROMPT_TEXT, 100000);
	req.rate_tps = 20;
	for (uint64_t id = 1; id <= 20; id++) {
		client_submit(c, id, &req);
		client_credit(c, id, 1000);
	}
	client_expect(c, PROTO_QUEUED);
	server_stop(r.server);
	int done = 0;
	while (client_next(c) && c->head.type != PROTO_BYE)
		done += c->head.type == PROTO_DONE;
	assert_int_equal(done, 20);
	assert_int_equal(c->head.type, PROTO_BYE);
	drop(c);
	stop(&r);
}

/* Reads, writes and accepts fail: links go, the server stays. */
static void faults(void **state)
{
	(void)state;
	struct running r;
	start(&r);
	for (long nth = 1; nth <= 12; nth++) {
		for (int point = FAULT_ALLOC; point <= FAULT_ACCEPT; point++) {
			fault_arm((enum fault_point)point, nth, 1);
			struct client *c = client_new();
			client_open_quiet(c, path);
			struct proto_hello hello = {.version = PROTO_VERSION};
			struct proto_submit req = client_plain("a b c", PROTO_PROMPT_TEXT, 10);
			struct proto_credit credit = {.n_tokens = 10};
			struct sl_buf out;
			fault_any_armed = false; /* the client's own allocations are not meant */
			buf_init(&out, 1 << 20);
			proto_put_hello(&out, &hello);
			proto_put_submit(&out, 1, &req);
			proto_put_credit(&out, 1, &credit);
			fault_any_armed = true;
			ssize_t sent = send(c->fd, buf_data(&out), out.len, MSG_NOSIGNAL);
			bool done = sent != (ssize_t)out.len;
			while (!done) {
				/* Byte by byte through recv, so that no fault point is passed here. */
				uint8_t head[PROTO_HEAD_BYTES];
				struct pollfd p = {.fd = c->fd, .events = POLLIN};
				assert_true(poll(&p, 1, CLIENT_WAIT_MS) > 0);
				ssize_t n = recv(c->fd, head, sizeof head, MSG_WAITALL);
				if (n != sizeof head)
					break;
				uint32_t left = (uint32_t)head[0] | (uint32_t)head[1] << 8;
				while (left > 0) {
					n = recv(c->fd, c->payload, left, 0);
					if (n <= 0)
						break;
					left -= (uint32_t)n;
				}
				done = head[4] == PROTO_DONE || head[4] == PROTO_BYE;
			}
			fault_disarm_all();
			buf_dispose(&out);
			drop(c);
		}
	}
	struct client *c = client_new();
	client_open(c, path);
	client_until_idle(c);
	drop(c);
	stop(&r);
}

/* The real engine behind the same server: models become ready on the wire, an answer comes, a
 * dropped link cancels. */
/* Frames with what the likeliest tokens were, of the prompt and of the answer. */
static void client_log_probabilities(struct client *c, const struct proto_submit *plain)
{
	struct proto_submit req = *plain;
	struct proto_id_f32 bias = {.id = 5, .v = 100};
	struct sl_err err;
	uint32_t n_prompt = 0, n_answer = 0, told = 0;
	req.flags |= PROTO_SUBMIT_WANT_LOGPROBS;
	req.n_top_logprobs = 3;
	req.prompt_logprobs = 1 + 2;
	req.logit_bias = &bias;
	req.n_logit_bias = 1;
	client_submit(c, 10, &req);
	client_credit(c, 10, 100);
	for (;;) {
		assert_true(client_next(c));
		if (c->head.type == PROTO_DONE)
			break;
		if (c->head.type == PROTO_QUEUED) {
			struct proto_queued q;
			assert_int_equal(proto_get_queued(c->payload, c->head.length, &q, &err), 0);
			n_prompt = q.n_prompt;
		} else if (c->head.type == PROTO_PROMPT_LOGPROBS) {
			struct proto_prompt_logprobs m;
			assert_int_equal(proto_get_prompt_logprobs(c->payload, c->head.length, &m, &err), 0);
			assert_int_equal(m.first, told);
			assert_int_equal(m.n_top, 2);
			told += m.n;
			for (uint16_t i = 0; i < m.n; i++) {
				float v = proto_prompt_logprob_at(&m, i, 0).v;
				if (m.first + i == 0)
					assert_true(v != v);
				else
					assert_true(v <= proto_prompt_logprob_at(&m, i, 1).v && v < 0);
			}
		} else {
			struct proto_tokens t = client_tokens(c);
			assert_int_equal(told, n_prompt);
			assert_int_equal(t.n_top, 3);
			for (uint16_t i = 0; i < t.n; i++) {
				assert_int_equal(proto_token_at(&t, i).id, 5);
				assert_true(proto_top_at(&t, i, 0).v >= proto_top_at(&t, i, 2).v);
			}
			n_answer += t.n;
		}
	}
	assert_int_equal(client_done(c).finish, PROTO_FINISH_LENGTH);
	assert_int_equal(n_answer, 20);
	assert_true(n_prompt > 0);
}

static void the_real_engine(void **state)
{
	(void)state;
	struct running r;
	char model[64];
	snprintf(model, sizeof model, "/tmp/sluice-server-%d.gguf", (int)getpid());
	assert_true(tiny_gguf_write(model, 5));
	struct eng_model_config models[] = {{.name = "gone", .path = "/nonexistent.gguf"},
					    {.name = "tiny", .path = model, .role = 1}};
	struct eng_config cfg = small_engine("auto", models, 2);
	cfg.kv_bytes = 4 << 20;
	cfg.max_waiting = 8;
	struct sl_err err;
	start_server(&r);
	assert_int_equal(engine_create(&cfg, hub_post, server_hub(r.server), &r.engine, &err), 0);
	hub_attach(server_hub(r.server), &engine_backend, r.engine);
	assert_int_equal(pthread_create(&r.thread, NULL, run, r.server), 0);

	struct client *c = client_new();
	client_open(c, path);
	int states[2] = {-1, -1};
	while (states[0] != PROTO_MODEL_FAILED || states[1] != PROTO_MODEL_READY) {
		assert_true(client_next_any(c));
		if (c->head.type != PROTO_MODEL)
			continue;
		struct proto_model m;
		assert_int_equal(proto_get_model(c->payload, c->head.length, &m, &err), 0);
		states[m.index] = m.state;
	}
	static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
	struct proto_submit req = client_plain(chat, PROTO_PROMPT_CHAT, 20);
	req.model = 1;
	req.flags = PROTO_SUBMIT_IGNORE_EOS;
	uint32_t n = 0;
	client_submit(c, 9, &req);
	client_credit(c, 9, 100);
	struct proto_done done = client_until_done(c, 9, NULL, &n);
	assert_int_equal(done.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(n, 20);
	client_log_probabilities(c, &req);
	/* Each of these is over the bound of the queue: refused at once, the others wait. */
	int refused = 0;
	for (uint64_t id = 100; id < 120; id++)
		client_submit(c, id, &req);
	while (refused < 12) {
		assert_true(client_next(c));
		if (c->head.type != PROTO_DONE)
			continue;
		assert_int_equal(client_done(c).error, PROTO_ERR_OVERLOADED);
		refused++;
	}
	struct client *watcher = client_new();
	client_open(watcher, path);
	drop(c);
	client_until_idle(watcher);
	drop(watcher);
	stop(&r);
	unlink(model);
}

/* A process of its own, ended by SIGTERM. */
static void ended_by_a_signal(void **state)
{
	(void)state;
	snprintf(path, sizeof path, "/tmp/sluice-server-%d.sock", (int)getpid());
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct eng_server_config srv = {
		    .socket_path = path, .beat_fd = ready[1], .beat_ms = 10, .stale_ms = 5000};
		struct eng_echo_config cfg = {.n_ctx = 2048};
		close(ready[0]);
		_exit(engine_serve_echo(&cfg, &srv));
	}
	close(ready[1]);
	/* It says that it is ready, and it lives. */
	char c = 0;
	while (c != 'r')
		assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(kill(pid, SIGTERM), 0);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_not_equal(access(path, F_OK), 0);
	close(ready[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ended_by_a_signal),
	    cmocka_unit_test(socket_is_private),
	    cmocka_unit_test(another_takes_over),
	    cmocka_unit_test(malformed_frames),
	    cmocka_unit_test(bytes_one_by_one),
	    cmocka_unit_test(large_frames),
	    cmocka_unit_test(slow_reader),
	    cmocka_unit_test(link_drops),
	    cmocka_unit_test(stopping_tells_everybody),
	    cmocka_unit_test(faults),
	    cmocka_unit_test(the_real_engine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
