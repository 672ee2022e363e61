/* SPDX-License-Identifier: Apache-2.0
 *
 * The remote engine over real sockets on both sides: a client of the engine's protocol, and a server that runs models.
 */
#include "tests/unit/engine/core/link_client.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/remote/remote.h"
#include "tests/support/perf.h"

/* ---- the upstream ---- */

static atomic_int listed, closed, begun;
static atomic_size_t flooded;
static atomic_bool dead;              /* connections are closed at once */
static atomic_bool tires;             /* those that are kept are closed at their second request */
static atomic_int n_kept;             /* connections that have got a request for "kept" */
static _Atomic(const char *) metrics; /* the response to a request for them; NULL: none comes; "": without end */
static atomic_int looked;             /* requests for them */

static bool put(int fd, const char *text)
{
	size_t n = strlen(text);
	return send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

#define HEAD(type) "HTTP/1.1 200 OK\r\nContent-Type: " type "\r\nConnection: close\r\n\r\n"
#define WORD(w) "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" w "\"}}]}\n\n"
#define STOP                                                                              \
	"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" \
	"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,"   \
	"\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n"

/* One request's head and body; false: the client left. */
static bool read_request(int fd, char *text, size_t room)
{
	size_t n = 0, want = 0;
	while (want == 0 || n < want) {
		ssize_t k = recv(fd, text + n, room - 1 - n, 0);
		if (k <= 0)
			return false;
		n += (size_t)k;
		text[n] = '\0';
		const char *end = strstr(text, "\r\n\r\n"), *length = strcasestr(text, "content-length:");
		if (end != NULL)
			want = (size_t)(end + 4 - text) +
			       (length != NULL && length < end ? strtoul(length + 15, NULL, 10) : 0);
	}
	return true;
}

static void answer_metrics(int fd)
{
	char byte;
	const char *response = metrics;
	looked++;
	if (response == NULL) {
		while (recv(fd, &byte, 1, 0) > 0)
			;
	} else if (response[0] != '\0') {
		put(fd, response);
	} else {
		put(fd, HEAD("text/plain"));
		while (put(fd, "vllm:num_requests_running{a=\"b\"} 0\n"))
			;
	}
}

/* What it answers to the question for tokens. */
static _Atomic(const char *) tokens_reply;
static atomic_int counted;
/* In chunks, on a connection that stays. */
static bool answer_kept(int fd, int nth)
{
	static const char body[] = WORD("one ") STOP;
	char all[1024];
	n_kept += nth == 0;
	if (nth > 0 && tires)
		return false;
	snprintf(all, sizeof all,
		 "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
		 sizeof body - 1, body);
	return put(fd, all); /* at once: the response ends with the answer */
}

/* A word at a time, each once the client has the one before. */
enum { DRIPS = 64, DRIPS_BEFORE = 16 };
static atomic_int heard;
static atomic_int at_once; /* TCP_NODELAY of that connection */
static atomic_uint acks;   /* of the last DRIPS - DRIPS_BEFORE words */

static unsigned segments_in(int fd)
{
	struct tcp_info info = {0};
	socklen_t n = sizeof info;
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 ? info.tcpi_segs_in : 0;
}

static void answer_drips(int fd)
{
	unsigned before = 0;
	int nodelay = at_once;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay);
	for (int i = 0; i < DRIPS; i++) {
		uint64_t until = clock_now_ns() + 60 * NS_PER_S;
		while (heard < i && clock_now_ns() < until)
			sched_yield();
		before = i == DRIPS_BEFORE ? segments_in(fd) : before;
		put(fd, WORD("drop "));
	}
	acks = segments_in(fd) - before;
	put(fd, STOP);
}

