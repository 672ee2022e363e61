/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of an answer, in all its fields: kind and text, the client's own bytes, and errors by name.
 */
#include "tests/support/request_rig.h"

#include <stdio.h>

#include "gateway/request/chat_request.h"
#include "gateway/request/response_request.h"

#define MSG "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct request_limits limits = {.messages = 4, .json_depth = 16};

static int try(const char *body, struct request_error *e)
{
	struct chat_request r;
	int rc = chat_request_parse(body, strlen(body), &limits, &r, e);
	if (rc == 0)
		chat_request_dispose(&r);
	return rc;
}

static void kinds(void **state)
{
	static const struct {
		const char *members, *field;
		enum proto_constraint kind;
		const char *text;
	} cases[] = {
	    {"\"response_format\":{\"type\":\"text\"}", NULL, PROTO_CONSTRAINT_NONE, ""},
	    {"\"response_format\":{\"type\":\"json_object\"}", "response_format", PROTO_CONSTRAINT_JSON_OBJECT, ""},
	    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":null,\"schema\":{ \"z\":1.0, "
	     "\"a\" :[]},\"name\":\"n\"}}",
	     "response_format", PROTO_CONSTRAINT_JSON_SCHEMA, "{ \"z\":1.0, \"a\" :[]}"},
	    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":true,\"name\":\"n\"}}",
	     "response_format", PROTO_CONSTRAINT_JSON_SCHEMA, "true"},
	    {"\"response\\u005fformat\":{\"type\":\"json_object\",\"sch\\u0065ma\":{\"b\":1, \"a\":2}}",
	     "response_format", PROTO_CONSTRAINT_JSON_SCHEMA, "{\"b\":1, \"a\":2}"},
	    {"\"response_format\":{\"type\":\"regex\",\"value\":\"a+\"}", "response_format", PROTO_CONSTRAINT_REGEX,
	     "a+"},
	    {"\"guided_json\":{\"type\" : \"x\"}", "guided_json", PROTO_CONSTRAINT_JSON_SCHEMA, "{\"type\" : \"x\"}"},
	    {"\"guided_json\":\"{\\\"type\\\": 1}\"", "guided_json", PROTO_CONSTRAINT_JSON_SCHEMA, "{\"type\": 1}"},
	    {"\"json_schema\":\"true\"", "json_schema", PROTO_CONSTRAINT_JSON_SCHEMA, "true"},
	    {"\"structured_outputs\":{\"json\":{\"a\":  1},\"regex\":null,\"choice\":[]}", "structured_outputs.json",
	     PROTO_CONSTRAINT_JSON_SCHEMA, "{\"a\":  1}"},
	    {"\"structured_outputs\":{\"json_object\":true}", "structured_outputs.json_object",
	     PROTO_CONSTRAINT_JSON_OBJECT, ""},
	    {"\"structured_outputs\":{\"json_object\":false}", NULL, PROTO_CONSTRAINT_NONE, ""},
	    {"\"guided_decoding\":{\"choice\":[\"a\" ,\"b\"]}", "guided_decoding.choice", PROTO_CONSTRAINT_CHOICE,
	     "[\"a\" ,\"b\"]"},
	    {"\"guided_choice\":[\"yes\",\"no\"]", "guided_choice", PROTO_CONSTRAINT_CHOICE, "[\"yes\",\"no\"]"},
	    {"\"regex\":\"[a-z]\"", "regex", PROTO_CONSTRAINT_REGEX, "[a-z]"},
	    {"\"ebnf\":\"root ::= \\\"a\\\"\"", "ebnf", PROTO_CONSTRAINT_GBNF, "root ::= \"a\""},
	    {"\"grammar\":\"start: x\\nx: \\\"a\\\"\"", "grammar", PROTO_CONSTRAINT_LARK, "start: x\nx: \"a\""},
	    {"\"grammar\":\" %llguidance {}\\nroot: x\"", "grammar", PROTO_CONSTRAINT_LARK, " %llguidance {}\nroot: x"},
	    {"\"guided_grammar\":\"root ::= start\\nstart ::= \\\"start:\\\"\"", "guided_grammar",
	     PROTO_CONSTRAINT_GBNF, "root ::= start\nstart ::= \"start:\""},
	    {"\"grammar\":{\"type\":\"json\",\"value\":{\"c\":1,\"b\":2}}", "grammar", PROTO_CONSTRAINT_JSON_SCHEMA,
	     "{\"c\":1,\"b\":2}"},
	    {"\"format\":\"json\"", "format", PROTO_CONSTRAINT_JSON_OBJECT, ""},
	    {"\"format\":{\"x\":1}", "format", PROTO_CONSTRAINT_JSON_SCHEMA, "{\"x\":1}"},
	    {"\"regex\":\"\",\"guided_json\":{},\"response_format\":{\"type\":\"json_object\"}", "response_format",
	     PROTO_CONSTRAINT_JSON_OBJECT, ""},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char body[512];
		struct chat_request r;
		struct request_error e;
		snprintf(body, sizeof body, "{" MSG ",%s}", cases[i].members);
		if (chat_request_parse(body, strlen(body), &limits, &r, &e) != 0)
			fail_msg("%s: %s", body, e.message);
		const struct constraint_request *c = &r.c.constraint;
		assert_int_equal(c->kind, cases[i].kind);
		if (cases[i].field != NULL)
			assert_string_equal(c->field, cases[i].field);
		else
			assert_null(c->field);
		if (c->text.len != strlen(cases[i].text) ||
		    memcmp(c->text.len > 0 ? (const char *)buf_data(&c->text) : "", cases[i].text, c->text.len) != 0)
			fail_msg("%s: %.*s", body, (int)c->text.len, (const char *)buf_data(&c->text));
		chat_request_dispose(&r);
	}
}

