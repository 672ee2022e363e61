/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of the store as a thread knows them. A key is asked for once, however many requests wait for it,
 * and remembered for a while: one that is known for 30 s (so long a revocation may take to be seen), one
 * that is unknown for 2 s. What is remembered is bounded, and what is unknown never takes the place of
 * what is known.
 *
 * An address pays a token for each of its keys that the store does not know; with none left it gets TOO_MANY instead of
 * UNKNOWN. Its good keys are never refused for that: behind a proxy or a NAT many clients share one address. The
 * store is protected from guessing by a bound: an address has at most half of the queries under way.
 *
 * When the store fails, known keys stay valid for some minutes: otherwise a restart of Redis would lock
 * out every client. (Meanwhile keys can't be revoked either.)
 *
 * Thread: that of its cache client.
 */
#ifndef GATEWAY_IDENTITIES_H
#define GATEWAY_IDENTITIES_H

#include "base/list.h"
#include "gateway/auth/identity.h"
#include "gateway/loop/net_addr.h"

struct cache_client;
struct identities;

struct identities_config {
	uint64_t known_ms, unknown_ms, stale_ms;
	size_t most_known, most_unknown, most_asked; /* asked: at once */
	unsigned tries, tries_per_s;                 /* of an address: unknown keys */
};
void identities_config_init(struct identities_config *cfg);

enum identity_verdict {
	IDENTITY_KNOWN,
	IDENTITY_UNKNOWN,     /* or revoked, or over */
	IDENTITY_TOO_MANY,    /* unknown, and this address has shown too many such; or it asks too much at once */
	IDENTITY_UNAVAILABLE, /* the store gives no answer */
	IDENTITY_ASKED,       /* done will be called */
};

/* In whatever waits. */
struct identity_wait {
	struct list node;
	/* From the loop, once, never with IDENTITY_ASKED. id (KNOWN) is lent. */
	void (*done)(struct identity_wait *w, enum identity_verdict v, const struct identity *id);
};

/* NULL: no memory. cfg is copied, NULL: the defaults. */
struct identities *identities_create(struct cache_client *client, const struct identities_config *cfg);
/* Nobody waits any more: BUG. NULL is fine. */
void identities_destroy(struct identities *all);

/* *out (KNOWN) is lent until control returns to the loop. */
enum identity_verdict identities_find(struct identities *all, const uint8_t digest[IDENTITY_DIGEST_BYTES],
				      const struct net_addr *from, struct identity_wait *w,
				      const struct identity **out);
/* done will not come. Only of one that waits. */
void identity_wait_cancel(struct identity_wait *w);

/* What is remembered: for tests. */
struct identities_counts {
	size_t known, unknown, asked;
};
struct identities_counts identities_count(const struct identities *all);

#endif
