/* SPDX-License-Identifier: Apache-2.0
 *
 * Shortens a conversation that is too long, before it is submitted: counts its tokens, removes blocks (compress.h) and
 * replaces them by summaries of the small model, which are checked, stored and charged to the key. If a step fails, the
 * result is shorter or the prompt stays unchanged; the request never fails.
 *
 *   COUNTING ──fits──► OVER (unchanged)
 *      └─too long─► TRIMMING (how many blocks to remove) ─► for each, the newest first:
 *                       READING (the store) ─► SUBMITTED ─► CHARGING ─► RUNNING (a summary) ─► WRITING
 *                   ─► FITTING (counts the result) ─► OVER
 *
 * compress_set_state checks every transition. A run belongs to one exchange and its thread.
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
	int model;               /* which will answer */
	struct proto_str prompt; /* a chat in the engine's form; borrowed until the run is freed */
	uint32_t max_tokens;     /* requested; 0: not given */
};

/* prompt: to be submitted; borrowed until the run is freed. told: members of the answer's "sluice" as JSON; NULL:
 * nothing was removed. */
typedef void compress_done(void *ctx, struct proto_str prompt, const char *told);

/* False: x's prompt is certainly short enough, or its tier does not compress. Cheap. */
bool compress_may_apply(const struct exchange *x, const struct compress_ask *ask);
/* 0: done is called once, from the loop. 1: the prompt stays unchanged; done is not called. */
int compress_start(struct exchange *x, const struct compress_ask *ask, compress_done *done, void *ctx,
		   struct compress_run **out);
/* In any state, also within done. NULL allowed. */
void compress_free(struct compress_run *r);

#endif
