/* SPDX-License-Identifier: Apache-2.0
 *
 * The state machine of one request.
 *
 *   NEW ─plan─► ONE                        one model, shown as it arrives
 *            ├► HELD ─sure─► SHOWN         the small model: held, then shown and watched
 *            │    └─low─────────┴─drop─► SWITCH ─verified─► TAKEN
 *            └► RACING ─sure─► SHOWN | ─low, or the large model's first token─► TAKEN
 *
 *   begin_plan  NEW → ONE, HELD, RACING        take_over    SWITCH → TAKEN
 *   proved      HELD, RACING → SHOWN           small_alone  SWITCH, HELD, SHOWN, RACING → ONE
 *   escalate    HELD, SHOWN, ONE → SWITCH, TAKEN; RACING → TAKEN          end  any → OVER
 *
 * During a switch the small model is only paused: if the large one fails or is late, the small one resumes and the
 * answer is complete. The large model verifies the draft in one pass, so nothing is computed twice. In a race, its
 * first token ends the race, because its answer is better. An escalation after a failure needs no budget: the answer
 * would be lost.
 *
 * Invariants (casc_check): shown <= made; ESCALATE or a won race, not both; no token of the small model after one of
 * the large; no active run in OVER; a deadline only in SWITCH and, from the first token on, in HELD and RACING.
 */
#include <string.h>

#include "cascade/cascade.h"
#include "cascade/budget.h"
#include "cascade/decide.h"

static const char *const plan_names[] = {"none", "small", "large", "check", "race"};
static const char *const why_names[CASC_N_WHYS] = {"no_model", "only",   "forced",      "tier", "load",
						   "easy",     "middle", "likely_hard", "hard", "budget"};
static const char *const action_names[CASC_N_ACTIONS] = {"start_small",  "start_large", "hold",         "release",
							 "escalate",     "pause_small", "resume_small", "cancel_small",
							 "cancel_large", "tell",        "end"};
static const char *const reason_names[] = {"none", "held", "shown", "race", "failure"};

static const char *const held_by_names[CASC_N_HELD_BY] = {"none", "sure", "low",   "tokens",
							  "time", "end",  "large", "failed"};

const char *casc_plan_name(int plan) { return plan >= 0 && plan <= CASC_PLAN_RACE ? plan_names[plan] : "?"; }

const char *casc_why_name(int why) { return why >= 0 && why < CASC_N_WHYS ? why_names[why] : "?"; }

const char *casc_action_name(int action) { return action >= 0 && action < CASC_N_ACTIONS ? action_names[action] : "?"; }

const char *casc_reason_name(int reason)
{
	return reason >= 0 && reason <= CASC_FOR_FAILURE ? reason_names[reason] : "?";
}

const char *casc_held_by_name(int held_by)
{
	return held_by >= 0 && held_by < CASC_N_HELD_BY ? held_by_names[held_by] : "?";
}

void casc_init(struct casc *c, const struct casc_policy *policy)
{
	struct casc_policy copy = *policy; /* policy may be &c->policy */
	memset(c, 0, sizeof *c);
	c->policy = copy;
}

uint64_t casc_due(const struct casc *c) { return c->due_ms; }

/* ---- building blocks of a step ---- */

struct step {
	struct casc *c;
	struct casc_budget *budget;
	uint64_t now_ms;
	struct casc_actions *out;
};

static void act(struct step *s, enum casc_action_kind kind, uint32_t n, uint32_t keep)
{
	BUG_IF(s->out->n == CASC_MAX_ACTIONS, "cascade: more than %d actions in one step", CASC_MAX_ACTIONS);
	s->out->at[s->out->n++] = (struct casc_action){.kind = (uint8_t)kind, .n = n, .keep = keep};
}

/* Never 0, which means none. */
static uint64_t deadline(const struct step *s, uint32_t after_ms)
{
	uint64_t at = s->now_ms + after_ms;
	return at > 0 ? at : 1;
}

static void set_phase(struct step *s, enum casc_phase phase)
{
	s->c->phase = (uint8_t)phase;
	s->c->due_ms = phase == CASC_SWITCH ? deadline(s, s->c->policy.takeover_ms) : 0;
}

