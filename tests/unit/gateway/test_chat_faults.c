/* SPDX-License-Identifier: Apache-2.0
 *
 * A chat request from the socket to the engine's socket and back with the nth allocation failing,
 * for every n until none is left to fail: each client gets one whole answer or sees its stream
 * broken off, nothing stays counted, and the next request is served as if nothing had been.
 */
#include "tests/support/transport_rig.h"

#include <fcntl.h>
#include <jansson.h>
#include <openssl/sha.h>
#include <sys/un.h>

#include "base/fault.h"
#include "base/metrics.h"
#include "gateway/app.h"
#include "gateway/app_state.h"
#include "gateway/engine_link.h"
#include "gateway/generation.h"

enum { ANSWER_BYTES = 65536, MAX_ALLOCATIONS = 500, FAKE_TOKENS = 3 };

/* Nothing of the test's own allocates through base/alloc.h while a fault is armed. */
struct chat_rig {
	struct rig r;
	struct gw_app *app;
	char dir[64], path[96], digest[65];
	struct gw_tier_config tier;
	struct gw_key_config key;
	int listener, engine;
	uint8_t in[65536];
	size_t n_in;
	uint64_t credited_id; /* the sequence that was answered last */
	struct sl_buf hello, queued, tokens, done;
	char answer[ANSWER_BYTES];
	size_t n_answer;
	bool json_fails; /* jansson's allocations too */
	bool silent;     /* the engine makes no token */
	uint64_t fake_ns;
};

/* ---- the engine ---- */

static void engine_says(struct chat_rig *c, struct sl_buf *frame, uint64_t id)
{
	for (int i = 0; i < 8 && id != 0; i++)
		buf_data(frame)[8 + i] = (uint8_t)(id >> (8 * i));
	/* A link that has gone down meanwhile is seen by the next read. */
	(void)!send(c->engine, buf_data(frame), frame->len, MSG_NOSIGNAL);
}

static void engine_on_frame(struct chat_rig *c, const struct proto_head *h)
{
	if (h->type == PROTO_HELLO) {
		engine_says(c, &c->hello, 0);
	} else if (h->type == PROTO_SUBMIT) {
		engine_says(c, &c->queued, h->id);
	} else if (h->type == PROTO_CREDIT && c->credited_id != h->id) {
		c->credited_id = h->id;
		if (c->silent)
			return;
		engine_says(c, &c->tokens, h->id);
		engine_says(c, &c->done, h->id);
	}
}

static void engine_turn(struct chat_rig *c)
{
	struct proto_head h;
	if (c->engine < 0) {
		c->engine = accept(c->listener, NULL, NULL);
		c->n_in = 0;
		c->credited_id = 0;
	}
	if (c->engine < 0)
		return;
	ssize_t n = recv(c->engine, c->in + c->n_in, sizeof c->in - c->n_in, MSG_DONTWAIT);
	if (n == 0) {
		close(c->engine);
		c->engine = -1;
		return;
	}
	c->n_in += n > 0 ? (size_t)n : 0;
	while (c->engine >= 0 && c->n_in >= PROTO_HEAD_BYTES) {
		assert_int_equal(proto_head_read(c->in, &h, NULL), 0);
		size_t whole = PROTO_HEAD_BYTES + (size_t)h.length;
		if (c->n_in < whole)
			break;
		engine_on_frame(c, &h);
		memmove(c->in, c->in + whole, c->n_in - whole);
		c->n_in -= whole;
	}
}

