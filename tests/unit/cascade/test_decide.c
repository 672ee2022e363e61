/* SPDX-License-Identifier: Apache-2.0
 *
 * The state machine, scenario by scenario: what is told, and the actions that come of it, written as
 * words. Every step's record is replayed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cascade/cascade.h"

static struct casc c;
static struct casc_budget budget;
static uint64_t now_ms;
static char log_text[4096];

static struct casc_policy policy(void)
{
	struct casc_policy p;
	memset(&p, 0, sizeof p);
	p.fallback = p.tell_degraded = true;
	p.easy = 0.1f;
	p.race = 0.6f;
	p.hard = 0.85f;
	p.sure = 0.75f;
	p.low = 0.5f;
	p.drop = 0.4f;
	p.hold_tokens = 8;
	p.hold_min = 3;
	p.hold_ms = 250;
	p.takeover_ms = 5000;
	p.share = 1;
	p.floor = 10;
	/* The newest token alone, so that scenarios say what they mean. */
	p.conf = (struct casc_conf_policy){.w_mean = 1, .smooth = 1, .window = 1};
	return p;
}

static struct casc_plan_in in(float score)
{
	return (struct casc_plan_in){.score = score,
				     .can_small = true,
				     .can_large = true,
				     .can_watch = true,
				     .can_verify = true,
				     .prompt_small = 10,
				     .prompt_large = 11};
}

static const char *step(struct casc_event e)
{
	struct casc_actions out;
	struct casc_record r;
	e.now_ms = now_ms;
	int rc = casc_step_recorded(&c, &budget, &e, &out, &r);
	assert_int_equal(casc_replay(&r), 0);
	casc_check(&c);
	log_text[0] = '\0';
	if (rc != 0) {
		assert_int_equal(rc, SL_EPROTO);
		return "refused";
	}
	for (uint32_t i = 0; i < out.n; i++) {
		const struct casc_action *a = &out.at[i];
		char word[64];
		if (a->kind == CASC_DO_RELEASE)
			snprintf(word, sizeof word, "%s+%u", a->model == CASC_SMALL ? "small" : "large", a->n);
		else if (a->kind == CASC_DO_ESCALATE)
			snprintf(word, sizeof word, "escalate(%u of %u)", a->keep, a->n);
		else if (a->kind == CASC_DO_TELL)
			snprintf(word, sizeof word, a->n == CASC_TELL_DEGRADED ? "tell" : "tell@%u", a->keep);
		else if (a->kind == CASC_DO_END)
			snprintf(word, sizeof word, "end%u", a->n);
		else
			snprintf(word, sizeof word, "%s", casc_action_name(a->kind));
		size_t at = strlen(log_text);
		snprintf(log_text + at, sizeof log_text - at, "%s%s", at > 0 ? " " : "", word);
	}
	return log_text;
}

static const char *start_with(const struct casc_policy *p, struct casc_plan_in plan)
{
	casc_init(&c, p);
	memset(&budget, 0, sizeof budget);
	now_ms = 1000;
	return step((struct casc_event){.kind = CASC_START, .plan = plan});
}

static const char *start(struct casc_plan_in plan)
{
	struct casc_policy p = policy();
	return start_with(&p, plan);
}

static const char *small(float p)
{
	return step((struct casc_event){.kind = CASC_SMALL_TOKEN, .token = {.logprob = logf(p)}});
}

static const char *tell(enum casc_event_kind kind) { return step((struct casc_event){.kind = (uint8_t)kind}); }

static const char *verified(uint32_t n) { return step((struct casc_event){.kind = CASC_VERIFIED, .n = n}); }

#define IS(call, text) assert_string_equal((call), (text))

static void plans(void **state)
{
	(void)state;
	IS(start(in(0.05f)), "start_small");
	assert_int_equal(c.why, CASC_WHY_EASY);
	IS(start(in(0.1f)), "start_small hold");
	assert_int_equal(c.why, CASC_WHY_MIDDLE);
	IS(start(in(0.6f)), "start_small start_large hold");
	assert_int_equal(c.why, CASC_WHY_LIKELY_HARD);
	IS(start(in(0.85f)), "start_large");
	assert_int_equal(c.why, CASC_WHY_HARD);
	struct casc_plan_in i = in(0.9f);
	i.forced = CASC_SMALL;
	IS(start(i), "start_small");
	assert_int_equal(c.why, CASC_WHY_FORCED);
	i.forced = CASC_LARGE;
	i.can_large = false;
	IS(start(i), "start_small");
	assert_int_equal(c.why, CASC_WHY_ONLY);
	i.can_small = false;
	IS(start(i), "end3");
	/* Degraded: told only who asked. */
	i = in(0.9f);
	i.degraded = true;
	IS(start(i), "start_small");
	i.wants_to_know = true;
	IS(start(i), "tell start_small");
	assert_int_equal(c.why, CASC_WHY_LOAD);
	/* Who can't be watched. */
	i = in(0.3f);
	i.can_watch = false;
	IS(start(i), "start_small");
	i.score = 0.7f;
	IS(start(i), "start_large");
	/* Tiers that always have one model; load comes before the large one. */
	struct casc_policy p = policy();
	p.mode = CASC_MODE_LARGE;
	IS(start_with(&p, in(0.1f)), "start_large");
	i = in(0.1f);
	i.degraded = true;
	IS(start_with(&p, i), "start_small");
	p.mode = CASC_MODE_SMALL;
	IS(start_with(&p, in(0.9f)), "start_small");
	assert_int_equal(c.why, CASC_WHY_TIER);
	/* No budget for a race. */
	p = policy();
	p.share = 0;
	p.floor = 0;
	IS(start_with(&p, in(0.7f)), "start_small hold");
	assert_int_equal(c.why, CASC_WHY_BUDGET);
	IS(tell(CASC_START), "refused");
}

