/* SPDX-License-Identifier: Apache-2.0
 *
 * Which answers of this process may be joined: a directory from digests to shared logs (token_log.h). One
 * lock, taken at the beginning and the end of an answer that may have coalesced requests, never in between.
 *
 * Two kinds of names find a log:
 *   content  the digest of the user and of the whole request; from its beginning until `window` after its
 *            end, unless it failed
 *   retry    the digest of an Idempotency-Key, for as long as the answer that has it runs; it says the id
 *            that the answer has, and the digest of the body that it is to
 *
 * Digests are SHA-256 with a secret of the process before the rest: clients can neither make two that are equal
 * nor learn what one is of. Bounded by COALESCE_MAX names; beyond it an answer has no coalesced requests.
 */
#ifndef GATEWAY_COALESCE_H
#define GATEWAY_COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gateway/generation/token_log.h"

enum { COALESCE_DIGEST_BYTES = 32, COALESCE_ID_BYTES = 64, COALESCE_MAX = 16384 };

struct coalescer;
struct coalesce_name; /* of the kind retry; its maker's */

struct request_digest {
	uint8_t bytes[COALESCE_DIGEST_BYTES];
};

int coalesce_create(struct coalescer **out);
/* No log of it is owned or read any more. */
void coalesce_destroy(struct coalescer *ts);

/* Of n parts, one after another, and the process's secret. */
void coalesce_digest(const struct coalescer *ts, const struct iovec *parts, int n, struct request_digest *out);

/* Another request's log: 1, and *out is to be joined; 0: from now on it is the caller's to own, and to end.
 * In both cases with a reference; 0 with NULL: there is no room, or no memory, for one. */
int coalesce_enter(struct coalescer *ts, const struct request_digest *content, uint64_t window_ns,
		   struct token_log **out);
/* A log that only names of the kind retry find. NULL: no memory. */
struct token_log *coalesce_log(struct coalescer *ts);

/* What a name of the kind retry says. */
struct coalesce_claim {
	struct request_digest body;
	char id[COALESCE_ID_BYTES];
	int64_t created;
	struct token_log *log; /* found: with a reference, NULL when it can't be joined */
};

/* Until coalesce_forget. A reference to claim->log is taken. NULL: no room, no memory. */
struct coalesce_name *coalesce_name(struct coalescer *ts, const struct request_digest *retry,
				    const struct coalesce_claim *claim);
void coalesce_forget(struct coalescer *ts, struct coalesce_name *name);
bool coalesce_find(struct coalescer *ts, const struct request_digest *retry, struct coalesce_claim *out);

/* Logs that are found by their content, for tests. */
size_t coalesce_count(struct coalescer *ts);

#endif
