/* SPDX-License-Identifier: Apache-2.0
 *
 * The cascade's decisions under random lives: tiers of random policies share budgets and load, each
 * request has a random plan, two models that write, finish, fail, fall silent and are late to stop, and
 * a client that may leave. A referee that knows only the actions keeps its own account of what runs
 * and what is shown; every decision is replayed from its record. SIM_STEPS and SIM_SEED choose another
 * run (ten steps a request); a violation names its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cascade/cascade.h"

enum { TIERS = 4, MOST_EVENTS = 4000 };

struct tier {
	struct casc_policy policy;
	struct casc_budget budget;
	struct casc_load load;
};

/* A model's run as the world has it. */
struct run {
	bool started, paused, cancelled, ended;
	uint32_t left;      /* tokens it would still write */
	uint32_t in_flight; /* told after a pause or a cancel, at most */
	uint32_t made, shown;
	bool silent; /* falls silent for good, until it is failed from outside */
};

struct referee {
	struct run small, large;
	bool holding, verifying, ended;
	uint32_t offered, keep, n_switches;
	enum casc_end end;
};

struct world {
	uint64_t random, seed, request;
	uint64_t now;
	struct tier tiers[TIERS];
	struct casc c;
	struct tier *tier;
	struct referee r;
	struct casc_plan_in in;
	float sureness; /* of the small model, drifts */
	struct casc_cost sum, expected;
	uint64_t n_plans[CASC_PLAN_RACE + 1], n_whys[CASC_N_WHYS], n_actions[CASC_N_ACTIONS],
	    n_reasons[CASC_FOR_FAILURE + 1];
	uint64_t n_ends[CASC_END_NO_MODEL + 1], n_decisions, n_refused_events, n_timeouts;
};

