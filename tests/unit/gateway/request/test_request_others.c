/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of other servers: other names of a field, what is unknown, beam search, tokens that may and may not be chosen.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/request/chat_request.h"
#include "gateway/request/completion_request.h"
#include "gateway/request/response_request.h"

#define MSG "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct request_limits limits = {.messages = 4, .json_depth = 8, .prompts = 4};
static struct chat_request chat;

static int try(const char *body, struct request_error *e)
{
	struct chat_request r;
	int rc = chat_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		chat_request_dispose(&r);
	return rc;
}

/* Into `chat`, which the caller disposes of. */
static const struct request_common *take(const char *members)
{
	static char body[2048];
	struct request_error e;
	snprintf(body, sizeof body, "{" MSG "%s%s}", members[0] ? "," : "", members);
	if (chat_request_parse(body, strlen(body), &limits, &chat, &e) != 0)
		fail_msg("%s: %s", body, e.message);
	return &chat.c;
}

static void let_go(void) { chat_request_dispose(&chat); }

static void other_names_are_the_field(void **state)
{
	(void)state;
	static const char *const names[] = {"max_tokens", "max_new_tokens", "n_predict", "num_predict",
					    "max_output_tokens"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char members[64];
		snprintf(members, sizeof members, "\"%s\":7", names[i]);
		const struct request_common *c = take(members);
		assert_true(c->has_max_tokens && c->max_tokens == 7);
		let_go();
	}
	const struct request_common *c = take("\"n_predict\":-1");
	assert_false(c->has_max_tokens);
	let_go();
	c = take(
	    "\"repeat_penalty\":1.5,\"typical\":0.5,\"min_new_tokens\":3,\"no_stop_trim\":true,\"do_sample\":false");
	assert_true(c->submit.repetition_penalty == 1.5f && c->submit.typical_p == 0.5f && c->submit.min_tokens == 3);
	assert_int_equal(c->submit.flags, PROTO_SUBMIT_INCLUDE_STOP);
	assert_true(c->submit.temperature == 0);
	let_go();
	c = take("\"do_sample\":false,\"temperature\":0.5");
	assert_true(c->submit.temperature == 0.5f);
	let_go();
	/* Twice the same is fine. */
	c = take("\"max_tokens\":7,\"max_new_tokens\":7");
	assert_int_equal(c->max_tokens, 7);
	let_go();
	struct completion_request r;
	struct request_error e;
	static const char tokens[] = "{\"model\":\"m\",\"prompt_token_ids\":[1,2],\"max_completion_tokens\":3}";
	assert_int_equal(completion_request_parse(tokens, sizeof tokens - 1, &limits, &r, &e), 0);
	assert_true(r.n_prompts == 1 && r.prompts[0].kind == PROTO_PROMPT_TOKENS && r.prompts[0].text.n == 8);
	assert_int_equal(r.c.max_tokens, 3);
	completion_request_dispose(&r);
	struct response_request response;
	static const char input[] = "{\"model\":\"m\",\"input\":\"x\",\"max_tokens\":5}";
	assert_int_equal(response_request_parse(input, sizeof input - 1, &limits, &response, &e), 0);
	assert_int_equal(response.c.max_tokens, 5);
	response_request_dispose(&response);
}

static void unknown_fields_are_listed(void **state)
{
	(void)state;
	const struct request_common *c = take("\"foo\":1,\"b a\\r\\nr\":2,\"null\":null,\"stream\":true,"
					      "\"stream_options\":{\"x\":1},\"\xc3\xa4\":0");
	assert_int_equal(c->ignored.n, 4);
	assert_string_equal(c->ignored.text, "foo, b_a__r, stream_options.x, __");
	let_go();
	char many[2000] = "\"long12345678901234567890123456789012345678901234567890123456789012345678901234567890\":1";
	for (int i = 0; i < 40; i++)
		snprintf(many + strlen(many), sizeof many - strlen(many), ",\"f%d\":1", i);
	c = take(many);
	assert_int_equal(c->ignored.n, 41);
	assert_int_equal(c->ignored.n_shown, 16);
	assert_int_equal(strcspn(c->ignored.text, ","), 64);
	assert_true(strlen(c->ignored.text) < sizeof c->ignored.text);
	let_go();
	c = take("\"x\":1,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"foo\":1,\"strict\":true,"
		 "\"no\":null}},"
		 "{\"type\":\"function\",\"cache\":{},\"function\":{\"name\":\"g\",\"description\":\"\",\"parameters\":"
		 "{\"y\":1}}}]");
	assert_string_equal(c->ignored.text, "x, tools[0].function.foo, tools[1].cache");
	let_go();
	c = take("\"functions\":[{\"name\":\"f\",\"type\":\"function\"}]");
	assert_string_equal(c->ignored.text, "functions[0].type");
	let_go();
	struct response_request response;
	struct request_error e;
	static const char flat[] =
	    "{\"model\":\"m\",\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"function\":{}}]}";
	assert_int_equal(response_request_parse(flat, sizeof flat - 1, &limits, &response, &e), 0);
	assert_string_equal(response.c.ignored.text, "tools[0].function");
	response_request_dispose(&response);
	assert_int_equal(take("")->ignored.n, 0);
	let_go();
}