static void sure_soon(void **state)
{
	(void)state;
	start(in(0.3f));
	assert_int_equal(casc_due(&c), 0);
	IS(small(0.9f), "");
	assert_int_equal(casc_due(&c), 1250);
	IS(small(0.9f), "");
	IS(small(0.9f), "small+3");
	assert_int_equal(casc_due(&c), 0);
	IS(small(0.45f), "small+1");
	IS(tell(CASC_SMALL_DONE), "end0");
	assert_true(c.small.made == 4 && c.small.shown == 4 && c.large.state == CASC_RUN_NONE);
	IS(tell(CASC_SMALL_DONE), "refused");
	IS(tell(CASC_TIMER), "");
	IS(tell(CASC_CLIENT_GONE), "");
}

static void undecided(void **state)
{
	(void)state;
	/* Neither sure nor low: at the last token of the hold it is good enough. */
	start(in(0.3f));
	for (int i = 0; i < 7; i++)
		IS(small(0.6f), "");
	IS(small(0.6f), "small+8");
	/* Or at its time; a timer that comes too early does nothing. */
	start(in(0.3f));
	IS(small(0.6f), "");
	now_ms = 1249;
	IS(tell(CASC_TIMER), "");
	now_ms = 1250;
	IS(tell(CASC_TIMER), "small+1");
	/* Or at the token that comes after it. */
	start(in(0.3f));
	IS(small(0.6f), "");
	now_ms = 1300;
	IS(small(0.6f), "small+2");
	/* Or at the end of a short answer. */
	start(in(0.3f));
	IS(small(0.6f), "");
	IS(tell(CASC_SMALL_DONE), "small+1 end0");
}

static void held_and_given_up(void **state)
{
	(void)state;
	start(in(0.3f));
	small(0.2f);
	small(0.2f);
	IS(small(0.2f), "pause_small escalate(0 of 3)");
	assert_int_equal(casc_due(&c), 6000);
	/* On their way when it was paused. */
	IS(small(0.2f), "");
	IS(tell(CASC_LARGE_TOKEN), "refused");
	IS(verified(4), "refused");
	IS(verified(2), "small+2 cancel_small");
	IS(verified(2), "refused");
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	/* Late, of the cancelled one: booked. */
	IS(small(0.2f), "");
	IS(tell(CASC_LARGE_DONE), "end0");
	IS(small(0.2f), "");
	struct casc_cost cost = {0};
	casc_cost_add(&cost, &c);
	assert_true(cost.small_made == 6 && cost.small_shown == 2 && cost.small_wasted == 4 && cost.large_made == 1);
	assert_true(cost.large_given == 3 && cost.offered == 3 && cost.accepted == 2 && cost.escalations == 1);
	assert_int_equal(casc_cost_large(&cost), 11 + 3 + 1);
	assert_int_equal(cost.always_large, 11 + 3);
	assert_true(fabs(casc_cost_total(&cost, 0.5) - (15 + 0.5 * 16)) < 1e-9);
	assert_true(fabs(casc_cost_saved(&cost, 0.5) - (1 - 23.0 / 14)) < 1e-9);
	/* A whole answer that nobody is sure of: nothing to pause. */
	start(in(0.3f));
	small(0.3f);
	IS(tell(CASC_SMALL_DONE), "escalate(0 of 1)");
	IS(verified(1), "small+1");
	IS(tell(CASC_LARGE_DONE), "end0");
	/* An empty one. */
	start(in(0.3f));
	IS(tell(CASC_SMALL_DONE), "start_large");
	IS(tell(CASC_LARGE_TOKEN), "large+1");
}

