/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/sharing/inflight.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

enum { DIGEST_SECRET_BYTES = 32 };

int inflight_create(struct inflight **out)
{
	struct inflight *f = sl_zalloc(sizeof *f);
	if (f == NULL)
		return SL_ENOMEM;
	f->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	BUG_IF(f->sha256 == NULL || RAND_bytes(f->secret, sizeof f->secret) != 1,
	       "sharing: no SHA-256 or no random bytes");
	pthread_mutex_init(&f->lock, NULL);
	list_init(&f->ended);
	for (int i = 0; i < INFLIGHT_BUCKETS; i++)
		list_init(&f->buckets[i]);
	*out = f;
	return 0;
}

void inflight_destroy(struct inflight *f)
{
	if (f == NULL)
		return;
	for (int i = 0; i < INFLIGHT_KINDS; i++)
		BUG_IF(f->n[i] != 0, "sharing: %zu requests of kind %d are in flight at the end", f->n[i], i);
	pthread_mutex_destroy(&f->lock);
	EVP_MD_free(f->sha256);
	sl_free(f);
}

void inflight_digest(const struct inflight *f, const struct iovec *parts, int n, struct request_digest *out)
{
	uint8_t both[DIGEST_SECRET_BYTES + SHA256_DIGEST_LENGTH];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool well = ctx != NULL && EVP_DigestInit_ex(ctx, f->sha256, NULL) == 1;
	for (int i = 0; well && i < n; i++)
		well = EVP_DigestUpdate(ctx, parts[i].iov_base, parts[i].iov_len) == 1;
	memcpy(both, f->secret, DIGEST_SECRET_BYTES);
	BUG_IF(!well || EVP_DigestFinal_ex(ctx, both + DIGEST_SECRET_BYTES, NULL) != 1, "sharing: no digest");
	EVP_MD_CTX_free(ctx);
	SHA256(both, sizeof both, out->bytes);
}

static const struct list *bucket_of(const struct inflight *f, const struct request_digest *d)
{
	uint64_t n;
	memcpy(&n, d->bytes, sizeof n);
	return &f->buckets[n % INFLIGHT_BUCKETS];
}

static bool is_full(const struct inflight *f, enum inflight_kind kind)
{
	if (kind == INFLIGHT_USER)
		return f->n[INFLIGHT_USER] >= INFLIGHT_MAX_PROMPTS;
	return f->n[INFLIGHT_CONTENT] + f->n[INFLIGHT_RETRY] >= INFLIGHT_MAX_NAMES;
}

bool inflight_add(struct inflight *f, struct inflight_entry *e, enum inflight_kind kind,
		  const struct request_digest *digest)
{
	if (is_full(f, kind))
		return false;
	e->digest = *digest;
	e->kind = kind;
	list_push_back((struct list *)bucket_of(f, digest), &e->node);
	f->n[kind]++;
	return true;
}

void inflight_remove(struct inflight *f, struct inflight_entry *e)
{
	if (!inflight_listed(e))
		return;
	list_remove(&e->node);
	f->n[e->kind]--;
}

struct inflight_entry *inflight_find(const struct inflight *f, enum inflight_kind kind,
				     const struct request_digest *digest, const struct inflight_entry *after)
{
	const struct list *bucket = bucket_of(f, digest), *it = after != NULL ? after->node.next : bucket->next;
	for (; it != bucket; it = it->next) {
		struct inflight_entry *e = list_entry(it, struct inflight_entry, node);
		if (e->kind == kind && memcmp(&e->digest, digest, sizeof *digest) == 0)
			return e;
	}
	return NULL;
}
