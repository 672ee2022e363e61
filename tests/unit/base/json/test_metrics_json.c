/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/json/json_out.h"
#include "base/metrics.h"

static void prints_families_together(void **unused)
{
	(void)unused;
	static const double bounds[] = {0.001, 0.01, 0.1};
	static struct metric a = {
	    .kind = METRIC_COUNTER, .name = "sluice_x_total", .help = "X.", .labels = "tier=\"free\""};
	static struct metric g = {.kind = METRIC_GAUGE, .name = "sluice_g", .help = "G."};
	static struct metric b = {
	    .kind = METRIC_COUNTER, .name = "sluice_x_total", .help = "X.", .labels = "tier=\"paid\""};
	static struct metric h = {.kind = METRIC_HISTOGRAM,
				  .name = "sluice_t_seconds",
				  .help = "T.",
				  .n_buckets = 3,
				  .bounds = bounds,
				  .scale = 1e-9};
	metric_register(&a);
	metric_register(&g);
	metric_register(&b);
	metric_register(&h);
	metric_add(&a, 3);
	metric_add(&b, 4);
	metric_set(&g, -7);
	metric_observe(&h, 1000000); /* 1 ms: on the bound belongs below it */
	metric_observe(&h, 2000000);
	metric_observe(&h, 50000000);
	metric_observe(&h, 2000000000); /* above all */
	struct sl_buf out;
	buf_init(&out, 1 << 16);
	assert_int_equal(metrics_print(&out), 0);
	assert_string_equal(buf_cstr(&out), "# HELP sluice_x_total X.\n# TYPE sluice_x_total counter\n"
					    "sluice_x_total{tier=\"free\"} 3\nsluice_x_total{tier=\"paid\"} 4\n"
					    "# HELP sluice_g G.\n# TYPE sluice_g gauge\nsluice_g -7\n"
					    "# HELP sluice_t_seconds T.\n# TYPE sluice_t_seconds histogram\n"
					    "sluice_t_seconds_bucket{le=\"0.001\"} 1\n"
					    "sluice_t_seconds_bucket{le=\"0.01\"} 2\n"
					    "sluice_t_seconds_bucket{le=\"0.1\"} 3\n"
					    "sluice_t_seconds_bucket{le=\"+Inf\"} 4\n"
					    "sluice_t_seconds_sum 2.053\nsluice_t_seconds_count 4\n");
	buf_dispose(&out);
	buf_init(&out, 20);
	assert_int_not_equal(metrics_print(&out), 0);
	buf_dispose(&out);
}

static void json_strings(void **unused)
{
	(void)unused;
	static const struct {
		const char *in;
		size_t n;
		const char *out;
	} cases[] = {
	    {"", 0, "\"\""},
	    {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
	    {"\b\t\n\f\r\x01\x1f\x7f", 8, "\"\\b\\t\\n\\f\\r\\u0001\\u001f\\u007f\""},
	    {"\0x", 2, "\"\\u0000x\""},
	    {"\xED\x95\x9C\xF0\x9F\x98\x80", 7, "\"\xED\x95\x9C\xF0\x9F\x98\x80\""},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sl_buf out;
		buf_init(&out, strlen(cases[i].out)); /* exactly as much as is needed */
		assert_int_equal(json_out_string(&out, cases[i].in, cases[i].n), 0);
		assert_string_equal(buf_cstr(&out), cases[i].out);
		buf_dispose(&out);
		buf_init(&out, strlen(cases[i].out) - 1);
		assert_int_equal(json_out_string(&out, cases[i].in, cases[i].n), SL_ELIMIT);
		assert_int_equal(out.len, 0);
		buf_dispose(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(prints_families_together),
	    cmocka_unit_test(json_strings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
