/* SPDX-License-Identifier: Apache-2.0
 *
 * Files with the nth allocation failing on every way to send, read, list, name and delete one, and with a store that
 * fails. Whatever fails: what comes back is nothing, an error or one whole answer, and nothing goes on afterwards. And
 * what the tenant's bounds are.
 */
#include <string.h>

#include "base/log.h"
#include "gateway/request/json_mem.h"
#include "tests/support/chat_rig.h"

#define FORM "multipart/form-data; boundary=b"
#define UPLOAD(text)                                                                   \
	"--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n" \
	"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n" text "\r\n--b--\r\n"

enum { MOST_PASSES = 3000, ID_BYTES = 64 };

static const struct way {
	const char *name, *target, *body; /* %s: a file, new for each pass */
	const char *whole;                /* in the answer when nothing fails */
	bool gone;                        /* the file has gone then */
} ways[] = {
    {"sent", "POST /v1/files", UPLOAD("hello"), "\"status\":\"processed\"", false},
    {"read", "GET /v1/files/%s", "", "\"object\":\"file\"", false},
    {"its text", "GET /v1/files/%s/content", "", "\r\n\r\nsome text", false},
    {"listed", "GET /v1/files?limit=100", "", "\"object\":\"list\"", false},
    {"in a chat", "POST /v1/chat/completions",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":{\"file_id\":\"%s\"}},"
     "{\"type\":\"text\",\"text\":\"why?\"}]}]}",
     "\"abc\"", false},
    {"in a response", "POST /v1/responses",
     "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\",\"file_id\":\"%s\"}]}]}",
     "\"text\":\"abc\"", false},
    {"in a message", "POST /v1/messages",
     "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\","
     "\"source\":{"
     "\"type\":\"file\",\"file_id\":\"%s\"}}]}]}",
     "\"abc\"", false},
    {"deleted", "DELETE /v1/files/%s", "", "\"deleted\":true", true},
};

static void fill(char *to, size_t room, const char *format, const char *id)
{
	const char *mark = strstr(format, "%s");
	if (mark == NULL)
		snprintf(to, room, "%s", format);
	else
		snprintf(to, room, "%.*s%s%s", (int)(mark - format), format, id, mark + 2);
}

static void go(struct chat_rig *c, const struct way *w, const char *id)
{
	char target[128], body[512];
	fill(target, sizeof target, w->target, id);
	fill(body, sizeof body, w->body, id);
	c->type = strcmp(target, "POST /v1/files") == 0 ? FORM : NULL;
	ask(c, target, "", body);
	c->type = NULL;
	CHAT_UNTIL(c, at_rest(c));
}

static void send_file(struct chat_rig *c, const char *form, char id[ID_BYTES])
{
	c->type = FORM;
	ask(c, "POST /v1/files", "", form);
	c->type = NULL;
	CHAT_UNTIL(c, at_rest(c));
	const char *at = strstr(c->answer, "\"id\":\"file-");
	if (at == NULL)
		fail_msg("no file: %s", c->answer);
	snprintf(id, ID_BYTES, "%.37s", at + 6);
}

static bool is_there(struct chat_rig *c, const char *id)
{
	go(c, &ways[2], id);
	if (strstr(c->answer, "HTTP/1.1 404 ") != NULL) {
		assert_non_null(strstr(c->answer, "\"code\":\"file_not_found\""));
		return false;
	}
	assert_non_null(strstr(c->answer, "\r\n\r\nsome text"));
	return true;
}

/* Those that were sent without their sender learning it: room for the next ones. */
static void delete_all(struct chat_rig *c)
{
	char id[ID_BYTES];
	for (;;) {
		go(c, &ways[3], "");
		const char *at = strstr(c->answer, "\"id\":\"file-");
		if (at == NULL)
			break;
		snprintf(id, sizeof id, "%.37s", at + 6);
		go(c, &ways[7], id);
		assert_non_null(strstr(c->answer, ways[7].whole));
	}
}

