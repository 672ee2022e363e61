/* SPDX-License-Identifier: Apache-2.0
 *
 * Variants of a configuration: shares of users, who is chosen when a model cannot serve or a variant is rolled back,
 * settings, and what a reload keeps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/request/request_fields.h"
#include "gateway/variant/shadow.h"
#include "gateway/variant/variant.h"
#include "gateway/variant/variant_past.h"
#include "gateway/variant/variant_state.h"

enum { USERS = 10000 };

static uint64_t now;

/* A configuration of up to four variants. */
struct plan {
	struct gw_variant_config all[4];
	struct gw_config cfg;
};

#define VARIANT(name_, of_, model_, weight_)                                                                  \
	{                                                                                                     \
		.name = name_, .of = of_, .model = model_, .weight = weight_, .temperature = -1, .min_p = -1, \
		.rollback = true                                                                              \
	}

static struct plan plan_of(const struct gw_variant_config *v, size_t n)
{
	struct plan p = {.cfg = {.threads = 1}};
	memcpy(p.all, v, n * sizeof *v);
	p.cfg.variants.n = n;
	return p;
}

static struct variants *make(struct plan *p)
{
	struct variants *v;
	struct sl_err err;
	p->cfg.variants.items = p->all;
	assert_int_equal(variants_create(&p->cfg, &v, &err), 0);
	return v;
}

static const struct gw_variant_config three[] = {VARIANT("base", "shop", "m1", 90), VARIANT("b", "shop", "m2", 7),
						 VARIANT("c", "shop", "m3", 3)};

static int setup(void **state)
{
	(void)state;
	now = 1000 * NS_PER_S;
	clock_fake(&now);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	clock_fake(NULL);
	return 0;
}

static bool all_serve(const void *ctx, const char *model)
{
	(void)ctx;
	(void)model;
	return true;
}

static bool but_one(const void *ctx, const char *model) { return strcmp(model, ctx) != 0; }

/* The store would have told by now. */
static void wait_until_known(void) { now += 10 * NS_PER_S; }

static uint64_t user_of(int i)
{
	char name[32];
	snprintf(name, sizeof name, "user-%d", i);
	return variant_user(42, name, NULL);
}

static void count(const struct variant_group *g, int n[4], variant_serves *serves, const void *ctx)
{
	memset(n, 0, 4 * sizeof *n);
	for (int i = 0; i < USERS; i++)
		n[variant_choose(g, user_of(i), serves, ctx) - g->all]++;
}

static void users_are_shared_out_by_weight(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3);
	struct variants *v = make(&p);
	int n[4];
	wait_until_known();
	const struct variant_group *g = variants_find(v, "shop");
	count(g, n, all_serve, NULL);
	for (int i = 0; i < 3; i++) {
		double share = three[i].weight / 100;
		assert_true(fabs(n[i] - USERS * share) <= 3 * sqrt(USERS * share * (1 - share)));
	}
	assert_null(variants_find(v, "other"));
	assert_null(variants_find(NULL, "shop"));
	variants_destroy(v);
}

static void a_restart_and_a_reload_change_no_user(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3), q = plan_of(three, 3);
	/* Another variant between them, of another name. */
	q.all[3] = q.all[2];
	q.all[2] = (struct gw_variant_config)VARIANT("x", "other", "m1", 1);
	q.cfg.variants.n = 4;
	static uint8_t chosen[USERS];
	struct variants *v = make(&p);
	wait_until_known();
	for (int i = 0; i < USERS; i++)
		chosen[i] = (uint8_t)(variant_choose(variants_find(v, "shop"), user_of(i), all_serve, NULL) -
				      variants_find(v, "shop")->all);
	variants_destroy(v);
	v = make(&q);
	wait_until_known();
	assert_int_equal(variants_n_groups(v), 2);
	for (int i = 0; i < USERS; i++)
		assert_int_equal(chosen[i], variant_choose(variants_find(v, "shop"), user_of(i), all_serve, NULL) -
						variants_find(v, "shop")->all);
	variants_destroy(v);
}

static void whose_a_request_is(void **state)
{
	(void)state;
	uint64_t a = variant_user(1, "u", NULL);
	assert_int_equal(a, variant_user(1, "u", "talk"));
	assert_int_not_equal(a, variant_user(2, "u", NULL));
	assert_int_not_equal(a, variant_user(1, NULL, "u"));
	assert_int_equal(variant_user(1, "", "talk"), variant_user(1, NULL, "talk"));
	assert_int_equal(variant_user(1, NULL, NULL), variant_user(1, "", NULL));
	assert_int_not_equal(variant_user(1, NULL, NULL), variant_user(1, NULL, "talk"));
}

