/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values under pressure: the rules one by one, and a random machine beside which the cache must neither keep
 * memory that others need nor swing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "engine/kv/kv_pressure.h"

#define MB (1ull << 20)

static void rules(void **state)
{
	(void)state;
	struct kv_pressure p = {.reserve = 1000 * MB, .all = 1600 * MB};
	struct kv_pressure_reading now = {.available = 5000 * MB, .events = 7};
	assert_int_equal(kv_pressure_decide(&p, &now), 0); /* events of before do not count */
	now.available = 501 * MB;
	assert_int_equal(kv_pressure_decide(&p, &now), 0);
	now.available = 499 * MB;
	assert_int_equal(kv_pressure_decide(&p, &now), 400 * MB); /* at most a quarter */
	now.available = 900 * MB;
	assert_int_equal(kv_pressure_decide(&p, &now), 0);
	now.events = 8;
	assert_int_equal(kv_pressure_decide(&p, &now), 100 * MB);
	assert_int_equal(kv_pressure_decide(&p, &now), 0);
	now.stalled = KV_PRESSURE_STALLED;
	now.available = 1900 * MB;
	assert_int_equal(kv_pressure_decide(&p, &now), 100 * MB);
	now.available = 2100 * MB; /* others wait, but not for want of memory here */
	assert_int_equal(kv_pressure_decide(&p, &now), 0);
	now.stalled = 0;
	now.withheld = 150 * MB;
	/* Readings in between were calm already. */
	for (unsigned i = p.calm + 1; i < KV_PRESSURE_CALM; i++)
		assert_int_equal(kv_pressure_decide(&p, &now), 0);
	assert_int_equal(kv_pressure_decide(&p, &now), -(int64_t)(100 * MB));
	now.withheld = 50 * MB;
	for (unsigned i = 1; i < KV_PRESSURE_CALM; i++)
		assert_int_equal(kv_pressure_decide(&p, &now), 0);
	assert_int_equal(kv_pressure_decide(&p, &now), -(int64_t)(50 * MB));
	now.available = 1090 * MB; /* not so much that it would soon be released again */
	for (unsigned i = 0; i < 3 * KV_PRESSURE_CALM; i++)
		assert_int_equal(kv_pressure_decide(&p, &now), 0);
	now.withheld = 0;
	now.available = 9000 * MB;
	for (unsigned i = 0; i < 3 * KV_PRESSURE_CALM; i++)
		assert_int_equal(kv_pressure_decide(&p, &now), 0);
}

/* Others take and give memory at random; the cache fills what it may use. */
static void a_machine(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 50; round++) {
		unsigned seed = round;
		struct kv_pressure p = {.reserve = 1000 * MB, .all = 4000 * MB};
		uint64_t withheld = 0, others = 0, changes = 0, turns = 0;
		int64_t last = 0;
		for (int i = 0; i < 2000; i++) {
			if (rand_r(&seed) % 100 == 0)
				others = (uint64_t)rand_r(&seed) % 5000 * MB;
			uint64_t used = others + p.all - withheld, total = 8000 * MB;
			struct kv_pressure_reading now = {.available = used < total ? total - used : 0,
							  .withheld = withheld};
			int64_t d = kv_pressure_decide(&p, &now);
			assert_true(d >= 0 || (uint64_t)-d <= withheld);
			if (d > 0)
				withheld = withheld + (uint64_t)d < p.all ? withheld + (uint64_t)d : p.all;
			else
				withheld -= (uint64_t)-d;
			changes += d != 0;
			turns += d > 0 && last < 0;
			last = d != 0 ? d : last;
			/* Nothing that could be given back is kept while others lack memory. */
			if (now.available < p.reserve / 2)
				assert_true(d > 0);
		}
		/* About twenty changes of the others: it turns no more often than they do. */
		assert_true(turns <= 40);
		assert_true(changes < 1000);
		others = 0;
		for (int i = 0; i < 2000; i++) {
			struct kv_pressure_reading now = {.available = 8000 * MB - (p.all - withheld),
							  .withheld = withheld};
			int64_t d = kv_pressure_decide(&p, &now);
			assert_true(d <= 0);
			withheld -= (uint64_t)-d;
		}
		assert_int_equal(withheld, 0); /* all of it is back in the end */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rules), cmocka_unit_test(a_machine)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