static void sweep(struct chat_rig *c, const struct way *w)
{
	char id[ID_BYTES];
	/* All allocations of each way in long runs; else every third one. */
	long every = getenv("THOROUGH") != NULL ? 1 : 3, n = -((w - ways) % every), passes;
	do {
		n += every;
		assert_true(n < MOST_PASSES);
		CHAT_UNTIL(c, app_ready(c->app));
		send_file(c, UPLOAD("some text"), id);
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, n, 1);
		go(c, w, id);
		passes = fault_passes(FAULT_ALLOC) - before;
		fault_disarm_all();
		int status = c->n_answer > 12 ? atoi(c->answer + 9) : 0;
		if (status != 0 && status != 200 && status != 500 && status != 503 && status != 529)
			fail_msg("%s, allocation %ld: %s", w->name, n, c->answer);
		if (passes < n && strstr(c->answer, w->whole) == NULL)
			fail_msg("%s without a fault: %s", w->name, c->answer);
		assert_int_equal(n_running(c), 0);
		CHAT_UNTIL(c, n_generations() == 0 && app_ready(c->app));
		bool there = is_there(c, id);
		if ((!w->gone && !there) || (w->gone && passes < n && there))
			fail_msg("%s, allocation %ld: the file is %s", w->name, n, there ? "there" : "gone");
		delete_all(c);
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

/* The engine gets the text once, in its frame, before the question. */
static void the_prompt_has_the_text(void **state)
{
	struct chat_rig *c = *state;
	char id[ID_BYTES];
	CHAT_UNTIL(c, app_ready(c->app));
	send_file(c, UPLOAD("some text"), id);
	for (size_t i = 4; i <= 6; i++) {
		go(c, &ways[i], id);
		assert_non_null(strstr(c->answer, ways[i].whole));
		if (strstr(c->prompt, "\"content\":\"<file name=\\\"a.txt\\\">\\nsome text\\n</file>\\n\\n") == NULL)
			fail_msg("%s: %s", ways[i].name, c->prompt);
	}
	delete_all(c);
	/* Deleted, it is named in the error by where it was named. */
	static const char *const params[] = {"messages[0].content[0].file.file_id", "input[0].content[0].file_id",
					     "messages[0].content[0].source.file_id"};
	int before = c->n_submits;
	for (size_t i = 4; i <= 6; i++) {
		go(c, &ways[i], id);
		assert_non_null(strstr(c->answer, "HTTP/1.1 404 "));
		assert_non_null(strstr(c->answer, i == 6 ? id : params[i - 4]));
	}
	assert_int_equal(c->n_submits, before);
}

static void bounds_hold(void **state)
{
	static char large[8192], form[16384];
	struct chat_rig *c = *state;
	char id[ID_BYTES], last[ID_BYTES];
	CHAT_UNTIL(c, app_ready(c->app));
	/* gateway.files.bytes, to the byte. */
	for (int over = 0; over < 2; over++) {
		memset(large, 'x', sizeof large);
		large[4096 + over] = '\0';
		fill(form, sizeof form, UPLOAD("%s"), large);
		c->type = FORM;
		ask(c, "POST /v1/files", "", form);
		c->type = NULL;
		CHAT_UNTIL(c, at_rest(c));
		assert_non_null(strstr(c->answer, over ? "HTTP/1.1 413 " : "HTTP/1.1 200 "));
		assert_true(!over || strstr(c->answer, "\"param\":\"file\"") != NULL);
	}
	/* tenant_bytes: 12000. */
	large[4096] = '\0';
	fill(form, sizeof form, UPLOAD("%s"), large);
	send_file(c, form, last);
	c->type = FORM;
	ask(c, "POST /v1/files", "", form);
	CHAT_UNTIL(c, at_rest(c));
	assert_non_null(strstr(c->answer, "gateway.files.tenant_bytes"));
	c->type = NULL;
	go(c, &ways[7], last);
	send_file(c, form, last);
	delete_all(c);
	/* per_tenant: 8. */
	for (int i = 0; i < 8; i++)
		send_file(c, UPLOAD("x"), id);
	c->type = FORM;
	ask(c, "POST /v1/files", "", UPLOAD("x"));
	CHAT_UNTIL(c, at_rest(c));
	c->type = NULL;
	assert_non_null(strstr(c->answer, "HTTP/1.1 400 "));
	assert_non_null(strstr(c->answer, "\"code\":\"too_many_files\""));
	assert_non_null(strstr(c->answer, "gateway.files.per_tenant"));
	delete_all(c);
}

/* A Redis that is not there: no files, told so at once; answers without them go on. */
static void without_a_store(void **state)
{
	struct chat_rig *c = *state;
	CHAT_UNTIL(c, app_ready(c->app));
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		go(c, &ways[i], "file-0");
		/* Anthropic's shape has no codes. */
		if (strstr(c->answer, "store_unavailable") == NULL && strstr(c->answer, "The store of files") == NULL)
			fail_msg("%s: %s", ways[i].name, c->answer);
	}
	ask(c, "POST /v1/chat/completions", "",
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
	assert_non_null(strstr(c->answer, "\"abc\""));
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
	    cmocka_unit_test_setup_teardown(the_prompt_has_the_text, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(bounds_hold, chat_set_up, chat_tear_down),
	    cmocka_unit_test_setup_teardown(without_a_store, set_up_without, chat_tear_down),
	};
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
