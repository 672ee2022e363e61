/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the CPU backend: zeroed and aligned whatever its size; large memory is resident only where it was
 * written to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/backend.h"

static void test_zeroed(void **arg)
{
	(void)arg;
	static const size_t sizes[] = {
	    1, 63, 64, 65, 4096, (1 << 20) - 128, (1 << 20) - 64, 1 << 20, (1 << 20) + 1, 5 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int again = 0; again < 2; again++) {
			void *p = NULL;
			assert_int_equal(kn_memory_take(sizes[i], &p), 0);
			assert_int_equal((uintptr_t)p % KN_ALIGN, 0);
			uint8_t *at = p;
			for (size_t k = 0; k < sizes[i]; k++)
				assert_int_equal(at[k], 0);
			memset(at, 0xa5, sizes[i]); /* what comes next may lie there */
			kn_memory_give(p);
		}
	kn_memory_give(NULL);
}

static void test_impossible(void **arg)
{
	(void)arg;
	void *p = NULL;
	assert_int_equal(kn_memory_take(0, &p), SL_ENOMEM);
	assert_int_equal(kn_memory_take(SIZE_MAX, &p), SL_ENOMEM);
	assert_int_equal(kn_memory_take(SIZE_MAX - 100, &p), SL_ENOMEM);
	assert_int_equal(kn_memory_take((size_t)1 << 60, &p), SL_ENOMEM);
	assert_null(p);
}

static long resident_pages(void)
{
	long all, resident;
	FILE *f = fopen("/proc/self/statm", "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &all, &resident), 2);
	fclose(f);
	return resident;
}

static void test_not_resident(void **arg)
{
	(void)arg;
#ifdef __SANITIZE_THREAD__
	skip(); /* what it keeps of each byte is resident too */
#endif
	enum { BYTES = 256 << 20, PAGE = 4096 };
	void *p = NULL;
	long before = resident_pages();
	assert_int_equal(kn_memory_take(BYTES, &p), 0);
	assert_true(resident_pages() - before < (4 << 20) / PAGE);
	memset((uint8_t *)p + BYTES / 2, 1, 16 << 20);
	long written = resident_pages() - before;
	assert_true(written >= (16 << 20) / PAGE && written < (32 << 20) / PAGE);
	kn_memory_give(p);
	assert_true(resident_pages() - before < (8 << 20) / PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_zeroed),
	    cmocka_unit_test(test_impossible),
	    cmocka_unit_test(test_not_resident),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
