/* SPDX-License-Identifier: Apache-2.0
 *
 * Model scheduling: which model of a device runs the next step. Models share the device in proportion to their load.
 *
 *  - A model's load is the sum of its sequences' weights; each tier weighs twice as much as the next. The model gets
 *    that share of device time, but at least 1/MODEL_SCHED_LEAST_SHARE of an equal share, so that a stream on a rarely
 *    used model keeps advancing.
 *  - A prompt that waits for its first token and outranks all other models' work runs first, by at most
 *    MODEL_SCHED_LEAD_MS of device time, so that a flood of prompts stops no model.
 *  - Idle models accrue no credit.
 *
 * Pure: it knows neither sequences nor clocks, so a simulation can drive it. Step thread.
 */
#ifndef ENGINE_MODEL_SCHED_H
#define ENGINE_MODEL_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/sched.h"

enum { MODEL_SCHED_LEAD_MS = 200, MODEL_SCHED_LEAST_SHARE = 8 };

/* All zero except vtime_ns: the model is not ready. */
struct model_share {
	struct sched_demand demand;
	uint64_t vtime_ns; /* device time used, divided by the model's share */
};

/* Raises the clocks of idle models to the minimum of the busy ones; if none is busy, to the maximum. */
void model_sched_level(struct model_share *shares, int n);
/* The index of the model that runs the next step, except those in skip; -1: none. */
int model_sched_next(const struct model_share *shares, int n, const bool *skip);
/* By how much vtime_ns of model i grows for took_ns of device time. */
uint64_t model_sched_charge(const struct model_share *shares, int n, int i, uint64_t took_ns);

#endif
