/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits: what each kind means, over memory and over a real redis-server on the same fake clock, and the
 * memory store's interpreter held against Redis on random traffic: equal answers to every call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/cache/limits_world.h"

/* ---- rates ---- */

static void a_rate_admits_its_burst_then_its_rate(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 10, 60 * SECOND, 1);
	struct cache_admission a;
	for (int i = 0; i < 10; i++) {
		a = admit(w, i, &l, 1, 0, 0, SECOND);
		assert_true(a.admitted);
		assert_int_equal(a.each[0].remaining, 9 - i);
		assert_int_equal(a.each[0].reset_us, (i + 1) * SECOND);
	}
	a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].remaining, 0);
	assert_int_equal(a.each[0].retry_after_us, SECOND);
	/* True to the microsecond: just before it nothing, then exactly one. */
	w->g.now_us += SECOND - 1;
	assert_false(admit(w, 0, &l, 1, 0, 0, SECOND).admitted);
	w->g.now_us += 1;
	assert_true(admit(w, 0, &l, 1, 0, 0, SECOND).admitted);
	assert_false(admit(w, 0, &l, 1, 0, 0, SECOND).admitted);
	w->g.now_us += 100 * SECOND;
	a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_int_equal(a.each[0].remaining, 9);
}

static void a_rate_is_exact_over_long_times(void **state)
{
	struct world *w = world_of(state);
	/* 7 in 1 s has no whole number of microseconds each. */
	struct cache_limit l = rate("r", 7, 1, SECOND, 1);
	int admitted = 0;
	for (int64_t t = 0; t < 3 * SECOND; t += 1000) {
		admitted += admit(w, 0, &l, 1, 0, 0, SECOND).admitted;
		w->g.now_us += 1000;
	}
	/* Each admission waits for the next millisecond: at most 21 and the first, at least as many as
	 * 143.9 ms each. */
	assert_in_range(admitted, 20, 22);
	struct cache_limit exact = rate("e", 7, 7, SECOND, 7);
	assert_true(admit(w, 0, &exact, 1, 0, 0, SECOND).admitted);
	exact.cost = 1;
	for (int i = 0; i < 7; i++) {
		struct cache_admission a = admit(w, 0, &exact, 1, 0, 0, SECOND);
		assert_false(a.admitted);
		w->g.now_us += (uint64_t)a.each[0].retry_after_us;
		assert_true(admit(w, 0, &exact, 1, 0, 0, SECOND).admitted);
	}
}

static void more_than_the_burst_can_never_be(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 10, 60 * SECOND, 11);
	struct cache_admission a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].retry_after_us, -1);
	assert_int_equal(a.each[0].remaining, 10);
	l.cost = 0; /* only looks */
	assert_true(admit(w, 0, &l, 1, 0, 0, SECOND).admitted);
	assert_int_equal(admit(w, 0, &l, 1, 0, 0, SECOND).each[0].remaining, 10);
}

static void settling_a_rate_gives_back(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 10, 60 * SECOND, 8);
	admit(w, 0, &l, 1, 0, 0, SECOND);
	l.cost = 5;
	assert_int_equal(settle(w, 0, &l, 1, 0, 0).each[0].remaining, 7);
	l.cost = 50; /* never more than the burst */
	assert_int_equal(settle(w, 0, &l, 1, 0, 0).each[0].remaining, 10);
}

static void settling_a_rate_may_leave_a_debt(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", 60, 10, 60 * SECOND, 8), look = l;
	admit(w, 0, &l, 1, 0, 0, SECOND);
	l.cost = -5; /* of which two are left */
	assert_int_equal(settle(w, 0, &l, 1, 0, 0).each[0].remaining, 0);
	look.cost = 1;
	struct cache_admission a = admit(w, 0, &look, 1, 0, 0, SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].retry_after_us, 4 * SECOND);
	w->g.now_us += 4 * SECOND;
	assert_true(admit(w, 0, &look, 1, 0, 0, SECOND).admitted);
	/* Also when what was charged has long come back. */
	w->g.now_us += 1000 * SECOND;
	l.cost = -12;
	assert_int_equal(settle(w, 0, &l, 1, 0, 0).each[0].remaining, 0);
	assert_int_equal(admit(w, 0, &look, 1, 0, 0, SECOND).each[0].retry_after_us, 3 * SECOND);
	/* However large, it ends some day: no number leaves its range. */
	struct cache_limit huge = rate("h", 1, 1, 1000 * SECOND, -1000000);
	for (int i = 0; i < 10; i++)
		settle(w, 0, &huge, 1, 0, 0);
	huge.cost = 1;
	assert_int_equal(admit(w, 0, &huge, 1, 0, 0, SECOND).each[0].retry_after_us, INT64_C(1) << 50);
}