static void engine_prepare(struct chat_rig *c)
{
	struct proto_hello hello = {.version = PROTO_VERSION, .epoch = 1, .n_models = 1, .name = {"test", 4}};
	struct proto_model model = {.state = PROTO_MODEL_READY, .role = 2, .n_ctx = 100, .name = {"m", 1}};
	struct proto_queued queued = {.n_prompt = 3};
	struct proto_token t[FAKE_TOKENS] = {{.n_bytes = 1}, {.n_bytes = 1}, {.n_bytes = 1}};
	struct proto_tokens tokens = {.n = FAKE_TOKENS, .tokens = t, .text = {"abc", 3}};
	struct proto_done done = {.finish = PROTO_FINISH_STOP, .n_prompt = 3, .n_completion = FAKE_TOKENS,
				  .message = {"", 0}};
	buf_init(&c->hello, 4096);
	buf_init(&c->queued, 4096);
	buf_init(&c->tokens, 4096);
	buf_init(&c->done, 4096);
	assert_int_equal(proto_put_hello(&c->hello, &hello), 0);
	assert_int_equal(proto_put_model(&c->hello, &model), 0);
	assert_int_equal(proto_put_queued(&c->queued, 1, &queued), 0);
	assert_int_equal(proto_put_tokens(&c->tokens, 1, &tokens), 0);
	assert_int_equal(proto_put_done(&c->done, 1, &done), 0);
}

/* ---- the gateway ---- */

static void turn(struct chat_rig *c)
{
	engine_turn(c);
	rig_turn(&c->r);
}

