/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engine gets a request, by each policy, and what is said about it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "gateway/generation/routing.h"

static struct gw_routing by(enum gw_routing_policy policy)
{
	return (struct gw_routing){.policy = policy, .weights = {3, 1, 10, 0.5, 1, 5}};
}

static int choose(const struct gw_routing *r, const struct route_candidate *all, int n, uint64_t key, uint64_t turn)
{
	return route_choose(r, all, n, key, turn).engine;
}

static void the_cost_is_the_sum_of_its_parts(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_COST);
	const struct route_candidate one = {
	    .engine = 5, .occupancy = 0.5, .n_active = 2, .cached = 0.25, .predicted_s = 4, .recent = 0.5};
	struct route_choice c = route_choose(&r, &one, 1, 0, 0);
	assert_int_equal(c.engine, 5);
	assert_int_equal(c.n_candidates, 1);
	const double parts[] = {1.5, 2, -2.5, 2, -0.5, 0};
	for (int i = 0; i < GW_ROUTE_PARTS; i++)
		assert_true(fabs(c.parts[i] - parts[i]) < 1e-12);
	assert_true(fabs(c.cost - 2.5) < 1e-12);
	assert_true(fabs(c.cached - 0.25) < 1e-12);
	assert_int_equal(route_choose(&r, &one, 0, 0, 0).engine, -1);
}

/* Each term alone decides between two engines that are alike otherwise, wherever the turn is. */
static void each_part_of_the_cost_decides(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_COST);
	const struct route_candidate worse[] = {{.occupancy = 0.1}, {.n_active = 1}, {.predicted_s = 0.1}};
	const struct route_candidate better[] = {{.cached = 0.1}, {.recent = 0.1}};
	for (uint64_t turn = 0; turn < 2; turn++) {
		for (int i = 0; i < 3; i++) {
			struct route_candidate two[] = {worse[i], {.engine = 1}};
			assert_int_equal(choose(&r, two, 2, 0, turn), 1);
		}
		for (int i = 0; i < 2; i++) {
			struct route_candidate two[] = {better[i], {.engine = 1}};
			assert_int_equal(choose(&r, two, 2, 0, turn), 0);
		}
	}
}

/* A cached half is worth four requests that are ahead, not six; other weights say otherwise. */
static void cache_against_load(void **state)
{
	(void)state;
	struct gw_routing r = by(GW_ROUTE_BY_COST);
	struct route_candidate two[] = {{.engine = 0, .cached = 0.5, .n_active = 4}, {.engine = 1}};
	assert_int_equal(choose(&r, two, 2, 0, 0), 0);
	two[0].n_active = 6;
	assert_int_equal(choose(&r, two, 2, 0, 0), 1);
	r.weights[GW_ROUTE_CACHE] = 20;
	assert_int_equal(choose(&r, two, 2, 0, 0), 0);
}

static void equals_take_turns_under_every_policy(void **state)
{
	(void)state;
	const struct route_candidate three[] = {{.engine = 2}, {.engine = 4}, {.engine = 6}};
	for (int policy = GW_ROUTE_BY_COST; policy <= GW_ROUTE_BY_KV; policy++) {
		struct gw_routing r = by((enum gw_routing_policy)policy);
		for (uint64_t turn = 0; turn < 9; turn++)
			assert_int_equal(choose(&r, three, 3, 7, turn), 2 + 2 * (int)(turn % 3));
	}
}

/* New prompts alternate however many cached ones come between them. */
static void cached_prompts_take_no_turn(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_COST);
	const struct route_candidate fresh[] = {{.engine = 0}, {.engine = 1}},
				     known[] = {{.engine = 0, .cached = 1}, {.engine = 1}};
	uint64_t turn = 0;
	for (int i = 0; i < 6; i++) {
		struct route_choice c = route_choose(&r, fresh, 2, 0, turn);
		assert_int_equal(c.engine, i % 2);
		turn += route_took_turn(&c);
		for (int k = 0; k < i; k++) {
			c = route_choose(&r, known, 2, 0, turn);
			assert_int_equal(c.engine, 0);
			turn += route_took_turn(&c);
		}
	}
	assert_int_equal(turn, 6);
	struct route_choice c = {.policy = GW_ROUTE_ROUND_ROBIN, .cached = 1};
	assert_true(route_took_turn(&c));
}