/* Notes the end of a hold. */
static void note_held(struct casc *c, enum casc_held_by by)
{
	if (c->phase != CASC_HELD && c->phase != CASC_RACING)
		return;
	c->held_by = (uint8_t)by;
	c->held = c->small.made;
}

static void start(struct step *s, enum casc_model model)
{
	struct casc_run *r = model == CASC_SMALL ? &s->c->small : &s->c->large;
	BUG_IF(r->state != CASC_RUN_NONE, "cascade: a run is started twice");
	r->state = CASC_RUN_ON;
	act(s, model == CASC_SMALL ? CASC_DO_START_SMALL : CASC_DO_START_LARGE, 0, 0);
}

static void cancel(struct step *s, struct casc_run *r, enum casc_action_kind kind)
{
	if (r->state != CASC_RUN_ON && r->state != CASC_RUN_PAUSED)
		return;
	r->state = CASC_RUN_CANCELLED;
	act(s, kind, 0, 0);
}

static void cancel_small(struct step *s) { cancel(s, &s->c->small, CASC_DO_CANCEL_SMALL); }

/* The large model's run is never paused. */
static void cancel_large(struct step *s) { cancel(s, &s->c->large, CASC_DO_CANCEL_LARGE); }

static void release(struct step *s, enum casc_model model, uint32_t upto)
{
	struct casc_run *r = model == CASC_SMALL ? &s->c->small : &s->c->large;
	BUG_IF(upto > r->made || upto < r->shown, "cascade: %u of %u tokens shown, now %u", r->shown, r->made, upto);
	BUG_IF(model == CASC_SMALL && s->c->large.shown > 0,
	       "cascade: a token of the small model is shown after one of the large model");
	if (upto == r->shown)
		return;
	act(s, CASC_DO_RELEASE, upto - r->shown, 0);
	s->out->at[s->out->n - 1].model = (uint8_t)model;
	r->shown = upto;
}

static void end(struct step *s, enum casc_end how)
{
	cancel_small(s);
	cancel_large(s);
	act(s, CASC_DO_END, (uint32_t)how, 0);
	set_phase(s, CASC_OVER);
}

/* ---- plan ---- */

static enum casc_plan because(uint8_t *why, enum casc_why reason, enum casc_plan plan)
{
	*why = (uint8_t)reason;
	return plan;
}

static enum casc_plan by_score(const struct casc_policy *p, const struct casc_plan_in *in, uint8_t *why)
{
	bool likely_hard = in->score >= p->race;
	if (in->score >= p->hard)
		return because(why, CASC_WHY_HARD, CASC_PLAN_LARGE);
	if (in->score < p->easy)
		return because(why, CASC_WHY_EASY, CASC_PLAN_SMALL);
	*why = likely_hard ? CASC_WHY_LIKELY_HARD : CASC_WHY_MIDDLE;
	if (!in->can_watch)
		return likely_hard ? CASC_PLAN_LARGE : CASC_PLAN_SMALL;
	return likely_hard ? CASC_PLAN_RACE : CASC_PLAN_CHECK;
}

static enum casc_plan plan(const struct casc_policy *p, const struct casc_plan_in *in, uint8_t *why)
{
	if (!in->can_small || !in->can_large) {
		*why = in->can_small || in->can_large ? CASC_WHY_ONLY : CASC_WHY_NO_MODEL;
		return in->can_small ? CASC_PLAN_SMALL : in->can_large ? CASC_PLAN_LARGE : CASC_PLAN_NONE;
	}
	if (in->forced != CASC_NEITHER)
		return because(why, CASC_WHY_FORCED, in->forced == CASC_SMALL ? CASC_PLAN_SMALL : CASC_PLAN_LARGE);
	if (p->mode == CASC_MODE_SMALL)
		return because(why, CASC_WHY_TIER, CASC_PLAN_SMALL);
	if (in->degraded)
		return because(why, CASC_WHY_LOAD, CASC_PLAN_SMALL);
	if (p->mode == CASC_MODE_LARGE)
		return because(why, CASC_WHY_TIER, CASC_PLAN_LARGE);
	return by_score(p, in, why);
}

