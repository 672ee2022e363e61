/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of Anthropic's Messages API: what the engine gets, and what is refused under which name.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/dialect/messages_request.h"

#define BASE "\"model\":\"m\",\"max_tokens\":5"
#define MSG BASE ",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define ONE(members) BASE ",\"messages\":[{" members "}]"
#define BLOCK(block) ONE("\"role\":\"user\",\"content\":[" block "]")
#define SAID(block) BASE ",\"messages\":[{\"role\":\"assistant\",\"content\":[" block "]}]"
#define TOOL(name) "{\"name\":\"" name "\",\"input_schema\":{}}"
#define OFF ",\"chat_template_kwargs\":{\"enable_thinking\":false,\"thinking\":false}"

static const struct request_limits limits = {.messages = 4, .json_depth = 16};

static int try(const char *body, struct request_error *e)
{
	struct chat_request r;
	int rc = messages_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		chat_request_dispose(&r);
	return rc;
}

static int try_count(const char *body, struct request_error *e)
{
	struct chat_request r;
	int rc = messages_count_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		chat_request_dispose(&r);
	return rc;
}

static void parse(const char *body, struct chat_request *r)
{
	struct request_error e;
	if (messages_request_parse(body, strlen(body), &limits, r, &e) != 0)
		fail_msg("%s: %s", body, e.message);
}

static void assert_prompt(const char *members, const char *want)
{
	char body[2048];
	struct chat_request r;
	snprintf(body, sizeof body, "{" BASE ",%s}", members);
	parse(body, &r);
	assert_ptr_equal(r.c.submit.prompt.at, buf_data(&r.prompt));
	const char *got = buf_cstr(&r.prompt);
	if (strcmp(got, want) != 0)
		fail_msg("%s\ngives %s\ninstead of %s", body, got, want);
	assert_int_equal(r.c.submit.prompt_kind, PROTO_PROMPT_CHAT);
	chat_request_dispose(&r);
}

