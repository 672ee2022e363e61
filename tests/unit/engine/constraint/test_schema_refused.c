/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: schemas that are malformed, not supported or hostile: a sentence with the pointer, within bounds.
 */
#include <stdio.h>

#include "base/buf.h"
#include "tests/unit/engine/constraint/accept.h"

static void test_sentences(void **state)
{
	(void)state;
	static const struct refuse_case cases[] = {
	    {"{\"a\":", SL_EINVAL, "malformed JSON"},
	    {"{\"type\":nope}", SL_EINVAL, "malformed JSON"},
	    {"{\"a\":1,\"a\":2}", SL_EINVAL, "appears twice"},
	    {"5", SL_EINVAL, "#: a schema must be an object or a boolean"},
	    {"{\"properties\":{\"x\":[]},\"type\":\"object\",\"required\":[\"x\"]}", SL_EINVAL,
	     "#/properties/x: a schema must be"},
	    {"{\"type\":\"any\"}", SL_EINVAL, "#/type: "},
	    {"{\"properties\":{\"a/b\":{\"type\":3}}}", SL_EINVAL, "#/properties/a~1b/type: "},
	    {"{\"enum\":1}", SL_EINVAL, "#/enum: "},
	    {"{\"minLength\":-1}", SL_EINVAL, "#/minLength: "},
	    {"{\"minimum\":\"1\"}", SL_EINVAL, "#/minimum: "},
	    {"{\"multipleOf\":0}", SL_EINVAL, "#/multipleOf: "},
	    {"{\"multipleOf\":1013}", SL_EUNSUPPORTED, "multiples have too many"},
	    {"{\"anyOf\":[]}", SL_EINVAL, "#/anyOf: "},
	    {"{\"required\":[1]}", SL_EINVAL, "#/required: "},
	    {"{\"pattern\":\"(a\"}", SL_EINVAL, "#/pattern: regular expression: a group does not end at offset 0"},
	    {"{\"pattern\":\"(a)\\\\1\"}", SL_EUNSUPPORTED, "backreferences are not supported at offset 3"},
	    {"{\"patternProperties\":{\"[\":{}}}", SL_EINVAL, "#/patternProperties: regular expression"},
	    {"{\"$ref\":\"#/no\"}", SL_EINVAL, "#/$ref: #/no is not in this document"},
	    {"{\"$ref\":\"https://example.com/x.json\"}", SL_EUNSUPPORTED, "#/$ref: https://example.com/x.json is not"},
	    {"{\"$ref\":\"#\"}", SL_EINVAL, "form a cycle"},
	    {"{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#\"}]}]}", SL_EINVAL, "form a cycle"},
	    {"{\"not\":{\"unevaluatedProperties\":false}}", SL_EUNSUPPORTED, "#/not/unevaluatedProperties: "},
	    {"{\"type\":\"array\",\"uniqueItems\":true}", SL_EUNSUPPORTED, "uniqueItems"},
	    {"{\"type\":\"string\",\"enum\":[1]}", SL_EINVAL, "permits no value"},
	    {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", SL_EINVAL, "permits no value"},
	    {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", SL_EINVAL, "permits no value"},
	};
	REFUSE_TABLE(CONSTRAINT_JSON_SCHEMA, cases);
}

/* times copies of a text between two others. */
static void repeated(struct sl_buf *out, const char *before, const char *text, size_t times, const char *after)
{
	buf_init(out, 64 << 20);
	assert_int_equal(buf_append_str(out, before), 0);
	for (size_t i = 0; i < times; i++)
		assert_int_equal(buf_append_str(out, text), 0);
	assert_int_equal(buf_append_str(out, after), 0);
}

/* Taken or refused, but it ends, and a refusal is SL_ELIMIT, SL_EINVAL or SL_EUNSUPPORTED. */
static int outcome(const struct sl_buf *source)
{
	struct sl_err err;
	struct grammar *g = accept_compile(CONSTRAINT_JSON_SCHEMA, (const char *)buf_data(source), source->len, &err);
	if (g != NULL)
		grammar_unref(g);
	else
		assert_true(err.code == SL_ELIMIT || err.code == SL_EINVAL || err.code == SL_EUNSUPPORTED);
	return err.code;
}

static void hostile(const char *before, const char *text, size_t times, const char *after, int code)
{
	struct sl_buf b;
	repeated(&b, before, text, times, after);
	int got = outcome(&b);
	if (code != 1)
		assert_int_equal(got, code);
	buf_dispose(&b);
}

static void test_hostile(void **state)
{
	(void)state;
	hostile("", "{\"not\":", 100000, "{}", SL_ELIMIT);
	hostile("", "[", 100000, "", SL_ELIMIT);
	hostile("{\"pattern\":\"", "(", 100000, "\"}", SL_ELIMIT);
	hostile("{\"pattern\":\"", "(a|b*)*", 5000, "\"}", 1);
	hostile("{\"pattern\":\"", "(?=", 150, "\"}", SL_EINVAL);
	hostile("{\"minimum\":1", "0", 100000, "}", SL_ELIMIT);
	hostile("{\"type\":\"string\",\"maxLength\":1", "0", 300, "}", 0);
	hostile("{\"allOf\":[", "{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]},", 20000, "{}]}", 1);
	hostile("{\"enum\":[", "\"a\",", 100000, "\"b\"]}", 0);
}

static void test_wide(void **state)
{
	(void)state;
	struct sl_buf b;
	buf_init(&b, 64 << 20);
	buf_append_str(&b, "{\"type\":\"object\",\"properties\":{");
	for (int i = 0; i < 100000; i++)
		buf_printf(&b, "%s\"p%d\":{\"type\":\"null\"}", i > 0 ? "," : "", i);
	buf_append_str(&b, "}}");
	int code = outcome(&b);
	if (code != 0 && code != SL_ELIMIT)
		fail_msg("%d", code);
	buf_dispose(&b);
}

/* Each pair of alternatives differs, so 2^20 shapes: refused, not made. */
static void test_products(void **state)
{
	(void)state;
	struct sl_buf b;
	buf_init(&b, 1 << 20);
	buf_append_str(&b, "{\"type\":\"object\",\"allOf\":[");
	for (int i = 0; i < 20; i++)
		buf_printf(&b, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}", i > 0 ? "," : "", i,
			   i);
	buf_append_str(&b, "]}");
	assert_int_equal(outcome(&b), SL_ELIMIT);
	buf_dispose(&b);
}

/* A chain of references is as long as it likes where values lie between; without values it is bounded. */
static void test_chains(void **state)
{
	(void)state;
	for (int progress = 0; progress < 2; progress++) {
		struct sl_buf b;
		buf_init(&b, 1 << 24);
		buf_append_str(&b, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
		for (int i = 0; i < 5000; i++)
			buf_printf(&b,
				   progress ? "\"d%d\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d%d\"}},"
					    : "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},",
				   i, i + 1);
		buf_append_str(&b, "\"d5000\":{\"type\":\"null\"}}}");
		assert_int_equal(outcome(&b) == 0, progress);
		buf_dispose(&b);
	}
}

/* Patterns that have to be read side by side have products of states: the work is bounded, and the sentence says where
 * it ran out. */
static void test_patterns(void **state)
{
	(void)state;
	struct sl_buf b;
	struct sl_err err;
	buf_init(&b, 1 << 20);
	buf_append_str(&b, "{\"type\":\"string\",\"allOf\":[{}");
	for (int i = 0; i < 300; i++)
		buf_printf(&b, ",{\"pattern\":\"a%db*[cd]\"}", i);
	buf_append_str(&b, "]}");
	assert_null(accept_compile(CONSTRAINT_JSON_SCHEMA, (const char *)buf_data(&b), b.len, &err));
	assert_int_equal(err.code, SL_ELIMIT);
	assert_non_null(strstr(err.text, "#/allOf/"));
	buf_dispose(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sentences), cmocka_unit_test(test_hostile), cmocka_unit_test(test_wide),
	    cmocka_unit_test(test_products),  cmocka_unit_test(test_chains),  cmocka_unit_test(test_patterns),
	};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
