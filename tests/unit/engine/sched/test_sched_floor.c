/* SPDX-License-Identifier: Apache-2.0
 *
 * Floors of better tiers: which sequences start beside their streams, and what others are told of their wait. A step
 * costs 10 ms, and 5 for each row; attention is free.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/sched/sched.h"
#include "tests/sim/sched_owner.h"

enum { N = 64, ANSWER = 20000 }; /* ANSWER: milliseconds */

static struct sched_tenants tenants;
static struct sched *sc;
static struct cost cost;
static struct sched_seq seqs[N];
static struct sched_plan plan;
static uint64_t now;
static int n_seqs;

/* floor_ms: of tier 0. */
static void set_up(uint64_t floor_ms, uint64_t itl_ms)
{
	const struct sched_config cfg = {.step_tokens = 256,
					 .max_sequences = 48,
					 .kv = kv_groups_one(16, 1),
					 .n_pages = 100000,
					 .age_ns = 2 * NS_PER_S,
					 .starve_ns = 10 * NS_PER_S,
					 .paused_ns = NS_PER_S,
					 .itl_target_ns = itl_ms * NS_PER_MS,
					 .floor_ns = {[0] = floor_ms * NS_PER_MS}};
	now = NS_PER_S;
	n_seqs = 0;
	cost_init(&cost, 10e6, 5e6);
	for (int k = 0; k < 2000; k++) {
		const uint32_t rows = 1u << (k % 9), past_each = k / 9 % 2 ? 4000 : 1;
		cost_learn(&cost, rows, (struct cost_past){(double)rows * past_each, past_each + rows},
			   10e6 + 5e6 * rows);
	}
	assert_int_equal(sched_tenants_init(&tenants), 0);
	assert_int_equal(sched_create(&cfg, &sc), 0);
}

static void drop(struct sched_seq *s)
{
	sched_remove(sc, s);
	sched_tenant_leave(&tenants, s->tenant);
	s->tenant = NULL;
}

static void tear_down(void)
{
	for (int i = 0; i < n_seqs; i++)
		if (seqs[i].tenant != NULL)
			drop(&seqs[i]);
	sched_destroy(sc);
	sched_tenants_dispose(&tenants);
}

static struct sched_seq *arrive(uint8_t priority)
{
	struct sched_seq *s = &seqs[n_seqs++];
	*s = (struct sched_seq){.order = (uint64_t)n_seqs,
				.served_ns = now,
				.tenant = sched_tenant_enter(&tenants, 1 + priority, 0),
				.n_left = 4,
				.width = 1,
				.priority = priority,
				.prefilling = true,
				.credit = true};
	assert_int_equal(sched_add(sc, s, now), 0);
	return s;
}

/* Steps in which prompts are computed and answers go on. Returns the longest one's predicted milliseconds. */
static double steps(int n)
{
	double most = 0;
	for (int i = 0; i < n; i++) {
		sched_plan(sc, &sim_owner, &cost, 100000, now, &plan);
		if (plan.n_prefill == 0 && plan.n_run > 0) {
			double ms = cost_step_ns(&cost, plan.n_decode, (struct cost_past){0}) / 1e6;
			most = ms > most ? ms : most;
		}
		now += 20 * NS_PER_MS;
		for (uint32_t k = 0; k < plan.n_run; k++) {
			struct sched_seq *s = plan.run[k];
			s->started = true;
			s->n_past += s->n_tokens;
			s->n_left -= s->n_tokens;
			s->served_ns = now;
			if (s->n_left == 0) {
				s->n_left = 1;
				s->prefilling = false;
			}
			sched_update(sc, s, now);
		}
	}
	return most;
}

static int n_started(uint8_t priority)
{
	int n = 0;
	for (int i = 0; i < n_seqs; i++)
		n += seqs[i].tenant != NULL && seqs[i].priority == priority && seqs[i].started;
	return n;
}

