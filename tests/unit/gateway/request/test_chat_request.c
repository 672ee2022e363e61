/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of chat requests: what is taken, what is refused and under which name.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/request/chat_request.h"

#define MSG "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

#define ONE(members) "\"model\":\"m\",\"messages\":[{" members "}]"

static const struct request_limits limits = {.messages = 4, .json_depth = 8};
static struct request_error error;

static int parse(const char *text, struct chat_request *r)
{
	return chat_request_parse(text, strlen(text), &limits, r, &error);
}

static int try(const char *body, struct request_error *e)
{
	struct chat_request r;
	int rc = chat_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		chat_request_dispose(&r);
	return rc;
}

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{\"messages\":[]}", "model", "missing_required_parameter"},
	    {"{\"model\":3}", "model", "invalid_type"},
	    {"{\"model\":\"\"}", "model", "invalid_value"},
	    {"{\"model\":\"m\"}", "messages", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":null}", "messages", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":{}}", "messages", "invalid_type"},
	    {"{\"model\":\"m\",\"messages\":[]}", "messages", "empty_array"},
	    {"{\"model\":\"m\",\"messages\":[1,2,3,4,5]}", "messages", "array_above_max_length"},
	    {"{\"model\":\"m\",\"messages\":[1]}", "messages[0]", "invalid_type"},
	    {"{\"model\":\"m\",\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"function\",\"content\":\"x\"}]}", "messages[0].name",
	     "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"function_call\":{\"name\":\"f\"}}]"
	     "}",
	     "messages[0].function_call", "invalid_value"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}]}",
	     "messages[0].function_call.arguments", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"pinned\":1}]}",
	     "messages[0].pinned", "invalid_type"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "messages[0].role",
	     "invalid_value"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}", "messages[0].content",
	     "missing_required_parameter"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages[0].content",
	     "invalid_type"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content",
	     "invalid_value"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", "messages[0].content",
	     "invalid_value"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
	     "\"type\":\"image_url\"}]}]}",
	     "messages[0].content[1].type", "unsupported_value"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
	     "messages[0].content[0].text", "invalid_type"},
	    {"{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}]}",
	     "messages[0].tool_calls[0].function", "missing_required_parameter"},
	    {"{" MSG ",\"temperature\":2.01}", "temperature", "invalid_value"},
	    {"{" MSG ",\"temperature\":-0.1}", "temperature", "invalid_value"},
	    {"{" MSG ",\"temperature\":\"1\"}", "temperature", "invalid_type"},
	    {"{" MSG ",\"top_p\":0}", "top_p", "invalid_value"},
	    {"{" MSG ",\"top_p\":1.5}", "top_p", "invalid_value"},
	    {"{" MSG ",\"top_k\":-2}", "top_k", "invalid_value"},
	    {"{" MSG ",\"min_p\":2}", "min_p", "invalid_value"},
	    {"{" MSG ",\"presence_penalty\":-3}", "presence_penalty", "invalid_value"},
	    {"{" MSG ",\"frequency_penalty\":3}", "frequency_penalty", "invalid_value"},
	    {"{" MSG ",\"max_tokens\":0}", "max_tokens", "invalid_value"},
	    {"{" MSG ",\"max_completion_tokens\":1.5}", "max_completion_tokens", "invalid_type"},
	    {"{" MSG ",\"seed\":1.5}", "seed", "invalid_type"},
	    {"{" MSG ",\"n\":1000000}", "n", "invalid_value"},
	    {"{" MSG ",\"stop\":7}", "stop", "invalid_type"},
	    {"{" MSG ",\"stop\":\"\"}", "stop", "invalid_value"},
	    {"{" MSG ",\"stop\":[\"a\",\"\"]}", "stop[1]", "invalid_value"},
	    {"{" MSG ",\"stop\":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7]}", "stop", "array_above_max_length"},
	    {"{" MSG ",\"stream\":1}", "stream", "invalid_type"},
	    {"{" MSG ",\"stream_options\":{}}", "stream_options", "invalid_value"},
	    {"{" MSG ",\"stream\":true,\"stream_options\":{\"include_usage\":1}}", "stream_options.include_usage",
	     "invalid_type"},
	    {"{" MSG ",\"tools\":[{}]}", "tools[0].type", "missing_required_parameter"},
	    {"{" MSG ",\"tool_choice\":\"required\"}", "tool_choice", "invalid_value"},
	    {"{" MSG ",\"functions\":[{}]}", "functions[0].name", "missing_required_parameter"},
	    {"{" MSG ",\"response_format\":{\"type\":\"xml\"}}", "response_format.type", "unsupported_value"},
	    {"{" MSG ",\"logprobs\":3}", "logprobs", "invalid_type"},
	    {"{" MSG ",\"top_logprobs\":3}", "top_logprobs", "invalid_value"},
	    {"{" MSG ",\"logit_bias\":{\"01\":2}}", "logit_bias", "invalid_value"},
	    {"{" MSG ",\"modalities\":[\"audio\"]}", "modalities", "unsupported_parameter"},
	    {"{" MSG ",\"reasoning_effort\":\"wild\"}", "reasoning_effort", "invalid_value"},
	    {"{" MSG ",\"best_of\":2,\"n\":3}", "best_of", "invalid_value"},
	    {"{" MSG ",\"service_tier\":\"best\"}", "service_tier", "invalid_value"},
	    {"{" MSG ",\"max_tokens\":5,\"min_tokens\":6}", "min_tokens", "invalid_value"},
	    {"{" MSG ",\"tools\":[{}],\"tool_choice\":\"auto\"}", "tools[0].type", "missing_required_parameter"},
	    {"{" MSG ",\"add_generation_prompt\":true,\"continue_final_message\":true}", "continue_final_message",
	     "invalid_value"},
	    {"{" ONE("\"role\":\"tool\",\"content\":\"x\"") "}", "messages[0].tool_call_id",
	     "missing_required_parameter"},
	    {"{" ONE("\"role\":\"user\",\"content\":\"x\",\"name\":7") "}", "messages[0].name", "invalid_type"},
	    {"{" ONE("\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"x\"}]") "}",
	     "messages[0].content[0].type", "unsupported_value"},
	    {"{" ONE("\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]") "}", "messages[0].tool_calls",
	     "invalid_value"},
	    {"{" ONE("\"role\":\"assistant\",\"content\":null") "}", "messages[0].content",
	     "missing_required_parameter"},
	    {"{" ONE("\"role\":\"assistant\",\"content\":null,\"refusal\":7") "}", "messages[0].refusal",
	     "invalid_type"},
	    {"{" ONE("\"role\":\"assistant\",\"content\":\"x\",\"function_call\":{\"name\":\"f\"}") "}",
	     "messages[0].function_call.arguments", "missing_required_parameter"},
	    {"{" ONE("\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\"}]") "}",
	     "messages[0].tool_calls[0].type", "unsupported_value"},
	    {"{" ONE("\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":{"
		     "}}}]") "}",
	     "messages[0].tool_calls[0].function.arguments", "invalid_type"},
	    {"{" ONE("\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\\u0000\",\"function\":{\"name\":\"f\","
		     "\"arguments\":\"\"}}]") "}",
	     "messages[0].tool_calls[0].id", "invalid_value"},
	    {"{" ONE("\"role\":\"user\",\"content\":\"x\",\"name\":\"\\u0000\"") "}", "messages[0].name",
	     "invalid_value"},
	    {"{" ONE("\"role\":\"assistant\",\"refusal\":\"a\\u0000\"") "}", "messages[0].refusal", "invalid_value"},
	    {"{" ONE("\"role\":\"user\",\"content\":[7]") "}", "messages[0].content[0]", "invalid_type"},
	    {"{" ONE("\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u0000\"}]") "}",
	     "messages[0].content[0].text", "invalid_value"},
	    {"{" ONE("\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":7}]") "}",
	     "messages[0].content[0].refusal", "invalid_type"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof cases[0]);
}

