/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection's last key is not hashed again, and no other key is taken for it.
 */
#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/fault.h"
#include "gateway/transport/http_stream.h"
#include "gateway/auth/key_memo.h"

static struct conn conn;
static struct http_stream stream = {.conn = &conn};
static struct auth *keys;

static int start(void **state)
{
	static const struct gw_config cfg;
	struct sl_err err;
	(void)state;
	return auth_create(&cfg, NULL, &keys, &err);
}

static int end(void **state)
{
	(void)state;
	auth_destroy(keys);
	return 0;
}

static void forget(void)
{
	if (conn.kept != NULL)
		conn.kept->dispose(conn.kept);
	conn.kept = NULL;
}

static void expect(const char *key)
{
	uint8_t want[AUTH_DIGEST_BYTES], got[AUTH_DIGEST_BYTES];
	SHA256((const uint8_t *)key, strlen(key), want);
	assert_true(key_memo_digest(&stream, keys, key, got));
	assert_memory_equal(got, want, sizeof want);
}

static void every_key_has_its_own_digest(void **state)
{
	static const char *const each[] = {"one", "one", "two", "one more", "one", "on", "", "two"};
	(void)state;
	for (size_t i = 0; i < sizeof each / sizeof *each; i++)
		if (each[i][0] != '\0')
			expect(each[i]);
		else
			assert_false(key_memo_digest(&stream, keys, "", (uint8_t[AUTH_DIGEST_BYTES]){0}));
	forget();
}

/* The same place is still there: nothing was hashed. Another key has another. */
static void the_last_key_is_remembered(void **state)
{
	(void)state;
	expect("one");
	const struct http_kept *first = conn.kept;
	assert_non_null(first);
	fault_arm(FAULT_ALLOC, 1, 1);
	expect("one");
	fault_disarm_all();
	assert_ptr_equal(conn.kept, first);
	forget();
}

static void keys_too_long_are_no_keys(void **state)
{
	(void)state;
	char key[600];
	uint8_t got[AUTH_DIGEST_BYTES];
	memset(key, 'k', sizeof key - 1);
	key[sizeof key - 1] = '\0';
	expect("one");
	assert_false(key_memo_digest(&stream, keys, key, got));
	expect("one");
	key[512] = '\0';
	expect(key);
	expect(key);
	forget();
}

static void without_memory_it_is_hashed_each_time(void **state)
{
	(void)state;
	expect("one");
	for (int i = 0; i < 3; i++) {
		fault_arm(FAULT_ALLOC, 1, 1);
		expect("two");
		fault_disarm_all();
		assert_null(conn.kept);
	}
	expect("two");
	assert_non_null(conn.kept);
	forget();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_key_has_its_own_digest),
	    cmocka_unit_test(the_last_key_is_remembered),
	    cmocka_unit_test(keys_too_long_are_no_keys),
	    cmocka_unit_test(without_memory_it_is_hashed_each_time),
	};
	return cmocka_run_group_tests(tests, start, end);
}
