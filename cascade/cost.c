/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of answers, in rows. A row is one token, of a prompt or an answer, computed once by one model. Every
 * generated token is either shown or wasted; the simulation checks the sums.
 */
#include "cascade/cascade.h"

void casc_cost_add(struct casc_cost *sum, const struct casc *c)
{
	bool small = c->small.state != CASC_RUN_NONE, large = c->large.state != CASC_RUN_NONE;
	uint64_t large_made = (uint64_t)c->large.made + c->lost_made;
	struct casc_cost one = {
	    .requests = 1,
	    .escalations = c->escalated != CASC_NOT_ESCALATED && c->escalated != CASC_FOR_RACE,
	    .races = c->plan == CASC_PLAN_RACE,
	    .refused = c->refused,
	    .small_only = small && !large,
	    .small_prompt = small ? c->small.prompt : 0,
	    .small_made = c->small.made,
	    .small_shown = c->small.shown,
	    .small_wasted = c->small.made - c->small.shown,
	    .large_prompt = (large ? c->large.prompt : 0) + (uint64_t)c->lost_prompt,
	    .large_made = large_made,
	    .large_shown = c->large.shown,
	    .large_wasted = large_made - c->large.shown,
	    .large_given = c->given,
	    .offered = c->offered,
	    .accepted = c->accepted,
	    .always_large = small || large ? (uint64_t)c->large.prompt + c->small.shown + c->large.shown : 0,
	};
	casc_cost_merge(sum, &one);
}

void casc_cost_merge(struct casc_cost *sum, const struct casc_cost *o)
{
	sum->requests += o->requests;
	sum->escalations += o->escalations;
	sum->races += o->races;
	sum->refused += o->refused;
	sum->small_only += o->small_only;
	sum->small_prompt += o->small_prompt;
	sum->small_made += o->small_made;
	sum->small_shown += o->small_shown;
	sum->small_wasted += o->small_wasted;
	sum->large_prompt += o->large_prompt;
	sum->large_made += o->large_made;
	sum->large_shown += o->large_shown;
	sum->large_wasted += o->large_wasted;
	sum->large_given += o->large_given;
	sum->offered += o->offered;
	sum->accepted += o->accepted;
	sum->always_large += o->always_large;
}

uint64_t casc_cost_large(const struct casc_cost *c) { return c->large_prompt + c->large_made + c->large_given; }

double casc_cost_total(const struct casc_cost *c, double small_cost)
{
	return (double)casc_cost_large(c) + small_cost * (double)(c->small_prompt + c->small_made);
}

double casc_cost_saved(const struct casc_cost *c, double small_cost)
{
	return c->always_large > 0 ? 1 - casc_cost_total(c, small_cost) / (double)c->always_large : 0;
}
