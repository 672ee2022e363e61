/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress: no line for what takes less than a second, one a second afterwards, percents at most four times a second.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/progress.h"

static const uint64_t ms = NS_PER_MS;

static void lines(void **state)
{
	(void)state;
	struct progress p = {0};
	char line[64];
	uint64_t t = 5000 * ms;
	assert_false(progress_says(&p, t));
	assert_false(progress_says(&p, t + 999 * ms));
	assert_true(progress_says(&p, t + 1000 * ms));
	assert_false(progress_says(&p, t + 1999 * ms));
	assert_true(progress_says(&p, t + 2000 * ms));
	assert_string_equal(progress_line(&p, 824000000, 3296000000, t + 2000 * ms, line, sizeof line),
			    "25 %, 412 MB/s, 6 s left");
	assert_string_equal(progress_line(&p, 4000000, 8000000, t + 2000 * ms, line, sizeof line),
			    "50 %, 2.0 MB/s, 2 s left");
	assert_string_equal(progress_line(&p, 0, 10, t, line, sizeof line), "0 %");
	assert_string_equal(progress_line(&p, 11, 10, t + 2000 * ms, line, sizeof line), "100 %");
	assert_int_equal(progress_percent(0, 0), 100);
	assert_int_equal(progress_percent(999, 1000), 99);
	assert_int_equal(progress_percent(UINT64_MAX - 1, UINT64_MAX), 100);
}

static void percents(void **state)
{
	(void)state;
	struct progress p = {0};
	uint64_t t = 5000 * ms;
	assert_false(progress_tells(&p, 0, 100, t)); /* as it was */
	assert_true(progress_tells(&p, 1, 100, t));
	assert_false(progress_tells(&p, 50, 100, t + 249 * ms));
	assert_true(progress_tells(&p, 50, 100, t + 250 * ms));
	assert_false(progress_tells(&p, 50, 100, t + 900 * ms));
	assert_true(progress_tells(&p, 51, 100, t + 900 * ms));
	assert_int_equal(p.percent, 51);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(percents)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
