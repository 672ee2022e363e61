/* SPDX-License-Identifier: Apache-2.0
 *
 * Tools and reasoning in requests: what the template gets, what is chosen, and errors by name.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/request/chat_request.h"
#include "gateway/request/response_request.h"
#include "gateway/request/tokenize_request.h"

#define MSG "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define PROMPT "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static const struct request_limits limits = {.messages = 4, .json_depth = 16};

static int try(const char *body, struct request_error *e)
{
	struct chat_request r;
	int rc = chat_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		chat_request_dispose(&r);
	return rc;
}

static void assert_prompt(const char *members, const char *rest)
{
	char body[1024], want[1024];
	struct chat_request r;
	struct request_error e;
	snprintf(body, sizeof body, "{" MSG ",%s}", members);
	snprintf(want, sizeof want, PROMPT "%s}", rest);
	if (chat_request_parse(body, strlen(body), &limits, &r, &e) != 0)
		fail_msg("%s: %s", body, e.message);
	if (r.prompt.len != strlen(want) || memcmp(buf_data(&r.prompt), want, r.prompt.len) != 0)
		fail_msg("%s: %.*s", body, (int)r.prompt.len, (const char *)buf_data(&r.prompt));
	chat_request_dispose(&r);
}

static void the_template_gets_tools(void **state)
{
	(void)state;
	assert_prompt(
	    "\"tools\":[{\"type\":\"function\",\"function\":{\"parameters\":{\"z\":1,\"a\":2},\"strict\":true,"
	    "\"description\":\"d\",\"name\":\"f\"}}]",
	    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
	    "\"parameters\":{\"z\":1,\"a\":2}}}]");
	assert_prompt("\"functions\":[{\"name\":\"f\"}],\"function_call\":\"auto\"", ",\"tools\":[" TOOL("f") "]");
	assert_prompt("\"tools\":[" TOOL("f") "],\"tool_choice\":\"none\"", "");
	assert_prompt(
	    "\"tools\":[" TOOL("f") "," TOOL("g") "],\"tool_choice\":{\"type\":\"allowed_tools\","
						  "\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[" TOOL("g") "]}}",
	    ",\"tools\":[" TOOL("g") "]");
}

static void the_choice(void **state)
{
	static const struct {
		const char *members;
		enum tool_choice choice;
		const char *named;
	} cases[] = {
	    {"\"tools\":[" TOOL("f") "]", TOOL_CHOICE_AUTO, NULL},
	    {"\"tools\":[" TOOL("f") "],\"tool_choice\":\"required\"", TOOL_CHOICE_REQUIRED, NULL},
	    {"\"tools\":[" TOOL("f") "],\"tool_choice\":" TOOL("f"), TOOL_CHOICE_NAMED, "f"},
	    {"\"functions\":[{\"name\":\"f\"}],\"function_call\":{\"name\":\"f\"}", TOOL_CHOICE_NAMED, "f"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char body[512];
		struct chat_request r;
		struct request_error e;
		snprintf(body, sizeof body, "{" MSG ",\"parallel_tool_calls\":false,%s}", cases[i].members);
		if (chat_request_parse(body, strlen(body), &limits, &r, &e) != 0)
			fail_msg("%s: %s", body, e.message);
		assert_int_equal(r.c.tools.choice, cases[i].choice);
		assert_int_equal(r.c.tools.n, 1);
		assert_false(r.c.tools.parallel);
		if (cases[i].named != NULL)
			assert_string_equal(r.c.tools.named, cases[i].named);
		chat_request_dispose(&r);
	}
}

static void of_responses(void **state)
{
	static const char body[] = "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
				   "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"
				   "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"7\"}],"
				   "\"reasoning\":{\"effort\":\"high\"},"
				   "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}],"
				   "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}";
	static const char want[] =
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_"
	    "calls\":["
	    "{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
	    "{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"c\"}],\"tools\":[{\"type\":\"function\","
	    "\"function\":"
	    "{\"name\":\"f\",\"parameters\":{}}}],\"chat_template_kwargs\":{\"reasoning_effort\":\"high\"}}";
	struct response_request r;
	struct request_error e;
	struct sl_buf out;
	(void)state;
	assert_int_equal(response_request_parse(body, sizeof body - 1, &limits, &r, &e), 0);
	assert_true(r.c.tools.choice == TOOL_CHOICE_NAMED && strcmp(r.c.tools.named, "f") == 0);
	buf_init(&out, REQUEST_MAX_PROMPT);
	assert_int_equal(response_messages(&r, NULL, &out, &e), 0);
	assert_int_equal(out.len, sizeof want - 1);
	assert_memory_equal(buf_data(&out), want, out.len);
	buf_dispose(&out);
	response_request_dispose(&r);
}

static void reasoning(void **state)
{
	(void)state;
#define OFF ",\"chat_template_kwargs\":{\"enable_thinking\":false,\"thinking\":false}"
#define ON ",\"chat_template_kwargs\":{\"enable_thinking\":true,\"thinking\":true}"
	assert_prompt("\"enable_thinking\":false", OFF);
	assert_prompt("\"reasoning_effort\":\"none\"", OFF);
	assert_prompt("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}", ON);
	assert_prompt("\"thinking\":false", OFF);
	assert_prompt("\"think\":true", ON);
	assert_prompt("\"thinking\":{\"type\":\"auto\"}", "");
	assert_prompt("\"think\":\"low\"", ",\"chat_template_kwargs\":{\"reasoning_effort\":\"low\"}");
	assert_prompt("\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":\"mine\",\"k\":[1]}",
		      ",\"chat_template_kwargs\":{\"enable_thinking\":\"mine\",\"k\":[1],\"thinking\":true}");
	struct chat_request r;
	struct request_error e;
	static const char budget[] = "{" MSG ",\"max_thinking_tokens\":9}";
	assert_int_equal(chat_request_parse(budget, sizeof budget - 1, &limits, &r, &e), 0);
	assert_true(r.c.reasoning.has_budget && r.c.reasoning.budget == 9);
	chat_request_dispose(&r);
}

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{" MSG ",\"tools\":[1]}", "tools[0]", "invalid_type"},
	    {"{" MSG ",\"tools\":[{}]}", "tools[0].type", "missing_required_parameter"},
	    {"{" MSG ",\"tools\":[{\"type\":\"custom\"}]}", "tools[0].type", "unsupported_value"},
	    {"{" MSG ",\"tools\":[{\"type\":\"function\"}]}", "tools[0].function", "missing_required_parameter"},
	    {"{" MSG ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", "tools[0].function.name",
	     "missing_required_parameter"},
	    {"{" MSG ",\"tools\":[" TOOL("a b") "]}", "tools[0].function.name", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("a") "," TOOL("a") "]}", "tools[1].function.name", "invalid_value"},
	    {"{" MSG ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":1}}]}",
	     "tools[0].function.parameters", "invalid_type"},
	    {"{" MSG
	     ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"array\"}}}]}",
	     "tools[0].function.parameters", "invalid_value"},
	    {"{" MSG
	     ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":[\"null\"]}}}]}",
	     "tools[0].function.parameters", "invalid_value"},
	    {"{" MSG ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":1}}]}",
	     "tools[0].function.strict", "invalid_type"},
	    {"{" MSG ",\"tools\":[" TOOL("a") "],\"tool_choice\":\"some\"}", "tool_choice", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("a") "],\"tool_choice\":" TOOL("b") "}", "tool_choice", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("a") "],\"tool_choice\":{\"type\":\"custom\"}}", "tool_choice.type",
	     "unsupported_value"},
	    {"{" MSG ",\"tool_choice\":\"required\"}", "tool_choice", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("a") "],\"functions\":[{\"name\":\"a\"}]}", "functions", "invalid_value"},
	    {"{" MSG ",\"functions\":[{\"name\":\"\"}]}", "functions[0].name", "invalid_value"},
	    {"{" MSG ",\"functions\":[{\"name\":\"a\"}],\"function_call\":\"required\"}", "function_call",
	     "invalid_value"},
	    {"{" MSG ",\"enable_thinking\":true,\"think\":false}", "think", "invalid_value"},
	    {"{" MSG ",\"reasoning_effort\":\"low\",\"think\":\"high\"}", "think", "invalid_value"},
	    {"{" MSG ",\"thinking\":{}}", "thinking.type", "missing_required_parameter"},
	    {"{" MSG ",\"thinking\":{\"type\":\"x\"}}", "thinking.type", "invalid_value"},
	    {"{" MSG ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-1}}", "thinking.budget_tokens",
	     "invalid_value"},
	    {"{" MSG ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1},\"thinking_budget\":2}",
	     "thinking_budget", "invalid_value"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof cases[0]);
}

/* ---- /tokenize and /detokenize ---- */

