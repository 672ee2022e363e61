/* SPDX-License-Identifier: Apache-2.0
 *
 * Browser tokens: an application's server requests one with its key and gives it to a browser. A token contains the
 * key's name, its subject, its expiry and the allowed web origins; it is signed, not stored.
 *
 *   sbt_PERIOD.PAYLOAD.MAC   PAYLOAD: JSON, base64url; MAC: HMAC-SHA-256 (RFC 2104) over all before the
 *                            second dot, base64url, by the secret of that period
 *
 * The signature is checked before the payload is read. Pure functions.
 */
#ifndef GATEWAY_BROWSER_TOKEN_H
#define GATEWAY_BROWSER_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/auth/identity.h"

enum {
	BROWSER_TOKEN_SECRET_BYTES = 32,
	BROWSER_TOKEN_SUBJECT_MAX = 128,
	BROWSER_TOKEN_ORIGINS_MAX = 1024,
	BROWSER_TOKEN_MAX = 6144, /* characters */
};

struct browser_token {
	/* For a configured key only its name; for a stored key also digest, tier and tenant. */
	bool stored;
	uint8_t digest[IDENTITY_DIGEST_BYTES];
	char name[IDENTITY_NAME_MAX + 1], tier[IDENTITY_NAME_MAX + 1], tenant[IDENTITY_NAME_MAX + 1];
	char subject[BROWSER_TOKEN_SUBJECT_MAX + 1];
	char origins[BROWSER_TOKEN_ORIGINS_MAX + 1]; /* separated by blanks; "": any */
	int64_t expires_s;
};

/* Writes a terminated text of at most BROWSER_TOKEN_MAX characters. 0, SL_ELIMIT, SL_ENOMEM. */
int browser_token_print(const struct browser_token *t, int64_t period, const uint8_t secret[BROWSER_TOKEN_SECRET_BYTES],
			struct sl_buf *out);
/* Does text look like a token? *period: the period it claims. */
bool browser_token_period(const char *text, int64_t *period);
/* The longest lifetime, and the tolerated difference of clocks. */
enum { BROWSER_TOKEN_LONGEST_S = 3600, BROWSER_TOKEN_SKEW_S = 60 };
/* SL_EINVAL: malformed, or not signed by that secret; SL_ETIMEOUT: it has expired, or expires later than any valid
 * token (the clock was set back since it was made); SL_ENOMEM. */
int browser_token_read(const char *text, const uint8_t secret[BROWSER_TOKEN_SECRET_BYTES], int64_t now_s,
		       struct browser_token *out);

#endif
