/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

static void test_one_line(void **arg)
{
	struct sl_err err = {0};
	(void)arg;
	assert_int_equal(sl_errf(&err, SL_EINVAL, "%s: \"%s\"", "f.gguf", "a\nb\x1b[31m\x7f 한"), SL_EINVAL);
	assert_int_equal(err.code, SL_EINVAL);
	assert_string_equal(err.text, "f.gguf: \"a?b?[31m? 한\"");
	assert_int_equal(sl_errf(NULL, SL_EIO, "nobody reads this"), SL_EIO);
}

static void test_long(void **arg)
{
	struct sl_err err;
	char text[2048];
	(void)arg;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	sl_errf(&err, SL_ELIMIT, "%s", text);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void test_names(void **arg)
{
	(void)arg;
	for (int code = SL_ERANGE; code <= SL_OK; code++)
		assert_string_not_equal(sl_code_name(code), sl_code_name(-1000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_line),
	    cmocka_unit_test(test_long),
	    cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
