/* SPDX-License-Identifier: Apache-2.0
 *
 * A request again (cascade/again.c): random models, readers and clocks decide once; from the past as it was after any
 * step a second machine, with the same tokens but another clock and order, shows what the first one has shown, and
 * goes on from there.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cascade/cascade.h"

enum { REQUESTS = 6000, LONGEST = 24, MOST_STEPS = 400 };

static uint64_t seed;

static uint32_t roll(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 33) % n;
}

/* What is the same both times: tokens. And what need not be: how the models fare. */
struct models {
	float logprob[LONGEST];
	uint32_t n_small, n_large, n_agreed;
	uint32_t small_fails, large_fails; /* before this token; UINT32_MAX: never */
	uint32_t slow;                     /* of ten turns so many are the clock's */
	uint32_t large_waits;              /* turns until it is there */
};

/* One machine, and who carries it out: as gateway/cascade/cascade_run.c does. */
struct world {
	const struct models *models;
	struct casc c;
	struct casc_budget budget;
	struct casc_past past;
	uint8_t known; /* facts it began with */
	bool left_out, is_again;
	bool small_on, large_on, small_fails, large_fails, verifying;
	uint32_t at_small, at_large, offered, keep, waits;
	uint64_t now_ms;
	/* In the order of the text. */
	uint32_t small_shown, large_shown;
	bool over, failed;
};

static void carry_out(struct world *w, const struct casc_actions *out);

static void tell(struct world *w, struct casc_event e)
{
	struct casc_actions out;
	e.now_ms = w->now_ms;
	if (w->over || casc_step(&w->c, &w->budget, &e, &out) != 0)
		return;
	carry_out(w, &out);
}

static void start_large(struct world *w)
{
	if ((w->known & CASC_PAST_SMALL_WON) && !w->left_out) {
		w->left_out = true;
		return;
	}
	w->large_on = true;
	w->at_large = 0;
	w->waits = w->models->large_waits;
	w->large_fails = (w->known & CASC_PAST_LARGE_LOST) != 0;
}

static void start_small(struct world *w)
{
	w->small_on = !(w->known & CASC_PAST_LARGE_WON);
	w->small_fails = (w->known & CASC_PAST_SMALL_FAILED) != 0 && w->past.failed == 0;
}

static void carry_out(struct world *w, const struct casc_actions *out)
{
	casc_check(&w->c);
	(void)casc_past_note(&w->past, &w->c);
	for (uint32_t i = 0; i < out->n; i++) {
		const struct casc_action *a = &out->at[i];
		switch ((enum casc_action_kind)a->kind) {
		case CASC_DO_START_SMALL: start_small(w); break;
		case CASC_DO_START_LARGE: start_large(w); break;
		case CASC_DO_ESCALATE:
			w->offered = a->n;
			w->keep = a->keep;
			w->verifying = true;
			start_large(w);
			break;
		case CASC_DO_RELEASE:
			assert_true(a->model == CASC_LARGE || w->large_shown == 0);
			*(a->model == CASC_SMALL ? &w->small_shown : &w->large_shown) += a->n;
			break;
		case CASC_DO_CANCEL_SMALL: w->small_on = w->small_fails = false; break;
		case CASC_DO_CANCEL_LARGE: w->large_on = w->large_fails = false; break;
		case CASC_DO_END:
			w->over = true;
			w->failed = a->n != CASC_END_DONE;
			break;
		case CASC_DO_HOLD:
		case CASC_DO_PAUSE_SMALL:
		case CASC_DO_RESUME_SMALL:
		case CASC_DO_TELL:
		case CASC_N_ACTIONS: break;
		}
	}
}

