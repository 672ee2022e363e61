/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: GBNF, Lark's EBNF, choices, any JSON object.
 */
#include "tests/unit/engine/constraint/accept.h"

static void test_gbnf(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "maybe", "yesno"}},
	    {"# arithmetic\nroot ::= expr\nexpr ::= term ([-+] term)*  # sums\nterm ::= num | \"(\" expr \")\"\nnum "
	     "::= [0-9]+\n",
	     {"1", "1+2-3", "(1+(22))-3"},
	     {"", "1+", "(1", "1++2"}},
	    {"root ::= (\n  \"a\" |\n  \"b\"\n){2,3} c?\nc ::=\n  \"\\x43\\u00e9\"",
	     {"ab", "aba", "bbC\xC3\xA9"},
	     {"a", "abab", "abC"}},
	    {"root ::= [^\\n\\]a-c]{2} . \"\\\"\"",
	     {"xy\n\"", "\xE2\x82\xAC"
			"d!\""},
	     {"ab!\"", "xy\""}},
	    {"root ::= item{0,1} \"!\"\nitem ::= \"x\" item | \"y\"", {"!", "y!", "xxy!"}, {"x!", "yy!"}},
	    {"root ::= root \"a\" | \"b\"", {"b", "baa"}, {"", "a", "ab"}},
	    {"root ::= \"a\"{3,} | \"b\"{2}", {"aaa", "aaaaa", "bb"}, {"aa", "b", "bbb"}},
	};
	static const struct refuse_case wrong[] = {
	    {"start ::= \"a\"", SL_EINVAL, "the rule root is missing"},
	    {"root ::= a", SL_EINVAL, "1:10: a is not defined"},
	    {"root ::= \"a", SL_EINVAL, "1:10: a string does not end"},
	    {"root ::= (\"a\"", SL_EINVAL, "1:10: a parenthesis does not close"},
	    {"root = \"a\"", SL_EINVAL, "1:1: a rule is expected"},
	    {"root ::= \"a\"\nroot ::= \"b\"", SL_EINVAL, "2:1: root is defined twice"},
	    {"root ::= \"a\"{3,2}", SL_EINVAL, "a malformed repetition"},
	    {"root ::= \"a\"{9999999}", SL_ELIMIT, "repetitions"},
	    {"root ::= [b-a]", SL_EINVAL, "out of order"},
	    {"root ::= \"\\q\"", SL_EINVAL, "unknown escape"},
	    {"root ::= root \"a\"", SL_EINVAL, "no string"},
	    {"", SL_EINVAL, "the rule root is missing"},
	};
	ACCEPT_TABLE(CONSTRAINT_GBNF, cases);
	REFUSE_TABLE(CONSTRAINT_GBNF, wrong);
}

