/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests at an engine that fails: an engine of 32 slots and its clients, simulated on the test's clock. Ten tenants
 * send more than it can serve. During the fault it fails 30 % of what it is sent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gateway/admission/error_limit.h"
#include "gateway/admission/error_limits.h"

enum { SLOTS = 32, TENANTS = 10, TOKENS = 100, TOKEN_MS = 20, FIRST_MS = 100, ARRIVALS_PER_S = 40 };

/* ---- the simulated engine ---- */

struct request {
	bool in, begun;
	uint8_t group;
	uint64_t sent_ms, first_ms, end_ms; /* end: by error, or of the answer */
	bool fails;
	int fails_after; /* tokens */
};

struct sim {
	struct error_limit limit;
	bool unlimited;               /* for comparison */
	struct request of[2 * SLOTS]; /* there */
	uint64_t now_ms, random;
	uint64_t fault_from_ms, fault_to_ms;
	int fail_after_most; /* a failing request fails after 0 … so many tokens */
	double fail_share;
	int poisoner; /* a tenant of which everything fails at all times; -1: none */
	/* Counted, from sim_count on. */
	uint64_t sent, refused, failed, done, wasted, useful;
	uint64_t changes, opened_ms;
	int max_in_flight;
};

static double draw(struct sim *s)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return (double)(s->random >> 11) / 9007199254740992.0;
}

static uint64_t ns(uint64_t ms) { return (ms + 1) * NS_PER_MS; }

static void sim_init(struct sim *s, uint64_t seed)
{
	memset(s, 0, sizeof *s);
	s->random = seed * 0x9E3779B97F4A7C15u + 1;
	s->fault_from_ms = s->fault_to_ms = UINT64_MAX;
	s->fail_share = 0.3;
	s->poisoner = -1;
}

static void sim_count(struct sim *s)
{
	s->sent = s->refused = s->failed = s->done = s->wasted = s->useful = s->changes = s->opened_ms = 0;
	s->max_in_flight = 0;
}

static bool is_faulty(struct sim *s, int tenant)
{
	if (tenant == s->poisoner)
		return true;
	return s->now_ms >= s->fault_from_ms && s->now_ms < s->fault_to_ms && draw(s) < s->fail_share;
}

static struct request *free_place(struct sim *s)
{
	size_t i = 0;
	while (s->of[i].in)
		i++;
	assert_true(i < sizeof s->of / sizeof *s->of);
	return &s->of[i];
}

static void arrive(struct sim *s)
{
	int tenant = (int)(draw(s) * TENANTS);
	s->changes += error_limit_look(&s->limit, ns(s->now_ms));
	if (!s->unlimited && !error_limit_admits(&s->limit)) {
		s->refused++;
		return;
	}
	if (s->limit.in_flight >= SLOTS) /* what the engine's own queue would refuse */
		return;
	struct request *r = free_place(s);
	*r = (struct request){.in = true,
			      .group = error_limit_group((uint64_t)tenant + 77),
			      .first_ms = s->now_ms + FIRST_MS,
			      .end_ms = s->now_ms + FIRST_MS + TOKENS * TOKEN_MS,
			      .fails = is_faulty(s, tenant)};
	if (r->fails) {
		r->fails_after = (int)(draw(s) * (s->fail_after_most + 1));
		r->end_ms = s->now_ms + (r->fails_after > 0 ? FIRST_MS + (unsigned)r->fails_after * TOKEN_MS : 1);
	}
	s->sent++;
	error_limit_enter(&s->limit, ns(s->now_ms));
	r->sent_ms = s->now_ms;
	int n = (int)s->limit.in_flight;
	s->max_in_flight = n > s->max_in_flight ? n : s->max_in_flight;
}

static void end(struct sim *s, struct request *r)
{
	if (r->fails) {
		s->failed++;
		s->wasted += (unsigned)r->fails_after;
		s->changes += error_limit_error(&s->limit, r->group, r->begun, ns(s->now_ms));
	} else {
		s->done++;
		s->useful += TOKENS;
	}
	error_limit_leave(&s->limit, r->fails ? 0 : (s->now_ms - r->sent_ms) * NS_PER_MS, ns(s->now_ms));
	r->in = false;
}

/* One millisecond. */
static void tick(struct sim *s, bool arrivals)
{
	for (size_t i = 0; i < sizeof s->of / sizeof *s->of; i++) {
		struct request *r = &s->of[i];
		if (!r->in)
			continue;
		if (!r->begun && s->now_ms >= r->first_ms && (!r->fails || r->fails_after > 0)) {
			r->begun = true;
			error_limit_success(&s->limit, r->group, ns(s->now_ms));
		}
		if (s->now_ms >= r->end_ms)
			end(s, r);
	}
	if (arrivals && draw(s) < ARRIVALS_PER_S / 1000.0)
		arrive(s);
	if (error_limit_look(&s->limit, ns(s->now_ms))) {
		s->changes++;
		s->opened_ms = s->now_ms;
	}
	s->now_ms++;
}

static void run_to(struct sim *s, uint64_t ms)
{
	while (s->now_ms < ms)
		tick(s, true);
}

