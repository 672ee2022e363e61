/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of response requests: items and what becomes of them for the engine, storage, stored
 * prompts, what is refused and under which name, and every allocation failing once.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "engine/core/prompt.h"
#include "gateway/request/response_request.h"

static const struct request_limits limits = {.messages = 6, .json_depth = 10};

static void parse(const char *body, struct response_request *r)
{
	struct request_error e;
	int rc = response_request_parse(body, strlen(body), &limits, r, &e);
	if (rc != 0)
		fail_msg("%s: %d, %s", body, rc, e.message);
}

/* Together with the messages: all that a request goes through before the engine. */
static int try(const char *body, struct request_error *e)
{
	struct response_request r;
	int rc = response_request_parse(body, strlen(body), &limits, &r, e);
	if (rc != 0)
		return rc;
	struct sl_buf out;
	buf_init(&out, REQUEST_MAX_PROMPT);
	if (json_array_size(r.input) > 0)
		rc = response_messages(&r, NULL, &out, e);
	buf_dispose(&out);
	response_request_dispose(&r);
	return rc;
}

static char *text_of(struct response_request *r, const char *history)
{
	struct request_error e;
	struct sl_buf out;
	json_t *items = history != NULL ? json_loads(history, 0, NULL) : NULL;
	struct prompt_chat chat;
	struct sl_err err = {0};
	buf_init(&out, REQUEST_MAX_PROMPT);
	int rc = response_messages(r, items, &out, &e);
	if (rc != 0)
		fail_msg("%d, param %s: %s", rc, e.param, e.message);
	/* The engine takes it. */
	if (prompt_parse_chat((const char *)buf_data(&out), out.len, &chat, &err) != 0)
		fail_msg("%s", err.text);
	prompt_chat_dispose(&chat);
	char *text = strndup((const char *)buf_data(&out), out.len);
	buf_dispose(&out);
	json_decref(items);
	return text;
}

static void assert_messages(const char *body, const char *history, const char *want)
{
	struct response_request r;
	parse(body, &r);
	char *text = text_of(&r, history);
	assert_string_equal(text, want);
	free(text);
	response_request_dispose(&r);
}

static void assert_input(const char *body, const char *want)
{
	struct response_request r;
	parse(body, &r);
	json_t *v = json_loads(want, 0, NULL);
	assert_non_null(v);
	if (!json_equal(v, r.input)) {
		char *got = json_dumps(r.input, JSON_COMPACT);
		fail_msg("%s: %s", body, got);
	}
	json_decref(v);
	response_request_dispose(&r);
}

#define IN "{\"model\":\"m\",\"input\":"

static void items_have_a_normal_form(void **state)
{
	(void)state;
	assert_input(IN "\"hi\"}", "[{\"type\":\"message\",\"role\":\"user\",\"status\":\"completed\","
				   "\"content\":[{\"type\":\"input_text\",\"text\":\"hi\"}]}]");
	assert_input(IN "[{\"role\":\"developer\",\"content\":\"a\",\"other\":1},{\"role\":\"assistant\",\"id\":\"msg_"
			"1\",\"content\":\"b\"}]}",
		     "[{\"type\":\"message\",\"role\":\"developer\",\"status\":\"completed\",\"content\":[{\"type\":"
		     "\"input_text\",\"text\":\"a\"}]},"
		     "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"completed\","
		     "\"content\":[{\"type\":\"output_text\",\"text\":\"b\",\"annotations\":[],\"logprobs\":[]}]}]");
	assert_input(IN "[{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":"
			"\"{}\",\"status\":null},"
			"{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\","
			"\"text\":\"o\"}],\"status\":\"incomplete\"}]}",
		     "[{\"id\":\"fc_1\",\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}"
		     "\",\"status\":\"completed\"},"
		     "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\","
		     "\"text\":\"o\"}],\"status\":\"incomplete\"}]");
	assert_input(
	    IN "[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"s\"}],"
	       "\"encrypted_content\":null}]}",
	    "[{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"s\"}]}]");
}

