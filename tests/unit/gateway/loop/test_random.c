/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and numbers nobody can guess: each is given once, to one thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/loop/random.h"

enum { EACH = 1000, THREADS = 2 };

static void *draw(void *arg)
{
	uint64_t *out = arg;
	for (int i = 0; i < EACH; i++)
		if (!random_u64(&out[i]))
			return NULL;
	return arg;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void no_number_comes_twice(void **state)
{
	static uint64_t all[THREADS * EACH];
	pthread_t threads[THREADS];
	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, draw, all + i * EACH), 0);
	for (int i = 0; i < THREADS; i++) {
		void *done;
		assert_int_equal(pthread_join(threads[i], &done), 0);
		assert_non_null(done);
	}
	qsort(all, THREADS * EACH, sizeof *all, by_value);
	assert_true(all[0] != 0);
	for (int i = 1; i < THREADS * EACH; i++)
		assert_true(all[i] != all[i - 1]);
}

static void a_name_is_hex_of_full_length(void **state)
{
	char name[RANDOM_NAME_CHARS + 1], other[RANDOM_NAME_CHARS + 1];
	(void)state;
	for (int i = 0; i < EACH; i++) {
		memset(name, '?', sizeof name);
		assert_true(random_name(name));
		assert_int_equal(strlen(name), RANDOM_NAME_CHARS);
		assert_int_equal(strspn(name, "0123456789abcdef"), RANDOM_NAME_CHARS);
		assert_true(random_name(other));
		assert_string_not_equal(name, other);
	}
}

static void a_share_is_that_of_the_calls(void **state)
{
	int n = 0;
	(void)state;
	for (int i = 0; i < 4000; i++) {
		assert_true(random_share(1) && random_share(2));
		assert_false(random_share(0) || random_share(-1));
		n += random_share(0.25);
	}
	assert_true(n > 800 && n < 1200); /* seven deviations */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_number_comes_twice),
	    cmocka_unit_test(a_name_is_hex_of_full_length),
	    cmocka_unit_test(a_share_is_that_of_the_calls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