/* ---- leases ---- */

static void a_lease_is_for_so_many_at_once(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = lease("l", 3, 1);
	for (int i = 0; i < 3; i++)
		assert_true(admit(w, i, &l, 1, 0, 0, 10 * SECOND).admitted);
	struct cache_admission a = admit(w, 3, &l, 1, 0, 0, 10 * SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].retry_after_us, -1);
	assert_true(admit(w, 1, &l, 1, 0, 0, 10 * SECOND).admitted); /* renews */
	assert_true(settle(w, 1, &l, 1, 0, 0).each[0].known);
	assert_false(settle(w, 1, &l, 1, 0, 0).each[0].known);
	assert_true(admit(w, 3, &l, 1, 0, 0, 10 * SECOND).admitted);
	assert_false(admit(w, 4, &l, 1, 0, 0, 10 * SECOND).admitted);
}

static void a_lease_that_is_not_renewed_comes_back(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = lease("l", 2, 1);
	admit(w, 0, &l, 1, 0, 0, 10 * SECOND);
	w->g.now_us += 4 * SECOND;
	admit(w, 1, &l, 1, 0, 0, 10 * SECOND);
	w->g.now_us += 5 * SECOND;
	assert_true(settle(w, 0, &l, 1, 0, 10 * SECOND).each[0].known); /* kept alive */
	w->g.now_us += 5 * SECOND;
	assert_true(admit(w, 2, &l, 1, 0, 0, 10 * SECOND).admitted); /* 1's is over */
	assert_false(admit(w, 3, &l, 1, 0, 0, 10 * SECOND).admitted);
	assert_false(settle(w, 1, &l, 1, 0, 0).each[0].known);
	assert_true(settle(w, 0, &l, 1, 0, 0).each[0].known);
}

/* ---- budgets ---- */

static void a_budget_is_reserved_and_settled(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 1000, 3600 * SECOND);
	struct cache_admission a = admit(w, 0, &l, 1, 300, 300, 60 * SECOND);
	assert_true(a.admitted);
	assert_int_equal(a.granted, 300);
	assert_int_equal(a.each[0].remaining, 700);
	a = admit(w, 1, &l, 1, 900, 100, 60 * SECOND); /* as many as there are */
	assert_int_equal(a.granted, 700);
	a = admit(w, 2, &l, 1, 100, 1, 60 * SECOND);
	assert_false(a.admitted);
	int64_t rest = 3600 * SECOND - (int64_t)w->g.now_us % (3600 * SECOND);
	assert_int_equal(a.each[0].retry_after_us, 0); /* it may come back any moment */
	assert_int_equal(a.each[0].reset_us, rest);
	struct cache_settlement s = settle(w, 0, &l, 1, 120, 0);
	assert_true(s.each[0].known);
	assert_int_equal(s.each[0].charged, 120);
	assert_int_equal(s.each[0].remaining, 180);
	s = settle(w, 0, &l, 1, 120, 0); /* repeated: nothing */
	assert_false(s.each[0].known);
	assert_int_equal(s.each[0].charged, 0);
	/* More than was reserved: from what is free, never beyond the limit. */
	s = settle(w, 1, &l, 1, 5000, 0);
	assert_int_equal(s.each[0].charged, 880);
	assert_int_equal(s.each[0].remaining, 0);
	a = admit(w, 2, &l, 1, 100, 1, 60 * SECOND);
	assert_int_equal(a.each[0].retry_after_us, rest);
	w->g.now_us += (uint64_t)rest;
	assert_int_equal(admit(w, 3, &l, 1, 1000, 1000, 60 * SECOND).granted, 1000);
}

