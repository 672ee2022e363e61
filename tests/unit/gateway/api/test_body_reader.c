/* SPDX-License-Identifier: Apache-2.0
 *
 * Large request bodies, read on a thread of their own: with each allocation failing, by the loop or by the
 * reader, and with clients that leave at any time.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gateway/api/body_reader.h"
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"

enum { BODY_BYTES = BODY_AT_ONCE + 2048, MOST_PASSES = 3000 };

static const struct kind {
	const char *target, *begin, *end, *whole;
} kinds[] = {
    {"POST /v1/chat/completions", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]", "}",
     "\"abc\""},
    {"POST /v1/completions", "{\"model\":\"m\",\"prompt\":\"hi\"", "}", "\"abc\""},
    {"POST /v1/responses", "{\"model\":\"m\",\"input\":\"hi\"", "}", "\"text\":\"abc\""},
    {"POST /v1/chat/completions", "{\"model\":\"m\",\"messages\":[", "!", "\"invalid_request_error\""},
};

/* The same request in more bytes than are read at once. */
static const char *large(const struct kind *k)
{
	static char body[BODY_BYTES + 1];
	size_t n = strlen(k->begin);
	memset(body, ' ', BODY_BYTES);
	memcpy(body, k->begin, n);
	memcpy(body + BODY_BYTES - strlen(k->end), k->end, strlen(k->end));
	return body;
}

static void every_allocation(void **state)
{
	struct chat_rig *c = *state;
	json_mem_install();
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		long n = 0, passes;
		do {
			n++;
			assert_true(n < MOST_PASSES);
			CHAT_UNTIL(c, app_ready(c->app));
			passes = ask_with_fault(c, FAULT_ALLOC, n, kinds[i].target, "", large(&kinds[i]));
			assert_int_equal(n_running(c), 0);
			CHAT_UNTIL(c, n_generations() == 0);
		} while (passes >= n);
		print_message("%s: %ld\n", kinds[i].target, n - 1);
		assert_true(n > 20);
		CHAT_UNTIL(c, app_ready(c->app));
		ask(c, kinds[i].target, "", large(&kinds[i]));
		CHAT_UNTIL(c, at_rest(c));
		if (strstr(c->answer, kinds[i].whole) == NULL)
			fail_msg("%s without a fault: %s", kinds[i].target, c->answer);
	}
	json_set_alloc_funcs(malloc, free);
}

/* The job comes back to nobody, and the next one is read. */
static void who_leaves_is_forgotten(void **state)
{
	struct chat_rig *c = *state;
	for (int i = 0; i < 50; i++) {
		int fd = send_request(c, kinds[0].target, "", large(&kinds[0]));
		for (int turns = 0; turns < i % 5; turns++)
			turn(c);
		close(fd);
		CHAT_UNTIL(c, at_rest(c));
	}
	CHAT_UNTIL(c, app_ready(c->app));
	ask(c, kinds[0].target, "", large(&kinds[0]));
	CHAT_UNTIL(c, at_rest(c));
	assert_non_null(strstr(c->answer, kinds[0].whole));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(every_allocation, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(who_leaves_is_forgotten, chat_set_up, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