static void test_lark(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {"start: \"a\" B? // comment\nB: \"b\"i | \"x\"..\"z\"\n", {"a", "ab", "aB", "ay"}, {"", "b", "ax1", "aw"}},
	    {"?start: sum\n?sum: product\n    | sum \"+\" product -> add\n?product: atom | product \"*\" atom\n?atom: "
	     "NUMBER | \"(\" sum \")\"\n"
	     "%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE\n",
	     {"1", " 1 + 2*3", "(1+ 2.5 )* 4e3"},
	     {"1+", "(1", "1 2+", ""}},
	    {"start: [\"x\"] pair~2 tail~1..2\npair: A \"=\" A\ntail: \";\"\nA.2: /[a-c]+/i",
	     {"xa=bB=c;", "a=ba=b;;"},
	     {"a=b;", "a=ba=b", "a=ba=b;;;"}},
	    {"start: (A | \"q\")+\n%import common (DIGIT, LETTER)\n%import common.INT -> A", {"12", "q3"}, {"", "x"}},
	    {"start: WORD (\" \" WORD)*\n%import common.WORD", {"ab", "ab c d"}, {"ab  c", " a"}},
	    {"start: /a.b/s \"\\n\" /\\/x/", {"a\nb\n/x"}, {"ab\n/x"}},
	};
	static const struct refuse_case wrong[] = {
	    {"a: \"x\"", SL_EINVAL, "the rule start is missing"},
	    {"start: b", SL_EINVAL, "1:8: b is not defined"},
	    {"start{x}: x", SL_EUNSUPPORTED, "1:1: templates are not supported"},
	    {"start: sep{A}\nA: \"a\"", SL_EUNSUPPORTED, "1:8: templates are not supported"},
	    {"%declare X\nstart: X", SL_EUNSUPPORTED, "1:1: %declare is not supported"},
	    {"%import python.NAME\nstart: NAME", SL_EUNSUPPORTED, "1:9: only"},
	    {"%import common.NOPE\nstart: NOPE", SL_EUNSUPPORTED, "common.NOPE is not known"},
	    {"start: /(a/", SL_EINVAL, "1:8: regular expression: a group does not end at offset 0"},
	    {"start: \"ab\"..\"c\"", SL_EINVAL, "a range must be from one character"},
	    {"start: A\nA: \"x\" A?", SL_EINVAL, "the terminal A refers to itself"},
	    {"start: (\"a\"", SL_EINVAL, "does not close"},
	};
	ACCEPT_TABLE(CONSTRAINT_LARK, cases);
	REFUSE_TABLE(CONSTRAINT_LARK, wrong);
}

/* Between two bytes 0xFF a grammar spells a control token (engine/grammar/vocab.h). None that a client writes has them:
 * escapes name characters, and text that is no UTF-8 is refused. */
static void no_client_spells_control_tokens(void **state)
{
	(void)state;
	static const struct accept_case gbnf[] = {
	    {"root ::= \"\\xFF<c>\\xFF\" [^a]", {"\xC3\xBF<c>\xC3\xBF!"}, {"\xFF<c>\xFF!", "\xC3\xBF<c>\xC3\xBF\xFF"}}};
	static const struct accept_case lark[] = {
	    {"start: \"\\xFF<c>\\xFF\"", {"\xC3\xBF<c>\xC3\xBF"}, {"\xFF<c>\xFF"}}};
	static const struct accept_case regex[] = {
	    {"\\xFF<c>\\xFF[^a]", {"\xC3\xBF<c>\xC3\xBF!"}, {"\xFF<c>\xFF!", "\xC3\xBF<c>\xC3\xBF\xFF"}}};
	static const struct refuse_case raw_gbnf[] = {{"root ::= \"\xFF<c>\xFF\"", SL_EINVAL, ""}};
	static const struct refuse_case raw_lark[] = {{"start: \"\xFF<c>\xFF\"", SL_EINVAL, ""}};
	static const struct refuse_case raw_regex[] = {{"\xFF<c>\xFF", SL_EINVAL, ""}};
	static const struct refuse_case raw_choice[] = {{"[\"\xFF<c>\xFF\"]", SL_EINVAL, ""}};
	static const struct refuse_case raw_schema[] = {{"{\"const\":\"\xFF<c>\xFF\"}", SL_EINVAL, ""}};
	ACCEPT_TABLE(CONSTRAINT_GBNF, gbnf);
	ACCEPT_TABLE(CONSTRAINT_LARK, lark);
	ACCEPT_TABLE(CONSTRAINT_REGEX, regex);
	REFUSE_TABLE(CONSTRAINT_GBNF, raw_gbnf);
	REFUSE_TABLE(CONSTRAINT_LARK, raw_lark);
	REFUSE_TABLE(CONSTRAINT_REGEX, raw_regex);
	REFUSE_TABLE(CONSTRAINT_CHOICE, raw_choice);
	REFUSE_TABLE(CONSTRAINT_JSON_SCHEMA, raw_schema);
}

