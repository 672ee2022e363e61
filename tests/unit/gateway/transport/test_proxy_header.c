/* SPDX-License-Identifier: Apache-2.0
 *
 * PROXY headers of both versions: what is taken, what is refused, and when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "gateway/transport/proxy_header.h"

static struct proxy_header h;

/* Reads an exact copy, so that a sanitizer sees a byte too many; every shorter piece is a beginning. */
static enum proxy_result parse(const void *data, size_t n)
{
	enum proxy_result r = PROXY_MORE;
	for (size_t m = 0; m <= n && r == PROXY_MORE; m++) {
		uint8_t *copy = malloc(m + 1);
		memcpy(copy, data, m);
		uint8_t *exact = realloc(copy, m > 0 ? m : 1);
		r = proxy_header_parse(exact, m, &h);
		if (r == PROXY_DONE)
			assert_int_equal(h.used, m);
		free(exact);
	}
	return r;
}

static void says(const void *data, size_t n, const char *address, uint16_t port)
{
	char text[NET_ADDR_TEXT];
	assert_int_equal(parse(data, n), PROXY_DONE);
	assert_int_equal(h.known, address != NULL);
	net_addr_print(&h.client, text);
	assert_string_equal(text, address ? address : "");
	assert_int_equal(h.port, port);
}

static void lines(void **state)
{
	(void)state;
#define LINE(s) s, sizeof s - 1
	says(LINE("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"), "192.0.2.7", 56324);
	says(LINE("PROXY TCP6 2001:db8::7 ::1 1 65535\r\n"), "2001:db8::7", 1);
	says(LINE("PROXY UNKNOWN\r\n"), NULL, 0);
	says(LINE("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"), NULL, 0);
	static const char *const bad[] = {
	    "GET / HTTP/1.1\r\n",
	    "proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
	    "PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
	    "PROXY TCP4 1.2.3.4  1.2.3.4 1 1\r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 1 1 1\r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 1 999999\r\n",
	    "PROXY TCP4 1.2.3.04 1.2.3.4 1 1\r\n",
	    "PROXY TCP4 ::1 ::1 1 1\r\n",
	    "PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n",
	    "PROXY TCP6 ::1%lo ::1 1 1\r\n",
	    "PROXY TCP5 1.2.3.4 1.2.3.4 1 1\r\n",
	    "PROXY UNKNOWNS\r\n",
	    "PROXY \r\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n",
	    "PROXY TCP4 1.2.3.4 1.2.3.4 1 1\rX",
	    "PROXY TCP4\t1.2.3.4 1.2.3.4 1 1\r\n",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (parse(bad[i], strlen(bad[i])) != PROXY_BAD)
			fail_msg("taken: %s", bad[i]);
}

static void a_line_has_a_longest(void **state)
{
	(void)state;
	char line[PROXY_V1_MAX + 10];
	memset(line, 'x', sizeof line);
	memcpy(line, "PROXY UNKNOWN ", 14);
	memcpy(line + PROXY_V1_MAX - 2, "\r\n", 2);
	says(line, PROXY_V1_MAX, NULL, 0);
	memset(line + PROXY_V1_MAX - 2, 'x', 2);
	memcpy(line + PROXY_V1_MAX - 1, "\r\n", 2);
	assert_int_equal(parse(line, PROXY_V1_MAX - 1), PROXY_MORE);
	assert_int_equal(parse(line, PROXY_V1_MAX), PROXY_BAD);
	assert_int_equal(proxy_header_parse((uint8_t *)line, sizeof line, &h), PROXY_BAD);
}

struct v2 {
	uint8_t b[PROXY_HEADER_MAX + 16];
	size_t n;
};

static struct v2 v2(uint8_t cmd, uint8_t family, const void *rest, size_t n)
{
	struct v2 v = {.b = "\r\n\r\n\0\r\nQUIT\n", .n = 16 + n};
	v.b[12] = cmd;
	v.b[13] = family;
	v.b[14] = (uint8_t)(n >> 8);
	v.b[15] = (uint8_t)n;
	if (n > 0)
		memcpy(v.b + 16, rest, n);
	return v;
}

static const uint8_t tcp4[] = {192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 1, 0xbb};
static const uint8_t tcp6[36] = {0x20, 1, 0x0d, 0xb8, [15] = 7, [31] = 1, 0, 80, 1, 0xbb};

static void blocks(void **state)
{
	(void)state;
	struct v2 v = v2(0x21, 0x11, tcp4, sizeof tcp4);
	says(v.b, v.n, "192.0.2.7", 56324);
	v = v2(0x21, 0x21, tcp6, sizeof tcp6);
	says(v.b, v.n, "2001:db8::7", 80);
	/* The balancer's own connection; what stands in it is skipped. */
	v = v2(0x20, 0x00, NULL, 0);
	says(v.b, v.n, NULL, 0);
	v = v2(0x20, 0x77, "anything", 8);
	says(v.b, v.n, NULL, 0);
	v = v2(0x21, 0x00, "anything", 8);
	says(v.b, v.n, NULL, 0);
	uint8_t unix_names[216] = {'/', 'a'};
	v = v2(0x21, 0x31, unix_names, sizeof unix_names);
	says(v.b, v.n, NULL, 0);
}

static void bad_blocks(void **state)
{
	(void)state;
	static const struct {
		uint8_t cmd, family;
		size_t n;
	} bad[] = {
	    {0x11, 0x11, 12}, {0x22, 0x11, 12}, {0x2f, 0x11, 12}, {0x01, 0x11, 12}, {0x21, 0x12, 12},  {0x21, 0x22, 36},
	    {0x21, 0x01, 12}, {0x21, 0x10, 12}, {0x21, 0x11, 11}, {0x21, 0x21, 35}, {0x21, 0x31, 215}, {0x21, 0x41, 12},
	};
	uint8_t zeros[256] = {0};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct v2 v = v2(bad[i].cmd, bad[i].family, zeros, bad[i].n);
		if (parse(v.b, v.n) != PROXY_BAD)
			fail_msg("taken: %x %x %zu", bad[i].cmd, bad[i].family, bad[i].n);
	}
	/* Over-long is refused at its length, before its bytes come. */
	struct v2 v = v2(0x21, 0x11, tcp4, sizeof tcp4);
	v.b[14] = (PROXY_HEADER_MAX - 16 + 1) >> 8;
	v.b[15] = (PROXY_HEADER_MAX - 16 + 1) & 0xff;
	assert_int_equal(parse(v.b, 16), PROXY_BAD);
	v.b[15]--;
	assert_int_equal(parse(v.b, 16), PROXY_MORE);
	v.b[2] = 'x';
	assert_int_equal(parse(v.b, 3), PROXY_BAD);
}

