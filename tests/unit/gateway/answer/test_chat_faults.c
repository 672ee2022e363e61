/* SPDX-License-Identifier: Apache-2.0
 *
 * A chat request from the socket to the engine's socket and back with the nth allocation failing,
 * for every n until none is left to fail: each client gets one whole answer or sees its stream
 * broken off, nothing stays counted, and the next request is served as if nothing had been.
 */
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"

enum { MAX_ALLOCATIONS = 500 };

#define CHAT "POST /v1/chat/completions"

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
	if (status != 200 && status != 500 && status != 503 && status != 413)
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
		ask(c, CHAT, "", body);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		check_answer(c, stream);
		refused += strncmp(c->answer, "HTTP/1.1 200", 12) != 0 && c->n_answer > 0;
		broken += c->n_answer == 0;
		CHAT_UNTIL(c, at_rest(c));
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
	sweep(*state,
	      "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
	      "\"stop\":[\"x\"],\"stream_options\":{\"include_usage\":true}}",
	      true);
}

static void whole(void **state)
{
	sweep(*state, "{\"model\":\"default\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", false);
}

static void whole_with_the_parser(void **state)
{
	json_mem_install();
	whole(state);
	json_set_alloc_funcs(malloc, free);
}

static void refused_by_the_parser(void **state)
{
	struct chat_rig *c = *state;
	for (long n = 1; n < 40; n++) {
		CHAT_UNTIL(c, app_ready(c->app));
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, CHAT, "", "{\"model\":\"m\",\"messages\":[{\"role\":\"nobody\",\"content\":\"hi\"}]}");
		fault_disarm_all();
		if (c->n_answer > 0)
			assert_true(strncmp(c->answer, "HTTP/1.1 400", 12) == 0 ||
				    strncmp(c->answer, "HTTP/1.1 503", 12) == 0);
		CHAT_UNTIL(c, at_rest(c));
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
		int fd = send_request(c, CHAT, "", bodies[i]);
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

/* A constraint compiles before the engine replies: that takes as long as a first token may. */
static void a_constraint_has_the_time_of_a_first_token(void **state)
{
	static const char *const bodies[] = {
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"guided_regex\":\"a+\"}"};
	enum { SUBMIT_MS = 50, FIRST_MS = 5000, TURNS = 20 };
	struct chat_rig *c = *state;
	c->r.cfg.limits.submit_wait_ms = SUBMIT_MS;
	c->r.cfg.limits.first_token_ms = FIRST_MS;
	c->stalled = true;
	for (int i = 0; i < 2; i++) {
		CHAT_UNTIL(c, app_ready(c->app));
		clock_fake(NULL);
		c->fake_ns = clock_now_ns();
		clock_fake(&c->fake_ns);
		int before = c->n_submits, fd = send_request(c, CHAT, "", bodies[i]);
		CHAT_UNTIL(c, c->n_submits > before);
		if (i == 1) {
			c->fake_ns += (FIRST_MS - 1) * NS_PER_MS;
			for (int k = 0; k < TURNS; k++)
				turn(c);
			assert_int_equal(n_running(c), 1);
		}
		c->fake_ns += (SUBMIT_MS + 1) * NS_PER_MS;
		take_answer(c, fd);
		assert_memory_equal(c->answer, "HTTP/1.1 503", 12);
		assert_non_null(strstr(c->answer, "The engine did not take the request in time."));
		CHAT_UNTIL(c, c->app->n_exchanges == 0);
	}
	clock_fake(NULL);
}

/* What sluice_ttft_seconds has added up. */
static double ttft_sum(void)
{
	static const char name[] = "\nsluice_ttft_seconds_sum{tier=\"t\",model=\"m\",cached=\"none\"} ";
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	const char *at = strstr(buf_cstr(&b), name);
	double sum = at != NULL ? strtod(at + sizeof name - 1, NULL) : 0;
	buf_dispose(&b);
	return sum;
}

/* The time that a body takes to come is not the server's time. */
static void first_tokens_count_from_the_end_of_the_body(void **state)
{
	static const char head[] =
	    "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
	    "authorization: Bearer sk-test\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
			  body[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
	struct chat_rig *c = *state;
	char request[sizeof head + 64];
	CHAT_UNTIL(c, app_ready(c->app));
	double before = ttft_sum();
	c->fake_ns = clock_now_ns();
	clock_fake(&c->fake_ns);
	int n = snprintf(request, sizeof request, head, sizeof body - 1);
	int fd = rig_connect(&c->r);
	c->n_answer = 0;
	assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
	CHAT_UNTIL(c, c->app->n_exchanges == 1);
	c->fake_ns += c->r.cfg.limits.body_ms / 2 * NS_PER_MS;
	for (int i = 0; i < 10; i++)
		turn(c);
	assert_int_equal(send(fd, body, sizeof body - 1, MSG_NOSIGNAL), sizeof body - 1);
	take_answer(c, fd);
	assert_memory_equal(c->answer, "HTTP/1.1 200", 12);
	clock_fake(NULL);
	assert_true(ttft_sum() - before < 1e-6); /* the clock stood still from then on */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(first_tokens_count_from_the_end_of_the_body, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(streamed, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(whole, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(whole_with_the_parser, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(an_early_timer_forgets_no_first_token, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(a_constraint_has_the_time_of_a_first_token, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(refused_by_the_parser, chat_set_up, chat_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
