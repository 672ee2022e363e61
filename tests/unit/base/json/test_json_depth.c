/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json/json_depth.h"

static bool deeper(const char *text, size_t max) { return json_deeper_than(text, strlen(text), max); }

static void test_depths(void **arg)
{
	(void)arg;
	assert_false(deeper("", 0));
	assert_false(deeper("1", 0));
	assert_true(deeper("[", 0));
	assert_false(deeper("[{}]", 2));
	assert_true(deeper("[{\"a\":[]}]", 2));
	assert_false(deeper("[[],[],{},[]]", 2));
	/* Brackets in strings, behind escapes and in a string that does not end are text. */
	assert_false(deeper("[\"[[[\\\"[[[\\\\\"]", 1));
	assert_false(deeper("[\"[[[[", 1));
	/* Too many closing ones give no credit. */
	assert_true(deeper("]]]]][[", 1));
}

static size_t weight(const char *text)
{
	size_t w = 0;
	assert_true(json_measure(text, strlen(text), SIZE_MAX, &w));
	return w;
}

static void test_weights(void **arg)
{
	(void)arg;
	assert_int_equal(weight(""), 0);
	assert_int_equal(weight("1"), 0);
	assert_int_equal(weight("[1,2,3]"), 10);
	assert_int_equal(weight("{\"a\":1,\"b\":[]}"), 8 + 4 + 1 + 4 + 8);
	assert_int_equal(weight("[\"{[,:\\\"{[,:\"]"), 8);
	assert_int_equal(weight("[\"[[[["), 8);
	assert_int_equal(weight("]]}}"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_depths), cmocka_unit_test(test_weights)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