#define CALL "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}"
#define CALLED "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}"

static void items_become_messages(void **state)
{
	(void)state;
	assert_messages(IN "\"hi\",\"instructions\":\"be \\\"brief\\\"\"}", NULL,
			"{\"messages\":[{\"role\":\"system\",\"content\":\"be "
			"\\\"brief\\\"\"},{\"role\":\"user\",\"content\":\"hi\"}]}");
	assert_messages(
	    IN "\"c\",\"instructions\":\"s\",\"previous_response_id\":\"resp_1\"}",
	    "[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"message\",\"role\":\"assistant\",\"content\":"
	    "[{\"type\":\"output_text\",\"text\":\"b\"},{\"type\":\"refusal\",\"refusal\":\"!\"}]}]",
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"},"
	    "{\"role\":\"assistant\",\"content\":\"b!\"},{\"role\":\"user\",\"content\":\"c\"}]}");
	/* One turn of the assistant is one message, however many items it is. */
	assert_messages(
	    IN "[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\","
	       "\"text\":\"b\"}]},"
	       "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]},"
	       "{\"role\":\"assistant\",\"content\":\"t\"}," CALL "," CALL
	       ",{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"7\"}]}",
	    NULL,
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"},{\"role\":\"assistant\",\"content\":\"t\","
	    "\"reasoning_content\":\"hm\","
	    "\"tool_calls\":[" CALLED "," CALLED "]},{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"c1\"}]}");
	/* Two answers in a row stay two. */
	assert_messages(
	    IN "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}", NULL,
	    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}");
	assert_messages(IN "[" CALL ",{\"role\":\"developer\",\"content\":\"d\"}]}", NULL,
			"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALLED
			"]},{\"role\":\"system\",\"content\":\"d\"}]}");
}

/* What is pinned stays so on its way to the engine's messages, in history too. */
static void pins_go_along(void **state)
{
	(void)state;
	assert_input(
	    IN "[{\"role\":\"assistant\",\"content\":[],\"pinned\":true},{\"role\":\"assistant\",\"content\":[],"
	       "\"pinned\":false}]}",
	    "[{\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"pinned\":true,\"status\":\"completed\"},"
	    "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"status\":\"completed\"}]");
	assert_messages(
	    IN "[{\"role\":\"user\",\"content\":\"c\",\"pinned\":true},"
	       "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\",\"pinned\":true},"
	       "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"7\",\"pinned\":true},"
	       "{\"role\":\"assistant\",\"content\":\"d\"}],\"previous_response_id\":\"resp_1\"}",
	    "[{\"role\":\"user\",\"content\":\"a\",\"pinned\":true},{\"role\":\"assistant\",\"content\":\"b\"}]",
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"pinned\":true},{\"role\":\"assistant\",\"content\":"
	    "\"b\"},"
	    "{\"role\":\"user\",\"content\":\"c\",\"pinned\":true},{\"role\":\"assistant\",\"content\":\"\",\"tool_"
	    "calls\":["
	    "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}],\"pinned\":true}"
	    ","
	    "{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"c1\",\"pinned\":true},"
	    "{\"role\":\"assistant\",\"content\":\"d\"}]}");
	struct request_error e;
	assert_int_equal(try(IN "[{\"role\":\"user\",\"content\":\"c\",\"pinned\":1}]}", &e), SL_EINVAL);
	assert_string_equal(e.param, "input[0].pinned");
}

