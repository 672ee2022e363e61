/* SPDX-License-Identifier: Apache-2.0
 *
 * The atomic procedure by which an Idempotency-Key's record changes hands in the store, in Lua.
 *
 * A record is bytes: a version, a state, and more. In Redis it is a plain string, as earlier versions read and
 * write it.
 */
#ifndef GATEWAY_IDEMPOTENT_PROC_H
#define GATEWAY_IDEMPOTENT_PROC_H

#include "cache/cache.h"

enum { IDEMPOTENT_VERSION = 1, IDEMPOTENT_RUNNING = 0 };

/* Key: the record's. Arguments:
 *   want      the record that may be replaced. A record of another version than want's first byte counts as absent
 *   absent    1: an absent record may be replaced too
 *   to        the new record; empty: the record is deleted
 *   ttl_ms    its lifetime
 *   lease_ms  the longest life of a record whose second byte is IDEMPOTENT_RUNNING: one with more left was written
 * before
 *             Redis' clock went back, and is shortened
 * Values: 1, or 0 and the present record (empty: none). Repeating a call is harmless. */
extern const struct cache_proc idempotent_change;

#endif