static void test_choices(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {"[\"red\",\"green\",\"gr\\u00fcn\\n\"]",
	     {"red", "green", "gr\xC3\xBCn\n"},
	     {"", "re", "redgreen", "\"red\""}},
	    {"[\"\"]", {""}, {"x"}},
	};
	static const struct refuse_case wrong[] = {{"[]", SL_EINVAL, "at least one"},
						   {"{}", SL_EINVAL, "array of strings"},
						   {"[1]", SL_EINVAL, "array of strings"},
						   {"[", SL_EINVAL, "malformed JSON"}};
	ACCEPT_TABLE(CONSTRAINT_CHOICE, cases);
	REFUSE_TABLE(CONSTRAINT_CHOICE, wrong);
}

static void test_json_object(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {"",
	     {"{}", "{\"a\":[1,{\"b\":null}]}", "{ \"a\" : \"\\ud83d\\ude00\" } "},
	     {"[]", "1", "{\"a\"}", "{\"a\":1,}", "{\"a\":\"\\x\"}", ""}}};
	ACCEPT_TABLE(CONSTRAINT_JSON_OBJECT, cases);
}

#define CALL_FORM                                                                                                      \
	"{\"begin\":\"\",\"suffix\":\"}</"                                                                             \
	"c>\",\"separator\":\";\",\"end\":\"\",\"several\":true,\"calls\":[{\"prefix\":"                               \
	"\"<c>{\\\"f\\\":\",\"schema\":\"{\\\"enum\\\":[{\\\"a\\\":1},{\\\"a\\\":2}]}\"},{\"prefix\":\"<c>{\\\"g\\\":" \
	"\",\"schema\":\"{}\"}]"

/* Forced, and where the model may call. */
static void test_calls(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {CALL_FORM "}",
	     {"<c>{\"f\":{\"a\":1}}</c>", "<c>{\"g\":{\"b\":\"x\"}}</c>;<c>{\"f\":{\"a\":2}}</c>"},
	     {"", "x", "<c>{\"f\":{\"a\":3}}</c>"}},
	    {CALL_FORM ",\"triggers\":[\"<c>\"],\"at_will\":true}",
	     {"", "a < b, <cc>", "\xE2\x82\xAC <c<c>{\"f\":{\"a\":1}}</c>",
	      "<c>{\"g\":{}}</c>;<c>{\"f\":{\"a\":2}}</c>"},
	     {"<c>", "so <c>{\"f\":{\"a\":3}}</c>", "<c>{\"h\":{}}</c>", "<c>{\"g\":1}</c>",
	      "<c>{\"f\":{\"a\":1}}</c> x", "\xFF"}},
	};
	static const struct refuse_case wrong[] = {
	    {"{\"calls\":[]}", SL_EINVAL, "'calls' must be a list of tools"},
	    {"{\"calls\":[{}]}", SL_EINVAL, "'begin' must be a string"},
	    {CALL_FORM ",\"member\":\"x\",\"member_end\":\"\"}", SL_EINVAL, "'member' has no name"},
	    {CALL_FORM ",\"triggers\":[1],\"at_will\":true}", SL_EINVAL, "'triggers' must be strings"},
	};
	ACCEPT_TABLE(CONSTRAINT_CALLS, cases);
	REFUSE_TABLE(CONSTRAINT_CALLS, wrong);
}

/* Calls that count on from the conversation's. */
static void test_calls_numbered(void **state)
{
	(void)state;
#define NUMBERED(first, several)                                                                                    \
	"{\"begin\":\"[\",\"suffix\":\";\",\"separator\":\",\",\"end\":\"]\",\"number\":\"#\",\"first\":" first "," \
	"\"several\":" several ",\"calls\":[{\"prefix\":\"f:\",\"schema\":\"{\\\"enum\\\":[{\\\"a\\\":1}]}\"},"     \
	"{\"prefix\":\"g:\",\"schema\":\"{\\\"enum\\\":[{}]}\"}]}"
	static const struct accept_case cases[] = {
	    {NUMBERED("0", "true"),
	     {"[f:0#{\"a\":1};]", "[g:0#{};,f:1#{\"a\":1};,g:2#{};]"},
	     {"[]", "[f:1#{\"a\":1};]", "[g:0#{};,g:0#{};]", "[g:0#{};,g:2#{};]", "[g:00#{};]", "[g:#{};]"}},
	    {NUMBERED("9", "true"), {"[g:9#{};,g:10#{};,g:11#{};]"}, {"[g:0#{};]", "[g:9#{};,g:1#{};]"}},
	    {NUMBERED("3", "false"), {"[g:3#{};]"}, {"[g:3#{};,g:4#{};]", "[g:0#{};]"}},
	};
	ACCEPT_TABLE(CONSTRAINT_CALLS, cases);
}

