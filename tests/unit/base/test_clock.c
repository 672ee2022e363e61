/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock that tests drive, and times between its readings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"

static void a_faked_clock_stands_until_it_is_moved(void **state)
{
	(void)state;
	uint64_t now = 5;
	clock_fake(&now);
	assert_int_equal(clock_now_ns(), 5);
	now = 7;
	assert_int_equal(clock_now_ns(), 7);
	clock_fake(NULL);
	uint64_t real = clock_now_ns();
	assert_true(real > 7);
	assert_true(clock_now_ns() >= real);
}

static void what_was_never_read_took_no_time(void **state)
{
	(void)state;
	assert_int_equal(clock_us_between(1000, 1000), 0);
	assert_int_equal(clock_us_between(1000, 1999), 0);
	assert_int_equal(clock_us_between(1000, 2000), 1);
	assert_int_equal(clock_us_between(0, 2000), 0);
	assert_int_equal(clock_us_between(2000, 1000), 0);
	assert_int_equal(clock_us_between(1, 1 + UINT64_C(1000) * UINT32_MAX), UINT32_MAX);
	assert_int_equal(clock_us_between(1, UINT64_MAX), UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_faked_clock_stands_until_it_is_moved),
	    cmocka_unit_test(what_was_never_read_took_no_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