static void the_other_policies(void **state)
{
	(void)state;
	const struct route_candidate two[] = {{.engine = 0, .n_active = 3, .cached = 0.9, .name = 1},
					      {.engine = 1, .n_active = 2, .cached = 0.1, .name = 2}};
	struct gw_routing r = by(GW_ROUTE_ROUND_ROBIN);
	assert_int_equal(choose(&r, two, 2, 0, 0), 0);
	assert_int_equal(choose(&r, two, 2, 0, 1), 1);
	r = by(GW_ROUTE_LEAST_REQUESTS);
	assert_int_equal(choose(&r, two, 2, 0, 0), 1);
	r = by(GW_ROUTE_BY_KV);
	assert_int_equal(choose(&r, two, 2, 0, 1), 0);
	const struct route_candidate alike[] = {{.engine = 0, .n_active = 3, .cached = 0.5},
						{.engine = 1, .n_active = 2, .cached = 0.5}};
	assert_int_equal(choose(&r, alike, 2, 0, 0), 1);
	for (int policy = GW_ROUTE_BY_COST; policy <= GW_ROUTE_BY_KV; policy++)
		assert_non_null(route_policy_name(policy));
}

/* A beginning stays with its engine when another one goes, and all engines get some. */
static void a_prefix_stays_with_its_engine(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_PREFIX);
	const struct route_candidate four[] = {
	    {.engine = 0, .name = 11}, {.engine = 1, .name = 22}, {.engine = 2, .name = 33}, {.engine = 3, .name = 44}};
	int of[4] = {0};
	for (uint64_t key = 0; key < 400; key++) {
		int chosen = choose(&r, four, 4, key, key);
		of[chosen]++;
		assert_int_equal(choose(&r, four, 4, key, key + 1), chosen);
		int left = choose(&r, four, 3, key, 0);
		if (chosen != 3)
			assert_int_equal(left, chosen);
	}
	for (int i = 0; i < 4; i++)
		assert_in_range(of[i], 50, 150);
}

/* One beginning that everybody sends does not fill one engine: at most 5/4 of the average, rounded up. */
static void loads_are_bounded(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_PREFIX);
	struct route_candidate four[] = {
	    {.engine = 0, .name = 11}, {.engine = 1, .name = 22}, {.engine = 2, .name = 33}, {.engine = 3, .name = 44}};
	for (uint64_t i = 1; i <= 100; i++) {
		int chosen = choose(&r, four, 4, 42, i);
		four[chosen].n_active++;
		for (int k = 0; k < 4; k++)
			assert_true(four[k].n_active <= ceil(1.25 * (double)i / 4));
	}
}

/* ---- remote engines, whose caches nobody knows ---- */

static void make_remote(struct route_candidate *all, int n)
{
	for (int i = 0; i < n; i++)
		all[i] = (struct route_candidate){.engine = i, .name = 11 * (uint64_t)(i + 1), .remote = true};
}

/* By the cost, too, a beginning goes to one remote engine whatever the turn; when an engine goes, only its own
 * beginnings move, and each engine has about its share of them. */
static void a_prompt_has_a_home_among_remote_engines(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_COST), hashed = by(GW_ROUTE_BY_PREFIX);
	struct route_candidate five[5];
	int of[5] = {0}, moved = 0;
	make_remote(five, 5);
	for (uint64_t key = 0; key < 1000; key++) {
		int home = choose(&r, five, 5, key, key);
		of[home]++;
		assert_int_equal(choose(&r, five, 5, key, key + 3), home);
		assert_int_equal(choose(&hashed, five, 5, key, 0), home);
		int left = choose(&r, five, 4, key, key);
		assert_true(home == 4 || left == home);
		moved += left != home;
	}
	assert_int_equal(moved, of[4]);
	for (int i = 0; i < 5; i++)
		assert_in_range(of[i], 140, 260);
}

/* Half of the requests begin alike, and each stays for 60 others. At most 5/4 of the average load, rounded up, on any
 * engine; what begins alike is not on all of them. */
static void homes_are_bounded(void **state)
{
	(void)state;
	enum { ENGINES = 6, STAY = 60, ALL = 3000 };
	struct gw_routing r = by(GW_ROUTE_BY_PREFIX);
	struct route_candidate all[ENGINES];
	int on[ALL], alike[ENGINES] = {0}, n_alike = 0;
	make_remote(all, ENGINES);
	for (int i = 0; i < ALL; i++) {
		if (i >= STAY)
			all[on[i - STAY]].n_active--;
		uint64_t key = i % 2 == 0 ? 7 : 1000 + (uint64_t)i;
		on[i] = choose(&r, all, ENGINES, key, (uint64_t)i);
		all[on[i]].n_active++;
		alike[on[i]] += key == 7;
		double n = i < STAY ? i + 1 : STAY;
		for (int k = 0; k < ENGINES; k++)
			assert_true(all[k].n_active <= ceil(1.25 * n / ENGINES));
	}
	for (int k = 0; k < ENGINES; k++)
		n_alike += alike[k] > ALL / 2 / 20;
	assert_in_range(n_alike, 2, ENGINES - 1);
}

