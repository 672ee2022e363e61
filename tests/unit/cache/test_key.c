/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of keys, and the digest in them (FIPS 180-4's examples and OpenSSL as the oracle).
 */
#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cache/priv.h"

static void digests_are_those_of_the_standard(void **state)
{
	(void)state;
	char hex[65];
	cache_sha256_hex("", 0, hex);
	assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	cache_sha256_hex("abc", 3, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	cache_sha256_hex(two, strlen(two), hex);
	assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void expect_openssls(const uint8_t *data, size_t n)
{
	uint8_t theirs[32];
	char ours[65], hex[65];
	cache_sha256_hex(data, n, ours);
	SHA256(data, n, theirs);
	for (size_t i = 0; i < sizeof theirs; i++)
		snprintf(hex + 2 * i, 3, "%02x", theirs[i]);
	assert_string_equal(ours, hex);
}

static void digests_of_every_length_are_openssls(void **state)
{
	(void)state;
	uint8_t data[300];
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7 + 3);
	for (size_t n = 0; n <= sizeof data; n++)
		expect_openssls(data, n);
	static uint8_t large[1 << 20];
	memset(large, 'a', sizeof large);
	expect_openssls(large, sizeof large);
}

static void a_key_names_tenant_kind_and_digest(void **state)
{
	(void)state;
	struct cache_key key;
	cache_key_make(&key, CACHE_SESSION, "acme", "abc", 3);
	assert_string_equal(key.text,
			    "{acme}:session:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_int_equal(key.len, strlen(key.text));
	assert_int_equal(key.n_tenant, strlen("{acme}"));
	assert_string_equal(cache_key_digest(&key), key.text + strlen("{acme}:session:"));
	struct cache_key index;
	cache_key_index(&index, CACHE_SESSION, "acme");
	assert_string_equal(index.text, "{acme}:session:index");
}

static void what_a_client_sends_never_stands_in_a_key(void **state)
{
	(void)state;
	static const char *const bad[] = {"",
					  "a b",
					  "a}:limit:",
					  "x\r\nDEL y",
					  "\xff",
					  "a:b",
					  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct cache_key key, again, other;
		cache_key_make(&key, CACHE_LIMIT, bad[i], "\r\n*1", 4);
		assert_int_equal(key.text[1], '#');
		assert_int_equal(strspn(key.text + 2, "0123456789abcdef"), 48);
		assert_int_equal(strlen(key.text), strspn(key.text, "{}#:limt0123456789abcdef"));
		cache_key_make(&again, CACHE_LIMIT, bad[i], "\r\n*1", 4);
		assert_string_equal(key.text, again.text);
		cache_key_make(&other, CACHE_LIMIT, "other", "\r\n*1", 4);
		assert_string_not_equal(key.text, other.text);
	}
}

static void the_longest_key_fits(void **state)
{
	(void)state;
	char tenant[CACHE_TENANT_MAX + 1];
	memset(tenant, 't', CACHE_TENANT_MAX);
	tenant[CACHE_TENANT_MAX] = '\0';
	for (int kind = 0; kind < CACHE_N_KINDS; kind++) {
		struct cache_key key;
		cache_key_make(&key, (enum cache_kind)kind, tenant, "x", 1);
		assert_int_equal(key.len, strlen(key.text));
		assert_int_equal(key.text[1], 't');
	}
}

static void a_key_from_a_listed_digest_is_the_same(void **state)
{
	(void)state;
	struct cache_key key, again;
	cache_key_make(&key, CACHE_REPLAY, "acme", "resp_1", 6);
	assert_int_equal(cache_key_from_digest(&again, CACHE_REPLAY, "acme", cache_key_digest(&key), CACHE_DIGEST_LEN),
			 0);
	assert_string_equal(key.text, again.text);
	assert_int_equal(key.n_tenant, again.n_tenant);
	char bad[CACHE_DIGEST_LEN];
	memcpy(bad, cache_key_digest(&key), sizeof bad);
	assert_int_equal(cache_key_from_digest(&again, CACHE_REPLAY, "acme", bad, sizeof bad - 1), SL_EINVAL);
	bad[5] = 'G';
	assert_int_equal(cache_key_from_digest(&again, CACHE_REPLAY, "acme", bad, sizeof bad), SL_EINVAL);
	bad[5] = '\0';
	assert_int_equal(cache_key_from_digest(&again, CACHE_REPLAY, "acme", bad, sizeof bad), SL_EINVAL);
}

static void the_kinds_shares_of_memory_are_a_whole(void **state)
{
	(void)state;
	int sum = 0;
	for (int kind = 0; kind < CACHE_N_KINDS; kind++) {
		assert_true(cache_kind_memory_percent(kind) >= 10); /* cache.c counts on it */
		sum += cache_kind_memory_percent(kind);
	}
	assert_int_equal(sum, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(digests_are_those_of_the_standard),
	    cmocka_unit_test(digests_of_every_length_are_openssls),
	    cmocka_unit_test(a_key_names_tenant_kind_and_digest),
	    cmocka_unit_test(what_a_client_sends_never_stands_in_a_key),
	    cmocka_unit_test(the_longest_key_fits),
	    cmocka_unit_test(a_key_from_a_listed_digest_is_the_same),
	    cmocka_unit_test(the_kinds_shares_of_memory_are_a_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
