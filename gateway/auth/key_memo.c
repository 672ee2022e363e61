/* SPDX-License-Identifier: Apache-2.0
 *
 * A proxy's connection carries many clients. The comparison takes the same time for every key of that length, so its
 * time reveals only whether the last request had the client's own key.
 */
#include "gateway/auth/key_memo.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

struct key_memo {
	struct http_kept kept;
	uint8_t digest[AUTH_DIGEST_BYTES];
	size_t n; /* of the key */
	char key[];
};

static void dispose(struct http_kept *k)
{
	struct key_memo *m = list_entry(k, struct key_memo, kept);
	OPENSSL_cleanse(m, sizeof *m + m->n);
	sl_free(m);
}

/* Does nothing without memory. */
static void remember(struct http_stream *s, const char *key, size_t n, const uint8_t digest[AUTH_DIGEST_BYTES])
{
	struct http_kept **at = http_kept(s);
	if (*at != NULL)
		(*at)->dispose(*at);
	*at = NULL;
	struct key_memo *m = sl_alloc(sizeof *m + n);
	if (m == NULL)
		return;
	m->kept.dispose = dispose;
	m->n = n;
	memcpy(m->key, key, n);
	memcpy(m->digest, digest, AUTH_DIGEST_BYTES);
	*at = &m->kept;
}

bool key_memo_digest(struct http_stream *s, struct auth *keys, const char *bearer, uint8_t out[AUTH_DIGEST_BYTES])
{
	struct http_kept *kept = *http_kept(s);
	const struct key_memo *m = kept != NULL ? list_entry(kept, struct key_memo, kept) : NULL;
	size_t n = strlen(bearer);
	if (m != NULL && m->n == n && CRYPTO_memcmp(m->key, bearer, n) == 0) {
		memcpy(out, m->digest, AUTH_DIGEST_BYTES);
		return true;
	}
	if (!auth_digest(keys, bearer, out))
		return false;
	remember(s, bearer, n, out);
	return true;
}