/* Starts a new request by its plan. */
static void begin_plan(struct step *s, enum casc_plan made)
{
	struct casc *c = s->c;
	c->plan = (uint8_t)made;
	switch (made) {
	case CASC_PLAN_NONE: end(s, CASC_END_NO_MODEL); return;
	case CASC_PLAN_SMALL:
	case CASC_PLAN_LARGE:
		start(s, made == CASC_PLAN_SMALL ? CASC_SMALL : CASC_LARGE);
		set_phase(s, CASC_ONE);
		return;
	case CASC_PLAN_CHECK: set_phase(s, CASC_HELD); break;
	case CASC_PLAN_RACE: set_phase(s, CASC_RACING); break;
	}
	start(s, CASC_SMALL);
	if (made == CASC_PLAN_RACE)
		start(s, CASC_LARGE);
	act(s, CASC_DO_HOLD, 0, 0);
}

void casc_begin_plan(struct casc *c, struct casc_budget *budget, enum casc_plan plan_made, uint64_t now_ms,
		     struct casc_actions *out)
{
	begin_plan(&(struct step){.c = c, .budget = budget, .now_ms = now_ms, .out = out}, plan_made);
}

static void on_start(struct step *s, const struct casc_plan_in *in)
{
	struct casc *c = s->c;
	enum casc_plan made = plan(&c->policy, in, &c->why);
	c->can_small = in->can_small;
	c->can_large = in->can_large;
	c->can_verify = in->can_verify;
	c->small.prompt = in->prompt_small;
	c->large.prompt = in->prompt_large;
	casc_budget_request(s->budget, s->now_ms);
	if (made == CASC_PLAN_RACE && !casc_budget_take(s->budget, &c->policy, s->now_ms)) {
		made = CASC_PLAN_CHECK;
		c->why = CASC_WHY_BUDGET;
	}
	if (c->why == CASC_WHY_LOAD && c->policy.tell_degraded && in->wants_to_know)
		act(s, CASC_DO_TELL, CASC_TELL_DEGRADED, 0);
	begin_plan(s, made);
}

/* ---- escalation ---- */

/* The small model continues alone: held tokens are shown, and confidence is no longer checked. */
static void small_alone(struct step *s)
{
	struct casc *c = s->c;
	if (c->small.state == CASC_RUN_FAILED) {
		end(s, CASC_END_FAILED);
		return;
	}
	if (c->small.state == CASC_RUN_PAUSED) {
		c->small.state = CASC_RUN_ON;
		act(s, CASC_DO_RESUME_SMALL, 0, 0);
	}
	release(s, CASC_SMALL, c->small.made);
	if (c->small.state == CASC_RUN_DONE)
		end(s, CASC_END_DONE);
	else
		set_phase(s, CASC_ONE);
}

static void escalate(struct step *s, enum casc_reason reason)
{
	struct casc *c = s->c;
	if (c->phase == CASC_RACING) {
		/* The large model is running and budgeted, and nothing is shown. */
		c->escalated = CASC_FOR_RACE;
		cancel_small(s);
		set_phase(s, CASC_TAKEN);
		return;
	}
	if (!c->can_large || (c->large.state != CASC_RUN_NONE && c->large.state != CASC_RUN_CANCELLED)) {
		small_alone(s);
		return;
	}
	if (!casc_budget_take(s->budget, &c->policy, s->now_ms) && reason != CASC_FOR_FAILURE) {
		c->refused = true;
		small_alone(s);
		return;
	}
	c->escalated = (uint8_t)reason;
	if (c->large.state == CASC_RUN_CANCELLED) {
		/* The small model won a race and lost confidence later: a second run. */
		c->lost_prompt = c->large.prompt;
		c->lost_made = c->large.made;
		c->large = (struct casc_run){.prompt = c->large.prompt};
	}
	if (c->small.made == 0) {
		start(s, CASC_LARGE);
		set_phase(s, CASC_TAKEN);
		return;
	}
	c->offered = c->can_verify ? c->small.made : 0;
	c->given = c->can_verify ? c->small.made : c->small.shown;
	c->large.state = CASC_RUN_ON;
	if (c->small.state == CASC_RUN_ON) {
		c->small.state = CASC_RUN_PAUSED;
		act(s, CASC_DO_PAUSE_SMALL, 0, 0);
	}
	act(s, CASC_DO_ESCALATE, c->offered, c->small.shown);
	set_phase(s, CASC_SWITCH);
}

