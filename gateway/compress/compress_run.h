/* SPDX-License-Identifier: Apache-2.0
 *
 * Shortens a conversation that is too long, before it is submitted: counts its tokens, removes blocks (compress.h) and
 * replaces them by summaries of the small model, which are checked, stored and charged to the key. A failure on the way
 * makes the result shorter or leaves the prompt unchanged: it never fails the request.
 *
 *   COUNTING ──fits──► over (as it was)
 *      └─too long─► TRIMMING (how many blocks must go) ─► for each, the newest first:
 *                       READING (the store) ─► SUBMITTED ─► CHARGING ─► RUNNING (a summary) ─► WRITING
 *                   ─► FITTING (what came of it is counted) ─► over
 *
 * One run is for one exchange and lives on its thread.
 */
#ifndef GATEWAY_COMPRESS_RUN_H
#define GATEWAY_COMPRESS_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proto/proto.h"
#include "gateway/compress/compress.h"
#include "gateway/exchange/exchange.h"

struct compress_run;

struct compress_ask {
	int model;               /* that will answer */
	struct proto_str prompt; /* as the engine takes chats; borrowed until the run is freed */
	uint32_t max_tokens;     /* requested; 0: not given */
};

/* prompt: the one to submit, borrowed until the run is freed. told: members of the answer's "sluice" as JSON; NULL:
 * nothing was removed. */
typedef void compress_done(void *ctx, struct proto_str prompt, const char *told);

/* False: x's prompt is short enough, or its tier does not compress. Cheap. */
bool compress_may_apply(const struct exchange *x, const struct compress_ask *ask);
/* 1: the prompt stays as it is, done is not called. 0: done is called once, from the loop. */
int compress_start(struct exchange *x, const struct compress_ask *ask, compress_done *done, void *ctx,
		   struct compress_run **out);
/* In any state, also within done. NULL is fine. */
void compress_free(struct compress_run *r);

#endif