static void a_reservation_is_extended_as_it_goes(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = budget("b", 100, 0);
	assert_int_equal(admit(w, 0, &l, 1, 30, 1, 10 * SECOND).granted, 30);
	struct cache_settlement s = settle(w, 0, &l, 1, 30, 10 * SECOND);
	assert_int_equal(s.each[0].charged, 30);
	assert_int_equal(admit(w, 0, &l, 1, 30, 1, 10 * SECOND).granted, 30);
	assert_int_equal(admit(w, 1, &l, 1, 100, 1, 10 * SECOND).granted, 40);
	w->g.now_us += 20 * SECOND; /* reservations end, what was used stays used */
	struct cache_admission a = admit(w, 2, &l, 1, 100, 1, 10 * SECOND);
	assert_int_equal(a.granted, 70);
	assert_int_equal(settle(w, 0, &l, 1, 30, 0).each[0].known, 0);
	/* A budget without a window is for ever. */
	settle(w, 2, &l, 1, 70, 0);
	w->g.now_us += 400 * 86400 * (uint64_t)SECOND;
	a = admit(w, 3, &l, 1, 1, 1, 10 * SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.each[0].retry_after_us, -1);
}

/* ---- together ---- */

static void one_that_denies_leaves_the_others_uncharged(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l[4] = {rate("r", 60, 10, 60 * SECOND, 1), lease("l", 5, 1), budget("b", 1000, 0),
				   budget("none", 0, 0)};
	struct cache_admission a = admit(w, 0, l, 4, 10, 10, 10 * SECOND);
	assert_false(a.admitted);
	assert_int_equal(a.granted, 0);
	assert_true(a.each[0].ok && a.each[1].ok && a.each[2].ok);
	assert_false(a.each[3].ok);
	assert_int_equal(a.each[0].remaining, 10);
	assert_int_equal(a.each[1].remaining, 5);
	assert_int_equal(a.each[2].remaining, 1000);
	a = admit(w, 0, l, 3, 10, 10, 10 * SECOND);
	assert_true(a.admitted);
	assert_int_equal(a.each[0].remaining, 9);
	assert_int_equal(a.each[1].remaining, 4);
	assert_int_equal(a.each[2].remaining, 990);
}

static void numbers_out_of_range_are_refused(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit good = rate("r", 60, 10, 60 * SECOND, 1);
	struct cache_limit bad[10];
	for (int i = 0; i < 10; i++)
		bad[i] = good;
	bad[0].limit = 0;
	bad[1].limit = CACHE_RATE_MAX + 1;
	bad[2].burst = 0;
	bad[3].cost = -1;
	bad[4].period_us = 0;
	bad[5].period_us = CACHE_PERIOD_MAX + 1;
	bad[6].type = (enum cache_limit_type)9;
	bad[7].key.kind = CACHE_SESSION;
	bad[8] = lease("l", -1, 1);
	bad[9] = rate("r", 1, CACHE_RATE_MAX, CACHE_PERIOD_MAX, 1); /* beyond 2^50 us */
	for (int i = 0; i < 10; i++)
		assert_int_equal(admit(w, 0, &bad[i], 1, 0, 0, SECOND).code, SL_EINVAL);
	assert_int_equal(admit(w, 0, &good, 0, 0, 0, SECOND).code, SL_EINVAL);
	assert_int_equal(admit(w, 0, &good, 1, 1, 2, SECOND).code, SL_EINVAL);
	assert_int_equal(admit(w, 0, &good, 1, 0, 0, 0).code, SL_EINVAL);
	struct cache_limit twice[2] = {good, good};
	assert_int_equal(admit(w, 0, twice, 2, 0, 0, SECOND).code, SL_EINVAL);
	assert_true(admit(w, 0, &good, 1, 0, 0, SECOND).admitted);
}

