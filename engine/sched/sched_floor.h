/* SPDX-License-Identifier: Apache-2.0
 *
 * Floors: how long a step may take for a tier's streams, at most. A sequence of a worse tier does not start while, by
 * the learnt cost, steps with it beside all that have started would be longer than the floor of a better tier's stream.
 * It waits as for a slot, and predictions of waits say so; thus the gateway refuses or queues it (sched_predict_ns).
 *
 *  - Sequences of one tier do not hold each other up, nor better ones worse ones' streams.
 *  - Steps are to leave room for prompts beside answers (itl_target), but at most half of the floor.
 *  - A floor that the better tiers' streams alone would miss holds nobody up: that would not help them.
 *
 * Part of the scheduler (sched.h). Step thread.
 */
#ifndef ENGINE_SCHED_FLOOR_H
#define ENGINE_SCHED_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/cost.h"

struct sched;
struct sched_config;

enum { SCHED_FLOORS = 8 /* SCHED_TIERS */ };

/* What has started, added up: of each tier. */
struct sched_floor {
	struct sched_floor_tier {
		uint32_t rows;         /* of decoding, now or later */
		struct cost_past past; /* what they attend to */
	} of[SCHED_FLOORS];
};

void sched_floor_look(const struct sched *sc, struct sched_floor *f);
/* One more starts, of so many rows with so many tokens before them. */
void sched_floor_add(struct sched_floor *f, uint8_t tier, uint32_t rows, uint64_t n_past);
/* Do the floors let it start? */
bool sched_floor_lets(const struct sched_floor *f, const struct sched_config *cfg, const struct cost *cost,
		      uint8_t tier, uint32_t rows, uint64_t n_past);

#endif