static void of_responses(void **state)
{
	static const char body[] = "{\"model\":\"m\",\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\","
				   "\"name\":\"n\",\"strict\":true,\"schema\":{\"b\":1,\"a\":2}}}}";
	struct response_request r;
	struct request_error e;
	(void)state;
	assert_int_equal(response_request_parse(body, sizeof body - 1, &limits, &r, &e), 0);
	assert_true(r.c.constraint.kind == PROTO_CONSTRAINT_JSON_SCHEMA && r.c.constraint.strict);
	assert_memory_equal(buf_data(&r.c.constraint.text), "{\"b\":1,\"a\":2}", 13);
	response_request_dispose(&r);
}

static void refuses_by_name(void **state)
{
#define FORMAT(text) "{" MSG ",\"response_format\":" text "}"
	static const struct refusal cases[] = {
	    {FORMAT("{}"), "response_format.type", "missing_required_parameter"},
	    {FORMAT("{\"type\":1}"), "response_format.type", "invalid_type"},
	    {FORMAT("{\"type\":\"structural_tag\"}"), "response_format.type", "unsupported_value"},
	    {FORMAT("{\"type\":\"json_schema\"}"), "response_format.json_schema", "missing_required_parameter"},
	    {FORMAT("{\"type\":\"json_schema\",\"json_schema\":1}"), "response_format.json_schema", "invalid_type"},
	    {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}"), "response_format.json_schema.name",
	     "missing_required_parameter"},
	    {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"name\":\"a b\"}}"),
	     "response_format.json_schema.name", "invalid_value"},
	    {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}"),
	     "response_format.json_schema.schema", "missing_required_parameter"},
	    {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":\"{}\"}}"),
	     "response_format.json_schema.schema", "invalid_type"},
	    {FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{},\"strict\":1}}"),
	     "response_format.json_schema.strict", "invalid_type"},
	    {"{" MSG ",\"guided_json\":\"[1]\"}", "guided_json", "invalid_value"},
	    {"{" MSG ",\"guided_json\":\"{\"}", "guided_json", "invalid_value"},
	    {"{" MSG ",\"guided_choice\":[\"a\",1]}", "guided_choice[1]", "invalid_type"},
	    {"{" MSG ",\"guided_choice\":[\"\"]}", "guided_choice[0]", "invalid_value"},
	    {"{" MSG ",\"regex\":\"a\\u0000\"}", "regex", "invalid_value"},
	    {"{" MSG ",\"format\":\"yaml\"}", "format", "invalid_value"},
	    {"{" MSG ",\"regex\":\"a\",\"ebnf\":\"b\"}", "ebnf", "invalid_value"},
	    {"{" MSG ",\"regex\":\"a\",\"guided_regex\":\"b\"}", "guided_regex", "invalid_value"},
	    {"{" MSG ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}", "structured_outputs.choice",
	     "invalid_value"},
	    {"{" MSG ",\"structured_outputs\":{\"structural_tag\":\"x\"}}", "structured_outputs.structural_tag",
	     "unsupported_parameter"},
	    {"{" MSG ",\"structured_outputs\":{\"regex\":1}}", "structured_outputs.regex", "invalid_type"},
	};
	(void)state;
	assert_refused(try, cases, sizeof cases / sizeof cases[0]);
	struct request_error e;
	assert_int_equal(try(FORMAT("{\"type\":\"text\"}"), &e), 0);
}

static void survives_without_memory(void **state)
{
	(void)state;
	sweep_allocations(
	    try, FORMAT("{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"x\":1}}}"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(kinds),
	    cmocka_unit_test(of_responses),
	    cmocka_unit_test(refuses_by_name),
	    cmocka_unit_test(survives_without_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