#define CHAT_UNTIL(c, cond)                                                                                  \
	do {                                                                                                 \
		time_t until_end = rig_now() + RIG_PATIENCE_S;                                               \
		while (!(cond)) {                                                                            \
			if (rig_now() > until_end)                                                           \
				fail_msg("waited in vain for %s", #cond);                                    \
			turn(c);                                                                             \
		}                                                                                            \
	} while (0)

static int set_up(void **state)
{
	struct chat_rig *c = calloc(1, sizeof *c);
	struct sl_err err = {0};
	uint8_t digest[SHA256_DIGEST_LENGTH];
	assert_non_null(c);
	snprintf(c->dir, sizeof c->dir, "/tmp/sluice-chat-XXXXXX");
	assert_non_null(mkdtemp(c->dir));
	snprintf(c->path, sizeof c->path, "%s/s", c->dir);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", c->path);
	c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(c->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(c->listener, 4), 0);
	c->engine = -1;
	engine_prepare(c);

	SHA256((const uint8_t *)"sk-test", 7, digest);
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(c->digest + 2 * i, 3, "%02x", digest[i]);
	c->tier = (struct gw_tier_config){.name = "t", .max_output = 100, .concurrency = 1};
	c->key = (struct gw_key_config){.name = "k", .sha256 = c->digest, .tier = "t"};
	rig_config(&c->r);
	struct gw_config *cfg = &c->r.cfg;
	cfg->tiers = (struct conf_list){.items = &c->tier, .n = 1};
	cfg->keys = (struct conf_list){.items = &c->key, .n = 1};
	cfg->engine_socket = c->path;
	cfg->heartbeat_ms = 10000;
	cfg->limits.window_tokens = 4;
	cfg->limits.messages = 16;
	cfg->limits.json_depth = 16;
	cfg->limits.submit_wait_ms = cfg->limits.first_token_ms = 5000;
	assert_int_equal(gw_thread_init(&c->r.t, 0, cfg, &err), 0);
	if (app_create(&c->r.t, &c->app, &err) != 0)
		fail_msg("%s", err.text);
	if (transport_create(&c->r.t, &app_http, c->app, &c->r.tr, &err) != 0)
		fail_msg("%s", err.text);
	c->r.t.transport = c->r.tr;
	c->r.t.app = c->app;
	*state = c;
	return 0;
}

static int tear_down(void **state)
{
	struct chat_rig *c = *state;
	fault_disarm_all();
	clock_fake(NULL);
	transport_destroy(c->r.tr);
	app_destroy(c->app);
	gw_thread_dispose(&c->r.t);
	buf_dispose(&c->hello);
	buf_dispose(&c->queued);
	buf_dispose(&c->tokens);
	buf_dispose(&c->done);
	if (c->engine >= 0)
		close(c->engine);
	close(c->listener);
	unlink(c->path);
	rmdir(c->dir);
	free(c);
	return 0;
}

/* ---- one request ---- */

static bool answer_ended(struct chat_rig *c, int fd)
{
	for (;;) {
		assert_true(c->n_answer < ANSWER_BYTES - 1);
		ssize_t n = recv(fd, c->answer + c->n_answer, ANSWER_BYTES - 1 - c->n_answer, MSG_DONTWAIT);
		if (n <= 0)
			return n == 0 || errno != EAGAIN;
		c->n_answer += (size_t)n;
	}
}

static int send_request(struct chat_rig *c, const char *body)
{
	char request[1024];
	int n = snprintf(request, sizeof request,
			 "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
			 "authorization: Bearer sk-test\r\ncontent-type: application/json\r\n"
			 "content-length: %zu\r\n\r\n%s", strlen(body), body);
	int fd = rig_connect(&c->r);
	c->n_answer = 0;
	(void)!send(fd, request, (size_t)n, MSG_NOSIGNAL);
	return fd;
}

static void take_answer(struct chat_rig *c, int fd)
{
	CHAT_UNTIL(c, answer_ended(c, fd));
	c->answer[c->n_answer] = '\0';
	close(fd);
}

static void ask(struct chat_rig *c, const char *body)
{
	take_answer(c, send_request(c, body));
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && strcmp(s + n - m, end) == 0;
}

/* What came is nothing, or the beginning of one answer; what is whole is right. */
static void check_answer(struct chat_rig *c, bool stream)
{
	const char *a = c->answer;
	if (c->n_answer == 0)
		return;
	assert_memory_equal(a, "HTTP/1.1 ", 9);
	assert_null(strstr(a + 1, "HTTP/1.1 "));
	int status = atoi(a + 9);
	const char *body = strstr(a, "\r\n\r\n");
	const char *length = strstr(a, "content-length: ");
	/* Where jansson has no memory for a string it says that the string is wrong, where it has none
	 * at all it says nothing. */
	bool parser = c->json_fails && status == 400 && strstr(a, "not valid JSON: ") != NULL &&
		      strstr(a, "(line -1") == NULL;
	if (!parser && status != 200 && status != 500 && status != 503 && status != 413)
		fail_msg("answer %s", a);
	if (body == NULL)
		return;
	if (status == 200 && stream) {
		/* Whole, or cut off without the end of the chunks. */
		if (strstr(a, "data: [DONE]") != NULL)
			assert_true(strstr(a, "\"finish_reason\":\"stop\"") != NULL);
		return;
	}
	assert_non_null(length);
	size_t n = strlen(body + 4);
	if (n < (size_t)atol(length + 16))
		return;
	if (n == 0)
		return;
	json_t *j = json_loads(body + 4, 0, NULL);
	if (j == NULL)
		fail_msg("no JSON: %s", a);
	assert_true(status == 200 || json_object_get(j, "error") != NULL);
	json_decref(j);
}

static bool is_whole(const struct chat_rig *c, bool stream)
{
	const char *a = c->answer;
	if (strncmp(a, "HTTP/1.1 200", 12) != 0)
		return false;
	return stream ? strstr(a, "data: [DONE]\n\n") != NULL && ends_with(a, "0\r\n\r\n")
		      : strstr(a, "\"content\":\"abc\"") != NULL;
}

/* Generations that exist, by the gauges. */
static long n_generations(void)
{
	struct sl_buf b;
	long n = 0;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	static const char name[] = "\nsluice_generations{";
	for (const char *p = buf_cstr(&b); (p = strstr(p, name)) != NULL; p++)
		n += labs(atol(strchr(p + 1, ' ') + 1));
	buf_dispose(&b);
	return n;
}

static int n_running(struct chat_rig *c)
{
	struct http_field f = {"authorization", "Bearer sk-test"};
	struct http_request r = {.fields = &f, .n_fields = 1};
	bool given;
	return atomic_load(auth_check(c->app->auth, &r, &given)->n_running);
}

static void sweep(struct chat_rig *c, const char *body, bool stream)
{
	long n = 0, passes;
	int broken = 0, refused = 0;
	do {
		CHAT_UNTIL(c, app_ready(c->app));
		n++;
		assert_true(n < MAX_ALLOCATIONS);
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, body);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		check_answer(c, stream);
		refused += strncmp(c->answer, "HTTP/1.1 200", 12) != 0 && c->n_answer > 0;
		broken += c->n_answer == 0;
		CHAT_UNTIL(c, c->app->n_exchanges == 0 && c->r.tr->n_streams == 0 && c->r.tr->n_conns == 0);
		assert_int_equal(n_running(c), 0);
		assert_int_equal(n_generations(), 0);
	} while (passes >= n);
	if (!is_whole(c, stream))
		fail_msg("without a fault: %s", c->answer);
	print_message("%ld allocations: %d broken off, %d refused\n", n - 1, broken, refused);
	assert_true(n > 10);
	assert_true(refused > 0);
}

