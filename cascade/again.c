/* SPDX-License-Identifier: Apache-2.0
 *
 * Repeats a request in another process. Stores what its decisions depended on besides its tokens, as facts that are
 * only added.
 *
 * The engine reproduces the tokens, and so every decision that depends on them alone: the end of a hold at hold_tokens,
 * below low or at sure; a drop. Facts record the plan, and what clocks, budgets, failures and the order of two models'
 * tokens decided. casc_start_again starts a request that can only decide as the first one did: its clocks are off, its
 * budget is the recorded one, and the caller makes a lost model fail again and omits the model that lost a race (struct
 * casc_past).
 */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "cascade/cascade.h"
#include "cascade/decide.h"

enum { PATIENCE_MS = 10000 /* the wait for a large model that may have taken over in the first run */ };

/* The large model was asked, but the small one continued alone. */
static bool large_lost(const struct casc *c)
{
	const struct casc_run *r = &c->large;
	bool switched =
	    c->escalated == CASC_FOR_HELD || c->escalated == CASC_FOR_SHOWN || c->escalated == CASC_FOR_FAILURE;
	if (r->shown > 0 || (c->phase != CASC_ONE && c->phase != CASC_OVER))
		return false;
	return r->state == CASC_RUN_FAILED || (r->state == CASC_RUN_CANCELLED && switched);
}

static uint8_t facts_of(const struct casc *c)
{
	uint8_t facts = 0;
	if (c->plan == CASC_PLAN_RACE && c->held_by != CASC_NOT_HELD) {
		bool failed = c->held_by == CASC_HELD_FAILED && c->escalated != CASC_FOR_RACE;
		/* A race won by the small model stays a fact if the large model takes over later. */
		facts |= c->escalated == CASC_FOR_RACE ? CASC_PAST_LARGE_WON : failed ? 0 : CASC_PAST_SMALL_WON;
	}
	if (c->held_by == CASC_HELD_TIME)
		facts |= CASC_PAST_HOLD_TIMED;
	if (c->refused)
		facts |= CASC_PAST_REFUSED;
	if (c->small.state == CASC_RUN_FAILED)
		facts |= CASC_PAST_SMALL_FAILED;
	if (large_lost(c))
		facts |= CASC_PAST_LARGE_LOST;
	return facts;
}

bool casc_past_note(struct casc_past *p, const struct casc *c)
{
	uint8_t facts = (uint8_t)(facts_of(c) & ~p->facts);
	if (facts & CASC_PAST_HOLD_TIMED)
		p->held = c->held;
	if (facts & CASC_PAST_SMALL_FAILED)
		p->failed = c->small.made;
	p->facts |= facts;
	return facts != 0;
}

void casc_past_begin(struct casc_past *p, const struct casc *c)
{
	memset(p, 0, sizeof *p);
	p->version = CASC_PAST_VERSION;
	p->policy = c->policy;
	p->plan = c->plan;
	p->why = c->why;
	p->can_small = c->can_small;
	p->can_large = c->can_large;
	p->can_verify = c->can_verify;
	(void)casc_past_note(p, c);
}

static bool is_share(float v) { return v >= 0 && v <= 1; }

static bool policy_is_sound(const struct casc_policy *p)
{
	const struct casc_conf_policy *c = &p->conf;
	return c->window >= 1 && c->window <= CASC_MAX_WINDOW && is_share(c->smooth) && isfinite(c->w_mean) &&
	       isfinite(c->w_min) && isfinite(c->w_entropy) && isfinite(c->w_margin) && is_share(p->low) &&
	       p->sure >= 0 && is_share(p->drop) && p->hold_tokens >= 1;
}

bool casc_past_is_sound(const struct casc_past *p)
{
	if (p->version != CASC_PAST_VERSION || p->plan == CASC_PLAN_NONE || p->plan > CASC_PLAN_RACE ||
	    p->why >= CASC_N_WHYS || !policy_is_sound(&p->policy))
		return false;
	bool both = p->plan == CASC_PLAN_CHECK || p->plan == CASC_PLAN_RACE;
	bool won = (p->facts & CASC_PAST_LARGE_WON) != 0 && (p->facts & CASC_PAST_SMALL_WON) != 0;
	return !won && (p->can_small || (p->plan != CASC_PLAN_SMALL && !both)) &&
	       (p->can_large || (p->plan != CASC_PLAN_LARGE && !both));
}

int casc_start_again(struct casc *c, const struct casc_past *p, uint64_t now_ms, struct casc_actions *out)
{
	struct casc_budget budget = {0}; /* a plan is charged once */
	memset(out, 0, sizeof *out);
	if (!casc_past_is_sound(p))
		return SL_EINVAL;
	casc_init(c, &p->policy);
	struct casc_policy *policy = &c->policy;
	bool refused = (p->facts & CASC_PAST_REFUSED) != 0;
	policy->hold_ms = UINT32_MAX;
	if (policy->takeover_ms < PATIENCE_MS)
		policy->takeover_ms = PATIENCE_MS;
	if (p->facts & CASC_PAST_HOLD_TIMED)
		policy->hold_tokens =
		    (uint16_t)(p->held > 0 && p->held < policy->hold_tokens ? p->held : policy->hold_tokens);
	policy->floor = refused ? 0 : UINT32_MAX;
	policy->share = refused ? 0 : 1;
	c->why = p->why;
	c->can_small = p->can_small;
	c->can_large = p->can_large;
	c->can_verify = p->can_verify;
	casc_begin_plan(c, &budget, (enum casc_plan)p->plan, now_ms, out);
	return 0;
}
