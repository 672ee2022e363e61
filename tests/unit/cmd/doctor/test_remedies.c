/* SPDX-License-Identifier: Apache-2.0
 *
 * Every fault has a line to change for every proxy, and a proxy is known by its response's fields.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cmd/doctor/remedies.h"

static void every_fault_has_a_line(void **state)
{
	(void)state;
	for (int p = 0; p < N_PROXIES; p++) {
		assert_true(strlen(proxy_name((enum proxy)p)) > 0);
		for (int f = 0; f < WAY_N_FAULTS; f++) {
			const char *line = remedy_of((enum proxy)p, (enum way_fault)f);
			assert_non_null(line);
			assert_true(strlen(line) > 5);
			assert_null(strchr(line, '\n'));
		}
	}
	assert_string_equal(remedy_of(PROXY_NGINX, WAY_TIMES_OUT), "proxy_read_timeout 1h;");
	/* h2o has none of its own for this. */
	assert_string_equal(remedy_of(PROXY_H2O, WAY_KEEPS), remedy_of(PROXY_UNKNOWN, WAY_KEEPS));
}

static void proxies_are_known_by_their_fields(void **state)
{
	(void)state;
	assert_int_equal(proxy_of("nginx/1.22.1", ""), PROXY_NGINX);
	assert_int_equal(proxy_of("Caddy", ""), PROXY_CADDY);
	assert_int_equal(proxy_of("", "1.1 Caddy"), PROXY_CADDY);
	assert_int_equal(proxy_of("h2o/2.2.5", ""), PROXY_H2O);
	assert_int_equal(proxy_of("Apache/2.4.57 (Debian)", ""), PROXY_APACHE);
	assert_int_equal(proxy_of("", "HTTP/1.1 HAProxy"), PROXY_HAPROXY);
	assert_int_equal(proxy_of("", ""), PROXY_UNKNOWN);
	assert_int_equal(proxy_of("cloudflare", "1.1 varnish"), PROXY_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_fault_has_a_line),
	    cmocka_unit_test(proxies_are_known_by_their_fields),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