static void the_largest_numbers_are_exact(void **state)
{
	struct world *w = world_of(state);
	struct cache_limit l = rate("r", CACHE_RATE_MAX, CACHE_RATE_MAX, 86400 * SECOND, CACHE_RATE_MAX - 1);
	struct cache_admission a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_true(a.admitted);
	assert_int_equal(a.each[0].remaining, 1);
	l.cost = 1;
	a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_true(a.admitted);
	assert_int_equal(a.each[0].remaining, 0);
	a = admit(w, 0, &l, 1, 0, 0, SECOND);
	assert_int_equal(a.each[0].retry_after_us, 1288); /* 86400e6 / 2^26, rounded up */
	struct cache_limit b = budget("b", CACHE_UNITS_MAX, CACHE_PERIOD_MAX);
	assert_int_equal(admit(w, 0, &b, 1, CACHE_UNITS_MAX, 0, CACHE_PERIOD_MAX).granted, CACHE_UNITS_MAX);
	assert_int_equal(settle(w, 0, &b, 1, CACHE_UNITS_MAX - 1, 0).each[0].remaining, 1);
}

/* ---- memory against Redis ---- */

static uint64_t seed = 20240611;

static int64_t below(int64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (int64_t)(seed % (uint64_t)n);
}

struct call {
	bool settles;
	int id;
	size_t n;
	struct cache_limit items[4];
	int64_t want, least, ttl_us;
};

/* Few keys, few ids, small limits: so that everything happens, limits that change between calls too. */
static struct call random_call(void)
{
	struct call c = {.settles = below(3) == 0, .id = (int)below(12), .n = (size_t)below(4) + 1};
	c.want = below(60);
	c.least = below(c.want + 1);
	c.ttl_us = 1 + below(4 * SECOND);
	for (size_t i = 0; i < c.n; i++) {
		char name[8];
		int type = 1 + (int)below(3);
		snprintf(name, sizeof name, "%d-%d", (int)i, type);
		if (type == CACHE_RATE)
			c.items[i] = rate(name, 1 + below(13), 1 + below(9), SECOND + below(3),
					  c.settles && below(6) == 0 ? -1 - below(3) : below(4));
		else if (type == CACHE_LEASE)
			c.items[i] = lease(name, below(8), 1 + below(2));
		else
			c.items[i] = budget(name, below(300), i % 2 == 0 ? 0 : 5 * SECOND);
	}
	return c;
}

static void say(struct world *w, const struct call *c, struct answer *a)
{
	uint8_t id[CACHE_ID_LEN];
	make_id(id, c->id);
	if (c->settles)
		cache_settle(w->g.cl, &a->op, id, c->items, c->n, c->want, c->least % 3 == 0 ? 0 : c->ttl_us, false,
			     on_answer);
	else
		cache_admit(w->g.cl, &a->op, id, c->items, c->n, c->want, c->least, c->ttl_us, on_answer);
}

static void memory_and_redis_agree(void **state)
{
	(void)state;
	if (!installed) {
		print_message("redis-server is not installed: skipped\n");
		skip();
	}
	static struct world m, r;
	enum { CALLS = 20000, AT_ONCE = 50 };
	open_world(&m, false);
	open_world(&r, true);
	int admitted = 0, denied = 0;
	uint64_t latest_us = 0;
	static struct answer of_m[AT_ONCE], of_r[AT_ONCE];
	static struct call calls[AT_ONCE];
	for (int done = 0; done < CALLS; done += AT_ONCE) {
		for (int i = 0; i < AT_ONCE; i++) {
			calls[i] = random_call();
			say(&m, &calls[i], &of_m[i]);
			say(&r, &calls[i], &of_r[i]);
		}
		for (int i = 0; i < AT_ONCE; i++) {
			const struct cache_result *x = rig_wait(&m.g, &of_m[i]);
			const struct cache_result *y = rig_wait(&r.g, &of_r[i]);
			assert_int_equal(x->code, 0);
			assert_int_equal(y->code, 0);
			assert_false(y->degraded);
			assert_int_equal(x->n_values, y->n_values);
			for (size_t k = 0; k < x->n_values; k++) {
				if (x->values[k].i != y->values[k].i)
					fail_msg("call %d, value %zu: %lld here, %lld there", done + i, k,
						 (long long)x->values[k].i, (long long)y->values[k].i);
			}
			if (!calls[i].settles)
				*(x->values[0].i ? &admitted : &denied) += 1;
			answer_reset(&of_m[i]);
			answer_reset(&of_r[i]);
		}
		uint64_t step = (uint64_t)below(3) * (uint64_t)below(2 * SECOND);
		/* Now and then it is set, either way and over several windows; back by less than the grace of ten
		 * seconds, for memory forgets what is over by this clock and Redis by its own. */
		if (below(12) == 0)
			step += (uint64_t)below(30 * SECOND);
		m.g.now_us += step;
		latest_us = m.g.now_us > latest_us ? m.g.now_us : latest_us;
		if (below(8) == 0)
			m.g.now_us = latest_us - (uint64_t)below(8 * SECOND);
		r.g.now_us = m.g.now_us;
	}
	assert_true(admitted > CALLS / 10 && denied > CALLS / 10);
	rig_close(&m.g);
	rig_close(&r.g);
}

