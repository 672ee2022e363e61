/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefetch hints cover whole lines; their number and the number of slots are bounded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/loop/prefetch.h"

static void whole_lines(void **state)
{
	static const struct {
		size_t at, bytes;
		int lines;
	} cases[] = {{0, 1, 1},    {0, 64, 1}, {0, 65, 2},
		     {63, 1, 1},   {63, 2, 2}, {1, 64, 2},
		     {16, 344, 6}, {0, 0, 0},  {8, SIZE_MAX / 2, PREFETCH_MAX_LINES}};
	static _Alignas(PREFETCH_LINE) char memory[PREFETCH_LINE];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct prefetch_hints f = {0};
		prefetch_add(&f, memory + cases[i].at, cases[i].bytes);
		assert_int_equal(f.n_lines[0], cases[i].lines);
		assert_int_equal(f.n_lines[1], 0);
		prefetch_fetch(&f); /* invalid addresses are harmless */
	}
}

static void no_more_hints_than_slots(void **state)
{
	struct prefetch_hints f = {0};
	char memory[PREFETCH_SLOTS + 1];
	(void)state;
	for (int i = 0; i <= PREFETCH_SLOTS; i++)
		prefetch_add(&f, &memory[i], 1);
	for (int i = 0; i < PREFETCH_SLOTS; i++)
		assert_ptr_equal(f.at[i], &memory[i]);
	prefetch_fetch(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whole_lines),
	    cmocka_unit_test(no_more_hints_than_slots),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