static void shown_and_given_up(void **state)
{
	(void)state;
	start(in(0.3f));
	for (int i = 0; i < 4; i++)
		small(0.9f);
	assert_int_equal(c.small.shown, 4);
	IS(small(0.39f), "pause_small escalate(4 of 5)");
	/* Agreed with all of it. */
	IS(verified(5), "small+1 cancel_small");
	assert_false(c.disagreed);
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	IS(tell(CASC_LARGE_FAILED), "end1");
	/* Disagreed with what was shown: it stays. */
	start(in(0.3f));
	for (int i = 0; i < 4; i++)
		small(0.9f);
	small(0.1f);
	IS(verified(2), "cancel_small");
	assert_true(c.disagreed && c.small.shown == 4);
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	struct casc_policy p = policy();
	p.disagree = CASC_TELL_IT;
	start_with(&p, in(0.3f));
	for (int i = 0; i < 4; i++)
		small(0.9f);
	small(0.1f);
	IS(verified(2), "tell@2 cancel_small");
	/* Two tokenizers: no draft, the first token takes over. */
	struct casc_plan_in i = in(0.3f);
	i.can_verify = false;
	start(i);
	for (int k = 0; k < 4; k++)
		small(0.9f);
	IS(small(0.1f), "pause_small escalate(4 of 0)");
	IS(verified(0), "refused");
	IS(tell(CASC_LARGE_TOKEN), "cancel_small large+1");
	assert_int_equal(c.given, 4);
}

static void the_large_one_does_not_come(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		start(in(0.3f));
		for (int i = 0; i < 4; i++)
			small(0.9f);
		small(0.1f);
		now_ms += 5000;
		if (late)
			IS(tell(CASC_TIMER), "cancel_large resume_small small+1");
		else
			IS(tell(CASC_LARGE_FAILED), "resume_small small+1");
		/* It is not asked again. */
		IS(small(0.1f), "small+1");
		if (late)
			IS(verified(3), "");
		IS(tell(CASC_SMALL_DONE), "end0");
	}
	/* The small one was done, or has failed meanwhile. */
	start(in(0.3f));
	small(0.3f);
	tell(CASC_SMALL_DONE);
	IS(tell(CASC_LARGE_FAILED), "small+1 end0");
	start(in(0.3f));
	for (int i = 0; i < 3; i++)
		small(0.3f);
	IS(tell(CASC_SMALL_FAILED), "");
	IS(tell(CASC_LARGE_FAILED), "end1");
}

static void races(void **state)
{
	(void)state;
	struct casc_policy p = policy();
	/* The small one proves itself. */
	start(in(0.7f));
	small(0.9f);
	small(0.9f);
	IS(small(0.9f), "cancel_large small+3");
	IS(tell(CASC_LARGE_TOKEN), "");
	/* And loses its confidence later: another run of the large one. */
	IS(small(0.1f), "pause_small escalate(3 of 4)");
	IS(verified(4), "small+1 cancel_small");
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	IS(tell(CASC_LARGE_DONE), "end0");
	struct casc_cost cost = {0};
	casc_cost_add(&cost, &c);
	assert_true(cost.large_prompt == 22 && cost.large_made == 2 && cost.large_wasted == 1 && cost.races == 1);
	/* The first sign of low confidence. */
	start(in(0.7f));
	small(0.2f);
	small(0.2f);
	IS(small(0.2f), "cancel_small");
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	assert_int_equal(c.escalated, CASC_FOR_RACE);
	/* The large one is sooner. */
	start(in(0.7f));
	small(0.9f);
	IS(tell(CASC_LARGE_TOKEN), "cancel_small large+1");
	/* One fails. */
	start(in(0.7f));
	small(0.9f);
	IS(tell(CASC_LARGE_FAILED), "small+1");
	IS(small(0.1f), "small+1");
	start(in(0.7f));
	small(0.9f);
	IS(tell(CASC_SMALL_FAILED), "");
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	/* Races are in the budget. */
	p.share = 0.5f;
	p.floor = 1;
	start_with(&p, in(0.7f));
	assert_int_equal(c.plan, CASC_PLAN_RACE);
	casc_init(&c, &p);
	step((struct casc_event){.kind = CASC_START, .plan = in(0.7f)});
	assert_int_equal(c.plan, CASC_PLAN_CHECK);
}

static void budgets(void **state)
{
	(void)state;
	struct casc_policy p = policy();
	p.share = 0;
	p.floor = 0;
	start_with(&p, in(0.3f));
	small(0.1f);
	small(0.1f);
	IS(small(0.1f), "small+3");
	assert_true(c.refused);
	IS(small(0.1f), "small+1");
	/* A failure asks nobody. */
	start_with(&p, in(0.3f));
	small(0.9f);
	IS(tell(CASC_SMALL_FAILED), "escalate(0 of 1)");
	assert_int_equal(c.escalated, CASC_FOR_FAILURE);
}

