/* SPDX-License-Identifier: Apache-2.0
 *
 * The echo engine over a real socket.
 */
#include "tests/unit/engine/core/link_client.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "engine/echo/echo.h"

static char path[64];

struct running {
	struct server *server;
	struct echo *echo;
	pthread_t thread;
};

static void *run(void *server)
{
	server_run(server);
	return NULL;
}

static void start(struct running *r, const struct eng_echo_config *cfg)
{
	struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
	struct sl_err err;
	snprintf(path, sizeof path, "/tmp/sluice-echo-%d.sock", (int)getpid());
	assert_int_equal(server_create(&srv, &r->server, &err), 0);
	assert_int_equal(echo_create(cfg, r->server, &r->echo), 0);
	assert_int_equal(pthread_create(&r->thread, NULL, run, r->server), 0);
}

static void stop(struct running *r)
{
	server_stop(r->server);
	pthread_join(r->thread, NULL);
	echo_destroy(r->echo);
	server_destroy(r->server);
	assert_int_not_equal(access(path, F_OK), 0);
}

static const char chat[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
			   "{\"role\":\"user\",\"content\":\"Hello  brave\\nnew world\"}]}";

static void says_the_words_once(void **state)
{
	(void)state;
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .tokens_per_burst = 1});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	struct proto_submit req = client_plain(chat, PROTO_PROMPT_CHAT, 100);
	client_submit(c, 5, &req);
	client_expect(c, PROTO_QUEUED);
	assert_int_equal(c->head.id, 5);
	client_credit(c, 5, 100);
	struct sl_buf text;
	uint32_t n = 0;
	buf_init(&text, 4096);
	struct proto_done done = client_until_done(c, 5, &text, &n);
	assert_string_equal(buf_cstr(&text), "Hello  brave\nnew world");
	assert_int_equal(n, 4);
	assert_int_equal(done.finish, PROTO_FINISH_STOP);
	assert_int_equal(done.n_prompt, 6);
	assert_int_equal(done.n_completion, 5);
	buf_dispose(&text);
	client_until_idle(c);
	client_close(c);
	free(c);
	stop(&r);
}

static void credit_and_max_tokens(void **state)
{
	(void)state;
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .tokens_per_burst = 1});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	struct proto_submit req = client_plain("clock", PROTO_PROMPT_TEXT, 10);
	client_submit(c, 1, &req);
	client_credit(c, 1, 3);
	client_expect(c, PROTO_QUEUED);
	uint64_t last = 0;
	for (int i = 0; i < 3; i++) {
		client_expect(c, PROTO_TOKENS);
		struct proto_tokens t = client_tokens(c);
		assert_int_equal(t.n, 1);
		assert_int_equal(t.text.n, 22);
		assert_int_equal(t.text.at[0], 't');
		uint64_t ns = strtoull(t.text.at + 1, NULL, 10);
		assert_true(ns > last && ns <= clock_now_ns());
		last = ns;
	}
	/* Nothing comes before the next credit: a PING is answered first. */
	assert_int_equal(proto_put_ping(&c->out, 99), 0);
	client_flush(c);
	client_expect(c, PROTO_PONG);
	assert_int_equal(c->head.id, 99);
	client_credit(c, 1, UINT32_MAX);
	uint32_t n = 0;
	struct proto_done done = client_until_done(c, 1, NULL, &n);
	assert_int_equal(n, 7);
	assert_int_equal(done.finish, PROTO_FINISH_LENGTH);
	client_close(c);
	free(c);
	stop(&r);
}

