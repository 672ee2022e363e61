/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory. A name of the kind content belongs to it and goes a while after its log has ended: the
 * ended ones stand in a list in the order of their ends, whose front is checked whenever a request
 * enters, so that no name is walked twice.
 *
 * Locks: the directory's before a log's.
 */
#include "gateway/sharing/coalesce.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/metrics.h"

enum { BUCKETS = 1024, SECRET_BYTES = 32 };

struct coalesce_name {
	struct list in_bucket; /* in none: forgotten */
	struct list in_ended;
	struct request_digest digest;
	bool retry;
	uint64_t window_ns, ended_ns;
	struct coalesce_claim claim; /* content: the log only */
};

struct coalescer {
	uint8_t secret[SECRET_BYTES];
	EVP_MD *sha256;
	pthread_mutex_t lock;
	struct list buckets[BUCKETS];
	struct list ended; /* content, the first to have ended first */
	size_t n, n_content;
};

GAUGE(names, "sluice_twins_names", "Answers that twins may join, by content or by retry");

int coalesce_create(struct coalescer **out)
{
	struct coalescer *ts = sl_zalloc(sizeof *ts);
	if (ts == NULL)
		return SL_ENOMEM;
	ts->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
	BUG_IF(ts->sha256 == NULL || RAND_bytes(ts->secret, SECRET_BYTES) != 1, "no digest or no random bytes");
	pthread_mutex_init(&ts->lock, NULL);
	for (int i = 0; i < BUCKETS; i++)
		list_init(&ts->buckets[i]);
	list_init(&ts->ended);
	*out = ts;
	return 0;
}

void coalesce_digest(const struct coalescer *ts, const struct iovec *parts, int n, struct request_digest *out)
{
	uint8_t both[SECRET_BYTES + SHA256_DIGEST_LENGTH];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool well = ctx != NULL && EVP_DigestInit_ex(ctx, ts->sha256, NULL) == 1;
	for (int i = 0; well && i < n; i++)
		well = EVP_DigestUpdate(ctx, parts[i].iov_base, parts[i].iov_len) == 1;
	memcpy(both, ts->secret, SECRET_BYTES);
	BUG_IF(!well || EVP_DigestFinal_ex(ctx, both + SECRET_BYTES, NULL) != 1, "no digest");
	EVP_MD_CTX_free(ctx);
	SHA256(both, sizeof both, out->bytes);
}

/* ---- names, under the lock ---- */

static struct list *bucket_of(struct coalescer *ts, const struct request_digest *d)
{
	uint64_t n;
	memcpy(&n, d->bytes, sizeof n);
	return &ts->buckets[n % BUCKETS];
}

static struct coalesce_name *find(struct coalescer *ts, const struct request_digest *d)
{
	list_each(it, bucket_of(ts, d)) {
		struct coalesce_name *name = list_entry(it, struct coalesce_name, in_bucket);
		if (memcmp(&name->digest, d, sizeof *d) == 0)
			return name;
	}
	return NULL;
}

static struct coalesce_name *add(struct coalescer *ts, const struct request_digest *d)
{
	struct coalesce_name *name = ts->n < COALESCE_MAX ? sl_zalloc(sizeof *name) : NULL;
	if (name == NULL)
		return NULL;
	name->digest = *d;
	list_init(&name->in_ended);
	list_push_back(bucket_of(ts, d), &name->in_bucket);
	ts->n++;
	metric_add(&names, 1);
	return name;
}

/* The name stays. */
static void unlist(struct coalescer *ts, struct coalesce_name *name)
{
	if (list_empty(&name->in_bucket))
		return;
	list_remove(&name->in_bucket);
	list_remove(&name->in_ended);
	ts->n--;
	ts->n_content -= !name->retry;
	metric_add(&names, -1);
}

static void release(struct coalescer *ts, struct coalesce_name *name)
{
	unlist(ts, name);
	if (name->claim.log != NULL)
		token_log_unref(name->claim.log);
	sl_free(name);
}

