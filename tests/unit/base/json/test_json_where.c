/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of places in a JSON text: each row's text ends where the value does that is asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json/json_where.h"

static const struct {
	const char *text, *want;
} rows[] = {
    {"", ""},
    {"17", ""},
    {"{\"seed\":17", "seed"},
    {" {\n \"seed\" : 17", "seed"},
    {"{\"a\":1,\"b\":2", "b"},
    {"{\"a\":{\"x\":1,\"y\":2},\"b\":3", "b"},
    {"{\"a\":[1,[2,3]],\"b\":[4,{\"c\":[5,6", "b[1].c[1]"},
    {"[[1],[2", "[1][0]"},
    {"{\"a,}]{[\":\"x,\\\"}\",\"b\\\"c\":1", "b\\\"c"},
    {"{\"a\":\"b\",\"c\":\"\\\\\",\"d\":1", "d"},
    {"{\"prompt\":[1,2", "prompt[1]"},
    {"{\"a\":[[[[[[[[[1,2]]]]]]]]],\"b\":[1", "b[0]"},
    {"{\"a\":[[[[[[[[[1,2", "a[0][0][0][0][0][0][0]"},
    {"}]},1", ""},
    {"{\"a", ""},
    {"{\"", ""},
    {"{\"a\\", ""},
};

static void places_have_names(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char got[96];
		json_where(rows[i].text, strlen(rows[i].text), got, sizeof got);
		if (strcmp(got, rows[i].want) != 0)
			fail_msg("%s: \"%s\", not \"%s\"", rows[i].text, got, rows[i].want);
	}
}

static void what_does_not_fit_is_left_out(void **unused)
{
	(void)unused;
	static const char text[] = "{\"abc\":[{\"defgh\":[1,2";
	static const char *const want[] = {"",       "",       "",       "",       "abc",    "abc",   "abc",
					   "abc[0]", "abc[0]", "abc[0]", "abc[0]", "abc[0]", "abc[0]"};
	for (size_t room = 1; room < 13; room++) {
		char got[16];
		memset(got, 'x', sizeof got);
		json_where(text, sizeof text - 1, got, room);
		assert_string_equal(got, want[room]);
		assert_int_equal(got[room], 'x');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(places_have_names),
	    cmocka_unit_test(what_does_not_fit_is_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
