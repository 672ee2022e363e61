/* SPDX-License-Identifier: Apache-2.0
 *
 * The planner's decisions from figures that the test makes: which way engines move and why, and when they do not. How
 * much it gains, tests/unit/cmd/plan/test_roles.c simulates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gateway/planner/planner.h"

static const uint64_t dwell = 10 * NS_PER_S;

struct world {
	struct planner p;
	struct planner_view v;
	uint64_t long_per_s, short_per_s, mean; /* tokens */
	uint64_t decodes_per_s;                 /* of each engine that decodes */
	int n_moves;
	enum planner_why why; /* of the last move */
};

static void set_up(struct world *w, int n)
{
	*w = (struct world){.v.n_engines = n, .mean = 1000};
	w->v.traffic.ttft_us = 2e6;
	w->v.traffic.tpot_us = 80e3;
	for (int i = 0; i < n; i++)
		w->v.engines[i] = (struct planner_engine){.up = true, .prefill_token_us = 400, .decode_step_us = 45e3};
}

/* A second passes; the decision is applied. */
static struct planner_decision second(struct world *w)
{
	struct planner_traffic *t = &w->v.traffic;
	w->v.now_ns += NS_PER_S;
	t->long_tokens += w->long_per_s;
	t->n_long += w->long_per_s / w->mean;
	t->short_tokens += w->short_per_s;
	for (int i = 0; i < w->v.n_engines; i++)
		w->v.engines[i].decode_tokens += w->v.engines[i].role != GW_ENGINE_PREFILL ? w->decodes_per_s : 0;
	struct planner_decision d = planner_turn(&w->p, &w->v, dwell);
	for (int k = 0; k < d.n_moves; k++)
		w->v.engines[d.moves[k].engine].role = d.moves[k].role;
	w->n_moves += d.n_moves;
	w->why = d.n_moves > 0 ? d.why : w->why;
	return d;
}

static void seconds(struct world *w, int n)
{
	for (int i = 0; i < n; i++)
		second(w);
}

static int n_of(const struct world *w, int role)
{
	int n = 0;
	for (int i = 0; i < w->v.n_engines; i++)
		n += w->v.engines[i].role == role;
	return n;
}

static void set_running(struct world *w, uint32_t n)
{
	for (int i = 0; i < w->v.n_engines; i++) {
		struct planner_engine *e = &w->v.engines[i];
		e->running = e->role == GW_ENGINE_PREFILL ? 0 : n;
		e->decode_step_us = 40e3 + 400.0 * n;
	}
}

static void nothing_moves_without_need(void **state)
{
	struct world w;
	(void)state;
	set_up(&w, 4);
	seconds(&w, 100);
	w.long_per_s = 1000;
	w.decodes_per_s = 20;
	set_running(&w, 2);
	seconds(&w, 100);
	assert_int_equal(w.n_moves, 0);
	assert_int_equal(n_of(&w, GW_ENGINE_BOTH), 4);
}

/* 6000 tokens per second take 2.4 engines; beside answers they would slow every token. */
static void long_prompts_get_engines(void **state)
{
	struct world w;
	(void)state;
	set_up(&w, 4);
	w.long_per_s = 6000;
	w.decodes_per_s = 40;
	set_running(&w, 4);
	seconds(&w, 60);
	assert_int_equal(n_of(&w, GW_ENGINE_PREFILL), 3);
	assert_int_equal(n_of(&w, GW_ENGINE_DECODE), 1);
	assert_int_equal(n_of(&w, GW_ENGINE_BOTH), 0);
	assert_true(w.why == PLANNER_TTFT || w.why == PLANNER_TPOT);
	/* And they give them back to answers, whose tokens would be slow on one engine. */
	w.long_per_s = 0;
	w.decodes_per_s = 1200;
	for (int i = 0; i < 60; i++) {
		set_running(&w, 240u / (uint32_t)(4 - n_of(&w, GW_ENGINE_PREFILL)));
		second(&w);
	}
	assert_true(n_of(&w, GW_ENGINE_PREFILL) <= 1);
	assert_int_equal(w.why, PLANNER_TPOT);
}

static void pages_and_slots_count(void **state)
{
	struct world w;
	(void)state;
	for (int by_pages = 0; by_pages < 2; by_pages++) {
		set_up(&w, 4);
		w.v.engines[2].role = w.v.engines[3].role = GW_ENGINE_PREFILL;
		w.v.engines[0].role = w.v.engines[1].role = GW_ENGINE_DECODE;
		w.long_per_s = 500;
		set_running(&w, 4);
		for (int i = 0; i < 2; i++) {
			w.v.engines[i].kv_used = by_pages ? 0.95 : 0.1;
			w.v.engines[i].waiting = by_pages ? 0 : 40;
		}
		second(&w);
		second(&w);
		second(&w);
		assert_int_equal(w.why, by_pages ? PLANNER_KV : PLANNER_QUEUE);
		assert_true(n_of(&w, GW_ENGINE_PREFILL) < 2);
		/* Sequences that await pages of an engine for prompts wait for no slot. */
		set_up(&w, 2);
		w.v.engines[0].role = GW_ENGINE_DECODE;
		w.v.engines[1].role = GW_ENGINE_PREFILL;
		w.v.engines[0].waiting = w.v.engines[0].awaiting = 40;
		seconds(&w, 20);
		assert_int_equal(w.n_moves, 0);
	}
}

