/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: each keyword of JSON Schema with instances that it permits and refuses.
 */
#include "tests/unit/engine/constraint/accept.h"

static const struct accept_case basics[] = {
    {"true", {"1", "null", "{\"a\":[1,{}]}", "[ ] ", "\"x\""}, {"", "tru", "{,}", "[1,]", "01", "{\"a\"}", "'x'"}},
    {"{}", {"-1.5e+7", "[[[]]]", "{ \"a\" : 1 , \"b\" : [ 2 ] }"}, {"+1", ".5", "1."}},
    {"{\"type\":\"null\"}", {"null"}, {"nul", "0", "nulll"}},
    {"{\"type\":\"boolean\"}", {"true", "false"}, {"0", "\"true\""}},
    {"{\"type\":\"integer\"}", {"0", "-7", "12345678901234567890"}, {"3.0", "1.5", "1e3", "\"1\"", "--1", "00"}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\"}", {"3"}, {"3.0"}},
    {"{\"type\":[\"integer\",\"null\"]}", {"1", "null"}, {"1.5", "true"}},
    {"{\"type\":\"number\"}", {"1.5", "1e3", "-0"}, {"\"1\"", "1e"}},
    {"{\"enum\":[1,\"a\",null,[1,{\"b\":2}],{\"c\":[]}]}",
     {"1", "1.0", "\"a\"", "null", "[1,{\"b\":2}]", "{\"c\":[]}", "[1.0, {\"b\": 2}]"},
     {"2", "\"b\"", "[1]", "[1,{\"b\":2,\"c\":3}]", "{\"c\":[1]}", "{}"}},
    {"{\"const\":{\"a\":1,\"b\":[true]}}", {"{\"a\":1,\"b\":[true]}"}, {"{\"a\":1}", "{\"a\":1,\"b\":[false]}"}},
    {"{\"const\":\"\\u00e9\\n\"}", {"\"\xC3\xA9\\n\"", "\"\\u00e9\\n\"", "\"\\u00E9\\u000a\""}, {"\"e\\n\""}},
    {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"x\""}, {"1"}},
    {"{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"string\",\"nullable\":true}",
     {"\"x\""},
     {"null"}},
    {"{\"type\":\"string\",\"unknownKeyword\":5,\"format\":\"no-such-format\"}", {"\"x\""}, {"1"}},
};

static const struct accept_case strings[] = {
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"", "\"\\u00e9\\n\"", "\"\\ud83d\\ude00x\""},
     {"\"a\"", "\"abcd\"", "\"\xF0\x9F\x98\x80\"", "\"\\ud83d\\ude00\"", "\"\\ud83dx\""}},
    {"{\"pattern\":\"^a+$\"}", {"\"aa\"", "7", "\"\\u0061\""}, {"\"\"", "\"ab\"", "\"ba\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"abc\"", "\"b\""}, {"\"ac\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^x\",\"minLength\":3,\"maxLength\":4}",
     {"\"xab\"", "\"xabc\""},
     {"\"x\"", "\"abc\"", "\"xabcd\""}},
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"a\"}}", {"\"bcd\"", "\"\""}, {"\"a\"", "\"xa\""}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]}}",
     {"\"c\"", "\"ab\"", "\"\""},
     {"\"a\"", "\"b\"", "\"\\u0061\""}},
    {"{\"type\":\"string\",\"enum\":[\"a\",\"bb\",\"ccc\"],\"minLength\":2}", {"\"bb\"", "\"ccc\""}, {"\"a\""}},
};