static void the_base_answers_until_the_store_has_told(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3);
	struct variants *v = make(&p);
	const struct variant_group *g = variants_find(v, "shop");
	int n[4];
	count(g, n, all_serve, NULL);
	assert_int_equal(n[0], USERS);
	const struct variant_word word = {.weight = VARIANT_NO_WEIGHT};
	const struct trial_sums none = {{0}};
	variant_state_told(g->all[1].state, &word, &none, 0);
	count(g, n, all_serve, NULL);
	assert_true(n[1] > 0 && n[2] == 0);
	variants_destroy(v);
}

static void one_that_cannot_serve_gets_none(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3);
	struct variants *v = make(&p);
	const struct variant_group *g = variants_find(v, "shop");
	int n[4];
	wait_until_known();
	count(g, n, but_one, "m2");
	assert_true(n[1] == 0 && n[2] > 0 && n[0] > 0);
	/* Without the base its users still have it: they get its error, and not what was not meant for them. */
	count(g, n, but_one, "m1");
	assert_true(n[0] > USERS / 2);
	variants_destroy(v);
}

static void fail_in(const struct variant *v, uint64_t from, int n)
{
	for (int i = 0; i < n; i++) {
		const struct variant_answer good = {.trial = {.ttft_ns = 1000, .user = from + (uint64_t)i}};
		const struct variant_answer bad = {.trial = {.failed = true, .user = from + (uint64_t)i},
						   .end = VARIANT_FAILED};
		variant_note(&v->group->all[0], &good);
		variant_note(v, &bad);
	}
}

static void a_worse_one_is_rolled_back_and_a_reload_keeps_that(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3), heavier = plan_of(three, 3), other = plan_of(three, 3);
	struct variants *v = make(&p);
	int n[4];
	wait_until_known();
	fail_in(&variants_find(v, "shop")->all[1], 0, 40);
	assert_true(variant_weight(&variants_find(v, "shop")->all[1]) == 0);
	assert_int_equal(variant_state_view(variants_find(v, "shop")->all[1].state).word.rolled, TRIAL_FAILS);
	assert_true(variant_weight(&variants_find(v, "shop")->all[2]) == 3);
	heavier.all[1].weight = 50;
	struct variants *next = make(&heavier);
	variants_destroy(v);
	count(variants_find(next, "shop"), n, all_serve, NULL);
	assert_true(n[1] == 0 && n[2] > 0);
	/* Another model in its place is another trial. */
	other.all[1].model = "m9";
	v = make(&other);
	variants_destroy(next);
	wait_until_known();
	assert_true(variant_weight(&variants_find(v, "shop")->all[1]) == 7);
	variants_destroy(v);
}

/* A base gathers its past alone, and keeps it when variants come; other settings of it are another base. */
static void a_base_has_a_past_before_its_variants(void **state)
{
	(void)state;
	struct plan alone = plan_of(three, 1), p = plan_of(three, 3), other = plan_of(three, 3);
	const struct variant_answer bad = {.trial = {.failed = true, .user = 5}, .end = VARIANT_FAILED};
	struct variants *v = make(&alone);
	variant_note(&variants_find(v, "shop")->all[0], &bad);
	assert_int_equal(variant_past_view(variants_find(v, "shop")->past).failed, 1);
	p.all[0].name = "stable";
	struct variants *next = make(&p);
	variants_destroy(v);
	const struct variant_group *g = variants_find(next, "shop");
	assert_int_equal(variant_past_view(g->past).failed, 1);
	variant_note(&g->all[1], &bad);
	assert_int_equal(variant_past_view(g->past).n, 1);
	assert_int_equal(variant_state_view(g->all[1].state).word.past.failed, 1);
	other.all[0].model = "m9";
	v = make(&other);
	assert_int_equal(variant_past_view(variants_find(v, "shop")->past).n, 0);
	variants_destroy(next);
	variants_destroy(v);
}