/* Pressures that change sides every few seconds move no engine more often than dwell allows. */
static void an_engine_keeps_its_role_for_a_while(void **state)
{
	struct world w;
	uint64_t last[8] = {0};
	(void)state;
	set_up(&w, 8);
	for (int s = 0; s < 400; s++) {
		int before[8];
		for (int i = 0; i < 8; i++)
			before[i] = w.v.engines[i].role == GW_ENGINE_PREFILL;
		bool prompts = s / 7 % 2 == 0;
		w.long_per_s = prompts ? 16000 : 0;
		w.decodes_per_s = prompts ? 50 : 1000;
		set_running(&w, prompts ? 4 : 90);
		second(&w);
		for (int i = 0; i < 8; i++) {
			if (before[i] == (w.v.engines[i].role == GW_ENGINE_PREFILL))
				continue;
			assert_true(last[i] == 0 || w.v.now_ns >= last[i] + dwell);
			last[i] = w.v.now_ns;
		}
		assert_true(n_of(&w, GW_ENGINE_PREFILL) < 8);
	}
	assert_true(w.n_moves > 0);
}

/* The last engine that decodes dies: one for prompts takes its place at once, and the old one is used when it is back.
 */
static void answers_always_have_an_engine(void **state)
{
	struct world w;
	(void)state;
	set_up(&w, 2);
	w.v.engines[0].role = GW_ENGINE_DECODE;
	w.v.engines[1].role = GW_ENGINE_PREFILL;
	w.long_per_s = 1000;
	second(&w);
	w.v.engines[0].up = false;
	struct planner_decision d = second(&w);
	assert_int_equal(d.why, PLANNER_LOST);
	assert_true(w.v.engines[1].role != GW_ENGINE_PREFILL);
	w.v.engines[0].up = true;
	second(&w);
	assert_int_equal(n_of(&w, GW_ENGINE_PREFILL), 0);
	/* Without any engine nothing is decided. */
	w.v.engines[0].up = w.v.engines[1].up = false;
	d = second(&w);
	assert_int_equal(d.n_moves, 0);
}

static void fixed_roles_stay(void **state)
{
	struct world w;
	(void)state;
	set_up(&w, 4);
	w.v.engines[0] = (struct planner_engine){.role = GW_ENGINE_BOTH, .fixed = true, .up = true};
	w.v.engines[1].role = GW_ENGINE_PREFILL;
	w.v.engines[1].fixed = true;
	w.v.engines[2].role = GW_ENGINE_DECODE;
	w.v.engines[2].fixed = true;
	w.long_per_s = 9000;
	w.decodes_per_s = 10;
	set_running(&w, 2);
	seconds(&w, 30);
	assert_int_equal(w.v.engines[0].role, GW_ENGINE_BOTH);
	assert_int_equal(w.v.engines[1].role, GW_ENGINE_PREFILL);
	assert_int_equal(w.v.engines[2].role, GW_ENGINE_DECODE);
	assert_int_equal(w.v.engines[3].role, GW_ENGINE_PREFILL);
}

/* Engines that restart count from zero, clocks that stand still, figures that are not there yet. */
static void odd_figures_do_no_harm(void **state)
{
	struct world w;
	(void)state;
	set_up(&w, 4);
	w.long_per_s = 6000;
	w.decodes_per_s = 40;
	seconds(&w, 5);
	for (int i = 0; i < 4; i++)
		w.v.engines[i].prefill_tokens = w.v.engines[i].decode_tokens = 0;
	memset(&w.v.traffic, 0, offsetof(struct planner_traffic, ttft_us));
	second(&w);
	struct planner before = w.p;
	planner_turn(&w.p, &w.v, dwell);
	assert_true(w.p.long_rate == before.long_rate);
	set_up(&w, 3);
	w.v.traffic.ttft_us = w.v.traffic.tpot_us = 0; /* no tier has a target */
	w.long_per_s = 6000;
	for (int i = 0; i < 3; i++)
		w.v.engines[i].prefill_token_us = w.v.engines[i].decode_step_us = 0;
	seconds(&w, 20);
	assert_true(n_of(&w, GW_ENGINE_PREFILL) < 3);
	assert_string_equal(planner_why_name(PLANNER_LOST), "lost");
}

static void more_is_predicted_to_be_better(void **state)
{
	const struct planner_load l = {.n = 8,
				       .long_rate = 5000,
				       .long_mean = 1000,
				       .prompt_us = 400,
				       .row_us = 400,
				       .fixed_us = 40e3,
				       .rows = 200,
				       .decode_rate = 3000,
				       .kv = 2,
				       .ttft_us = 2e6,
				       .tpot_us = 80e3};
	(void)state;
	struct planner_pressure last = planner_predict(&l, 1);
	for (int n = 2; n < 8; n++) {
		struct planner_pressure p = planner_predict(&l, n);
		assert_true(p.ttft < last.ttft);
		assert_true(p.tpot >= last.tpot && p.kv > last.kv);
		last = p;
	}
	/* One prompt of 1000 tokens alone takes 0.4 s of 2. */
	struct planner_load one = l;
	one.long_rate = 1;
	assert_true(planner_predict(&one, 1).ttft > 0.2 && planner_predict(&one, 1).ttft < 0.21);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_moves_without_need),    cmocka_unit_test(long_prompts_get_engines),
	    cmocka_unit_test(pages_and_slots_count),         cmocka_unit_test(an_engine_keeps_its_role_for_a_while),
	    cmocka_unit_test(answers_always_have_an_engine), cmocka_unit_test(fixed_roles_stay),
	    cmocka_unit_test(odd_figures_do_no_harm),        cmocka_unit_test(more_is_predicted_to_be_better)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