static void small_turn(struct world *w)
{
	const struct models *m = w->models;
	bool paused = w->c.small.state == CASC_RUN_PAUSED;
	if (!w->small_on || paused)
		return;
	bool again = (w->known & CASC_PAST_SMALL_FAILED) && w->at_small >= w->past.failed;
	if (again || (!w->is_again && w->at_small >= m->small_fails)) {
		w->small_on = false;
		tell(w, (struct casc_event){.kind = CASC_SMALL_FAILED});
	} else if (w->at_small == m->n_small) {
		w->small_on = false;
		tell(w, (struct casc_event){.kind = CASC_SMALL_DONE});
	} else {
		tell(w, (struct casc_event){.kind = CASC_SMALL_TOKEN, .token = {.logprob = m->logprob[w->at_small++]}});
	}
}

static void large_turn(struct world *w)
{
	const struct models *m = w->models;
	if (!w->large_on || (w->waits > 0 && w->waits-- > 1))
		return;
	if (!w->is_again && w->at_large >= m->large_fails) {
		w->large_on = false;
		tell(w, (struct casc_event){.kind = CASC_LARGE_FAILED});
	} else if (w->verifying && w->offered > 0) {
		w->verifying = false;
		tell(w, (struct casc_event){.kind = CASC_VERIFIED,
					    .n = m->n_agreed < w->offered ? m->n_agreed : w->offered});
	} else if (w->at_large == m->n_large) {
		w->large_on = false;
		tell(w, (struct casc_event){.kind = CASC_LARGE_DONE});
	} else {
		w->at_large++;
		tell(w, (struct casc_event){.kind = CASC_LARGE_TOKEN});
	}
}

static void turn(struct world *w)
{
	if (w->small_fails || w->large_fails) { /* known to */
		enum casc_event_kind kind = w->small_fails ? CASC_SMALL_FAILED : CASC_LARGE_FAILED;
		*(w->small_fails ? &w->small_on : &w->large_on) = false;
		*(w->small_fails ? &w->small_fails : &w->large_fails) = false;
		tell(w, (struct casc_event){.kind = (uint8_t)kind});
	} else if (roll(10) < w->models->slow && casc_due(&w->c) != 0 && !w->is_again) {
		w->now_ms = casc_due(&w->c);
		tell(w, (struct casc_event){.kind = CASC_TIMER});
	} else if (roll(2) == 0) {
		small_turn(w);
	} else {
		large_turn(w);
	}
}

static struct models make_models(void)
{
	struct models m = {
	    .n_small = roll(LONGEST), .n_large = 1 + roll(LONGEST), .n_agreed = roll(LONGEST), .slow = roll(3)};
	m.small_fails = roll(5) == 0 ? roll(12) : UINT32_MAX;
	m.large_fails = roll(5) == 0 ? 0 : UINT32_MAX;
	m.large_waits = roll(20);
	for (int i = 0; i < LONGEST; i++)
		m.logprob[i] = logf(roll(6) == 0 ? 0.1f : 0.5f + (float)roll(50) / 100);
	return m;
}

static void begin(struct world *w, const struct models *m)
{
	struct casc_policy p = {.fallback = true,
				.easy = 0.1f,
				.race = 0.6f,
				.hard = 0.9f,
				.low = 0.4f,
				.sure = 0.8f,
				.drop = 0.35f,
				.hold_min = (uint16_t)(1 + roll(3)),
				.hold_tokens = (uint16_t)(3 + roll(4)),
				.hold_ms = 100,
				.takeover_ms = 200,
				.share = roll(4) == 0 ? 0 : 1,
				.floor = roll(4) == 0 ? 0 : 1000,
				.conf = {.w_mean = 0.5f, .w_min = 0.5f, .smooth = 0.5f, .window = 3}};
	*w = (struct world){.models = m, .now_ms = 1000};
	casc_init(&w->c, &p);
	tell(w, (struct casc_event){.kind = CASC_START,
				    .plan = {.score = (float)roll(100) / 100,
					     .can_small = true,
					     .can_large = true,
					     .can_watch = true,
					     .can_verify = true}});
	casc_past_begin(&w->past, &w->c);
}