/* ---- cases ---- */

static void a_healthy_engine_is_not_limited(void **unused)
{
	static struct sim s;
	(void)unused;
	sim_init(&s, 1);
	run_to(&s, 60000);
	assert_int_equal(s.refused, 0);
	assert_int_equal(s.changes, 0);
	assert_int_equal(s.max_in_flight, SLOTS);
}

static void rare_errors_cost_little(void **unused)
{
	static struct sim s, free;
	(void)unused;
	sim_init(&s, 2);
	sim_init(&free, 2);
	free.unlimited = true;
	s.fail_share = free.fail_share = 0.01;
	s.fault_from_ms = free.fault_from_ms = 0;
	run_to(&s, 300000);
	run_to(&free, 300000);
	assert_true(s.done * 100 >= free.done * 97);
}

static void failing_submits_shrink_admission_and_it_grows_back(void **unused)
{
	static struct sim s;
	(void)unused;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		sim_init(&s, seed);
		s.fault_from_ms = 20000;
		s.fault_to_ms = 80000;
		s.fail_after_most = 1; /* half of them at once, half after one token */
		run_to(&s, 20000);
		assert_int_equal(s.changes, 0);
		run_to(&s, 24000);
		assert_true(s.limit.limited);
		sim_count(&s);
		run_to(&s, 80000);
		if (s.wasted * 20 > s.useful + s.wasted)
			fail_msg("seed %d: %d of %d tokens wasted", (int)seed, (int)s.wasted,
				 (int)(s.useful + s.wasted));
		assert_true(s.max_in_flight <= SLOTS);
		assert_true(s.refused > s.sent); /* most were refused without being tried */
		/* Recovery: within ten seconds nothing is refused any more, and all slots are used. */
		run_to(&s, 90000);
		sim_count(&s);
		run_to(&s, 100000);
		assert_false(s.limit.limited);
		assert_int_equal(s.refused, 0);
		assert_int_equal(s.failed, 0);
		assert_int_equal(s.max_in_flight, SLOTS);
	}
}

/* Failing anywhere in an answer wastes what was made of it. A share of all tokens that no limit can change, but fewer
 * of them. */
static void late_failures_waste_less_than_without_a_limit(void **unused)
{
	static struct sim s, free;
	uint64_t wasted = 0, unlimited = 0;
	(void)unused;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		sim_init(&s, seed);
		s.fault_from_ms = 0;
		s.fail_after_most = TOKENS - 1;
		memcpy(&free, &s, sizeof s);
		free.unlimited = true;
		run_to(&s, 60000);
		run_to(&free, 60000);
		wasted += s.wasted;
		unlimited += free.wasted;
	}
	/* What it wastes is below 5 % of what the engine could make. */
	assert_true(wasted * 20 < (uint64_t)5 * SLOTS * 60000 / TOKEN_MS);
	assert_true(wasted * 3 < unlimited);
}

static void refusals_are_truthful(void **unused)
{
	static struct sim s, then;
	int asked = 0, kept = 0;
	(void)unused;
	sim_init(&s, 5);
	s.fault_from_ms = 0;
	s.fail_after_most = 1;
	for (uint64_t at = 3000; at < 60000; at += 250) {
		run_to(&s, at);
		if (error_limit_admits(&s.limit))
			continue;
		uint64_t retry_ms = error_limit_retry_ms(&s.limit, ns(s.now_ms));
		assert_true(retry_ms >= 1 && retry_ms <= ERROR_LIMIT_QUIET_MS);
		/* A client's Retry-After has whole seconds. */
		uint64_t until = s.now_ms + (retry_ms + 999) / 1000 * 1000;
		memcpy(&then, &s, sizeof s);
		while (then.now_ms < until)
			tick(&then, false);
		asked++;
		kept += error_limit_admits(&then.limit);
	}
	assert_true(asked > 50);
	if (kept * 10 < asked * 9)
		fail_msg("%d of %d promises were kept", kept, asked);
}

static void one_tenant_does_not_limit_others(void **unused)
{
	static struct sim s;
	(void)unused;
	sim_init(&s, 3);
	s.poisoner = 4;
	run_to(&s, 120000);
	assert_true(s.failed > 100);
	assert_int_equal(s.refused, 0);
	assert_int_equal(s.changes, 0);
}

static void of_an_engine_that_fails_all_one_is_tried_at_a_time(void **unused)
{
	static struct sim s;
	(void)unused;
	sim_init(&s, 4);
	s.fault_from_ms = 10000;
	s.fault_to_ms = 60000;
	s.fail_share = 1;
	run_to(&s, 15000);
	sim_count(&s);
	run_to(&s, 60000);
	assert_int_equal(s.done, 0);
	assert_int_equal(s.max_in_flight, 1);
	assert_int_equal(s.changes, 0);
	assert_true(error_limit_share(&s.limit, ns(s.now_ms)) > 0.9);
}

/* ---- transitions ---- */

