/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts by tier: a tier has a row, whose name is quoted, and however many tiers reloads bring, one of them named
 * `other`, the rest share that row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "gateway/observe/tier_counts.h"

/* The value of a line of the metrics; -1: there is no such line. */
static long long value_of(const char *name, const char *tier)
{
	struct sl_buf b;
	char line[256];
	buf_init(&b, 64 << 20);
	assert_int_equal(metrics_print(&b), 0);
	snprintf(line, sizeof line, "\n%s{tier=\"%s\"} ", name, tier);
	const char *at = strstr(buf_cstr(&b), line);
	long long v = at != NULL ? strtoll(at + strlen(line), NULL, 10) : -1;
	buf_dispose(&b);
	return v;
}

static void tiers_beyond_the_rows_share_one(void **unused)
{
	(void)unused;
	char name[32];
	const char *tier = name;
	strcpy(name, "other");
	tier_counts_register(&tier, 1);
	tier_counts_judged("nobody", true);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof name, i == 0 ? "a\"b" : "t%d", i);
		tier_counts_register(&tier, 1);
		tier_counts_register(&tier, 1);
		tier_counts_judged(tier, i % 2 == 0);
	}
	assert_int_equal(value_of("sluice_answers_judged_total", "a\\\"b"), 1);
	assert_int_equal(value_of("sluice_answers_judged_total", "t1"), 1);
	assert_int_equal(value_of("sluice_answers_good_total", "t1"), 0);
	assert_int_equal(value_of("sluice_answers_good_total", "t2"), 1);
	assert_int_equal(value_of("sluice_answers_judged_total", "t61"), 1);
	assert_int_equal(value_of("sluice_answers_judged_total", "t62"), -1);
	assert_int_equal(value_of("sluice_answers_judged_total", "other"), 100 - 62);
	tier_counts_targets("t99", 250, 0);
	tier_counts_judged("other", true);
	assert_int_equal(value_of("sluice_answers_judged_total", "other"), 100 - 62 + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(tiers_beyond_the_rows_share_one)};
	return cmocka_run_group_tests_name("tier_counts", tests, NULL, NULL);
}
