/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations with the nth allocation failing on every way to change, read, answer in and delete one,
 * and with a store that fails. Whatever fails: what comes back is nothing, a piece of one answer or one
 * whole answer; nothing goes on afterwards; and the conversation has all of a change or nothing of it.
 */
#include <string.h>

#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"
#include "tests/support/part.h"

enum { MOST_PASSES = 3000, FRESH_BYTES = 64 };

struct way {
	const char *name, *target, *body; /* %s: a conversation of its own, new for each pass */
	const char *whole;                /* in the answer when nothing fails */
	int items;                        /* that it then has; -1: it has gone */
};

/* A fresh one has two items and one response. */
static const struct way ways[] = {
    {"made", "POST /v1/conversations",
     "{\"items\":[{\"role\":\"user\",\"content\":\"hi\"}],\"metadata\":{\"a\":\"b\"}}", "\"object\":\"conversation\"",
     2},
    {"told", "GET /v1/conversations/%s", "", "\"object\":\"conversation\"", 2},
    {"changed", "POST /v1/conversations/%s", "{\"metadata\":{\"c\":\"d\"}}", "\"c\":\"d\"", 2},
    {"listed", "GET /v1/conversations?limit=100", "", "\"object\":\"list\"", 2},
    {"exported", "GET /v1/conversations/%s/export", "", "\"conversation.export\"", 2},
    {"its items", "GET /v1/conversations/%s/items", "", "\"object\":\"list\"", 2},
    {"items added", "POST /v1/conversations/%s/items", "{\"items\":[{\"role\":\"user\",\"content\":\"more\"}]}",
     "\"text\":\"more\"", 3},
    {"a turn", "POST /v1/responses", "{\"model\":\"m\",\"input\":\"hi\",\"conversation\":\"%s\"}", "\"text\":\"abc\"",
     4},
    {"a turn, streamed", "POST /v1/responses",
     "{\"model\":\"m\",\"input\":\"hi\",\"conversation\":{\"id\":\"%s\"},\"stream\":true}", "event: response.completed",
     4},
    {"a turn that is not stored", "POST /v1/responses",
     "{\"model\":\"m\",\"input\":\"hi\",\"conversation\":\"%s\",\"store\":false}", "\"text\":\"abc\"", 4},
    {"a turn in the background", "POST /v1/responses",
     "{\"model\":\"m\",\"input\":\"hi\",\"conversation\":\"%s\",\"background\":true}", "\"status\":\"in_progress\"", 4},
    {"deleted", "DELETE /v1/conversations/%s", "", "conversation.deleted", -1},
};

static const char *json_of(struct chat_rig *c)
{
	const char *body = strstr(c->answer, "\r\n\r\n");
	return body != NULL ? body + 4 : "";
}

static void fresh(struct chat_rig *c, char id[FRESH_BYTES])
{
	char body[256];
	ask(c, "POST /v1/conversations", "", "{}");
	const char *at = strstr(c->answer, "\"id\":\"conv_");
	if (at == NULL)
		fail_msg("no conversation: %s", c->answer);
	snprintf(id, FRESH_BYTES, "%.37s", at + 6);
	CHAT_UNTIL(c, at_rest(c));
	snprintf(body, sizeof body, "{\"model\":\"m\",\"input\":\"hi\",\"conversation\":\"%s\"}", id);
	ask(c, "POST /v1/responses", "", body);
	assert_non_null(strstr(c->answer, "\"text\":\"abc\""));
	CHAT_UNTIL(c, at_rest(c) && list_empty(&c->app->turns));
}

/* The formats are this file's. */
static void fill(char *to, size_t room, const char *format, const char *id)
{
	const char *mark = strstr(format, "%s");
	if (mark == NULL)
		snprintf(to, room, "%s", format);
	else
		snprintf(to, room, "%.*s%s%s", (int)(mark - format), format, id, mark + 2);
}

