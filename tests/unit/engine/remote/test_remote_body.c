/* SPDX-License-Identifier: Apache-2.0
 *
 * A SUBMIT as a request's body: what is sent, and what is refused by its field's name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/remote/remote_body.h"

static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";

static struct proto_submit plain(uint8_t kind, const char *prompt, size_t n)
{
	return (struct proto_submit){PROTO_SUBMIT_OFF, .prompt_kind = kind, .top_p = 1,           .temperature = 1,
				     .seed = 7,        .max_tokens = 9,     .prompt = {prompt, n}};
}

static struct proto_submit plain_chat(void) { return plain(PROTO_PROMPT_CHAT, chat, sizeof chat - 1); }

static struct remote_refusal why;
static const char *path;

/* The body as JSON, which it must be; NULL: refused, `why` says why. */
static json_t *body_of(const struct proto_submit *s, enum eng_remote_dialect dialect)
{
	struct sl_buf out;
	buf_init(&out, 1 << 20);
	why = (struct remote_refusal){0};
	int rc = remote_body_put(s, "m/1", dialect, &out, &path, &why);
	json_t *root = rc == 0 ? json_loadb((const char *)buf_data(&out), out.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (rc == 0)
		assert_non_null(root);
	else
		assert_int_equal(rc, SL_EINVAL);
	buf_dispose(&out);
	return root;
}

static void sends(const struct proto_submit *s, enum eng_remote_dialect dialect, const char *expected)
{
	json_t *want = json_loads(expected, 0, NULL), *is = body_of(s, dialect);
	assert_non_null(want);
	if (!json_equal(want, is)) {
		char *text = json_dumps(is, 0);
		fail_msg("%s instead of %s", text, expected);
	}
	json_decref(want);
	json_decref(is);
}

static void refuses(const struct proto_submit *s, enum eng_remote_dialect dialect, const char *field)
{
	assert_null(body_of(s, dialect));
	assert_string_equal(proto_error_field(why.error), field);
	assert_non_null(strstr(why.message, field));
}

#define TAIL "\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
#define CHAT "{\"model\":\"m/1\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"

static void a_plain_chat_has_standard_fields_only(void **state)
{
	(void)state;
	struct proto_submit s = plain_chat();
	sends(&s, ENG_REMOTE_OPENAI, CHAT "\"temperature\":1,\"seed\":7,\"max_tokens\":9," TAIL);
	assert_string_equal(path, "/chat/completions");
	s.seed = UINT64_MAX; /* servers take 63 bits */
	sends(&s, ENG_REMOTE_OPENAI, CHAT "\"temperature\":1,\"seed\":9223372036854775807,\"max_tokens\":9," TAIL);
}

static void every_field_has_its_name(void **state)
{
	(void)state;
	struct proto_submit s = plain_chat();
	const struct proto_id_f32 bias[] = {{5, -100}, {6, 0.5F}};
	s.temperature = 0.5F;
	s.top_p = 0.25F;
	s.presence_penalty = 1;
	s.frequency_penalty = -0.5F;
	s.n = s.best_of = 2;
	s.n_stops = 2;
	s.stops[0] = (struct proto_str){"a\"b", 3};
	s.stops[1] = (struct proto_str){"\n", 1};
	s.logit_bias = bias;
	s.n_logit_bias = 2;
	s.flags = PROTO_SUBMIT_WANT_LOGPROBS;
	s.n_top_logprobs = 3;
	sends(&s, ENG_REMOTE_OPENAI,
	      CHAT "\"temperature\":0.5,\"top_p\":0.25,\"presence_penalty\":1,\"frequency_penalty\":-0.5,\"seed\":7,"
		   "\"logit_bias\":{\"5\":-100,\"6\":0.5},\"max_tokens\":9,\"n\":2,\"stop\":[\"a\\\"b\",\"\\n\"],"
		   "\"logprobs\":true,\"top_logprobs\":3," TAIL);
}

static void extensions_go_where_they_are_known(void **state)
{
	(void)state;
	struct proto_submit s = plain_chat();
	const struct proto_str bad[] = {{"no", 2}};
	s.top_k = 5;
	s.min_p = 0.5F;
	s.repetition_penalty = 1.5F;
	s.min_tokens = 2;
	s.thinking_tokens = 10;
	s.tenant = 0xab;
	s.n_stop_ids = 1;
	s.stop_ids[0] = 3;
	s.bad_words = bad;
	s.n_bad_words = 1;
	s.flags = PROTO_SUBMIT_IGNORE_EOS | PROTO_SUBMIT_INCLUDE_STOP;
	sends(&s, ENG_REMOTE_VLLM,
	      CHAT "\"temperature\":1,\"top_k\":5,\"min_p\":0.5,\"repetition_penalty\":1.5,\"seed\":7,"
		   "\"cache_salt\":\"00000000000000ab0000000000000000\",\"max_tokens\":9,\"min_tokens\":2,"
		   "\"thinking_token_budget\":10,\"bad_words\":[\"no\"],\"stop_token_ids\":[3],\"ignore_eos\":true,"
		   "\"include_stop_str_in_output\":true," TAIL);
	s.flags |= PROTO_SUBMIT_SHARED_PREFIX;
	json_t *shared = body_of(&s, ENG_REMOTE_VLLM);
	assert_null(json_object_get(shared, "cache_salt"));
	json_decref(shared);
}

static void what_it_does_not_have_is_refused(void **state)
{
	(void)state;
	struct proto_submit s;
#define REFUSES(member, value, dialect, field) \
	s = plain_chat();                      \
	s.member = (value);                    \
	refuses(&s, dialect, field)
	REFUSES(top_k, 3, ENG_REMOTE_OPENAI, "top_k");
	REFUSES(min_p, 0.5F, ENG_REMOTE_OPENAI, "min_p");
	REFUSES(typical_p, 0.5F, ENG_REMOTE_VLLM, "typical_p");
	REFUSES(repetition_penalty, 1.5F, ENG_REMOTE_LLAMA, "repetition_penalty");
	REFUSES(length_penalty, 2, ENG_REMOTE_VLLM, "length_penalty");
	REFUSES(min_tokens, 1, ENG_REMOTE_OPENAI, "min_tokens");
	REFUSES(flags, PROTO_SUBMIT_IGNORE_EOS, ENG_REMOTE_OPENAI, "ignore_eos");
	REFUSES(flags, PROTO_SUBMIT_INCLUDE_STOP, ENG_REMOTE_LLAMA, "include_stop_str_in_output");
	REFUSES(prompt_logprobs, 1, ENG_REMOTE_VLLM, "prompt_logprobs");
	REFUSES(best_of, 3, ENG_REMOTE_VLLM, "best_of");
	REFUSES(beam_width, 1, ENG_REMOTE_VLLM, "use_beam_search");
	REFUSES(thinking_tokens, 5, ENG_REMOTE_OPENAI, "thinking_token_budget");
	REFUSES(flags, PROTO_SUBMIT_ONLY_BIASED, ENG_REMOTE_LLAMA, "allowed_token_ids");
	REFUSES(cache_salt, 5, ENG_REMOTE_OPENAI, "cache_salt");
	s = plain_chat();
	s.n_stop_ids = 1;
	assert_null(body_of(&s, ENG_REMOTE_OPENAI));
	assert_int_equal(why.error, PROTO_ERR_BAD_STOP_IDS);
	s = plain_chat();
	s.flags = PROTO_SUBMIT_PREFILL_ONLY;
	assert_null(body_of(&s, ENG_REMOTE_VLLM));
}

static void counts_of(const struct proto_count *req, const char *wanted)
{
	struct sl_buf out;
	struct remote_refusal refused = {0};
	buf_init(&out, 1 << 20);
	assert_int_equal(remote_body_count(req, "m/1", ENG_REMOTE_VLLM, &out, &refused), 0);
	assert_string_equal(buf_cstr(&out), wanted);
	buf_dispose(&out);
}

static void counts(void **state)
{
	(void)state;
	static const char ids[] = {5, 0, 0, 0, 1, 2, 0, 0},
			  messages[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
	struct proto_count c = {.prompt_kind = PROTO_PROMPT_TEXT, .wants = PROTO_COUNT_PLAIN, .prompt = {"a\nb", 3}};
	counts_of(&c, "{\"model\":\"m/1\",\"prompt\":\"a\\nb\",\"add_special_tokens\":false}");
	c = (struct proto_count){.prompt_kind = PROTO_PROMPT_CHAT, .prompt = {messages, sizeof messages - 1}};
	counts_of(&c, "{\"model\":\"m/1\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
	c = (struct proto_count){
	    .prompt_kind = PROTO_PROMPT_TOKENS, .wants = PROTO_COUNT_TEXT, .prompt = {ids, sizeof ids}};
	counts_of(&c, "{\"model\":\"m/1\",\"tokens\":[5,513]}");
}

static void ids_are_asked_for(void **state)
{
	(void)state;
	struct proto_submit s = plain_chat();
	s.flags = PROTO_SUBMIT_WANT_IDS;
	json_t *vllm = body_of(&s, ENG_REMOTE_VLLM), *openai = body_of(&s, ENG_REMOTE_OPENAI);
	assert_true(json_is_true(json_object_get(vllm, "return_token_ids")));
	assert_true(json_is_true(json_object_get(vllm, "logprobs"))); /* their texts */
	assert_null(json_object_get(openai, "return_token_ids"));
	assert_null(json_object_get(openai, "logprobs"));
	json_decref(vllm);
	json_decref(openai);
}

static void texts_tokens_and_inputs(void **state)
{
	(void)state;
	static const char ids[] = {5, 0, 0, 0, 1, 2, 0, 0};
	struct proto_submit s = plain(PROTO_PROMPT_TEXT, "a\nb", 3);
	s.flags = PROTO_SUBMIT_WANT_LOGPROBS;
	sends(&s, ENG_REMOTE_OPENAI,
	      "{\"model\":\"m/"
	      "1\",\"prompt\":\"a\\nb\",\"temperature\":1,\"seed\":7,\"max_tokens\":9,\"logprobs\":0," TAIL);
	assert_string_equal(path, "/completions");
	s = plain(PROTO_PROMPT_TOKENS, ids, sizeof ids);
	sends(&s, ENG_REMOTE_OPENAI,
	      "{\"model\":\"m/1\",\"prompt\":[5,513],\"temperature\":1,\"seed\":7,\"max_tokens\":9," TAIL);
	s = plain(PROTO_PROMPT_INPUT, "text", 4);
	s.flags = PROTO_SUBMIT_EMBED;
	sends(&s, ENG_REMOTE_OPENAI, "{\"model\":\"m/1\",\"input\":\"text\",\"encoding_format\":\"float\"}");
	assert_string_equal(path, "/embeddings");
	s.prompt_kind = PROTO_PROMPT_PAIR; /* its first four bytes say more than there is */
	assert_null(body_of(&s, ENG_REMOTE_OPENAI));
	s = plain(PROTO_PROMPT_PAIR, "\1\0\0\0abc", 7);
	s.flags = PROTO_SUBMIT_EMBED;
	sends(&s, ENG_REMOTE_OPENAI, "{\"model\":\"m/1\",\"text_1\":\"a\",\"text_2\":\"bc\"}");
	assert_string_equal(path, "/score");
	s = plain(PROTO_PROMPT_TOKENS, ids, sizeof ids);
	s.flags = PROTO_SUBMIT_EMBED;
	sends(&s, ENG_REMOTE_OPENAI, "{\"model\":\"m/1\",\"input\":[5,513],\"encoding_format\":\"float\"}");
}

static json_t *constrained(uint8_t kind, const char *text, enum eng_remote_dialect dialect)
{
	struct proto_submit s = plain_chat();
	s.constraint_kind = kind;
	s.constraint = (struct proto_str){text, strlen(text)};
	return body_of(&s, dialect);
}

static void constraints(void **state)
{
	(void)state;
	json_t *b = constrained(PROTO_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"object\"}", ENG_REMOTE_OPENAI);
	const json_t *named = json_object_get(json_object_get(b, "response_format"), "json_schema");
	assert_string_equal(json_string_value(json_object_get(json_object_get(named, "schema"), "type")), "object");
	assert_true(json_is_true(json_object_get(named, "strict")));
	json_decref(b);
	b = constrained(PROTO_CONSTRAINT_REGEX, "a|\"b\"", ENG_REMOTE_VLLM);
	assert_string_equal(json_string_value(json_object_get(b, "guided_regex")), "a|\"b\"");
	json_decref(b);
	b = constrained(PROTO_CONSTRAINT_CHOICE, "[\"a\",\"b\"]", ENG_REMOTE_VLLM);
	assert_int_equal(json_array_size(json_object_get(b, "guided_choice")), 2);
	json_decref(b);
	b = constrained(PROTO_CONSTRAINT_GBNF, "root ::= \"a\"", ENG_REMOTE_LLAMA);
	assert_non_null(json_object_get(b, "grammar"));
	json_decref(b);
	assert_null(constrained(PROTO_CONSTRAINT_REGEX, "a", ENG_REMOTE_OPENAI));
	assert_int_equal(why.error, PROTO_ERR_BAD_CONSTRAINT);
	assert_null(constrained(PROTO_CONSTRAINT_LARK, "start: \"a\"", ENG_REMOTE_LLAMA));
}

static void earlier_calls_become_text_again(void **state)
{
	(void)state;
	static const char with_calls[] =
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,\"tool_"
	    "calls\":["
	    "{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},"
	    "{\"id\":\"c9\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
	    "{\"role\":\"tool\",\"tool_call_id\":\"c9\",\"content\":\"ok\"}]}";
	struct proto_submit s = plain(PROTO_PROMPT_CHAT, with_calls, sizeof with_calls - 1);
	json_t *b = body_of(&s, ENG_REMOTE_OPENAI);
	const json_t *calls = json_object_get(json_array_get(json_object_get(b, "messages"), 1), "tool_calls");
	const json_t *first = json_array_get(calls, 0);
	assert_string_equal(json_string_value(json_object_get(json_object_get(first, "function"), "arguments")),
			    "{\"a\":1}");
	assert_string_equal(json_string_value(json_object_get(first, "id")), "call_0");
	assert_string_equal(json_string_value(json_object_get(first, "type")), "function");
	assert_string_equal(json_string_value(json_object_get(json_array_get(calls, 1), "id")), "c9");
	json_decref(b);
}

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":\"object\"}}}"
#define CALL(name, schema)                                                                                             \
	"{\"prefix\":\"<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": \",\"schema\":\"" schema "\"" \
	"}"
#define HELD "{\\\"type\\\":\\\"object\\\",\\\"properties\\\":{\\\"a\\\":{}}}"

static void forced_calls_become_a_choice(void **state)
{
	(void)state;
	static const char tools[] =
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" TOOL("f") "," TOOL("g") "]}";
	static const struct {
		const char *form, *choice;
		size_t n_tools;
		bool parallel;
	} cases[] = {
	    {"{\"at_will\":false,\"several\":true,\"calls\":[" CALL("f", "{}") "," CALL("g", "{}") "]}", "required", 2,
	     true},
	    {"{\"at_will\":false,\"several\":false,\"calls\":[" CALL("g", "{}") "]}", NULL, 1, false},
	    {"{\"at_will\":true,\"several\":true,\"calls\":[" CALL("f", HELD) "," CALL("g", "{}") "]}", "auto", 2,
	     true},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct proto_submit s = plain(PROTO_PROMPT_CHAT, tools, sizeof tools - 1);
		s.constraint_kind = PROTO_CONSTRAINT_CALLS;
		s.constraint = (struct proto_str){cases[i].form, strlen(cases[i].form)};
		json_t *b = body_of(&s, ENG_REMOTE_OPENAI);
		assert_non_null(b);
		const json_t *choice = json_object_get(b, "tool_choice"), *list = json_object_get(b, "tools");
		assert_int_equal(json_array_size(list), cases[i].n_tools);
		if (cases[i].choice != NULL)
			assert_string_equal(json_string_value(choice), cases[i].choice);
		else
			assert_string_equal(
			    json_string_value(json_object_get(json_object_get(choice, "function"), "name")), "g");
		assert_true((json_object_get(b, "parallel_tool_calls") == NULL) == cases[i].parallel);
		const json_t *f = json_object_get(json_array_get(list, 0), "function");
		assert_true((json_object_get(f, "strict") != NULL) == (i == 2));
		json_decref(b);
	}
	static const char *const bad[] = {"{\"calls\":[{\"prefix\":\"h\"}]}", "{\"calls\":[]}", "{",
					  "{\"calls\":[" CALL("h", "{}") "]}"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct proto_submit s = plain(PROTO_PROMPT_CHAT, tools, sizeof tools - 1);
		s.constraint_kind = PROTO_CONSTRAINT_CALLS;
		s.constraint = (struct proto_str){bad[i], strlen(bad[i])};
		assert_null(body_of(&s, ENG_REMOTE_OPENAI));
		assert_int_equal(why.error, PROTO_ERR_BAD_CONSTRAINT);
	}
}

static void templates(void **state)
{
	(void)state;
	static const char effort[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":"
				     "{\"reasoning_effort\":\"low\"}}";
	static const char more[] =
	    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"continue_final_message\":true,"
	    "\"chat_template_kwargs\":{\"a\":1}}";
	struct proto_submit s = plain(PROTO_PROMPT_CHAT, effort, sizeof effort - 1);
	json_t *b = body_of(&s, ENG_REMOTE_OPENAI);
	assert_string_equal(json_string_value(json_object_get(b, "reasoning_effort")), "low");
	json_decref(b);
	s = plain(PROTO_PROMPT_CHAT, more, sizeof more - 1);
	b = body_of(&s, ENG_REMOTE_VLLM);
	assert_true(json_is_true(json_object_get(b, "continue_final_message")));
	assert_int_equal(json_object_size(json_object_get(b, "chat_template_kwargs")), 1);
	json_decref(b);
	assert_null(body_of(&s, ENG_REMOTE_OPENAI));
	assert_int_equal(why.error, PROTO_ERR_BAD_KWARGS);
}

static void hostile_prompts(void **state)
{
	(void)state;
	static const char *const prompts[] = {"",
					      "[]",
					      "{}",
					      "{\"messages\":[]}",
					      "{\"messages\":5}",
					      "{\"messages\":[",
					      "{\"messages\":[{\"tool_calls\":[{}]}]}"};
	char deep[4096];
	struct proto_submit s;
	for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
		s = plain(PROTO_PROMPT_CHAT, prompts[i], strlen(prompts[i]));
		assert_null(body_of(&s, ENG_REMOTE_VLLM));
		assert_int_equal(why.error, PROTO_ERR_BAD_REQUEST);
	}
	memset(deep, '[', sizeof deep);
	s = plain(PROTO_PROMPT_CHAT, deep, sizeof deep);
	assert_null(body_of(&s, ENG_REMOTE_VLLM));
}

static void lengths(void **state)
{
	(void)state;
	static const char text[400];
	static const char two[] =
	    "{\"messages\":[{\"role\":\"system\",\"content\":\"12345678\"},{\"role\":\"user\",\"content\":"
	    "[{\"type\":\"text\",\"text\":\"1234\"}]}]}";
	struct remote_length l = remote_length_of(PROTO_PROMPT_TEXT, (struct proto_str){text, sizeof text});
	assert_int_equal(remote_length_guess(l, 4), 100);
	assert_true(remote_length_most(l) >= 400);
	l = remote_length_of(PROTO_PROMPT_TOKENS, (struct proto_str){text, sizeof text});
	assert_int_equal(remote_length_guess(l, 4), 100);
	l = remote_length_of(PROTO_PROMPT_CHAT, (struct proto_str){two, sizeof two - 1});
	assert_int_equal(l.bytes, 12);
	assert_int_equal(l.fixed, 8);
	l = remote_length_of(PROTO_PROMPT_CHAT, (struct proto_str){"{", 1});
	assert_int_equal(remote_length_guess(l, 4), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_plain_chat_has_standard_fields_only),
	    cmocka_unit_test(every_field_has_its_name),
	    cmocka_unit_test(extensions_go_where_they_are_known),
	    cmocka_unit_test(what_it_does_not_have_is_refused),
	    cmocka_unit_test(counts),
	    cmocka_unit_test(ids_are_asked_for),
	    cmocka_unit_test(texts_tokens_and_inputs),
	    cmocka_unit_test(constraints),
	    cmocka_unit_test(earlier_calls_become_text_again),
	    cmocka_unit_test(forced_calls_become_a_choice),
	    cmocka_unit_test(templates),
	    cmocka_unit_test(hostile_prompts),
	    cmocka_unit_test(lengths),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
