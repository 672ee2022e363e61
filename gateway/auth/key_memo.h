/* SPDX-License-Identifier: Apache-2.0
 *
 * The digest of the key that a connection's last request showed: most connections show one key all their life, and a
 * digest costs more than all else that is done to find out who asks. Nothing is remembered of what the key may do.
 */
#ifndef GATEWAY_KEY_MEMO_H
#define GATEWAY_KEY_MEMO_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/auth/auth.h"
#include "gateway/transport/http.h"

/* As auth_digest. The key itself stays with the connection, as it does in HPACK's table, and is wiped with it. */
bool key_memo_digest(struct http_stream *s, struct auth *keys, const char *bearer, uint8_t out[AUTH_DIGEST_BYTES]);

#endif
