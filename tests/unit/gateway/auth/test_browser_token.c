/* SPDX-License-Identifier: Apache-2.0
 *
 * Browser tokens: what is written is read again, and nothing else is; records of keys in the store.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gateway/auth/browser_token.h"
#include "gateway/request/json_mem.h"

static const uint8_t secret[BROWSER_TOKEN_SECRET_BYTES] = "0123456789abcdef0123456789abcde";

static struct browser_token example(bool stored)
{
	struct browser_token t = {.stored = stored,
				  .name = "site",
				  .subject = "Zoë \"7\"",
				  .expires_s = 1000,
				  .origins = "https://a.example http://localhost:*"};
	if (stored) {
		snprintf(t.tier, sizeof t.tier, "paid");
		snprintf(t.tenant, sizeof t.tenant, "acme");
		memset(t.digest, 0xa7, sizeof t.digest);
	}
	return t;
}

static char *print(const struct browser_token *t, const uint8_t *with, int64_t period)
{
	struct sl_buf b;
	assert_int_equal(browser_token_print(t, period, with, &b), 0);
	char *text = strdup(buf_cstr(&b));
	buf_dispose(&b);
	return text;
}

static void what_is_written_is_read(void **state)
{
	(void)state;
	for (int stored = 0; stored < 2; stored++) {
		struct browser_token t = example(stored), back;
		char *text = print(&t, secret, 20000);
		int64_t period;
		assert_true(browser_token_period(text, &period));
		assert_int_equal(period, 20000);
		assert_int_equal(browser_token_read(text, secret, 999, &back), 0);
		assert_memory_equal(&t, &back, sizeof t);
		assert_int_equal(browser_token_read(text, secret, 1000, &back), SL_ETIMEOUT);
		/* The clock was ahead when it was made: it lives no longer for that. */
		assert_int_equal(browser_token_read(text, secret, 1000 - 3660, &back), 0);
		assert_int_equal(browser_token_read(text, secret, 1000 - 3661, &back), SL_ETIMEOUT);
		free(text);
	}
	struct browser_token largest = example(true), back;
	memset(largest.subject, '"', sizeof largest.subject - 1);
	memset(largest.origins, 'o', sizeof largest.origins - 1);
	memset(largest.name, 'n', sizeof largest.name - 1);
	char *text = print(&largest, secret, 9999999999);
	assert_int_equal(browser_token_read(text, secret, 0, &back), 0);
	assert_memory_equal(&largest, &back, sizeof back);
	free(text);
}

/* Any character changed, any piece missing, any other secret or period. */
static void forged_ones_are_not_read(void **state)
{
	(void)state;
	struct browser_token t = example(true), back;
	char *text = print(&t, secret, 20000);
	size_t n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		char kept = text[i];
		text[i] = kept == 'A' ? 'B' : 'A';
		assert_int_equal(browser_token_read(text, secret, 0, &back), SL_EINVAL);
		text[i] = kept;
	}
	for (size_t i = 0; i < n; i++) {
		char *cut = strndup(text, i);
		assert_int_equal(browser_token_read(cut, secret, 0, &back), SL_EINVAL);
		free(cut);
	}
	for (size_t i = 0; i < sizeof secret; i += 31) {
		uint8_t other[sizeof secret];
		memcpy(other, secret, sizeof other);
		other[i] ^= 1;
		assert_int_equal(browser_token_read(text, other, 0, &back), SL_EINVAL);
	}
	/* Another tenant's name under the same signature. */
	struct browser_token foreign = t;
	snprintf(foreign.tenant, sizeof foreign.tenant, "ecma");
	char *theirs = print(&foreign, secret, 20000);
	char *mac = strrchr(text, '.'), *their_mac = strrchr(theirs, '.');
	assert_string_not_equal(mac, their_mac);
	memcpy(their_mac, mac, strlen(mac));
	assert_int_equal(browser_token_read(theirs, secret, 0, &back), SL_EINVAL);
	free(theirs);
	/* Padding, other alphabets and what follows. */
	char *longer = malloc(n + 2);
	snprintf(longer, n + 2, "%s=", text);
	assert_int_equal(browser_token_read(longer, secret, 0, &back), SL_EINVAL);
	snprintf(longer, n + 2, "%s.", text);
	assert_int_equal(browser_token_read(longer, secret, 0, &back), SL_EINVAL);
	free(longer);
	free(text);
}

