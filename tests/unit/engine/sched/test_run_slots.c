/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots: who gets one when, and waits that are foreseen exactly when nobody else comes. No clock but
 * the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/sched/run_slots.h"

enum { N = 6 };

static void better_ones_first(void **unused)
{
	(void)unused;
	static const uint8_t priorities[N] = {3, 3, 3, 0, 9, 3};
	struct run_slots p;
	struct run_slot w[N];
	uint64_t t = NS_PER_S;
	run_slots_init(&p, 2);
	for (int i = 0; i < N; i++)
		run_slot_enter(&p, &w[i], priorities[i], 1e9);
	assert_true(run_slot_take(&p, &w[0], t));
	assert_true(run_slot_take(&p, &w[1], t));
	for (int i = 2; i < N; i++)
		assert_false(run_slot_take(&p, &w[i], t));
	assert_int_equal(run_slots_ahead(&p, 0), 1);
	assert_int_equal(run_slots_ahead(&p, 3), 3);
	assert_int_equal(run_slots_ahead(&p, 7), 4);
	assert_ptr_equal(run_slot_leave(&p, &w[0], t), &w[3]);
	assert_ptr_equal(run_slot_leave(&p, &w[1], t), &w[2]);
	/* One that gives up its slot in the line. */
	assert_null(run_slot_leave(&p, &w[5], t));
	assert_ptr_equal(run_slot_leave(&p, &w[2], t), &w[4]);
	assert_null(run_slot_leave(&p, &w[3], t));
	assert_null(run_slot_leave(&p, &w[4], t));
	assert_int_equal(p.n_running, 0);
	assert_int_equal(run_slots_ahead(&p, 7), 0);
}

static void waits_are_foreseen(void **unused)
{
	(void)unused;
	struct run_slots p;
	struct run_slot w[4];
	struct proto_load load;
	uint64_t t = NS_PER_S;
	run_slots_init(&p, 2);
	assert_int_equal(run_slots_wait_ns(&p, 0, t), 0);
	run_slots_load(&p, 10 * NS_PER_MS, t, &load);
	assert_int_equal(load.of[0].places_free, 2);
	assert_int_equal(load.of[0].wait_us, 10000);
	for (int i = 0; i < 4; i++)
		run_slot_enter(&p, &w[i], 1, 2e9);
	run_slot_take(&p, &w[0], t);
	run_slot_take(&p, &w[1], t + NS_PER_S);
	t += NS_PER_S;
	/* One ends in a second, one in two; the third gets the slot of the first and keeps it for two. */
	assert_int_equal(run_slots_wait_ns(&p, 0, t), NS_PER_S);
	assert_int_equal(run_slots_wait_ns(&p, 1, t), 2 * NS_PER_S);
	assert_int_equal(run_slots_wait_ns(&p, 2, t), 3 * NS_PER_S);
	run_slots_load(&p, 0, t, &load);
	assert_int_equal(load.of[0].places_free, 0);
	assert_int_equal(load.of[0].us_per_place, 1000000);
	assert_int_equal(load.of[0].wait_us, 1000000);
	assert_int_equal(load.of[1].waiting, 2);
	assert_int_equal(load.of[1].wait_us, 3000000);
	for (int i = 0; i < 4; i++)
		run_slot_leave(&p, &w[i], t);
}

static void without_bound_nobody_waits(void **unused)
{
	(void)unused;
	struct run_slots p;
	struct run_slot w[N];
	run_slots_init(&p, 0);
	for (int i = 0; i < N; i++) {
		run_slot_enter(&p, &w[i], 1, 1e9);
		assert_true(run_slot_take(&p, &w[i], 0));
	}
	assert_int_equal(run_slots_wait_ns(&p, 99, 0), 0);
	for (int i = 0; i < N; i++)
		assert_null(run_slot_leave(&p, &w[i], NS_PER_S));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(better_ones_first),
	    cmocka_unit_test(waits_are_foreseen),
	    cmocka_unit_test(without_bound_nobody_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
