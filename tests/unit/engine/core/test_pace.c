/* SPDX-License-Identifier: Apache-2.0
 *
 * The pace of sequences: its rate holds, and those that are paced alike are due together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/step/seq.h"

/* As eng_seq_create makes them of rate and burst. */
static struct eng_seq paced(double rate, unsigned burst)
{
	double each = 1e9 / rate;
	struct eng_seq s = {.pace_each_ns = (uint64_t)each + 1, .pace_early_ns = (uint64_t)(each * (burst - 1))};
	return s;
}

/* Makes tokens whenever it may, for so long from begin on; how many. */
static int made_within(struct eng_seq *s, uint64_t begin, uint64_t ns)
{
	int n = 0;
	for (uint64_t now = begin; now < begin + ns; n++) {
		eng_seq_pace(s, now);
		uint64_t due = eng_seq_due(s);
		now = due > now ? due : now;
	}
	return n;
}

static void the_rate_holds(void **state)
{
	static const double rates[] = {0.3, 1, 4, 5, 10, 13, 40, 200};
	(void)state;
	for (unsigned burst = 1; burst <= 8; burst += 7) {
		for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
			struct eng_seq s = paced(rates[i], burst);
			int want = (int)(rates[i] * 100) + (int)burst;
			int n = made_within(&s, 12345678901, 100 * NS_PER_S);
			assert_true(n >= want - 2 && n <= want + 1);
		}
	}
}

static void those_with_a_burst_are_due_together(void **state)
{
	(void)state;
	struct eng_seq a = paced(10, 8), b = paced(4, 8), fast = paced(100, 8), alone = paced(10, 1);
	for (uint64_t now = 7 * NS_PER_S; now < 9 * NS_PER_S; now += 100 * NS_PER_MS + 123457) {
		eng_seq_pace(&a, now);
		eng_seq_pace(&b, now);
		eng_seq_pace(&fast, now);
		eng_seq_pace(&alone, now);
	}
	assert_int_equal(eng_seq_due(&a) % (20 * NS_PER_MS), 0);
	assert_int_equal(eng_seq_due(&b) % (40 * NS_PER_MS), 0);
	assert_true(eng_seq_due(&a) >= a.pace_next_ns - a.pace_early_ns);
	assert_true(eng_seq_due(&a) < a.pace_next_ns - a.pace_early_ns + 20 * NS_PER_MS);
	assert_int_equal(eng_seq_due(&fast), fast.pace_next_ns - fast.pace_early_ns);
	assert_int_equal(eng_seq_due(&alone), alone.pace_next_ns);
	struct eng_seq unpaced = {0};
	eng_seq_pace(&unpaced, 5);
	assert_int_equal(eng_seq_due(&unpaced), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_rate_holds),
	    cmocka_unit_test(those_with_a_burst_are_due_together),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