static void it_opens_after_quiet_only_once_proven(void **unused)
{
	struct error_limit l = {0};
	uint64_t now = NS_PER_S;
	(void)unused;
	for (int i = 0; i < 2 * ERROR_LIMIT_LEAST; i++)
		error_limit_enter(&l, now);
	for (int i = 1; i < ERROR_LIMIT_LEAST; i++) {
		assert_false(error_limit_error(&l, 0, false, now)); /* few */
		error_limit_leave(&l, 0, now);
	}
	assert_true(error_limit_error(&l, 0, false, now));
	error_limit_leave(&l, 0, now);
	assert_true(l.limited && l.limit == (ERROR_LIMIT_LEAST + 1) / 2.0);
	assert_false(error_limit_error(&l, 0, false, now)); /* of the same round */
	error_limit_leave(&l, 0, now);
	assert_true(l.limit == (ERROR_LIMIT_LEAST + 1) / 2.0);
	now += (ERROR_LIMIT_QUIET_MS + 1) * (uint64_t)NS_PER_MS;
	assert_false(error_limit_look(&l, now)); /* what is there may hang */
	error_limit_success(&l, 0, now);
	assert_true(error_limit_look(&l, now));
	assert_true(error_limit_admits(&l));
	assert_false(error_limit_look(&l, now));
}

/* Where hardly anyone asks, a failure now and then limits nothing, though it is half of all. */
static void few_errors_limit_nothing(void **unused)
{
	struct error_limit l = {0};
	uint64_t now = NS_PER_S;
	(void)unused;
	for (int i = 0; i < 5 * ERROR_LIMIT_LEAST; i++) {
		error_limit_enter(&l, now);
		assert_false(error_limit_error(&l, 0, true, now));
		error_limit_leave(&l, 0, now);
		if (i % (ERROR_LIMIT_LEAST - 1) == 0)
			now += (ERROR_LIMIT_QUIET_MS + 1) * (uint64_t)NS_PER_MS;
	}
	assert_false(l.limited);
}

static void rounds_halve_down_to_one(void **unused)
{
	struct error_limit l = {0};
	uint64_t now = NS_PER_S;
	(void)unused;
	for (int i = 0; i < 64; i++)
		error_limit_enter(&l, now);
	for (int i = 0; i < 64; i++) {
		(void)error_limit_error(&l, (uint8_t)(i % ERROR_LIMIT_TENANTS), false, now);
		error_limit_leave(&l, 0, now);
	}
	assert_true(l.limited);
	double before = l.limit;
	assert_true(before >= 1 && before <= 32);
	for (int i = 0; i < 100; i++) {
		error_limit_enter(&l, now);
		(void)error_limit_error(&l, (uint8_t)(i % ERROR_LIMIT_TENANTS), false, now);
		error_limit_leave(&l, 0, now);
	}
	assert_true(l.limit == 1);
	assert_true(error_limit_admits(&l));
	error_limit_enter(&l, now);
	assert_false(error_limit_admits(&l));
}

static void engines_and_models_are_apart(void **unused)
{
	const struct error_limit_key bad = {0, 1, "engine", "m"}, other_model = {0, 2, "engine", "n"},
				     other_engine = {1, 1, "two", "m"}, none = {GW_MAX_ENGINES, 0, "x", "y"};
	uint64_t retry_ms, now = NS_PER_S;
	(void)unused;
	error_limits_clear();
	assert_false(error_limits_any());
	for (int i = 0; i <= ERROR_LIMIT_LEAST; i++)
		error_limits_enter(&bad, now);
	for (int i = 1; i <= ERROR_LIMIT_LEAST; i++) {
		error_limits_error(&bad, 0, false, now);
		if (i < ERROR_LIMIT_LEAST)
			error_limits_leave(&bad, 0, now);
	}
	assert_true(error_limits_any());
	assert_false(error_limits_admit(&bad, now, &retry_ms));
	assert_true(retry_ms >= 1);
	assert_true(error_limits_admit(&other_model, now, &retry_ms));
	assert_true(error_limits_admit(&other_engine, now, &retry_ms));
	assert_true(error_limits_admit(&none, now, &retry_ms));
	error_limits_leave(&bad, 0, now);
	error_limits_leave(&bad, 0, now);
	assert_true(error_limits_admit(&bad, now + 9 * (uint64_t)NS_PER_S, &retry_ms)); /* nothing is there */
	assert_false(error_limits_any());
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_healthy_engine_is_not_limited),
					   cmocka_unit_test(rare_errors_cost_little),
					   cmocka_unit_test(failing_submits_shrink_admission_and_it_grows_back),
					   cmocka_unit_test(late_failures_waste_less_than_without_a_limit),
					   cmocka_unit_test(refusals_are_truthful),
					   cmocka_unit_test(one_tenant_does_not_limit_others),
					   cmocka_unit_test(of_an_engine_that_fails_all_one_is_tried_at_a_time),
					   cmocka_unit_test(it_opens_after_quiet_only_once_proven),
					   cmocka_unit_test(few_errors_limit_nothing),
					   cmocka_unit_test(rounds_halve_down_to_one),
					   cmocka_unit_test(engines_and_models_are_apart)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
