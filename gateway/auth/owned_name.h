/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of stored objects (answers, responses, conversations). Objects are stored under the key's tenant, which the
 * key's browser tokens share. So a name made with a token ends with a mark of its subject:
 *
 *   PREFIX RANDOM_NAME_CHARS hex digits [OWNED_MARK_CHARS hex digits, with a token]
 *
 * The mark is of the tenant, the random part and the subject. It need not be secret: a name with
 * another mark is another name, which does not exist. Nothing more is stored, so marks hold in every store, across
 * gateways and restarts. A name that a client may not use is refused before it is looked up, in the same time whether
 * it exists or not.
 */
#ifndef GATEWAY_OWNED_NAME_H
#define GATEWAY_OWNED_NAME_H

#include <stdbool.h>

#include "gateway/auth/auth.h"
#include "gateway/loop/random.h"

enum { OWNED_MARK_CHARS = 16, OWNED_NAME_CHARS = RANDOM_NAME_CHARS + OWNED_MARK_CHARS };

/* At most OWNED_NAME_CHARS and a NUL at dst, which follow the prefix. False: there is no randomness for it. */
bool owned_name(const struct auth_key *key, char *dst);
/* May this client use the object of that name (with its prefix)? A key (the operator of its subjects) and an anonymous
 * client: any of their tenant; a token: those of its subject, and none of the key's own. */
bool owned_name_is_of(const struct auth_key *key, const char *name);

#endif