/* Shows the accepted draft tokens; from here on the large model's are shown. */
static void take_over(struct step *s, uint32_t accepted)
{
	struct casc *c = s->c;
	c->accepted = accepted;
	if (accepted > c->small.shown)
		release(s, CASC_SMALL, accepted);
	if (c->offered > 0 && accepted < c->small.shown) {
		c->disagreed = true;
		if (c->policy.disagree == CASC_TELL_IT)
			act(s, CASC_DO_TELL, CASC_TELL_DISAGREES, accepted);
	}
	cancel_small(s);
	set_phase(s, CASC_TAKEN);
}

/* ---- the small model ---- */

enum verdict { WAIT, PASS, FAIL };

/* final: no further token is awaited. */
static enum verdict judge(const struct casc *c, bool final)
{
	const struct casc_policy *p = &c->policy;
	float value = casc_conf_value(&c->conf, &p->conf);
	if (c->phase == CASC_SHOWN)
		return value < p->drop ? FAIL : PASS;
	final = final || c->conf.n >= p->hold_tokens;
	if (c->conf.n < p->hold_min && !final)
		return WAIT;
	if (value < p->low)
		return FAIL;
	return value >= p->sure || final ? PASS : WAIT;
}

static void proved(struct step *s)
{
	cancel_large(s);
	release(s, CASC_SMALL, s->c->small.made);
	if (s->c->small.state == CASC_RUN_DONE)
		end(s, CASC_END_DONE);
	else
		set_phase(s, CASC_SHOWN);
}

static enum casc_held_by rule_of(const struct casc *c, enum verdict v, enum casc_held_by last)
{
	const struct casc_policy *p = &c->policy;
	if (v == FAIL && c->conf.n >= p->hold_min)
		return CASC_HELD_LOW;
	if (v == PASS && c->conf.n >= p->hold_min && casc_conf_value(&c->conf, &p->conf) >= p->sure)
		return CASC_HELD_SURE;
	return c->conf.n >= p->hold_tokens ? CASC_HELD_TOKENS : last;
}

/* last: why no later token can decide; CASC_NOT_HELD: one may. */
static void judge_held(struct step *s, enum casc_held_by last)
{
	enum verdict v = judge(s->c, last != CASC_NOT_HELD);
	if (v == WAIT)
		return;
	note_held(s->c, rule_of(s->c, v, last));
	if (v == PASS)
		proved(s);
	else
		escalate(s, CASC_FOR_HELD);
}

static void on_small_token(struct step *s)
{
	struct casc *c = s->c;
	switch ((enum casc_phase)c->phase) {
	case CASC_ONE: release(s, CASC_SMALL, c->small.made); break;
	case CASC_HELD:
	case CASC_RACING:
		if (c->due_ms == 0)
			c->due_ms = deadline(s, c->policy.hold_ms);
		judge_held(s, s->now_ms >= c->due_ms ? CASC_HELD_TIME : CASC_NOT_HELD);
		break;
	case CASC_SHOWN:
		/* The token that fails is not shown, but belongs to the draft. */
		if (judge(c, false) == PASS)
			release(s, CASC_SMALL, c->small.made);
		else
			escalate(s, CASC_FOR_SHOWN);
		break;
	default: break; /* paused: tokens in flight */
	}
}

static void on_small_done(struct step *s)
{
	s->c->small.state = CASC_RUN_DONE;
	switch ((enum casc_phase)s->c->phase) {
	case CASC_ONE:
	case CASC_SHOWN: end(s, CASC_END_DONE); break;
	case CASC_HELD:
	case CASC_RACING: judge_held(s, CASC_HELD_END); break;
	default: break;
	}
}

