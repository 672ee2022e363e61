/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt beside a decoding answer, on a machine on which large steps were slow for a while: its chunks become what
 * the machine allows now, although the chunks that were learnt to be best are small.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "engine/sched/sched.h"
#include "tests/support/bare_owner.h"

enum { PAGE = 16, STEP = 128, ITL_MS = 50, LONG = 1 << 20, STEPS = 1500 };

static double true_ns(uint32_t rows) { return 5e6 + 0.3e6 * rows; }

struct rig {
	struct sched *sched;
	struct sched_tenants tenants;
	struct cost cost;
	struct sched_seq answer, prompt;
};

static void enter(struct rig *r, struct sched_seq *s, uint32_t order, bool prefilling, uint32_t n_left)
{
	*s = (struct sched_seq){.order = order,
				.served_ns = 1,
				.width = 1,
				.credit = true,
				.prefilling = prefilling,
				.n_left = n_left,
				.tenant = sched_tenant_enter(&r->tenants, 7, 0)};
	assert_int_equal(sched_add(r->sched, s, 1), 0);
}

static void begin(struct rig *r, unsigned itl_ms)
{
	const struct sched_config cfg = {.step_tokens = STEP,
					 .max_sequences = 4,
					 .kv = kv_groups_one(PAGE, 1),
					 .n_pages = 1 << 20,
					 .itl_target_ns = itl_ms * NS_PER_MS,
					 .age_ns = NS_PER_S,
					 .starve_ns = 1000 * NS_PER_S,
					 .paused_ns = 1000 * NS_PER_S};
	cost_init(&r->cost, 5e6, 0.3e6);
	assert_int_equal(sched_create(&cfg, &r->sched), 0);
	assert_int_equal(sched_tenants_init(&r->tenants), 0);
	enter(r, &r->answer, 1, true, 1);
	enter(r, &r->prompt, 2, true, LONG);
}

static void end(struct rig *r)
{
	struct sched_seq *all[] = {&r->answer, &r->prompt};
	for (int i = 0; i < 2; i++) {
		sched_remove(r->sched, all[i]);
		sched_tenant_leave(&r->tenants, all[i]->tenant);
	}
	sched_tenants_dispose(&r->tenants);
	sched_destroy(r->sched);
}

/* The prompt's rows. The machine is `slower` times as slow at steps of 40 rows or more. */
static uint32_t step(struct rig *r, uint64_t now, double slower)
{
	struct sched_plan plan;
	sched_plan(r->sched, &bare_owner, &r->cost, 1 << 20, now, &plan);
	uint32_t rows = plan.n_decode + plan.n_prefill, of_prompt = r->prompt.n_tokens;
	cost_learn(&r->cost, rows, (struct cost_past){0}, true_ns(rows) * (rows >= 40 ? slower : 1));
	for (uint32_t i = 0; i < plan.n_run; i++) {
		struct sched_seq *s = plan.run[i];
		s->n_left -= s->prefilling ? s->n_tokens : 0;
		s->started = true;
		if (s == &r->answer && s->prefilling && s->n_left == 0) {
			s->prefilling = false;
			s->n_left = 1;
		}
		sched_update(r->sched, s, now);
	}
	return of_prompt;
}

/* A slow minute of the machine is over: prompts have large chunks again. */
static void chunks_grow_again(void **state)
{
	struct rig r;
	uint64_t now = 2, most_ns = 0;
	uint32_t slow = 0, sum = 0;
	(void)state;
	begin(&r, ITL_MS);
	for (int i = 0; i < STEPS; i++, now += 10 * NS_PER_MS)
		slow = step(&r, now, 6);
	assert_true(slow < 40);
	for (int i = 0; i < STEPS; i++, now += 10 * NS_PER_MS) {
		uint32_t rows = step(&r, now, 1);
		most_ns = (uint64_t)true_ns(rows + 1) > most_ns ? (uint64_t)true_ns(rows + 1) : most_ns;
		sum += i >= STEPS - 100 ? rows : 0;
	}
	assert_true(sum >= 100 * 2 * slow);
	assert_true(most_ns <= ITL_MS * NS_PER_MS); /* nobody waits longer than the target for what is tried */
	end(&r);
}

/* Where larger steps stay slow, one in 64 is tried. */
static void looks_are_rare(void **state)
{
	struct rig r;
	uint64_t now = 2;
	int n_large = 0;
	(void)state;
	begin(&r, ITL_MS);
	for (int i = 0; i < STEPS; i++, now += 10 * NS_PER_MS) {
		uint32_t rows = step(&r, now, 6);
		n_large += i >= 200 && rows >= 40;
	}
	assert_true(n_large > 0 && n_large <= (STEPS - 200) / 64 + 2);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_grow_again), cmocka_unit_test(looks_are_rare)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