static void beams(void **state)
{
	(void)state;
	const struct request_common *c = take("\"use_beam_search\":true,\"n\":2,\"best_of\":4,\"length_penalty\":0.5");
	assert_true(c->submit.beam_width == 4 && c->submit.n == 2 && c->submit.best_of == 2);
	assert_true(c->submit.length_penalty == 0.5f && c->submit.temperature == 0);
	let_go();
	c = take("\"num_beams\":3,\"stream\":true");
	assert_true(c->submit.beam_width == 3 && c->submit.n == 1);
	let_go();
	c = take("\"num_beams\":1,\"temperature\":0.5");
	assert_true(c->submit.beam_width == 0 && c->submit.temperature == 0.5f);
	let_go();
}

static void tokens_that_may_and_may_not_be_chosen(void **state)
{
	(void)state;
	const struct request_common *c =
	    take("\"allowed_token_ids\":[9,5],\"logit_bias\":{\"5\":2,\"7\":1},\"bad_words\":[\"no\",\"never\"]");
	assert_int_equal(c->submit.flags, PROTO_SUBMIT_ONLY_BIASED);
	assert_int_equal(c->submit.n_logit_bias, 2);
	assert_true(c->submit.logit_bias[0].id == 9 && c->submit.logit_bias[0].v == 0);
	assert_true(c->submit.logit_bias[1].id == 5 && c->submit.logit_bias[1].v == 2);
	assert_true(c->submit.n_bad_words == 2 && c->submit.bad_words[1].n == 5);
	let_go();
	c = take("\"allowed_token_ids\":[],\"bad_words\":[]");
	assert_true(c->submit.flags == 0 && c->submit.n_logit_bias == 0 && c->submit.n_bad_words == 0);
	let_go();
}

static void salts_and_places(void **state)
{
	(void)state;
	uint64_t a = take("\"cache_salt\":\"a\"")->submit.cache_salt;
	let_go();
	uint64_t b = take("\"extra_key\":\"b\"")->submit.cache_salt;
	let_go();
	assert_true(a != 0 && b != 0 && a != b);
	assert_int_equal(take("\"cache_salt\":\"a\"")->submit.cache_salt == a, 1);
	let_go();
	static const struct {
		const char *members;
		uint8_t behind;
	} cases[] = {{"", 0},
		     {"\"priority\":-5", 0},
		     {"\"priority\":2", 2},
		     {"\"priority\":1000000", 7},
		     {"\"service_tier\":\"flex\"", 1},
		     {"\"service_tier\":\"priority\"", 0}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(take(cases[i].members)->submit.priority, cases[i].behind);
		let_go();
	}
}

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{" MSG ",\"max_tokens\":7,\"n_predict\":8}", "n_predict", "invalid_value"},
	    {"{" MSG ",\"n_predict\":0}", "n_predict", "invalid_value"},
	    {"{" MSG ",\"max_new_tokens\":2,\"min_new_tokens\":3}", "min_new_tokens", "invalid_value"},
	    {"{" MSG ",\"use_beam_search\":false,\"num_beams\":2}", "num_beams", "invalid_value"},
	    {"{" MSG ",\"num_beams\":2,\"n\":3}", "num_beams", "invalid_value"},
	    {"{" MSG ",\"num_beams\":2,\"temperature\":1}", "temperature", "invalid_value"},
	    {"{" MSG ",\"num_beams\":2,\"repeat_penalty\":1.1}", "repeat_penalty", "invalid_value"},
	    {"{" MSG ",\"num_beams\":2,\"stop\":\"x\"}", "stop", "invalid_value"},
	    {"{" MSG ",\"num_beams\":2,\"prompt_logprobs\":1}", "prompt_logprobs", "invalid_value"},
	    {"{" MSG ",\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs", "invalid_value"},
	    {"{" MSG ",\"allowed_token_ids\":[\"5\"]}", "allowed_token_ids[0]", "invalid_type"},
	    {"{" MSG ",\"allowed_token_ids\":[-1]}", "allowed_token_ids[0]", "invalid_value"},
	    {"{" MSG ",\"bad_words\":[\"a\",\"\"]}", "bad_words[1]", "invalid_value"},
	    {"{" MSG ",\"bad_words\":[1]}", "bad_words[0]", "invalid_type"},
	    {"{" MSG ",\"cache_salt\":\"\"}", "cache_salt", "invalid_value"},
	    {"{" MSG ",\"options\":{\"num_ctx\":1}}", "options", "unsupported_parameter"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof cases[0]);
	char body[16 << 10] = "{" MSG ",\"allowed_token_ids\":[0";
	for (int i = 0; i < PROTO_MAX_LOGIT_BIAS; i++)
		strcat(body, ",1");
	strcat(body, "]}");
	const struct refusal many = {body, "allowed_token_ids", "array_above_max_length"};
	assert_refused(try, &many, 1);
	struct request_error e;
	assert_int_equal(try("{" MSG ",\"lora_path\":\"x\"}", &e), SL_EINVAL);
	assert_non_null(
	    strstr(e.message, "'lora_path' is not supported by this version. An adapter is a model: MODEL:NAME."));
}

static void survives_without_memory(void **state)
{
	(void)state;
	sweep_allocations(try, "{" MSG ",\"allowed_token_ids\":[1,2],\"logit_bias\":{\"3\":1},\"bad_words\":[\"x\"]}",
			  0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(other_names_are_the_field),
	    cmocka_unit_test(unknown_fields_are_listed),
	    cmocka_unit_test(beams),
	    cmocka_unit_test(tokens_that_may_and_may_not_be_chosen),
	    cmocka_unit_test(salts_and_places),
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(survives_without_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