/* One after the other, each with an end of its own, within the credit of all. */
static void choices(void **state)
{
	(void)state;
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	for (uint32_t max = 1; max <= 4; max++) {
		struct proto_submit req = client_plain("one two three", PROTO_PROMPT_TEXT, max);
		uint32_t n_words = max < 3 ? max : 3, left = 3 * n_words;
		req.n = req.best_of = 3;
		client_submit(c, max, &req);
		client_credit(c, max, left);
		client_expect(c, PROTO_QUEUED);
		for (uint8_t i = 0; i < 3; i++) {
			struct proto_choice end;
			struct sl_err err;
			for (uint32_t k = 0; k < n_words;) {
				client_expect(c, PROTO_TOKENS);
				struct proto_tokens t = client_tokens(c);
				assert_int_equal(t.choice, i);
				k += t.n;
				left -= t.n;
			}
			client_expect(c, PROTO_CHOICE);
			assert_int_equal(proto_get_choice(c->payload, c->head.length, &end, &err), 0);
			assert_int_equal(end.choice, i);
			assert_int_equal(end.finish, max > 3 ? PROTO_FINISH_STOP : PROTO_FINISH_LENGTH);
			assert_int_equal(end.n_completion, max > 3 ? 4 : max);
		}
		assert_int_equal(left, 0);
		struct proto_done done = client_until_done(c, max, NULL, NULL);
		assert_int_equal(done.finish, max > 3 ? PROTO_FINISH_STOP : PROTO_FINISH_LENGTH);
		assert_int_equal(done.n_completion, 3 * (max > 3 ? 4 : max));
	}
	client_close(c);
	free(c);
	stop(&r);
}

/* Tokens that another one made: how far they are its own, and the words behind what is used. */
static void goes_on_behind_given_tokens(void **state)
{
	(void)state;
	static const struct {
		const char *prompt;
		uint32_t ids[3];
		uint16_t n, keep;
		uint32_t agreed, used;
		const char *text;
	} cases[] = {
	    {"one two three four", {1000, 1001, 1002}, 2, 0, 2, 2, "three four"},
	    {"one two three four", {1000, 1001, 77}, 3, 0, 2, 2, "three four"},
	    {"one two three four", {1000, 77, 1002}, 3, 2, 1, 2, "three four"},
	    {"one two three four", {1000, 77, 1002}, 3, 3, 1, 3, "four"},
	    {"one two", {1000, 1001, 1002}, 2, 2, 2, 2, ""},
	    {"differ 1 three four", {1000, 1001, 1002}, 3, 0, 1, 1, "1 three four"},
	};
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .tokens_per_burst = 1});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct proto_submit req = client_plain(cases[i].prompt, PROTO_PROMPT_TEXT, 10);
		req.n_given = cases[i].n;
		req.n_keep = cases[i].keep;
		req.given = cases[i].ids;
		client_submit(c, i + 1, &req);
		client_expect(c, PROTO_QUEUED);
		client_credit(c, i + 1, 10);
		client_expect(c, PROTO_VERIFIED);
		struct proto_verified v;
		struct sl_err err;
		assert_int_equal(proto_get_verified(c->payload, c->head.length, &v, &err), 0);
		assert_int_equal(v.n_agreed, cases[i].agreed);
		assert_int_equal(v.n_used, cases[i].used);
		struct sl_buf text;
		uint32_t n = 0;
		buf_init(&text, 4096);
		struct proto_done done = client_until_done(c, i + 1, &text, &n);
		assert_string_equal(buf_cstr(&text), cases[i].text);
		assert_int_equal(done.finish, PROTO_FINISH_STOP);
		assert_int_equal(done.n_completion, n + 1);
		buf_dispose(&text);
	}
	client_close(c);
	free(c);
	stop(&r);
}

/* A prompt and nothing more: no token, and none without credit. */
static void prefill_only(void **state)
{
	(void)state;
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .tokens_per_burst = 1});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	struct proto_submit req = client_plain("repeat after me", PROTO_PROMPT_TEXT, 10);
	req.flags |= PROTO_SUBMIT_PREFILL_ONLY;
	client_submit(c, 1, &req);
	client_expect(c, PROTO_QUEUED);
	assert_int_equal(proto_put_ping(&c->out, 99), 0);
	client_flush(c);
	client_expect(c, PROTO_PONG);
	client_credit(c, 1, 5);
	uint32_t n = 0;
	struct proto_done done = client_until_done(c, 1, NULL, &n);
	assert_int_equal(n, 0);
	assert_int_equal(done.n_completion, 0);
	assert_int_equal(done.finish, PROTO_FINISH_LENGTH);
	client_until_idle(c);
	client_close(c);
	free(c);
	stop(&r);
}

