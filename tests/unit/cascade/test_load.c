/* SPDX-License-Identifier: Apache-2.0
 *
 * Load and budgets: hysteresis, order of tiers, and how a tier comes back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "cascade/budget.h"

static const struct casc_load_policy policy = {1000, 0.7f, 500, 2000, 10000};

static bool at(struct casc_load *l, uint64_t now_ms, uint32_t ttft)
{
	const struct casc_load_in in = {.now_ms = now_ms, .ttft_small_ms = 10, .ttft_large_ms = ttft};
	return casc_load_decide(l, &policy, &in);
}

static void hysteresis(void **state)
{
	(void)state;
	struct casc_load l = {0};
	assert_false(at(&l, 0, 500));
	/* A moment above is not enough. */
	assert_false(at(&l, 100, 2000));
	assert_false(at(&l, 500, 2000));
	assert_false(at(&l, 550, 900));
	assert_false(at(&l, 600, 2000));
	assert_false(at(&l, 1099, 2000));
	assert_true(at(&l, 1100, 2000));
	assert_true(casc_load_degraded(&l));
	/* Between the bounds nothing changes, however long. */
	assert_true(at(&l, 50000, 800));
	assert_true(at(&l, 90000, 701));
	/* Below, but not for long enough. */
	assert_true(at(&l, 100000, 100));
	assert_true(at(&l, 101999, 100));
	assert_true(at(&l, 101999, 800));
	assert_true(at(&l, 102000, 100));
	assert_true(at(&l, 103999, 100));
	/* Now it recovers: nobody at once, then more and more. */
	assert_true(at(&l, 104000, 100));
	assert_false(casc_load_degraded(&l));
	int n[4] = {0};
	for (int i = 0; i < 1000; i++)
		n[i / 250] += !at(&l, 104000 + (uint64_t)i * 10, 100);
	assert_in_range(n[0], 20, 45); /* a quarter of the way: an eighth of 250 */
	assert_in_range(n[1], 80, 110);
	assert_in_range(n[2], 140, 170);
	assert_in_range(n[3], 205, 230);
	assert_false(at(&l, 114000, 100));
	assert_int_equal(l.state, CASC_NORMAL);
}

static void a_relapse(void **state)
{
	(void)state;
	struct casc_load l = {0};
	at(&l, 0, 2000);
	assert_true(at(&l, 500, 2000));
	at(&l, 1000, 100);
	at(&l, 3000, 100);
	assert_int_equal(l.state, CASC_RECOVERING);
	assert_true(at(&l, 9000, 1500));
	assert_int_equal(l.state, CASC_DEGRADED);
}

static void order_of_tiers(void **state)
{
	(void)state;
	struct casc_load l = {0};
	struct casc_load_in in = {.now_ms = 5, .ttft_small_ms = 10, .ttft_large_ms = 100, .better_degraded = true};
	assert_true(casc_load_decide(&l, &policy, &in));
	/* A small model that is no sooner helps nobody. */
	in.ttft_small_ms = 100;
	assert_false(casc_load_decide(&l, &policy, &in));
	/* No target, no degradation. */
	struct casc_load_policy none = policy;
	none.target_ms = 0;
	assert_false(casc_load_decide(&l, &none, &in));
	assert_false(casc_load_degraded(&l));
}

static void clocks_that_go_back(void **state)
{
	(void)state;
	struct casc_load l = {0};
	at(&l, 10000, 2000);
	assert_false(at(&l, 5000, 2000));
	assert_true(at(&l, 10500, 2000));
	struct casc_budget b = {0};
	casc_budget_request(&b, 100000);
	casc_budget_request(&b, 5);
	uint32_t sum = 0;
	for (int i = 0; i < CASC_SLOTS; i++)
		sum += b.requests[i];
	assert_int_equal(sum, 2);
}

static void budgets(void **state)
{
	(void)state;
	struct casc_budget b = {0};
	struct casc_policy p = {.share = 0.25f, .floor = 1};
	/* The floor, before there was any request. */
	assert_true(casc_budget_take(&b, &p, 0));
	assert_false(casc_budget_take(&b, &p, 0));
	for (int i = 0; i < 100; i++)
		casc_budget_request(&b, (uint64_t)i * 100);
	int n = 1;
	while (casc_budget_take(&b, &p, 10000))
		n++;
	assert_int_equal(n, 25);
	/* What is older than a minute is forgotten, first the requests of the first slot. */
	assert_false(casc_budget_take(&b, &p, 59999));
	for (int i = 0; i < 8; i++)
		casc_budget_request(&b, 70000);
	assert_true(casc_budget_take(&b, &p, 70000));
	assert_true(casc_budget_take(&b, &p, 70000));
	assert_false(casc_budget_take(&b, &p, 70000));
	/* After a long silence only the floor. */
	assert_true(casc_budget_take(&b, &p, 900000000));
	assert_false(casc_budget_take(&b, &p, 900000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(hysteresis), cmocka_unit_test(a_relapse),
					   cmocka_unit_test(order_of_tiers), cmocka_unit_test(clocks_that_go_back),
					   cmocka_unit_test(budgets)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
