/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over JSON: good texts by their parts, malformed ones by the fault that is named, every
 * prefix of a text, and escapes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/json/json_scan.h"

static void test_walk(void **arg)
{
	(void)arg;
	static const char text[] =
	    " { \"a\" : [ 1 , 22,\"x\\\"y\" ,{} , []] ,\"b\":{\"c\":-1.5e+3,\"d\":null},\"e\":true } ";
	struct json_scan s;
	struct proto_str str;
	uint64_t n;
	json_scan_init(&s, text, sizeof text - 1);
	assert_int_equal(json_scan_peek(&s), '{');
	assert_true(json_scan_object(&s));
	assert_true(json_scan_key(&s, &str));
	assert_true(str.n == 1 && str.at[0] == 'a');
	assert_true(json_scan_array(&s));
	assert_true(json_scan_item(&s) && json_scan_uint(&s, &n) && n == 1);
	assert_true(json_scan_item(&s) && json_scan_uint(&s, &n) && n == 22);
	assert_true(json_scan_item(&s) && json_scan_string(&s, &str) && str.n == 4);
	assert_true(json_scan_item(&s) && json_scan_skip(&s));
	assert_true(json_scan_item(&s) && json_scan_array(&s));
	assert_false(json_scan_item(&s));
	assert_false(json_scan_item(&s));
	assert_true(json_scan_key(&s, &str) && json_scan_skip(&s));
	assert_true(json_scan_key(&s, &str) && json_scan_peek(&s) == 't' && json_scan_skip(&s));
	assert_false(json_scan_key(&s, &str));
	assert_true(json_scan_end(&s));
	/* All of it is one value to skip. */
	json_scan_init(&s, text, sizeof text - 1);
	assert_true(json_scan_skip(&s) && json_scan_end(&s));
}

static const char *fault_of(const char *text)
{
	struct json_scan s;
	json_scan_init(&s, text, strlen(text));
	json_scan_skip(&s);
	return json_scan_end(&s) ? NULL : s.bad;
}

static void test_malformed(void **arg)
{
	(void)arg;
	static const struct {
		const char *text, *fault;
	} wrong[] = {
	    {"", "a value is missing"},
	    {"{", "not a string"},
	    {"{\"a\"}", "a colon is missing"},
	    {"{\"a\":}", "a value is missing"},
	    {"{\"a\":1 \"b\":2}", "a comma or }"},
	    {"[1 2]", "a comma or ]"},
	    {"[1,]", "a value is missing"},
	    {"[1", "a comma or ]"},
	    {"\"a", "a string does not end"},
	    {"\"a\\\"", "a string does not end"},
	    {"\"a\nb\"", "a control character"},
	    {"{} {}", "more follows"},
	    {"{\"a\":1,}", "not a string"},
	    {"]", "a value is missing"},
	    {"[todo]", "a value is missing"},
	    {"-", "a value is missing"},
	    {"[1.]", "no digit after its point"},
	    {"[1e+]", "no exponent"},
	    {"[truest]", "a comma or ]"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		const char *fault = fault_of(wrong[i].text);
		if (fault == NULL || strstr(fault, wrong[i].fault) == NULL)
			fail_msg("%s: \"%s\", not \"%s\"", wrong[i].text, fault ? fault : "none", wrong[i].fault);
	}
	assert_null(fault_of("[-1.5e+10, 0, 2E7, true, false, null]"));
	char deep[200];
	memset(deep, '[', 100);
	memset(deep + 100, ']', 99);
	deep[199] = '\0';
	assert_string_equal(fault_of(deep), "nested too deep");
	assert_null(
	    fault_of("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]"
		     "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"));
	struct json_scan s;
	uint64_t n;
	static const char *const no_uint[] = {"-1", "1.0", "1e3", "18446744073709551616", "x", ""};
	for (size_t i = 0; i < sizeof no_uint / sizeof *no_uint; i++) {
		json_scan_init(&s, no_uint[i], strlen(no_uint[i]));
		assert_false(json_scan_uint(&s, &n));
		assert_non_null(s.bad);
	}
	json_scan_init(&s, "18446744073709551615", 20);
	assert_true(json_scan_uint(&s, &n) && n == UINT64_MAX);
}

/* No prefix of a text is a text, and none is read past its end (a copy of the exact size). */
static void test_prefixes(void **arg)
{
	(void)arg;
	static const char text[] = "{\"a\\u00e9\":[1,{\"b\":\"c\\\\\"}],\"d\":{}}";
	for (size_t n = 0; n < sizeof text - 1; n++) {
		struct json_scan s;
		char *copy = malloc(n ? n : 1);
		memcpy(copy, text, n);
		json_scan_init(&s, copy, n);
		json_scan_skip(&s);
		assert_false(json_scan_end(&s));
		free(copy);
	}
	assert_null(fault_of(text));
}

static void unescaped(const char *raw, const char *want)
{
	char out[64];
	size_t n = json_unescape((struct proto_str){.at = raw, .n = strlen(raw)}, out);
	if (want == NULL) {
		assert_true(n == SIZE_MAX);
		return;
	}
	assert_int_equal(n, strlen(want));
	assert_memory_equal(out, want, n);
}

static void test_unescape(void **arg)
{
	(void)arg;
	unescaped("plain", "plain");
	unescaped("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t");
	unescaped("\\u0041\\u00e9\\u20AC\\ud83d\\ude00", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	unescaped("\\ud83dx\\ude00", "\xef\xbf\xbdx\xef\xbf\xbd");
	unescaped("\\ud83d\\u0041", "\xef\xbf\xbd"
				    "A");
	unescaped("\\u12", NULL);
	unescaped("\\u12g4", NULL);
	unescaped("\\x", NULL);
	unescaped("\\", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_walk),
	    cmocka_unit_test(test_malformed),
	    cmocka_unit_test(test_prefixes),
	    cmocka_unit_test(test_unescape),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
