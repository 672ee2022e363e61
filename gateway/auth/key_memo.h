/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches the digest of the key of a connection's last request. Most connections use one key, and the digest is the
 * largest cost of authentication. The key's rights are not cached.
 */
#ifndef GATEWAY_KEY_MEMO_H
#define GATEWAY_KEY_MEMO_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/auth/auth.h"
#include "gateway/transport/http.h"

/* As auth_digest. The connection also keeps the key itself, as HPACK's table does, and wipes it at its end. */
bool key_memo_digest(struct http_stream *s, struct auth *keys, const char *bearer, uint8_t out[AUTH_DIGEST_BYTES]);

#endif