static void refuses_what_is_no_json_object(void **state)
{
	static const char *const bodies[] = {
	    "",
	    "{",
	    "[]",
	    "null",
	    "\"x\"",
	    "{} x",
	    "{\"a\":1,\"a\":2}",
	    "\xef\xbb\xbf{}",
	    "{\"a\":\"\xff\"}",
	    "{\"a\":\"\xed\xa0\x80\"}",
	    "{\"a\":\"\\ud800\"}",
	    "{\"a\":\"\\udc00x\"}",
	    "{\"a\":1e999}",
	    "{\"a\":NaN}",
	    "{\"a\":99999999999999999999}",
	    "{'a':1}",
	    "{\"a\":01}",
	    "{\"a\":[[[[[[[[1]]]]]]]]}",
	    "{\"a\\u0000b\":1}",
	};
	(void)state;
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
		struct chat_request r;
		if (parse(bodies[i], &r) != SL_EINVAL)
			fail_msg("taken: %s", bodies[i]);
		assert_true(error.message[0] != '\0');
	}
	/* Deep nesting is refused before it is parsed. */
	enum { DEEP = 1 << 18 };
	char *deep = malloc(DEEP + 1);
	memset(deep, '[', DEEP);
	deep[DEEP] = '\0';
	struct chat_request r;
	assert_int_equal(parse(deep, &r), SL_EINVAL);
	assert_non_null(strstr(error.message, "nested"));
	free(deep);
}

