/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a device or a processor is slowed: from readings that are steady, rare, alternate, contradict themselves or
 * stop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/proto/proto.h"
#include "engine/sched/slowdown.h"

struct rig {
	struct slowdown s;
	uint64_t now_s, stalled_us;
	int n_slowed, n_calm, n_unsteady;
};

static void note(struct rig *r, struct slowdown_news n, unsigned source)
{
	r->n_slowed += (int)(n.slowed >> source & 1);
	r->n_calm += (int)(n.calm >> source & 1);
	r->n_unsteady += (int)(n.unsteady >> source & 1);
}

static void device(struct rig *r, uint32_t slowed)
{
	const struct slowdown_reading in = {
	    .now_ns = ++r->now_s * NS_PER_S, .has_device = true, .device_slowed = slowed};
	note(r, slowdown_take(&r->s, &in), SLOWDOWN_DEVICE);
}

/* share: of the second since the last reading. */
static void cpu(struct rig *r, double share)
{
	r->stalled_us += (uint64_t)(share * 1e6);
	const struct slowdown_reading in = {
	    .now_ns = ++r->now_s * NS_PER_S, .has_cpu = true, .cpu_stalled_us = r->stalled_us};
	note(r, slowdown_take(&r->s, &in), SLOWDOWN_CPU);
}

static void a_hot_device(void **unused)
{
	struct rig r = {0};
	(void)unused;
	device(&r, 0);
	device(&r, PROTO_SLOWED_THERMAL); /* once is not enough */
	assert_false(slowdown_is(&r.s));
	device(&r, PROTO_SLOWED_THERMAL);
	assert_true(slowdown_is(&r.s));
	for (int i = 0; i < 100; i++)
		device(&r, PROTO_SLOWED_POWER);
	for (int i = 0; i < SLOWDOWN_QUIET + 1; i++) {
		device(&r, PROTO_SLOWED_OTHER); /* of no concern: an application's clocks */
		assert_true(slowdown_is(&r.s));
	}
	device(&r, 0);
	assert_false(slowdown_is(&r.s));
	assert_int_equal(r.n_slowed, 1);
	assert_int_equal(r.n_calm, 1);
}

static void one_reading_in_ten_is_nothing(void **unused)
{
	struct rig r = {0};
	(void)unused;
	for (int i = 0; i < 1000; i++)
		device(&r, i % 10 == 0 ? PROTO_SLOWED_HARDWARE : 0);
	assert_int_equal(r.n_slowed, 0);
}

static void alternating_readings_change_nothing_each_time(void **unused)
{
	struct rig r = {0};
	(void)unused;
	for (int i = 0; i < 10000; i++)
		device(&r, i % 2 == 0 ? PROTO_SLOWED_POWER : 0);
	assert_true(slowdown_is(&r.s));
	assert_int_equal(r.n_slowed, 1);
	assert_int_equal(r.n_calm, 0);
}

/* As slowly as it just becomes calm each time: after some turns it stays, and is told of as unsteady once. */
static void slow_turns_are_bounded(void **unused)
{
	struct rig r = {0};
	(void)unused;
	for (int i = 0; i < 3600; i++)
		device(&r, i % 30 < 4 ? PROTO_SLOWED_POWER : 0);
	assert_int_equal(r.n_unsteady, 1);
	assert_int_equal(r.n_slowed, SLOWDOWN_TURNS + 1);
	assert_true(slowdown_is(&r.s));
	for (int i = 0; i < SLOWDOWN_TURNS_S + 20; i++)
		device(&r, 0);
	assert_false(slowdown_is(&r.s));
}

static void a_busy_processor(void **unused)
{
	struct rig r = {0};
	(void)unused;
	cpu(&r, 0);
	for (int i = 0; i < 100; i++)
		cpu(&r, 0.45); /* not yet */
	assert_false(slowdown_is(&r.s));
	for (int i = 0; i < 20; i++)
		cpu(&r, 0.9);
	assert_true(slowdown_is(&r.s));
	for (int i = 0; i < 100; i++)
		cpu(&r, 0.4); /* still */
	assert_true(slowdown_is(&r.s));
	for (int i = 0; i < 40; i++)
		cpu(&r, 0.1);
	assert_false(slowdown_is(&r.s));
	assert_int_equal(r.n_slowed, 1);
}

static void counters_that_lie_are_ignored(void **unused)
{
	struct rig r = {0};
	(void)unused;
	for (int i = 0; i < 1000; i++) {
		r.stalled_us = i % 2 == 0 ? UINT64_MAX - 5 : (uint64_t)i; /* back and forth, faster than time */
		cpu(&r, 0);
	}
	assert_int_equal(r.n_slowed, 0);
	r.now_s = 5; /* a clock that goes back */
	cpu(&r, 0.9);
	assert_false(slowdown_is(&r.s));
}

static void a_source_that_stops_is_calm_in_the_end(void **unused)
{
	struct rig r = {0};
	(void)unused;
	for (int i = 0; i < 10; i++)
		device(&r, PROTO_SLOWED_THERMAL);
	assert_true(slowdown_is(&r.s));
	for (int i = 0; i < SLOWDOWN_QUIET + 2; i++)
		cpu(&r, 0); /* readings without a device */
	assert_false(slowdown_is(&r.s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_hot_device),
					   cmocka_unit_test(one_reading_in_ten_is_nothing),
					   cmocka_unit_test(alternating_readings_change_nothing_each_time),
					   cmocka_unit_test(slow_turns_are_bounded),
					   cmocka_unit_test(a_busy_processor),
					   cmocka_unit_test(counters_that_lie_are_ignored),
					   cmocka_unit_test(a_source_that_stops_is_calm_in_the_end)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