static void on_small_failed(struct step *s)
{
	struct casc *c = s->c;
	c->small.state = CASC_RUN_FAILED;
	switch ((enum casc_phase)c->phase) {
	case CASC_ONE:
		if (!c->policy.fallback || c->small.shown > 0) {
			end(s, CASC_END_FAILED);
			break;
		}
		escalate(s, CASC_FOR_FAILURE);
		break;
	case CASC_HELD:
	case CASC_SHOWN:
	case CASC_RACING:
		note_held(c, CASC_HELD_FAILED);
		escalate(s, CASC_FOR_FAILURE);
		break;
	default: break;
	}
}

/* ---- the large model ---- */

/* Its first event in a race, or after an escalation without a draft. */
static void on_large_arrival(struct step *s)
{
	note_held(s->c, CASC_HELD_LARGE);
	if (s->c->phase == CASC_RACING)
		escalate(s, CASC_FOR_RACE);
	else if (s->c->phase == CASC_SWITCH)
		take_over(s, 0);
}

static void on_large_token(struct step *s)
{
	on_large_arrival(s);
	release(s, CASC_LARGE, s->c->large.made);
}

static void on_large_done(struct step *s)
{
	s->c->large.state = CASC_RUN_DONE;
	on_large_arrival(s);
	end(s, CASC_END_DONE);
}

static void on_large_failed(struct step *s)
{
	struct casc *c = s->c;
	c->large.state = CASC_RUN_FAILED;
	if (c->phase == CASC_SWITCH || c->phase == CASC_RACING) {
		note_held(c, CASC_HELD_FAILED);
		small_alone(s);
	} else if (c->phase == CASC_ONE && c->large.shown == 0 && c->policy.fallback && c->can_small) {
		start(s, CASC_SMALL);
		set_phase(s, CASC_ONE);
	} else {
		end(s, CASC_END_FAILED);
	}
}

static void on_timer(struct step *s)
{
	struct casc *c = s->c;
	if (c->due_ms == 0 || s->now_ms < c->due_ms)
		return;
	if (c->phase == CASC_SWITCH) {
		cancel_large(s);
		small_alone(s);
	} else {
		judge_held(s, CASC_HELD_TIME);
	}
}

/* ---- events ---- */

/* 0: the run may report; *wanted: the report has an effect. */
static int check_run(const struct casc_run *r, bool *wanted)
{
	*wanted = r->state == CASC_RUN_ON || r->state == CASC_RUN_PAUSED;
	return *wanted || r->state == CASC_RUN_CANCELLED ? 0 : SL_EPROTO;
}

static int on_small(struct step *s, const struct casc_event *e)
{
	struct casc *c = s->c;
	bool wanted;
	int rc = check_run(&c->small, &wanted);
	if (rc != 0)
		return rc;
	if (e->kind == CASC_SMALL_TOKEN) {
		bool watched = c->phase == CASC_HELD || c->phase == CASC_RACING || c->phase == CASC_SHOWN;
		rc = watched ? casc_conf_add(&c->conf, &c->policy.conf, &e->token) : 0;
		if (rc != 0)
			return rc;
		c->small.made++;
	}
	if (!wanted)
		return 0;
	if (e->kind == CASC_SMALL_TOKEN)
		on_small_token(s);
	else if (e->kind == CASC_SMALL_DONE)
		on_small_done(s);
	else
		on_small_failed(s);
	return 0;
}

static int on_large(struct step *s, const struct casc_event *e)
{
	struct casc *c = s->c;
	bool wanted;
	int rc = check_run(&c->large, &wanted);
	/* Before the draft is verified, no token can follow. */
	bool unverified = c->phase == CASC_SWITCH && c->offered > 0;
	if (rc != 0 || (wanted && unverified && e->kind != CASC_LARGE_FAILED))
		return SL_EPROTO;
	c->large.made += e->kind == CASC_LARGE_TOKEN;
	if (!wanted)
		return 0;
	if (e->kind == CASC_LARGE_TOKEN)
		on_large_token(s);
	else if (e->kind == CASC_LARGE_DONE)
		on_large_done(s);
	else
		on_large_failed(s);
	return 0;
}

