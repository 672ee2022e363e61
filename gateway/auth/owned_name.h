/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of stored objects (answers, responses, conversations). Objects are stored under the key's tenant, which the
 * key's browser tokens share. So a name created with a token ends with a mark of its subject:
 *
 *   PREFIX RANDOM_NAME_CHARS hex digits [OWNED_MARK_CHARS hex digits, with a token]
 *
 * The mark is a digest of the tenant, the random characters and the subject. It need not be secret: a name with another
 * mark is another name, which does not exist. Nothing else is stored, so marks work in every store, across gateways and
 * restarts. A name that a client may not use is refused before it is looked up, in the same time whether it exists or
 * not.
 */
#ifndef GATEWAY_OWNED_NAME_H
#define GATEWAY_OWNED_NAME_H

#include <stdbool.h>

#include "gateway/auth/auth.h"
#include "gateway/loop/random.h"

enum { OWNED_MARK_CHARS = 16, OWNED_NAME_CHARS = RANDOM_NAME_CHARS + OWNED_MARK_CHARS };

/* Writes the name after its prefix: at most OWNED_NAME_CHARS and a NUL. False: no random bytes. */
bool owned_name(const struct auth_key *key, char *dst);
/* May key use the object of that name (with its prefix)? A key and an anonymous client: any object of their tenant. A
 * token: objects of its subject only. */
bool owned_name_is_of(const struct auth_key *key, const char *name);

#endif
