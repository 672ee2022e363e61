/* SPDX-License-Identifier: Apache-2.0
 *
 * A key of the store: the record under the SHA-256 of the key, as `sluice keys` writes and gateways read
 * it. Pure functions.
 */
#ifndef GATEWAY_IDENTITY_H
#define GATEWAY_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cache/cache.h"

enum {
	IDENTITY_VERSION = 1, /* of the record */
	IDENTITY_NAME_MAX = 64,
	IDENTITY_ORIGINS_MAX = 1024, /* bytes, separated by blanks */
	IDENTITY_DIGEST_BYTES = 32,
	IDENTITY_RECORD_MAX = 8192,
};

struct identity {
	char name[IDENTITY_NAME_MAX + 1]; /* several keys may share one while they are rotated */
	char tier[IDENTITY_NAME_MAX + 1];
	char tenant[IDENTITY_NAME_MAX + 1]; /* whose limits, responses and prefixes */
	char origins[IDENTITY_ORIGINS_MAX + 1];
	char start[IDENTITY_NAME_MAX + 1];       /* how the key begins, for people */
	int64_t created_s, expires_s, revoked_s; /* Unix time; 0: never */
};

/* Letters, digits and . _ - , 1 to IDENTITY_NAME_MAX of them. */
bool identity_name_ok(const char *name);
/* 0, SL_ENOMEM, SL_ELIMIT. */
int identity_print(struct sl_buf *out, const struct identity *id);
/* SL_EINVAL: no such record; SL_ENOMEM. */
int identity_read(const void *bytes, size_t n, struct identity *out);
bool identity_valid(const struct identity *id, int64_t now_s);

/* All keys are listed under one name, that of the registry. */
extern const char identity_registry[];
void identity_key(struct cache_key *out, const uint8_t digest[IDENTITY_DIGEST_BYTES]);

#endif