static void answer(int fd, const char *text)
{
	char byte;
	if (strncmp(text, "POST /tokenize ", 15) == 0 || strncmp(text, "POST /detokenize ", 17) == 0) {
		counted++;
		put(fd, tokens_reply);
		return;
	}
	if (strncmp(text, "GET /metrics ", 13) == 0) {
		answer_metrics(fd);
		return;
	}
	if (strncmp(text, "GET ", 4) == 0) {
		listed++;
		put(fd, HEAD("application/json") "{\"data\":[{\"id\":\"fine\"},{\"id\":\"waits\"},{\"id\":\"floods\"},{"
						 "\"id\":\"auto\"},{\"id\":\"kept\"},{\"id\":\"drips\"}]}");
		return;
	}
	begun++;
	put(fd, HEAD("text/event-stream"));
	if (strstr(text, "\"fine\"") != NULL) {
		put(fd, WORD("one ") WORD("two ") WORD("three") STOP);
	} else if (strstr(text, "\"waits\"") != NULL) {
		put(fd, WORD("one "));
		while (recv(fd, &byte, 1, 0) > 0)
			;
		closed++;
	} else if (strstr(text, "\"drips\"") != NULL) {
		answer_drips(fd);
	} else {
		while (put(fd, WORD("a word that is neither short nor long, but comes again and again ")))
			flooded += 100;
		closed++;
	}
}

static void *serve_one(void *arg)
{
	static const struct timeval patience = {.tv_sec = 120};
	int fd = (int)(intptr_t)arg;
	char text[16384];
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	bool stays = !dead && read_request(fd, text, sizeof text);
	for (int nth = 0; stays && strstr(text, "\"kept\"") != NULL; nth++)
		stays = answer_kept(fd, nth) && read_request(fd, text, sizeof text);
	if (stays)
		answer(fd, text);
	close(fd);
	return NULL;
}

static int listener;

static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		pthread_t t;
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			return NULL;
		pthread_create(&t, NULL, serve_one, (void *)(intptr_t)fd);
		pthread_detach(t);
	}
}

/* ---- the engine ---- */

static char path[64], url[64];
static pthread_t upstream;

struct running {
	struct server *server;
	struct remote *remote;
	pthread_t thread;
	struct client *c;
};

static void *run(void *server)
{
	server_run(server);
	return NULL;
}

static struct eng_remote_config plain(void)
{
	return (struct eng_remote_config){.url = url,
					  .key_file = "",
					  .ca_file = "",
					  .verify = true,
					  .connect_ms = 10000,
					  .idle_ms = 60000,
					  .total_ms = 600000,
					  .health_ms = 60000,
					  .metrics = "",
					  .metrics_ms = 100,
					  .cool_down_ms = 50,
					  .failures = 3,
					  .connections = 2,
					  .max_waiting = 4};
}

