/* SPDX-License-Identifier: Apache-2.0
 *
 * Which answers of this process may be joined: a directory from digests to shared logs (twin_log.h). One
 * lock, taken at the beginning and the end of an answer that may have twins, never in between.
 *
 * Two kinds of names find a log:
 *   content  the digest of who asks and of the whole request; from its beginning until `window` after its
 *            end, unless it failed
 *   retry    the digest of an Idempotency-Key, for as long as the answer that has it runs; it says the id
 *            that the answer has, and the digest of the body that it is to
 *
 * Digests are SHA-256 with a secret of the process before the rest: nobody can make two that are equal,
 * nor tell from outside what one is of. Bounded by TWINS_MAX names; beyond it an answer has no twins.
 */
#ifndef GATEWAY_TWINS_H
#define GATEWAY_TWINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/generation/twin_log.h"

enum { TWIN_DIGEST_BYTES = 32, TWIN_ID_BYTES = 64, TWINS_MAX = 16384 };

struct twins;
struct twin_name; /* of the kind retry; its maker's */

struct twin_digest {
	uint8_t bytes[TWIN_DIGEST_BYTES];
};

int twins_create(struct twins **out);
/* No log of it is owned or read any more. */
void twins_destroy(struct twins *ts);

/* Of n bytes and the process's secret. */
void twins_digest(const struct twins *ts, const void *bytes, size_t n, struct twin_digest *out);

/* Somebody's log: 1, and *out is to be joined; 0: from now on it is the caller's to own, and to end.
 * In both cases with a reference; 0 with NULL: there is no room, or no memory, for one. */
int twins_enter(struct twins *ts, const struct twin_digest *content, uint64_t window_ns, struct twin_log **out);
/* A log that only names of the kind retry find. NULL: no memory. */
struct twin_log *twins_log(struct twins *ts);

/* What a name of the kind retry says. */
struct twin_claim {
	struct twin_digest body;
	char id[TWIN_ID_BYTES];
	int64_t created;
	struct twin_log *log; /* found: with a reference, NULL when it can't be joined */
};

/* Until twins_forget. A reference to claim->log is taken. NULL: no room, no memory. */
struct twin_name *twins_name(struct twins *ts, const struct twin_digest *retry, const struct twin_claim *claim);
void twins_forget(struct twins *ts, struct twin_name *name);
bool twins_find(struct twins *ts, const struct twin_digest *retry, struct twin_claim *out);

/* Logs that are found by their content, for tests. */
size_t twins_count(struct twins *ts);

#endif
