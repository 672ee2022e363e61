/* SPDX-License-Identifier: Apache-2.0
 *
 * How a range reads in an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/range.h"

static void reads_as_english(void **state)
{
	static const struct {
		double lo, hi;
		bool above;
		const char *want;
	} cases[] = {{1, 2147483647, false, "between 1 and 2147483647"},
		     {-100, 100, false, "between -100 and 100"},
		     {0, 0.5, false, "between 0 and 0.5"},
		     {1, INFINITY, false, "at least 1"},
		     {-INFINITY, 5, false, "at most 5"},
		     {0, 2, true, "above 0 and at most 2"},
		     {0, INFINITY, true, "above 0"},
		     {-INFINITY, INFINITY, false, "a number"}};
	char out[80];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_string_equal(range_of(cases[i].lo, cases[i].above, cases[i].hi, out, sizeof out), cases[i].want);
	assert_string_equal(range_text("1", false, "1GiB", out, sizeof out), "between 1 and 1GiB");
	assert_string_equal(range_text("1", false, "1GiB", out, 8), "between");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(reads_as_english)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