static void begin_again(struct world *w, const struct models *m, const struct casc_past *past)
{
	struct casc_actions out;
	*w = (struct world){.models = m, .now_ms = 5000000, .is_again = true, .past = *past, .known = past->facts};
	assert_true(casc_past_is_sound(past));
	assert_int_equal(casc_start_again(&w->c, past, w->now_ms, &out), 0);
	carry_out(w, &out);
}

struct seen {
	struct casc_past past;
	uint32_t small, large;
	bool over, failed;
};

static void compare(const struct models *m, const struct seen *s, const struct world *first)
{
	struct world again;
	begin_again(&again, m, &s->past);
	assert_int_equal(again.c.plan, first->c.plan);
	assert_int_equal(again.c.why, first->c.why);
	for (int i = 0; i < 10 * MOST_STEPS && !again.over; i++)
		turn(&again);
	/* With failures at the end of all the second one may fare better, never otherwise. */
	if (s->failed)
		return;
	assert_true(again.over);
	assert_true(again.failed || again.small_shown >= s->small);
	if (s->large > 0) {
		assert_int_equal(again.small_shown, s->small);
		assert_true(again.failed || again.large_shown >= s->large);
	}
	if (s->over && !again.failed) {
		assert_true(again.small_shown == s->small && again.large_shown == s->large);
		assert_int_equal(again.c.escalated, first->c.escalated);
		assert_int_equal(again.c.disagreed, first->c.disagreed);
	}
}

static void what_was_shown_is_shown(void **state)
{
	static struct seen seen[MOST_STEPS];
	uint32_t facts = 0, n_again = 0;
	(void)state;
	seed = 0x9e3779b97f4a7c15;
	for (int k = 0; k < REQUESTS; k++) {
		struct models m = make_models();
		struct world w;
		int n = 0;
		begin(&w, &m);
		for (; n < MOST_STEPS && !w.over; n++) {
			seen[n] = (struct seen){w.past, w.small_shown, w.large_shown, false, false};
			turn(&w);
		}
		if (w.c.plan == CASC_PLAN_NONE)
			continue;
		assert_true(w.over);
		facts |= w.past.facts;
		struct seen last = {w.past, w.small_shown, w.large_shown, true, w.failed};
		compare(&m, &last, &w);
		for (int i = 0; i < 3; i++)
			compare(&m, &seen[roll((uint32_t)n)], &w);
		n_again += 4;
	}
	assert_int_equal(facts, CASC_PAST_LARGE_WON | CASC_PAST_SMALL_WON | CASC_PAST_LARGE_LOST | CASC_PAST_REFUSED |
				    CASC_PAST_SMALL_FAILED | CASC_PAST_HOLD_TIMED);
	print_message("%u requests again\n", n_again);
}

static void unsound(void **state)
{
	struct models m = make_models();
	struct world w;
	struct casc c;
	struct casc_actions out;
	(void)state;
	begin(&w, &m);
	w.past.plan = CASC_PLAN_CHECK;
	assert_true(casc_past_is_sound(&w.past));
	const struct casc_past good = w.past;
	for (int i = 0; i < 11; i++) {
		struct casc_past bad = good;
		switch (i) {
		case 0: bad.version++; break;
		case 1: bad.plan = CASC_PLAN_NONE; break;
		case 2: bad.plan = CASC_PLAN_RACE + 1; break;
		case 3: bad.why = CASC_N_WHYS; break;
		case 4: bad.policy.conf.window = 0; break;
		case 5: bad.policy.conf.window = CASC_MAX_WINDOW + 1; break;
		case 6: bad.policy.conf.smooth = NAN; break;
		case 7: bad.policy.hold_tokens = 0; break;
		case 8: bad.can_small = false; break;
		case 9: bad.can_large = false; break;
		default: bad.facts = CASC_PAST_LARGE_WON | CASC_PAST_SMALL_WON; break;
		}
		assert_false(casc_past_is_sound(&bad));
		assert_int_equal(casc_start_again(&c, &bad, 1, &out), SL_EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_shown_is_shown), cmocka_unit_test(unsound)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