static void takes_all_fields(void **state)
{
	struct chat_request r;
	(void)state;
	assert_int_equal(
	    parse("{\"model\":\"m\",\"messages\":["
		  "{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"name\":\"x\",\"content\":"
		  "[{\"type\":\"text\",\"text\":\"a\\\"\"},{\"type\":\"text\",\"text\":\"\\u00e9\\ud83d\\ude00\"}]},"
		  "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[]}],"
		  "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0,\"top_p\":0.5,"
		  "\"top_k\":40,\"min_p\":0.1,\"seed\":-9223372036854775808,\"stop\":[\"a\",\"bc\"],"
		  "\"max_tokens\":5,\"max_completion_tokens\":7,\"presence_penalty\":-2,\"frequency_penalty\":2,"
		  "\"n\":1,\"user\":\"u\",\"metadata\":{},\"store\":false,\"service_tier\":\"auto\","
		  "\"prompt_cache_key\":\"k\",\"safety_identifier\":\"i\",\"parallel_tool_calls\":true,"
		  "\"unknown\":{\"deep\":[1]},\"tools\":[],\"tool_choice\":\"none\",\"logit_bias\":{},"
		  "\"response_format\":{\"type\":\"text\"},\"logprobs\":false,\"modalities\":[\"text\"]}",
		  &r),
	    0);
	assert_string_equal(r.c.model, "m");
	assert_true(r.c.stream && r.c.include_usage && r.c.has_seed && r.c.has_max_tokens);
	assert_int_equal(r.c.max_tokens, 7);
	assert_true(r.c.submit.seed == (uint64_t)INT64_MIN);
	assert_true(r.c.submit.temperature == 0 && r.c.submit.top_p == 0.5f && r.c.submit.min_p == 0.1f);
	assert_int_equal(r.c.submit.top_k, 40);
	assert_true(r.c.submit.presence_penalty == -2 && r.c.submit.frequency_penalty == 2);
	assert_int_equal(r.c.submit.n_stops, 2);
	assert_int_equal(r.c.submit.stops[1].n, 2);
	static const char want[] =
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
	    "\"a\\\"\u00e9\U0001F600\",\"name\":\"x\"},{\"role\":\"assistant\",\"content\":\"\"}]}";
	assert_int_equal(r.c.submit.prompt.n, sizeof want - 1);
	assert_memory_equal(r.c.submit.prompt.at, want, sizeof want - 1);
	chat_request_dispose(&r);
}

static void assert_prompt(const char *body, const char *want)
{
	struct chat_request r;
	if (parse(body, &r) != 0)
		fail_msg("%s: %s", body, error.message);
	const struct proto_str *got = &r.c.submit.prompt;
	if (got->n != strlen(want) || memcmp(got->at, want, got->n) != 0)
		fail_msg("%s: %.*s", body, (int)got->n, got->at);
	chat_request_dispose(&r);
}

