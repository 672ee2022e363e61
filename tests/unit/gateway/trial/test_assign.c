/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "gateway/trial/trial.h"

enum { USERS = 10000 };

static struct trial_choice choices[3] = {{0x1111, 90}, {0x2222, 7}, {0x3333, 3}};

static void count(const struct trial_choice *of, int n[3])
{
	memset(n, 0, 3 * sizeof *n);
	for (uint64_t u = 0; u < USERS; u++)
		n[trial_assign(of, 3, u * 0x9e3779b97f4a7c15u)]++;
}

static void shares_follow_the_weights(void **state)
{
	(void)state;
	int n[3];
	count(choices, n);
	for (int i = 0; i < 3; i++) {
		double p = choices[i].weight / 100, sd = sqrt(USERS * p * (1 - p));
		assert_true(fabs(n[i] - USERS * p) <= 3 * sd);
	}
}

static void a_user_keeps_its_variant(void **state)
{
	(void)state;
	/* Known ones: another build, another machine, another order of variants give the same. */
	static const uint8_t of[64] = {[6] = 1,  [18] = 1, [23] = 1, [35] = 1, [36] = 2, [46] = 1, [47] = 1,
				       [48] = 2, [53] = 1, [55] = 1, [59] = 1, [61] = 1, [62] = 2};
	const struct trial_choice turned[3] = {choices[2], choices[0], choices[1]};
	static const int back[3] = {2, 0, 1};
	for (uint64_t u = 0; u < 64; u++) {
		assert_int_equal(trial_assign(choices, 3, u), of[u]);
		assert_int_equal(back[trial_assign(turned, 3, u)], of[u]);
	}
}

static void a_weight_moves_no_more_than_it_must(void **state)
{
	(void)state;
	struct trial_choice more[3];
	memcpy(more, choices, sizeof more);
	more[1].weight = 20; /* its share from 7 % to 20 of 113 */
	int moved = 0;
	for (uint64_t u = 0; u < USERS; u++) {
		uint64_t who = u * 0x9e3779b97f4a7c15u;
		int before = trial_assign(choices, 3, who), after = trial_assign(more, 3, who);
		if (before == after)
			continue;
		assert_int_equal(after, 1);
		moved++;
	}
	double p = 20.0 / 113 - 0.07;
	assert_true(fabs(moved - USERS * p) <= 3 * sqrt(USERS * p * (1 - p)));
}

static void a_variant_that_goes_leaves_the_others_alone(void **state)
{
	(void)state;
	struct trial_choice less[3];
	memcpy(less, choices, sizeof less);
	less[2].weight = 0;
	for (uint64_t u = 0; u < USERS; u++) {
		int before = trial_assign(choices, 3, u), after = trial_assign(less, 3, u);
		assert_true(before == after || before == 2);
		assert_int_not_equal(after, 2);
	}
	less[0].weight = less[1].weight = 0;
	assert_int_equal(trial_assign(less, 3, 1), -1);
	assert_int_equal(trial_assign(less, 0, 1), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shares_follow_the_weights),
	    cmocka_unit_test(a_user_keeps_its_variant),
	    cmocka_unit_test(a_weight_moves_no_more_than_it_must),
	    cmocka_unit_test(a_variant_that_goes_leaves_the_others_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