static void fields(void **state)
{
	struct response_request r;
	(void)state;
	parse(IN "\"x\"}", &r);
	assert_true(r.store && !r.background && !r.c.has_max_tokens && r.metadata == NULL && r.instructions == NULL);
	assert_true(r.previous_response_id == NULL && r.prompt_id == NULL && r.prompt_variables == NULL);
	assert_int_equal(r.c.submit.flags & PROTO_SUBMIT_WANT_LOGPROBS, 0);
	assert_int_equal(r.c.submit.prompt_kind, PROTO_PROMPT_CHAT);
	response_request_dispose(&r);

	parse(IN "\"x\",\"store\":false,\"max_output_tokens\":9,\"top_logprobs\":3,\"metadata\":{\"a\":\"b\"},"
		 "\"stream\":true,"
		 "\"stream_options\":{\"include_obfuscation\":true},\"temperature\":0,\"user\":\"u\",\"truncation\":"
		 "\"disabled\","
		 "\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"low\"},\"reasoning\":{\"effort\":\"low\","
		 "\"summary\":null},"
		 "\"tools\":[],\"tool_choice\":\"auto\",\"parallel_tool_calls\":true,\"include\":[\"reasoning."
		 "encrypted_content\"],"
		 "\"service_tier\":\"auto\",\"max_tool_calls\":3}",
	      &r);
	assert_true(!r.store && r.c.has_max_tokens && r.c.max_tokens == 9 && r.c.submit.n_top_logprobs == 3);
	assert_true((r.c.submit.flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0 && r.c.obfuscate && r.c.stream);
	assert_string_equal(json_string_value(json_object_get(r.metadata, "a")), "b");
	response_request_dispose(&r);

	parse(IN "\"x\",\"include\":[\"message.output_text.logprobs\"],\"background\":true}", &r);
	assert_true((r.c.submit.flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0 && r.c.submit.n_top_logprobs == 0 &&
		    r.background);
	response_request_dispose(&r);

	parse("{\"model\":\"m\",\"prompt\":{\"id\":\"p\",\"version\":\"2\",\"variables\":"
	      "{\"a\":\"1\",\"b\":{\"type\":\"input_text\",\"text\":\"2\"}}}}",
	      &r);
	assert_string_equal(r.prompt_id, "p");
	assert_string_equal(r.prompt_version, "2");
	assert_string_equal(json_string_value(json_object_get(r.prompt_variables, "b")), "2");
	assert_int_equal(json_array_size(r.input), 0);
	response_request_dispose(&r);
}

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{\"input\":\"x\"}", "model", "missing_required_parameter"},
	    {"{\"model\":\"m\"}", "input", "missing_required_parameter"},
	    {IN "7}", "input", "invalid_type"},
	    {IN "[]}", "input", "empty_array"},
	    {IN "\"a\\u0000\"}", "input", "invalid_value"},
	    {IN "[1]}", "input[0]", "invalid_type"},
	    {IN "[1,2,3,4,5,6,7]}", "input", "array_above_max_length"},
	    {IN "[{\"content\":\"x\"}]}", "input[0].role", "missing_required_parameter"},
	    {IN "[{\"role\":\"tool\",\"content\":\"x\"}]}", "input[0].role", "invalid_value"},
	    {IN "[{\"role\":\"user\"}]}", "input[0].content", "missing_required_parameter"},
	    {IN "[{\"role\":\"user\",\"content\":[]}]}", "input[0].content", "invalid_value"},
	    {IN "[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}", "input[0].content[0].type",
	     "unsupported_value"},
	    {IN "[{\"role\":\"user\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}]}",
	     "input[0].content[0].type", "unsupported_value"},
	    {IN "[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]}", "input[0].content[0].text",
	     "missing_required_parameter"},
	    {IN "[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"\\u0000\"}]}]}",
	     "input[0].content[0].text", "invalid_value"},
	    {IN "[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input[0].type", "unsupported_value"},
	    {IN "[{\"type\":\"message\",\"role\":\"user\",\"content\":\"x\",\"status\":\"failed\"}]}",
	     "input[0].status", "invalid_value"},
	    {IN "[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}]}", "input[0].arguments",
	     "missing_required_parameter"},
	    {IN "[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":7}]}", "input[0].output",
	     "invalid_type"},
	    {IN "[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"}]}", "input[0].encrypted_content",
	     "unsupported_parameter"},
	    {IN "\"x\",\"store\":false,\"background\":true}", "background", "invalid_value"},
	    {IN "\"x\",\"previous_response_id\":\"\"}", "previous_response_id", "invalid_value"},
	    {IN "\"x\",\"conversation\":\"\"}", "conversation", "invalid_value"},
	    {IN "\"x\",\"conversation\":{}}", "conversation.id", "invalid_value"},
	    {IN "\"x\",\"conversation\":{\"id\":7}}", "conversation.id", "invalid_type"},
	    {IN "\"x\",\"conversation\":\"c\",\"previous_response_id\":\"r\"}", "conversation", "invalid_value"},
	    {IN "\"x\",\"truncation\":\"auto\"}", "truncation", "unsupported_parameter"},
	    {IN "\"x\",\"include\":[\"nothing\"]}", "include[0]", "invalid_value"},
	    {IN "\"x\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}", "text.format.name",
	     "missing_required_parameter"},
	    {IN "\"x\",\"reasoning\":{\"effort\":\"wild\"}}", "reasoning.effort", "invalid_value"},
	    {IN "\"x\",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0].type", "unsupported_value"},
	    {IN "\"x\",\"tool_choice\":\"required\"}", "tool_choice", "invalid_value"},
	    {IN "\"x\",\"prompt\":{}}", "prompt.id", "missing_required_parameter"},
	    {IN "\"x\",\"prompt\":{\"id\":\"p\",\"variables\":{\"a\":1}}}", "prompt.variables.a", "invalid_type"},
	    {IN "\"x\",\"prompt\":{\"id\":\"p\",\"variables\":{\"a\":{\"type\":\"input_file\"}}}}",
	     "prompt.variables.a", "unsupported_value"},
	    {IN "\"x\",\"top_logprobs\":21}", "top_logprobs", "invalid_value"},
	    {IN "\"x\",\"stream_options\":{}}", "stream_options", "invalid_value"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof cases[0]);
}