#define CALL "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}"

/* Whatever a template may use comes through. */
static void history_goes_to_the_template(void **state)
{
	(void)state;
	assert_prompt(
	    "{\"model\":\"m\",\"messages\":["
	    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL "," CALL "],\"reasoning_content\":\"hm\"},"
	    "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":[{\"type\":\"text\",\"text\":\"7\"}],\"other\":1},"
	    "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"refusal\",\"refusal\":"
	    "\"b\"}]},"
	    "{\"role\":\"assistant\",\"refusal\":\"no\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
	    "\"f\"}}],\"tool_choice\":\"none\"}",
	    "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"hm\",\"tool_calls\":[" CALL
	    "," CALL "]},"
	    "{\"role\":\"tool\",\"content\":\"7\",\"tool_call_id\":\"a\"},{\"role\":\"assistant\",\"content\":\"ab\"},"
	    "{\"role\":\"assistant\",\"content\":\"no\"}]}");
	assert_prompt("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"pinned\":true},"
		      "{\"role\":\"user\",\"content\":\"b\",\"pinned\":false}]}",
		      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"pinned\":true},{\"role\":\"user\","
		      "\"content\":\"b\"}]}");
	assert_prompt("{" MSG ",\"documents\":[{\"a\":\"b\"}],\"chat_template_kwargs\":{\"enable_thinking\":false},"
		      "\"add_generation_prompt\":false,\"continue_final_message\":true}",
		      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"documents\":[{\"a\":\"b\"}],"
		      "\"add_generation_prompt\":false,\"continue_final_message\":true,"
		      "\"chat_template_kwargs\":{\"enable_thinking\":false}}");
	/* The deprecated form. */
	assert_prompt(
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
	    "{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
	    "{\"role\":\"function\",\"name\":\"f\",\"content\":\"7\"}]}",
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
	    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\","
	    "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
	    "{\"role\":\"tool\",\"content\":\"7\",\"name\":\"f\",\"tool_call_id\":\"call_1\"}]}");
}

static void sampling(void **state)
{
	struct chat_request r;
	(void)state;
	assert_int_equal(
	    parse("{" MSG
		  ",\"n\":3,\"best_of\":4,\"logprobs\":true,\"top_logprobs\":20,\"min_tokens\":2,\"ignore_eos\":true,"
		  "\"typical_p\":0.5,\"repetition_penalty\":1.5,\"stop_token_ids\":[9],\"logit_bias\":{\"3\":-1.5},"
		  "\"user\":\"u\",\"prompt_cache_key\":\"k\",\"top_p\":1e-60}",
		  &r),
	    0);
	const struct proto_submit *s = &r.c.submit;
	assert_true(s->n == 3 && s->best_of == 4 && s->n_top_logprobs == 20 && s->min_tokens == 2);
	assert_int_equal(s->flags, PROTO_SUBMIT_WANT_LOGPROBS | PROTO_SUBMIT_IGNORE_EOS);
	assert_true(s->typical_p == 0.5f && s->repetition_penalty == 1.5f && s->n_stop_ids == 1 && s->stop_ids[0] == 9);
	assert_true(s->n_logit_bias == 1 && s->logit_bias[0].id == 3 && s->logit_bias[0].v == -1.5f);
	assert_true(s->top_p > 0); /* as a float too */
	assert_string_equal(r.c.user, "u");
	assert_string_equal(r.c.cache_key, "k");
	chat_request_dispose(&r);
}

static void every_allocation_fails(void **state)
{
	(void)state;
	sweep_allocations(
	    try,
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
	    "{\"role\":\"assistant\",\"tool_calls\":[" CALL "]}],\"logit_bias\":{\"1\":2},\"documents\":[{}]}",
	    0);
	sweep_allocations(try, "{" MSG ",\"logit_bias\":{\"1\":2},\"top_logprobs\":3}", SL_EINVAL);
}

static void null_counts_as_absent(void **state)
{
	static const char *const names[] = {
	    "stream",   "stream_options", "temperature", "top_p",      "top_k",
	    "min_p",    "seed",           "stop",        "max_tokens", "max_completion_tokens",
	    "n",        "tools",          "tool_choice", "functions",  "response_format",
	    "logprobs", "logit_bias",     "audio"};
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char body[256];
		struct chat_request r;
		snprintf(body, sizeof body, "{" MSG ",\"%s\":null}", names[i]);
		if (parse(body, &r) != 0)
			fail_msg("%s: %s", names[i], error.message);
		assert_true(r.c.submit.temperature == 1 && r.c.submit.top_p == 1 && !r.c.stream && !r.c.has_seed &&
			    !r.c.has_max_tokens);
		chat_request_dispose(&r);
	}
}

/* A long quotation in a message is cut between characters. */
static void cuts_messages_at_characters(void **state)
{
	(void)state;
	for (int shift = 0; shift < 4; shift++) {
		char body[4096];
		struct chat_request r;
		size_t n = (size_t)snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":[{\"role\":\"%.*s", shift,
					    "abcd");
		for (int i = 0; i < 100; i++)
			n += (size_t)snprintf(body + n, sizeof body - n, "\U0001F600");
		snprintf(body + n, sizeof body - n, "\"}]}");
		assert_int_equal(parse(body, &r), SL_EINVAL);
		assert_true(utf8_valid(error.message, strlen(error.message)));
	}
}

