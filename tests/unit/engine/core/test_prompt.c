/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/prompt: what of a chat's JSON is taken, what is refused and with which words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/proto/proto.h"
#include "engine/core/prompt.h"

#define USER "{\"role\":\"user\",\"content\":\"x\"}"

static struct prompt_chat taken(const char *text)
{
	struct prompt_chat c;
	struct sl_err err = {0};
	if (prompt_parse_chat(text, strlen(text), &c, &err) != 0)
		fail_msg("%s: %s", text, err.text);
	return c;
}

static void refused(const char *text, const char *message)
{
	struct prompt_chat c;
	struct sl_err err = {0};
	int rc = prompt_parse_chat(text, strlen(text), &c, &err);
	if (rc != SL_EINVAL || strstr(err.text, message) == NULL)
		fail_msg("%s: %d \"%s\", not \"%s\"", text, rc, err.text, message);
	assert_null(c.root);
	uint8_t field = strncmp(err.text, "documents", 9) == 0               ? PROTO_ERR_BAD_DOCUMENTS
			: strncmp(err.text, "chat_template_kwargs", 20) == 0 ? PROTO_ERR_BAD_KWARGS
									     : 0;
	if (c.refused != field)
		fail_msg("%s: refused for %d, not %d", text, c.refused, field);
}

static void whole_chats(void **state)
{
	(void)state;
	struct prompt_chat c = taken("{\"messages\":[" USER "]}");
	assert_int_equal(json_array_size(c.messages), 1);
	assert_null(c.tools);
	assert_null(c.documents);
	assert_null(c.variables);
	assert_true(c.add_generation_prompt);
	assert_false(c.continue_final_message);
	prompt_chat_dispose(&c);
	c = taken("{\"messages\":[" USER "],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
		  "\"parameters\":{}}}],\"documents\":[{\"title\":\"t\"}],\"chat_template_kwargs\":"
		  "{\"enable_thinking\":false,\"levels\":[1,\"a\"],\"x\":null},\"add_generation_prompt\":false}");
	assert_int_equal(json_array_size(c.tools), 1);
	assert_int_equal(json_array_size(c.documents), 1);
	assert_int_equal(json_object_size(c.variables), 3);
	assert_false(c.add_generation_prompt);
	prompt_chat_dispose(&c);
	c = taken("{\"messages\":[" USER "],\"tools\":[],\"documents\":null,\"chat_template_kwargs\":null,"
		  "\"continue_final_message\":true}");
	assert_null(c.tools);
	assert_null(c.variables);
	assert_false(c.add_generation_prompt);
	assert_true(c.continue_final_message);
	prompt_chat_dispose(&c);
}

static void messages(void **state)
{
	(void)state;
	static const char *const good[] = {
	    "{\"role\":\"system\",\"content\":\"\"}",
	    "{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"name\":\"n\"}",
	    "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"c1\"}",
	    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}",
	    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\","
	    "\"arguments\":{}}}]}",
	    "{\"role\":\"assistant\",\"reasoning_content\":\"hm\"}",
	    "{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":null,\"reasoning_content\":null}",
	};
	static const struct {
		const char *message, *why;
	} bad[] = {
	    {"5", "messages[1].role must be a string"},
	    {"{\"role\":\"robot\",\"content\":\"x\"}", "messages[1].role must be one of"},
	    {"{\"role\":\"user\"}", "messages[1].content must be a string or a list of 1 to"},
	    {"{\"role\":\"user\",\"content\":[]}", "messages[1].content must be"},
	    {"{\"role\":\"assistant\",\"content\":null}", "messages[1].content must be"},
	    {"{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}", "content[0].type must be \"text\""},
	    {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}", "content[0].text must be"},
	    {"{\"role\":\"user\",\"content\":\"x\",\"name\":5}", "messages[1].name must be a string"},
	    {"{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":[]}", "tool_call_id must be a string"},
	    {"{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":{}}", "reasoning_content must be"},
	    {"{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[]}", "tool_calls is for the assistant"},
	    {"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":5}", "tool_calls must be an array"},
	    {"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[5]}", "tool_calls[0].function.name"},
	    {"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":5,\"function\":{\"name\":\"f\"}}]}",
	     "tool_calls[0].id must be"},
	    {"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
	     "\"arguments\":[]}}]}",
	     "tool_calls[0].function.arguments must be"},
	};
	char text[1024];
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		snprintf(text, sizeof text, "{\"messages\":[" USER ",%s]}", good[i]);
		struct prompt_chat c = taken(text);
		prompt_chat_dispose(&c);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		snprintf(text, sizeof text, "{\"messages\":[" USER ",%s]}", bad[i].message);
		refused(text, bad[i].why);
	}
}

