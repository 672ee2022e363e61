/* SPDX-License-Identifier: Apache-2.0
 *
 * Records decisions with all their inputs, so that a suspicious one can be replayed in a debugger. A record is a struct
 * without pointers. It contains no text, user names, prompts or token ids.
 */
#include <string.h>

#include "cascade/cascade.h"

int casc_step_recorded(struct casc *c, struct casc_budget *budget, const struct casc_event *e, struct casc_actions *out,
		       struct casc_record *r)
{
	memset(r, 0, sizeof *r);
	r->size = sizeof *r;
	r->step.before = *c;
	r->step.budget = *budget;
	r->step.event = *e;
	int rc = casc_step(c, budget, e, out);
	r->step.actions = *out;
	return rc;
}

bool casc_load_decide_recorded(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in,
			       struct casc_record *r)
{
	memset(r, 0, sizeof *r);
	r->size = sizeof *r;
	r->of_load = true;
	r->load.before = *l;
	r->load.policy = *p;
	r->load.in = *in;
	r->load.small_alone = casc_load_decide(l, p, in);
	return r->load.small_alone;
}

bool casc_actions_decide(const struct casc_actions *a)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (a->at[i].kind != CASC_DO_RELEASE && a->at[i].kind != CASC_DO_END)
			return true;
	return a->n > 1;
}

static bool same(const struct casc_actions *a, const struct casc_actions *b)
{
	if (a->n != b->n)
		return false;
	for (uint32_t i = 0; i < a->n; i++) {
		const struct casc_action *x = &a->at[i], *y = &b->at[i];
		if (x->kind != y->kind || x->model != y->model || x->n != y->n || x->keep != y->keep)
			return false;
	}
	return true;
}

int casc_replay(const struct casc_record *r)
{
	if (r->size != sizeof *r)
		return SL_EUNSUPPORTED;
	if (r->of_load) {
		struct casc_load l = r->load.before;
		return casc_load_decide(&l, &r->load.policy, &r->load.in) == r->load.small_alone ? 0 : SL_EINVAL;
	}
	/* The record may come from a file: check what casc_step assumes. */
	uint8_t window = r->step.before.policy.conf.window;
	if (r->step.actions.n > CASC_MAX_ACTIONS || r->step.before.phase >= CASC_N_PHASES || window < 1 ||
	    window > CASC_MAX_WINDOW)
		return SL_EINVAL;
	struct casc c = r->step.before;
	struct casc_budget budget = r->step.budget;
	struct casc_actions again;
	casc_step(&c, &budget, &r->step.event, &again);
	return same(&again, &r->step.actions) ? 0 : SL_EINVAL;
}
