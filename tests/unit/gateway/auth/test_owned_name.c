/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose a name is: a key's and an anonymous one's are their tenant's; a token's are its subject's, and no others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "gateway/auth/browser_token.h"
#include "gateway/auth/owned_name.h"

enum { NAME_BYTES = 128 };

static struct auth_key somebody(enum auth_kind kind, uint64_t tenant, const char *subject)
{
	return (struct auth_key){.kind = kind, .tenant = tenant, .subject = subject};
}

static void name_of(const struct auth_key *who, const char *prefix, char out[NAME_BYTES])
{
	size_t n = strlen(prefix);
	memset(out, '!', NAME_BYTES);
	memcpy(out, prefix, n);
	assert_true(owned_name(who, out + n));
	size_t chars = who->kind == AUTH_TOKEN ? OWNED_NAME_CHARS : RANDOM_NAME_CHARS;
	assert_int_equal(strlen(out), n + chars);
	assert_int_equal(strspn(out + n, "0123456789abcdef"), chars);
	assert_int_equal(out[n + chars + 1], '!'); /* nothing is written behind the NUL */
}

static void a_token_has_its_subjects_names_only(void **state)
{
	static const char *const prefixes[] = {"resp_", "conv_", "chatcmpl-", "cmpl-"};
	const struct auth_key a = somebody(AUTH_TOKEN, 7, "a"), again = somebody(AUTH_TOKEN, 7, "a");
	const struct auth_key b = somebody(AUTH_TOKEN, 7, "b"), empty = somebody(AUTH_TOKEN, 7, "");
	const struct auth_key longer = somebody(AUTH_TOKEN, 7, "aa"), elsewhere = somebody(AUTH_TOKEN, 8, "a");
	char name[NAME_BYTES], other[NAME_BYTES];
	(void)state;
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
		name_of(&a, prefixes[i], name);
		name_of(&a, prefixes[i], other);
		assert_string_not_equal(name, other);
		assert_true(owned_name_is_of(&a, name) && owned_name_is_of(&again, name));
		assert_false(owned_name_is_of(&b, name) || owned_name_is_of(&empty, name));
		assert_false(owned_name_is_of(&longer, name) || owned_name_is_of(&elsewhere, name));
		name_of(&empty, prefixes[i], name);
		assert_true(owned_name_is_of(&empty, name));
		assert_false(owned_name_is_of(&a, name));
	}
}

static void a_key_is_the_operator_of_its_subjects(void **state)
{
	static const enum auth_kind kinds[] = {AUTH_CONFIGURED, AUTH_STORED, AUTH_ANONYMOUS};
	const struct auth_key a = somebody(AUTH_TOKEN, 7, "a"), empty = somebody(AUTH_TOKEN, 7, "");
	char name[NAME_BYTES], own[NAME_BYTES];
	(void)state;
	name_of(&a, "resp_", name);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		const struct auth_key key = somebody(kinds[i], 7, "");
		name_of(&key, "resp_", own);
		assert_true(owned_name_is_of(&key, name) && owned_name_is_of(&key, own));
		assert_true(owned_name_is_of(&key, "") && owned_name_is_of(&key, "anything"));
		assert_false(owned_name_is_of(&a, own) || owned_name_is_of(&empty, own));
	}
}

/* The longest there is has a mark of all its bytes. */
static void long_subjects_are_told_apart(void **state)
{
	char one[BROWSER_TOKEN_SUBJECT_MAX + 1] = "", two[BROWSER_TOKEN_SUBJECT_MAX + 1] = "", name[NAME_BYTES];
	(void)state;
	memset(one, 's', BROWSER_TOKEN_SUBJECT_MAX);
	memset(two, 's', BROWSER_TOKEN_SUBJECT_MAX - 1);
	two[BROWSER_TOKEN_SUBJECT_MAX - 1] = 't';
	const struct auth_key a = somebody(AUTH_TOKEN, UINT64_MAX, one), b = somebody(AUTH_TOKEN, UINT64_MAX, two);
	name_of(&a, "conv_", name);
	assert_true(owned_name_is_of(&a, name));
	assert_false(owned_name_is_of(&b, name));
}

/* Every digit counts, and every length but the right one is nobody's. */
static void malformed_names_are_no_tokens(void **state)
{
	const struct auth_key a = somebody(AUTH_TOKEN, 7, "a");
	char name[NAME_BYTES], changed[2 * NAME_BYTES];
	(void)state;
	name_of(&a, "resp_", name);
	size_t n = strlen(name);
	for (size_t i = 5; i < n; i++) {
		memcpy(changed, name, n + 1);
		changed[i] = changed[i] == '0' ? '1' : '0';
		assert_false(owned_name_is_of(&a, changed));
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(changed, name, n + 1);
		changed[i] = '\0';
		assert_false(owned_name_is_of(&a, changed));
		if (i >= 5) {
			changed[i] = i % 2 == 0 ? '_' : '-';
			assert_false(owned_name_is_of(&a, changed));
		}
	}
	snprintf(changed, sizeof changed, "%s0", name);
	assert_false(owned_name_is_of(&a, changed));
	snprintf(changed, sizeof changed, "%s%s", name, name + 5);
	assert_false(owned_name_is_of(&a, changed));
	assert_false(owned_name_is_of(&a, name + 5)); /* without a prefix */
	assert_false(owned_name_is_of(&a, ""));
	assert_false(owned_name_is_of(&a, "_"));
	assert_false(owned_name_is_of(&a, "-"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_token_has_its_subjects_names_only),
	    cmocka_unit_test(a_key_is_the_operator_of_its_subjects),
	    cmocka_unit_test(long_subjects_are_told_apart),
	    cmocka_unit_test(malformed_names_are_no_tokens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
