/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of completion requests: prompts in all their forms, what is refused and under which name,
 * and every allocation failing once.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/request/completion_request.h"

static const struct request_limits limits = {.messages = 4, .json_depth = 8, .prompts = 20};

static int parse(const char *body, struct completion_request *r)
{
	struct request_error e;
	int rc = completion_request_parse(body, strlen(body), &limits, r, &e);
	if (rc != 0)
		fail_msg("%s: %d, %s", body, rc, e.message);
	return rc;
}

static int try(const char *body, struct request_error *e)
{
	struct completion_request r;
	int rc = completion_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		completion_request_dispose(&r);
	return rc;
}

static void prompts_in_all_forms(void **state)
{
	struct completion_request r;
	(void)state;
	parse("{\"model\":\"m\",\"prompt\":\"a\\\"\u00e9\"}", &r);
	assert_int_equal(r.n_prompts, 1);
	assert_int_equal(r.prompts[0].kind, PROTO_PROMPT_TEXT);
	assert_int_equal(r.prompts[0].text.n, 4);
	assert_memory_equal(r.prompts[0].text.at, "a\"\u00e9", 4);
	assert_int_equal(r.c.submit.prompt_kind, PROTO_PROMPT_TEXT);
	assert_ptr_equal(r.c.submit.prompt.at, r.prompts[0].text.at);
	completion_request_dispose(&r);

	parse("{\"model\":\"m\",\"prompt\":[\"a\",\"\",\"bc\"]}", &r);
	assert_int_equal(r.n_prompts, 3);
	assert_int_equal(r.prompts[1].text.n, 0);
	assert_memory_equal(r.prompts[2].text.at, "bc", 2);
	completion_request_dispose(&r);

	parse("{\"model\":\"m\",\"prompt\":[1,258,2147483647]}", &r);
	assert_int_equal(r.n_prompts, 1);
	assert_int_equal(r.prompts[0].kind, PROTO_PROMPT_TOKENS);
	assert_int_equal(r.prompts[0].text.n, 12);
	assert_memory_equal(r.prompts[0].text.at, "\x01\0\0\0\x02\x01\0\0\xff\xff\xff\x7f", 12);
	completion_request_dispose(&r);
}

/* So many that what was written first has moved. */
static void token_prompts_stay_where_they_are(void **state)
{
	enum { N = 20, EACH = 3000 };
	size_t room = N * EACH * 8 + 64, n = 0;
	char *body = malloc(room);
	struct completion_request r;
	(void)state;
	n += (size_t)snprintf(body, room, "{\"model\":\"m\",\"prompt\":[");
	for (int i = 0; i < N; i++)
		for (int k = 0; k < EACH; k++)
			n += (size_t)snprintf(body + n, room - n, "%s%d%s",
					      k   ? ","
					      : i ? ",["
						  : "[",
					      i * EACH + k, k == EACH - 1 ? "]" : "");
	snprintf(body + n, room - n, "]}");
	parse(body, &r);
	assert_int_equal(r.n_prompts, N);
	for (int i = 0; i < N; i++) {
		uint8_t want[4];
		const struct proto_str *t = &r.prompts[i].text;
		assert_int_equal(t->n, EACH * 4);
		for (int k = 0; k < EACH; k++) {
			for (int b = 0; b < 4; b++)
				want[b] = (uint8_t)((i * EACH + k) >> (8 * b));
			assert_memory_equal(t->at + 4 * k, want, 4);
		}
	}
	completion_request_dispose(&r);
	free(body);
}

static void fields(void **state)
{
	struct completion_request r;
	(void)state;
	parse("{\"model\":\"m\",\"prompt\":\"x\"}", &r);
	assert_true(r.c.has_max_tokens && r.c.max_tokens == 16); /* OpenAI's default */
	assert_true(r.c.submit.n == 1 && r.c.submit.best_of == 1 && !r.echo && !r.c.has_seed);
	assert_int_equal(r.c.submit.flags & PROTO_SUBMIT_WANT_LOGPROBS, 0);
	completion_request_dispose(&r);

	parse(
	    "{\"model\":\"m\",\"prompt\":\"x\",\"logprobs\":0,\"n\":2,\"best_of\":5,\"seed\":3,\"max_tokens\":9,"
	    "\"min_tokens\":9,\"ignore_eos\":true,\"top_k\":-1,\"typical_p\":0.5,\"repetition_penalty\":1.5,"
	    "\"stop_token_ids\":[7,8],\"logit_bias\":{\"5\":-100,\"6\":1.5},\"user\":\"u\",\"safety_identifier\":\"s\","
	    "\"prompt_cache_key\":\"k\",\"suffix\":\"\",\"metadata\":{\"a\":\"b\"}}",
	    &r);
	const struct proto_submit *s = &r.c.submit;
	assert_true((s->flags & PROTO_SUBMIT_WANT_LOGPROBS) != 0 && s->n_top_logprobs == 0);
	assert_true((s->flags & PROTO_SUBMIT_IGNORE_EOS) != 0);
	assert_true(s->n == 2 && s->best_of == 5 && r.c.has_seed && s->seed == 3 && r.c.max_tokens == 9);
	assert_true(s->min_tokens == 9 && s->top_k == 0 && s->typical_p == 0.5f && s->repetition_penalty == 1.5f);
	assert_true(s->n_stop_ids == 2 && s->stop_ids[1] == 8 && s->n_logit_bias == 2);
	assert_true(s->logit_bias[0].id == 5 && s->logit_bias[0].v == -100 && s->logit_bias[1].v == 1.5f);
	assert_string_equal(r.c.user, "s");
	assert_string_equal(r.c.cache_key, "k");
	completion_request_dispose(&r);

	parse("{\"model\":\"m\",\"prompt\":\"x\",\"echo\":true,\"stream\":true,\"stream_options\":"
	      "{\"include_usage\":true,\"include_obfuscation\":false}}",
	      &r);
	assert_true(r.echo && r.c.stream && r.c.include_usage && r.c.no_obfuscation && !r.c.obfuscate);
	completion_request_dispose(&r);
}

