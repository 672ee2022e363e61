/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: requests that share work, replace one another, or are repeated. This file is its directory: what this
 * process is answering, by digest.
 *
 *   content  the user and the whole request       identical requests join one generation (coalesce.h)
 *   retry    an Idempotency-Key                   a repeated request joins the first (idempotent.h)
 *   user     a user of a tenant                   a newer prompt ends an older one (supersede.h)
 *
 * Digests are SHA-256 keyed with a secret of the process: clients can neither construct two equal ones nor learn what
 * one represents. Each kind has a bound. Without room, a request is answered, but neither joined nor superseded.
 *
 * Thread: any. One lock, taken when an answer begins and ends, never in between, and before a token log's lock.
 * Callers: gateway/answer, gateway/api.
 */
#ifndef GATEWAY_INFLIGHT_H
#define GATEWAY_INFLIGHT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"

enum inflight_kind { INFLIGHT_CONTENT, INFLIGHT_RETRY, INFLIGHT_USER, INFLIGHT_KINDS };
enum { INFLIGHT_MAX_NAMES = 16384, INFLIGHT_MAX_PROMPTS = 65536, INFLIGHT_BUCKETS = 2048, INFLIGHT_SECRET_BYTES = 192 };

struct request_digest {
	uint8_t bytes[32];
};

/* Embedded in the listed objects; the owner initialises node. */
struct inflight_entry {
	struct list node;
	struct request_digest digest;
	enum inflight_kind kind;
};

struct inflight {
	uint8_t secret[INFLIGHT_SECRET_BYTES];
	pthread_mutex_t lock;
	struct list ended; /* coalesce.c: ended answers that can still be joined, the oldest first */
	size_t n[INFLIGHT_KINDS];
	struct evp_md_st *sha256;
	struct list buckets[INFLIGHT_BUCKETS];
};

int inflight_create(struct inflight **out);
/* BUG if anything is in flight; call coalesce_drop_ended before. NULL allowed. */
void inflight_destroy(struct inflight *f);
/* Digest of the n parts in order, keyed with the process's secret. Needs no lock. */
void inflight_digest(const struct inflight *f, const struct iovec *parts, int n, struct request_digest *out);

/* ---- under the lock ---- */

/* False: the kind has no room. */
bool inflight_add(struct inflight *f, struct inflight_entry *e, enum inflight_kind kind,
		  const struct request_digest *digest);
/* Harmless if e is not listed. */
void inflight_remove(struct inflight *f, struct inflight_entry *e);
static inline bool inflight_listed(const struct inflight_entry *e) { return !list_empty(&e->node); }
/* The entry after `after` (NULL: the first) of that kind and digest; NULL: none. */
struct inflight_entry *inflight_find(const struct inflight *f, enum inflight_kind kind,
				     const struct request_digest *digest, const struct inflight_entry *after);

#endif