static void failures(void **state)
{
	(void)state;
	/* Nothing was shown: the other one. */
	start(in(0.05f));
	IS(tell(CASC_SMALL_FAILED), "start_large");
	IS(tell(CASC_LARGE_FAILED), "end1");
	start(in(0.9f));
	IS(tell(CASC_LARGE_FAILED), "start_small");
	IS(small(0.01f), "small+1");
	IS(tell(CASC_SMALL_FAILED), "end1");
	/* Something was. */
	start(in(0.9f));
	IS(tell(CASC_LARGE_TOKEN), "large+1");
	IS(tell(CASC_LARGE_FAILED), "end1");
	/* Watched and shown: the large one goes on. */
	start(in(0.3f));
	for (int i = 0; i < 3; i++)
		small(0.9f);
	IS(tell(CASC_SMALL_FAILED), "escalate(3 of 3)");
	struct casc_policy p = policy();
	p.fallback = false;
	start_with(&p, in(0.05f));
	IS(tell(CASC_SMALL_FAILED), "end1");
	start_with(&p, in(0.9f));
	IS(tell(CASC_LARGE_FAILED), "end1");
}

static void clients_that_go(void **state)
{
	(void)state;
	start(in(0.7f));
	IS(tell(CASC_CLIENT_GONE), "cancel_small cancel_large end2");
	start(in(0.3f));
	for (int i = 0; i < 3; i++)
		small(0.1f);
	IS(tell(CASC_CLIENT_GONE), "cancel_small cancel_large end2");
	IS(verified(1), "");
	casc_init(&c, &c.policy);
	IS(tell(CASC_CLIENT_GONE), "end2");
	IS(tell(CASC_START), "refused");
	start(in(0.3f));
	IS(step((struct casc_event){.kind = CASC_SMALL_TOKEN, .token = {.logprob = NAN}}), "refused");
	IS(step((struct casc_event){.kind = 200}), "refused");
	assert_int_equal(c.small.made, 0);
}

static void records(void **state)
{
	(void)state;
	struct casc_record r;
	struct casc_actions out;
	struct casc_policy p = policy();
	struct casc_event e = {.kind = CASC_START, .now_ms = 5, .plan = in(0.7f)};
	casc_init(&c, &p);
	memset(&budget, 0, sizeof budget);
	assert_int_equal(casc_step_recorded(&c, &budget, &e, &out, &r), 0);
	assert_int_equal(casc_replay(&r), 0);
	assert_true(casc_actions_decide(&out));
	r.step.event.plan.score = 0.2f;
	assert_int_equal(casc_replay(&r), SL_EINVAL);
	r.step.event.plan.score = 0.7f;
	r.step.actions.at[1].kind = CASC_DO_HOLD;
	assert_int_equal(casc_replay(&r), SL_EINVAL);
	r.step.actions.n = 100000;
	assert_int_equal(casc_replay(&r), SL_EINVAL);
	r.size--;
	assert_int_equal(casc_replay(&r), SL_EUNSUPPORTED);
	struct casc_load l = {0};
	struct casc_load_policy lp = {.target_ms = 100};
	struct casc_load_in li = {.now_ms = 1, .ttft_large_ms = 200};
	assert_true(casc_load_decide_recorded(&l, &lp, &li, &r));
	assert_int_equal(casc_replay(&r), 0);
	r.load.small_alone = false;
	assert_int_equal(casc_replay(&r), SL_EINVAL);
	start(in(0.05f));
	e = (struct casc_event){.kind = CASC_SMALL_TOKEN, .token = {.logprob = -1}};
	assert_int_equal(casc_step(&c, &budget, &e, &out), 0);
	assert_false(casc_actions_decide(&out));
}

static void names(void **state)
{
	(void)state;
	assert_string_equal(casc_plan_name(CASC_PLAN_RACE), "race");
	assert_string_equal(casc_plan_name(5), "?");
	assert_string_equal(casc_why_name(CASC_WHY_BUDGET), "budget");
	assert_string_equal(casc_why_name(-1), "?");
	assert_string_equal(casc_action_name(CASC_DO_END), "end");
	assert_string_equal(casc_action_name(99), "?");
	assert_string_equal(casc_reason_name(CASC_FOR_FAILURE), "failure");
	assert_string_equal(casc_reason_name(9), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(plans),
	    cmocka_unit_test(sure_soon),
	    cmocka_unit_test(undecided),
	    cmocka_unit_test(held_and_given_up),
	    cmocka_unit_test(shown_and_given_up),
	    cmocka_unit_test(the_large_one_does_not_come),
	    cmocka_unit_test(races),
	    cmocka_unit_test(budgets),
	    cmocka_unit_test(failures),
	    cmocka_unit_test(clients_that_go),
	    cmocka_unit_test(records),
	    cmocka_unit_test(names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
