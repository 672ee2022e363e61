/* SPDX-License-Identifier: Apache-2.0
 *
 * A stored key: its record under the SHA-256 of the key, written by `sluice keys`, read by gateways. Pure functions.
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
	char tenant[IDENTITY_NAME_MAX + 1]; /* the owner of limits, responses and prefixes */
	char origins[IDENTITY_ORIGINS_MAX + 1];
	char start[IDENTITY_NAME_MAX + 1];       /* the key's first characters, for lists */
	int64_t created_s, expires_s, revoked_s; /* Unix time; 0: never */
};

/* Letters, digits and . _ - , 1 to IDENTITY_NAME_MAX of them. */
bool identity_name_ok(const char *name);
/* 0, SL_ENOMEM, SL_ELIMIT. */
int identity_print(struct sl_buf *out, const struct identity *id);
/* SL_EINVAL: not a valid record; SL_ENOMEM. */
int identity_read(const void *bytes, size_t n, struct identity *out);
bool identity_valid(const struct identity *id, int64_t now_s);

/* The tenant under which the store lists all keys. */
extern const char identity_registry[];
void identity_key(struct cache_key *out, const uint8_t digest[IDENTITY_DIGEST_BYTES]);

#endif
