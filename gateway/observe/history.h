/* SPDX-License-Identifier: Apache-2.0
 *
 * The last hour of this process, for the administrators' page: a ring of HISTORY_MOST samples, one in HISTORY_STEP_MS.
 * Answers are counted as they end, and the figures of the engine and the queue are looked at when a sample is taken.
 */
#ifndef GATEWAY_HISTORY_H
#define GATEWAY_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { HISTORY_STEP_MS = 5000, HISTORY_MOST = 720 };

struct observed;

/* Any thread. */
void history_answer(const struct observed *o);

/* Now, and for counters since the engine's start. */
struct history_gauges {
	uint32_t running, waiting, queued; /* in the engine, in the engine's queue, in the admission queue */
	uint32_t kv_used_permille;
	uint64_t prompt_tokens, answer_tokens, prefix_queries, prefix_hits, preemptions;
};

/* One thread, more often than HISTORY_STEP_MS: takes a sample when one is due. A longer pause leaves a gap in time. */
void history_tick(uint64_t now_ns, int64_t unix_s, const struct history_gauges *g);

/* Appends {"step_ms":…,"samples":{"at":[…],"answers_per_s":[…],…}}: one list a figure, oldest first. A figure that no
 * answer had is null. Any thread. 0, SL_ENOMEM or SL_ELIMIT. */
int history_print(struct sl_buf *out);
enum { HISTORY_BYTES = 512 << 10 }; /* room for it */

/* For tests. */
void history_reset(void);

#endif