/* An escape that is none, before a character of two bytes: jansson quotes its first byte. */
static void messages_quote_no_half_character(void **state)
{
	(void)state;
	struct chat_request r;
	assert_int_equal(parse("{\"model\":\"\\\xd4\xa3\"}", &r), SL_EINVAL);
	assert_true(utf8_valid(error.message, strlen(error.message)));
	assert_non_null(strstr(error.message, "\\?"));
}

/* Users' messages only, whole ones; counted. */
static void cleanses_what_users_wrote(void **state)
{
	(void)state;
	static const char body[] =
	    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"a  b\"},"
	    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c \"},{\"type\":\"text\",\"text\":\" d\"}]},"
	    "{\"role\":\"assistant\",\"content\":\"e  f\"},{\"role\":\"user\",\"content\":\"**g**\"}]}";
	static const char *const wants[] = {
	    "c  d\"},{\"role\":\"assistant\",\"content\":\"e  f\"},{\"role\":\"user\",\"content\":\"**g**\"",
	    "c d\"},{\"role\":\"assistant\",\"content\":\"e  f\"},{\"role\":\"user\",\"content\":\"**g**\"",
	    "c d\"},{\"role\":\"assistant\",\"content\":\"e  f\"},{\"role\":\"user\",\"content\":\"g\""};
	static const uint64_t saved[] = {0, 1, 5};
	for (int level = CLEANSE_OFF; level <= CLEANSE_FULL; level++) {
		struct request_limits l = limits;
		struct chat_request r;
		l.cleanse = (enum cleanse_level)level;
		assert_int_equal(chat_request_parse(body, strlen(body), &l, &r, &error), 0);
		const char *prompt = buf_cstr(&r.prompt);
		assert_non_null(strstr(prompt, wants[level]));
		assert_non_null(strstr(prompt, "a  b"));
		assert_int_equal(cleanse_saved(&r.c.cleansed), saved[level]);
		assert_int_equal(r.c.cleansed.n_changed, level);
		chat_request_dispose(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(refuses_what_is_no_json_object),
	    cmocka_unit_test(takes_all_fields),
	    cmocka_unit_test(history_goes_to_the_template),
	    cmocka_unit_test(sampling),
	    cmocka_unit_test(every_allocation_fails),
	    cmocka_unit_test(null_counts_as_absent),
	    cmocka_unit_test(cuts_messages_at_characters),
	    cmocka_unit_test(messages_quote_no_half_character),
	    cmocka_unit_test(cleanses_what_users_wrote),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
