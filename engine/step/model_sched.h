/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose step is next: the models of one device take turns by the device time they have had, weighted by
 * what they have to do.
 *
 *  - A model's load is what its sequences weigh: one of a better tier twice as much as one of the next. Of
 *    the device it gets that part of all load, but never less than about an eighth of an even part, so that a
 *    stream on a model that hardly anybody uses goes on in the crowd, and a paid one before a free crowd.
 *  - A prompt that waits on one model for its first token, of a better tier than all that the others have to
 *    do, goes first; up to LEAD_MS of device time, so that a flood of prompts stops nobody.
 *  - One that had nothing to do saves nothing up.
 *
 * Pure: it knows no sequences and no clock, so a simulation can drive it.
 */
#ifndef ENGINE_MODEL_SCHED_H
#define ENGINE_MODEL_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/sched.h"

enum { MODEL_SCHED_LEAD_MS = 200, MODEL_SCHED_LEAST_SHARE = 8 };

/* A model's turn. All zero but the clock: it is not ready. */
struct model_share {
	struct sched_demand demand;
	uint64_t vtime_ns; /* of the device, by its part */
};

/* Raises the clocks of those who have nothing to do to the least of those who have; if nobody has, all to the
 * greatest. */
void model_sched_level(struct model_share *shares, int n);
/* The model whose step is next among n; those in skip have nothing to do just now. -1: none. */
int model_sched_next(const struct model_share *shares, int n, const bool *skip);
/* How far the clock of model i goes on for took_ns of the device. */
uint64_t model_sched_charge(const struct model_share *shares, int n, int i, uint64_t took_ns);

#endif
