/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and tiers, one set a state of the configuration. That holds SHA-256 digests only; a request's
 * key is hashed and looked
 * up by digest in constant time. Immutable after creation but for the counters, shared by threads.
 */
#ifndef GATEWAY_AUTH_H
#define GATEWAY_AUTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gateway/gateway.h"
#include "gateway/http.h"

enum { AUTH_DIGEST_BYTES = 32 };

struct auth_key {
	uint8_t digest[AUTH_DIGEST_BYTES];
	const char *name;                  /* for logs; never the key */
	const struct gw_tier_config *tier; /* NULL: an administrator's key */
	uint64_t tenant;                   /* first bytes of the digest */
	/* Over all threads and reloads: generations, and requests in progress. */
	atomic_int *n_running, *n_open;
};

struct auth;

/* Keys of the configuration, and the development keys when it says so. Borrows cfg. before: the keys
 * that these replace, whose counts go on, or NULL; borrowed for the call. */
int auth_create(const struct gw_config *cfg, const struct auth *before, struct auth **out,
		struct sl_err *err);
void auth_destroy(struct auth *a);
/* The key of `authorization: Bearer …`; NULL when there is none or it is unknown. *given tells which. */
struct auth_key *auth_check(struct auth *a, const struct http_request *r, bool *given);

#endif