static void history_is_checked_too(void **state)
{
	struct response_request r;
	struct request_error e;
	struct sl_buf out;
	(void)state;
	parse(IN "\"x\",\"previous_response_id\":\"resp_1\"}", &r);
	json_t *bad = json_loads("[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"computer_call\"}]", 0, NULL);
	buf_init(&out, REQUEST_MAX_PROMPT);
	assert_int_equal(response_messages(&r, bad, &out, &e), SL_EINVAL);
	assert_string_equal(e.param, "previous_response_id[1].type");
	buf_dispose(&out);
	buf_init(&out, 24); /* what does not fit is refused, not cut */
	assert_int_equal(response_messages(&r, NULL, &out, &e), SL_EINVAL);
	assert_string_equal(e.code, "string_above_max_length");
	buf_dispose(&out);
	json_decref(bad);
	response_request_dispose(&r);
}

static void every_allocation_fails(void **state)
{
	(void)state;
	sweep_allocations(try, IN "\"hi\",\"instructions\":\"s\"}", 0);
	sweep_allocations(try,
			  IN
			  "[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"reasoning\",\"summary\":[],\"content\":"
			  "[{\"type\":\"reasoning_text\",\"text\":\"hm\"}]},{\"role\":\"assistant\",\"content\":\"t\"},"
			  "" CALL ",{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"7\"}]}",
			  0);
	sweep_allocations(try,
			  "{\"model\":\"m\",\"prompt\":{\"id\":\"p\",\"variables\":{\"b\":{\"type\":\"input_text\","
			  "\"text\":\"2\"}}}}",
			  0);
	sweep_allocations(try, IN "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":7}]}",
			  SL_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(items_have_a_normal_form),
	    cmocka_unit_test(items_become_messages),
	    cmocka_unit_test(pins_go_along),
	    cmocka_unit_test(fields),
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(history_is_checked_too),
	    cmocka_unit_test(every_allocation_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