static void arguments_become_objects(void **state)
{
	(void)state;
	static const struct {
		const char *text, *want;
	} cases[] = {
	    {"\"{\\\"city\\\": \\\"Bern\\\"}\"", "{\"city\":\"Bern\"}"},
	    {"\"\"", "{}"},
	    {"{\"a\":1}", "{\"a\":1}"},
	    {"\"{broken\"", "\"{broken\""},
	    {"\"[1]\"", "\"[1]\""},
	    {"\"{\\\"a\\\":1,\\\"a\\\":2}\"", "\"{\\\"a\\\":1,\\\"a\\\":2}\""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[512];
		snprintf(text, sizeof text,
			 "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
			 "\"arguments\":%s}}]}]}",
			 cases[i].text);
		struct prompt_chat c = taken(text);
		const json_t *call = json_array_get(json_object_get(json_array_get(c.messages, 0), "tool_calls"), 0);
		char *got = json_dumps(json_object_get(json_object_get(call, "function"), "arguments"),
				       JSON_COMPACT | JSON_ENCODE_ANY);
		assert_string_equal(got, cases[i].want);
		free(got);
		prompt_chat_dispose(&c);
	}
}

static void whole_refusals(void **state)
{
	(void)state;
	refused("{\"messages\":[", "not valid JSON");
	refused("[]", "messages must be an array");
	refused("{\"messages\":[]}", "messages must be an array");
	refused("{\"messages\":[" USER "],\"messages\":[" USER "]}", "not valid JSON");
	static const struct {
		const char *more, *why;
	} bad[] = {
	    {"\"tools\":5", "tools must be an array"},
	    {"\"tools\":[5]", "tools[0].type must be"},
	    {"\"tools\":[{\"type\":\"function\"}]", "tools[0].function.name"},
	    {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":5}}]",
	     "tools[0].function.parameters"},
	    {"\"documents\":{}", "documents must be an array"},
	    {"\"documents\":[5]", "documents[0] must be an object"},
	    {"\"chat_template_kwargs\":[]", "chat_template_kwargs must be an object"},
	    {"\"chat_template_kwargs\":{\"a b\":1}", "no identifier"},
	    {"\"chat_template_kwargs\":{\"\":1}", "no identifier"},
	    {"\"chat_template_kwargs\":{\"a\":{}}", "chat_template_kwargs.a must be"},
	    {"\"chat_template_kwargs\":{\"bos_token\":\"x\"}", "can't set bos_token"},
	    {"\"chat_template_kwargs\":{\"range\":1}", "can't set range"},
	    {"\"add_generation_prompt\":1", "add_generation_prompt must be true or false"},
	    {"\"continue_final_message\":true,\"add_generation_prompt\":true", "exclude each other"},
	};
	char text[512];
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		snprintf(text, sizeof text, "{\"messages\":[" USER "],%s}", bad[i].more);
		refused(text, bad[i].why);
	}
}