static void lists_what_tools_lack(void **state)
{
	struct chat_request r;
	(void)state;
	parse("{" BASE ",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"name\":\"f\",\"type\":"
	      "\"custom\",\"input_schema\":"
	      "{\"type\":\"object\"},\"cache_control\":{\"type\":\"ephemeral\"},\"strict\":false}]}",
	      &r);
	assert_string_equal(r.c.ignored.text, "tools[0].cache_control");
	chat_request_dispose(&r);
}

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{\"messages\":[]}", "model", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":[]}", "max_tokens", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"max_tokens\":0,\"messages\":[]}", "max_tokens", "invalid_value"},
	    {"{" BASE "}", "messages", "missing_required_parameter"},
	    {"{" BASE ",\"messages\":{}}", "messages", "invalid_type"},
	    {"{" BASE ",\"messages\":[]}", "messages", "empty_array"},
	    {"{" BASE ",\"messages\":[1,2,3,4,5]}", "messages", "array_above_max_length"},
	    {"{" BASE ",\"messages\":[1]}", "messages[0]", "invalid_type"},
	    {"{" ONE("\"content\":\"x\"") "}", "messages[0].role", "missing_required_parameter"},
	    {"{" ONE("\"role\":1") "}", "messages[0].role", "invalid_type"},
	    {"{" ONE("\"role\":\"system\",\"content\":\"x\"") "}", "messages[0].role", "invalid_value"},
	    {"{" ONE("\"role\":\"user\"") "}", "messages[0].content", "missing_required_parameter"},
	    {"{" ONE("\"role\":\"user\",\"content\":7") "}", "messages[0].content", "invalid_type"},
	    {"{" ONE("\"role\":\"user\",\"content\":\"a\\u0000\"") "}", "messages[0].content", "invalid_value"},
	    {"{" BLOCK("") "}", "messages[0].content", "invalid_value"},
	    {"{" BLOCK("1") "}", "messages[0].content[0]", "invalid_type"},
	    {"{" BLOCK("{}") "}", "messages[0].content[0].type", "missing_required_parameter"},
	    {"{" BLOCK("{\"type\":1}") "}", "messages[0].content[0].type", "invalid_type"},
	    {"{" BLOCK("{\"type\":\"image\",\"source\":{}}") "}", "messages[0].content[0].type", "unsupported_value"},
	    {"{" BLOCK("{\"type\":\"document\"}") "}", "messages[0].content[0].source", "missing_required_parameter"},
	    {"{" SAID("{\"type\":\"redacted_thinking\",\"data\":\"x\"}") "}", "messages[0].content[0].type",
	     "unsupported_value"},
	    {"{" BLOCK("{\"type\":\"text\"}") "}", "messages[0].content[0].text", "missing_required_parameter"},
	    {"{" BLOCK("{\"type\":\"text\",\"text\":1}") "}", "messages[0].content[0].text", "invalid_type"},
	    {"{" BLOCK("{\"type\":\"text\",\"text\":\"\\u0000\"}") "}", "messages[0].content[0].text", "invalid_value"},
	    {"{" BLOCK("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{}}") "}",
	     "messages[0].content[0].type", "invalid_value"},
	    {"{" BLOCK("{\"type\":\"thinking\",\"thinking\":\"a\"}") "}", "messages[0].content[0].type",
	     "invalid_value"},
	    {"{" SAID("{\"type\":\"tool_result\",\"tool_use_id\":\"a\"}") "}", "messages[0].content[0].type",
	     "invalid_value"},
	    {"{" SAID("{\"type\":\"thinking\"}") "}", "messages[0].content[0].thinking", "missing_required_parameter"},
	    {"{" SAID("{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}}") "}", "messages[0].content[0].id",
	     "missing_required_parameter"},
	    {"{" SAID("{\"type\":\"tool_use\",\"id\":\"a\",\"input\":{}}") "}", "messages[0].content[0].name",
	     "missing_required_parameter"},
	    {"{" SAID("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"}") "}", "messages[0].content[0].input",
	     "missing_required_parameter"},
	    {"{" SAID("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"{}\"}") "}",
	     "messages[0].content[0].input", "invalid_type"},
	    {"{" BLOCK("{\"type\":\"tool_result\"}") "}", "messages[0].content[0].tool_use_id",
	     "missing_required_parameter"},
	    {"{" BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"is_error\":1}") "}",
	     "messages[0].content[0].is_error", "invalid_type"},
	    {"{" BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":1}") "}",
	     "messages[0].content[0].content", "invalid_type"},
	    {"{" BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}") "}",
	     "messages[0].content[0].content[0].type", "unsupported_value"},
	    {"{" BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{}]}") "}",
	     "messages[0].content[0].content[0].type", "invalid_type"},
	    {"{" BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"text\"}]}") "}",
	     "messages[0].content[0].content[0].text", "invalid_type"},
	    {"{" MSG ",\"system\":1}", "system", "invalid_type"},
	    {"{" MSG ",\"system\":[1]}", "system[0].type", "unsupported_value"},
	    {"{" MSG ",\"system\":[{\"type\":\"text\"}]}", "system[0].text", "missing_required_parameter"},
	    {"{" MSG ",\"system\":[{\"type\":\"text\",\"text\":1}]}", "system[0].text", "invalid_type"},
	    {"{" MSG ",\"system\":\"\\u0000\"}", "system", "invalid_value"},
	    {"{" MSG ",\"temperature\":3}", "temperature", "invalid_value"},
	    {"{" MSG ",\"top_p\":0}", "top_p", "invalid_value"},
	    {"{" MSG ",\"top_k\":1.5}", "top_k", "invalid_type"},
	    {"{" MSG ",\"stop_sequences\":\"a\"}", "stop_sequences", "invalid_type"},
	    {"{" MSG ",\"stop_sequences\":[1]}", "stop_sequences[0]", "invalid_type"},
	    {"{" MSG ",\"stop_sequences\":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7]}", "stop_sequences",
	     "array_above_max_length"},
	    {"{" MSG ",\"service_tier\":\"flex\"}", "service_tier", "invalid_value"},
	    {"{" MSG ",\"metadata\":{\"user_id\":1}}", "metadata.user_id", "invalid_type"},
	    {"{" MSG ",\"container\":\"x\"}", "container", "unsupported_parameter"},
	    {"{" MSG ",\"mcp_servers\":[{}]}", "mcp_servers", "unsupported_parameter"},
	    {"{" MSG ",\"thinking\":true}", "thinking", "invalid_type"},
	    {"{" MSG ",\"thinking\":{}}", "thinking.type", "missing_required_parameter"},
	    {"{" MSG ",\"thinking\":{\"type\":\"x\"}}", "thinking.type", "invalid_value"},
	    {"{" MSG ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-1}}", "thinking.budget_tokens",
	     "invalid_value"},
	    {"{" MSG ",\"output_config\":{\"effort\":\"x\"}}", "output_config.effort", "invalid_value"},
	    {"{" MSG ",\"output_config\":{\"format\":{\"schema\":{}}}}", "output_config.format.type",
	     "missing_required_parameter"},
	    {"{" MSG ",\"output_format\":{\"type\":\"json_schema\"}}", "output_format.schema",
	     "missing_required_parameter"},
	    {"{" MSG ",\"output_format\":{\"type\":\"text\"}}", "output_format.type", "invalid_value"},
	    {"{" MSG ",\"tools\":{}}", "tools", "invalid_type"},
	    {"{" MSG ",\"tools\":[1]}", "tools[0]", "invalid_type"},
	    {"{" MSG ",\"tools\":[{}]}", "tools[0].name", "missing_required_parameter"},
	    {"{" MSG ",\"tools\":[{\"name\":1}]}", "tools[0].name", "invalid_type"},
	    {"{" MSG ",\"tools\":[{\"name\":\"a b\"}]}", "tools[0].name", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("f") "," TOOL("f") "]}", "tools[1].name", "invalid_value"},
	    {"{" MSG ",\"tools\":[{\"name\":\"f\"}]}", "tools[0].input_schema", "missing_required_parameter"},
	    {"{" MSG ",\"tools\":[{\"name\":\"f\",\"input_schema\":1}]}", "tools[0].input_schema", "invalid_type"},
	    {"{" MSG ",\"tools\":[{\"name\":\"f\",\"description\":1}]}", "tools[0].description", "invalid_type"},
	    {"{" MSG ",\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"strict\":1}]}", "tools[0].strict",
	     "invalid_type"},
	    {"{" MSG ",\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}", "tools[0].type",
	     "unsupported_value"},
	    {"{" MSG ",\"tools\":[{\"type\":1}]}", "tools[0].type", "invalid_type"},
	    {"{" MSG ",\"tool_choice\":\"any\"}", "tool_choice", "invalid_type"},
	    {"{" MSG ",\"tool_choice\":{}}", "tool_choice.type", "missing_required_parameter"},
	    {"{" MSG ",\"tool_choice\":{\"type\":\"x\"}}", "tool_choice.type", "invalid_value"},
	    {"{" MSG ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\"}}", "tool_choice.name",
	     "missing_required_parameter"},
	    {"{" MSG ",\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}}",
	     "tool_choice.name", "invalid_value"},
	    {"{" MSG ",\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":1}}",
	     "tool_choice.disable_parallel_tool_use", "invalid_type"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof *cases);
}