static void expire(struct coalescer *ts)
{
	uint64_t now = clock_now_ns();
	while (!list_empty(&ts->ended)) {
		struct coalesce_name *name = list_entry(ts->ended.next, struct coalesce_name, in_ended);
		if (now - name->ended_ns <= name->window_ns)
			return;
		release(ts, name);
	}
}

void coalesce_destroy(struct coalescer *ts)
{
	if (ts == NULL)
		return;
	while (!list_empty(&ts->ended))
		release(ts, list_entry(ts->ended.next, struct coalesce_name, in_ended));
	BUG_IF(ts->n != 0, "%zu answers may still be joined at the end", ts->n);
	pthread_mutex_destroy(&ts->lock);
	EVP_MD_free(ts->sha256);
	sl_free(ts);
}

/* ---- content ---- */

/* Its name, if it has one, is to be found for a while; one that failed can't be joined, which its log
 * knows. */
static void on_ended(void *ctx, struct token_log *log)
{
	struct coalescer *ts = ctx;
	struct coalesce_name *name = token_log_name(log);
	if (name == NULL)
		return;
	pthread_mutex_lock(&ts->lock);
	name->ended_ns = clock_now_ns();
	if (list_empty(&name->in_bucket) || name->window_ns == 0)
		release(ts, name);
	else
		list_push_back(&ts->ended, &name->in_ended);
	pthread_mutex_unlock(&ts->lock);
}

struct token_log *coalesce_log(struct coalescer *ts) { return token_log_create(on_ended, ts); }

/* One that can't be joined any more makes way for the next. Its name goes when it ends. */
static void make_way(struct coalescer *ts, struct coalesce_name *name)
{
	bool ended = !list_empty(&name->in_ended);
	unlist(ts, name);
	if (ended)
		release(ts, name);
}

int coalesce_enter(struct coalescer *ts, const struct request_digest *content, uint64_t window_ns,
		   struct token_log **out)
{
	int joined = 0;
	*out = NULL;
	pthread_mutex_lock(&ts->lock);
	expire(ts);
	struct coalesce_name *name = find(ts, content);
	if (name != NULL && token_log_joinable(name->claim.log)) {
		*out = token_log_ref(name->claim.log);
		joined = 1;
	} else {
		if (name != NULL)
			make_way(ts, name);
		struct token_log *log = coalesce_log(ts);
		name = log != NULL ? add(ts, content) : NULL;
		if (name != NULL) {
			ts->n_content++;
			name->window_ns = window_ns;
			name->claim.log = token_log_ref(log);
			token_log_set_name(log, name);
			*out = log;
		} else if (log != NULL) {
			token_log_unref(log);
		}
	}
	pthread_mutex_unlock(&ts->lock);
	return joined;
}

size_t coalesce_count(struct coalescer *ts)
{
	pthread_mutex_lock(&ts->lock);
	size_t n = ts->n_content;
	pthread_mutex_unlock(&ts->lock);
	return n;
}

/* ---- retries ---- */

struct coalesce_name *coalesce_name(struct coalescer *ts, const struct request_digest *retry,
				    const struct coalesce_claim *claim)
{
	pthread_mutex_lock(&ts->lock);
	struct coalesce_name *name = find(ts, retry) == NULL ? add(ts, retry) : NULL;
	if (name != NULL) {
		name->retry = true;
		name->claim = *claim;
		if (claim->log != NULL)
			token_log_ref(claim->log);
	}
	pthread_mutex_unlock(&ts->lock);
	return name;
}

void coalesce_forget(struct coalescer *ts, struct coalesce_name *name)
{
	if (name == NULL)
		return;
	pthread_mutex_lock(&ts->lock);
	release(ts, name);
	pthread_mutex_unlock(&ts->lock);
}

bool coalesce_find(struct coalescer *ts, const struct request_digest *retry, struct coalesce_claim *out)
{
	pthread_mutex_lock(&ts->lock);
	const struct coalesce_name *name = find(ts, retry);
	if (name != NULL) {
		*out = name->claim;
		if (out->log != NULL && token_log_joinable(out->log))
			token_log_ref(out->log);
		else
			out->log = NULL;
	}
	pthread_mutex_unlock(&ts->lock);
	return name != NULL;
}