/* An engine that publishes what it has is neither a home nor away; with one remote engine there is none. */
static void affinity_is_for_several_remote_engines(void **state)
{
	(void)state;
	const struct gw_routing r = by(GW_ROUTE_BY_COST);
	struct route_candidate all[3];
	make_remote(all, 3);
	all[2].remote = false;
	int n_local = 0, home = -1;
	for (uint64_t turn = 0; turn < 6; turn++) {
		struct route_choice c = route_choose(&r, all, 3, 42, turn);
		assert_true(c.parts[GW_ROUTE_AFFINITY] == 0);
		n_local += c.engine == 2;
		assert_true(c.engine == 2 || home < 0 || home == c.engine);
		home = c.engine != 2 ? c.engine : home;
	}
	assert_in_range(n_local, 2, 4);
	all[home].n_active = all[2].n_active = 6;
	struct route_choice away = route_choose(&r, all, 3, 42, 0);
	assert_int_equal(away.engine, 1 - home);
	all[2].n_active = 100;
	all[home].predicted_s = 20;
	away = route_choose(&r, all, 2, 42, 0);
	assert_int_equal(away.engine, 1 - home);
	all[1].remote = false;
	assert_true(route_choose(&r, all, 2, 42, 0).parts[GW_ROUTE_AFFINITY] == 0);
}

/* ---- which kind gets requests first ---- */

static void local_first_and_remote_when_saturated(void **state)
{
	(void)state;
	for (int policy = GW_ROUTE_BY_COST; policy <= GW_ROUTE_BY_KV; policy++)
		for (uint64_t turn = 0; turn < 4; turn++) {
			struct gw_routing r = by((enum gw_routing_policy)policy);
			struct route_candidate all[] = {{.engine = 0, .name = 1, .n_active = 9},
							{.engine = 1, .name = 2, .remote = true},
							{.engine = 2, .name = 3, .n_active = 9}};
			r.first = GW_ROUTE_LOCAL;
			struct route_choice c = route_choose(&r, all, 3, 5, turn);
			assert_true(c.engine != 1 && !c.spilled);
			all[0].saturated = true;
			c = route_choose(&r, all, 3, 5, turn);
			assert_true(c.engine == 2 && !c.spilled);
			all[2].saturated = true;
			c = route_choose(&r, all, 3, 5, turn);
			assert_true(c.engine == 1 && c.spilled);
			assert_int_equal(c.n_candidates, 3);
			r.first = GW_ROUTE_REMOTE;
			assert_int_equal(choose(&r, all, 3, 5, turn), 1);
			all[0].saturated = false;
			all[1].saturated = true;
			c = route_choose(&r, all, 3, 5, turn);
			assert_true(c.engine == 0 && c.spilled);
		}
}

static void all_saturated(void **state)
{
	(void)state;
	struct gw_routing r = by(GW_ROUTE_LEAST_REQUESTS);
	const struct route_candidate all[] = {{.engine = 0, .n_active = 9, .saturated = true},
					      {.engine = 1, .n_active = 2, .saturated = true, .remote = true}};
	r.first = GW_ROUTE_LOCAL;
	struct route_choice c = route_choose(&r, all, 2, 0, 0);
	assert_true(c.engine == 1 && !c.spilled);
	/* Of the kind that comes first there is none: that is no spill. */
	r.first = GW_ROUTE_REMOTE;
	const struct route_candidate local = {.engine = 3};
	c = route_choose(&r, &local, 1, 0, 0);
	assert_true(c.engine == 3 && !c.spilled);
	r.first = GW_ROUTE_ANY;
	assert_int_equal(choose(&r, all, 2, 0, 0), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_cost_is_the_sum_of_its_parts),
	    cmocka_unit_test(each_part_of_the_cost_decides),
	    cmocka_unit_test(cache_against_load),
	    cmocka_unit_test(equals_take_turns_under_every_policy),
	    cmocka_unit_test(cached_prompts_take_no_turn),
	    cmocka_unit_test(the_other_policies),
	    cmocka_unit_test(a_prefix_stays_with_its_engine),
	    cmocka_unit_test(loads_are_bounded),
	    cmocka_unit_test(a_prompt_has_a_home_among_remote_engines),
	    cmocka_unit_test(homes_are_bounded),
	    cmocka_unit_test(affinity_is_for_several_remote_engines),
	    cmocka_unit_test(local_first_and_remote_when_saturated),
	    cmocka_unit_test(all_saturated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