static void tokenizes(void **state)
{
	static const struct {
		const char *body;
		uint8_t kind, wants;
		const char *prompt;
	} cases[] = {
	    {"{\"prompt\":\"a b\"}", PROTO_PROMPT_TEXT, PROTO_COUNT_IDS, "a b"},
	    {"{\"prompt\":\"a\",\"add_special_tokens\":false}", PROTO_PROMPT_TEXT, PROTO_COUNT_IDS | PROTO_COUNT_PLAIN,
	     "a"},
	    {"{" MSG ",\"tools\":[" TOOL("f") "]}", PROTO_PROMPT_CHAT, PROTO_COUNT_IDS,
	     PROMPT ",\"tools\":[" TOOL("f") "]}"},
	};
	struct tokenize_request r;
	struct request_error e;
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (tokenize_request_parse(cases[i].body, strlen(cases[i].body), &limits, &r, &e) != 0)
			fail_msg("%s: %s", cases[i].body, e.message);
		assert_true(r.kind == cases[i].kind && r.wants == cases[i].wants);
		assert_int_equal(r.prompt.n, strlen(cases[i].prompt));
		assert_memory_equal(r.prompt.at, cases[i].prompt, r.prompt.n);
		assert_string_equal(r.model, i < 2 ? "default" : "m");
		tokenize_request_dispose(&r);
	}
	static const char ids[] = "{\"model\":\"m\",\"tokens\":[258,1]}";
	assert_int_equal(detokenize_request_parse(ids, sizeof ids - 1, &limits, &r, &e), 0);
	assert_true(r.kind == PROTO_PROMPT_TOKENS && r.wants == PROTO_COUNT_TEXT);
	assert_int_equal(r.prompt.n, 8);
	assert_memory_equal(r.prompt.at, "\2\1\0\0\1\0\0\0", 8);
	tokenize_request_dispose(&r);
}