/* Tokens among the literals are control tokens; where the model may call, text may spell them. */
static void test_calls_of_tokens(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {CALL_FORM ",\"tokens\":[\"<c>\",\"</c>\",\"<other>\"]}",
	     {"\xFF<c>\xFF{\"f\":{\"a\":1}}\xFF</c>\xFF",
	      "\xFF<c>\xFF{\"g\":{\"b\":\"<c>\"}}\xFF</c>\xFF;\xFF<c>\xFF{\"f\":{\"a\":2}}\xFF</c>\xFF"},
	     {"<c>{\"f\":{\"a\":1}}</c>", "\xFF<c>\xFF{\"f\":{\"a\":1}}</c>", "\xFF<c>{\"f\":{\"a\":1}}\xFF</c>\xFF"}},
	    {CALL_FORM ",\"tokens\":[\"<c>\"],\"triggers\":[\"<c>\"],\"at_will\":true}",
	     {"", "as in <c>", "so\xFF<c>\xFF{\"f\":{\"a\":1}}</c>"},
	     {"so\xFF<c>\xFF{\"f\":{\"a\":3}}</c>", "\xFF<c>\xFF", "\xFF<d>\xFF"}},
	};
	ACCEPT_TABLE(CONSTRAINT_CALLS, cases);
}

/* Harmony: messages before the call, or before the final one. */
static void test_calls_in_channels(void **state)
{
	(void)state;
#define CHANNELS                                                                                                       \
	"{\"begin\":\"\",\"suffix\":\"\",\"separator\":\"\",\"end\":\"\",\"channels\":true,\"tokens\":[\"<|start|>\"," \
	"\"<|channel|>\",\"<|message|>\",\"<|end|>\"],\"calls\":[{\"prefix\":\"<|channel|>commentary "                 \
	"to=f<|message|>\","                                                                                           \
	"\"schema\":\"{\\\"enum\\\":[{\\\"a\\\":1},{\\\"a\\\":2}]}\"}]"
#define CHANNEL(header) "\xFF<|channel|>\xFF" header "\xFF<|message|>\xFF"
#define NEXT                               \
	"\xFF<|end|>\xFF\xFF<|start|>\xFF" \
	"assistant"
	static const struct accept_case cases[] = {
	    {CHANNELS "}",
	     {CHANNEL("commentary to=f") "{\"a\":1}",
	      CHANNEL("analysis") "hm" NEXT CHANNEL("commentary to=f") "{\"a\":2}",
	      CHANNEL("analysis") "hm" NEXT CHANNEL("commentary") "I look" NEXT CHANNEL("commentary to=f") "{\"a\":2}"},
	     {"", CHANNEL("final") "x", CHANNEL("commentary to=f") "{\"a\":3}", CHANNEL("analysis") "hm"}},
	    {CHANNELS ",\"at_will\":true}",
	     {CHANNEL("final") "x", CHANNEL("analysis") "hm" NEXT CHANNEL("final") "y",
	      CHANNEL("commentary to=f") "{\"a\":1}"},
	     {"x", CHANNEL("commentary to=f") "{\"a\":3}", CHANNEL("commentary to=g") "{\"a\":1}"}},
	};
	ACCEPT_TABLE(CONSTRAINT_CALLS, cases);
}

