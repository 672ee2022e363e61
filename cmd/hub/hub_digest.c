/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_digest.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

int hub_digest_begin(struct hub_digest *d, enum hub_hash hash, uint64_t size)
{
	char head[40];
	if (d->ctx == NULL)
		d->ctx = EVP_MD_CTX_new();
	d->hash = hash;
	if (d->ctx == NULL || EVP_DigestInit_ex(d->ctx, hash == HUB_GIT_SHA1 ? EVP_sha1() : EVP_sha256(), NULL) != 1)
		return SL_ENOMEM;
	if (hash != HUB_GIT_SHA1)
		return 0;
	int n = snprintf(head, sizeof head, "blob %" PRIu64, size);
	return hub_digest_add(d, head, (size_t)n + 1); /* with its zero byte */
}

int hub_digest_add(struct hub_digest *d, const void *bytes, size_t n)
{
	return EVP_DigestUpdate(d->ctx, bytes, n) == 1 ? 0 : SL_ENOMEM;
}

int hub_digest_end(struct hub_digest *d, uint8_t out[HUB_DIGEST_BYTES])
{
	uint8_t all[EVP_MAX_MD_SIZE] = {0};
	int rc = EVP_DigestFinal_ex(d->ctx, all, NULL) == 1 ? 0 : SL_ENOMEM;
	memcpy(out, all, HUB_DIGEST_BYTES);
	hub_digest_dispose(d);
	return rc;
}

void hub_digest_dispose(struct hub_digest *d)
{
	EVP_MD_CTX_free(d->ctx);
	d->ctx = NULL;
}
