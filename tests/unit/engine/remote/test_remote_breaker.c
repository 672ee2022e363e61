/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/remote/remote_breaker.h"

enum { COOL = 1000 };

static void opens_after_failures_in_a_row(void **state)
{
	(void)state;
	struct breaker b;
	breaker_init(&b, 3, COOL);
	assert_false(breaker_closed(&b));
	assert_true(breaker_ok(&b, true));
	assert_false(breaker_failed(&b, false, 1));
	assert_false(breaker_failed(&b, false, 2));
	assert_false(breaker_ok(&b, false)); /* in a row means in a row */
	assert_false(breaker_failed(&b, false, 3));
	assert_false(breaker_failed(&b, false, 4));
	assert_true(breaker_closed(&b));
	assert_true(breaker_failed(&b, false, 5));
	assert_false(breaker_closed(&b));
	assert_int_equal(b.n_openings, 1);
}

static void one_probe_after_the_cool_down(void **state)
{
	(void)state;
	struct breaker b;
	breaker_init(&b, 1, COOL);
	breaker_ok(&b, true);
	assert_false(breaker_may_probe(&b, 50)); /* it is closed */
	assert_true(breaker_failed(&b, false, 100));
	assert_false(breaker_may_probe(&b, 100 + COOL - 1));
	assert_true(breaker_may_probe(&b, 100 + COOL));
	assert_int_equal(b.state, BREAKER_HALF_OPEN);
	assert_false(breaker_may_probe(&b, 100 + COOL)); /* it is on its way */
	assert_false(breaker_failed(&b, false, 1200));   /* a request from before says nothing of now */
	assert_int_equal(b.state, BREAKER_HALF_OPEN);
	assert_false(breaker_ok(&b, false));
	assert_int_equal(b.state, BREAKER_HALF_OPEN);
	breaker_failed(&b, true, 1300);
	assert_int_equal(b.state, BREAKER_OPEN);
	assert_false(breaker_may_probe(&b, 1300 + COOL - 1)); /* it cools down anew */
	assert_true(breaker_may_probe(&b, 1300 + COOL));
	assert_int_equal(b.n_openings, 1);
	assert_true(breaker_ok(&b, true));
	assert_true(breaker_closed(&b));
}

static void a_list_of_models_is_no_answer(void **state)
{
	(void)state;
	struct breaker b;
	breaker_init(&b, 2, COOL);
	breaker_ok(&b, true);
	breaker_failed(&b, false, 1);
	breaker_ok(&b, true);
	assert_true(breaker_failed(&b, false, 2));
	breaker_init(&b, 2, COOL);
	breaker_ok(&b, true);
	breaker_failed(&b, true, 1); /* but it makes up for a failed probe */
	breaker_ok(&b, true);
	assert_false(breaker_failed(&b, true, 2));
}

static void an_upstream_that_was_never_there(void **state)
{
	(void)state;
	struct breaker b;
	breaker_init(&b, 2, COOL);
	breaker_failed(&b, true, 1);
	assert_int_equal(b.state, BREAKER_UNKNOWN);
	breaker_failed(&b, true, 2);
	assert_int_equal(b.state, BREAKER_OPEN);
	assert_int_equal(b.n_openings, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(opens_after_failures_in_a_row),
	    cmocka_unit_test(one_probe_after_the_cool_down),
	    cmocka_unit_test(a_list_of_models_is_no_answer),
	    cmocka_unit_test(an_upstream_that_was_never_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