#define TAG_FORM(schema)                                                                                               \
	"{\"begin\":\"\",\"suffix\":\"</f>\",\"separator\":\"\",\"end\":\"\",\"member\":\"<p=%s>\\n\",\"member_end\":" \
	"\"\\n</p>\\n\",\"calls\":[{\"prefix\":\"<f>\",\"schema\":\"" schema "\"}]}"
#define PARAM(name, value) "<p=" name ">\n" value "\n</p>\n"

/* Strings are texts, all else is JSON. */
static void test_calls_with_tags(void **state)
{
	(void)state;
	static const struct accept_case cases[] = {
	    {TAG_FORM(
		 "{\\\"properties\\\":{\\\"s\\\":{\\\"type\\\":\\\"string\\\",\\\"maxLength\\\":6},\\\"n\\\":{\\\"type"
		 "\\\":\\\"integer\\\"}},\\\"required\\\":[\\\"s\\\"],\\\"additionalProperties\\\":false}"),
	     {"<f>" PARAM("s", "a\"b") "</f>", "<f>" PARAM("s", "") PARAM("n", "-12") "</f>",
	      "<f>" PARAM("s", "12\n3") "</f>"},
	     {"<f></f>", "<f>" PARAM("s", "1234567") "</f>", "<f>" PARAM("n", "1") "</f>",
	      "<f>" PARAM("s", "</p>") "</f>", "<f>" PARAM("s", "a") PARAM("n", "x") "</f>",
	      "<f>" PARAM("s", "a") PARAM("m", "1") "</f>"}},
	    {TAG_FORM("{\\\"properties\\\":{\\\"e\\\":{\\\"enum\\\":[\\\"a\\\",\\\"1\\\",null]},\\\"o\\\":{\\\"$"
		      "ref\\\":\\\"#/"
		      "$defs/"
		      "o\\\"}},\\\"$defs\\\":{\\\"o\\\":{\\\"type\\\":\\\"array\\\",\\\"items\\\":{\\\"type\\\":"
		      "\\\"boolean\\\"}}}}"),
	     {"<f></f>", "<f>" PARAM("e", "a") PARAM("o", "[true]") "</f>", "<f>" PARAM("e", "null") "</f>"},
	     {"<f>" PARAM("e", "1") "</f>", "<f>" PARAM("e", "\"a\"") "</f>", "<f>" PARAM("o", "[1]") "</f>"}},
	    {TAG_FORM("{\\\"type\\\":\\\"object\\\"}"),
	     {"<f></f>", "<f>" PARAM("any", "{x") PARAM("b", "1") "</f>"},
	     {"<f>" PARAM("", "x") "</f>", "<f>x</f>"}},
	};
	ACCEPT_TABLE(CONSTRAINT_CALLS, cases);
}

static void test_kinds(void **state)
{
	(void)state;
	struct rules *rules;
	struct sl_err err = {0};
	assert_int_equal(constraint_rules(CONSTRAINT_NONE, "", 0, NULL, &rules, &err), SL_EINVAL);
	assert_int_equal(constraint_rules(CONSTRAINT_KINDS, "", 0, NULL, &rules, NULL), SL_EINVAL);
	struct constraint_limits limits = {.max_work = 10};
	assert_int_equal(constraint_rules(CONSTRAINT_GBNF,
					  "root ::= \"a\" | \"b\" | \"c\" | \"d\" | \"e\" | \"f\" | \"g\" | \"h\"", 54,
					  &limits, &rules, &err),
			 SL_ELIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_gbnf),
					   cmocka_unit_test(no_client_spells_control_tokens),
					   cmocka_unit_test(test_lark),
					   cmocka_unit_test(test_choices),
					   cmocka_unit_test(test_json_object),
					   cmocka_unit_test(test_calls),
					   cmocka_unit_test(test_calls_numbered),
					   cmocka_unit_test(test_calls_of_tokens),
					   cmocka_unit_test(test_calls_in_channels),
					   cmocka_unit_test(test_calls_with_tags),
					   cmocka_unit_test(test_kinds)};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