static void messages_become_turns(void **state)
{
	(void)state;
	assert_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
		      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" OFF "}");
	/* Blocks of the system's text are lines; what is only a hint is dropped. */
	assert_prompt(
	    "\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}},{\"type\":\"text\",\"text\":\"b\"}],"
	    "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"text\","
	    "\"text\":\"d\"}]}]",
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"user\",\"content\":\"cd\"}]" OFF
	    "}");
	assert_prompt(
	    "\"system\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":"
	    "\"b\"}]",
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\nb\"}]" OFF "}");
}

static void calls_and_results_become_messages(void **state)
{
	(void)state;
	assert_prompt(
	    "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
	    "\"thinking\","
	    "\"thinking\":\"hm\",\"signature\":\"x\"},{\"type\":\"text\",\"text\":\"t\"},{\"type\":\"tool_use\",\"id\":"
	    "\"1\","
	    "\"name\":\"f\",\"input\":{\"b\":1,\"a\":\"x\"}},{\"type\":\"tool_use\",\"id\":\"2\",\"name\":\"g\","
	    "\"input\":{}}"
	    "]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":\"r\"},"
	    "{\"type\":\"tool_result\",\"tool_use_id\":\"2\",\"is_error\":true,\"content\":[{\"type\":\"text\","
	    "\"text\":\"s\""
	    "}]},{\"type\":\"text\",\"text\":\"so?\"}]}]",
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"t\","
	    "\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":"
	    "\"f\","
	    "\"arguments\":\"{\\\"b\\\":1,\\\"a\\\":\\\"x\\\"}\"}},{\"id\":\"2\",\"type\":\"function\",\"function\":{"
	    "\"name\":"
	    "\"g\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"r\",\"name\":\"f\",\"tool_call_id\":\"1\"}"
	    ","
	    "{\"role\":\"tool\",\"content\":\"Error: "
	    "s\",\"name\":\"g\",\"tool_call_id\":\"2\"},{\"role\":\"user\",\"content\":"
	    "\"so?\"}]" OFF "}");
	/* Without content, and of a call that is not there. */
	assert_prompt(
	    "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"9\"}]}]",
	    "{\"messages\":[{\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":\"9\"}]" OFF "}");
}

