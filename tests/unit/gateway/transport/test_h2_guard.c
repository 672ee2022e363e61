/* SPDX-License-Identifier: Apache-2.0
 *
 * The accounting of an HTTP/2 peer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gateway/transport/h2_guard.h"

static const struct gw_limits limits = {.header_bytes = 100,
					.resets_per_s = 2,
					.resets_burst = 3,
					.refused_per_s = 5,
					.refused_burst = 3,
					.control_frames_per_s = 10,
					.control_frames_burst = 5};

static void buckets_refill_up_to_their_burst(void **state)
{
	(void)state;
	struct h2_guard g;
	uint64_t now = 5 * NS_PER_S;
	h2_guard_init(&g, &limits, 0, now);
	for (int i = 0; i < 3; i++)
		assert_true(h2_bucket_take(&g.resets, now));
	assert_false(h2_bucket_take(&g.resets, now));
	now += NS_PER_S / 4; /* half a token */
	assert_false(h2_bucket_take(&g.resets, now));
	now += NS_PER_S / 4;
	assert_true(h2_bucket_take(&g.resets, now));
	assert_false(h2_bucket_take(&g.resets, now));
	now += 1000000 * NS_PER_S; /* never above the burst */
	for (int i = 0; i < 3; i++)
		assert_true(h2_bucket_take(&g.resets, now));
	assert_false(h2_bucket_take(&g.resets, now));
}

static void ids_must_rise(void **state)
{
	(void)state;
	struct h2_guard g;
	h2_guard_init(&g, &limits, 0, 0);
	assert_true(h2_guard_stream_id(&g, 5));
	assert_true(h2_guard_stream_id(&g, 5)); /* a trailer */
	assert_false(h2_guard_stream_id(&g, 3));
	assert_false(h2_guard_stream_id(&g, 1));
	assert_true(h2_guard_stream_id(&g, 7));
	assert_true(h2_guard_stream_id(&g, 5));
	/* Only the recent ones are remembered. */
	for (int32_t i = 0; i < H2_RING; i++)
		assert_true(h2_guard_stream_id(&g, 9 + 2 * i));
	assert_false(h2_guard_stream_id(&g, 5));
	assert_false(h2_guard_stream_id(&g, 7));
	assert_true(h2_guard_stream_id(&g, 9));
	assert_true(h2_guard_stream_id(&g, INT32_MAX));
}

static void window_updates_are_due_for_data(void **state)
{
	(void)state;
	struct h2_guard g;
	h2_guard_init(&g, &limits, 0, 0);
	assert_false(h2_guard_update_due(&g));
	h2_guard_data_sent(&g);
	assert_true(h2_guard_update_due(&g));
	assert_true(h2_guard_update_due(&g));
	assert_false(h2_guard_update_due(&g));
	/* Saved up to a bound. */
	for (int i = 0; i < 100000; i++)
		h2_guard_data_sent(&g);
	int n = 0;
	while (h2_guard_update_due(&g))
		n++;
	assert_in_range(n, 1000, 20001);
}

/* However the input is cut. */
static void unknown_frames_are_counted(void **state)
{
	(void)state;
	static const uint8_t input[] = "PREFACE"
				       "\0\0\0\4\0\0\0\0\0"
				       "\0\0\3\xee\0\0\0\0\0abc"
				       "\0\0\x0c\0\0\0\0\0\1\0\0\0\xee\0\0\0\xee\0\0\0\xee"
				       "\0\0\0\x0a\0\0\0\0\0"
				       "\0\0\0\x09\0\0\0\0\0"
				       "\0\0\0\xff\0\0\0\0\0";
	for (size_t step = 1; step < sizeof input; step++) {
		struct h2_guard g;
		size_t found = 0;
		bool over;
		h2_guard_init(&g, &limits, 7, 0);
		for (size_t at = 0; at < sizeof input - 1; at += step)
			found += h2_guard_frames(&g, input + at,
						 sizeof input - 1 - at < step ? sizeof input - 1 - at : step, &over);
		assert_int_equal(found, 3);
		assert_int_equal(g.skip, 0);
		assert_int_equal(g.n_head, 0);
	}
}

static bool head_over(const uint8_t lengths[4], const uint8_t types[4])
{
	struct h2_guard g;
	bool over, any = false;
	uint8_t input[4 * (H2_FRAME_HEAD + 255)] = {0};
	size_t n = 0;
	for (int i = 0; i < 4; i++) {
		input[n + 2] = lengths[i];
		input[n + 3] = types[i];
		n += H2_FRAME_HEAD + (size_t)lengths[i];
	}
	h2_guard_init(&g, &limits, 0, 0);
	for (size_t at = 0; at < n; at += 7) {
		h2_guard_frames(&g, input + at, n - at < 7 ? n - at : 7, &over);
		any = any || over;
	}
	return any;
}

static void head_blocks_are_bounded_on_the_wire(void **state)
{
	(void)state;
	assert_false(head_over((uint8_t[]){200, 200, 200, 0}, (uint8_t[]){1, 1, 1, 0}));
	assert_false(head_over((uint8_t[]){100, 50, 50, 0}, (uint8_t[]){1, 9, 9, 0}));
	assert_true(head_over((uint8_t[]){100, 50, 51, 0}, (uint8_t[]){1, 9, 9, 0}));
	assert_true(head_over((uint8_t[]){201, 0, 0, 0}, (uint8_t[]){1, 0, 0, 0}));
	assert_false(head_over((uint8_t[]){255, 255, 255, 255}, (uint8_t[]){0, 8, 0, 6}));
	/* A flood of empty ones is nothing here; the library counts them. */
	assert_false(head_over((uint8_t[]){200, 0, 0, 0}, (uint8_t[]){1, 9, 9, 9}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(buckets_refill_up_to_their_burst),    cmocka_unit_test(ids_must_rise),
	    cmocka_unit_test(window_updates_are_due_for_data),     cmocka_unit_test(unknown_frames_are_counted),
	    cmocka_unit_test(head_blocks_are_bounded_on_the_wire),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
