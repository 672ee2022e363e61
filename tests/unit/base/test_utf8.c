/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"

/* Every scalar value there and back; everything else is refused. */
static void all_scalar_values(void **unused)
{
	(void)unused;
	for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
		uint8_t s[4];
		uint32_t back = 0;
		if (cp >= 0xD800 && cp <= 0xDFFF)
			continue;
		int n = utf8_encode(cp, s);
		if (utf8_decode(s, (size_t)n, &back) != n || back != cp || !utf8_valid(s, (size_t)n))
			fail_msg("U+%04X", cp);
		for (int cut = 1; cut < n; cut++) {
			if (utf8_decode(s, (size_t)cut, &back) != 0 || utf8_whole_prefix(s, (size_t)cut) != 0 ||
			    utf8_valid(s, (size_t)cut))
				fail_msg("U+%04X cut to %d", cp, cut);
		}
	}
}

/* A decoder written from the definition alone, over all sequences of three bytes. */
static int by_definition(const uint8_t *s, size_t n)
{
	int len = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : -1;
	if (len < 0)
		return -1;
	uint32_t cp = len == 1 ? s[0] : s[0] & (0xFFu >> (len + 1));
	for (int i = 1; i < len; i++) {
		if ((size_t)i >= n)
			return 0;
		if (s[i] >> 6 != 2)
			return -1;
		cp = cp << 6 | (s[i] & 0x3Fu);
	}
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	return cp < least[len] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF) ? -1 : len;
}

static void all_three_bytes(void **unused)
{
	(void)unused;
	for (uint32_t v = 0; v < 1u << 24; v++) {
		uint8_t s[3] = {(uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
		uint32_t cp;
		int want = by_definition(s, 3), got = utf8_decode(s, 3, &cp);
		/* Of four bytes the definition sees only three: unfinished, or hopeless already. */
		if (want == 0 ? got != 0 && got != -1 : got != want)
			fail_msg("%02x %02x %02x: %d, not %d", s[0], s[1], s[2], got, want);
	}
}

static void hopeless_beginnings(void **unused)
{
	(void)unused;
	static const char *const bad[] = {
	    "\xC0\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5",
	    "\x80",     "\xFF",         "\xC3\x28"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		uint32_t cp;
		assert_int_equal(utf8_decode((const uint8_t *)bad[i], strlen(bad[i]), &cp), -1);
		assert_false(utf8_valid(bad[i], strlen(bad[i])));
		assert_int_equal(utf8_whole_prefix((const uint8_t *)bad[i], strlen(bad[i])), strlen(bad[i]));
	}
}

/* ASCII is looked at in blocks: wherever a character or a wrong byte is in it. */
static void between_ascii(void **unused)
{
	(void)unused;
	for (size_t n = 4; n <= 40; n++)
		for (size_t at = 0; at + 4 <= n; at++) {
			char text[40];
			memset(text, 'a', n);
			assert_true(utf8_valid(text, n));
			memcpy(text + at, "\xF0\x9F\x98\x80", 4);
			assert_true(utf8_valid(text, n));
			text[at + 2] = 'a';
			assert_false(utf8_valid(text, n));
		}
}

static void whole_prefix_of_text(void **unused)
{
	(void)unused;
	const char *s = "a\xC3\xA9\xED\x95\x9C\xF0\x9F\x98\x80";
	static const size_t want[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
	for (size_t n = 0; n <= strlen(s); n++)
		assert_int_equal(utf8_whole_prefix((const uint8_t *)s, n), want[n]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_scalar_values),    cmocka_unit_test(all_three_bytes),
	    cmocka_unit_test(hopeless_beginnings),  cmocka_unit_test(between_ascii),
	    cmocka_unit_test(whole_prefix_of_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
