/* SPDX-License-Identifier: Apache-2.0
 *
 * Several simulated engines under a load. Together: every engine computes prompts and answers; a request goes to the
 * one that has most of its prompt, unless another has clearly less to do. Split: long prompts go to an engine for
 * prompts and are handed over for their answer; others are computed where they are answered (conditional
 * disaggregation, as NVIDIA Dynamo has it). Which ones, the gateway's own rule decides (prefill_choice.h), or their
 * length alone. Roles may change while it runs (plan_roles.h).
 */
#ifndef CMD_PLAN_SIM_H
#define CMD_PLAN_SIM_H

#include <stddef.h>

#include "cmd/load/serve_stats.h"
#include "cmd/load/sweep.h"
#include "cmd/plan/plan_engine.h"
#include "gateway/planner/planner.h"

enum { PLAN_MAX_ENGINES = 16, PLAN_OFFLOAD_TOKENS = 256 };

/* Who decides the roles while it runs. */
struct plan_roles {
	uint64_t period_ns;
	const struct serve_slo *slo; /* which answers count as late */
	/* At the beginning of each period: roles of v->engines, GW_ENGINE_PREFILL or others, may be changed. */
	void (*turn)(void *ctx, struct planner_view *v);
	void *ctx;
};

struct plan_arrangement {
	struct plan_box box;    /* of engines that compute both, or answers */
	struct plan_box prompt; /* of engines for prompts */
	int n_engines, n_prompt_engines;
	double handover_ns;              /* for each token */
	const struct gw_prefill *choice; /* NULL: prompts with more than PLAN_OFFLOAD_TOKENS to compute, always */
	const struct plan_roles *roles;  /* NULL: they stay. All engines then have the same box */
	struct histogram *gaps;          /* added to: those between tokens. NULL: not wanted */
};

/* Simulates until every request of all[n] (sorted by came_ns) has its answer, and fills them in. *prefilled: prompt
 * tokens that were computed. SL_ENOMEM. */
int plan_simulate(const struct plan_arrangement *a, struct plan_request *all, size_t n, uint64_t *prefilled);

/* One request within the targets? */
bool plan_is_good(const struct plan_request *r, const struct serve_slo *slo);
/* The requests' figures against the targets, as a point of a sweep; without a first token one is not good. SL_ENOMEM.
 */
int plan_judge(const struct plan_request *all, size_t n, const struct serve_slo *slo, struct sweep_point *out);

#endif
