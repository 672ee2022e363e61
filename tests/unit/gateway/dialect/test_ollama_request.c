/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of Ollama's API: what the engine gets, and what is refused under which name.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/dialect/ollama_request.h"

#define USER "{\"role\":\"user\",\"content\":\"hi\"}"
#define CHAT "\"model\":\"m\",\"messages\":[" USER "]"
#define ONE(message) "{\"model\":\"m\",\"messages\":[" message "]}"
#define CALLS(calls) ONE("{\"role\":\"assistant\",\"tool_calls\":" calls "}")
#define PROMPT "\"model\":\"m\",\"prompt\":\"hi\""

static const struct request_limits limits = {.messages = 8, .json_depth = 16};

static int try_chat(const char *body, struct request_error *e)
{
	struct ollama_request r;
	int rc = ollama_chat_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		ollama_request_dispose(&r);
	return rc;
}

static int try_generate(const char *body, struct request_error *e)
{
	struct ollama_request r;
	int rc = ollama_generate_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		ollama_request_dispose(&r);
	return rc;
}

static int try_name(const char *body, struct request_error *e)
{
	struct ollama_name r;
	return ollama_name_parse(body, strlen(body), &limits, &r, e);
}

static void chat(const char *body, struct ollama_request *r)
{
	struct request_error e;
	if (ollama_chat_parse(body, strlen(body), &limits, r, &e) != 0)
		fail_msg("%s: %s", body, e.message);
}

static void generate(const char *body, struct ollama_request *r)
{
	struct request_error e;
	if (ollama_generate_parse(body, strlen(body), &limits, r, &e) != 0)
		fail_msg("%s: %s", body, e.message);
}