/* Nothing, the beginning of one answer, or one whole answer. */
static void check_piece(struct chat_rig *c, const struct way *w)
{
	const char *a = c->answer, *length = strstr(a, "content-length: ");
	if (c->n_answer < 12)
		return;
	assert_memory_equal(a, "HTTP/1.1 ", 9);
	assert_null(strstr(a + 1, "HTTP/1.1 "));
	int status = atoi(a + 9);
	if (status != 200 && status != 404 && status != 503 && status != 500)
		fail_msg("%s: %s", w->name, a);
	if (length == NULL || strlen(json_of(c)) < (size_t)atol(length + 16) || json_of(c)[0] == '\0')
		return;
	json_t *j = json_loads(json_of(c), 0, NULL);
	if (j == NULL)
		fail_msg("%s: no JSON: %s", w->name, a);
	json_decref(j);
}

/* How many items it has; -1: it has gone. */
static int n_items(struct chat_rig *c, const char *id)
{
	char target[128];
	snprintf(target, sizeof target, "GET /v1/conversations/%s/items?limit=100", id);
	ask(c, target, "", "");
	CHAT_UNTIL(c, at_rest(c));
	if (strstr(c->answer, "conversation_not_found") != NULL)
		return -1;
	json_t *j = json_loads(json_of(c), 0, NULL);
	if (!json_is_array(json_object_get(j, "data")))
		fail_msg("no items: %s", c->answer);
	int n = (int)json_array_size(json_object_get(j, "data"));
	json_decref(j);
	return n;
}

static void sweep(struct chat_rig *c, const struct way *w)
{
	char id[FRESH_BYTES], target[128], body[512];
	/* All allocations of each way in long runs; else every fourth one, from another one on in each way. */
	long every = some_of(4, 1), n = -((w - ways) % every), passes;
	do {
		n += every;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, app_ready(c->app));
		fresh(c, id);
		fill(target, sizeof target, w->target, id);
		fill(body, sizeof body, w->body, id);
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		ask(c, target, "", body);
		CHAT_UNTIL(c, at_rest(c) && list_empty(&c->app->turns));
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		check_piece(c, w);
		if (passes < n && strstr(c->answer, w->whole) == NULL)
			fail_msg("%s without a fault: %s", w->name, c->answer);
		assert_int_equal(n_running(c), 0);
		CHAT_UNTIL(c, n_generations() == 0);
		CHAT_UNTIL(c, app_ready(c->app));
		int items = n_items(c, id);
		if (items != 2 && items != w->items)
			fail_msg("%s, allocation %ld: %d items", w->name, n, items);
		if (passes < n && items != w->items)
			fail_msg("%s without a fault: %d items", w->name, items);
		/* Many are made: room for the next ones. */
		snprintf(target, sizeof target, "DELETE /v1/conversations/%s", id);
		ask(c, target, "", "");
		CHAT_UNTIL(c, at_rest(c));
	} while (passes >= n);
	print_message("%s: %ld\n", w->name, passes);
	assert_true(n > 5);
}

static void every_allocation(void **state)
{
	json_mem_install();
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		sweep(*state, &ways[i]);
	json_set_alloc_funcs(malloc, free);
}

/* A Redis that is not there: no conversations, told so at once; answers without them go on. */
static void without_a_store(void **state)
{
	struct chat_rig *c = *state;
	char target[128], body[512];
	CHAT_UNTIL(c, app_ready(c->app));
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		fill(target, sizeof target, ways[i].target, "conv_0");
		fill(body, sizeof body, ways[i].body, "conv_0");
		ask(c, target, "", body);
		if (strstr(c->answer, "HTTP/1.1 503 ") == NULL || strstr(c->answer, "store_unavailable") == NULL)
			fail_msg("%s: %s", ways[i].name, c->answer);
		CHAT_UNTIL(c, at_rest(c) && list_empty(&c->app->turns));
	}
	ask(c, "POST /v1/responses", "", "{\"model\":\"m\",\"input\":\"hi\"}");
	assert_non_null(strstr(c->answer, "\"text\":\"abc\""));
	assert_non_null(strstr(c->answer, "\"store\":false"));
	CHAT_UNTIL(c, at_rest(c));
}

static int set_up_without(void **state)
{
	chat_store_address = "unix:/nowhere/redis.sock";
	int rc = chat_set_up(state);
	chat_store_address = NULL;
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(every_allocation, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(without_a_store, set_up_without, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
