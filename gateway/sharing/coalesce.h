/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds answers of this process that other requests may join, by name (inflight.h):
 *
 *   content  from an answer's beginning until `window` after its end, unless it failed
 *   retry    while the answer to an Idempotency-Key is generated; has its id and the digest of its request's body
 */
#ifndef GATEWAY_COALESCE_H
#define GATEWAY_COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/generation/token_log.h"
#include "gateway/sharing/inflight.h"

enum { COALESCE_ID_BYTES = 64 };

struct coalesce_name; /* kind retry; owned by its creator */
/* Releases the names that outlived their answers. No log may have an owner or a reader. */
void coalesce_drop_ended(struct inflight *f);

/* 1: *out is another request's log, to be joined. 0: *out is a new log, which the caller ends; NULL: no room or memory.
 * The caller gets a reference. */
int coalesce_enter(struct inflight *f, const struct request_digest *content, uint64_t window_ns,
		   struct token_log **out);
/* A log that only names of the kind retry find. NULL: no memory. */
struct token_log *coalesce_log(struct inflight *f);

/* The data of a name of the kind retry. */
struct coalesce_claim {
	struct request_digest body;
	char id[COALESCE_ID_BYTES];
	int64_t created;
	struct token_log *log; /* from coalesce_find: with a reference; NULL: it can't be joined */
};

/* Makes claim findable until coalesce_forget; takes a reference to claim->log. NULL: no room or memory. */
struct coalesce_name *coalesce_name(struct inflight *f, const struct request_digest *retry,
				    const struct coalesce_claim *claim);
void coalesce_forget(struct inflight *f, struct coalesce_name *name);
bool coalesce_find(struct inflight *f, const struct request_digest *retry, struct coalesce_claim *out);

/* The number of names of the kind content, for tests. */
size_t coalesce_count(struct inflight *f);

#endif
