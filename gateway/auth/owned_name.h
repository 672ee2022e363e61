/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of what is kept for somebody (answers, responses, conversations). Keys keep everything under their tenant,
 * which browser tokens of the key share. So a name made with a token ends with a mark of its subject:
 *
 *   PREFIX RANDOM_NAME_CHARS hex digits [OWNED_MARK_CHARS hex digits, with a token]
 *
 * The mark is of the tenant, the random part and the subject. It need not be secret: who writes another one asks for
 * another name, which nobody made. Nothing more is stored, so it holds in every store, over gateways and restarts;
 * and who may not have a name is told so before it is looked for, as fast whether it exists or not.
 */
#ifndef GATEWAY_OWNED_NAME_H
#define GATEWAY_OWNED_NAME_H

#include <stdbool.h>

#include "gateway/auth/auth.h"
#include "gateway/loop/random.h"

enum { OWNED_MARK_CHARS = 16, OWNED_NAME_CHARS = RANDOM_NAME_CHARS + OWNED_MARK_CHARS };

/* At most OWNED_NAME_CHARS and a NUL at dst, which follow the prefix. False: there is no randomness for it. */
bool owned_name(const struct auth_key *who, char *dst);
/* May who have what has this name, with its prefix? A key (the operator of its subjects) and who shows nothing: any
 * name of their tenant; a token: those of its subject, which are none of the key's own. */
bool owned_name_is_of(const struct auth_key *who, const char *name);

#endif
