/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: regular expressions: a table, and random ones against PCRE2.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>

#include "tests/unit/engine/constraint/accept.h"

static const struct accept_case whole[] = {
    {"a|bc*", {"a", "b", "bccc"}, {"", "ab", "c"}},
    {"[^a-c]\\d{2,3}?",
     {"x12", "\xE2\x82\xAC"
	     "123"},
     {"a12", "x1", "x1234"}},
    {"(?:ab)+?(c)?(?<n>d)", {"abd", "ababcd"}, {"cd", "abc"}},
    {"\\u{1F600}\\uD83D\\uDE00\\x41\\t\\cJ\\0?",
     {"\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
      "A\t\n"},
     {"A"}},
    {"[\\w-.]+", {"a-b.c"}, {"a b", ""}},
    {"\\p{Lu}\\P{L}\\p{Script_Placeholder}?", {NULL}, {NULL}},
    {".", {"a", "\xE2\x82\xAC"}, {"\n", "\r", "\xE2\x80\xA8", "ab", "\xFF"}},
    {"^a$", {"a"}, {"aa", ""}},
    {"a{}{,3}{x", {"a{}{,3}{x"}, {"a"}},
    {"(?=.*\\d)(?=.*[a-z]).{3,}", {"a1b", "xx1"}, {"abc", "123", "a1"}},
    {"(?!foo)\\w+", {"bar", "fo"}, {"foo", "foobar"}},
    {"((?!foo).)*", {"bar", "fofo", ""}, {"afoo", "foo"}},
    {"a\\b.\\bb", {"a b", "a-b"}, {"axb", "a_b"}},
    {"a\\Bb", {"ab"}, {"a b"}},
    {"(?!-)[a-z-]{1,5}(?<!-)", {"a", "a-b", "abcde"}, {"-a", "a-", "-", "abcdef"}},
    {"[ab]+(?<=b)c?", {"ab", "abc"}, {"a", "ac", "c"}},
    {"(?<!a)b.*", {"b", "bc"}, {"ab"}},
    {"(?i)aB", {"ab", "AB"}, {"ac"}},
    {"[\\s\\S]", {"\n", "x"}, {"xx"}},
    {"[]a", {NULL}, {"a", "]a"}},
    {"[^]a", {"xa"}, {"a"}},
};

static void test_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		if (strstr(whole[i].source, "Placeholder") == NULL && strcmp(whole[i].source, "[]a") != 0)
			accept_table(CONSTRAINT_REGEX, &whole[i], 1);
}

static const struct accept_case searched[] = {
    {"{\"type\":\"string\",\"pattern\":\"b+\"}", {"\"abc\""}, {"\"ac\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\""}, {"\"xax\"", "\"bx\""}},
    {"{\"type\":\"string\",\"pattern\":\"\\\\bcat\\\\b\"}", {"\"cat\"", "\"a cat.\""}, {"\"cats\"", "\"scat\""}},
    {"{\"type\":\"string\",\"pattern\":\"^$|^x\"}", {"\"\"", "\"xy\""}, {"\"y\""}},
    {"{\"type\":\"string\",\"pattern\":\"[0-9]{3,5}\"}", {"\"a1234567\"", "\"123\""}, {"\"12a45\""}},
    {"{\"type\":\"string\",\"pattern\":\"a$b\"}", {NULL}, {"\"a\""}},
};

static void test_searched(void **state)
{
	(void)state;
	accept_table(CONSTRAINT_JSON_SCHEMA, searched, 5);
}

static void test_refused(void **state)
{
	(void)state;
	static const struct refuse_case cases[] = {
	    {"(a", SL_EINVAL, "a group does not end at offset 0"},
	    {"a)", SL_EINVAL, "offset 1"},
	    {"*a", SL_EINVAL, "nothing to repeat at offset 0"},
	    {"a**", SL_EINVAL, "nothing to repeat"},
	    {"[b-a]", SL_EINVAL, "out of order at offset 1"},
	    {"[a", SL_EINVAL, "a class does not end"},
	    {"a{3,2}", SL_EINVAL, "out of order"},
	    {"\\", SL_EINVAL, "backslash"},
	    {"\\y", SL_EINVAL, "\\y is not an escape"},
	    {"(a)\\1", SL_EUNSUPPORTED, "backreferences"},
	    {"(?<n>a)\\k<n>", SL_EUNSUPPORTED, "backreferences"},
	    {"(?<=ab)b", SL_EUNSUPPORTED, "lookbehinds"},
	    {"(?<!a)b(?<=c)", SL_EUNSUPPORTED, "lookbehinds"},
	    {"\\p{Script=Greek}", SL_EUNSUPPORTED, "Script=Greek"},
	    {"(?:(?=a)aa)*b", SL_EUNSUPPORTED, "inside an unbounded repetition"},
	    {"[]", SL_EINVAL, "no string"},
	};
	REFUSE_TABLE(CONSTRAINT_REGEX, cases);
}

