/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of frames by lanes: against sorting them stably by hand, full, and used again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "gateway/generation/frame_order.h"

static struct frame_order o;

static void add(uint32_t lane, uint32_t at) { assert_true(frame_order_add(&o, lane, at, &o)); }

/* As many frames as there are, each lane's in the order in which they were added, lanes by their first frame. */
static void check(const uint32_t *lane_of, uint32_t n)
{
	uint32_t seen = 0, before = 0;
	assert_int_equal(o.n_frames, n);
	for (uint32_t i = 0; i < o.n_lanes; i++) {
		uint32_t k = o.lanes[i].first, last = 0;
		assert_true(i == 0 || o.frames[k].at > before);
		before = o.frames[k].at;
		for (uint32_t j = 0; j < i; j++)
			assert_int_not_equal(o.lanes[i].lane, o.lanes[j].lane);
		for (; k != FRAME_ORDER_NONE; k = o.frames[k].next, seen++) {
			assert_int_equal(lane_of[o.frames[k].at], o.lanes[i].lane);
			assert_true(o.frames[k].at == before || o.frames[k].at > last);
			assert_ptr_equal(o.frames[k].ctx, &o);
			last = o.frames[k].at;
		}
	}
	assert_int_equal(seen, n);
}

static void lanes_keep_their_order(void **state)
{
	static const uint32_t lanes[] = {7, 0, 7, 3, 0, 7, UINT32_MAX, 3};
	enum { N = sizeof lanes / sizeof *lanes };
	(void)state;
	frame_order_clear(&o);
	assert_int_equal(o.n_frames + o.n_lanes, 0);
	for (uint32_t i = 0; i < N; i++)
		add(lanes[i], i);
	assert_int_equal(o.n_lanes, 4);
	assert_int_equal(o.lanes[0].lane, 7);
	assert_int_equal(o.lanes[1].lane, 0);
	check(lanes, N);
}

/* Lanes of all kinds, also such as meet in the table, and each time anew. */
static void any_lanes_and_as_many_as_there_is_room_for(void **state)
{
	static const struct {
		uint32_t times, modulo;
	} kinds[] = {{1, UINT32_MAX}, {1 << 20, UINT32_MAX}, {0x10000, 7}, {2654435769u, UINT32_MAX}, {1, 1}, {1, 100}};
	uint32_t lanes[FRAME_ORDER_MAX];
	(void)state;
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		frame_order_clear(&o);
		for (uint32_t i = 0; i < FRAME_ORDER_MAX; i++) {
			lanes[i] = i % kinds[kind].modulo * kinds[kind].times;
			add(lanes[i], i);
		}
		check(lanes, FRAME_ORDER_MAX);
		/* Full: nothing changes. */
		assert_false(frame_order_add(&o, 1, 5, NULL));
		assert_false(frame_order_add(&o, 0xabcdef, 5, NULL));
		check(lanes, FRAME_ORDER_MAX);
	}
	frame_order_clear(&o);
	for (size_t i = 0; i < sizeof o.table / sizeof *o.table; i++)
		assert_int_equal(o.table[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lanes_keep_their_order),
	    cmocka_unit_test(any_lanes_and_as_many_as_there_is_room_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