/* The assistant's text at the end is continued; its calls are not. */
static void last_message_goes_on(void **state)
{
	(void)state;
	assert_prompt(
	    "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]",
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}],"
	    "\"continue_final_message\":true" OFF "}");
	assert_prompt(
	    "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\","
	    "\"input\":{}}]}]",
	    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
	    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]" OFF "}");
}

static void only_users_are_cleansed(void **state)
{
	const struct request_limits strict = {.messages = 4, .json_depth = 16, .cleanse = CLEANSE_FULL};
	static const char body[] =
	    "{" BASE ",\"system\":\"a\\u200bb\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\u200bb\"},{\"role\":"
	    "\"assistant\",\"content\":\"a\\u200bb\"},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
	    "\"tool_use_id\":\"1\",\"content\":\"a\\u200bb\"}]}]}";
	struct chat_request r;
	struct request_error e;
	(void)state;
	cleanse_prepare();
	assert_int_equal(messages_request_parse(body, strlen(body), &strict, &r, &e), 0);
	assert_int_equal(r.c.cleansed.n_changed, 1);
	assert_non_null(strstr(buf_cstr(&r.prompt), "{\"role\":\"user\",\"content\":\"ab\"}"));
	chat_request_dispose(&r);
}

static void fields_are_taken(void **state)
{
	struct chat_request r;
	(void)state;
	parse("{" MSG
	      ",\"stop_sequences\":[\"a\",\"bc\"],\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"stream\":true,"
	      "\"metadata\":{\"user_id\":\"u\",\"x\":1},\"service_tier\":\"auto\",\"context_management\":{},\"new\":1,"
	      "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{ \"type\" : \"object\"}}}}",
	      &r);
	const struct proto_submit *s = &r.c.submit;
	assert_true(r.c.stream && r.c.has_max_tokens && r.c.max_tokens == 5);
	assert_int_equal(s->n_stops, 2);
	assert_memory_equal(s->stops[1].at, "bc", 2);
	assert_true(s->temperature == 0.5f && s->top_p == 0.25f && s->top_k == 7 && s->n == 1);
	assert_string_equal(r.c.user, "u");
	/* The client's own bytes. */
	assert_int_equal(r.c.constraint.kind, PROTO_CONSTRAINT_JSON_SCHEMA);
	assert_string_equal(r.c.constraint.field, "output_config.format.schema");
	assert_string_equal(buf_cstr(&r.c.constraint.text), "{ \"type\" : \"object\"}");
	assert_string_equal(r.c.ignored.text, "metadata.x, context_management, new");
	chat_request_dispose(&r);
}

