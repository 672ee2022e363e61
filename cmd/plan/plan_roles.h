/* SPDX-License-Identifier: Apache-2.0
 *
 * Roles of simulated engines while they run: by the gateway's own planner, or as a list says. The list with the best
 * numbers is an oracle, which knows when the traffic changes.
 */
#ifndef CMD_PLAN_ROLES_H
#define CMD_PLAN_ROLES_H

#include "cmd/plan/plan_sim.h"

struct plan_planner {
	struct planner planner;
	uint64_t dwell_ns;
	int n_moves; /* so far */
};
/* ctx: struct plan_planner, which begins anew with each simulation. */
void plan_planner_turn(void *ctx, struct planner_view *v);

/* From each time on so many engines compute prompts: the last ones. */
struct plan_schedule {
	const struct plan_phase {
		uint64_t from_ns;
		int n_prompt_engines;
	} * phases;
	int n_phases;
};
/* ctx: struct plan_schedule. */
void plan_schedule_turn(void *ctx, struct planner_view *v);

#endif