/* ---- random expressions against PCRE2, where both mean the same ---- */

static uint64_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

static void add(char *out, const char *text) { strcat(out, text); }

static void make(char *out, int depth)
{
	static const char *const atoms[] = {"a", "b", "[ab]", "[^a]", ".", "\\w", "^", "$", "\\b", "\\B", "-", "ab"};
	static const char *const times[] = {"*", "+", "?", "{2}", "{1,2}", "{0,3}", "*?", "{2,}"};
	uint32_t kind = depth == 0 || strlen(out) > 60 ? 0 : below(8);
	if (kind < 3) {
		add(out, atoms[below(12)]);
	} else if (kind == 3) {
		add(out, "(?:");
		make(out, depth - 1);
		add(out, "|");
		make(out, depth - 1);
		add(out, ")");
	} else if (kind == 4) {
		static const char *const plain[] = {"a", "b", "[ab]", "(?:ab)", "(?:a|b-)"};
		add(out, plain[below(5)]);
		add(out, times[below(8)]);
	} else if (kind == 5) {
		add(out, below(2) ? "(?=" : "(?!");
		make(out, depth - 1);
		add(out, ")");
	} else {
		make(out, depth - 1);
		make(out, depth - 1);
	}
}

static bool pcre_matches(const char *expression, bool search, const char *text, size_t n)
{
	int code;
	PCRE2_SIZE at;
	uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | (search ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED);
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
	assert_non_null(re);
	pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
	int rc = pcre2_match(re, (PCRE2_SPTR)text, n, 0, 0, data, NULL);
	pcre2_match_data_free(data);
	pcre2_code_free(re);
	return rc >= 0;
}

/* Intersections that the automaton cannot search in its bounds. */
static int too_hard;

static void compare(const char *expression, bool search)
{
	char schema[400], text[40];
	size_t n = 0;
	struct sl_err err;
	n = (size_t)snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"");
	for (const char *p = expression; *p != '\0'; p++)
		n += (size_t)snprintf(schema + n, sizeof schema - n, *p == '\\' ? "\\%c" : "%c", *p);
	snprintf(schema + n, sizeof schema - n, "\"}");
	struct grammar *g = accept_compile(search ? CONSTRAINT_JSON_SCHEMA : CONSTRAINT_REGEX,
					   search ? schema : expression, strlen(search ? schema : expression), &err);
	too_hard += err.code == SL_ELIMIT;
	for (uint32_t i = 0; i < 341 && err.code != SL_ELIMIT; i++) { /* all texts of up to 4 of a, b, -, space */
		uint32_t len = i < 1 ? 0 : i < 5 ? 1 : i < 21 ? 2 : i < 85 ? 3 : 4;
		uint32_t v = i - (len == 0 ? 0 : len == 1 ? 1 : len == 2 ? 5 : len == 3 ? 21 : 85);
		for (uint32_t k = 0; k < len; k++, v /= 4)
			text[1 + k] = "ab- "[v % 4];
		text[0] = '"';
		bool expected = pcre_matches(expression, search, text + 1, len);
		text[1 + len] = search ? '"' : '\0';
		text[2 + len] = '\0';
		bool got = g != NULL && accept_walk(g, search ? text : text + 1, strlen(search ? text : text + 1));
		if (expected != got)
			fail_msg("%s (%s): %s is %s; %s", expression, search ? "search" : "whole", text,
				 got ? "accepted" : "refused", err.text);
	}
	if (g != NULL)
		grammar_unref(g);
}

static void test_random(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 300; i++) {
		char expression[400] = "";
		seed = i;
		make(expression, 3);
		compare(expression, i % 2 == 0);
	}
	assert_true(too_hard <= 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_searched),
					   cmocka_unit_test(test_refused), cmocka_unit_test(test_random)};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
