/* SPDX-License-Identifier: Apache-2.0
 *
 * Every way to an answer, with the nth allocation, read, write or accept failing, for every n until
 * none is left to fail: what comes back is nothing, a piece of one answer or one whole answer, and
 * afterwards nothing goes on, nothing is counted, and the next request is served.
 */
#include <string.h>

#include "gateway/request/json_mem.h"
#include "base/log.h"
#include "tests/support/chat_rig.h"
#include "tests/support/part.h"

enum { MOST_PASSES = 3000 };

struct way {
	const char *name, *target, *fields, *body;
	const char *whole; /* in the answer when nothing fails */
	bool on_made;      /* %s in the target is a response made before */
};

#define CHAT_BODY "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct way ways[] = {
    {"chat, logged", "POST /v1/chat/completions", "x-sluice-events: 1\r\n",
     "{\"model\":\"m\"," CHAT_BODY ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", "data: [DONE]", 0},
    {"completions, whole", "POST /v1/completions", "",
     "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"echo\":true,\"stop\":\"x\",\"logit_bias\":{\"3\":1}}", "\"babc\"", 0},
    {"completions, streamed", "POST /v1/completions", "", "{\"model\":\"m\",\"prompt\":[[1,2],[3]],\"stream\":true}",
     "data: [DONE]", 0},
    {"response, whole and stored", "POST /v1/responses", "",
     "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}]}],"
     "\"metadata\":{\"a\":\"b\"},\"instructions\":\"be brief\"}",
     "\"text\":\"abc\"", 0},
    {"response, streamed and stored", "POST /v1/responses", "", "{\"model\":\"m\",\"input\":\"hi\",\"stream\":true}",
     "event: response.completed", 0},
    {"response, streamed, not stored", "POST /v1/responses", "",
     "{\"model\":\"m\",\"input\":\"hi\",\"stream\":true,\"store\":false}", "event: response.completed", 0},
    {"response, in the background", "POST /v1/responses", "", "{\"model\":\"m\",\"input\":\"hi\",\"background\":true}",
     "\"status\":\"in_progress\"", 0},
    {"response, continued", "POST /v1/responses", "",
     "{\"model\":\"m\",\"input\":\"hi\",\"previous_response_id\":\"%s\"}", "\"text\":\"abc\"", 1},
    {"retrieved", "GET /v1/responses/%s", "", "", "\"text\":\"abc\"", 1},
    {"items", "GET /v1/responses/%s/input_items?order=asc", "", "", "\"object\":\"list\"", 1},
    {"cancelled too late", "POST /v1/responses/%s/cancel", "", "", "not_cancellable", 1},
    {"browser token", "POST /v1/browser_tokens", "", "{\"subject\":\"u\"}", "\"token\":\"sbt_", 0},
    {"usage", "GET /v1/usage", "", "", "\"object\":\"usage\"", 0},
    {"models", "GET /v1/models", "", "", "\"object\":\"list\"", 0},
};

/* A response to speak of: its id. */
static void make_response(struct chat_rig *c, char id[64])
{
	ask(c, "POST /v1/responses", "", "{\"model\":\"m\",\"input\":\"hi\"}");
	const char *at = strstr(c->answer, "\"id\":\"resp_");
	assert_non_null(at);
	snprintf(id, 64, "%.37s", at + 6);
	CHAT_UNTIL(c, at_rest(c));
}

/* Nothing, the beginning of one answer, or one whole answer with JSON in it unless it is a stream. */
static void check_piece(struct chat_rig *c, const struct way *w)
{
	const char *a = c->answer, *body;
	if (c->n_answer < 12)
		return;
	assert_memory_equal(a, "HTTP/1.1 ", 9);
	assert_null(strstr(a + 1, "HTTP/1.1 "));
	int status = atoi(a + 9);
	if (status != 200 && status != 400 && status != 404 && status != 503 && status != 500)
		fail_msg("%s: %s", w->name, a);
	const char *length = strstr(a, "content-length: ");
	if ((body = strstr(a, "\r\n\r\n")) == NULL || length == NULL || strlen(body + 4) < (size_t)atol(length + 16))
		return;
	if (body[4] == '\0') /* an error without the memory to tell it in words */
		return;
	json_t *j = json_loads(body + 4, 0, NULL);
	if (j == NULL)
		fail_msg("%s: no JSON: %s", w->name, a);
	const char *as = json_string_value(json_object_get(j, "status"));
	bool well = status == 200 && (as == NULL || strcmp(as, "failed") != 0); /* a response that was not stored */
	if (well != (json_is_null(json_object_get(j, "error")) || json_object_get(j, "error") == NULL))
		fail_msg("%s: %s", w->name, a);
	json_decref(j);
}

/* How often the point is passed on this way. */
static long sweep(struct chat_rig *c, const struct way *w, enum fault_point point)
{
	char id[64], target[128], body[512];
	/* All allocations of each way in long runs; else every third one, from another one on in each way. */
	long every = point == FAULT_ALLOC ? some_of(3, 1) : 1, n = -((w - ways) % every), passes;
	CHAT_UNTIL(c, app_ready(c->app));
	make_response(c, id);
	/* The formats are this file's. */
	if (w->on_made && strstr(w->body, "%s") == NULL) {
		const char *mark = strstr(w->target, "%s");
		snprintf(target, sizeof target, "%.*s%s%s", (int)(mark - w->target), w->target, id, mark + 2);
		snprintf(body, sizeof body, "%s", w->body);
	} else if (w->on_made) {
		const char *mark = strstr(w->body, "%s");
		snprintf(target, sizeof target, "%s", w->target);
		snprintf(body, sizeof body, "%.*s%s%s", (int)(mark - w->body), w->body, id, mark + 2);
	} else {
		snprintf(target, sizeof target, "%s", w->target);
		snprintf(body, sizeof body, "%s", w->body);
	}
	do {
		n += every;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, app_ready(c->app));
		passes = ask_with_fault(c, point, n, target, w->fields, body);
		check_piece(c, w);
		assert_int_equal(n_running(c), 0);
		CHAT_UNTIL(c, n_generations() == 0);
	} while (passes >= n);
	CHAT_UNTIL(c, app_ready(c->app));
	ask(c, target, w->fields, body);
	CHAT_UNTIL(c, at_rest(c));
	if (strstr(c->answer, w->whole) == NULL)
		fail_msg("%s without a fault: %s", w->name, c->answer);
	return passes;
}

static void sweep_all(struct chat_rig *c, enum fault_point point, long least)
{
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		long n = sweep(c, &ways[i], point);
		print_message("%s: %ld\n", ways[i].name, n);
		assert_true(n >= least);
	}
}

static void every_allocation(void **state)
{
	json_mem_install();
	sweep_all(*state, FAULT_ALLOC, 5);
	json_set_alloc_funcs(malloc, free);
}

static void every_read(void **state) { sweep_all(*state, FAULT_READ, 1); }
static void every_write(void **state) { sweep_all(*state, FAULT_WRITE, 1); }
static void every_accept(void **state) { sweep_all(*state, FAULT_ACCEPT, 1); }

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(every_allocation, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(every_read, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(every_write, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(every_accept, chat_set_up, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