static void most_users_variant_succeeds_the_others(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3), q = plan_of(three, 3);
	q.all[1].weight = 91;
	struct variants *v = make(&p);
	wait_until_known();
	const uint64_t digest = variants_heaviest(v);
	assert_string_equal(variants_successor(v, "m2"), "m1");
	assert_string_equal(variants_successor(v, "m9"), "m9");
	assert_string_equal(variants_successor(NULL, "m2"), "m2");
	assert_int_equal(variants_heaviest(NULL), 0);
	variants_destroy(v);
	v = make(&q);
	wait_until_known();
	assert_string_equal(variants_successor(v, "m1"), "m2");
	assert_string_equal(variants_successor(v, "m3"), "m2");
	assert_true(variants_heaviest(v) != digest);
	/* Rolled back, it is the base's turn again. */
	variant_state_roll_back(variants_find(v, "shop")->all[1].state);
	assert_string_equal(variants_successor(v, "m2"), "m1");
	assert_true(variants_heaviest(v) == digest);
	variants_destroy(v);
}

static void copies_follow_their_shares(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3);
	p.all[1].shadow = 0.25;
	p.all[2].shadow = 0.5;
	struct variants *v = make(&p);
	const struct variant *all = variants_find(v, "shop")->all;
	assert_ptr_equal(shadow_pick(&all[0], 0), &all[1]);
	assert_ptr_equal(shadow_pick(&all[0], 0.2499), &all[1]);
	assert_ptr_equal(shadow_pick(&all[0], 0.25), &all[2]);
	assert_null(shadow_pick(&all[0], 0.75));
	/* None of its own. */
	assert_ptr_equal(shadow_pick(&all[1], 0), &all[2]);
	assert_null(shadow_pick(&all[2], 0.25));
	variants_destroy(v);
}

static void rollback_false_keeps_it(void **state)
{
	(void)state;
	struct plan p = plan_of(three, 3);
	p.all[1].rollback = false;
	struct variants *v = make(&p);
	assert_null(variants_find(v, "shop")->all[1].state);
	fail_in(&variants_find(v, "shop")->all[1], 0, 100);
	assert_true(variant_weight(&variants_find(v, "shop")->all[1]) == 7);
	variants_show(v);
	variants_destroy(v);
}

static void settings_stand_in_for_what_is_not_given(void **state)
{
	(void)state;
	const struct gw_variant_config c = {
	    .name = "v", .temperature = 0.25, .min_p = 0.5, .top_p = 0.75, .repetition_penalty = 1.5, .max_tokens = 7};
	const struct variant v = {.cfg = &c};
	struct proto_submit s = {PROTO_SUBMIT_OFF, .temperature = 1, .top_p = 1, .min_tokens = 9};
	bool has = false;
	uint32_t most = 0;
	struct variant_submit to = {.submit = &s, .has_max_tokens = &has, .max_tokens = &most};
	variant_apply(&v, &to);
	assert_true(s.temperature == 0.25f && s.min_p == 0.5f && s.top_p == 0.75f && s.repetition_penalty == 1.5f);
	assert_true(has && most == 7 && s.min_tokens == 7);

	s = (struct proto_submit){PROTO_SUBMIT_OFF, .temperature = 1, .top_p = 0.9f};
	most = 3;
	to.given = REQUEST_TEMPERATURE | REQUEST_TOP_P | REQUEST_MIN_P | REQUEST_REPETITION_PENALTY;
	variant_apply(&v, &to);
	assert_true(s.temperature == 1 && s.min_p == 0 && s.top_p == 0.9f && s.repetition_penalty == 1 && most == 3);

	const struct gw_variant_config none = {.name = "v", .temperature = -1, .min_p = -1};
	const struct variant plain = {.cfg = &none};
	to.given = 0;
	has = false;
	variant_apply(&plain, &to);
	assert_true(s.temperature == 1 && s.top_p == 0.9f && s.min_p == 0 && !has);

	s.beam_width = 4; /* which takes the likeliest */
	variant_apply(&v, &to);
	assert_true(s.temperature == 1 && has);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(users_are_shared_out_by_weight, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_restart_and_a_reload_change_no_user, setup, teardown),
	    cmocka_unit_test_setup_teardown(whose_a_request_is, setup, teardown),
	    cmocka_unit_test_setup_teardown(the_base_answers_until_the_store_has_told, setup, teardown),
	    cmocka_unit_test_setup_teardown(one_that_cannot_serve_gets_none, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_worse_one_is_rolled_back_and_a_reload_keeps_that, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_base_has_a_past_before_its_variants, setup, teardown),
	    cmocka_unit_test_setup_teardown(most_users_variant_succeeds_the_others, setup, teardown),
	    cmocka_unit_test_setup_teardown(copies_follow_their_shares, setup, teardown),
	    cmocka_unit_test_setup_teardown(rollback_false_keeps_it, setup, teardown),
	    cmocka_unit_test_setup_teardown(settings_stand_in_for_what_is_not_given, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