static void assert_prompt(const char *messages, const char *want)
{
	char body[2048];
	struct ollama_request r;
	snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":[%s]}", messages);
	chat(body, &r);
	if (strcmp(buf_cstr(&r.chat.prompt), want) != 0)
		fail_msg("%s\ngives %s\ninstead of %s", body, buf_cstr(&r.chat.prompt), want);
	ollama_request_dispose(&r);
}

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{}", "model", "missing_required_parameter"},
	    {"{\"model\":1}", "model", "invalid_type"},
	    {"{\"model\":\"m\",\"messages\":1}", "messages", "invalid_type"},
	    {ONE("1,2,3,4,5,6,7,8,9"), "messages", "array_above_max_length"},
	    {ONE("1"), "messages[0]", "invalid_type"},
	    {ONE("{}"), "messages[0].role", "missing_required_parameter"},
	    {ONE("{\"role\":1}"), "messages[0].role", "invalid_type"},
	    {ONE("{\"role\":\"king\"}"), "messages[0].role", "invalid_value"},
	    {ONE("{\"role\":\"user\",\"content\":[]}"), "messages[0].content", "invalid_type"},
	    {ONE("{\"role\":\"user\",\"content\":\"\\u0000\"}"), "messages[0].content", "invalid_value"},
	    {ONE("{\"role\":\"user\",\"images\":[\"a\"]}"), "messages[0].images", "unsupported_parameter"},
	    {ONE("{\"role\":\"assistant\",\"thinking\":1}"), "messages[0].thinking", "invalid_type"},
	    {ONE("{\"role\":\"user\",\"tool_calls\":[{}]}"), "messages[0].tool_calls", "invalid_value"},
	    {CALLS("1"), "messages[0].tool_calls", "invalid_type"},
	    {CALLS("[{}]"), "messages[0].tool_calls[0].function", "missing_required_parameter"},
	    {CALLS("[{\"function\":1}]"), "messages[0].tool_calls[0].function", "invalid_type"},
	    {CALLS("[{\"function\":{}}]"), "messages[0].tool_calls[0].function.name", "missing_required_parameter"},
	    {CALLS("[{\"function\":{\"name\":1}}]"), "messages[0].tool_calls[0].function.name", "invalid_type"},
	    {CALLS("[{\"function\":{\"name\":\"f\"}}]"), "messages[0].tool_calls[0].function.arguments",
	     "missing_required_parameter"},
	    {CALLS("[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]"),
	     "messages[0].tool_calls[0].function.arguments", "invalid_type"},
	    {CALLS("[{\"id\":1,\"function\":{\"name\":\"f\",\"arguments\":{}}}]"), "messages[0].tool_calls[0].id",
	     "invalid_type"},
	    {ONE("{\"role\":\"tool\",\"content\":\"x\"}"), "messages[0].tool_name", "invalid_value"},
	    {ONE("{\"role\":\"tool\",\"tool_name\":1}"), "messages[0].tool_name", "invalid_type"},
	    {ONE("{\"role\":\"tool\",\"tool_call_id\":1}"), "messages[0].tool_call_id", "invalid_type"},
	    {"{" CHAT ",\"stream\":1}", "stream", "invalid_type"},
	    {"{" CHAT ",\"options\":1}", "options", "invalid_type"},
	    {"{" CHAT ",\"options\":{\"temperature\":3}}", "options.temperature", "invalid_value"},
	    {"{" CHAT ",\"options\":{\"num_predict\":-3}}", "options.num_predict", "invalid_value"},
	    {"{" CHAT ",\"options\":{\"num_predict\":0}}", "options.num_predict", "invalid_value"},
	    {"{" CHAT ",\"options\":{\"num_ctx\":\"x\"}}", "options.num_ctx", "invalid_type"},
	    {"{" CHAT ",\"options\":{\"seed\":1.5}}", "options.seed", "invalid_type"},
	    {"{" CHAT ",\"options\":{\"stop\":[\"\"]}}", "options.stop[0]", "invalid_value"},
	    {"{" CHAT ",\"options\":{\"stop\":\"\"}}", "options.stop", "invalid_value"},
	    {"{" CHAT ",\"options\":{\"mirostat\":1}}", "options.mirostat", "unsupported_parameter"},
	    {"{" CHAT ",\"options\":{\"repeat_last_n\":64}}", "options.repeat_last_n", "unsupported_parameter"},
	    {"{" CHAT ",\"options\":{\"repeat_penalty\":0}}", "options.repeat_penalty", "invalid_value"},
	    {"{" CHAT ",\"think\":\"x\"}", "think", "invalid_value"},
	    {"{" CHAT ",\"format\":\"yaml\"}", "format", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":[]}", "keep_alive", "invalid_type"},
	    {"{" CHAT ",\"keep_alive\":\"\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"soon\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"5 m\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"1h30\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"0s30\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"5d\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"NaN\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"infs\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"1e9s\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"00000000000000000000000000000000000000000000000000000000000000001s\"}",
	     "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\".\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"--5m\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"5m\\u0000\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"keep_alive\":\"0x10s\"}", "keep_alive", "invalid_value"},
	    {"{" CHAT ",\"top_logprobs\":2}", "top_logprobs", "invalid_value"},
	    {"{" CHAT ",\"tools\":[{\"type\":\"function\"}]}", "tools[0].function", "missing_required_parameter"},
	};
	static const struct refusal prompts[] = {
	    {"{\"model\":\"m\",\"prompt\":1}", "prompt", "invalid_type"},
	    {"{\"model\":\"m\",\"prompt\":\"\\u0000\"}", "prompt", "invalid_value"},
	    {"{" PROMPT ",\"system\":\"\\u0000\"}", "system", "invalid_value"},
	    {"{" PROMPT ",\"images\":[\"a\"]}", "images", "unsupported_parameter"},
	    {"{" PROMPT ",\"context\":[1]}", "context", "unsupported_parameter"},
	    {"{" PROMPT ",\"suffix\":\"x\"}", "suffix", "unsupported_parameter"},
	    {"{" PROMPT ",\"template\":\"x\"}", "template", "unsupported_parameter"},
	    {"{" PROMPT ",\"raw\":1}", "raw", "invalid_type"},
	    {"{" PROMPT ",\"raw\":true,\"system\":\"x\"}", "system", "invalid_value"},
	    {"{" PROMPT ",\"raw\":true,\"think\":true}", "think", "invalid_value"},
	};
	static const struct refusal names[] = {
	    {"{}", "model", "missing_required_parameter"},
	    {"{\"name\":1}", "name", "invalid_type"},
	    {"{\"model\":\"\"}", "model", "invalid_value"},
	    {"{\"model\":\"a\\u0000\"}", "model", "invalid_value"},
	};
	(void)state;
	assert_refused(try_chat, cases, sizeof cases / sizeof *cases);
	assert_refused(try_generate, prompts, sizeof prompts / sizeof *prompts);
	assert_refused(try_name, names, sizeof names / sizeof *names);
}