static void tools_and_their_choice(void **state)
{
	static const struct {
		const char *choice;
		enum tool_choice want;
		bool parallel;
	} cases[] = {{"{\"type\":\"auto\"}", TOOL_CHOICE_AUTO, true},
		     {"{\"type\":\"auto\",\"disable_parallel_tool_use\":true}", TOOL_CHOICE_AUTO, false},
		     {"{\"type\":\"any\"}", TOOL_CHOICE_REQUIRED, true},
		     {"{\"type\":\"tool\",\"name\":\"g\"}", TOOL_CHOICE_NAMED, true},
		     {"{\"type\":\"none\"}", TOOL_CHOICE_NONE, true}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char body[512];
		struct chat_request r;
		snprintf(body, sizeof body,
			 "{" MSG
			 ",\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"description\":\"d\",\"input_schema\":{"
			 "\"type\":\"object\"},\"cache_control\":{}}," TOOL("g") "],\"tool_choice\":%s}",
			 cases[i].choice);
		parse(body, &r);
		bool none = cases[i].want == TOOL_CHOICE_NONE;
		assert_int_equal(r.c.tools.choice, cases[i].want);
		assert_int_equal(r.c.tools.n, none ? 0 : 2);
		assert_int_equal(r.c.tools.parallel, cases[i].parallel);
		assert_true(
		    (strstr(buf_cstr(&r.prompt),
			    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
			    "\"parameters\":{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":"
			    "\"g\",\"parameters\":{}}}]") != NULL) == !none);
		if (cases[i].want == TOOL_CHOICE_NAMED)
			assert_string_equal(r.c.tools.named, "g");
		chat_request_dispose(&r);
	}
}

static void thinks_where_asked(void **state)
{
	struct chat_request r;
	(void)state;
	parse("{" MSG "}", &r);
	assert_int_equal(r.c.reasoning.thinking, REASONING_OFF);
	chat_request_dispose(&r);
	parse("{" MSG ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}", &r);
	assert_int_equal(r.c.reasoning.thinking, REASONING_ON);
	assert_true(r.c.reasoning.has_budget && r.c.reasoning.budget == 1024);
	chat_request_dispose(&r);
	parse("{" MSG ",\"thinking\":{\"type\":\"disabled\"}}", &r);
	assert_int_equal(r.c.reasoning.thinking, REASONING_OFF);
	chat_request_dispose(&r);
	parse("{" MSG ",\"output_config\":{\"effort\":\"low\"}}", &r);
	assert_int_equal(r.c.reasoning.thinking, REASONING_DEFAULT);
	assert_string_equal(r.c.reasoning.effort, "low");
	chat_request_dispose(&r);
}

static void counting_needs_no_length(void **state)
{
	struct request_error e;
	(void)state;
	assert_int_equal(try_count("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", &e), 0);
	assert_int_equal(try_count("{\"model\":\"m\"}", &e), SL_EINVAL);
	assert_string_equal(e.param, "messages");
}

static void survives_want_of_memory(void **state)
{
	(void)state;
	sweep_allocations(
	    try,
	    "{" BASE ",\"system\":\"s\",\"tools\":[" TOOL("f") "],\"messages\":[{\"role\":\"assistant\",\"content\":["
							       "{\"type\":\"thinking\",\"thinking\":\"t\"},{\"type\":"
							       "\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{"
							       "\"a\":1}}]},{\"role\":\"user\",\"content\":[{\"type\":"
							       "\"tool_result\",\"tool_use_id\":\"1\",\"content\":"
							       "\"r\"},{\"type\":\"text\",\"text\":\"x\"}]}]}",
	    0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lists_what_tools_lack),   cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(messages_become_turns),   cmocka_unit_test(calls_and_results_become_messages),
	    cmocka_unit_test(last_message_goes_on),    cmocka_unit_test(only_users_are_cleansed),
	    cmocka_unit_test(fields_are_taken),        cmocka_unit_test(tools_and_their_choice),
	    cmocka_unit_test(thinks_where_asked),      cmocka_unit_test(counting_needs_no_length),
	    cmocka_unit_test(survives_want_of_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