static const struct accept_case objects[] = {
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},\"required\":["
     "\"a\"]}",
     {"{\"a\":1}", "{\"a\":1,\"b\":\"x\"}", "{\"a\":1,\"z\":null,\"y\":2}", "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
     {"{}", "{\"b\":\"x\"}", "{\"a\":\"1\"}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"a\":1}",
      "{\"a\":1,\"b\":\"x\",\"b\":\"x\"}", "{\"a\":1,\"\\u0061\":1}", "{\"a\":1,}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"additionalProperties\":false}",
     {"{}", "{\"a\":1}", "{\"b\":1}", "{\"a\":[],\"b\":{}}"},
     {"{\"c\":1}", "{\"a\":1,\"c\":2}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\"}}",
     {"{}", "{\"x\":1,\"y\":2.5}"},
     {"{\"x\":\"1\"}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^s_\":{\"type\":\"string\"},\"_n$\":{\"type\":\"number\"}},"
     "\"additionalProperties\":false}",
     {"{\"s_a\":\"x\"}", "{\"a_n\":1,\"s_b\":\"y\"}"},
     {"{\"s_n\":1}", "{\"s_n\":\"x\"}", "{\"q\":1}", "{\"s_a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"s_a\":{\"minLength\":2}},\"patternProperties\":{\"^s_\":{\"type\":"
     "\"string\"}}}",
     {"{\"s_a\":\"xy\"}", "{\"s_b\":\"\",\"q\":1}"},
     {"{\"s_a\":1}", "{\"s_a\":\"x\"}", "{\"s_b\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}",
     {"{}", "{\"ab\":1}"},
     {"{\"A\":1}", "{\"\":1}"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"additionalProperties\":false,"
     "\"minProperties\":2}",
     {"{\"a\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
     {"{}", "{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"a\",\"b\"],\"minProperties\":2}",
     {"{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":3,\"maxProperties\":3}",
     {"{\"a\":1,\"b\":2,\"x\":3}", "{\"x\":1,\"y\":2,\"z\":3}"},
     {"{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"x\":3,\"y\":4}"}},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"],\"c\":{\"properties\":{\"b\":{\"type\":\"null\"}}}}}",
     {"{}", "{\"a\":1,\"b\":2}", "{\"c\":1}", "{\"b\":null,\"c\":1}"},
     {"{\"a\":1}", "{\"b\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"required\":[\"q\"],\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{\"q\":1}", "{\"q\":1,\"r\":2}"},
     {"{\"q\":\"\"}", "{}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"}}}", {"1", "\"x\"", "[]", "{\"a\":null}"}, {"{\"a\":1}"}},
};

static const struct accept_case arrays[] = {
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
     {"[]", "[1,2,3]", "[ 1, 2 ]"},
     {"[\"a\"]", "[1,\"a\"]", "{}"}},
    {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3}", {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "[1,2,3,4]"}},
    {"{\"type\":\"array\",\"minItems\":100000,\"maxItems\":200000}", {NULL}, {"[]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
     {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null]"},
     {"[\"a\"]", "[1,2]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false}",
     {"[]", "[1]"},
     {"[1,2]", "[null]"}},
    {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"null\"},\"minItems\":2}",
     {"[1,null]", "[1,null,null]"},
     {"[1]", "[1,2]"}},
    {"{\"type\":\"array\",\"contains\":{\"type\":\"integer\"}}", {"[1]", "[\"a\",1,\"b\"]"}, {"[]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"minContains\":2,"
     "\"maxContains\":2}",
     {"[5,1,9]", "[7,7]"},
     {"[5]", "[5,6,7]", "[1,2]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true,\"minItems\":1}",
     {"[\"a\"]", "[\"c\",\"a\"]", "[\"b\",\"a\",\"c\"]"},
     {"[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]"}},
    {"{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}", {"[\"a\"]", "[1,\"a\",2]"}, {"[]", "[1]"}},
};

static const struct accept_case logic[] = {
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"a\""}, {"null", "1.5"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"a\":{"
     "\"minimum\":3},\"b\":{\"type\":\"null\"}}}],\"type\":\"object\"}",
     {"{\"a\":3}", "{\"a\":4,\"b\":null}"},
     {"{\"a\":2}", "{\"a\":3.5}", "{\"a\":3,\"b\":1}", "{}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{\"b\":{}}}],\"type\":"
     "\"object\"}",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}", "{\"c\":1}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", {"1", "2.5", "\"x\"", "null"}, {"3", "1.5"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1,\"c\":2}"},
     {"{}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}},"
     "\"required\":[\"kind\"]},"
     "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"b\"},\"x\":{\"type\":\"string\"}},\"required\":["
     "\"kind\"]}]}",
     {"{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"b\",\"x\":\"1\"}", "{\"x\":1,\"kind\":\"a\"}"},
     {"{\"kind\":\"a\",\"x\":\"1\"}", "{\"kind\":\"c\"}", "{}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{\"properties\":{\"b\":{\"type\":"
     "\"integer\"}}}]}",
     {"{\"a\":1,\"b\":\"x\"}", "{\"a\":\"x\"}", "{\"b\":null,\"z\":1}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}", "{\"a\":\"\",\"b\":\"\"}"}},
    {"{\"not\":{\"type\":[\"object\",\"array\",\"string\"]}}", {"1", "null", "true"}, {"\"a\"", "{}", "[]"}},
    {"{\"type\":\"object\",\"not\":{\"required\":[\"a\",\"b\"]}}",
     {"{}", "{\"a\":1}", "{\"b\":1,\"c\":1}"},
     {"{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"not\":{\"properties\":{\"a\":{\"maximum\":5}"
     "},\"required\":[\"a\"]}}",
     {"{}", "{\"a\":6}"},
     {"{\"a\":5}", "{\"a\":\"x\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"not\":{\"additionalProperties\":false,\"properties\":{\"a\":{},"
     "\"b\":{}}}}",
     {"{\"c\":1}", "{\"a\":1,\"c\":2}", "{\"c\":1,\"d\":1}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]},\"v\":{}},\"required\":[\"k\",\"v\"],\"if\":{"
     "\"properties\":{\"k\":{\"const\":\"x\"}}},"
     "\"then\":{\"properties\":{\"v\":{\"type\":\"integer\"}}},\"else\":{\"properties\":{\"v\":{\"type\":\"string\"}}}"
     "}",
     {"{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\",\"v\":\"1\"}"},
     {"{\"k\":\"x\",\"v\":\"1\"}", "{\"k\":\"y\",\"v\":1}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"if\":{\"required\":[\"a\"]},\"then\":{\"required\":[\"b\"]}},{\"if\":{"
     "\"required\":[\"b\"]},\"then\":{\"required\":[\"c\"]}}]}",
     {"{}", "{\"c\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"}},
};

/* Ten members, two of them required: these come anywhere, the others in order. */
static const struct accept_case free_order[] = {
    {"{\"type\":\"object\",\"properties\":{\"p0\":{\"type\":\"integer\"},\"p1\":{\"type\":\"integer\"},\"p2\":{"
     "\"type\":\"integer\"},\"p3\":{\"type\":\"integer\"},\"p4\":{\"type\":\"integer\"},\"p5\":{\"type\":\"integer\"},"
     "\"p6\":{\"type\":\"integer\"},\"p7\":{\"type\":\"integer\"},\"p8\":{\"type\":\"integer\"},\"p9\":{\"type\":"
     "\"integer\"}},"
     "\"required\":[\"p3\",\"p7\"],\"minProperties\":1}",
     {"{\"p3\":1,\"p7\":1}", "{\"p7\":1,\"p3\":1}", "{\"p7\":1,\"p0\":1,\"p3\":1,\"p9\":2}",
      "{\"p0\":1,\"p1\":1,\"p7\":1,\"p3\":1,\"z\":[]}", "{\"z\":1,\"p3\":1,\"p7\":1}"},
     {"{}", "{\"p3\":1}", "{\"p3\":1,\"p7\":1,\"p3\":1}", "{\"p0\":1,\"p0\":1,\"p3\":1,\"p7\":1}",
      "{\"p3\":1,\"p7\":\"\"}", "{\"z\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"a\"],\"additionalProperties\":"
     "false,\"minProperties\":1}",
     {"{\"a\":1}", "{\"c\":1,\"b\":2,\"a\":3}", "{\"b\":2,\"a\":3}"},
     {"{}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"c\":1,\"a\":1}", "{\"a\":1,\"d\":1}"}},
};

static const struct accept_case unevaluated[] = {
    {"{\"properties\":{\"b\":{\"type\":\"null\"}},\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}}}],\"type\":"
     "\"object\"}",
     {"{\"b\":null,\"a\":null}", "{\"a\":null}"},
     {"{\"b\":1}", "{\"b\":null,\"a\":1}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{}}},{\"patternProperties\":{\"^x\":{}}}],\"properties\":{"
     "\"b\":{}},\"unevaluatedProperties\":false}",
     {"{}", "{\"b\":1}", "{\"a\":2,\"b\":1,\"x1\":3}", "{\"a\":2}"},
     {"{\"c\":1}", "{\"a\":1,\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"anyOf\":[{\"properties\":{\"k\":{\"const\":1},\"b\":{}},"
     "\"required\":[\"k\"]},"
     "{\"properties\":{\"k\":{\"const\":2},\"c\":{}},\"required\":[\"k\"]}],\"unevaluatedProperties\":{\"type\":"
     "\"null\"}}",
     {"{\"a\":1,\"k\":1,\"b\":1}", "{\"k\":2,\"c\":1,\"z\":null}"},
     {"{\"k\":1,\"c\":1}", "{\"k\":2,\"z\":1}"}},
};

static const struct accept_case references[] = {
    {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/"
     "n\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"v\"],\"additionalProperties\":false}}}",
     {"{\"v\":1}", "{\"next\":{\"next\":{\"v\":3},\"v\":2},\"v\":1}"},
     {"{}", "{\"next\":{},\"v\":1}", "{\"next\":1,\"v\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"[]", "[[],[[]]]"}, {"[1]", "[[1]]"}},
    {"{\"$id\":\"https://example.com/a/b.json\",\"$ref\":\"c.json\",\"$defs\":{\"x\":{\"$id\":\"c.json\",\"$ref\":\"#/"
     "definitions/i\",\"definitions\":{\"i\":{\"type\":\"integer\"}}}}}",
     {"1"},
     {"\"a\""}},
    {"{\"$ref\":\"#here\",\"$defs\":{\"x\":{\"$anchor\":\"here\",\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/"
     "schema#\",\"$ref\":\"#foo\",\"definitions\":{\"x\":{\"id\":\"#foo\",\"type\":\"null\"}}}",
     {"null"},
     {"1"}},
    {"{\"$ref\":\"#/definitions/a~1b%25c\",\"definitions\":{\"a/b%c\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"$ref\":\"#/definitions/s\",\"maxLength\":1,\"definitions\":{\"s\":{\"type\":\"string\"}}}",
     {"\"a\""},
     {"\"ab\"", "1"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/"
     "s\",\"maxLength\":1,\"definitions\":{\"s\":{\"type\":\"string\"}}}",
     {"\"ab\""},
     {"1"}},
    {"{\"type\":\"object\",\"properties\":{\"$ref\":{\"type\":\"string\"}},\"required\":[\"$ref\"]}",
     {"{\"$ref\":\"x\"}"},
     {"{}", "{\"$ref\":1}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/"
     "b\"}],\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}"
     "},\"required\":[\"c\"]},"
     "\"b\":{\"properties\":{\"c\":{\"maxItems\":1}}}}}",
     {"{\"c\":[]}", "{\"c\":[{\"c\":[]}]}"},
     {"{}", "{\"c\":[{\"c\":[]},{\"c\":[]}]}", "{\"c\":[1]}"}},
};

static void test_basics(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, basics);
}

static void test_strings(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, strings);
}

static void test_objects(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, objects);
}

static void test_arrays(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, arrays);
}

static void test_logic(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, logic);
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, unevaluated);
}

static void test_references(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, references);
}

static void test_free_order(void **state)
{
	(void)state;
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, free_order);
}

/* A model cannot emit blanks for ever, nor begin with one. */
static void test_blanks(void **state)
{
	(void)state;
	static const struct accept_case blanks[] = {{"{\"type\":\"array\"}",
						     {"[ 1 , 2 ]", "[\n\t1,\r\n  2\n]", "[]\n"},
						     {"[  1]", "[\n\n1]", "[1  ,2]", " []", "\n[]"}}};
	ACCEPT_TABLE(CONSTRAINT_JSON_SCHEMA, blanks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_basics), cmocka_unit_test(test_strings),    cmocka_unit_test(test_objects),
	    cmocka_unit_test(test_arrays), cmocka_unit_test(test_logic),      cmocka_unit_test(test_references),
	    cmocka_unit_test(test_blanks), cmocka_unit_test(test_free_order),
	};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
