/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread's cache of the store's keys. One query looks a key up, however many requests wait for it. Known keys are
 * cached for 30 s (the delay of a revocation), unknown ones for 2 s. The cache is bounded, and unknown keys never evict
 * known ones.
 *
 * An address pays a token for each unknown key that it sends; without tokens it gets TOO_MANY instead of UNKNOWN. Its
 * valid keys always work, because many clients behind a proxy or a NAT share an address. An address has at most half of
 * the queries in progress, which protects the store from guessing.
 *
 * While the store fails, known keys stay valid for some minutes: otherwise a restart of Redis would lock out every
 * client. During that time keys can't be revoked.
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
	uint64_t seed; /* of its hashes; 0: a random one, so that nobody can choose what collides */
	uint64_t known_ms, unknown_ms, stale_ms;
	size_t most_known, most_unknown, most_asked; /* asked: queries in progress */
	unsigned tries, tries_per_s;                 /* unknown keys of an address */
};
void identities_config_init(struct identities_config *cfg);

enum identity_verdict {
	IDENTITY_KNOWN,
	IDENTITY_UNKNOWN,     /* or revoked, or expired */
	IDENTITY_TOO_MANY,    /* unknown, and the address sent too many unknown keys; or it has too many queries */
	IDENTITY_UNAVAILABLE, /* the store does not respond */
	IDENTITY_ASKED,       /* done will be called */
};

/* Embedded in the waiting object. */
struct identity_wait {
	struct list node;
	/* From the loop, once, never with IDENTITY_ASKED. id (KNOWN) is borrowed. */
	void (*done)(struct identity_wait *w, enum identity_verdict v, const struct identity *id);
};

/* NULL: no memory. cfg is copied, NULL: the defaults. */
struct identities *identities_create(struct cache_client *client, const struct identities_config *cfg);
/* BUG if a request waits. NULL allowed. */
void identities_destroy(struct identities *all);

/* *out (KNOWN) is borrowed until control returns to the loop. */
enum identity_verdict identities_find(struct identities *all, const uint8_t digest[IDENTITY_DIGEST_BYTES],
				      const struct net_addr *from, struct identity_wait *w,
				      const struct identity **out);
/* Cancels a wait in progress: done is not called. */
void identity_wait_cancel(struct identity_wait *w);

/* The cached entries, for tests. */
struct identities_counts {
	size_t known, unknown, asked;
};
struct identities_counts identities_count(const struct identities *all);

#endif
