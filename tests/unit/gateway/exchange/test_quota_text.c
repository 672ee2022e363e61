/* SPDX-License-Identifier: Apache-2.0
 *
 * How quotas are told: durations, and the header fields of answers and refusals.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "gateway/exchange/quota.h"

static void durations_are_written_as_go_does(void **state)
{
	(void)state;
	static const struct {
		int64_t us;
		const char *text;
	} cases[] = {{0, "0s"},
		     {-5, "0s"},
		     {1, "1ms"},
		     {1000, "1ms"},
		     {1001, "2ms"},
		     {999000, "999ms"},
		     {999001, "1s"},
		     {1500000, "1.5s"},
		     {8640000, "8.64s"},
		     {59999000, "59.999s"},
		     {60000000, "1m0s"},
		     {360000000, "6m0s"},
		     {3599999001, "1h0m0s"},
		     {3661007000, "1h1m1.007s"},
		     {INT64_C(86400000000), "24h0m0s"},
		     {INT64_C(1) << 50, "312749h58m26.843s"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[QUOTA_TEXT_BYTES];
		quota_duration(cases[i].us, text, sizeof text);
		assert_string_equal(text, cases[i].text);
	}
	for (size_t size = 1; size < 20; size++) { /* cut, never overrun */
		char text[QUOTA_TEXT_BYTES];
		memset(text, '#', sizeof text);
		quota_duration(INT64_C(1) << 50, text, size);
		assert_int_equal(text[size], '#');
	}
}

static void assert_fields(const struct quota_result *r, const char *want)
{
	struct quota_text text;
	struct http_field fields[QUOTA_MAX_FIELDS];
	char got[1024] = "";
	size_t n = quota_fields(r, &text, fields), len = 0;
	assert_true(n <= QUOTA_MAX_FIELDS);
	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(got + len, sizeof got - len, "%s: %s\n", fields[i].name, fields[i].value);
	assert_string_equal(got, want);
}

static void fields_say_what_is_left(void **state)
{
	(void)state;
	struct quota_result r = {.admitted = true};
	assert_fields(&r, "");
	r.each[QUOTA_REQUESTS] = (struct quota_left){60, 59, 1000000};
	assert_fields(&r, "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\n"
			  "x-ratelimit-reset-requests: 1s\n");
	r.each[QUOTA_REQUESTS] = (struct quota_left){0};
	r.each[QUOTA_TOKENS] = (struct quota_left){1000, 300, 42000000};
	static const char minute[] = "x-ratelimit-limit-tokens: 1000\nx-ratelimit-remaining-tokens: 300\n"
				     "x-ratelimit-reset-tokens: 42s\n";
	assert_fields(&r, minute);
	r.each[QUOTA_DAY] = (struct quota_left){5000, 400, 3600000000};
	assert_fields(&r, minute); /* the scarcer one */
	r.each[QUOTA_DAY].remaining = 299;
	assert_fields(&r, "x-ratelimit-limit-tokens: 5000\nx-ratelimit-remaining-tokens: 299\n"
			  "x-ratelimit-reset-tokens: 1h0m0s\n");
	r.code = SL_ETIMEOUT;
	assert_fields(&r, "");
}

static void fields_say_when_to_come_again(void **state)
{
	(void)state;
	struct quota_result r = {.refused_by = QUOTA_TOKENS, .retry_after_us = 1500001};
	r.each[QUOTA_TOKENS] = (struct quota_left){1000, 300, 42000000};
	r.each[QUOTA_DAY] = (struct quota_left){5000, 0, 3600000000};
	assert_fields(&r,
		      "x-ratelimit-limit-tokens: 1000\nx-ratelimit-remaining-tokens: 300\n"
		      "x-ratelimit-reset-tokens: 42s\nretry-after: 2\nretry-after-ms: 1501\nx-should-retry: true\n");
	r.refused_by = QUOTA_DAY;
	r.retry_after_us = 3600000000;
	assert_fields(&r, "x-ratelimit-limit-tokens: 5000\nx-ratelimit-remaining-tokens: 0\n"
			  "x-ratelimit-reset-tokens: 1h0m0s\nretry-after: 3600\nretry-after-ms: 3600000\n"
			  "x-should-retry: false\n");
	r = (struct quota_result){.refused_by = QUOTA_REQUESTS, .retry_after_us = -1};
	r.each[QUOTA_REQUESTS] = (struct quota_left){3, 3, 0};
	assert_fields(&r, "x-ratelimit-limit-requests: 3\nx-ratelimit-remaining-requests: 3\n"
			  "x-ratelimit-reset-requests: 0s\nx-should-retry: false\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(durations_are_written_as_go_does),
	    cmocka_unit_test(fields_say_what_is_left),
	    cmocka_unit_test(fields_say_when_to_come_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