/* Three sequences, two of them a step, in turn: a step's tokens have one time, steps their distance. */
static void steps_are_common(void **state)
{
	(void)state;
	enum { SEQS = 3, ACTIVE = 2, STEPS = 6, STEP_MS = 4 };
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048,
					    .tokens_per_burst = 1,
					    .rate_tps = 1,
					    .stamp = true,
					    .step_ms = STEP_MS,
					    .step_active = ACTIVE});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	for (uint64_t id = 1; id <= SEQS; id++) {
		struct proto_submit req = client_plain("hello", PROTO_PROMPT_TEXT, 100);
		client_submit(c, id, &req);
		client_expect(c, PROTO_QUEUED);
	}
	for (uint64_t id = 1; id <= SEQS; id++)
		client_credit(c, id, ACTIVE * STEPS / SEQS);
	unsigned made[SEQS + 1] = {0};
	uint64_t first = 0, last = 0;
	unsigned in_step = 0;
	for (int i = 0; i < ACTIVE * STEPS; i++) {
		client_expect(c, PROTO_TOKENS);
		made[c->head.id]++;
		struct proto_tokens t = client_tokens(c);
		uint64_t ns = strtoull(t.text.at + 1, NULL, 10);
		if (ns == last) {
			in_step++;
		} else {
			assert_true(ns > last);
			first = first == 0 ? ns : first;
			in_step = 1;
		}
		assert_true(in_step <= ACTIVE);
		last = ns;
	}
	/* One that is late is followed the sooner by the next. */
	assert_true(last - first >= (STEPS - 2) * STEP_MS * NS_PER_MS);
	for (int id = 1; id <= SEQS; id++)
		assert_int_equal(made[id], ACTIVE * STEPS / SEQS);
	client_close(c);
	free(c);
	stop(&r);
}

static void rate_holds(void **state)
{
	(void)state;
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .rate_tps = 200, .ttft_ms = 30, .tokens_per_burst = 4});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	struct proto_submit req = client_plain("clock", PROTO_PROMPT_TEXT, 24);
	uint64_t begin = clock_now_ns();
	client_submit(c, 1, &req);
	client_credit(c, 1, 1000);
	client_expect(c, PROTO_QUEUED);
	client_expect(c, PROTO_TOKENS);
	assert_int_equal(client_tokens(c).n, 4);
	uint64_t first = clock_now_ns();
	assert_true(first - begin >= 30 * NS_PER_MS);
	client_until_done(c, 1, NULL, NULL);
	/* 20 tokens more at 200 a second: never faster. */
	assert_true(clock_now_ns() - first >= 95 * NS_PER_MS);

	/* The request's own pace: a burst of 5, then 50 a second. */
	req.rate_tps = 50;
	req.burst = 5;
	req.max_tokens = 8;
	begin = clock_now_ns();
	client_submit(c, 2, &req);
	client_credit(c, 2, 1000);
	client_until_done(c, 2, NULL, NULL);
	assert_true(clock_now_ns() - begin >= (30 + 60) * NS_PER_MS);
	client_close(c);
	free(c);
	stop(&r);
}

static void fails_and_hangs_as_told(void **state)
{
	(void)state;
	struct running r;
	struct client *c = calloc(1, sizeof *c);
	struct proto_submit req = client_plain("repeat after me", PROTO_PROMPT_TEXT, 100);
	uint32_t n = 0;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .fail_after = 3});
	client_open(c, path);
	client_submit(c, 1, &req);
	client_credit(c, 1, 1000);
	struct proto_done done = client_until_done(c, 1, NULL, &n);
	assert_int_equal(n, 3);
	assert_int_equal(done.finish, PROTO_FINISH_ERROR);
	assert_int_equal(done.error, PROTO_ERR_INTERNAL);
	client_close(c);
	stop(&r);

	start(&r, &(struct eng_echo_config){.n_ctx = 2048, .hang_after = 4});
	client_open(c, path);
	req.deadline_ms = 50;
	client_submit(c, 1, &req);
	client_credit(c, 1, 1000);
	n = 0;
	done = client_until_done(c, 1, NULL, &n);
	assert_int_equal(n, 4);
	assert_int_equal(done.finish, PROTO_FINISH_LENGTH);
	assert_int_equal(done.length_why, PROTO_LENGTH_DEADLINE);
	req.deadline_ms = 0;
	client_submit(c, 2, &req);
	client_credit(c, 2, 1000);
	client_expect(c, PROTO_QUEUED);
	client_expect(c, PROTO_TOKENS);
	client_cancel(c, 2);
	done = client_until_done(c, 2, NULL, NULL);
	assert_int_equal(done.finish, PROTO_FINISH_CANCELLED);
	client_until_idle(c);
	client_close(c);
	free(c);
	stop(&r);
}