#define BODY(rest) "{\"model\":\"m\",\"prompt\":\"x\"," rest "}"

static void refuses_by_name(void **state)
{
	static const struct refusal cases[] = {
	    {"{\"model\":\"m\"}", "prompt", "missing_required_parameter"},
	    {"{\"model\":\"m\",\"prompt\":7}", "prompt", "invalid_type"},
	    {"{\"model\":\"m\",\"prompt\":[]}", "prompt", "empty_array"},
	    {"{\"model\":\"m\",\"prompt\":[[]]}", "prompt[0]", "empty_array"},
	    {"{\"model\":\"m\",\"prompt\":[\"a\",1]}", "prompt[1]", "invalid_type"},
	    {"{\"model\":\"m\",\"prompt\":[1,\"a\"]}", "prompt[1]", "invalid_type"},
	    {"{\"model\":\"m\",\"prompt\":[[1],\"a\"]}", "prompt[1]", "invalid_type"},
	    {"{\"model\":\"m\",\"prompt\":[[1],[2,-1]]}", "prompt[1][1]", "invalid_value"},
	    {"{\"model\":\"m\",\"prompt\":[2147483648]}", "prompt[0]", "invalid_value"},
	    {"{\"model\":\"m\",\"prompt\":[1.5]}", "prompt[0]", "invalid_type"},
	    {"{\"model\":\"m\",\"prompt\":\"a\\u0000\"}", "prompt", "invalid_value"},
	    {"{\"model\":\"m\",\"prompt\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\","
	     "\"\",\"\",\"\",\"\",\"\",\"\"]}",
	     "prompt", "array_above_max_length"},
	    {"{\"model\":\"m\",\"prompt\":[\"\",\"\",\"\"],\"n\":7}", "n", "invalid_value"},
	    {"{\"model\":\"m\",\"prompt\":[\"\",\"\",\"\"],\"best_of\":7}", "best_of", "invalid_value"},
	    {BODY("\"n\":17"), "n", "invalid_value"},
	    {BODY("\"n\":3,\"best_of\":2"), "best_of", "invalid_value"},
	    {BODY("\"best_of\":2,\"stream\":true"), "best_of", "invalid_value"},
	    {BODY("\"suffix\":\"x\""), "suffix", "unsupported_parameter"},
	    {BODY("\"logprobs\":true"), "logprobs", "invalid_type"},
	    {BODY("\"logprobs\":21"), "logprobs", "invalid_value"},
	    {BODY("\"echo\":true,\"logprobs\":0"), "echo", "unsupported_parameter"},
	    {"{\"model\":\"m\",\"prompt\":[1],\"echo\":true}", "echo", "unsupported_parameter"},
	    {BODY("\"min_tokens\":17"), "min_tokens", "invalid_value"},
	    {BODY("\"stop_token_ids\":[\"a\"]"), "stop_token_ids[0]", "invalid_type"},
	    {BODY("\"stop_token_ids\":[-1]"), "stop_token_ids[0]", "invalid_value"},
	    {BODY("\"logit_bias\":{\"5\":101}"), "logit_bias.5", "invalid_value"},
	    {BODY("\"logit_bias\":{\"5\":\"1\"}"), "logit_bias.5", "invalid_type"},
	    {BODY("\"logit_bias\":{\"x\":1}"), "logit_bias", "invalid_value"},
	    {BODY("\"stream\":true,\"stream_options\":{\"include_obfuscation\":1}"),
	     "stream_options.include_obfuscation", "invalid_type"},
	    {BODY("\"metadata\":{\"a\":1}"), "metadata.a", "invalid_type"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof cases[0]);
}

static void every_allocation_fails(void **state)
{
	(void)state;
	sweep_allocations(try, "{\"model\":\"m\",\"prompt\":[[1,2],[3]],\"logit_bias\":{\"1\":2},\"stop\":[\"x\"]}", 0);
	sweep_allocations(try, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"metadata\":{\"a\":\"b\"}}", 0);
	sweep_allocations(try, "{\"model\":\"m\",\"prompt\":[[1,2],[3]],\"logit_bias\":{\"1\":2},\"echo\":true}",
			  SL_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(prompts_in_all_forms),
	    cmocka_unit_test(token_prompts_stay_where_they_are),
	    cmocka_unit_test(fields),
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(every_allocation_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
