/* SPDX-License-Identifier: Apache-2.0
 *
 * Fairness in a bounded queue: what is served next, what goes for a newcomer, by hand and against a referee that keeps
 * plain lists.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fair.h"
#include "base/fault.h"

static void enter(struct fair *f, struct fair_item *it, uint64_t tenant, int priority, uint32_t units)
{
	assert_int_equal(fair_enter(f, it, tenant, priority, units), 0);
}

static void the_better_first_and_nobody_starves(void **unused)
{
	(void)unused;
	enum { N = 40 };
	struct fair f;
	static struct fair_item better[N], worse[N];
	fair_init(&f);
	assert_null(fair_take(&f));
	for (int i = 0; i < N; i++) {
		enter(&f, &worse[i], 1, 5, 1);
		enter(&f, &better[i], 2, 0, 1);
	}
	int n_better = 0, n_worse = 0;
	for (int i = 0; i < 2 * FAIR_AGING; i++) {
		struct fair_item *it = fair_take(&f);
		if (it == &better[n_better])
			n_better++;
		else if (it == &worse[n_worse])
			n_worse++;
		else
			fail_msg("out of order");
	}
	assert_int_equal(n_worse, 2);
	while (fair_take(&f) != NULL)
		n_worse++;
	fair_dispose(&f);
}

/* By units, not by items: a tenant with large ones gets no more than one with small ones. */
static void tenants_take_turns_by_size(void **unused)
{
	(void)unused;
	enum { N = 90 };
	struct fair f;
	static struct fair_item large[N], small[N];
	uint64_t had_large = 0, had_small = 0;
	fair_init(&f);
	for (int i = 0; i < N; i++)
		enter(&f, &large[i], 1, 1, 10);
	for (int i = 0; i < N; i++)
		enter(&f, &small[i], 2, 1, 1);
	for (int i = 0; i < N / 2; i++) {
		struct fair_item *it = fair_take(&f);
		if (it >= large && it < large + N)
			had_large += 10;
		else
			had_small += 1;
	}
	/* Every eighth turn is the oldest one's, which is of the first tenant. */
	assert_in_range(had_large, had_small - 10, had_small + 30);
	while (fair_take(&f) != NULL)
		;
	fair_dispose(&f);
}

static void the_urgent_first(void **unused)
{
	(void)unused;
	struct fair f;
	static struct fair_item a, b, c;
	fair_init(&f);
	enter(&f, &a, 1, 0, 1);
	enter(&f, &b, 1, 7, 1);
	enter(&f, &c, 1, 7, 1);
	fair_hurry(&f, &c);
	/* It is no victim any more. */
	assert_ptr_equal(fair_worse(&f, 0), &b);
	assert_ptr_equal(fair_take(&f), &c);
	fair_hurry(&f, &c); /* it is not queued: nothing */
	fair_hurry(&f, &b);
	fair_leave(&f, &b);
	fair_leave(&f, &b);
	assert_ptr_equal(fair_take(&f), &a);
	assert_null(fair_take(&f));
	fair_dispose(&f);
}

static void who_goes(void **unused)
{
	(void)unused;
	struct fair f;
	static struct fair_item rich[5], poor[2], worst;
	fair_init(&f);
	for (int i = 0; i < 5; i++)
		enter(&f, &rich[i], 1, 3, 2);
	for (int i = 0; i < 2; i++)
		enter(&f, &poor[i], 2, 3, 1);
	assert_null(fair_worse(&f, 3));
	assert_ptr_equal(fair_worse(&f, 2), &rich[4]);
	enter(&f, &worst, 3, 12, 1);
	assert_ptr_equal(fair_worse(&f, 2), &worst);
	assert_null(fair_worse(&f, 12));
	assert_null(fair_worse(&f, 99)); /* those beyond are the last one */
	/* Beside its own 2 the second may displace while the first has more than it would: 10 against 2 and those that
	 * come. */
	assert_ptr_equal(fair_richer(&f, 2, 3, 7), &rich[4]);
	assert_null(fair_richer(&f, 2, 3, 8));
	assert_null(fair_richer(&f, 1, 3, 1)); /* nobody has more than the first */
	assert_ptr_equal(fair_richer(&f, 9, 3, 1), &rich[4]);
	assert_int_equal(fair_richer_units(&f, 9, 3, 1), (10 - 1) + (2 - 1));
	assert_int_equal(fair_richer_units(&f, 2, 3, 3), 10 - 5);
	assert_int_equal(fair_units(&f, 3), 12);
	assert_int_equal(fair_units(&f, 2), 0);
	assert_int_equal(fair_units(&f, FAIR_PRIORITIES - 1), 13);
	while (fair_take(&f) != NULL)
		;
	assert_int_equal(fair_units(&f, FAIR_PRIORITIES - 1), 0);
	fair_dispose(&f);
}

