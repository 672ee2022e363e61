/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenSSL's record buffers: kept by thread, a few of them, and gone with it (the sanitizers' run looks for
 * what is lost).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <string.h>

#include "gateway/transport/tls_memory.h"

enum { RECORD = 16712, OTHER_RECORD = 16584, MANY = 10 };

static void take_and_return(void)
{
	void *all[MANY];
	for (int i = 0; i < MANY; i++) {
		all[i] = OPENSSL_malloc(i % 2 ? RECORD : OTHER_RECORD);
		assert_non_null(all[i]);
		memset(all[i], i, i % 2 ? RECORD : OTHER_RECORD);
	}
	for (int i = 0; i < MANY; i++)
		OPENSSL_free(all[i]);
}

static void a_record_comes_back_to_its_thread(void **state)
{
	(void)state;
	void *p = OPENSSL_malloc(RECORD);
	OPENSSL_free(p);
	void *q = OPENSSL_malloc(OTHER_RECORD);
	assert_ptr_equal(p, q); /* of either size */
	OPENSSL_free(q);
	take_and_return();
	take_and_return();
}

static void other_blocks_are_as_ever(void **state)
{
	static const size_t sizes[] = {1, 64, 1000, 16383, 18433, 70000};
	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint8_t *p = OPENSSL_zalloc(sizes[i]);
		assert_non_null(p);
		assert_int_equal(p[sizes[i] - 1], 0);
		p = OPENSSL_realloc(p, RECORD); /* a record that was none at first */
		memset(p, 1, RECORD);
		p = OPENSSL_realloc(p, 4 * RECORD);
		assert_int_equal(p[0], 1);
		OPENSSL_free(p);
	}
	OPENSSL_free(NULL);
}

static void *in_a_thread(void *arg)
{
	(void)arg;
	take_and_return();
	return NULL;
}

static void threads_take_theirs_with_them(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		pthread_t t;
		assert_int_equal(pthread_create(&t, NULL, in_a_thread, NULL), 0);
		pthread_join(t, NULL);
	}
}

int main(void)
{
	tls_memory_install();
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_record_comes_back_to_its_thread),
	    cmocka_unit_test(other_blocks_are_as_ever),
	    cmocka_unit_test(threads_take_theirs_with_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
