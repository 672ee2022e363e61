/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: who sends a request, and the configuration it runs under: keys (this file; in the store: identities.h),
 * browser tokens, names of owned objects, CORS, snapshots. gateway/exchange decides on access with it.
 *
 * The keys of the configuration. Each configuration snapshot has one set, which holds SHA-256 digests only; a
 * request's key is hashed and looked up by digest in constant time. The set is immutable except for its counters and
 * shared by threads. Stored keys, browser tokens and anonymous identities are created per request (access.h) and
 * reference-counted.
 */
#ifndef GATEWAY_AUTH_H
#define GATEWAY_AUTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gateway/config/gw_config.h"
#include "gateway/transport/http.h"

enum { AUTH_DIGEST_BYTES = 32 };

/* How a request was authenticated. */
enum auth_kind {
	AUTH_CONFIGURED, /* a key of the configuration, or a development key */
	AUTH_STORED,     /* a key of the store */
	AUTH_TOKEN,      /* a browser token made by one of them */
	AUTH_ANONYMOUS,  /* no credentials: by address */
};

struct auth_key {
	uint8_t digest[AUTH_DIGEST_BYTES]; /* of a key; otherwise zero */
	enum auth_kind kind;
	const char *name;                  /* for logs; never the key */
	const struct gw_tier_config *tier; /* NULL: an administrator's key */
	uint64_t tenant;                   /* the owner of limits and stored objects */
	const char *tenant_name;           /* of a stored key or its token; otherwise "" */
	const char *subject;               /* the token's subject; otherwise "" */
	const char *origins;               /* web origins it may be used from, separated by blanks; "": any */
	int64_t expires_s;                 /* of a token or a stored key; 0: never */
	/* Over all threads and reloads: generations, and requests in progress. */
	atomic_int *n_running, *n_open;
	unsigned refs; /* 0: it belongs to a set of keys; otherwise counted, of one thread */
};

struct auth;

/* Keys of the configuration, and the development keys if enabled. Borrows cfg. before: the set that this one replaces,
 * whose counts it keeps, or NULL; borrowed for the call. */
int auth_create(const struct gw_config *cfg, const struct auth *before, struct auth **out, struct sl_err *err);
void auth_destroy(struct auth *a);
/* One line in the log for each key that a reload has added, removed or given another tier. */
void auth_log_changes(const struct auth *before, const struct auth *now);
/* The key of auth_bearer; NULL: none (*given false) or unknown. */
struct auth_key *auth_check(struct auth *a, const struct http_request *r, bool *given);

/* The text after `Bearer`; NULL: there is none (*given false: no Authorization field at all). On paths that Anthropic's
 * clients use, without an Authorization field, the value of `x-api-key`. */
const char *auth_bearer(const struct http_request *r, bool *given);
/* False: no key has this length. */
bool auth_digest(struct auth *a, const char *bearer, uint8_t out[AUTH_DIGEST_BYTES]);
/* In constant time; NULL: unknown. */
struct auth_key *auth_find(struct auth *a, const uint8_t digest[AUTH_DIGEST_BYTES]);
struct auth_key *auth_find_name(struct auth *a, const char *name);

/* ---- auth_key.c: keys outside a set ---- */

/* A client; texts are copied, tier belongs to a snapshot that outlives the key. */
struct auth_person {
	enum auth_kind kind;
	const uint8_t *digest; /* NULL: none */
	const char *name, *tenant_name, *subject, *origins;
	const struct gw_tier_config *tier;
	uint64_t tenant;
	int64_t expires_s;
	const struct auth_key *of; /* the key of a set whose counts it shares; NULL: its tenant's counts */
};

/* With one reference; NULL: no memory. Counts of one tenant are shared by all threads. */
struct auth_key *auth_key_create(const struct auth_person *p);
/* No effect for a key of a set. On the thread that created it. */
struct auth_key *auth_key_ref(struct auth_key *k);
void auth_key_unref(struct auth_key *k); /* NULL is fine */
/* The number of a named tenant: the first 64 bits of its name's SHA-256. */
uint64_t auth_tenant_number(const char *kind, const void *name, size_t n);
/* The tier of that name; NULL: there is none. */
const struct gw_tier_config *auth_tier(const struct gw_config *cfg, const char *name);
/* May the tier use this model? */
bool auth_tier_may(const struct gw_tier_config *tier, const char *model);
/* May the key use this model? Adapters may be for some tiers and tenants only. */
bool auth_may(const struct gw_config *cfg, const struct auth_key *key, const char *model);
/* May a page of this origin use a key with these origins? */
bool auth_origin_allowed(const char *origins, const char *origin);

#endif