static void streamed(void **state)
{
	sweep(*state, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
		      "\"stop\":[\"x\"],\"stream_options\":{\"include_usage\":true}}", true);
}

static void whole(void **state)
{
	sweep(*state, "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", false);
}

static void whole_with_the_parser(void **state)
{
	struct chat_rig *c = *state;
	c->json_fails = true;
	json_set_alloc_funcs(sl_alloc, sl_free);
	whole(state);
	json_set_alloc_funcs(malloc, free);
}

static void refused_by_the_parser(void **state)
{
	struct chat_rig *c = *state;
	for (long n = 1; n < 40; n++) {
		CHAT_UNTIL(c, app_ready(c->app));
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, "{\"model\":\"m\",\"messages\":[{\"role\":\"nobody\",\"content\":\"hi\"}]}");
		fault_disarm_all();
		if (c->n_answer > 0)
			assert_true(strncmp(c->answer, "HTTP/1.1 400", 12) == 0 ||
				    strncmp(c->answer, "HTTP/1.1 503", 12) == 0);
		CHAT_UNTIL(c, c->app->n_exchanges == 0 && c->r.tr->n_conns == 0);
	}
}

/* A timer that fires before its time by the clock is armed again: here by all of it. */
static void an_early_timer_forgets_no_first_token(void **state)
{
	static const char *const bodies[] = {
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}"};
	struct chat_rig *c = *state;
	c->r.cfg.limits.first_token_ms = 50;
	c->silent = true;
	for (int i = 0; i < 2; i++) {
		CHAT_UNTIL(c, app_ready(c->app));
		clock_fake(NULL);
		c->fake_ns = clock_now_ns();
		clock_fake(&c->fake_ns);
		c->credited_id = 0;
		int fd = send_request(c, bodies[i]);
		CHAT_UNTIL(c, c->credited_id != 0);
		struct timespec from, now;
		clock_gettime(CLOCK_MONOTONIC, &from);
		do {
			turn(c);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < 150);
		assert_int_equal(n_running(c), 1);
		c->fake_ns += 51 * NS_PER_MS;
		take_answer(c, fd);
		assert_non_null(strstr(c->answer, "the first token did not come in time"));
		assert_memory_equal(c->answer, i == 0 ? "HTTP/1.1 503" : "HTTP/1.1 200", 12);
		assert_null(strstr(c->answer, "[DONE]"));
		CHAT_UNTIL(c, c->app->n_exchanges == 0);
		assert_int_equal(n_running(c), 0);
	}
	clock_fake(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(streamed, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(whole, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(whole_with_the_parser, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(an_early_timer_forgets_no_first_token, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(refused_by_the_parser, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
