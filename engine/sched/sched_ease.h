/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a device or a processor that is slowed for a while (slowdown.h): so few sequences that each keeps its tier's
 * target between tokens, by the learned cost. The others wait with their pages, and no further one starts.
 *
 *  - Who goes on is decided by tier, then by age, so that the same ones go on in every step; one that has waited for
 *    starve_ns goes first.
 *  - Costs count by a factor that steps beyond the target raise and others lower, so that one in a thousand is beyond
 * it.
 *  - Several steps in a row beyond it lower what fits, whatever the costs tell of fewer rows.
 *  - A target that one sequence alone would miss holds none.
 *  - What fits is less at once, and more by an eighth each EASE_GROW_MS; so it is after the slowdown, too, until
 * nothing
 *    is held.
 *
 * Part of the scheduler (sched.h), which has no clock. Step thread.
 */
#ifndef ENGINE_SCHED_EASE_H
#define ENGINE_SCHED_EASE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/cost.h"

struct sched_seq;

enum { EASE_GROW_MS = 1000 };

struct sched_ease {
	const uint64_t *itl_ns; /* [SCHED_TIERS], borrowed; 0: that tier has no target. NULL: nothing is slowed */
	uint32_t most;          /* rows of decoding in a step; UINT32_MAX: no bound */
	uint64_t grew_ns;
	uint32_t n_held;          /* by the last plan */
	double log_factor, ratio; /* on costs; of the latest steps' times to what they were to cost */
	uint32_t rows, n_over;    /* of the last plan; steps in a row beyond the target */
	double target_ns;         /* of the sequences of the last plan; 0: none has one */
};

void sched_ease_init(struct sched_ease *e);
/* May anything be held? */
bool sched_ease_on(const struct sched_ease *e);
/* Orders the n decoding sequences, all of which could run, by who goes first; *step_ns: what a step may take, at most;
 * 0: no bound. Returns how many of them run, at least one. */
uint32_t sched_ease_choose(struct sched_ease *e, struct sched_seq **decoding, uint32_t n, const struct cost *cost,
			   uint64_t starve_ns, uint64_t now_ns, double *step_ns);
/* Sequences with which no further one starts: longer texts take longer, so fewer than may run. */
uint32_t sched_ease_slots(const struct sched_ease *e);
/* A step with decodes took so long, and was to take expected_ns. */
void sched_ease_took(struct sched_ease *e, double expected_ns, double ns);

#endif
