/* SPDX-License-Identifier: Apache-2.0
 *
 * A bound on one prompt's part of a step: two long prompts share each step, instead of taking turns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "engine/sched/sched.h"
#include "tests/support/bare_owner.h"

enum { PAGE = 16, STEP = 128, LONG = 2000 };

/* The rows that two long prompts of a tenant get in the first step. */
static void first_step(uint32_t most_chunk, bool whole, uint32_t rows[2])
{
	const struct sched_config cfg = {.step_tokens = STEP,
					 .most_chunk = most_chunk,
					 .max_sequences = 4,
					 .kv = kv_groups_one(PAGE, 1),
					 .n_pages = 1000,
					 .age_ns = NS_PER_S,
					 .starve_ns = 10 * NS_PER_S,
					 .paused_ns = NS_PER_S};
	struct sched *sched;
	struct sched_tenants tenants;
	struct cost cost;
	struct sched_seq s[2] = {0};
	struct sched_plan plan;
	cost_init(&cost, 1e6, 1e5);
	assert_int_equal(sched_create(&cfg, &sched), 0);
	assert_int_equal(sched_tenants_init(&tenants), 0);
	for (uint32_t i = 0; i < 2; i++) {
		s[i] = (struct sched_seq){.order = i + 1,
					  .served_ns = 1,
					  .width = 1,
					  .credit = true,
					  .prefilling = true,
					  .whole = whole,
					  .n_left = whole ? STEP : LONG,
					  .tenant = sched_tenant_enter(&tenants, 7, 0)};
		assert_int_equal(sched_add(sched, &s[i], 1), 0);
	}
	sched_plan(sched, &bare_owner, &cost, 1000, 2, &plan);
	rows[0] = rows[1] = 0;
	for (uint32_t i = 0; i < plan.n_run; i++)
		rows[plan.run[i] - s] = plan.run[i]->n_tokens;
	for (uint32_t i = 0; i < 2; i++) {
		sched_remove(sched, &s[i]);
		sched_tenant_leave(&tenants, s[i].tenant);
	}
	sched_tenants_dispose(&tenants);
	sched_destroy(sched);
}

static void one_prompt_is_bounded(void **state)
{
	uint32_t rows[2];
	(void)state;
	first_step(0, false, rows);
	assert_int_equal(rows[0], STEP);
	assert_int_equal(rows[1], 0);
	first_step(64, false, rows);
	assert_int_equal(rows[0], 64);
	assert_int_equal(rows[1], 64);
	/* A text that must be computed at once is. */
	first_step(64, true, rows);
	assert_int_equal(rows[0], STEP);
	assert_int_equal(rows[1], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(one_prompt_is_bounded)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