/* ---- shared ---- */

static void two_gateways_enforce_one_limit(void **state)
{
	(void)state;
	if (!installed) {
		print_message("redis-server is not installed: skipped\n");
		skip();
	}
	static struct world w[2];
	open_world(&w[0], true);
	open_world(&w[1], true);
	struct cache_limit l[2] = {rate("r", 100, 100, 3600 * SECOND, 1), budget("b", 10000, 0)};
	enum { MANY = 300 };
	static struct answer a[2][MANY];
	uint8_t id[CACHE_ID_LEN];
	for (int i = 0; i < MANY; i++)
		for (int k = 0; k < 2; k++) {
			make_id(id, i * 2 + k);
			cache_admit(w[k].g.cl, &a[k][i].op, id, l, 2, 70, 70, 60 * SECOND, on_answer);
		}
	int admitted = 0;
	for (int i = 0; i < MANY; i++)
		for (int k = 0; k < 2; k++) {
			struct cache_admission got;
			cache_admission_read(rig_wait(&w[k].g, &a[k][i]), &got);
			assert_int_equal(got.code, 0);
			admitted += got.admitted;
			answer_reset(&a[k][i]);
		}
	assert_int_equal(admitted, 100);
	rig_close(&w[0].g);
	rig_close(&w[1].g);
}

static void a_shape_that_is_no_answer_is_refused(void **state)
{
	(void)state;
	struct cache_value v[8] = {{.i = 1}, {.i = 1}, {.i = 1}, {.i = 1}, {.i = 1}, {.i = 1}, {.i = 1}};
	struct cache_admission a;
	struct cache_settlement s;
	cache_admission_read(&(struct cache_result){.values = v, .n_values = 6}, &a);
	assert_int_equal(a.code, 0);
	assert_int_equal(a.n, 1);
	cache_admission_read(&(struct cache_result){.values = v, .n_values = 7}, &a);
	assert_int_equal(a.code, SL_EPROTO);
	cache_admission_read(&(struct cache_result){.values = v, .n_values = 2}, &a);
	assert_int_equal(a.code, SL_EPROTO);
	cache_settlement_read(&(struct cache_result){.values = v, .n_values = 4}, &s);
	assert_int_equal(s.code, SL_EPROTO);
	v[1].p = "x";
	cache_settlement_read(&(struct cache_result){.values = v, .n_values = 3}, &s);
	assert_int_equal(s.code, SL_EPROTO);
	cache_settlement_read(&(struct cache_result){.code = SL_ETIMEOUT, .degraded = true}, &s);
	assert_int_equal(s.code, SL_ETIMEOUT);
	assert_true(s.degraded);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ON_BOTH(a_rate_admits_its_burst_then_its_rate),
	    ON_BOTH(a_rate_is_exact_over_long_times),
	    ON_BOTH(more_than_the_burst_can_never_be),
	    ON_BOTH(settling_a_rate_gives_back),
	    ON_BOTH(settling_a_rate_may_leave_a_debt),
	    ON_BOTH(a_lease_is_for_so_many_at_once),
	    ON_BOTH(a_lease_that_is_not_renewed_comes_back),
	    ON_BOTH(a_budget_is_reserved_and_settled),
	    ON_BOTH(a_reservation_is_extended_as_it_goes),
	    ON_BOTH(one_that_denies_leaves_the_others_uncharged),
	    ON_BOTH(numbers_out_of_range_are_refused),
	    ON_BOTH(the_largest_numbers_are_exact),
	    cmocka_unit_test(memory_and_redis_agree),
	    cmocka_unit_test(two_gateways_enforce_one_limit),
	    cmocka_unit_test(a_shape_that_is_no_answer_is_refused),
	};
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