static int try_tokenize(const char *body, struct request_error *e)
{
	struct tokenize_request r;
	int rc = tokenize_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		tokenize_request_dispose(&r);
	return rc;
}

static int try_detokenize(const char *body, struct request_error *e)
{
	struct tokenize_request r;
	int rc = detokenize_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		tokenize_request_dispose(&r);
	return rc;
}

static void refuses_what_is_no_text(void **state)
{
	static const struct refusal cases[] = {
	    {"{}", "prompt", "missing_required_parameter"},
	    {"{\"prompt\":[1]}", "prompt", "invalid_type"},
	    {"{\"prompt\":\"x\",\"model\":1}", "model", "invalid_type"},
	    {"{\"prompt\":\"x\",\"add_special_tokens\":1}", "add_special_tokens", "invalid_type"},
	    {"{\"prompt\":\"x\",\"return_token_strs\":true}", "return_token_strs", "unsupported_parameter"},
	    {"{\"messages\":[]}", "model", "missing_required_parameter"},
	};
	static const struct refusal tokens[] = {
	    {"{}", "tokens", "missing_required_parameter"},
	    {"{\"tokens\":[]}", "tokens", "empty_array"},
	    {"{\"tokens\":\"x\"}", "tokens", "invalid_type"},
	    {"{\"tokens\":[1,-1]}", "tokens[1]", "invalid_value"},
	    {"{\"tokens\":[1,\"a\"]}", "tokens[1]", "invalid_type"},
	};
	(void)state;
	assert_refused(try_tokenize, cases, sizeof cases / sizeof cases[0]);
	assert_refused(try_detokenize, tokens, sizeof tokens / sizeof tokens[0]);
	sweep_allocations(try_tokenize, "{" MSG ",\"tools\":[" TOOL("f") "],\"enable_thinking\":true}", 0);
	sweep_allocations(try_detokenize, "{\"tokens\":[1,2]}", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_template_gets_tools),
	    cmocka_unit_test(the_choice),
	    cmocka_unit_test(of_responses),
	    cmocka_unit_test(reasoning),
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(tokenizes),
	    cmocka_unit_test(refuses_what_is_no_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
