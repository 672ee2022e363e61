/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation that is made shorter, from the socket to the engine's and back, with the nth allocation
 * failing, and with an engine that goes at the nth frame: each client gets one whole answer, an error or a
 * broken connection, nothing stays counted, and the next request is served as if nothing had been.
 */
#include "gateway/compress/compress.h"
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"

enum { MAX_ALLOCATIONS = 1000, BODY_BYTES = 1500 };

#define CHAT "POST /v1/chat/completions"
#define RESPONSE "POST /v1/responses"

static int set_up(void **state)
{
	chat_context = 200;
	int rc = chat_set_up(state);
	struct chat_rig *c = *state;
	c->tier.compress = COMPRESS_SUMMARY;
	c->r.cfg.compress.wait_ms = 5000;
	/* Prompts are charged, too. */
	c->tier.tokens_per_minute = 60000000;
	return rc;
}

/* A conversation that is told nowhere else, so that its summary has to be made; no fact is in it. */
static void make_body(char *out, const char *list, long n, const char *more)
{
	char word[9];
	for (size_t i = 0; i < sizeof word - 1; i++, n /= 26)
		word[i] = (char)('a' + n % 26);
	word[sizeof word - 1] = '\0';
	snprintf(out, BODY_BYTES,
		 "{\"model\":\"m\",\"%s\":["
		 "{\"role\":\"user\",\"content\":\"this is what I say at first, and it is %s that I speak of, in many "
		 "words\"},"
		 "{\"role\":\"assistant\",\"content\":\"and this is what was answered to that, which is rather a lot "
		 "of text, too\"},"
		 "{\"role\":\"user\",\"content\":\"then again I say what I said at first, in as many words as they are "
		 "needed for it\"},"
		 "{\"role\":\"assistant\",\"content\":\"yes\"},{\"role\":\"user\",\"content\":\"bye\"}]%s}",
		 list, word, more);
}

static long value_of(const char *series)
{
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	const char *at = strstr(buf_cstr(&b), series);
	assert_non_null(at);
	long v = strtol(at + strlen(series), NULL, 10);
	buf_dispose(&b);
	return v;
}

static bool is_answered(const struct chat_rig *c) { return strncmp(c->answer, "HTTP/1.1 200", 12) == 0; }

static void check_rest(struct chat_rig *c)
{
	CHAT_UNTIL(c, at_rest(c) && n_generations() == 0 && !quotas_busy(&c->app->quotas));
	assert_int_equal(n_running(c), 0);
	assert_true(list_empty(&c->app->all_answers));
}

static void sweep(struct chat_rig *c, const char *target, const char *list, const char *more)
{
	static long unique;
	char body[BODY_BYTES];
	long n = 0, passes, shorter = 0, whole = 0;
	do {
		CHAT_UNTIL(c, app_ready(c->app));
		n++;
		assert_true(n < MAX_ALLOCATIONS);
		make_body(body, list, ++unique, more);
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, target, "", body);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (c->n_answer > 0 && !is_answered(c) && strncmp(c->answer, "HTTP/1.1 50", 11) != 0 &&
		    strncmp(c->answer, "HTTP/1.1 413", 12) != 0)
			fail_msg("the %ldth allocation: %s", n, c->answer);
		whole += is_answered(c);
		shorter += is_answered(c) && strstr(c->answer, "\"how\":\"summary\"") != NULL;
		check_rest(c);
	} while (passes >= n);
	if (strstr(c->answer, "\"how\":\"summary\"") == NULL || strstr(c->answer, "abc") == NULL)
		fail_msg("without a fault: %s", c->answer);
	print_message("%ld allocations: %ld answered, %ld of them with a summary\n", n - 1, whole, shorter);
	assert_true(n > 50);
	assert_true(whole > shorter); /* some were answered without */
}

static void whole(void **state) { sweep(*state, CHAT, "messages", ""); }

static void streamed(void **state) { sweep(*state, CHAT, "messages", ",\"stream\":true"); }

static void response(void **state) { sweep(*state, RESPONSE, "input", ",\"store\":false"); }

static void whole_with_the_parser(void **state)
{
	json_mem_install();
	whole(state);
	json_set_alloc_funcs(malloc, free);
}

/* HELLO and requests before are past. */
static void engine_goes_at_any_frame(void **state)
{
	struct chat_rig *c = *state;
	char body[BODY_BYTES];
	int gone = 0;
	long k = 1;
	for (;; k++) {
		CHAT_UNTIL(c, app_ready(c->app));
		make_body(body, "messages", 100000 + k, "");
		c->drop_at = c->n_frames + (int)k;
		ask(c, CHAT, "", body);
		bool dropped = c->n_frames >= c->drop_at;
		c->drop_at = 0;
		check_rest(c);
		if (!dropped)
			break;
		gone += strncmp(c->answer, "HTTP/1.1 503", 12) == 0;
		assert_true(k < 50);
	}
	if (!is_answered(c))
		fail_msg("with an engine that stays: %s", c->answer);
	print_message("%ld frames, %d answers of 503\n", k - 1, gone);
	assert_true(k > 6); /* COUNT, COUNT, SUBMIT, CREDIT, COUNT, SUBMIT, CREDIT */
	assert_true(gone > 3);
}

/* Who leaves in the middle of a summary ends it. */
static void client_leaves(void **state)
{
	struct chat_rig *c = *state;
	char body[BODY_BYTES];
	CHAT_UNTIL(c, app_ready(c->app));
	make_body(body, "messages", 200000, "");
	c->silent = true;
	int fd = send_request(c, CHAT, "", body);
	CHAT_UNTIL(c, n_generations() > 0);
	assert_int_equal(n_running(c), 1);
	close(fd);
	check_rest(c);
	c->silent = false;
	make_body(body, "messages", 200001, "");
	ask(c, CHAT, "", body);
	assert_true(is_answered(c));
	check_rest(c);
}

/* An engine that never says anything: what it was to summarize is left out when the time is over. */
static void time_is_over(void **state)
{
	struct chat_rig *c = *state;
	char body[BODY_BYTES];
	CHAT_UNTIL(c, app_ready(c->app));
	c->r.cfg.compress.wait_ms = 30;
	c->silent = true;
	long before = value_of("sluice_compress_summaries_total{result=\"not_made\"} ");
	make_body(body, "messages", 300000, "");
	int fd = send_request(c, CHAT, "", body);
	CHAT_UNTIL(c, value_of("sluice_compress_summaries_total{result=\"not_made\"} ") > before);
	CHAT_UNTIL(c, !list_empty(&c->app->all_answers));
	c->silent = false;
	close(fd);
	check_rest(c);
}

/* One place of the key, for the run and then for the answer: the tier has one. */
static void takes_one_place(void **state)
{
	struct chat_rig *c = *state;
	char body[BODY_BYTES];
	CHAT_UNTIL(c, app_ready(c->app));
	c->silent = true;
	make_body(body, "messages", 400000, "");
	int fd = send_request(c, CHAT, "", body);
	CHAT_UNTIL(c, n_generations() > 0);
	make_body(body, "messages", 400001, "");
	ask(c, CHAT, "", body);
	assert_memory_equal(c->answer, "HTTP/1.1 429", 12);
	close(fd);
	c->silent = false;
	check_rest(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(whole, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(whole_with_the_parser, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(streamed, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(response, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(engine_goes_at_any_frame, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(client_leaves, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(time_is_over, set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(takes_one_place, set_up, chat_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