static void extensions(void **state)
{
	(void)state;
	uint8_t rest[64];
	memcpy(rest, tcp4, 12);
	memcpy(rest + 12, "\x02\x00\x01h\x04\x00\x00", 7); /* AUTHORITY, NOOP */
	struct v2 v = v2(0x21, 0x11, rest, 19);
	says(v.b, v.n, "192.0.2.7", 56324);
	v = v2(0x21, 0x11, rest, 18);
	assert_int_equal(parse(v.b, v.n), PROXY_BAD);
	v = v2(0x21, 0x11, rest, 15);
	assert_int_equal(parse(v.b, v.n), PROXY_BAD);

	/* CRC-32C of the header, taken from an independent implementation. */
	memcpy(rest + 12, "\x03\x00\x04\0\0\0\0", 7);
	v = v2(0x21, 0x11, rest, 19);
	assert_int_equal(parse(v.b, v.n), PROXY_BAD);
	static const uint8_t sum[4] = {0x54, 0x8e, 0x28, 0xff};
	memcpy(v.b + 16 + 15, sum, 4);
	says(v.b, v.n, "192.0.2.7", 56324);
	v.b[16]++;
	assert_int_equal(parse(v.b, v.n), PROXY_BAD);
	memcpy(rest + 12, "\x03\x00\x03\0\0\0", 6);
	v = v2(0x21, 0x11, rest, 18);
	assert_int_equal(parse(v.b, v.n), PROXY_BAD);
}

static void what_follows_is_left(void **state)
{
	(void)state;
	static const char text[] = "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /";
	assert_int_equal(proxy_header_parse((const uint8_t *)text, sizeof text - 1, &h), PROXY_DONE);
	assert_int_equal(h.used, sizeof text - 1 - 5);
	struct v2 v = v2(0x21, 0x11, tcp4, sizeof tcp4);
	assert_int_equal(proxy_header_parse(v.b, v.n + 10, &h), PROXY_DONE);
	assert_int_equal(h.used, v.n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines),      cmocka_unit_test(a_line_has_a_longest),
	    cmocka_unit_test(blocks),     cmocka_unit_test(bad_blocks),
	    cmocka_unit_test(extensions), cmocka_unit_test(what_follows_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
