/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"

static void appends_and_consumes(void **unused)
{
	(void)unused;
	struct sl_buf b;
	char expected[5000];
	size_t n = 0;
	buf_init(&b, 4096);
	/* A queue whose front moves on while its end grows, many times around. */
	unsigned next = 0, front = 0;
	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 37 && n < 4000; i++, n++) {
			expected[n] = (char)next++;
			assert_int_equal(buf_append(&b, &expected[n], 1), 0);
		}
		size_t take = (size_t)(round * 7 % 41) % (n + 1);
		for (size_t i = 0; i < take; i++)
			assert_int_equal((char)buf_data(&b)[i], (char)front++);
		buf_consume(&b, take);
		memmove(expected, expected + take, n - take);
		n -= take;
		assert_int_equal(b.len, n);
		if (n > 0)
			assert_memory_equal(buf_data(&b), expected, n);
	}
	buf_dispose(&b);
}

static void bound_holds_and_appends_nothing(void **unused)
{
	(void)unused;
	struct sl_buf b;
	uint8_t *at;
	buf_init(&b, 10);
	assert_int_equal(buf_append(&b, "12345678", 8), 0);
	assert_int_equal(buf_append(&b, "abc", 3), SL_ELIMIT);
	assert_int_equal(b.len, 8);
	assert_int_equal(buf_reserve(&b, SIZE_MAX, &at), SL_ELIMIT);
	assert_int_equal(buf_append(&b, "ab", 2), 0);
	buf_consume(&b, 4);
	assert_int_equal(buf_append(&b, "wxyz", 4), 0); /* consumed room counts again */
	assert_memory_equal(buf_data(&b), "5678abwxyz", 10);
	buf_dispose(&b);
}

static void none_holds_more_than_it_can_count(void **unused)
{
	(void)unused;
	struct sl_buf b;
	uint8_t *at;
	buf_init(&b, SIZE_MAX);
	assert_int_equal(buf_append(&b, "some", 4), 0);
	assert_int_equal(buf_reserve(&b, BUF_MOST - 3, &at), SL_ELIMIT);
	volatile size_t most = BUF_MOST;                          /* the compiler would tell that "abc" is shorter */
	assert_int_equal(buf_append(&b, "abc", most), SL_ELIMIT); /* it does not look at them */
	assert_int_equal(buf_reserve(&b, (size_t)UINT32_MAX + 1, &at), SL_ELIMIT);
	buf_cut(&b, 2);
	assert_int_equal(buf_append(&b, "ap", 2), 0);
	assert_string_equal(buf_cstr(&b), "soap");
	buf_dispose(&b);
}

static void prints_and_terminates(void **unused)
{
	(void)unused;
	struct sl_buf b;
	buf_init(&b, 64);
	assert_string_equal(buf_cstr(&b), "");
	assert_int_equal(buf_printf(&b, "%d-%s", 42, "x"), 0);
	assert_int_equal(b.len, 4);
	assert_string_equal(buf_cstr(&b), "42-x");
	assert_int_equal(b.len, 4);
	buf_clear(&b, 0);
	assert_null(b.mem);
	buf_dispose(&b);
	buf_init(&b, 4);
	assert_int_equal(buf_append_str(&b, "full"), 0);
	assert_string_equal(buf_cstr(&b), "full"); /* the terminator is outside the bound */
	buf_dispose(&b);
}

static void prints_what_just_fits_and_what_does_not(void **unused)
{
	(void)unused;
	char want[300];
	/* Every length around the first and the second piece of memory, from every place in it. */
	for (int before = 0; before < 70; before += 3)
		for (int n = 0; n < 140; n++) {
			struct sl_buf b;
			buf_init(&b, 1000);
			assert_int_equal(buf_printf(&b, "%*s", before, ""), 0);
			assert_int_equal(buf_printf(&b, "%0*d", n, 7), 0);
			snprintf(want, sizeof want, "%*s%0*d", before, "", n, 7);
			assert_string_equal(buf_cstr(&b), want);
			buf_dispose(&b);
		}
}

static void numbers_in_decimal(void **unused)
{
	(void)unused;
	struct sl_buf b;
	buf_init(&b, 23);
	assert_int_equal(buf_append_uint(&b, 0), 0);
	assert_int_equal(buf_append_uint(&b, 10), 0);
	assert_int_equal(buf_append_uint(&b, UINT64_MAX), 0);
	assert_string_equal(buf_cstr(&b), "01018446744073709551615");
	assert_int_equal(buf_append_uint(&b, 1), SL_ELIMIT);
	assert_int_equal(b.len, 23);
	buf_dispose(&b);
}

static void trimmed_it_holds_the_same(void **unused)
{
	(void)unused;
	struct sl_buf b;
	buf_init(&b, 1000);
	buf_trim(&b);
	assert_int_equal(buf_append_str(&b, "some text"), 0);
	fault_arm(FAULT_ALLOC, 1, 1);
	buf_trim(&b); /* stays as it is */
	fault_disarm_all();
	assert_true(b.cap > b.len);
	buf_trim(&b);
	assert_int_equal(b.cap, 9);
	assert_int_equal(buf_append_str(&b, ", more"), 0);
	buf_consume(&b, 5);
	buf_trim(&b);
	assert_string_equal(buf_cstr(&b), "text, more");
	buf_dispose(&b);
}

static void exhaustion_leaves_it_whole(void **unused)
{
	(void)unused;
	struct sl_buf b;
	char big[1000] = {0};
	buf_init(&b, 1 << 20);
	assert_int_equal(buf_append_str(&b, "kept"), 0);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(buf_append(&b, big, sizeof big), SL_ENOMEM);
	fault_disarm_all();
	assert_int_equal(b.len, 4);
	assert_memory_equal(buf_data(&b), "kept", 4);
	assert_int_equal(buf_append(&b, big, sizeof big), 0);
	buf_dispose(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(appends_and_consumes),
	    cmocka_unit_test(bound_holds_and_appends_nothing),
	    cmocka_unit_test(none_holds_more_than_it_can_count),
	    cmocka_unit_test(prints_and_terminates),
	    cmocka_unit_test(prints_what_just_fits_and_what_does_not),
	    cmocka_unit_test(numbers_in_decimal),
	    cmocka_unit_test(trimmed_it_holds_the_same),
	    cmocka_unit_test(exhaustion_leaves_it_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
