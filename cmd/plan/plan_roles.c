/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/plan_roles.h"

void plan_planner_turn(void *ctx, struct planner_view *v)
{
	struct plan_planner *p = ctx;
	if (v->now_ns == 0) {
		p->planner = (struct planner){0};
		p->n_moves = 0;
	}
	const struct planner_decision d = planner_turn(&p->planner, v, p->dwell_ns);
	for (int i = 0; i < d.n_moves; i++) {
		int *role = &v->engines[d.moves[i].engine].role;
		p->n_moves += (*role == GW_ENGINE_PREFILL) != (d.moves[i].role == GW_ENGINE_PREFILL);
		*role = d.moves[i].role;
	}
}

void plan_schedule_turn(void *ctx, struct planner_view *v)
{
	const struct plan_schedule *s = ctx;
	int n = 0;
	for (int i = 0; i < s->n_phases && s->phases[i].from_ns <= v->now_ns; i++)
		n = s->phases[i].n_prompt_engines;
	for (int i = 0; i < v->n_engines; i++)
		v->engines[i].role = i >= v->n_engines - n ? GW_ENGINE_PREFILL : GW_ENGINE_DECODE;
}
