/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of a plan, served by a real engine in this process in real time: whether a simulation is right.
 */
#ifndef CMD_TUNE_RUN_H
#define CMD_TUNE_RUN_H

#include "base/err.h"
#include "cmd/plan/plan_engine.h"

struct tune_setting {
	const char *model, *kv; /* file; KV type */
	int n_threads;
	uint32_t step_tokens, max_sequences, max_draft;
	uint64_t kv_bytes, itl_target_ns;
};

/* Sends all[n], sorted by came_ns, at their times, and fills in what came of them: by the same clock, from the start
 * on. What is not answered within most_s after the last was sent is cancelled. *err. */
int tune_run(const struct tune_setting *how, struct plan_request *all, size_t n, double most_s, struct sl_err *err);

#endif