static void load(struct proto_load *out)
{
	double answer_ns[SCHED_TIERS];
	for (int i = 0; i < SCHED_TIERS; i++)
		answer_ns[i] = ANSWER * 1e6;
	sched_load(sc, &tenants, &cost, answer_ns, 4, out);
}

/* 100 ms are 18 rows. */
static void worse_tiers_leave_better_ones_their_floor(void **state)
{
	struct proto_load told;
	(void)state;
	set_up(100, 0);
	for (int i = 0; i < 10; i++)
		arrive(0);
	steps(20);
	load(&told);
	assert_true(told.of[1].places_free > 0);
	const uint32_t before_us = told.of[1].wait_us;
	for (int i = 0; i < 20; i++)
		arrive(1);
	assert_true(steps(600) <= 100.5);
	assert_int_equal(n_started(0), 10);
	assert_true(n_started(1) >= 7 && n_started(1) <= 8);
	/* Those that come now are told that another answer must end first; better ones are not. */
	load(&told);
	assert_int_equal(told.of[1].places_free, 0);
	assert_true(told.of[1].wait_us > before_us + ANSWER * 1000 / 48);
	assert_true(told.of[0].places_free > 0);
	uint32_t position;
	assert_true(sched_predict_ns(sc, &seqs[n_seqs - 1], &cost, ANSWER * 1e6, &position) > ANSWER * 1e6 / 48);
	/* A better tier's own sequences start, whatever they do to each other. */
	for (int i = 0; i < 5; i++)
		arrive(0);
	steps(20);
	assert_int_equal(n_started(0), 15);
	/* Once they have ended all others start. */
	for (int i = 0; i < n_seqs; i++)
		if (seqs[i].tenant != NULL && seqs[i].priority == 0)
			drop(&seqs[i]);
	steps(60);
	assert_int_equal(n_started(1), 20);
	tear_down();
}

static void without_a_floor_all_start(void **state)
{
	(void)state;
	set_up(0, 0);
	for (int i = 0; i < 30; i++)
		arrive((uint8_t)(i % 3));
	steps(200);
	for (uint8_t tier = 0; tier < 3; tier++)
		assert_int_equal(n_started(tier), 10);
	tear_down();
}

/* A tier has no floor of its own here, and worse tiers do not hold up better ones. */
static void better_tiers_start_beside_worse_ones(void **state)
{
	(void)state;
	set_up(100, 0);
	for (int i = 0; i < 30; i++)
		arrive(2);
	steps(200);
	assert_int_equal(n_started(2), 30);
	arrive(0);
	arrive(1);
	steps(20);
	assert_int_equal(n_started(0), 1);
	assert_int_equal(n_started(1), 0); /* now there is a stream to protect */
	tear_down();
}

/* One row takes 15 ms: a floor of 12 ms is lost anyway. */
static void a_floor_that_is_lost_anyway_holds_nobody_up(void **state)
{
	(void)state;
	set_up(12, 0);
	for (int i = 0; i < 10; i++)
		arrive((uint8_t)(i % 2));
	steps(100);
	assert_int_equal(n_started(1), 5);
	tear_down();
}

/* Prompts beside answers may add 40 ms, so decodes have 60 of 100: ten rows. */
static void prompts_have_their_room(void **state)
{
	(void)state;
	set_up(100, 40);
	for (int i = 0; i < 4; i++)
		arrive(0);
	steps(50);
	for (int i = 0; i < 20; i++)
		arrive(1);
	steps(600);
	assert_int_equal(n_started(0), 4);
	if (n_started(1) < 5 || n_started(1) > 6)
		fail_msg("%d have started", n_started(1));
	tear_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(worse_tiers_leave_better_ones_their_floor), cmocka_unit_test(without_a_floor_all_start),
	    cmocka_unit_test(better_tiers_start_beside_worse_ones),
	    cmocka_unit_test(a_floor_that_is_lost_anyway_holds_nobody_up), cmocka_unit_test(prompts_have_their_room)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