static void dies_as_told(void **state)
{
	(void)state;
	snprintf(path, sizeof path, "/tmp/sluice-echo-%d.sock", (int)getpid());
	pid_t pid = fork();
	if (pid == 0) {
		struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
		struct eng_echo_config cfg = {.n_ctx = 2048, .die_after = 5};
		_exit(engine_serve_echo(&cfg, &srv));
	}
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	struct proto_submit req = client_plain("repeat after me", PROTO_PROMPT_TEXT, 100);
	client_submit(c, 1, &req);
	client_credit(c, 1, 1000);
	uint32_t n = 0;
	while (client_next(c)) {
		if (c->head.type == PROTO_TOKENS)
			n += client_tokens(c).n;
	}
	assert_int_equal(n, 5);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 70);
	client_close(c);
	free(c);

	/* It left its socket behind; the next one takes its place and a third is refused. */
	assert_int_equal(access(path, F_OK), 0);
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 2048});
	struct eng_server_config srv = {.socket_path = path, .beat_fd = -1};
	struct eng_echo_config cfg = {.n_ctx = 2048};
	assert_int_equal(engine_serve_echo(&cfg, &srv), 78);
	stop(&r);
}

static void refusals(void **state)
{
	(void)state;
	struct running r;
	start(&r, &(struct eng_echo_config){.n_ctx = 4});
	struct client *c = calloc(1, sizeof *c);
	client_open(c, path);
	struct proto_submit req = client_plain("one two three four", PROTO_PROMPT_TEXT, 100);
	client_submit(c, 1, &req);
	struct proto_done done = client_until_done(c, 1, NULL, NULL);
	assert_int_equal(done.error, PROTO_ERR_CONTEXT_LENGTH);
	assert_true(done.message.n > 0);
	req.prompt = (struct proto_str){.at = "{]", .n = 2};
	req.prompt_kind = PROTO_PROMPT_CHAT;
	client_submit(c, 2, &req);
	assert_int_equal(client_until_done(c, 2, NULL, NULL).error, PROTO_ERR_BAD_REQUEST);
	req.model = 9;
	client_submit(c, 3, &req);
	assert_int_equal(client_until_done(c, 3, NULL, NULL).error, PROTO_ERR_NO_MODEL);
	struct proto_count count = {.prompt_kind = PROTO_PROMPT_TEXT,
				    .prompt = {.at = "one two three four five", .n = 23}};
	assert_int_equal(proto_put_count(&c->out, 4, &count), 0);
	client_flush(c);
	client_expect(c, PROTO_COUNTED);
	struct proto_counted counted;
	struct sl_err err;
	assert_int_equal(proto_get_counted(c->payload, c->head.length, &counted, &err), 0);
	assert_int_equal(counted.error, 0);
	assert_int_equal(counted.n_tokens, 5);
	client_close(c);
	free(c);
	stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(says_the_words_once),
	    cmocka_unit_test(credit_and_max_tokens),
	    cmocka_unit_test(choices),
	    cmocka_unit_test(goes_on_behind_given_tokens),
	    cmocka_unit_test(prefill_only),
	    cmocka_unit_test(steps_are_common),
	    cmocka_unit_test(rate_holds),
	    cmocka_unit_test(fails_and_hangs_as_told),
	    cmocka_unit_test(dies_as_told),
	    cmocka_unit_test(refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