static void messages_become_the_engines(void **state)
{
	(void)state;
	assert_prompt(
	    "{\"role\":\"system\",\"content\":\"s\"}," USER "," USER ",{\"role\":\"assistant\",\"content\":\"a\","
	    "\"thinking\":\"t\"},{\"role\":\"user\"}",
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," USER "," USER ",{\"role\":\"assistant\","
	    "\"content\":\"a\",\"reasoning_content\":\"t\"},{\"role\":\"user\",\"content\":\"\"}]}");
}

/* Results find their calls by name and order, or by the id that newer clients send. */
static void results_find_their_calls(void **state)
{
	(void)state;
	assert_prompt(
	    "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},{"
	    "\"function\":{"
	    "\"name\":\"g\",\"arguments\":{}}},{\"id\":\"own\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
	    "{\"role\":\"tool\",\"tool_name\":\"g\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":\"2\"},"
	    "{\"role\":\"tool\",\"name\":\"f\",\"content\":\"3\"},{\"role\":\"tool\",\"tool_call_id\":\"x\","
	    "\"content\":\"4\"}",
	    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c00000000\",\"type\":"
	    "\"function\","
	    "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}},{\"id\":\"c00000001\",\"type\":"
	    "\"function\","
	    "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}},{\"id\":\"own\",\"type\":\"function\",\"function\":{"
	    "\"name\":"
	    "\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"1\",\"name\":\"g\",\"tool_call_id\":"
	    "\"c00000001\"},"
	    "{\"role\":\"tool\",\"content\":\"2\",\"name\":\"f\",\"tool_call_id\":\"c00000000\"},{\"role\":\"tool\","
	    "\"content\":"
	    "\"3\",\"name\":\"f\",\"tool_call_id\":\"own\"},{\"role\":\"tool\",\"content\":\"4\",\"tool_call_id\":"
	    "\"x\"}]}");
}

static void fields_are_taken(void **state)
{
	struct ollama_request r;
	(void)state;
	chat(
	    "{" CHAT
	    ",\"options\":{\"num_predict\":7,\"temperature\":0.5,\"top_k\":3,\"top_p\":0.25,\"min_p\":0.125,\"seed\":9,"
	    "\"stop\":\"x\",\"repeat_penalty\":1.5,\"presence_penalty\":1,\"frequency_penalty\":-1,\"num_ctx\":8,"
	    "\"new\":1},"
	    "\"keep_alive\":-1,\"logprobs\":true,\"top_logprobs\":2,\"think\":\"low\",\"format\":\"json\"}",
	    &r);
	const struct request_common *c = &r.chat.c;
	const struct proto_submit *s = &c->submit;
	assert_true(c->stream && c->has_max_tokens && c->max_tokens == 7 && c->has_seed && s->seed == 9);
	assert_true(s->temperature == 0.5f && s->top_k == 3 && s->top_p == 0.25f && s->min_p == 0.125f);
	assert_true(s->repetition_penalty == 1.5f && s->presence_penalty == 1 && s->frequency_penalty == -1);
	assert_int_equal(s->n_stops, 1);
	assert_true((s->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0 && s->n_top_logprobs == 2);
	assert_int_equal(c->constraint.kind, PROTO_CONSTRAINT_JSON_OBJECT);
	assert_string_equal(c->reasoning.effort, "low");
	assert_string_equal(c->ignored.text, "options.num_ctx, options.new");
	assert_false(r.loads || r.raw);
	ollama_request_dispose(&r);
	chat("{" CHAT ",\"stream\":false,\"options\":{\"num_predict\":-1}}", &r);
	assert_false(r.chat.c.stream || r.chat.c.has_max_tokens);
	ollama_request_dispose(&r);
}

static void prompts(void **state)
{
	struct ollama_request r;
	(void)state;
	generate("{" PROMPT ",\"system\":\"s\",\"think\":false}", &r);
	assert_string_equal(
	    buf_cstr(&r.chat.prompt),
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"hi\"}],"
	    "\"chat_template_kwargs\":{\"enable_thinking\":false,\"thinking\":false}}");
	assert_int_equal(r.chat.c.submit.prompt_kind, PROTO_PROMPT_CHAT);
	ollama_request_dispose(&r);
	generate("{" PROMPT ",\"raw\":true,\"context\":[],\"template\":\"\",\"suffix\":\"\",\"images\":[]}", &r);
	assert_true(r.raw);
	assert_int_equal(r.chat.c.submit.prompt_kind, PROTO_PROMPT_TEXT);
	assert_memory_equal(r.chat.c.submit.prompt.at, "hi", 2);
	assert_int_equal(r.chat.c.submit.prompt.n, 2);
	ollama_request_dispose(&r);
}

static void asks_for_a_model_to_be_there(void **state)
{
	static const struct {
		const char *keep_alive;
		int64_t ms;
	} cases[] = {{"0", 0},
		     {"-0.0", 0},
		     {"\"0\"", 0},
		     {"\"0s\"", 0},
		     {"\"0m\"", 0},
		     {"\"5m\"", 300000},
		     {"300", 300000},
		     {"0.25", 250},
		     {"1e300", OLLAMA_KEEP_EVER},
		     {"-1", OLLAMA_KEEP_EVER},
		     {"\"-1\"", OLLAMA_KEEP_EVER},
		     {"\"-1m\"", OLLAMA_KEEP_EVER},
		     {"\"05m\"", 300000},
		     {"\"1h30m\"", 5400000},
		     {"\"+1.5h\"", 5400000},
		     {"\"250ms\"", 250},
		     {"\".5s\"", 500},
		     {"\"100us\"", 1},
		     {"\"100\u00b5s\"", 1},
		     {"\"60\"", 60000},
		     {"\"999999999999h\"", OLLAMA_KEEP_EVER},
		     {"9223372036854775807", OLLAMA_KEEP_EVER},
		     {"-1e300", OLLAMA_KEEP_EVER},
		     {"\"9999999999999999999999999999999999999999999999999999999999h\"", OLLAMA_KEEP_EVER},
		     {"null", OLLAMA_KEEP_UNSAID}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char body[128];
		struct ollama_request r;
		snprintf(body, sizeof body, "{\"model\":\"m\",\"keep_alive\":%s}", cases[i].keep_alive);
		chat(body, &r);
		assert_true(r.loads);
		assert_int_equal(r.keep_ms, cases[i].ms);
		ollama_request_dispose(&r);
		generate(body, &r);
		assert_true(r.loads);
		assert_int_equal(r.keep_ms, cases[i].ms);
		ollama_request_dispose(&r);
	}
}

static void names_a_model(void **state)
{
	struct ollama_name r;
	struct request_error e;
	(void)state;
	for (int i = 0; i < 2; i++) {
		const char *body = i == 0 ? "{\"model\":\"a/b\"}" : "{\"name\":\"a/b\",\"verbose\":true}";
		assert_int_equal(ollama_name_parse(body, strlen(body), &limits, &r, &e), 0);
		assert_string_equal(r.model, "a/b");
	}
}

static void survives_want_of_memory(void **state)
{
	(void)state;
	sweep_allocations(
	    try_chat,
	    "{\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"messages\":[" USER
	    ",{\"role\":\"assistant\",\"thinking\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{"
	    "\"a\":1}}}]},{\"role\":\"tool\",\"content\":\"1\"}],\"format\":{\"type\":\"object\"}}",
	    0);
	sweep_allocations(try_generate, "{" PROMPT ",\"system\":\"s\"}", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(messages_become_the_engines),
	    cmocka_unit_test(results_find_their_calls),
	    cmocka_unit_test(fields_are_taken),
	    cmocka_unit_test(prompts),
	    cmocka_unit_test(asks_for_a_model_to_be_there),
	    cmocka_unit_test(names_a_model),
	    cmocka_unit_test(survives_want_of_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