static void start(struct running *r, const struct eng_remote_config *cfg)
{
	const struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
	struct sl_err err;
	snprintf(path, sizeof path, "/tmp/sluice-remote-%d.sock", (int)getpid());
	assert_int_equal(server_create(&srv, &r->server, &err), 0);
	if (remote_create(cfg, r->server, &r->remote, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(pthread_create(&r->thread, NULL, run, r->server), 0);
	r->c = calloc(1, sizeof *r->c);
	client_open(r->c, path);
}

static void stop(struct running *r)
{
	client_close(r->c);
	free(r->c);
	server_stop(r->server);
	pthread_join(r->thread, NULL);
	remote_destroy(r->remote);
	server_destroy(r->server);
}

/* The next frame that says a model's state. */
static uint8_t await_state(struct client *c, uint16_t model, uint8_t wanted)
{
	struct proto_model m = {0};
	struct sl_err err;
	do {
		assert_true(client_next_any(c));
		if (c->head.type == PROTO_MODEL)
			assert_int_equal(proto_get_model(c->payload, c->head.length, &m, &err), 0);
	} while (c->head.type != PROTO_MODEL || m.index != model || m.state != wanted);
	return m.format;
}

static void await(const atomic_int *what, int least)
{
	uint64_t until = clock_now_ns() + 60 * NS_PER_S;
	while (*what < least) {
		assert_true(clock_now_ns() < until);
		usleep(1000);
	}
}

static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";

static void submit(struct client *c, uint64_t id, uint16_t model)
{
	struct proto_submit req = client_plain(chat, PROTO_PROMPT_CHAT, 100000);
	req.model = model;
	client_submit(c, id, &req);
}

/* ---- the tests ---- */

static void an_answer(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	struct sl_buf text;
	uint32_t n = 0;
	start(&r, &cfg);
	await_state(r.c, 2, PROTO_MODEL_READY); /* all that the list has, without what is no model */
	submit(r.c, 5, 0);
	client_expect(r.c, PROTO_QUEUED);
	client_credit(r.c, 5, 100);
	buf_init(&text, 1000);
	struct proto_done done = client_until_done(r.c, 5, &text, &n);
	assert_int_equal(done.finish, PROTO_FINISH_STOP);
	assert_int_equal(done.n_prompt, 5);
	assert_int_equal(done.n_completion, 3);
	assert_int_equal(n, 3);
	assert_string_equal(buf_cstr(&text), "one two three");
	struct proto_stats s = client_until_idle(r.c);
	assert_int_equal(s.prefill_tokens, 3);
	assert_int_equal(s.prefix_queries, 5);
	assert_int_equal(s.prefix_hits, 2);
	buf_dispose(&text);
	stop(&r);
}

static void tokens_follow_credit(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	start(&r, &cfg);
	await_state(r.c, 0, PROTO_MODEL_READY);
	submit(r.c, 1, 0);
	client_expect(r.c, PROTO_QUEUED);
	for (int i = 0; i < 3; i++) {
		client_credit(r.c, 1, 1);
		client_expect(r.c, PROTO_TOKENS);
		assert_int_equal(client_tokens(r.c).n, 1);
	}
	client_expect(r.c, PROTO_DONE);
	stop(&r);
}

static void drip(struct running *r, uint64_t id, bool nodelay)
{
	heard = 0;
	at_once = nodelay;
	submit(r->c, id, 4);
	client_expect(r->c, PROTO_QUEUED);
	client_credit(r->c, id, 2 * DRIPS);
	for (; heard < DRIPS; heard++) {
		client_expect(r->c, PROTO_TOKENS);
		assert_int_equal(client_tokens(r->c).n, 1);
		assert_memory_equal(client_tokens(r->c).text.at, "drop ", 5);
	}
	client_expect(r->c, PROTO_DONE);
}

/* Perf: not every word is acknowledged by a segment of its own, unless the server waits for them; a machine that pauses
 * for 40 ms does that, too. */
static void words_that_come_one_by_one(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	start(&r, &cfg);
	await_state(r.c, 4, PROTO_MODEL_READY);
	drip(&r, 1, true);
	if (perf())
		assert_in_range(acks, 0, (DRIPS - DRIPS_BEFORE) * 3 / 4);
	for (uint64_t id = 2; id < 4; id++)
		drip(&r, id, false);
	stop(&r);
}

static void without_credit_nothing_is_read(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	start(&r, &cfg);
	await_state(r.c, 2, PROTO_MODEL_READY);
	int before = closed;
	flooded = 0;
	submit(r.c, 1, 2);
	client_expect(r.c, PROTO_QUEUED);
	client_credit(r.c, 1, 1);
	client_expect(r.c, PROTO_TOKENS);
	size_t last = 0;
	do { /* until the sockets between are full */
		last = flooded;
		usleep(200000);
	} while (flooded != last);
	client_credit(r.c, 1, 100000); /* enough to take what waits */
	uint64_t until = clock_now_ns() + 60 * NS_PER_S;
	while (flooded == last) {
		assert_true(client_next(r.c) && r.c->head.type == PROTO_TOKENS);
		assert_true(clock_now_ns() < until);
	}
	client_cancel(r.c, 1);
	assert_int_equal(client_until_done(r.c, 1, NULL, NULL).finish, PROTO_FINISH_CANCELLED);
	await(&closed, before + 1);
	stop(&r);
}

static void an_answer_of_one_word(struct running *r, uint64_t id)
{
	uint32_t n = 0;
	submit(r->c, id, 3);
	client_expect(r->c, PROTO_QUEUED);
	client_credit(r->c, id, 10);
	struct proto_done done = client_until_done(r->c, id, NULL, &n);
	assert_int_equal(done.finish, PROTO_FINISH_STOP);
	assert_int_equal(n, 1);
}

/* A connection carries one request after the other. If the upstream closes it as the next one comes, that is sent again
 * on another, which is no fault. */
static void connections_are_kept(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	start(&r, &cfg);
	await_state(r.c, 3, PROTO_MODEL_READY);
	int before = n_kept;
	for (uint64_t id = 1; id <= 3; id++)
		an_answer_of_one_word(&r, id);
	assert_int_equal(n_kept, before + 1);
	before = n_kept;
	tires = true;
	for (uint64_t id = 4; id <= 6; id++)
		an_answer_of_one_word(&r, id);
	assert_int_equal(n_kept, before + 3);
	tires = false;
	struct proto_stats s = client_stats(r.c);
	assert_int_equal(s.upstream.retries, 0);
	for (int i = 0; i < PROTO_FAULTS; i++)
		assert_int_equal(s.upstream.faults[i], 0);
	stop(&r);
}

static void others_wait_for_a_connection(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	start(&r, &cfg);
	await_state(r.c, 1, PROTO_MODEL_READY);
	int before = begun;
	for (uint64_t id = 1; id <= 3; id++) {
		submit(r.c, id, 1);
		client_expect(r.c, PROTO_QUEUED);
		client_credit(r.c, id, 10);
	}
	await(&begun, before + 2);
	client_expect(r.c, PROTO_TOKENS);
	client_expect(r.c, PROTO_TOKENS);
	assert_int_equal(begun, before + 2);
	client_cancel(r.c, 1);
	client_expect(r.c, PROTO_DONE);
	client_expect(r.c, PROTO_TOKENS);
	assert_int_equal(r.c->head.id, 3);
	client_cancel(r.c, 2);
	client_cancel(r.c, 3);
	client_until_done(r.c, 3, NULL, NULL);
	struct proto_stats s = client_until_idle(r.c);
	assert_int_equal(s.cancelled, 3);
	stop(&r);
}

static void it_dies_and_comes_back(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	cfg.health_ms = 20;
	start(&r, &cfg);
	await_state(r.c, 1, PROTO_MODEL_READY);
	dead = true;
	await_state(r.c, 0, PROTO_MODEL_FAILED);
	int before = begun;
	submit(r.c, 1, 0);
	client_expect(r.c, PROTO_DONE);
	assert_int_equal(client_done(r.c).error, PROTO_ERR_NOT_READY);
	assert_int_equal(begun, before);
	dead = false;
	await_state(r.c, 0, PROTO_MODEL_READY);
	struct proto_stats s = client_stats(r.c);
	while (s.upstream.open != 0)
		s = client_stats(r.c);
	assert_int_equal(s.upstream.openings, 1);
	assert_true(s.upstream.faults[PROTO_FAULT_CUT] >= 3);
	submit(r.c, 2, 0);
	client_expect(r.c, PROTO_QUEUED);
	client_credit(r.c, 2, 10);
	assert_int_equal(client_until_done(r.c, 2, NULL, NULL).finish, PROTO_FINISH_STOP);
	stop(&r);
}

/* ---- its metrics ---- */

/* The next LOAD of a model. */
static struct proto_load next_load(struct client *c, uint16_t model)
{
	struct proto_load m = {0};
	struct sl_err err;
	do {
		assert_true(client_next_any(c));
		if (c->head.type == PROTO_LOAD)
			assert_int_equal(proto_get_load(c->payload, c->head.length, &m, &err), 0);
	} while (c->head.type != PROTO_LOAD || m.model != model);
	return m;
}

static void start_with_metrics(struct running *r, const char *response)
{
	struct eng_remote_config cfg = plain();
	cfg.metrics = "/metrics";
	cfg.connect_ms = 1000;
	metrics = response;
	start(r, &cfg);
	await_state(r->c, 1, PROTO_MODEL_READY);
}

/* It still serves requests, and nothing counts against it. */
static void still_serves(struct running *r)
{
	struct proto_stats s = client_stats(r->c);
	assert_int_equal(s.upstream.open, 0);
	for (int i = 0; i < PROTO_FAULTS; i++)
		assert_int_equal(s.upstream.faults[i], 0);
	submit(r->c, 1, 0);
	client_expect(r->c, PROTO_QUEUED);
	client_credit(r->c, 1, 10);
	assert_int_equal(client_until_done(r->c, 1, NULL, NULL).finish, PROTO_FINISH_STOP);
}

static void what_others_have_it_do_counts(void **state)
{
	(void)state;
	struct running r;
	start_with_metrics(&r, HEAD("text/plain") "vllm:num_requests_running 6\nvllm:num_requests_waiting 3\n"
						  "vllm:kv_cache_usage_perc 0.75\n");
	struct proto_stats s = client_stats(r.c);
	while (!s.upstream.reports)
		s = client_stats(r.c);
	assert_int_equal(s.upstream.running, 6);
	assert_int_equal(s.upstream.waiting, 3);
	assert_int_equal(s.upstream.others, 9);
	assert_int_equal(s.upstream.kv_permille, 750);
	assert_int_equal(s.running + s.waiting, 0);
	struct proto_load l = next_load(r.c, 0);
	while (l.of[0].places_free != 0)
		l = next_load(r.c, 0);
	assert_false(l.idle);
	still_serves(&r);
	/* What one answer took is known now: so long others take, too. */
	do
		l = next_load(r.c, 0);
	while (l.of[7].wait_us == 0);
	metrics = HEAD("text/plain") "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n";
	do
		l = next_load(r.c, 0);
	while (!l.idle);
	assert_int_equal(l.of[0].places_free, 2);
	assert_int_equal(client_stats(r.c).upstream.failed_reads, 0);
	stop(&r);
}

/* Its own requests, which its metrics have, too, are not those of others. */
static void own_requests_are_not_others(void **state)
{
	(void)state;
	struct running r;
	start_with_metrics(&r, HEAD("text/plain") "sglang:num_running_reqs 0\n");
	struct proto_stats s = client_stats(r.c);
	submit(r.c, 1, 1);
	client_expect(r.c, PROTO_QUEUED);
	client_credit(r.c, 1, 1);
	client_expect(r.c, PROTO_TOKENS);
	metrics = HEAD("text/plain") "sglang:num_running_reqs 3\n";
	while (s.upstream.running != 3)
		s = client_stats(r.c);
	assert_int_equal(s.running, 1);
	assert_int_equal(s.upstream.others, 2);
	client_cancel(r.c, 1);
	client_until_done(r.c, 1, NULL, NULL);
	stop(&r);
}

/* Each of them is counted, bounded, and of no consequence for requests. */
static void metrics_that_can_not_be_used(void **state)
{
	(void)state;
	static const char *const responses[] = {
	    "",
	    NULL,
	    HEAD("text/plain") "vllm:num_requests_running -3\n",
	    HEAD("text/html") "<h1>It works!</h1>",
	    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	    "HTTP/1.1 302 Found\r\nLocation: /v1/models\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nvllm:num_requests_running 1\n",
	};
	for (size_t i = 0; i < sizeof responses / sizeof *responses; i++) {
		struct running r;
		start_with_metrics(&r, responses[i]);
		struct proto_stats s = client_stats(r.c);
		while (s.upstream.failed_reads == 0)
			s = client_stats(r.c);
		assert_int_equal(s.upstream.reports, 0);
		assert_int_equal(s.upstream.others, 0);
		still_serves(&r);
		stop(&r);
	}
}

/* They stop to come: what they said last does not count for ever. */
static void old_metrics(void **state)
{
	(void)state;
	struct running r;
	start_with_metrics(&r, HEAD("text/plain") "llamacpp:requests_processing 1\nllamacpp:requests_deferred 8\n");
	struct proto_stats s = client_stats(r.c);
	while (!s.upstream.reports)
		s = client_stats(r.c);
	metrics = NULL;
	struct proto_load l = next_load(r.c, 0);
	while (!l.idle)
		l = next_load(r.c, 0);
	assert_int_equal(l.of[0].places_free, 2);
	s = client_stats(r.c);
	while (s.upstream.reports)
		s = client_stats(r.c);
	stop(&r);
}

static void without_a_path_nobody_looks(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	int before = looked;
	start(&r, &cfg);
	await_state(r.c, 1, PROTO_MODEL_READY);
	still_serves(&r);
	assert_int_equal(client_stats(r.c).upstream.reads, 0);
	assert_int_equal(looked, before);
	stop(&r);
}

/* COUNTED for the prompt; the payload is the client's until the next frame. */
static struct proto_counted count(struct client *c, uint8_t wants)
{
	static uint64_t id = 100;
	static const char ids[] = {5, 0, 0, 0, 1, 2, 0, 0};
	bool text = (wants & PROTO_COUNT_TEXT) != 0;
	const struct proto_count req = {.prompt_kind = text ? PROTO_PROMPT_TOKENS : PROTO_PROMPT_TEXT,
					.wants = wants,
					.prompt = {text ? ids : "some text", text ? sizeof ids : 9}};
	struct proto_counted m;
	struct sl_err err;
	assert_int_equal(proto_put_count(&c->out, ++id, &req), 0);
	client_flush(c);
	client_expect(c, PROTO_COUNTED);
	assert_int_equal(proto_get_counted(c->payload, c->head.length, &m, &err), 0);
	return m;
}

static void tokens_are_counted_there(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	cfg.dialect = ENG_REMOTE_VLLM;
	start(&r, &cfg);
	await_state(r.c, 0, PROTO_MODEL_READY);
	tokens_reply = HEAD("application/json") "{\"count\":2,\"tokens\":[7,513],\"max_model_len\":9}";
	struct proto_counted m = count(r.c, 0);
	assert_int_equal(m.n_tokens, 2);
	assert_int_equal(m.ids.n, 0);
	m = count(r.c, PROTO_COUNT_IDS);
	assert_int_equal(m.ids.n, 8);
	assert_memory_equal(m.ids.at, "\7\0\0\0\1\2\0\0", 8);
	tokens_reply = HEAD("application/json") "{\"prompt\":\"a b\"}";
	m = count(r.c, PROTO_COUNT_TEXT);
	assert_true(m.text.n == 3 && memcmp(m.text.at, "a b", 3) == 0);
	stop(&r);
}

/* Of numbers an estimate is left; of ids and texts nothing is. */
static void tokens_that_can_not_be_read(void **state)
{
	(void)state;
	static const char *const bad[] = {
	    HEAD("application/json") "{\"count\":-1,\"tokens\":[]}",
	    HEAD("application/json") "{\"count\":\"2\"}",
	    HEAD("application/json") "[[[[[[[[[[[[1]]]]]]]]]]]]",
	    HEAD("text/html") "<html>",
	    "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", /* the last one */
	};
	struct running r;
	struct eng_remote_config cfg = plain();
	cfg.dialect = ENG_REMOTE_VLLM;
	start(&r, &cfg);
	await_state(r.c, 0, PROTO_MODEL_READY);
	tokens_reply = HEAD("application/json") "{\"count\":2,\"tokens\":[7,-1]}";
	assert_int_equal(count(r.c, PROTO_COUNT_IDS).error, PROTO_ERR_NOT_READY);
	tokens_reply = HEAD("application/json") "{\"count\":3,\"tokens\":[7,8]}";
	assert_int_equal(count(r.c, PROTO_COUNT_IDS).error, PROTO_ERR_NOT_READY);
	tokens_reply = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
		       "{\"error\":{\"message\":\"no such token\",\"param\":\"tokens\"}}";
	assert_int_equal(count(r.c, PROTO_COUNT_TEXT).error, PROTO_ERR_BAD_REQUEST);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		tokens_reply = bad[i];
		assert_int_equal(count(r.c, 0).n_tokens, 3); /* 9 bytes */
	}
	int before = counted; /* it has no such path: it is not asked again */
	assert_int_equal(count(r.c, 0).n_tokens, 3);
	assert_int_equal(count(r.c, PROTO_COUNT_IDS).error, PROTO_ERR_BAD_REQUEST);
	assert_int_equal(counted, before);
	stop(&r);
}

static void deadlines_and_silence(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	struct proto_submit req = client_plain(chat, PROTO_PROMPT_CHAT, 100);
	cfg.idle_ms = 200;
	start(&r, &cfg);
	await_state(r.c, 1, PROTO_MODEL_READY);
	req.model = 1;
	client_submit(r.c, 1, &req);
	client_expect(r.c, PROTO_QUEUED);
	client_credit(r.c, 1, 10);
	struct proto_done done = client_until_done(r.c, 1, NULL, NULL);
	assert_int_equal(done.finish, PROTO_FINISH_ERROR);
	assert_int_equal(done.error, PROTO_ERR_INTERNAL);
	req.deadline_ms = 50;
	client_submit(r.c, 2, &req);
	done = client_until_done(r.c, 2, NULL, NULL); /* it had no credit */
	assert_int_equal(done.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(done.length_why, PROTO_LENGTH_DEADLINE);
	stop(&r);
}

static void it_stops_with_open_streams(void **state)
{
	(void)state;
	struct running r;
	struct eng_remote_config cfg = plain();
	int before = closed, started = begun;
	start(&r, &cfg);
	await_state(r.c, 1, PROTO_MODEL_READY);
	for (uint64_t id = 1; id <= 4; id++) {
		submit(r.c, id, 1);
		client_credit(r.c, id, 10);
	}
	await(&begun, started + 2);
	stop(&r);
	await(&closed, before + 2);
}

static void bad_configurations(void **state)
{
	(void)state;
	static const char *const urls[] = {"",           "ftp://x",    "http://",    "http://x/",
					   "http://a@b", "http://x?y", "https:///v1"};
	const struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
	struct eng_remote_config cfg = plain();
	struct server *s;
	struct remote *r;
	struct sl_err err;
	snprintf(path, sizeof path, "/tmp/sluice-remote-%d.sock", (int)getpid());
	assert_int_equal(server_create(&srv, &s, &err), 0);
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		cfg.url = urls[i];
		assert_int_equal(remote_create(&cfg, s, &r, &err), SL_EINVAL);
	}
	cfg = plain();
	cfg.key_file = "/no/such/key";
	assert_int_equal(remote_create(&cfg, s, &r, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "key_file"));
	cfg.key_file = "";
	cfg.ca_file = "/no/such/ca";
	assert_int_equal(remote_create(&cfg, s, &r, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, "ca_file"));
	server_destroy(s);
}

static int setup(void **state)
{
	(void)state;
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof sa;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&sa, len) != 0 || listen(listener, 64) != 0 ||
	    getsockname(listener, (struct sockaddr *)&sa, &len) != 0)
		return -1;
	snprintf(url, sizeof url, "http://127.0.0.1:%u/v1", (unsigned)ntohs(sa.sin_port));
	return pthread_create(&upstream, NULL, serve, NULL);
}

static int teardown(void **state)
{
	(void)state;
	shutdown(listener, SHUT_RDWR);
	pthread_join(upstream, NULL);
	return close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_answer),
	    cmocka_unit_test(tokens_follow_credit),
	    cmocka_unit_test(words_that_come_one_by_one),
	    cmocka_unit_test(without_credit_nothing_is_read),
	    cmocka_unit_test(connections_are_kept),
	    cmocka_unit_test(others_wait_for_a_connection),
	    cmocka_unit_test(it_dies_and_comes_back),
	    cmocka_unit_test(what_others_have_it_do_counts),
	    cmocka_unit_test(own_requests_are_not_others),
	    cmocka_unit_test(metrics_that_can_not_be_used),
	    cmocka_unit_test(old_metrics),
	    cmocka_unit_test(without_a_path_nobody_looks),
	    cmocka_unit_test(tokens_are_counted_there),
	    cmocka_unit_test(tokens_that_can_not_be_read),
	    cmocka_unit_test(deadlines_and_silence),
	    cmocka_unit_test(it_stops_with_open_streams),
	    cmocka_unit_test(bad_configurations),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