#define HOLDS(w, cond, ...)                                                                         \
	do {                                                                                        \
		if (!(cond)) {                                                                      \
			print_error("SIM_SEED=%llu, request %llu: ", (unsigned long long)(w)->seed, \
				    (unsigned long long)(w)->request);                              \
			print_error(__VA_ARGS__);                                                   \
			fail_msg("%s", #cond);                                                      \
		}                                                                                   \
	} while (0)

static uint64_t draw(struct world *w)
{
	uint64_t z = w->random += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint32_t below(struct world *w, uint32_t n) { return (uint32_t)(draw(w) % n); }

static float unit(struct world *w) { return (float)(draw(w) >> 40) / (float)(1 << 24); }

static bool chance(struct world *w, uint32_t per_mille) { return below(w, 1000) < per_mille; }

static struct casc_policy random_policy(struct world *w)
{
	struct casc_policy p;
	memset(&p, 0, sizeof p);
	float a = unit(w), b = unit(w), c = unit(w), d = unit(w);
	p.mode = (uint8_t)(chance(w, 900) ? CASC_MODE_AUTO : 1 + below(w, 2));
	p.disagree = (uint8_t)below(w, 2);
	p.fallback = chance(w, 700);
	p.tell_degraded = chance(w, 500);
	p.easy = a * 0.3f;
	p.race = p.easy + (1 - p.easy) * b;
	p.hard = p.race + (1 - p.race) * c;
	p.low = 0.2f + 0.5f * d;
	p.sure = p.low + (1 - p.low) * unit(w);
	p.drop = p.low * unit(w);
	p.hold_tokens = (uint16_t)(1 + below(w, 24));
	p.hold_min = (uint16_t)(1 + below(w, p.hold_tokens));
	p.hold_ms = below(w, 400);
	p.takeover_ms = below(w, 3000);
	p.share = unit(w);
	p.floor = below(w, 5);
	p.conf = (struct casc_conf_policy){unit(w) + 0.01f,
					   unit(w),
					   unit(w),
					   unit(w),
					   0.05f + 0.9f * unit(w),
					   (uint8_t)(1 + below(w, CASC_MAX_WINDOW))};
	p.load = (struct casc_load_policy){below(w, 5) == 0 ? 0 : 200 + below(w, 1500), 0.3f + 0.7f * unit(w),
					   below(w, 500), below(w, 3000), below(w, 5000)};
	return p;
}

/* ---- the referee ---- */

static void start(struct world *w, struct run *r)
{
	HOLDS(w, !r->started || r->cancelled, "a run starts that is on\n");
	*r = (struct run){.started = true, .left = chance(w, 50) ? 0 : below(w, 60), .silent = chance(w, 20)};
}

static void cancel(struct world *w, struct run *r)
{
	HOLDS(w, r->started && !r->cancelled && !r->ended, "a run is cancelled that is not on\n");
	r->cancelled = true;
	r->in_flight = below(w, 4);
}

static void carry_out(struct world *w, const struct casc_action *a)
{
	struct referee *r = &w->r;
	HOLDS(w, !r->ended, "%s after the end\n", casc_action_name(a->kind));
	w->n_actions[a->kind]++;
	switch ((enum casc_action_kind)a->kind) {
	case CASC_DO_START_SMALL:
		HOLDS(w, w->in.can_small && r->large.shown == 0, "the small one can't\n");
		start(w, &r->small);
		break;
	case CASC_DO_START_LARGE:
		HOLDS(w, w->in.can_large && r->small.shown == 0, "the large one can't\n");
		start(w, &r->large);
		break;
	case CASC_DO_HOLD:
		HOLDS(w, r->small.started && r->small.made == 0, "held too late\n");
		r->holding = true;
		break;
	case CASC_DO_RELEASE: {
		struct run *of = a->model == CASC_SMALL ? &r->small : &r->large;
		HOLDS(w, a->n > 0 && of->shown + a->n <= of->made, "shown: %u + %u of %u\n", of->shown, a->n, of->made);
		HOLDS(w, a->model == CASC_LARGE || r->large.shown == 0,
		      "the small one is shown behind the large one\n");
		/* Of a cancelled run nothing is shown any more; of a draft only what was agreed upon. */
		HOLDS(w, !of->cancelled && (!of->paused || of->ended), "shown of a run that is not on\n");
		of->shown += a->n;
		break;
	}
	case CASC_DO_ESCALATE:
		HOLDS(w, w->in.can_large && r->n_switches++ == 0, "a second switch\n");
		HOLDS(w, a->keep == r->small.shown && (a->n == 0 || a->n == r->small.made),
		      "keep %u of %u, n %u of %u\n", a->keep, r->small.shown, a->n, r->small.made);
		HOLDS(w, (a->n > 0) == w->in.can_verify, "a draft that can't be checked\n");
		start(w, &r->large);
		r->verifying = a->n > 0;
		r->offered = a->n;
		r->keep = a->keep;
		break;
	case CASC_DO_PAUSE_SMALL:
		HOLDS(w, r->small.started && !r->small.paused && !r->small.cancelled && !r->small.ended, "pause\n");
		r->small.paused = true;
		r->small.in_flight = below(w, 4);
		break;
	case CASC_DO_RESUME_SMALL:
		HOLDS(w, r->small.paused && !r->small.cancelled, "resume\n");
		r->small.paused = false;
		break;
	case CASC_DO_CANCEL_SMALL: cancel(w, &r->small); break;
	case CASC_DO_CANCEL_LARGE: cancel(w, &r->large); break;
	case CASC_DO_TELL:
		HOLDS(w, a->n == CASC_TELL_DEGRADED ? w->in.wants_to_know && w->in.degraded : a->keep < r->keep,
		      "told for nothing\n");
		break;
	case CASC_DO_END:
		HOLDS(w, !r->small.started || r->small.ended || r->small.cancelled,
		      "the end, and the small one is on\n");
		HOLDS(w, !r->large.started || r->large.ended || r->large.cancelled,
		      "the end, and the large one is on\n");
		r->ended = true;
		r->end = (enum casc_end)a->n;
		w->n_ends[a->n]++;
		break;
	case CASC_N_ACTIONS: fail();
	}
}

static bool same_state(const struct casc *a, const struct casc *b) { return memcmp(a, b, sizeof *a) == 0; }

static int tell(struct world *w, const struct casc_event *e)
{
	struct casc_record record;
	struct casc_actions out;
	struct casc before = w->c;
	int rc = casc_step_recorded(&w->c, &w->tier->budget, e, &out, &record);
	HOLDS(w, casc_replay(&record) == 0, "the replay decides otherwise\n");
	w->n_decisions += casc_actions_decide(&out);
	if (rc != 0) {
		HOLDS(w, rc == SL_EPROTO && out.n == 0 && same_state(&w->c, &before),
		      "a refused event changed something\n");
		return rc;
	}
	/* What is released by a VERIFIED was paused: it has been agreed upon. */
	bool was_paused = w->r.small.paused;
	if (e->kind == CASC_VERIFIED)
		w->r.small.paused = false;
	for (uint32_t i = 0; i < out.n; i++)
		carry_out(w, &out.at[i]);
	if (e->kind == CASC_VERIFIED && !w->r.small.cancelled)
		w->r.small.paused = was_paused;
	casc_check(&w->c);
	HOLDS(w, w->r.small.shown == w->c.small.shown && w->r.large.shown == w->c.large.shown,
	      "two accounts of what is shown\n");
	HOLDS(w, w->r.ended == (w->c.phase == CASC_OVER), "two opinions of the end\n");
	return 0;
}

/* ---- events ---- */

static struct casc_token random_token(struct world *w)
{
	struct casc_token t = {0};
	w->sureness += 0.25f * (unit(w) - 0.5f);
	w->sureness = w->sureness < 0.02f ? 0.02f : w->sureness > 0.99f ? 0.99f : w->sureness;
	t.logprob = logf(w->sureness);
	t.n_top = (uint8_t)below(w, CASC_TOP + 1);
	float left = 1;
	for (int i = 0; i < t.n_top; i++) {
		float p = left * w->sureness;
		t.top[i] = i > 0 && logf(p) > t.top[i - 1] ? t.top[i - 1] : logf(p);
		left -= p;
		left = left > 1e-6f ? left : 1e-6f;
	}
	return t;
}

/* The next event of a run that is on, or late ones of one that is not any more; false: it is silent. */
static bool run_speaks(struct world *w, struct run *r, bool small)
{
	if (!r->started || r->ended)
		return false;
	bool off = r->cancelled || r->paused;
	if (off && r->in_flight == 0) {
		if (!r->cancelled)
			return false; /* no credit, no token */
		r->ended = true;
		return false;
	}
	if (!small && w->r.verifying && !off) {
		if (r->silent)
			return false;
		struct casc_event e = {.kind = CASC_VERIFIED, .now_ms = w->now, .n = below(w, w->r.offered + 1)};
		uint32_t kept = e.n > w->r.keep ? e.n : w->r.keep;
		w->r.verifying = false;
		HOLDS(w, tell(w, &e) == 0, "VERIFIED is refused\n");
		HOLDS(w, w->r.small.shown == kept, "%u shown, %u kept\n", w->r.small.shown, kept);
		return true;
	}
	struct casc_event e = {.now_ms = w->now};
	if ((r->silent && !off) || chance(w, 10)) {
		if (!chance(w, 30))
			return false;
		e.kind = small ? CASC_SMALL_FAILED : CASC_LARGE_FAILED;
		r->ended = true;
	} else if (r->left == 0) {
		e.kind = small ? CASC_SMALL_DONE : CASC_LARGE_DONE;
		r->ended = true;
	} else {
		e.kind = small ? CASC_SMALL_TOKEN : CASC_LARGE_TOKEN;
		e.token = random_token(w);
		r->left--;
		r->made++;
		r->in_flight -= off;
		(small ? &w->expected.small_made : &w->expected.large_made)[0]++;
	}
	HOLDS(w, tell(w, &e) == 0, "event %d is refused in phase %d\n", e.kind, w->c.phase);
	return true;
}

/* Something that can't be now. */
static void nonsense(struct world *w)
{
	struct casc_event e = {.kind = (uint8_t)(below(w, CASC_N_EVENTS + 2)), .now_ms = w->now, .n = below(w, 100)};
	bool small = e.kind == CASC_SMALL_TOKEN || e.kind == CASC_SMALL_DONE || e.kind == CASC_SMALL_FAILED;
	bool large = e.kind == CASC_LARGE_TOKEN || e.kind == CASC_LARGE_DONE || e.kind == CASC_LARGE_FAILED;
	bool impossible = e.kind == CASC_START || e.kind >= CASC_N_EVENTS ||
			  (e.kind == CASC_SMALL_TOKEN && w->c.phase != CASC_ONE && w->c.phase != CASC_SWITCH &&
			   w->c.small.state == CASC_RUN_ON) ||
			  (small && w->c.small.state != CASC_RUN_ON && w->c.small.state != CASC_RUN_PAUSED &&
			   w->c.small.state != CASC_RUN_CANCELLED) ||
			  (large && w->c.large.state != CASC_RUN_ON && w->c.large.state != CASC_RUN_CANCELLED) ||
			  (e.kind == CASC_VERIFIED && e.n > w->c.offered);
	if (!impossible)
		return;
	e.token.logprob = chance(w, 500) ? NAN : 2.0f;
	HOLDS(w, tell(w, &e) == SL_EPROTO, "event %d is taken in phase %d\n", e.kind, w->c.phase);
	w->n_refused_events++;
}

static void begin(struct world *w)
{
	uint32_t t = below(w, TIERS);
	w->tier = &w->tiers[t];
	if (chance(w, 2)) {
		w->tier->policy = random_policy(w);
		memset(&w->tier->load, 0, sizeof w->tier->load);
	}
	/* Load comes in waves. */
	struct casc_load_in in = {.now_ms = w->now,
				  .ttft_small_ms = below(w, 100),
				  .ttft_large_ms = (uint32_t)(700 + 690 * sinf((float)(w->request % 20000) / 3183.0f)) +
						   below(w, 200),
				  .better_degraded = t > 0 && casc_load_degraded(&w->tiers[t - 1].load)};
	struct casc_record record;
	bool degraded = casc_load_decide_recorded(&w->tier->load, &w->tier->policy.load, &in, &record);
	HOLDS(w, casc_replay(&record) == 0, "the replay of the load decides otherwise\n");
	memset(&w->in, 0, sizeof w->in);
	w->in = (struct casc_plan_in){.score = unit(w),
				      .forced = (uint8_t)(chance(w, 50) ? 1 + below(w, 2) : 0),
				      .can_small = chance(w, 980),
				      .can_large = chance(w, 980),
				      .can_watch = chance(w, 950),
				      .can_verify = chance(w, 800),
				      .degraded = degraded,
				      .wants_to_know = chance(w, 500),
				      .prompt_small = below(w, 1000),
				      .prompt_large = below(w, 1000)};
	casc_init(&w->c, &w->tier->policy);
	memset(&w->r, 0, sizeof w->r);
	w->sureness = unit(w);
	struct casc_event e = {.kind = CASC_START, .now_ms = w->now, .plan = w->in};
	HOLDS(w, tell(w, &e) == 0, "START is refused\n");
	w->n_plans[w->c.plan]++;
	w->n_whys[w->c.why]++;
}

static void one_event(struct world *w)
{
	if (chance(w, 8)) {
		nonsense(w);
	} else if (chance(w, 2)) {
		struct casc_event e = {.kind = CASC_CLIENT_GONE, .now_ms = w->now};
		HOLDS(w, tell(w, &e) == 0, "CLIENT_GONE is refused\n");
	} else if (casc_due(&w->c) != 0 && w->now >= casc_due(&w->c) && chance(w, 800)) {
		uint8_t phase = w->c.phase;
		struct casc_event e = {.kind = CASC_TIMER, .now_ms = w->now};
		HOLDS(w, tell(w, &e) == 0, "TIMER is refused\n");
		HOLDS(w, w->c.phase != phase, "the deadline of phase %d changes nothing\n", phase);
		w->n_timeouts++;
	} else if (chance(w, 500)) {
		run_speaks(w, &w->r.small, true);
	} else {
		run_speaks(w, &w->r.large, false);
	}
}

static void book(struct world *w)
{
	const struct casc *c = &w->c;
	uint64_t before = w->sum.small_made + w->sum.large_made;
	casc_cost_add(&w->sum, c);
	HOLDS(w, w->sum.small_made + w->sum.large_made == before + c->small.made + c->large.made + c->lost_made,
	      "made\n");
	w->expected.requests++;
	w->expected.small_shown += w->r.small.shown;
	w->expected.large_shown += w->r.large.shown;
	w->n_reasons[c->escalated]++;
	HOLDS(w, w->sum.small_made == w->expected.small_made && w->sum.large_made == w->expected.large_made,
	      "costs: %llu and %llu of the small one, %llu and %llu of the large one\n",
	      (unsigned long long)w->sum.small_made, (unsigned long long)w->expected.small_made,
	      (unsigned long long)w->sum.large_made, (unsigned long long)w->expected.large_made);
	HOLDS(w, w->sum.small_shown == w->expected.small_shown && w->sum.large_shown == w->expected.large_shown,
	      "shown\n");
	HOLDS(w,
	      w->sum.small_made == w->sum.small_shown + w->sum.small_wasted &&
		  w->sum.large_made == w->sum.large_shown + w->sum.large_wasted,
	      "made is not shown and wasted\n");
}

static void live(struct world *w)
{
	begin(w);
	int n = 0;
	/* A run that lost a race may be late; once another one starts it is not told of any more. */
	while (!w->r.ended) {
		HOLDS(w, n++ < MOST_EVENTS, "no end, phase %d\n", w->c.phase);
		w->now += below(w, 40);
		one_event(w);
	}
	for (int i = 0; i < 40; i++) {
		run_speaks(w, &w->r.small, true);
		run_speaks(w, &w->r.large, false);
		if (i == 0)
			nonsense(w);
	}
	HOLDS(w, !w->r.small.started || w->r.small.ended, "the small one's run is left behind\n");
	HOLDS(w, !w->r.large.started || w->r.large.ended, "the large one's run is left behind\n");
	/* An answer that is done is what its source finished writing. */
	if (w->r.end == CASC_END_DONE && w->r.large.shown > 0)
		HOLDS(w, w->r.large.shown == w->r.large.made && w->r.large.left == 0, "the answer lacks its end\n");
	else if (w->r.end == CASC_END_DONE && w->r.small.ended && !w->r.large.started)
		HOLDS(w, w->r.small.shown == w->r.small.made && w->r.small.left == 0, "the answer lacks its end\n");
	book(w);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *v = getenv(name);
	return v != NULL ? strtoull(v, NULL, 10) : otherwise;
}

static void random_lives(void **state)
{
	(void)state;
	static struct world w;
	w = (struct world){.seed = from_environment("SIM_SEED", 1), .now = 1000};
	w.random = w.seed;
	uint64_t n = from_environment("SIM_STEPS", 1000000) / 10;
	for (int i = 0; i < TIERS; i++)
		w.tiers[i].policy = random_policy(&w);
	for (w.request = 0; w.request < n; w.request++)
		live(&w);
	assert_int_equal(w.sum.requests, n);
	print_message(
	    "%llu requests, %llu decisions; small alone %llu, escalated %llu, races %llu, refused by budget %llu, "
	    "timeouts %llu, refused events %llu\n",
	    (unsigned long long)n, (unsigned long long)w.n_decisions, (unsigned long long)w.sum.small_only,
	    (unsigned long long)w.sum.escalations, (unsigned long long)w.sum.races, (unsigned long long)w.sum.refused,
	    (unsigned long long)w.n_timeouts, (unsigned long long)w.n_refused_events);
	/* Everything that can be has been. */
	for (int i = 0; i <= CASC_PLAN_RACE; i++)
		HOLDS(&w, w.n_plans[i] > 0, "never planned: %s\n", casc_plan_name(i));
	for (int i = 0; i < CASC_N_WHYS; i++)
		HOLDS(&w, w.n_whys[i] > 0, "never: %s\n", casc_why_name(i));
	for (int i = 0; i < CASC_N_ACTIONS; i++)
		HOLDS(&w, w.n_actions[i] > 0, "never done: %s\n", casc_action_name(i));
	for (int i = 0; i <= CASC_FOR_FAILURE; i++)
		HOLDS(&w, w.n_reasons[i] > 0, "never: %s\n", casc_reason_name(i));
	for (int i = 0; i <= CASC_END_NO_MODEL; i++)
		HOLDS(&w, w.n_ends[i] > 0, "no end: %d\n", i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_lives)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