/* n times the text, in brackets; owned by the caller. */
static char *many(const char *before, const char *item, size_t n, const char *after)
{
	size_t cap = strlen(before) + n * (strlen(item) + 1) + strlen(after) + 1;
	char *out = malloc(cap), *at = out;
	assert_non_null(out);
	at += sprintf(at, "%s", before);
	for (size_t i = 0; i < n; i++)
		at += sprintf(at, i > 0 ? ",%s" : "%s", item);
	sprintf(at, "%s", after);
	return out;
}

static void bounds(void **state)
{
	(void)state;
	char *text = many("{\"messages\":[", USER, PROMPT_MAX_MESSAGES, "]}");
	struct prompt_chat c = taken(text);
	prompt_chat_dispose(&c);
	free(text);
	text = many("{\"messages\":[", USER, PROMPT_MAX_MESSAGES + 1, "]}");
	refused(text, "messages must be an array");
	free(text);
	text = many("{\"messages\":[{\"role\":\"user\",\"content\":[", "{\"type\":\"text\",\"text\":\"\"}",
		    PROMPT_MAX_PARTS + 1, "]}]}");
	refused(text, "content must be");
	free(text);
	text = many("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[", "{\"function\":{\"name\":\"f\"}}",
		    PROMPT_MAX_CALLS + 1, "]}]}");
	refused(text, "tool_calls must be");
	free(text);
	text = many("{\"messages\":[" USER "],\"tools\":[", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
		    PROMPT_MAX_TOOLS + 1, "]}");
	refused(text, "tools must be");
	free(text);
	char deep[128];
	memset(deep, '[', sizeof deep);
	deep[sizeof deep - 1] = '\0';
	refused(deep, "nested deeper than 32");
}

#define CALL(id, name) "{\"id\":\"" id "\",\"function\":{\"name\":\"" name "\"}}"
#define RESULT(id) "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"" id "\"}"

static void expect_id(const json_t *object, const char *member, const char *id)
{
	assert_string_equal(json_string_value(json_object_get(object, member)), id);
}

/* Ids of other models, repeated ones and results out of order; what has no call keeps its id. */
static void calls_are_numbered(void **state)
{
	(void)state;
	struct prompt_chat c = taken(
	    "{\"messages\":[" USER
	    ",{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f") "," CALL("b", "g") "]}," RESULT("b") "," RESULT("a") ",{\"role\":\"assistant\",\"tool_calls\":[" CALL(
		"a",
		"g") "," CALL("a",
			      "h") ",{\"function\":{\"name\":\"f\"}}]}," RESULT("a") "," RESULT("a") "," RESULT("b") "," RESULT("z") "]}");
	static const char *const calls[] = {"functions.f:0", "functions.g:1", "functions.g:2", "functions.h:3",
					    "functions.f:4"};
	static const struct {
		size_t message;
		const char *id;
	} results[] = {{2, "functions.g:1"}, {3, "functions.f:0"}, {5, "functions.g:2"},
		       {6, "functions.h:3"}, {7, "functions.g:1"}, {8, "z"}};
	assert_int_equal(prompt_number_calls(&c, "functions."), 0);
	for (size_t i = 0; i < 5; i++)
		expect_id(json_array_get(json_object_get(json_array_get(c.messages, i < 2 ? 1 : 4), "tool_calls"),
					 i < 2 ? i : i - 2),
			  "id", calls[i]);
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		expect_id(json_array_get(c.messages, results[i].message), "tool_call_id", results[i].id);
	char *once = json_dumps(c.root, JSON_COMPACT), *again;
	assert_int_equal(prompt_number_calls(&c, "functions."), 0);
	again = json_dumps(c.root, JSON_COMPACT);
	assert_string_equal(once, again);
	free(once);
	free(again);
	prompt_chat_dispose(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_chats),    cmocka_unit_test(messages), cmocka_unit_test(arguments_become_objects),
	    cmocka_unit_test(whole_refusals), cmocka_unit_test(bounds),   cmocka_unit_test(calls_are_numbered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
