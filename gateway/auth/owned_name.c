/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth/owned_name.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/hex.h"
#include "gateway/auth/browser_token.h"

enum { TEXT_BYTES = 2 * 16 + RANDOM_NAME_CHARS + BROWSER_TOKEN_SUBJECT_MAX + 32 };

/* random: RANDOM_NAME_CHARS. Tenant and random have fixed lengths, so different inputs give different texts. */
static void mark(const struct auth_key *key, const char *random, char out[OWNED_MARK_CHARS + 1])
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	char text[TEXT_BYTES];
	int n = snprintf(text, sizeof text, "subject\n%016llx\n%.*s\n%s", (unsigned long long)key->tenant,
			 RANDOM_NAME_CHARS, random, key->subject);
	BUG_IF(n < 0 || (size_t)n >= sizeof text, "auth: the subject is too long");
	SHA256((const uint8_t *)text, (size_t)n, digest);
	hex_put(digest, OWNED_MARK_CHARS / 2, out);
}

bool owned_name(const struct auth_key *key, char *dst)
{
	if (!random_name(dst))
		return false;
	if (key->kind == AUTH_TOKEN)
		mark(key, dst, dst + RANDOM_NAME_CHARS);
	return true;
}

bool owned_name_is_of(const struct auth_key *key, const char *name)
{
	char want[OWNED_MARK_CHARS + 1];
	if (key->kind != AUTH_TOKEN)
		return true;
	const char *random = strrchr(name, '_'), *other = strrchr(name, '-');
	random = random != NULL ? random : other;
	if (random == NULL || strlen(random + 1) != OWNED_NAME_CHARS)
		return false;
	mark(key, random + 1, want);
	return memcmp(random + 1 + RANDOM_NAME_CHARS, want, OWNED_MARK_CHARS) == 0;
}
