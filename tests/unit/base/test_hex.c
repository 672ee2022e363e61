/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as digits and back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/hex.h"

static void every_byte_comes_back(void **state)
{
	uint8_t all[256], back[256];
	char text[2 * sizeof all + 1];
	(void)state;
	for (int i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	hex_put(all, sizeof all, text);
	assert_int_equal(strlen(text), 2 * sizeof all);
	assert_memory_equal(text + 2 * 0x9a, "9a9b", 4);
	assert_true(hex_get(text, back, sizeof back));
	assert_memory_equal(all, back, sizeof all);
}

static void only_digits_in_full_number_are_read(void **state)
{
	uint8_t out[2];
	(void)state;
	assert_true(hex_get("aBCd", out, 2));
	assert_int_equal(out[0] << 8 | out[1], 0xabcd);
	assert_false(hex_get(NULL, out, 2));
	assert_false(hex_get("abc", out, 2));
	assert_false(hex_get("abcde", out, 2));
	assert_false(hex_get("abcg", out, 2));
	assert_false(hex_get("ab d", out, 2));
	assert_false(hex_get("/:@G", out, 2));
	assert_true(hex_get("", out, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_byte_comes_back),
	    cmocka_unit_test(only_digits_in_full_number_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
