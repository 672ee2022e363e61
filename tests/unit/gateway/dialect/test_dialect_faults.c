/* SPDX-License-Identifier: Apache-2.0
 *
 * A request of each dialect from the socket to the engine's socket and back with the nth allocation failing, for every
 * n until none is left to fail: each client gets one whole answer, an error in its API's shape, or sees its stream
 * broken off, and nothing stays counted.
 */
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"

enum { MAX_ALLOCATIONS = 600 };

struct way {
	const char *target, *body, *whole; /* whole: what only a complete answer has */
	bool stream;
};

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct way ways[] = {
    {"POST /v1/messages",
     "{\"model\":\"m\",\"max_tokens\":9,\"system\":\"s\",\"stop_sequences\":[\"x\"],\"stream\":true," MESSAGES "}",
     "event: message_stop", true},
    {"POST /v1/messages", "{\"model\":\"m\",\"max_tokens\":9," MESSAGES "}", "\"text\":\"abc\"", false},
    {"POST /api/chat", "{\"model\":\"m\"," MESSAGES ",\"options\":{\"stop\":[\"x\"]}}", "\"done\":true", true},
    {"POST /api/chat", "{\"model\":\"m:latest\",\"stream\":false," MESSAGES "}", "\"content\":\"abc\"", false},
    {"POST /api/generate", "{\"model\":\"m\",\"prompt\":\"hi\"}", "\"done\":true", true},
    {"POST /api/generate", "{\"model\":\"m\",\"prompt\":\"hi\",\"raw\":true,\"stream\":false}", "\"response\":\"abc\"",
     false},
};

static bool is_whole(const struct chat_rig *c, const struct way *w)
{
	return strncmp(c->answer, "HTTP/1.1 200", 12) == 0 && strstr(c->answer, w->whole) != NULL;
}

/* An error has its API's shape, in a body that is whole. Only where there was no memory for the request itself, before
 * any route, the transport answers. */
static void check_error(const struct chat_rig *c, const struct way *w)
{
	const char *body = strstr(c->answer, "\r\n\r\n");
	bool anthropic = strstr(w->target, "/v1/") != NULL;
	int status = atoi(c->answer + 9);
	if (strstr(c->answer, "\"message\":\"Service Unavailable\"") != NULL)
		return;
	if (status != 500 && status != (anthropic ? 529 : 503))
		fail_msg("%s: %s", w->target, c->answer);
	if (body == NULL || body[4] == '\0')
		return;
	json_t *j = json_loads(body + 4, 0, NULL);
	const json_t *error = json_object_get(j, "error");
	if (anthropic ? !json_is_object(error) : !json_is_string(error))
		fail_msg("%s: %s", w->target, c->answer);
	json_decref(j);
}

static void sweep(struct chat_rig *c, const struct way *w)
{
	long n = 0, passes;
	int refused = 0;
	do {
		CHAT_UNTIL(c, app_ready(c->app));
		n++;
		assert_true(n < MAX_ALLOCATIONS);
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, w->target, "", w->body);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		if (c->n_answer > 0 && strncmp(c->answer, "HTTP/1.1 200", 12) != 0) {
			refused++;
			check_error(c, w);
		}
		CHAT_UNTIL(c, at_rest(c));
		assert_int_equal(n_running(c), 0);
		assert_int_equal(n_generations(), 0);
	} while (passes >= n);
	if (!is_whole(c, w))
		fail_msg("without a fault: %s", c->answer);
	assert_true(n > 10 && refused > 0);
}

static void every_allocation(void **state)
{
	json_mem_install();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		sweep(*state, &ways[i]);
	json_set_alloc_funcs(malloc, free);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(every_allocation, chat_set_up, chat_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
