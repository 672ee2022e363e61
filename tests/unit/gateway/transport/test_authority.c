/* SPDX-License-Identifier: Apache-2.0
 *
 * host[:port] and nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/transport/authority.h"

static void authorities(void **state)
{
	(void)state;
	static const char *const good[] = {"a",
					   "localhost:1",
					   "Example.com:8080",
					   "a.b-c_d~e",
					   "127.0.0.1:65535",
					   "[::1]",
					   "[::1]:443",
					   "[2001:db8::1:0:0:1]:8443",
					   "[::ffff:192.0.2.1]",
					   "a:",
					   "xn--bcher-kva.example:08080",
					   "%41%2d:1",
					   "a!$&'()*+,;=b"};
	static const char *const bad[] = {"",
					  ":",
					  ":80",
					  "user@host",
					  "user:password@host",
					  "user:password@host:80",
					  "@host",
					  "host@",
					  "host:80@",
					  "a/b",
					  "a?b",
					  "a#b",
					  "a b",
					  " a",
					  "a ",
					  "a\tb",
					  "a\\b",
					  "a\"b",
					  "<a>",
					  "a|b",
					  "a,b/",
					  "a:b",
					  "a:8o",
					  "a:+80",
					  "a:-1",
					  "a: 80",
					  "a:80 ",
					  "a:65536",
					  "a:99999999999999999999",
					  "a:80:80",
					  "::1",
					  "[::1",
					  "::1]",
					  "[]",
					  "[a]",
					  "[::1]a",
					  "[::1]80",
					  "[::1]]:80",
					  "[::1%25eth0]",
					  "[v1.a]",
					  "[127.0.0.1]",
					  "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]",
					  "%",
					  "a%4",
					  "a%4g",
					  "a%zz",
					  "\xc3\xa4",
					  "a\x7f"};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		if (!authority_is_valid(good[i], strlen(good[i])))
			fail_msg("'%s' is refused", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (authority_is_valid(bad[i], strlen(bad[i])))
			fail_msg("'%s' is taken", bad[i]);
}

/* Every byte beside letters and digits, in the host and in the port. Nothing is read behind the end. */
static void bytes(void **state)
{
	(void)state;
	for (int b = 0; b < 256; b++) {
		char host[] = {'a', (char)b, 'c'}, port[] = {'a', ':', '1', (char)b};
		int letter = (b >= '0' && b <= '9') || ((b | 32) >= 'a' && (b | 32) <= 'z');
		int taken = letter || (b != 0 && strchr("-._~!$&'()*+,;=", b) != NULL);
		assert_int_equal(authority_is_valid(host, 3), taken);
		assert_int_equal(authority_is_valid(port, 4), b >= '0' && b <= '9');
	}
	assert_false(authority_is_valid("a\0b", 3));
	assert_false(authority_is_valid("[::1\0]", 6));
	assert_true(authority_is_valid("a%41", 4));
	assert_false(authority_is_valid("a%41", 3));
	assert_true(authority_is_valid("host@", 4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(authorities), cmocka_unit_test(bytes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