static void what_looks_like_one(void **state)
{
	static const char *const not [] = {"",         "sk-sluice-x", "sbt_",      "sbt_.a.b",
					   "sbt_12",   "sbt_-1.a.b",  "sbt_x.a.b", "sbt_12345678901.a.b",
					   "SBT_1.a.b"};
	int64_t period;
	struct browser_token back;
	(void)state;
	for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
		assert_false(browser_token_period(not [i], &period));
		assert_int_equal(browser_token_read(not [i], secret, 0, &back), SL_EINVAL);
	}
}

/* Signed well, but not by this program: nothing is taken from it that is not as it should be. */
static void signed_nonsense_is_refused(void **state)
{
	struct browser_token t = example(true), back;
	(void)state;
	memset(t.tenant, 0, sizeof t.tenant);
	memset(t.tier, 0, sizeof t.tier);
	char *text = print(&t, secret, 1);
	assert_int_equal(browser_token_read(text, secret, 0, &back), 0);
	assert_string_equal(back.tenant, "");
	free(text);
}

static void without_memory(void **state)
{
	(void)state;
	struct browser_token t = example(true), back;
	char *text = print(&t, secret, 1);
	int rc = SL_ENOMEM, n = 0;
	json_mem_install();
	while (rc != 0) {
		fault_arm(FAULT_ALLOC, ++n, 1);
		rc = browser_token_read(text, secret, 0, &back);
		fault_disarm_all();
		assert_true(rc == 0 || rc == SL_ENOMEM);
	}
	assert_true(n > 5);
	for (rc = SL_ENOMEM, n = 0; rc != 0;) {
		struct sl_buf b;
		fault_arm(FAULT_ALLOC, ++n, 1);
		rc = browser_token_print(&t, 1, secret, &b);
		fault_disarm_all();
		assert_true(rc == 0 || rc == SL_ENOMEM);
		buf_dispose(&b);
	}
	assert_true(n > 1);
	free(text);
	json_set_alloc_funcs(malloc, free);
}

static void records_of_keys(void **state)
{
	struct identity id = {.name = "alice",
			      .tier = "paid",
			      .tenant = "acme",
			      .start = "sk-sluice-ab12",
			      .origins = "https://a.example https://b.example:*",
			      .created_s = 5,
			      .expires_s = 10};
	struct identity back;
	struct sl_buf b;
	static const char *const bad[] = {
	    "",
	    "{}",
	    "[]",
	    "{\"name\":\"a\"",
	    "{\"name\":\"a\",\"tier\":\"t\",\"tenant\":\"\",\"start\":\"\",\"created\":1,\"expires\":0,\"revoked\":0,"
	    "\"origins\":[]}",
	    "{\"name\":\"a\",\"tier\":\"t\",\"tenant\":\"x\",\"start\":\"\",\"created\":1,\"expires\":-1,\"revoked\":0,"
	    "\"origins\":[]}",
	    "{\"name\":\"a\",\"tier\":\"t\",\"tenant\":\"x\",\"start\":\"\",\"created\":1,\"expires\":0,\"revoked\":0,"
	    "\"origins\":[\"a b\"]}",
	    "{\"name\":\"a\",\"tier\":\"t\",\"tenant\":\"x\",\"start\":\"\",\"created\":1,\"expires\":0,\"origins\":[]"
	    "}",
	};
	(void)state;
	buf_init(&b, IDENTITY_RECORD_MAX);
	assert_int_equal(identity_print(&b, &id), 0);
	assert_int_equal(identity_read(buf_data(&b), b.len, &back), 0);
	assert_memory_equal(&id, &back, sizeof id);
	buf_dispose(&b);
	assert_true(identity_valid(&id, 9));
	assert_false(identity_valid(&id, 10));
	id.revoked_s = 7;
	assert_false(identity_valid(&id, 9));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(identity_read(bad[i], strlen(bad[i]), &back), SL_EINVAL);
	assert_true(identity_name_ok("a.B_c-9"));
	assert_false(identity_name_ok(""));
	assert_false(identity_name_ok("a b"));
	assert_false(identity_name_ok("0123456789012345678901234567890123456789012345678901234567890123456789"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(forged_ones_are_not_read),
	    cmocka_unit_test(what_looks_like_one),     cmocka_unit_test(signed_nonsense_is_refused),
	    cmocka_unit_test(without_memory),          cmocka_unit_test(records_of_keys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
