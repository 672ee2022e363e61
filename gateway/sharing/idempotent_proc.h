/* SPDX-License-Identifier: Apache-2.0
 *
 * The atomic procedure, in Lua, that replaces an Idempotency-Key's record in the store.
 *
 * A record is bytes: a version, a state, and more. In Redis it is a plain string, as in earlier versions.
 */
#ifndef GATEWAY_IDEMPOTENT_PROC_H
#define GATEWAY_IDEMPOTENT_PROC_H

#include "cache/cache.h"

enum { IDEMPOTENT_VERSION = 1, IDEMPOTENT_RUNNING = 0 };

/* Key: the record's. Arguments:
 *   want      the record to replace. A record whose version differs from want's first byte counts as absent
 *   absent    1: an absent record may be replaced, too
 *   to        the new record; empty: deletes the record
 *   ttl_ms    its lifetime
 *   lease_ms  the longest life of a record whose second byte is IDEMPOTENT_RUNNING; a longer one is shortened, because
 *             Redis' clock was set back
 * Values: 1, or 0 and the current record (empty: none). Repeating a call is harmless. */
extern const struct cache_proc idempotent_change;

#endif