static void memory_fails(void **unused)
{
	(void)unused;
	struct fair f;
	static struct fair_item a, b;
	fair_init(&f);
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(fair_enter(&f, &a, 1, 0, 1), SL_ENOMEM);
	fault_disarm_all();
	assert_false(fair_queued(&a));
	enter(&f, &a, 1, 0, 1);
	/* A tenant that is there needs none. */
	fault_arm(FAULT_ALLOC, 1, 1);
	assert_int_equal(fair_enter(&f, &b, 1, 0, 1), 0);
	fault_disarm_all();
	fair_leave(&f, &a);
	fair_leave(&f, &b);
	fair_dispose(&f);
}

/* ---- the referee ---- */

enum { ITEMS = 64, TENANTS = 7, ROUNDS = 200000 };

static uint64_t random_state = 7;
static uint32_t draw(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

struct one {
	struct fair_item it;
	bool in;
	uint64_t tenant, order;
	int priority;
	uint32_t units;
};

static uint64_t held(const struct one *all, uint64_t tenant, int priority)
{
	uint64_t n = 0;
	for (int i = 0; i < ITEMS; i++)
		n += all[i].in && all[i].tenant == tenant && all[i].priority == priority ? all[i].units : 0;
	return n;
}

static void check_victims(const struct fair *f, const struct one *all)
{
	int priority = (int)draw(FAIR_PRIORITIES), worst = -1;
	uint64_t tenant = draw(TENANTS), most = 0, own = held(all, tenant, priority) + 1;
	for (int i = 0; i < ITEMS; i++)
		if (all[i].in && all[i].priority > worst)
			worst = all[i].priority;
	for (uint64_t t = 0; t < TENANTS; t++) {
		uint64_t n = held(all, t, worst > priority ? worst : priority);
		most = n > most && (worst > priority || t != tenant) ? n : most;
	}
	const struct one *victim =
	    (const struct one *)(const void *)(worst > priority ? fair_worse(f, priority)
								: fair_richer(f, tenant, priority, 1));
	if (worst <= priority) {
		assert_null(fair_worse(f, priority));
		/* One that holds as much as the largest, and is no victim, stands before another tenant as large. */
		if (most <= own || held(all, tenant, priority) > most)
			assert_null(victim);
	}
	if (victim == NULL)
		return;
	assert_true(victim->in);
	assert_int_equal(victim->priority, worst > priority ? worst : priority);
	assert_int_equal(held(all, victim->tenant, victim->priority), most);
	for (int i = 0; i < ITEMS; i++)
		if (all[i].in && all[i].tenant == victim->tenant && all[i].priority == victim->priority)
			assert_true(all[i].order <= victim->order);
}

static void against_a_referee(void **unused)
{
	(void)unused;
	static struct one all[ITEMS];
	struct fair f;
	uint64_t order = 0;
	fair_init(&f);
	for (int round = 0; round < ROUNDS; round++) {
		struct one *o = &all[draw(ITEMS)];
		if (o->in && draw(3) == 0) {
			fair_leave(&f, &o->it);
			o->in = false;
		} else if (!o->in) {
			*o = (struct one){.in = true,
					  .tenant = draw(TENANTS),
					  .order = order,
					  .priority = (int)draw(4),
					  .units = 1 + draw(9)};
			order++;
			enter(&f, &o->it, o->tenant, o->priority, o->units);
		} else if (draw(4) == 0) {
			struct one *next = (struct one *)(void *)fair_take(&f);
			assert_non_null(next);
			assert_true(next->in);
			/* First in, first out within a tenant. */
			for (int i = 0; i < ITEMS; i++)
				if (all[i].in && all[i].tenant == next->tenant && all[i].priority == next->priority)
					assert_true(next->order <= all[i].order);
			next->in = false;
		}
		check_victims(&f, all);
	}
	while (fair_take(&f) != NULL)
		;
	assert_int_equal(f.n, 0);
	fair_dispose(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_better_first_and_nobody_starves),
	    cmocka_unit_test(tenants_take_turns_by_size),
	    cmocka_unit_test(the_urgent_first),
	    cmocka_unit_test(who_goes),
	    cmocka_unit_test(memory_fails),
	    cmocka_unit_test(against_a_referee),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