static int on_verified(struct step *s, const struct casc_event *e)
{
	struct casc *c = s->c;
	bool wanted;
	int rc = check_run(&c->large, &wanted);
	if (rc != 0 || c->offered == 0 || e->n > c->offered)
		return SL_EPROTO;
	if (!wanted)
		return 0;
	if (c->phase != CASC_SWITCH)
		return SL_EPROTO;
	take_over(s, e->n);
	return 0;
}

int casc_step(struct casc *c, struct casc_budget *budget, const struct casc_event *e, struct casc_actions *out)
{
	struct step s = {.c = c, .budget = budget, .now_ms = e->now_ms, .out = out};
	memset(out, 0, sizeof *out);
	if ((c->phase == CASC_NEW) != (e->kind == CASC_START) && e->kind != CASC_CLIENT_GONE)
		return SL_EPROTO;
	switch ((enum casc_event_kind)e->kind) {
	case CASC_START: on_start(&s, &e->plan); return 0;
	case CASC_SMALL_TOKEN:
	case CASC_SMALL_DONE:
	case CASC_SMALL_FAILED: return on_small(&s, e);
	case CASC_LARGE_TOKEN:
	case CASC_LARGE_DONE:
	case CASC_LARGE_FAILED: return on_large(&s, e);
	case CASC_VERIFIED: return on_verified(&s, e);
	case CASC_TIMER: on_timer(&s); return 0;
	case CASC_CLIENT_GONE:
		if (c->phase != CASC_OVER)
			end(&s, CASC_END_GONE);
		return 0;
	case CASC_N_EVENTS: break;
	}
	return SL_EPROTO;
}

void casc_check(const struct casc *c)
{
	bool small_on = c->small.state == CASC_RUN_ON, large_on = c->large.state == CASC_RUN_ON;
	BUG_IF(c->phase >= CASC_N_PHASES, "cascade: phase %d", c->phase);
	BUG_IF(c->small.shown > c->small.made || c->large.shown > c->large.made, "cascade: more shown than made");
	BUG_IF(c->accepted > c->offered || c->offered > c->small.made, "cascade: %u of %u accepted, %u made",
	       c->accepted, c->offered, c->small.made);
	BUG_IF(c->phase == CASC_OVER && (small_on || large_on || c->small.state == CASC_RUN_PAUSED),
	       "cascade: a run is active after the end");
	BUG_IF(c->phase == CASC_NEW && (c->small.state != CASC_RUN_NONE || c->large.state != CASC_RUN_NONE),
	       "cascade: a run is active before the plan");
	BUG_IF(c->phase == CASC_ONE && small_on == large_on, "cascade: phase ONE with %d active runs",
	       small_on + large_on);
	BUG_IF((c->phase == CASC_HELD || c->phase == CASC_SHOWN) && (!small_on || large_on),
	       "cascade: wrong runs in HELD or SHOWN");
	BUG_IF(c->phase == CASC_HELD && c->small.shown > 0, "cascade: held tokens were shown");
	BUG_IF(c->phase == CASC_RACING && (!small_on || !large_on || c->small.shown > 0 || c->large.shown > 0),
	       "cascade: wrong runs in RACING");
	BUG_IF(c->phase == CASC_SWITCH && (!large_on || small_on || c->due_ms == 0), "cascade: wrong runs in SWITCH");
	BUG_IF(c->phase == CASC_TAKEN && (!large_on || small_on || c->small.state == CASC_RUN_PAUSED),
	       "cascade: wrong runs in TAKEN");
	bool clock =
	    c->phase == CASC_SWITCH || ((c->phase == CASC_HELD || c->phase == CASC_RACING) && c->small.made > 0);
	BUG_IF(clock != (c->due_ms != 0), "cascade: wrong deadline in phase %d", c->phase);
}
